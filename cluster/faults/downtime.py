"""A fault that takes validators down: how they went down, why they stopped by themselves, and how they came back."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.common.wording import listed
from cluster.disks import NO_SPACE, PLANNED_FAILURE
from cluster.faults.active import ActiveFault, Deaths
from cluster.faults.events import Crash, FlipBit, KeepBlocks, LayTrap, LoseDisk
from cluster.faults.stage import Stage
from cluster.faults.targets import Targets
from cluster.scenario.sections.faults import (
    BitRotFault,
    DiskFullFault,
    DownFault,
    FailedSyncFault,
    LoseNodeFault,
    loses_disk,
    may_lose_node,
)


class Downtime:
    """The downtime caused by one fault."""

    def __init__(self, fault: ActiveFault, plan: DownFault, stage: Stage, targets: Targets) -> None:
        self.fault = fault
        self.plan = plan
        self.is_trap = isinstance(plan, DiskFullFault | FailedSyncFault)
        """Whether the fault takes effect only when a later disk operation of a target fails."""
        self.is_back = False
        """Whether the validators that the fault took down may run again."""
        self._stage = stage
        self._targets = targets
        self._deaths = Deaths(stage)
        self._failures: dict[int, str] = {}
        """For each validator that stopped by itself, the reason."""
        self._loss = ""
        """The reason of an unplanned loss of the validators' machine; empty for a planned fault."""
        self._lost: set[int] = set()
        """Validators whose machine was lost since the fault began."""
        self._snapshots: dict[int, int] = {}
        """For each validator, the height of the snapshot that its disk began with, noted when the fault began."""
        self._rotten: dict[int, str] = {}
        """The place of the flipped bit, keyed by validator."""

    def begin(self) -> None:
        """Take the validators down, or make their disks fail later."""
        stage, plan, fault = self._stage, self.plan, self.fault
        if isinstance(plan, DiskFullFault | FailedSyncFault):
            for index in fault.targets:
                stage.order(LayTrap(index, plan))
            return
        were_running = self._deaths.expect(fault.hit)
        held_down = [index for index in fault.targets if self._targets.is_held_down(index)]
        self._note_snapshots()
        self._targets.hold_down(fault.hit)
        concerned = [index for index in fault.hit if index in were_running or index in held_down]
        for index in concerned:  # all are asked before the first is gone: they may share a machine
            if index in fault.targets and loses_disk(plan):
                stage.order(KeepBlocks(index))
        for index in concerned:
            if index in were_running:
                stage.order(Crash(index, plan))
            if index not in fault.targets:
                continue
            if loses_disk(plan) and not isinstance(plan, BitRotFault):
                stage.order(LoseDisk(index))  # in use or not
            elif isinstance(plan, BitRotFault) and index in were_running:
                stage.order(FlipBit(fault.key, index))

    def note_rot(self, index: int, place: str) -> None:
        """Note that a bit of a validator's disk flipped, at this place."""
        self._rotten[index] = place

    def begin_unplanned(self, reason: str) -> None:
        """Begin an unplanned fault: the validators' machine is already lost, for this ``reason``."""
        self._note_snapshots()
        self._targets.hold_down(self.fault.hit)
        self._loss = reason
        self._lost.update(self.fault.hit)
        self.fault.record.took_effect = True

    def look(self) -> None:
        """Note whether the fault has taken effect by now: all validators that ran are down and, for bit rot, a bit
        flipped."""
        if self.fault.is_over or self.is_trap or self._loss:
            return
        has_rotted = bool(self._rotten) or not isinstance(self.plan, BitRotFault)
        self.fault.record.took_effect = self._deaths.have_happened() and has_rotted

    def note_loss(self, indices: Sequence[int]) -> bool:
        """Note that the machine of some validators is lost. Returns whether the fault is the cause.

        The fault causes one loss of each validator's machine. If validators have moved to another machine and that is
        lost later, the fault is not the cause.
        """
        to_lose = set(self.fault.hit) - self._lost
        self._lost.update(indices)
        return may_lose_node(self.plan) and not self.fault.is_over and not to_lose.isdisjoint(indices)

    def explains(self, index: int, reason: str) -> bool:
        """Whether the fault is the cause of a validator's stop: the reason must be an effect of the fault."""
        if self.fault.is_over or index not in self.fault.targets or index in self._failures:
            return False
        match self.plan:
            case BitRotFault():
                rotten = self._rotten.get(index)
                return rotten is not None and self.is_back and rotten.partition(" at ")[0] in reason
            case DiskFullFault():
                return PLANNED_FAILURE in reason or NO_SPACE in reason
            case FailedSyncFault():
                return PLANNED_FAILURE in reason
        return False

    def note_failure(self, index: int, reason: str) -> list[int]:
        """Note a validator that stopped because of the fault. Returns those that the fault holds down from now on."""
        self._failures[index] = reason
        if not self.is_trap:
            return []
        self.fault.record.took_effect = True
        gone = [index, *self._targets.host_mates(index, self.plan)]
        self._targets.hold_down(gone)
        return gone

    def has_come_back(self) -> bool:
        """Whether all validators that the fault took down are up again."""
        seat, fault = self._stage.seat, self.fault
        if not self.is_back or fault.is_over:
            return False
        waits = any(seat(index).has_trap and index not in self._failures for index in fault.targets)
        return not waits and all(seat(index).is_up for index in fault.hit)

    def _note_snapshots(self) -> None:
        found = {index: self._stage.seat(index).recovery for index in self.fault.hit}
        self._snapshots = {index: each.snapshot_height for index, each in found.items() if each is not None}

    def _has_lost_disk(self, index: int) -> bool:
        """Whether a validator lost its disk: it came back from a later snapshot than its disk began with."""
        found = self._stage.seat(index).recovery
        return found is not None and found.snapshot_height > self._snapshots.get(index, 0)

    def describe(self, restart: str) -> str:
        """The evidence of the fault: how the validators went down and came back.

        ``restart`` is what the driver saw of that, in words.
        """
        stage, record, targets = self._stage, self.fault.record, self.fault.targets
        recoveries = [(index, found) for index in targets if (found := stage.seat(index).recovery) is not None]
        words = [f"not planned: {self._loss}"] if self._loss else []
        words.append(f"down from height {record.height_when_begun} to {stage.height}")
        for index in targets:
            name, rotten, reason = self._targets.names[index], self._rotten.get(index), self._failures.get(index)
            if rotten is not None:
                words.append(f"a bit of {rotten} of {name} flipped")
                if reason is None:
                    record.problem = f"{name} started from a disk on which a bit of {rotten} had flipped"
            if reason is not None:
                words.append(f"{name} stopped: {reason}")
        words += filter(None, (restart,))
        if isinstance(self.plan, LoseNodeFault):
            are_lost = loses_disk(self.plan)
            lost = [index for index in targets if are_lost or self._has_lost_disk(index)]
            record.lost_disks = tuple(self._targets.names[index] for index in lost)
        elif may_lose_node(self.plan):
            for index in filter(self._has_lost_disk, targets):
                record.problem = f"{self._targets.names[index]} came back by a snapshot: its disk did not come with it"
        by_snapshot = [each for index, each in recoveries if self._targets.names[index] in record.without_disks]
        from_disk = [each for index, each in recoveries if self._targets.names[index] not in record.without_disks]
        if by_snapshot:
            words.append(f"joined by the snapshot of {_heights([each.snapshot_height for each in by_snapshot])}")
        if from_disk or not by_snapshot:
            words.append(f"recovered {_heights([each.recovered_height for each in from_disk])}")
        return ", ".join(words)


def _heights(heights: Sequence[int]) -> str:
    return listed("height", heights) if heights else "no height"
