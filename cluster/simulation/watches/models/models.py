"""The models of a run's nodes. Each follows all events and effects of honest validators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster.audit.safety.rule_log import Look
from cluster.record.rules import Mechanism
from cluster.scenario import Scenario
from cluster.simulation.machine import Machine
from cluster.simulation.watches.models.catch_up_watch import CatchUpWatch
from cluster.simulation.watches.models.execution_watch import ExecutionWatch
from cluster.simulation.watches.models.mempool_watch import MempoolWatch
from validator.chain.genesis import Genesis
from validator.chain.messages import Reading
from validator.node.assembly import Validator
from validator.node.events import Completed, Effect, Event, Started
from validator.node.node import DEFAULT_SYNC_RETRY_MS


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
        broadcast: Sequence[Reading | None],
        read: Callable[[bytes], Reading | None],
    ) -> None:
        """Let each model check an event that a machine's validator handled, with its effects and its broadcasts.

        No model needs votes without effects.
        """
        index, now_ms = machine.index, machine.own_clock.awake_ms
        if isinstance(event, Started):
            executor = validator.executor
            self._mempools.starts(index, executor.final_header.view)
            self._execution.starts(index, executor.final_digest, executor.final_header.height)
            self._catch_up.starts(index, executor.final_header.view, now_ms)
        kinds = set(map(type, effects))
        if broadcast or MempoolWatch.concerns(event) or not kinds.isdisjoint(MempoolWatch.JUDGED):
            self._mempools.handled(index, event, effects, broadcast, lambda: validator.node.mempool.sizes)
        if isinstance(event, Completed) or not kinds.isdisjoint(ExecutionWatch.JUDGED):
            self._execution.handled(index, event, effects)
        self._catch_up.handled(index, event, effects, read, now_ms)
