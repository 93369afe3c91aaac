"""``builtin:script``: an actor whose every handler performs the list of operations in its payload (SPEC §2).

It costs exactly the price of its host calls. The whole payload is checked before the first operation: :func:`parse`
turns it into typed operations or raises ``BadScript``; :func:`run` then performs them in order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from msgspec.structs import replace

from validator.chain.records import DEFAULT_HANDLER, Watch
from validator.primitives import script_json
from validator.primitives.errors import BadScript, Rejection, ScriptFailed
from validator.primitives.types import HEX_DIGITS, Address, parse_address, parse_timer_id
from validator.pvm.runtime.host import TIERS, Host, ScheduleRequest

Operation = Callable[[Host], None]

REMEMBERED_PAYLOADS: Final = 2_048
MAX_REMEMBERED_BYTES: Final = 512
"""Size limit of the payloads that :data:`REMEMBERED_PAYLOADS` counts: they are kept in their parsed form."""
REMEMBERED_LONG_PAYLOADS: Final = 32
MAX_REMEMBERED_LONG_BYTES: Final = 32_768
"""Size limit of the longer payloads of which a few are kept; larger ones are parsed at every run."""

SENDER: Final = Address(b"sender")
"""Placeholder in a parsed payload for the address of the run's sender, which is known only at the run. It is compared
by identity."""


def run(context: Host, payload: bytes) -> None:
    """Check the whole payload, then perform its operations in order."""
    for operation in _parsed(payload):
        operation(context)


def _parsed(payload: bytes) -> tuple[Operation, ...]:
    """The operations of a payload, which may be kept from an earlier run. Raises :class:`BadScript`."""
    if len(payload) <= MAX_REMEMBERED_BYTES:
        return _remembered(payload)
    return _remembered_long(payload) if len(payload) <= MAX_REMEMBERED_LONG_BYTES else parse(payload)


def parse(payload: bytes) -> tuple[Operation, ...]:
    """The operations of a payload, a function of the payload only. Raises :class:`BadScript`."""
    script = script_json.parse(payload)
    if not isinstance(script, list):
        raise BadScript
    return tuple(_operation(item) for item in script)


_remembered: Final = lru_cache(REMEMBERED_PAYLOADS)(parse)
"""Cached version of :func:`parse`. Timers often fire with the same payload."""
_remembered_long: Final = lru_cache(REMEMBERED_LONG_PAYLOADS)(parse)
"""The same for long payloads: a transaction's is run more than once if its block is built and executed, or if it waits
for room in a block."""


def _operation(item: Any) -> Operation:
    if not isinstance(item, list) or not item or not isinstance(item[0], str):
        raise BadScript
    arguments, build = _OPERATIONS.get(item[0], (-1, None))
    if build is None or len(item) != 1 + arguments:
        raise BadScript
    return build(*item[1:])


# --- simple operations ------------------------------------------------------------------------------------------------


def _burn(cycles: Any) -> Operation:
    amount = _natural(cycles)
    return lambda context: context.burn(amount)


def _get(key: Any) -> Operation:
    name = _text(key)

    def perform(context: Host) -> None:
        context.kv_get(name)

    return perform


def _set(key: Any, value: Any) -> Operation:
    name, data = _text(key), _text(value).encode()
    return lambda context: context.kv_set(name, data)


def _delete(key: Any) -> Operation:
    name = _text(key)
    return lambda context: context.kv_delete(name)


def _allow_watching(key: Any, allowed: Any) -> Operation:
    name = _text(key)
    if not isinstance(allowed, bool):
        raise BadScript
    return lambda context: context.allow_watching(name, allowed)


def _emit(name: Any, data: Any) -> Operation:
    event, text = _text(name), _text(data)
    return lambda context: context.emit(event, text)


def _fail(text: Any) -> Operation:
    _text(text)

    def perform(_context: Host) -> None:
        raise ScriptFailed

    return perform


def _transfer(arguments: Any) -> Operation:
    given = _Arguments(arguments)
    to, amount = given.address("to"), given.natural("amount")
    return lambda context: context.transfer(to, amount)


def _send(arguments: Any) -> Operation:
    given = _Arguments(arguments)
    to, handler, payload = given.address("to"), _text(given.required("handler")), _payload(given.required("payload"))
    cycles, cells = given.optional_integer("cycles"), given.optional_integer("cells")
    return lambda context: context.send(to, handler, payload, cycles, cells)


def _try(item: Any) -> Operation:
    operation = _operation(item)

    def perform(context: Host) -> None:
        try:
            operation(context)
        except Rejection as rejection:
            context.report("ScriptCaught", ("error", rejection.name))

    return perform


# --- timers -----------------------------------------------------------------------------------------------------------


def _schedule(arguments: Any) -> Operation:
    given = _Arguments(arguments)
    height, delay = given.optional_integer("height"), given.optional_integer("in")
    watch = _watch(given)
    if [height, delay, watch].count(None) != 2:
        raise BadScript
    fee_payer = _fee_payer(given)
    save_as = given.optional_text("save_as")
    tier = given.optional_text("tier")
    if tier is not None and tier not in TIERS:
        raise BadScript
    handler = given.optional_text("handler")
    request = ScheduleRequest(
        height=height,
        payload=_payload(given.required("payload")),
        handler=DEFAULT_HANDLER if handler is None else handler,
        fee_payer=fee_payer,
        gas_limit=given.optional_integer("gas_limit"),
        expires_at=given.optional_integer("expires_at"),
        max_fee_per_cycle=given.optional_integer("max_fee_per_cycle"),
        max_priority_fee_per_cycle=given.optional_integer("max_priority_fee_per_cycle"),
        payer_cap=given.optional_integer("payer_cap"),
        tier=tier,
        bid=given.optional_integer("bid"),
        watch=watch,
    )

    def perform(context: Host) -> None:
        asked = request
        if delay is not None:
            asked = replace(asked, height=context.height + delay)
        if fee_payer is SENDER:
            asked = replace(asked, fee_payer=context.sender)
        timer_id = context.schedule_timer(asked)
        if save_as is not None:
            context.kv_set(save_as, timer_id.hex().encode())

    return perform


def _watch(given: _Arguments) -> Watch | None:
    """The key that the timer watches, given as ``{"actor": address, "key": text}``."""
    value = given.optional("watch")
    if value is None:
        return None
    named = _Arguments(value)
    return Watch(named.address("actor"), _text(named.required("key")))


def _fee_payer(given: _Arguments) -> Address | None:
    """The fee payer in the arguments: ``None`` for the actor itself, ``SENDER``, or an address."""
    text = given.optional_text("fee_payer")
    if text is None or text == "self":
        return None
    return SENDER if text == "sender" else _address(text)


def _cancel(arguments: Any) -> Operation:
    timer_id = _timer_id(_Arguments(arguments))
    return lambda context: context.cancel_timer(timer_id(context))


def _extend(arguments: Any) -> Operation:
    given = _Arguments(arguments)
    timer_id, expires_at = _timer_id(given), given.integer("expires_at")
    return lambda context: context.extend_timer(timer_id(context), expires_at)


def _timer_id(given: _Arguments) -> Callable[[Host], bytes]:
    """Make a function that gives a timer's id at the run: the argument ``id``, or the id under the storage key
    ``saved``."""
    timer_id, saved = given.optional_text("id"), given.optional_text("saved")
    if timer_id is None and saved is not None:
        return lambda context: context.saved_timer(saved)
    if timer_id is None or saved is not None:
        raise BadScript
    parsed = parse_timer_id(timer_id)
    return lambda _context: parsed


def _payload(value: Any) -> bytes:
    """A payload: text, ``{"hex": …}``, or a list, which is encoded as JSON."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return script_json.canonical_text(value)
    if isinstance(value, dict) and isinstance(value.get("hex"), str):
        return _hex(value["hex"])
    raise BadScript


