"""Operators of programs: elements of values, comparisons and arithmetic."""

from __future__ import annotations

from typing import Final

from validator.primitives.limits import DICT_KEY_LIMIT, INTEGER_BITS, MAX_COMPARED_DEPTH, MAX_KEY_TEXT
from validator.pvm.compiler.weights import CONTAINER_COMPARED, ELEMENT, NODE_COMPARED, NUMBER_KEY, OPERATION, POWER
from validator.pvm.runtime.operations import (
    CONTAINERS,
    ORDERED,
    SCALARS,
    SEQUENCES,
    TEXTS,
    Value,
    Work,
    checked,
    fault,
    hidden_key,
    is_narrow,
    is_number,
    kind_of,
    needs_number,
    refuse,
    shown,
    shown_keys,
    shrink,
    taken,
)

TOO_DEEP: Final = f"values nested more than {MAX_COMPARED_DEPTH} deep cannot be compared"


class Elements:
    """Access to the elements of values: one method for each operation that compiled code calls."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def key(self, value: Value) -> Value:
        """Check that a value may be a dict's key, and return it in the form in which dicts hold it.

        The code repeats a part of :meth:`lookup_key`, since a call would make dict displays a tenth slower.
        """
        kind = value.__class__
        if kind is str or kind is bytes:
            if len(value) > MAX_KEY_TEXT:
                fault("KeyTooLarge", f"a key of {len(value):,} characters, at most {MAX_KEY_TEXT}")
            return value
        needs_number(value)
        self._work.charge(NUMBER_KEY)
        if not -DICT_KEY_LIMIT < value < DICT_KEY_LIMIT:
            fault("KeyTooLarge", f"the key {value} is too far from 0")
        return hidden_key(value)

    def lookup_key(self, value: Value) -> Value:
        """The form of a value in which to look it up in a dict. The key's size is not checked: too large ones are in no
        dict."""
        kind = value.__class__
        if kind is str or kind is bytes:
            return value
        needs_number(value)
        self._work.charge(NUMBER_KEY)
        return hidden_key(value)

    def index_of(self, values: Value, place: Value) -> int:
        """Check an index of a value, and return it. Ends the handler if it is out of bounds."""
        if place.__class__ is not int:
            needs_number(place)
            self._work.charge(OPERATION)
        if not -len(values) <= place < len(values):
            fault("IndexError", f"index {place} of {kind_of(values)} of length {len(values):,}")
        return int(place)

    def item(self, container: Value, place: Value) -> Value:
        """``container[place]``."""
        if container.__class__ is dict:
            key = self.lookup_key(place)
            if key not in container:
                fault("KeyError", shown(place))
            return container[key]
        if container.__class__ not in TEXTS and container.__class__ not in SEQUENCES:
            fault("TypeError", f"{kind_of(container)} has no elements")
        return container[self.index_of(container, place)]

    def set_item(self, container: Value, place: Value, value: Value) -> None:
        """``container[place] = value``."""
        if container.__class__ is dict:
            container[self.key(place)] = value
        elif container.__class__ is list:
            container[self.index_of(container, place)] = value
        else:
            fault("TypeError", f"elements of {kind_of(container)} cannot be set")

    def del_item(self, container: Value, place: Value) -> None:
        """``del container[place]``."""
        if container.__class__ is dict:
            key = self.lookup_key(place)
            if key not in container:
                fault("KeyError", shown(place))
            del container[key]
            shrink(container)
        elif container.__class__ is list:
            self._work.elements(len(container))
            del container[self.index_of(container, place)]
        else:
            fault("TypeError", f"elements of {kind_of(container)} cannot be removed")

    def slice(self, container: Value, lower: Value, upper: Value) -> Value:
        """``container[lower:upper]``."""
        for bound in (lower, upper):
            if bound is not None and not is_number(bound):
                refuse(bound, "a number as a bound")
        if container.__class__ not in TEXTS and container.__class__ not in SEQUENCES:
            fault("TypeError", f"{kind_of(container)} has no parts")
        size = len(range(*slice(lower, upper).indices(len(container))))
        if container.__class__ in TEXTS:
            self._work.new_text(size, is_narrow(container))
        else:
            self._work.elements(size)
        return container[lower:upper]

    def dict_of(self, *parts: Value) -> dict[Value, Value]:
        """A dict display, keys and values in turn."""
        return {self.key(parts[i]): parts[i + 1] for i in range(0, len(parts), 2)}

    def iterable(self, value: Value) -> Value:
        """What a loop over a value iterates over: a list of a dict's current keys, or the value itself."""
        if value.__class__ is dict:
            self._work.elements(len(value))
            return shown_keys(value)
        if value.__class__ not in SEQUENCES and value.__class__ not in TEXTS:
            refuse(value, "a list, a dict, a text or bytes to go through")
        return value

    def parts(self, value: Value) -> Value:
        """What is unpacked when a value is assigned to several names: a list of a dict's keys, or the value itself."""
        return self.iterable(value) if value.__class__ is dict else value


