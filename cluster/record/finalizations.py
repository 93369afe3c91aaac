"""Records when validators were seen to finalise heights, in columns, at 14 bytes per validator and height.

A run of 64 validators and 100,000 heights has 6.4 million finalizations, and checks, metrics and charts query them
repeatedly. NumPy answers queries over all of them. The answers are cached until the next finalization is appended.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np
import numpy.typing as npt

AT_A_TIME: Final = 1 << 20
"""The number of rows that NumPy processes at a time, so that intermediate arrays stay small."""
NOBODY: Final[frozenset[int]] = frozenset()
ROW: Final = np.dtype([("at_ms", "<f8"), ("validator", "<u2"), ("height", "<u4")])
"""A finalization as 14 bytes."""


@dataclass(frozen=True, slots=True)
class Finalization:
    """A validator was seen to finalise a height."""

    at_ms: float
    validator: int
    height: int


class FinalMoments:
    """When heights were first final, in the order of time, for binary search by time."""

    def __init__(self, first: Mapping[int, float]) -> None:
        ordered = sorted((at_ms, height) for height, at_ms in first.items())
        self.times_ms = [at_ms for at_ms, _ in ordered]
        """The times at which heights became final, in milliseconds, ascending."""
        self.heights = [height for _, height in ordered]
        """The height that became final at each of ``times_ms``."""
        self._highest = list(accumulate(self.heights, max))
        self._lowest = list(accumulate(reversed(self.heights), min))[::-1]

    def until(self, at_ms: float) -> int:
        """The number of heights that were final by a time. They are the first ones in :attr:`heights`."""
        return bisect_right(self.times_ms, at_ms)

    def count(self, after_ms: float, until_ms: float) -> int:
        """How many heights became final after one moment, and by another."""
        return max(0, self.until(until_ms) - self.until(after_ms))

    def highest(self, until_ms: float) -> int:
        """The highest height that was final by a moment; 0 if none was."""
        place = self.until(until_ms)
        return self._highest[place - 1] if place else 0

    def lowest_after(self, after_ms: float, known: Collection[int]) -> int | None:
        """The lowest of the known heights that became final after a moment; ``None`` if none did."""
        place = self.until(after_ms)
        if place == len(self.heights):
            return None
        lowest = self._lowest[place]
        return lowest if lowest in known else min((h for h in self.heights[place:] if h in known), default=None)

    def highest_of(self, known: Collection[int]) -> int:
        """The highest of the known heights that became final at all; 0 if none did."""
        top = self._highest[-1] if self._highest else 0
        return top if top in known else max((height for height in self.heights if height in known), default=0)

    def newest(self, until_ms: float, count: int) -> float | None:
        """When the ``count``-th newest height by a moment became final; ``None`` if there were fewer."""
        place = self.until(until_ms)
        return self.times_ms[place - count] if place >= count else None


class Finalizations:
    """All finalizations of a run, in the order of observation."""

    def __init__(self, seen: Iterable[Finalization] = ()) -> None:
        self._at_ms, self._validators, self._heights = array("d"), array("H"), array("I")
        self._earliest: dict[frozenset[int], dict[int, float]] = {}
        """Cached answers of :meth:`earliest`, keyed by the validators left out. :meth:`append` empties it."""
        self._moments: dict[frozenset[int], FinalMoments] = {}
        """Cached answers of :meth:`moments`, keyed by the validators left out. :meth:`append` empties it."""
        self._above: dict[int, dict[int, float]] = {}
        """Cached answers of :meth:`first_above`, keyed by its height. :meth:`append` empties it."""
        for each in seen:
            self.append(each)

    def append(self, seen: Finalization) -> None:
        self._at_ms.append(seen.at_ms)
        self._validators.append(seen.validator)
        self._heights.append(seen.height)
        if self._earliest or self._above:
            for answers in (self._earliest, self._moments, self._above):
                answers.clear()

    @property
    def packed(self) -> bytes:
        """All rows, each in :data:`ROW`."""
        rows = np.empty(len(self), ROW)
        rows["at_ms"], rows["validator"], rows["height"] = self._columns
        return rows.tobytes()

    @classmethod
    def unpacked(cls, content: bytes) -> Finalizations:
        """The inverse of :attr:`packed`. Raises :class:`ValueError` for a part of a row."""
        found, rows = cls(), np.frombuffer(content, ROW)
        found._at_ms.frombytes(rows["at_ms"].astype(np.float64).tobytes())
        found._validators.frombytes(rows["validator"].astype(np.uint16).tobytes())
        found._heights.frombytes(rows["height"].astype(np.uint32).tobytes())
        return found

    def __len__(self) -> int:
        return len(self._at_ms)

    def __iter__(self) -> Iterator[Finalization]:
        return map(Finalization, self._at_ms, self._validators, self._heights)

    def __getitem__(self, place: int) -> Finalization:
        return Finalization(self._at_ms[place], self._validators[place], self._heights[place])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Finalizations) and self._columns == other._columns

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self):,}>"

    def by_time(self) -> Iterator[Finalization]:
        """All finalizations in the order of time."""
        order = np.argsort(np.frombuffer(self._at_ms, np.float64), kind="stable")
        return map(self.__getitem__, order.tolist())

    def without(self, left_out: Collection[int]) -> Iterator[Finalization]:
        """The finalizations of all validators except ``left_out``."""
        return (seen for seen in self if seen.validator not in left_out)

    def times_of(self, validator: int) -> npt.NDArray[np.float64]:
        """The moments at which a validator finalised heights, in milliseconds, ascending."""
        mine = np.frombuffer(self._validators, np.uint16) == validator
        return np.sort(np.frombuffer(self._at_ms, np.float64)[mine])

    def earliest(self, left_out: Collection[int] = NOBODY) -> Mapping[int, float]:
        """When each height was first final at any validator except ``left_out``, in ascending order of heights."""
        without = frozenset(left_out)
        if without not in self._earliest:
            self._earliest[without] = self._find_earliest(without)
        return self._earliest[without]

    def moments(self, left_out: Collection[int] = NOBODY) -> FinalMoments:
        """The first finalizations at any validator except ``left_out``, sorted by time."""
        without = frozenset(left_out)
        first = self.earliest(without)
        if without not in self._moments:
            self._moments[without] = FinalMoments(first)
        return self._moments[without]

    @property
    def first_ms(self) -> float | None:
        """The moment of the earliest finalization; ``None`` if there is none."""
        return min(self.earliest().values(), default=None)

    def highest(self, until_ms: float) -> int:
        """The highest height that was final anywhere by a moment; 0 if none was."""
        found = 0
        for at_ms, _, heights in self._parts():
            found = max(found, int(np.max(heights, initial=0, where=at_ms <= until_ms)))
        return found

    def moments_of(self, validator: int) -> list[tuple[float, int]]:
        """The moments and heights of one validator, in the order of time."""
        at_ms, heights = (np.concatenate(column) for column in zip(*self._of(validator), strict=True))
        order = np.lexsort((heights, at_ms))
        return list(zip(at_ms[order].tolist(), heights[order].tolist(), strict=True))

    def first_above(self, height: int) -> Mapping[int, float]:
        """When each validator first finalised a height above this one; validators that did not are left out."""
        if height not in self._above:
            self._above[height] = self._find_first_above(height)
        return self._above[height]

    def _find_first_above(self, height: int) -> dict[int, float]:
        found: dict[int, float] = {}
        for at_ms, validators, heights in self._parts():
            above = heights > height
            for validator in np.unique(validators[above]).tolist():
                earliest = float(np.min(at_ms[above & (validators == validator)]))
                found[validator] = min(earliest, found.get(validator, earliest))
        return found

    def at_heights(self, wanted: Collection[int]) -> dict[int, dict[int, float]]:
        """When each validator first finalised each of these heights, keyed by height and validator."""
        found: dict[int, dict[int, float]] = {height: {} for height in wanted}
        for at_ms, validators, heights in self._parts():
            chosen = np.isin(heights, list(wanted))
            columns = (column[chosen].tolist() for column in (heights, validators, at_ms))
            for height, validator, at in zip(*columns, strict=True):
                times = found[height]
                times[validator] = min(at, times.get(validator, at))
        return found

    # --- columns ------------------------------------------------------------------------------------------------------

    @property
    def _columns(self) -> tuple[array[float], array[int], array[int]]:
        return self._at_ms, self._validators, self._heights

    def _parts(self) -> Iterator[tuple[npt.NDArray[Any], ...]]:
        """The columns, in parts of at most :data:`AT_A_TIME` rows."""
        for start in range(0, len(self), AT_A_TIME):
            # an array that NumPy looks into cannot grow: no reference to these may remain
            stop = min(start + AT_A_TIME, len(self))
            yield tuple(
                np.frombuffer(column, column.typecode, stop - start, start * column.itemsize)
                for column in self._columns
            )

    def _of(self, validator: int) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
        yield np.empty(0), np.empty(0, np.uint32)
        for at_ms, validators, heights in self._parts():
            chosen = validators == validator
            yield at_ms[chosen], heights[chosen]

    def _find_earliest(self, without: frozenset[int]) -> dict[int, float]:
        found = np.full(max(self._heights, default=0) + 1, np.inf)
        for at_ms, validators, heights in self._parts():
            counted = ~np.isin(validators, list(without))
            np.minimum.at(found, heights[counted], at_ms[counted])
        reached = np.flatnonzero(np.isfinite(found))
        return dict(zip(reached.tolist(), found[reached].tolist(), strict=True))
