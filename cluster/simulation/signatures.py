"""Checks each signature once for a whole simulated network.

The same signatures stand in everybody's votes and certificates, and checking one is the dearest thing that consensus
does. A check is a function of key, message and signature: what was found good of exactly these three, for whomever, is
not computed again. Which signatures they need, when, and over what message, is for the validators to say, and what was
not found good is checked each time that somebody asks.
"""

from __future__ import annotations

from typing import Final

from consensus.keys import SignatureScheme, Signer
from consensus.types import PublicKey, Signature

REMEMBERED_SIGNATURES: Final = 1 << 15
"""Those of 4,000 blocks of four validators, of 32 blocks of five hundred."""


class RememberingScheme:
    """A scheme that remembers which signatures were good lately, the oldest forgotten first."""

    def __init__(self, scheme: SignatureScheme) -> None:
        self.name = scheme.name
        self._scheme = scheme
        self._good: dict[tuple[PublicKey, bytes, Signature], None] = {}

    def signer(self, seed: bytes) -> Signer:
        """The signer whose secret is ``seed`` (32 bytes)."""
        return self._scheme.signer(seed)

    def verify(self, public_key: PublicKey, message: bytes, signature: Signature) -> bool:
        """Whether ``signature`` over ``message`` was made by ``public_key``."""
        asked = (public_key, message, signature)
        if asked in self._good:
            return True
        is_good = self._scheme.verify(public_key, message, signature)
        if is_good:
            self._good[asked] = None
            if len(self._good) > REMEMBERED_SIGNATURES:
                del self._good[next(iter(self._good))]
        return is_good
