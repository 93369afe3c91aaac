"""The timer phase by examples: each rule of SPEC §6, §8, §9 and §10 that is implemented, on a chain of a few blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.validator.chains import (
    ACTOR,
    ALICE,
    BOB,
    OTHER,
    PRICE,
    PROPOSER,
    RICH,
    SMALL,
    Chain,
    carried,
    fee,
    fired,
    make_genesis,
    number,
    schedule,
)
from validator.chain.records import height_in
from validator.chain.transactions import UpdateTimerConfig
from validator.execution.timer_phase import TimerPhase
from validator.policies.registry import phases_with
from validator.primitives.types import Address
from validator.scheduler.rows import timer_id_of_row
from validator.transition.transition import Outcome, Transition

BASE = 1_000
"""Cycles of a fire that does nothing."""
GC = 200
"""Cycles of a removal."""
ANY = 2**40
"""A max fee that no price reaches."""
FIRST = {"max_priority_fee_per_cycle": 99, "max_fee_per_cycle": ANY}


def small_chain(actors: dict[Address, int] | None = None, preset: str | None = None, **params: Any) -> Chain:
    return Chain(make_genesis({**SMALL, **params}, preset, actors=actors))


def sequences(outcome: Outcome) -> list[int]:
    return [sequence for _, sequence in fired(outcome)]


# --- collect, expire -------------------------------------------------------------------------------------------------


def test_a_timer_fires_at_its_height_and_never_before() -> None:
    chain = Chain()
    chain.run(schedule(3, ["emit", "Rang", "x"]))
    assert [fired(chain.block()) for _ in range(4)] == [[], [], [(4, 0)], []]
    event = chain.blocks[3].receipts.fires[0].effects.events[0]
    assert (event.name, event.actor, event.fields) == ("Rang", ACTOR, (("data", "x"),))
    assert chain.timers() == []


def test_a_timer_cannot_fire_in_the_block_that_schedules_it() -> None:
    chain = Chain()
    receipt = chain.run(["try", schedule(0)], ["try", ["schedule", {"height": 1, "payload": []}]])
    assert [event.fields[0][1] for event in receipt.effects.events] == ["TimerHeightNotInFuture"] * 2
    chain.run(schedule(1, schedule(1)))
    assert sequences(chain.block()) == [0], "a fire's own timer is for a later block"
    assert sequences(chain.block()) == [1]


def test_past_its_expiry_a_timer_is_destroyed() -> None:
    chain = small_chain()
    chain.run(schedule(1, gas_limit=8_000, expires_at=2), schedule(1, gas_limit=8_000, expires_at=3), *[filler(1)] * 2)
    assert carried(chain.block()) == ["lane_full"] * 2
    outcome = chain.block()
    assert [(end.reason, end.event.name) for end in outcome.receipts.destroyed] == [("expired", "TimerExpired")]
    assert outcome.receipts.gc_cycles == GC
    assert len(sequences(outcome)) == 1, "at its expiry height it still fires"


def filler(delay: int, **fields: Any) -> list[Any]:
    """A timer that takes 8,000 cycles of the lane, before those that tip less."""
    return schedule(delay, ["burn", 7_000], max_priority_fee_per_cycle=9, max_fee_per_cycle=ANY, **fields)


def test_expiries_beyond_the_budget_wait_and_leave_the_scan_its_share() -> None:
    """2,400 cycles of budget, 1,000 of which are the scan's: seven removals a block."""
    chain = small_chain(actors={ACTOR: RICH, OTHER: 0})
    poor = [schedule(2, gas_limit=8_000, expires_at=3) for _ in range(6)]
    chain.block(
        chain.call(*[filler(2), filler(2), filler(3), filler(3)] * 2),
        replace(chain.call(*[schedule(2, gas_limit=8_000, expires_at=3) for _ in range(9)]), nonce=1),
        replace(chain.call(*poor, actor=OTHER), nonce=2),
    )
    chain.empty(2)
    assert len(chain.timers()) > 7
    doomed = sum(timer.expires_at < 4 for timer in chain.timers())
    outcome = chain.block()
    reasons = [end.reason for end in outcome.receipts.destroyed]
    assert doomed > 7
    assert reasons[:7] == ["expired"] * 7
    assert "expired" not in reasons[7:]
    assert carried(outcome).count("gc_budget") == doomed - 7


