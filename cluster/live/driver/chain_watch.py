"""Merges the observations of the validators into one view of the running chain, and of the machine under it.

Validators report the same heights at different times; the first report of a height counts. Times become
milliseconds since the run began.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cluster.live.driver.hosts import Hosts
from cluster.live.handover.left import LeftRun, SeenChain
from cluster.live.handover.rows import Sightings
from cluster.live.host.host import ValidatorView
from cluster.live.host.lag import LagMeter, LagSpan
from cluster.live.host.observations import (
    CertificateSeen,
    FinalSeen,
    FirstSeen,
    HeightSeen,
    NotesLost,
    Observation,
    ViewSeen,
    VoteSent,
)
from cluster.record.finalizations import Finalization
from cluster.record.host_info import Busyness
from cluster.record.lag import LagLog
from cluster.record.message_trace import LiveTrace
from cluster.record.resources import ResourceLog
from cluster.record.run import VOTE_STEPS, Lag, Resources, RunRecord, Sample, Step, StepKind
from consensus.messages import VoteKind
from validator.node.events import BlockFinal

HEIGHTS_REMEMBERED: Final = 4_096
"""Number of newest heights of which reported blocks are remembered. An older block counts as reported before."""
NEWEST_BLOCKS: Final = 48
"""Number of newest blocks that the dashboard shows."""


class Newest:
    """The newest blocks and votes that this driver saw, for the dashboard."""

    def __init__(self) -> None:
        self.blocks = deque[tuple[float, BlockFinal]](maxlen=NEWEST_BLOCKS)
        """The final blocks that were seen last, each with when, in milliseconds since the run began."""
        self.votes: dict[int, dict[VoteKind, int]] = {}
        """The newest view of each kind of vote, keyed by validator."""

    def voted(self, validator: int, vote: VoteSent) -> None:
        votes = self.votes.setdefault(validator, {})
        votes[vote.kind] = max(vote.view, votes.get(vote.kind, 0))


class ChainWatch:
    """Fills a record's finalizations, proposals and samples."""

    def __init__(
        self,
        record: RunRecord,
        began_epoch_ms: float,
        sightings: Sightings | None = None,
        left: LeftRun | None = None,
    ) -> None:
        """``sightings`` gets finalizations and proposals, if they must outlive this process. ``left`` is what another
        driver has left, whose observations ``record`` has.
        """
        self._record = record
        self._sightings = sightings
        self._began_epoch_ms = began_epoch_ms
        self.trace = LiveTrace(record, began_epoch_ms, None if left is None else left.trace)
        self.newest = Newest()
        self.lag, self.busyness = LagMeter(), Busyness()
        """The driver's own lag, and the machine's other work."""
        self.resources = ResourceLog(record, None if left is None else left.resources)
        self._lags = LagLog(record)
        self._lane_cycles = record.genesis.parameters.lane_timer_cycles
        self.chain = SeenChain() if left is None else left.chain
        """What was seen of the chain, for another driver, too."""
        self._served: dict[int, int] = {}
        """The highest height noted of each external validator. The record has them, too."""
        external = record.scenario.validators.external
        for seen in record.finalizations if external else ():
            if seen.validator in external:
                self._served[seen.validator] = max(seen.height, self._served.get(seen.validator, 0))

    @property
    def height(self) -> int:
        """The highest final height seen anywhere."""
        return self.chain.height

    def take_view(self, at_ms: float, view: ValidatorView) -> None:
        """Take all that a host reports of a validator."""
        self.take(view.index, view.observations)
        self.trace.take(view.index, view.stamps)
        if self._record.timings is not None:
            self._record.timings.work += view.work
        self.take_use(at_ms, view)

    def take(self, validator: int, observations: Iterable[Observation]) -> None:
        for seen in observations:
            match seen:
                case VoteSent():
                    self.newest.voted(validator, seen)
                case CertificateSeen() | NotesLost():
                    pass  # for the audit
                case FirstSeen(height=height):
                    at_ms = self._at_ms(seen)
                    self._note_proposal(at_ms, height)
                case ViewSeen(view=view):
                    at_ms = self._at_ms(seen)
                    self.trace.windows.begin(at_ms)
                    self.trace.windows.entered(at_ms, validator, view)
                case HeightSeen(height=height):
                    self._note_served(self._at_ms(seen), validator, height)
                case FinalSeen(block=block):
                    at_ms = self._at_ms(seen)
                    self._record.note_reorg(validator, block.height, block.reorg_depth)
                    self._note_final(Finalization(at_ms, validator, block.height))
                    self._count(at_ms, block)

    def _note_final(self, seen: Finalization) -> None:
        self._record.finalizations.append(seen)
        if self._sightings is not None:
            self._sightings.finalized(seen)

    def _note_served(self, at_ms: float, validator: int, height: int) -> None:
        """Note what an external validator says of itself, up to the highest height that one of ours reported."""
        believed = min(height, self.height)
        if believed > self._served.get(validator, 0):
            self._served[validator] = believed
            self._note_final(Finalization(at_ms, validator, believed))

    def _note_proposal(self, at_ms: float, height: int) -> None:
        if at_ms < self._record.proposals.get(height, math.inf):
            self._record.proposals[height] = at_ms
            if self._sightings is not None:
                self._sightings.proposed(at_ms, height)

    def take_use(self, at_ms: float, view: ValidatorView) -> None:
        """Record the resources that a validator uses, if its host reported them."""
        use, sent = view.use, view.state.messages_sent
        if use is not None:
            self.resources.note(Resources(at_ms, view.index, view.disk_bytes, sent, *use))

    def take_lag(self, host: int | None, span: LagSpan) -> None:
        """Record how long the machine kept a host, or the driver, from running."""
        at_ms, until_ms = (max(0.0, each - self._began_epoch_ms) for each in (span.from_ms, span.until_ms))
        self._lags.note(Lag(at_ms, until_ms, span.lag_ms, host))

    def take_lags(self, hosts: Hosts) -> None:
        """Record the lags of hosts and driver since the last look."""
        for number, span in hosts.take_lags():
            self.take_lag(number, span)
        for span in self.lag.drain():
            self.take_lag(None, span)

    def sample(
        self,
        at_ms: float,
        heights: Sequence[int | None],
        views: Sequence[int | None] = (),
        states: Sequence[str] = (),
    ) -> Sample:
        """Add a sample of the network, and return it."""
        sample = self.observe(at_ms, heights, views, states)
        self._record.samples.append(sample)
        return sample

    def observe(
        self, at_ms: float, heights: Sequence[int | None], views: Sequence[int | None], states: Sequence[str]
    ) -> Sample:
        """A sample of the network that is not recorded."""
        newest = self.chain.newest
        return Sample(
            at_ms=at_ms,
            heights=tuple(heights),
            fires=self.chain.fires,
            transactions=self.chain.transactions,
            pending_timers=0 if newest is None else newest.pending_timers,
            backlog=0 if newest is None else newest.backlog,
            basefee_cycle=0 if newest is None else newest.basefee_cycle,
            basefee_lane_timer=0 if newest is None else newest.basefee_lane_timer,
            lane_share=0.0 if newest is None else newest.lane_cycles / self._lane_cycles,
            views=tuple(views),
            states=tuple(states),
            faults=self._record.faults_under_way,
        )

    def _at_ms(self, seen: FirstSeen | FinalSeen | HeightSeen | ViewSeen) -> float:
        return max(0.0, seen.at_ms - self._began_epoch_ms)

    def _count(self, at_ms: float, block: BlockFinal) -> None:
        counted_to = self.height - HEIGHTS_REMEMBERED
        if block.height in self.chain.heights or block.height <= counted_to:
            return
        self.chain.heights.add(block.height)
        if len(self.chain.heights) > 2 * HEIGHTS_REMEMBERED:
            self.chain.heights = {height for height in self.chain.heights if height > counted_to}
        self.newest.blocks.append((at_ms, block))
        self.chain.fires += block.fires
        self.chain.transactions += block.transactions
        if self.chain.newest is None or block.height > self.chain.newest.height:
            self.chain.newest = block


def steps_of(view: ValidatorView, began_epoch_ms: float) -> Iterator[Step]:
    """The steps in one report of a validator. The run began at ``began_epoch_ms``."""
    for at_ms, transaction in getattr(view, "taken", ()):  # a host of other code may not report them
        yield Step(StepKind.TAKEN, at_ms - began_epoch_ms, view.index, transaction=transaction)
    for seen in view.observations:
        found = _step(seen)
        if found is not None:
            kind, at_ms, number = found
            yield Step(kind, at_ms - began_epoch_ms, view.index, number)


def _step(seen: Observation) -> tuple[StepKind, float, int] | None:
    """The kind of an observation, its time since the epoch, and its height or view; ``None`` if it is no step."""
    match seen:
        case FirstSeen(height=height, at_ms=at_ms):
            return StepKind.BEGAN, at_ms, height
        case ViewSeen(at_ms=at_ms, view=view):
            return StepKind.ENTERED, at_ms, view
        case FinalSeen(at_ms=at_ms, block=block):
            return StepKind.FINAL, at_ms, block.height
        case VoteSent(view=view, kind=kind, at_ms=at_ms) if kind in VOTE_STEPS and at_ms:
            return VOTE_STEPS[kind], at_ms, view
    return None
