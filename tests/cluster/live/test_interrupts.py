"""Signals wait for a checkpoint."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from cluster.live.interrupts import SIGNALS, Interrupts


def interrupt(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_delivered_at_the_next_checkpoint(number: int) -> None:
    with Interrupts() as interrupts:
        interrupts.checkpoint()
        interrupt(number)
        with pytest.raises(KeyboardInterrupt):
            interrupts.checkpoint()
        interrupts.checkpoint()


def test_a_signal_ends_a_wait() -> None:
    with Interrupts() as interrupts:
        timer = threading.Timer(0.05, interrupt)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            interrupts.wait(60)
        timer.join()


def test_impatience_is_answered_at_once() -> None:
    with Interrupts():
        interrupt()
        interrupt()
        with pytest.raises(KeyboardInterrupt):
            interrupt()


def test_handlers_are_taken_back_and_given_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with Interrupts() as interrupts:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        interrupts.install()
        interrupt(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            interrupts.checkpoint()
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_another_thread_leaves_signals_alone() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    seen: list[object] = []

    def enter() -> None:
        with Interrupts() as interrupts:
            interrupts.install()
            seen.extend(signal.getsignal(number) for number in SIGNALS)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == before
