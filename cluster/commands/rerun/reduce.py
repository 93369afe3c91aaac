"""The passes that make a scenario smaller, for :class:`~cluster.common.shrinking.Shrinker`.

The things are fields: the plain data of a :class:`~cluster.scenario.Scenario`.

==============  ======================================================================================================
pass            attempt
==============  ======================================================================================================
height          to stop earlier, by bisection
lists           to omit faults, groups of users, epochs and forks, by ddmin
sections        to omit whole sections: links, the chain's parameters, success criteria …
validators      to omit validators, by ddmin; the following ones move up, and faults follow them
settings        to omit each remaining setting, so that its default applies
numbers         to halve the begin and length of faults, and the number of users
==============  ======================================================================================================

``consensus.signatures`` is kept: it changes the cost of a run, not its behaviour.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from pydantic import ValidationError

from cluster.common.shrinking import Path, Shrinker, ddmin, value_at, with_value
from cluster.scenario import Scenario

Fields = dict[str, Any]
Shrinking = Shrinker[Fields, Any]

LISTS: Final[tuple[Path, ...]] = (("faults",), ("forks",), ("load", "users"), ("validators", "epochs"))
KEPT: Final[frozenset[Path]] = frozenset(
    {("name",), ("seed",), ("consensus", "signatures"), ("validators", "count"), ("stop", "height")}
)
"""Settings that are not omitted, since their defaults would mean a different or a larger run."""
LEAST: Final = {"for_ms": 1, "down_ms": 0, "at_ms": 0, "at_height": 1, "until_height": 2, "count": 1}
"""Minimum of each number that is reduced in faults and groups of users, keyed by field."""


def shrink_fields(shrinking: Shrinking) -> Fields:
    """Search with all passes; returns the smallest fields found."""
    passes = (_height, _lists, _sections, _validators, _settings, _numbers)
    return shrinking.shrink(*(partial(each, shrinking) for each in passes))


# --- places in fields -----------------------------------------------------------------------------------------------


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


def _height(shrinking: Shrinking) -> None:
    known = _scenario(shrinking.best)
    if known is None or known.stop.duration_s is not None:
        return
    low, high = 0, known.stop.height
    while high - low > 1:
        middle = (low + high) // 2
        smaller = copy.deepcopy(shrinking.best)
        smaller.setdefault("stop", {})["height"] = middle
        if shrinking.holds(smaller):
            high = middle
        else:
            low = middle


def _lists(shrinking: Shrinking) -> None:
    for path in LISTS:
        items = value_at(shrinking.best, path)
        if items:
            base = shrinking.best
            ddmin(items, lambda part, base=base, path=path: shrinking.holds(_with_list(base, path, part)))  # type: ignore[misc]


def _with_list(fields: Fields, path: Path, items: list[Any]) -> Fields:
    return with_value(fields, path, items) if items else _without(fields, path)


def _sections(shrinking: Shrinking) -> None:
    for name in ("description", "links", "load", "chain", "success", "consensus"):
        if name in shrinking.best:
            smaller = _without(shrinking.best, (name,))
            signatures = value_at(shrinking.best, ("consensus", "signatures"))
            if name == "consensus" and signatures is not None:
                smaller["consensus"] = {"signatures": signatures}
            shrinking.holds(smaller)


def _settings(shrinking: Shrinking) -> None:
    """Remove single settings.

    List items are tried from the last to the first, so that a removal does not move items that are still to be tried.
    """
    for path in list(_leaves(shrinking.best)):
        if path not in KEPT and value_at(shrinking.best, path) is not None:
            shrinking.holds(_without(shrinking.best, path))


def _numbers(shrinking: Shrinking) -> None:
    for path in list(_leaves(shrinking.best)):
        value, least = value_at(shrinking.best, path), LEAST.get(str(path[-1]))
        if path[0] not in ("faults", "load") or least is None or not isinstance(value, int):
            continue
        for tried in _smaller(value, least):
            if not shrinking.holds(with_value(shrinking.best, path, tried)):
                break


def _smaller(value: int, least: int) -> Iterator[int]:
    """Halve a number repeatedly, down to the minimum; yields each result."""
    while value > least:
        value = max(least, value // 2)
        yield value


def _validators(shrinking: Shrinking) -> None:
    fields = shrinking.best
    scenario = _scenario(fields)
    if scenario is not None and scenario.validators.count > 1:
        ddmin(
            range(scenario.validators.count),
            lambda kept: shrinking.holds(_with_validators(fields, scenario, kept)),
        )


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
            changed = with_value(changed, path, renamed) if renamed else _without(changed, path)
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
