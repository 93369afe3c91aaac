"""What a sweep leaves of a failing case: its shrunk input as two files, both outputs, a page with both sides."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from cluster.common.errors import BadInput
from cluster.common.files import write_atomically
from cluster.common.wording import cut, quoted
from cluster.report.page import render_page
from kits.conform.case import Case, Page, Reference
from kits.conform.difference import STEPS, arranged, is_same
from kits.conform.results.steps import ToldSteps
from kits.conform.rules import RULES
from kits.conform.shrink import Shrunk
from kits.conform.tool import ToolCommand

PAGE_FILE: Final = "index.html"
FINAL: Final = "final state"
MAX_VALUE_CHARACTERS: Final = 4_000
CASE_FILES: Final = ("genesis.json", "blocks.json", "expected.json")
REQUEST_FILE: Final = "request.json"
"""The input of a case about bytes, in place of genesis and blocks."""
GOT_FILE: Final = "got.json"


class Row(NamedTuple):
    """One field of a block on both sides."""

    step: str
    """Name of the step; empty if the row above has the same."""
    field: str
    expected: str
    got: str
    differs: bool


def write_failure(folder: Path, shrunk: Shrunk, command: ToolCommand, steps: ToldSteps) -> Path:
    """Write a shrunk case into a new folder below ``folder``; returns it. Raises :class:`BadInput`."""
    case, failure = shrunk.case, shrunk.failure
    place = place_of(folder, case.reference)
    files = dict(zip(CASE_FILES, (case.genesis, case.blocks, failure.expected), strict=True))
    if case.decode:
        files = {REQUEST_FILE: case.request, CASE_FILES[-1]: failure.expected}
    if failure.got is not None:
        files[GOT_FILE] = failure.got
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_atomically(place / name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        write_atomically(place / PAGE_FILE, failure_html(shrunk, command, place, steps))
    except OSError as error:
        raise BadInput(f"{error.filename or place}: cannot be written: {error.strerror}") from None
    return place


def place_of(folder: Path, reference: Reference) -> Path:
    """The folder of a failing case."""
    return folder / f"{reference.family}-{reference.number}"


def remove_passed(folder: Path, passed: Iterable[Reference]) -> None:
    """Remove what an earlier sweep left of cases that pass now. Other files stay. Raises :class:`BadInput`."""
    for reference in passed:
        place = place_of(folder, reference)
        if not place.is_dir():
            continue
        try:
            for name in (*CASE_FILES, REQUEST_FILE, GOT_FILE, PAGE_FILE):
                (place / name).unlink(missing_ok=True)
            if not any(place.iterdir()):
                place.rmdir()
        except OSError as error:
            raise BadInput(f"{error.filename or place}: cannot be removed: {error.strerror}") from None


def again(command: ToolCommand, place: Path, case: Case) -> str:
    """The command that puts a shrunk case to the tool again."""
    if case.decode:
        return f"(tr -d '\\n' < {quoted(str(place / REQUEST_FILE))}; echo) | {command.text}"
    genesis, blocks = (quoted(str(place / name)) for name in CASE_FILES[:2])
    if command.stays_up:
        parts = f"echo '{{\"genesis\":'; cat {genesis}; echo ',\"blocks\":'; cat {blocks}; echo '}}'"
        return f"(({parts}) | tr -d '\\n'; echo) | {command.text}"
    return f"{command.text} --genesis {genesis} --blocks {blocks} --out out.json"


def failure_html(shrunk: Shrunk, command: ToolCommand, place: Path, steps: ToldSteps) -> str:
    """The page of a shrunk case: input, command, first difference, and both sides step by step."""
    case, failure = shrunk.case, shrunk.failure
    return render_page(
        "conform.html.j2",
        name=case.reference.name,
        sentence=case.sentence,
        detail=failure.detail,
        runs=shrunk.runs,
        command=again(command, place, case),
        has_output=failure.got is not None,
        inputs=[
            (f"{name}.json", json.dumps(content, indent=1, ensure_ascii=False))
            for name, content in ({"request": case.request} if case.decode else case.request).items()
        ],
        parts=[] if failure.got is None else _parts(failure.expected, failure.got),
        steps=steps,
        rules=[(name, RULES[name]) for name in shrunk.rules],
    )


def _parts(expected: Page, got: Page) -> list[tuple[str, list[Row]]]:
    """The blocks and the final state, each with the rows of its steps."""
    if "decoded" in expected:
        answers = [page if isinstance(page := each.get("decoded"), list) else [] for each in (expected, got)]
        sides = [{str(number): each for number, each in enumerate(side)} for side in answers]
        return [("Answers", _rows(sides[0], sides[1], {"decoded": tuple({**sides[0], **sides[1]})}))]
    ours, theirs = expected["blocks"], got.get("blocks")
    others = theirs if isinstance(theirs, list) else []
    parts = []
    for i in range(max(len(ours), len(others))):
        sides = [_page_at(blocks, i) for blocks in (ours, others)]
        parts.append((f"Block {i + 1}", _rows(sides[0], sides[1], STEPS)))
    final = got.get("final")
    states = [expected["final"], final if isinstance(final, dict) else {}]
    names = {FINAL: tuple(sorted({*states[0], *states[1]}))}
    return [*parts, ("Final state", _rows(states[0], states[1], names))]


def _page_at(blocks: list[Any], position: int) -> Page:
    found = blocks[position] if position < len(blocks) else {}
    return found if isinstance(found, dict) else {}


def _rows(expected: Page, got: Page, steps: dict[str, tuple[str, ...]]) -> list[Row]:
    known = {name for names in steps.values() for name in names}
    more = {"other fields": tuple(sorted({*expected, *got} - known))}
    rows: list[Row] = []
    for step, names in (*steps.items(), *more.items()):
        shown = step
        for name in names:
            if name in expected or name in got:
                differs = (name in expected) != (name in got) or not is_same(expected.get(name), got.get(name))
                theirs = {name: arranged(got[name], expected.get(name))} if name in got else {}
                rows.append(Row(shown, name, _text(expected, name), _text(theirs, name), differs))
                shown = ""
    return rows


def _text(page: Page, name: str) -> str:
    if name not in page:
        return "–"
    value = page[name]
    text = json.dumps(value, indent=1 if isinstance(value, list | dict) and value else None, ensure_ascii=False)
    return cut(text, MAX_VALUE_CHARACTERS)
