"""The models of a run's nodes. Each follows all events and effects of honest validators."""

from __future__ import annotations

from collections.abc import Container, Iterator

from cluster.audit.safety.rule_log import Look
from cluster.record.rules import Mechanism
from cluster.scenario import Scenario
from cluster.simulation.watches.models.catch_up_watch import CatchUpWatch
from cluster.simulation.watches.models.execution_watch import ExecutionWatch
from cluster.simulation.watches.models.kinds import Broadcast, Check, Handled
from cluster.simulation.watches.models.mempool_watch import MempoolWatch
from validator.chain.genesis import Genesis
from validator.chain.messages import TransactionsMessage
from validator.node.events import Completed, Started
from validator.node.node import DEFAULT_SYNC_RETRY_MS


class NodeModels:
    """The models of a run's nodes: mempools, execution, and catching up."""

    def __init__(self, scenario: Scenario, genesis: Genesis, look: Look) -> None:
        names = scenario.validators.names
        self._mempools = MempoolWatch(names, genesis, scenario.limits.pool(), scenario.limits.max_held_blocks, look)
        self._execution = ExecutionWatch(names, scenario.limits.journal_blocks, look)
        self._catch_up = CatchUpWatch(names, DEFAULT_SYNC_RETRY_MS, look)
        self.lacking: Container[int] = self._catch_up.lacking
        """The validators that know a finalization ahead of their final block, and do nothing about it."""

    @property
    def reached(self) -> set[Mechanism]:
        """Mechanisms of nodes that at least one validator has used."""
        return self._mempools.reached | self._execution.reached | self._catch_up.reached

    def checks(self, event: type, subject: type | str, kinds: frozenset[type], lacks_blocks: bool) -> Iterator[Check]:
        """The models' checks that concern an event, by its type, its subject, the kinds of its effects, and whether
        the validator is one of ``lacking``.

        No model needs votes without effects.
        """
        if subject is Started:
            yield self._start
        is_result = event is Completed
        if is_result or subject in MempoolWatch.SUBJECTS or not kinds.isdisjoint(MempoolWatch.JUDGED):
            yield self._check_mempool
        elif Broadcast in kinds:
            yield self._check_passing_on
        if is_result or not kinds.isdisjoint(ExecutionWatch.JUDGED):
            yield self._check_execution
        if lacks_blocks or subject in CatchUpWatch.SUBJECTS or not kinds.isdisjoint(CatchUpWatch.JUDGED):
            yield self._check_catch_up

    def _start(self, handled: Handled) -> None:
        """Begin the models of a validator that starts."""
        if type(handled.event) is Started:
            index, executor = handled.machine.index, handled.validator.executor
            self._mempools.starts(index, executor.final_header.view)
            self._execution.starts(index, executor.final_digest, executor.final_header.height)
            self._catch_up.starts(index, executor.final_header.view, handled.machine.own_clock.awake_ms)

    def _check_passing_on(self, handled: Handled) -> None:
        """Check a mempool if its validator broadcasts transactions."""
        if TransactionsMessage in map(type, handled.broadcast):
            self._check_mempool(handled)

    def _check_mempool(self, handled: Handled) -> None:
        mempool = handled.validator.node.mempool
        self._mempools.handled(
            handled.machine.index, handled.event, handled.effects, handled.broadcast, lambda: mempool.sizes
        )

    def _check_execution(self, handled: Handled) -> None:
        self._execution.handled(handled.machine.index, handled.event, handled.effects)

    def _check_catch_up(self, handled: Handled) -> None:
        machine = handled.machine
        now_ms = machine.own_clock.awake_ms
        self._catch_up.handled(machine.index, handled.event, handled.effects, handled.read, now_ms)
