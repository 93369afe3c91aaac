"""Faults that take validators down: how they go down, why they stop by themselves, and how they come back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cluster.common.wording import listed
from cluster.disks import PLANNED_FAILURE, Trap
from cluster.faults.events import (
    Confirm,
    Crash,
    InForce,
    KeepBlocks,
    LayTrap,
    LoseDisk,
    Observed,
    ObserveProcesses,
    Restart,
    Way,
)
from cluster.faults.kind import Cue, OfValidators, Target, TargetedCourse
from cluster.faults.stage import Stage
from cluster.faults.targets import Reach
from cluster.scenario.sections.base import Milliseconds
from cluster.scenario.sections.faults import Facts, Stop
from cluster.scenario.sections.validators import ValidatorsSection
from consensus.types import fault_bound


class Deaths:
    """Tells whether all running validators that a fault was to take down have gone down."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.before: dict[int, int] = {}
        """For each validator that is to go down, how often it had gone down before."""

    def expect(self, indices: list[int]) -> list[int]:
        """Expect these validators to go down, except those that do not run now. Returns the expected ones."""
        running = [index for index in indices if self._stage.seat(index).is_running]
        self.before.update({index: self._stage.seat(index).deaths for index in running})
        return running

    def have_happened(self) -> bool:
        """Whether every expected validator has gone down; ``False`` if none was expected to."""
        gone = [self._stage.seat(index).deaths > before for index, before in self.before.items()]
        return bool(gone) and all(gone)


