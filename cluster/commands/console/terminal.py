"""The progress of a run on the terminal, and of many runs.

On a terminal the progress is redrawn in place; otherwise plain lines are printed at a limited rate. Rates cover the
last few seconds of the run's clock, real or virtual. A sample without an answer has no rate, and the line keeps the
last known height.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar
from rich.text import Text

from cluster.commands.console.validator_table import validator_table
from cluster.common.outcome import Outcome
from cluster.record.run import Backend, Sample

RATE_WINDOW_MS: Final = 5_000.0
"""Length, in the run's time, of the window over which a rate is measured."""

LIVE_INTERVAL_S: Final = 0.1
PLAIN_INTERVAL_S: Final = 2.0
MAX_SAMPLES_KEPT: Final = 1_000
UNKNOWN: Final = "–"
"""Text that is shown in place of an unknown rate."""


STYLES: Final = {Outcome.PASS: "bold green", Outcome.FAIL: "bold red", Outcome.INCONCLUSIVE: "bold yellow"}


def can_redraw(console: Console) -> bool:
    """Whether the console is a terminal that can be redrawn."""
    return console.is_terminal and not console.is_dumb_terminal and not console.quiet


class Progress:
    """Shows the progress of one run: a line of totals and, on a terminal, the validator table.

    ``names`` are the validators' names, by index. ``clock`` gives seconds and limits how often the progress is drawn.
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
        """The highest height in any sample so far."""
        self._drawn_at: float | None = None
        self._live: Live | None = None
        if can_redraw(console):
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()

    def update(self, sample: Sample) -> None:
        """Take a sample, and draw if the last drawing is old enough."""
        self._samples.append(sample)
        height = max(self._height, _highest(sample) or 0)
        if height and not self._height and self._backend == "live":
            self.notice(f"blocks become final: height {height:,}")
        self._height = height
        while len(self._samples) > 2 and sample.at_ms - self._samples[1].at_ms >= RATE_WINDOW_MS:
            self._samples.popleft()
        now = self._clock()
        interval = PLAIN_INTERVAL_S if self._live is None else LIVE_INTERVAL_S
        if self._drawn_at is None or now - self._drawn_at >= interval:
            self._drawn_at = now
            self._draw()

    def notice(self, text: str) -> None:
        """Print a permanent line, such as the beginning of a fault."""
        at = f"{self._samples[-1].at_ms / 1_000:6.1f} s  " if self._samples else ""
        self._console.print(Text(f"{at}{text}", style="yellow"), soft_wrap=True)

    def close(self) -> None:
        """Draw the last state and release the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._samples:
            self._draw()

    def line(self) -> str:
        """The line of totals for the last sample, as text. There must be at least one sample."""
        sample = self._samples[-1]
        blocks, fires = self._rate(_highest), self._rate(_fires)
        answering = sum(height is not None for height in sample.heights)
        parts = [
            f"{sample.at_ms / 1_000:6.1f} s{' virtual' if self._backend == 'sim' else ''}",
            self._height_text(self._height),
            f"{UNKNOWN if blocks is None else f'{blocks:.1f}'} blocks/s",
            f"{UNKNOWN if fires is None else f'{fires:,.0f}'} fires/s",
            f"{sample.pending_timers:,} pending timers",
            f"{sample.backlog:,} backlog",
            f"{answering}/{len(sample.heights)} validators answer",
        ]
        return " · ".join(parts)

    def _height_text(self, height: int) -> str:
        if self._target is None:
            return f"height {height}"
        return f"height {height}/{self._target}" if height <= self._target else f"height {height}, draining"

    def _rate(self, count: Callable[[Sample], int | None]) -> float | None:
        """The growth of a count per second, over the samples in the window; ``None`` if the last one lacks the count.

        The rate is 0 if the count falls, which happens when the highest validator stops answering."""
        if count(self._samples[-1]) is None:
            return None
        seen = [(sample.at_ms, number) for sample in self._samples if (number := count(sample)) is not None]
        (first_ms, first), (last_ms, last) = seen[0], seen[-1]
        return max(0, last - first) * 1_000 / (last_ms - first_ms) if last_ms > first_ms else 0.0

    def _draw(self) -> None:
        text = Text(self.line(), no_wrap=True, overflow="ellipsis")
        if self._live is not None:
            table = validator_table(text, self._samples[-1], self._names, self._console.height)
            self._live.update(table, refresh=True)
        else:
            self._console.print(text, soft_wrap=True)


def _highest(sample: Sample) -> int | None:
    """The highest height in a sample; ``None`` if no validator answered."""
    return max((height for height in sample.heights if height is not None), default=None)


def _fires(sample: Sample) -> int | None:
    """The number of fires so far in a sample; ``None`` if no validator answered."""
    return None if _highest(sample) is None else sample.fires


def progress_bar(console: Console) -> ProgressBar:
    """A bar with a description, the number of runs that ended, and the time that is left. It disappears with its block.
    Disabled if the console is no terminal that can be redrawn.
    """
    return ProgressBar(
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
