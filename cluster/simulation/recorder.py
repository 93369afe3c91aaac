"""The recorder of a simulated run: samples during the run, and at its end all data that the checks judge. Its steps
towards final blocks, for a tracer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from cluster.audit.books import KeptLedger, final_queries
from cluster.audit.chains import longest_chain
from cluster.audit.proofs import Answers, Page, ProofAudit, Unproved, with_answers
from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.faults.link_model import Links
from cluster.record.archive import BlockRecord
from cluster.record.chain_store import ServedBlocks
from cluster.record.finalizations import Finalization
from cluster.record.message_trace import SimulatedTrace
from cluster.record.resources import ResourceLog
from cluster.record.run import VOTE_STEPS, Resources, RunRecord, Sample, Step, StepKind, Supply, ValidatorRecord
from cluster.simulation.clock import VirtualClock
from cluster.simulation.machine import Machine
from cluster.simulation.observer import Observer
from consensus.messages import Vote
from validator.chain.transactions import transaction_hash
from validator.node.assembly import Validator
from validator.node.events import BlockFinal, Effect, Event, Run, Submit
from validator.node.executor.jobs import Build, Execute, Job
from validator.node.executor.queries import FinalityPage, StatePages
from validator.primitives.types import parse_address
from validator.state import HistoryError
from validator.state.proof import ProofError

SAMPLE_EVERY_MS: Final = 500
ALL_BLOCKS: Final = 10**9


class Recorder(Observer):
    """Fills one run's record from its machines. ``on_sample`` is called with each sample."""

    effects = frozenset({BlockFinal, Run})

    def __init__(
        self,
        record: RunRecord,
        machines: Sequence[Machine],
        clock: VirtualClock,
        on_sample: Callable[[Sample], None] | None,
    ) -> None:
        self.record = record
        self.trace = SimulatedTrace(record)
        self._machines = machines
        self._clock = clock
        self._on_sample = on_sample
        self._resources = ResourceLog(record)
        self._kept: dict[int, ServedBlocks] = {}
        """The blocks of machines that may prune them, keyed by index."""

    def sent(
        self, machine: Machine, recipients: Sequence[int], payload: bytes, arrivals: Sequence[tuple[int, int]]
    ) -> None:
        """Note a message for the trace."""
        self.trace.sent(self._clock.now_us, machine.index, recipients, payload, arrivals)

    def enters(self, machine: Machine, view: int) -> None:
        """Note for the trace that a validator entered a view."""
        self.trace.windows.entered(self._clock.now_ms, machine.index, view)

    def performs(self, machine: Machine, effect: BlockFinal | Run) -> None:
        """Note when a validator makes a block final, and when the first one begins to build or execute one."""
        if type(effect) is BlockFinal:
            self.record.note_reorg(machine.index, effect.height, effect.reorg_depth)
            self.keep(machine)
            self.record.finalizations.append(Finalization(self._clock.now_ms, machine.index, effect.height))
        elif type(effect) is Run and (height := height_begun(machine, effect.job)) is not None:
            self.record.proposals.setdefault(height, self._clock.now_ms)

    def schedule_sample(self) -> None:
        """Schedule the next sample, and so all later ones at a fixed interval."""
        self._clock.after(SAMPLE_EVERY_MS * MICROSECONDS_PER_MILLISECOND, "sample", b"", self._sample)

    def _sample(self) -> None:
        self.schedule_sample()
        best = max(self._machines, key=lambda m: (m.tally.newest.height if m.tally.newest else 0, -m.index))
        newest, tally = best.tally.newest, best.tally
        sample = Sample(
            at_ms=self._clock.now_ms,
            heights=tuple(m.validator.node.height if m.validator else None for m in self._machines),
            fires=tally.fires,
            transactions=tally.executed_transactions,
            pending_timers=tally.pending_timers,
            backlog=tally.backlog,
            basefee_cycle=newest.basefee_cycle if newest else 0,
            basefee_lane_timer=newest.basefee_lane_timer if newest else 0,
            lane_share=newest.lane_cycles / self.record.genesis.parameters.lane_timer_cycles if newest else 0.0,
            views=tuple(m.validator.node.view if m.validator else None for m in self._machines),
            states=tuple(m.state_word for m in self._machines),
            faults=self.record.faults_under_way,
        )
        self.record.samples.append(sample)
        self.look()
        now_ms, sent_by = self._clock.now_ms, self.trace.sent_by
        for machine in self._machines:
            if self._resources.is_due(now_ms, machine.index):
                self._resources.note(Resources(now_ms, machine.index, machine.disk.used_bytes, sent_by[machine.index]))
        if self._on_sample is not None:
            self._on_sample(sample)

    def look(self) -> None:
        """Report the chain's progress to the trace."""
        self.trace.look(self._clock.now_ms, next(reversed(self.record.checkpoints), 0))

    def collect(self, links: Links, observers: Sequence[Observer]) -> None:
        """Complete the record when the run is over, with what the observers have seen."""
        record = self.record
        record.duration_ms, record.digest = self._clock.now_ms, self._clock.digest()
        self.look()
        self.trace.windows.close(self._clock.now_ms)
        record.metrics["events"] = self._clock.events
        record.metrics["messages_sent"] = links.sent
        record.metrics["messages_dropped"] = links.dropped
        for machine in self._machines:
            found = self.record_of(machine)
            found.mutant_runs = machine.tally.mutant_runs.runs
            if machine.validator is None:
                record.problems.append(f"{machine.name} was still down at the end")
            else:
                found.status = machine.status()
                diverged = machine.tally.diverged
                found.trace = b"" if diverged is None else diverged.trace
            record.validators.append(found)
        record.note_mutants()
        for observer in observers:
            observer.ends(record)
        self._ask()

    def keep(self, machine: Machine) -> None:
        """Record a machine's new final blocks, and let it prune them, if it prunes at all."""
        if self.record.scenario.storage.keep_blocks is None:
            return
        assert machine.validator is not None
        executor = machine.validator.executor
        first, kept = executor.archive.joined_height + 1, self._kept.get(machine.index)
        if kept is None or kept.first_height != first:  # another disk
            kept = self._kept[machine.index] = ServedBlocks(self.record.store, first)
        executor.allow_pruning(min(_taken(machine.validator, kept).tip, self.lowest_tip()))

    def lose(self, machine: Machine) -> None:
        """Record what a machine serves from its disk, which is about to be lost.

        No machine prunes until this one has blocks on its next disk.
        """
        if machine.validator is not None:
            self.record.lost.append(self.record_of(machine))
        self._kept.pop(machine.index, None)

    def lowest_tip(self) -> int:
        """The height up to which every machine has the final blocks, even if it is down and will come back."""
        late = self.record.scenario.validators.late
        machines = [machine.index for machine in self._machines if machine.index not in late]
        return min(self._kept[index].tip if index in self._kept else 0 for index in {*machines, *self._kept})

    def record_of(self, machine: Machine) -> ValidatorRecord:
        """The blocks that a machine serves, or served before it pruned them; none if it is down."""
        byzantine = tuple(self.record.scenario.validators.node(machine.index).byzantine)
        found = ValidatorRecord(machine.name, machine.index, byzantine=byzantine)
        if machine.validator is not None:
            executor = machine.validator.executor
            first = executor.archive.joined_height + 1
            pruned = executor.archive.first_height - executor.archive.joined_height
            served = self._kept[machine.index].first(pruned) if pruned else ServedBlocks(self.record.store, first)
            found.first_height, found.blocks = first, _taken(machine.validator, served)
        return found

    def _ask(self) -> None:
        """Query every validator's final state for the data that the checks compare."""
        record = self.record
        chain = longest_chain(record.lives)
        record.kept_ledger = KeptLedger.of_run(record, chain, record.kept_ledger)
        ledger = record.kept_ledger.ledger
        asked, audit = final_queries(ledger), ProofAudit(record, chain, ledger)
        proved = [Answers(found.name) for found in record.validators]
        for machine, found, answers in zip(self._machines, record.validators, proved, strict=True):
            if machine.validator is None:
                continue
            pages = machine.validator.executor.pages
            found.balances = {text: pages.account(parse_address(text))["balance"] for text in asked.accounts}
            found.supply = Supply.of(pages.supply())
            found.pending_timers = {text: pages.is_pending(bytes.fromhex(text)) for text in asked.timers}
            for _ in audit.ask(found, _Pages(pages), answers):
                pass
        record.monitor = with_answers(record.monitor, proved)


