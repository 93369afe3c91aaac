"""What proves a block final: its own certificate, or links to one that has one."""

from __future__ import annotations

import msgspec
import pytest

from cluster.disks.memory import MemoryDisk
from consensus.keys import Ed25519Scheme, ValidatorSet
from consensus.messages import Certificate, VoteKind, encode, vote_signing_bytes
from consensus.types import Digest, ValidatorIndex, View
from validator.chain.block import Block, BlockReceipts, Header, header_hash
from validator.primitives.codec import encode as encode_record
from validator.storage import finality_proof as finality
from validator.storage.archive import ArchivedBlock, BlockArchive
from validator.storage.finality_proof import find_proof, is_proved

NAMESPACE = b"finality"
HEIGHTS = 6


@pytest.fixture(scope="module")
def headers() -> list[Header]:
    """A chain of headers, from height 1 on."""
    found: list[Header] = []
    parent = bytes(32)
    for height in range(1, HEIGHTS + 1):
        nothing = bytes(32)
        header = Header("c", height, height, parent, 0, nothing, nothing, nothing, b"", b"", b"", 0, 0, 0, 0)
        found.append(header)
        parent = header_hash(header)
    return found


def archive(headers: list[Header], certified: dict[int, bytes]) -> BlockArchive:
    found = BlockArchive(MemoryDisk())
    for header in headers:
        receipts = BlockReceipts(header.height, b"", (), (), (), (), (), 0, b"")
        certificate = certified.get(header.height, b"")
        found.append(
            ArchivedBlock(encode_record(Block(header, ())), encode_record(receipts), certificate, b""), receipts
        )
    return found


def test_a_proof_leads_to_the_next_certificate(headers: list[Header]) -> None:
    kept = archive(headers, {2: b"two", 5: b"five"})
    assert find_proof(kept, 2) == ((), b"two")
    assert find_proof(kept, 1) == ((headers[1],), b"two")
    assert find_proof(kept, 3) == ((headers[3], headers[4]), b"five")
    assert find_proof(kept, 6) is None, "no certificate is above it"
    assert find_proof(kept, 7) is None, "there is no such block"


def test_a_proof_has_so_many_links_at_most(headers: list[Header], monkeypatch: pytest.MonkeyPatch) -> None:
    kept = archive(headers, {5: b"five"})
    monkeypatch.setattr(finality, "MAX_LINKS", 3)
    assert find_proof(kept, 1) is None
    assert find_proof(kept, 2) is not None


def test_what_does_not_hang_together_or_is_not_certified_proves_nothing(headers: list[Header]) -> None:
    scheme = Ed25519Scheme()
    signers = [scheme.signer(bytes([number]) * 32) for number in range(4)]
    validators = ValidatorSet(tuple(signer.public_key for signer in signers), scheme)
    last = headers[3]
    digest, view = Digest(header_hash(last)), View(last.view)
    signed = vote_signing_bytes(NAMESPACE, VoteKind.FINALIZE, view, View(0), digest)
    signatures = {ValidatorIndex(number): signers[number].sign(signed) for number in range(3)}
    certificate = encode(Certificate.of(VoteKind.FINALIZE, view, View(0), digest, signatures))
    assert is_proved(headers[:4], certificate, validators, NAMESPACE)
    assert is_proved([last], certificate, validators, NAMESPACE)
    other = msgspec.structs.replace(headers[1], user_cycles=1)
    for wrong in (headers[:3], headers[:5], [headers[0], *headers[2:4]], [headers[0], other, *headers[2:4]]):
        assert not is_proved(wrong, certificate, validators, NAMESPACE)
    assert not is_proved(headers[:4], certificate[:-1], validators, NAMESPACE)
