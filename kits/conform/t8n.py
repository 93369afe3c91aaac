"""The conformance tool ``stampede t8n`` (SPEC §17): it executes the state transition without consensus and signatures.

It reads a genesis and blocks, applies them to an empty store, and writes every field of the outcome, so that two
implementations can be compared.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO

from cluster.common.errors import BadInput
from cluster.common.files import write_for_user
from cluster.common.strict_json import Wrong
from cluster.local_chain.bare_chain import BareChain
from kits.conform.decode import decoded
from kits.conform.t8n_input import InputBlock, parse_line, read_blocks, read_genesis, request_of
from validator.chain.genesis import Genesis
from validator.chain.records import (
    ACCOUNT,
    LONG_PUBLISHED,
    LONG_STORAGE,
    PUBLISHED,
    PYTHON_CODE,
    STORAGE,
    Account,
    Actor,
    actor_key,
    decode_record,
)
from validator.chain.transactions import Transaction, unsigned_hash
from validator.execution.watching import watch_page
from validator.primitives.types import address_text
from validator.primitives.user_file import UserFileError
from validator.pvm.runtime.machine import PythonVm
from validator.scheduler.calendar import count_tiers
from validator.state import View
from validator.transition.trace import LongValue, Step, StepRecorder, Value, traced
from validator.transition.transition import NotAdmitted, Outcome, PreparedTransaction, Transition

NUMERIC_FIELDS: Final = frozenset({"needed", "balance", "stated", "clamped", "results_needed"})
"""Names of the fields of protocol events whose values are numbers."""

MAX_REQUEST_BYTES: Final = 256 * 2**20
"""Maximum size of a request of ``t8n --serve``."""

Page = dict[str, Any]


def run_t8n(genesis_path: Path, blocks_path: Path, out_path: Path, wants_steps: bool = False) -> None:
    """Execute the blocks in a file on a genesis, and write the outcome to a file.

    Raises :class:`~cluster.common.errors.BadInput` for wrong input; nothing is written then.
    """
    genesis = read_genesis(genesis_path)
    blocks = read_blocks(blocks_path, genesis)
    write_for_user(out_path, json.dumps(outcome_of(genesis, blocks, wants_steps)) + "\n")


def serve_t8n(requests: BinaryIO, answers: TextIO) -> None:
    """Answer requests until their end: a line of JSON for each, ``{"genesis": G, "blocks": B}`` and maybe ``steps``.

    Or ``{"decode": [request, …]}`` about bytes (:mod:`kits.conform.decode`). The answer is a line, too: the output
    ``O``, or ``{"error": text}`` with the JSON path of what is wrong, or what failed in a user's policy.
    """
    while line := requests.readline(MAX_REQUEST_BYTES + 1):
        if len(line) > MAX_REQUEST_BYTES:
            raise BadInput(f"standard input: a request has more than {MAX_REQUEST_BYTES:,} bytes")
        if line.isspace():
            continue
        try:
            given = parse_line(line)
            is_about_bytes = isinstance(given, dict) and given.keys() == {"decode"}
            answer = decoded(given["decode"]) if is_about_bytes else outcome_of(*request_of(given))
        except (Wrong, UserFileError) as error:
            answer = {"error": str(error)}
        answers.write(json.dumps(answer, separators=(",", ":")) + "\n")
        answers.flush()


def outcome_of(genesis: Genesis, blocks: Sequence[InputBlock], wants_steps: bool = False) -> Page:
    """Execute blocks on a genesis; returns the tool's output ``O`` as JSON data, with the steps of each block if they
    are wanted."""
    chain = ShownChain(genesis, wants_steps)
    shown = [page for block in blocks for page in chain.execute(block)]
    return {"blocks": shown, "final": chain.final_page()}


class ShownChain(BareChain):
    """A chain in memory that shows each block, and its last state, as the tool's output does."""

    def __init__(self, genesis: Genesis, wants_steps: bool = False) -> None:
        super().__init__(genesis, PythonVm())
        self._wants_steps = wants_steps

    def execute(self, block: InputBlock) -> list[Page]:
        """Execute the next block, or several if it is repeated; returns a page for each."""
        return [self._execute_once(block) for _ in range(block.times)]

    def final_page(self) -> Page:
        """The state after the last block, as JSON data."""
        return _final_page(self)

    def _execute_once(self, block: InputBlock) -> Page:
        """Execute the next block. A transaction that is not admitted is ``rejected``."""
        recorder = StepRecorder()
        transition = self.begin(block.proposer, traced(Transition, recorder) if self._wants_steps else Transition)
        transition.start()
        shown = [_execute(transition, transaction) for transaction in block.transactions]
        outcome = transition.finish()
        self.commit(outcome)
        tiers = count_tiers(self.index.timers_rows(), self.view.height, transition.terms.parameters)
        page = {**_block_page(outcome), "txs": shown, "tiers": tiers}
        if self._wants_steps:
            page["steps"] = [_step_page(step) for step in recorder.steps]
        return page


def _execute(transition: Transition, transaction: Transaction) -> Page:
    try:
        transition.execute(PreparedTransaction(unsigned_hash(transaction), b"", transaction))
    except NotAdmitted as refusal:
        return {"status": "rejected", "error": refusal.name, "cycles": 0, "cells": 0, "fee": 0}
    receipt = transition.receipts[-1]
    page = run_page(receipt)
    return {**page, "created": address_text(receipt.created)} if receipt.created else page


# --- pages ------------------------------------------------------------------------------------------------------------


