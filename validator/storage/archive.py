"""The archive of final blocks on disk: each block with its receipts, finalization certificate and computed state root.

The archive is append-only. A block is durable before the state that follows from it. Blocks are in files of bounded
size (:mod:`validator.storage.segments`); the oldest files are removed as a whole (:meth:`BlockArchive.prune`). The
offsets of blocks are kept in memory, and so are the places of the newest transactions and timer ends
(:mod:`validator.storage.places`). Opening rebuilds both from the files' indices and from the blocks of the newest file.

Pruning first writes the height after which the archive begins, durably, and then removes files. Opening completes a
pruning that a crash interrupted. A missing file above that height is damage.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, NamedTuple

import msgspec

from validator.chain.block import Block, BlockReceipts, TransactionReceipt
from validator.chain.receipts import TimerEnd, ended_timer_ids, ended_timers
from validator.primitives.codec import decode, encode
from validator.primitives.types import Hash, Height, TimerId
from validator.storage.disk import Disk, DiskError
from validator.storage.frames import frame, read_frame, recover
from validator.storage.places import Place, Places, keys_of
from validator.storage.segments import ARCHIVE_FILE, INDEX_FILE, Segment, bases, segment_name

START_FILE: Final = "blocks/start"
"""The file that a validator has if it joined by a snapshot. It holds the block of the snapshot, after which the archive
begins (:class:`ArchiveStart`)."""
PRUNED_FILE: Final = "blocks/pruned"
"""The file that exists once blocks were pruned. It holds the height after which the archive begins, in one frame."""
SEGMENT_BYTES: Final = 32 * 1024 * 1024
"""Size at which a file takes no further block."""
MAX_TRANSACTIONS: Final = 2_097_152
"""Number of the newest final transactions that can be found by their hashes. Their places take 32 MiB of memory."""
MAX_ENDED_TIMERS: Final = 65_536
"""Number of the newest ended timers that can be found by their ids. Their places take 1 MiB of memory."""


class ArchivedBlock(msgspec.Struct, frozen=True, array_like=True):
    """The archive's record of one final block."""

    block: bytes
    receipts: bytes
    certificate: bytes
    """The finalization of this block; empty if a descendant's finalization made it final."""
    computed_root: bytes


class PlacedReceipt(NamedTuple):
    """The receipt of a final transaction, and its place."""

    place: Place
    receipt: TransactionReceipt


class PlacedEnd(NamedTuple):
    """The end of a timer, and the height of the block in which it ended."""

    height: Height
    end: TimerEnd


class ArchiveStart(msgspec.Struct, frozen=True, array_like=True):
    """The block with which the archive of a joined validator starts. It replaces all blocks up to its height."""

    height: int
    block: ArchivedBlock
    abstain_through: int
    """The last view in which the validator must not vote. It may have voted up to this view before it joined, but has
    lost the journal of those votes."""


class _Pruned(msgspec.Struct, frozen=True, array_like=True):
    """The content of :data:`PRUNED_FILE`."""

    height: int


class _ReceiptsHead(msgspec.Struct, frozen=True, array_like=True):
    """The first field of encoded :class:`BlockReceipts`: the height of their block."""

    height: int


_receipts_head: Final = msgspec.msgpack.Decoder(_ReceiptsHead)


def begin_archive(disk: Disk, start: ArchiveStart) -> None:
    """Write the start of a new archive in an empty folder, durably. The archive then begins after that block."""
    disk.replace(START_FILE, encode(start))


