"""What operators, builtins and methods of values do in a program: each charges for its size before it works.

The compiler leaves alone what costs the same whatever the values are, such as adding two small integers, and calls
these for everything else. Values are of ``int``, ``bool``, ``None``, ``str``, ``bytes``, ``tuple``, ``list`` and
``dict``, and handles of tasks, and of nothing else: so a value's class says all of it. Integers have at most 256 bits,
texts :data:`~validator.primitives.limits.MAX_TEXT` characters. What would depend on the version of Python is not
offered: Unicode's properties, ``repr``, hashes, identity.

**Keys.** What texts and bytes hash to is known to nobody, but an integer hashes to itself, so whoever chooses integers
could choose ones that all meet. In a dict an integer (or truth value) therefore stands as a tuple of itself and a
secret text, which programs never see: :meth:`Operations.key` makes it, :func:`shown_key` takes it off again, and every
way in and out of a dict goes through these two. No other tuple can be a key. A text or bytes that is a key has at most
:data:`~validator.primitives.limits.MAX_KEY_TEXT` characters, wherever the dict comes from.

**Tables.** Python never makes a dict's table smaller when keys are removed, and going over a dict means going over its
table, while programs pay by what is in it. Whatever removes a key therefore makes a table anew that is many times as
large as what it holds (:func:`shrink`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from validator.primitives.codec import keccak256
from validator.primitives.errors import HandlerFailure
from validator.primitives.limits import (
    DICT_KEY_LIMIT,
    INTEGER_BITS,
    INTEGER_LIMIT,
    MAX_COMPARED_DEPTH,
    MAX_ELEMENTS,
    MAX_ERROR_TEXT,
    MAX_INTEGER_DIGITS,
    MAX_KEY_TEXT,
    MAX_TEXT,
)
from validator.pvm.compiler.weights import (
    BYTES_PER_CYCLE,
    CONTAINER_COMPARED,
    ELEMENT,
    KECCAK,
    KECCAK_BYTES_PER_CYCLE,
    MADE_ELEMENT,
    MADE_PAIR,
    NODE_COMPARED,
    NUMBER_KEY,
    NUMBER_TEXT,
    OPERATION,
    PAIR,
    POWER,
    REPLACED,
    SEARCHED_PART,
    SEARCHED_PLACES,
    SORT,
    SORTED_ELEMENT,
    SORTED_PART,
    SPLIT,
    STRIPPED_CHARACTER,
    SUMMED_ELEMENT,
    WIDE_CODING,
    WIDE_TEXT,
)

Value = Any

BLANKS: Final = " \t\n\r\v\f"
_TEXTS: Final = (str, bytes)
_SEQUENCES: Final = (list, tuple)
_SCALARS: Final = frozenset({int, bool, str, bytes, type(None)})
_CONTAINERS: Final = frozenset({list, tuple, dict})
_ORDERED: Final = frozenset({int, bool, str, bytes, tuple, list})
_HIDDEN: Final = "stampede"
"""Its hash is the process's secret."""
_SMALL_TABLE: Final = 1_024
_TABLE_PER_KEY: Final = 192
"""Bytes that a dict's table may have, and for each of its keys. One that has just grown has up to 120 a key, one that
was just made anew up to 60: so a good part of the keys is removed before a table is made anew."""


class ActorFault(HandlerFailure):
    """A program did what Python or the actor VM does not allow; ``name`` is Python's name for it, or the VM's."""


class ActorError(HandlerFailure):
    """The program's own ``raise ActorError(…)`` or ``assert``."""

    def __init__(self, text: Value = "") -> None:
        shown = text if isinstance(text, str) else ""
        super().__init__("ActorError" + (f": {shown[:MAX_ERROR_TEXT]}" if shown else ""))


def fault(name: str) -> NoReturn:
    """End the handler."""
    raise ActorFault(name)


def checked(number: int) -> int:
    """The number, where it has at most 256 bits."""
    if -INTEGER_LIMIT < number < INTEGER_LIMIT:
        return number
    fault("IntegerTooLarge")


def is_number(value: Value) -> bool:
    """Whether a value is an integer; truth values count, as in Python."""
    return value.__class__ is int or value.__class__ is bool


