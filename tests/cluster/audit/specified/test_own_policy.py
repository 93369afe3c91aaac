"""The specification on blocks of users' policies: what a class replaces is not judged, and all else is."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace as changed

from cluster.audit.specified.judge import Deviation, SpecifiedChain
from cluster.audit.violation import CHAIN
from tests.cluster.audit.chains import BIDS, PARAMETERS, POOR, RATES, Plant, add, judged, rechained, timers
from tests.validator.chains import ACTOR, OTHER, RICH, SMALL, USERS, make_genesis, schedule, script
from tests.validator.executors import Author, wire
from tests.validator.policies.own_policies import DEADLINES, NEVER_ODD, NOTHING, derived, example, of_admitted_fees
from validator.chain.block import BlockReceipts
from validator.chain.genesis import Genesis, Policy
from validator.chain.records import Timer
from validator.chain.transactions import Call
from validator.execution.timer_phase import Candidate, LaneUse, TimerPhase
from validator.policies.own import read_policy
from validator.primitives.codec import decode, encode, pack_uint

HEIGHTS = 30
LANE = {"LANE_TIMER_CYCLES": 12_000}
ORDER = 'replaces = {"order"}'
BACKWARDS = ("def candidates(self):", "    return map(self.turn, reversed(self.eligible()))")
BY_WAIT = (
    "formula = None",
    "def score(self, timer, tip):",
    "    return 1 + self.terms.height - timer.trigger_height",
)
ORDERED = {
    Policy.FIFO: derived(Policy.FIFO, ORDER, "passes_over = True", *BACKWARDS),
    Policy.CIP1: derived(Policy.CIP1, ORDER, *BY_WAIT),
    Policy.GBA_AUCTION: derived(Policy.GBA_AUCTION, ORDER, *BY_WAIT),
    Policy.BIAS_AUCTION: derived(Policy.BIAS_AUCTION, ORDER, *BACKWARDS),
}
HALF = ("def candidates(self):", "    yield from list(super(Own, self).candidates())[::2]")
"""The class lets half of the due timers fire, in their order."""


class Judged:
    """A chain as the specification judges it, block by block."""

    def __init__(self, genesis: Genesis) -> None:
        self.author, self.spec = Author(genesis), SpecifiedChain(genesis)
        self.blocks: list[tuple[bytes, bytes]] = []

    def build(self, *scripts: tuple[Any, bytes]) -> None:
        """The next block, with calls of actors."""
        nonce = self.author.executor.pages.account(USERS[0])["nonce"]
        wires = [wire(nonce + n, action=Call(actor, "run", text)) for n, (actor, text) in enumerate(scripts)]
        self.blocks.append(add(self.author, *wires))
        self.spec.enter(*self.blocks[-1])

    @property
    def receipts(self) -> list[BlockReceipts]:
        return [decode(receipts, BlockReceipts) for _, receipts in self.blocks]

    @property
    def genesis(self) -> Genesis:
        return self.author.genesis

    @property
    def found(self) -> Deviation | None:
        return self.spec.deviation


def genesis_of(source: str, **params: Any) -> Genesis:
    policy, policy_file = read_policy("own", source)
    given = {**PARAMETERS, "TIE_BREAK": "aged", **LANE, **params}
    genesis = make_genesis(given, actors={ACTOR: RICH, OTHER: RICH, POOR: 10**9}, policy=policy)
    return replace(genesis, policy_file=policy_file)


def walk(source: str, seed: int = 0, **params: Any) -> Judged:
    """Contended blocks, up to the first that deviates."""
    is_bias = read_policy("own", source)[0] is Policy.BIAS_AUCTION
    chain, random = Judged(genesis_of(source, **{**(RATES if is_bias else {}), **params})), Random(seed)
    for _ in range(HEIGHTS):
        bids = BIDS if is_bias else ()
        chain.build(
            *((actor, script(*timers(random, random.choice((0, 2, 5)), bids))) for actor in (ACTOR, OTHER, POOR))
        )
        if chain.found is not None:
            break
    return chain


def entered(source: str, *scripts: bytes) -> Judged:
    """Two blocks, of which the first has these scripts."""
    policy, policy_file = read_policy("own", source)
    chain = Judged(replace(make_genesis(SMALL, policy=policy), policy_file=policy_file))
    chain.build(*((ACTOR, text) for text in scripts))
    chain.build()
    return chain


def told(chain: Judged) -> str:
    return "" if chain.found is None else chain.found.violation.what


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("params", [{}, {"ACTIVATION_HEIGHT": 9}, {"SCAN_LIMIT": 3}], ids=str)
def test_an_order_of_ones_own_passes_in_silence(policy: Policy, params: dict[str, Any]) -> None:
    for seed in range(2):
        assert told(walk(ORDERED[policy], seed, **params)) == ""
    assert told(walk(DEADLINES, **params)) == ""


@pytest.mark.parametrize("policy", list(Policy))
def test_what_the_class_does_not_say_to_replace_is_judged(policy: Policy) -> None:
    assert told(walk(derived(policy))) == ""
    assert told(walk(ORDERED[policy].replace(f"    {ORDER}\n", ""))).startswith("receipts.")
    assert told(walk(derived(policy, *HALF))).startswith("receipts.")
    waiting = 'replaces = {"waiting"}'
    assert told(walk(derived(policy, waiting, *HALF))) == ""
    backwards = ("def candidates(self):", "    return reversed(list(super(Own, self).candidates()))")
    assert "out of turn" in told(walk(derived(policy, waiting, *backwards)))


def test_prices_of_ones_own_pass_in_silence() -> None:
    chain = walk(example("python"), PRIORITY_FLOOR=1)
    assert told(chain) == "" and any(receipts.fires for receipts in chain.receipts)


def test_prices_that_the_class_does_not_say_to_replace_are_named() -> None:
    found = told(walk(example("python").replace('"order", "prices"', '"order"'), PRIORITY_FLOOR=1))
    assert "basefee_lane_timer is" in found or "burned is" in found


def test_a_tip_that_is_not_of_the_terms_is_named() -> None:
    freely = (ORDER, "def candidates(self):", "    return map(self.turn, self.eligible())")
    assert "].tip_per_cycle is 0, by the specification" in told(walk(derived(Policy.CIP1, *freely)))


@pytest.mark.parametrize("policy", [Policy.CIP1, Policy.FIFO, Policy.BIAS_AUCTION])
def test_a_timer_may_be_extended_by_a_fire_before_it_is_destroyed(policy: Policy) -> None:
    fees: dict[str, Any] = {"max_fee_per_cycle": 2**60, "expires_at": 20}
    poor = schedule(1, gas_limit=1_000, payer_cap=5, save_as="poor", **fees)
    extends = schedule(1, ["extend", {"saved": "poor", "expires_at": 40}], gas_limit=8_000, **fees)
    chain = entered(derived(policy, ORDER, *BACKWARDS), script(poor, extends))
    assert told(chain) == ""
    assert [each.reason for each in chain.receipts[1].destroyed] == ["insufficient_funds"]
    assert len(chain.receipts[1].fires) == 1


@pytest.mark.parametrize("policy", [Policy.FIFO, Policy.BIAS_AUCTION])
def test_fee_fields_that_a_price_of_ones_own_admits_pass_in_silence(policy: Policy) -> None:
    low = schedule(1, max_fee_per_cycle=5)
    clamped = schedule(1, max_fee_per_cycle=105, max_priority_fee_per_cycle=50)
    source = of_admitted_fees(policy)
    chain = entered(source, script(low), script(clamped))
    assert told(chain) == ""
    assert len(chain.receipts[1].fires) == 1, "the first was refused"
    found = told(entered(source.replace('"prices"', '"order"'), script(low), script(clamped)))
    assert found.startswith("receipts.transactions[0].ok is False")


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
    [(fires_twice, "by the specification a timer that is due"), (ignores_the_lane, "lane_cycles is 0")],
)
def test_what_no_class_replaces_is_named(
    monkeypatch: pytest.MonkeyPatch, source: str, plant: Plant, named: str
) -> None:
    plant(monkeypatch)
    assert named in told(walk(source, PRIORITY_FLOOR=1))


def test_a_price_is_judged_where_only_the_order_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    burns_nothing(monkeypatch)
    assert ".burned is 0, by the specification" in told(walk(ORDERED[Policy.FIFO]))


@pytest.mark.parametrize("policy", list(Policy))
def test_a_due_timer_that_waits_while_the_lane_has_room_is_named(policy: Policy) -> None:
    equal = ("formula = None", "def score(self, timer, tip):", "    return 1")
    every = (ORDER, *equal) if policy in (Policy.CIP1, Policy.GBA_AUCTION) else (ORDER,)
    assert "the lane has room for its" in told(walk(derived(policy, *every, *HALF)))
    assert "the lane has room for its" in told(walk(NEVER_ODD))
    assert "the lane has room for its" in told(walk(NOTHING))


def test_timers_may_wait_if_the_class_says_so_or_has_prices_of_its_own() -> None:
    for given in ('{"order", "waiting"}', '{"order", "prices"}'):
        assert told(walk(NOTHING.replace('{"order"}', given))) == ""


def test_a_timer_that_cannot_pay_or_does_not_fit_may_wait_under_any_order() -> None:
    poor = schedule(1, gas_limit=1_000, payer_cap=5, max_fee_per_cycle=2**60, expires_at=20)
    assert told(entered(NOTHING, script(poor))) == ""
    rich = schedule(1, gas_limit=1_000, max_fee_per_cycle=2**60, expires_at=20)
    assert "the lane has room for its 1000 cycles" in told(entered(NOTHING, script(rich)))


def of_prices(policy: Policy, rule: str, says: str) -> str:
    """A policy with a rule of its prices that says something."""
    base = {Policy.FIFO: "fifo.FifoRules", Policy.BIAS_AUCTION: "bias_auction.BiasRules"}[policy]
    module, _, name = base.partition(".")
    mine = f"class Mine({name}):\n    def {rule}(self, *given):\n        return {says}\n\n\n"
    lines = ('replaces = {"prices"}', "rules = Mine()")
    return f"from validator.policies.{module} import {name}\n\n\n{mine}{derived(policy, *lines)}"


def of_the_rule(chain: Judged, source: str) -> Deviation | None:
    """What is found in a chain if the rules of its policy are those of another text."""
    genesis = replace(chain.genesis, policy_file=read_policy("own", source)[1])
    return judged(genesis, rechained(genesis, chain.blocks))


@pytest.mark.parametrize("rule", ["lane_price", "fee_floor", "admit", "next_basefee_lane", "next_p50_tip"])
@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("1 // 0", "is file own.py, line 6: ZeroDivisionError: integer division or modulo by zero, "),
        ("given[0]._replace(max_fee=-1) if len(given) == 2 and isinstance(given[0], tuple) else -1", "-1"),
        ("None", "is None, "),
        ("1.5", "is 1.5, "),
    ],
)
def test_a_rule_that_raises_or_gives_no_price_is_named(rule: str, says: str, told: str) -> None:
    right = of_prices(Policy.FIFO, "lane_price", "0")
    chain = entered(right, script(schedule(1, gas_limit=1_000)))
    found = of_the_rule(chain, of_prices(Policy.FIFO, rule, says))
    assert found is not None and found.check == CHAIN
    assert found.violation.what.startswith(f"{rule} of the policy is ") and told in found.violation.what
    assert "\n" not in found.violation.what


def test_a_fire_with_a_locked_bid_costs_no_more_than_its_payer_has() -> None:
    bid = {"bid": 1, "gas_limit": 1_000, "payer_cap": 10**10, "expires_at": 20}
    chain = entered(of_prices(Policy.BIAS_AUCTION, "lane_price", "0"), script(schedule(1, **bid)))
    assert told(chain) == "" and chain.receipts[1].fires
    found = of_the_rule(chain, of_prices(Policy.BIAS_AUCTION, "lane_price", "10**30"))
    assert found is not None and found.difference.field == "receipts.fires[0].burned"
    assert found.difference.expected == f"at most {10**10 - 1}, what its payer can pay"


WRONG = {
    "fires": {"burned": pack_uint(2**120)},
    "fires of no timer": {"timer_id": bytes(32)},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_receipts_that_say_what_cannot_be_are_named(wrong: dict[str, Any]) -> None:
    chain = walk(example("python"), PRIORITY_FLOOR=1)
    place = next(place for place, receipts in enumerate(chain.receipts) if receipts.fires)
    first, *others = chain.receipts[place].fires
    receipts = encode(changed(chain.receipts[place], fires=(changed(first, **wrong), *others)))
    found = judged(chain.genesis, [*chain.blocks[:place], (chain.blocks[place][0], receipts)])
    assert found is not None and found.height == place + 1


@pytest.mark.parametrize("needed", ["", "-1", "9" * 5_000])
def test_an_amount_that_cannot_be_is_named(needed: str) -> None:
    poor = schedule(1, gas_limit=1_000, payer_cap=5, max_fee_per_cycle=2**60, expires_at=20)
    chain = entered(derived(Policy.CIP1, ORDER), script(poor))
    (destroyed,) = chain.receipts[1].destroyed
    event = changed(destroyed.event, fields=(*destroyed.event.fields[:-2], ("needed", needed), ("balance", "5")))
    receipts = encode(changed(chain.receipts[1], destroyed=(changed(destroyed, event=event),)))
    found = judged(chain.genesis, [chain.blocks[0], (chain.blocks[1][0], receipts)])
    assert found is not None and found.difference.expected == "a timer that was due and could not pay"


@pytest.mark.parametrize("receipts", [b"", b"\x90", b"\x94\x01\x02\x03\x91\x90", b"\x95\x01\x02\x03\x90\x91\x01"])
def test_receipts_that_cannot_be_read_are_named(receipts: bytes) -> None:
    chain = walk(NOTHING)
    found = judged(chain.genesis, [(chain.blocks[0][0], receipts)])
    assert found is not None and found.height == 1
