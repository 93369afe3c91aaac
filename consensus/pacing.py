"""Timeouts and repetition that adapt to a network that is slower than the configuration assumed.

A view *failed* for a validator that waited in it (a timer of the view expired, or a tick came) if a quorum gave it up,
or if the validator itself did and left it otherwise. A view without a wait says nothing about the network: anybody may
send old certificates to a validator that was cut off. The configured timeouts are doubled when more views failed since
the last finalization than faulty leaders can fail (:meth:`consensus.leader.LeaderElection.longest_row`), and again with
each further one, up to :data:`MAX_FACTOR` times. They are halved after each ``final_views`` finalizations; of those
that come with neither a vote of ours nor a wait between them one counts. If they have to grow again after such a step,
the next one takes twice as many, up to :data:`MAX_PATIENCE` times as many, and half as many after one that held.
What may be lost is repeated after about two block times. An engine has no clock but its timers, so it counts the ticks
of the rebroadcast timer in each view that ended with a block. The median ``m`` of the last :data:`SAMPLES` such views
is the block time, of ``m`` to ``m + 1`` ticks, and ``2m + 1`` ticks are the interval; it is no longer than the leader
timeout, rounded up to a tick. A view that its first repetition may have ended says nothing of block times, unless a
*patient* view, in which all validators repeat a tick later, lasts as long. View :data:`FIRST_PATIENT_VIEW` is patient,
and each :data:`PATIENT_VIEWS`-th one after it.
``docs/consensus.md`` has the arguments and the bounds.
"""

from __future__ import annotations

from collections import deque
from statistics import median_low
from typing import Final

from consensus.types import View

MAX_FACTOR: Final = 16
MAX_PATIENCE: Final = 16
"""The most finalizations until a step back, times the least: in a network that needs longer timeouts, a step back every
so many blocks costs little."""
SAMPLES: Final = 9
"""Views that ended with a block, of which the median counts: five slow ones lengthen the interval, five quick ones
shorten it."""
FIRST_PATIENT_VIEW: Final = 8
"""In it all validators wait a tick longer with their first repetition. It is early, so that a large network learns its
block time in its first views."""
PATIENT_VIEWS: Final = 32
"""Views from one patient view to the next: each costs a tick where messages are lost."""
BLOCK_TIMES: Final = 2
"""Block times from one repetition to the next: less repeats what is still under way."""


class Pacing:
    """The factor of one engine's timeouts."""

    def __init__(self, final_views: int) -> None:
        """``final_views``: as in :class:`~consensus.interface.VotingConfig`."""
        self.factor = 1
        self.repetition = Repetition()
        self.has_waited = False
        """A timer of this view expired, or a tick came in it."""
        self._gave_up = False
        """We voted to give this view up."""
        self._took_part = False
        """We waited, or cast another vote than one to finalize, since the last finalization that counted."""
        self._failed = 0
        """Views that failed since the last finalization."""
        self._final = 0
        """Finalizations since the last step."""
        self.final_views = self._least_final_views = final_views
        """Finalizations until the next step back."""
        self._stepped_back = False
        """The last step was one back."""

    def enter_view(self, view: View) -> None:
        """Another view begins."""
        self.has_waited = self._gave_up = False
        self.repetition.enter_view(view)

    def waited(self) -> None:
        """A timer of this view expired."""
        self.has_waited = self._took_part = True

    def voted(self, gives_up: bool) -> None:
        """We cast a vote other than one to finalize; ``gives_up``: this view."""
        self._took_part = True
        self._gave_up |= gives_up

    def left(self, given_up: bool, longest_row: int) -> None:
        """A certificate ended the view; ``given_up``: it gives a view up. ``longest_row``: of views that may fail
        between two finalizations, however good the network."""
        if not (self.has_waited and (given_up or self._gave_up)):
            return
        self._failed += 1
        if self._failed > longest_row and self.factor < MAX_FACTOR:
            self.factor *= 2
            self._final = 0
            if self._stepped_back:
                self._stepped_back = False
                self.final_views = min(2 * self.final_views, MAX_PATIENCE * self._least_final_views)

    def finalized(self) -> None:
        """A finalization became known."""
        self._failed = 0
        if not self._took_part:
            return
        self._took_part = False
        self._final += 1
        if self._final >= self.final_views:
            self._final = 0
            if self._stepped_back or self.factor == 1:
                self.final_views = max(self.final_views // 2, self._least_final_views)
            self._stepped_back = self.factor > 1
            self.factor = max(1, self.factor // 2)


class Repetition:
    """When one engine repeats what may be lost. Its unit of time is the tick, one ``rebroadcast_ms``."""

    def __init__(self) -> None:
        self.ticks = 0
        """In this view."""
        self._is_patient = False
        """The first repetition of this view comes a tick later."""
        self._interval = 1
        """Ticks from one repetition to the next, unless the leader timeout is shorter."""
        self._first = 0
        """The tick of the first repetition in this view, or 0."""
        self._last = 0
        """That of the last one."""
        self._taken = deque([0] * SAMPLES, maxlen=SAMPLES)
        """Ticks of the views that ended with a block lately."""
        self._unclear = 0
        """Views since the last patient one that may have been ended by their first repetition."""

    def enter_view(self, view: View) -> None:
        """Another view begins."""
        self.ticks = self._first = self._last = 0
        self._is_patient = view % PATIENT_VIEWS == FIRST_PATIENT_VIEW

    def tick(self, longest: int) -> bool:
        """A tick came; whether to repeat now. ``longest``: ticks of the leader timeout, which bounds the interval."""
        self.ticks += 1
        interval = self._interval + (self._is_patient and not self._first)
        if self.ticks - self._last < min(interval, longest):
            return False
        self._first = self._first or self.ticks
        self._last = self.ticks
        return True

    def made_block(self) -> None:
        """The view ended with a block.

        If it ended within a tick of its first repetition, that may have ended it, or the view would have ended then
        anyway. A patient view tells: it ends a tick later, or before it repeats, and then so had the others.
        """
        if 0 < self._first == self.ticks:
            self._unclear = 0 if self._is_patient else self._unclear + 1
            return
        self._taken.append(self.ticks)
        if self._is_patient:
            self._taken.extend([self.ticks] * min(self._unclear, SAMPLES))
            self._unclear = 0
        self._interval = BLOCK_TIMES * median_low(self._taken) + 1