# --- gate ------------------------------------------------------------------------------------------------------------


def test_a_priced_out_timer_is_carried_below_basefee() -> None:
    chain = small_chain(LANE_BASEFEE_SLOPE=1, MIN_BASEFEE=PRICE)
    chain.run(filler(1), filler(1), schedule(2, max_fee_per_cycle=PRICE, max_priority_fee_per_cycle=0))
    chain.block()
    assert chain.globals.basefee_lane_timer > PRICE
    assert carried(chain.block()) == ["below_basefee"]
    assert chain.globals.basefee_lane_timer == PRICE
    assert fired(chain.block()) == [(3, 2)], "carried: the trigger height and the number stay"


def test_a_limit_above_the_cap_is_carried_and_an_open_one_follows_the_cap() -> None:
    chain = Chain(make_genesis(SMALL, system_deployers=(BOB,)))
    timers = [schedule(1, gas_limit=4_001), schedule(1, gas_limit=4_000), schedule(1, ["burn", 3_001])]
    lower = UpdateTimerConfig('{"MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 4000}')
    chain.block(chain.call(*timers), chain.system(lower, sender=BOB))
    outcome = chain.block()
    assert carried(outcome) == ["over_cap"]
    errors = {fire.sequence: (fire.error, fire.cycles) for fire in outcome.receipts.fires}
    assert errors == {1: ("", BASE), 2: ("OutOfCycles", 4_000)}


# --- sort ------------------------------------------------------------------------------------------------------------


def test_higher_tips_fire_first_whatever_was_scheduled_first() -> None:
    chain = Chain()
    tips = (5, 9, 0, 7)
    chain.run(*[schedule(1, max_priority_fee_per_cycle=tip, max_fee_per_cycle=ANY) for tip in tips])
    outcome = chain.block()
    assert [number(fire.tip_per_cycle) for fire in outcome.receipts.fires] == sorted(tips, reverse=True)


@pytest.mark.parametrize(("tie_break", "key"), [("id", "timer_id"), ("aged", "sequence")])
def test_ties_go_by_the_tie_break(tie_break: str, key: str) -> None:
    chain = Chain(make_genesis({"TIE_BREAK": tie_break}))
    chain.run(*[schedule(1, ["emit", "n", str(i)]) for i in range(6)])
    order = [getattr(fire, key) for fire in chain.block().receipts.fires]
    assert order == sorted(order)
    assert len(order) == 6


@pytest.mark.parametrize(("preset", "first"), [(None, ACTOR), ("hardened", OTHER)])
def test_fairness_weighs_the_floor_only_where_there_is_one(preset: str | None, first: Address) -> None:
    """With all tips zero the seed's rule does nothing: the id decides. With a floor, who fired less goes first."""
    chain = Chain(make_genesis(preset=preset))
    chain.run(*[schedule(1, ["emit", "n", str(i)]) for i in range(3)])
    chain.block()
    nonce = 0
    while True:  # grind a payload whose id sorts before the other's, as anyone can
        other = schedule(1, ["emit", "ground", str(nonce)])
        trial = Chain(make_genesis(preset=preset))
        trial.view, trial.index, trial.nonces = chain.view, chain.index, dict(chain.nonces)
        transactions = [trial.call(schedule(1)), replace(trial.call(other, actor=OTHER), nonce=trial.nonces[ALICE] + 1)]
        trial.block(*transactions)
        ids = {timer.actor: timer.timer_id for timer in trial.timers()}
        if ids[ACTOR] < ids[OTHER]:
            break
        trial.index.retreat(trial.blocks[-1].changes)
        nonce += 1
    assert trial.block().receipts.fires[0].actor == first


# --- scan and fire ---------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_passed_over_for_what_does() -> None:
    """20,000 cycles of lane: twice 8,000, and then of 8,000 and 4,000 only the second fits."""
    chain = small_chain(TIE_BREAK="aged")
    chain.run(filler(1), filler(1), schedule(1, gas_limit=8_000), schedule(1, gas_limit=4_000))
    outcome = chain.block()
    assert sequences(outcome) == [0, 1, 3]
    assert carried(outcome) == ["lane_full"]
    assert outcome.lane_cycles == 2 * 8_000 + BASE
    assert fired(chain.block()) == [(2, 2)]


