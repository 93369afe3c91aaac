"""Scripts for ``builtin:script`` and their costs (SPEC §2): a client's own price list, written from the SPEC.

A script is a JSON list of operations; a list as a ``payload`` is encoded as JSON text. A script's cost depends only on
its text, so a transaction's ``gas_limit`` and ``cells_limit`` and a timer's ``gas_limit`` can be exact.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec

from validator.primitives.params import Parameters

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))

Operation = list[Any]
Script = list[Operation]

GET_CYCLES: Final = 10
SET_CYCLES: Final = 200
DELETE_CYCLES: Final = 200
EMIT_CYCLES: Final = 50
TRANSFER_CYCLES: Final = 200
SCHEDULE_CYCLES: Final = 1_000
SEND_CYCLES: Final = 80
CHANGE_TIMER_CYCLES: Final = 500
"""Cost of ``cancel`` and ``extend``."""
ALLOW_WATCHING_CYCLES: Final = 200
WATCHER_CYCLES: Final = 200
"""What a write to a key that timers may watch costs more, and again for each timer that watches it then. A script's
text does not say how many do, so :func:`cost_of` leaves this out."""

MIN_MESSAGE_CYCLES: Final = 2_000
"""Minimum reservation for a message's run (SPEC §14)."""
TIMER_ID_TEXT_BYTES: Final = 64
"""Size of a timer id, which ``save_as`` stores as hex text."""


class Cost(msgspec.Struct, frozen=True):
    """Cost of a run: cycles of compute, cells (bytes) of data."""

    cycles: int = 0
    cells: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.cycles + other.cycles, self.cells + other.cells)


def encode_script(script: Script) -> bytes:
    """The script's JSON as the chain writes it: separators ``,`` and ``:``, ASCII escapes, keys in the order given.

    A script has texts, integers, flags and ``None``, in lists and in dictionaries with texts as keys.
    """
    text = msgspec.json.encode(script)  # many times as fast; it leaves non-ASCII characters and DEL as they are
    return text if text.isascii() and b"\x7f" not in text else _ENCODER.encode(script).encode("ascii")


def cost_of(script: Script) -> Cost:
    """The cost of performing every operation once. Raises :class:`ValueError` on an operation without a known price."""
    costs: dict[int, Cost] = {}
    cycles = cells = 0
    for operation in script:
        cost = costs.get(id(operation))  # bursts have one operation many times
        if cost is None:
            cost = costs[id(operation)] = _cost_of_operation(operation)
        cycles += cost.cycles
        cells += cost.cells
    return Cost(cycles, cells)


def fire_gas_limit(script: Script, parameters: Parameters) -> int:
    """The least ``gas_limit`` in cycles with which a timer completes this payload."""
    return max(parameters.min_gas_limit_per_timer, parameters.fire_base_cycles + cost_of(script).cycles)


# --- operations -----------------------------------------------------------------------------------------------------


def burn(cycles: int) -> Operation:
    return ["burn", cycles]


def put(key: str, value: str) -> Operation:
    """An operation that writes a storage entry (``set``)."""
    return ["set", key, value]


def emit(name: str, text: str) -> Operation:
    return ["emit", name, text]


def attempt(operation: Operation) -> Operation:
    """An operation that performs another one, and continues if that is rejected (``try``)."""
    return ["try", operation]


def schedule(in_blocks: int, payload: Script, **fields: object) -> Operation:
    """An operation that schedules a timer, due in ``in_blocks`` blocks, with a script as payload. ``fields`` are those
    of SPEC §2; ``None`` leaves one out."""
    given = {name: value for name, value in fields.items() if value is not None}
    return ["schedule", {"in": in_blocks, "payload": payload, **given}]


def watch(actor: str, key: str, payload: Script, **fields: object) -> Operation:
    """An operation that schedules a timer, due when the value under a key of an actor's storage has changed. ``actor``
    is the text of its address; ``fields`` are those of SPEC §2."""
    return ["schedule", {"watch": {"actor": actor, "key": key}, "payload": payload, **fields}]


def allow_watching(key: str, allowed: bool) -> Operation:
    """An operation that lets timers watch a key of the actor's storage, or no more."""
    return ["allow_watching", key, allowed]


