"""Real chains for tests of the auditor: blocks as validators build them, made once for each policy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace as with_fields

from cluster.audit.ledger import Ledger
from cluster.audit.specified.judge import Deviation, SpecifiedChain
from tests.validator.chains import ACTOR, ACTORS, ALICE, BOB, OTHER, RICH, SMALL, USERS, make_genesis, schedule, script
from tests.validator.executors import Author, wire
from tests.validator.fixed_chain import ACTIVATION, AGENTS, alices_script, messages
from validator.chain.block import Block, BlockReceipts, header_hash
from validator.chain.genesis import Genesis, GenesisActor, Policy
from validator.chain.records import TIMER, decode_record
from validator.chain.transactions import (
    Action,
    Call,
    CancelTimer,
    Deploy,
    ExtendTimer,
    Instruction,
    System,
    Transfer,
    UpdateTimerConfig,
)
from validator.execution.jobs import job_id_of
from validator.primitives.codec import decode, encode
from validator.primitives.types import RUNNER_CONTRACT_ADDRESS, Address
from validator.pvm.runtime.values import encode_value

POOR, ASKING = ACTORS[2:4]
"""An actor that soon cannot pay, and one that requests jobs."""
SAVING: Final = Address(b"\xa9" * 20)
"""An actor that can lock one bid at a time."""
HEIGHTS: Final = 24
PARAMETERS: Final = {**SMALL, "SCAN_LIMIT": 40, "TIMER_GC_CYCLES": 16_000, "EPOCH_LENGTH": 4, "RING_BUFFER_SIZE": 8}
BIDS: Final = (0, 5, 40_000, 40_000, 3_000_000)
RATES: Final = {"BIAS_LAMBDA_MICRO": 10**6, "BIAS_LAMBDA_MAX_MICRO": 3 * 10**6, "BIAS_INTERVAL_BLOCKS": 3}
ASKS: Final = """\
class Jobs(Actor):
    def ask(self, payload):
        self.request_job(payload, 1, "consume" if payload % 3 else "ignore")

    def consume(self, payload):
        self.set("results", self.consume_result(payload["job"]))

    def ignore(self, payload):
        self.emit("ignored", len(payload["results"]))
"""

Plant = Callable[[pytest.MonkeyPatch], None]
"""Plants a bug in a validator."""
Blocks = Sequence[tuple[bytes, bytes]]


class Made(NamedTuple):
    """A chain that a validator made: each block with its receipts."""

    genesis: Genesis
    blocks: Blocks
    author: Author
    """The validator, which has the state after the last block."""

    @property
    def receipts(self) -> list[BlockReceipts]:
        return [decode(receipts, BlockReceipts) for _, receipts in self.blocks]


def add(author: Author, *wires: bytes, proposer: int = 0) -> tuple[bytes, bytes]:
    """The next block of a validator's chain, with these transactions, and its receipts."""
    built = author.build(None, *wires, proposer=proposer)
    assert built.block.transactions == wires
    author.finalize(built.digest)
    archived = author.executor.archive.get(built.block.header.height)
    assert archived is not None
    return archived.block, archived.receipts


def make(genesis: Genesis, heights: int, wires: Callable[[Author, int], Iterable[bytes]]) -> Made:
    """A chain of so many blocks. ``wires`` are the transactions of each, by its height."""
    author = Author(genesis)
    blocks = [add(author, *wires(author, height), proposer=height % 4) for height in range(1, heights + 1)]
    return Made(genesis, blocks, author)


def judged(genesis: Genesis, blocks: Blocks) -> Deviation | None:
    """What the specification finds in a chain first."""
    chain = SpecifiedChain(genesis)
    for block, receipts in blocks:
        chain.enter(block, receipts)
    return chain.deviation


def rechained(genesis: Genesis, blocks: Blocks) -> Blocks:
    """The blocks on top of another genesis."""
    parent, found = bytes(Author(genesis).executor.final_digest), []
    for data, receipts in blocks:
        block = decode(data, Block)
        header = with_fields(block.header, parent_hash=parent)
        found.append((encode(with_fields(block, header=header)), receipts))
        parent = header_hash(header)
    return found


def ledger_of(genesis: Genesis, blocks: Blocks) -> Ledger:
    ledger = Ledger(genesis)
    for block, receipts in blocks:
        ledger.apply(block, receipts)
    return ledger


def signed(author: Author, *given: tuple[int, Action, dict[str, Any]]) -> list[bytes]:
    """Transactions of users, with their next nonces."""
    nonces: dict[int, int] = {}
    wires = []
    for user, action, fields in given:
        nonce = nonces[user] if user in nonces else int(author.executor.pages.account(USERS[user])["nonce"])
        nonces[user] = nonce + 1
        wires.append(wire(nonce, user=user, action=action, **fields))
    return wires


# --- a chain with everything in it ------------------------------------------------------------------------------------


def everything_genesis(policy: Policy) -> Genesis:
    params: dict[str, Any] = {
        **SMALL,
        **ACTIVATION,
        **RATES,
        "SCAN_LIMIT": 8,
        "TIMER_GC_CYCLES": 4_000,
        "MAX_TTL": 12,
        "FAIRNESS_WINDOW_BLOCKS": 4,
        "EPOCH_LENGTH": 4,
        "RING_BUFFER_SIZE": 4,
        "MESSAGE_CELLS": 20_000,
        "MESSAGE_CYCLES": 32_000,
        "LANE_DEFERRED_CYCLES": 36_000,
        "MAX_WATCHERS_PER_KEY": 3,
        "MIN_BASEFEE": 900_000,
        "BLOCK_CYCLES_TARGET": 150_000,
        "BLOCK_CELLS_TARGET": 3_000,
    }
    actors = {ACTOR: RICH, OTHER: RICH, POOR: 10**9, SAVING: 10**12}
    accounts = dict.fromkeys(USERS[:3], RICH)
    genesis = make_genesis(params, None, accounts, actors, AGENTS, policy, system_deployers=(BOB,))
    asking = {ASKING: GenesisActor(ASKS, ALICE, RICH)}
    return replace(genesis, actors={**genesis.actors, **asking}, runners=(BOB,))


