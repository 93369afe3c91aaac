"""What simulated validators read together is what each would read alone, and no more of it is kept than is allowed."""

from __future__ import annotations

import pytest

from consensus.keys import KeyedHashScheme
from consensus.messages import CertificateRequest
from consensus.messages import encode as encode_consensus
from consensus.types import PublicKey, Signature, View
from validator.chain.messages import BlockRequest, BlockResponse, ConsensusMessage, encode_message, read_message
from validator.node import shared_work
from validator.node.shared_work import RememberingScheme, SharedReader
from validator.primitives.codec import CodecError


def test_a_payload_is_read_once() -> None:
    reader = SharedReader()
    payload = encode_message(ConsensusMessage(encode_consensus(CertificateRequest((View(3),)))))
    assert reader.read(payload) == read_message(payload) == CertificateRequest((View(3),))
    assert reader.read(payload) is reader.read(bytes(bytearray(payload)))


@pytest.mark.parametrize("payload", [b"", b"\xc0", encode_message(ConsensusMessage(b"\xc0"))])
def test_what_cannot_be_read_is_left_to_the_recipient(payload: bytes) -> None:
    reader = SharedReader()
    assert [reader.read(payload), reader.read(payload)] == [None, None]
    with pytest.raises(CodecError):
        read_message(payload)


def test_the_oldest_is_forgotten() -> None:
    payloads = [encode_message(BlockResponse(bytes((number,)) * 100)) for number in range(10)]
    reader = SharedReader(remembered_bytes=3 * len(payloads[0]))
    first = reader.read(payloads[0])
    kept = [reader.read(payload) for payload in payloads[-3:]]
    assert [reader.read(payload) for payload in payloads[-3:]] == kept
    assert all(reader.read(payload) is known for payload, known in zip(payloads[-3:], kept, strict=True))
    assert reader.read(payloads[0]) == first
    assert reader.read(encode_message(BlockRequest(bytes(1_000)))) == BlockRequest(bytes(1_000)), (
        "larger than all together"
    )


class Counting(KeyedHashScheme):
    """Counts what it is asked."""

    asked = 0

    def verify(self, public_key: PublicKey, message: bytes, signature: Signature) -> bool:
        self.asked += 1
        return super().verify(public_key, message, signature)


def test_good_signatures_are_checked_once_and_others_each_time() -> None:
    counting = Counting()
    scheme = RememberingScheme(counting)
    signer = scheme.signer(bytes(32))
    good, bad = signer.sign(b"message"), Signature(bytes(64))
    for _ in range(3):
        assert scheme.verify(signer.public_key, b"message", good)
    assert counting.asked == 1
    another = scheme.signer(bytes(31) + b"1").public_key
    for number in range(3):
        assert not scheme.verify(signer.public_key, b"message", bad)
        assert not scheme.verify(signer.public_key, b"another", good)
        assert not scheme.verify(another, b"message", good)
        assert counting.asked == 1 + 3 * (number + 1)


def test_the_oldest_good_signatures_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_work, "REMEMBERED_SIGNATURES", 2)
    counting = Counting()
    scheme = RememberingScheme(counting)
    signer = scheme.signer(bytes(32))
    for message in (b"1", b"2", b"3", b"3", b"2", b"1"):
        assert scheme.verify(signer.public_key, message, signer.sign(message))
    assert counting.asked == 4, "the first one twice"
