"""Faults of the kinds that a test does not list: the examples that the kinds give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cluster.faults.kind import FaultKind
from cluster.scenario.sections.faults import SHIPPED, kind_named


def example_of(name: str) -> dict[str, Any]:
    """The fields of a fault of a kind, all but its beginning."""
    kind = kind_named(name)
    assert issubclass(kind, FaultKind) and kind.EXAMPLE, f"{name} gives no example, and no test lists it"
    return {"kind": name, **kind.EXAMPLE}


def others_than(listed: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A fault of each kind that ships and is not listed."""
    return [example_of(name) for name in SHIPPED if name not in {each["kind"] for each in listed}]
