"""Faults of simulated machines and links: the simulator's :class:`~cluster.faults.stage.Stage`.

Everything happens at once, in virtual time, and every choice is drawn from the run's random source.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.disks.bit_rot import FINALS_SINCE_ROT, draw_rot, may_rot
from cluster.disks.memory import FaultPlan, MemoryDisk
from cluster.faults.impairment import PAUSE, Impairment, describe_delays
from cluster.faults.link_faults import LinkFaults, Seen, seen_on_links
from cluster.faults.stage import Recovery, Then
from cluster.scenario.sections.faults import (
    AnyFault,
    BitRotFault,
    DiskFullFault,
    DownFault,
    FailedSyncFault,
    KillFault,
    LinkFault,
    LoseNodeFault,
    Release,
)
from cluster.scenario.sections.validators import ValidatorsSection
from cluster.simulation.clock import VirtualClock
from cluster.simulation.machine import Machine
from validator.node.joining.snapshot_join import SnapshotJoin
from validator.storage.frames import split
from validator.storage.journal import JOURNAL_FILE

FILLING: Final = frozenset({"append", "write", "replace"})
SYNCING: Final = frozenset({"sync"})


class DurableSizes:
    """The durable sizes of each machine's files that bit rot may hit, recorded after each of its last final blocks."""

    def __init__(self) -> None:
        self._is_needed = False
        self._sizes: dict[int, deque[dict[str, int]]] = {}

    def expect(self, plans: Sequence[AnyFault]) -> None:
        """Note the faults that may come: sizes are recorded only if one of them is bit rot."""
        self._is_needed = any(isinstance(plan, BitRotFault) for plan in plans)

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
    best_height: Callable[[], int]
    notice: Callable[[str], None]
    keep_blocks: Callable[[int], None]
    starts: Starts
    durable_sizes: DurableSizes = field(default_factory=DurableSizes)

    # --- time ---------------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> float:
        return self.clock.now_ms

    @property
    def height(self) -> int:
        return self.best_height()

    def at(self, time_ms: int, label: str, call: Then) -> None:
        self.clock.after(time_ms * MICROSECONDS_PER_MILLISECOND - self.clock.now_us, label, b"", call)

    def later(self, delay_ms: int, label: str, call: Then) -> None:
        self.clock.after(delay_ms * MICROSECONDS_PER_MILLISECOND, label, b"", call)

    # --- links --------------------------------------------------------------------------------------------------------

    def set_links(self, faults: Mapping[int, LinkFault], then: Then) -> None:
        """Replace the faults of links. The simulator queries :mod:`cluster.faults.link_faults` for each message."""
        self.link_faults.become(faults)
        then()

    def seen_on_links(self, key: int, plan: LinkFault) -> Seen:
        return seen_on_links(plan, self.link_faults.counts()[key])

    def leader_delay_us(self, sender: int) -> int:
        """The delay in microseconds that a fault adds to a message of ``sender`` if it leads now; 0 otherwise."""
        if not self.link_faults.delay_leaders:
            return 0
        validator = self.machines[sender].validator
        return self.link_faults.leader_delay_us() if validator and validator.node.leader == sender else 0

    # --- machines -----------------------------------------------------------------------------------------------------

    def is_up(self, index: int) -> bool:
        return self.machines[index].is_up

    def is_running(self, index: int) -> bool:
        return self.machines[index].is_running or self.starts.are_under_way(index)

    def is_about_to_start(self, index: int) -> bool:
        return False

    def is_lost(self, index: int) -> bool:
        return False

    def leader(self) -> int | None:
        voters = [machine.validator.node for machine in self.machines if machine.validator is not None]
        newest = max(voters, key=lambda node: node.view, default=None)
        return None if newest is None else newest.leader

    def sharing_fate(self, index: int, plan: AnyFault) -> Sequence[int] | None:
        if isinstance(plan, LoseNodeFault):
            return self.validators.on_same_ray_node(index)
        return self.validators.on_same_host(index) if isinstance(plan, KillFault) else None

    def deaths(self, index: int) -> int:
        return self.machines[index].incarnation

    def crash(self, index: int, plan: DownFault) -> None:
        self.starts.give_up(index)
        self.machines[index].crash(self.random, isinstance(plan, KillFault) and plan.reorders)

    def prepare(self, indices: Sequence[int], release: Release, then: Then) -> None:
        then()

    def replace(self, indices: Sequence[int], release: Release) -> None:
        for index in indices:
            machine = self.machines[index]
            self.starts.give_up(index)
            if machine.is_running:
                machine.shut_down()
            machine.release, machine.tally.version = release, release.version

    def runs(self, index: int, release: Release) -> bool:
        return self.machines[index].tally.version == release.version

    def height_of(self, index: int) -> int:
        validator = self.machines[index].validator
        return 0 if validator is None else validator.node.height

    def has_diverged(self, index: int) -> bool:
        validator = self.machines[index].validator
        return validator is not None and validator.node.diverged is not None

    def start(self, index: int) -> None:
        self.starts.start(index)

    def recovery(self, index: int) -> Recovery | None:
        validator = self.machines[index].validator
        if validator is None:
            return None
        executor = validator.executor
        return Recovery(executor.recovered_height, executor.archive.joined_height)

    def describe_restart(self, indices: Sequence[int]) -> list[str]:
        return []

    def impair(self, impairments: Mapping[int, Impairment], then: Then) -> None:
        for index, impairment in impairments.items():
            machine = self.machines[index]
            machine.work.sync_ms = max(machine.pace.sync_ms, impairment.sync_ms or 0)
            machine.work.job_ms = max(machine.pace.job_ms, impairment.job_ms or 0)
            machine.own_clock.set_speed(machine.pace.clock_speed * impairment.clock_speed)
            if impairment.is_paused:
                machine.pause()
            elif machine.is_paused:
                machine.go_on()
        then()

    def delays(self, index: int, kind: str) -> int:
        return self.machines[index].delays[kind]

    def seen_delays(self, kind: str, delays: int, names: Sequence[str]) -> Seen:
        held = f"{delays:,} events held back of {', '.join(names) or 'no validator'}"
        return Seen(delays > 0, held if kind == PAUSE else describe_delays(kind, delays, names))

    # --- disks --------------------------------------------------------------------------------------------------------

    def lay_trap(self, index: int, plan: DiskFullFault | FailedSyncFault) -> None:
        disk = self.machines[index].disk
        verbs = FILLING if isinstance(plan, DiskFullFault) else SYNCING
        files = plan.of or "" if isinstance(plan, FailedSyncFault) else ""
        disk.plan = FaultPlan(disk.operations + 1, verbs=verbs, files=files)

    def has_trap(self, index: int) -> bool:
        return self.machines[index].disk.plan is not None

    def lose_disk(self, index: int) -> None:
        machine = self.machines[index]
        trap = machine.disk.plan
        machine.disk = MemoryDisk(trap and replace(trap, operation=1))
        self.durable_sizes.forget(index)
        machine.join = lambda disk: self.join(index, disk)

    def flip_a_bit(self, index: int) -> str | None:
        disk, old = self.machines[index].disk, self.durable_sizes.old(index)
        ends = {name: min(size, disk.durable_size(name)) for name, size in old.items()}
        if JOURNAL_FILE in ends:  # it was replaced meanwhile, perhaps, and what came since may be torn
            ends[JOURNAL_FILE] = min(ends[JOURNAL_FILE], split(disk.read(JOURNAL_FILE))[1])
        rot = draw_rot(self.random, ends)
        if rot is None:
            return None
        disk.flip_bit(rot.file, rot.offset, rot.bit)
        return str(rot)