def test_a_lane_without_room_for_the_least_limit_ends_the_scan() -> None:
    chain = small_chain(TIE_BREAK="aged", LANE_TIMER_CYCLES=16_999)
    chain.run(filler(1), filler(1), *[schedule(1, gas_limit=1_000) for _ in range(2)])
    outcome = chain.block()
    assert sequences(outcome) == [0, 1]
    assert carried(outcome) == ["lane_full"] * 2


def test_a_lane_without_cells_ends_the_scan() -> None:
    chain = small_chain(TIE_BREAK="aged")
    chain.run(*[schedule(1, ["emit", "n", "x" * 400], gas_limit=1_100) for _ in range(3)])
    outcome = chain.block()
    assert (sequences(outcome), outcome.lane_cells) == ([0, 1], 800)
    assert carried(outcome) == ["lane_full"]


def test_the_scan_looks_at_no_more_than_its_limit() -> None:
    chain = small_chain(TIE_BREAK="aged")
    chain.run(*[schedule(1, gas_limit=1_000) for _ in range(7)])
    assert sequences(chain.block()) == [0, 1, 2, 3, 4]
    assert sequences(chain.block()) == [5, 6]


def test_timers_that_do_not_fit_count_as_looked_at() -> None:
    chain = small_chain(TIE_BREAK="aged")
    big = [schedule(1, gas_limit=8_000) for _ in range(3)]
    chain.run(filler(1), filler(1), *big, schedule(1, gas_limit=1_000))
    outcome = chain.block()
    assert sequences(outcome) == [0, 1]
    assert carried(outcome) == ["lane_full"] * 4


def test_destroyed_timers_do_not_count_as_looked_at_and_have_the_rest_of_the_budget() -> None:
    """Twelve removals a block: 14 timers without funds, of which two wait, and those two count; then one that fires."""
    chain = small_chain(actors={ACTOR: RICH, OTHER: 0}, TIE_BREAK="aged")
    chain.block(chain.call(*[schedule(2) for _ in range(14)], actor=OTHER), replace(chain.call(schedule(2)), nonce=1))
    chain.block()
    outcome = chain.block()
    ends = [(end.reason, end.event.name) for end in outcome.receipts.destroyed]
    assert ends == [("insufficient_funds", "TimerCancelledInsufficientFunds")] * 12
    assert outcome.receipts.gc_cycles == 12 * GC == SMALL["TIMER_GC_CYCLES"]
    assert carried(outcome) == ["gc_budget"] * 2
    assert sequences(outcome) == [14]


def test_the_insolvency_event_says_who_needed_what() -> None:
    chain = small_chain(actors={ACTOR: 12_345})
    chain.run(schedule(1, gas_limit=1_000, max_priority_fee_per_cycle=3, max_fee_per_cycle=ANY))
    outcome = chain.block()
    event = outcome.receipts.destroyed[0].event
    prices = outcome.prices
    needed = 1_000 * (prices.basefee_cycle + prices.lane_price + 3) + 500 * prices.basefee_cell
    assert dict(event.fields)["fee_payer"] == "0x" + ACTOR.hex()
    assert (dict(event.fields)["needed"], dict(event.fields)["balance"]) == (str(needed), "12345")
    assert event.actor == ACTOR


def test_a_sibling_cancelled_by_an_earlier_fire_is_passed_over() -> None:
    chain = small_chain(TIE_BREAK="aged")
    victim = schedule(1, gas_limit=1_000, save_as="v")
    chain.run(schedule(1, ["cancel", {"saved": "v"}], gas_limit=2_000, **FIRST), victim)
    outcome = chain.block()
    assert sequences(outcome) == [0]
    assert outcome.receipts.fires[0].ok
    assert (carried(outcome), chain.timers()) == ([], [])


