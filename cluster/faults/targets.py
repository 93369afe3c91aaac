"""Chooses the validators that faults hit, and notes which validators faults keep from starting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, Protocol

from blake3 import blake3

from cluster.faults.events import Start
from cluster.faults.stage import Stage
from cluster.record.run import FaultRecord
from cluster.scenario.sections.base import AS_MANY_AS_WITHSTOOD, KEYWORDS, LEADER
from cluster.scenario.sections.validators import ValidatorsSection

Reach = Literal["validator", "host", "node"]
"""What a fault hits: a validator alone, all on its host, or all on its Ray node."""


class Hitting(Protocol):
    """A fault that has begun."""

    record: FaultRecord

    @property
    def hit(self) -> list[int]: ...

    @property
    def is_over(self) -> bool: ...


class Targets:
    """The validators of a run, from which faults choose. Several faults may hold one of them down."""

    def __init__(self, validators: ValidatorsSection, stage: Stage, begun: Sequence[Hitting]) -> None:
        """``begun`` is the list of the faults that have begun."""
        self.names = validators.names
        self._validators = validators
        self._stage = stage
        self._begun = begun
        self._held_down: Counter[int] = Counter()
        """The number of faults that hold each validator down."""

    def pick(self, target: Sequence[str], reach: Reach, lot: str, *, takes_all: bool) -> tuple[list[int], list[int]]:
        """The validators that a fault targets, and others that go down with them because they share their hosts.

        ``lot``, a text, decides what the fault leaves open. With ``takes_all`` the others are targets themselves.
        """
        most = self._validators.withstood if target[0] == AS_MANY_AS_WITHSTOOD else len(self.names)
        chosen = self._choose(target, most, lot)
        if reach == "validator":
            return chosen, []
        targets, victims = [], list[int]()
        for index in chosen:
            more = [each for each in self._that_run(self._sharing(index, reach)) if each not in victims]
            if len(victims) + len(more) <= most:
                victims += more
                targets.append(index)
        return (victims, []) if takes_all else (targets, [index for index in victims if index not in targets])

    def pick_by_host(self, target: Sequence[str] | None, lot: str) -> tuple[list[int], list[list[int]]]:
        """The validators that an upgrade targets; and, host by host, all that are upgraded with them.

        One that is about to start gets the new code, too: it would run the old one.
        """
        most = self._validators.withstood if target == [AS_MANY_AS_WITHSTOOD] else len(self.names)
        ours = self._validators.ours
        chosen = self._choose(target or [self.names[index] for index in ours], most, lot)
        groups: list[list[int]] = []
        for index in chosen:
            mates = self._validators.on_same_host(index)
            running = self._that_run(mates)
            group = [each for each in mates if each in running or self._stage.seat(each).is_about_to_start]
            if group and group not in groups:
                groups.append(group)
        return chosen, groups

    def mates(self, index: int, reach: Reach) -> list[int]:
        """The other validators that go down with one that stopped by itself."""
        late = self._validators.late
        return [
            each for each in self._sharing(index, reach) if each != index and late.get(each, 0) <= self._stage.height
        ]

    def _sharing(self, index: int, reach: Reach) -> Sequence[int]:
        seat = self._stage.seat(index)
        return (index,) if reach == "validator" else seat.on_host if reach == "host" else seat.on_node

    def is_honest(self, index: int) -> bool:
        """Whether a validator has no byzantine behaviour by the scenario."""
        return not self._validators.node(index).byzantine

    def is_held_down(self, index: int) -> bool:
        """Whether a fault keeps a validator from starting."""
        return self._held_down[index] > 0

    def hold_down(self, indices: Sequence[int]) -> None:
        """Let a fault keep these validators from starting."""
        self._held_down.update(indices)

    def let_up(self, indices: Sequence[int]) -> None:
        """One fault no longer holds these validators down: start those that no other fault holds down."""
        for index in indices:
            self._held_down[index] -= 1
            if not self.is_held_down(index) and not self._stage.seat(index).is_running:
                self._stage.order(Start(index))
                for fault in self._begun:  # from now on no fault that took it down has all of its targets down
                    if index in fault.hit and not fault.is_over and fault.record.first_back_ms is None:
                        fault.record.first_back_ms = self._stage.now_ms

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
