"""The models of a run's nodes. Each follows all events and effects of honest validators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from cluster.audit.safety.rule_log import Look
from cluster.record.rules import Mechanism
from cluster.scenario import Scenario
from cluster.simulation.machine import Machine
from cluster.simulation.watches.models.catch_up_watch import CatchUpWatch
from cluster.simulation.watches.models.execution_watch import ExecutionWatch
from cluster.simulation.watches.models.kinds import subject_of
from cluster.simulation.watches.models.mempool_watch import MempoolWatch
from validator.chain.genesis import Genesis
from validator.chain.messages import Reading, TransactionsMessage
from validator.node.assembly import Validator
from validator.node.events import Completed, Effect, Event, Started
from validator.node.node import DEFAULT_SYNC_RETRY_MS

REMEMBERED_EVENTS: Final = 1 << 10
"""Number of kinds of events, with those of their effects, for which it is remembered which models they concern."""


class NodeModels:
    """The models of a run's nodes: mempools, execution, and catching up."""

    def __init__(self, scenario: Scenario, genesis: Genesis, look: Look) -> None:
        names = scenario.validators.names
        self._mempools = MempoolWatch(names, genesis, scenario.limits.pool(), scenario.limits.max_held_blocks, look)
        self._execution = ExecutionWatch(names, scenario.limits.journal_blocks, look)
        self._catch_up = CatchUpWatch(names, DEFAULT_SYNC_RETRY_MS, look)

    @property
    def reached(self) -> set[Mechanism]:
        """Mechanisms of nodes that at least one validator has used."""
        return self._mempools.reached | self._execution.reached | self._catch_up.reached

    def handled(
        self,
        machine: Machine,
        validator: Validator,
        event: Event,
        effects: Sequence[Effect],
        kinds: frozenset[type],
        broadcast: Sequence[Reading | None],
        read: Callable[[bytes], Reading | None],
    ) -> None:
        """Let each model that is concerned check an event that a machine's validator handled, with its effects, their
        kinds, and its broadcasts.

        No model needs votes without effects.
        """
        index = machine.index
        if isinstance(event, Started):
            executor = validator.executor
            self._mempools.starts(index, executor.final_header.view)
            self._execution.starts(index, executor.final_digest, executor.final_header.height)
            self._catch_up.starts(index, executor.final_header.view, machine.own_clock.awake_ms)
        concerned = _concerned(type(event) is Completed, subject_of(event), kinds)
        if concerned.mempool or (broadcast and TransactionsMessage in map(type, broadcast)):
            self._mempools.handled(index, event, effects, broadcast, lambda: validator.node.mempool.sizes)
        if concerned.execution:
            self._execution.handled(index, event, effects)
        if concerned.catch_up or self._catch_up.lacks_blocks(index):
            self._catch_up.handled(index, event, effects, read, machine.own_clock.awake_ms)


class _Concerned(NamedTuple):
    """Which models an event with its effects concerns."""

    mempool: bool
    execution: bool
    catch_up: bool


@lru_cache(REMEMBERED_EVENTS)
def _concerned(is_completed: bool, subject: type | str, kinds: frozenset[type]) -> _Concerned:
    """Which models an event concerns in any case, by its subject and the kinds of its effects.

    ``is_completed``: the event is a job's result.
    """
    return _Concerned(
        mempool=is_completed or subject in MempoolWatch.SUBJECTS or not kinds.isdisjoint(MempoolWatch.JUDGED),
        execution=is_completed or not kinds.isdisjoint(ExecutionWatch.JUDGED),
        catch_up=subject in CatchUpWatch.SUBJECTS or not kinds.isdisjoint(CatchUpWatch.JUDGED),
    )
