"""Chooses the validators that faults hit, and notes which validators faults keep from starting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from blake3 import blake3

from cluster.faults.stage import Stage
from cluster.scenario.sections.faults import (
    AS_MANY_AS_WITHSTOOD,
    KEYWORDS,
    LEADER,
    AnyFault,
    KillFault,
    LoseNodeFault,
    NodeFault,
    UpgradeFault,
)
from cluster.scenario.sections.validators import ValidatorsSection


class Targets:
    """The validators of a run, from which faults choose. Several faults may hold one of them down."""

    def __init__(self, validators: ValidatorsSection, stage: Stage) -> None:
        self.names = validators.names
        self._validators = validators
        self._stage = stage
        self._held_down: Counter[int] = Counter()
        """The number of faults that hold each validator down."""

    def pick(self, plan: NodeFault, lot: str) -> tuple[list[int], list[int]]:
        """The validators that a fault targets, and others that go down with them because they share their hosts.

        ``lot``, a text, decides what the fault leaves open. Every validator of a killed host, or of a lost node, is a
        target itself.
        """
        most = self._validators.withstood if plan.target[0] == AS_MANY_AS_WITHSTOOD else len(self.names)
        chosen = self._choose(plan.target, most, lot)
        targets, victims = [], list[int]()
        for index in chosen:
            sharing = self._stage.sharing_fate(index, plan)
            if sharing is None:
                return chosen, []
            more = [each for each in self._that_run(sharing) if each not in victims]
            if len(victims) + len(more) <= most:
                victims += more
                targets.append(index)
        if isinstance(plan, KillFault | LoseNodeFault):
            return victims, []
        return targets, [index for index in victims if index not in targets]

    def pick_by_host(self, plan: UpgradeFault, lot: str) -> tuple[list[int], list[list[int]]]:
        """The validators that an upgrade targets; and, host by host, all that are upgraded with them.

        One that is about to start gets the new code, too: it would run the old one.
        """
        is_bounded = plan.target == [AS_MANY_AS_WITHSTOOD]
        most = self._validators.withstood if is_bounded else len(self.names)
        ours = self._validators.ours
        chosen = self._choose(plan.target or [self.names[index] for index in ours], most, lot)
        groups: list[list[int]] = []
        for index in chosen:
            mates = self._validators.on_same_host(index)
            running = self._that_run(mates)
            group = [each for each in mates if each in running or self._stage.seat(each).is_about_to_start]
            if group and group not in groups:
                groups.append(group)
        return chosen, groups

    def host_mates(self, index: int, plan: AnyFault) -> list[int]:
        """The other validators on the same host, which go down with one that stopped by itself."""
        sharing, late = self._stage.sharing_fate(index, plan) or (), self._validators.late
        return [each for each in sharing if each != index and late.get(each, 0) <= self._stage.height]

    def is_honest(self, index: int) -> bool:
        """Whether a validator has no byzantine behaviour by the scenario."""
        return not self._validators.node(index).byzantine

    def is_held_down(self, index: int) -> bool:
        """Whether a fault keeps a validator from starting."""
        return self._held_down[index] > 0

    def hold_down(self, indices: Sequence[int]) -> None:
        """Let a fault keep these validators from starting."""
        self._held_down.update(indices)

    def let_up(self, index: int) -> None:
        """Let one fault no longer keep a validator from starting."""
        self._held_down[index] -= 1

    def _choose(self, target: Sequence[str], most: int, lot: str) -> list[int]:
        word, ours = target[0], self._validators.ours
        running = [index for index in ours if self._stage.seat(index).is_running]
        if word == LEADER:
            leader = self._stage.network.leader
            return [leader] if leader in ours else []
        if word in KEYWORDS:
            wanted = most if word == AS_MANY_AS_WITHSTOOD else 1
            return sorted(running, key=lambda index: blake3(f"{lot}/{index}".encode()).digest())[:wanted]
        return [self.names.index(name) for name in target]

    def _that_run(self, indices: Sequence[int]) -> list[int]:
        """Those of the given validators that run, or that only a fault keeps from running."""
        return [each for each in indices if self._stage.seat(each).is_running or self.is_held_down(each)]
