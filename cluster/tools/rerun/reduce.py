"""Delta debugging of a scenario's fields: smaller fields for which a predicate still holds. Pure and deterministic.

Fields are plain data of a :class:`~cluster.scenario.Scenario`. The caller's predicate ``holds`` is false for fields
that are not a scenario. Fields for which it is true are adopted at once, so the last such fields are the smallest.

The passes are repeated until a round changes nothing:

==============  ======================================================================================================
pass            attempt
==============  ======================================================================================================
height          to stop earlier, by bisection
lists           to omit faults, groups of users, epochs and forks, by ddmin (Zeller and Hildebrandt, 2002)
sections        to omit whole sections: links, the chain's parameters, success criteria …
validators      to omit validators, by ddmin; the following ones move up, and faults follow them
settings        to omit each remaining setting, so that its default applies
numbers         to halve the begin and length of faults, and the number of users
==============  ======================================================================================================

``consensus.signatures`` is kept: it changes the cost of a run, not its behaviour.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from cluster.scenario import Scenario

Fields = dict[str, Any]
Holds = Callable[[Fields], bool]
Path = tuple[str | int, ...]
T = TypeVar("T")

LISTS: Final[tuple[Path, ...]] = (("faults",), ("forks",), ("load", "users"), ("validators", "epochs"))
KEPT: Final[frozenset[Path]] = frozenset(
    {("name",), ("seed",), ("consensus", "signatures"), ("validators", "count"), ("stop", "height")}
)
"""Settings that are not omitted, since their defaults would mean a different or a larger run."""
LEAST: Final = {"for_ms": 1, "down_ms": 0, "at_ms": 0, "at_height": 1, "until_height": 2, "count": 1}
"""Minimum of each number that is reduced in faults and groups of users, keyed by field."""
MAX_ROUNDS: Final = 20


def reduce_fields(fields: Fields, holds: Holds) -> Fields:
    """Reduce the fields of a scenario; returns the smallest ones found for which ``holds`` is true.

    ``holds`` must be true for the given fields.
    """
    for _ in range(MAX_ROUNDS):
        before = fields
        for reduce in (_height, _lists, _sections, _validators, _settings, _numbers):
            fields = reduce(fields, holds)
        if fields == before:
            break
    return fields


def ddmin(items: Sequence[T], holds: Callable[[list[T]], bool]) -> list[T]:
    """Delta debugging: a 1-minimal subsequence of the items for which ``holds`` is true.

    1-minimal means that ``holds`` is false without any single one of its items.
    """
    kept = list(items)
    if not kept or holds([]):
        return []
    parts = 2
    while len(kept) >= 2:
        chunks = _split(kept, parts)
        rest = [[item for other in chunks if other is not chunk for item in other] for chunk in chunks]
        smaller = next((part for part in chunks if holds(part)), None)
        if smaller is not None:
            kept, parts = smaller, 2
            continue
        smaller = next((part for part in rest if holds(part)), None) if parts > 2 else None
        if smaller is not None:
            kept, parts = smaller, max(parts - 1, 2)
        elif parts >= len(kept):
            break
        else:
            parts = min(2 * parts, len(kept))
    return kept


def _split(items: list[T], parts: int) -> list[list[T]]:
    return [items[len(items) * i // parts : len(items) * (i + 1) // parts] for i in range(parts)]


# --- places in fields -----------------------------------------------------------------------------------------------


def value_at(fields: Any, path: Path) -> Any:
    """The value at a path; ``None`` if there is none."""
    for step in path:
        try:
            fields = fields[step]
        except (KeyError, IndexError, TypeError):
            return None
    return fields


def _with(fields: Fields, path: Path, value: Any) -> Fields:
    changed = copy.deepcopy(fields)
    value_at(changed, path[:-1])[path[-1]] = copy.deepcopy(value)
    return changed


def _without(fields: Fields, path: Path) -> Fields:
    """A copy of the fields without the value at a path. Mappings and lists that become empty are removed, too.

    List items that become empty stay, so that the other items keep their positions.
    """
    changed = copy.deepcopy(fields)
    del value_at(changed, path[:-1])[path[-1]]
    for length in range(len(path) - 1, 0, -1):
        inner = path[:length]
        if value_at(changed, inner) or isinstance(inner[-1], int):
            break
        del value_at(changed, inner[:-1])[inner[-1]]
    nodes = value_at(changed, ("validators", "nodes"))
    if nodes is not None and not any(nodes):
        del changed["validators"]["nodes"]
    return changed


def _leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Paths of the removable settings: values, lists, and items of lists of plain values."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, (*path, name))
    elif isinstance(value, list):
        if len(value) > 1 or not (value and isinstance(value[0], dict)):
            yield path
        for position in range(len(value) - 1, -1, -1):
            inner = value[position]
            if isinstance(inner, dict):
                yield from _leaves(inner, (*path, position))
            elif len(value) > 1:
                yield (*path, position)
    else:
        yield path


# --- passes ---------------------------------------------------------------------------------------------------------


def _height(fields: Fields, holds: Holds) -> Fields:
    known = _scenario(fields)
    if known is None or known.stop.duration_s is not None:
        return fields
    low, high = 0, known.stop.height
    while high - low > 1:
        middle = (low + high) // 2
        smaller = copy.deepcopy(fields)
        smaller.setdefault("stop", {})["height"] = middle
        if holds(smaller):
            fields, high = smaller, middle
        else:
            low = middle
    return fields


def _lists(fields: Fields, holds: Holds) -> Fields:
    for path in LISTS:
        items = value_at(fields, path)
        if items:
            base = fields
            kept = ddmin(items, lambda part, base=base, path=path: holds(_with_list(base, path, part)))  # type: ignore[misc]
            fields = _with_list(fields, path, kept)
    return fields


def _with_list(fields: Fields, path: Path, items: list[Any]) -> Fields:
    return _with(fields, path, items) if items else _without(fields, path)


def _sections(fields: Fields, holds: Holds) -> Fields:
    for name in ("description", "links", "load", "chain", "success", "consensus"):
        if name in fields:
            smaller = _without(fields, (name,))
            signatures = value_at(fields, ("consensus", "signatures"))
            if name == "consensus" and signatures is not None:
                smaller["consensus"] = {"signatures": signatures}
            if smaller != fields and holds(smaller):
                fields = smaller
    return fields


def _settings(fields: Fields, holds: Holds) -> Fields:
    """Remove single settings while ``holds`` is true.

    List items are tried from the last to the first, so that a removal does not move items that are still to be tried.
    """
    for path in list(_leaves(fields)):
        if path not in KEPT and value_at(fields, path) is not None:
            smaller = _without(fields, path)
            if holds(smaller):
                fields = smaller
    return fields


def _numbers(fields: Fields, holds: Holds) -> Fields:
    for path in list(_leaves(fields)):
        value, least = value_at(fields, path), LEAST.get(str(path[-1]))
        if path[0] not in ("faults", "load") or least is None or not isinstance(value, int):
            continue
        for tried in _smaller(value, least):
            smaller = _with(fields, path, tried)
            if not holds(smaller):
                break
            fields = smaller
    return fields


def _smaller(value: int, least: int) -> Iterator[int]:
    """Halve a number repeatedly, down to the minimum; yields each result."""
    while value > least:
        value = max(least, value // 2)
        yield value


def _validators(fields: Fields, holds: Holds) -> Fields:
    scenario = _scenario(fields)
    if scenario is None or scenario.validators.count == 1:
        return fields
    kept = ddmin(range(scenario.validators.count), lambda part: holds(_with_validators(fields, scenario, part)))
    return fields if len(kept) == scenario.validators.count else _with_validators(fields, scenario, kept)


def _with_validators(fields: Fields, scenario: Scenario, kept: Sequence[int]) -> Fields:
    """A copy of the fields with only the validators at the indexes ``kept``.

    A validator without an explicit name gets the default name of its new index; faults and other fields follow.
    """
    changed, names = copy.deepcopy(fields), scenario.validators.names
    section = changed.setdefault("validators", {})
    section["count"] = len(kept)
    nodes = section.pop("nodes", [])
    left = [nodes[index] if index < len(nodes) else {} for index in kept]
    while left and not left[-1]:
        left.pop()
    if left:
        section["nodes"] = left
    if "hosts" in section:
        section["hosts"] = min(section["hosts"], max(len(kept), 1))
    known = {names[index]: scenario.validators.node(index).name or f"validator-{at}" for at, index in enumerate(kept)}
    for path in (("faults",), ("forks",), ("links", "regions"), ("validators", "epochs")):
        found = value_at(changed, path)
        if found:
            renamed = _renamed(found, known, frozenset(names))
            changed = _with(changed, path, renamed) if renamed else _without(changed, path)
    return changed


def _renamed(value: Any, known: dict[str, str], names: frozenset[str]) -> Any:
    """A copy of a value in which validators in ``known`` are renamed, and other validators of ``names`` are dropped.

    A mapping with a ``kind``, such as a fault, is dropped if one of its lists becomes empty.
    """
    if isinstance(value, dict):
        renamed = {name: _renamed(inner, known, names) for name, inner in value.items()}
        is_lost = any(inner == [] and value[name] for name, inner in renamed.items())
        return {} if is_lost and "kind" in value else {name: inner for name, inner in renamed.items() if inner != []}
    if not isinstance(value, list):
        return value
    if all(isinstance(item, str) for item in value):
        return [known.get(item, item) for item in value if item in known or item not in names]
    return [renamed for item in value if (renamed := _renamed(item, known, names))]


def _scenario(fields: Fields) -> Scenario | None:
    try:
        return Scenario.model_validate(fields)
    except ValidationError:
        return None
