"""Inheritance of scenario files by ``extends``. Pure functions of plain data.

A child's mappings are merged into its parent's at every depth; lists and single values replace the parent's. A mapping
with another ``kind`` replaces the parent's. A short form of the parent (``validators: 7``) is expanded before a mapping
is merged into it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cluster.scenario.fields import Step
from cluster.scenario.sections.links import write_out_topology
from cluster.scenario.sections.validators import write_out_validators

EXTENDS: Final = "extends"

WRITE_OUT: Final[dict[tuple[str, ...], Callable[[Any], Any]]] = {
    ("validators",): write_out_validators,
    ("links", "topology"): write_out_topology,
}
"""Sections with short forms, and the functions that expand them."""


@dataclass(frozen=True, slots=True)
class Layer:
    """The fields that a scenario file contains itself, without inherited ones."""

    path: Path
    fields: dict[str, Any]


def merge_layers(layers: Sequence[Layer]) -> dict[str, Any]:
    """The fields of the first file, with those that it inherits from the following files."""
    merged: dict[str, Any] = {}
    for layer in reversed(layers):
        merged = _merge(merged, layer.fields, ())
    merged.pop(EXTENDS, None)
    return merged


def holder_of(steps: Sequence[Step], layers: Sequence[Layer]) -> Path:
    """The file that sets a field's value; for a missing field, the first file that has its section."""
    left = [(layer.path, layer.fields) for layer in layers]
    walked: tuple[str, ...] = ()
    holder = left[0][0]
    for step in steps:
        found = [(path, inner) for path, place in left if (inner := _inside(place, step)) is not _NOTHING]
        if not found:
            break
        walked = (*walked, str(step))
        holder, left = found[0][0], _merged_ones(found, walked)
    return holder


def _merge(below: Any, above: Any, path: tuple[str, ...]) -> Any:
    below = _written_out(below, path) if isinstance(above, dict) else below
    if not _are_merged(below, above):
        return above
    merged = dict(below)
    for name, value in above.items():
        merged[name] = _merge(below[name], value, (*path, str(name))) if name in below else value
    return merged


def _are_merged(below: Any, above: Any) -> bool:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return False
    return not ("kind" in above and "kind" in below and above["kind"] != below["kind"])


def _written_out(value: Any, path: tuple[str, ...]) -> Any:
    write_out = WRITE_OUT.get(path)
    return value if write_out is None else write_out(value)


_NOTHING: Final = object()


def _inside(place: Any, step: Step) -> Any:
    if isinstance(place, dict):
        return place.get(step, _NOTHING)
    if isinstance(place, list) and isinstance(step, int) and step < len(place):
        return place[step]
    return _NOTHING


def _merged_ones(found: Sequence[tuple[Path, Any]], path: tuple[str, ...]) -> list[tuple[Path, Any]]:
    """The first files of ``found`` whose values at ``path`` are merged with each other.

    The rest is left out: the first file whose value is replaced as a whole, and all after it.
    """
    kept = [found[0]]
    for file, place in found[1:]:
        below = _written_out(place, path)
        if not _are_merged(below, kept[-1][1]):
            break
        kept.append((file, below))
    return kept
