"""What the planted bugs of validators are made with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, ClassVar, Final, TypeVar

from cluster.common.outcome import Outcome
from cluster.misbehaviour.planted import EnginePatch, PartsPatch, Planted, RunCounter
from validator.execution.timer_phase import TimerPhase
from validator.node.assembly import PRODUCTION, Parts
from validator.node.executor.executor import Executor
from validator.node.node import Node
from validator.node.snapshot_join import SnapshotJoin
from validator.policies.registry import phases_with
from validator.transition.transition import Transition

VALIDATORS: Final = 4
ONE: Final = (1,)
ALL: Final = tuple(range(VALIDATORS))


class Area(StrEnum):
    """The part of the system in which a bug is planted."""

    CONSENSUS = "consensus"
    NODE = "node"
    SCHEDULER = "scheduler"
    STATE = "state"
    STORAGE = "storage"
    HARNESS = "harness"


@dataclass(frozen=True, slots=True)
class Detection:
    """The run that must catch a bug: a detection scenario, the validators that have the bug, and the seeds to try in
    order until it is caught; and the check that must fail there."""

    scenario: str
    """The scenario's name in :mod:`kits.mutation.detection_scenarios`."""
    mutated: tuple[int, ...] = ONE
    protocol: str = "simplex"
    seeds: int = 4
    """The number of seeds, from 1 on."""
    check: str = ""
    """The check that must fail (:mod:`cluster.checks.run`)."""
    rule: str = ""
    """The rule of the check ``safety`` that must be broken (:mod:`cluster.watches.safety_monitor`)."""
    mutant: str | None = None
    """For a bug of the harness: the bug in the validators of the run; ``None`` for no bug."""
    right: Outcome = Outcome.PASS
    """For a bug of the harness: what a sound harness says of the check, or of the rule."""

    @property
    def invariant(self) -> str:
        """The check and, for ``safety``, the rule."""
        return f"{self.check}: {self.rule}" if self.rule else self.check


class Mutated:
    """The base of mutated classes. Each validator has separate subclasses of them, with its counter."""

    __slots__ = ()
    counter: ClassVar[RunCounter]


MutatedEngine: Any = Mutated
"""The base of mutated engines. They precede the chain's protocol in the bases, and so cannot be typed narrowly."""

Made = TypeVar("Made", bound=Callable[..., Any])


class MutantTable:
    """The mutants of a module. Its methods decorate the classes with the bugs, or functions that make all parts. Their
    docstrings are the descriptions of the bugs.

    ``check`` and ``rule`` apply to mutants that name no others.
    """

    def __init__(self, area: Area, check: str = "", rule: str = "") -> None:
        self._area = area
        self._check = check
        self._rule = rule
        self._mutants: list[Planted] = []

    def __iter__(self) -> Iterator[Planted]:
        return iter(self._mutants)

    def part(self, name: str, *given: Any) -> Callable[[Made], Made]:
        """Enter a mutant by a class derived from :class:`Mutated` and from a part of a validator; ``given`` are the
        fields after ``name`` of :meth:`_enter`."""
        return self._entering(
            lambda part: PartsPatch(lambda counter: parts_with(_counted(counter, part))), name, *given
        )

    def parts(self, name: str, *given: Any) -> Callable[[Made], Made]:
        """Enter a mutant by a function that takes a :class:`RunCounter` and makes its parts; likewise."""
        return self._entering(PartsPatch, name, *given)

    def engine(self, name: str, *given: Any) -> Callable[[Made], Made]:
        """Enter a mutant by a class derived from :data:`MutatedEngine`; likewise."""
        return self._entering(lambda own: EnginePatch(lambda base, counter: _counted(counter, own, base)), name, *given)

    def _entering(
        self,
        patch: Callable[[Any], PartsPatch | EnginePatch],
        name: str,
        where: Detection,
        check: str = "",
        rule: str = "",
    ) -> Callable[[Made], Made]:
        def enter(made: Made) -> Made:
            must_fail = replace(where, check=check or self._check, rule=rule or self._rule)
            self._mutants.append(Planted(name, patch(made), must_fail, made.__doc__ or "", self._area))
            return made

        return enter


def _counted(counter: RunCounter, *bases: type) -> type:
    return type(bases[0].__name__, bases, {"counter": counter})


def parts_with(part: Any) -> Parts:
    """The production's parts, with one class replaced by ``part``, which is derived from it."""
    for field in fields(Parts):
        original = getattr(PRODUCTION, field.name)
        if isinstance(original, type) and issubclass(part, original):
            return Parts(**{field.name: part})
    if issubclass(part, TimerPhase):
        return Parts(transition=type(part.__name__, (Transition,), {"phases": phases_with(part)}))
    for holder in (Executor, Node, SnapshotJoin, TimerPhase):
        for name, original in vars(holder).items():
            if name.endswith("_class") and issubclass(part, original):
                return parts_with(type(part.__name__, (holder,), {name: part}))
    raise TypeError(f"{part.__name__} replaces no part")
