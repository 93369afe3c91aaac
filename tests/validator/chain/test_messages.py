"""Messages between validators: every shape comes back, nothing else decodes."""

from __future__ import annotations

from contextlib import suppress

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validator.chain.messages import (
    MAX_MESSAGE_BYTES,
    BlockRequest,
    BlockResponse,
    BlocksPruned,
    ChunkRequest,
    ChunkResponse,
    ConsensusMessage,
    FinalBlocksRequest,
    FinalBlocksResponse,
    PeerMessage,
    SnapshotOffer,
    SnapshotRequest,
    TransactionsMessage,
    ViewReport,
    ViewRequest,
    decode_message,
    encode_message,
    may_answer_join,
)
from validator.primitives.codec import CodecError

MESSAGES: list[tuple[PeerMessage, list[object]]] = [
    (ConsensusMessage(b"vote"), [1, b"vote"]),
    (TransactionsMessage((b"one", b"")), [2, [b"one", b""]]),
    (BlockRequest(b"digest"), [3, b"digest"]),
    (BlockResponse(b"body"), [4, b"body"]),
    (FinalBlocksRequest(2**64 - 1, 5), [5, 2**64 - 1, 5]),
    (FinalBlocksResponse((b"a", b"b"), (), b"certificate"), [6, [b"a", b"b"], [], b"certificate"]),
    (BlocksPruned(2**64 - 1), [13, 2**64 - 1]),
    (ChunkRequest(8, 2, 5), [9, 8, 2, 5]),
    (ChunkResponse(8, 2, b"data", 5, 9), [10, 8, 2, b"data", 5, 9]),
]


@pytest.mark.parametrize(("message", "plain"), MESSAGES)
def test_a_message_is_an_array_of_its_tag_and_fields(message: PeerMessage, plain: list[object]) -> None:
    assert encode_message(message) == msgpack.packb([plain])
    assert decode_message(encode_message(message)) == message


@pytest.mark.parametrize(
    "plain", [[], [[]], [[0, b""]], [[7, b""]], [[1]], [[1, b"", b""]], [[1, "text"]], [1, b""], [[9, 8, 2]], None]
)
def test_other_shapes_are_refused(plain: object) -> None:
    with pytest.raises(CodecError):
        decode_message(msgpack.packb(plain))


def test_what_a_join_looks_at_is_told_by_its_beginning() -> None:
    looked_at: list[PeerMessage]
    looked_at = [SnapshotOffer(b"a", b"b", (), b"c", b"d"), ChunkResponse(8, 2, b"", 0, 0), ViewReport(b"", b"")]
    assert all(may_answer_join(encode_message(message)) for message in looked_at)
    others = [message for message, _ in MESSAGES if not isinstance(message, ChunkResponse)]
    assert not any(
        may_answer_join(encode_message(message)) for message in (*others, SnapshotRequest(), ViewRequest(b""))
    )
    assert not any(may_answer_join(noise) for noise in (b"", b"\x91", b"\x91\x92", b"noise"))


def test_size_is_bounded() -> None:
    room = MAX_MESSAGE_BYTES - 8
    assert decode_message(encode_message(BlockResponse(bytes(room)))) == BlockResponse(bytes(room))
    with pytest.raises(CodecError, match="expected at most"):
        decode_message(encode_message(BlockResponse(bytes(room + 1))))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.binary(max_size=30).map(lambda tail: b"\x91" + tail))
def test_whatever_comes_decodes_to_itself_or_not_at_all(data: bytes) -> None:
    with suppress(CodecError):
        assert encode_message(decode_message(data)) == data
