"""The steps of the block in which a case differs first, on both sides, with the state keys that they changed."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from cluster.audit.reexecution.bisect import first_difference, key_differences
from cluster.audit.reexecution.describe import key_pages, step_page
from kits.conform.case import Page
from kits.conform.shrink import Shrunk, expected_answer
from kits.conform.tool import Tool, ToolFailure, Unsupported
from validator.primitives.codec import encode, tagged_hash
from validator.transition.trace import LongValue, Step, StepKind, Value, Write

MAX_STEPS: Final = 65_536
"""Maximum number of steps that are read from a program's answer."""
_BLOCK: Final = re.compile(r"blocks\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class ShownStep:
    """A step of a block."""

    words: str
    keys: list[Page] = field(default_factory=list)
    """The keys that the step changed (``key``, ``words``, and ``fields`` with ``name``, ``before``, ``right``). Of the
    step that differs: the keys that differ after it, whose fields have ``theirs``, too."""
    differs: bool = False


@dataclass(frozen=True, slots=True)
class ToldSteps:
    """The steps of a block, up to the first one that differs if the program told its own, else all expected ones."""

    height: int
    shown: list[ShownStep] = field(default_factory=list)
    is_told: bool = False
    """Whether the program told its steps."""
    note: str = ""
    """Why a program that tells steps told none, or what its step was if it is another one; empty otherwise."""


def told_steps(shrunk: Shrunk, tool: Tool | None) -> ToldSteps:
    """The steps of the block in which a shrunk case differs first. ``None`` is a tool that tells none."""
    if shrunk.case.decode:
        return ToldSteps(0)
    found = _BLOCK.match(shrunk.failure.detail)
    at = len(shrunk.case.blocks) - 1 if found is None else int(found[1])
    expected = _read(_block(expected_answer(shrunk.case, wants_steps=True), at))
    told: list[Step] | None = None
    note = ""
    if tool is not None:
        try:
            told = _read(_block(tool.answer(shrunk.case, wants_steps=True), at))
        except (ToolFailure, Unsupported, ValueError) as error:
            note = f"its steps cannot be read: {error}"
    return _side_by_side(at + 1, expected, told, note)


def _block(answer: Page, at: int) -> Page:
    """A block of an answer. Raises :class:`ValueError`."""
    blocks = answer.get("blocks")
    if not isinstance(blocks, list) or at >= len(blocks) or not isinstance(blocks[at], dict):
        raise ValueError(f"no blocks[{at}]")
    found: Page = blocks[at]
    return found


def _side_by_side(height: int, expected: list[Step], told: list[Step] | None, note: str) -> ToldSteps:
    if told is None:
        return ToldSteps(height, [_shown(step) for step in expected], note=note)
    parting = first_difference(told, expected)
    if parting is None:
        return ToldSteps(height, [_shown(step) for step in expected], True, "all steps of this block are the same")
    shown = [_shown(step) for step in expected[: parting.same_before]]
    step = parting.right or parting.theirs
    assert step is not None
    shown.append(ShownStep(_words(step), key_pages(parting.keys), True))
    theirs = "nothing more" if parting.theirs is None else _words(parting.theirs)
    right = "nothing more" if parting.right is None else _words(parting.right)
    return ToldSteps(height, shown, True, "" if theirs == right else f"expected {right}; the program: {theirs}")


def _shown(step: Step) -> ShownStep:
    return ShownStep(_words(step), key_pages(key_differences((), step.writes)))


def _words(step: Step) -> str:
    page = step_page(step, None)
    assert page is not None
    return str(page["words"])


def _read(block: Page) -> list[Step]:
    """The steps of a block's page. Raises :class:`ValueError` with their place."""
    pages = block.get("steps")
    if not isinstance(pages, list) or len(pages) > MAX_STEPS:
        raise ValueError(f"expected a list of at most {MAX_STEPS:,} steps")
    numbers: Counter[StepKind] = Counter()
    steps = []
    for place, page in enumerate(pages):
        try:
            kind_text, subject_text, writes_page = page
            kind, subject = StepKind(kind_text), bytes.fromhex(subject_text)
            writes = tuple(sorted((_write(write) for write in writes_page), key=lambda write: write.key))
        except (TypeError, ValueError) as error:
            raise ValueError(f"steps[{place}]: {error}") from None
        steps.append(Step(kind, numbers[kind], subject, tagged_hash(b"step", encode((subject, writes))), writes))
        numbers[kind] += 1
    return steps


def _write(page: Any) -> Write:
    key, before, after = page
    return Write(bytes.fromhex(key), _value(before), _value(after))


def _value(text: str | None) -> Value:
    if text is None:
        return None
    size, mark, digest = text.partition(":")
    return LongValue(int(size), bytes.fromhex(digest)) if mark else bytes.fromhex(text)
