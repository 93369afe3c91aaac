"""Trials: what the kit runs to answer a question.

A question has *factors* with *levels*. A *cell* is one combination of levels, and a trial is a cell with a seed: it
gives the same outcome wherever it runs. Trials of different cells meet the same users for a seed, so their differences
are paired by seed (:mod:`kits.market.estimates`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import NamedTuple, TypeVar

from rich.console import Console

from cluster.commands.console.output import print_line
from cluster.commands.console.terminal import is_tenth, progress_bar
from cluster.commands.sweeps.fanout import run_each
from cluster.common.wording import counted
from kits.market.estimates import Cell

Key = tuple[str, str, int]
"""Question, cell as text, and seed of a trial."""
Outcome = TypeVar("Outcome")


class Trial(NamedTuple):
    """One run."""

    question: str
    """The name of the experiment, or of the scenario that is attacked."""
    cell: Cell
    seed: int

    @property
    def key(self) -> Key:
        return self.question, cell_text(self.cell), self.seed

    def __str__(self) -> str:
        return f"{self.question} {cell_text(self.cell)}, seed {self.seed}"


def cell_text(cell: Cell) -> str:
    """The levels of a cell, separated by spaces."""
    return " ".join(map(str, cell))


def run_trials(
    work: Callable[[Trial], Outcome], trials: Sequence[Trial], workers: int | None, output: Console, before: int = 0
) -> Generator[tuple[Trial, Outcome], None, None]:
    """Run trials over Ray, and show how many ended; yields each with its outcome as it ends.

    ``workers`` is the number of trials at a time (``None``: one for each processor of this machine or of the cluster),
    ``before`` the number of trials that an earlier process ran. A signal raises :class:`KeyboardInterrupt`. Raises
    :class:`~cluster.common.errors.HarnessError`.
    """
    total = before + len(trials)
    print_line(output, counted(total, "run") + (f", {before:,} of them done before" if before else ""))
    if not trials:
        return
    with progress_bar(output) as progress:
        bar = progress.add_task("", total=total, completed=before)
        ended = run_each(work, trials, workers, "run", lambda line: print_line(progress.console, line))
        with closing(ended):
            for count, (number, outcome) in enumerate(ended, start=before + 1):
                yield trials[number], outcome
                progress.update(bar, completed=count, description=trials[number].question)
                if progress.disable and is_tenth(count, total):
                    print_line(output, f"{count:,} of {total:,} runs")
