"""Methods of values, as :data:`validator.pvm.language.api.METHODS` lists them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from validator.primitives.limits import INTEGER_BITS, MAX_TEXT
from validator.pvm.compiler.weights import (
    BYTES_PER_CYCLE,
    ELEMENT,
    MADE_ELEMENT,
    MADE_PAIR,
    NODE_COMPARED,
    OPERATION,
    REPLACED,
    SPLIT,
    STRIPPED_CHARACTER,
    WIDE_CODING,
)
from validator.pvm.runtime.builtins import copy_of, sort
from validator.pvm.runtime.operations import (
    BLANKS,
    SEQUENCES,
    TEXTS,
    Value,
    Work,
    fault,
    is_narrow,
    kind_of,
    needs_number,
    refuse,
    shown,
    shown_key,
    shown_keys,
    shrink,
    taken,
    text_size,
)
from validator.pvm.runtime.operators import Arithmetic, Comparisons, Elements

_NOTHING: Final = object()


class SequenceMethods:
    """The methods of lists, tuples and dicts, one per name. A value without the method is a ``TypeError``.

    The method ``count`` is here for texts and bytes too.
    """

    def __init__(self, work: Work, elements: Elements, comparisons: Comparisons, arithmetic: Arithmetic) -> None:
        self._work = work
        self._elements = elements
        self._comparisons = comparisons
        self._arithmetic = arithmetic

    def m_append(self, values: Value, value: Value) -> None:
        as_list(values).append(value)

    def m_extend(self, values: Value, others: Value) -> None:
        self._arithmetic.add_in_place(as_list(values), others)

    def m_insert(self, values: Value, index: Value, value: Value) -> None:
        needs_number(index)
        self._work.elements(len(as_list(values)))
        values.insert(max(-len(values), min(index, len(values))), value)

    def m_pop(self, values: Value, place: Value = _NOTHING, default: Value = _NOTHING) -> Value:
        """Remove and return an element: the last one of a list, the one at an index, or the one under a dict's key."""
        if values.__class__ is dict:
            if place is _NOTHING:
                fault("TypeError", "pop of a dict needs a key")
            key = self._elements.lookup_key(place)
            if key in values:
                found = values.pop(key)
                shrink(values)
                return found
            if default is _NOTHING:
                fault("KeyError", shown(place))
            return default
        if default is not _NOTHING:
            refuse(values, "a dict for pop with a default")
        if place is _NOTHING:
            if not as_list(values):
                fault("IndexError", "pop of an empty list")
            return values.pop()
        self._work.elements(len(as_list(values)))
        return values.pop(self._elements.index_of(values, place))

    def m_remove(self, values: Value, value: Value) -> None:
        position = self._comparisons.position(as_list(values), value)
        if position < 0:
            fault("ValueError", f"{shown(value)} is not in the list")
        self._work.elements(len(values))
        del values[position]

    def m_reverse(self, values: Value) -> None:
        self._work.elements(len(as_list(values)))
        values.reverse()

    def m_sort(self, values: Value) -> None:
        sort(self._work, as_list(values))

    def m_clear(self, values: Value) -> None:
        if values.__class__ is not dict:
            as_list(values)
        self._work.elements(len(values))
        values.clear()

    def m_copy(self, values: Value) -> Value:
        if values.__class__ is dict:
            return copy_of(self._work, values)
        self._work.elements(len(as_list(values)))
        return values.copy()

    def m_index(self, values: Value, value: Value) -> int:
        if values.__class__ not in SEQUENCES:
            refuse(values, "a list or a tuple")
        position = self._comparisons.position(values, value)
        if position < 0:
            fault("ValueError", f"{shown(value)} is not in {kind_of(values)}")
        return position

    def m_count(self, values: Value, value: Value) -> int:
        if values.__class__ in SEQUENCES:
            found = 0
            for each in values:
                self._work.charge(NODE_COMPARED)
                found += self._comparisons.eq(each, value)
            return found
        check_alike(values, value)
        self._work.search_work(values, value)
        return int(values.count(value))

    def m_get(self, values: Value, key: Value, default: Value = None) -> Value:
        return as_dict(values).get(self._elements.lookup_key(key), default)

    def m_setdefault(self, values: Value, key: Value, default: Value) -> Value:
        return as_dict(values).setdefault(self._elements.key(key), default)

    def m_update(self, values: Value, others: Value) -> None:
        self._work.elements(len(as_dict(others)), MADE_ELEMENT)
        as_dict(values).update(others)

    def m_keys(self, values: Value) -> list[Value]:
        self._work.elements(len(as_dict(values)))
        return shown_keys(values)

    def m_values(self, values: Value) -> list[Value]:
        self._work.elements(len(as_dict(values)))
        return list(values.values())

    def m_items(self, values: Value) -> list[Value]:
        self._work.elements(len(as_dict(values)), MADE_PAIR)
        return [(shown_key(key), value) for key, value in values.items()]


def as_list(values: Value) -> list[Value]:
    """Return the value if it is a list, else end the handler as ``TypeError``."""
    if values.__class__ is not list:
        refuse(values, "a list")
    return values


