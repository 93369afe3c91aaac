"""Performs the orders of a run's faults on simulated machines and links.

Everything happens at once, in virtual time. What a crash leaves of a disk, and which bit rots, is drawn from the
run's random source.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, assert_never

from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.disks.bit_rot import FINALS_SINCE_ROT, draw_rot, may_rot
from cluster.disks.memory import FaultPlan, MemoryDisk
from cluster.faults.events import (
    BitFlipped,
    Confirm,
    Count,
    Counted,
    Crash,
    Due,
    FaultOrder,
    FaultSeen,
    FlipBit,
    Impair,
    KeepBlocks,
    LayTrap,
    LoseDisk,
    MachineOrder,
    Network,
    Observed,
    ObserveDelays,
    ObserveLinks,
    ObserveProcesses,
    Prepare,
    Recovery,
    Replace,
    Seat,
    SetLinks,
    Start,
    Tell,
    Wake,
)
from cluster.faults.impairment import PAUSE, Impairment, describe_delays
from cluster.faults.kind import FaultKind
from cluster.faults.link_effects import LinkFaults
from cluster.scenario.sections.validators import ValidatorsSection
from cluster.simulation.clock import VirtualClock
from cluster.simulation.machine import Machine
from validator.node.snapshot_join import SnapshotJoin
from validator.storage.frames import split
from validator.storage.journal import JOURNAL_FILE

FILLING: Final = frozenset({"append", "write", "replace"})
SYNCING: Final = frozenset({"sync"})


class DurableSizes:
    """The durable sizes of each machine's files that bit rot may hit, recorded after each of its last final blocks."""

    def __init__(self) -> None:
        self._is_needed = False
        self._sizes: dict[int, deque[dict[str, int]]] = {}

    def expect(self, plans: Sequence[FaultKind]) -> None:
        """Note the faults that may come: sizes are recorded only if one of them is bit rot."""
        self._is_needed = any(plan.rots for plan in plans)

    def on_final(self, machine: Machine) -> None:
        """Record the file sizes of a machine that has committed a final block."""
        if self._is_needed:
            disk = machine.disk
            sizes = {name: disk.durable_size(name) for name in disk.names() if may_rot(name)}
            self._sizes.setdefault(machine.index, deque(maxlen=FINALS_SINCE_ROT + 1)).append(sizes)

    def forget(self, index: int) -> None:
        """Drop the recorded sizes of a machine that lost its disk."""
        self._sizes.pop(index, None)

    def old(self, index: int) -> dict[str, int]:
        """A machine's file sizes :data:`FINALS_SINCE_ROT` final blocks ago; empty if there were fewer blocks."""
        sizes = self._sizes.get(index, deque())
        return sizes[0] if len(sizes) > FINALS_SINCE_ROT else {}


@dataclass(slots=True)
class Starts:
    """Starts validators again: at once, or with a profile after the measured time of a restart."""

    clock: VirtualClock
    machines: Sequence[Machine]
    draw_us: Callable[[], int] | None
    """Draws the time that a restart takes, in microseconds; ``None`` if it takes none."""
    is_back: Callable[[], None]
    """Called when a validator is up again, if its restart took time."""
    _under_way: dict[int, int] = field(default_factory=dict)
    """The number of the restart under way, keyed by the validator's index."""
    _count: int = 0

    def start(self, index: int) -> None:
        if self.draw_us is None:
            self.machines[index].start()
            return
        self._count += 1
        self._under_way[index] = number = self._count

        def start() -> None:
            if self._under_way.get(index) == number:
                del self._under_way[index]
                self.machines[index].start()
                self.is_back()

        self.clock.after(self.draw_us(), f"start {index}", b"", start)

    def are_under_way(self, index: int) -> bool:
        """Whether a validator is about to start."""
        return index in self._under_way

    def give_up(self, index: int) -> None:
        """End a validator that is about to start."""
        self._under_way.pop(index, None)


