"""The chain's basic types with their sizes, and the base class of the validator's expected errors."""

from __future__ import annotations

import re
from typing import Any, Final, NewType

Height = NewType("Height", int)
"""Position of a block in the chain, u64. Genesis is 0, the first block 1."""

Cycles = NewType("Cycles", int)
"""Units of compute."""

Cells = NewType("Cells", int)
"""Bytes of data, as a metered unit."""

Amount = NewType("Amount", int)
"""Quantity of the smallest CBY unit, ``0 <= amount < 2**128``."""

Price = NewType("Price", int)
"""Amount per cycle or per cell, ``0 <= price < 2**96``."""

Address = NewType("Address", bytes)
"""Account or actor address, 20 bytes."""

Hash = NewType("Hash", bytes)
"""A hash of 32 bytes, such as that of a transaction or a header, a Merkle root, or a timer id."""

TimerId = NewType("TimerId", bytes)
"""Identity of a timer, 32 bytes (SPEC §4)."""

PRICE_LIMIT: Final = 2**96
AMOUNT_LIMIT: Final = 2**128
HEIGHT_LIMIT: Final = 2**63
MAX_NAME_BYTES: Final = 256
"""The longest name of a handler or an event, in bytes of UTF-8 (:func:`is_name`)."""
ADDRESS_BYTES: Final = 20
HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")
"""The hex digits of both cases. ``bytes.fromhex`` also accepts white space, so texts are checked against this set
first."""
HASH_BYTES: Final = 32
MAX_DECIMAL_DIGITS: Final = 40
DECIMAL_PATTERN: Final = rf"^(?:0|[1-9][0-9]{{0,{MAX_DECIMAL_DIGITS - 1}}})$"
"""A number as decimal text, of which each number has exactly one: ASCII digits without sign, white space, underscores
and leading zeros."""
_DECIMAL: Final = re.compile(DECIMAL_PATTERN.strip("^$"))

ZERO_HASH: Final = Hash(bytes(HASH_BYTES))
"""The hash of zero bytes only. It is the origin of work that no transaction started, and the parent hash of the genesis
block."""

RESERVED_ADDRESSES: Final = 16
"""Number of addresses that belong to the system: ``0x00…00`` to ``0x00…0f`` (SPEC §1)."""

SYSTEM_PARAMETERS_ADDRESS: Final = Address(bytes(19) + b"\x09")
"""The system account that holds governed parameters (SPEC §1)."""


BID_ESCROW_ADDRESS: Final = Address(bytes(19) + b"\x0b")
"""The system account that holds the bids of pending timers under ``bias_auction`` (SPEC §13)."""


RUNNER_CONTRACT_ADDRESS: Final = Address(bytes(19) + b"\x0a")
"""The system account to which runners submit the results of jobs. It is the sender of callbacks (SPEC §14)."""


class ValidatorError(Exception):
    """Base class of the validator's expected errors. The message is one line."""


def is_reserved(address: bytes) -> bool:
    """Whether an address belongs to the system."""
    return address[:19] == bytes(19) and address[19] < RESERVED_ADDRESSES


def address_text(address: bytes) -> str:
    """An address as text: ``0x`` and lower-case hex digits."""
    return "0x" + address.hex()


def is_name(text: str, *, may_be_empty: bool = False) -> bool:
    """Whether a text is a valid name of a handler or an event: 1 (or 0) to :data:`MAX_NAME_BYTES` bytes of UTF-8.

    The limit keeps names small, because names in receipts and state cost no cells.
    """
    if len(text) > MAX_NAME_BYTES:
        return False
    try:
        return (may_be_empty or text != "") and len(text.encode()) <= MAX_NAME_BYTES
    except UnicodeEncodeError:
        return False


def parse_decimal(text: str, most: int = 10**MAX_DECIMAL_DIGITS - 1) -> int | None:
    """The number that a decimal text gives (:data:`DECIMAL_PATTERN`), if it is at most ``most``; else ``None``."""
    if not _DECIMAL.fullmatch(text):
        return None
    number = int(text)
    return number if number <= most else None


def number_of(value: Any) -> Any:
    """The number that ``value`` gives if it is decimal text; else ``value``."""
    number = parse_decimal(value) if isinstance(value, str) else None
    return value if number is None else number


def parse_timer_id(text: str) -> bytes:
    """The timer id that a text of 64 hex digits gives. Any other text gives empty bytes.

    No timer has the empty id, so using it fails with ``NotFound`` (SPEC §4).
    """
    return bytes.fromhex(text) if len(text) == 2 * HASH_BYTES and HEX_DIGITS.issuperset(text) else b""


def parse_address(text: str) -> Address:
    """The address that a text gives. Raises :class:`ValueError` unless it is ``0x`` and 40 hex digits."""
    digits = text[2:]
    if text[:2] not in ("0x", "0X") or len(digits) != 2 * ADDRESS_BYTES or not HEX_DIGITS.issuperset(digits):
        raise ValueError(f"{text!r} is no address: expected 0x and 40 hex digits")
    return Address(bytes.fromhex(digits))
