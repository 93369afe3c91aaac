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
MOST_SAID: Final = 2_000
"""Characters of a problem; it may quote what the user gave."""
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
    place = tuple(_without_kinds(first["loc"]))
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    reason = first["msg"].removeprefix("Value error, ")
    if (wanted := _wanted(first["type"], place)) is not None:
        reason = f"expected {wanted}, got {_GOT.get(type(first['input']), 'something else')}"
    if first["type"] == "value_error" and (deeper := _PATH_PREFIX.match(reason)):
        path, reason = f"{path}.{deeper[1]}", deeper[2]
    return Problem(path.lstrip("."), reason, len(problems) - 1)


def describe(error: ValidationError) -> str:
    """The first problem, as ``path: reason`` in one line, and how many there are besides."""
    return str(first_problem(error))


def one_line(text: str) -> str:
    """The text without line breaks, and cut where it is so long that nobody reads it."""
    line = " ".join(text.split())
    return line if len(line) <= MOST_SAID else f"{line[:MOST_SAID]}…"


# --- in other words than pydantic's -----------------------------------------------------------------------------------

_NO_MAPPING: Final = ("model_type", "model_attributes_type", "dict_type")
_MAPPING: Final = "a mapping of fields"
_WANTED: Final[Sequence[tuple[tuple[str | None, ...], str]]] = (
    (("validators",), f"a number, a list of validators or {_MAPPING}"),
    (("validators", "nodes", None, "byzantine"), "the name of a behaviour or a list of such"),
    (("links", "topology"), f"the name of a topology, a list of links or {_MAPPING}"),
    (("links", "topology", "edges", None), f"a list of two validators or {_MAPPING}"),
    (("faults", None), f"{_MAPPING}, such as {{kind: kill, target: leader, at_height: 9}}"),
    (("faults", None, "target"), "the name of a validator, a list of such, leader, random or f"),
)
"""Places that have short forms, or where an example helps; ``None`` is any item of a list."""
_GOT: Final[dict[type, str]] = {
    dict: "a mapping",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    type(None): "nothing",
}


def _wanted(kind: str, place: tuple[Step, ...]) -> str | None:
    """What would be right where it is neither a mapping nor a list that was expected."""
    if kind not in (*_NO_MAPPING, "list_type"):
        return None
    words = next((words for known, words in _WANTED if len(known) == len(place) and _fits(place, known)), None)
    return words or (_MAPPING if kind in _NO_MAPPING else None)


# --- places -----------------------------------------------------------------------------------------------------------

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
    return len(location) > len(place) and _fits(location, place)


def _fits(location: tuple[Step, ...], place: tuple[str | None, ...]) -> bool:
    return all(wanted is None or wanted == part for part, wanted in zip(location, place, strict=False))