# --- argument checks ------------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise BadScript
    return value


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadScript
    return value


def _natural(value: Any) -> int:
    if _integer(value) < 0:
        raise BadScript
    return int(value)


def _address(text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError:
        raise BadScript from None


def _hex(text: str) -> bytes:
    """Bytes of pairs of hex digits; nothing else is allowed."""
    if len(text) % 2 or not HEX_DIGITS.issuperset(text):
        raise BadScript
    return bytes.fromhex(text)


class _Arguments:
    """An operation's object of named arguments; ``null`` means left out, unknown keys are ignored."""

    def __init__(self, given: Any) -> None:
        if not isinstance(given, dict):
            raise BadScript
        self._given = given

    def required(self, name: str) -> Any:
        value = self._given.get(name)
        if value is None:
            raise BadScript
        return value

    def optional(self, name: str) -> Any:
        return self._given.get(name)

    def integer(self, name: str) -> int:
        return _integer(self.required(name))

    def natural(self, name: str) -> int:
        return _natural(self.required(name))

    def address(self, name: str) -> Address:
        return _address(_text(self.required(name)))

    def optional_integer(self, name: str) -> int | None:
        value = self._given.get(name)
        return None if value is None else _integer(value)

    def optional_text(self, name: str) -> str | None:
        value = self._given.get(name)
        return None if value is None else _text(value)


_OPERATIONS: Final[dict[str, tuple[int, Callable[..., Operation] | None]]] = {
    "burn": (1, _burn),
    "get": (1, _get),
    "set": (2, _set),
    "del": (1, _delete),
    "allow_watching": (2, _allow_watching),
    "emit": (2, _emit),
    "fail": (1, _fail),
    "transfer": (1, _transfer),
    "send": (1, _send),
    "try": (1, _try),
    "schedule": (1, _schedule),
    "cancel": (1, _cancel),
    "extend": (1, _extend),
}
"""The operations by name: the number of arguments, and the function that checks them and makes the operation."""
