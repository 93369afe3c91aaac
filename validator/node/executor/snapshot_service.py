"""Snapshots for joining validators: an offer, and the chunks of the offered snapshot."""

from __future__ import annotations

from typing import Final

from validator.chain.messages import (
    MAX_CHUNK_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_PIECE_BYTES,
    ChunkRequest,
    ChunkResponse,
    SnapshotOffer,
    SnapshotRequest,
)
from validator.primitives.codec import encode
from validator.primitives.types import Height
from validator.state import HistoryError, LogStateStore
from validator.storage.archive import BlockArchive
from validator.storage.finality_proof import find_proof

MAX_OFFER_BYTES: Final = MAX_MESSAGE_BYTES - 64
"""Size limit of an offer's content; the rest of a message is its framing."""


def read_snapshot(
    store: LogStateStore, archive: BlockArchive, request: SnapshotRequest | ChunkRequest, interval: int
) -> SnapshotOffer | ChunkResponse | None:
    """The answer to a joining validator's request for an offer or a chunk; ``None`` if there is none.

    ``interval``: snapshots are offered at multiples of this height.
    """
    if isinstance(request, ChunkRequest):
        return _chunk(store, request, interval)
    for height in _offered(store, interval):
        archived, proof = archive.get(height), find_proof(archive, height)
        if archived is None or proof is None:
            continue
        proved = sum(len(encode(link)) for link in proof.links) + len(proof.certificate)
        room = MAX_OFFER_BYTES - len(archived.block) - len(archived.receipts) - proved
        if room < 0:
            continue  # another block may have shorter receipts
        manifest = store.manifest(Height(height)).encode()
        if len(manifest) <= room:
            return SnapshotOffer(archived.block, archived.receipts, proof.links, proof.certificate, manifest)
    return None


def _offered(store: LogStateStore, interval: int) -> range:
    """Heights whose snapshots may be offered, newest first.

    The older half of the retained heights is left out, since these are dropped soon.
    """
    newest = store.final.height - store.final.height % interval
    oldest = (store.first_height + store.final.height) // 2
    return range(newest, max(oldest - 1, 0), -interval)


def _chunk(store: LogStateStore, request: ChunkRequest, interval: int) -> ChunkResponse | None:
    """The piece of a chunk that begins where the request says.

    ``None`` for heights that cannot have been offered, since each height costs a lookup, and for invalid requests.
    """
    if not request.height or request.height % interval:
        return None
    try:
        whole = store.chunk(request.chunk, Height(request.height))
    except (HistoryError, IndexError):
        return None
    total, offset = len(whole), request.offset
    if not 0 <= offset < total <= MAX_CHUNK_BYTES:
        return None
    return ChunkResponse(request.height, request.chunk, whole[offset : offset + MAX_PIECE_BYTES], offset, total)
