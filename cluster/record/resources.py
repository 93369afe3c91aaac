"""Samples of the resources that validators use; bounded, however long the run.

When there are more than :data:`MAX_LOOKS` samples of a validator, every second one is dropped, and from then on they
are twice as far apart. The previous sample takes over larger values of the dropped one: a peak of memory is never lost.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

import msgspec

from cluster.record.run import Resources, RunRecord

MAX_LOOKS: Final = 400
FIRST_INTERVAL_MS: Final = 500.0


class ResourceState(msgspec.Struct, forbid_unknown_fields=True):
    """The state of a :class:`ResourceLog`, besides the record's samples."""

    interval_ms: float
    last_ms: dict[int, float]
    """Time of the last sample, keyed by validator."""


class ResourceLog:
    """Adds samples of resources to a run's record, and thins them out if there are too many."""

    def __init__(self, record: RunRecord, state: ResourceState | None = None) -> None:
        """``state`` is that of another process, whose samples ``record`` has."""
        self._record = record
        self.state = ResourceState(FIRST_INTERVAL_MS, {}) if state is None else state
        self._looks = Counter(look.validator for look in record.resources)

    def is_due(self, at_ms: float, validator: int) -> bool:
        """Whether a sample of a validator would be kept."""
        last_ms = self.state.last_ms.get(validator)
        return last_ms is None or at_ms - last_ms >= self.state.interval_ms

    def note(self, look: Resources) -> None:
        """Keep a sample, unless it comes too soon after the last one."""
        if not self.is_due(look.at_ms, look.validator):
            return
        self.state.last_ms[look.validator] = look.at_ms
        self._looks[look.validator] += 1
        self._record.resources.append(look)
        if self._looks[look.validator] > MAX_LOOKS:
            self._thin()

    def _thin(self) -> None:
        kept: list[Resources] = []
        self.state.interval_ms *= 2
        places: dict[int, int] = {}
        for look in self._record.resources:
            place = places.pop(look.validator, None)
            if place is None:
                places[look.validator] = len(kept)
                kept.append(look)
                self.state.last_ms[look.validator] = look.at_ms
            else:
                kept[place] = _with_peaks_of(kept[place], look)
        self._record.resources[:] = kept
        self._looks = Counter(look.validator for look in kept)


def _with_peaks_of(look: Resources, other: Resources) -> Resources:
    """The sample ``look``, with its amounts raised to those of ``other`` where they are larger. Counters stay."""
    return replace(
        look,
        disk_bytes=max(look.disk_bytes, other.disk_bytes),
        memory_bytes=_most(look.memory_bytes, other.memory_bytes),
        open_files=_most(look.open_files, other.open_files),
    )


def _most(*amounts: int | None) -> int | None:
    return max((amount for amount in amounts if amount is not None), default=None)
