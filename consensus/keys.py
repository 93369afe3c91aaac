"""Signing keys, signature verification and the validator set.

All consensus signatures use one library (PyNaCl, measured as the fastest): Ed25519 libraries differ in edge cases, and
validators that disagree about a signature can disagree about a block. :class:`KeyedHashScheme` is a fast stand-in for
simulations, where forging is modelled as a fault instead of being computed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Final, Protocol

from blake3 import blake3
from nacl.bindings import crypto_core_ed25519_is_valid_point, crypto_sign_open
from nacl.bindings import crypto_sign_BYTES as SIGNATURE_BYTES
from nacl.bindings import crypto_sign_PUBLICKEYBYTES as PUBLIC_KEY_BYTES
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey

from consensus.types import (
    FIRST_VIEW,
    GENESIS_VIEW,
    ConsensusError,
    PublicKey,
    Signature,
    ValidatorIndex,
    View,
    fault_bound,
    quorum,
)


class Signer(Protocol):
    """A private key: signs messages that its public key verifies."""

    @property
    def public_key(self) -> PublicKey:
        """The verification key, 32 bytes."""

    def sign(self, message: bytes) -> Signature:
        """Signature over ``message``, 64 bytes."""


class SignatureScheme(Protocol):
    """Makes signatures from 32-byte seeds, and verifies them."""

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


def is_public_key(data: bytes) -> bool:
    """Whether 32 bytes are an Ed25519 public key that a secret can have: a point of the curve's main subgroup, in
    canonical form, other than the neutral one. Signatures of any other key mean nothing, or are refused."""
    return len(data) == PUBLIC_KEY_BYTES and bool(crypto_core_ed25519_is_valid_point(data))


class Ed25519Scheme:
    """RFC 8032 signatures with libsodium."""

    name = "ed25519"

    def signer(self, seed: bytes) -> Signer:
        return _Ed25519Signer(SigningKey(seed))

    def verify(self, public_key: PublicKey, message: bytes, signature: Signature) -> bool:
        if len(public_key) != PUBLIC_KEY_BYTES or len(signature) != SIGNATURE_BYTES:
            return False
        try:
            crypto_sign_open(signature + message, public_key)
        except BadSignatureError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class _KeyedHashSigner:
    public_key: PublicKey

    def sign(self, message: bytes) -> Signature:
        return Signature(blake3(message, key=self.public_key).digest(length=64))


class KeyedHashScheme:
    """A keyed hash instead of a signature. Anyone can forge it: for simulations only."""

    name = "keyed-hash"

    def signer(self, seed: bytes) -> Signer:
        public_key = blake3(seed, derive_key_context="stampede keyed-hash public key v1").digest()
        return _KeyedHashSigner(PublicKey(public_key))

    def verify(self, public_key: PublicKey, message: bytes, signature: Signature) -> bool:
        return len(public_key) == 32 and blake3(message, key=public_key).digest(length=64) == signature


SCHEMES: Final[dict[str, type[Ed25519Scheme] | type[KeyedHashScheme]]] = {
    scheme.name: scheme for scheme in (Ed25519Scheme, KeyedHashScheme)
}
"""Signature schemes by name."""


@dataclass(frozen=True)
class Committee:
    """The validators that vote and lead in the views of one epoch."""

    first_view: View
    members: tuple[ValidatorIndex, ...]
    """Validator indices, strictly ascending."""

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, index: int) -> bool:
        return index in self.member_set

    @cached_property
    def member_set(self) -> frozenset[int]:
        """The indices as a set, made once."""
        return frozenset(self.members)

    @property
    def quorum(self) -> int:
        """Number of votes that make a certificate."""
        return self._quorum

    @cached_property
    def _quorum(self) -> int:
        return quorum(len(self.members))

    @property
    def faults_withstood(self) -> int:
        return fault_bound(len(self.members))


@dataclass(frozen=True)
class ValidatorSet:
    """All validators that a chain ever has, in index order, with the scheme that their keys belong to.

    A schedule says which of them form the committee of a view: ``epochs`` are committees in the order of their first
    views. Before the first epoch, or without epochs, all validators vote. Raises :class:`ConsensusError` for an invalid
    schedule.
    """

    public_keys: tuple[PublicKey, ...]
    scheme: SignatureScheme = field(default_factory=Ed25519Scheme)
    epochs: tuple[Committee, ...] = ()

    def __post_init__(self) -> None:
        for number, epoch in enumerate(self.epochs):
            _check_epoch(epoch, self.epochs[number - 1].first_view if number else GENESIS_VIEW, len(self.public_keys))

    def __len__(self) -> int:
        return len(self.public_keys)

    @cached_property
    def committees(self) -> tuple[Committee, ...]:
        """All committees, beginning with that of view 1."""
        everybody = Committee(FIRST_VIEW, tuple(self.indices()))
        is_scheduled = bool(self.epochs) and self.epochs[0].first_view == everybody.first_view
        return self.epochs if is_scheduled else (everybody, *self.epochs)

    def committee(self, view: View) -> Committee:
        """The validators that vote and lead in a view."""
        committees = self.committees
        if len(committees) == 1:
            return committees[0]
        return committees[max(bisect_right(self._first_views, view) - 1, 0)]

    @cached_property
    def _first_views(self) -> list[View]:
        return [committee.first_view for committee in self.committees]

    def indices(self) -> Sequence[ValidatorIndex]:
        return [ValidatorIndex(i) for i in range(len(self.public_keys))]

    def verify(self, signer: ValidatorIndex, message: bytes, signature: Signature) -> bool:
        """Whether ``signature`` is ``signer``'s over ``message``; ``False`` for an unknown signer."""
        if not 0 <= signer < len(self.public_keys):
            return False
        return self.scheme.verify(self.public_keys[signer], message, signature)


def _check_epoch(epoch: Committee, after: View, validators: int) -> None:
    if epoch.first_view <= after:
        raise ConsensusError(f"an epoch begins with view {epoch.first_view}, which is not above {after}")
    members = epoch.members
    if not members or any(left >= right for left, right in pairwise(members)):
        raise ConsensusError(f"the committee from view {epoch.first_view} on is empty, or not in ascending order")
    if members[0] < 0 or members[-1] >= validators:
        raise ConsensusError(f"the committee from view {epoch.first_view} on has members outside the {validators}")
