"""What the books say of the turns of timers: who came when, at what price, and who was passed over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cluster.audit.chain_codec import QueryReceipt
from cluster.audit.fee_market import Basefees
from cluster.audit.ledger import timer_phase as turns
from cluster.audit.ledger.agent_queries import Agents, QueryAudit
from cluster.audit.ledger.context import CONSERVATION, TIMERS
from cluster.audit.ledger.ledger import Ledger
from cluster.record.rules import LedgerRule
from tests.cluster.records import ACTOR, BIDDER, FUNDS, OTHER, PRICE, TIP, USER_ADDRESS, ChainMaker, make_genesis
from validator.chain.block import DestroyedReceipt, Effects, Event, Header, Movement, Scheduled
from validator.chain.genesis import Policy
from validator.chain.transactions import Call
from validator.primitives.codec import pack_uint
from validator.primitives.types import address_text

LANE = 10_000
CAP = 6_000
CELLS = 1_000
PARAMS: dict[str, Any] = {
    "SCAN_LIMIT": 100,
    "TIMER_GC_CYCLES": 40_000,
    "LANE_TIMER_CYCLES": LANE,
    "MAX_CYCLES_PER_FIRE": CAP,
    "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": CAP,
    "MAX_CELLS_PER_FIRE": CELLS,
}
NO_BUDGET = {"gc_cycles": PARAMS["TIMER_GC_CYCLES"]}


def chain(policy: Policy = Policy.CIP1, **params: Any) -> ChainMaker:
    return ChainMaker(make_genesis({**PARAMS, **params}, policy))


def schedule(maker: ChainMaker, ahead: int = 1, **terms: Any) -> Scheduled:
    """A timer with the terms given: integers, and the address of its payer."""
    packed = {
        field: pack_uint(value) if field.startswith(("max_", "payer_cap")) and value is not None else value
        for field, value in terms.items()
    }
    item = msgspec.structs.replace(maker.scheduled(ahead, b"[]"), **packed)
    maker.transact(Call(ACTOR, "run", b"[]"), Effects(scheduled=(item,)))
    return item


def books(maker: ChainMaker) -> Ledger:
    ledger = Ledger(maker.genesis)
    for record in maker.blocks:
        ledger.apply(record.block, record.receipts)
    return ledger


def passed_over(maker: ChainMaker, but: str = "no such words") -> list[tuple[int, str]]:
    """Height and timer of each violation; there must be none of another kind but that with these words."""
    found = [violation for violation in books(maker).log.violations if but not in violation.what]
    assert [v for v in found if v.check != TIMERS or "passed over" not in v.what] == []
    return [(violation.height, violation.what.split()[1]) for violation in found]


def told(maker: ChainMaker) -> list[str]:
    return [violation.what for violation in books(maker).log.violations]


def name(timer: Scheduled) -> str:
    return timer.timer_id.hex()[:16]


def destroy(maker: ChainMaker, timer: Scheduled, **changes: Any) -> None:
    """End a timer whose payer cannot pay."""
    gas_limit = CAP if timer.gas_limit is None else timer.gas_limit
    fields = {
        "timer_id": timer.timer_id.hex(),
        "fee_payer": address_text(timer.fee_payer),
        "needed": str(gas_limit * (2 * PRICE + TIP) + CELLS * PRICE),
        "balance": "0",
    } | changes
    event = Event("TimerCancelledInsufficientFunds", timer.actor, tuple(fields.items()))
    maker.destroyed.append(DestroyedReceipt(timer.timer_id, "insufficient_funds", event))


def spend_all(maker: ChainMaker, left: int = 0) -> None:
    """The actor's money goes elsewhere."""
    moved = Movement(ACTOR, OTHER, pack_uint(FUNDS - left))
    maker.transact(Call(ACTOR, "run", b"[]"), Effects(movements=(moved,)))


# --- timers that wait -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "terms", [{}, {"gas_limit": CAP}, {"max_fee_per_cycle": PRICE + TIP}, {"max_priority_fee_per_cycle": None}]
)
def test_a_timer_that_fitted_and_was_not_run_is_told_once(terms: dict[str, Any]) -> None:
    maker = chain()
    timer = schedule(maker, **terms)
    for _ in range(4):
        maker.seal()
    assert passed_over(maker) == [(2, name(timer))]


