"""An outline on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from cluster.common.wording import printable
from cluster.tools.explain.distances import Distances
from cluster.tools.explain.outline import Outline, Table


def print_outline(console: Console, found: Outline, apart: Distances) -> None:
    """Print every table of the outline, and the latencies."""
    console.print(Text(found.name, style="bold"))
    if found.description:
        console.print(_text(found.description))
    for table in found.tables:
        _print_table(console, table)
        if table.title == "Validators":
            _print_table(console, latency_table(apart))


def latency_table(apart: Distances) -> Table:
    """The latencies as a table."""
    rows = tuple((group, *row) for group, row in zip(apart.groups, apart.cells, strict=True))
    return Table("Latencies", ("from \\ to", *apart.groups), rows, apart.note)


def _print_table(console: Console, table: Table) -> None:
    console.print()
    console.print(Text(table.title, style="bold underline"))
    drawn = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in table.columns:
        drawn.add_column(Text(column), overflow="fold")
    for row in table.rows:
        drawn.add_row(*(_text(cell) for cell in row))
    console.print(drawn)
    if table.note:
        console.print(Text(table.note, style="dim"))


def _text(words: str) -> Text:
    """A text of the scenario, with its line breaks."""
    return Text("\n".join(map(printable, words.splitlines())))
