"""A fixed chain of blocks whose roots are pinned: ``python -m tests.validator.fixed_chain`` prints them as JSON.

Every kind of transaction, both presets, timers that fire, revert, wait, expire, run dry and are cancelled; then the
same with agents, messages and system instructions, from the phase before activation into the auction. The roots may
change only together with the protocol; then the output of this program replaces ``tests/vectors/fixed_chain.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tests.validator.chains import ACTOR, ALICE, BOB, OTHER, SMALL, Chain, make_genesis, schedule
from validator.chain.genesis import GenesisAgent
from validator.chain.transactions import (
    CancelTimer,
    Deploy,
    ExtendTimer,
    Instruction,
    Transaction,
    Transfer,
    UpdateTimerConfig,
    deployed_address,
)
from validator.primitives.codec import encode
from validator.primitives.types import Address

VECTOR: Final = Path(__file__).resolve().parents[1] / "vectors" / "fixed_chain.json"
BLOCKS: Final = 20
POOR: Final = Address(b"\xdd" * 20)


VARIANTS: Final = ("default", "hardened", "activation")
ACTIVATION: Final = {
    "ACTIVATION_HEIGHT": 6,
    "MIN_BASEFEE": 1_000_000,
    "GBA_MAX_CYCLES": 2_000,
    "GBA_BUDGET_CYCLES": 2_200,
    "GBA_UNPAID_PAUSE": 3,
    "LANE_DEFERRED_CYCLES": 100_000,
}
AGENTS: Final = {
    OTHER: GenesisAgent("builtin:fixed", 2_000_000, 9),
    POOR: GenesisAgent("builtin:fixed", 3_000_000, 1),
}


def build(variant: str) -> Chain:
    """The whole chain."""
    actors = {ACTOR: 10**18, OTHER: 10**18, POOR: 10**9}
    params: dict[str, Any] = {**SMALL, "MAX_TTL": 12, "FAIRNESS_WINDOW_BLOCKS": 4}
    genesis = make_genesis(params, "hardened" if variant == "hardened" else None, actors=actors)
    if variant == "activation":
        genesis = make_genesis({**params, **ACTIVATION}, actors=actors, agents=AGENTS, system_deployers=(BOB,))
    chain = Chain(genesis)
    for height in range(1, BLOCKS + 1):
        chain.block(*transactions(chain, height, variant == "activation"))
    return chain


def transactions(chain: Chain, height: int, all_kinds: bool) -> list[Transaction]:
    """The block's transactions; each sender's nonces follow each other."""
    tip: dict[str, Any] = {"max_priority_fee_per_cycle": height, "max_fee_per_cycle": 10**9}
    calls: list[tuple[Any, ...]] = [
        (ALICE, chain.call(*alices_script(height), timer_allowance=10**12)),
        (BOB, chain.call(*bobs_script(height), actor=OTHER, sender=BOB, max_priority_fee_per_cycle=height)),
    ]
    if height % 5 == 1:
        calls.append((ALICE, chain.transaction(Deploy("builtin:script"), value=10**15, **tip)))
    if height % 5 == 2:
        deployed = deployed_address(ALICE, 1)
        calls.append((ALICE, chain.call(schedule(2, ["emit", "Deployed", "ja"]), actor=deployed, **tip)))
        calls.append((BOB, chain.transaction(Transfer(Address(bytes([height]) * 20)), BOB, value=height)))
        calls.append((BOB, chain.call(["set", "x", "y"], actor=POOR, sender=BOB, gas_limit=1_000 + height)))
    if height % 5 == 3:
        calls.append((BOB, chain.call(schedule(1), schedule(2), actor=POOR, sender=BOB)))
    if all_kinds:
        calls += [(ALICE, chain.call(*messages(height), gas_limit=500_000)), *instructions(chain, height)]
    taken: list[Transaction] = []
    for sender, transaction in calls:
        nonce = chain.nonces.get(sender, 0) + sum(item.sender == sender for item in taken)
        fields = {name: getattr(transaction, name) for name in Transaction.__slots__}
        taken.append(Transaction(**{**fields, "nonce": nonce}))
    return taken


def messages(height: int) -> list[Any]:
    """Messages that do, schedule, send and fail, more than a block's lane holds."""
    limits = {"handler": "run", "cycles": 30_000, "cells": 300}
    least = {"handler": "run", "cycles": 2_000, "cells": 50}
    inner = ["send", {"to": "0x" + ACTOR.hex(), "payload": [["emit", "Inner", ""]], **least}]
    payloads: list[list[Any]] = [
        [["set", "got", str(height)], schedule(1, ["emit", "Told", ""], bid=5)],
        [inner, ["transfer", {"to": "0x" + POOR.hex(), "amount": height}]],
        [["fail", ""]] if height % 3 else [["burn", 28_000]],
    ]
    return [["send", {"to": "0x" + OTHER.hex(), "payload": payload, **limits}] for payload in payloads]


