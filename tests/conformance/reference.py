"""The protocol in one file: what `stampede t8n` shows, written from the specification alone.

An independent second implementation to compare the project with, field by field. It is slow and plain on purpose: one
flat state, copied before every handler and put back when that handler fails; whatever can be recomputed is recomputed
in every block. It shares no line with `validator` or `cluster` and imports neither of them.

It covers all policies, each with its activation height, `builtin:script` and `builtin:fixed`. It expects well formed
input: what malformed input does is for `test_malformed.py`. It has no state tree, so its output has no `state_root`.
"""

import base64
import binascii
import json
import re
from dataclasses import dataclass, replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from math import ceil, floor
from typing import Any

from Crypto.Hash import keccak

SYSTEM = "0x" + "00" * 19 + "09"
GOVERNED = (
    "LANE_TIMER_CYCLES",
    "TIMER_GC_CYCLES",
    "MAX_CYCLES_PER_FIRE",
    "MAX_CYCLES_PER_FIRE_AUCTION_PHASE",
    "MAX_CELLS_PER_FIRE",
    "MAX_TTL",
    "FAIRNESS_WINDOW_BLOCKS",
    "LANE_BASEFEE_SLOPE",
    "LANE_FEE_MULTIPLIER_MILLI",
    "PRIORITY_TIERS",
    "PRIORITY_FLOOR",
)
DEFAULTS: dict[str, Any] = {
    "LANE_TIMER_CYCLES": 2_000_000,
    "TIMER_GC_CYCLES": 5_000_000,
    "GC_CYCLES_PER_REMOVAL": 200,
    "MAX_CYCLES_PER_FIRE": 550_000,
    "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 250_000,
    "MAX_CELLS_PER_FIRE": 550_000,
    "MIN_GAS_LIMIT_PER_TIMER": 1_000,
    "FIRE_BASE_CYCLES": 1_000,
    "TX_BASE_CYCLES": 1_000,
    "LANE_USER_CYCLES": 5_000_000,
    "LANE_DEFERRED_CYCLES": 7_000_000,
    "LANE_SYSTEM_CYCLES": 500_000,
    "BLOCK_CYCLES_TARGET": 5_000_000,
    "BLOCK_CELLS_TARGET": 500_000,
    "MESSAGE_CYCLES": 100_000,
    "MESSAGE_CELLS": 10_000,
    "ACTIVATION_HEIGHT": 0,
    "LANE_USER_CELLS": 1_000_000,
    "LANE_TIMER_CELLS": 1_000_000,
    "MESSAGE_BASE_CYCLES": 1_000,
    "GBA_QUERIES_PER_ACTOR": 16,
    "GBA_UNPAID_PAUSE": 64,
    "RING_BUFFER_SIZE": 4_096,
    "EPOCH_LENGTH": 3_600,
    "EPOCH_HORIZON": 24,
    "MAX_TIMER_PAYLOAD": 1_048_576,
    "MAX_TIMERS_PER_ACTOR": 1_024,
    "MAX_TTL": 2_592_000,
    "FAIRNESS_WINDOW_BLOCKS": 1_000,
    "TIE_BREAK": "id",
    "P50_WEIGHT": "fires",
    "LANE_BASEFEE_SLOPE": 1,
    "LANE_FEE_MULTIPLIER_MILLI": 1_000,
    "INITIAL_BASEFEE": 1_000_000,
    "MIN_BASEFEE": 10_000,
    "MAX_BASEFEE": 10**24,
    "GBA_MAX_CYCLES": 10_000,
    "GBA_BUDGET_CYCLES": 1_000_000,
    "MAILBOX_BYTES": 1_000_000,
    "PRIORITY_TIERS": [8, 10, 15, 25],
    "SCAN_LIMIT": 4_096,
    "PRIORITY_FLOOR": 0,
    "DEFAULT_TIP_CAP": 0,
    "WEIGHT_PARTY": "actor",
    "MEDIAN_SMOOTHING_MILLI": 1_000,
    "WEIGHT_CLIP_MIN_MILLI": 1_000,
    "WEIGHT_CLIP_MAX_MILLI": 2_000,
    "WEIGHT_LAMBDA_MILLI": 200,
    "WEIGHT_MIN_MILLI": 100,
    "WEIGHT_MAX_MILLI": 1_000,
    "STARVATION_BLOCKS": 64,
    "STARVATION_FLOOR_MILLI": 500,
    "BUDGET_SLICES": 4,
    "MAX_FIRES_PER_BLOCK": 10**9,
    "MAX_FIRES_PER_ACTOR": 10**9,
    "PAYMENT_RULE": "vcg",
    "RESERVE_PRICE": 0,
    "BIAS_LAMBDA_MICRO": 100_000,
    "BIAS_LAMBDA_MIN_MICRO": 10_000,
    "BIAS_LAMBDA_MAX_MICRO": 1_000_000,
    "BIAS_LAMBDA_STEP_MILLI": 125,
    "BIAS_INTERVAL_BLOCKS": 16,
    "VALUE_LIFE_BLOCKS": 100,
    "MAX_WATCHERS_PER_KEY": 64,
}
HARDENED = {"PRIORITY_FLOOR": 1, "TIE_BREAK": "aged", "P50_WEIGHT": "cycles", "DEFAULT_TIP_CAP": 8}
TIERS = ("economy", "standard", "fast", "urgent")
MESSAGES_PER_TX, MESSAGES_PER_RUN = 1_024, 2
MAX_NAME = 256
"""Bytes of an event's name, and of a message's handler (`docs/protocol.md`)."""
FEE_LIMIT = 2**96


