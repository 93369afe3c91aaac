"""Sections of a scenario that installed packages bring: entry points in ``stampede.sections``.

A package is imported when a scenario has its section. Such a scenario is of a subclass of the scenario's model, in
which the section is a field like others.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial
from typing import Any, Self, TypeVar

from pydantic import BaseModel, Field, create_model

from cluster.common.plugins import KITS_WITH_SECTIONS, SECTIONS, load_named, points
from cluster.scenario.sections.base import Section
from validator.primitives.offered import expect_class

M = TypeVar("M", bound=BaseModel)


class PackagedSection(Section):
    """A section that a package brings. Each of its fields has a default."""

    @classmethod
    def of(cls, scenario: BaseModel) -> Self:
        """The section of this class in a scenario; the default one if it has none."""
        return next((each for each in vars(scenario).values() if isinstance(each, cls)), None) or cls()


@cache
def section_names() -> tuple[str, ...]:
    """The names of the sections that packages bring."""
    return tuple(dict.fromkeys(point.name for point in points(SECTIONS)))


@cache
def section_named(name: str) -> type[PackagedSection]:
    """The class of a package's section. Raises :class:`BadInput` if there is none, with the kit that has it."""
    kit = KITS_WITH_SECTIONS.get(name, "")
    return load_named(SECTIONS, name, partial(expect_class, base=PackagedSection), purpose=name, kit=kit)


def with_sections(scenario: type[M], names: Iterable[object]) -> type[M]:
    """The scenario's model with those sections of packages that are among the names. Raises :class:`BadInput`."""
    others = [name for name in names if name not in scenario.model_fields]
    known = sorted(str(name) for name in others if name in (*KITS_WITH_SECTIONS, *section_names()))
    return _extended(scenario, tuple(known)) if known else scenario


@cache
def _extended(scenario: type[Any], names: tuple[str, ...]) -> type[Any]:
    fields: Any = {name: (section_named(name), Field(default_factory=section_named(name))) for name in names}
    return create_model(scenario.__name__, __base__=scenario, __module__=scenario.__module__, **fields)
