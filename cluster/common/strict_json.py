"""Strict parsing of JSON written by users: checked field by field, with the path of every problem.

Rejected anywhere: a field given twice in one object, numbers with fraction or exponent, ``-0``, ``NaN``, ``Infinity``,
numbers of very many characters, and text with lone surrogates. Integers may be JSON numbers or decimal strings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from cluster.common.suggestions import meant_or_known
from validator.primitives.script_json import MAX_INTEGER_DIGITS
from validator.primitives.types import HEX_DIGITS, Address, is_reserved, number_of, parse_address

MAX_NESTING: Final = 256
"""Maximum number of levels of lists and objects. It is far below the limit of the parser of every Python version, so
that all versions reject the same files."""
SHOWN_CHARACTERS: Final = 64


class Wrong(Exception):
    """Raised for a wrong JSON text. The message is ``path: problem``, without the file's name."""


class _Pairs(NamedTuple):
    """An object as written, before the check for repeated fields."""

    items: list[tuple[str, Any]]


class _BadNumber(NamedTuple):
    text: str


def parse(text: str) -> Any:
    """The value of a JSON text. Raises :class:`Wrong`."""
    try:
        raw = json.loads(
            text,
            object_pairs_hook=_Pairs,
            parse_float=_BadNumber,
            parse_constant=_BadNumber,
            parse_int=_integer_or_bad,
        )
        return _plain(raw, "$", 1)
    except RecursionError:
        raise Wrong(f"$: nested more than {MAX_NESTING} levels deep") from None
    except ValueError as error:
        raise Wrong(f"$: no JSON: {error}") from None


def _integer_or_bad(text: str) -> int | _BadNumber:
    return _BadNumber(text) if text == "-0" or len(text) > MAX_INTEGER_DIGITS else int(text)


def _plain(raw: Any, path: str, level: int) -> Any:
    if isinstance(raw, _Pairs | list) and level > MAX_NESTING:
        raise Wrong(f"{path[:SHOWN_CHARACTERS]}…: nested more than {MAX_NESTING} levels deep")
    if isinstance(raw, _Pairs):
        found: dict[str, Any] = {}
        for key, value in raw.items:
            _check_text(key, path)
            if key in found:
                raise Wrong(f"{path}: field {key[:SHOWN_CHARACTERS]!r} is given twice")
            found[key] = _plain(value, field(path, key), level + 1)
        return found
    if isinstance(raw, _BadNumber):
        if len(raw.text) > MAX_INTEGER_DIGITS:
            raise Wrong(f"{path}: a number of more than {MAX_INTEGER_DIGITS} characters")
        raise Wrong(f"{path}: {raw.text[:SHOWN_CHARACTERS]} is no integer")
    if isinstance(raw, list):
        return [_plain(value, f"{path}[{i}]", level + 1) for i, value in enumerate(raw)]
    if isinstance(raw, str):
        _check_text(raw, path)
    return raw


def _check_text(text: str, path: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Wrong(f"{path}: text with a lone surrogate") from None


def field(path: str, name: str) -> str:
    return name if path == "$" else f"{path}.{name[:SHOWN_CHARACTERS]}"


# --- values -----------------------------------------------------------------------------------------------------------


def integer(value: Any, path: str, limit: int) -> int:
    """An integer from 0 to below ``limit``."""
    value = number_of(value)
    if isinstance(value, bool) or not isinstance(value, int):
        got = repr(value[:SHOWN_CHARACTERS]) if isinstance(value, str) else kind(value)
        raise Wrong(f"{path}: expected an integer, got {got}")
    if not 0 <= value < limit:
        raise Wrong(f"{path}: out of range, expected 0 to {describe_limit(limit)}")
    return value


def describe_limit(limit: int) -> str:
    """The number ``limit - 1`` as text: ``2**64 - 1`` below a large power of two, else in decimal."""
    bits = limit.bit_length() - 1
    return f"2**{bits} - 1" if limit == 1 << bits and bits >= 32 else str(limit - 1)


def text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise Wrong(f"{path}: expected a text, got {kind(value)}")
    return value


def hex_bytes(value: Any, path: str, length: int | None = None) -> bytes:
    """Bytes as pairs of hex digits; exactly ``length`` bytes if it is given."""
    digits = text(value, path)
    if len(digits) % 2 or not HEX_DIGITS.issuperset(digits) or (length is not None and len(digits) != 2 * length):
        expected = "pairs of hex digits" if length is None else f"{2 * length} hex digits"
        raise Wrong(f"{path}: expected {expected}, got {digits[:SHOWN_CHARACTERS]!r}")
    return bytes.fromhex(digits)


def address(value: Any, path: str) -> Address:
    try:
        return parse_address(text(value, path))
    except ValueError as error:
        raise Wrong(f"{path}: {error}") from None


def owner(name: str, path: str, taken: Iterable[Address]) -> Address:
    """The address that an object's field has as its name. Raises :class:`Wrong` if it is reserved or in ``taken``."""
    found = address(name, path)
    if is_reserved(found):
        raise Wrong(f"{path}: reserved address")
    if found in taken:
        raise Wrong(f"{path}: this address is given twice")
    return found


def sequence(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise Wrong(f"{path}: expected a list, got {kind(value)}")
    return value


def items(value: Any, path: str) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise Wrong(f"{path}: expected an object, got {kind(value)}")
    return list(value.items())


def mapping(value: Any, path: str, allowed: Iterable[str], needed: Iterable[str]) -> dict[str, Any]:
    """The value, checked to be an object that has all needed fields and only allowed ones. Raises :class:`Wrong`."""
    if not isinstance(value, dict):
        raise Wrong(f"{path}: expected an object, got {kind(value)}")
    unknown = sorted(set(value) - set(allowed))
    if unknown:
        name = unknown[0][:SHOWN_CHARACTERS]
        raise Wrong(f"{path}: unknown field {name!r}; {meant_or_known(name, sorted(allowed))}")
    missing = sorted(set(needed) - set(value))
    if missing:
        raise Wrong(f"{path}: field {missing[0]!r} is missing")
    return value


def kind(value: Any) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a text",
        bool: "true or false",
        type(None): "null",
        int: "a number",
    }
    return names[type(value)]
