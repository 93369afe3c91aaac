"""Final blocks on disk: block, receipts, finalization certificate and own state root, by height.

Append-only, durable before the state that follows from a block is. Offsets, the hashes of transactions and the ids
of the timers that ended last are kept in memory and rebuilt on open.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from validator.chain.block import Block, BlockReceipts
from validator.chain.receipts import ended_timers
from validator.primitives.codec import decode, encode
from validator.primitives.types import Hash, Height, TimerId
from validator.storage.disk import Disk
from validator.storage.frames import frame, read_frame, recover

ARCHIVE_FILE: Final = "blocks/archive"
START_FILE: Final = "blocks/start"
"""The block with which an archive begins whose validator joined by a snapshot: its height and the block itself."""


MAX_ENDED_TIMERS: Final = 65_536
"""The timers that ended last: so many are known by their ids, some 10 MB."""


class ArchivedBlock(msgspec.Struct, frozen=True, array_like=True):
    """One final block as it is kept."""

    block: bytes
    receipts: bytes
    certificate: bytes
    """The finalization of exactly this block; empty if a descendant's finalization made it final."""
    computed_root: bytes


class TransactionPlace(NamedTuple):
    """The place of a final transaction."""

    height: Height
    position: int


class ArchiveStart(msgspec.Struct, frozen=True, array_like=True):
    """The start of an archive, in place of the blocks up to a height."""

    height: int
    block: ArchivedBlock
    abstain_through: int
    """The last view in which the validator may have voted before it joined, with a journal that it has no more."""


def begin_archive(disk: Disk, start: ArchiveStart) -> None:
    """Let the archive of an empty folder begin behind a block, durably."""
    disk.replace(START_FILE, encode(start))


class BlockArchive:
    """The final chain from height 1 on, or from the snapshot on with which the validator joined."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        start = disk.read(START_FILE)
        self._start = decode(start, ArchiveStart) if start else None
        self._first = self._start.height if self._start is not None else 0
        """Height below the first block in the file."""
        self._offsets: list[int] = []
        self._places: dict[Hash, TransactionPlace] = {}
        self._ended: dict[TimerId, Height] = {}
        """Ends of the timers that ended last, in that order."""
        for record in recover(disk, ARCHIVE_FILE):
            archived = decode(record.payload, ArchivedBlock)
            self._index(record.offset, decode(archived.receipts, BlockReceipts))

    @property
    def first_height(self) -> int:
        """Height of the snapshot with which the validator joined; blocks above it are here. 0 without one."""
        return self._first

    @property
    def abstain_through(self) -> int:
        """The last view in which a validator that joined must not vote; 0 for one that did not."""
        return self._start.abstain_through if self._start is not None else 0

    @property
    def height(self) -> Height:
        """Height of the newest archived block; 0 if there is none."""
        return Height(self._first + len(self._offsets))

    def append(self, archived: ArchivedBlock, receipts: BlockReceipts) -> None:
        """Add the next final block, durably."""
        assert receipts.height == self.height + 1, "final blocks come in order"
        offset = self._disk.append(ARCHIVE_FILE, frame(encode(archived)))
        self._disk.sync(ARCHIVE_FILE)
        self._index(offset, receipts)

    def get(self, height: int) -> ArchivedBlock | None:
        """The block at a height, or ``None``."""
        if self._start is not None and height == self._first:
            return self._start.block
        if not self._first < height <= self.height:
            return None
        return decode(read_frame(self._disk, ARCHIVE_FILE, self._offsets[height - 1 - self._first]), ArchivedBlock)

    def block(self, height: int) -> Block | None:
        archived = self.get(height)
        return None if archived is None else decode(archived.block, Block)

    def place_of(self, transaction_hash: Hash) -> TransactionPlace | None:
        return self._places.get(transaction_hash)

    def end_of(self, timer_id: TimerId) -> Height | None:
        """The height at which a timer ended; ``None`` if it is not among the last :data:`MAX_ENDED_TIMERS` that did."""
        return self._ended.get(timer_id)

    def _index(self, offset: int, receipts: BlockReceipts) -> None:
        self._offsets.append(offset)
        for position, receipt in enumerate(receipts.transactions):
            self._places[Hash(receipt.transaction_hash)] = TransactionPlace(Height(receipts.height), position)
        for timer_id, _ in ended_timers(receipts):
            self._ended[timer_id] = Height(receipts.height)
        while len(self._ended) > MAX_ENDED_TIMERS:
            del self._ended[next(iter(self._ended))]
