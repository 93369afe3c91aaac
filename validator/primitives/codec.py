"""Canonical MessagePack: the only encoding of everything that is sent or hashed.

Structs are arrays of their fields in order, with the tag first if a type has several shapes. An encoding is canonical
if this codec writes the same bytes for the value it decodes to; :func:`decode` refuses all others, so one value has one
encoding and one hash. A struct to which a field was added (:class:`OmitsEmptyLast`) leaves it out if it is empty, so
that older encodings stay valid. Amounts and prices exceed 64 bits and travel as big-endian bytes without leading zeros
(:func:`pack_uint`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from blake3 import blake3
from Crypto.Hash import keccak

from validator.primitives.types import Hash, ValidatorError

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type, msgspec.msgpack.Decoder[object]] = {}


class CodecError(ValidatorError):
    """Bytes that are not a canonical encoding of the expected type."""


class OmitsEmptyLast(msgspec.Struct, frozen=True, array_like=True):
    """A struct whose last field, a list or bytes, is not written if it is empty.

    Only for structs that are encoded alone or in a list of another such struct.
    """


def encode(value: object) -> bytes:
    """The canonical encoding of a struct or of plain data."""
    return _encoder.encode(_as_written(value))


def _as_written(value: object) -> object:
    if isinstance(value, OmitsEmptyLast):
        fields = tuple(map(_as_written, msgspec.structs.astuple(value)))
        return fields if fields[-1] else fields[:-1]
    if isinstance(value, tuple) and value and isinstance(value[0], OmitsEmptyLast):
        return tuple(map(_as_written, value))
    return value


def decode(data: bytes, kind: type[T]) -> T:
    """The value of type ``kind`` that ``data`` is the canonical encoding of. Raises :class:`CodecError`."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    try:
        value = decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CodecError(f"no {kind.__name__}: {error}") from None
    if encode(value) != data:
        raise CodecError(f"no canonical {kind.__name__}: the same value has another encoding")
    return value  # type: ignore[return-value]


def pack_uint(value: int) -> bytes:
    """An unsigned integer as big-endian bytes without leading zeros; zero is empty."""
    return value.to_bytes((value.bit_length() + 7) // 8, "big")


def unpack_uint(data: bytes, limit: int) -> int:
    """The integer of :func:`pack_uint`, which must be below ``limit``. Raises :class:`CodecError`."""
    if data[:1] == b"\0":
        raise CodecError("no canonical integer: leading zero byte")
    if len(data) > 32:
        raise CodecError(f"integer of {len(data)} bytes")
    value = int.from_bytes(data, "big")
    if value >= limit:
        raise CodecError(f"integer {value} is out of range, expected below {limit}")
    return value


def keccak256(data: bytes) -> Hash:
    """Keccak-256 as in Ethereum, for addresses and timer ids."""
    return Hash(keccak.new(digest_bits=256, data=data).digest())


def tagged_hash(tag: bytes, data: bytes) -> Hash:
    """BLAKE3 over a one-byte-length-prefixed tag and the data, so that hashes of different kinds never collide."""
    return Hash(blake3(_prefix(tag) + data).digest())


def _prefix(tag: bytes) -> bytes:
    return bytes((len(tag),)) + tag


def merkle_root(tag: bytes, contents: Sequence[bytes]) -> Hash:
    """Root over a list. Contents and nodes have separate tags, an odd node moves up, the root covers the length."""
    leaf, node = _prefix(tag + b"/leaf"), _prefix(tag + b"/node")
    level = [blake3(leaf + content).digest() for content in contents]
    while len(level) > 1:
        pairs = range(0, len(level) - 1, 2)
        level = [blake3(node + level[i] + level[i + 1]).digest() for i in pairs] + level[len(level) & ~1 :]
    top = level[0] if level else b""
    return tagged_hash(tag + b"/root", len(contents).to_bytes(8, "big") + top)
