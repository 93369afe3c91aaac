"""``builtin:script``: an actor whose payloads are lists of operations (``docs/protocol.md``, *Scripts*)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Set
from typing import Any, NamedTuple, NoReturn

from spec.encoding import Address, is_name
from spec.host import Host
from spec.timers import HEX_DIGITS, TIERS, Request, parse_id
from spec.world import Failure, Refusal, Watch

MAX_NESTING = 64
MAX_INTEGER_DIGITS = 640


def bad_script(_value: Any = None) -> NoReturn:
    raise Failure("BadScript")


def _need(condition: bool) -> None:
    if not condition:
        bad_script()


# --- JSON -------------------------------------------------------------------------------------------------------------


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    _need(len(found) == len(pairs))
    return found


def _integer(text: str) -> int:
    _need(text != "-0" and len(text) <= MAX_INTEGER_DIGITS)
    return int(text)


_JSON = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=bad_script, parse_constant=bad_script
)


def strict_json(payload: bytes) -> Any:
    """JSON in UTF-8, without duplicate keys, lone surrogates, fractions, exponents, ``-0`` or more than 64 levels.

    Raises ``BadScript``.
    """
    try:
        text = payload.decode()
        _need(text.count("[") + text.count("{") <= MAX_NESTING or _depth(text) <= MAX_NESTING)
        value = _JSON.decode(text)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        bad_script()
    return value


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


def _depth(text: str) -> int:
    """How many lists and objects are inside each other at most."""
    depth = deepest = 0
    for sign in re.findall(r"[\[{\]}]", _STRING.sub("", text)):
        depth += 1 if sign in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def json_text(value: Any) -> bytes:
    """A value as JSON in ASCII: no white space, keys in the order given, all beyond ``~`` escaped."""
    return json.dumps(value, separators=(",", ":")).encode()


# --- envelopes --------------------------------------------------------------------------------------------------------


_TEXT = r'"(?:[^"\\\x00-\x1f]|\\.)*+"'
_SPACE = r"[ \t\n\r]*+"
_TWO_TEXTS = re.compile(_SPACE.join(["", r"\{", _TEXT, ":", _TEXT, ",", _TEXT, ":", _TEXT, r"\}", ""]), re.DOTALL)
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def open_envelope(handler: str, payload: bytes) -> tuple[str, bytes]:
    """The handler that a fire calls, and its payload: those of an envelope, if the payload is one."""
    try:
        text = payload.decode() if payload.lstrip(b" \t\n\r")[:1] == b"{" else ""
        inner = dict(json.loads(text, object_pairs_hook=list)) if _TWO_TEXTS.fullmatch(text) else {}
    except ValueError:
        return handler, payload
    named, packed = inner.get("_handler", ""), inner.get("_payload", "?")
    if len(inner) != 2 or not is_name(named) or not _BASE64.fullmatch(packed):
        return handler, payload
    return named, base64.b64decode(packed)


# --- arguments --------------------------------------------------------------------------------------------------------


Read = Callable[[Any], Any]


def _of(kind: type) -> Read:
    def read(value: Any) -> Any:
        _need(type(value) is kind)
        return value

    return read


_text, _flag, _number = _of(str), _of(bool), _of(int)


def _amount(value: Any) -> int:
    _need(type(value) is int and value >= 0)
    return int(value)


def _address(value: Any) -> Address:
    text = _text(value)
    _need(len(text) == 42 and text[:2] in ("0x", "0X") and HEX_DIGITS.issuperset(text[2:]))
    return bytes.fromhex(text[2:])


def _payload(value: Any) -> tuple[str, bytes]:
    """A text, hex digits, or a list, which means its JSON in ASCII; with the rule that reads it."""
    if isinstance(value, str):
        return "C-16", value.encode()
    if isinstance(value, list):
        return "C-18", json_text(value)
    _need(isinstance(value, dict))
    digits = _text(value.get("hex"))
    _need(len(digits) % 2 == 0 and HEX_DIGITS.issuperset(digits))
    return "C-17", bytes.fromhex(digits)


def _watch(value: Any) -> Watch:
    _need(isinstance(value, dict))
    return Watch(_address(value.get("actor")), _text(value.get("key")))


def _payer(value: Any) -> Any:
    """An address; ``None`` for the actor itself; the text ``sender``."""
    return {"self": None, "sender": "sender"}[value] if value in ("self", "sender") else _address(value)


def _tier(value: Any) -> str:
    _need(_text(value) in TIERS)
    return str(value)


# --- operations -------------------------------------------------------------------------------------------------------


Operation = Callable[[Host], Any]
"""Performs a checked operation in a run."""


def _fail(run: Host, _text: str) -> None:
    raise run.world.failure("C-08", "ScriptFailed")


def _try(run: Host, operation: Operation) -> None:
    try:
        operation(run)
    except Refusal as refusal:
        run.world.reached("C-15")
        run.report("ScriptCaught", error=refusal.name)


def _send(run: Host, payload: tuple[str, bytes], **given: Any) -> None:
    run.world.reached(payload[0])
    run.send(payload=payload[1], **given)


def _schedule(run: Host, payload: tuple[str, bytes], save_as: str | None = None, **given: Any) -> None:
    run.world.reached(payload[0])
    height = run.height + given.pop("in") if "in" in given else given.pop("height", None)
    if given.get("fee_payer") == "sender":
        given["fee_payer"] = run.sender
    timer_id = run.schedule_timer(Request(height, payload[1], **given))
    if save_as is not None:
        run.kv_set(save_as, timer_id.hex().encode())


def _cancel(run: Host, **which: str) -> None:
    run.cancel_timer(_timer_id(run, which))


def _extend(run: Host, expires_at: int, **which: str) -> None:
    run.extend_timer(_timer_id(run, which), expires_at)


def _timer_id(run: Host, which: dict[str, str]) -> bytes:
    return parse_id(which["id"]) if "id" in which else run.saved_timer(which["saved"])


_PLAIN: dict[str, tuple[Callable[..., Any], *tuple[Read, ...]]] = {
    "burn": (Host.burn, _amount),
    "get": (Host.kv_get, _text),
    "set": (Host.kv_set, _text, lambda value: _text(value).encode()),
    "del": (Host.kv_delete, _text),
    "allow_watching": (Host.allow_watching, _text, _flag),
    "emit": (Host.emit, _text, _text),
    "fail": (_fail, _text),
}
"""The operations with positional arguments: what performs them, and what reads each argument."""


class _Named(NamedTuple):
    """An operation with an object of named arguments. Null is as if left out, and unknown names are ignored."""

    perform: Callable[..., Any]
    reads: dict[str, Read]
    required: Set[str] = frozenset()
    one_of: Set[str] = frozenset()
    """Arguments of which exactly one is given."""


_NAMED = {
    "transfer": _Named(Host.transfer, {"to": _address, "amount": _amount}, {"to", "amount"}),
    "send": _Named(
        _send,
        {"to": _address, "handler": _text, "payload": _payload, "cycles": _number, "cells": _number},
        {"to", "handler", "payload"},
    ),
    "schedule": _Named(
        _schedule,
        {
            "payload": _payload,
            "height": _number,
            "in": _number,
            "watch": _watch,
            "handler": _text,
            "fee_payer": _payer,
            "payer_cap": _number,
            "gas_limit": _number,
            "expires_at": _number,
            "max_fee_per_cycle": _number,
            "max_priority_fee_per_cycle": _number,
            "tier": _tier,
            "bid": _number,
            "save_as": _text,
        },
        {"payload"},
        {"height", "in", "watch"},
    ),
    "cancel": _Named(_cancel, {"id": _text, "saved": _text}, set(), {"id", "saved"}),
    "extend": _Named(_extend, {"id": _text, "saved": _text, "expires_at": _number}, {"expires_at"}, {"id", "saved"}),
}


def run_script(run: Host, payload: bytes) -> None:
    """Check a whole payload, then perform its operations in order."""
    try:
        script = strict_json(payload)
        _need(isinstance(script, list))
        operations = [_operation(item) for item in script]
    except Failure:
        run.world.reached("C-01")
        raise
    for operation in operations:
        operation(run)


def _operation(item: Any) -> Operation:
    """A checked operation. Raises ``BadScript``."""
    _need(isinstance(item, list) and bool(item) and isinstance(item[0], str))
    name, *arguments = item
    if name in _PLAIN:
        perform, *reads = _PLAIN[name]
        _need(len(arguments) == len(reads))
        values = [read(argument) for read, argument in zip(reads, arguments, strict=True)]
        return lambda run: perform(run, *values)
    _need(len(arguments) == 1)
    if name == "try":
        tried = _operation(arguments[0])
        return lambda run: _try(run, tried)
    _need(name in _NAMED and isinstance(arguments[0], dict))
    named, given = _NAMED[name], {key: value for key, value in arguments[0].items() if value is not None}
    _need(given.keys() >= named.required)
    _need(not named.one_of or len(given.keys() & named.one_of) == 1)
    fields = {key: named.reads[key](value) for key, value in given.items() if key in named.reads}
    return lambda run: named.perform(run, **fields)
