"""What a validator gives to one that joins by a snapshot: an offer, and the chunks of what it has offered."""

from __future__ import annotations

from typing import Final

from validator.archive import BlockArchive
from validator.messages import ChunkRequest, ChunkResponse, SnapshotOffer, SnapshotRequest
from validator.state import HistoryError, LogStateStore
from validator.types import Height

SNAPSHOT_INTERVAL: Final = 8
"""Snapshots are offered of heights that are multiples of this, so that many peers have the same one."""


def read_snapshot(
    store: LogStateStore, archive: BlockArchive, request: SnapshotRequest | ChunkRequest
) -> SnapshotOffer | ChunkResponse | None:
    """The answer to a joining validator, or ``None`` where there is nothing to give."""
    if isinstance(request, ChunkRequest):
        return _chunk(store, request)
    for height in _offered(store):
        archived = archive.get(height)
        if archived is not None and archived.certificate:
            manifest = store.manifest(Height(height)).encode()
            return SnapshotOffer(archived.block, archived.receipts, archived.certificate, manifest)
    return None


def _offered(store: LogStateStore) -> range:
    """Heights that may be offered, the newest first: none below the middle of what is retained, which goes soon."""
    newest = store.final.height - store.final.height % SNAPSHOT_INTERVAL
    oldest = (store.first_height + store.final.height) // 2
    return range(newest, max(oldest - 1, 0), -SNAPSHOT_INTERVAL)


def _chunk(store: LogStateStore, request: ChunkRequest) -> ChunkResponse | None:
    """A chunk of what may have been offered, for as long as it is retained: each height costs something to look up."""
    if not request.height or request.height % SNAPSHOT_INTERVAL:
        return None
    try:
        return ChunkResponse(request.height, request.chunk, store.chunk(request.chunk, Height(request.height)))
    except (HistoryError, IndexError):
        return None