def everything_of(author: Author, height: int) -> list[bytes]:
    """Every kind of transaction, timer, message and job, and instructions of which some are refused."""
    pending = [decode_record(*item).timer_id for item in author.executor.final_view.scan(TIMER)]
    instructions: dict[int, Instruction] = {
        0: UpdateTimerConfig(json.dumps({"LANE_FEE_MULTIPLIER_MILLI": 900 + 10 * height, "MAX_TTL": 12 + height})),
        1: CancelTimer(pending[-1] if pending else bytes(32)),
        2: ExtendTimer(pending[0] if pending else bytes(32), height + 50),
        3: UpdateTimerConfig('{"LANE_TIMER_CYCLES": 10}'),
        4: UpdateTimerConfig(json.dumps({"MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 7_000 + height, "MAX_TTL": 12})),
    }
    rich: dict[str, Any] = {"gas_limit": 500_000, "cells_limit": 20_000}
    others = [schedule(1), schedule(2, expires_at=height + 3), schedule(2, ["burn", 6_000])]
    given: list[tuple[int, Action, dict[str, Any]]] = [
        (0, Call(ACTOR, "run", script(*alices_script(height))), {"timer_allowance": 10**12}),
        (0, Call(ACTOR, "run", script(*messages(height))), rich),
        (0 if height % 7 == 0 else 1, System(instructions[height % 5]), {}),
        (1, Call(OTHER, "run", script(*others)), {}),
        (1, Call(POOR, "run", script(schedule(1), schedule(3))), {}),
    ]
    job, is_asked = divmod(height, 2)
    if is_asked:
        given.append((0, Call(ASKING, "ask", encode_value(job)), {"gas_limit": 10**6, "cells_limit": 100_000}))
    else:
        result = encode((job_id_of(ASKING, job - 1, encode_value(job - 1)), b"ok"))
        given.append((1, Call(RUNNER_CONTRACT_ADDRESS, "submit_result", result), rich))
    if height % 4 == 1:
        given.append((0, Deploy("builtin:script"), {"value": 50}))
    if height % 4 == 3:
        given.append((1, Transfer(Address(bytes([height]) * 20)), {"value": height}))
    if author.genesis.policy is Policy.BIAS_AUCTION and height > ACTIVATION["ACTIVATION_HEIGHT"]:
        for actor, operations in ((OTHER, watched(height)), (ACTOR, bidding(height)), (SAVING, saving(height))):
            given.append((2, Call(actor, "run", script(*operations)), {}))
    return signed(author, *given)


def watched(height: int) -> list[Any]:
    """The key ``k`` changes in some blocks, and may not be watched in others."""
    return [["allow_watching", "k", height % 6 != 0], ["set", "k", str(height // 2)], ["allow_watching", "still", True]]


def bidding(height: int) -> list[Any]:
    """Timers with bids, which watch a key or do not, more than the lane holds."""
    watch = {"watch": {"actor": "0x" + OTHER.hex(), "key": "k"}, "payload": [], "expires_at": height + 3}
    watches = [["try", ["schedule", {**watch, "bid": 7 + number}]] for number in range(2)]
    bids = [schedule(1, ["burn", 500], bid=bid, gas_limit=4_000, expires_at=height + 4) for bid in (900, 700, 700, 5)]
    return [
        *watches,
        *bids,
        schedule(3, bid=11, save_as="bid"),
        *([["cancel", {"saved": "bid"}]] if height % 3 else []),
    ]


def saving(height: int) -> list[Any]:
    """Bids that need what came back of the one before: of a timer that was cancelled, then of one that expired."""
    bid: dict[str, Any] = {"payload": [], "bid": 9 * 10**11, "save_as": "s"}
    still = {"actor": "0x" + OTHER.hex(), "key": "still"}
    operations: dict[int, list[Any]] = {
        0: [["schedule", {"in": 3, **bid}]],
        1: [["cancel", {"saved": "s"}]],
        2: [["schedule", {"watch": still, "expires_at": height + 1, **bid}]],
    }
    return operations.get(height % 5, [])


@cache
def everything(policy: Policy) -> Made:
    return make(everything_genesis(policy), HEIGHTS, everything_of)


# --- contended chains -------------------------------------------------------------------------------------------------


def timers(random: Random, count: int, bids: Sequence[int] = ()) -> list[Any]:
    """Timers of few tips, so that weights decide, and of three sizes, so that not all fit. Most bid one of ``bids``."""
    found = []
    for _ in range(count):
        burn = random.choice((0, 0, 2_000, 6_000))
        fields: dict[str, Any] = {"gas_limit": 1_000 + burn, "max_priority_fee_per_cycle": random.choice((0, 3, 3, 9))}
        if bids and random.random() < 0.8:
            fields["bid"] = random.choice(bids)
        if random.random() < 0.3:
            fields["save_as"] = "s"
        ends = random.choice(([["fail", ""]], [["try", ["cancel", {"saved": "s"}]]]))
        operations = [["burn", burn]] if random.random() < 0.8 else ends
        due = random.choice((1, 1, 2, 5))
        found.append(schedule(due, *operations, max_fee_per_cycle=2**60, expires_at=99, **fields))
    return [*found, ["try", ["cancel", {"saved": "s"}]]] if random.random() < 0.2 else found
