"""Messages between validators, and their wire form: gossiped transactions, blocks, snapshots and views.

Every message is sent in one envelope, in canonical MessagePack: ``[tag, …fields]``. A message of the consensus engine
is carried inside a :class:`ConsensusMessage`, in the engine's encoding.
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
    """Carries a message of the consensus engine, in the engine's encoding."""

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
    """Requests at most ``most`` final blocks from height ``first`` on."""

    first: int
    most: int


class FinalBlocksResponse(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The response to a :class:`FinalBlocksRequest`: consecutive final blocks, and the proof that they are final.

    ``links`` are the headers after the last block, up to a block with a finalization. ``certificate`` is that
    finalization.
    """

    bodies: tuple[bytes, ...]
    links: tuple[Header, ...]
    certificate: bytes


class BlocksPruned(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """The requested final blocks were pruned; the sender's oldest block is at this height."""

    begins_at: int


class SnapshotRequest(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Requests the offer of a peer's snapshot of the state, a :class:`SnapshotOffer`."""


class SnapshotOffer(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Offers the snapshot of a final block's state: the block, the proof that it is final, and the manifest.

    ``links`` and ``certificate`` are the proof (:mod:`validator.storage.finality_proof`).
    """

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
    """The response to a :class:`ChunkRequest`: one piece of a chunk (:mod:`validator.node.snapshot_join`).

    Every piece except the last one has :data:`MAX_PIECE_BYTES`.
    """

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
    """Nonce of the joining validator's present attempt. Responses to an earlier attempt do not count."""


class ViewReport(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """The response to a :class:`ViewRequest`: the certificate that opened the sender's current view.

    It is empty in the first view, which no certificate opens.
    """

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
"""First byte of every envelope: a MessagePack array of one item. The item is the message; its first two bytes are its
length and its tag."""
_JOIN_TAGS: Final = frozenset((b"\x08", b"\x0a", b"\x0c"))
"""Tags of snapshot offers, chunk responses and view reports."""


def encode_message(message: PeerMessage) -> bytes:
    """The wire form of a message."""
    return encode(_Envelope(message))


def decode_message(payload: bytes) -> PeerMessage:
    """Decode a message from its wire form. Raises :class:`~validator.primitives.codec.CodecError`."""
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
"""The result of :func:`read_message`: a peer message, or a decoded message of the consensus engine."""


def read_message(payload: bytes) -> Reading:
    """Decode a payload, including a consensus message in it. Raises :class:`~validator.primitives.codec.CodecError`."""
    message = decode_message(payload)
    if not isinstance(message, ConsensusMessage):
        return message
    try:
        return decode_consensus(message.payload)
    except MessageError as error:
        raise CodecError(str(error)) from None
