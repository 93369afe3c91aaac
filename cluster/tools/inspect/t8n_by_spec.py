"""The output of ``stampede t8n`` by the specification: the plain answer to the same input, without state roots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cluster.audit.specified.chain import spec_chain, spec_transaction
from cluster.tools.inspect.t8n_input import InputBlock
from spec.block import NotAdmitted, Outcome, begin, execute, finish
from spec.leaves import tier_of
from spec.world import World
from validator.chain.genesis import Genesis
from validator.chain.transactions import Transaction
from validator.primitives.types import address_text

NUMERIC_FIELDS: Final = frozenset({"needed", "balance", "stated", "clamped", "results_needed"})
Page = dict[str, Any]


def answer_of(genesis: Genesis, blocks: Sequence[InputBlock]) -> Page:
    """The output for a genesis and blocks."""
    world = spec_chain(genesis)
    pages = [execute_page(world, block.proposer, block.transactions) for block in blocks for _ in range(block.times)]
    return {"blocks": pages, "final": final_page(world)}


def execute_page(world: World, proposer: bytes, transactions: Sequence[Transaction]) -> Page:
    """Process the next block; returns its page in the output of ``t8n``, without state root."""
    block = begin(world, proposer)
    shown = []
    for transaction in map(spec_transaction, transactions):
        try:
            receipt = execute(block, transaction)
        except NotAdmitted as refused:
            shown.append({"status": "rejected", "error": refused.name, "cycles": 0, "cells": 0, "fee": 0})
        else:
            page = {**_outcome(receipt), "fee": _fee(receipt)}
            shown.append(page | {"created": address_text(receipt.created)} if receipt.created else page)
    outcome = finish(block)
    return {**_block_page(outcome), "txs": shown, "tiers": _tiers(world)}


def _tiers(world: World) -> Page:
    counts = dict.fromkeys(("ring", "epoch", "overflow"), 0)
    for timer in world.timers.values():
        counts[tier_of(world, timer)] += 1
    return counts


def _outcome(receipt: Any) -> Page:
    status = "ok" if receipt.ok else "reverted"
    return {"status": status, "error": receipt.error or None, "cycles": receipt.cycles, "cells": receipt.cells}


def _fee(receipt: Any) -> int:
    return int.from_bytes(receipt.burned, "big") + int.from_bytes(receipt.tip, "big")


def _block_page(outcome: Outcome) -> Page:
    receipts = outcome.receipts
    page: Page = {
        "height": receipts.height,
        "basefee_cycle": outcome.basefee_cycle,
        "basefee_cell": outcome.basefee_cell,
        "basefee_lane_timer": outcome.basefee_lane,
        "p50_tip": int.from_bytes(receipts.p50_tip, "big"),
        "lane_cycles": outcome.lane_cycles,
        "gc_cycles": receipts.gc_cycles,
        "cycles": outcome.user_cycles + outcome.lane_cycles,
        "cells": outcome.user_cells + outcome.lane_cells,
        "tips": outcome.tips,
        "burned": outcome.burned,
        "gba": {"queried": len(receipts.queries), "spent": outcome.spent, "not_admitted": outcome.not_admitted},
        "fires": [
            {
                "timer_id": fire.timer_id.hex(),
                **_outcome(fire),
                "fee": _fee(fire),
                "tip": int.from_bytes(fire.tip_per_cycle, "big"),
            }
            for fire in receipts.fires
        ],
        "messages": [
            {"to": address_text(each.to), "handler": each.handler, **_outcome(each)} for each in receipts.messages
        ],
        "destroyed": [{"timer_id": end.timer_id.hex(), "reason": end.reason} for end in receipts.destroyed],
        "deferred": {timer_id.hex(): reason for timer_id, reason in outcome.waits.items()},
        "events": [
            {
                "name": event.name,
                "actor": address_text(event.actor),
                **{name: int(text) if name in NUMERIC_FIELDS else text for name, text in event.fields},
            }
            for event in outcome.events
        ],
    }
    if receipts.callbacks:
        page["callbacks"] = [
            {
                "job_id": each.job_id.hex(),
                "actor": address_text(each.actor),
                "handler": each.handler,
                **_outcome(each),
                "consumed": each.unsettled is None,
            }
            for each in receipts.callbacks
        ]
    return page


def final_page(world: World) -> Page:
    """The state after the last block, without its root."""
    given = {*world.genesis.accounts, *world.genesis.actors}
    burned = sum(amount for name, amount in world.counters.items() if name.startswith("burned"))
    page = {
        "accounts": {
            address_text(address): {"balance": balance, "nonce": world.nonce.get(address, 0)}
            for address, balance in world.balance.items()
            if address in given or balance or world.nonce.get(address, 0)
        },
        "storage": _values(world, world.storage),
        "timers": _timers(world),
        "burned": burned,
    }
    return page | {"published": _values(world, world.published)} if world.published else page


def _values(world: World, table: dict[tuple[bytes, str], bytes]) -> Page:
    shown: Page = {}
    for (address, name), value in table.items():
        is_program = address in world.actors and world.actors[address].code in world.programs
        text = {"hex": value.hex()} if is_program else value.decode()
        shown.setdefault(address_text(address), {})[name] = text
    return shown


def _timers(world: World) -> list[Page]:
    shown = []
    for timer in sorted(world.timers.values(), key=lambda each: (max(each.trigger_height, world.height + 1), each.age)):
        due = max(timer.trigger_height, world.height + 1)
        page: Page = {
            "timer_id": timer.timer_id.hex(),
            "actor": address_text(timer.actor),
            "trigger_height": timer.trigger_height,
            "due_height": due,
            "deferrals": due - timer.trigger_height,
            "expires_at": timer.expires_at,
        }
        if timer.watch is not None:
            page["watch"] = {"actor": address_text(timer.watch.actor), "key": timer.watch.key}
        shown.append(page)
    return shown
