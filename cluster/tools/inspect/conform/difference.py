"""The first difference between two outputs of the conformance tool.

Blocks come first, in order, then the final state. State roots come last, since each other difference changes them, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from cluster.tools.inspect.conform.case import Page

ROOT: Final = "state_root"
SHOWN_CHARACTERS: Final = 100
MAX_DECIMAL_DIGITS: Final = 60
STEPS: Final = {
    "start": ("height", "basefee_cycle", "basefee_cell", "basefee_lane_timer", "p50_tip"),
    "agents": ("gba",),
    "transactions": ("txs",),
    "timers": ("fires", "destroyed", "deferred", "gc_cycles", "lane_cycles", "tiers"),
    "callbacks and messages": ("callbacks", "messages"),
    "events": ("events",),
    "totals": ("cycles", "cells", "tips", "burned"),
    "state": (ROOT,),
}
"""The fields of a block's page, by the step of the block that they are about. They are compared in this order."""
_PLACES: Final = (*(name for names in STEPS.values() for name in names), "timer_id", "name", "actor", "status", "error")
_POSITION: Final = re.compile(r"\[\d+\]")
_ID: Final = re.compile(r"\.(0x)?[0-9a-f]{40,64}(?=[.\[]|$)")


class Difference(NamedTuple):
    """The first field in which two outputs differ."""

    path: str
    """JSON path from the output's root."""
    expected: Any
    got: Any
    """``None`` if there is no such field."""

    @property
    def kind(self) -> str:
        """What differs, without positions, ids and values: the path's names."""
        return _ID.sub(".*", _POSITION.sub("", self.path))

    @property
    def text(self) -> str:
        """The difference as one line."""
        return f"{self.path}: expected {_short(self.expected)}, got {_short(self.got)}"


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING: Final = _Missing()


def first_difference(expected: Page, got: Any, has_roots: bool = True) -> Difference | None:
    """The first difference between the expected output and another one; ``None`` if they are the same.

    Without roots, ``state_root`` is not compared. Integers may be decimal texts in ``got``.
    """
    if not isinstance(got, dict):
        return Difference("$", expected, got)
    found = next(_differences(_without_roots(expected), _without_roots(got), ""), None)
    if found is None and has_roots:
        found = next(_differences(_roots(expected), _roots(got), ""), None)
    return found


def _without_roots(output: Page) -> Page:
    return _map_pages(output, lambda page: {name: value for name, value in page.items() if name != ROOT})


def _roots(output: Page) -> Page:
    return _map_pages(output, lambda page: {name: value for name, value in page.items() if name == ROOT})


def _map_pages(output: Page, change: Any) -> Page:
    """An output with its blocks and its final state changed, as far as it has such."""
    blocks, final = output.get("blocks"), output.get("final")
    changed = dict(output)
    if isinstance(blocks, list):
        changed["blocks"] = [change(block) if isinstance(block, dict) else block for block in blocks]
    if isinstance(final, dict):
        changed["final"] = change(final)
    return changed


def _differences(expected: Any, got: Any, path: str) -> Iterator[Difference]:
    if isinstance(expected, dict) and isinstance(got, dict):
        for name in _ordered({*expected, *got}):
            inner = f"{path}.{name}" if path else name
            yield from _differences(expected.get(name, MISSING), got.get(name, MISSING), inner)
    elif isinstance(expected, list) and isinstance(got, list):
        for i, (ours, theirs) in enumerate(zip(expected, got, strict=False)):
            yield from _differences(ours, theirs, f"{path}[{i}]")
        if len(expected) != len(got):
            at = min(len(expected), len(got))
            yield Difference(f"{path}.length", len(expected), len(got)) if at else Difference(path, expected, got)
    elif not _is_same(expected, got):
        yield Difference(path or "$", *(None if side is MISSING else side for side in (expected, got)))


def _ordered(names: set[str]) -> list[str]:
    return sorted(names, key=lambda name: (_PLACES.index(name) if name in _PLACES else len(_PLACES), name))


def _is_same(expected: Any, got: Any) -> bool:
    if type(expected) is int and isinstance(got, str) and got.isascii() and len(got) <= MAX_DECIMAL_DIGITS:
        return got == str(expected)
    return type(expected) is type(got) and bool(expected == got)


def _short(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"
