"""One block's receipts: what they can come to, that whatever carries them holds it, and that nothing leaves more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.disks.memory import MemoryDisk
from tests.validator.chains import ACTOR, ALICE, BOB, OTHER, RICH, Chain, make_genesis
from tests.validator.executors import Author
from validator.chain.block import MAX_BLOCK_BYTES
from validator.chain.genesis import Genesis, GenesisActor, GenesisError
from validator.chain.transactions import Call
from validator.execution.mailbox import MIN_MESSAGE_CYCLES
from validator.node.executor.executor import Executor
from validator.primitives import costs
from validator.primitives.codec import encode
from validator.primitives.params import DEFAULTS, Parameters
from validator.primitives.types import MAX_NAME_BYTES
from validator.pvm.runtime.values import encode_value
from validator.storage.archive import ArchivedBlock, BlockArchive
from validator.storage.frames import MAX_PAYLOAD_BYTES
from validator.transition import receipt_bound
from validator.transition.receipt_bound import (
    DEFERRED_BYTES,
    DESTROYED_BYTES,
    EVENT_BYTES,
    FIRE_BYTES,
    LIST_HEADS_BYTES,
    QUERY_BYTES,
    TRANSACTION_BYTES,
    most_receipt_bytes,
    require_receipts_fit,
)
from validator.transition.transition import Outcome

HERE = "0x" + ACTOR.hex()
LONGEST = "é" * (MAX_NAME_BYTES // 2)
CROWD = """
class Crowd(Actor):
    def shout(self, payload):
        name = chr(70000) * payload["name"]
        for i in range(payload["times"]):
            self.emit(name, "")

    def fail(self, payload):
        raise ActorError(chr(70000) * 100)