class _ExplainsEveryRow(TimerPhase):
    def explain(self) -> dict[bytes, str]:
        fires = {fire.timer_id for fire in self.fires}
        rows = (timer_id_of_row(row) for row in self.index.pool.living())
        return {timer_id: "lane_full" for timer_id in rows if timer_id not in fires}


class ShowsTheCancelledAsCarried(Transition):
    phases = phases_with(_ExplainsEveryRow)


@pytest.mark.parametrize(("kind", "shown"), [(Transition, []), (ShowsTheCancelledAsCarried, ["lane_full"])])
def test_a_timer_cancelled_after_its_turn_is_not_carried(kind: type[Transition], shown: list[str]) -> None:
    """It did not fit, the scan went on, and a later fire cancelled it."""
    chain = Chain(make_genesis({**SMALL, "TIE_BREAK": "aged"}), kind)
    victim = schedule(1, gas_limit=8_000, save_as="v")
    chain.run(filler(1), filler(1), victim, schedule(1, ["cancel", {"saved": "v"}], gas_limit=2_000))
    outcome = chain.block()
    assert (carried(outcome), chain.timers()) == (shown, [])


def test_a_firing_timer_is_gone_before_its_handler_runs() -> None:
    chain = Chain()
    chain.run(schedule(1, ["try", ["cancel", {"saved": "me"}]], ["emit", "done", ""], save_as="me"))
    events = chain.block().receipts.fires[0].effects.events
    assert [event.name for event in events] == ["ScriptCaught", "done"]
    assert events[0].fields == (("error", "NotFound"),)


def test_a_cancel_that_reverts_leaves_the_sibling() -> None:
    chain = small_chain(TIE_BREAK="aged")
    chain.run(schedule(1, ["cancel", {"saved": "v"}], ["fail", ""], **FIRST), schedule(1, save_as="v"))
    outcome = chain.block()
    assert [(fire.sequence, fire.error) for fire in outcome.receipts.fires] == [(0, "ScriptFailed"), (1, "")]


def test_an_extension_in_its_due_block_saves_a_timer_only_from_the_transaction_phase() -> None:
    chain = small_chain(TIE_BREAK="aged")
    late = [schedule(1, gas_limit=8_000, expires_at=2, save_as=key) for key in ("a", "b")]
    chain.run(filler(1), filler(1), *late)
    assert carried(chain.block()) == ["lane_full"] * 2
    chain.run(["try", ["extend", {"saved": "a", "expires_at": 9}]])
    outcome = chain.blocks[-1]
    assert outcome.receipts.transactions[0].effects.events[0].fields == (("error", "TimerExpiryInvalid"),)
    assert len(outcome.receipts.destroyed) == 2


# --- carry over, settle ----------------------------------------------------------------------------------------------


def test_carried_timers_keep_their_place_before_younger_ones() -> None:
    chain = small_chain(TIE_BREAK="aged", SCAN_LIMIT=2)
    chain.run(*[schedule(1, gas_limit=1_000) for _ in range(5)], schedule(2, gas_limit=1_000))
    outcomes = [chain.block() for _ in range(3)]
    assert [fired(outcome) for outcome in outcomes] == [[(2, 0), (2, 1)], [(2, 2), (2, 3)], [(2, 4), (3, 5)]]


def test_a_carried_timer_writes_nothing() -> None:
    chain = small_chain(TIE_BREAK="aged", SCAN_LIMIT=1)
    priced = {"max_fee_per_cycle": ANY, "max_priority_fee_per_cycle": 0}
    chain.run(*[schedule(1, gas_limit=1_000, **priced) for _ in range(3)])
    outcome = chain.block()
    changed = [change.key for change in outcome.changes if change.key[:1] == b"t"]
    assert changed == [b"t" + outcome.receipts.fires[0].timer_id]
    assert len(carried(outcome)) == 2


def test_a_timer_that_the_default_prices_is_not_written_either() -> None:
    """What was supplied stands once for all timers that it was supplied to, for as long as one of them is live."""
    chain = small_chain(TIE_BREAK="aged", SCAN_LIMIT=1)
    chain.run(*[schedule(1, gas_limit=1_000) for _ in range(3)])
    for left in (2, 1, 0):
        outcome = chain.block()
        changed = [change.key for change in outcome.changes if change.key[:1] == b"t"]
        assert changed == [b"t" + outcome.receipts.fires[0].timer_id]
        assert len(carried(outcome)) == left
        assert [height_in(key) for key, _ in chain.view.scan(b"p")] == ([2] if left else [])