class BlockArchive:
    """The archive of final blocks. It begins at height 1, after the snapshot with which the validator joined, or after
    the pruned blocks."""

    def __init__(self, disk: Disk, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Open the archive, and cut off a newest block that a crash left torn.

        Raises :class:`DiskError` if other data is damaged or missing.
        """
        self._disk = disk
        self._segment_bytes = segment_bytes
        start = disk.read(START_FILE)
        self._start = decode(start, ArchiveStart) if start else None
        self._transactions = Places(MAX_TRANSACTIONS)
        self._ended = Places(MAX_ENDED_TIMERS)
        pruned = disk.size(PRUNED_FILE)
        self._first = decode(read_frame(disk, PRUNED_FILE, 0), _Pruned).height if pruned else self.joined_height
        self._segments: list[Segment] = []
        self._remove_pruned()
        self._open_segments()

    @property
    def joined_height(self) -> int:
        """Height of the snapshot with which the validator joined; 0 without one."""
        return self._start.height if self._start is not None else 0

    @property
    def first_height(self) -> int:
        """Height after which the archive begins: the oldest available block is one above it."""
        return self._first

    @property
    def abstain_through(self) -> int:
        """The last view in which a validator that joined must not vote; 0 for one that did not join."""
        return self._start.abstain_through if self._start is not None else 0

    @property
    def height(self) -> Height:
        """Height of the newest archived block; 0 if there is none."""
        return Height(self._segments[-1].last if self._segments else self._first)

    def append(self, archived: ArchivedBlock, receipts: BlockReceipts) -> None:
        """Add the next final block, durably."""
        assert receipts.height == self.height + 1, "final blocks come in order"
        record = frame(encode(archived))
        segment = self._segment_to_append()
        self._write(segment.name, record)
        self._add(segment, record, receipts)

    def prune(self, height: int) -> None:
        """Remove the oldest files whose blocks are all at or below a height; the newest file stays."""
        count = sum(segment.last <= height for segment in self._segments[:-1])
        if not count:
            return
        old, self._segments = self._segments[:count], self._segments[count:]
        self._first = self._segments[0].base
        self._disk.replace(PRUNED_FILE, frame(encode(_Pruned(self._first))))
        for segment in old:
            segment.remove(self._disk)
        self._transactions.forget(self._first)
        self._ended.forget(self._first)

    def get(self, height: int) -> ArchivedBlock | None:
        """The block at a height, or ``None``. Raises :class:`DiskError` if it is damaged."""
        if self._start is not None and height == self._first == self._start.height:
            return self._start.block
        if not self._first < height <= self.height:
            return None
        segment = self._segments[bisect_left(self._segments, height, key=lambda segment: segment.last)]
        archived = decode(segment.read(self._disk, height), ArchivedBlock)
        found = _receipts_head.decode(archived.receipts).height
        if found != height:
            raise _other_height(segment, segment.offsets[height - 1 - segment.base], found, height)
        return archived

    def block(self, height: int) -> Block | None:
        archived = self.get(height)
        return None if archived is None else decode(archived.block, Block)

    def receipts(self, height: int) -> BlockReceipts | None:
        archived = self.get(height)
        return None if archived is None else decode(archived.receipts, BlockReceipts)

    def find_receipt(self, transaction_hash: Hash) -> PlacedReceipt | None:
        """Find the receipt of a final transaction.

        ``None`` if it is not in the archive, or not among the last :data:`MAX_TRANSACTIONS`.
        """
        for place in self._transactions.find(transaction_hash):
            receipts = self.receipts(place.height)
            assert receipts is not None, "places below the first block are forgotten"
            receipt = receipts.transactions[place.position]
            if receipt.transaction_hash == transaction_hash:
                return PlacedReceipt(place, receipt)
        return None

    def find_end(self, timer_id: TimerId) -> PlacedEnd | None:
        """Find the end of a timer.

        ``None`` if it is not in the archive, or not among the last :data:`MAX_ENDED_TIMERS`.
        """
        for place in self._ended.find(timer_id):
            receipts = self.receipts(place.height)
            assert receipts is not None, "places below the first block are forgotten"
            for ended, end in ended_timers(receipts):
                if ended == timer_id:
                    return PlacedEnd(place.height, end)
        return None

    # --- files --------------------------------------------------------------------------------------------------------

    def _segment_to_append(self) -> Segment:
        newest = self._segments[-1] if self._segments else None
        if newest is not None and not newest.is_complete:
            if newest.size < self._segment_bytes:
                return newest
            newest.complete(self._disk)
        self._segments.append(self._segment(self.height))
        return self._segments[-1]

    def _write(self, name: str, record: bytes) -> None:
        """Append a record to a segment, durably."""
        self._disk.append(name, record)
        self._disk.sync(name)

    def _segment(self, base: int) -> Segment:
        return Segment(base, segment_name(base, base == self.joined_height))

    def _add(self, segment: Segment, record: bytes, receipts: BlockReceipts) -> None:
        """Index a block's record that was appended to a segment: its offset, transactions and ended timers."""
        transactions = [receipt.transaction_hash for receipt in receipts.transactions]
        ended = ended_timer_ids(receipts)
        segment.add(record, keys_of(transactions), keys_of(ended))
        for position, name in enumerate(transactions):
            self._transactions.add(name, receipts.height, position)
        for position, name in enumerate(ended):
            self._ended.add(name, receipts.height, position)

    def _remove_pruned(self) -> None:
        """Complete an interrupted pruning."""
        names = self._disk.names()
        for prefix in (ARCHIVE_FILE, INDEX_FILE):
            for base in bases(names, prefix, self.joined_height):
                if base < self._first:
                    self._segment(base).remove(self._disk)

    def _open_segments(self) -> None:
        names = self._disk.names()
        found, indexed = (bases(names, prefix, self.joined_height) for prefix in (ARCHIVE_FILE, INDEX_FILE))
        for base in sorted({*found, *indexed}):
            segment = self._segment(base)
            if base not in found:
                raise DiskError(f"{segment.name}: is missing although {segment.index_name} is there")
            if base != self.height:
                raise DiskError(f"{segment.name}: expected the blocks above height {self.height:,} before it")
            self._segments.append(segment)
            if base in indexed:
                index = segment.open_complete(self._disk)
                self._transactions.load(base + 1, index.transactions)
                self._ended.load(base + 1, index.ended)
            elif base != found[-1]:
                raise DiskError(f"{segment.index_name}: is missing")
        if self._first > self.joined_height and not self._segments:
            raise DiskError(f"{self._segment(self._first).name}: is missing")
        self._transactions.settle()
        self._ended.settle()
        if self._segments and not self._segments[-1].is_complete:
            self._open_newest(self._segments[-1])

    def _open_newest(self, segment: Segment) -> None:
        """Index the blocks of the newest segment, to which blocks are appended. A torn block at its end is cut off.

        The last block is written and synced again. A killed process may have left it without a sync, so it could be
        lost in a later crash although the state that follows from it is durable.
        """
        record = b""
        for offset, payload in recover(self._disk, segment.name):
            receipts = decode(decode(payload, ArchivedBlock).receipts, BlockReceipts)
            if receipts.height != segment.last + 1:
                raise _other_height(segment, offset, receipts.height, segment.last + 1)
            record = frame(payload)
            self._add(segment, record, receipts)
        if record:
            self._disk.write(segment.name, segment.offsets[-1], record)
            self._disk.sync(segment.name)


def _other_height(segment: Segment, offset: int, found: int, expected: int) -> DiskError:
    return DiskError(f"{segment.name}: record at offset {offset} is of height {found}, expected {expected}")
