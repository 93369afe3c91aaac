"""How long a host may go on without a word of its driver.

A node that is cut off from the cluster counts as lost after a while, and its validators are started elsewhere. The
hosts that still run on it must have ended by then: a validator that ran twice would contradict itself with its own key.
So a host of a cluster holds a lease that its driver renews, and ends when the lease does. The driver starts validators
of a lost node elsewhere once no lease that it gave can be held any more.

Only time in which the host ran counts: a process that was stopped, or that the machine did not let run, goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

LOOK_EVERY_S: Final = 0.5
MAX_COUNTED_S: Final = 1.0
"""Of the time between two looks."""


class Lease:
    """One host's. It begins with the first :meth:`renew`."""

    def __init__(self, on_end: Callable[[float], None], now_s: Callable[[], float] = time.monotonic) -> None:
        """``on_end`` is called once, in a thread of its own, with the length of the lease."""
        self._on_end = on_end
        self._now_s = now_s
        self._length_s = self._left_s = 0.0
        self._looked = 0.0
        self._is_given_up = False
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def renew(self, length_s: float) -> None:
        """It lasts so long from now on. Ignored after :meth:`give_up`."""
        with self._guard:
            self._length_s = self._left_s = length_s
            self._looked = self._now_s()
            if self._thread is None and not self._is_given_up:
                self._thread = threading.Thread(target=self._watch, name="lease", daemon=True)
                self._thread.start()

    def give_up(self) -> None:
        """It never ends: the host takes part in nothing any more."""
        self._is_given_up = True

    def look(self) -> bool:
        """Count the time since the last look. Returns whether it has ended."""
        with self._guard:
            now_s = self._now_s()
            self._left_s -= min(now_s - self._looked, MAX_COUNTED_S)
            self._looked = now_s
            return self._left_s <= 0 and not self._is_given_up

    def _watch(self) -> None:
        while not self._is_given_up:
            time.sleep(LOOK_EVERY_S)
            if self.look():
                self._on_end(self._length_s)
                return
