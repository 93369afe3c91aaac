"""How many of some runs have ended: a bar that disappears with its block or, without a terminal, a line a tenth."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cluster.commands.console.terminal import can_redraw


def progress_bar(console: Console) -> Progress:
    """A bar with a description, the number of runs that ended, and the time that is left. Disabled if the console is no
    terminal that can be redrawn.
    """
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not can_redraw(console),
    )


def is_tenth(ended: int, total: int) -> bool:
    """Whether another tenth of the runs has ended with the last one: without a terminal each tenth is a line."""
    return ended * 10 // total > (ended - 1) * 10 // total
