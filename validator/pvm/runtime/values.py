"""The encoding (canonical MessagePack) of values that enter or leave a handler: storage, payloads, messages, results.

Each value has one encoding: the shortest forms of MessagePack, a dict's pairs in the ascending order of their encoded
keys, a tuple as a list, and integers outside MessagePack's own range as extension 1: a sign byte (0 or 1) and the
magnitude, big-endian without leading zeros. A value that is read back has lists for tuples, and dicts in the order of
encoded keys. Packing and unpacking charge for each value before its content is read, so shared parts cost as often as
they are written.

Lists and dicts are read and written here, not by msgspec: a dict must never hold plain integers
(:mod:`validator.pvm.runtime.operations`), and an encoding that is not canonical is refused at the offending byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

import msgspec
from msgspec.msgpack import Ext

from validator.primitives.limits import DICT_KEY_LIMIT, MAX_KEY_TEXT, MAX_VALUE_BYTES, MAX_VALUE_DEPTH
from validator.pvm.compiler.weights import BYTES_PER_CYCLE, VALUE_NODE, WIDE_CODING, WIDE_INTEGER
from validator.pvm.runtime.operations import Value, fault, hidden_key, is_number, shown_key

Charge = Callable[[int], None]

LARGE_INTEGER: Final = 1
"""The extension type of integers that MessagePack cannot represent."""
_LEAST, _MOST = -(2**63), 2**64 - 1
_ENCODER: Final = msgspec.msgpack.Encoder()


class _Room:
    """The room that is left for one encoded value, and the meter that is charged for it."""

    def __init__(self, charge: Charge) -> None:
        self._charge = charge
        self._room = MAX_VALUE_BYTES

    def take(self, size: int) -> None:
        """Charge for one value of ``size`` characters or bytes."""
        self._charge(VALUE_NODE + size // BYTES_PER_CYCLE)
        self._room -= 1 + size
        if self._room < 0:
            fault("ValueTooLarge", f"a value of more than {MAX_VALUE_BYTES:,} bytes")

    def wide_work(self, size: int) -> None:
        """Charge for encoding or decoding a text that is not ASCII."""
        self._charge(size * WIDE_CODING // BYTES_PER_CYCLE)

    def wide_integer(self) -> None:
        """Charge for encoding or decoding an integer that MessagePack cannot represent."""
        self._charge(WIDE_INTEGER)


# --- packing ----------------------------------------------------------------------------------------------------------


def pack(value: Value, charge: Charge) -> bytes:
    """Encode a value. Ends the handler as ``ValueInvalid`` or ``ValueTooLarge`` if that is impossible."""
    packer = _Packer(charge)
    packer.value(value, MAX_VALUE_DEPTH)
    return b"".join(packer.parts)


class _Packer(_Room):
    """Writes one value; ends the handler when it gets too large."""

    def __init__(self, charge: Charge) -> None:
        super().__init__(charge)
        self.parts: list[bytes] = []

    def value(self, value: Value, depth: int) -> None:
        """Write a value with at most ``depth`` levels."""
        kind = value.__class__
        if kind in (list, tuple, dict):
            self.take(0)
            if not depth:
                fault("ValueInvalid", f"more than {MAX_VALUE_DEPTH} levels")
            if kind is dict:
                self._dict(value, depth)
            else:
                self.parts.append(_head(len(value), 0x90, 0xDC))
                for part in value:
                    self.value(part, depth - 1)
        else:
            self.parts.append(self._scalar(value))

    def _scalar(self, value: Value) -> bytes:
        kind = value.__class__
        self.take(len(value) if kind is str or kind is bytes else 0)
        if kind is str and not value.isascii():
            self.wide_work(len(value))
        if kind is int and not _LEAST <= value <= _MOST:
            self.wide_integer()
            value = _extension(value)
        elif value is not None and kind not in (bool, int, str, bytes):
            fault("ValueInvalid", "a task cannot be stored or sent")
        return _ENCODER.encode(value)

    def _dict(self, value: dict[Value, Value], depth: int) -> None:
        """Encode a dict: its pairs in the ascending order of their encoded keys."""
        self.parts.append(_head(len(value), 0x80, 0xDE))
        for encoded, key in sorted((self._scalar(shown_key(key)), key) for key in value):
            self.parts.append(encoded)
            self.value(value[key], depth - 1)


def _head(count: int, short: int, long: int) -> bytes:
    """The head of an encoded list or dict of ``count`` items. ``short`` and ``long`` are its forms' first bytes."""
    if count < 16:
        return bytes([short | count])
    return bytes([long]) + count.to_bytes(2, "big") if count < 2**16 else bytes([long + 1]) + count.to_bytes(4, "big")