"""


def crowd_genesis() -> Genesis:
    return replace(
        make_genesis(),
        actors={ACTOR: GenesisActor(CROWD, ALICE, RICH), OTHER: GenesisActor("builtin:script", ALICE, RICH)},
    )


def receipts_of(outcome: Outcome) -> bytes:
    return encode(outcome.receipts)


# --- the block that was too long ------------------------------------------------------------------------------------


def test_no_transaction_makes_a_block_that_the_archive_cannot_give_back() -> None:
    """Names of 4,096 bytes at the price of none came to 74 MB; the archive took them and lost the block."""
    chain = Chain(crowd_genesis())
    call = Call(ACTOR, "shout", encode_value({"name": 1_024, "times": 18_000}))
    receipt = chain.block(chain.transaction(call, gas_limit=5_000_000)).receipts.transactions[0]
    assert receipt.error == "EventNameTooLong"
    assert len(receipts_of(chain.blocks[-1])) < 1_000


def test_the_whole_lane_of_events_costs_more_than_it_leaves() -> None:
    chain = Chain(crowd_genesis())
    call = Call(ACTOR, "shout", encode_value({"name": MAX_NAME_BYTES // 4, "times": 11_700}))
    outcome = chain.block(chain.transaction(call, gas_limit=5_000_000))
    (receipt,) = outcome.receipts.transactions
    assert (receipt.error, len(receipt.effects.events)) == ("", 11_700)
    encoded = receipts_of(outcome)
    assert len(encoded) < receipt.cycles
    archive = BlockArchive(disk := MemoryDisk())
    archived = ArchivedBlock(b"block", encoded, b"", bytes(32))
    archive.append(archived, outcome.receipts)
    assert archive.get(1) == BlockArchive(disk).get(1) == archived


# --- the bound ------------------------------------------------------------------------------------------------------


def test_the_default_bound_is_far_below_what_a_record_holds() -> None:
    page = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text(encoding="utf-8")
    assert f"{most_receipt_bytes(DEFAULTS):,} bytes with the default parameters" in page
    for size in (
        EVENT_BYTES,
        TRANSACTION_BYTES + LIST_HEADS_BYTES,
        FIRE_BYTES + LIST_HEADS_BYTES,
        DESTROYED_BYTES,
        QUERY_BYTES,
    ):
        assert f"| {size} | " in page
    assert f"| {DEFERRED_BYTES + LIST_HEADS_BYTES} + `MESSAGE_CELLS` | " in page
    assert most_receipt_bytes(DEFAULTS) + 2 * MAX_BLOCK_BYTES < MAX_PAYLOAD_BYTES / 20


@pytest.mark.parametrize(
    ("operation", "cycles"),
    [
        (["emit", LONGEST, ""], costs.EMIT_CYCLES),
        (["emit", "", ""], costs.EMIT_CYCLES),
        (["try", ["emit", LONGEST + "x", ""]], costs.EMIT_CYCLES),
        (["transfer", {"to": HERE, "amount": RICH // 1_000}], costs.TRANSFER_CYCLES),
        (["try", ["transfer", {"to": HERE, "amount": RICH * RICH}]], costs.TRANSFER_CYCLES),
        (["schedule", {"in": 2**40, "payload": "", "handler": LONGEST}], costs.SCHEDULE_TIMER_CYCLES),
        (
            ["schedule", {"in": 5, "payload": "", "max_fee_per_cycle": 2**80, "max_priority_fee_per_cycle": 2**95}],
            costs.SCHEDULE_TIMER_CYCLES,
        ),
        (["try", ["schedule", {"in": 0, "payload": ""}]], costs.SCHEDULE_TIMER_CYCLES),
        (["try", ["cancel", {"id": ""}]], costs.CANCEL_TIMER_CYCLES),
        (["try", ["send", {"to": HERE, "handler": "", "payload": "", "cycles": 0}]], costs.SEND_CYCLES),
        (["try", ["send", {"to": HERE, "handler": "", "payload": "", "cycles": 2_000, "cells": 0}]], costs.SEND_CYCLES),
    ],
)
def test_no_call_leaves_more_for_a_cycle_than_an_event(operation: list[Any], cycles: int) -> None:
    chain = Chain()
    chain.block(chain.transfer(ACTOR, 1))
    few, many = (len(encode(chain.run(*[operation] * count, gas_limit=900_000).effects)) for count in (20, 40))
    assert (many - few) / 20 <= EVENT_BYTES * cycles / costs.EMIT_CYCLES


def test_what_stands_in_a_receipt_besides_its_effects_is_bounded() -> None:
    chain = Chain(crowd_genesis())
    message = {"to": HERE, "handler": LONGEST, "payload": "", "cycles": MIN_MESSAGE_CYCLES, "cells": 0}
    timer = {"in": 1, "payload": "", "handler": LONGEST}
    failing = chain.transaction(Call(ACTOR, "fail", b""), sender=BOB)
    sending = chain.call(["send", message], ["schedule", timer], actor=OTHER)
    outcome = chain.block(failing, sending)
    assert outcome.receipts.transactions[0].error == "ActorError: " + chr(70000) * 100
    assert len(encode(outcome.receipts.transactions[0])) <= TRANSACTION_BYTES
    assert outcome.receipts.messages[0].handler == LONGEST
    assert all(len(encode(each)) <= DEFERRED_BYTES for each in outcome.receipts.messages)
    assert all(len(encode(each)) <= FIRE_BYTES for each in chain.block().receipts.fires)


SMALL = {
    "LANE_USER_CYCLES": 30_000, "LANE_SYSTEM_CYCLES": 1_000, "LANE_DEFERRED_CYCLES": 20_000, "MESSAGE_CYCLES": 10_000,
    "LANE_USER_CELLS": 99_000, "LANE_TIMER_CELLS": 100, "MAX_CELLS_PER_FIRE": 2_000, "MESSAGE_CELLS": 500,
    "LANE_TIMER_CYCLES": 8_000, "MAX_CYCLES_PER_FIRE": 8_000, "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 8_000,
    "SCAN_LIMIT": 3, "TIMER_GC_CYCLES": 1_200, "GBA_BUDGET_CYCLES": 100, "GBA_MAX_CYCLES": 100,
}  # fmt: skip


def test_a_block_that_is_as_full_as_can_be_stays_below_the_bound() -> None:
    """Every lane full of the longest names at the least price: what the bound says is no fancy either."""
    chain = Chain(make_genesis(SMALL))
    shout = ["emit", "n" * MAX_NAME_BYTES, ""]
    timer = {"in": 1, "payload": [shout] * 138, "gas_limit": 8_000}
    chain.block(chain.call(["schedule", timer], gas_limit=10_000, cells_limit=80_000))
    message = {"to": HERE, "handler": "", "payload": [shout] * 60, "cycles": 4_200, "cells": 0}
    sent = chain.call(*[["send", message]] * 2, *[shout] * 100, gas_limit=30_000, cells_limit=99_000)
    outcome = chain.block(sent)
    assert (len(outcome.receipts.fires), len(outcome.receipts.messages)) == (1, 2)
    assert all(fire.ok for fire in outcome.receipts.fires) and all(run.ok for run in outcome.receipts.messages)
    bound = most_receipt_bytes(Parameters.from_names(SMALL))
    assert bound / 6 < len(receipts_of(outcome)) < bound


def test_parameters_that_no_record_could_hold_are_refused_before_a_chain_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endless = Parameters.from_names({"LANE_USER_CYCLES": 10**9})
    with pytest.raises(GenesisError, match=r"parameters: a block and its receipts could come to [0-9,]+ bytes"):
        require_receipts_fit(endless)
    with pytest.raises(GenesisError, match="lower the lanes' cycles"):
        Executor(MemoryDisk(), make_genesis({"LANE_USER_CYCLES": 10**9}))
    Executor(MemoryDisk(), make_genesis())
    monkeypatch.setattr(receipt_bound, "MAX_PAYLOAD_BYTES", most_receipt_bytes(DEFAULTS))
    with pytest.raises(GenesisError):
        require_receipts_fit(DEFAULTS)


# --- who carries it -------------------------------------------------------------------------------------------------


def test_a_page_of_blocks_ends_where_it_gets_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    author = Author()
    for _ in range(4):
        author.finalize(author.build().digest)
    pages = author.executor.pages
    whole = pages.blocks(1, 10)
    assert len(whole) == 4
    size = max(len(block) + len(receipts) for block, receipts, _ in whole)
    monkeypatch.setattr("validator.node.executor.queries.MAX_BLOCKS_BYTES", 2 * size)
    assert pages.blocks(1, 10) == whole[:2] and pages.blocks(3, 10) == whole[2:]
    monkeypatch.setattr("validator.node.executor.queries.MAX_BLOCKS_BYTES", 1)
    assert pages.blocks(4, 10) == whole[3:], "one block at least"


def test_names_are_bounded_wherever_one_is_given() -> None:
    chain = Chain()
    over = LONGEST + "x"
    assert chain.run(["emit", over, ""]).error == "EventNameTooLong"
    assert chain.run(["emit", LONGEST, ""], ["emit", "", ""]).error == ""
    message = {"to": HERE, "payload": "", "cycles": 2_000, "cells": 0}
    assert chain.run(["send", {**message, "handler": over}]).error == "MessageHandlerInvalid"
    assert chain.run(["send", {**message, "handler": LONGEST}], ["send", {**message, "handler": ""}]).error == ""
    # Judged behind how many messages there are, and before whom they are for.
    lost = {**message, "to": "0x" + "77" * 20}
    assert chain.run(["send", {**lost, "handler": over}]).error == "MessageHandlerInvalid"
    assert chain.run(["send", {**lost, "handler": over, "cycles": 1}]).error == "MessageLimitInvalid"
    assert chain.run(["schedule", {"in": 1, "payload": "", "handler": over}]).error == "TimerHandlerInvalid"
