"""Metrics of each block of a chain, stored in columns to save memory: a run of days has several hundred thousand."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, overload


class BlockMetrics(NamedTuple):
    """Counts, use and prices of one block, for metrics and charts. The basefees are those in force during the block."""

    height: int
    proposer: int
    """The index of the validator that proposed it."""
    transactions: int
    reverted: int
    scheduled: int
    fires: int
    destroyed: int
    messages: int
    queries: int
    pending: int
    """Timers pending after the block."""
    backlog: int
    """Pending timers whose trigger height has passed."""
    basefee_cycle: int
    basefee_cell: int
    basefee_lane_timer: int
    lane_cycles: int
    lane_limit: int
    """The parameter ``LANE_TIMER_CYCLES`` in force during the block."""
    user_cycles: int


PRICES: Final = frozenset({"basefee_cycle", "basefee_cell", "basefee_lane_timer"})
"""Fields of :class:`BlockMetrics` whose values may take more than eight bytes."""


class BlockColumns(Sequence[BlockMetrics]):
    """A sequence of :class:`BlockMetrics`, one per block, stored in columns. A row is built when it is read."""

    def __init__(self) -> None:
        self._columns: dict[str, array[int] | list[int]] = {
            name: [] if name in PRICES else array("Q") for name in BlockMetrics._fields
        }

    def append(self, block: BlockMetrics) -> None:
        for column, value in zip(self._columns.values(), block, strict=True):
            column.append(value)

    def column(self, name: str) -> Sequence[int]:
        """The values of one field for all blocks, in order. The caller must not change them."""
        return self._columns[name]

    def __len__(self) -> int:
        return len(self._columns["height"])

    @overload
    def __getitem__(self, place: int) -> BlockMetrics: ...

    @overload
    def __getitem__(self, place: slice) -> list[BlockMetrics]: ...

    def __getitem__(self, place: int | slice) -> BlockMetrics | list[BlockMetrics]:
        if isinstance(place, int):
            return BlockMetrics._make(column[place] for column in self._columns.values())
        return list(map(BlockMetrics._make, zip(*(column[place] for column in self._columns.values()), strict=True)))

    def __iter__(self) -> Iterator[BlockMetrics]:
        return map(BlockMetrics._make, zip(*self._columns.values(), strict=True))