@dataclass(slots=True)
class SimulatedStage:
    """The parts of a simulation on which faults act."""

    clock: VirtualClock
    random: Random
    link_faults: LinkFaults
    validators: ValidatorsSection
    machines: Sequence[Machine]
    join: Callable[[int, MemoryDisk], SnapshotJoin]
    """``join(index, disk)`` begins the join by a snapshot of a machine without state."""
    tell: Callable[[FaultSeen], None]
    """Tells the run's loop what was seen."""
    notice: Callable[[str], None]
    keep_blocks: Callable[[int], None]
    starts: Starts
    durable_sizes: DurableSizes = field(default_factory=DurableSizes)
    _seats: list[Seat] = field(init=False)
    """For each validator, who shares its host and its Ray node."""

    def __post_init__(self) -> None:
        section = self.validators
        mates = [(section.on_same_host(index), section.on_same_ray_node(index)) for index in range(section.count)]
        self._seats = [Seat(tuple(on_host), tuple(on_node)) for on_host, on_node in mates]

    def perform(self, order: FaultOrder) -> Iterator[FaultSeen]:
        """Perform an order, and return its answer, if it has one."""
        match order:
            case Tell(text):
                self.notice(text)
            case Wake(at_ms, label, call):
                delay_us = max(0, round(at_ms * MICROSECONDS_PER_MILLISECOND) - self.clock.now_us)
                self.clock.after(delay_us, label, b"", lambda: self.tell(Due(self.clock.now_ms, call)))
            case SetLinks(faults, then):
                self.link_faults.become(faults)
                yield Due(self.clock.now_ms, then)
            case Impair(impairments, then):
                self._impair(impairments)
                yield Due(self.clock.now_ms, then)
            case Prepare(then=then) | Confirm(then):
                yield Due(self.clock.now_ms, then)
            case Count(key, kind, indices):
                yield Counted(key, self._delays(kind, indices))
            case ObserveLinks(key, effect):
                yield Observed(key, *effect.seen(self.link_faults.counts()[key]))
            case ObserveDelays():
                yield self._seen_delays(order)
            case ObserveProcesses(key, indices, release):
                running = release and sum(self.machines[index].tally.version == release.version for index in indices)
                yield Observed(key, running=running or 0)
            case _:
                yield from self._act_on_machine(order)

    def _act_on_machine(self, order: MachineOrder) -> Iterator[FaultSeen]:
        match order:
            case Replace():
                self._replace(order)
            case KeepBlocks(index):
                self.keep_blocks(index)
            case Crash(index, way):
                self.starts.give_up(index)
                self.machines[index].crash(self.random, way.reorders)
            case Start(index):
                self.starts.start(index)
            case LayTrap(index, trap):
                disk = self.machines[index].disk
                verbs = FILLING if trap.fails == "write" else SYNCING
                disk.plan = FaultPlan(disk.operations + 1, verbs=verbs, files=trap.files)
            case LoseDisk(index):
                self._lose_disk(index)
            case FlipBit(key, index):
                place = self._flip_a_bit(index)
                if place is not None:
                    yield BitFlipped(key, index, place)
            case _:
                assert_never(order)

    # --- what is seen -------------------------------------------------------------------------------------------------

    def look(self) -> Network:
        """The machines as they are now."""
        voters = [machine.validator.node for machine in self.machines if machine.validator is not None]
        newest = max(voters, key=lambda node: node.view, default=None)
        leader = None if newest is None else newest.leader
        return Network(self.clock.now_ms, tuple(map(self._seat, self.machines)), leader)

    def _seat(self, machine: Machine) -> Seat:
        validator = machine.validator
        seat = self._seats[machine.index]._replace(
            is_up=machine.is_up,
            is_running=machine.is_running or self.starts.are_under_way(machine.index),
            has_trap=machine.disk.plan is not None,
            deaths=machine.incarnation,
        )
        if validator is None:
            return seat
        node, executor = validator.node, validator.executor
        recovery = Recovery(executor.recovered_height, executor.archive.joined_height)
        return seat._replace(has_diverged=node.diverged is not None, height=node.height, recovery=recovery)

    def _delays(self, kind: str, indices: Sequence[int]) -> int:
        return sum(self.machines[index].delays[kind] for index in indices)

    def _seen_delays(self, order: ObserveDelays) -> Observed:
        """Whether an impairment took effect, and the evidence."""
        key, kind, indices, count_before = order
        delays = self._delays(kind, indices) - count_before
        names = [self.machines[index].name for index in indices]
        held = f"{delays:,} events held back of {', '.join(names) or 'no validator'}"
        return Observed(key, delays > 0, held if kind == PAUSE else describe_delays(kind, delays, names))

    # --- what is done -------------------------------------------------------------------------------------------------

    def _replace(self, order: Replace) -> None:
        for index in order.validators:
            machine = self.machines[index]
            self.starts.give_up(index)
            if machine.is_running:
                machine.shut_down()
            machine.release, machine.tally.version = order.release, order.release.version

    def _impair(self, impairments: Mapping[int, Impairment]) -> None:
        for index, impairment in impairments.items():
            machine = self.machines[index]
            machine.work.sync_ms = max(machine.pace.sync_ms, impairment.sync_ms or 0)
            machine.work.job_ms = max(machine.pace.job_ms, impairment.job_ms or 0)
            machine.own_clock.set_speed(machine.pace.clock_speed * impairment.clock_speed)
            if impairment.is_paused:
                machine.pause()
            elif machine.is_paused:
                machine.go_on()

    def _lose_disk(self, index: int) -> None:
        machine = self.machines[index]
        trap = machine.disk.plan
        machine.disk = MemoryDisk(trap and replace(trap, operation=1))
        self.durable_sizes.forget(index)
        machine.join = lambda disk: self.join(index, disk)

    def _flip_a_bit(self, index: int) -> str | None:
        """Returns the bit's place; ``None`` if there is no data that was durable for some time."""
        disk, old = self.machines[index].disk, self.durable_sizes.old(index)
        ends = {name: min(size, disk.durable_size(name)) for name, size in old.items()}
        if JOURNAL_FILE in ends:  # it was replaced meanwhile, perhaps, and what came since may be torn
            ends[JOURNAL_FILE] = min(ends[JOURNAL_FILE], split(disk.read(JOURNAL_FILE))[1])
        rot = draw_rot(self.random, ends)
        if rot is None:
            return None
        disk.flip_bit(rot.file, rot.offset, rot.bit)
        return str(rot)
