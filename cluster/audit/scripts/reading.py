"""Reads a payload as a script: a list of operations, all checked before the first one runs (SPEC §2).

Most payloads are read twice: inside of the script that schedules a timer, and when the timer fires. Short ones are
remembered, so that the second reading costs nothing.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from validator.primitives import script_json
from validator.primitives.errors import BadScript
from validator.primitives.types import HEX_DIGITS, Address, is_name, parse_address, parse_timer_id

ENVELOPE_KEYS: Final = frozenset({"_handler", "_payload"})
DEFAULT_HANDLER: Final = "handle_timer"
SENDER: Final = "sender"
SELF: Final = "self"
TIERS: Final = ("economy", "standard", "fast", "urgent")
_BASE64: Final = re.compile("[A-Za-z0-9+/]*={0,2}")
"""The pattern of strict Base64, for texts whose length is a multiple of four.

It is spelled out because Python versions differ in what they accept.
"""
JSON_SPACE: Final = b" \t\n\r"
REMEMBERED: Final = 4_096
"""The least number of the newest short scripts that are remembered."""
MAX_REMEMBERED_BYTES: Final = 1_024


class _Part(msgspec.Struct, frozen=True, gc=False):
    """Base of the parts of a script. A script has many; a struct is made in a fraction of a named tuple's time."""


class Burn(_Part, frozen=True):
    cycles: int


class Get(_Part, frozen=True):
    key: str


class Set(_Part, frozen=True):
    key: str
    value: str


class Delete(_Part, frozen=True):
    key: str


class AllowWatching(_Part, frozen=True):
    key: str
    allowed: bool


class Emit(_Part, frozen=True):
    name: str
    text: str


class Fail(_Part, frozen=True):
    text: str


class Transfer(_Part, frozen=True):
    to: Address
    amount: int


class Send(_Part, frozen=True):
    to: Address
    handler: str
    payload: bytes
    cycles: int | None
    cells: int | None


class Schedule(_Part, frozen=True):
    """The operation that schedules a timer. Omitted arguments are ``None``.

    Exactly one of ``height``, ``blocks_ahead`` and ``watch`` is given.
    """

    payload: bytes
    height: int | None = None
    blocks_ahead: int | None = None
    watch: tuple[bytes, str] | None = None
    """The actor and the key of its storage that the timer watches."""
    handler: str = DEFAULT_HANDLER
    fee_payer: Address | str | None = None
    """The account that pays for the fire: an address, :data:`SENDER`, or ``None`` for the actor itself."""
    payer_cap: int | None = None
    gas_limit: int | None = None
    expires_at: int | None = None
    max_fee_per_cycle: int | None = None
    max_priority_fee_per_cycle: int | None = None
    tier: int | None = None
    """The priority tier, as an index into :data:`TIERS`."""
    bid: int | None = None
    save_as: str | None = None


class Chosen(_Part, frozen=True):
    """A timer, named by its id, or by the key under which its id is stored."""

    timer_id: bytes
    saved: str | None


class Cancel(_Part, frozen=True):
    timer: Chosen


class Extend(_Part, frozen=True):
    timer: Chosen
    expires_at: int


class Try(_Part, frozen=True):
    operation: Operation


Operation = Burn | Get | Set | Delete | AllowWatching | Emit | Fail | Transfer | Send | Schedule | Cancel | Extend | Try
Script = tuple[Operation, ...]


class _Scripts:
    """The newest scripts by payload, up to twice :data:`REMEMBERED`; ``None`` for a payload that is no script."""

    def __init__(self) -> None:
        self._newer: dict[bytes, Script | None] = {}
        self._older: dict[bytes, Script | None] = {}

    def read(self, payload: bytes) -> Script | None:
        """The operations of a payload."""
        for known in (self._newer, self._older):
            if payload in known:
                return known[payload]
        script = _read(payload)
        self.keep(payload, script)
        return script

    def keep(self, payload: bytes, script: Script | None) -> None:
        """Remember a payload that was read."""
        if len(self._newer) >= REMEMBERED:
            self._newer, self._older = {}, self._newer
        self._newer[payload] = script


def read_script(payload: bytes) -> Script | None:
    """The operations of a payload; ``None`` if it is not a script."""
    return _SCRIPTS.read(payload) if len(payload) <= MAX_REMEMBERED_BYTES else _read(payload)


def handler_input(payload: bytes) -> bytes:
    """A fire handler's input: the payload, or the content of its ``_handler`` and ``_payload`` envelope (SPEC §4)."""
    if not payload.lstrip(JSON_SPACE).startswith(b"{"):
        return payload  # only an object can be an envelope
    try:
        pairs = json.loads(payload.decode(), object_pairs_hook=list)
    except (ValueError, RecursionError):
        return payload
    if not isinstance(pairs, list) or len(pairs) != len(ENVELOPE_KEYS):
        return payload
    if any(not isinstance(pair, tuple) or not isinstance(pair[1], str) for pair in pairs):
        return payload
    inner = dict(pairs)
    if inner.keys() != ENVELOPE_KEYS or not is_name(inner["_handler"]):
        return payload
    encoded = inner["_payload"]
    return base64.b64decode(encoded) if len(encoded) % 4 == 0 and _BASE64.fullmatch(encoded) else payload


