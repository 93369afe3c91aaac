"""Messages between validators other than those of consensus: gossiped transactions, blocks, and snapshots.

One envelope, canonical MessagePack: ``[tag, …fields]``. Consensus messages travel inside it in their own encoding.
"""

from __future__ import annotations

from typing import Final

import msgspec

from consensus.messages import Message as EngineMessage
from consensus.messages import MessageError
from consensus.messages import decode as decode_consensus
from validator.chain.block import Header
from validator.primitives.codec import CodecError, decode, encode

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
MAX_PIECE_BYTES: Final = 4 * 1024 * 1024
"""Size limit of a piece of a snapshot's chunk, in one message."""
MAX_CHUNK_BYTES: Final = 256 * 1024 * 1024
"""Size limit of a snapshot's chunk; a longer one is neither served nor accepted."""
MAX_GOSSIPED_TRANSACTIONS: Final = 1_024
MAX_BLOCKS_ASKED: Final = 64
MAX_NONCE_BYTES: Final = 32


class ConsensusMessage(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A message of the consensus engine."""

    payload: bytes


class TransactionsMessage(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Signed transactions that the sender's mempool took from a client."""

    transactions: tuple[bytes, ...]


class BlockRequest(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Asks for one block that is not final yet, by its digest."""

    digest: bytes


class BlockResponse(msgspec.Struct, frozen=True, array_like=True, tag=4):
    body: bytes


class FinalBlocksRequest(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Asks for final blocks from a height on."""

    first: int
    most: int


class FinalBlocksResponse(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Consecutive final blocks, the headers from the last of them to a finalized block, and its finalization."""

    bodies: tuple[bytes, ...]
    links: tuple[Header, ...]
    certificate: bytes


class BlocksPruned(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """The requested final blocks were pruned; the sender's oldest block is at this height."""

    begins_at: int


class SnapshotRequest(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Asks which snapshot of the state a peer offers."""


class SnapshotOffer(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """A final block, links and certificate that prove its finality (:mod:`validator.storage.finality_proof`), and the
    manifest of its state."""

    body: bytes
    receipts: bytes
    links: tuple[Header, ...]
    certificate: bytes
    manifest: bytes


class ChunkRequest(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Asks for a chunk of the snapshot of a height, from a byte offset on."""

    height: int
    chunk: int
    offset: int = 0


class ChunkResponse(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """A piece of a chunk, :data:`MAX_PIECE_BYTES` long unless it is the last one
    (:mod:`validator.node.joining.pieces`)."""

    height: int
    chunk: int
    data: bytes
    offset: int
    """Offset of the piece in the chunk."""
    total: int
    """Length of the whole chunk."""


class ViewRequest(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Asks a peer for its current view."""

    nonce: bytes
    """Nonce of this join, so that no answer to an earlier join counts."""


class ViewReport(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """The certificate that opened the sender's current view; empty in the first view, which no certificate opened."""

    nonce: bytes
    certificate: bytes


PeerMessage = (
    ConsensusMessage
    | TransactionsMessage
    | BlockRequest
    | BlockResponse
    | FinalBlocksRequest
    | FinalBlocksResponse
    | BlocksPruned
    | SnapshotRequest
    | SnapshotOffer
    | ChunkRequest
    | ChunkResponse
    | ViewRequest
    | ViewReport
)


class _Envelope(msgspec.Struct, frozen=True, array_like=True):
    message: PeerMessage


_ENVELOPE_HEAD: Final = b"\x91"
"""Head of an array of one: the message, which begins with a byte for its length and one for its tag."""
_JOIN_TAGS: Final = frozenset((b"\x08", b"\x0a", b"\x0c"))
"""Tags of snapshot offers, chunk responses and view reports."""


def encode_message(message: PeerMessage) -> bytes:
    """The wire form of a message."""
    return encode(_Envelope(message))


def decode_message(payload: bytes) -> PeerMessage:
    """The message of a wire form. Raises :class:`~validator.primitives.codec.CodecError`."""
    if len(payload) > MAX_MESSAGE_BYTES:
        raise CodecError(f"message of {len(payload)} bytes, expected at most {MAX_MESSAGE_BYTES}")
    return decode(payload, _Envelope).message


def may_answer_join(payload: bytes) -> bool:
    """Whether a payload begins like a message that a joining validator reads. The rest is not read."""
    return payload[:1] == _ENVELOPE_HEAD and payload[2:3] in _JOIN_TAGS


def is_of_consensus(payload: bytes) -> bool:
    """Whether a payload begins like a message of the consensus engine. The rest is not read."""
    return payload[:1] == _ENVELOPE_HEAD and payload[2:3] == b"\x01"


Reading = PeerMessage | EngineMessage
"""The message in a payload; a message of the consensus engine is without its envelope."""


def read_message(payload: bytes) -> Reading:
    """The message of a payload, without envelopes. Raises :class:`~validator.primitives.codec.CodecError`."""
    message = decode_message(payload)
    if not isinstance(message, ConsensusMessage):
        return message
    try:
        return decode_consensus(message.payload)
    except MessageError as error:
        raise CodecError(str(error)) from None