def instructions(chain: Chain, height: int) -> list[tuple[Address, Transaction]]:
    """One system instruction a block, also such as are refused."""
    timers = [timer.timer_id for timer in chain.timers()]
    given: dict[int, Instruction] = {
        0: UpdateTimerConfig(json.dumps({"LANE_FEE_MULTIPLIER_MILLI": 1_000 + 10 * height, "PRIORITY_FLOOR": 1})),
        1: CancelTimer(timers[-1] if timers else bytes(32)),
        2: ExtendTimer(timers[-1] if timers else bytes(32), height + 11),
        3: UpdateTimerConfig('{"LANE_TIMER_CYCLES": 10}'),
    }
    instruction = given[height % 4]
    sender = ALICE if height % 5 == 0 else BOB
    return [(sender, chain.system(instruction, sender=sender))]


def alices_script(height: int) -> list[Any]:
    """Timers of every price, one of them saved, extended and cancelled in turn."""
    script: list[Any] = [
        schedule(1, ["set", f"block-{height}", "é"], ["emit", "Tick", str(height)]),
        schedule(2, ["burn", 7_000], max_fee_per_cycle=10**8, max_priority_fee_per_cycle=height % 3),
        schedule(2, ["transfer", {"to": "0x" + OTHER.hex(), "amount": height}], gas_limit=3_000, tier="fast"),
        schedule(3, ["fail", "on purpose"], fee_payer="sender", payer_cap=10**11, save_as="last"),
    ]
    if height % 4 == 0:
        script.append(["try", ["cancel", {"saved": "last"}]])
    if height % 4 == 2:
        script.append(["try", ["extend", {"saved": "last", "expires_at": height + 11}]])
    return script


def bobs_script(height: int) -> list[Any]:
    again = schedule(1, ["burn", 100], expires_at=height + 3) if height % 2 else ["get", "none"]
    return [
        schedule(1, again, ["try", schedule(0)], expires_at=height + 2),
        schedule(1, gas_limit=8_000, expires_at=height + 1, max_fee_per_cycle=1_100_000),
        ["fail", ""] if height % 7 == 0 else ["del", "k"],
    ]


def summary(chain: Chain) -> list[dict[str, Any]]:
    """What is pinned of each block."""
    return [
        {
            "height": outcome.receipts.height,
            "state_root": outcome.state_root.hex(),
            "receipts_root": outcome.receipts_root.hex(),
            "receipts_bytes": len(encode(outcome.receipts)),
            "basefee_lane_timer": outcome.basefee_lane_timer,
            "fires": len(outcome.receipts.fires),
            "destroyed": [end.reason for end in outcome.receipts.destroyed],
            "carried": sorted(outcome.carried.values()),
            "errors": [receipt.error for receipt in outcome.receipts.transactions],
            "queries": [query.outcome for query in outcome.receipts.queries],
            "messages": [message.error for message in outcome.receipts.messages],
        }
        for outcome in chain.blocks
    ]


def render() -> str:
    chains = {variant: summary(build(variant)) for variant in VARIANTS}
    return json.dumps(chains, indent=1) + "\n"


if __name__ == "__main__":
    print(render(), end="")
