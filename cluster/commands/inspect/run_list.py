"""The index of runs as a table on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from cluster.commands.console.output import plain_table
from cluster.commands.console.terminal import STYLES
from cluster.common.checkout import DIRTY
from cluster.common.outcome import SIGNS
from cluster.common.wording import cut
from cluster.report.run_index import Entry

REASON_CHARACTERS: Final = 60
WIDE_FROM: Final = 110
"""Terminal width in columns from which commit and reason are shown."""
COMMIT_DIGITS: Final = 7


def print_runs(console: Console, entries: Sequence[Entry]) -> None:
    """Print a row per run, newest first."""
    headings = ["verdict", "run", "scenario", "backend", "seed", "duration"]
    headings += ["commit", "reason"] if console.width >= WIDE_FROM else []
    table = plain_table(headings, right=("seed", "duration"), folded=("run", "scenario", "reason"))
    for entry in entries:
        known = entry.outcome
        state = Text(entry.state, "dim") if known is None else Text(f"{SIGNS[known]} {known.value}", STYLES[known])
        duration = "" if entry.duration_s is None else f"{entry.duration_s:,.1f} s"
        reason = cut(entry.note, REASON_CHARACTERS)
        commit = entry.commit[:COMMIT_DIGITS] + (DIRTY if DIRTY in entry.commit else "")
        row = (state, Text(entry.name), Text(entry.scenario), entry.backend, entry.seed, duration, commit, Text(reason))
        table.add_row(*row[: len(headings)])
    console.print(table)
