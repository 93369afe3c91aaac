"""The common parts of the operations that programs perform on values. Each operation charges before it works.

Compiled code uses Python's own operation if it costs the same for all values, such as adding two small integers, and
calls operations for everything else: :mod:`~validator.pvm.runtime.operators`, :mod:`~validator.pvm.runtime.builtins`
(``b_`` and a function's name) and :mod:`~validator.pvm.runtime.methods` (``m_`` and a method's name). Values are of
``int``, ``bool``, ``None``, ``str``, ``bytes``, ``tuple``, ``list`` and ``dict``, or handles of tasks, never of other
types, so the class of a value determines its behaviour. Integers have at most 256 bits, texts
:data:`~validator.primitives.limits.MAX_TEXT` characters. Nothing that depends on the version of Python is available:
Unicode's properties, ``repr``, hashes, identity.

**Keys.** Hashes of texts and bytes are secret, but an integer hashes to itself, so a program could choose integers that
all collide. Therefore a dict holds an integer (or truth value) as a tuple of itself and a secret text, which programs
never see: ``Elements.key`` makes it, :func:`shown_key` removes it, and all access to dicts goes through these two. No
other tuple can be a key. A key that is a text or bytes has at most :data:`~validator.primitives.limits.MAX_KEY_TEXT`
characters, whatever the dict's origin.

**Tables.** Python never shrinks a dict's table when keys are removed, and iteration visits the whole table, while
programs pay for its content. Therefore a removal rebuilds a table that is many times as large as its content
(:func:`shrink`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from validator.primitives.errors import HandlerFailure
from validator.primitives.limits import INTEGER_BITS, INTEGER_LIMIT, MAX_ELEMENTS, MAX_ERROR_TEXT, MAX_TEXT
from validator.pvm.compiler.weights import (
    BYTES_PER_CYCLE,
    ELEMENT,
    OPERATION,
    SEARCHED_PART,
    SEARCHED_PLACES,
    WIDE_TEXT,
)

Value = Any

BLANKS: Final = " \t\n\r\v\f"
TEXTS: Final = (str, bytes)
SEQUENCES: Final = (list, tuple)
SCALARS: Final = frozenset({int, bool, str, bytes, type(None)})
CONTAINERS: Final = frozenset({list, tuple, dict})
ORDERED: Final = frozenset({int, bool, str, bytes, tuple, list})
_HIDDEN: Final = "stampede"
"""The text in the hidden form of integer keys. Its hash is secret, since Python makes it random for each process."""
_SMALL_TABLE: Final = 1_024
_TABLE_PER_KEY: Final = 192
"""Number of bytes per key that a dict's table may have, in addition to ``_SMALL_TABLE``, before it is rebuilt. A table
that has just grown has up to 120 bytes per key, a rebuilt one up to 60, so a large share of the keys is removed before
a table is rebuilt."""


class ActorFault(HandlerFailure):
    """A program did something that Python or the actor VM does not allow. ``name`` is the error's name in either."""


KINDS: Final = {
    int: "an integer",
    bool: "a truth value",
    type(None): "None",
    str: "a text",
    bytes: "bytes",
    tuple: "a tuple",
    list: "a list",
    dict: "a dict",
}
"""Names of the classes of values in :attr:`~validator.primitives.errors.HandlerFailure.why`."""
MAX_SHOWN: Final = 40
"""The most characters of a text or bytes that ``why`` shows."""


class ActorError(HandlerFailure):
    """A program failed deliberately, by ``raise ActorError(…)`` or a failed ``assert``."""

    def __init__(self, text: Value = "") -> None:
        shown = text if isinstance(text, str) else ""
        super().__init__("ActorError" + (f": {shown[:MAX_ERROR_TEXT]}" if shown else ""))


def fault(name: str, why: str = "") -> NoReturn:
    """End the handler by an :class:`ActorFault` with this name."""
    raise ActorFault(name, why)


def refuse(value: Value, expected: str) -> NoReturn:
    """End the handler as ``TypeError``: a value is not what is expected."""
    fault("TypeError", f"expected {expected}, got {kind_of(value)}")


def kind_of(value: Value) -> str:
    """What a value is, in words. The values in it are not named."""
    return KINDS.get(value.__class__, "a task")


def shown(value: Value) -> str:
    """A value in words: a short scalar itself, otherwise what it is."""
    if value.__class__ in TEXTS and len(value) > MAX_SHOWN:
        return f"{kind_of(value)} of {len(value):,} {'characters' if value.__class__ is str else 'bytes'}"
    return repr(value) if value.__class__ in SCALARS else kind_of(value)


