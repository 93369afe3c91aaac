"""Mutants: validators with one planted bug."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar, Final, TypeVar

from consensus.protocols import EngineType
from validator.execution.timer_phase import TimerPhase
from validator.node.assembly import PRODUCTION, Parts
from validator.node.executor.executor import Executor
from validator.node.joining.snapshot_join import SnapshotJoin
from validator.node.node import Node
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


class RunCounter:
    """Counts how often a mutated line ran, in one validator."""

    def __init__(self) -> None:
        self.runs = 0

    def ran(self) -> None:
        self.runs += 1


@dataclass(frozen=True, slots=True)
class Detection:
    """A detection scenario, the validators that have the bug, and the seeds to try in order until it is caught."""

    scenario: str
    """The scenario's name in :mod:`kits.mutation.detection_scenarios`."""
    mutated: tuple[int, ...] = ONE
    protocol: str = "simplex"
    seeds: int = 4
    """The number of seeds, from 1 on."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted bug in a validator: classes that replace some of its parts."""

    name: str
    area: Area
    description: str
    caught_by: str
    """The check that must fail (:mod:`cluster.checks.run`)."""
    detection: Detection
    """The run that must catch it."""
    rule: str = ""
    """The rule of the check ``safety`` that must be broken (:mod:`cluster.watches.safety_monitor`)."""
    parts: Callable[[RunCounter], Parts] | None = None
    """Makes the mutated parts, which count how often the mutated line runs."""
    engine: Callable[[EngineType, RunCounter], EngineType] | None = None
    """Makes the mutated consensus engine, which counts likewise."""


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

    ``caught_by`` and ``rule`` apply to mutants that name no others.
    """

    def __init__(self, area: Area, caught_by: str = "", rule: str = "") -> None:
        self._area = area
        self._caught_by = caught_by
        self._rule = rule
        self._mutants: list[Mutant] = []

    def __iter__(self) -> Iterator[Mutant]:
        return iter(self._mutants)

    def part(self, *given: Any) -> Callable[[Made], Made]:
        """Enter a mutant by a class derived from :class:`Mutated` and from a part of a validator; ``given`` are the
        fields after ``maker`` of :meth:`_entering`."""
        return self._entering("parts", lambda part: lambda counter: parts_with(_counted(counter, part)), *given)

    def parts(self, *given: Any) -> Callable[[Made], Made]:
        """Enter a mutant by a function that takes a :class:`RunCounter` and makes its parts; likewise."""
        return self._entering("parts", lambda make: make, *given)

    def engine(self, *given: Any, **more: Any) -> Callable[[Made], Made]:
        """Enter a mutant by a class derived from :data:`MutatedEngine`; likewise."""
        return self._entering("engine", lambda own: lambda base, counter: _counted(counter, own, base), *given, **more)

    def _entering(
        self,
        field: str,
        maker: Callable[[Any], Any],
        name: str,
        detection: Detection,
        caught_by: str = "",
        rule: str = "",
    ) -> Callable[[Made], Made]:
        def enter(made: Made) -> Made:
            check, broken, made_by = caught_by or self._caught_by, rule or self._rule, {field: maker(made)}
            self._mutants.append(Mutant(name, self._area, made.__doc__ or "", check, detection, broken, **made_by))
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
