"""Playback of a recorded run, event by event, and a filter for the entries to show."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from cluster.commands.rerun.entries import Entry, replayed
from cluster.commands.rerun.recorded_run import RecordedRun
from cluster.common.units import MICROSECONDS_PER_MILLISECOND


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects entries of a replay by time, validator and kind."""

    from_us: int = 0
    until_us: int | None = None
    validators: frozenset[int] = frozenset()
    """Indexes of validators; empty selects all."""
    kinds: frozenset[str] = frozenset()

    def takes(self, entry: Entry) -> bool:
        return (
            entry.at_us >= self.from_us
            and (not self.kinds or entry.kind in self.kinds)
            and (not self.validators or not entry.whom or not self.validators.isdisjoint(entry.whom))
        )


class Player:
    """Repeats a recorded run in the simulator, event by event, and collects the entries of each event."""

    def __init__(self, run: RecordedRun, checkpoint: Callable[[], None]) -> None:
        self.run = run
        self._entries: list[Entry] = []
        self.simulation = replayed(run.scenario, run.seed, self._entries.append)
        self._checkpoint = checkpoint
        self._is_begun = False

    def advance(self) -> list[Entry] | None:
        """Perform the next event; returns its entries, or ``None`` if the run is over."""
        self._checkpoint()
        self._entries.clear()
        if not self._is_begun:
            self._is_begun = True
            self.simulation.begin()
        elif self.simulation.clock.events >= self.run.events or not self.simulation.advance():
            return None
        return list(self._entries)

    def entries(self, shown: Filter) -> Iterator[Entry]:
        """Play the run up to the filter's end; yields the entries that the filter selects."""
        while shown.until_us is None or self.simulation.clock.next_us <= shown.until_us:
            found = self.advance()
            if found is None:
                return
            yield from (entry for entry in found if shown.takes(entry))


_TIME: Final = re.compile(r"(?P<number>(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?P<unit>ms|s|)")
MAX_TIME_CHARACTERS: Final = 16


def parse_time_us(text: str) -> int:
    """Parse a time in milliseconds, or in seconds with the suffix ``s``; returns microseconds. Raises
    :class:`ValueError`."""
    found = _TIME.fullmatch(text)
    if found is None or len(found["number"]) > MAX_TIME_CHARACTERS:
        raise ValueError(f"{text!r} is not a time: expected milliseconds such as 1500.25, or seconds such as 1.5s")
    scale = 1_000 if found["unit"] == "s" else 1
    return round(float(found["number"]) * scale * MICROSECONDS_PER_MILLISECOND)
