"""A bar that shows how many of some runs have ended. It disappears with its block."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cluster.tools.console.terminal import can_redraw


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
