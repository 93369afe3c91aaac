"""How long a host may go on without hearing from its driver.

A node that is partitioned from the cluster counts as lost after a while, and its validators are started elsewhere.
Hosts that still run on it must have ended by then: a validator that ran twice would equivocate. So a host of a cluster
holds a lease that its driver renews, and ends when the lease does. The driver starts validators of a lost node
elsewhere once no lease that it gave can be held any more.

A lease counts the machine's time, with suspensions and while the host does not run. A host that was stopped or did not
get to run finds its lease expired when it goes on: :meth:`Lease.check` is called before a validator
takes an event and before it sends a message, so that neither happens after the end.

A renewal counts from the host's clock in the last answer that the driver has, so that a delayed renewal does not
lengthen the lease. For a process that was started since, it counts from its start. A host that the driver paused on
purpose cannot answer. The process that resumes it on purpose notes the time first
(:mod:`cluster.live.processes.resumption`), and the lease counts from that time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cluster.live.processes import resumption
from cluster.live.processes.resumption import boot_seconds

LOOK_EVERY_S: Final = 0.5


class Lease:
    """The lease of one host. It begins with the first :meth:`renew`."""

    def __init__(
        self,
        on_end: Callable[[float], None],
        resumed: Path | None = None,
        now_s: Callable[[], float] = boot_seconds,
    ) -> None:
        """``on_end`` is called once, with the length of the lease, in the thread that notices its end.

        ``resumed`` is the file of :mod:`cluster.live.processes.resumption`.
        """
        self._on_end = on_end
        self._resumed = resumed
        self._now_s = now_s
        self._began_s = now_s()
        self._length_s = 0.0
        self._until_s: float | None = None
        self._is_given_up = self._is_told = False
        self.is_for_any_driver = False
        """Whether another driver may take the host over. If none does, the host has to end itself for good."""
        self._guard = threading.Lock()
        self._never = threading.Event()
        self._thread: threading.Thread | None = None

    def renew(self, length_s: float, heard_s: float | None = None) -> float:
        """Extend the lease to ``length_s`` after ``heard_s``. Returns the host's time now.

        ``heard_s`` is the host's time in the last answer that its driver got; by default it is the time now. A lease
        that has ended is not renewed. Ignored after :meth:`give_up`.
        """
        self.check()
        with self._guard:
            now_s = self._now_s()
            since_s = now_s if heard_s is None else max(self._began_s, min(heard_s, now_s))
            self._length_s = length_s
            # never shorten a lease that was given earlier
            self._until_s = max(self._until_s or since_s + length_s, since_s + length_s)
            if self._thread is None and not self._is_given_up:
                self._thread = threading.Thread(target=self._watch, name="lease", daemon=True)
                self._thread.start()
        return now_s

    def give_up(self) -> None:
        """Make the lease endless, for a host that no longer takes part in anything."""
        self._is_given_up = True

    @property
    def has_ended(self) -> bool:
        if self._until_s is None or self._is_given_up or self._now_s() < self._until_s:
            return False
        resumed_s = None if self._resumed is None else resumption.noted(self._resumed)
        if resumed_s is not None:
            self._until_s = max(self._until_s, resumed_s + self._length_s)
        return self._now_s() >= self._until_s

    def check(self) -> None:
        """Return if the lease lasts. Otherwise block this thread forever, while ``on_end`` ends the process."""
        if self.has_ended:
            self._end()
            self._never.wait()

    def _end(self) -> None:
        with self._guard:
            is_told, self._is_told = self._is_told, True
        if not is_told:
            self._on_end(self._length_s)

    def _watch(self) -> None:
        while not self._is_given_up:
            time.sleep(LOOK_EVERY_S)
            if self.has_ended:
                self._end()
                return