def _read(payload: bytes) -> Script | None:
    try:
        return _script(script_json.parse(payload))
    except BadScript:
        return None


def _script(value: Any) -> Script:
    if not isinstance(value, list):
        raise BadScript
    return tuple(map(_operation, value))


_SCRIPTS: Final = _Scripts()


def _operation(item: Any) -> Operation:
    if type(item) is not list or not item or type(item[0]) is not str:
        raise BadScript
    read = _READ.get((item[0], len(item) - 1))
    if read is None:
        raise BadScript
    return read(*item[1:])


def _named(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadScript
    return value


def _transfer(value: Any) -> Transfer:
    named = _named(value)
    return Transfer(_address(named.get("to")), _natural(named.get("amount")))


def _send(value: Any) -> Send:
    named = _named(value)
    cycles, cells = (_left_out_or(_integer, named.get(name)) for name in ("cycles", "cells"))
    return Send(_address(named.get("to")), _text(named.get("handler")), _payload(named.get("payload")), cycles, cells)


def _schedule(value: Any) -> Schedule:
    named = _named(value)
    given = {
        argument[0]: argument[1](each)
        for name, each in named.items()
        if each is not None and (argument := _SCHEDULE_ARGUMENTS.get(name)) is not None
    }
    if ("height" in given) + ("blocks_ahead" in given) + ("watch" in given) != 1:
        raise BadScript
    return Schedule(_payload(named.get("payload")), **given)


def _fee_payer(value: Any) -> Address | str | None:
    payer = _text(value)
    return None if payer == SELF else payer if payer == SENDER else _address(payer)


def _tier(value: Any) -> int:
    if _text(value) not in TIERS:
        raise BadScript
    return TIERS.index(value)


def _watch(value: Any) -> tuple[bytes, str]:
    named = _named(value)
    return _address(named.get("actor")), _text(named.get("key"))


def _extend(value: Any) -> Extend:
    return Extend(_timer(value), _integer(_named(value).get("expires_at")))


def _timer(value: Any) -> Chosen:
    named = _named(value)
    given, saved = (_left_out_or(_text, named.get(name)) for name in ("id", "saved"))
    if (given is None) == (saved is None):
        raise BadScript
    return Chosen(b"" if given is None else parse_timer_id(given), saved)


def _payload(value: Any) -> bytes:
    if type(value) is str:
        return value.encode()
    if type(value) is list:
        return _payload_of_script(value)
    digits = value.get("hex") if type(value) is dict else None
    if type(digits) is str and len(digits) % 2 == 0 and HEX_DIGITS.issuperset(digits):
        return bytes.fromhex(digits)
    raise BadScript


def _payload_of_script(value: list[Any]) -> bytes:
    """A list as the payload of a timer or of a message, which probably runs it as a script: then its text gives the
    same operations as the list."""
    payload = script_json.canonical_text(value)
    if len(payload) <= MAX_REMEMBERED_BYTES:
        try:
            _SCRIPTS.keep(payload, _script(value))
        except BadScript:
            _SCRIPTS.keep(payload, None)
    return payload


def _left_out_or(read: Any, value: Any) -> Any:
    return None if value is None else read(value)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise BadScript
    return value


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise BadScript
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise BadScript
    return value


def _natural(value: Any) -> int:
    number = _integer(value)
    if number < 0:
        raise BadScript
    return number


def _address(value: Any) -> Address:
    try:
        return parse_address(_text(value))
    except ValueError:
        raise BadScript from None


_SCHEDULE_ARGUMENTS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "height": ("height", _integer),
    "in": ("blocks_ahead", _integer),
    "watch": ("watch", _watch),
    "handler": ("handler", _text),
    "fee_payer": ("fee_payer", _fee_payer),
    "payer_cap": ("payer_cap", _integer),
    "gas_limit": ("gas_limit", _integer),
    "expires_at": ("expires_at", _integer),
    "max_fee_per_cycle": ("max_fee_per_cycle", _integer),
    "max_priority_fee_per_cycle": ("max_priority_fee_per_cycle", _integer),
    "tier": ("tier", _tier),
    "bid": ("bid", _integer),
    "save_as": ("save_as", _text),
}
"""The arguments of ``schedule`` that may be left out: the field of :class:`Schedule` and the reader of each. The
payload may not."""
_READ: Final[dict[tuple[str, int], Callable[..., Operation]]] = {
    ("burn", 1): lambda cycles: Burn(_natural(cycles)),
    ("get", 1): lambda key: Get(_text(key)),
    ("set", 2): lambda key, value: Set(_text(key), _text(value)),
    ("del", 1): lambda key: Delete(_text(key)),
    ("allow_watching", 2): lambda key, allowed: AllowWatching(_text(key), _flag(allowed)),
    ("emit", 2): lambda name, text: Emit(_text(name), _text(text)),
    ("fail", 1): lambda text: Fail(_text(text)),
    ("transfer", 1): _transfer,
    ("send", 1): _send,
    ("schedule", 1): _schedule,
    ("cancel", 1): lambda timer: Cancel(_timer(timer)),
    ("extend", 1): _extend,
    ("try", 1): lambda operation: Try(_operation(operation)),
}
"""Readers of the operations, keyed by name and number of arguments."""
