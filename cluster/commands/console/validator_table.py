"""The validator table of a run on a terminal: totals, the timer lane, active faults, and a row per validator.

With more validators than rows, those that are not up or fall behind come first, and a last line counts the others.
Pure: it converts samples to renderables for rich.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cluster.record.run import Sample

UP: Final = "up"
LANE_CELLS: Final = 20
MIN_ROWS: Final = 4
LINES_AROUND: Final = 5
"""Number of the terminal's lines that are not rows of the table, including free lines below the table."""
BEHIND_IS_MUCH: Final = 5
STYLES: Final = {UP: "green", "down": "bold red", "diverged": "bold red"}
"""Text style of each lasting state of a validator. Other states have the style :data:`TRANSITIONAL`."""
TRANSITIONAL: Final = "yellow"


class Row(NamedTuple):
    """A row of the table: the state of one validator."""

    number: int
    name: str
    state: str
    height: int | None
    behind: int
    """Number of heights that the validator is behind the highest one."""
    view: int | None

    @property
    def is_conspicuous(self) -> bool:
        return self.state != UP or self.behind > BEHIND_IS_MUCH


def rows(sample: Sample, names: Sequence[str]) -> list[Row]:
    """A row for each validator in a sample, in the order of their indexes."""
    highest = max((height for height in sample.heights if height is not None), default=0)
    found = []
    for index, height in enumerate(sample.heights):
        state = sample.states[index] if sample.states else UP if height is not None else "silent"
        view = sample.views[index] if sample.views else None
        found.append(Row(index, names[index], state, height, 0 if height is None else highest - height, view))
    return found


def validator_table(line: Text, sample: Sample, names: Sequence[str], lines: int) -> RenderableType:
    """The whole display, for a terminal with ``lines`` lines: ``line`` (the totals), lane, faults and the table."""
    all_rows = rows(sample, names)
    room = max(MIN_ROWS, lines - LINES_AROUND)
    shown = all_rows
    if len(all_rows) > room:
        first = sorted(all_rows, key=lambda row: (not row.is_conspicuous, row.number))[: room - 1]
        shown = sorted(first)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("validator", no_wrap=True)
    table.add_column("", no_wrap=True)
    for heading in ("height", "behind", "view"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in shown:
        table.add_row(
            row.name,
            Text(row.state, style=STYLES.get(row.state, TRANSITIONAL)),
            _number(row.height),
            Text(str(row.behind) if row.behind else "", style="yellow" if row.behind > BEHIND_IS_MUCH else ""),
            _number(row.view),
        )
    parts: list[RenderableType] = [line, _lane(sample.lane_share)]
    if sample.faults:
        faults = ("faults  ", "dim"), ("; ".join(sample.faults), "yellow")
        parts.append(Text.assemble(*faults, no_wrap=True, overflow="ellipsis"))
    parts.append(table)
    if hidden := [row for row in all_rows if row not in shown]:
        up = sum(not row.is_conspicuous for row in hidden)
        parts.append(Text(f"… and {len(hidden)} more, {up} of them up", style="dim"))
    return Group(*parts)


def _lane(share: float) -> Text:
    """A bar that shows the share of the timer lane that the newest block used."""
    full = round(min(1.0, share) * LANE_CELLS)
    return Text.assemble(("lane    ", "dim"), ("█" * full, "cyan"), ("░" * (LANE_CELLS - full), "dim"), f" {share:.0%}")


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
