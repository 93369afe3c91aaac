"""Signatures in a simulated network: checked by every validator itself, and by whoever watches only once.

The same signatures stand in everybody's votes and certificates, and checking one is the dearest thing that consensus
does. Validators check each of those that they need, whatever others found. Whoever watches them relies on what was
found good of exactly the same key, message and signature, be it by a validator: a check is a function of these three.
"""

from __future__ import annotations

from typing import Final

from consensus.keys import SignatureScheme, Signer
from consensus.types import PublicKey, Signature

REMEMBERED_SIGNATURES: Final = 1 << 15

Known = dict[tuple[PublicKey, bytes, Signature], None]
"""Good signatures, in the order in which they were checked."""


class WitnessedScheme:
    """A scheme that checks whatever it is asked to, and leaves what is good for observers to know."""

    def __init__(self, scheme: SignatureScheme) -> None:
        self.name = scheme.name
        self.good: Known = {}
        self._scheme = scheme

    def signer(self, seed: bytes) -> Signer:
        """The signer whose secret is ``seed`` (32 bytes)."""
        return self._scheme.signer(seed)

    def verify(self, public_key: PublicKey, message: bytes, signature: Signature) -> bool:
        """Whether ``signature`` over ``message`` was made by ``public_key``."""
        is_good = self._scheme.verify(public_key, message, signature)
        if is_good:
            self.good[public_key, message, signature] = None
            if len(self.good) > REMEMBERED_SIGNATURES:
                del self.good[next(iter(self.good))]
        return is_good


class RememberingScheme:
    """A scheme that does not check again what was found good lately, by itself or by those whom it observes. Whoever
    takes part in the protocol checks for itself."""

    def __init__(self, scheme: SignatureScheme) -> None:
        self._witness = scheme if isinstance(scheme, WitnessedScheme) else WitnessedScheme(scheme)
        self.name = scheme.name

    def signer(self, seed: bytes) -> Signer:
        """The signer whose secret is ``seed`` (32 bytes)."""
        return self._witness.signer(seed)

    def verify(self, public_key: PublicKey, message: bytes, signature: Signature) -> bool:
        """Whether ``signature`` over ``message`` was made by ``public_key``."""
        known = (public_key, message, signature) in self._witness.good
        return known or self._witness.verify(public_key, message, signature)