def test_one_that_ran_late_was_passed_over_as_well() -> None:
    maker = chain()
    timer = schedule(maker)
    maker.seal()
    maker.seal()
    maker.fire(timer)
    maker.seal()
    assert passed_over(maker) == [(2, name(timer))]


def test_what_does_not_fit_in_the_rest_of_the_lane_waits() -> None:
    maker = chain(LANE_TIMER_CYCLES=9_000, TIE_BREAK="aged")
    others = [schedule(maker) for _ in range(3)]
    small = schedule(maker, gas_limit=5_000)
    maker.seal()
    for other in others[:2]:
        maker.fire(other)
    maker.seal()
    assert passed_over(maker) == [(2, name(small))]


def test_one_whose_turn_came_before_the_lane_was_full_was_passed_over() -> None:
    maker = chain(LANE_TIMER_CYCLES=6_500, TIE_BREAK="aged")
    best = schedule(maker, max_priority_fee_per_cycle=50)
    other = schedule(maker)
    maker.seal()
    maker.fire(other)
    maker.seal()
    assert passed_over(maker) == [(2, name(best))], "nothing was used when its turn came"
    maker = chain(LANE_TIMER_CYCLES=6_500, TIE_BREAK="aged")
    best = schedule(maker, max_priority_fee_per_cycle=50)
    schedule(maker)
    maker.seal()
    maker.fire(best, tip=50)
    maker.seal()
    assert passed_over(maker) == [], "and it left too little for the other"


