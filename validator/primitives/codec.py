"""Canonical MessagePack: the only encoding of everything that is sent or hashed.

Structs are arrays of their fields in order, with the tag first if a type has several shapes. An encoding is canonical
if this codec writes the same bytes for the value it decodes to; :func:`decode` refuses all others, so one value has one
encoding and one hash. A struct to which a field was added (:class:`OmitsEmptyLast`) leaves it out if it is empty, so
that older encodings stay valid. Amounts and prices exceed 64 bits and travel as big-endian bytes without leading zeros
(:func:`pack_uint`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, TypeVar

import msgspec
from blake3 import blake3

from validator.primitives.types import Hash, ValidatorError

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type, msgspec.msgpack.Decoder[object]] = {}
REMEMBERED_HASHES: Final = 4_096
MAX_REMEMBERED_BYTES: Final = 512
"""Size limit of data whose Keccak-256 hash is cached."""

_making: Final = threading.Lock()
"""The lock under which decoders are made. From the first use on, msgspec keeps on a struct's class how to decode it. A
thread that decoded the same struct before this is complete would crash the process."""


def _load_keccak() -> Any:
    """pycryptodome's Keccak. Without cffi it calls its functions by ctypes: no slower, and no parser of C is loaded."""
    is_loaded = "cffi" in sys.modules
    if not is_loaded:
        sys.modules["cffi"] = None  # type: ignore[assignment]
    try:
        return import_module("Crypto.Hash.keccak")
    finally:
        if not is_loaded:
            del sys.modules["cffi"]


_keccak: Final = _load_keccak()


class CodecError(ValidatorError):
    """Bytes that are not a canonical encoding of the expected type."""


class OmitsEmptyLast(msgspec.Struct, frozen=True, array_like=True):
    """Base of structs whose last field, a list or bytes, is left out of the encoding if it is empty.

    Such a struct may be encoded only at the top level, or in a list field of another :class:`OmitsEmptyLast`.
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


def decoder_of(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """The decoder of a type. It accepts encodings that are not canonical. Threads may call this at a time."""
    decoder = _decoders.get(kind)
    if decoder is None:
        with _making:
            decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    return decoder


def decode(data: bytes, kind: type[T]) -> T:
    """Decode a value of type ``kind``. Raises :class:`CodecError` unless ``data`` is its canonical encoding."""
    try:
        value: T = decoder_of(kind).decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CodecError(f"no {kind.__name__}: {error}") from None
    if encode(value) != data:
        raise CodecError(f"no canonical {kind.__name__}: the same value has another encoding")
    return value


def pack_uint(value: int) -> bytes:
    """An unsigned integer as big-endian bytes without leading zeros; zero is empty."""
    return value.to_bytes((value.bit_length() + 7) // 8, "big")


def unpack_uint(data: bytes, limit: int) -> int:
    """Decode an integer that :func:`pack_uint` encoded. Raises :class:`CodecError` unless it is below ``limit``."""
    if data[:1] == b"\0":
        raise CodecError("no canonical integer: leading zero byte")
    if len(data) > 32:
        raise CodecError(f"integer of {len(data)} bytes")
    value = int.from_bytes(data, "big")
    if value >= limit:
        raise CodecError(f"integer {value} is out of range, expected below {limit}")
    return value


def keccak256(data: bytes) -> Hash:
    """The Keccak-256 hash of ``data``, as in Ethereum. Addresses and timer ids are derived with it."""
    return _remembered_keccak256(data) if len(data) <= MAX_REMEMBERED_BYTES else _keccak256(data)


def _keccak256(data: bytes) -> Hash:
    return Hash(_keccak.new(digest_bits=256, data=data).digest())


_remembered_keccak256: Final = lru_cache(REMEMBERED_HASHES)(_keccak256)
"""Cached version of :func:`_keccak256`, which takes some microseconds. A proposer's address is derived for every block,
and a timer's id again when the block that schedules it was built here."""


def tagged_hash(tag: bytes, data: bytes) -> Hash:
    """The BLAKE3 hash of the tag's length (one byte), the tag and the data.

    Each kind of data has a separate tag, so hashes of different kinds never collide.
    """
    return Hash(blake3(_prefix(tag) + data).digest())


def _prefix(tag: bytes) -> bytes:
    return bytes((len(tag),)) + tag


def merkle_root(tag: bytes, contents: Sequence[bytes]) -> Hash:
    """The Merkle root of a list of byte strings.

    Leaves, inner nodes and the root are hashed with separate tags derived from ``tag``. The last node of a level with
    an odd number of nodes moves up unchanged. The root also covers the length of the list.
    """
    leaf, node = _prefix(tag + b"/leaf"), _prefix(tag + b"/node")
    level = [blake3(leaf + content).digest() for content in contents]
    while len(level) > 1:
        pairs = range(0, len(level) - 1, 2)
        level = [blake3(node + level[i] + level[i + 1]).digest() for i in pairs] + level[len(level) & ~1 :]
    top = level[0] if level else b""
    return tagged_hash(tag + b"/root", len(contents).to_bytes(8, "big") + top)
