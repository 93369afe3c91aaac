"""What is given to validators that join fits into messages, whatever the state holds."""

from __future__ import annotations

import msgspec
import pytest

from cluster.disks.memory import MemoryDisk
from validator.chain.block import BlockReceipts
from validator.chain.messages import (
    MAX_CHUNK_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_PIECE_BYTES,
    ChunkRequest,
    ChunkResponse,
    SnapshotOffer,
    SnapshotRequest,
    encode_message,
)
from validator.node import snapshot_join
from validator.node.executor import snapshot_service
from validator.node.executor.executor import DEFAULT_STORAGE
from validator.node.executor.snapshot_service import read_snapshot
from validator.node.snapshot_join import ChunkPieces
from validator.primitives.codec import encode
from validator.primitives.types import Height
from validator.state import LogStateStore
from validator.state.snapshot import Manifest, SnapshotError, decode_chunk
from validator.storage.archive import ArchivedBlock, BlockArchive

SNAPSHOT_INTERVAL = DEFAULT_STORAGE.snapshot_interval

VALUE_BYTES = 1_000_000
HEIGHTS = 24
LAST = Height(HEIGHTS)


@pytest.fixture(scope="module")
def store() -> LogStateStore:
    """A store with one large value a block."""
    store = LogStateStore.open(MemoryDisk())
    for height in range(1, HEIGHTS + 1):
        store.commit(store.final.derive(Height(height), {b"%d" % height: bytes(VALUE_BYTES)}))
    return store


def receipts_of(height: int, padding: bytes = b"") -> BlockReceipts:
    return BlockReceipts(height, padding, (), (), (), (), (), 0, b"")


def archive(padding: dict[int, bytes]) -> BlockArchive:
    """Blocks with certificates; the receipts of some heights are longer by their padding."""
    found = BlockArchive(MemoryDisk())
    for height in range(1, HEIGHTS + 1):
        receipts = receipts_of(height, padding.get(height, b""))
        found.append(ArchivedBlock(b"block", encode(receipts), b"certificate", b"root"), receipts)
    return found


def ask(store: LogStateStore, request: ChunkRequest) -> ChunkResponse | None:
    response = read_snapshot(store, archive({}), request, SNAPSHOT_INTERVAL)
    assert response is None or isinstance(response, ChunkResponse)
    return response


def test_a_chunk_of_any_size_comes_in_pieces_that_fit_into_messages(store: LogStateStore) -> None:
    chunk, whole = ChunkPieces(LAST, 0), None
    while whole is None:
        response = ask(store, chunk.request)
        assert response is not None
        assert len(encode_message(response)) <= MAX_MESSAGE_BYTES
        whole = chunk.take(response)
    assert len(whole) > HEIGHTS * VALUE_BYTES > MAX_MESSAGE_BYTES
    manifest = Manifest.decode(store.manifest().encode(), LAST, store.final.root)
    assert sum(len(twig.entries) for twig in decode_chunk(manifest, 0, whole)) == HEIGHTS


def test_pieces_that_do_not_exist_are_not_given(store: LogStateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    total = len(store.chunk(0, LAST))
    assert ask(store, ChunkRequest(LAST, 0, total - 1)) is not None
    for offset in (-1, total, 2**64 - 1):
        assert ask(store, ChunkRequest(LAST, 0, offset)) is None
    assert ask(store, ChunkRequest(LAST, 1)) is None
    monkeypatch.setattr(snapshot_service, "MAX_CHUNK_BYTES", total - 1)
    assert ask(store, ChunkRequest(LAST, 0)) is None


@pytest.mark.parametrize(
    "wrong",
    [
        ChunkResponse(LAST, 0, b"", 0, 0),
        ChunkResponse(LAST, 0, b"", 0, 5),
        ChunkResponse(LAST, 0, b"12", 0, 1),
        ChunkResponse(LAST, 0, b"12", 0, 3),
        ChunkResponse(LAST, 0, bytes(MAX_PIECE_BYTES + 1), 0, MAX_PIECE_BYTES + 1),
        ChunkResponse(LAST, 0, bytes(MAX_PIECE_BYTES), 0, MAX_CHUNK_BYTES + 1),
        ChunkResponse(LAST, 0, b"1", 0, -1),
    ],
)
def test_a_piece_that_nobody_cuts_so_is_refused(wrong: ChunkResponse) -> None:
    with pytest.raises(SnapshotError):
        ChunkPieces(LAST, 0).take(wrong)


def test_pieces_out_of_turn_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_join, "MAX_PIECE_BYTES", 4)
    chunk = ChunkPieces(LAST, 0)
    first, second = ChunkResponse(LAST, 0, b"1234", 0, 6), ChunkResponse(LAST, 0, b"56", 4, 6)
    passed_over = [second, msgspec.structs.replace(first, chunk=1), msgspec.structs.replace(first, height=8)]
    assert [chunk.take(each) for each in (*passed_over, first, first)] == [None] * 5
    assert chunk.request == ChunkRequest(LAST, 0, 4)
    with pytest.raises(SnapshotError, match="chunk of 7 bytes"):
        chunk.take(msgspec.structs.replace(second, total=7))
    assert chunk.take(second) == b"123456"


def test_what_does_not_fit_into_a_message_is_not_offered(store: LogStateStore) -> None:
    newest = HEIGHTS - HEIGHTS % SNAPSHOT_INTERVAL
    manifest = len(store.manifest(Height(newest)).encode())
    room = snapshot_service.MAX_OFFER_BYTES - len(b"block" + b"certificate") - manifest
    bare = len(encode(receipts_of(newest, bytes(2**16)))) - 2**16
    for size, is_offered in ((room, True), (room + 1, False), (MAX_MESSAGE_BYTES, False)):
        offer = read_snapshot(store, archive({newest: bytes(size - bare)}), SnapshotRequest(), SNAPSHOT_INTERVAL)
        assert offer is None or isinstance(offer, SnapshotOffer)
        assert (offer is not None and len(offer.receipts) == size) is is_offered
        assert offer is None or len(encode_message(offer)) <= MAX_MESSAGE_BYTES