class Failure(Exception):
    """What ends a handler: it carries the error's name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Rejection(Failure):
    """A failure that `try` catches."""


Watch = tuple[str, str]
"""A key that is watched: an actor, and a key of its storage."""


@dataclass(frozen=True)
class Timer:
    timer_id: str
    actor: str
    height: int
    seq: int
    handler: str
    payload: bytes
    fee_payer: str
    gas_limit: int | None
    expires_at: int
    max_fee: int | None
    priority: int | None
    payer_cap: int | None
    scheduled_at: int
    default_max_fee: int | None = None
    bid: int = 0
    watch: "Watch | None" = None

    @property
    def is_watching(self) -> bool:
        """Whether it waits for a change. Until then its height is the one after its expiry."""
        return self.watch is not None and self.height > self.expires_at

    @property
    def age(self) -> tuple[int, int]:
        return self.height, self.seq


@dataclass(frozen=True)
class Message:
    to: str
    sender: str
    handler: str
    payload: bytes
    cycles: int
    cells: int


class Meter:
    """Cycles and cells used by one run, and their limits."""

    def __init__(self, cycles: int, cells: int) -> None:
        self.cycle_limit, self.cell_limit = cycles, cells
        self.cycles = self.cells = 0

    def charge(self, cycles: int, cells: int = 0) -> None:
        if self.cycles + cycles > self.cycle_limit:
            self.cycles = self.cycle_limit
            raise Failure("OutOfCycles")
        self.cycles += cycles
        if self.cells + cells > self.cell_limit:
            raise Failure("OutOfCells")
        self.cells += cells


@dataclass
class Run:
    """One handler run: who runs, for whom, in which phase, on which meter."""

    actor: str
    sender: str
    phase: str
    meter: Meter
    allowance: int = 0
    messages: int = 0
    reserved: int = 0


class State:
    """Everything that a failing handler must give back. Values are immutable, so a copy is one level deep."""

    def __init__(self) -> None:
        self.balance: dict[str, int] = {}
        self.nonce: dict[str, int] = {}
        self.storage: dict[str, dict[str, str]] = {}
        self.schedule_nonce: dict[str, int] = {}
        self.timers: dict[str, Timer] = {}
        self.seq = 0
        self.queue: list[Message] = []
        self.events: list[dict[str, Any]] = []
        self.pending: dict[str, Any] = {}
        self.watchable: dict[Watch, tuple[str | None, tuple[str, ...]]] = {}
        """The value of each watchable key at the last check, and the ids of the timers that watch it."""

    def copy(self) -> "State":
        twin = State()
        for name, value in vars(self).items():
            setattr(twin, name, value if isinstance(value, int) else value.copy())
        twin.storage = {address: dict(entries) for address, entries in self.storage.items()}
        return twin

    def credit(self, address: str, amount: int) -> None:
        self.balance[address] = self.balance.get(address, 0) + amount

    def debit(self, address: str, amount: int) -> None:
        self.balance[address] = self.balance.get(address, 0) - amount
        assert self.balance[address] >= 0

    def value_of(self, watch: Watch) -> str | None:
        return self.storage.get(watch[0], {}).get(watch[1])

    def mailbox_bytes(self, address: str) -> int:
        return sum(len(message.payload) for message in self.queue if message.to == address)


# --- JSON scripts ---------------------------------------------------------------------------------------------------


def number(value: Any) -> int:
    """An integer of the input: a JSON number or decimal text."""
    return int(value)


def dump(value: list[Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("duplicate key")
    return dict(pairs)


def _integer(text: str) -> int:
    if text == "-0" or len(text) > 4_000:
        raise ValueError(text)
    return int(text)


def _refuse(text: str) -> Any:
    raise ValueError(text)


def strict_json(text: str) -> Any:
    """JSON without duplicate keys, floats, negative zero or NaN. Raises ValueError (RecursionError when too deep)."""
    return json.loads(text, object_pairs_hook=_pairs, parse_int=_integer, parse_float=_refuse, parse_constant=_refuse)


def _check_text_and_depth(value: Any, level: int) -> None:
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, list | dict):
        if level > 64:
            raise ValueError("too deep")
        inner = value if isinstance(value, list) else [*value.keys(), *value.values()]
        for item in inner:
            _check_text_and_depth(item, level + 1)


def parse_script(payload: bytes) -> list[Any]:
    """The operations of a script. Raises Failure(BadScript)."""
    try:
        script = strict_json(payload.decode())
        _check_text_and_depth(script, 1)
    except (ValueError, RecursionError):
        raise Failure("BadScript") from None
    _need(isinstance(script, list))
    for operation in script:
        _check_operation(operation)
    return script


def _need(condition: bool) -> None:
    if not condition:
        raise Failure("BadScript")


def is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_amount(value: Any) -> bool:
    return is_integer(value) and value >= 0


def is_address(value: Any) -> bool:
    return (
        is_text(value)
        and len(value) == 42
        and value[:2] in ("0x", "0X")
        and set(value[2:]) <= set("0123456789abcdefABCDEF")
    )


def is_payload(value: Any) -> bool:
    if isinstance(value, dict):
        digits: Any = value.get("hex")
        return is_text(digits) and len(digits) % 2 == 0 and set(digits) <= set("0123456789abcdefABCDEF")
    return isinstance(value, str | list)


def payload_bytes(value: Any) -> bytes:
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    return value.encode() if isinstance(value, str) else dump(value)


def is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def is_watch(value: Any) -> bool:
    return isinstance(value, dict) and is_address(value.get("actor")) and is_text(value.get("key"))


def is_payer(value: Any) -> bool:
    return value in ("self", "sender") or is_address(value)


def is_tier(value: Any) -> bool:
    return is_text(value) and value in TIERS


PLAIN: dict[str, list[Any]] = {
    "burn": [is_amount],
    "get": [is_text],
    "set": [is_text, is_text],
    "del": [is_text],
    "allow_watching": [is_text, is_flag],
    "emit": [is_text, is_text],
    "fail": [is_text],
}
REQUIRED: dict[str, dict[str, Any]] = {
    "transfer": {"to": is_address, "amount": is_amount},
    "send": {"to": is_address, "handler": is_text, "payload": is_payload},
    "schedule": {"payload": is_payload},
    "cancel": {},
    "extend": {"expires_at": is_integer},
}
OPTIONAL: dict[str, dict[str, Any]] = {
    "transfer": {},
    "send": {"cycles": is_integer, "cells": is_integer},
    "schedule": {
        "height": is_integer,
        "in": is_integer,
        "watch": is_watch,
        "handler": is_text,
        "fee_payer": is_payer,
        "payer_cap": is_integer,
        "gas_limit": is_integer,
        "expires_at": is_integer,
        "max_fee_per_cycle": is_integer,
        "max_priority_fee_per_cycle": is_integer,
        "tier": is_tier,
        "bid": is_integer,
        "save_as": is_text,
    },
    "cancel": {"id": is_text, "saved": is_text},
    "extend": {"id": is_text, "saved": is_text},
}
EXACTLY_ONE = {"schedule": ("height", "in", "watch"), "cancel": ("id", "saved"), "extend": ("id", "saved")}


def _check_operation(operation: Any) -> None:
    _need(isinstance(operation, list) and bool(operation) and is_text(operation[0]))
    name, *arguments = operation
    if name == "try":
        _need(len(arguments) == 1)
        _check_operation(arguments[0])
    elif name in PLAIN:
        _need(len(arguments) == len(PLAIN[name]))
        for check, argument in zip(PLAIN[name], arguments, strict=True):
            _need(check(argument))
    else:
        _need(name in REQUIRED and len(arguments) == 1 and isinstance(arguments[0], dict))
        options = {key: value for key, value in arguments[0].items() if value is not None}
        for key, check in REQUIRED[name].items():
            _need(key in options and check(options[key]))
        for key, check in OPTIONAL[name].items():
            _need(key not in options or check(options[key]))
        if name in EXACTLY_ONE:
            _need(len([key for key in EXACTLY_ONE[name] if key in options]) == 1)


def unwrap(payload: bytes) -> bytes:
    """What the handler of a fire is given: the decoded `_payload` where the payload is such an object."""
    try:
        value = json.loads(payload.decode(), object_pairs_hook=_pairs)
        if not isinstance(value, dict) or set(value) != {"_handler", "_payload"}:
            return payload
        handler, inner = value["_handler"], value["_payload"]
        if not is_text(handler) or not is_text(inner) or not 1 <= len(handler.encode()) <= 256:
            return payload
        return base64.b64decode(inner, validate=True)
    except (ValueError, RecursionError, binascii.Error):
        return payload


# --- the chain ------------------------------------------------------------------------------------------------------


def next_basefee(basefee: int, target: int, used: int, slope: int, params: dict[str, Any]) -> int:
    distance = abs(used - target)
    step = basefee * min(8 * distance, slope * target) // (8 * slope * target)
    if used > target:
        return min(params["MAX_BASEFEE"], basefee + max(step, 1))
    if used < target:
        return max(params["MIN_BASEFEE"], basefee - step)
    return basefee


ESCROW = "0x" + "00" * 19 + "0b"
"""Who holds the bids of ``bias_auction``."""


def reserved_address(address: str) -> bool:
    return int(address, 16) < 16


class Chain:
    """The whole chain: the state that handlers change, and what only blocks change."""

    def __init__(self, genesis: dict[str, Any]) -> None:
        self.policy = genesis.get("policy") or "cip1"
        params = dict(DEFAULTS)
        if genesis.get("preset") == "hardened":
            params |= HARDENED
        for name, value in (genesis.get("params") or {}).items():
            params[name] = self._value(value)
        self.params = params
        self.deployers = {address.lower() for address in genesis.get("system_deployers") or []}
        self.state = State()
        self.actors: set[str] = set()
        self.deployer: dict[str, str] = {}
        self.gbas: dict[str, tuple[int, int]] = {}
        for address, account in (genesis.get("accounts") or {}).items():
            self.state.balance[address.lower()] = number(account.get("balance", 0))
        for address, actor in (genesis.get("actors") or {}).items():
            address = address.lower()
            self.state.balance[address] = number(actor.get("balance", 0))
            self.actors.add(address)
            self.deployer[address] = actor["deployer"].lower()
            gba = actor.get("gba")
            if gba is not None:
                self.gbas[address] = (number(gba["max_fee_per_cycle"]), number(gba["max_priority_fee_per_cycle"]))
        self.genesis_accounts = set(self.state.balance)
        self._write_parameters(dict.fromkeys(GOVERNED))
        self.height = 0
        self.basefee_cycle = self.basefee_cell = self.basefee_lane = params["INITIAL_BASEFEE"]
        self.p50 = 0
        self.burned = 0
        self.fires_by_block: dict[int, list[str]] = {}
        self.median: int | None = None
        self.rate = self.params["BIAS_LAMBDA_MICRO"]
        self.sums = {"fires": 0, "waits": 0, "bids": 0}
        self.weight: dict[str, int] = {}
        self.scores: dict[tuple[str, int], list[int]] = {}
        self.good_answer: dict[str, tuple[int, int]] = {}
        self.last_queried: dict[str, int] = {}
        self.unpaid_at: dict[str, int] = {}

    @staticmethod
    def _value(value: Any) -> Any:
        if isinstance(value, list):
            return [number(item) for item in value]
        words = ("id", "aged", "fires", "cycles", "vcg", "critical", "first_price", "actor", "deployer")
        return value if value in words else number(value)

    def _write_parameters(self, names: Any) -> None:
        storage = self.state.storage.setdefault(SYSTEM, {})
        for name in names:
            value = self.state.pending.get(name, self.params[name])
            text = dump(value).decode() if isinstance(value, list) else str(value)
            storage["system:cip1:" + name.lower()] = text

    # --- blocks -----------------------------------------------------------------------------------------------------

    def block(self, proposer: str, txs: list[dict[str, Any]]) -> dict[str, Any]:
        """Run the next block and return its report."""
        self.height += 1
        is_active = self.height > self.params["ACTIVATION_HEIGHT"]
        self.by_bias = self.policy == "bias_auction" and is_active
        self.auction = self.policy in ("cip1", "gba_auction") and is_active
        self.timers_first = self.auction and self.policy == "gba_auction"
        self.has_lane_fee = self.auction and self.policy == "cip1"
        if not self.has_lane_fee or self.height == self.params["ACTIVATION_HEIGHT"] + 1:
            self.basefee_lane = self.basefee_cycle
        self.lane_price = (
            self.basefee_lane * self.params["LANE_FEE_MULTIPLIER_MILLI"] // 1000 if self.has_lane_fee else 0
        )
        self.floor = self.basefee_cycle if self.timers_first else self.lane_price
        self.cap = self.params[
            "MAX_CYCLES_PER_FIRE_AUCTION_PHASE" if self.auction or self.by_bias else "MAX_CYCLES_PER_FIRE"
        ]
        window_start = self.height - self.params["FAIRNESS_WINDOW_BLOCKS"]
        self.fires_by_block = {h: fires for h, fires in self.fires_by_block.items() if h >= window_start}
        self.state.events = []
        self.block_burned = self.block_tips = self.cycles = self.cells = 0
        self.used = {"user": 0, "system": 0, "cells": 0}

        if self.timers_first:
            self.timer_phase(proposer)
            receipts, tips = self.transactions(txs)
            self.pay_proposer(proposer, tips)
        else:
            receipts, tips = self.transactions(txs)
            self.pay_proposer(proposer, tips)
            self.check_watched_keys(self.height)
            self.timer_phase(proposer)
        messages = self.message_phase()
        self.check_watched_keys(self.height + 1)
        report = {
            "height": self.height,
            "basefee_cycle": self.basefee_cycle,
            "basefee_cell": self.basefee_cell,
            "basefee_lane_timer": self.basefee_lane,
            "p50_tip": self.p50,
            "lane_cycles": self.lane_used,
            "gc_cycles": self.gc_used,
            "cycles": self.cycles,
            "cells": self.cells,
            "tips": self.block_tips,
            "burned": self.block_burned,
            "gba": self.gba_report,
            "tiers": self.tiers(),
            "txs": receipts,
            "fires": self.fires,
            "messages": messages,
            "destroyed": self.destroyed,
            "deferred": self.deferred,
            "events": self.state.events,
        }
        self.end_of_block()
        return report

    def transactions(self, txs: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
        receipts, tips = [], 0
        for tx in txs:
            receipt, tip = self.transaction(tx)
            receipts.append(receipt)
            tips += tip
        return receipts, tips

    def pay_proposer(self, proposer: str, tips: int) -> None:
        self.state.credit(proposer, tips)
        self.block_tips += tips

    def burn(self, amount: int) -> None:
        self.block_burned += amount
        self.burned += amount

    def end_of_block(self) -> None:
        params = self.params
        if self.auction or self.by_bias:
            self.p50 = self.median_tip()
        if self.by_bias and self.height % params["BIAS_INTERVAL_BLOCKS"] == 0:
            self.move_rate()
        if self.timers_first:
            self.earn()
        elif self.has_lane_fee:
            self.fires_by_block[self.height] = self.fired_actors
            lane_target = params["LANE_TIMER_CYCLES"] // 2
            self.basefee_lane = next_basefee(
                self.basefee_lane, lane_target, self.lane_used, params["LANE_BASEFEE_SLOPE"], params
            )
        self.basefee_cycle = next_basefee(self.basefee_cycle, params["BLOCK_CYCLES_TARGET"], self.cycles, 8, params)
        self.basefee_cell = next_basefee(self.basefee_cell, params["BLOCK_CELLS_TARGET"], self.cells, 8, params)
        self.params = params | self.state.pending
        self.state.pending = {}

    def median_tip(self) -> int:
        if not self.fires:
            return 0
        tips = sorted(fire["tip"] for fire in self.fires)
        if self.params["P50_WEIGHT"] == "fires":
            return tips[(len(tips) - 1) // 2]
        total = sum(fire["cycles"] for fire in self.fires)
        for tip in tips:
            if 2 * sum(fire["cycles"] for fire in self.fires if fire["tip"] <= tip) >= total:
                return tip
        raise AssertionError("the highest tip reaches all")

    def tiers(self) -> dict[str, int]:
        counts = {"ring": 0, "epoch": 0, "overflow": 0}
        length = self.params["EPOCH_LENGTH"]
        for timer in self.state.timers.values():
            placed_in_ring = timer.is_watching or timer.height < timer.scheduled_at + self.params["RING_BUFFER_SIZE"]
            epochs_away = timer.height // length - self.height // length
            if placed_in_ring or epochs_away <= 0 or timer.height <= self.height + 1:
                counts["ring"] += 1
            elif epochs_away <= self.params["EPOCH_HORIZON"]:
                counts["epoch"] += 1
            else:
                counts["overflow"] += 1
        return counts

    # --- transactions -----------------------------------------------------------------------------------------------

    def admit(self, tx: dict[str, Any]) -> str | None:
        """The reason to reject a transaction, if there is one."""
        lane = "system" if tx["kind"] == "system" else "user"
        lane_limit = self.params["LANE_SYSTEM_CYCLES" if lane == "system" else "LANE_USER_CYCLES"]
        gas, cells, sender = number(tx["gas_limit"]), number(tx["cells_limit"]), tx["sender"].lower()
        if number(tx["nonce"]) != self.state.nonce.get(sender, 0):
            return "BadNonce"
        max_fee = number(tx["max_fee_per_cycle"])
        if max_fee < self.basefee_cycle or number(tx["max_fee_per_cell"]) < self.basefee_cell:
            return "FeeTooLow"
        if gas < self.params["TX_BASE_CYCLES"]:
            return "GasTooLow"
        if self.used[lane] + gas > lane_limit or self.used["cells"] + cells > self.params["LANE_USER_CELLS"]:
            return "LaneFull"
        tip = min(number(tx["max_priority_fee_per_cycle"]), max_fee - self.basefee_cycle)
        upfront = gas * (self.basefee_cycle + tip) + cells * self.basefee_cell
        if self.state.balance.get(sender, 0) < number(tx.get("value") or 0) + upfront:
            return "InsufficientFunds"
        return None

    def transaction(self, tx: dict[str, Any]) -> tuple[dict[str, Any], int]:
        error = self.admit(tx)
        if error:
            return {"status": "rejected", "error": error, "cycles": 0, "cells": 0, "fee": 0}, 0
        sender, lane = tx["sender"].lower(), "system" if tx["kind"] == "system" else "user"
        meter = Meter(number(tx["gas_limit"]), number(tx["cells_limit"]))
        tip = min(number(tx["max_priority_fee_per_cycle"]), number(tx["max_fee_per_cycle"]) - self.basefee_cycle)
        price = self.basefee_cycle + tip
        self.state.nonce[sender] = self.state.nonce.get(sender, 0) + 1
        self.state.debit(sender, meter.cycle_limit * price + meter.cell_limit * self.basefee_cell)
        error = self.attempt(lambda: self.execute(tx, sender, meter))
        fee = meter.cycles * price + meter.cells * self.basefee_cell
        self.state.credit(sender, meter.cycle_limit * price + meter.cell_limit * self.basefee_cell - fee)
        self.burn(meter.cycles * self.basefee_cycle + meter.cells * self.basefee_cell)
        self.used[lane] += meter.cycles
        self.used["cells"] += meter.cells
        self.cycles += meter.cycles
        self.cells += meter.cells
        page = self.outcome(error, meter) | {"fee": fee}
        if tx["kind"] == "deploy" and not error:
            page["created"] = self.deployed_address(tx, sender)
        return page, meter.cycles * tip

    @staticmethod
    def outcome(error: str | None, meter: Meter) -> dict[str, Any]:
        status = "reverted" if error else "ok"
        return {"status": status, "error": error, "cycles": meter.cycles, "cells": meter.cells}

    def attempt(self, body: Any) -> str | None:
        """Run `body`; when it fails put the state back and return the error's name."""
        before = self.state.copy()
        try:
            body()
        except Failure as failure:
            self.state = before
            return failure.name
        return None

    def execute(self, tx: dict[str, Any], sender: str, meter: Meter) -> None:
        payload = b""
        if tx["kind"] == "call":
            payload = payload_bytes(tx["payload"])
        elif tx["kind"] == "deploy":
            payload = tx["code"].encode()
        meter.charge(self.params["TX_BASE_CYCLES"], len(payload))
        if tx["kind"] == "system":
            self.system(tx, sender)
            return
        to = self.deployed_address(tx, sender) if tx["kind"] == "deploy" else tx["to"].lower()
        value = number(tx.get("value") or 0)
        self.state.debit(sender, value)
        self.state.credit(to, value)
        if tx["kind"] == "call":
            if to not in self.actors:
                raise Failure("UnknownActor")
            allowance = number(tx.get("timer_allowance") or 0)
            self.script(Run(to, sender, "transaction", meter, allowance), payload)
        elif tx["kind"] == "deploy":
            assert tx["code"] == "builtin:script", "there are no other programs here"
            if to in self.actors:
                raise Failure("ActorExists")
            self.actors.add(to)
            self.deployer[to] = sender

    @staticmethod
    def deployed_address(tx: dict[str, Any], sender: str) -> str:
        preimage = bytes.fromhex(sender[2:]) + number(tx["nonce"]).to_bytes(8, "big")
        return "0x" + keccak.new(digest_bits=256, data=preimage).hexdigest()[-40:]

    # --- system instructions ----------------------------------------------------------------------------------------

    def system(self, tx: dict[str, Any], sender: str) -> None:
        if sender not in self.deployers:
            raise Failure("NotSystemDeployer")
        opcode, arguments = number(tx["opcode"]), tx["args"]
        if opcode == 48:
            timer = self.state.timers.pop(arguments["timer_id"].lower(), None)
            if timer is not None:
                self.end_unfired(timer)
        elif opcode == 49:
            self.update_config(arguments["config"])
        else:
            timer = self.state.timers.get(arguments["timer_id"].lower())
            if timer is None:
                raise Failure("NotFound")
            self.extend(timer, number(arguments["new_expires_at"]))

    def update_config(self, config: dict[str, Any]) -> None:
        for name, value in config.items():
            if name not in GOVERNED or not self.in_range(name, value):
                raise Failure("ConfigInvalid")
        self.state.pending.update({name: self._value(value) for name, value in config.items()})
        after = self.params | self.state.pending
        if after["LANE_TIMER_CYCLES"] < max(after["MAX_CYCLES_PER_FIRE"], after["MAX_CYCLES_PER_FIRE_AUCTION_PHASE"]):
            raise Failure("ConfigInvalid")
        self._write_parameters(config)

    def in_range(self, name: str, value: Any) -> bool:
        if name == "PRIORITY_TIERS":
            return isinstance(value, list) and len(value) == 4 and all(self.in_bounds(item, 0, 1_000) for item in value)
        minimum, maximum = 1, 10**9
        if name == "LANE_TIMER_CYCLES":
            minimum = 2
        elif name in ("MAX_CYCLES_PER_FIRE", "MAX_CYCLES_PER_FIRE_AUCTION_PHASE"):
            minimum = self.params["MIN_GAS_LIMIT_PER_TIMER"]
        elif name == "TIMER_GC_CYCLES":
            minimum = 2 * self.params["SCAN_LIMIT"] * self.params["GC_CYCLES_PER_REMOVAL"]
        elif name == "FAIRNESS_WINDOW_BLOCKS":
            maximum = 10**5
        elif name == "LANE_BASEFEE_SLOPE":
            maximum = 8
        elif name == "LANE_FEE_MULTIPLIER_MILLI":
            minimum, maximum = 0, 10**4
        elif name == "PRIORITY_FLOOR":
            minimum, maximum = 0, 10**18
        return self.in_bounds(value, minimum, maximum)

    @staticmethod
    def in_bounds(value: Any, minimum: int, maximum: int) -> bool:
        if is_text(value) and re.fullmatch("0|[1-9][0-9]{0,39}", value):
            value = number(value)
        return is_integer(value) and minimum <= value <= maximum

    # --- scripts ----------------------------------------------------------------------------------------------------

    def script(self, run: Run, payload: bytes) -> None:
        for operation in parse_script(payload):
            self.perform(run, operation)

    def event(self, name: str, actor: str, **fields: Any) -> None:
        self.state.events.append({"name": name, "actor": actor, **fields})

    def perform(self, run: Run, operation: list[Any]) -> None:
        name, *arguments = operation
        if name == "try":
            try:
                self.perform(run, arguments[0])
            except Rejection as rejection:
                self.event("ScriptCaught", run.actor, error=rejection.name)
            return
        if name in PLAIN:
            getattr(self, "do_" + name)(run, *arguments)
        else:
            options = {key: value for key, value in arguments[0].items() if value is not None}
            getattr(self, "do_" + name)(run, options)

    def do_burn(self, run: Run, cycles: int) -> None:
        run.meter.charge(cycles)

    def do_get(self, run: Run, key: str) -> str | None:
        run.meter.charge(10)
        return self.state.storage.get(run.actor, {}).get(key)

    def do_set(self, run: Run, key: str, value: str) -> None:
        run.meter.charge(200, len(key.encode()) + len(value.encode()))
        self.pay_for_watchers(run, key)
        self.state.storage.setdefault(run.actor, {})[key] = value

    def do_del(self, run: Run, key: str) -> None:
        run.meter.charge(200)
        self.pay_for_watchers(run, key)
        self.state.storage.get(run.actor, {}).pop(key, None)

    def do_allow_watching(self, run: Run, key: str, allowed: bool) -> None:
        run.meter.charge(200, len(key.encode()))
        self.require_watch_key(key)
        watch = (run.actor, key)
        if not allowed:
            self.state.watchable.pop(watch, None)
        elif watch not in self.state.watchable:
            self.state.watchable[watch] = self.state.value_of(watch), ()

    def do_emit(self, run: Run, name: str, data: str) -> None:
        run.meter.charge(50, len(data.encode()))
        if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME:
            raise Rejection("EventNameTooLong")
        self.event(name, run.actor, data=data)

    def do_fail(self, run: Run, text: str) -> None:
        raise Failure("ScriptFailed")

    def do_transfer(self, run: Run, options: dict[str, Any]) -> None:
        run.meter.charge(200)
        if self.state.balance.get(run.actor, 0) < options["amount"]:
            raise Rejection("InsufficientBalance")
        self.state.debit(run.actor, options["amount"])
        self.state.credit(options["to"].lower(), options["amount"])

    def do_send(self, run: Run, options: dict[str, Any]) -> None:
        payload, to = payload_bytes(options["payload"]), options["to"].lower()
        cycles = options.get("cycles", self.params["MESSAGE_CYCLES"])
        cells = options.get("cells", self.params["MESSAGE_CELLS"])
        if not (2_000 <= cycles <= self.params["MESSAGE_CYCLES"] and 0 <= cells <= self.params["MESSAGE_CELLS"]):
            run.meter.charge(80, len(payload))
            raise Rejection("MessageLimitInvalid")
        run.meter.charge(80 + cycles, len(payload) + cells)
        if run.messages >= (MESSAGES_PER_TX if run.phase == "transaction" else MESSAGES_PER_RUN):
            raise Rejection("TooManyMessages")
        if len(options["handler"].encode()) > MAX_NAME:
            raise Rejection("MessageHandlerInvalid")
        if to not in self.actors:
            raise Rejection("UnknownActor")
        if self.state.mailbox_bytes(to) + len(payload) > self.params["MAILBOX_BYTES"]:
            raise Rejection("MailboxFull")
        run.messages += 1
        run.reserved += cycles
        self.state.queue.append(Message(to, run.actor, options["handler"], payload, cycles, cells))

    def do_schedule(self, run: Run, options: dict[str, Any]) -> None:
        payload = payload_bytes(options["payload"])
        run.meter.charge(1_000, len(payload))
        timer_id = self.schedule(run, options, payload)
        if "save_as" in options:
            self.do_set(run, options["save_as"], timer_id)

    def own_timer(self, run: Run, options: dict[str, Any]) -> Timer:
        timer_id = options.get("id") if "id" in options else self.do_get(run, options["saved"])
        run.meter.charge(500)
        timer = self.state.timers.get((timer_id or "").lower())
        if timer is None:
            raise Rejection("NotFound")
        if timer.actor != run.actor:
            raise Rejection("NotOwner")
        return timer

    def do_cancel(self, run: Run, options: dict[str, Any]) -> None:
        timer = self.own_timer(run, options)
        del self.state.timers[timer.timer_id]
        self.end_unfired(timer)

    def do_extend(self, run: Run, options: dict[str, Any]) -> None:
        self.extend(self.own_timer(run, options), options["expires_at"])

    # --- timers -----------------------------------------------------------------------------------------------------

    def extend(self, timer: Timer, expires_at: int) -> None:
        expires_at = min(expires_at, self.height + self.params["MAX_TTL"])
        if expires_at <= timer.expires_at or self.height > timer.expires_at:
            raise Rejection("TimerExpiryInvalid")
        height = expires_at + 1 if timer.is_watching else timer.height
        self.state.timers[timer.timer_id] = replace(timer, expires_at=expires_at, height=height)

    def filled_priority(self, tier: str, stated: int | None) -> int:
        filled = self.p50 * self.params["PRIORITY_TIERS"][TIERS.index(tier)] // 10
        if stated is not None or filled >= FEE_LIMIT:
            raise Rejection("TimerFeeOutOfRange")
        return int(filled)

    def schedule(self, run: Run, options: dict[str, Any], payload: bytes) -> str:
        state, actor = self.state, run.actor
        stated_bid = self.stated_bid(actor, options.get("bid"))
        max_fee, priority, cap = (
            options.get(name) for name in ("max_fee_per_cycle", "max_priority_fee_per_cycle", "payer_cap")
        )
        if any(value is not None and not 0 <= value < FEE_LIMIT for value in (max_fee, priority, cap, stated_bid)):
            raise Rejection("TimerFeeOutOfRange")
        if "tier" in options:
            priority = self.filled_priority(options["tier"], priority)
        watch = self.watch_in(options)
        height = None if watch else options["height"] if "height" in options else self.height + options["in"]
        handler = options.get("handler", "handle_timer")
        self.check_shape(actor, height, handler, payload)
        payer, cap = self.payer(run, options.get("fee_payer", "self"), cap)
        gas_limit = options.get("gas_limit")
        if gas_limit is not None and gas_limit < self.params["MIN_GAS_LIMIT_PER_TIMER"]:
            raise Rejection("TimerGasLimitTooLow")
        if gas_limit is not None and gas_limit > self.cap:
            raise Rejection("TimerGasLimitTooHigh")
        latest = self.height + self.params["MAX_TTL"]
        expires_at = min(options.get("expires_at", latest), latest)
        if expires_at < (self.height + 1 if height is None else height):
            raise Rejection("TimerExpiryInvalid")
        height = expires_at + 1 if height is None else height
        if self.auction and max_fee is not None and max_fee < self.floor:
            raise Rejection("TimerRejectedBelowBasefee")
        bid = 0
        if self.by_bias:
            bid = self.lock(payer, cap, stated_bid, priority, self.cap if gas_limit is None else gas_limit)

        nonce = state.schedule_nonce.get(actor, 0)
        preimage = bytes.fromhex(actor[2:]) + height.to_bytes(8, "big") + payload + nonce.to_bytes(8, "big")
        timer_id = keccak.new(digest_bits=256, data=preimage).hexdigest()
        if self.auction and max_fee is not None and priority is not None and priority > max_fee - self.floor:
            stated, priority = priority, max_fee - self.floor
            self.event("TimerPriorityClampedAtSchedule", actor, timer_id=timer_id, stated=stated, clamped=priority)
        state.schedule_nonce[actor] = nonce + 1
        if payer != actor:
            run.allowance -= cap or 0
        state.timers[timer_id] = Timer(
            timer_id,
            actor,
            height,
            state.seq,
            handler,
            payload,
            payer,
            gas_limit,
            expires_at,
            max_fee,
            priority,
            cap,
            self.height,
            bid=bid,
            watch=watch,
        )
        state.seq += 1
        if watch is not None:
            value, watchers = state.watchable[watch]
            state.watchable[watch] = value, (*watchers, timer_id)
        return timer_id

    def stated_bid(self, actor: str, bid: int | None) -> int | None:
        """What counts of a `bid`: it is refused, ignored or locked."""
        if bid is not None and self.auction:
            raise Rejection("TimerArgDeprecated")
        if bid is not None and not self.by_bias:
            self.event("TimerBidIgnored", actor)
        return bid if self.by_bias else None

    def lock(self, payer: str, cap: int | None, stated: int | None, priority: int | None, gas: int) -> int:
        """Take a timer's bid from its payer (``bias_auction``)."""
        bid = (priority or 0) * gas if stated is None else stated
        if bid >= FEE_LIMIT:
            raise Rejection("TimerFeeOutOfRange")
        if cap is not None and bid > cap:
            raise Rejection("TimerFeePayerForbidden")
        if self.state.balance.get(payer, 0) < bid:
            raise Rejection("InsufficientBalance")
        self.state.debit(payer, bid)
        self.state.credit(ESCROW, bid)
        return bid

    def unlock(self, timer: Timer) -> None:
        self.state.debit(ESCROW, timer.bid)
        self.state.credit(timer.fee_payer, timer.bid)

    def end_unfired(self, timer: Timer) -> None:
        """Give a timer's bid back, and have it watch no more."""
        self.unlock(timer)
        for watch, (value, watchers) in self.state.watchable.items():
            self.state.watchable[watch] = value, tuple(each for each in watchers if each != timer.timer_id)

    def check_shape(self, actor: str, height: int | None, handler: str, payload: bytes) -> None:
        if height is not None and height <= self.height:
            raise Rejection("TimerHeightNotInFuture")
        if height is not None and height >= 2**63:
            raise Rejection("TimerHeightOutOfRange")
        if len(payload) > self.params["MAX_TIMER_PAYLOAD"]:
            raise Rejection("TimerPayloadTooLarge")
        if not 1 <= len(handler.encode()) <= 256:
            raise Rejection("TimerHandlerInvalid")
        if sum(timer.actor == actor for timer in self.state.timers.values()) >= self.params["MAX_TIMERS_PER_ACTOR"]:
            raise Rejection("TimerLimitReached")

    def payer(self, run: Run, named: str, cap: int | None) -> tuple[str, int | None]:
        payer = {"self": run.actor, "sender": run.sender}.get(named, named).lower()
        if reserved_address(payer):
            raise Rejection("TimerFeePayerForbidden")
        if payer == run.actor:
            return payer, cap
        if run.phase != "transaction" or payer != run.sender:
            raise Rejection("TimerFeePayerForbidden")
        cap = run.allowance if cap is None else cap
        if not 1 <= cap <= run.allowance:
            raise Rejection("TimerFeePayerForbidden")
        return payer, cap

    # --- watched keys -----------------------------------------------------------------------------------------------

    def require_watch_key(self, key: str) -> None:
        if not self.by_bias:
            raise Rejection("WatchUnavailable")
        if len(key.encode()) > 256:
            raise Rejection("WatchKeyInvalid")

    def watch_in(self, options: dict[str, Any]) -> Watch | None:
        """The key that a timer is to watch, if it may."""
        if "watch" not in options:
            return None
        watch = (options["watch"]["actor"].lower(), options["watch"]["key"])
        self.require_watch_key(watch[1])
        if watch not in self.state.watchable:
            raise Rejection("WatchNotAllowed")
        if len(self.state.watchable[watch][1]) >= self.params["MAX_WATCHERS_PER_KEY"]:
            raise Rejection("WatcherLimitReached")
        return watch

    def pay_for_watchers(self, run: Run, key: str) -> None:
        if (run.actor, key) in self.state.watchable:
            run.meter.charge(200 + 200 * len(self.state.watchable[run.actor, key][1]))

    def check_watched_keys(self, height: int) -> None:
        """Have the timers due at ``height`` whose keys have another value than at the last check."""
        state = self.state
        for watch, (before, watchers) in state.watchable.items():
            now = state.value_of(watch)
            if now == before:
                continue
            state.watchable[watch] = now, ()
            for timer in map(state.timers.__getitem__, watchers):
                due = max(height, timer.scheduled_at + 1)
                if due <= timer.expires_at:
                    state.timers[timer.timer_id] = replace(timer, height=due)

    # --- timer phase ------------------------------------------------------------------------------------------------

    def timer_phase(self, proposer: str) -> None:
        self.lane_used = self.lane_cells = self.gc_used = 0
        self.fires: list[dict[str, Any]] = []
        self.fired_actors: list[str] = []
        self.destroyed: list[dict[str, str]] = []
        self.gba_report = {"queried": 0, "spent": 0, "not_admitted": 0}
        self.carried: dict[str, str] = {}
        self.burned_by: dict[str, int] = {}
        self.unpaid: list[str] = []
        self.winners: list[Timer] = []
        self.left_out: Timer | None = None
        due = sorted((t for t in self.state.timers.values() if t.height <= self.height), key=lambda t: t.age)
        due = self.destroy_expired(due)
        tips = self.gate(due, self.prices(due)) if self.auction else self.gate_by_cap(due)
        order = [timer for timer in due if timer.timer_id in tips]
        floor, aged = self.params["PRIORITY_FLOOR"], self.params["TIE_BREAK"] == "aged"

        def tie(t: Timer) -> tuple[Any, ...]:
            return t.age if aged else (t.timer_id,)

        if self.by_bias:
            order.sort(key=lambda t: (-self.density(t), tie(t)))
            self.scan([timer.timer_id for timer in order], tips)
            self.settle_bids()
            waiting = [timer for timer in order if self.carried.get(timer.timer_id) == "lane_full"]
            self.carried |= {timer.timer_id: "actor_limit" for timer in waiting if self.has_fired_enough(timer.actor)}
        elif self.timers_first:
            order.sort(key=lambda t: (-tips[t.timer_id], -self.earned(t), tie(t)))
            self.scan_in_slices(order, tips)
        else:
            if self.auction:
                weight = self.weights()
                order.sort(key=lambda t: (-(tips[t.timer_id] + floor) * weight(t.actor), tie(t)))
            self.scan([timer.timer_id for timer in order], tips)
        self.pay_proposer(proposer, sum(fire["fee"] - self.burned_by[fire["timer_id"]] for fire in self.fires))
        self.deferred = {timer_id: why for timer_id, why in self.carried.items() if timer_id in self.state.timers}

    def destroy_expired(self, due: list[Timer]) -> list[Timer]:
        cost = self.params["GC_CYCLES_PER_REMOVAL"]
        budget = self.params["TIMER_GC_CYCLES"] - self.params["SCAN_LIMIT"] * cost
        for timer in due:
            if self.height <= timer.expires_at:
                continue
            if self.gc_used + cost > budget:
                self.carried[timer.timer_id] = "gc_budget"
                continue
            self.gc_used += cost
            self.destroy(timer, "expired")
            self.event("TimerExpired", timer.actor, timer_id=timer.timer_id)
        return [timer for timer in due if self.height <= timer.expires_at]

    def destroy(self, timer: Timer, reason: str) -> None:
        del self.state.timers[timer.timer_id]
        self.end_unfired(timer)
        self.destroyed.append({"timer_id": timer.timer_id, "reason": reason})

    def over_cap(self, timer: Timer) -> bool:
        return timer.gas_limit is not None and timer.gas_limit > self.cap

    def gate(self, due: list[Timer], prices: dict[str, tuple[int, int]]) -> dict[str, int]:
        """The tip of each timer that passes the gate."""
        tips = {}
        for timer in due:
            max_fee, priority = prices[timer.timer_id]
            if max_fee < self.floor:
                self.carried[timer.timer_id] = "below_basefee"
            elif self.over_cap(timer):
                self.carried[timer.timer_id] = "over_cap"
            else:
                tips[timer.timer_id] = min(priority, max_fee - self.floor)
        return tips

    def gate_by_cap(self, due: list[Timer]) -> dict[str, int]:
        self.carried.update({timer.timer_id: "over_cap" for timer in due if self.over_cap(timer)})
        return {timer.timer_id: 0 for timer in due if not self.over_cap(timer)}

    def weights(self) -> Any:
        """The fairness weight of an actor: times D, or in units of 2**-16 where a candidate is on."""
        recent: dict[str, int] = {}
        for actors in self.fires_by_block.values():
            for account in map(self.weighed_as, actors):
                recent[account] = recent.get(account, 0) + 1
        x = sorted(recent.values())
        middle = x[(len(x) - 1) // 2] + x[len(x) // 2] if x else 0
        divisor = max(2, middle)
        if x:
            self.median = self.next_median(Fraction(middle, 2) * 2**16)
        names = ("MEDIAN_SMOOTHING_MILLI", "WEIGHT_CLIP_MIN_MILLI", "WEIGHT_CLIP_MAX_MILLI")
        if any(self.params[name] != DEFAULTS[name] for name in names):
            return lambda actor: self.clipped(recent.get(self.weighed_as(actor), 0))
        return lambda actor: 2 * divisor - min(2 * recent.get(self.weighed_as(actor), 0), divisor)

    def weighed_as(self, actor: str) -> str:
        return self.deployer[actor] if self.params["WEIGHT_PARTY"] == "deployer" else actor

    def next_median(self, newest: Fraction) -> int:
        """The moving average of the medians, in units of 2**-16."""
        share = Fraction(self.params["MEDIAN_SMOOTHING_MILLI"], 1_000)
        return int(newest if self.median is None else share * newest + (1 - share) * self.median)

    def clipped(self, fires: int) -> int:
        ratio = min(Fraction(2), Fraction(fires * 2**16, self.median or 2**16))
        least, most = self.bound("WEIGHT_CLIP_MIN_MILLI"), self.bound("WEIGHT_CLIP_MAX_MILLI")
        return min(most, max(least, floor((2 - ratio) * 2**16)))

    # --- bias_auction -------------------------------------------------------------------------------------------------

    def bias(self, timer: Timer) -> int:
        """``e`` to the power of λ times the blocks waited, in units of 2**-32, below 2**128."""
        return self.bias_after(self.height - timer.height)

    def bias_after(self, waited: int) -> int:
        with localcontext(Context(prec=120, Emax=10**6)):
            power = Decimal(waited) * self.rate / 10**6
            return min(2**128 - 1, int(power.exp() * 2**32))

    def growth(self, waited: int) -> int:
        """By how much a bias grows in the block after so many, in whole units."""
        return self.bias_after(waited + 1) - self.bias_after(waited) >> 32

    def gas_of(self, timer: Timer) -> int:
        return self.cap if timer.gas_limit is None else timer.gas_limit

    def density(self, timer: Timer) -> int:
        return min(2**128 - 1, timer.bid * 2**32 + self.bias(timer)) // self.gas_of(timer)

    def settle_bids(self) -> None:
        for timer, fire in zip(self.winners, self.fires, strict=True):
            due = min(timer.bid, max(self.params["RESERVE_PRICE"], self.due(timer)))
            self.unlock(timer)
            self.state.debit(timer.fee_payer, due)
            fire["fee"] += due
            fire["tip"] = due // fire["cycles"]
        late = [self.height - timer.height for timer in self.winners]
        for name, value in (("fires", len(late)), ("waits", sum(late)), ("bids", sum(t.bid for t in self.winners))):
            self.sums[name] += value

    def due(self, timer: Timer) -> int:
        if self.params["PAYMENT_RULE"] == "first_price":
            return timer.bid
        left_out = self.left_out
        if left_out is None:
            return 0
        if self.params["PAYMENT_RULE"] == "vcg":
            return left_out.bid - self.bias(timer) // 2**32
        level = Fraction(left_out.bid * 2**32 + self.bias(left_out), self.gas_of(left_out))
        return ceil(Fraction(ceil(level * self.gas_of(timer)) - self.bias(timer), 2**32))

    def move_rate(self) -> None:
        fires, params = self.sums["fires"], self.params
        if not fires:
            return
        step = self.rate * params["BIAS_LAMBDA_STEP_MILLI"] // 1_000
        decay = self.sums["bids"] // fires // params["VALUE_LIFE_BLOCKS"]
        too_steep = self.growth(self.sums["waits"] // fires) > decay
        moved = self.rate - step if too_steep else self.rate + step
        self.rate = min(params["BIAS_LAMBDA_MAX_MICRO"], max(params["BIAS_LAMBDA_MIN_MICRO"], moved))
        self.sums = dict.fromkeys(self.sums, 0)

    # --- weights of gba_auction ---------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self.height // self.params["EPOCH_LENGTH"]

    def score(self, timer: Timer, error: str | None, cycles: int, tip: int) -> int:
        late, one = self.height - timer.height, 2**16
        by_tip = one * tip // (tip + self.p50) if tip + self.p50 else one // 2
        by_wait = one * late // (late + self.params["STARVATION_BLOCKS"])
        by_use = one - one * cycles // self.params["LANE_TIMER_CYCLES"]
        return (by_tip + (0 if error else one) + by_wait + by_use) // 4

    def earn(self) -> None:
        """At the end of an epoch, every weight moves towards the mean score of its actor's fires, or towards 0."""
        if (self.height + 1) // self.params["EPOCH_LENGTH"] == self.epoch:
            return
        for actor in self.actors:
            scores = self.scores.pop((actor, self.epoch), [])
            mean = sum(scores) // len(scores) if scores else 0
            decay, before = self.params["WEIGHT_LAMBDA_MILLI"], self.weight.get(actor, self.bound("WEIGHT_MIN_MILLI"))
            after = ((1_000 - decay) * before + decay * mean) // 1_000
            self.weight[actor] = min(self.bound("WEIGHT_MAX_MILLI"), max(self.bound("WEIGHT_MIN_MILLI"), after))

    def bound(self, name: str) -> int:
        return 2**16 * int(self.params[name]) // 1_000

    def weight_of(self, actor: str) -> int:
        return self.weight.get(actor, self.bound("WEIGHT_MIN_MILLI"))

    def earned(self, timer: Timer) -> int:
        weight = self.weight_of(timer.actor)
        if self.height - timer.height >= self.params["STARVATION_BLOCKS"]:
            return max(weight, self.bound("STARVATION_FLOOR_MILLI"))
        return weight

    # --- gas bidding agents -----------------------------------------------------------------------------------------

    def prices(self, due: list[Timer]) -> dict[str, tuple[int, int]]:
        """(max_fee_per_cycle, max_priority_fee_per_cycle) of every due timer."""
        answers, fallen_back = self.query(due)
        prices = {}
        for timer in due:
            answer = answers.get(timer.timer_id)
            if answer is None and timer.timer_id not in fallen_back:
                answer = self.good_answer.get(timer.actor)
            max_fee, priority = timer.max_fee, timer.priority
            if answer is not None:
                max_fee = answer[0] if max_fee is None else max_fee
                priority = answer[1] if priority is None else priority
            prices[timer.timer_id] = self.default_bid(timer, max_fee, priority)
        return prices

    def default_bid(self, timer: Timer, max_fee: int | None, priority: int | None) -> tuple[int, int]:
        if priority is None:
            priority = self.p50
            if self.params["DEFAULT_TIP_CAP"] > 0:
                priority = min(priority, self.floor // self.params["DEFAULT_TIP_CAP"])
        if max_fee is None:
            max_fee = timer.default_max_fee
            if max_fee is None:
                max_fee = 2 * self.floor
                max_fee = min(max_fee, FEE_LIMIT - 1)
                self.state.timers[timer.timer_id] = replace(timer, default_max_fee=max_fee)
        return max_fee, priority

    def candidates(self, due: list[Timer]) -> list[tuple[int, int, str, Timer]]:
        ranks: dict[str, int] = {}
        found = []
        for timer in due:
            hopeless = timer.max_fee is not None and timer.max_fee < self.floor
            is_open = timer.max_fee is None or timer.priority is None
            if timer.actor not in self.gbas or not is_open or hopeless or self.over_cap(timer):
                continue
            unpaid_at = self.unpaid_at.get(timer.actor)
            if unpaid_at is not None and unpaid_at >= self.height - self.params["GBA_UNPAID_PAUSE"]:
                continue
            rank = ranks.get(timer.actor, 0)
            ranks[timer.actor] = rank + 1
            if rank < self.params["GBA_QUERIES_PER_ACTOR"]:
                found.append((rank, self.last_queried.get(timer.actor, 0), timer.timer_id, timer))
        return sorted(found, key=lambda entry: entry[:3])

    def query(self, due: list[Timer]) -> tuple[dict[str, tuple[int, int]], set[str]]:
        """The answers by timer, and the timers that fell back to the default."""
        answers: dict[str, tuple[int, int]] = {}
        fallen_back: set[str] = set()
        report, limit = self.gba_report, self.params["GBA_MAX_CYCLES"]
        for _, _, timer_id, timer in self.candidates(due):
            owner = timer.actor
            admitted = report["spent"] + limit <= self.params["GBA_BUDGET_CYCLES"]
            if not admitted or self.unpaid_at.get(owner) == self.height:
                report["not_admitted"] += 1
                continue
            report["queried"] += 1
            report["spent"] += 100
            self.last_queried[owner] = self.height
            if self.state.balance.get(owner, 0) < limit * self.basefee_cycle:
                self.unpaid_at[owner] = self.height
                fallen_back.add(timer_id)
                self.event("GbaFallback", owner, timer_id=timer_id, reason="unpaid")
                continue
            self.state.debit(owner, 100 * self.basefee_cycle)
            self.burn(100 * self.basefee_cycle)
            answers[timer_id] = self.good_answer[owner] = self.gbas[owner]
        return answers, fallen_back

    # --- fires ------------------------------------------------------------------------------------------------------

    def scan_in_slices(self, order: list[Timer], tips: dict[str, int]) -> None:
        """Both passes over the lane, the second over what the first one set aside (``gba_auction``)."""
        self.cycles_by: dict[str, int] = {}
        ids = [timer.timer_id for timer in order]
        self.scan(ids, tips, first_pass=True)
        closed = {timer.timer_id for timer in order if self.has_used_its_slice(timer.actor)}
        self.scan([timer_id for timer_id in ids if timer_id in closed], tips)
        self.carried |= dict.fromkeys(self.unpaid, "insufficient_funds")

    def has_used_its_slice(self, actor: str) -> bool:
        share = self.params["LANE_TIMER_CYCLES"] * self.weight_of(actor) // (2**16 * self.params["BUDGET_SLICES"])
        return self.cycles_by.get(actor, 0) >= max(1, share)

    def scan(self, order: list[str], tips: dict[str, int], first_pass: bool = False) -> None:
        params, looked = self.params, 0
        for position, timer_id in enumerate(order):
            timer = self.state.timers.get(timer_id)
            if timer is None:
                continue
            if self.is_aside(timer, first_pass):
                self.carried[timer_id] = "lane_full"
                continue
            full = self.lane_used + params["MIN_GAS_LIMIT_PER_TIMER"] > params["LANE_TIMER_CYCLES"]
            full = full or len(self.fires) >= params["MAX_FIRES_PER_BLOCK"]
            if full or self.lane_cells >= params["LANE_TIMER_CELLS"] or looked >= params["SCAN_LIMIT"]:
                self.left_out = self.left_out or timer
                self.carried.update(dict.fromkeys(order[position:], "lane_full"))
                return
            gas_limit = self.gas_of(timer)
            if self.lane_used + gas_limit > params["LANE_TIMER_CYCLES"]:
                self.left_out = self.left_out or timer
                if not (self.auction or self.by_bias):
                    self.carried.update(dict.fromkeys(order[position:], "lane_full"))
                    return
                self.carried[timer_id] = "lane_full"
                looked += 1
                continue
            price = self.basefee_cycle + self.lane_price + tips[timer_id]
            needed = gas_limit * price + params["MAX_CELLS_PER_FIRE"] * self.basefee_cell
            available = self.state.balance.get(timer.fee_payer, 0)
            if timer.payer_cap is not None:
                available = min(available, timer.payer_cap - timer.bid)
            if available >= needed:
                self.fire(timer, gas_limit, tips[timer_id], needed)
                looked += 1
            elif not self.destroy_insolvent(timer, needed, available):
                looked += 1

    def is_aside(self, timer: Timer, first_pass: bool) -> bool:
        """Whether a timer has no turn in this pass, whatever room the lane has."""
        return (first_pass and self.has_used_its_slice(timer.actor)) or self.has_fired_enough(timer.actor)

    def has_fired_enough(self, actor: str) -> bool:
        return self.by_bias and self.fired_actors.count(actor) >= self.params["MAX_FIRES_PER_ACTOR"]

    def destroy_insolvent(self, timer: Timer, needed: int, available: int) -> bool:
        if self.timers_first:
            self.unpaid.append(timer.timer_id)
            self.carried[timer.timer_id] = "insufficient_funds"
            return False
        cost = self.params["GC_CYCLES_PER_REMOVAL"]
        if self.gc_used + cost > self.params["TIMER_GC_CYCLES"]:
            self.carried[timer.timer_id] = "gc_budget"
            return False
        self.gc_used += cost
        self.destroy(timer, "insufficient_funds")
        self.event(
            "TimerCancelledInsufficientFunds",
            timer.actor,
            timer_id=timer.timer_id,
            fee_payer=timer.fee_payer,
            needed=needed,
            balance=available,
        )
        return True

    def fire(self, timer: Timer, gas_limit: int, tip: int, max_cost: int) -> None:
        del self.state.timers[timer.timer_id]
        self.state.debit(timer.fee_payer, max_cost)
        meter = Meter(gas_limit, self.params["MAX_CELLS_PER_FIRE"])

        def body() -> None:
            meter.charge(self.params["FIRE_BASE_CYCLES"])
            self.script(Run(timer.actor, timer.actor, "timer", meter), unwrap(timer.payload))

        error = self.attempt(body)
        burned = meter.cycles * (self.basefee_cycle + self.lane_price) + meter.cells * self.basefee_cell
        fee = burned + meter.cycles * tip
        self.burned_by[timer.timer_id] = burned
        self.state.credit(timer.fee_payer, max_cost - fee)
        self.burn(burned)
        self.lane_used += meter.cycles
        self.lane_cells += meter.cells
        self.cycles += meter.cycles
        self.cells += meter.cells
        self.fired_actors.append(timer.actor)
        self.winners.append(timer)
        if self.timers_first:
            self.cycles_by[timer.actor] = self.cycles_by.get(timer.actor, 0) + meter.cycles
            self.scores.setdefault((timer.actor, self.epoch), []).append(self.score(timer, error, meter.cycles, tip))
        self.fires.append({"timer_id": timer.timer_id} | self.outcome(error, meter) | {"fee": fee, "tip": tip})

    # --- messages ---------------------------------------------------------------------------------------------------

    def message_phase(self) -> list[dict[str, Any]]:
        used, reports = 0, []
        for _ in range(len(self.state.queue)):
            message = self.state.queue[0]
            if used + message.cycles > self.params["LANE_DEFERRED_CYCLES"]:
                break
            self.state.queue.pop(0)
            run = Run(message.to, message.sender, "message", Meter(message.cycles, message.cells))
            error = self.attempt(lambda run=run, message=message: self.run_message(run, message))
            used += run.meter.cycles - (0 if error else run.reserved)
            reports.append({"to": message.to, "handler": message.handler} | self.outcome(error, run.meter))
        return reports

    def run_message(self, run: Run, message: Message) -> None:
        run.meter.charge(self.params["MESSAGE_BASE_CYCLES"])
        self.script(run, message.payload)

    # --- final ------------------------------------------------------------------------------------------------------

    def final(self) -> dict[str, Any]:
        state = self.state
        addresses = self.genesis_accounts | {a for a in state.balance if state.balance[a]} | set(state.nonce)
        timers = []
        for timer in state.timers.values():
            due = max(timer.height, self.height + 1)
            timers.append((due, timer.age, timer))
        timers.sort(key=lambda entry: entry[:2])
        return {
            "accounts": {
                address: {"balance": state.balance.get(address, 0), "nonce": state.nonce.get(address, 0)}
                for address in addresses
            },
            "storage": {address: entries for address, entries in state.storage.items() if entries},
            "timers": [
                {
                    "timer_id": timer.timer_id,
                    "actor": timer.actor,
                    "trigger_height": timer.height,
                    "due_height": due,
                    "deferrals": due - timer.height,
                    "expires_at": timer.expires_at,
                    **({"watch": dict(zip(("actor", "key"), timer.watch, strict=True))} if timer.watch else {}),
                }
                for due, _, timer in timers
            ],
            "burned": self.burned,
        }


def run(genesis: dict[str, Any], blocks: list[dict[str, Any]]) -> dict[str, Any]:
    """The output of the conformance tool for this input, without state roots."""
    chain = Chain(genesis)
    reports = []
    for block in blocks:
        proposer = block["proposer"].lower()
        if "empty" in block:
            reports += [chain.block(proposer, []) for _ in range(number(block["empty"]))]
        else:
            reports.append(chain.block(proposer, block["txs"]))
    return {"blocks": reports, "final": chain.final()}
