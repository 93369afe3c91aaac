"""The entries of the newest blocks, read from the log once and kept for the next question.

A past state is the final one without the blocks above it, so questions about neighbouring heights need the same blocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from validator.primitives.types import Height
from validator.state.engine import SECTION_HEAD, SectionHead
from validator.state.hashing import key_hash, links_of
from validator.state.log import Section, StateLog

REMEMBERED_ENTRIES: Final = 65_536
"""Number of entries above which the oldest blocks are dropped. An entry takes some 150 bytes."""


REMEMBERED_SECTIONS: Final = 24
"""Number of the last read blocks that all stores of a process share."""


@dataclass(frozen=True, slots=True)
class BlockEntries:
    """What one block appended to the log."""

    head: SectionHead
    first_position: int
    """Position of the block's first entry."""
    places: tuple[bytes, ...]
    """The hash of each entry's key, in the order of the entries."""
    previous: tuple[int, ...]
    """The position of the entry that each entry replaced; :data:`~validator.state.hashing.NO_POSITION` for none."""
    deleted: tuple[int, ...]
    """Positions of the entries whose keys the block removed."""

    @staticmethod
    def of(section: Section) -> BlockEntries:
        """Read a block's section of the log."""
        return _entries_of(bytes(section.data), section.first_position)


@lru_cache(REMEMBERED_SECTIONS)
def _entries_of(data: bytes, first_position: int) -> BlockEntries:
    """Read a section. The last ones are cached: the validators of a process are asked about the same blocks."""
    section = Section(SectionHead.decode(data, 0), first_position, memoryview(data))
    links = list(links_of(data, SECTION_HEAD.size, section.head.entries))
    places, previous = tuple(key_hash(key) for _, key in links), tuple(replaced for replaced, _ in links)
    return BlockEntries(section.head, first_position, places, previous, tuple(section.deleted()))


class NewestBlocks:
    """The newest final blocks, of which the oldest are dropped first."""

    def __init__(self, log: StateLog) -> None:
        self._log = log
        self._blocks: list[BlockEntries] = []
        """The blocks above the height ``_above``, ascending."""
        self._above: Height | None = None
        """``None`` if nothing was read yet."""
        self._entries = 0

    def above(self, height: Height) -> Iterator[BlockEntries]:
        """Iterate over the blocks above a height, ascending. Raises :class:`~validator.storage.disk.DiskError`."""
        if self._above is None or height < self._above:
            self._blocks, self._above, self._entries = [], height, 0
        newest = self._blocks[-1].head.height if self._blocks else self._above
        later = [BlockEntries.of(section) for section in self._log.sections_above(newest)]
        self._blocks.extend(reversed(later))
        self._entries += sum(len(block.places) for block in later)
        yield from self._blocks[bisect_right(self._blocks, height, key=_height_of) :]
        self._drop_oldest()

    def place_of(self, position: int) -> bytes | None:
        """The hash of the key of the entry at a position; ``None`` if a block before the kept ones appended it."""
        at = bisect_right(self._blocks, position, key=_first_position_of) - 1
        return None if at < 0 else self._blocks[at].places[position - self._blocks[at].first_position]

    def head_at(self, height: Height) -> SectionHead | None:
        """The head of the newest block at or below a height; ``None`` if the log begins above it."""
        after = bisect_right(self._blocks, height, key=_height_of)
        is_known = 0 < after < len(self._blocks)  # the log may have blocks above the kept ones
        return self._blocks[after - 1].head if is_known else self._log.head_at(height)

    def forget(self) -> None:
        """Drop all blocks."""
        self._blocks, self._above, self._entries = [], None, 0

    def _drop_oldest(self) -> None:
        """Drop the oldest blocks, if there are too many entries. Blocks of one height are dropped together."""
        dropped = 0
        while self._entries > REMEMBERED_ENTRIES:
            self._above = self._blocks[dropped].head.height
            after = bisect_right(self._blocks, self._above, key=_height_of)
            self._entries -= sum(len(block.places) for block in self._blocks[dropped:after])
            dropped = after
        del self._blocks[:dropped]


def _height_of(block: BlockEntries) -> Height:
    return block.head.height


def _first_position_of(block: BlockEntries) -> int:
    return block.first_position
