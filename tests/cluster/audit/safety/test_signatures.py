"""A scheme that remembers signatures answers as the scheme itself, and asks it once."""

from __future__ import annotations

from dataclasses import replace

from cluster.audit.safety.signatures import REMEMBERED_SIGNATURES, remembering
from consensus.keys import Ed25519Scheme, ValidatorSet
from consensus.types import PublicKey, Signature

SEED = bytes(32)


class Counting(Ed25519Scheme):
    """Counts how often it verifies."""

    def __init__(self) -> None:
        self.verified = 0

    def verify(self, public_key: PublicKey, message: bytes, signature: Signature) -> bool:
        self.verified += 1
        return super().verify(public_key, message, signature)


def test_it_answers_as_the_scheme_and_asks_it_once() -> None:
    scheme = Counting()
    signer = scheme.signer(SEED)
    validators = ValidatorSet((signer.public_key,), scheme)
    remembered = remembering(validators)
    assert replace(remembered, scheme=scheme) == validators
    assert remembered.scheme.name == scheme.name
    assert remembered.scheme.signer(SEED).public_key == signer.public_key
    signature = signer.sign(b"vote")
    asked = [(b"vote", signature), (b"veto", signature), (b"vote", Signature(bytes(64)))]
    for _ in range(3):
        verified = [remembered.scheme.verify(signer.public_key, *each) for each in asked]
        assert verified == [True, False, False]
    assert scheme.verified == len(asked)


def test_old_signatures_are_forgotten() -> None:
    scheme = Counting()
    signer = scheme.signer(SEED)
    verify = remembering(ValidatorSet((signer.public_key,), scheme)).scheme.verify
    signature = signer.sign(b"vote")
    for number in range(REMEMBERED_SIGNATURES + 1):
        verify(signer.public_key, number.to_bytes(4, "big"), signature)
    verify(signer.public_key, bytes(4), signature)
    assert scheme.verified == REMEMBERED_SIGNATURES + 2