def needs_number(value: Value) -> None:
    """End the handler where a value is no integer and no truth value."""
    if not (value.__class__ is int or value.__class__ is bool):
        fault("TypeError")


def hidden_key(number: int) -> Value:
    """An integer or truth value as a dict holds it."""
    return (_HIDDEN, number, _HIDDEN)


def shown_key(key: Value) -> Value:
    """A dict's key as programs see it."""
    return key[1] if key.__class__ is tuple else key


def shown_keys(values: dict[Value, Value]) -> list[Value]:
    """A dict's keys as programs see them."""
    return [key[1] if key.__class__ is tuple else key for key in values]


def shrink(values: dict[Value, Value]) -> None:
    """Make the table of a dict anew where it is far too large for its keys. How large one is, no charge depends on."""
    if values.__sizeof__() > _SMALL_TABLE + _TABLE_PER_KEY * len(values):
        kept = values.copy()
        values.clear()
        values.update(kept)


def is_narrow(text: Value) -> bool:
    """Whether each character counts once where it is copied: of bytes, and of ASCII texts."""
    return text.__class__ is bytes or text.isascii()


def text_size(text: Value) -> int:
    """What a text or bytes count for where they are copied: one that is not ASCII as its widest form."""
    return len(text) if is_narrow(text) else len(text) * WIDE_TEXT


def taken(values: Value) -> int:
    """What each element counts for that is taken out; a character that is not ASCII becomes a text of its own."""
    return WIDE_TEXT if values.__class__ is str and not values.isascii() else ELEMENT


