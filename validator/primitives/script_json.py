"""A strict JSON parser for ``builtin:script`` payloads (SPEC §2), with the same results on every Python version.

Refused anywhere in the text: duplicate keys, lone surrogates, numbers with fraction, exponent or ``-0``, ``NaN`` and
``Infinity``, and nesting over 64 levels with the outermost list as level 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, NoReturn

import msgspec
import numpy as np

from validator.primitives.errors import BadScript

MAX_NESTING: Final = 64
MAX_INTEGER_DIGITS: Final = 640
"""Maximum number of characters of an integer. Every supported Python converts this many digits, whatever its setting
(``PYTHONINTMAXSTRDIGITS``)."""

_STRINGS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_STEPS: Final = np.zeros(256, np.int8)
"""How a byte outside of strings changes the level of nesting."""
_PLAIN: Final = bytes(set(range(256)) - set(b'[]{}"'))
"""The bytes that neither change the level of nesting nor begin or end a string."""
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1
_DIGITS_AS_ZEROS: Final = bytes.maketrans(b"123456789", bytes([ord("0")] * 9))
_ZEROS_OF_LONGEST: Final = b"0" * MAX_INTEGER_DIGITS


def parse(payload: bytes) -> Any:
    """The JSON value of a payload. Raises :class:`BadScript`."""
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError:
        raise BadScript from None
    _check_nesting(payload)
    decoder = _DECODER if _may_have_refused_integers(payload) else _DECODER_OF_USUAL_INTEGERS
    try:
        value = decoder.decode(text)
    except ValueError:
        raise BadScript from None
    if "\\u" in text:
        _check_text(value)
    return value


def _check_nesting(payload: bytes) -> None:
    """Raise :class:`BadScript` if a payload is nested too deeply. It runs before the recursive parser.

    Brackets inside strings do not count.
    """
    if payload.count(b"[") + payload.count(b"{") <= MAX_NESTING:
        return
    if b"\\" in payload:
        outside = _STRINGS.sub(b"", payload)
    else:  # every second part between quotation marks is a string; most strings have no bracket
        marks = payload.translate(None, _PLAIN).replace(b'""', b"")
        outside = b"".join(marks.split(b'"')[::2])
    if np.cumsum(_STEPS[np.frombuffer(outside, np.uint8)], dtype=np.int32).max(initial=0) > MAX_NESTING:
        raise BadScript


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadScript
    return found


def _integer(text: str) -> int:
    if text == "-0" or len(text) > MAX_INTEGER_DIGITS:
        raise BadScript
    return int(text)


def _may_have_refused_integers(payload: bytes) -> bool:
    """Whether a payload may have an integer that :func:`_integer` refuses, or a text that looks like one."""
    return b"-0" in payload or (
        len(payload) > MAX_INTEGER_DIGITS and _ZEROS_OF_LONGEST in payload.translate(_DIGITS_AS_ZEROS)
    )


def _refuse(_text: str) -> NoReturn:
    raise BadScript


def _strict_decoder(parse_int: Callable[[str], int] = _integer) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_unique_keys, parse_int=parse_int, parse_float=_refuse, parse_constant=_refuse
    )


_DECODER: Final = _strict_decoder()
_DECODER_OF_USUAL_INTEGERS: Final = _strict_decoder(int)
"""It calls no function for each integer."""
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True)


def _check_text(value: Any) -> None:
    """Raise :class:`BadScript` if a text in a parsed JSON value has a lone surrogate.

    Only JSON escapes can produce one: the UTF-8 decoding of the payload refuses raw surrogates.
    """
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise BadScript from None
    elif isinstance(value, list):
        for item in value:
            _check_text(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key)
            _check_text(item)


def canonical_text(value: Any) -> bytes:
    """A JSON value as text: separators ``,`` and ``:``, no spaces, ASCII escapes, keys in the order given."""
    text = msgspec.json.encode(value)  # leaves non-ASCII characters and DEL as they are
    return text if text.isascii() and b"\x7f" not in text else _ENCODER.encode(value).encode("ascii")