def _taken(validator: Validator, served: ServedBlocks) -> ServedBlocks:
    """Append the newer blocks that a validator serves to ``served``, and return it."""
    while taken := validator.executor.pages.blocks(served.tip + 1, ALL_BLOCKS):
        for item in taken:
            served.append(BlockRecord(*item))
    return served


class _Pages:
    """Serves the proofs of a machine's validator to the audit (:class:`cluster.audit.proofs.Server`)."""

    def __init__(self, pages: StatePages) -> None:
        self._pages = pages

    def finality(self, height: int) -> FinalityPage | None:
        return self._pages.finality(height)

    def proof(self, key: bytes, height: int) -> Page:
        try:
            return self._pages.proof(key, height)
        except (HistoryError, ProofError) as error:
            raise Unproved(str(error)) from None


def height_begun(machine: Machine, job: Job) -> int | None:
    """The height of a block that a validator begins to build or to execute; ``None`` for another job, and if the
    block's parent was overtaken."""
    if type(job) is Execute:
        return job.block.header.height
    if type(job) is not Build:
        return None
    assert machine.validator is not None, "it asked for a block"
    parent_height = machine.validator.executor.height_of(job.parent)
    return None if parent_height is None else parent_height + 1


class Steps(Observer):
    """Calls ``on_step`` with each validator's steps."""

    effects = frozenset({BlockFinal, Run})

    def __init__(self, clock: VirtualClock, on_step: Callable[[Step], None]) -> None:
        self._clock = clock
        self._on_step = on_step

    def _step(self, kind: StepKind, machine: Machine, number: int = 0, transaction: bytes = b"") -> None:
        self._on_step(Step(kind, self._clock.now_ms, machine.index, number, transaction))

    def votes(self, machine: Machine, vote: Vote) -> None:
        if vote.kind in VOTE_STEPS:
            self._step(VOTE_STEPS[vote.kind], machine, vote.view)

    def handles(self, machine: Machine, event: Event, effects: Sequence[Effect]) -> None:
        if isinstance(event, Submit):
            for wire in event.transactions:
                self._step(StepKind.TAKEN, machine, transaction=transaction_hash(wire))

    def enters(self, machine: Machine, view: int) -> None:
        self._step(StepKind.ENTERED, machine, view)

    def performs(self, machine: Machine, effect: BlockFinal | Run) -> None:
        if isinstance(effect, BlockFinal):
            self._step(StepKind.FINAL, machine, effect.height)
        elif (height := height_begun(machine, effect.job)) is not None:
            self._step(StepKind.BEGAN, machine, height)
