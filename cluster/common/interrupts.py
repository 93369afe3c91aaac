"""Ctrl-C, SIGTERM and SIGHUP, delivered at checkpoints only.

A signal at any moment could leave processes or incomplete files behind. Inside :class:`Interrupts` a signal is only
noted, and raises :class:`KeyboardInterrupt` at the next :meth:`Interrupts.checkpoint` or :meth:`Interrupts.wait`. Code
that waits or collects has checkpoints; code that writes or cleans up has none and is bounded in time.
"""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SLICE_S: Final = 0.05


class Interrupts:
    """A context in which signals are deferred. Outside of the main thread it changes nothing."""

    def __init__(self) -> None:
        self._seen = 0
        self._taken = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in SIGNALS if not is_unwanted(number)}
            self.install()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def seen(self) -> bool:
        """Whether any signal came that was not accepted (:meth:`accept`), whether or not it raised an exception."""
        return self._seen > 0

    def install(self) -> None:
        """Install the signal handlers. Call it again after a library replaced them."""
        for number in self._before:
            signal.signal(number, self._note)

    def checkpoint(self) -> None:
        """Raise :class:`KeyboardInterrupt` if a signal came since the last checkpoint."""
        if self._seen > self._taken:
            self._taken = self._seen
            raise KeyboardInterrupt

    def wait(self, seconds: float) -> None:
        """Sleep, and raise :class:`KeyboardInterrupt` as soon as a signal comes."""
        deadline = time.monotonic() + seconds
        self.checkpoint()
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, SLICE_S))
            self.checkpoint()

    def accept(self) -> None:
        """Forget the signals so far: no checkpoint raises :class:`KeyboardInterrupt` because of them."""
        self._seen = self._taken = 0

    def wait_for_one(self) -> None:
        """Sleep until a signal comes, then forget it (:meth:`accept`)."""
        while self._seen == self._taken:
            time.sleep(SLICE_S)
        self.accept()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._seen += 1


def is_unwanted(number: int) -> bool:
    """Whether a signal must stay ignored: SIGHUP under ``nohup``."""
    return number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN
