"""Shrinking of a sweep's failing cases: the first one of each kind of failure."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.commands.console.output import print_line
from cluster.common.wording import counted
from kits.conform.results.failure_page import PAGE_FILE, again, write_failure
from kits.conform.results.steps import told_steps
from kits.conform.shrink import Shrunk, shrink
from kits.conform.source import Source
from kits.conform.sweep import CaseResult, SweepResult
from kits.conform.tool import ToolCommand

if TYPE_CHECKING:
    from rich.console import Console

MAX_SHRUNK: Final = 5
"""Maximum number of cases that are shrunk after a sweep."""


def shrink_failures(
    source: Source, command: ToolCommand, result: SweepResult, has_roots: bool, folder: Path, output: Console
) -> list[Path]:
    """Shrink the first failing case of each kind, at most 5; print where they are. Returns their folders."""
    first: dict[str, CaseResult] = {}
    for failure in result.failures:
        first.setdefault(failure.kind, failure)
    places: list[Path] = []
    with closing(command.open()) as tool:
        for failure in list(first.values())[:MAX_SHRUNK]:
            shrunk = shrink(source.load(failure.reference), tool, has_roots)
            name = failure.reference.name
            if shrunk is None:
                print_line(output, f"{name}  did not fail again: the program may not be deterministic")
                continue
            place = write_failure(folder, shrunk, command, told_steps(shrunk, tool if command.tells_steps else None))
            places.append(place)
            print_line(output, f"{name}  shrunk to {size_of(shrunk)}: {shrunk.failure.detail}")
            print_line(output, f"  page   {place / PAGE_FILE}")
            print_line(output, f"  again  {again(command, place, shrunk.case)}")
    return places


def size_of(shrunk: Shrunk) -> str:
    """The size of a shrunk case in words."""
    if shrunk.case.decode:
        return counted(len(shrunk.case.decode), "request")
    transactions = sum(len(block.get("txs", ())) for block in shrunk.case.blocks)
    return f"{counted(len(shrunk.case.blocks), 'block')} and {counted(transactions, 'transaction')}"
