"""Timeouts and repetition that adapt to a network slower than the configuration assumed.

A view in which a validator *waited* (a timer of the view expired, or a tick came) *failed* for it if a quorum gave the
view up, or if the validator gave it up and left it by another certificate. A view without a wait says nothing about the
network: any peer may send old certificates to a validator that was cut off.

The configured timeouts are doubled when more views failed since the last finalization than faulty leaders can fail
(:meth:`consensus.leader.LeaderElection.longest_row`), and again with each further failed view, up to the factor
:data:`MAX_FACTOR`. They are halved after each ``final_views`` finalizations. Of finalizations with neither a vote of
ours nor a wait between them, only one counts. If timeouts grow again after such a step back, the next step takes twice
as many finalizations, up to :data:`MAX_PATIENCE` times as many; after a step that held, half as many.

Messages that may be lost are repeated after about two block times. An engine has no clock except its timers, so it
counts the ticks of the rebroadcast timer in each view that ended with a block. The median ``m`` of the last
:data:`SAMPLES` such views is the block time, of ``m`` to ``m + 1`` ticks, and the interval is ``2m + 1`` ticks, but at
most the leader timeout, rounded up to a tick. A view that its first repetition may have ended says nothing about block
times, unless a *patient* view, in which all validators repeat a tick later, lasts as long. View
:data:`FIRST_PATIENT_VIEW` is patient, and each :data:`PATIENT_VIEWS`-th view after it.

``docs/consensus.md`` has the bounds, ``docs/consensus-reasons.md`` the arguments.
"""

from __future__ import annotations

from collections import deque
from statistics import median_low
from typing import Final

from consensus.types import View

MAX_FACTOR: Final = 16
MAX_PATIENCE: Final = 16
"""Upper bound of the finalizations after which timeouts are halved, as a multiple of the configured number. A network
that needs the longer timeouts loses little if they are halved once in that many blocks."""
SAMPLES: Final = 9
"""Number of views that ended with a block whose median duration is the block time. Five slow ones lengthen the
interval, five fast ones shorten it."""
FIRST_PATIENT_VIEW: Final = 8
"""The first patient view: all validators delay their first repetition in it by a tick. It is early, so that a large
network learns its block time in its first views."""
PATIENT_VIEWS: Final = 32
"""Number of views from one patient view to the next. Each patient view costs a tick if messages are lost."""
BLOCK_TIMES: Final = 2
"""Number of block times between two repetitions. A shorter interval repeats messages that are still in transit."""


class Pacing:
    """Adapts one engine's timeouts to its network: keeps the factor by which they are multiplied."""

    def __init__(self, final_views: int) -> None:
        """``final_views``: as in :class:`~consensus.interface.VotingConfig`."""
        self.factor = 1
        self.repetition = Repetition()
        self.has_waited = False
        """Whether a timer of this view expired or a tick came in it."""
        self._gave_up = False
        """Whether we voted to give this view up."""
        self._took_part = False
        """Whether we waited, or cast a vote other than to finalize, since the last finalization that counted."""
        self._failed = 0
        """Number of views that failed since the last finalization."""
        self._final = 0
        """Number of finalizations counted since the factor was last doubled, or due to be halved."""
        self.final_views = self._least_final_views = final_views
        """Number of finalizations after which the factor is halved."""
        self._stepped_back = False
        """Whether the last change of the factor halved it."""

    def enter_view(self, view: View) -> None:
        """Note that another view begins."""
        self.has_waited = self._gave_up = False
        self.repetition.enter_view(view)

    def waited(self) -> None:
        """Note that a timer of this view expired."""
        self.has_waited = self._took_part = True

    def voted(self, gives_up: bool) -> None:
        """Note that we cast a vote, other than one to finalize. ``gives_up``: whether the vote gives this view up."""
        self._took_part = True
        self._gave_up |= gives_up

    def left(self, given_up: bool, longest_row: int) -> None:
        """Note that a certificate ended the view. Doubles the factor if too many views have failed.

        ``given_up``: the certificate gives the view up. ``longest_row``: views that may fail between two finalizations
        in any network, because of faulty leaders or chance.
        """
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
        """Note that a finalization became known. Halves the factor after enough of them."""
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
    """Decides when an engine repeats messages that may be lost. The unit of time is a tick, one ``rebroadcast_ms``."""

    def __init__(self) -> None:
        self.ticks = 0
        """Number of ticks so far in this view."""
        self._is_patient = False
        """Whether this view delays its first repetition by a tick."""
        self._interval = 1
        """Number of ticks from one repetition to the next, unless the leader timeout is shorter."""
        self._first = 0
        """The tick of the first repetition in this view, or 0."""
        self._last = 0
        """The tick of the last repetition in this view, or 0."""
        self._taken = deque([0] * SAMPLES, maxlen=SAMPLES)
        """The number of ticks of each of the newest views that ended with a block."""
        self._unclear = 0
        """Number of views since the last patient one that may have ended because of their first repetition."""

    def enter_view(self, view: View) -> None:
        """Count ticks and repetitions from 0, for a view that begins."""
        self.ticks = self._first = self._last = 0
        self._is_patient = view % PATIENT_VIEWS == FIRST_PATIENT_VIEW

    def tick(self, longest: int) -> bool:
        """Count a tick. Returns whether to repeat messages now. ``longest``: upper bound of the interval, in ticks."""
        self.ticks += 1
        interval = self._interval + (self._is_patient and not self._first)
        if self.ticks - self._last < min(interval, longest):
            return False
        self._first = self._first or self.ticks
        self._last = self.ticks
        return True

    def made_block(self) -> None:
        """Note that the view ended with a block, and adapt the interval to the block time.

        A view that ended within a tick of its first repetition is unclear: the repetition may have ended it or not. A
        patient view, which repeats a tick later, decides: unless it is unclear as well, its ticks count for the unclear
        views before it.
        """
        if 0 < self._first == self.ticks:
            self._unclear = 0 if self._is_patient else self._unclear + 1
            return
        self._taken.append(self.ticks)
        if self._is_patient:
            self._taken.extend([self.ticks] * min(self._unclear, SAMPLES))
            self._unclear = 0
        self._interval = BLOCK_TIMES * median_low(self._taken) + 1
