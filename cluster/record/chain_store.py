"""Stores the blocks that validators served: the run's chain once, and each validator's blocks that differ from it.

Validators normally serve the same chain. So a run has one store of blocks, to which drivers append, in memory or in a
file. :class:`ServedBlocks` are the blocks that one validator served: a range of heights, with the blocks that are not
the store's. It reads like a list and loses nothing: the store does not decide which block is right.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final, Protocol, cast, overload

from blake3 import blake3

from cluster.common.errors import BadInput
from cluster.record.archive import ARCHIVE_MAGIC, BlockRecord, archive_hasher, decode_item, encode_item, items_of

DIGEST_BYTES: Final = 32


class BlockStore(Protocol):
    """A store of one chain of blocks without gaps, from height 1 on."""

    def __len__(self) -> int: ...

    def append(self, record: BlockRecord) -> None:
        """Add the block of the next height."""

    def at(self, height: int) -> BlockRecord:
        """The block at a height that the store has."""

    def holds(self, height: int, record: BlockRecord) -> bool:
        """Whether ``record`` equals the store's block at a height, which the store must have."""

    def digest(self, height: int) -> bytes:
        """:func:`block_digest` of the block at a height that the store has."""

    @property
    def largest(self) -> int:
        """Bytes of the largest block with its receipts; 0 if there is none."""

    def flush(self) -> None:
        """Write buffered blocks to the file, if the store is in a file. Raises :class:`OSError`."""

    def sync(self) -> None:
        """Make appended blocks that are kept in a file durable against a power failure. Raises :class:`OSError`."""


