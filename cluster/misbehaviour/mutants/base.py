"""Mutants: validators with one planted bug."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar, cast

from consensus.protocols import EngineType
from validator.node.assembly import Parts

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
    """Its name in :mod:`cluster.tools.mutation.detection_scenarios`."""
    mutated: tuple[int, ...] = ONE
    protocol: str = "simplex"
    seeds: int = 4
    """Seeds from 1 on."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted bug in a validator: other classes in the place of some of those that it is made of."""

    name: str
    area: Area
    description: str
    caught_by: str
    """The check that must fail (:mod:`cluster.checks.run`)."""
    detection: Detection
    """The run that must catch it."""
    rule: str = ""
    """Of the check ``safety``, the rule that must be broken (:mod:`cluster.simulation.watches.safety_monitor`)."""
    parts: Callable[[RunCounter], Parts] | None = None
    """Makes the mutated parts, which count how often the mutated line runs."""
    engine: Callable[[EngineType, RunCounter], EngineType] | None = None
    """Makes the mutated consensus engine, likewise."""


Maker = TypeVar("Maker", bound=Callable[..., Any])


class MutantTable:
    """The mutants of a module. Its methods decorate the functions that make the mutated parts or the mutated engine.

    ``caught_by`` and ``rule`` are those of mutants that name no others.
    """

    def __init__(self, area: Area, caught_by: str = "", rule: str = "") -> None:
        self._area = area
        self._caught_by = caught_by
        self._rule = rule
        self._mutants: list[Mutant] = []

    def __iter__(self) -> Iterator[Mutant]:
        return iter(self._mutants)

    def parts(self, *given: Any, **more: Any) -> Callable[[Maker], Maker]:
        """Enter a mutant by what makes its parts; ``given`` are the fields after ``kind`` of :meth:`_entering`."""
        return self._entering("parts", *given, **more)

    def engine(self, *given: Any, **more: Any) -> Callable[[Maker], Maker]:
        """Enter a mutant by what makes its consensus engine; likewise."""
        return self._entering("engine", *given, **more)

    def _entering(
        self, kind: str, name: str, description: str, detection: Detection, caught_by: str = "", rule: str = ""
    ) -> Callable[[Maker], Maker]:
        def enter(make: Maker) -> Maker:
            check, made = caught_by or self._caught_by, {kind: cast(Any, make)}
            self._mutants.append(Mutant(name, self._area, description, check, detection, rule or self._rule, **made))
            return make

        return enter
