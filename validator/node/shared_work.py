"""Work that a driver does once for all validators of a process: reading payloads, and checking signatures.

What is read is frozen throughout, and a function of the bytes alone: it is handed to each recipient with the bytes
(:class:`validator.node.events.Message`), and whether to believe it is for each of them to find out. What was read is
remembered up to a bound in bytes, the oldest forgotten first: a broadcast reaches everybody soon after it was sent, or
is read again.

The same signatures stand in everybody's votes and certificates, and checking one is the dearest thing that consensus
does. A check is a function of key, message and signature: what was found good of exactly these three, for whomever, is
not computed again. Which signatures they need, when, and over what message, is for the validators to say, and what was
not found good is checked each time that somebody asks.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from consensus.keys import SignatureScheme, Signer
from consensus.types import PublicKey, Signature
from validator.chain.messages import Reading, read_message
from validator.primitives.codec import CodecError

REMEMBERED_BYTES: Final = 32 << 20
"""Payload bytes of which it is remembered what they say; decoded they take some five times as much."""
REMEMBERED_SIGNATURES: Final = 1 << 15
"""Those of 4,000 blocks of four validators, of 32 blocks of five hundred."""


class SharedReader:
    """One driver's; its validators do not hold it."""

    def __init__(self, remembered_bytes: int = REMEMBERED_BYTES) -> None:
        self._most = remembered_bytes
        self._read: OrderedDict[bytes, Reading] = OrderedDict()
        self._bytes = 0

    def read(self, payload: bytes) -> Reading | None:
        """The message in a payload; ``None`` if it cannot be read, for the recipient to find out."""
        known = self._read.get(payload)
        if known is not None:
            return known
        try:
            known = self._read[payload] = read_message(payload)
        except CodecError:
            return None
        self._bytes += len(payload)
        while self._bytes > self._most:
            self._bytes -= len(self._read.popitem(last=False)[0])
        return known


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
