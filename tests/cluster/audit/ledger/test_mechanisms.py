"""Each mechanism of a chain is noted at the height that reaches it, and at no other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cluster.audit.books import ledger_of
from cluster.audit.ledger.mechanisms import OverflowBooks
from cluster.record.rules import Mechanism
from tests.cluster.records import ACTOR, BIDDER, PRICE, TIP, ChainMaker, make_chain, make_genesis
from validator.chain.block import Cancelled, Extended, Scheduled
from validator.chain.transactions import Call, CancelTimer, ExtendTimer, UpdateTimerConfig
from validator.primitives.codec import pack_uint
from validator.primitives.params import Parameters

CAP = 6_000
SMALL_LANE = {"MAX_CYCLES_PER_FIRE": CAP, "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": CAP, "LANE_TIMER_CYCLES": CAP}


def chain(**params: Any) -> ChainMaker:
    return ChainMaker(make_genesis({"SCAN_LIMIT": 100, "TIMER_GC_CYCLES": 40_000, **params}))


def reached(maker: ChainMaker) -> dict[Mechanism, list[int]]:
    """The heights of each mechanism. Nothing is wrong with the chain."""
    ledger = ledger_of(maker.genesis, maker.blocks)
    assert [violation.what for violation in ledger.log.violations] == []
    return {mechanism: list(heights) for mechanism, heights in ledger.log.reached.items()}


def at(maker: ChainMaker, mechanism: Mechanism) -> list[int]:
    return reached(maker).get(mechanism, [])


def test_a_chain_in_which_nothing_happens_reaches_nothing_but_the_floor() -> None:
    maker = ChainMaker()
    for _ in range(3):
        maker.seal()
    assert reached(maker) == {Mechanism.BASEFEE_AT_FLOOR: [1, 2, 3]}


# --- the calendar and the window --------------------------------------------------------------------------------------


def test_epochs_and_timers_that_come_within_the_horizon() -> None:
    maker = chain(EPOCH_LENGTH=4, EPOCH_HORIZON=1, RING_BUFFER_SIZE=4)
    near, far = maker.schedule(6), maker.schedule(8)  # epochs 1 and 2
    maker.seal()
    for height in range(2, 13):
        for timer in (near, far):
            if timer.trigger_height == height:
                maker.fire(timer)
        maker.seal()
    assert at(maker, Mechanism.EPOCH_ENTERED) == [4, 8, 12]
    assert at(maker, Mechanism.OVERFLOW_CUT) == [4], "epoch 2 comes within the horizon with epoch 1"


def test_a_timer_that_ended_before_is_cut_no_more() -> None:
    maker = chain(EPOCH_LENGTH=4, EPOCH_HORIZON=1, RING_BUFFER_SIZE=4)
    far = maker.schedule(8)
    maker.seal()
    maker.instruct(CancelTimer(far.timer_id), Cancelled(far.timer_id))
    for _ in range(4):
        maker.seal()
    assert reached(maker).keys() & {Mechanism.OVERFLOW_CUT, Mechanism.TIMERS_CANCELLED} == {Mechanism.TIMERS_CANCELLED}


def test_the_overflow_is_of_timers_beyond_the_horizon_of_their_block() -> None:
    books = OverflowBooks(Parameters.from_names({"EPOCH_LENGTH": 10, "EPOCH_HORIZON": 2, "RING_BUFFER_SIZE": 10}))
    scheduled: list[Any] = [
        Scheduled(bytes([trigger]), ACTOR, trigger, trigger, 99, ACTOR) for trigger in (39, 40, 49, 50)
    ]
    books.enter(15, scheduled)  # epoch 1: within the horizon are epochs up to 3
    assert [books.begins_epoch(height) for height in (19, 20, 21)] == [False, True, False]
    assert books.come_within(20) == {bytes([40]), bytes([49])}
    assert books.come_within(30) == {bytes([50])}


def fire_each(maker: ChainMaker, *counts: int) -> None:
    """Blocks with so many fires of timers that were scheduled in the blocks before."""
    timers: list[Scheduled] = []
    for count in (*counts, 0):
        for timer in sorted(timers, key=lambda timer: timer.timer_id):
            maker.fire(timer)
        timers = [maker.schedule(1) for _ in range(count)]
        maker.seal()


def test_the_window_loses_fires_that_are_older() -> None:
    maker = chain(FAIRNESS_WINDOW_BLOCKS=2)
    fire_each(maker, 1, 0, 0, 0, 0)  # fires in block 2
    assert at(maker, Mechanism.WINDOW_PRUNED) == [5], "block 4 has the fires of blocks 2 and 3"
    maker = chain(FAIRNESS_WINDOW_BLOCKS=9)
    fire_each(maker, 1, 0, 0, 0, 0)
    assert at(maker, Mechanism.WINDOW_PRUNED) == []


@pytest.mark.parametrize(("fires", "odd", "even"), [(0, [], []), (1, [], []), (2, [], [2]), (3, [2], []), (4, [], [2])])
def test_medians_of_tips(fires: int, odd: list[int], even: list[int]) -> None:
    maker = chain()
    fire_each(maker, fires)
    assert (at(maker, Mechanism.TIP_MEDIAN_ODD), at(maker, Mechanism.TIP_MEDIAN_EVEN)) == (odd, even)


def test_medians_of_actors() -> None:
    maker = chain(TIE_BREAK="aged")
    own, others = maker.schedule(1), maker.bidders(1)
    maker.seal()
    maker.query(others)
    for timer, tip in sorted([(others, 5), (own, TIP)], key=lambda each: -each[1]):
        maker.fire(timer, tip, fee_payer=timer.actor)
    maker.seal()
    maker.seal()
    assert at(maker, Mechanism.WINDOW_MEDIAN_EVEN) == [3]
    assert at(maker, Mechanism.WINDOW_MEDIAN_ODD) == []
    assert at(maker, Mechanism.AGENT_QUERIES) == [2]


# --- ends of timers, limits -------------------------------------------------------------------------------------------


def test_an_instruction_extends_a_timer() -> None:
    maker = chain()
    timer = maker.schedule(9)
    maker.seal()
    maker.instruct(ExtendTimer(timer.timer_id, 10_002), Extended(timer.timer_id, 10_002))
    maker.seal()
    assert at(maker, Mechanism.TIMERS_EXTENDED) == [2]


def test_one_that_expires_without_room() -> None:
    maker = chain(**SMALL_LANE)
    first, other = sorted((maker.schedule(1, 2) for _ in range(2)), key=lambda timer: timer.timer_id)
    maker.seal()
    maker.fire(first)
    maker.seal()
    maker.destroy(other, "expired")
    maker.seal()
    found = reached(maker)
    assert found[Mechanism.LANE_CYCLES_FULL] == found[Mechanism.BACKLOG] == [2]
    assert found[Mechanism.TIMERS_EXPIRED_WAITING] == found[Mechanism.TIMERS_EXPIRED] == [3]
    assert not found.keys() & {Mechanism.LANE_CELLS_FULL, Mechanism.TIMERS_CANCELLED, Mechanism.SCAN_LIMIT_REACHED}


def test_one_that_expires_and_did_not_wait() -> None:
    maker = chain()
    timer = maker.schedule(1, 2)
    maker.seal()
    maker.destroy(timer, "expired")
    maker.seal()
    found = ledger_of(maker.genesis, maker.blocks).log.reached
    assert Mechanism.TIMERS_EXPIRED in found
    assert Mechanism.TIMERS_EXPIRED_WAITING not in found


def test_a_lane_without_cells() -> None:
    maker = chain(LANE_TIMER_CELLS=1_000, MAX_CELLS_PER_FIRE=1_000)
    first, _ = sorted((maker.schedule(1) for _ in range(2)), key=lambda timer: timer.timer_id)
    maker.seal()
    fire = maker.fire(first, cells=1_000)
    maker.fires[:] = [msgspec.structs.replace(fire, burned=pack_uint((2 * fire.cycles + 1_000) * PRICE))]
    maker.seal()
    found = reached(maker)
    assert (found.get(Mechanism.LANE_CELLS_FULL), Mechanism.LANE_CYCLES_FULL in found) == ([2], False)


def test_the_scan_looks_at_so_many() -> None:
    maker = chain(SCAN_LIMIT=2, **SMALL_LANE)
    first = min((maker.schedule(1) for _ in range(3)), key=lambda timer: timer.timer_id)
    maker.seal()
    maker.fire(first)
    maker.seal()
    assert at(maker, Mechanism.SCAN_LIMIT_REACHED) == [2]
    maker = chain(SCAN_LIMIT=3, **SMALL_LANE)
    first = min((maker.schedule(1) for _ in range(3)), key=lambda timer: timer.timer_id)
    maker.seal()
    maker.fire(first)
    maker.seal()
    assert at(maker, Mechanism.SCAN_LIMIT_REACHED) == []


def test_removals_without_budget() -> None:
    maker = chain(SCAN_LIMIT=1, TIMER_GC_CYCLES=400, GC_CYCLES_PER_REMOVAL=200, **SMALL_LANE)
    first, *others = sorted((maker.schedule(1, 2) for _ in range(3)), key=lambda timer: timer.timer_id)
    maker.seal()
    maker.fire(first)
    maker.seal()
    for timer in others:
        maker.destroy(timer, "expired")
        maker.seal()
    found = reached(maker)
    assert found[Mechanism.EXPIRED_CARRIED_OVER] == [3]
    assert found[Mechanism.TIMERS_EXPIRED] == [3, 4]
    assert Mechanism.GC_BUDGET_USED_UP not in found, "the scan's share is left"
    maker.seal(gc_cycles=201)
    assert Mechanism.GC_BUDGET_USED_UP in ledger_of(maker.genesis, maker.blocks).log.reached


def test_transactions_that_fail() -> None:
    maker = chain()
    maker.transact(Call(ACTOR, "run", b"[]"))
    maker.seal()
    maker.transact(Call(ACTOR, "run", b"[]"), ok=False, error="NoTimer")
    maker.seal()
    assert at(maker, Mechanism.TRANSACTIONS_REVERTED) == [2]


# --- prices -----------------------------------------------------------------------------------------------------------


def test_bounds_of_basefees() -> None:
    use = (5_000, 200)
    for least, most, target, mechanism in (
        (PRICE, 2 * PRICE, 10_000, Mechanism.BASEFEE_AT_FLOOR),
        (1, PRICE, 1_000, Mechanism.BASEFEE_AT_CAP),
    ):
        maker = chain(MIN_BASEFEE=least, MAX_BASEFEE=most, BLOCK_CYCLES_TARGET=target, BLOCK_CELLS_TARGET=use[1])
        maker.transfer(1, use=use)
        maker.seal()
        assert at(maker, mechanism) == [1]


def test_the_least_step() -> None:
    for target, expected in ((200_001, []), (200_000, [1]), (100_000, [])):
        maker = chain(MIN_BASEFEE=1, MAX_BASEFEE=10**12, BLOCK_CYCLES_TARGET=target)
        maker.transfer(1, use=(200_001, 200))
        maker.seal()
        assert at(maker, Mechanism.BASEFEE_LEAST_STEP) == expected, target


@pytest.mark.parametrize(("activation", "expected"), [(0, []), (2, [3])])
def test_the_auction_begins_once(activation: int, expected: list[int]) -> None:
    maker = chain(ACTIVATION_HEIGHT=activation)
    for _ in range(4):
        maker.seal()
    assert at(maker, Mechanism.AUCTION_BEGAN) == expected


def test_parameters_are_changed_from_the_next_block_on() -> None:
    maker = chain()
    maker.instruct(UpdateTimerConfig('{"MAX_TTL": 70}'))
    maker.seal()
    maker.seal()
    maker.seal()
    assert at(maker, Mechanism.PARAMETERS_CHANGED) == [2]


# --- agents and messages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "mechanism"), [("failed", Mechanism.QUERIES_FAILED), ("unpaid", Mechanism.QUERIES_UNPAID)]
)
def test_queries_that_come_to_nothing(outcome: str, mechanism: Mechanism) -> None:
    maker = ChainMaker()
    timer = maker.bidders(1)
    maker.seal()
    maker.query(timer, outcome=outcome, **({"cycles": 0, "burned": pack_uint(0)} if outcome == "unpaid" else {}))
    maker.seal()
    log = ledger_of(maker.genesis, maker.blocks).log
    assert list(log.reached[mechanism]) == [2]
    other = {Mechanism.QUERIES_FAILED, Mechanism.QUERIES_UNPAID} - {mechanism}
    assert not log.reached.keys() & other


def test_an_answer_is_remembered() -> None:
    maker = chain(GBA_BUDGET_CYCLES=10_000)
    first, second = maker.bidders(1), maker.bidders(1)
    maker.seal()
    asked = min(first, second, key=lambda timer: timer.sequence)
    maker.query(asked)
    for timer in sorted((first, second), key=lambda timer: timer.timer_id):
        maker.fire(timer, 5, fee_payer=BIDDER)
    maker.seal()
    found = reached(maker)
    assert found[Mechanism.BID_REMEMBERED] == found[Mechanism.QUERY_BUDGET_USED_UP] == [2]


def test_messages_that_run_and_messages_that_wait() -> None:
    maker = chain(LANE_DEFERRED_CYCLES=100_000)
    maker.message(cycles=60_000)
    maker.send(ACTOR, cycles=60_000)
    maker.seal()
    found = reached(maker)
    assert found[Mechanism.MESSAGES] == found[Mechanism.DEFERRED_LANE_FULL] == [1]


def test_a_right_chain_reaches_what_it_has() -> None:
    found = reached(make_chain()).keys()
    assert Mechanism.TIP_MEDIAN_EVEN in found
    assert not found & {Mechanism.BACKLOG, Mechanism.WINDOW_PRUNED, Mechanism.TIMERS_EXPIRED}
