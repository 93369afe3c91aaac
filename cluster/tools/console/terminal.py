"""What a run shows on the terminal: one live line while it goes on, the verdict table at its end.

On a terminal the line is redrawn in place; elsewhere plain lines come at a limited rate, so that a log stays readable.
Rates are those of the last few seconds of the run's own time, wall clock or virtual. A look at which no validator
answers says nothing of the chain: the line keeps the height that was seen last, and no rate is made from it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cluster.audit.reexecution.describe import lines
from cluster.checks.verdict import Verdict
from cluster.common.outcome import Outcome
from cluster.record.run import Backend, Sample
from cluster.tools.console.validator_board import board

RATE_WINDOW_MS: Final = 5_000.0
"""Stretch of the run's time that rates are taken over."""

LIVE_INTERVAL_S: Final = 0.1
PLAIN_INTERVAL_S: Final = 2.0
MAX_SAMPLES_KEPT: Final = 1_000
UNKNOWN: Final = "–"
"""In place of a rate."""

STYLES: Final = {Outcome.PASS: "bold green", Outcome.FAIL: "bold red", Outcome.INCONCLUSIVE: "bold yellow"}
SIGNS: Final = {Outcome.PASS: "✓", Outcome.FAIL: "✕", Outcome.INCONCLUSIVE: "?"}


def can_redraw(console: Console) -> bool:
    """Whether what is drawn on it can be drawn over: a terminal, and none that says it can do nothing."""
    return console.is_terminal and not console.is_dumb_terminal


class Progress:
    """The live line of one run, and on a terminal the board of its validators: feed it samples, tell it of faults,
    close it at the end.

    ``names`` are the validators', by index. ``clock`` gives wall-clock seconds and limits how often something is drawn.
    """

    def __init__(
        self,
        console: Console,
        target_height: int | None,
        backend: Backend,
        names: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._names = names
        self._target = target_height
        self._backend = backend
        self._clock = clock
        self._samples: deque[Sample] = deque(maxlen=MAX_SAMPLES_KEPT)
        self._height = 0
        """The highest that any look has shown."""
        self._drawn_at: float | None = None
        self._live: Live | None = None
        if can_redraw(console):
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()

    def update(self, sample: Sample) -> None:
        """Take in one look at the network, and draw the line where it is time to."""
        self._samples.append(sample)
        self._height = max(self._height, _highest(sample) or 0)
        while len(self._samples) > 2 and sample.at_ms - self._samples[1].at_ms >= RATE_WINDOW_MS:
            self._samples.popleft()
        now = self._clock()
        interval = PLAIN_INTERVAL_S if self._live is None else LIVE_INTERVAL_S
        if self._drawn_at is None or now - self._drawn_at >= interval:
            self._drawn_at = now
            self._draw()

    def notice(self, text: str) -> None:
        """Say something that stays: a fault began, a validator came back."""
        at = f"{self._samples[-1].at_ms / 1_000:6.1f} s  " if self._samples else ""
        self._console.print(Text(f"{at}{text}", style="yellow"), soft_wrap=True)

    def close(self) -> None:
        """Draw the last state for good and give the terminal back."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._samples:
            self._draw()

    def line(self) -> str:
        """The line as it stands."""
        if not self._samples:
            return "waiting for the first block"
        sample = self._samples[-1]
        blocks, fires = self._rate(_highest), self._rate(_fires)
        answering = sum(height is not None for height in sample.heights)
        parts = [
            f"{sample.at_ms / 1_000:6.1f} s{' virtual' if self._backend == 'sim' else ''}",
            self._height_words(self._height),
            f"{UNKNOWN if blocks is None else f'{blocks:.1f}'} blocks/s",
            f"{UNKNOWN if fires is None else f'{fires:,.0f}'} fires/s",
            f"{sample.pending_timers:,} pending timers",
            f"{sample.backlog:,} backlog",
            f"{answering}/{len(sample.heights)} validators answer",
        ]
        return " · ".join(parts)

    def _height_words(self, height: int) -> str:
        if self._target is None:
            return f"height {height}"
        return f"height {height}/{self._target}" if height <= self._target else f"height {height}, draining"

    def _board(self, line: Text) -> RenderableType:
        return board(line, self._samples[-1], self._names, self._console.height) if self._samples else line

    def _rate(self, count: Callable[[Sample], int | None]) -> float | None:
        """How much a count grew a second, over the looks of the window that show it; ``None`` where the last look shows
        none. The highest validator may be one that stopped answering: the count does not grow then."""
        if count(self._samples[-1]) is None:
            return None
        seen = [(sample.at_ms, number) for sample in self._samples if (number := count(sample)) is not None]
        (first_ms, first), (last_ms, last) = seen[0], seen[-1]
        return max(0, last - first) * 1_000 / (last_ms - first_ms) if last_ms > first_ms else 0.0

    def _draw(self) -> None:
        text = Text(self.line(), no_wrap=True, overflow="ellipsis")
        if self._live is not None:
            self._live.update(self._board(text), refresh=True)
        else:
            self._console.print(text, soft_wrap=True)


def print_verdict(console: Console, verdict: Verdict, report: Path | None, reproduce: str) -> None:
    """The table of checks, the verdict and why, where the report is, and on anything but a pass how to run it again."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in verdict.checks:
        state = Text(f"{SIGNS[check.verdict]} {check.verdict.value}", style=STYLES[check.verdict])
        if not check.applies:
            state = Text("– n/a", style="dim")
        table.add_row(state, check.name, Text(check.detail))
    console.print()
    console.print(table)
    for page in verdict.divergences:
        console.print()
        console.print(Text("\n".join(lines(page))), soft_wrap=True)
    console.print()
    said = Text.assemble("verdict  ", (verdict.outcome.value, STYLES[verdict.outcome]), _why(verdict))
    console.print(said, soft_wrap=True)
    console.print(Text(f"report   {report or 'none could be written'}"), soft_wrap=True)
    if verdict.outcome is not Outcome.PASS:
        console.print(Text(f"again    {reproduce}"), soft_wrap=True)


def _why(verdict: Verdict) -> str:
    """Behind the verdict, in the same line: which check made it so and why, and which others did."""
    alike = [check.name for check in verdict.checks if check.verdict is verdict.outcome]
    others = f" (so did {', '.join(alike[1:])})" if verdict.reason and alike[1:] else ""
    return f": {verdict.reason}{others}" if verdict.reason else ""


def print_kept(console: Console, endpoints: Path) -> None:
    """Say that the testnet is still there."""
    console.print(
        Text(f"kept     the validators are at rest and serve their pages (see {endpoints}); Ctrl-C ends them")
    )


def _highest(sample: Sample) -> int | None:
    """The highest height that a validator answered with; ``None`` where none answered."""
    return max((height for height in sample.heights if height is not None), default=None)


def _fires(sample: Sample) -> int | None:
    """Fires so far; ``None`` where no validator answered."""
    return None if _highest(sample) is None else sample.fires
