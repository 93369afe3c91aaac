"""Signing keys, signature verification and the validator set.

One library does all signatures of consensus (PyNaCl, measured fastest): Ed25519 libraries differ in edge cases, and
validators that disagree about a signature can disagree about a block. :class:`KeyedHashScheme` is a fast stand-in for
simulations, where forging is modelled as a fault instead of being computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from blake3 import blake3
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from consensus.types import PublicKey, Signature, ValidatorIndex, fault_bound, quorum


class Signer(Protocol):
    """Signs for one key."""

    @property
    def public_key(self) -> PublicKey:
        """The verification key, 32 bytes."""

    def sign(self, message: bytes) -> Signature:
        """Signature over ``message``, 64 bytes."""


class SignatureScheme(Protocol):
    """How signatures are made from 32-byte seeds, and checked."""

    name: str

    def signer(self, seed: bytes) -> Signer:
        """The signer whose secret is ``seed`` (32 bytes)."""

    def verify(self, public_key: PublicKey, message: bytes, signature: Signature) -> bool:
        """Whether ``signature`` over ``message`` was made by ``public_key``."""


@dataclass(frozen=True, slots=True)
class _Ed25519Signer:
    _key: SigningKey

    @property
    def public_key(self) -> PublicKey:
        return PublicKey(bytes(self._key.verify_key))

    def sign(self, message: bytes) -> Signature:
        return Signature(self._key.sign(message).signature)


class Ed25519Scheme:
    """RFC 8032 signatures by libsodium."""

    name = "ed25519"

    def signer(self, seed: bytes) -> Signer:
        return _Ed25519Signer(SigningKey(seed))

    def verify(self, public_key: PublicKey, message: bytes, signature: Signature) -> bool:
        try:
            VerifyKey(public_key).verify(message, signature)
        except (BadSignatureError, ValueError, TypeError):
            return False
        return True


@dataclass(frozen=True, slots=True)
class _KeyedHashSigner:
    public_key: PublicKey

    def sign(self, message: bytes) -> Signature:
        return Signature(blake3(message, key=self.public_key).digest(length=64))


class KeyedHashScheme:
    """A keyed hash in a signature's place. Anyone can forge it: for simulations only."""

    name = "keyed-hash"

    def signer(self, seed: bytes) -> Signer:
        public_key = blake3(seed, derive_key_context="stampede keyed-hash public key v1").digest()
        return _KeyedHashSigner(PublicKey(public_key))

    def verify(self, public_key: PublicKey, message: bytes, signature: Signature) -> bool:
        return len(public_key) == 32 and blake3(message, key=public_key).digest(length=64) == signature


@dataclass(frozen=True)
class ValidatorSet:
    """The validators of a chain, in index order, with the scheme that their keys belong to."""

    public_keys: tuple[PublicKey, ...]
    scheme: SignatureScheme = field(default_factory=Ed25519Scheme)

    def __len__(self) -> int:
        return len(self.public_keys)

    @property
    def quorum(self) -> int:
        """Votes that make a certificate."""
        return quorum(len(self.public_keys))

    @property
    def faults_withstood(self) -> int:
        return fault_bound(len(self.public_keys))

    def indices(self) -> Sequence[ValidatorIndex]:
        return [ValidatorIndex(i) for i in range(len(self.public_keys))]

    def verify(self, signer: ValidatorIndex, message: bytes, signature: Signature) -> bool:
        """Whether ``signature`` is ``signer``'s over ``message``; an unknown signer is ``False``."""
        if not 0 <= signer < len(self.public_keys):
            return False
        return self.scheme.verify(self.public_keys[signer], message, signature)
