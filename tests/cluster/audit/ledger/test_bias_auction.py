"""The ledger on blocks of ``bias_auction``: contended real ones pass in silence, and each broken rule is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cluster.audit.ledger.ledger import Ledger
from cluster.record.rules import LedgerRule
from tests.cluster.audit.ledger.test_gba_auction import POOR, Plant, told
from tests.cluster.audit.ledger.test_gba_auction import walk as walk_policy
from tests.validator.chains import ACTOR, ALICE, BOB, OTHER, PRICE, RICH, SMALL, make_genesis, schedule, script
from tests.validator.executors import Author, wire
from validator.chain.genesis import Policy
from validator.chain.transactions import Call, System, UpdateTimerConfig
from validator.execution import timer_calls, timer_phase
from validator.policies import bias_auction
from validator.policies.bias_auction import BiasAuctionPhase
from validator.primitives.errors import Rejection
from validator.primitives.types import Address
from validator.scheduler.order import NO_BIASES
from validator.scheduler.parties import Parties
from validator.state.working_set import World

BIDS = (0, 5, 40_000, 40_000, 3_000_000)
WIDE = {"SCAN_LIMIT": 400, "TIMER_GC_CYCLES": 160_000, "LANE_TIMER_CYCLES": 9_000}
"""So that the scan surely reaches all timers, and the lane has room for few of them."""
RATES = {"BIAS_LAMBDA_MICRO": 10**6, "BIAS_LAMBDA_MAX_MICRO": 3 * 10**6, "BIAS_INTERVAL_BLOCKS": 3}


def walk(seed: int, **params: Any) -> Ledger:
    return walk_policy(seed, Policy.BIAS_AUCTION, BIDS, **{**RATES, **WIDE, **params})


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"PAYMENT_RULE": "critical", "RESERVE_PRICE": 7},
        {"PAYMENT_RULE": "first_price"},
        {"SCAN_LIMIT": 3},
        {"MAX_FIRES_PER_BLOCK": 2, "MAX_FIRES_PER_ACTOR": 1},
        {"TIE_BREAK": "id", "MAX_FIRES_PER_ACTOR": 2},
        {"SCAN_LIMIT": 2, "MAX_FIRES_PER_ACTOR": 1, "LANE_TIMER_CYCLES": 200_000},
    ],
    ids=str,
)
def test_contended_blocks_pass_in_silence(seed: int, params: dict[str, Any]) -> None:
    ledger = walk(seed, **params)
    assert told(ledger) == ""
    assert ledger.timers.fires > 20
    assert sum(ledger.blocks.column("backlog")) > 30, "timers wait"
    assert bool(ledger.log.evaluated[LedgerRule.BID_PAYMENTS] > 40) == ("SCAN_LIMIT" not in params)


def without_bias(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(bias_auction, "table", lambda _late, _micro: NO_BIASES)


def rate_stands_still(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(bias_auction, "next_rate", lambda rate, _parameters: rate.micro)


def pays_the_bid(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(bias_auction, "payment", lambda winner, _left_out, _parameters: winner.bid)


def keeps_the_bias(patched: pytest.MonkeyPatch) -> None:
    payment = bias_auction.payment
    patched.setattr(bias_auction, "payment", lambda winner, *rest: payment(winner._replace(bias=0), *rest))


def counts_the_last_left_out(patched: pytest.MonkeyPatch) -> None:
    def leave_out(self: BiasAuctionPhase, candidate: Any) -> None:
        self._best_left_out = self.ranked(self._timer(candidate.timer_id))

    patched.setattr(BiasAuctionPhase, "leave_out", leave_out)


def keeps_cancelled_bids(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(timer_calls, "end_unfired", World.remove_timers)


def keeps_destroyed_bids(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(timer_phase, "end_unfired", World.remove_timers)


def locks_nothing(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(timer_calls, "lock_bid", lambda *_: None)


def limits_no_actor(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(BiasAuctionPhase, "_has_fired_enough", lambda *_: False)
    patched.setattr(Parties, "close", lambda *_: None)


def limits_actors_to_one(patched: pytest.MonkeyPatch) -> None:
    within = BiasAuctionPhase._within_caps

    def less(self: BiasAuctionPhase, candidates: Any) -> Any:
        for candidate in within(self, candidates):
            if not self._fires_of.get(self._timer(candidate.timer_id).actor):
                yield candidate

    patched.setattr(BiasAuctionPhase, "_within_caps", less)


@pytest.mark.parametrize(
    ("plant", "named"),
    [
        (without_bias, "came out of turn of the auction"),
        (rate_stands_still, "came out of turn of the auction"),
        (pays_the_bid, "of its bid, where the others' bids give"),
        (keeps_the_bias, "of its bid, where the others' bids give"),
        (counts_the_last_left_out, "of its bid, where the others' bids give"),
        (limits_actors_to_one, "was due and passed over"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_broken_rule_is_named(monkeypatch: pytest.MonkeyPatch, plant: Plant, named: str) -> None:
    plant(monkeypatch)
    assert any(named in told(walk(seed)) for seed in range(4))


@pytest.mark.parametrize("plant", [keeps_cancelled_bids, keeps_destroyed_bids, locks_nothing, limits_no_actor])
def test_a_bid_that_is_lost_or_made_is_named(monkeypatch: pytest.MonkeyPatch, plant: Plant) -> None:
    """By the books, or by a state that they do not agree with."""
    plant(monkeypatch)
    problems = []
    for seed in range(3):
        try:
            problems.append(told(walk(seed, MAX_FIRES_PER_ACTOR=1)))
        except (AssertionError, Rejection):
            problems.append("the state differs")
    assert any(problems)


# --- right blocks that look wrong -------------------------------------------------------------------------------------


def told_of(calls: Sequence[Sequence[tuple[Address, list[Any]]]], actors: dict[Address, int], **params: Any) -> str:
    """What the books say of blocks with these calls: actor and operations."""
    genesis = make_genesis(
        {**SMALL, "TIE_BREAK": "aged", "MIN_BASEFEE": PRICE, "MAX_BASEFEE": PRICE, **params},
        actors=actors,
        policy=Policy.BIAS_AUCTION,
        system_deployers=(BOB,),
    )
    author, ledger = Author(genesis), Ledger(genesis)
    for height, block in enumerate(calls, start=1):
        nonces = [author.executor.pages.account(user)["nonce"] for user in (ALICE, BOB)]
        wires = []
        for actor, operations in block:
            user = int(actor == BOB)
            action = System(UpdateTimerConfig(operations[0])) if user else Call(actor, "run", script(*operations))
            gas_limit = 200_000 if user else 10**6
            wires.append(wire(nonces[user], user=user, action=action, gas_limit=gas_limit, cells_limit=100_000))
            nonces[user] += 1
        built = author.build(None, *wires)
        assert [receipt.error for receipt in author.outcome_of(built.digest).receipts.transactions] == [""] * len(block)
        author.finalize(built.digest)
        archived = author.executor.archive.get(height)
        assert archived is not None
        ledger.apply(archived.block, archived.receipts)
    assert ledger.timers.fires > 1 or len(calls) < 3
    return told(ledger)


def test_a_bid_that_comes_back_pays_for_another_within_a_run() -> None:
    most = 10**12
    first = [schedule(20, bid=most, save_as="s")]
    then = [
        schedule(20, bid=50),
        ["cancel", {"saved": "s"}],
        ["transfer", {"to": "0x" + OTHER.hex(), "amount": most + 50}],
    ]
    assert told_of([[(ACTOR, first)], [(ACTOR, then)]], {ACTOR: most + 100, OTHER: RICH}) == ""


CANCELS = [["try", ["cancel", {"saved": "s"}]]]


def test_a_timer_over_the_cap_is_not_left_out_if_a_fire_cancels_it() -> None:
    calls = [
        schedule(2, bid=10**6, gas_limit=8_000, save_as="s"),
        schedule(2, ["burn", 1_000], bid=9 * 10**5, gas_limit=3_000),
        schedule(2, *CANCELS, bid=1_000, gas_limit=3_000),
    ]
    lower = '{"MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 3000}'
    wide = {"LANE_TIMER_CYCLES": 8_000, "SCAN_LIMIT": 50, "TIMER_GC_CYCLES": 20_000}
    assert told_of([[(ACTOR, calls), (BOB, [lower])], [], []], {ACTOR: RICH, OTHER: RICH}, **wide) == ""


def test_an_expired_timer_is_not_left_out_if_a_fire_cancels_it() -> None:
    late = [schedule(1, bid=5 * 10**8, gas_limit=8_000, expires_at=2) for _ in range(54)]
    last = schedule(1, bid=5 * 10**8, gas_limit=8_000, expires_at=2, save_as="s")
    first = [schedule(1, ["burn", 6_500], bid=10**9, gas_limit=8_000), *late, last]
    then = [
        schedule(1, ["burn", 100], bid=10**9, gas_limit=3_000),
        schedule(1, *CANCELS, bid=1_000, gas_limit=4_000),
    ]
    wide = {"LANE_TIMER_CYCLES": 8_000, "SCAN_LIMIT": 50, "TIMER_GC_CYCLES": 20_000}
    assert told_of([[(ACTOR, first)], [(ACTOR, then)], []], {ACTOR: RICH, OTHER: RICH}, **wide) == ""


def test_a_payer_whose_fire_locked_all_that_it_had_may_wait_for_its_removal() -> None:
    cost = 3_500 * PRICE
    third = [schedule(1, bid=10_000, gas_limit=1_000) for _ in range(10)]
    mine = [
        schedule(1, schedule(9, bid=int(8.7 * cost)), bid=900, gas_limit=3_000),
        schedule(1, bid=500, gas_limit=3_000),
    ]
    calls = [(POOR, third), (ACTOR, mine), (OTHER, [schedule(1, bid=10, gas_limit=1_000)])]
    wide = {"SCAN_LIMIT": 5, "TIMER_GC_CYCLES": 2_000, "LANE_TIMER_CYCLES": 10**6}
    assert told_of([calls, [], []], {POOR: 10**6, ACTOR: 10 * cost, OTHER: RICH}, **wide) == ""
