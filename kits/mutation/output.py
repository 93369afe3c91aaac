"""The kill table on the console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console

from cluster.commands.console.output import plain_table, print_line
from kits.mutation.detection import Kill

DETAIL_SHOWN: Final = 300
COUNTS: Final = ("provoked", "caught in")
"""Headings of the columns that show numbers of seeds, out of the seeds tried."""


def live_words(kill: Kill) -> str:
    """Text for a table cell: the checks that fail on the data of a live run, each with the number of seeds in which it
    fails. The most frequent come first."""
    seen = sorted(kill.live.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {count}" for name, count in seen) or "-"


def print_table(console: Console, kills: Sequence[Kill]) -> None:
    """Print the table, then details of the survivors, then the totals."""
    headings = ("mutant", "area", "caught by", "scenario", "seed", "line ran", *COUNTS, "without it", "live", "seconds")
    table = plain_table(headings, right=("seed", "line ran", *COUNTS, "seconds"))
    for kill in kills:
        scenario = kill.scenario if kill.protocol == "simplex" else f"{kill.scenario} ({kill.protocol})"
        cells = (kill.name, kill.area, kill.invariant if kill.caught else "SURVIVED", scenario, str(kill.seed))
        sound = "passes" if kill.passes_unmutated else "-"
        counts = (f"{kill.seeds_provoked} of {kill.seeds_tried}", f"{kill.seeds_caught} of {kill.seeds_tried}")
        row = (*cells, f"{kill.runs:,}", *counts, sound, live_words(kill), f"{kill.seconds:,.1f}")
        table.add_row(*row, style="" if kill.caught else "red")
    console.print(table, markup=False)
    survivors = [kill for kill in kills if not kill.caught]
    for kill in survivors:
        what = f"{kill.name} ({kill.description}): {kill.seeds_tried} seeds, expected {kill.invariant}"
        text = f"survived  {what}; at last {kill.detail[:DETAIL_SHOWN]}"
        console.print(text, style="red", markup=False, soft_wrap=True)
    seconds = sum(kill.seconds for kill in kills)
    caught = len(kills) - len(survivors)
    summary = f"{len(kills)} planted, {caught} caught, {len(survivors)} survived; {seconds:,.0f} s of work"
    print_line(console, summary)