@pytest.mark.parametrize("params", [{"SCAN_LIMIT": 1}, {"LANE_TIMER_CYCLES": 2_000}])
def test_what_had_a_reason_to_wait_was_not_passed_over(params: dict[str, Any]) -> None:
    if "LANE_TIMER_CYCLES" in params:
        params = {**params, "MAX_CYCLES_PER_FIRE": 2_000, "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 2_000}
    maker = chain(**params, TIE_BREAK="aged")
    first = schedule(maker)
    schedule(maker)
    maker.seal()
    maker.fire(first)
    maker.seal()
    assert passed_over(maker) == []


def test_without_budget_for_removals_nothing_is_said_and_that_is_counted() -> None:
    maker = chain()
    schedule(maker)
    maker.seal()
    maker.seal(**NO_BUDGET)
    assert passed_over(maker) == []
    ledger = books(maker)
    assert (ledger.turns.unjudged, ledger.log.evaluated[LedgerRule.PASSED_OVER]) == (1, 0)
    maker.seal()
    ledger = books(maker)
    assert (ledger.turns.unjudged, ledger.log.evaluated[LedgerRule.PASSED_OVER]) == (1, 1)


def test_beyond_so_many_timers_the_oldest_and_the_newest_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MAX_JUDGED", 2)
    maker = chain()
    waiting = [schedule(maker) for _ in range(5)]
    for _ in range(3):
        maker.seal()
    found = passed_over(maker)
    assert {each for _, each in found} == {name(waiting[i]) for i in (0, 1, 3, 4)}
    assert books(maker).turns.unjudged == 6


def priced(monkeypatch: pytest.MonkeyPatch, *prices: int) -> Callable[[], dict[str, Any]]:
    """Blocks whose lane has these basefees, one after the other, whatever it used."""

    def following(header: Header, *_: Any) -> Basefees:
        return Basefees(PRICE, PRICE, prices[min(header.height, len(prices) - 1)])

    monkeypatch.setattr("cluster.audit.ledger.phase_rules.following_basefees", following)
    given = iter(prices)
    return lambda: {"basefee_lane_timer": pack_uint(next(given))}


def test_the_default_bids_twice_the_first_price_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    for prices, expected in (
        ((PRICE, PRICE, 2 * PRICE - TIP), 2),
        ((PRICE, 2 * PRICE, 2 * PRICE + 1, 4 * PRICE + 1), 2),
        ((PRICE, PRICE), 2),
    ):
        header = priced(monkeypatch, *prices)
        maker = chain()
        timer = schedule(maker)
        for _ in prices:
            maker.seal(header())
        assert passed_over(maker) == [(expected, name(timer))]
    late = (PRICE, PRICE, 2 * PRICE + 1, 2 * PRICE)
    header = priced(monkeypatch, *late)
    dear = chain()
    timer = schedule(dear)
    dear.seal(header())
    dear.seal(header(), **NO_BUDGET)
    dear.seal(header())
    dear.seal(header())
    assert passed_over(dear) == [(4, name(timer))], "it was priced at height 2, so height 3 was beyond its means"


def test_an_agents_timers_are_judged_by_what_it_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default agent's until it has answered, its last good answer from then on."""
    header = priced(monkeypatch, *[PRICE] * 2, 3 * PRICE + 1, 3 * PRICE)
    maker = chain()
    timer = maker.bidders(1)
    maker.seal(header())
    maker.query(timer)
    maker.seal(header(), **NO_BUDGET)
    maker.seal(header())
    maker.seal(header())
    found = passed_over(maker, but="was not asked about")
    assert found == [(4, name(timer))], "it answered three times the price"


def test_who_is_asked_about_and_in_which_order() -> None:
    """By rank among an actor's own, then by when it was asked last, then by id; as far as the budget reaches."""
    genesis = chain(GBA_QUERIES_PER_ACTOR=2, GBA_BUDGET_CYCLES=30_000, GBA_MAX_CYCLES=10_000).genesis
    audit = QueryAudit(genesis, Agents(genesis))
    one, other = b"\x01" * 20, b"\x02" * 20
    candidates = {one: [b"d", b"a", b"b"], other: [b"c", b"e"]}

    def problems(*asked: tuple[bytes, bytes, int]) -> list[str]:
        queries = [
            QueryReceipt(timer_id, actor, "ok" if cycles else "unpaid", cycles, 0, None, b"")
            for timer_id, actor, cycles in asked
        ]
        return list(audit.order_problems(queries, candidates))

    right = [(b"c", other, 9_000), (b"d", one, 9_000), (b"a", one, 9_000)]
    assert problems(*right) == []
    assert problems(*right[:2]) == ["timer 61 was not asked about, though its turn came and the budget had room"]
    assert problems(right[1], right[0]) == ["timer 64 was asked about where the turn was that of timer 63"]
    assert problems(*right, (b"e", other, 9_000)) == ["timer 65 was asked about, whose turn did not come"]
    assert problems((b"c", other, 0), (b"d", one, 9_000), (b"a", one, 9_000)) == [], "who cannot pay is asked no more"
    audit.begin_block(7)
    list(audit.problems(QueryReceipt(b"c", other, "ok", 100, 0, None, b""), 10**30, 1))
    audit.begin_block(8)
    assert problems((b"d", one, 9_000), (b"c", other, 9_000), (b"a", one, 9_000)) == [], "who was asked last comes last"
    list(audit.problems(QueryReceipt(b"d", one, "unpaid", 0, 0, None, b""), 0, 1))
    audit.begin_block(9)
    assert problems((b"c", other, 9_000), (b"e", other, 9_000)) == [], "who could not pay is left alone for a while"


@pytest.mark.parametrize("activation", [0, 9])
def test_first_in_first_out_only_the_first_in_turn_is_judged(activation: int) -> None:
    policy = Policy.CIP1 if activation else Policy.FIFO
    maker = chain(policy, ACTIVATION_HEIGHT=activation)
    first = schedule(maker, max_fee_per_cycle=1)
    schedule(maker)
    for _ in range(2):
        maker.seal()
    assert passed_over(maker) == [(2, name(first))]


def test_first_in_first_out_nobody_fires_behind_one_that_does_not_fit() -> None:
    maker = chain(Policy.FIFO)
    small, large, behind = (schedule(maker, gas_limit=gas_limit) for gas_limit in (5_000, CAP, 5_000))
    maker.seal()
    maker.fire(small, tip=0, cycles=4_500, burned=pack_uint(4_510 * PRICE))
    maker.fire(behind, tip=0, burned=pack_uint(2_010 * PRICE))
    maker.seal()
    assert passed_over(maker) == [(2, name(large))]


def test_a_scan_that_may_have_ended_excuses_only_those_behind_the_last_fire() -> None:
    maker = chain(SCAN_LIMIT=2, TIE_BREAK="aged")
    best, middle, _last = (schedule(maker, max_priority_fee_per_cycle=tip) for tip in (9, 8, 1))
    maker.seal()
    used = LANE - CAP + 1  # so the last may not have fitted
    receipt = maker.fire(middle, tip=8)
    maker.fires[-1] = msgspec.structs.replace(
        receipt, cycles=used, burned=pack_uint((2 * used + 10) * PRICE), tip=pack_uint(8 * used)
    )
    maker.seal()
    assert passed_over(maker) == [(2, name(best))]
    assert books(maker).turns.unjudged == 1


def test_a_scan_of_fires_alone_ends_only_behind_so_many_fires() -> None:
    """Whatever the number of timers that are due: all gas limits fitted, and nothing was carried before the last."""
    maker = chain(SCAN_LIMIT=2, TIE_BREAK="aged")
    first, second, *others = (schedule(maker, max_priority_fee_per_cycle=tip) for tip in (9, 8, 7, 1))
    maker.seal()
    maker.fire(first, tip=9)
    maker.seal()
    assert {key for _, key in passed_over(maker)} == {name(timer) for timer in (second, *others)}
    full = chain(SCAN_LIMIT=2, TIE_BREAK="aged")
    first, second, *others = (schedule(full, max_priority_fee_per_cycle=tip) for tip in (9, 8, 7, 1))
    full.seal()
    full.fire(first, tip=9)
    full.fire(second, tip=8)
    full.seal()
    assert passed_over(full) == []
    assert books(full).turns.unjudged == 2


@pytest.mark.parametrize(("tip", "is_rich", "is_told"), [(9, True, True), (0, True, False), (9, False, False)])
def test_removals_that_use_up_their_budget_keep_no_timer_waiting_that_is_paid_for(
    tip: int, is_rich: bool, is_told: bool
) -> None:
    """The lanes are apart (SPEC §11): one whose turn came, and whose payer could pay, fires all the same."""
    maker = chain(SCAN_LIMIT=2, TIMER_GC_CYCLES=4 * 200, TIE_BREAK="aged")
    dead = [schedule(maker, max_priority_fee_per_cycle=TIP) for _ in range(4)]
    item = msgspec.structs.replace(
        maker.scheduled(1, b"[]"), actor=OTHER, fee_payer=OTHER, max_priority_fee_per_cycle=pack_uint(tip)
    )
    maker.transact(Call(OTHER, "run", b"[]"), Effects(scheduled=(item,)))
    spend_all(maker)
    if not is_rich:
        held = Ledger(maker.genesis).accounts.balances[OTHER] + FUNDS
        moved = Movement(OTHER, ACTOR, pack_uint(held))
        maker.transact(Call(OTHER, "run", b"[]"), Effects(movements=(moved,)))
        spend = Movement(ACTOR, USER_ADDRESS, pack_uint(held))
        maker.transact(Call(ACTOR, "run", b"[]"), Effects(movements=(spend,)))
    maker.seal()
    for timer in dead:
        destroy(maker, timer)
    maker.seal()
    assert [key for _, key in passed_over(maker)] == ([name(item)] if is_told else [])
    assert books(maker).turns.unjudged == (0 if is_told else 1)


def test_first_in_first_out_the_first_of_all_that_wait_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are looked at in a block of the auction: an accused one might stand behind one that did not fit."""
    monkeypatch.setattr(turns, "MAX_JUDGED", 1)
    maker = chain(Policy.FIFO)
    timers = [schedule(maker, gas_limit=gas_limit) for gas_limit in (5_000, CAP, 5_000)]
    maker.seal()
    maker.fire(timers[0], tip=0, cycles=4_500, burned=pack_uint(4_510 * PRICE))
    maker.seal()
    assert passed_over(maker) == []


def test_timers_that_waited_for_activation_are_priced_then() -> None:
    maker = chain(ACTIVATION_HEIGHT=2)
    timer = schedule(maker)
    maker.seal()
    maker.seal(**NO_BUDGET)
    maker.seal()
    assert passed_over(maker) == [(3, name(timer))]


# --- turns ------------------------------------------------------------------------------------------------------------


def test_right_turns_pass_and_are_counted() -> None:
    maker = chain(TIE_BREAK="aged")
    rich, poor = schedule(maker, max_priority_fee_per_cycle=9), schedule(maker)
    maker.seal()
    maker.fire(rich, tip=9)
    maker.fire(poor)
    maker.seal()
    assert told(maker) == []
    assert books(maker).log.evaluated[LedgerRule.PASSED_OVER] == 2


def test_who_offers_less_comes_later() -> None:
    maker = chain(TIE_BREAK="aged")
    rich, poor = schedule(maker, max_priority_fee_per_cycle=9), schedule(maker)
    maker.seal()
    maker.fire(poor)
    maker.fire(rich, tip=9)
    maker.seal()
    assert told(maker) == [f"fire of timer {name(rich)} came out of turn of the auction"]


@pytest.mark.parametrize("tie_break", ["id", "aged"])
def test_equal_scores_go_by_the_tie_break(tie_break: str) -> None:
    maker = chain(TIE_BREAK=tie_break, LANE_TIMER_CYCLES=40_000)
    timers = [schedule(maker) for _ in range(4)]
    maker.seal()
    for timer in timers:
        maker.fire(timer)
    maker.seal()
    by_id = [timer.timer_id for timer in timers]
    assert bool(told(maker)) == (tie_break == "id" and by_id != sorted(by_id))


def test_who_fired_often_has_less_weight() -> None:
    """A stranger with half of the tip goes first, in the window of blocks that counts."""
    for window, out_of_turn in ((10, True), (1, False)):
        maker = chain(TIE_BREAK="aged", LANE_TIMER_CYCLES=40_000, FAIRNESS_WINDOW_BLOCKS=window)
        often = [schedule(maker) for _ in range(6)]
        maker.seal()
        for timer in often:
            maker.fire(timer)
        maker.seal()
        mine = schedule(maker, max_priority_fee_per_cycle=10)
        others = msgspec.structs.replace(maker.bidders(1), max_priority_fee_per_cycle=None)
        maker.seal()
        maker.query(others, bid=(pack_uint(3 * PRICE), pack_uint(6)))
        maker.fire(mine, tip=10)
        maker.fire(others, tip=6, fee_payer=BIDDER)
        maker.seal()
        assert bool(told(maker)) == out_of_turn, told(maker)


@pytest.mark.parametrize(
    ("terms", "tip", "expected"),
    [
        ({"max_priority_fee_per_cycle": 7}, 7, None),
        ({"max_priority_fee_per_cycle": 7}, 6, "tips 6 a cycle, where its terms and prices give 7"),
        ({"max_priority_fee_per_cycle": 7, "max_fee_per_cycle": PRICE + 7}, 7, None),
        ({"max_priority_fee_per_cycle": None}, 0, None),
        ({"max_priority_fee_per_cycle": None}, 1, "tips 1 a cycle, where its terms and prices give 0"),
    ],
)
def test_tips_follow_from_terms_and_prices(terms: dict[str, Any], tip: int, expected: str | None) -> None:
    maker = chain()
    timer = schedule(maker, **terms)
    maker.seal()
    maker.fire(timer, tip=tip)
    maker.seal()
    assert told(maker) == ([] if expected is None else [f"fire of timer {name(timer)} {expected}"])


def test_the_default_tips_the_median_of_the_block_before() -> None:
    for cap, expected in ((0, 40), (100_000, 10)):
        maker = chain(DEFAULT_TIP_CAP=cap, LANE_TIMER_CYCLES=40_000, TIE_BREAK="aged")
        dear = [schedule(maker, max_priority_fee_per_cycle=tip) for tip in (80, 40, 3)]
        timer = schedule(maker, ahead=2, max_priority_fee_per_cycle=None)
        maker.seal()
        for each, tip in zip(dear, (80, 40, 3), strict=True):
            maker.fire(each, tip=tip)
        maker.seal()
        maker.fire(timer, tip=expected)
        maker.seal()
        assert told(maker) == []
    maker.seal(p50_tip=pack_uint(7))
    assert told(maker) == ["the median tip is 7, the fires of the block before give 10"]


def test_a_timer_below_the_price_or_above_the_cap_does_not_fire(monkeypatch: pytest.MonkeyPatch) -> None:
    header = priced(monkeypatch, PRICE, PRICE + 5)
    maker = chain()
    timer = schedule(maker, max_fee_per_cycle=PRICE + 4)
    maker.seal(header())
    burned = pack_uint(2_000 * (2 * PRICE + 5) + 10 * PRICE)
    maker.fire(timer, tip=0, burned=burned)
    maker.seal(header())
    (what,) = told(maker)
    monkeypatch.undo()
    assert what.endswith(f"had its turn, though it allows {PRICE + 4} a cycle where {PRICE + 5} is the least")
    maker = chain()
    timer = schedule(maker, gas_limit=CAP + 1)
    maker.seal()
    maker.fire(timer)
    maker.seal()
    assert [what.partition(" was ")[2] or what.partition(" had ")[2] for what in told(maker)] == [
        f"scheduled with a gas limit of {CAP + 1}",
        f"its turn with a gas limit of {CAP + 1}, beyond the cap of {CAP}",
    ]


def test_a_timer_fires_only_where_it_fits_and_within_its_limit() -> None:
    maker = chain(TIE_BREAK="aged")
    timers = [schedule(maker, gas_limit=2_000) for _ in range(3)] + [schedule(maker)]
    maker.seal()
    for timer in timers:
        maker.fire(timer)
    maker.seal()
    (what,) = told(maker)
    assert what == (
        f"fire of timer {name(timers[3])} had its turn, though its {CAP} cycles did not fit: the lane had used 6000 and"
        " 30 cells"
    )
    maker = chain()
    timer = schedule(maker, gas_limit=1_999)
    maker.seal()
    maker.fire(timer)
    maker.seal()
    assert told(maker) == [f"fire of timer {name(timer)} used 2000 cycles of at most 1999"]


# --- who pays ---------------------------------------------------------------------------------------------------------


def test_the_payer_is_whom_the_schedule_names_and_can_pay() -> None:
    maker = chain()
    timer = schedule(maker)
    maker.seal()
    maker.fire(timer, fee_payer=USER_ADDRESS)
    maker.seal()
    (what,) = told(maker)
    assert what.endswith(f"was paid by {address_text(USER_ADDRESS)}, its schedule names another")
    needed = CAP * (2 * PRICE + TIP) + CELLS * PRICE
    for left in (needed, needed - 1):
        maker = chain()
        timer = schedule(maker)
        spend_all(maker, left)
        maker.seal()
        maker.fire(timer)
        maker.seal()
        what = f"fire of timer {name(timer)} may cost {needed}, which its payer did not have: {left}"
        assert told(maker) == ([] if left == needed else [what])


def test_a_sender_pays_for_what_it_allowed() -> None:
    needed = CAP * (2 * PRICE + TIP) + CELLS * PRICE
    maker = chain()
    timer = schedule(maker, fee_payer=USER_ADDRESS, payer_cap=needed)
    maker.seal()
    assert told(maker) == [
        f"transaction {maker_hash(maker)} scheduled timers for {needed} of its sender's, who allowed 0"
    ]
    maker.fire(timer, fee_payer=USER_ADDRESS)
    maker.seal()
    assert len(told(maker)) == 1, "the cap is as much as it may cost"
    for terms in ({"fee_payer": USER_ADDRESS}, {"fee_payer": OTHER, "payer_cap": 5}):
        maker = chain()
        schedule(maker, **terms)
        maker.seal()
        assert told(maker)[0].endswith("scheduled at the cost of an account that did not ask")
    maker = chain()
    foreign = msgspec.structs.replace(maker.scheduled(3, b"[]"), fee_payer=USER_ADDRESS, payer_cap=b"\1")
    maker.message(Effects(scheduled=(foreign,)))
    maker.seal()
    assert any(what.endswith("scheduled a timer at another account's cost") for what in told(maker))


def test_an_allowance_may_be_more_than_any_fee() -> None:
    """Without a cap of its own, a timer has all of it: one transaction ended the books."""
    maker = chain()
    schedule(maker, ahead=5, fee_payer=USER_ADDRESS, payer_cap=2**127)
    maker.seal()
    (what,) = told(maker)
    assert what.endswith(f"scheduled timers for {2**127} of its sender's, who allowed 0")


def maker_hash(maker: ChainMaker) -> str:
    """Of the only transaction of the newest block."""
    ledger = books(maker)
    (what,) = [violation.what for violation in ledger.log.violations]
    return what.split()[1]


def test_who_cannot_pay_is_destroyed_at_its_turn() -> None:
    """Between two fires, the second of which pays it back: receipts keep them apart, its turn does not."""
    maker = chain(TIE_BREAK="aged")
    timers = [schedule(maker, gas_limit=2_000, max_priority_fee_per_cycle=TIP) for _ in range(2)]
    spend_all(maker)
    maker.seal()
    destroy(maker, timers[0])
    destroy(maker, timers[1])
    maker.seal()
    assert told(maker) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"needed": "1"}, "was destroyed with needed 1, it was 13000012000"),
        ({"balance": "7"}, "was destroyed with balance 7, it was 0"),
        ({"fee_payer": "0x"}, f"was destroyed with fee_payer 0x, it was {address_text(ACTOR)}"),
    ],
)
def test_what_is_said_of_one_that_could_not_pay_must_be_so(changes: dict[str, str], expected: str) -> None:
    maker = chain()
    timer = schedule(maker)
    spend_all(maker)
    maker.seal()
    destroy(maker, timer, **changes)
    maker.seal()
    assert told(maker) == [f"timer {name(timer)} {expected}"]


def test_destroying_a_timer_that_can_be_paid_for_is_told() -> None:
    maker = chain()
    timer = schedule(maker)
    maker.seal()
    destroy(maker, timer, balance=str(FUNDS))
    maker.seal()
    assert told(maker) == [
        f"timer {name(timer)} was destroyed for insufficient funds, though its payer had {FUNDS} of 13000012000"
    ]


# --- what else is in the receipts of timers ---------------------------------------------------------------------------


def test_terms_must_be_such_as_a_schedule_may_have() -> None:
    for terms, expected in (
        ({"gas_limit": 999}, "was scheduled with a gas limit of 999"),
        ({"max_fee_per_cycle": PRICE - 1}, f"was scheduled with {PRICE - 1} a cycle, where"),
        ({"max_fee_per_cycle": PRICE + 1}, "where the least fee and priority take 1000002"),
    ):
        maker = chain()
        schedule(maker, 5, **terms)
        maker.seal()
        (what,) = told(maker)
        assert expected in what


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"bid": None}, "has no answer"),
        ({"outcome": "failed", "bid": (b"\1", b"\1")}, "has an answer, though it failed"),
    ],
)
def test_a_query_says_what_was_answered(changes: dict[str, Any], expected: str) -> None:
    maker = chain()
    timer = maker.bidders(1)
    maker.seal()
    maker.query(timer, **changes)
    maker.fire(timer, tip=0, fee_payer=BIDDER)
    maker.seal()
    assert any(what.endswith(expected) for what in told(maker))


def test_basefees_follow_from_the_block_before() -> None:
    for field in ("cycle", "cell", "lane_timer"):
        maker = chain()
        maker.seal({f"basefee_{field}": pack_uint(PRICE + 1)})
        assert f"basefee_{field} is {PRICE + 1}, the block before gives {PRICE}" in told(maker)


def test_conservation_and_timers_are_the_checks() -> None:
    """What concerns money is told under conservation, what concerns turns under timers."""
    maker = chain()
    timer = schedule(maker)
    maker.seal()
    maker.fire(timer, tip=1)
    maker.seal()
    assert {violation.check for violation in books(maker).log.violations} == {CONSERVATION}
