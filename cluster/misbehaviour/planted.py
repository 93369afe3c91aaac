"""Planted bugs: what is broken on purpose, and what must fail then. Packages have them; a scenario names one.

A package registers its bugs by an entry point of the group ``stampede.planted`` (:mod:`cluster.common.plugins`). It is
loaded where a name has to be resolved: when a scenario that names a bug is checked, and when a node with one is set up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from cluster.common.plugins import PLANTED, load_all
from cluster.common.suggestions import unknown

if TYPE_CHECKING:
    from consensus.protocols import EngineType
    from validator.node.assembly import Parts

NO_BUGS: Final = "no installed package has planted bugs; expected the kit mutation, which is part of stampede"


class RunCounter:
    """Counts how often a mutated line ran, in one validator."""

    def __init__(self) -> None:
        self.runs = 0

    def ran(self) -> None:
        self.runs += 1


@dataclass(frozen=True, slots=True)
class EnginePatch:
    """Another consensus engine."""

    engine: Callable[[EngineType, RunCounter], EngineType]
    """Makes it of the protocol's engine. It counts how often the mutated line runs."""


@dataclass(frozen=True, slots=True)
class PartsPatch:
    """Other parts of a validator."""

    parts: Callable[[RunCounter], Parts]
    """Makes them. They count how often the mutated line runs."""


@dataclass(frozen=True, slots=True)
class Planted:
    """A planted bug."""

    name: str
    patch: Any
    """What is patched: of a validator, an :class:`EnginePatch` or a :class:`PartsPatch`."""
    must_fail: Any
    """The check that must fail, and where."""
    words: str = ""
    """One line: what the bug does."""
    area: str = ""
    """The part of the system that has the bug."""


@cache
def planted_bugs() -> dict[str, Planted]:
    """The bugs of validators that installed packages have, by name."""
    found: dict[str, Planted] = {}

    def add(bugs: Mapping[str, Any]) -> None:
        for name, bug in bugs.items():
            if name in found:
                raise ValueError(f"there is a bug {name} already")
            if not isinstance(bug, Planted) or bug.name != name or not isinstance(bug.patch, EnginePatch | PartsPatch):
                raise ValueError(f"{name}: expected a Planted of that name with a patch, got {bug!r}")
        found.update(bugs)

    load_all(PLANTED, add)
    return found


def bugs_of_engines() -> list[str]:
    """The names of the bugs of consensus engines."""
    return [name for name, bug in planted_bugs().items() if isinstance(bug.patch, EnginePatch)]


def planted(name: str) -> Planted:
    """The bug of that name. Raises :class:`ValueError`, with the known names, if no installed package has it."""
    known = planted_bugs()
    if not known:
        raise ValueError(NO_BUGS)
    if name not in known:
        raise ValueError(unknown("mutant", name, sorted(known)))
    return known[name]
