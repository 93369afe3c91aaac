"""Behaviours that offer a joining validator false snapshots, which do not match the state root.

- ``false-snapshots``: chunks with one wrong bit; the manifest is the true one.
- ``false-manifest``: another state, in which an account has another balance. The manifest matches the chunk with the
  account, but not the state root of the block that is offered with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec

from cluster.misbehaviour.byzantine.base import (
    Behaviour,
    BehaviourContext,
    peer_message,
    send_peer_message,
)
from validator.chain.block import decode_block
from validator.chain.messages import ChunkRequest, ChunkResponse, SnapshotOffer
from validator.chain.records import ACCOUNT
from validator.node.events import Completed, Effect, Event, Run, Send, Started
from validator.node.executor.jobs import ReadSnapshot, SnapshotRead
from validator.primitives.types import Hash, Height
from validator.state.hashing import BITMAP_BYTES, TWIG_ENTRIES, TWIG_LEVELS, decode_entry, twig_hash
from validator.state.snapshot import Manifest, SnapshotError, known_nodes, tree_of

FIRST_CHUNK: Final = 0


class FalseSnapshots(Behaviour):
    name = "false-snapshots"
    description = "gives chunks of snapshots in which one bit is wrong"

    def send(self, send: Send) -> list[Effect]:
        chunk = peer_message(send.payload)
        if not isinstance(chunk, ChunkResponse) or not chunk.data:
            return [send]
        data, random = bytearray(chunk.data), self.context.random
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        self.count_effect()
        return [send_peer_message(send.recipient, msgspec.structs.replace(chunk, data=bytes(data)))]


class FalseManifest(Behaviour):
    """Offers snapshots of a false state, made from the true snapshot's first chunk, which a separate job reads."""

    name = "false-manifest"
    description = "offers snapshots of another state than the block's, and gives their chunks"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._offers: dict[int, tuple[SnapshotOffer, Height, Hash]] = {}
        """The offers held back until the first chunk is read, keyed by peer; each with its block's height and state
        root."""
        self._chunk: tuple[int, bytes] = (0, b"")
        """The height of the snapshot offered last, and its false first chunk."""

    def send(self, send: Send) -> list[Effect]:
        message, peer = peer_message(send.payload), send.recipient
        if isinstance(message, SnapshotOffer) and peer is not None:
            block = decode_block(message.body)
            if block is None:
                return [send]  # another behaviour has made something else of it
            height = Height(block.header.height)
            self._offers[peer] = (message, height, Hash(block.header.state_root))
            return [Run(ReadSnapshot(self.context.index, ChunkRequest(height, FIRST_CHUNK)))]
        if isinstance(message, ChunkResponse) and (message.height, message.chunk) == (self._chunk[0], FIRST_CHUNK):
            piece = self._chunk[1][message.offset : message.offset + len(message.data)]
            return [send_peer_message(peer, msgspec.structs.replace(message, data=piece))]
        return [send]

    def swallows(self, event: Event) -> bool:
        if isinstance(event, Started):
            self._offers.clear()
        return _is_read_for(event, self.context.index)

    def react(self, event: Event) -> list[Effect]:
        if not isinstance(event, Completed) or not _is_read_for(event, self.context.index):
            return []
        assert isinstance(event.result, SnapshotRead)
        offers, self._offers = self._offers, {}
        chunk = event.result.response
        return [send_peer_message(peer, self._false(*offer, chunk)) for peer, offer in sorted(offers.items())]

    def _false(self, offer: SnapshotOffer, height: Height, root: Hash, chunk: object) -> SnapshotOffer:
        """The offer of a false state, made from a true offer and its first chunk. Returns the true offer if the chunk
        is gone, does not come in one piece or has no account, or if another behaviour has changed the manifest."""
        if not isinstance(chunk, ChunkResponse) or chunk.height != height or len(chunk.data) != chunk.total:
            return offer
        try:
            manifest = Manifest.decode(offer.manifest, height, root)
        except SnapshotError:
            return offer
        false = _with_another_amount(manifest, chunk.data)
        if false is None:
            return offer
        self._chunk = (height, false)
        manifest = replace(manifest, twig_roots=(_root_of_first_twig(manifest, false), *manifest.twig_roots[1:]))
        self.count_effect()
        return msgspec.structs.replace(offer, manifest=manifest.encode())


def _is_read_for(event: Event, index: int) -> bool:
    """Whether an event is the result of a read job of the behaviour. A validator itself only reads for its peers."""
    return isinstance(event, Completed) and isinstance(event.result, SnapshotRead) and event.result.peer == index


def _root_of_first_twig(manifest: Manifest, chunk: bytes) -> bytes:
    """The root of the twig that the first chunk begins with."""
    nodes, _ = known_nodes(manifest, FIRST_CHUNK, chunk)[manifest.first_twig]
    entries = min(manifest.next_position - manifest.first_twig * TWIG_ENTRIES, TWIG_ENTRIES)
    return twig_hash(tree_of(nodes, entries)[TWIG_LEVELS][0], chunk[:BITMAP_BYTES])


def _with_another_amount(manifest: Manifest, chunk: bytes) -> bytes | None:
    """The chunk with another balance in an account of its first twig; ``None`` if the twig has no account."""
    _, entries = known_nodes(manifest, FIRST_CHUNK, chunk)[manifest.first_twig]
    for _, encoded in sorted(entries.items()):
        if decode_entry(encoded).key[:1] == ACCOUNT:
            at = chunk.index(encoded) + len(encoded) - 1
            return chunk[:at] + bytes([chunk[at] ^ 1]) + chunk[at + 1 :]
    return None
