"""The validators of a simulated run: how each one's machine is made, boots, joins, and gets a twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from cluster.disks.memory import MemoryDisk
from cluster.misbehaviour.planted import RunCounter
from cluster.record.run import RunRecord
from cluster.scenario.genesis import validator_signer
from cluster.scenario.node_setup import FULL_SPEED, Pace, byzantine_of, node_config, pace_of, parts_of, score_of
from cluster.simulation.clock import VirtualClock
from cluster.simulation.machine import Machine
from cluster.simulation.measured_work import MeasuredTimes
from cluster.simulation.shared_executions import SharedExecutions
from consensus.keys import ValidatorSet
from validator.node.assembly import Validator, open_validator
from validator.node.snapshot_join import JOIN_NONCE_BYTES, SnapshotJoin
from validator.primitives.types import ValidatorError

if TYPE_CHECKING:
    from cluster.misbehaviour.byzantine.registry import TwinWatch

Send = Callable[[int, int | None, bytes], None]
"""Sends a message, as :meth:`cluster.simulation.network.Network.send` does."""


class Validators:
    """The machines of one run. ``make`` makes them."""

    def __init__(
        self,
        record: RunRecord,
        keys: ValidatorSet,
        clock: VirtualClock,
        random: Random,
        pace: Pace,
        measured: MeasuredTimes | None,
        executions: SharedExecutions | None,
    ) -> None:
        """``pace`` has the usual durations of work, unless they are ``measured``. ``executions`` are shared, if any."""
        self.scenario = record.scenario
        """The current scenario; forks change it."""
        self.keys = keys
        self.machines: list[Machine] = []
        self.twins: dict[int, Machine] = {}
        """The second machines of validators with a twin, keyed by index."""
        self._record = record
        self._clock = clock
        self._random = random
        self._pace = pace if measured is None else FULL_SPEED
        self._measured = measured
        self._executions = executions

    def __iter__(self) -> Iterator[Machine]:
        """All machines, and then their twins."""
        yield from self.machines
        yield from self.twins.values()

    def make(self, send: Send, failed: Callable[[int, ValidatorError], None]) -> None:
        """Create all machines. ``failed`` is called with the error that stopped one. They are not started yet."""
        names = self.scenario.validators.names
        self.machines += [self._machine(index, name, send, failed) for index, name in enumerate(names)]
        for machine in self.machines:
            if self.scenario.validators.node(machine.index).has_twin:
                self.twins[machine.index] = self._twin(machine)

    def _machine(self, index: int, name: str, send: Send, failed: Callable[[int, ValidatorError], None]) -> Machine:
        scenario, counter = self.scenario, RunCounter()
        node, score = scenario.validators.node(index), score_of(scenario, index)
        machine = Machine(
            index,
            name,
            self._clock,
            lambda disk: self._boot(machine, disk),
            send,
            failed=failed,
            byzantine=byzantine_of(scenario, self._record.seed, index, self.keys, score),
            planted=node.mutant or node.executor,
            pace=pace_of(scenario, index, self._pace),
            work_of=None if self._measured is None else self._measured.work_of,
        )
        if index in scenario.validators.late:
            machine.join = lambda disk: self.join(index, disk)
        machine.tally.mutant_runs, machine.tally.byzantine = counter, score
        return machine

    def _boot(self, machine: Machine, disk: MemoryDisk) -> Validator:
        index, mutant, counter = machine.index, machine.release.mutant, machine.tally.mutant_runs
        parts = parts_of(self.scenario, index, counter, mutant)
        if self._executions is not None:
            parts = self._executions.for_parts(parts)
        is_broken = machine.byzantine is not None or mutant or self.scenario.validators.node(index).mutant
        machine.counts_votes = self._executions is not None and not is_broken
        signer = validator_signer(self._record.scheme, self._record.seed, index)
        config = node_config(self.scenario, index, counter, mutant)
        return open_validator(disk, self._record.genesis, index, signer, self.keys, config, parts)

    def join(self, index: int, disk: MemoryDisk) -> SnapshotJoin:
        """Begin the join by a snapshot of a machine without state."""
        machine = self.machines[index]
        parts = parts_of(self.scenario, index, machine.tally.mutant_runs, machine.release.mutant)
        nonce = self._random.randbytes(JOIN_NONCE_BYTES)
        for begins_to_join in machine.listeners.begins_to_join:
            begins_to_join(machine, nonce)
        return parts.join(disk, index, self.keys, self._record.genesis.chain_id, nonce=nonce)

    def _twin(self, machine: Machine) -> Machine:
        """Create a second machine with the key of ``machine``. A :class:`TwinWatch` observes the messages of both."""
        score, send, index = machine.tally.byzantine, machine.send, machine.index
        assert score is not None
        from cluster.misbehaviour.byzantine.registry import TwinWatch

        watch = TwinWatch(score)
        machine.send = partial(_send_watched, watch, 0, send)
        return Machine(
            index,
            f"{machine.name} (twin)",
            self._clock,
            machine.boot,
            partial(_send_watched, watch, 1, send),
            byzantine=byzantine_of(
                self.scenario, self._record.seed, index, self.keys, score, twin_of=machine.byzantine
            ),
            is_twin=True,
            pace=machine.pace,
            work_of=machine.work_of,
        )

    def configure(self, seed: int | None) -> None:
        """Apply the present settings from the next event on, and reseed byzantine validators if there is a seed."""
        for machine in self:
            if machine.validator is not None:
                release = self.machines[machine.index].release
                config = node_config(self.scenario, machine.index, machine.tally.mutant_runs, release.mutant)
                machine.validator.node.configure(config)
            if machine.byzantine is not None and seed is not None:
                machine.byzantine.reseed(f"{seed}/{machine.index}{'/twin' if machine.is_twin else ''}")

    def close(self) -> None:
        """End the validators, and the programs that perform their transitions."""
        for machine in self:
            if machine.validator is not None:
                machine.validator.executor.close()


def _send_watched(
    watch: TwinWatch, instance: int, send: Send, sender: int, recipient: int | None, payload: bytes
) -> None:
    watch.note(instance, payload)
    send(sender, recipient, payload)
