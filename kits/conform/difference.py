"""The first difference between two outputs of the conformance tool.

Blocks come first, in order, then the final state. State roots come last, since each other difference changes them, too.
Lists are aligned before they are compared: an entry too many is one difference, and those behind it are not others.
Blocks and transactions are not, since the input says how many there are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

from kits.conform.case import Page

ROOT: Final = "state_root"
SHOWN_CHARACTERS: Final = 100
MAX_DECIMAL_DIGITS: Final = 60
MAX_ALIGNED: Final = 1_000
"""Maximum number of entries of a list, apart from equal ones at its ends, that are aligned."""
BY_POSITION: Final = frozenset({"blocks", "txs", "decoded"})
"""Names of lists with an entry for each one of the input."""
STEPS: Final = {
    "start": ("height", "basefee_cycle", "basefee_cell", "basefee_lane_timer", "p50_tip"),
    "agents": ("gba",),
    "transactions": ("txs",),
    "timers": ("fires", "destroyed", "deferred", "gc_cycles", "lane_cycles", "tiers"),
    "callbacks and messages": ("callbacks", "messages"),
    "events": ("events",),
    "totals": ("user_cycles", "user_cells", "lane_cells", "cycles", "cells", "tips", "burned"),
    "receipts": ("receipts_root",),
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
    expected, got = _without_reasons(expected), _without_reasons(got)
    found = next(_differences(_without_roots(expected), _without_roots(got), ""), None)
    if found is None and has_roots:
        found = next(_differences(_roots(expected), _roots(got), ""), None)
    return found


def is_same(expected: Any, got: Any) -> bool:
    """Whether a value is the expected one. Keys may be in any order, and integers decimal texts in ``got``."""
    return next(_differences(expected, got, ""), None) is None


def arranged(got: Any, expected: Any) -> Any:
    """A value with the keys of its objects in the order of the expected ones, others behind them."""
    if isinstance(got, dict) and isinstance(expected, dict):
        names = [*(name for name in expected if name in got), *(name for name in got if name not in expected)]
        return {name: arranged(got[name], expected.get(name)) for name in names}
    if isinstance(got, list) and isinstance(expected, list):
        return [arranged(each, expected[min(i, len(expected) - 1)] if expected else None) for i, each in enumerate(got)]
    return got


def _without_reasons(output: Page) -> Page:
    """An output without the reasons for which bytes were refused, which are not compared."""
    if not isinstance(answers := output.get("decoded"), list):
        return output
    return {**output, "decoded": [{**each, "refused": ""} if _is_refusal(each) else each for each in answers]}


def _is_refusal(answer: Any) -> bool:
    return isinstance(answer, dict) and isinstance(answer.get("refused"), str)


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
        yield from _differences_of_lists(expected, got, path)
    elif not _is_same(expected, got):
        yield Difference(path or "$", *(None if side is MISSING else side for side in (expected, got)))


def _differences_of_lists(expected: list[Any], got: list[Any], path: str) -> Iterator[Difference]:
    is_aligned = path.rpartition(".")[2] not in BY_POSITION
    for first, end, other_first, other_end in (
        _parts(expected, got) if is_aligned else [(0, len(expected), 0, len(got))]
    ):
        for i, (ours, theirs) in enumerate(zip(expected[first:end], got[other_first:other_end], strict=False), first):
            yield from _differences(ours, theirs, f"{path}[{i}]")
        paired = min(end - first, other_end - other_first)
        for i in range(first + paired, end):
            yield Difference(f"{path}[{i}]", expected[i], None)
        for each in got[other_first + paired : other_end]:
            yield Difference(f"{path}[{first + paired}]", None, each)


def _parts(expected: list[Any], got: list[Any]) -> Iterator[tuple[int, int, int, int]]:
    """Pairs of parts of two lists, as positions, that belong together: equal ones, changed ones, and those of one list
    with an empty part of the other."""
    ours, theirs = [_plain(each) for each in expected], [_plain(each) for each in got]
    shorter = min(len(ours), len(theirs))
    head = next((i for i in range(shorter) if ours[i] != theirs[i]), shorter)
    tail = next((i for i in range(shorter - head) if ours[-1 - i] != theirs[-1 - i]), shorter - head)
    end, other_end = len(ours) - tail, len(theirs) - tail
    yield 0, head, 0, head
    if max(end, other_end) - head > MAX_ALIGNED:
        yield head, end, head, other_end
    else:
        matcher = SequenceMatcher(None, ours[head:end], theirs[head:other_end], autojunk=False)
        for _, i, j, k, m in matcher.get_opcodes():
            yield head + i, head + j, head + k, head + m
    yield end, len(ours), other_end, len(theirs)


def _plain(value: Any) -> str:
    """A value as text, the same for values that are the same; integers and their decimal texts are."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_plain(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_plain, value)) + "]"
    return json.dumps(str(value) if type(value) is int else value)


def _ordered(names: set[str]) -> list[str]:
    return sorted(names, key=lambda name: (_PLACES.index(name) if name in _PLACES else len(_PLACES), name))


def _is_same(expected: Any, got: Any) -> bool:
    if type(expected) is int and isinstance(got, str) and got.isascii() and len(got) <= MAX_DECIMAL_DIGITS:
        return got == str(expected)
    return type(expected) is type(got) and bool(expected == got)


def _short(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"
