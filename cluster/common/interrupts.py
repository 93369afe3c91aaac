"""Ctrl-C, SIGTERM and a terminal that was closed, delivered only where they can be taken.

A signal that breaks into something (Ray while it starts its processes, a file while it is written, the clean-up) leaves
behind what nobody knows of. So while :class:`Interrupts` is entered, a signal is only noted, and becomes a
:class:`KeyboardInterrupt` at the next :meth:`Interrupts.checkpoint` or :meth:`Interrupts.wait`. However many come, none
forces its way in: what waits or collects has checkpoints, what writes or cleans up has none and is bounded in time.
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
    """A context in which signals wait. In another than the main thread they are somebody else's: nothing is changed."""

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
        """Whether any signal came, taken or not."""
        return self._seen > 0

    def install(self) -> None:
        """Take the signals; again, after a library took them away."""
        for number in self._before:
            signal.signal(number, self._note)

    def checkpoint(self) -> None:
        """Raise :class:`KeyboardInterrupt` where a signal came since the last time one was raised."""
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
        """Count the signals so far as what the run waited for, not as interruptions."""
        self._seen = self._taken = 0

    def wait_for_one(self) -> None:
        """Sleep until a signal comes, and count it as waited for."""
        while self._seen == self._taken:
            time.sleep(SLICE_S)
        self.accept()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._seen += 1


def is_unwanted(number: int) -> bool:
    """Whether a signal is to go on being ignored: the hang-up of a terminal, under ``nohup``."""
    return number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN
