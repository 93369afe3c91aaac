"""The handshake by which two validators that open a stream prove their identities.

    dialer → listener   ``Hello``     version, chain id, both indices, the dialer's key, a fresh nonce
    listener → dialer   ``Welcome``   the listener's key, a fresh nonce, its signature
    dialer → listener   ``Proof``     the dialer's signature
    listener → dialer   ``Accepted``  from now on the dialer sends messages

Instead of an answer the listener may send ``Refusal`` with a fixed word (:class:`Refused`) and close; a dialer that
does not accept an answer just closes. Both signatures cover the same fields: the signer's role, the version, the chain
id, both nonces, both indices and both keys. So an answer recorded earlier, on another chain, from another peer or in
the other direction proves nothing.

The handshake proves who opened the stream. The bytes after it are neither encrypted nor authenticated: an attacker that
can write into the stream can garble it. Votes and blocks carry their own signatures and hashes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

import msgspec

from consensus.keys import Signer, ValidatorSet
from consensus.types import PublicKey, Signature, ValidatorIndex

VERSION: Final = 1
DOMAIN: Final = "stampede/transport/v1"
NONCE_BYTES: Final = 32
MAX_HANDSHAKE_FRAME_BYTES: Final = 1_024

DIALER: Final = "dialer"
LISTENER: Final = "listener"


class Refused(Exception):
    """A stream is refused; ``reason`` is a short fixed word for counters."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Hello(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    version: int
    chain_id: str
    dialer: int
    listener: int
    dialer_key: bytes
    nonce: bytes


class Welcome(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    listener_key: bytes
    nonce: bytes
    signature: bytes


class Proof(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=3):
    signature: bytes


class Accepted(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=4):
    pass


class Refusal(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=5):
    reason: str


HandshakeMessage = Hello | Welcome | Proof | Accepted | Refusal

REASONS: Final = frozenset(
    {
        "bad_handshake",
        "bad_signature",
        "not_expected",
        "wrong_chain",
        "wrong_key",
        "wrong_validator",
        "wrong_version",
    }
)
"""The reasons of a refusal; any other reason of a peer counts as ``refused``."""

_decoder: Final = msgspec.msgpack.Decoder(HandshakeMessage)


def encode_handshake(message: HandshakeMessage) -> bytes:
    return msgspec.msgpack.encode(message)


def decode_handshake(frame: bytes) -> HandshakeMessage:
    """Decode a frame. Raises :class:`Refused`, also if the message is the peer's refusal."""
    try:
        message = _decoder.decode(frame)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # msgspec raises ValueError for text that is not UTF-8, and RecursionError for deep nesting.
        raise Refused("bad_handshake") from None
    if isinstance(message, Refusal):
        raise Refused(message.reason if message.reason in REASONS else "refused")
    return message


@dataclass(frozen=True, slots=True)
class Identity:
    """Our own identity, and the validators that we know."""

    index: int
    signer: Signer
    validators: ValidatorSet
    chain_id: str


class DialerHandshake:
    """Our side of a stream that we open to ``peer``."""

    def __init__(self, identity: Identity, peer: int, nonce: bytes | None = None) -> None:
        """Without ``nonce`` (32 bytes that were never used before) one is drawn."""
        self._identity = identity
        key, nonce = bytes(identity.signer.public_key), os.urandom(NONCE_BYTES) if nonce is None else nonce
        self.hello = Hello(VERSION, identity.chain_id, identity.index, peer, key, nonce)

    def prove(self, answer: HandshakeMessage) -> Proof:
        """Check the listener's answer; return our proof. Raises :class:`Refused`."""
        hello, peer = self.hello, self.hello.listener
        if not isinstance(answer, Welcome) or len(answer.nonce) != NONCE_BYTES:
            raise Refused("bad_handshake")
        if answer.listener_key != self._identity.validators.public_keys[peer]:
            raise Refused("wrong_key")
        signed = signed_bytes(LISTENER, hello, answer.listener_key, answer.nonce)
        if not self._identity.validators.verify(ValidatorIndex(peer), signed, Signature(answer.signature)):
            raise Refused("bad_signature")
        return Proof(self._identity.signer.sign(signed_bytes(DIALER, hello, answer.listener_key, answer.nonce)))


class ListenerHandshake:
    """Our side of a stream that a peer opens to us."""

    def __init__(self, identity: Identity, nonce: bytes | None = None) -> None:
        """Without ``nonce`` (32 bytes that were never used before) one is drawn."""
        self._identity = identity
        self._hello: Hello | None = None
        self._nonce = os.urandom(NONCE_BYTES) if nonce is None else nonce

    def welcome(self, hello: HandshakeMessage) -> Welcome:
        """Check the dialer's message; return our answer. Raises :class:`Refused`."""
        identity = self._identity
        if not isinstance(hello, Hello) or len(hello.nonce) != NONCE_BYTES:
            raise Refused("bad_handshake")
        if hello.version != VERSION:
            raise Refused("wrong_version")
        if hello.chain_id != identity.chain_id:
            raise Refused("wrong_chain")
        if hello.listener != identity.index:
            raise Refused("wrong_validator")
        if not 0 <= hello.dialer < len(identity.validators) or hello.dialer == identity.index:
            raise Refused("wrong_validator")
        if hello.dialer_key != identity.validators.public_keys[hello.dialer]:
            raise Refused("wrong_key")
        self._hello = hello
        key = bytes(identity.signer.public_key)
        return Welcome(key, self._nonce, identity.signer.sign(signed_bytes(LISTENER, hello, key, self._nonce)))

    def accept(self, proof: HandshakeMessage) -> int:
        """Check the dialer's proof; return its index. Raises :class:`Refused`."""
        assert self._hello is not None, "the welcome comes first"
        if not isinstance(proof, Proof):
            raise Refused("bad_handshake")
        signed = signed_bytes(DIALER, self._hello, bytes(self._identity.signer.public_key), self._nonce)
        dialer = ValidatorIndex(self._hello.dialer)
        if not self._identity.validators.verify(dialer, signed, Signature(proof.signature)):
            raise Refused("bad_signature")
        return self._hello.dialer


def signed_bytes(role: str, hello: Hello, listener_key: bytes, listener_nonce: bytes) -> bytes:
    """The signed bytes, as MessagePack, so that different fields never have the same bytes."""
    return msgspec.msgpack.encode((DOMAIN, role, hello, PublicKey(listener_key), listener_nonce))
