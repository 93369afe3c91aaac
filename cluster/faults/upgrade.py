"""A rolling upgrade: validators get other code, host by host, each after the earlier ones run well."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster.faults.active import ActiveFault, Deaths
from cluster.faults.calls import UpgradeNext, UpgradeStart
from cluster.faults.events import Prepare, Replace
from cluster.faults.stage import Stage
from cluster.faults.targets import Targets
from cluster.scenario.sections.faults import UpgradeFault


class RollingUpgrade:
    """One rolling upgrade.

    ``let_up`` lets validators start again, and ``end`` ends the fault.
    """

    def __init__(
        self,
        fault: ActiveFault,
        plan: UpgradeFault,
        stage: Stage,
        targets: Targets,
        let_up: Callable[[Sequence[int]], None],
        end: Callable[[], None],
    ) -> None:
        self._fault = fault
        self._plan = plan
        self._stage = stage
        self._targets = targets
        self._let_up = let_up
        self._end = end
        self._deaths = Deaths(stage)
        self._chosen: list[int] = []
        self._left: list[list[int]] = []
        """The validators that still run the old code, host by host."""
        self._settles_from: int | None = None
        """The height at which the validators upgraded last were started; ``None`` while none are awaited."""

    @property
    def key(self) -> int:
        """The fault's key."""
        return self._fault.key

    @property
    def is_over(self) -> bool:
        return self._fault.is_over

    def choose(self, lot: str) -> None:
        """Choose the validators, host by host."""
        self._chosen, self._left = self._targets.pick_by_host(self._plan, lot)
        names = self._targets.names
        self._fault.record.one_at_a_time = tuple(tuple(names[each] for each in group) for group in self._left)

    def begin(self) -> None:
        """Prepare the new code, then upgrade the first host."""
        self._stage.order(Prepare(self._chosen, self._plan.release, UpgradeNext(self.key)))

    def on_progress(self) -> None:
        """Called when the network was seen again: the next host may be due."""
        if self._settles_from is not None and not self._fault.is_over and self._has_settled(self._settles_from):
            self._settles_from = None
            self._stage.later(0, f"upgrade {self._fault.number} goes on", UpgradeNext(self.key))

    def upgrade_next(self) -> None:
        """Upgrade the next host. If none is left, or a validator diverged with the new code, end the upgrade."""
        plan, stage, fault, names = self._plan, self._stage, self._fault, self._targets.names
        if fault.is_over:
            return
        diverged = [names[index] for index in fault.targets if stage.seat(index).has_diverged]
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
        stage.order(Replace(group, plan.release))
        stage.notice(f"version {plan.version} goes to {', '.join(names[each] for each in group)}")
        stage.later(plan.down_ms, f"upgrade {fault.number}", UpgradeStart(self.key, group))

    def start(self, group: Sequence[int]) -> None:
        """Start the validators of a host with the new code."""
        self._let_up(group)
        self._settles_from = self._stage.height

    def _has_settled(self, since: int) -> bool:
        """Whether all upgraded validators have advanced far enough since a height, or one has diverged. Byzantine ones
        need only be up: their own misbehaviour says nothing about the code.
        """
        stage, targets = self._stage, self._fault.targets
        if any(stage.seat(index).has_diverged for index in targets):
            return True
        goal = since + self._plan.heights_between
        honest = filter(self._targets.is_honest, targets)
        return all(stage.seat(index).is_up for index in targets) and all(
            stage.seat(index).height >= goal for index in honest
        )

    def have_restarted(self) -> bool:
        """Whether every upgraded validator has gone down, to start with the new code."""
        return self._deaths.have_happened()
