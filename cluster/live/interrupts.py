"""Ctrl-C and SIGTERM, delivered only where the driver can take them.

A signal that interrupts a library in the middle (Ray while it starts its processes, say) leaves behind what nobody
knows of. So while :class:`Interrupts` is entered, a signal is only noted, and becomes a :class:`KeyboardInterrupt` at
the next :meth:`Interrupts.checkpoint` or :meth:`Interrupts.wait`. Everything between two of these is bounded in time.
Whoever is out of patience and interrupts :data:`SIGNALS_TO_FORCE` times gets the exception at once.
"""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
SIGNALS_TO_FORCE: Final = 3
SLICE_S: Final = 0.05


class Interrupts:
    """A context in which signals wait. In another than the main thread they are somebody else's: nothing is changed."""

    def __init__(self) -> None:
        self._seen = 0
        self._taken = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in SIGNALS}
            self.install()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

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

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._seen += 1
        if self._seen >= SIGNALS_TO_FORCE:
            self._taken = self._seen
            raise KeyboardInterrupt