def as_dict(values: Value) -> dict[Value, Value]:
    """Return the value if it is a dict, else end the handler as ``TypeError``."""
    if values.__class__ is not dict:
        refuse(values, "a dict")
    return values


class TextMethods:
    """The methods of texts, bytes and integers, one per name. A value without the method is a ``TypeError``."""

    def __init__(self, work: Work, elements: Elements) -> None:
        self._work = work
        self._elements = elements

    def m_join(self, text: Value, parts: Value) -> Value:
        kind = text.__class__
        if kind not in TEXTS:
            refuse(text, "a text or bytes")
        parts = self._elements.iterable(parts)
        self._work.elements(len(parts), MADE_ELEMENT + taken(parts) - ELEMENT)
        for part in parts:
            if part.__class__ is not kind:
                fault("TypeError", f"{kind_of(text)} cannot join {kind_of(part)}")
        length = sum(map(len, parts)) + len(text) * max(0, len(parts) - 1)
        self._work.new_text(length, kind is bytes or (text.isascii() and all(map(str.isascii, parts))))
        return text.join(parts)

    def m_split(self, text: Value, separator: Value) -> list[Value]:
        check_alike(text, separator)
        if not separator:
            fault("ValueError", "an empty separator")
        self._work.search_work(text, separator, SPLIT)
        self._work.text_work(text_size(text))
        self._work.elements(text.count(separator) + 1, MADE_ELEMENT)
        return list(text.split(separator))

    def m_startswith(self, text: Value, prefix: Value) -> bool:
        check_alike(text, prefix)
        self._work.text_work(len(prefix))
        return bool(text.startswith(prefix))

    def m_endswith(self, text: Value, suffix: Value) -> bool:
        check_alike(text, suffix)
        self._work.text_work(len(suffix))
        return bool(text.endswith(suffix))

    def m_find(self, text: Value, part: Value) -> int:
        check_alike(text, part)
        self._work.search_work(text, part)
        return int(text.find(part))

    def m_replace(self, text: Value, old: Value, new: Value) -> Value:
        check_alike(text, old, new)
        if not old:
            fault("ValueError", "nothing to replace")
        self._work.search_work(text, old, REPLACED)
        found = text.count(old)
        self._work.elements(found, MADE_ELEMENT)
        self._work.new_text(len(text) + found * (len(new) - len(old)), is_narrow(text) and is_narrow(new))
        return text.replace(old, new)

    def m_strip(self, text: Value, characters: Value = None) -> Value:
        """Strip ASCII blanks, or the given characters."""
        if characters is None:
            characters = BLANKS if text.__class__ is str else BLANKS.encode()
        check_alike(text, characters)
        self._work.charge(OPERATION + len(text) * (STRIPPED_CHARACTER + len(characters) // BYTES_PER_CYCLE))
        return text.strip(characters)

    def m_lower(self, text: Value) -> Value:
        return self._in_case(text, str.lower)

    def m_upper(self, text: Value) -> Value:
        return self._in_case(text, str.upper)

    def _in_case(self, text: Value, change: Callable[[str], str]) -> str:
        """Change the case of an ASCII text. Other texts end the handler, since their capitals depend on the version of
        Unicode."""
        if text.__class__ is not str:
            refuse(text, "a text")
        self._work.changed_text(len(text), 4 * len(text))
        if not text.isascii():
            fault("ValueError", "only ASCII texts have a case here")
        return change(text)

    def m_encode(self, text: Value) -> bytes:
        if text.__class__ is not str:
            refuse(text, "a text")
        self._work.text_work(len(text) if text.isascii() else WIDE_CODING * len(text))
        made = text.encode()
        if len(made) > MAX_TEXT:
            fault("ValueTooLarge", f"{len(made):,} bytes, at most {MAX_TEXT:,}")
        return made

    def m_decode(self, data: Value) -> str:
        if data.__class__ is not bytes:
            refuse(data, "bytes")
        self._work.new_text(len(data))
        if not data.isascii():
            self._work.text_work(WIDE_CODING * len(data))
        try:
            return data.decode()
        except UnicodeDecodeError:
            fault("ValueError", "the bytes are no UTF-8")

    def m_hex(self, data: Value) -> str:
        if data.__class__ is not bytes:
            refuse(data, "bytes")
        self._work.changed_text(2 * len(data), 8 * len(data))
        return data.hex()

    def m_to_bytes(self, number: Value, length: Value) -> bytes:
        """``int.to_bytes(length)``: an unsigned integer as big-endian bytes."""
        needs_number(number)
        needs_number(length)
        if not 0 <= length <= INTEGER_BITS // 8 or number < 0 or number.bit_length() > 8 * length:
            fault("ValueError", f"{int(number)} is no unsigned integer of {length} bytes, at most {INTEGER_BITS // 8}")
        return int(number).to_bytes(length, "big")

    def m_bit_length(self, number: Value) -> int:
        needs_number(number)
        return int(number).bit_length()


def check_alike(text: Value, *parts: Value) -> None:
    """End the handler as ``TypeError`` unless all arguments are texts, or all are bytes."""
    kind = text.__class__
    if kind not in TEXTS:
        refuse(text, "a text or bytes")
    for part in parts:
        if part.__class__ is not kind:
            refuse(part, kind_of(text))
