"""The builtin functions of programs (``b_`` and the name), and static methods of types (``s_``, the type, the name)."""

from __future__ import annotations

from validator.primitives.codec import keccak256
from validator.primitives.limits import INTEGER_BITS, MAX_INTEGER_DIGITS
from validator.pvm.compiler.weights import (
    BYTES_PER_CYCLE,
    CONTAINER_COMPARED,
    ELEMENT,
    KECCAK,
    KECCAK_BYTES_PER_CYCLE,
    MADE_ELEMENT,
    MADE_PAIR,
    NODE_COMPARED,
    NUMBER_TEXT,
    OPERATION,
    PAIR,
    SORT,
    SORTED_ELEMENT,
    SORTED_PART,
    SUMMED_ELEMENT,
)
from validator.pvm.runtime.operations import (
    SEQUENCES,
    TEXTS,
    Value,
    Work,
    checked,
    fault,
    is_number,
    kind_of,
    needs_number,
    refuse,
    shown,
    taken,
)
from validator.pvm.runtime.operators import Comparisons, Elements


class Builtins:
    """Builtins of one program, one method each."""

    def __init__(self, work: Work, elements: Elements, comparisons: Comparisons) -> None:
        self._work = work
        self._elements = elements
        self._comparisons = comparisons

    def b_abs(self, number: Value) -> int:
        needs_number(number)
        return int(abs(number))

    def b_all(self, values: Value) -> bool:
        values = self._elements.iterable(values)
        self._work.elements(len(values), taken(values))
        return all(values)

    def b_any(self, values: Value) -> bool:
        values = self._elements.iterable(values)
        self._work.elements(len(values), taken(values))
        return any(values)

    def b_bool(self, value: Value) -> bool:
        return bool(value)

    def b_bytes(self, value: Value) -> bytes:
        """``bytes(value)``: zero bytes of a length, a copy of bytes, or bytes from a list of numbers."""
        if is_number(value):
            if value < 0:
                fault("ValueError", f"bytes of length {value}")
            self._work.new_text(value)
            return bytes(value)
        if value.__class__ is bytes:
            return bytes(value)
        if value.__class__ not in SEQUENCES:
            refuse(value, "a length, bytes or a list of numbers")
        self._work.elements(len(value), MADE_ELEMENT)
        for part in value:
            needs_number(part)
            if not 0 <= part < 256:
                fault("ValueError", f"a byte is from 0 to 255, not {part}")
        return bytes(value)

    def b_chr(self, code: Value) -> str:
        needs_number(code)
        if not 0 <= code < 0x110000 or 0xD800 <= code < 0xE000:
            fault("ValueError", f"no character has the code {code}")
        return chr(code)

    def b_dict(self, value: Value = ()) -> dict[Value, Value]:
        """A copy of a dict, or a dict of pairs."""
        if value.__class__ is dict:
            return copy_of(self._work, value)
        pairs = self._elements.iterable(value)
        self._work.elements(len(pairs))
        made: dict[Value, Value] = {}
        for pair in pairs:
            self._work.charge(PAIR)
            if pair.__class__ not in SEQUENCES or len(pair) != 2:
                fault("ValueError", f"expected pairs of key and value, got {kind_of(pair)}")
            made[self._elements.key(pair[0])] = pair[1]
        return made

    def b_enumerate(self, values: Value, start: Value = 0) -> list[Value]:
        needs_number(start)
        values = self._elements.iterable(values)
        self._work.elements(len(values), MADE_PAIR + taken(values) - ELEMENT)
        checked(start + len(values))
        return list(enumerate(values, start))

    def b_int(self, value: Value) -> int:
        """``int(value)``: a number as an integer, or the integer that a text of ASCII digits gives."""
        if is_number(value):
            return int(value)
        if value.__class__ is not str:
            refuse(value, "a number or a text")
        self._work.charge(NUMBER_TEXT)
        digits = value[1:] if value[:1] == "-" else value
        if not (1 <= len(digits) <= MAX_INTEGER_DIGITS and digits.isascii() and digits.isdigit()):
            fault("ValueError", f"{shown(value)} is no integer of at most {MAX_INTEGER_DIGITS} digits")
        return checked(int(value))

    def b_keccak256(self, data: Value) -> bytes:
        if data.__class__ is not bytes:
            refuse(data, "bytes")
        self._work.charge(KECCAK + len(data) // KECCAK_BYTES_PER_CYCLE)
        return bytes(keccak256(data))

    def b_list(self, values: Value = ()) -> list[Value]:
        values = self._elements.iterable(values)
        self._work.elements(len(values), taken(values))
        return list(values)

    def b_tuple(self, values: Value = ()) -> tuple[Value, ...]:
        values = self._elements.iterable(values)
        self._work.elements(len(values), taken(values))
        return tuple(values)

    def b_max(self, *values: Value) -> Value:
        return self._extreme(values, 1)

    def b_min(self, *values: Value) -> Value:
        return self._extreme(values, -1)

    def _extreme(self, values: Value, sign: int) -> Value:
        """The first greatest value (``sign`` is 1) or the first least one (-1)."""
        if len(values) == 1:
            values = self._elements.iterable(values[0])
        if not values:
            fault("ValueError", "nothing to choose from")
        self._work.elements(len(values))
        best = values[0]
        for value in values[1:]:
            self._work.charge(NODE_COMPARED)
            if self._comparisons.compare(value, best) == sign:
                best = value
        return best

    def b_ord(self, character: Value) -> int:
        if character.__class__ not in TEXTS or len(character) != 1:
            fault("TypeError", f"expected one character, got {shown(character)}")
        return ord(character)

    def b_range(self, *bounds: Value) -> list[int]:
        """``range(…)`` as a list. Loops over a range do not call this method."""
        for bound in bounds:
            needs_number(bound)
        if len(bounds) == 3 and not bounds[2]:
            fault("ValueError", "a range with steps of 0")
        numbers = range(*bounds)
        count = max(0, -((numbers.start - numbers.stop) // numbers.step))
        self._work.elements(count, MADE_ELEMENT)
        return list(numbers)

    def b_reversed(self, values: Value) -> list[Value]:
        values = self._elements.iterable(values)
        self._work.elements(len(values), taken(values))
        return list(values[::-1])

    def b_sorted(self, values: Value, descending: Value = False) -> list[Value]:
        made = self.b_list(values)
        sort(self._work, made)
        return made[::-1] if descending else made

    def b_str(self, value: Value) -> str:
        """``str(value)``: a text unchanged, an integer in decimal, a truth value as ``True`` or ``False``."""
        if value.__class__ is str:
            return str(value)
        needs_number(value)
        self._work.charge(NUMBER_TEXT)
        return str(value)

    def b_sum(self, values: Value) -> int:
        values = self._elements.iterable(values)
        self._work.elements(len(values), SUMMED_ELEMENT)
        total = 0
        for value in values:
            needs_number(value)
            total = checked(total + value)
        return total

    def b_zip(self, *values: Value) -> list[Value]:
        sequences = [self._elements.iterable(each) for each in values]
        self._work.charge(OPERATION * (len(sequences) - 1))
        self._work.elements(min(map(len, sequences)), 2 * ELEMENT + sum(map(taken, sequences)))
        return list(zip(*sequences, strict=False))

    def s_bytes_fromhex(self, text: Value) -> bytes:
        """``bytes.fromhex(text)``, for pairs of hex digits without blanks."""
        if text.__class__ is not str:
            refuse(text, "a text")
        self._work.text_work(12 * len(text))
        try:
            made = bytes.fromhex(text)
        except ValueError:
            made = b""
        if 2 * len(made) != len(text):  # Python would skip blanks
            fault("ValueError", f"{shown(text)} is not pairs of hex digits")
        return made

    def s_int_from_bytes(self, data: Value) -> int:
        """``int.from_bytes(data)``: the unsigned integer of big-endian bytes."""
        if data.__class__ is not bytes:
            refuse(data, "bytes")
        if len(data) > INTEGER_BITS // 8:
            fault("IntegerTooLarge", f"{len(data):,} bytes, at most {INTEGER_BITS // 8}")
        return int.from_bytes(data, "big")


def sort(work: Work, values: list[Value]) -> None:
    """Sort a list in place. Its elements are numbers, texts, bytes, or tuples of these, all of one kind.

    The charge depends on their number and width.
    """
    work.elements(len(values))
    comparisons = SORTED_ELEMENT * len(values) * max(1, len(values).bit_length())
    work.charge(SORT + comparisons)
    width = max((_sort_width(work, value) for value in values), default=1)
    work.charge(comparisons * (width - 1))
    kinds = {_sort_kind(value) for value in values}
    if len(kinds) > 1:
        fault("TypeError", "only values of one kind can be sorted together: numbers, texts, bytes or tuples of these")
    values.sort()


def _sort_kind(value: Value) -> Value:
    """The kind of a value for sorting. Only values of the same kind can be sorted together."""
    if is_number(value):
        return int
    if value.__class__ is tuple:
        return tuple(int if is_number(part) else _scalar_kind(part) for part in value)
    return _scalar_kind(value)


def _scalar_kind(value: Value) -> Value:
    if value.__class__ not in TEXTS:
        refuse(value, "numbers, texts, bytes or tuples of these to sort")
    return value.__class__


def _sort_width(work: Work, value: Value) -> int:
    """The maximum cost of comparing a value in a sort, in units of the comparison of two numbers."""
    if value.__class__ is tuple:
        work.charge(CONTAINER_COMPARED)
        work.elements(len(value), SORTED_PART)
        return 1 + sum(_sort_width(work, part) for part in value if part.__class__ is not tuple)
    return 1 + len(value) // BYTES_PER_CYCLE if value.__class__ in TEXTS else 1


def copy_of(work: Work, values: dict[Value, Value]) -> dict[Value, Value]:
    """A copy of a dict, whose table is no larger than needed."""
    work.elements(len(values), MADE_ELEMENT)
    made: dict[Value, Value] = {}
    made.update(values)
    return made