@pytest.mark.parametrize(("multiplier", "fires"), [(1_000, True), (4_000, True), (10_000, True), (10_000, False)])
def test_prices_beyond_any_fee_let_timers_wait(multiplier: int, fires: bool) -> None:
    """The default agent offers no more than a fee may be; a lane price above that is met by nobody."""
    basefee = 2**93 if fires else 2**96 - 1
    params = {"MAX_BASEFEE": 2**96 - 1, "INITIAL_BASEFEE": basefee, "LANE_FEE_MULTIPLIER_MILLI": multiplier}
    chain = Chain(make_genesis(params, accounts={ALICE: 2**127}, actors={ACTOR: 2**127}))
    chain.run(schedule(1), max_fee_per_cycle=2**96 - 1, max_fee_per_cell=2**96 - 1)
    outcome = chain.block()
    price = basefee * multiplier // 1_000
    assert len(outcome.receipts.fires) == (price < 2**96)
    assert set(outcome.carried.values()) == (set() if price < 2**96 else {"below_basefee"})


def test_a_reverted_fire_is_paid_counted_and_not_retried() -> None:
    chain = Chain()
    before = chain.balance(ACTOR)
    chain.run(schedule(1, ["set", "k", "v"], ["transfer", {"to": "0x" + "bb" * 20, "amount": 7}], ["fail", ""]))
    outcome = chain.block()
    (fire,) = outcome.receipts.fires
    assert (fire.ok, fire.error, fire.cycles, fire.cells) == (False, "ScriptFailed", BASE + 400, 2)
    assert (fire.effects.movements, fire.effects.events) == ((), ())
    prices = outcome.prices
    assert fee(fire) == 1_400 * (prices.basefee_cycle + prices.lane_price) + 2 * prices.basefee_cell
    assert chain.balance(ACTOR) == before - fee(fire)
    assert chain.timers() == []
    assert chain.index.parties.fires.by_account == {ACTOR: 1}


def test_a_fire_that_runs_out_pays_its_whole_limit() -> None:
    chain = small_chain()
    chain.run(schedule(1, ["burn", 9_000], gas_limit=3_000), schedule(1, ["emit", "n", "x" * 501], gas_limit=3_000))
    fires = {fire.sequence: fire for fire in chain.block().receipts.fires}
    assert (fires[0].error, fires[0].cycles, fires[0].cells) == ("OutOfCycles", 3_000, 0)
    assert (fires[1].error, fires[1].cycles, fires[1].cells) == ("OutOfCells", BASE + 50, 0)


def test_a_sender_pays_as_far_as_its_allowance_says() -> None:
    chain = small_chain(MIN_BASEFEE=PRICE)
    cap = 8_000 * 2 * PRICE + 500 * PRICE
    receipt = chain.run(
        schedule(1, fee_payer="sender", payer_cap=cap),
        schedule(1, fee_payer="sender"),
        ["try", schedule(1, fee_payer="sender")],
        timer_allowance=2 * cap - 1,
    )
    assert receipt.ok
    assert receipt.effects.events[0].fields == (("error", "TimerFeePayerForbidden"),), "nothing is left"
    assert [timer.payer_cap for timer in chain.timers()] == [cap, cap - 1]
    before = (chain.balance(ALICE), chain.balance(ACTOR))
    outcome = chain.block()
    (fire,) = outcome.receipts.fires
    assert fire.fee_payer == ALICE
    assert (chain.balance(ALICE), chain.balance(ACTOR)) == (before[0] - fee(fire), before[1])
    assert chain.index.parties.fires.by_account == {ACTOR: 1}, "a fire counts for the actor, whoever pays"


def test_a_cap_below_the_cost_destroys_though_the_payer_is_rich() -> None:
    chain = small_chain()
    chain.run(schedule(1, fee_payer="sender", payer_cap=5), timer_allowance=5)
    (end,) = chain.block().receipts.destroyed
    assert dict(end.event.fields)["balance"] == "5"
    assert dict(end.event.fields)["fee_payer"] == "0x" + ALICE.hex()


