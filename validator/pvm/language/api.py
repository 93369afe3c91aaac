"""The names that programs may use: host calls and host values on ``self``, builtins, and methods of values.

The check of programs, the compiler, the runtime and the editor's stub all use these tables. The effect of a call is
documented with its implementation, in :mod:`validator.pvm.runtime.hostcalls` and
:mod:`validator.pvm.runtime.operations`. Its cost is in :mod:`validator.primitives.costs` and
:mod:`validator.pvm.compiler.weights`.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Signature(NamedTuple):
    """Parameters of a call. ``annotations`` and ``result`` are for the editor's stub."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    result: str = "None"
    purpose: str = ""
    positional_only: bool = True

    @property
    def parameters(self) -> tuple[str, ...]:
        return (*self.required, *self.optional)


def _call(*parameters: str, result: str = "None", purpose: str) -> Signature:
    """Make the signature of a host call from texts: ``name: type`` is a required parameter, ``name?: type`` an optional
    one. All of them may be passed by name."""
    split = [parameter.split(": ") for parameter in parameters]
    return Signature(
        tuple(name for name, _ in split if not name.endswith("?")),
        tuple(name[:-1] for name, _ in split if name.endswith("?")),
        tuple(kind for _, kind in split),
        result,
        purpose,
        positional_only=False,
    )


def _schedule(purpose: str) -> Signature:
    return _call(
        "height?: int | None",
        "payload?: Value",
        "handler?: str",
        "fee_payer?: bytes | None",
        "gas_limit?: int | None",
        "expires_at?: int | None",
        "max_fee_per_cycle?: int | None",
        "max_priority_fee_per_cycle?: int | None",
        "payer_cap?: int | None",
        "tier?: str | None",
        "bid?: int | None",
        "bidding_agent?: bytes | None",
        "watch?: tuple[bytes, str] | None",
        result="bytes",
        purpose=purpose,
    )


HOST_CALLS: Final[dict[str, Signature]] = {
    "get": _call("key: str", "default?: Value", result="Value", purpose="What is stored under a key, or the default."),
    "set": _call("key: str", "value: Value", purpose="Store a value under a key."),
    "delete": _call("key: str", purpose="Remove what is stored under a key."),
    "publish": _call("key: str", "value: Value", purpose="Publish a value under a key, for every actor to read."),
    "published": _call(
        "address: bytes", "key: str", result="Value", purpose="What an actor has published under a key, or None."
    ),
    "allow_watching": _call(
        "key: str", "allowed?: bool", purpose="Let timers of any actor watch a key of this actor's storage, or no more."
    ),
    "schedule": _schedule(
        "Have the chain call a handler (``handle_timer`` where none is named) at a height; the timer's id."
    ),
    "schedule_timer": _schedule("``schedule`` by another name."),
    "schedule_timer_ex": _schedule("``schedule`` by another name."),
    "set_bidding_agent": _call(
        "agent: bytes | None",
        purpose="Have another actor's ``get_gas_bid`` bid for this actor's timers; None for its own method.",
    ),
    "cancel": _call("timer_id: bytes", purpose="Cancel a timer of this actor."),
    "extend": _call("timer_id: bytes", "expires_at: int", purpose="Move a timer's expiry later."),
    "pending": _call(
        "timer_id: bytes",
        result="bool",
        purpose="Whether a timer of this actor is still to come, so that it can be cancelled.",
    ),
    "send": _call(
        "to: bytes",
        "handler: str",
        "payload?: Value",
        "cycles?: int | None",
        "cells?: int | None",
        purpose="Queue a message to an actor, its run paid for here.",
    ),
    "transfer": _call("to: bytes", "amount: int", purpose="Pay an account out of this actor's balance."),
    "emit": _call("name: str", "data?: str | int | bytes", purpose="Add an event to the receipt."),
    "burn": _call("cycles: int", purpose="Use up cycles."),
    "request_job": _call(
        "payload: Value",
        "results_needed: int",
        "handler: str",
        result="bytes",
        purpose="Ask runners outside the chain for results; the handler gets them in a later block. The job's id.",
    ),
    "consume_result": _call("job_id: bytes", purpose="Settle a job, once."),
}
"""The host calls: methods of ``self`` that the host answers, with their signatures."""

TASK_CALLS: Final = frozenset({"spawn", "pause"})
"""Methods of ``self`` that start or pause tasks. The runtime answers them, and only async methods may call them."""