def schedule_at(height: int, payload: Script, **fields: object) -> Operation:
    """An operation that schedules a timer for a height. ``fields`` are those of SPEC §2."""
    return ["schedule", {"height": height, "payload": payload, **fields}]


def cancel_saved(key: str) -> Operation:
    """An operation that cancels the timer whose id ``save_as`` stored under this key."""
    return ["cancel", {"saved": key}]


def extend_saved(key: str, expires_at: int) -> Operation:
    """An operation that extends the expiry height of the timer whose id ``save_as`` stored under this key."""
    return ["extend", {"saved": key, "expires_at": expires_at}]


def send(to: str, handler: str, payload: str, cycles: int, cells: int) -> Operation:
    """An operation that queues a message to an actor. ``to`` is the text of its address; ``cycles`` and ``cells`` are
    reserved for the message's run."""
    return ["send", {"to": to, "handler": handler, "payload": payload, "cycles": cycles, "cells": cells}]


def transfer(to: str, amount: int) -> Operation:
    """An operation that pays an account from the actor's balance. ``to`` is the text of the account's address."""
    return ["transfer", {"to": to, "amount": amount}]


def _cost_of_operation(operation: Operation) -> Cost:
    name = operation[0] if operation else None
    price = _PRICES.get((name, len(operation) - 1)) if isinstance(name, str) else None
    cost = None if price is None else price(*operation[1:])
    if cost is None:
        raise ValueError(f"no known price: {operation!r}")
    return cost


def _cost_of_set(key: Any, value: Any) -> Cost | None:
    is_known = isinstance(key, str) and isinstance(value, str)
    return Cost(SET_CYCLES, _size(key) + _size(value)) if is_known else None


def _cost_of_schedule(call: Any) -> Cost | None:
    if not isinstance(call, dict):
        return None
    cost = Cost(SCHEDULE_CYCLES, _payload_bytes(call["payload"]))
    if "save_as" in call:
        cost += Cost(SET_CYCLES, _size(call["save_as"]) + TIMER_ID_TEXT_BYTES)
    return cost


def _cost_of_send(call: Any) -> Cost | None:
    match call:
        case {"payload": payload, "cycles": int(cycles), "cells": int(cells)}:
            return Cost(SEND_CYCLES + max(0, cycles), _payload_bytes(payload) + max(0, cells))
        case _:
            return None


def _cost_of_change(call: Any) -> Cost | None:
    if not isinstance(call, dict):
        return None
    return Cost(CHANGE_TIMER_CYCLES + (GET_CYCLES if "saved" in call else 0))


_PRICES: Final[dict[tuple[str, int], Callable[..., Cost | None]]] = {
    ("try", 1): lambda inner: _cost_of_operation(inner) if isinstance(inner, list) else None,
    ("schedule", 1): _cost_of_schedule,
    ("burn", 1): lambda cycles: Cost(cycles) if isinstance(cycles, int) else None,
    ("get", 1): lambda key: Cost(GET_CYCLES) if isinstance(key, str) else None,
    ("del", 1): lambda key: Cost(DELETE_CYCLES) if isinstance(key, str) else None,
    ("fail", 1): lambda text: Cost() if isinstance(text, str) else None,
    ("transfer", 1): lambda call: Cost(TRANSFER_CYCLES) if isinstance(call, dict) else None,
    ("set", 2): _cost_of_set,
    ("allow_watching", 2): lambda key, allowed: (
        Cost(ALLOW_WATCHING_CYCLES, _size(key)) if isinstance(key, str) and isinstance(allowed, bool) else None
    ),
    ("emit", 2): lambda name, text: (
        Cost(EMIT_CYCLES, _size(text)) if isinstance(name, str) and isinstance(text, str) else None
    ),
    ("send", 1): _cost_of_send,
    ("cancel", 1): _cost_of_change,
    ("extend", 1): _cost_of_change,
}
"""The cost of an operation, by name and number of arguments, given its arguments; ``None`` if they are none of its."""


def _payload_bytes(payload: Any) -> int:
    """Size of a payload in bytes: of a text, of ``{"hex": …}``, or of a script as JSON."""
    if isinstance(payload, str):
        return _size(payload)
    digits = payload.get("hex") if isinstance(payload, dict) else None
    return len(digits) // 2 if isinstance(digits, str) else len(encode_script(payload))


def _size(text: str) -> int:
    return len(text.encode())