def _final_page(chain: BareChain) -> Page:
    """The state after the last block, as JSON data."""
    page = {
        "accounts": _accounts(chain),
        "storage": _entries(chain, STORAGE, LONG_STORAGE),
        "timers": _timers(chain),
        "burned": chain.globals.burned,
        "state_root": chain.view.root.hex(),
    }
    if published := _entries(chain, PUBLISHED, LONG_PUBLISHED):
        page["published"] = published
    return page


def _accounts(chain: BareChain) -> Page:
    """The accounts as JSON data: those of the genesis, and all others with a balance or a nonce."""
    given = {*chain.genesis.accounts, *chain.genesis.actors}
    shown: Page = {}
    for key, value in chain.view.scan(ACCOUNT):
        account: Account = decode_record(key, value)
        if key[1:] in given or account.balance or account.nonce:
            shown[address_text(key[1:])] = {"balance": account.balance, "nonce": account.nonce}
    return shown


def _block_page(outcome: Outcome) -> Page:
    receipts, prices, bidding = outcome.receipts, outcome.prices, outcome.bidding
    page = {
        "height": receipts.height,
        "basefee_cycle": prices.basefee_cycle,
        "basefee_cell": prices.basefee_cell,
        "basefee_lane_timer": outcome.basefee_lane_timer,
        "p50_tip": prices.p50_tip,
        "lane_cycles": outcome.lane_cycles,
        "lane_cells": outcome.lane_cells,
        "user_cycles": outcome.user_cycles,
        "user_cells": outcome.user_cells,
        "gc_cycles": receipts.gc_cycles,
        "cycles": outcome.user_cycles + outcome.lane_cycles,
        "cells": outcome.user_cells + outcome.lane_cells,
        "tips": outcome.tips,
        "burned": outcome.burned,
        "gba": {"queried": len(receipts.queries), "spent": bidding.spent, "not_admitted": bidding.not_admitted},
        "fires": [fire_page(fire) for fire in receipts.fires],
        "messages": [message_page(message) for message in receipts.messages],
        "destroyed": [{"timer_id": end.timer_id.hex(), "reason": end.reason} for end in receipts.destroyed],
        "deferred": {timer_id.hex(): reason for timer_id, reason in sorted(outcome.carried.items())},
        "events": [event_page(event) for event in outcome.events],
        "receipts_root": outcome.receipts_root.hex(),
        "state_root": outcome.state_root.hex(),
    }
    if receipts.callbacks:
        page["callbacks"] = [callback_page(callback) for callback in receipts.callbacks]
    return page


def _step_page(step: Step) -> list[Any]:
    """A step as JSON data: kind, subject, and the keys that it changed with their values before and after."""
    writes = [[write.key.hex(), _value_text(write.before), _value_text(write.after)] for write in step.writes]
    return [step.kind.value, step.subject.hex(), writes]


def _value_text(value: Value) -> str | None:
    """A value in hex; a long one as its size and its hash."""
    if isinstance(value, LongValue):
        return f"{value.size}:{value.digest.hex()}"
    return None if value is None else value.hex()


def _outcome_page(receipt: Any) -> Page:
    """The result of an execution and its use of resources, as JSON data."""
    return {
        "status": "ok" if receipt.ok else "reverted",
        "error": receipt.error or None,
        "cycles": receipt.cycles,
        "cells": receipt.cells,
    }


def run_page(receipt: Any) -> Page:
    return {**_outcome_page(receipt), "fee": int.from_bytes(receipt.burned) + int.from_bytes(receipt.tip)}


def fire_page(fire: Any) -> Page:
    return {"timer_id": fire.timer_id.hex(), **run_page(fire), "tip": int.from_bytes(fire.tip_per_cycle)}


def message_page(message: Any) -> Page:
    return {"to": address_text(message.to), "handler": message.handler, **_outcome_page(message)}


def callback_page(callback: Any) -> Page:
    return {
        "job_id": callback.job_id.hex(),
        "actor": address_text(callback.actor),
        "handler": callback.handler,
        **_outcome_page(callback),
        "consumed": callback.unsettled is None,
    }


def event_page(event: Any) -> Page:
    shown: Page = {"name": event.name, "actor": address_text(event.actor)}
    for name, text in event.fields:
        shown[name] = int(text) if name in NUMERIC_FIELDS else text
    return shown


def _entries(chain: BareChain, plain: bytes, hashed: bytes) -> Page:
    """Stored or published values as JSON data, keyed by actor and name: text for scripts, hex for programs."""
    shown: Page = {}
    for actor, name, value in chain.values(plain, hashed):
        text = {"hex": value.hex()} if _runs_program(chain.view, actor) else value.decode()
        shown.setdefault(address_text(actor), {})[name.decode()] = text
    return shown


def _runs_program(view: View, address: bytes) -> bool:
    data = view.get(actor_key(address))
    if data is None:
        return False  # the system account has storage and no code
    actor: Actor = decode_record(actor_key(address), data)
    return actor.code.startswith(PYTHON_CODE)


def _timers(chain: BareChain) -> list[Page]:
    height = chain.view.height
    timers = sorted(chain.timers(), key=lambda timer: timer.due_height(height))
    return [{**timer_page(timer, timer.due_height(height)), **watch_page(timer)} for timer in timers]


def timer_page(timer: Any, due_height: int) -> Page:
    """A live timer as JSON data, without the key that it watches."""
    return {
        "timer_id": timer.timer_id.hex(),
        "actor": address_text(timer.actor),
        "trigger_height": timer.trigger_height,
        "due_height": due_height,
        "deferrals": due_height - timer.trigger_height,
        "expires_at": timer.expires_at,
    }