def test_nobody_else_and_nobody_outside_a_transaction_can_be_made_to_pay() -> None:
    chain = Chain()
    for payer in ("0x" + BOB.hex(), "0x" + bytes(19).hex() + "09"):
        assert chain.run(schedule(1, fee_payer=payer), timer_allowance=RICH).error == "TimerFeePayerForbidden"
    chain.run(schedule(1, schedule(1, fee_payer="0x" + ALICE.hex())), timer_allowance=RICH)
    assert chain.block().receipts.fires[0].error == "TimerFeePayerForbidden"
    chain.run(schedule(1, schedule(1, fee_payer="sender")))
    assert chain.block().receipts.fires[0].ok, "in the timer phase the sender is the actor itself"


def test_the_default_max_fee_is_that_of_the_first_block_that_needed_it() -> None:
    chain = small_chain(TIE_BREAK="aged", SCAN_LIMIT=1, LANE_BASEFEE_SLOPE=1)
    chain.run(*[schedule(1, gas_limit=1_000) for _ in range(3)], schedule(3, gas_limit=1_000))
    assert [chain.supplied(timer) for timer in chain.timers()] == [None] * 4
    first = chain.block().prices.lane_price
    assert [chain.supplied(timer) for timer in chain.timers()] == [2 * first] * 2 + [None]
    second = chain.block().prices.lane_price
    assert second != first
    assert [chain.supplied(timer) for timer in chain.timers()] == [2 * first, None]
    assert [timer.default_max_fee for timer in chain.timers()] == [None] * 2, "no timer's record was written"


def test_tips_go_to_the_proposer_and_the_rest_is_burned() -> None:
    chain = Chain()
    chain.run(schedule(1, max_priority_fee_per_cycle=7, max_fee_per_cycle=ANY), max_priority_fee_per_cycle=3)
    receipt = chain.blocks[0].receipts.transactions[0]
    assert chain.balance(PROPOSER) == number(receipt.tip) == 3 * receipt.cycles
    assert chain.globals.burned_user == number(receipt.burned)
    outcome = chain.block()
    (fire,) = outcome.receipts.fires
    assert chain.balance(PROPOSER) == 3 * receipt.cycles + 7 * fire.cycles
    state = chain.globals
    assert state.burned_timer_cycle == fire.cycles * outcome.prices.basefee_cycle
    assert state.burned_timer_lane == fire.cycles * outcome.prices.lane_price
    chain.require_conservation()


def test_a_transaction_proposer_can_pay_a_fire_with_the_tips_of_the_same_block() -> None:
    """Tips of transactions come before the timer phase, those of fires after it."""
    chain = Chain(make_genesis(SMALL, actors={PROPOSER: 0}))
    chain.run(schedule(1, gas_limit=1_000), actor=PROPOSER)
    tip = 10**7
    outcome = chain.block(chain.call(max_priority_fee_per_cycle=tip, actor=PROPOSER))
    assert sequences(outcome) == [0]


def test_the_lane_multiplier_scales_what_a_fire_pays() -> None:
    for milli in (0, 1, 999, 2_500):
        chain = Chain(make_genesis({"LANE_FEE_MULTIPLIER_MILLI": milli}))
        chain.run(schedule(1))
        outcome = chain.block()
        assert outcome.prices.lane_price == outcome.basefee_lane_timer * milli // 1_000
        assert chain.globals.burned_timer_lane == BASE * outcome.prices.lane_price


def test_fires_leave_the_window_and_its_records_go_with_them() -> None:
    chain = Chain(make_genesis({"FAIRNESS_WINDOW_BLOCKS": 2}))
    chain.run(schedule(1), schedule(1))
    chain.block()
    assert chain.index.parties.fires.by_account == {ACTOR: 2}
    chain.empty(2)
    assert chain.index.parties.fires.by_account == {ACTOR: 2}
    chain.block()
    assert chain.index.parties.fires.by_account == {}
    assert list(chain.view.scan(b"f")) == []
