"""The fields in which the scenarios of two runs differ.

The files are compared by their meaning, including defaults: comments and fields with their default value make no
difference. If this version cannot load one of them, both are compared as plain data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cluster.common.errors import BadInput
from cluster.common.strict_yaml import parse
from cluster.common.wording import cut, printable
from cluster.scenario import Scenario
from cluster.scenario.files import load_scenario
from cluster.scenario.sections.packaged import with_sections

SHOWN: Final = 5
"""Maximum number of differing fields that :func:`words_of` names; it counts the others."""
VALUE_CHARACTERS: Final = 40
"""Maximum number of characters of a value in the text of a difference."""
NOTHING: Final = "nothing"
DESCRIPTION: Final = "description"
"""Name of a field that is ignored, since it has no effect on a run."""


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """A field's dotted path and its values in both scenarios; ``None`` if a scenario does not have it."""

    path: str
    first: str | None
    second: str | None

    @property
    def text(self) -> str:
        return printable(f"{self.path} {_shortened(self.first)} in A, {_shortened(self.second)} in B")

    def page(self) -> dict[str, str | None]:
        """The difference as JSON data; values are JSON text."""
        return {"field": self.path, "a": self.first, "b": self.second}


def differences(first: Path, second: Path) -> list[FieldDifference] | None:
    """The fields in which two scenario files differ, in the first one's order; ``None`` if one is unreadable."""
    fields = _meant(first, second) or _written(first, second)
    if fields is None:
        return None
    one, other = ({path: text for path, text in _leaves(each, "") if path != DESCRIPTION} for each in fields)
    return [
        FieldDifference(path, one.get(path), other.get(path))
        for path in [*one, *(path for path in other if path not in one)]
        if one.get(path) != other.get(path)
    ]


def words_of(found: Sequence[FieldDifference]) -> str:
    """Text that names the first differences and counts the others."""
    shown = "; ".join(each.text for each in found[:SHOWN])
    return shown if len(found) <= SHOWN else f"{shown}; and {len(found) - SHOWN:,} more"


def _meant(*paths: Path) -> list[Any] | None:
    try:
        found = [load_scenario(path) for path in paths]
    except (BadInput, OSError):
        return None
    model = with_sections(Scenario, {name for each in found for name in vars(each)})
    return [model.model_construct(**vars(each)).model_dump(mode="json", by_alias=True) for each in found]


def _written(*paths: Path) -> list[Any] | None:
    try:
        return [parse(path.read_text(encoding="utf-8")) for path in paths]
    except (OSError, ValueError):
        return None


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Dotted path and JSON text of each innermost value: a scalar, a list of scalars, or an empty dict."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from _leaves(each, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for place, each in enumerate(value):
            yield from _leaves(each, f"{path}[{place}]")
    else:
        yield path, json.dumps(value, ensure_ascii=False, default=str)


def _shortened(value: str | None) -> str:
    return NOTHING if value is None else cut(value, VALUE_CHARACTERS)
