"""What the books say of messages: sent and paid for once, run once, in order, within what was reserved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cluster.audit.ledger.ledger import Ledger
from tests.cluster.records import ACTOR, BIDDER, USER_ADDRESS, ChainMaker, make_genesis
from validator.chain.block import Effects, Event, MessageReceipt, Sent
from validator.chain.transactions import Call
from validator.primitives.types import address_text

LANE = 100_000
PARAMS = {"LANE_DEFERRED_CYCLES": LANE}


def chain() -> ChainMaker:
    return ChainMaker(make_genesis(PARAMS))


def told(maker: ChainMaker) -> list[str]:
    ledger = Ledger(maker.genesis)
    for record in maker.blocks:
        ledger.apply(record.block, record.receipts)
    return [violation.what for violation in ledger.log.violations]


def run(maker: ChainMaker, sent: Sent, effects: Effects | None = None, **changes: Any) -> None:
    """A message that was sent runs, and uses so much."""
    receipt = MessageReceipt(sent.to, ACTOR, sent.handler, True, "", 2_500, 10, effects or Effects())
    maker.messages.append(msgspec.structs.replace(receipt, **changes))


def test_messages_run_in_the_order_of_sending() -> None:
    maker = chain()
    first, second = maker.send(ACTOR), maker.send(BIDDER, "other")
    run(maker, first)
    run(maker, second)
    maker.seal()
    assert told(maker) == []


def swapped(maker: ChainMaker) -> None:
    first, second = maker.send(ACTOR), maker.send(BIDDER)
    run(maker, second)
    run(maker, first)


def never_sent(maker: ChainMaker) -> None:
    run(maker, Sent(ACTOR, "run", 3_000, 20))


def twice(maker: ChainMaker) -> None:
    sent = maker.send(ACTOR)
    run(maker, sent)
    run(maker, sent)


def of_somebody_else(maker: ChainMaker) -> None:
    run(maker, maker.send(ACTOR), sender=BIDDER)


def other_handler(maker: ChainMaker) -> None:
    run(maker, maker.send(ACTOR), handler="other")


def beyond_its_cycles(maker: ChainMaker) -> None:
    run(maker, maker.send(ACTOR), cycles=3_001)


def beyond_its_cells(maker: ChainMaker) -> None:
    run(maker, maker.send(ACTOR), cells=21)


def passed_over(maker: ChainMaker) -> None:
    maker.send(ACTOR)


def unpaid(maker: ChainMaker) -> None:
    sent = Sent(ACTOR, "run", 3_000, 20)
    maker.transact(Call(ACTOR, "run", b"[]"), Effects(messages=(sent,)), use=(1_000 + 80 + 2_999, 200))
    run(maker, sent)


def unpaid_cells(maker: ChainMaker) -> None:
    sent = Sent(ACTOR, "run", 3_000, 201)
    maker.transact(Call(ACTOR, "run", b"[]"), Effects(messages=(sent,)), use=(5_000, 200))
    run(maker, sent)


def too_small(maker: ChainMaker) -> None:
    sent = Sent(ACTOR, "run", 1_999, 20)
    maker.transact(Call(ACTOR, "run", b"[]"), Effects(messages=(sent,)))
    run(maker, sent, cycles=1_999)


def too_many(maker: ChainMaker) -> None:
    inner = tuple(Sent(ACTOR, "run", 2_000, 0) for _ in range(3))
    run(maker, maker.send(ACTOR, cycles=20_000), Effects(messages=inner), cycles=10_000)


def too_many_with_jobs(maker: ChainMaker) -> None:
    fields = (("job_id", "ab"), ("handler", "back"), ("results_needed", "1"))
    effects = Effects(
        events=(Event("JobRequested", ACTOR, fields),), messages=tuple(Sent(ACTOR, "run", 2_000, 0) for _ in range(2))
    )
    maker.messages.append(MessageReceipt(ACTOR, ACTOR, "run", True, "", 100_000, 10_000, effects))
    maker.send(ACTOR, cycles=100_000, cells=10_000)


def in_its_own_phase(maker: ChainMaker) -> None:
    inner = Sent(ACTOR, "run", 2_000, 0)
    run(maker, maker.send(ACTOR, cycles=20_000), Effects(messages=(inner,)), cycles=10_000)
    run(maker, inner, cycles=2_000, cells=0)


def beyond_the_lane(maker: ChainMaker) -> None:
    for _ in range(2):
        run(maker, maker.send(ACTOR, cycles=60_000), cycles=50_000)


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (swapped, f"ran, where one to {address_text(ACTOR)} waits that was sent before"),
        (never_sent, "ran, which was never sent"),
        (twice, "ran, which was never sent"),
        (of_somebody_else, "waits that was sent before"),
        (other_handler, "waits that was sent before"),
        (beyond_its_cycles, "used 3001 cycles and 10 cells of 3000 and 20 that were reserved"),
        (beyond_its_cells, "used 2500 cycles and 21 cells of 3000 and 20 that were reserved"),
        (passed_over, f"a message to {address_text(ACTOR)} was passed over, though it fitted in the deferred lane"),
        (unpaid, "sent 1 message and paid 4079 cycles and 200 cells, too few for that"),
        (unpaid_cells, "sent 1 message and paid 5000 cycles and 200 cells, too few for that"),
        (too_small, "sent a message that reserves 1999 cycles and 20 cells"),
        (too_many, "sent 3 messages and requested 0 jobs, of at most 2 of both"),
        (too_many_with_jobs, "sent 2 messages and requested 1 job, of at most 2 of both"),
        (in_its_own_phase, "ran in the phase in which it was sent"),
        (beyond_the_lane, "ran, though the 60000 cycles reserved for it did not fit in the deferred lane"),
    ],
)
def test_what_is_wrong_with_messages_is_named(plant: Callable[[ChainMaker], None], expected: str) -> None:
    maker = chain()
    plant(maker)
    maker.seal()
    assert any(expected in what for what in told(maker)), told(maker)


def test_what_a_run_reserves_leaves_room_and_what_does_not_fit_waits() -> None:
    maker = chain()
    inner = Sent(ACTOR, "run", 40_000, 0)
    run(maker, maker.send(ACTOR, cycles=60_000), Effects(messages=(inner,)), cycles=55_000)
    run(maker, maker.send(ACTOR, cycles=85_000), cycles=80_000)
    last = maker.send(ACTOR, cycles=10_000)
    maker.seal()
    assert told(maker) == [], "55,000 of which 40,000 are the inner one's, and 80,000: the last does not fit"
    run(maker, inner, cycles=30_000, cells=0)
    assert inner.to == last.to
    maker.seal()
    assert told(maker) != [], "the last one comes before the inner one"


def test_who_is_unknown_is_not_compared() -> None:
    """Evidence has receipts alone, and so nobody knows whom a transaction called."""
    maker = chain()
    sent = maker.send(ACTOR)
    run(maker, sent, sender=USER_ADDRESS)
    maker.seal()
    assert told(maker)
    ledger = Ledger(maker.genesis)
    ledger.apply_evidence(maker.blocks[0].receipts)
    assert not [violation for violation in ledger.log.violations if "sent before" in violation.what]
