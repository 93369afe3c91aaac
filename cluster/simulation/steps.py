"""The steps of simulated validators towards final blocks, for a tracer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster.record.run import VOTE_STEPS, Step, StepKind
from cluster.simulation.clock import VirtualClock
from cluster.simulation.machine import Machine
from cluster.simulation.observer import Observer
from consensus.messages import Vote
from validator.chain.transactions import transaction_hash
from validator.node.events import BlockFinal, Effect, Event, Run, Submit
from validator.node.executor.jobs import Build, Execute, Job


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
