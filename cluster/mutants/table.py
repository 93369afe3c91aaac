"""The kill table, as people read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from cluster.mutants.hunt import Kill

DETAIL_SHOWN: Final = 300


def print_table(console: Console, kills: Sequence[Kill]) -> None:
    """The table, then what is to be said of survivors, then the sum."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("mutant", "area", "caught by", "scenario", "seed", "line ran", "without it", "seconds"):
        right = heading in ("seed", "line ran", "seconds")
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for kill in kills:
        scene = kill.scene if kill.protocol == "simplex" else f"{kill.scene} ({kill.protocol})"
        cells = (kill.name, kill.area, kill.invariant if kill.caught else "SURVIVED", scene, str(kill.seed))
        sound = "passes" if kill.passes_unmutated else "-"
        table.add_row(*cells, f"{kill.runs:,}", sound, f"{kill.seconds:,.1f}", style="" if kill.caught else "red")
    console.print(table, markup=False)
    survivors = [kill for kill in kills if not kill.caught]
    for kill in survivors:
        console.print(
            f"survived  {kill.name} ({kill.description}): {kill.seeds_tried} seeds, expected {kill.invariant}; at last"
            f" {kill.detail[:DETAIL_SHOWN]}",
            style="red",
            markup=False,
            soft_wrap=True,
        )
    seconds = sum(kill.seconds for kill in kills)
    console.print(
        f"{len(kills)} planted, {len(kills) - len(survivors)} caught, {len(survivors)} survived;"
        f" {seconds:,.0f} s of work",
        markup=False,
        soft_wrap=True,
    )
