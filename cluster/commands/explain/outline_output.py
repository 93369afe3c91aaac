"""Output of an outline: tables on the terminal, or a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from cluster.commands.explain.outline import Table
from cluster.commands.explain.picture import NARROW, caption, picture
from cluster.common.wording import printable
from cluster.report.page import render_page
from cluster.scenario import Scenario


def render_outline(scenario: Scenario, tables: Sequence[Table], latencies: Table, source: str) -> str:
    """Render an outline as a page in HTML. ``source`` is the scenario's file."""
    return render_page(
        "explain.html.j2",
        scenario=scenario,
        tables=[latencies, *tables],
        picture=Markup(picture(scenario)),
        narrow_picture=Markup(picture(scenario, NARROW)),
        caption=caption(scenario),
        source=source,
    )


def print_outline(console: Console, scenario: Scenario, tables: Sequence[Table], latencies: Table) -> None:
    """Print every table of the outline, and the latencies."""
    console.print(Text(scenario.name, style="bold"))
    if scenario.description:
        console.print(_text(scenario.description))
    for table in tables:
        _print_table(console, table)
        if table.title == "Validators":
            _print_table(console, latencies)


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
    """Make a text of the scenario printable on the terminal, and keep its line breaks."""
    return Text("\n".join(map(printable, words.splitlines())))