class Comparisons:
    """The comparisons that compiled code calls, one method each. The compiler's table has their names."""

    def __init__(self, work: Work, elements: Elements) -> None:
        self._work = work
        self._elements = elements

    def eq(self, left: Value, right: Value, depth: int = MAX_COMPARED_DEPTH) -> bool:
        """The operation ``left == right``. Each visited pair of parts is charged, also if it was visited before.

        Nested values are followed for at most ``depth`` levels, since a list may contain itself.
        """
        kind = left.__class__
        if kind is not right.__class__ or kind not in CONTAINERS:
            return self._scalars_equal(left, right)
        self._work.charge(CONTAINER_COMPARED)
        if len(left) != len(right):
            return False
        if not depth:
            fault("RecursionError", TOO_DEEP)
        return self._dicts_equal(left, right, depth) if kind is dict else self._sequences_equal(left, right, depth)

    def _scalars_equal(self, left: Value, right: Value) -> bool:
        """Equality of two values that are not both of the same container class. A task's handle equals only itself."""
        kind = left.__class__
        if kind is not int or right.__class__ is not int:
            self._work.text_work(min(len(left), len(right)) if kind in TEXTS and kind is right.__class__ else 0)
        return bool(left == right) if kind in SCALARS and right.__class__ in SCALARS else left is right

    def _sequences_equal(self, left: Value, right: Value, depth: int) -> bool:
        charge = self._work.charge
        for one, other in zip(left, right, strict=True):
            charge(NODE_COMPARED)
            if one.__class__ is int and other.__class__ is int:
                if one != other:
                    return False
            elif not self.eq(one, other, depth - 1):
                return False
        return True

    def _dicts_equal(self, left: Value, right: Value, depth: int) -> bool:
        charge = self._work.charge
        for key, one in left.items():
            charge(NODE_COMPARED)
            if key not in right or not self.eq(one, right[key], depth - 1):
                return False
        return True

    def compare(self, left: Value, right: Value, depth: int = MAX_COMPARED_DEPTH) -> int:
        """Compare two numbers, texts, bytes, lists or tuples; the last two part by part.

        Returns -1, 0 or 1 if ``left`` is less than, equal to or greater than ``right``.
        """
        kind = left.__class__
        if is_number(left) and is_number(right):
            self._work.numbers(left, right)
            return int(left > right) - int(left < right)
        if kind is not right.__class__ or kind not in ORDERED:
            fault("TypeError", f"{kind_of(left)} and {kind_of(right)} have no order")
        if kind in TEXTS:
            self._work.text_work(min(len(left), len(right)))
            return int(left > right) - int(left < right)
        charge = self._work.charge
        charge(CONTAINER_COMPARED)
        if not depth:
            fault("RecursionError", TOO_DEEP)
        for one, other in zip(left, right, strict=False):
            charge(NODE_COMPARED)
            if not self.eq(one, other, depth - 1):
                return self.compare(one, other, depth - 1)
        return (len(left) > len(right)) - (len(left) < len(right))

    def lt(self, left: Value, right: Value) -> bool:
        return self.compare(left, right) < 0

    def le(self, left: Value, right: Value) -> bool:
        return self.compare(left, right) <= 0

    def gt(self, left: Value, right: Value) -> bool:
        return self.compare(left, right) > 0

    def ge(self, left: Value, right: Value) -> bool:
        return self.compare(left, right) >= 0

    def contains(self, value: Value, container: Value) -> bool:
        """``value in container``."""
        kind = container.__class__
        if kind is dict:
            return self._elements.lookup_key(value) in container
        if kind in SEQUENCES:
            return self.position(container, value) >= 0
        if kind is str and value.__class__ is str:
            self._work.search_work(container, value)
            return value in container
        if kind is not bytes or not (value.__class__ is bytes or is_number(value)):
            fault("TypeError", f"{kind_of(value)} cannot be in {kind_of(container)}")
        self._work.search_work(container, value if value.__class__ is bytes else b"")
        if is_number(value) and not 0 <= value < 256:
            fault("ValueError", f"a byte is from 0 to 255, not {value}")
        return value in container

    def position(self, values: Value, wanted: Value) -> int:
        """The first index of a value in a list or tuple; -1 if it is absent."""
        charge = self._work.charge
        for position, value in enumerate(values):
            charge(NODE_COMPARED)
            if self.eq(value, wanted):
                return position
        return -1