class Operations:
    """The operations of one program, which charge one meter."""

    def __init__(self, charge: Callable[[int], None]) -> None:
        self.charge = charge

    def text_work(self, size: int) -> None:
        """Charge for so many characters or bytes that are looked at."""
        self.charge(OPERATION + size // BYTES_PER_CYCLE)

    def new_text(self, length: int, narrow: bool = True) -> None:
        """Charge for a new text or bytes of this length, where it may be that long."""
        if length > MAX_TEXT:
            fault("ValueTooLarge")
        self.charge(OPERATION + (length if narrow else length * WIDE_TEXT) // BYTES_PER_CYCLE)

    def changed_text(self, length: int, size: int) -> None:
        """Charge for a new text or bytes of this length that is no copy: making it counts for so many characters."""
        if length > MAX_TEXT:
            fault("ValueTooLarge")
        self.text_work(size)

    def search_work(self, text: Value, part: Value, times: int = 1) -> None:
        """Charge for looking for a part: the slowest search that any version of Python knows, in its worst case."""
        length, size = len(text), len(part)
        places = length - size + 1 if size <= length else 0
        counted = size if places <= SEARCHED_PLACES or size < SEARCHED_PART else SEARCHED_PART
        self.charge(OPERATION + times * (4 * length + places * counted) // BYTES_PER_CYCLE)

    def elements(self, count: int, each: int = ELEMENT) -> None:
        """Charge for so many elements, where one value may hold so many."""
        if count > MAX_ELEMENTS:
            fault("ValueTooLarge")
        self.charge(OPERATION + count * each)

    def numbers(self, left: Value, right: Value) -> None:
        """Two numbers, of which one that is a truth value makes it slower."""
        if left.__class__ is int and right.__class__ is int:
            return
        needs_number(left)
        needs_number(right)
        self.charge(OPERATION)

    def fail(self, text: Value = "") -> NoReturn:
        raise ActorError(text)

    # --- arithmetic ---------------------------------------------------------------------------------------------------

    def overflow(self) -> NoReturn:
        fault("IntegerTooLarge")

    def add(self, left: Value, right: Value) -> Value:
        kind = left.__class__
        if kind is right.__class__:
            if kind in _TEXTS:
                self.new_text(len(left) + len(right), kind is bytes or (left.isascii() and right.isascii()))
                return left + right
            if kind in _SEQUENCES:
                self.elements(len(left) + len(right))
                return left + right
        self.numbers(left, right)
        return checked(left + right)

    def add_in_place(self, left: Value, right: Value) -> Value:
        """``left += right``, which changes a list itself."""
        if left.__class__ is list:
            added = self.iterable(right)
            self.elements(len(left) + len(added))
            self.charge(len(added) * (taken(added) - ELEMENT))
            left += added
            return left
        return self.add(left, right)

    def sub(self, left: Value, right: Value) -> int:
        self.numbers(left, right)
        return checked(left - right)

    def mult(self, left: Value, right: Value) -> Value:
        if is_number(left) and is_number(right):
            self.numbers(left, right)
            return checked(left * right)
        if is_number(left):
            left, right = right, left
        needs_number(right)
        if right.__class__ is bool:
            self.charge(OPERATION)
        times = max(right, 0) if left else 0  # Python counts no further than a machine word, even of nothing
        if left.__class__ in _TEXTS:
            self.new_text(len(left) * times, is_narrow(left))
        elif left.__class__ in _SEQUENCES:
            self.elements(len(left) * times)
        else:
            fault("TypeError")
        return left * times

    def mult_in_place(self, left: Value, right: Value) -> Value:
        """``left *= right``, which changes a list itself."""
        result = self.mult(left, right)
        if left.__class__ is list:
            left[:] = result
            return left
        return result

    def floordiv(self, left: Value, right: Value) -> int:
        self.numbers(left, right)
        if not right:
            fault("ZeroDivisionError")
        return int(left // right)

    def mod(self, left: Value, right: Value) -> int:
        self.numbers(left, right)
        if not right:
            fault("ZeroDivisionError")
        return int(left % right)

    def pow(self, left: Value, right: Value) -> int:
        """A power that fits; how large it gets is bounded before it is computed."""
        self.numbers(left, right)
        if right < 0:
            fault("ValueError")
        self.charge(POWER)
        if -1 <= left <= 1:
            return int(left ** (right % 2 + 2 if right else 0))
        if right * (int(left).bit_length() - 1) > INTEGER_BITS:
            fault("IntegerTooLarge")
        return checked(left**right)

    def lshift(self, left: Value, right: Value) -> int:
        self.numbers(left, right)
        if right < 0:
            fault("ValueError")
        if left and right > INTEGER_BITS:
            fault("IntegerTooLarge")
        return checked(left << right) if left else 0

    def rshift(self, left: Value, right: Value) -> int:
        self.numbers(left, right)
        if right < 0:
            fault("ValueError")
        return int(left >> min(right, INTEGER_BITS + 1))

    def bitand(self, left: Value, right: Value) -> Value:
        self.numbers(left, right)
        return checked(left & right)

    def bitor(self, left: Value, right: Value) -> Value:
        self.numbers(left, right)
        return checked(left | right)

    def bitxor(self, left: Value, right: Value) -> Value:
        self.numbers(left, right)
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

    # --- comparisons --------------------------------------------------------------------------------------------------

    def eq(self, left: Value, right: Value, depth: int = MAX_COMPARED_DEPTH) -> bool:
        """Equality, looked at pair by pair: shared parts are paid for each time that they are reached.

        It follows values inside values for ``depth`` levels, since a list may hold itself.
        """
        kind = left.__class__
        if kind is not right.__class__ or kind not in _CONTAINERS:
            return self._scalars_equal(left, right)
        self.charge(CONTAINER_COMPARED)
        if len(left) != len(right):
            return False
        if not depth:
            fault("RecursionError")
        return self._dicts_equal(left, right, depth) if kind is dict else self._sequences_equal(left, right, depth)

    def _scalars_equal(self, left: Value, right: Value) -> bool:
        """Of values that are not both lists, tuples or dicts; handles of tasks are equal to themselves alone."""
        kind = left.__class__
        if kind is not int or right.__class__ is not int:
            self.text_work(min(len(left), len(right)) if kind in _TEXTS and kind is right.__class__ else 0)
        return bool(left == right) if kind in _SCALARS and right.__class__ in _SCALARS else left is right

    def _sequences_equal(self, left: Value, right: Value, depth: int) -> bool:
        for one, other in zip(left, right, strict=True):
            self.charge(NODE_COMPARED)
            if one.__class__ is int and other.__class__ is int:
                if one != other:
                    return False
            elif not self.eq(one, other, depth - 1):
                return False
        return True

    def _dicts_equal(self, left: Value, right: Value, depth: int) -> bool:
        for key, one in left.items():
            self.charge(NODE_COMPARED)
            if key not in right or not self.eq(one, right[key], depth - 1):
                return False
        return True

    def compare(self, left: Value, right: Value, depth: int = MAX_COMPARED_DEPTH) -> int:
        """-1, 0 or 1, of numbers, of texts, of bytes, or of two lists or tuples, part by part."""
        kind = left.__class__
        if is_number(left) and is_number(right):
            self.numbers(left, right)
            return int(left > right) - int(left < right)
        if kind is not right.__class__ or kind not in _ORDERED:
            fault("TypeError")
        if kind in _TEXTS:
            self.text_work(min(len(left), len(right)))
            return int(left > right) - int(left < right)
        self.charge(CONTAINER_COMPARED)
        if not depth:
            fault("RecursionError")
        for one, other in zip(left, right, strict=False):
            self.charge(NODE_COMPARED)
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
            return self.lookup_key(value) in container
        if kind in _SEQUENCES:
            return self._position(container, value) >= 0
        if kind is str and value.__class__ is str:
            self.search_work(container, value)
            return value in container
        if kind is bytes and (value.__class__ is bytes or is_number(value)):
            self.search_work(container, value if value.__class__ is bytes else b"")
            if is_number(value) and not 0 <= value < 256:
                fault("ValueError")
            return value in container
        fault("TypeError")

    def _position(self, values: Value, wanted: Value) -> int:
        """Where a value first stands in a list or tuple; -1 where it does not."""
        for position, value in enumerate(values):
            self.charge(NODE_COMPARED)
            if self.eq(value, wanted):
                return position
        return -1

    # --- elements -----------------------------------------------------------------------------------------------------

    def key(self, value: Value) -> Value:
        """A value that may be a key, as the dict holds it.

        It says again some of what :meth:`lookup_key` does, since calling that would make displays a tenth slower.
        """
        kind = value.__class__
        if kind is str or kind is bytes:
            if len(value) > MAX_KEY_TEXT:
                fault("KeyTooLarge")
            return value
        needs_number(value)
        self.charge(NUMBER_KEY)
        if not -DICT_KEY_LIMIT < value < DICT_KEY_LIMIT:
            fault("KeyTooLarge")
        return hidden_key(value)

    def lookup_key(self, value: Value) -> Value:
        """What to look up in a dict; an integer or a text that may be no key is nowhere."""
        kind = value.__class__
        if kind is str or kind is bytes:
            return value
        needs_number(value)
        self.charge(NUMBER_KEY)
        return hidden_key(value)

    def index_of(self, values: Value, place: Value) -> int:
        """An index that lies inside."""
        if place.__class__ is not int:
            needs_number(place)
            self.charge(OPERATION)
        if not -len(values) <= place < len(values):
            fault("IndexError")
        return int(place)

    def item(self, container: Value, place: Value) -> Value:
        """``container[place]``."""
        if container.__class__ is dict:
            key = self.lookup_key(place)
            if key not in container:
                fault("KeyError")
            return container[key]
        if container.__class__ in _TEXTS or container.__class__ in _SEQUENCES:
            return container[self.index_of(container, place)]
        fault("TypeError")

    def set_item(self, container: Value, place: Value, value: Value) -> None:
        """``container[place] = value``."""
        if container.__class__ is dict:
            container[self.key(place)] = value
        elif container.__class__ is list:
            container[self.index_of(container, place)] = value
        else:
            fault("TypeError")

    def del_item(self, container: Value, place: Value) -> None:
        """``del container[place]``."""
        if container.__class__ is dict:
            key = self.lookup_key(place)
            if key not in container:
                fault("KeyError")
            del container[key]
            shrink(container)
        elif container.__class__ is list:
            self.elements(len(container))
            del container[self.index_of(container, place)]
        else:
            fault("TypeError")

    def slice(self, container: Value, lower: Value, upper: Value) -> Value:
        """``container[lower:upper]``."""
        for bound in (lower, upper):
            if bound is not None and not is_number(bound):
                fault("TypeError")
        if container.__class__ not in _TEXTS and container.__class__ not in _SEQUENCES:
            fault("TypeError")
        size = len(range(*slice(lower, upper).indices(len(container))))
        if container.__class__ in _TEXTS:
            self.new_text(size, is_narrow(container))
        else:
            self.elements(size)
        return container[lower:upper]

    def dict_of(self, *parts: Value) -> dict[Value, Value]:
        """A dict display, keys and values in turn."""
        return {self.key(parts[i]): parts[i + 1] for i in range(0, len(parts), 2)}

    def iterable(self, value: Value) -> Value:
        """What a loop goes over: a dict's keys as they are now, or the value itself."""
        if value.__class__ is dict:
            self.elements(len(value))
            return shown_keys(value)
        if value.__class__ in _SEQUENCES or value.__class__ in _TEXTS:
            return value
        fault("TypeError")

    def parts(self, value: Value) -> Value:
        """What is unpacked into names; a dict gives its keys."""
        return self.iterable(value) if value.__class__ is dict else value


class Builtins(Operations):
    """Functions by plain name."""

    def b_abs(self, number: Value) -> int:
        needs_number(number)
        return int(abs(number))

    def b_all(self, values: Value) -> bool:
        values = self.iterable(values)
        self.elements(len(values), taken(values))
        return all(values)

    def b_any(self, values: Value) -> bool:
        values = self.iterable(values)
        self.elements(len(values), taken(values))
        return any(values)

    def b_bool(self, value: Value) -> bool:
        return bool(value)

    def b_bytes(self, value: Value) -> bytes:
        """Zero bytes of a length, or a list of bytes' values."""
        if is_number(value):
            if value < 0:
                fault("ValueError")
            self.new_text(value)
            return bytes(value)
        if value.__class__ is bytes:
            return bytes(value)
        if value.__class__ not in _SEQUENCES:
            fault("TypeError")
        self.elements(len(value), MADE_ELEMENT)
        for part in value:
            needs_number(part)
            if not 0 <= part < 256:
                fault("ValueError")
        return bytes(value)

    def b_chr(self, code: Value) -> str:
        needs_number(code)
        if not 0 <= code < 0x110000 or 0xD800 <= code < 0xE000:
            fault("ValueError")
        return chr(code)

    def b_dict(self, value: Value = ()) -> dict[Value, Value]:
        """A copy of a dict, or a dict of pairs."""
        if value.__class__ is dict:
            return self._copy_of(value)
        pairs = self.iterable(value)
        self.elements(len(pairs))
        made: dict[Value, Value] = {}
        for pair in pairs:
            self.charge(PAIR)
            if pair.__class__ not in _SEQUENCES or len(pair) != 2:
                fault("ValueError")
            made[self.key(pair[0])] = pair[1]
        return made

    def _copy_of(self, values: dict[Value, Value]) -> dict[Value, Value]:
        """The same pairs in a table that is no larger than they need."""
        self.elements(len(values), MADE_ELEMENT)
        made: dict[Value, Value] = {}
        made.update(values)
        return made

    def b_enumerate(self, values: Value, start: Value = 0) -> list[Value]:
        needs_number(start)
        values = self.iterable(values)
        self.elements(len(values), MADE_PAIR + taken(values) - ELEMENT)
        checked(start + len(values))
        return list(enumerate(values, start))

    def b_int(self, value: Value) -> int:
        """An integer, or the one that a text of ASCII digits says."""
        if is_number(value):
            return int(value)
        if value.__class__ is not str:
            fault("TypeError")
        self.charge(NUMBER_TEXT)
        digits = value[1:] if value[:1] == "-" else value
        if not (1 <= len(digits) <= MAX_INTEGER_DIGITS and digits.isascii() and digits.isdigit()):
            fault("ValueError")
        return checked(int(value))

    def b_keccak256(self, data: Value) -> bytes:
        if data.__class__ is not bytes:
            fault("TypeError")
        self.charge(KECCAK + len(data) // KECCAK_BYTES_PER_CYCLE)
        return bytes(keccak256(data))

    def b_list(self, values: Value = ()) -> list[Value]:
        values = self.iterable(values)
        self.elements(len(values), taken(values))
        return list(values)

    def b_tuple(self, values: Value = ()) -> tuple[Value, ...]:
        values = self.iterable(values)
        self.elements(len(values), taken(values))
        return tuple(values)

    def b_max(self, *values: Value) -> Value:
        return self._extreme(values, 1)

    def b_min(self, *values: Value) -> Value:
        return self._extreme(values, -1)

    def _extreme(self, values: Value, sign: int) -> Value:
        """The first that no other one surpasses."""
        if len(values) == 1:
            values = self.iterable(values[0])
        if not values:
            fault("ValueError")
        self.elements(len(values))
        best = values[0]
        for value in values[1:]:
            self.charge(NODE_COMPARED)
            if self.compare(value, best) == sign:
                best = value
        return best

    def b_ord(self, character: Value) -> int:
        if character.__class__ not in _TEXTS or len(character) != 1:
            fault("TypeError")
        return ord(character)

    def b_range(self, *bounds: Value) -> list[int]:
        """A list, where no loop goes over it."""
        for bound in bounds:
            needs_number(bound)
        if len(bounds) == 3 and not bounds[2]:
            fault("ValueError")
        numbers = range(*bounds)
        count = max(0, -((numbers.start - numbers.stop) // numbers.step))
        self.elements(count, MADE_ELEMENT)
        return list(numbers)

    def b_reversed(self, values: Value) -> list[Value]:
        values = self.iterable(values)
        self.elements(len(values), taken(values))
        return list(values[::-1])

    def b_sorted(self, values: Value, descending: Value = False) -> list[Value]:
        made = self.b_list(values)
        self.sort(made)
        return made[::-1] if descending else made

    def sort(self, values: list[Value]) -> None:
        """Sort numbers, texts, bytes, or tuples of these, all of one kind; charged by their number and width."""
        self.elements(len(values))
        comparisons = SORTED_ELEMENT * len(values) * max(1, len(values).bit_length())
        self.charge(SORT + comparisons)
        width = max((self._sort_width(value) for value in values), default=1)
        self.charge(comparisons * (width - 1))
        kinds = {self._sort_kind(value) for value in values}
        if len(kinds) > 1:
            fault("TypeError")
        values.sort()

    def _sort_kind(self, value: Value) -> Value:
        """What must be the same for values to have an order among themselves."""
        if is_number(value):
            return int
        if value.__class__ is tuple:
            return tuple(int if is_number(part) else self._scalar_kind(part) for part in value)
        return self._scalar_kind(value)

    def _scalar_kind(self, value: Value) -> Value:
        if value.__class__ not in _TEXTS:
            fault("TypeError")
        return value.__class__

    def _sort_width(self, value: Value) -> int:
        """How much a comparison may have to look at, in units of a number."""
        if value.__class__ is tuple:
            self.charge(CONTAINER_COMPARED)
            self.elements(len(value), SORTED_PART)
            return 1 + sum(self._sort_width(part) for part in value if part.__class__ is not tuple)
        return 1 + len(value) // BYTES_PER_CYCLE if value.__class__ in _TEXTS else 1

    def b_str(self, value: Value) -> str:
        """A text as it is, a number in decimal, True or False."""
        if value.__class__ is str:
            return str(value)
        needs_number(value)
        self.charge(NUMBER_TEXT)
        return str(value)

    def b_sum(self, values: Value) -> int:
        values = self.iterable(values)
        self.elements(len(values), SUMMED_ELEMENT)
        total = 0
        for value in values:
            needs_number(value)
            total = checked(total + value)
        return total

    def b_zip(self, *values: Value) -> list[Value]:
        sequences = [self.iterable(each) for each in values]
        self.charge(OPERATION * (len(sequences) - 1))
        self.elements(min(map(len, sequences)), 2 * ELEMENT + sum(map(taken, sequences)))
        return list(zip(*sequences, strict=False))

    def s_bytes_fromhex(self, text: Value) -> bytes:
        """``bytes.fromhex``: pairs of hex digits and nothing else."""
        if text.__class__ is not str:
            fault("TypeError")
        self.text_work(12 * len(text))
        try:
            made = bytes.fromhex(text)
        except ValueError:
            fault("ValueError")
        if 2 * len(made) != len(text):  # Python would pass over blanks
            fault("ValueError")
        return made

    def s_int_from_bytes(self, data: Value) -> int:
        """``int.from_bytes``: big-endian, without a sign."""
        if data.__class__ is not bytes:
            fault("TypeError")
        if len(data) > INTEGER_BITS // 8:
            fault("IntegerTooLarge")
        return int.from_bytes(data, "big")


_NOTHING: Final = object()


class ValueMethods(Builtins):
    """Methods of values, by name; what a value has no such method for is a type error."""

    def _list(self, values: Value) -> list[Value]:
        if values.__class__ is not list:
            fault("TypeError")
        return values

    def _dict(self, values: Value) -> dict[Value, Value]:
        if values.__class__ is not dict:
            fault("TypeError")
        return values

    def _alike(self, text: Value, *parts: Value) -> None:
        """Texts with texts, bytes with bytes."""
        kind = text.__class__
        if kind not in _TEXTS:
            fault("TypeError")
        for part in parts:
            if part.__class__ is not kind:
                fault("TypeError")

    # --- lists --------------------------------------------------------------------------------------------------------

    def m_append(self, values: Value, value: Value) -> None:
        self._list(values).append(value)

    def m_extend(self, values: Value, others: Value) -> None:
        self.add_in_place(self._list(values), others)

    def m_insert(self, values: Value, index: Value, value: Value) -> None:
        needs_number(index)
        self.elements(len(self._list(values)))
        values.insert(max(-len(values), min(index, len(values))), value)

    def m_pop(self, values: Value, place: Value = _NOTHING, default: Value = _NOTHING) -> Value:
        """The last element or that at an index of a list, or what stands under a key of a dict."""
        if values.__class__ is dict:
            if place is _NOTHING:
                fault("TypeError")
            key = self.lookup_key(place)
            if key in values:
                found = values.pop(key)
                shrink(values)
                return found
            if default is _NOTHING:
                fault("KeyError")
            return default
        if default is not _NOTHING:
            fault("TypeError")
        if place is _NOTHING:
            if not self._list(values):
                fault("IndexError")
            return values.pop()
        self.elements(len(self._list(values)))
        return values.pop(self.index_of(values, place))

    def m_remove(self, values: Value, value: Value) -> None:
        position = self._position(self._list(values), value)
        if position < 0:
            fault("ValueError")
        self.elements(len(values))
        del values[position]

    def m_reverse(self, values: Value) -> None:
        self.elements(len(self._list(values)))
        values.reverse()

    def m_sort(self, values: Value) -> None:
        self.sort(self._list(values))

    def m_clear(self, values: Value) -> None:
        if values.__class__ is not dict:
            self._list(values)
        self.elements(len(values))
        values.clear()

    def m_copy(self, values: Value) -> Value:
        if values.__class__ is dict:
            return self._copy_of(values)
        self.elements(len(self._list(values)))
        return values.copy()

    def m_index(self, values: Value, value: Value) -> int:
        if values.__class__ not in _SEQUENCES:
            fault("TypeError")
        position = self._position(values, value)
        if position < 0:
            fault("ValueError")
        return position

    def m_count(self, values: Value, value: Value) -> int:
        if values.__class__ in _SEQUENCES:
            found = 0
            for each in values:
                self.charge(NODE_COMPARED)
                found += self.eq(each, value)
            return found
        self._alike(values, value)
        self.search_work(values, value)
        return int(values.count(value))

    # --- dicts --------------------------------------------------------------------------------------------------------

    def m_get(self, values: Value, key: Value, default: Value = None) -> Value:
        return self._dict(values).get(self.lookup_key(key), default)

    def m_setdefault(self, values: Value, key: Value, default: Value) -> Value:
        return self._dict(values).setdefault(self.key(key), default)

    def m_update(self, values: Value, others: Value) -> None:
        self.elements(len(self._dict(others)), MADE_ELEMENT)
        self._dict(values).update(others)

    def m_keys(self, values: Value) -> list[Value]:
        self.elements(len(self._dict(values)))
        return shown_keys(values)

    def m_values(self, values: Value) -> list[Value]:
        self.elements(len(self._dict(values)))
        return list(values.values())

    def m_items(self, values: Value) -> list[Value]:
        self.elements(len(self._dict(values)), MADE_PAIR)
        return [(shown_key(key), value) for key, value in values.items()]

    # --- texts and bytes ----------------------------------------------------------------------------------------------

    def m_join(self, text: Value, parts: Value) -> Value:
        kind = text.__class__
        if kind not in _TEXTS:
            fault("TypeError")
        parts = self.iterable(parts)
        self.elements(len(parts), MADE_ELEMENT + taken(parts) - ELEMENT)
        for part in parts:
            if part.__class__ is not kind:
                fault("TypeError")
        length = sum(map(len, parts)) + len(text) * max(0, len(parts) - 1)
        self.new_text(length, kind is bytes or (text.isascii() and all(map(str.isascii, parts))))
        return text.join(parts)

    def m_split(self, text: Value, separator: Value) -> list[Value]:
        self._alike(text, separator)
        if not separator:
            fault("ValueError")
        self.search_work(text, separator, SPLIT)
        self.text_work(text_size(text))
        self.elements(text.count(separator) + 1, MADE_ELEMENT)
        return list(text.split(separator))

    def m_startswith(self, text: Value, prefix: Value) -> bool:
        self._alike(text, prefix)
        self.text_work(len(prefix))
        return bool(text.startswith(prefix))

    def m_endswith(self, text: Value, suffix: Value) -> bool:
        self._alike(text, suffix)
        self.text_work(len(suffix))
        return bool(text.endswith(suffix))

    def m_find(self, text: Value, part: Value) -> int:
        self._alike(text, part)
        self.search_work(text, part)
        return int(text.find(part))

    def m_replace(self, text: Value, old: Value, new: Value) -> Value:
        self._alike(text, old, new)
        if not old:
            fault("ValueError")
        self.search_work(text, old, REPLACED)
        found = text.count(old)
        self.elements(found, MADE_ELEMENT)
        self.new_text(len(text) + found * (len(new) - len(old)), is_narrow(text) and is_narrow(new))
        return text.replace(old, new)

    def m_strip(self, text: Value, characters: Value = None) -> Value:
        """Without the blanks of ASCII around it, or without the characters given."""
        if characters is None:
            characters = BLANKS if text.__class__ is str else BLANKS.encode()
        self._alike(text, characters)
        self.charge(OPERATION + len(text) * (STRIPPED_CHARACTER + len(characters) // BYTES_PER_CYCLE))
        return text.strip(characters)

    def m_lower(self, text: Value) -> Value:
        return self._in_case(text, str.lower)

    def m_upper(self, text: Value) -> Value:
        return self._in_case(text, str.upper)

    def _in_case(self, text: Value, change: Callable[[str], str]) -> str:
        """Of ASCII texts alone: what other letters have for capitals changes with Unicode."""
        if text.__class__ is not str:
            fault("TypeError")
        self.changed_text(len(text), 4 * len(text))
        if not text.isascii():
            fault("ValueError")
        return change(text)

    def m_encode(self, text: Value) -> bytes:
        if text.__class__ is not str:
            fault("TypeError")
        self.text_work(len(text) if text.isascii() else WIDE_CODING * len(text))
        made = text.encode()
        if len(made) > MAX_TEXT:
            fault("ValueTooLarge")
        return made

    def m_decode(self, data: Value) -> str:
        if data.__class__ is not bytes:
            fault("TypeError")
        self.new_text(len(data))
        if not data.isascii():
            self.text_work(WIDE_CODING * len(data))
        try:
            return data.decode()
        except UnicodeDecodeError:
            fault("ValueError")

    def m_hex(self, data: Value) -> str:
        if data.__class__ is not bytes:
            fault("TypeError")
        self.changed_text(2 * len(data), 8 * len(data))
        return data.hex()

    # --- integers -----------------------------------------------------------------------------------------------------

    def m_to_bytes(self, number: Value, length: Value) -> bytes:
        """Big-endian, without a sign."""
        needs_number(number)
        needs_number(length)
        if not 0 <= length <= INTEGER_BITS // 8 or number < 0 or number.bit_length() > 8 * length:
            fault("ValueError")
        return int(number).to_bytes(length, "big")

    def m_bit_length(self, number: Value) -> int:
        needs_number(number)
        return int(number).bit_length()