class Downtime(TargetedCourse):
    """The downtime caused by one fault."""

    plan: DownFault
    waits = False
    """Whether it waits until a disk fails."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.is_back = False
        """Whether the validators that the fault took down may run again."""
        self.failures: dict[int, str] = {}
        """For each validator that stopped by itself, the reason."""
        self.deaths = Deaths(self.stage)
        self._lost: set[int] = set()
        """Validators whose machine was lost since the fault began."""
        self._snapshots: dict[int, int] = {}
        """For each validator, the height of the snapshot that its disk began with, noted when the fault began."""

    def begin(self) -> None:
        self.choose()
        self.take_down()
        self.stage.order(Confirm(InForce(self.key)))

    def take_down(self) -> None:
        """Order what takes the targets down, with those on the same hosts."""
        were_running = self.deaths.expect(self.hit)
        held_down = [index for index in self.targets if self.validators.is_held_down(index)]
        self.hold_down()
        concerned = [index for index in self.hit if index in were_running or index in held_down]
        for index in concerned:  # all are asked before the first is gone: they may share a machine
            if index in self.targets and self.plan.loses_disk:
                self.stage.order(KeepBlocks(index))
        for index in concerned:
            if index in were_running:
                self.stage.order(Crash(index, self.plan.way))
            if index in self.targets:
                self.damage(index, was_running=index in were_running)

    def damage(self, index: int, was_running: bool) -> None:
        """Order what becomes of the disk of a target that is down."""
        if self.plan.loses_disk:
            self.stage.order(LoseDisk(index))  # in use or not

    def hold_down(self) -> None:
        """Note how the disks of those that it takes down began, and keep them from starting."""
        found = {index: self.stage.seat(index).recovery for index in self.hit}
        self._snapshots = {index: each.snapshot_height for index, each in found.items() if each is not None}
        self.validators.hold_down(self.hit)

    def come_into_force(self) -> None:
        super().come_into_force()
        if not (self.is_over or self.waits):
            self.restart_after(f"restart {self.number}", self.hit)

    def restart_after(self, label: str, indices: list[int]) -> None:
        """Let validators run again after the down time."""
        self.stage.later(self.plan.down_ms, label, Restart(self.key, indices))

    def go_on(self, cue: Cue) -> None:
        if isinstance(cue, Restart):
            self.is_back = True
            self.validators.let_up(cue.indices)

    def look(self) -> None:
        """Note whether the fault has taken effect by now, and end it if all that it took down are up again."""
        if not self.is_over:
            self.note_effect()
            if self.is_back and not self.is_waiting and all(self.stage.seat(index).is_up for index in self.hit):
                self.end()

    @property
    def is_waiting(self) -> bool:
        """Whether the disk of a target still has to fail."""
        return any(self.stage.seat(index).has_trap and index not in self.failures for index in self.targets)

    def note_effect(self) -> None:
        """Note that the fault has taken effect, once all validators that ran are down."""
        self.record.took_effect = self.deaths.have_happened()

    def note_loss(self, indices: Sequence[int]) -> bool:
        """The fault causes one loss of each validator's machine. If validators have moved to another machine, and that
        is lost later, the fault is not the cause.
        """
        to_lose = set(self.hit) - self._lost
        self._lost.update(indices)
        return self.plan.may_lose_node and not self.is_over and not to_lose.isdisjoint(indices)

    def explains(self, index: int, reason: str) -> bool:
        is_open = not self.is_over and index in self.targets and index not in self.failures
        return is_open and self.is_cause(index, reason)

    def is_cause(self, index: int, reason: str) -> bool:
        """Whether a target that stopped for this reason stopped because of the fault."""
        return False

    def observe(self) -> None:
        self.stage.order(ObserveProcesses(self.key, self.targets))

    def conclude(self, seen: Observed) -> str:
        """The evidence says how the validators went down and came back."""
        stage, record = self.stage, self.record
        recoveries = [(index, found) for index in self.targets if (found := stage.seat(index).recovery) is not None]
        words = [f"down from height {record.height_when_begun} to {stage.height}"]
        for index in self.targets:
            words += self.say(index)
        words += filter(None, (seen.evidence,))
        self.note_lost_disks()
        names = self.validators.names
        by_snapshot = [each for index, each in recoveries if names[index] in record.without_disks]
        from_disk = [each for index, each in recoveries if names[index] not in record.without_disks]
        if by_snapshot:
            words.append(f"joined by the snapshot of {_heights([each.snapshot_height for each in by_snapshot])}")
        if from_disk or not by_snapshot:
            words.append(f"recovered {_heights([each.recovered_height for each in from_disk])}")
        return ", ".join(words)

    def say(self, index: int) -> list[str]:
        """What became of a target while it was down, in words."""
        reason = self.failures.get(index)
        return [] if reason is None else [f"{self.validators.names[index]} stopped: {reason}"]

    def note_lost_disks(self) -> None:
        """Note disks that were lost with their Ray node."""
        if self.plan.may_lose_node:
            for index in filter(self.has_lost_disk, self.targets):
                name = self.validators.names[index]
                self.record.problem = f"{name} came back by a snapshot: its disk did not come with it"

    def has_lost_disk(self, index: int) -> bool:
        """Whether a validator lost its disk: it came back from a later snapshot than its disk began with."""
        found = self.stage.seat(index).recovery
        return found is not None and found.snapshot_height > self._snapshots.get(index, 0)


class TrapCourse(Downtime):
    """Targets whose disk fails later, each when it does the operation that fails."""

    plan: TrapFault
    waits = True

    @property
    def is_awaited(self) -> bool:
        return super().is_awaited and self.record.took_effect

    def take_down(self) -> None:
        for index in self.targets:
            self.stage.order(LayTrap(index, self.plan.trap))

    def note_effect(self) -> None:
        """It has taken effect once a disk failed (:meth:`note_failure`)."""

    def is_cause(self, index: int, reason: str) -> bool:
        return self.plan.is_cause(reason)

    def note_failure(self, index: int, reason: str) -> None:
        self.failures[index] = reason
        self.record.took_effect = True
        network = self.stage.network
        reach = self.plan.reach(network.acts_on_processes, network.has_pods)
        gone = [index, *self.validators.mates(index, reach)]
        self.validators.hold_down(gone)
        self.stage.notice(f"{self.validators.names[index]} stopped: {reason}")
        self.restart_after(f"restart {index}", gone)


def _heights(heights: Sequence[int]) -> str:
    return listed("height", heights) if heights else "no height"


# --- as the scenario plans them ---------------------------------------------------------------------------------------


class DownFault(OfValidators):
    """A fault that takes validators down. They start again from their disks."""

    COURSE = Downtime
    FACTS = Facts(lasts=False, restarts_from="disk")
    DRAWN = {"target": lambda drawing: drawing.target(), "down_ms": lambda drawing: drawing.lasting_ms()}
    stops = True

    target: Target
    """A validator, a list of them, ``region:NAME``, or ``leader``, ``random`` or ``f``."""
    down_ms: Milliseconds = 2_000
    """Minimum time that it stays down."""

    @property
    def way(self) -> Way:
        """How its targets are taken down."""
        return Way(down_ms=self.down_ms)

    @property
    def loses_disk(self) -> bool:
        """Whether its targets lose their disks."""
        return False

    @property
    def may_lose_node(self) -> bool:
        """Whether the Ray nodes of the targets may be lost with them, on the live testnet."""
        return self.way.ends_node or self.way.is_of_pods

    def reach(self, acts_on_processes: bool = False, has_pods: bool = False) -> Reach:
        return "host" if acts_on_processes else "validator"

    def deaths(self, names: set[str]) -> int:
        return int(bool(self.keyword) or not names.isdisjoint(self.target))


class DiskLossFault(DownFault):
    """A fault whose targets lose their disks, and join again by a snapshot."""

    FACTS = Facts(lasts=False, restarts_from="snapshot")
    DRAWN = DownFault.DRAWN | {"target": lambda _: "random"}
    is_hard = True

    @property
    def loses_disk(self) -> bool:
        return True

    def check_fits(self, validators: ValidatorsSection, stop: Stop) -> None:
        super().check_fits(validators, stop)
        most = fault_bound(validators.count)
        if len(self.target) > most:
            raise ValueError(
                f".target: {len(self.target)} of {validators.count} validators lose their disks; at most {most} may,"
                f" since the others must report the current view to them"
            )


class TrapFault(DownFault):
    """A fault that waits until a disk operation of a target fails: the target stops, and starts again."""

    COURSE = TrapCourse
    spoils_disks = True

    @property
    def trap(self) -> Trap:
        """The failure that it sets."""
        raise NotImplementedError

    def is_cause(self, reason: str) -> bool:
        """Whether a validator that stopped for this reason stopped because of the failure."""
        return PLANNED_FAILURE in reason
