"""The errors of a scenario, each in one line with the path of its field."""

from __future__ import annotations

import datetime
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from cluster.common.suggestions import closest, meant_or_known, unknown
from cluster.common.wording import counted
from cluster.scenario.fields import Step, fields_at
from cluster.scenario.sections.base import KEYWORDS, NAME_PATTERN
from cluster.scenario.sections.faults import MEMBER_PATTERN, REGION_PREFIX, VERSION_PATTERN
from cluster.scenario.sections.links import TOPOLOGY_NAMES
from cluster.scenario.sections.validators import KEY_PATTERN
from loadgen.workloads import WORKLOADS
from loadgen.workloads.locustfiles import NAME_PATTERN as FILE_PATTERN
from loadgen.workloads.phases import PHASE_NAMES

_PATH_PREFIX: Final = re.compile(r"([\w.\[\]-]+): (.*)", re.DOTALL)
"""The format of the error messages of our checks across fields: each begins with the path of the wrong field."""
MAX_BITS_SHOWN: Final = 256
"""Bits of a number beyond which it is not shown; Python refuses to format very large ones."""
MAX_CHARACTERS: Final = 2_000
"""Characters shown of an error, which may quote the user's text."""
_STEP: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Problem:
    """One error, and how many others there are."""

    path: str
    """The path of the wrong field; empty for the whole scenario."""
    reason: str
    more: int = 0

    @property
    def steps(self) -> list[Step]:
        """The path, step by step."""
        return [name or int(position) for name, position in _STEP.findall(self.path)]

    def __str__(self) -> str:
        more = f" (and {self.more} more)" if self.more else ""
        return one_line(f"{self.path or 'scenario'}: {self.reason}{more}")


def first_problem(error: ValidationError, given: Any, root: type[BaseModel], also: Sequence[str] = ()) -> Problem:
    """The most useful error in ``given`` for the model ``root``; ``also`` are further fields that a file may have."""
    found = all_problems(error, given, root, also)
    return replace(found[0], more=len(found) - 1)


def all_problems(error: ValidationError, given: Any, root: type[BaseModel], also: Sequence[str] = ()) -> list[Problem]:
    """All errors, the most useful one first."""
    problems = error.errors(include_url=False)
    first = _most_useful(problems, given, root)
    return [_problem(each, given, root, also) for each in [first, *(each for each in problems if each is not first)]]


def _problem(problem: Mapping[str, Any], given: Any, root: type[BaseModel], also: Sequence[str]) -> Problem:
    place = _as_written(tuple(_without_kinds(problem["loc"])), given)
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    reason = _reason(problem, place, given, root, also)
    if problem["type"] == "value_error" and (deeper := _PATH_PREFIX.match(reason)):
        path, reason = f"{path}.{deeper[1]}", deeper[2]
    return Problem(path.lstrip("."), reason)


def describe(error: ValidationError, given: Any, root: type[BaseModel], also: Sequence[str] = ()) -> str:
    """The first error as one line."""
    return str(first_problem(error, given, root, also))


def one_line(text: str) -> str:
    """The text without line breaks, cut to :data:`MAX_CHARACTERS`."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_CHARACTERS else f"{line[:MAX_CHARACTERS]}…"


# --- reasons ----------------------------------------------------------------------------------------------------------

_NAME_RULE: Final = "lower-case letters, digits, - and _, at most 64, the first a letter or a digit"
PATTERN_TEXTS: Final = {
    NAME_PATTERN: f"a name ({_NAME_RULE})",
    MEMBER_PATTERN: f"a validator's name or {REGION_PREFIX}NAME ({_NAME_RULE})",
    FILE_PATTERN: "the name of a module (letters, digits, - and _, at most 64)",
    KEY_PATTERN: "64 hex digits in lower case",
    VERSION_PATTERN: "a name (letters, digits, '.', '_', '+' and '-', at most 64, the first a letter or a digit)",
}
"""Descriptions of patterns for error messages, keyed by the pattern."""

_LIST: Final = "a list"
_MAPPING: Final = "a mapping of fields"
_TARGET: Final = f"the name of a validator, a list of such, {REGION_PREFIX}NAME, leader, random or f"
_PROGRAM: Final = f"the name of a program, the path of one or {_MAPPING}"
_WANTED: Final[Sequence[tuple[tuple[str | None, ...], str]]] = (
    (("validators",), f"a number, a list of validators or {_MAPPING}"),
    (("validators", "nodes", None, "byzantine"), "the name of a behaviour or a list of such"),
    (("links", "topology"), f"the name of a topology, a list of links or {_MAPPING}"),
    (("links", "topology", "edges", None), f"a list of two validators or {_MAPPING}"),
    (("faults", None), f"{_MAPPING}, such as {{kind: kill, target: leader, at_height: 9}}"),
    (("faults", None, "target"), _TARGET),
    (("chain", "actors", None, "program"), _PROGRAM),
    (("load", "users", None, "options", "program"), _PROGRAM),
    (("load", "users", None, "options", "deploys", None), _PROGRAM),
    (("load", "locust"), f"the path of a Locustfile, a list of such or {_MAPPING}"),
    (("load", "users", None, "workload"), f"the path of a Python file or one of {', '.join(sorted(WORKLOADS))}"),
)
"""Expected values at places with short forms or an example; ``None`` is any item of a list."""

UNKNOWN_NAME: Final = "unknown_name"
"""The type of a validation error for an unknown name, raised by models with a fixed set of names."""
_TYPES: Final[Mapping[str, str]] = {
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "string_unicode": "a text",
    "list_type": _LIST,
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "invalid_key": "the name of a field",
}
"""Descriptions of the expected values, keyed by the type of pydantic's error."""
_BOUNDS: Final[Mapping[str, tuple[str, str]]] = {
    "greater_than": ("more than {}", "gt"),
    "greater_than_equal": ("at least {}", "ge"),
    "less_than": ("less than {}", "lt"),
    "less_than_equal": ("at most {}", "le"),
    "multiple_of": ("a multiple of {}", "multiple_of"),
    "string_too_short": ("a text of at least {}", "min_length"),
    "string_too_long": ("a text of at most {}", "max_length"),
    "too_short": ("at least {} in the list", "min_length"),
    "too_long": ("at most {} in the list", "max_length"),
    "literal_error": ("{}", "expected"),
}
"""Descriptions of the expected values, keyed by the type of pydantic's error. Each comes with a key of the error's
context, whose value completes the description."""


