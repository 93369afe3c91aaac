"""The ledger on blocks of users' policies: what a class replaces is not judged, and all else is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from cluster.audit.chain_codec import read_receipts
from cluster.audit.ledger.ledger import Ledger
from tests.cluster.audit.ledger.test_bias_auction import BIDS, RATES
from tests.cluster.audit.ledger.test_gba_auction import Plant, require_silence, told
from tests.cluster.audit.ledger.test_gba_auction import walk as walk_policy
from tests.validator.chains import ACTOR, SMALL, make_genesis, schedule, script
from tests.validator.executors import Author, wire
from tests.validator.policies.own_policies import DEADLINES, NEVER_ODD, NOTHING, derived, example, of_admitted_fees
from validator.chain.genesis import Policy
from validator.chain.records import Timer
from validator.chain.transactions import Call
from validator.execution.timer_phase import Candidate, LaneUse, TimerPhase
from validator.policies.own import read_policy

ORDER = 'replaces = {"order"}'
BACKWARDS = ("def candidates(self):", "    return map(self.turn, reversed(self.eligible()))")
BY_WAIT = (
    "formula = None",
    "def score(self, timer, tip):",
    "    return 1 + self.terms.height - timer.trigger_height",
)
LANE = {"LANE_TIMER_CYCLES": 12_000}


def walk(source: str, seed: int = 0, **params: Any) -> Ledger:
    policy, policy_file = read_policy("own", source)
    bids: Iterable[int] = ()
    if policy is Policy.BIAS_AUCTION:
        bids, params = BIDS, {**RATES, **params}
    return walk_policy(seed, policy, tuple(bids), policy_file=policy_file, **{**LANE, **params})


def entered(source: str, *scripts: bytes) -> tuple[Ledger, list[str]]:
    """The books of a chain of which the first block has these scripts, and the reasons why timers were destroyed."""
    policy, policy_file = read_policy("own", source)
    author = Author(replace(make_genesis(SMALL, policy=policy), policy_file=policy_file))
    ledger, reasons = Ledger(author.genesis), list[str]()
    for height in (1, 2):
        calls = scripts if height == 1 else ()
        wires = [wire(nonce, action=Call(ACTOR, "run", text)) for nonce, text in enumerate(calls)]
        author.finalize(author.build(None, *wires).digest)
        archived = author.executor.archive.get(height)
        assert archived is not None
        ledger.apply(archived.block, archived.receipts)
        reasons.extend(destroyed.reason for destroyed in read_receipts(archived.receipts).destroyed)
    return ledger, reasons


ORDERED = {
    Policy.FIFO: derived(Policy.FIFO, ORDER, "passes_over = True", *BACKWARDS),
    Policy.CIP1: derived(Policy.CIP1, ORDER, *BY_WAIT),
    Policy.GBA_AUCTION: derived(Policy.GBA_AUCTION, ORDER, *BY_WAIT),
    Policy.BIAS_AUCTION: derived(Policy.BIAS_AUCTION, ORDER, *BACKWARDS),
}


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("params", [{}, {"ACTIVATION_HEIGHT": 9}, {"SCAN_LIMIT": 3}], ids=str)
def test_an_order_of_ones_own_passes_in_silence(policy: Policy, params: dict[str, Any]) -> None:
    for seed in range(2):
        require_silence(walk(ORDERED[policy], seed, **params))
    require_silence(walk(DEADLINES, **params))


@pytest.mark.parametrize("policy", list(Policy))
def test_an_order_that_the_class_does_not_say_to_replace_is_named(policy: Policy) -> None:
    found = told(walk(ORDERED[policy].replace(f"    {ORDER}\n", "")))
    assert "came out of turn" in found or "was due and passed over" in found


@pytest.mark.parametrize("policy", list(Policy))
def test_a_file_that_replaces_nothing_is_judged_as_the_policy_that_it_is_derived_from(policy: Policy) -> None:
    ledger = walk(derived(policy))
    require_silence(ledger)
    is_bias = policy is Policy.BIAS_AUCTION
    params: dict[str, Any] = {**LANE, **(RATES if is_bias else {})}
    assert ledger.log.evaluated == walk_policy(0, policy, BIDS if is_bias else (), **params).log.evaluated


def test_prices_of_ones_own_pass_in_silence() -> None:
    ledger = walk(example("python"), PRIORITY_FLOOR=1)
    require_silence(ledger)
    assert ledger.accounts.burned_lane_timer > 0


def test_prices_that_the_class_does_not_say_to_replace_are_named() -> None:
    found = told(walk(example("python").replace('"order", "prices"', '"order"'), PRIORITY_FLOOR=1))
    assert "basefee_lane_timer is" in found
    assert "burned " in found


@pytest.mark.parametrize("policy", [Policy.CIP1, Policy.FIFO, Policy.BIAS_AUCTION])
def test_a_timer_may_be_extended_by_a_fire_before_it_is_destroyed(policy: Policy) -> None:
    fees: dict[str, Any] = {"max_fee_per_cycle": 2**60, "expires_at": 20}
    poor = schedule(1, gas_limit=1_000, payer_cap=5, save_as="poor", **fees)
    extends = schedule(1, ["extend", {"saved": "poor", "expires_at": 40}], gas_limit=8_000, **fees)
    ledger, reasons = entered(derived(policy, ORDER, *BACKWARDS), script(poor, extends))
    assert reasons == ["insufficient_funds"]
    assert ledger.timers.fires == 1
    assert told(ledger) == ""


@pytest.mark.parametrize("policy", [Policy.FIFO, Policy.BIAS_AUCTION])
def test_fee_fields_that_a_price_of_ones_own_admits_pass_in_silence(policy: Policy) -> None:
    low = schedule(1, max_fee_per_cycle=5)
    clamped = schedule(1, max_fee_per_cycle=105, max_priority_fee_per_cycle=50)
    source = of_admitted_fees(policy)
    ledger, _ = entered(source, script(low), script(clamped))
    assert ledger.timers.fires == 1, "the first was refused"
    assert told(ledger) == ""
    undeclared, _ = entered(source.replace('"prices"', '"order"'), script(low), script(clamped))
    assert "ended with TimerRejectedBelowBasefee, its script gives success" in told(undeclared)


# --- what is judged always --------------------------------------------------------------------------------------------


def fires_twice(patched: pytest.MonkeyPatch) -> None:
    fire = TimerPhase.fire

    def twice(self: TimerPhase, timer: Timer, candidate: Candidate, max_cost: int) -> None:
        fire(self, timer, candidate, max_cost)
        self.fires.append(self.fires[-1])

    patched.setattr(TimerPhase, "fire", twice)


def ignores_the_lane(patched: pytest.MonkeyPatch) -> None:
    settle = TimerPhase.settle

    def free(self: TimerPhase, *given: Any) -> tuple[int, int]:
        found = settle(self, *given)
        self.use.cycles = 0
        return found

    patched.setattr(TimerPhase, "settle", free)


def burns_nothing(patched: pytest.MonkeyPatch) -> None:
    settle = TimerPhase.settle

    def free(self: TimerPhase, *given: Any) -> tuple[int, int]:
        settle(self, *given)
        self.use = LaneUse(self.use.cycles, self.use.cells)
        return 0, 0

    patched.setattr(TimerPhase, "settle", free)


@pytest.mark.parametrize("source", [ORDERED[Policy.FIFO], example("python")], ids=["order", "prices"])
@pytest.mark.parametrize(
    ("plant", "named"),
    [
        (fires_twice, "fire of timer"),
        (ignores_the_lane, "the fires used more than the lane's"),
    ],
)
def test_what_no_class_replaces_is_named(
    monkeypatch: pytest.MonkeyPatch, source: str, plant: Plant, named: str
) -> None:
    plant(monkeypatch)
    assert named in told(walk(source, PRIORITY_FLOOR=1))


def test_a_price_is_judged_where_only_the_order_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    burns_nothing(monkeypatch)
    assert "burned 0 where its use and prices give" in told(walk(ORDERED[Policy.FIFO]))


@pytest.mark.parametrize("policy", [Policy.CIP1, Policy.FIFO, Policy.GBA_AUCTION, Policy.BIAS_AUCTION])
def test_a_due_timer_that_waits_while_the_lane_has_room_is_named(policy: Policy) -> None:
    some = (ORDER, "def candidates(self):", "    return (self.turn(each) for each in self.eligible()[1::2])")
    why = "though the lane has room for its"
    assert why in told(walk(derived(policy, *some)))
    assert why in told(walk(NEVER_ODD))
    assert why in told(walk(NOTHING))


def test_timers_may_wait_if_the_class_says_so_or_nobody_knows_their_prices() -> None:
    for given in ('{"order", "waiting"}', '{"order", "prices"}'):
        assert told(walk(NOTHING.replace('{"order"}', given))) == ""


def test_a_timer_that_cannot_pay_or_does_not_fit_may_wait_under_any_order() -> None:
    poor = schedule(1, gas_limit=1_000, payer_cap=5, max_fee_per_cycle=2**60, expires_at=20)
    ledger, _ = entered(NOTHING, script(poor))
    assert told(ledger) == ""
    rich = schedule(1, gas_limit=1_000, max_fee_per_cycle=2**60, expires_at=20)
    ledger, _ = entered(NOTHING, script(rich))
    assert "though the lane has room for its 1000 cycles" in told(ledger)
