"""What is wrong with a scenario, in one line with the path of the field that it is about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from cluster.faults import KIND_NAMES
from cluster.scenario.links import TOPOLOGY_NAMES
from loadgen.workloads.phases import PHASE_NAMES

Step = str | int
"""A field, or the position of an item."""

_PATH_PREFIX: Final = re.compile(r"([\w.\[\]]+): (.*)", re.DOTALL)
"""Our own checks of several fields begin with the path of the one that they are about."""
_STEP: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Problem:
    """The first thing that is wrong, and how many there are besides."""

    path: str
    """Empty where the whole scenario is meant."""
    reason: str
    more: int = 0

    @property
    def steps(self) -> list[Step]:
        """The path, step by step."""
        return [name or int(position) for name, position in _STEP.findall(self.path)]

    def __str__(self) -> str:
        more = f" (and {self.more} more)" if self.more else ""
        return one_line(f"{self.path or 'scenario'}: {self.reason}{more}")


def first_problem(error: ValidationError) -> Problem:
    """The first of the problems that pydantic found."""
    problems = error.errors(include_url=False, include_context=False)
    first = problems[0]
    path = ""
    for part in _without_kinds(first["loc"]):
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    reason = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error" and (deeper := _PATH_PREFIX.match(reason)):
        path, reason = f"{path}.{deeper[1]}", deeper[2]
    return Problem(path.lstrip("."), reason, len(problems) - 1)


def describe(error: ValidationError) -> str:
    """The first problem, as ``path: reason`` in one line, and how many there are besides."""
    return str(first_problem(error))


def one_line(text: str) -> str:
    """The text without line breaks."""
    return " ".join(text.split())


_KINDS: Final[Sequence[tuple[tuple[str | None, ...], Sequence[str]]]] = (
    (("faults", None), KIND_NAMES),
    (("links", "topology"), TOPOLOGY_NAMES),
    (("load", "phases", None), PHASE_NAMES),
)
"""Places of which there are several kinds, ``None`` for any item of a list; pydantic puts the kind behind them."""


def _without_kinds(location: tuple[Step, ...]) -> Iterator[Step]:
    """A problem's place as it is in the file."""
    tags = [len(place) for place, names in _KINDS if _is_at(location, place) and location[len(place)] in names]
    return (part for position, part in enumerate(location) if position not in tags)


def _is_at(location: tuple[Step, ...], place: tuple[str | None, ...]) -> bool:
    """Whether a location is deeper than a place."""
    return len(location) > len(place) and all(
        wanted is None or wanted == part for part, wanted in zip(location, place, strict=False)
    )