def _extension(value: int) -> Ext:
    magnitude = abs(value)
    return Ext(LARGE_INTEGER, bytes([value < 0]) + magnitude.to_bytes((magnitude.bit_length() + 7) // 8, "big"))


# --- unpacking --------------------------------------------------------------------------------------------------------


def unpack(encoded: bytes, charge: Charge) -> Value:
    """Decode a value; empty bytes are ``None``. Ends the handler as ``BadPayload`` if the encoding is not canonical."""
    if not encoded:
        return None
    unpacker = _Unpacker(encoded, charge)
    value = unpacker.value(MAX_VALUE_DEPTH)
    if unpacker.position < len(encoded):
        _refuse()
    return value


def _refuse() -> NoReturn:
    fault("BadPayload", "not the canonical encoding of a value")


class _Unpacker(_Room):
    """Decodes one value."""

    def __init__(self, encoded: bytes, charge: Charge) -> None:
        super().__init__(charge)
        self._encoded = encoded
        self.position = 0

    def value(self, depth: int) -> Value:
        """Read a value with at most ``depth`` levels."""
        kind = self._bytes(1)[0]
        if 0x80 <= kind < 0xA0 or 0xDC <= kind < 0xE0:
            self.take(0)
            if not depth:
                _refuse()
            if kind < 0x90 or kind >= 0xDE:
                return self._dict(self._count(kind, 0x80, 0xDE), depth - 1)
            return [self.value(depth - 1) for _ in range(self._count(kind, 0x90, 0xDC))]
        return self._scalar(kind)

    def _bytes(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        start = self.position
        self.position += size
        if self.position > len(self._encoded):
            _refuse()
        return self._encoded[start : self.position]

    def _number(self, size: int) -> int:
        return int.from_bytes(self._bytes(size), "big")

    def _count(self, kind: int, short: int, long: int) -> int:
        """Decode the number of elements or pairs that follow. It must be in the shortest form."""
        if kind < short + 16:
            return kind - short
        count = self._number(2 if kind == long else 4)
        if count < (16 if kind == long else 2**16):
            _refuse()
        return count

    def _dict(self, count: int, depth: int) -> dict[Value, Value]:
        """Decode a dict of ``count`` pairs. They must be in the ascending order of their encoded keys.

        True and 1 are the same key, so a dict with both is refused.
        """
        made: dict[Value, Value] = {}
        before = b""
        for _ in range(count):
            start = self.position
            key = _key(self._scalar(self._bytes(1)[0]))
            encoded = self._encoded[start : self.position]
            if encoded <= before or key in made:
                _refuse()
            made[key] = self.value(depth)
            before = encoded
        return made

    def _scalar(self, kind: int) -> Value:
        """Decode a value that is not a list or dict. Its encoding must be the shortest one."""
        if kind < 0x80 or kind >= 0xE0:
            self.take(0)
            return kind if kind < 0x80 else kind - 256
        if kind in _NUMBERS:
            self.take(0)
            return self._integer(kind)
        if kind in _LENGTHS:
            return self._text(kind)
        if kind in _LARGE:
            self.take(0)
            self.wide_integer()
            return self._large_integer(kind)
        if kind not in _WORDS:
            _refuse()
        self.take(0)
        return _WORDS[kind]

    def _integer(self, kind: int) -> int:
        size, is_signed, least, most = _NUMBERS[kind]
        value = int.from_bytes(self._bytes(size), "big", signed=is_signed)
        if not least <= value <= most:
            _refuse()
        return value

    def _text(self, kind: int) -> Value:
        """A text or bytes."""
        width, least, is_text = _LENGTHS[kind]
        length = self._number(width) if width else kind - 0xA0
        if length < least or length > len(self._encoded) - self.position:
            _refuse()
        self.take(length)
        data = self._bytes(length)
        if not is_text:
            return data
        if not data.isascii():
            self.wide_work(length)
        try:
            return data.decode()
        except UnicodeDecodeError:
            _refuse()

    def _large_integer(self, kind: int) -> int:
        """Decode an integer that MessagePack cannot represent. It must be within the bit limit of integers."""
        length = 16 if kind == 0xD8 else self._number(1)
        if not 9 <= length <= 33 or (length == 16) is not (kind == 0xD8):
            _refuse()
        data = self._bytes(1 + length)
        value = int.from_bytes(data[2:], "big")
        if data[0] != LARGE_INTEGER or data[1] > 1 or not data[2]:
            _refuse()
        if data[1]:
            value = -value
        if _LEAST <= value <= _MOST:
            _refuse()
        return value


_NUMBERS: Final = {
    0xCC: (1, False, 2**7, 2**8 - 1),
    0xCD: (2, False, 2**8, 2**16 - 1),
    0xCE: (4, False, 2**16, 2**32 - 1),
    0xCF: (8, False, 2**32, 2**64 - 1),
    0xD0: (1, True, -(2**7), -33),
    0xD1: (2, True, -(2**15), -(2**7) - 1),
    0xD2: (4, True, -(2**31), -(2**15) - 1),
    0xD3: (8, True, -(2**63), -(2**31) - 1),
}
"""For each first byte of an encoded integer: the number of bytes that follow, whether they are signed, and the least
and the greatest value that has no shorter encoding."""
_LENGTHS: Final = {
    **dict.fromkeys(range(160, 192), (0, 0, True)),
    0xD9: (1, 32, True),
    0xDA: (2, 2**8, True),
    0xDB: (4, 2**16, True),
    0xC4: (1, 0, False),
    0xC5: (2, 2**8, False),
    0xC6: (4, 2**16, False),
}
"""For each first byte of encoded text or bytes: the number of bytes that the length takes, the least length that needs
them, and whether it is a text."""
_LARGE: Final = (0xC7, 0xD8)
"""The two first bytes of an encoded large integer. After the first of them, the next byte is the length; after the
other, the length is 16."""
_WORDS: Final = {0xC0: None, 0xC2: False, 0xC3: True}


def _key(found: Value) -> Value:
    """Check a decoded key of a dict, and return it in the form in which dicts hold it."""
    if not (found.__class__ in (str, bytes) or is_number(found)):
        _refuse()
    if is_number(found):
        if not -DICT_KEY_LIMIT < found < DICT_KEY_LIMIT:
            _refuse()
        return hidden_key(found)
    if len(found) > MAX_KEY_TEXT:
        _refuse()
    return found


# --- for clients ------------------------------------------------------------------------------------------------------


def encode_value(value: Value) -> bytes:
    """Encode a payload for a handler, for clients; empty bytes for ``None``. Raises like :func:`pack`."""
    return b"" if value is None else pack(value, _free)


def decode_value(encoded: bytes) -> Value:
    """Decode a stored value, for clients. Raises like :func:`unpack`."""
    return _shown(unpack(encoded, _free))


def _shown(value: Value) -> Value:
    """A copy of a decoded value in which the keys of dicts have the form that programs see."""
    if value.__class__ is dict:
        return {shown_key(key): _shown(part) for key, part in value.items()}
    return [_shown(part) for part in value] if value.__class__ is list else value


def _free(_cycles: int) -> None:
    """A charge function for clients, which does nothing."""
