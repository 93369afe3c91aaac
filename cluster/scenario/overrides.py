"""Changes of a scenario from outside its file: ``links.loss=0.1``, ``faults[1].for_ms=500``, ``faults[+]={…}``.

A path is fields separated by dots; ``[i]`` is an item of a list, ``[+]`` appends one. The value is YAML, and so JSON.
Pure functions of plain data, which do not check whether the result is a scenario.
"""

from __future__ import annotations

import copy
import json
import math
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from cluster.common.strict_yaml import NoYaml, dump, parse
from cluster.common.wording import counted, readable
from cluster.scenario.fields import Step
from validator.primitives.types import parse_decimal

_STEP: Final = re.compile(r"\.?([A-Za-z0-9_-]+)|\[(0|[1-9][0-9]{0,4}|\+)\]")
_PATH: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+|\[(0|[1-9][0-9]{0,4}|\+)\])*")
APPEND: Final = "+"
SHOWN_CHARACTERS: Final = 200
"""Characters shown of a quoted text."""


class SettingError(ValueError):
    """Raised for a change whose path or value is wrong."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one field: its new value, or its removal."""

    path: str
    value: Any = None
    removes: bool = False
    """Whether the field falls back to its default, or the item leaves its list."""


def parse_setting(text: str) -> Change:
    """Parse a change written as ``path=value``. Raises :class:`SettingError`."""
    path, equals, value = text.partition("=")
    if readable(text) != text:
        raise SettingError(f"{readable(text)} is no UTF-8, as YAML is")
    if not equals:
        raise SettingError(f"{_quoted(text)} is no setting: expected path=value, such as links.loss=0.1")
    _check_path(path)
    try:
        return Change(path, parse(value))
    except NoYaml as error:
        raise SettingError(f"{path}: the value {_quoted(value)} is no YAML: {error.problem}") from None


def setting_text(change: Change) -> str:
    """The change as ``path=value``, for :func:`parse_setting`; fits into one line."""
    text = dump(change.value, default_flow_style=True, width=math.inf)
    text = text.removesuffix("...\n").strip()
    if "'" in text or "\n" in text:  # JSON's quotes are easier on a shell, and it has no lines
        other = json.dumps(change.value, ensure_ascii=False, default=str)
        text = other if parse(other) == change.value else text
    return f"{change.path}={text}"


def options_text(changes: Iterable[Change]) -> list[str]:
    """The changes as options of the command line, ``--set PATH=VALUE`` or ``--unset PATH``, quoted for a shell."""
    return [
        f"--unset {shlex.quote(change.path)}" if change.removes else f"--set {shlex.quote(setting_text(change))}"
        for change in changes
    ]


def parse_removal(path: str) -> Change:
    """The change that removes a path. Raises :class:`SettingError`."""
    _check_path(path)
    return Change(path, removes=True)


def options_of(changes: Sequence[Change]) -> str:
    """The names of the command line's options that make the changes, such as ``--set and --unset``."""
    given = dict.fromkeys("--unset" if change.removes else "--set" for change in changes)
    return " and ".join(given)


def apply_changes(data: dict[str, Any], changes: Sequence[Change]) -> dict[str, Any]:
    """A copy of the data with the changes, in order. Raises :class:`SettingError`."""
    changed = copy.deepcopy(data)
    for change in changes:
        _check_path(change.path)
        _apply(changed, change)
    return changed


def differences(before: Any, after: Any, path: str = "", whole: Collection[str] = ()) -> Iterator[Change]:
    """The changes from one plain mapping to another; lists and the ``whole`` paths change as a whole."""
    if path in whole or not (isinstance(before, dict) and isinstance(after, dict)):
        if before != after:
            yield Change(path, after)
        return
    for name in [*before, *(name for name in after if name not in before)]:
        inner = f"{path}.{name}" if path else str(name)
        if name not in after:
            yield Change(inner, removes=True)
        elif name not in before:
            yield Change(inner, after[name])
        else:
            yield from differences(before[name], after[name], inner, whole)


# --- parts ----------------------------------------------------------------------------------------------------------


def _check_path(path: str) -> None:
    if not _PATH.fullmatch(path):
        what = "expected fields with dots and [i] or [+], such as faults[0].for_ms"
        raise SettingError(f"{_quoted(path)} is no path: {what}")


def _quoted(text: str) -> str:
    return repr(text) if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]!r}…"


def _steps(path: str) -> list[tuple[str, Step | None]]:
    """The steps of a path, each with the path up to and including it; a step of ``None`` appends to a list."""
    found: list[tuple[str, Step | None]] = []
    for match in _STEP.finditer(path):
        name, position = match.groups()
        step = name if name is not None else None if position == APPEND else int(position)
        found.append((path[: match.end()], step))
    return found


def _apply(data: dict[str, Any], change: Change) -> None:
    steps = _steps(change.path)
    place: Any = data
    for (so_far, step), (_, following) in pairwise(steps):
        place = _enter(place, so_far, step, {} if isinstance(following, str) else [])
    so_far, step = steps[-1]
    if change.removes:
        _remove(place, so_far, step)
    elif step is None:
        _as_list(place, so_far).append(change.value)
    elif isinstance(step, int):
        _as_list(place, so_far, step)[step] = change.value
    else:
        _as_mapping(place, so_far)[step] = change.value


def _enter(place: Any, so_far: str, step: Step | None, empty: Any) -> Any:
    """The value at a step of ``place``. If it is missing, it is set to ``empty``."""
    if step is None:
        _as_list(place, so_far).append(empty)
        return place[-1]
    if isinstance(step, int):
        return _as_list(place, so_far, step)[step]
    mapping = _as_mapping(place, so_far)
    if mapping.get(step) is None:
        mapping[step] = empty
    return mapping[step]


def _remove(place: Any, so_far: str, step: Step | None) -> None:
    if step is None:
        raise SettingError(
            f"{so_far}: there is nothing to remove: [+] adds an item; expected its position, such as [0]"
        )
    if isinstance(step, int):
        del _as_list(place, so_far, step, removes=True)[step]
    elif step not in _as_mapping(place, so_far):
        raise SettingError(f"{so_far}: is not set, so that it cannot be removed")
    else:
        del place[step]


def _as_list(place: Any, so_far: str, position: int | None = None, *, removes: bool = False) -> list[Any]:
    above = so_far.rpartition("[")[0]
    if not isinstance(place, list):
        raise SettingError(f"{so_far}: {above} is no list")
    if position is not None and position >= len(place):
        last = len(place) - 1
        positions = f"expected a position from 0 to {last}" if last > 0 else "expected [0]"
        right = [positions] if place else []
        right += [] if removes else ["[+] adds one"]
        has = f"has {counted(len(place), 'item')}" if place else "is empty"
        raise SettingError("; ".join([f"{so_far}: {above} {has}", *right]))
    return place


def _as_mapping(place: Any, so_far: str) -> dict[str, Any]:
    if not isinstance(place, dict):
        above, _, name = so_far.rpartition(".")
        if isinstance(place, list):
            if (position := parse_decimal(name)) is not None:
                _as_list(place, f"{above}[{name}]", position)
                raise SettingError(f"{so_far}: {above} is a list; did you mean {above}[{name}]?")
            raise SettingError(f"{so_far}: {above} is a list; did you mean {above}[{0 if place else '+'}].{name}?")
        raise SettingError(f"{so_far}: {above} has no fields")
    return place