class Arithmetic:
    """The arithmetic operators that compiled code calls, one method each. The compiler's tables have their names."""

    def __init__(self, work: Work, elements: Elements) -> None:
        self._work = work
        self._elements = elements

    def add(self, left: Value, right: Value) -> Value:
        kind = left.__class__
        if kind is right.__class__:
            if kind in TEXTS:
                self._work.new_text(len(left) + len(right), kind is bytes or (left.isascii() and right.isascii()))
                return left + right
            if kind in SEQUENCES:
                self._work.elements(len(left) + len(right))
                return left + right
        self._work.numbers(left, right)
        return checked(left + right)

    def add_in_place(self, left: Value, right: Value) -> Value:
        """``left += right``, which changes a list in place."""
        if left.__class__ is list:
            added = self._elements.iterable(right)
            self._work.elements(len(left) + len(added))
            self._work.charge(len(added) * (taken(added) - ELEMENT))
            left += added
            return left
        return self.add(left, right)

    def sub(self, left: Value, right: Value) -> int:
        self._work.numbers(left, right)
        return checked(left - right)

    def mult(self, left: Value, right: Value) -> Value:
        if is_number(left) and is_number(right):
            self._work.numbers(left, right)
            return checked(left * right)
        if is_number(left):
            left, right = right, left
        needs_number(right)
        if right.__class__ is bool:
            self._work.charge(OPERATION)
        times = max(right, 0) if left else 0  # Python limits the factor to a machine word, even for nothing
        if left.__class__ in TEXTS:
            self._work.new_text(len(left) * times, is_narrow(left))
        elif left.__class__ in SEQUENCES:
            self._work.elements(len(left) * times)
        else:
            refuse(left, "a number, a text, bytes or a list")
        return left * times

    def mult_in_place(self, left: Value, right: Value) -> Value:
        """``left *= right``, which changes a list in place."""
        result = self.mult(left, right)
        if left.__class__ is list:
            left[:] = result
            return left
        return result

    def floordiv(self, left: Value, right: Value) -> int:
        self._work.numbers(left, right)
        if not right:
            fault("ZeroDivisionError", "division by 0")
        return int(left // right)

    def mod(self, left: Value, right: Value) -> int:
        self._work.numbers(left, right)
        if not right:
            fault("ZeroDivisionError", "division by 0")
        return int(left % right)

    def pow(self, left: Value, right: Value) -> int:
        """The operation ``left ** right``. A result that is clearly too large is refused before it is computed."""
        self._work.numbers(left, right)
        if right < 0:
            fault("ValueError", f"the exponent {right} is negative")
        self._work.charge(POWER)
        if -1 <= left <= 1:
            return int(left ** (right % 2 + 2 if right else 0))
        if right * (int(left).bit_length() - 1) > INTEGER_BITS:
            fault("IntegerTooLarge", f"more than {INTEGER_BITS} bits")
        return checked(left**right)

    def lshift(self, left: Value, right: Value) -> int:
        self._work.numbers(left, right)
        if right < 0:
            fault("ValueError", f"a shift by {right}")
        if left and right > INTEGER_BITS:
            fault("IntegerTooLarge", f"more than {INTEGER_BITS} bits")
        return checked(left << right) if left else 0

    def rshift(self, left: Value, right: Value) -> int:
        self._work.numbers(left, right)
        if right < 0:
            fault("ValueError", f"a shift by {right}")
        return int(left >> min(right, INTEGER_BITS + 1))

    def bitand(self, left: Value, right: Value) -> Value:
        self._work.numbers(left, right)
        return checked(left & right)

    def bitor(self, left: Value, right: Value) -> Value:
        self._work.numbers(left, right)
        return checked(left | right)

    def bitxor(self, left: Value, right: Value) -> Value:
        self._work.numbers(left, right)
        return checked(left ^ right)

    def neg(self, value: Value) -> int:
        needs_number(value)
        return -int(value)

    def pos(self, value: Value) -> int:
        needs_number(value)
        return int(value)

    def invert(self, value: Value) -> int:
        needs_number(value)
        return checked(-value - 1)