def checked(number: int) -> int:
    """Check that a number has at most 256 bits, and return it."""
    if -INTEGER_LIMIT < number < INTEGER_LIMIT:
        return number
    fault("IntegerTooLarge", f"more than {INTEGER_BITS} bits")


def is_number(value: Value) -> bool:
    """Whether a value is an integer; truth values count, as in Python."""
    return value.__class__ is int or value.__class__ is bool


def needs_number(value: Value) -> None:
    """End the handler unless a value is an integer or a truth value."""
    if not (value.__class__ is int or value.__class__ is bool):
        refuse(value, "a number")


def hidden_key(number: int) -> Value:
    """The hidden form of an integer or truth value, in which dicts hold it as a key."""
    return (_HIDDEN, number, _HIDDEN)


def shown_key(key: Value) -> Value:
    """The key of a dict as programs see it: the integer or truth value of a hidden key, otherwise the key itself."""
    return key[1] if key.__class__ is tuple else key


def shown_keys(values: dict[Value, Value]) -> list[Value]:
    """The keys of a dict as programs see them (:func:`shown_key`)."""
    return [key[1] if key.__class__ is tuple else key for key in values]


def shrink(values: dict[Value, Value]) -> None:
    """Rebuild a dict's table if it is far too large for the number of its keys. It is free of charge."""
    if values.__sizeof__() > _SMALL_TABLE + _TABLE_PER_KEY * len(values):
        kept = values.copy()
        values.clear()
        values.update(kept)


def is_narrow(text: Value) -> bool:
    """Whether each character counts once when a text is copied: true for bytes and ASCII texts."""
    return text.__class__ is bytes or text.isascii()


def text_size(text: Value) -> int:
    """The size of a text or bytes for the price of a copy. A text that is not ASCII counts in its widest encoding."""
    return len(text) if is_narrow(text) else len(text) * WIDE_TEXT


def taken(values: Value) -> int:
    """Cycles for each element that is taken out of a value. A character that is not ASCII costs more, because it
    becomes a separate text."""
    return WIDE_TEXT if values.__class__ is str and not values.isascii() else ELEMENT


class Work:
    """Charges the work of operations to a meter."""

    def __init__(self, charge: Callable[[int], None]) -> None:
        self.charge = charge

    def text_work(self, size: int) -> None:
        """Charge for visiting ``size`` characters or bytes."""
        self.charge(OPERATION + size // BYTES_PER_CYCLE)

    def new_text(self, length: int, narrow: bool = True) -> None:
        """Charge for a new text or bytes of this length; ends the handler if it is too long."""
        if length > MAX_TEXT:
            fault("ValueTooLarge", f"{length:,} characters or bytes, at most {MAX_TEXT:,}")
        self.charge(OPERATION + (length if narrow else length * WIDE_TEXT) // BYTES_PER_CYCLE)

    def changed_text(self, length: int, size: int) -> None:
        """Charge for a new text or bytes that is computed instead of copied; ends the handler if it is too long.

        ``length`` is its length, and ``size`` the number of characters that are charged.
        """
        if length > MAX_TEXT:
            fault("ValueTooLarge", f"{length:,} characters or bytes, at most {MAX_TEXT:,}")
        self.text_work(size)

    def search_work(self, text: Value, part: Value, times: int = 1) -> None:
        """Charge for ``times`` searches of a part in a text. The price is the worst case of all Python versions."""
        length, size = len(text), len(part)
        places = length - size + 1 if size <= length else 0
        counted = size if places <= SEARCHED_PLACES or size < SEARCHED_PART else SEARCHED_PART
        self.charge(OPERATION + times * (4 * length + places * counted) // BYTES_PER_CYCLE)

    def elements(self, count: int, each: int = ELEMENT) -> None:
        """Charge for making or visiting ``count`` elements; ends the handler if they are too many for one value."""
        if count > MAX_ELEMENTS:
            fault("ValueTooLarge", f"{count:,} elements, at most {MAX_ELEMENTS:,}")
        self.charge(OPERATION + count * each)

    def numbers(self, left: Value, right: Value) -> None:
        """Check that both operands are numbers, and charge extra if one is a truth value, which is slower."""
        if left.__class__ is int and right.__class__ is int:
            return
        needs_number(left)
        needs_number(right)
        self.charge(OPERATION)
