"""The conformance tool ``stampede t8n`` (SPEC §17): the pure state transition, no consensus, no signatures.

It reads a genesis and blocks, applies them to an empty store, and writes every field of the outcome, so that two
implementations can be compared.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from cluster.common.files import write_for_user
from cluster.disks.memory import MemoryDisk
from cluster.tools.inspect.t8n_input import InputBlock, read_blocks, read_genesis
from validator.chain.block import CallbackReceipt, Event, FireReceipt, MessageReceipt, TransactionReceipt
from validator.chain.genesis import Genesis
from validator.chain.records import (
    ACCOUNT,
    GLOBALS,
    LONG_PUBLISHED,
    LONG_STORAGE,
    PUBLISHED,
    PYTHON_CODE,
    STORAGE,
    TIMER,
    Account,
    Actor,
    Globals,
    Timer,
    actor_key,
    decode_record,
    long_storage_entry,
)
from validator.chain.transactions import Transaction, unsigned_hash
from validator.primitives.types import ADDRESS_BYTES, Height, address_text
from validator.pvm.runtime.machine import PythonVm
from validator.scheduler.calendar import count_tiers
from validator.scheduler.index import SchedulerIndex
from validator.state import LogStateStore, View
from validator.transition.genesis_block import genesis_batch
from validator.transition.transition import BlockContext, NotAdmitted, Outcome, PreparedTransaction, Transition

NUMERIC_FIELDS: Final = frozenset({"needed", "balance", "stated", "clamped", "results_needed"})
"""Fields of protocol events that are numbers."""

Page = dict[str, Any]


def run_t8n(genesis_path: Path, blocks_path: Path, out_path: Path) -> None:
    """Process the blocks and write the outcome. Raises :class:`~cluster.common.errors.BadInput`, and writes nothing."""
    genesis = read_genesis(genesis_path)
    blocks = read_blocks(blocks_path, genesis)
    conformance = Conformance(genesis)
    shown = [conformance.process(entry.block) for entry in blocks for _ in range(entry.times)]
    text = json.dumps({"blocks": shown, "final": conformance.final()}) + "\n"
    write_for_user(out_path, text)


class Conformance:
    """A chain without consensus, block after block."""

    def __init__(self, genesis: Genesis) -> None:
        self._genesis = genesis
        self._store = LogStateStore.open(MemoryDisk())
        self._store.commit(self._store.final.derive(Height(0), genesis_batch(genesis)))
        self._index = SchedulerIndex.rebuild(genesis, self._store.final)
        self._vm = PythonVm()

    def process(self, block: InputBlock) -> Page:
        """Process the next block; a transaction that is not admitted is reported as ``rejected``."""
        height = Height(self._store.final.height + 1)
        context = BlockContext(height, block.proposer, self._genesis, explains=True)
        transition = Transition(self._store.final, self._index, context, self._vm)
        transition.start()
        shown = [_execute(transition, transaction) for transaction in block.transactions]
        outcome = transition.finish()
        self._store.commit(outcome.view)
        self._index.advance(outcome.changes)
        self._index.settle(height)
        parameters = transition.terms.parameters
        tiers = count_tiers(self._index.timers_rows(), height, parameters)
        return {**_block_page(outcome), "txs": shown, "tiers": tiers}

    def final(self) -> Page:
        """The state after the last block."""
        view = self._store.final
        data = view.get(GLOBALS)
        assert data is not None
        chain: Globals = decode_record(GLOBALS, data)
        page = {
            "accounts": self._accounts(view),
            "storage": _entries(view, STORAGE, LONG_STORAGE),
            "timers": _timers(view),
            "burned": chain.burned,
            "state_root": view.root.hex(),
        }
        if published := _entries(view, PUBLISHED, LONG_PUBLISHED):
            page["published"] = published
        return page

    def _accounts(self, view: View) -> Page:
        """Every account of the genesis, and every other with a balance or nonce."""
        given = {*self._genesis.accounts, *self._genesis.actors}
        shown: Page = {}
        for key, value in view.scan(ACCOUNT):
            account: Account = decode_record(key, value)
            if key[1:] in given or account.balance or account.nonce:
                shown[address_text(key[1:])] = {"balance": account.balance, "nonce": account.nonce}
        return shown


def _execute(transition: Transition, transaction: Transaction) -> Page:
    try:
        transition.execute(PreparedTransaction(unsigned_hash(transaction), b"", transaction))
    except NotAdmitted as refusal:
        return {"status": "rejected", "error": refusal.name, "cycles": 0, "cells": 0, "fee": 0}
    return _run_page(transition.receipts[-1])


# --- pages ------------------------------------------------------------------------------------------------------------


def _block_page(outcome: Outcome) -> Page:
    receipts, prices, bidding = outcome.receipts, outcome.prices, outcome.bidding
    page = {
        "height": receipts.height,
        "basefee_cycle": prices.basefee_cycle,
        "basefee_cell": prices.basefee_cell,
        "basefee_lane_timer": outcome.basefee_lane_timer,
        "p50_tip": prices.p50_tip,
        "lane_cycles": outcome.lane_cycles,
        "gc_cycles": receipts.gc_cycles,
        "cycles": outcome.user_cycles + outcome.lane_cycles,
        "cells": outcome.user_cells + outcome.lane_cells,
        "tips": outcome.tips,
        "burned": outcome.burned,
        "gba": {"queried": len(bidding.receipts), "spent": bidding.spent, "not_admitted": bidding.not_admitted},
        "fires": [_fire_page(fire) for fire in receipts.fires],
        "messages": [_message_page(message) for message in receipts.messages],
        "destroyed": [{"timer_id": end.timer_id.hex(), "reason": end.reason} for end in receipts.destroyed],
        "deferred": {timer_id.hex(): reason for timer_id, reason in sorted(outcome.carried.items())},
        "events": [_event_page(event) for event in outcome.events],
        "state_root": outcome.state_root.hex(),
    }
    if receipts.callbacks:
        page["callbacks"] = [_callback_page(callback) for callback in receipts.callbacks]
    return page


def _outcome_page(receipt: TransactionReceipt | FireReceipt | MessageReceipt | CallbackReceipt) -> Page:
    """How a handler ended and what it used."""
    return {
        "status": "ok" if receipt.ok else "reverted",
        "error": receipt.error or None,
        "cycles": receipt.cycles,
        "cells": receipt.cells,
    }


def _run_page(receipt: TransactionReceipt | FireReceipt) -> Page:
    return {**_outcome_page(receipt), "fee": _number(receipt.burned) + _number(receipt.tip)}


def _fire_page(fire: FireReceipt) -> Page:
    return {"timer_id": fire.timer_id.hex(), **_run_page(fire), "tip": _number(fire.tip_per_cycle)}


def _message_page(message: MessageReceipt) -> Page:
    return {"to": address_text(message.to), "handler": message.handler, **_outcome_page(message)}


def _callback_page(callback: CallbackReceipt) -> Page:
    return {
        "job_id": callback.job_id.hex(),
        "actor": address_text(callback.actor),
        "handler": callback.handler,
        **_outcome_page(callback),
        "consumed": callback.unsettled is None,
    }


def _event_page(event: Event) -> Page:
    shown: Page = {"name": event.name, "actor": address_text(event.actor)}
    for name, text in event.fields:
        shown[name] = int(text) if name in NUMERIC_FIELDS else text
    return shown


def _entries(view: View, plain: bytes, hashed: bytes) -> Page:
    """Stored or published values by actor: text of scripts, hex of programs."""
    shown: Page = {}
    for prefix in (plain, hashed):
        for key, value in view.scan(prefix):
            address, name = key[1 : 1 + ADDRESS_BYTES], key[1 + ADDRESS_BYTES :]
            if prefix == hashed:
                name, value = long_storage_entry(value)
            page = shown.setdefault(address_text(address), {})
            page[name.decode()] = {"hex": value.hex()} if _runs_program(view, address) else value.decode()
    return shown


def _runs_program(view: View, address: bytes) -> bool:
    data = view.get(actor_key(address))
    if data is None:
        return False  # the system account has storage and no code
    actor: Actor = decode_record(actor_key(address), data)
    return actor.code.startswith(PYTHON_CODE)


def _timers(view: View) -> list[Page]:
    timers: list[Timer] = [decode_record(key, value) for key, value in view.scan(TIMER)]
    timers.sort(key=lambda timer: (timer.due_height(view.height), timer.trigger_height, timer.sequence))
    return [
        {
            "timer_id": timer.timer_id.hex(),
            "actor": address_text(timer.actor),
            "trigger_height": timer.trigger_height,
            "due_height": timer.due_height(view.height),
            "deferrals": timer.due_height(view.height) - timer.trigger_height,
            "expires_at": timer.expires_at,
        }
        for timer in timers
    ]


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")
