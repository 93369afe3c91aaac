"""Work that a driver does once for all validators of a process: decoding payloads and verifying signatures.

A decoded message is immutable and a function of the bytes. Each recipient gets it with the bytes
(:class:`validator.node.events.Message`), and verifies it itself. Decoded messages are cached up to a bound in bytes,
the oldest dropped first: a broadcast reaches all recipients soon after it was sent, or is decoded again.

The same signatures are in the votes and certificates of all validators, and verification is the most expensive
operation of consensus. It is a function of key, message and signature: a combination that was valid for one validator
is not computed again for another. Each validator decides which signatures it needs, when, and over which message. A
combination that was not valid is computed each time.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from consensus.keys import SignatureScheme, Signer
from consensus.types import PublicKey, Signature
from validator.chain.messages import Reading, read_message
from validator.primitives.codec import CodecError

REMEMBERED_BYTES: Final = 32 << 20
"""Size of the payloads whose decoded messages are cached, in bytes; decoded they take about five times as much."""
REMEMBERED_SIGNATURES: Final = 1 << 15
"""Number of cached signatures: those of 4,000 blocks of four validators, or of 32 blocks of five hundred."""


class SharedReader:
    """Decodes and caches messages for all validators of one driver. The driver calls it, not the validators."""

    def __init__(self, remembered_bytes: int = REMEMBERED_BYTES) -> None:
        self._most = remembered_bytes
        self._read: OrderedDict[bytes, Reading] = OrderedDict()
        self._bytes = 0

    def read(self, payload: bytes) -> Reading | None:
        """The message in a payload; ``None`` if it cannot be decoded. The recipient then finds that out itself."""
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
    """A signature scheme that caches recently verified signatures, the oldest dropped first."""

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
