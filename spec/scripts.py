"""``builtin:script``: an actor whose payloads are lists of operations (``docs/protocol.md``, *Scripts*)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any, NoReturn

from spec.encoding import Address, is_name
from spec.host import Host
from spec.timers import DEFAULT_HANDLER, HEX_DIGITS, TIERS, Request, parse_id
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


def _text(value: Any) -> str:
    _need(type(value) is str)
    return str(value)


def _flag(value: Any) -> bool:
    _need(type(value) is bool)
    return bool(value)


def _number(value: Any) -> int:
    _need(type(value) is int)
    return int(value)


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


Read = Callable[[Any], Any]
_PLAIN: dict[str, tuple[Read, ...]] = {
    "burn": (_amount,),
    "get": (_text,),
    "set": (_text, _text),
    "del": (_text,),
    "allow_watching": (_text, _flag),
    "emit": (_text, _text),
    "fail": (_text,),
}
"""The operations with positional arguments."""
_REQUIRED: dict[str, dict[str, Read]] = {
    "transfer": {"to": _address, "amount": _amount},
    "send": {"to": _address, "handler": _text, "payload": _payload},
    "schedule": {"payload": _payload},
    "cancel": {},
    "extend": {"expires_at": _number},
}
_OPTIONAL: dict[str, dict[str, Read]] = {
    "transfer": {},
    "send": {"cycles": _number, "cells": _number},
    "schedule": {
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
    "cancel": {"id": _text, "saved": _text},
    "extend": {"id": _text, "saved": _text},
}
"""The operations with an object of named arguments. Null is as if left out, and unknown names are ignored."""
_ONE_OF = {"schedule": ("height", "in", "watch"), "cancel": ("id", "saved"), "extend": ("id", "saved")}
"""Arguments of which exactly one is given."""
Operation = tuple[Any, ...]


def parse(payload: bytes) -> list[Operation]:
    """The checked operations of a script. Raises ``BadScript`` before any of them is performed."""
    script = strict_json(payload)
    _need(isinstance(script, list))
    return [_operation(item) for item in script]


def _operation(item: Any) -> Operation:
    _need(isinstance(item, list) and bool(item) and isinstance(item[0], str))
    name, *arguments = item
    if name in _PLAIN:
        _need(len(arguments) == len(_PLAIN[name]))
        return (name, *[read(argument) for read, argument in zip(_PLAIN[name], arguments, strict=True)])
    _need(len(arguments) == 1)
    if name == "try":
        return name, _operation(arguments[0])
    _need(name in _REQUIRED and isinstance(arguments[0], dict))
    given, required, optional = arguments[0], _REQUIRED[name], _OPTIONAL[name]
    _need(all(given.get(key) is not None for key in required))
    read = {
        key: (required.get(key) or optional[key])(value)
        for key, value in given.items()
        if value is not None and (key in required or key in optional)
    }
    if name in _ONE_OF:
        _need(sum(key in read for key in _ONE_OF[name]) == 1)
    return name, read


# --- performing -------------------------------------------------------------------------------------------------------


def run_script(run: Host, payload: bytes) -> None:
    """Check a whole payload, then perform its operations in order."""
    try:
        script = parse(payload)
    except Failure:
        run.world.reached("C-01")
        raise
    for name, *arguments in script:
        _PERFORM[name](run, *arguments)


def _fail(run: Host, _text: str) -> None:
    raise run.world.failure("C-08", "ScriptFailed")


def _try(run: Host, operation: Operation) -> None:
    name, *arguments = operation
    try:
        _PERFORM[name](run, *arguments)
    except Refusal as refusal:
        run.world.reached("C-15")
        run.report("ScriptCaught", ("error", refusal.name))


def _send(run: Host, given: dict[str, Any]) -> None:
    rule, payload = given["payload"]
    run.world.reached(rule)
    run.send(given["to"], given["handler"], payload, given.get("cycles"), given.get("cells"))


def _schedule(run: Host, given: dict[str, Any]) -> None:
    height = given["height"] if "height" in given else run.height + given["in"] if "in" in given else None
    payer, (rule, payload) = given.get("fee_payer"), given["payload"]
    run.world.reached(rule)
    request = Request(
        height,
        payload,
        given.get("handler", DEFAULT_HANDLER),
        run.sender if payer == "sender" else payer,
        given.get("gas_limit"),
        given.get("expires_at"),
        given.get("max_fee_per_cycle"),
        given.get("max_priority_fee_per_cycle"),
        given.get("payer_cap"),
        given.get("tier"),
        given.get("bid"),
        None,
        given.get("watch"),
    )
    timer_id = run.schedule_timer(request)
    if "save_as" in given:
        run.kv_set(given["save_as"], timer_id.hex().encode())


def _timer_id(run: Host, given: dict[str, Any]) -> bytes:
    return parse_id(given["id"]) if "id" in given else run.saved_timer(given["saved"])


_PERFORM: dict[str, Callable[..., Any]] = {
    "burn": lambda run, cycles: run.burn(cycles),
    "get": lambda run, key: run.kv_get(key),
    "set": lambda run, key, text: run.kv_set(key, text.encode()),
    "del": lambda run, key: run.kv_delete(key),
    "allow_watching": lambda run, key, allowed: run.allow_watching(key, allowed),
    "emit": lambda run, name, text: run.emit(name, text),
    "fail": _fail,
    "transfer": lambda run, given: run.transfer(given["to"], given["amount"]),
    "send": _send,
    "schedule": _schedule,
    "cancel": lambda run, given: run.cancel_timer(_timer_id(run, given)),
    "extend": lambda run, given: run.extend_timer(_timer_id(run, given), given["expires_at"]),
    "try": _try,
}
