"""The output of ``stampede t8n`` by the specification: the plain answer to the same input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cluster.audit.specified.chain import StateRoots, spec_chain, spec_transaction
from kits.conform.t8n import callback_page, event_page, fire_page, message_page, run_page, timer_page
from kits.conform.t8n_input import InputBlock
from spec.block import BlockRun, NotAdmitted, begin, execute, finish
from spec.encoding import Hash, Receipts, receipts_root
from spec.leaves import tier_of
from spec.world import World
from validator.chain.genesis import Genesis
from validator.chain.transactions import Transaction
from validator.primitives.types import address_text

Page = dict[str, Any]


def answer_of(genesis: Genesis, blocks: Sequence[InputBlock]) -> Page:
    """The output for a genesis and blocks, with state roots while the state is small."""
    return _answer(spec_chain(genesis), blocks, StateRoots())


def answer_and_rules(genesis: Genesis, blocks: Sequence[InputBlock]) -> tuple[Page, frozenset[str]]:
    """The output without state roots, and the ids of the numbered rules that the execution reached."""
    world = spec_chain(genesis)
    return _answer(world, blocks, StateRoots(last_height=-1)), frozenset(world.rules)


def _answer(world: World, blocks: Sequence[InputBlock], roots: StateRoots) -> Page:
    pages, root = [], root_page(roots.root(world))
    for block in blocks:
        for _ in range(block.times):
            page = execute_page(world, block.proposer, block.transactions)
            root = root_page(roots.root(world))
            pages.append(page | root)
    return {"blocks": pages, "final": final_page(world) | root}


def root_page(root: Hash | None) -> Page:
    """The field of a state root; none if it is not known."""
    return {} if root is None else {"state_root": root.hex()}


def execute_page(world: World, proposer: bytes, transactions: Sequence[Transaction]) -> Page:
    """Process the next block; returns its page in the output of ``t8n``, without state root."""
    block, burned = begin(world, proposer), world.burned
    shown = []
    for transaction in map(spec_transaction, transactions):
        try:
            receipt = execute(block, transaction)
        except NotAdmitted as refused:
            shown.append({"status": "rejected", "error": refused.name, "cycles": 0, "cells": 0, "fee": 0})
        else:
            page = run_page(receipt)
            shown.append(page | {"created": address_text(receipt.created)} if receipt.created else page)
    page = _block_page(block, finish(block))
    return {**page, "burned": world.burned - burned, "txs": shown, "tiers": _tiers(world)}


def _tiers(world: World) -> Page:
    counts = dict.fromkeys(("ring", "epoch", "overflow"), 0)
    for timer in world.timers.values():
        counts[tier_of(world, timer)] += 1
    return counts


def _block_page(block: BlockRun, receipts: Receipts) -> Page:
    world, phase = block.world, block.phase
    page: Page = {
        "height": receipts.height,
        "basefee_cycle": world.basefee_cycle,
        "basefee_cell": world.basefee_cell,
        "basefee_lane_timer": world.basefee_lane,
        "p50_tip": int.from_bytes(receipts.p50_tip, "big"),
        "lane_cycles": phase.cycles,
        "lane_cells": phase.cells,
        "user_cycles": block.cycles,
        "user_cells": block.cells,
        "gc_cycles": receipts.gc_cycles,
        "cycles": block.cycles + phase.cycles,
        "cells": block.cells + phase.cells,
        "tips": block.tips + phase.tips,
        "gba": {
            "queried": len(receipts.queries),
            "spent": phase.bidding.spent,
            "not_admitted": phase.bidding.not_admitted,
        },
        "fires": [fire_page(fire) for fire in receipts.fires],
        "messages": [message_page(message) for message in receipts.messages],
        "destroyed": [{"timer_id": end.timer_id.hex(), "reason": end.reason} for end in receipts.destroyed],
        "deferred": {timer_id.hex(): reason for timer_id, reason in phase.waits.items()},
        "events": [event_page(event) for event in world.events],
        "receipts_root": receipts_root(receipts).hex(),
    }
    if receipts.callbacks:
        page["callbacks"] = [callback_page(callback) for callback in receipts.callbacks]
    return page


def final_page(world: World) -> Page:
    """The state after the last block, without its root."""
    given = {*world.genesis.accounts, *world.genesis.actors}
    page = {
        "accounts": {
            address_text(address): {"balance": balance, "nonce": world.nonce.get(address, 0)}
            for address, balance in world.balance.items()
            if address in given or balance or world.nonce.get(address, 0)
        },
        "storage": _values(world, world.storage),
        "timers": _timers(world),
        "burned": world.burned,
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
        page = timer_page(timer, due)
        if timer.watch is not None:
            page["watch"] = {"actor": address_text(timer.watch.actor), "key": timer.watch.key}
        shown.append(page)
    return shown