class MemoryBlocks:
    """A :class:`BlockStore` in memory."""

    def __init__(self, blocks: Iterable[BlockRecord] = ()) -> None:
        self._blocks = list(blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    def append(self, record: BlockRecord) -> None:
        self._blocks.append(record)

    def at(self, height: int) -> BlockRecord:
        return self._blocks[height - 1]

    def holds(self, height: int, record: BlockRecord) -> bool:
        return self._blocks[height - 1] == record

    def digest(self, height: int) -> bytes:
        return block_digest(self.at(height))

    @property
    def largest(self) -> int:
        return max((len(record.block) + len(record.receipts) for record in self._blocks), default=0)

    def flush(self) -> None:
        pass

    def sync(self) -> None:
        pass


class FileBlocks:
    """A store in a file, which becomes an archive of blocks (:mod:`cluster.record.archive`) when it is published.

    It keeps 40 bytes per block in memory: the block's end in the file, and a digest.
    """

    def __init__(self, path: Path) -> None:
        """Raises :class:`OSError` if the file cannot be created."""
        self.path = path
        self._file: BinaryIO = path.open("wb+")
        self._file.write(ARCHIVE_MAGIC)
        self._hasher = archive_hasher()
        self._hasher.update(ARCHIVE_MAGIC)
        self._ends = array("Q", [len(ARCHIVE_MAGIC)])
        self._digests = bytearray()
        self._largest = 0
        self._is_published = False

    @classmethod
    def reopen(cls, path: Path, archive: Path) -> FileBlocks:
        """Continue with the file of a process that ended; an incomplete last block is removed.

        If that process had already published the file under the name ``archive``, the file is renamed back to ``path``.
        A file that does not begin as an archive counts as empty. Raises :class:`OSError`.
        """
        if not path.exists() and archive.exists():
            archive.replace(path)
        found = cls._read(path, "rb+", is_published=False)
        found._file.seek(0)
        found._file.write(ARCHIVE_MAGIC)
        found._file.seek(found._ends[-1])
        found._file.truncate()
        return found

    @classmethod
    def archived(cls, path: Path) -> FileBlocks:
        """The store of an archive. Raises :class:`BadInput` if it is damaged, and :class:`OSError`."""
        found = cls._read(path, "rb", is_published=True)
        found._file.seek(found._ends[-1])
        if found._file.read() != found._hasher.digest():
            raise BadInput(f"{path}: is no archive of blocks, or a damaged one")
        return found

    @classmethod
    def _read(cls, path: Path, mode: str, is_published: bool) -> FileBlocks:
        """A file's blocks up to the first incomplete one."""
        found = cls.__new__(cls)
        found.path, found._is_published, found._largest = path, is_published, 0
        found._file = cast(BinaryIO, path.open(mode))
        found._hasher, found._digests = archive_hasher(), bytearray()
        found._ends = array("Q", [len(ARCHIVE_MAGIC)])
        found._hasher.update(ARCHIVE_MAGIC)
        if found._file.read(len(ARCHIVE_MAGIC)) == ARCHIVE_MAGIC:
            for item, record in items_of(found._file):
                found._note(item, record)
        return found

    def __len__(self) -> int:
        return len(self._ends) - 1

    def append(self, record: BlockRecord) -> None:
        """Add the block of the next height. Raises :class:`OSError`."""
        item = encode_item(record)
        self._file.write(item)
        self._note(item, record)

    def _note(self, item: bytes, record: BlockRecord) -> None:
        self._hasher.update(item)
        self._ends.append(self._ends[-1] + len(item))
        self._digests += block_digest(record)
        self._largest = max(self._largest, len(record.block) + len(record.receipts))

    def sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def at(self, height: int) -> BlockRecord:
        begin, end = self._ends[height - 1 : height + 1]
        self._file.flush()
        return decode_item(os.pread(self._file.fileno(), end - begin, begin))

    def holds(self, height: int, record: BlockRecord) -> bool:
        return self.digest(height) == block_digest(record)

    def digest(self, height: int) -> bytes:
        return bytes(self._digests[DIGEST_BYTES * (height - 1) : DIGEST_BYTES * height])

    @property
    def largest(self) -> int:
        return self._largest

    def flush(self) -> None:
        self._file.flush()

    def publish(self, path: Path) -> None:
        """Complete the file to an archive, and rename it to ``path``. Nothing may be appended afterwards.

        Raises :class:`OSError`.
        """
        if not self._is_published:
            self._file.write(self._hasher.digest())
            self._file.flush()
            os.fsync(self._file.fileno())
            self.path.replace(path)
            self.path, self._is_published = path, True

    def discard(self) -> None:
        """Remove the file unless it is an archive; open readers can still read it."""
        if not self._is_published:
            self.path.unlink(missing_ok=True)

    @property
    def is_there(self) -> bool:
        """Whether the file was neither discarded nor removed by another process."""
        return self.path.exists()


class ServedBlocks(Sequence[BlockRecord]):
    """The blocks that one validator served, without gaps from a height on.

    It holds only the blocks that are not the store's; all others are read from the store.
    """

    def __init__(self, store: BlockStore, first_height: int = 1) -> None:
        self.store = store
        self.first_height = first_height
        self.differing: dict[int, BlockRecord] = {}
        """The blocks that differ from the store's, keyed by height, ascending."""
        self._count = 0

    @classmethod
    def all_of(cls, store: BlockStore) -> ServedBlocks:
        """All blocks of a store."""
        found = cls(store)
        found._count = len(store)
        return found

    @classmethod
    def known(
        cls, store: BlockStore, first_height: int, count: int, differing: Mapping[int, BlockRecord]
    ) -> ServedBlocks:
        """A sequence of ``count`` blocks: those in ``differing``, keyed by height, and all others from the store."""
        found = cls(store, first_height)
        found._count, found.differing = count, dict(differing)
        return found

    @property
    def tip(self) -> int:
        """Height of the last block; one below the first height if there is none."""
        return self.first_height + self._count - 1

    def append(self, record: BlockRecord) -> None:
        """Add the next block; if the store ends right below it, to the store too. Raises :class:`OSError`."""
        self._count += 1
        if self.tip == len(self.store) + 1:
            self.store.append(record)
        elif self.tip > len(self.store) or not self.store.holds(self.tip, record):
            self.differing[self.tip] = record

    def append_apart(self, record: BlockRecord) -> None:
        """Add the next block, and nothing to the store, which may be an archive."""
        self._count += 1
        if self.tip > len(self.store) or not self.store.holds(self.tip, record):
            self.differing[self.tip] = record

    def first(self, count: int) -> ServedBlocks:
        """The first ``count`` blocks as a separate sequence."""
        part = self[:count]
        assert isinstance(part, ServedBlocks)
        return part

    def extend_as_stored(self, tip: int) -> None:
        """Add the store's blocks up to a height, as far as it has them."""
        self._count = max(self._count, min(tip, len(self.store)) - self.first_height + 1)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[BlockRecord]:
        return (self._at(height) for height in range(self.first_height, self.tip + 1))

    @overload
    def __getitem__(self, place: int) -> BlockRecord: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[BlockRecord]: ...

    def __getitem__(self, place: int | slice) -> BlockRecord | Sequence[BlockRecord]:
        if isinstance(place, int):
            height = range(self.first_height, self.tip + 1)[place]
            return self._at(height)
        heights = range(self.first_height, self.tip + 1)[place]
        if heights.step != 1:
            return [self._at(height) for height in heights]
        part = ServedBlocks(self.store, heights.start)
        part._count = len(heights)
        part.differing = {height: record for height, record in self.differing.items() if height in heights}
        return part

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(self[place] == other[place] for place in differing_places(self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.first_height} to {self.tip}, {len(self.differing)} differing>"

    def _at(self, height: int) -> BlockRecord:
        own = self.differing.get(height)
        return self.store.at(height) if own is None else own


def as_stored(blocks: Sequence[BlockRecord]) -> Sequence[BlockRecord]:
    """A validator's blocks up to the first one that is missing, because a store may have lost its last blocks."""
    if not isinstance(blocks, ServedBlocks):
        return blocks
    known = blocks.first_height - 1
    while known < blocks.tip and (known + 1 <= len(blocks.store) or known + 1 in blocks.differing):
        known += 1
    return blocks[: known - blocks.first_height + 1]


def differing_places(one: Sequence[BlockRecord], other: Sequence[BlockRecord]) -> Iterable[int]:
    """The indexes at which two sequences may differ, up to the end of the shorter one. All others are equal."""
    count = min(len(one), len(other))
    if not isinstance(one, ServedBlocks) or not isinstance(other, ServedBlocks):
        return range(count)
    if one.store is not other.store or one.first_height != other.first_height:
        return range(count)
    places = (height - one.first_height for height in one.differing.keys() | other.differing.keys())
    return sorted(place for place in places if place < count)


def joined(below: Sequence[BlockRecord], above: Iterable[BlockRecord]) -> Sequence[BlockRecord]:
    """Concatenate two sequences of blocks. The second one begins right above the first."""
    if not isinstance(below, ServedBlocks):
        return [*below, *above]
    found = below[:]
    assert isinstance(found, ServedBlocks)
    for record in above:
        found.append_apart(record)
    return found


def block_digest(record: BlockRecord) -> bytes:
    """A hash of 32 bytes over a block, its receipts and its computed root (``docs/http.md``)."""
    hasher = blake3(len(record.block).to_bytes(8, "big"))
    hasher.update(len(record.receipts).to_bytes(8, "big"))
    for part in (record.block, record.receipts, record.computed_root):
        hasher.update(part)
    return hasher.digest()