def _reason(
    error: Mapping[str, Any], place: tuple[Step, ...], given: Any, root: type[BaseModel], also: Sequence[str]
) -> str:
    kind, got, location = error["type"], _got(error["input"]), error["loc"]
    context: dict[str, Any] = error.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown(location, given, root, also if len(location) == 1 else ())
    if kind == "missing":
        wanted = _wanted(place)
        return f"is missing; expected {wanted}" if wanted else "is missing"
    if kind == "string_pattern_mismatch":
        return f"expected {_pattern_text(context['pattern'], place, error['input'])}, got {got}"
    if kind == UNKNOWN_NAME:
        return unknown(context["what"], context["name"], context["known"].split(", "))
    if kind in _TYPES:
        wanted = _wanted(place) if _TYPES[kind] in (_LIST, _MAPPING) else None
        return f"expected {wanted or _TYPES[kind]}, got {got}"
    if kind in _BOUNDS:
        expected, name = _BOUNDS[kind]
        bound = context[name]
        if kind.startswith("string"):
            bound = counted(bound, "character")
        expected = expected.format(f"{bound:g}" if isinstance(bound, float) else bound)
        return f"expected {expected}, got {context.get('actual_length', got)}"
    return error["msg"].removeprefix("Value error, ")


def _most_useful(problems: Sequence[Mapping[str, Any]], given: Any, root: type[BaseModel]) -> Mapping[str, Any]:
    """The first error. If that is a missing field of which ``given`` has a misspelling, the misspelling's error."""
    first = problems[0]
    if first["type"] == "missing":
        name, section = str(first["loc"][-1]), first["loc"][:-1]
        unknown = [each for each in problems if each["type"] == "extra_forbidden" and each["loc"][:-1] == section]
        known = fields_at(root, section, given)
        return next((each for each in unknown if closest(str(each["loc"][-1]), known) == name), first)
    return first


def _unknown(location: tuple[Step, ...], given: Any, root: type[BaseModel], also: Sequence[str]) -> str:
    names = [*fields_at(root, location[:-1], given), *also]
    return f"unknown field; {meant_or_known(str(location[-1]), names)}" if names else "unknown field"


def _pattern_text(pattern: str, place: tuple[Step, ...], text: str) -> str:
    if pattern == MEMBER_PATTERN and place[2:3] == ("target",):
        meant = closest(text.lower(), KEYWORDS)
        return _TARGET if meant is None else f"{_TARGET} (did you mean {meant}?)"
    return PATTERN_TEXTS.get(pattern, f"a text like {pattern}")


def _got(value: Any) -> str:
    """A description of the given value."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() if value.bit_length() > MAX_BITS_SHOWN:
            return "a number of very many digits"
        case int() | float() | str():
            return reprlib.repr(value)
        case list() | tuple():
            return "a list"
        case Mapping():
            return "a mapping"
        case datetime.date():
            return f"the date {value}"
    return "something else"


def _wanted(place: tuple[Step, ...]) -> str | None:
    """The description of the expected values at a place, from :data:`_WANTED`; ``None`` if it has none."""
    return next((expected for known, expected in _WANTED if len(known) == len(place) and _fits(place, known)), None)


# --- places -----------------------------------------------------------------------------------------------------------

_KINDS: Final[Sequence[tuple[tuple[str | None, ...], Sequence[str]]]] = (
    (("links", "topology"), TOPOLOGY_NAMES),
    (("load", "phases", None), PHASE_NAMES),
    (("load", "users", None, "phases", None), PHASE_NAMES),
)
"""Places whose models are distinguished by ``kind``, each with its kinds. Pydantic inserts the kind after such a place
in the location of an error. ``None`` is any item of a list."""


def _without_kinds(location: tuple[Step, ...]) -> Iterator[Step]:
    """An error's place as in the file, without pydantic's kinds and its mark of a wrong key."""
    tags = [len(place) for place, names in _KINDS if _is_at(location, place) and location[len(place)] in names]
    return (part for position, part in enumerate(location) if position not in tags and part != "[key]")


def _as_written(place: tuple[Step, ...], given: Any) -> tuple[Step, ...]:
    """The place as the file has it: without a last position in a list if the file has a text instead of the list."""
    above = given
    try:
        for step in place[:-1]:
            above = above[step]
    except (LookupError, TypeError):
        return place
    return place[:-1] if place and isinstance(place[-1], int) and isinstance(above, str) else place


def _is_at(location: tuple[Step, ...], place: tuple[str | None, ...]) -> bool:
    """Whether a location is inside a place: it fits the place and goes deeper."""
    return len(location) > len(place) and _fits(location, place)


def _fits(location: tuple[Step, ...], place: tuple[str | None, ...]) -> bool:
    return all(wanted is None or wanted == part for part, wanted in zip(location, place, strict=False))
