"""Signals wait for a checkpoint."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from cluster.common.interrupts import SIGNALS, Interrupts


@pytest.fixture(autouse=True)
def no_nohup() -> Iterator[None]:
    """These tests themselves may run under ``nohup``."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


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


def test_however_many_come_none_forces_its_way_in() -> None:
    with Interrupts() as interrupts:
        assert not interrupts.seen
        for number in (*SIGNALS, *SIGNALS):
            interrupt(number)
        assert interrupts.seen
        with pytest.raises(KeyboardInterrupt):
            interrupts.checkpoint()
        interrupts.checkpoint()
        assert interrupts.seen


def test_a_hang_up_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Interrupts() as interrupts:
        interrupt(signal.SIGHUP)
        interrupts.checkpoint()
        interrupts.install()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


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