HOST_READS: Final[dict[str, tuple[str, str]]] = {
    "height": ("int", "Height of the block."),
    "sender": ("bytes", "Who calls: an account, an actor, or this actor where a timer fires."),
    "origin_hash": (
        "bytes",
        "Hash of the transaction that this run began with, through messages too; zeros in fires, bids and callbacks.",
    ),
    "address": ("bytes", "This actor's own address."),
    "deployer": ("bytes", "Who deployed this actor."),
    "balance": ("int", "What this actor holds, in the smallest unit."),
    "value": ("int", "What the transaction pays to this actor."),
    "lane_price": ("int", "The least ``max_fee_per_cycle`` with which a timer may fire in this block."),
}
"""The host values: attributes of ``self`` that programs read without a call. For each, its type and meaning."""

YIELDING: Final = frozenset(
    {
        "publish",
        "published",
        "allow_watching",
        "schedule_timer",
        "schedule_timer_ex",
        "set_bidding_agent",
        "origin_hash",
    }
)
"""Names of host calls and values that a program may also define as methods or constants. The program's definition then
takes precedence. These names were added when programs existed already."""

BUILTINS: Final[dict[str, Signature]] = {
    "abs": Signature(("number",)),
    "all": Signature(("values",)),
    "any": Signature(("values",)),
    "bool": Signature(("value",)),
    "bytes": Signature(("value",)),
    "chr": Signature(("code",)),
    "dict": Signature((), ("value",)),
    "enumerate": Signature(("values",), ("start",)),
    "int": Signature(("value",)),
    "keccak256": Signature(("data",)),
    "len": Signature(("value",)),
    "list": Signature((), ("values",)),
    "max": Signature(("first",), ("second", "third", "fourth")),
    "min": Signature(("first",), ("second", "third", "fourth")),
    "ord": Signature(("character",)),
    "range": Signature(("first",), ("second", "third")),
    "reversed": Signature(("values",)),
    "sorted": Signature(("values",), ("descending",)),
    "str": Signature(("value",)),
    "sum": Signature(("values",)),
    "tuple": Signature((), ("values",)),
    "zip": Signature(("first", "second"), ("third",)),
}
"""The builtin functions, which programs call by their plain names, with positional arguments only."""

STATIC_METHODS: Final[dict[tuple[str, str], Signature]] = {
    ("bytes", "fromhex"): Signature(("text",)),
    ("int", "from_bytes"): Signature(("data",)),
}

METHODS: Final[dict[str, Signature]] = {
    # lists
    "append": Signature(("value",)),
    "extend": Signature(("values",)),
    "insert": Signature(("index", "value")),
    "pop": Signature((), ("key", "default")),
    "remove": Signature(("value",)),
    "reverse": Signature(),
    "sort": Signature(),
    "clear": Signature(),
    "copy": Signature(),
    "index": Signature(("value",)),
    "count": Signature(("value",)),
    # dicts
    "get": Signature(("key",), ("default",)),
    "setdefault": Signature(("key", "default")),
    "update": Signature(("other",)),
    "keys": Signature(),
    "values": Signature(),
    "items": Signature(),
    # texts and bytes
    "join": Signature(("parts",)),
    "split": Signature(("separator",)),
    "startswith": Signature(("prefix",)),
    "endswith": Signature(("suffix",)),
    "find": Signature(("part",)),
    "replace": Signature(("old", "new")),
    "strip": Signature((), ("characters",)),
    "lower": Signature(),
    "upper": Signature(),
    "encode": Signature(),
    "decode": Signature(),
    "hex": Signature(),
    # integers
    "to_bytes": Signature(("length",)),
    "bit_length": Signature(),
}
"""The methods of values such as lists and texts. Their arguments are positional only."""

CONSTANTS: Final[dict[str, str]] = {"ECONOMY": "economy", "STANDARD": "standard", "FAST": "fast", "URGENT": "urgent"}
"""The predefined constants with their values: the tiers of SPEC §4."""

ERROR: Final = "ActorError"
BASE: Final = "Actor"
GAS_BID: Final = "get_gas_bid"
"""The method that bids for the actor's timers (SPEC §9)."""
GAS_BID_PARAMETER: Final = "context"
HANDLER_PARAMETER: Final = "payload"
"""Name of the only parameter of a handler. A method with other parameters is called only by the actor itself."""
