"""A rolling upgrade: validators get other code, host by host, each after the earlier ones run well."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster.faults.active import ActiveFault, Deaths
from cluster.faults.calls import FaultCall, UpgradeNext, UpgradeStart
from cluster.faults.link_faults import Seen
from cluster.faults.stage import Stage, Then
from cluster.faults.state import UpgradeState
from cluster.faults.targets import Targets
from cluster.scenario.sections.faults import UpgradeFault


class RollingUpgrade:
    """One rolling upgrade.

    ``let_up`` lets validators start again, ``end`` ends the fault, and ``call`` makes a future call from its data.
    """

    def __init__(
        self,
        fault: ActiveFault,
        plan: UpgradeFault,
        stage: Stage,
        targets: Targets,
        let_up: Callable[[Sequence[int]], None],
        end: Callable[[], None],
        call: Callable[[FaultCall], Then],
    ) -> None:
        fault.observe = self._observe
        self._fault = fault
        self._plan = plan
        self._stage = stage
        self._targets = targets
        self._let_up = let_up
        self._end = end
        self._call = call
        self._deaths = Deaths(stage)
        self._chosen: list[int] = []
        self._left: list[list[int]] = []
        """The validators that still run the old code, host by host."""
        self._settles_from: int | None = None
        """The height at which the validators upgraded last were started; ``None`` while none are awaited."""

    @property
    def state(self) -> UpgradeState:
        """The progress of this upgrade as plain data, from which another process can continue."""
        return UpgradeState(self.key, self._chosen, self._left, self._settles_from, self._deaths.before)

    def take_over(self, state: UpgradeState) -> None:
        """Replace the progress of this upgrade by that of another process, to continue from it."""
        self._chosen, self._left = state.chosen, state.left
        self._settles_from, self._deaths.before = state.settles_from, state.deaths_before

    @property
    def key(self) -> int:
        """The fault's key."""
        return self._fault.key

    def choose(self) -> None:
        """Choose the validators, host by host."""
        self._chosen, self._left = self._targets.pick_by_host(self._plan)
        names = self._targets.names
        self._fault.record.one_at_a_time = tuple(tuple(names[each] for each in group) for group in self._left)

    def begin(self) -> None:
        """Prepare the new code, then upgrade the first host."""
        self._stage.prepare(self._chosen, self._plan.release, self._call(UpgradeNext(self.key)))

    def on_progress(self) -> None:
        """Called when a validator made a block final, or diverged: the next host may be due."""
        if self._settles_from is not None and not self._fault.is_over and self._has_settled(self._settles_from):
            self._stage.later(0, f"upgrade {self._fault.number} goes on", self._call(UpgradeNext(self.key)))

    def upgrade_next(self) -> None:
        """Upgrade the next host. If none is left, or a validator diverged with the new code, end the upgrade."""
        plan, stage, fault, names = self._plan, self._stage, self._fault, self._targets.names
        if fault.is_over:
            return
        self._settles_from = None
        diverged = [names[index] for index in fault.targets if stage.has_diverged(index)]
        if diverged:
            fault.record.problem = (
                f"{diverged[0]} diverged with version {plan.version}: no other validator was upgraded then"
            )
        if diverged or not self._left:
            self._end()
            return
        group = self._left.pop(0)
        fault.targets += group
        fault.record.targets = tuple(names[index] for index in fault.targets)
        self._deaths.expect(group)
        self._targets.hold_down(group)
        stage.replace(group, plan.release)
        stage.notice(
            f"height {stage.height}: version {plan.version} goes to {', '.join(names[each] for each in group)}"
        )
        stage.later(plan.down_ms, f"upgrade {fault.number}", self._call(UpgradeStart(self.key, group)))

    def start(self, group: Sequence[int]) -> None:
        """Start the validators of a host with the new code."""
        self._let_up(group)
        self._settles_from = self._stage.height

    def _has_settled(self, since: int) -> bool:
        """Whether all upgraded validators have advanced far enough since a height, or one has diverged. Byzantine ones
        need only be up: their own misbehaviour says nothing about the code.
        """
        stage, targets = self._stage, self._fault.targets
        if any(stage.has_diverged(index) for index in targets):
            return True
        goal = since + self._plan.heights_between
        honest = filter(self._targets.is_honest, targets)
        return all(map(stage.is_up, targets)) and all(stage.height_of(each) >= goal for each in honest)

    def _observe(self) -> Seen:
        """Whether the upgrade took effect, and the evidence: how many validators run the new code."""
        plan, stage, targets = self._plan, self._stage, self._fault.targets
        runs = sum(stage.runs(index, plan.release) for index in targets)
        words = [
            f"{runs} of {len(targets)} validators run version {plan.version} now",
            *stage.describe_restart(targets),
        ]
        return Seen(self._deaths.have_happened() and runs == len(targets), ", ".join(words))
