"""A case about bytes in the making, and other spellings of MessagePack."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import msgpack

from kits.conform.case import Page
from kits.conform.decode import decoded

SHORT_BYTES: Final = 2**16


class Requests:
    """Requests about bytes, most of them with one flaw each."""

    def __init__(self) -> None:
        self.decode: list[Page] = []
        self.sentence = ""

    def ask(self, kind: str, data: bytes, **more: Any) -> None:
        """Add a request about an encoding."""
        self.decode.append({kind: data.hex(), **more})

    def answer(self) -> Page:
        """This implementation's answer."""
        return decoded(self.decode)


def spellings(value: Any) -> Iterator[bytes]:
    """All encodings of a value of which one item is longer than it has to be, or of another type that looks alike."""
    places = _places(value)
    for place in range(places):
        for width in range(3):
            found = b"".join(_packed(value, iter(range(places)), place, width))
            if found != msgpack.packb(value):
                yield found


def _places(value: Any) -> int:
    return 1 + (sum(map(_places, value)) if isinstance(value, list | tuple) else 0)


def _packed(value: Any, numbers: Iterator[int], place: int, width: int) -> Iterator[bytes]:
    """The parts of an encoding in which the item number ``place`` is spelled in another way."""
    is_here = next(numbers) == place
    if isinstance(value, list | tuple):
        yield _longer(value, width)[0] if is_here else msgpack.Packer().pack_array_header(len(value))
        for item in value:
            yield from _packed(item, numbers, place, width)
    else:
        yield b"".join(_longer(value, width)) if is_here else msgpack.packb(value)


def _longer(value: Any, width: int) -> tuple[bytes, bytes]:
    """The head and the content of an item, spelled in one of three ways that are not canonical: with a longer head, or
    as another type, such as text in place of bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        if width == 2:
            return (b"\xd3" + struct.pack(">q", value), b"") if value < 2**63 else (msgpack.packb(value), b"")
        return (b"\xcf" + struct.pack(">Q", value) if width else b"\xcb" + struct.pack(">d", value)), b""
    if isinstance(value, list | tuple):
        return [b"\xdc" + struct.pack(">H", len(value)), b"\xdd" + struct.pack(">I", len(value)), b"\x80"][width], b""
    if isinstance(value, str):
        text = value.encode()
        return _of_bytes([b"\xda", b"\xdb", b"\xc4"][width], text), text
    if isinstance(value, bytes):
        return _of_bytes([b"\xc5", b"\xc6", b"\xd9"][width], value), value
    return msgpack.packb(value), b""


def _of_bytes(mark: bytes, content: bytes) -> bytes:
    size = len(content)
    if mark in (b"\xdb", b"\xc6") or size >= SHORT_BYTES:
        return (b"\xc6" if mark in (b"\xc4", b"\xc5", b"\xc6") else b"\xdb") + struct.pack(">I", size)
    if mark in (b"\xda", b"\xc5") or size > 255:
        return (b"\xc5" if mark in (b"\xc4", b"\xc5") else b"\xda") + struct.pack(">H", size)
    return mark + bytes((size,))
