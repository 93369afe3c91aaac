"""The validators that faults hit, and those that faults hold down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cluster.faults.stage import Stage
from cluster.scenario.sections.faults import (
    AS_MANY_AS_WITHSTOOD,
    KEYWORDS,
    LEADER,
    AnyFault,
    KillFault,
    NodeFault,
    UpgradeFault,
)
from cluster.scenario.sections.validators import ValidatorsSection


class Targets:
    """The validators of a run, as faults choose among them. Several faults may hold one of them down."""

    def __init__(self, validators: ValidatorsSection, stage: Stage) -> None:
        self.names = validators.names
        self._validators = validators
        self._stage = stage
        self._held_down: Counter[int] = Counter()
        """By validator, how many faults hold it down."""

    def pick(self, plan: NodeFault) -> tuple[list[int], list[int]]:
        """The validators that a fault is aimed at, and others that go down with them since they share their hosts.

        Every validator of a killed host is a target itself.
        """
        most = self._validators.withstood if plan.target[0] == AS_MANY_AS_WITHSTOOD else len(self.names)
        chosen = self._choose(plan.target, most)
        if not self._stage.shares_fate(plan):
            return chosen, []
        targets, victims = [], list[int]()
        for index in chosen:
            more = [each for each in self._on_host_of(index) if each not in victims]
            if len(victims) + len(more) <= most:
                victims += more
                targets.append(index)
        if isinstance(plan, KillFault):
            return victims, []
        return targets, [index for index in victims if index not in targets]

    def pick_by_host(self, plan: UpgradeFault) -> tuple[list[int], list[list[int]]]:
        """The validators that an upgrade is for; and host by host all that are upgraded with them."""
        is_bounded = plan.target == [AS_MANY_AS_WITHSTOOD]
        most = self._validators.withstood if is_bounded else len(self.names)
        chosen = self._choose(plan.target or self.names, most)
        groups: list[list[int]] = []
        for index in chosen:
            group = self._on_host_of(index)
            if group and group not in groups:
                groups.append(group)
        return chosen, groups

    def host_mates(self, index: int, plan: AnyFault) -> list[int]:
        """The validators that go down with one that stopped by itself."""
        if not self._stage.shares_fate(plan):
            return []
        late = self._validators.late
        return [each for each in self._on_same_host(index) if each != index and late.get(each, 0) <= self._stage.height]

    def is_held_down(self, index: int) -> bool:
        """Whether a fault keeps a validator from starting."""
        return self._held_down[index] > 0

    def hold_down(self, indices: Sequence[int]) -> None:
        """A fault keeps validators from starting."""
        self._held_down.update(indices)

    def let_up(self, index: int) -> None:
        """A fault no longer keeps a validator from starting."""
        self._held_down[index] -= 1

    def _choose(self, target: Sequence[str], most: int) -> list[int]:
        stage, word = self._stage, target[0]
        running = [index for index in range(len(self.names)) if stage.is_running(index)]
        if word == LEADER:
            leader = stage.leader()
            return [] if leader is None else [leader]
        if word in KEYWORDS:
            wanted = most if word == AS_MANY_AS_WITHSTOOD else 1
            return stage.random.sample(running, min(wanted, len(running)))
        return [self.names.index(name) for name in target]

    def _on_host_of(self, index: int) -> list[int]:
        """The validators of a host that run, or would but for a fault."""
        return [each for each in self._on_same_host(index) if self._stage.is_running(each) or self.is_held_down(each)]

    def _on_same_host(self, index: int) -> list[int]:
        host_of = self._validators.host_of
        return [each for each in range(len(self.names)) if host_of(each) == host_of(index)]
