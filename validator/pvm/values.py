"""Values that cross a handler's border: storage, payloads, messages, results (canonical MessagePack).

Each value has one encoding: the shortest forms of MessagePack, a dict's pairs in the order of their encoded keys, a
tuple as a list, and integers outside MessagePack's own range as extension 1: a sign byte (0 or 1) and the magnitude,
big-endian without leading zeros. What reads a value back gets lists where tuples were written, and dicts in the order
of encoded keys. Packing and unpacking charge for each value before it is looked into, so that shared parts cost as
often as they are written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.msgpack import Ext

from validator.pvm.limits import DICT_KEY_LIMIT, INTEGER_LIMIT, MAX_VALUE_BYTES, MAX_VALUE_DEPTH
from validator.pvm.operations import Value, fault
from validator.pvm.weights import BYTES_A_CYCLE, VALUE_NODE

Charge = Callable[[int], None]

LARGE_INTEGER: Final = 1
"""The extension type of integers that MessagePack has no form for."""
_LEAST, _MOST = -(2**63), 2**64 - 1
_ENCODER: Final = msgspec.msgpack.Encoder()


def _keep_extension(code: int, data: memoryview) -> Ext:
    return Ext(code, bytes(data))


_DECODER: Final = msgspec.msgpack.Decoder(ext_hook=_keep_extension)


def pack(value: Value, charge: Charge) -> bytes:
    """A value's encoding. Ends the handler as ``ValueInvalid`` where it cannot cross, ``ValueTooLarge`` where it is."""
    return _ENCODER.encode(_Packer(charge).plain(value, MAX_VALUE_DEPTH))


def encode_value(value: Value) -> bytes:
    """A payload for a handler, as clients make it; nothing for ``None``. Raises as :func:`pack` does."""
    return b"" if value is None else pack(value, _free)


def decode_value(encoded: bytes) -> Value:
    """A stored value, as clients read it. Raises as :func:`unpack` does."""
    return unpack(encoded, _free)


class _Packer:
    """Turns one value into what the encoder takes, and stops where it gets too large."""

    def __init__(self, charge: Charge) -> None:
        self._charge = charge
        self._room = MAX_VALUE_BYTES

    def plain(self, value: Value, depth: int) -> Any:
        """The value as the encoder takes it, with so many levels left."""
        kind = value.__class__
        size = len(value) if kind is str or kind is bytes else 0
        self._charge(VALUE_NODE + size // BYTES_A_CYCLE)
        self._room -= 1 + size
        if self._room < 0:
            fault("ValueTooLarge")
        if value is None or kind in (bool, str, bytes):
            return value
        if kind is int:
            return value if _LEAST <= value <= _MOST else _extension(value)
        if not depth or kind not in (list, tuple, dict):
            fault("ValueInvalid")
        return self._dict(value, depth) if kind is dict else [self.plain(part, depth - 1) for part in value]

    def _dict(self, value: dict[Value, Value], depth: int) -> dict[Value, Any]:
        """The pairs in the order of their encoded keys."""
        keys = sorted((_ENCODER.encode(self.plain(key, 0)), key) for key in value)
        return {key: self.plain(value[key], depth - 1) for _, key in keys}


def _extension(value: int) -> Ext:
    magnitude = abs(value)
    return Ext(LARGE_INTEGER, bytes([value < 0]) + magnitude.to_bytes((magnitude.bit_length() + 7) // 8, "big"))


def unpack(encoded: bytes, charge: Charge) -> Value:
    """The value of an encoding; empty bytes are ``None``. Ends the handler as ``BadPayload`` for any other bytes."""
    if not encoded:
        return None
    charge(VALUE_NODE + len(encoded) // BYTES_A_CYCLE)
    try:
        found = _DECODER.decode(encoded)
    except (msgspec.DecodeError, RecursionError):
        fault("BadPayload")
    value = _value(found, charge, MAX_VALUE_DEPTH)
    if pack(value, _free) != encoded:
        fault("BadPayload")
    return value


def _free(_cycles: int) -> None:
    """Checking again what was paid for costs nothing more."""


def _value(found: Any, charge: Charge, depth: int) -> Value:
    """What a program gets of what was decoded."""
    charge(2 * VALUE_NODE)
    kind = found.__class__
    if found is None or kind in (str, bytes, bool, int):
        return found
    if kind is Ext:
        return _large_integer(found)
    if not depth or kind not in (list, dict):
        fault("BadPayload")
    if kind is list:
        return [_value(part, charge, depth - 1) for part in found]
    return {_key(key): _value(part, charge, depth - 1) for key, part in found.items()}


def _key(found: Any) -> Value:
    if found.__class__ not in (str, bytes, int, bool):
        fault("BadPayload")
    if found.__class__ is int and not -DICT_KEY_LIMIT < found < DICT_KEY_LIMIT:
        fault("BadPayload")
    return found


def _large_integer(found: Ext) -> int:
    data = bytes(found.data)
    if found.code != LARGE_INTEGER or len(data) < 2:
        fault("BadPayload")
    magnitude = int.from_bytes(data[1:], "big")
    if magnitude >= INTEGER_LIMIT:
        fault("BadPayload")
    return -magnitude if data[0] else magnitude
