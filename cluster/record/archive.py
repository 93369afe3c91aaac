"""Reads and writes the archive files of a run: its final blocks, and the executions of validators that diverged.

The run is executed again from these files. This module imports no more than executing a block does, so that a process
of another Python can read them (:mod:`cluster.audit.reexecution.follower`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final

from blake3 import blake3

from cluster.common.errors import BadInput
from cluster.common.files import writing_atomically
from validator.primitives.codec import CodecError, decode, encode, tagged_hash

BLOCKS_FILE: Final = "blocks.bin"
TRACES_FILE: Final = "traces.bin"
GENESIS_FILE: Final = "genesis.json"

ARCHIVE_MAGIC: Final = b"stampede/blocks/v1\n"
TRACES_MAGIC: Final = b"stampede/traces/v1\n"
CHECKSUM_BYTES: Final = 32
LENGTH_BYTES: Final = 4
_ARCHIVE_TAG: Final = b"blocks archive"


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """A final block as one validator served it (``GET /blocks``)."""

    block: bytes
    """Canonical encoding of :class:`validator.chain.block.Block`."""
    receipts: bytes
    """Canonical encoding of :class:`validator.chain.block.BlockReceipts`."""
    computed_root: bytes
    """The state root that this validator's own execution gave."""


@dataclass(frozen=True, slots=True)
class DivergedExecution:
    """The execution of a block by a validator that diverged at it."""

    validator: str
    height: int
    reason: str
    """The reason for the divergence, as the validator reports it."""
    expected_root: str
    computed_root: str
    receipts: bytes
    """The encoded receipts of the validator's first execution of the block; empty if it rejected the block."""
    trace: bytes
    """The trace of the execution, an encoded :class:`validator.transition.trace.BlockTrace`; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Reexecuted:
    """The result of executing the store's blocks again, in another process: during a live run
    (:mod:`cluster.audit.reexecution.follower`), or before the verdict (:mod:`cluster.audit.reexecution.again`)."""

    heights: int
    """The number of blocks from height 1 on whose results were as recorded."""
    root: str
    """The state root after these blocks, in hex; empty if the next block's result was not as recorded."""
    reason: str = ""
    """How the next block's result differed from the record, in one line; empty if no block's did."""
    receipts: bytes = b""
    """The encoded receipts of the block with the differing result, as executed again; empty if there are none."""
    trace: bytes = b""
    """The encoded trace of the block with the differing result, as executed again; empty if there is none."""
    slowest_height: int = 0
    """The height of the block that took longest to execute; 0 if none took long enough to be compared."""
    slowest_s: float = 0.0
    """The processor time of the slowest block, in seconds."""
    full_block_s: float = 0.0
    """The processor time of a full block of honest transactions and timers, in seconds; 0 if it was not measured."""


def archive_hasher() -> blake3:
    """A hasher for the checksum."""
    return blake3(bytes((len(_ARCHIVE_TAG),)) + _ARCHIVE_TAG)


def encode_item(record: BlockRecord) -> bytes:
    """A block in the archive's format, with its length."""
    item = encode((record.block, record.receipts, record.computed_root))
    return len(item).to_bytes(LENGTH_BYTES, "big") + item


def decode_item(item: bytes) -> BlockRecord:
    """Decode a block that :func:`encode_item` encoded. Raises :class:`CodecError`."""
    return BlockRecord(*decode(item[LENGTH_BYTES:], tuple[bytes, bytes, bytes]))


def items_of(file: BinaryIO) -> Iterator[tuple[bytes, BlockRecord]]:
    """The blocks from a file's position on, each also as bytes, up to the first incomplete one."""
    while len(length := file.read(LENGTH_BYTES)) == LENGTH_BYTES:
        item = length + file.read(int.from_bytes(length, "big"))
        try:
            record = decode_item(item)
        except CodecError:
            return
        yield item, record


def write_blocks(path: Path, blocks: Iterable[BlockRecord]) -> None:
    """Write an archive of blocks, one after the other, atomically. Raises :class:`OSError`.

    It is a line that names the format, then for each block its length and ``[block, receipts, computed_root]``, then a
    checksum of everything before. Lengths are four bytes big-endian. :class:`cluster.record.chain_store.FileBlocks`
    reads it.
    """
    hasher = archive_hasher()
    with writing_atomically(path) as file:
        for part in chain((ARCHIVE_MAGIC,), map(encode_item, blocks)):
            hasher.update(part)
            file.write(part)
        file.write(hasher.digest())


def encode_traces(executions: Sequence[DivergedExecution]) -> bytes:
    """Encode an archive of traces: a line that names the format, the executions, and a checksum."""
    body = TRACES_MAGIC + encode([astuple(each) for each in executions])
    return body + tagged_hash(b"traces archive", body)


def decode_traces(data: bytes, source: str = TRACES_FILE) -> list[DivergedExecution]:
    """The executions of an archive. Raises :class:`BadInput`."""
    body = data[:-CHECKSUM_BYTES]
    if not data.startswith(TRACES_MAGIC) or tagged_hash(b"traces archive", body) != data[-CHECKSUM_BYTES:]:
        raise BadInput(f"{source}: no archive of traces, or a damaged one")
    try:
        items = decode(body[len(TRACES_MAGIC) :], list[tuple[str, int, str, str, str, bytes, bytes]])
    except CodecError as error:
        raise BadInput(f"{source}: cannot be read: {error}") from None
    return [DivergedExecution(*item) for item in items]
