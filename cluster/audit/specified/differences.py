"""Where two encodings of a block's receipts differ, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, Final, NamedTuple, get_args, get_type_hints

from spec.encoding import Receipts, decode, read_receipts

AMOUNTS: Final = ("p50_tip", "burned", "tip", "tip_per_cycle")
"""The fields of receipts that are amounts, as bytes."""
LONGEST_AMOUNT: Final = 32
"""Bytes of an amount in receipts."""
NOTHING: Final = "nothing"
"""What a list has behind its end."""
LONGEST_BRIEF: Final = 80
"""Characters of a value in a line."""


class Difference(NamedTuple):
    """A field that two sides have differently, with both values as text."""

    field: str
    """Such as ``receipts.fires[2].burned``."""
    said: str
    expected: str

    @property
    def brief(self) -> Difference:
        """With not too much of the values."""
        return self._replace(said=_brief(self.said), expected=_brief(self.expected))


def of_receipts(said: bytes, expected: bytes) -> Iterator[Difference]:
    """Where two encodings of receipts differ, in the order of the fields. Raises :class:`~spec.encoding.Unreadable`."""
    for encoded in (said, expected):
        read_receipts(encoded)
    return differences("receipts", Receipts, decode(said), decode(expected))


def differences(path: str, kind: Any, said: Any, expected: Any) -> Iterator[Difference]:
    """Where two decoded values of a kind of struct differ.

    An item that the other list does not have, or has at another place, is named by its first field.
    """
    if said == expected:
        return
    if not isinstance(said, list) or not isinstance(expected, list) or kind is None:
        name = path.rpartition(".")[2]
        yield Difference(path, _value(name, said), _value(name, expected))
    elif hasattr(kind, "_fields"):
        kinds = get_type_hints(kind)
        for place, name in enumerate(kind._fields):
            pair = [fields[place] if place < len(fields) else None for fields in (said, expected)]
            yield from differences(f"{path}.{name}", kinds[name], *pair)
    else:
        (item, *_) = get_args(kind) or (None,)
        for place, (one, other) in enumerate(zip_longest(said, expected, fillvalue=NOTHING)):
            at = f"{path}[{place}]"
            if one == other:
                continue
            if NOTHING in (one, other):
                yield Difference(at, _name(one), _name(other))
            elif 0 < said.count(one) <= expected.count(one):
                yield Difference(at, f"number {expected.index(one)}, {_name(one)}", f"number {place}, {_name(other)}")
            else:
                yield from differences(at, item, one, other)


def shown(value: Any) -> str:
    """A value for readers: bytes in hex."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(shown, value)) + "]"
    return "0x" + value.hex() if isinstance(value, bytes) else str(value)


def _brief(text: str) -> str:
    return text if len(text) <= LONGEST_BRIEF else text[: LONGEST_BRIEF - 1] + "…"


def _value(name: str, value: Any) -> str:
    is_amount = name in AMOUNTS and isinstance(value, bytes) and len(value) <= LONGEST_AMOUNT
    return str(int.from_bytes(value, "big")) if is_amount else shown(value)


def _name(item: Any) -> str:
    return shown(item[0] if isinstance(item, list) and item else item)
