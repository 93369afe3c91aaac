"""The transition against the specification over random chains, and planted faults.

A chain is drawn from a seed: parameters with lanes so small that every limit is met, then blocks of transactions whose
scripts schedule, cancel and extend timers that do the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import takewhile
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from cluster.audit.specified.chain import spec_chain, spec_transaction
from spec.block import BlockRun, NotAdmitted, begin, execute, finish
from spec.encoding import encode_receipts
from spec.leaves import leaves
from tests.validator.chains import ACTORS, PROPOSER, SMALL, USERS, Chain, make_genesis, number, prepare
from validator.chain.records import Fires, Timer, account_key
from validator.chain.transactions import Call, Transaction, Transfer
from validator.execution.handler_context import RunResult
from validator.execution.timer_phase import Candidate, TimerPhase
from validator.policies.cip1 import Cip1Phase
from validator.policies.registry import phases_with
from validator.primitives.codec import encode as pack
from validator.primitives.errors import Rejection
from validator.primitives.meter import Meter
from validator.primitives.types import Address, address_text
from validator.scheduler.rows import OPEN_MAX, timer_id_of_row
from validator.state.working_set import World
from validator.transition.transition import PreparedTransaction, Transition

BLOCKS = 20
PLANT_SEEDS = range(200)
"""Each planted fault must show in one of these chains."""
TOUCHY = {"MIN_BASEFEE": 10, "MAX_BASEFEE": 3_000, "INITIAL_BASEFEE": 500}
KEYS = ("k", "l", "saved")


class Mismatch(AssertionError):
    """Code and specification differ."""


# --- random chains --------------------------------------------------------------------------------------------------


def draw_parameters(random: Random) -> dict[str, Any]:
    scan_limit = random.choice((2, 5, 5))
    return {
        **SMALL,
        **TOUCHY,
        "LANE_TIMER_CYCLES": random.choice((8_000, 20_000)),
        "SCAN_LIMIT": scan_limit,
        "TIMER_GC_CYCLES": 2 * scan_limit * 200,
        "LANE_USER_CYCLES": random.choice((30_000, 60_000)),
        "LANE_USER_CELLS": random.choice((6_500, 20_000)),
        "BLOCK_CYCLES_TARGET": 30_000,
        "BLOCK_CELLS_TARGET": 2_000,
        "MAX_TTL": random.choice((4, 9, 1_000)),
        "MAX_TIMERS_PER_ACTOR": random.choice((4, 30)),
        "MAX_TIMER_PAYLOAD": random.choice((90, 2_000, 2_000)),
        "FAIRNESS_WINDOW_BLOCKS": random.choice((1, 3, 1_000)),
        "LANE_BASEFEE_SLOPE": random.choice((1, 8)),
        "LANE_FEE_MULTIPLIER_MILLI": random.choice((0, 333, 1_000, 2_000)),
        "PRIORITY_FLOOR": random.choice((0, 1)),
        "TIE_BREAK": random.choice(("id", "aged")),
        "P50_WEIGHT": random.choice(("fires", "cycles")),
        "DEFAULT_TIP_CAP": random.choice((0, 8)),
    }


def draw_operation(random: Random, height: int, price: int, depth: int = 0) -> list[Any]:
    if depth < 9 and random.random() < 0.6:
        return ["try", draw_operation(random, height, price, depth + 8)]
    kinds = ("burn", "set", "emit", "transfer", "schedule", "schedule", "schedule", "cancel", "extend", "fail")
    match random.choice(kinds):
        case "burn":
            return ["burn", 10 * random.choice((0, 30, 300, 300, 800))]
        case "set":
            return random.choice((["set", random.choice(KEYS), "é" * random.randrange(9)], ["del", "k"], ["get", "k"]))
        case "emit":
            return ["emit", "Note", "x" * random.choice((0, 10, 10, 10, 150, 501))]
        case "transfer":
            to = address_text(random.choice(USERS + ACTORS))
            return ["transfer", {"to": to, "amount": random.choice((0, 1, 10**6, 10**9))}]
        case "schedule":
            return ["schedule", draw_schedule(random, height, price, depth)]
        case "cancel":
            return ["cancel", random.choice(({"saved": "saved"}, {"saved": "k"}, {"id": "00" * 32}))]
        case "extend":
            return ["extend", {"saved": "saved", "expires_at": height + random.randrange(-2, 12)}]
        case _:
            return ["fail", ""] if random.random() < 0.1 else ["get", "k"]


def draw_schedule(random: Random, height: int, price: int, depth: int) -> dict[str, Any]:
    """Arguments that mostly hold; each optional one is there in some."""
    often, rarely = (lambda: random.random() < 0.3), (lambda: random.random() < 0.04)
    inner = (
        [] if depth % 8 > 1 else [draw_operation(random, height, price, depth + 1) for _ in range(random.randrange(4))]
    )
    when = {"height": height + random.randrange(4)} if often() else {"in": random.choice((1, 1, 2, 3))}
    given: dict[str, Any] = {**when, "payload": inner}
    if often():
        given["gas_limit"] = 10 * random.choice((99, 100, 200, 300, 500, 800, 800, 801))
    if often():
        given["max_fee_per_cycle"] = price * random.choice((9, 10, 10, 11, 15, 90)) // 10
    if often():
        given["max_priority_fee_per_cycle"] = random.choice((0, 1, 50, 700, 5_000))
    elif often():
        given["tier"] = random.choice(("economy", "standard", "fast", "urgent"))
    if often():
        given["expires_at"] = height + random.choice((-1, 1, 2, 2, 3, 3))
    if often() and often():
        given["fee_payer"] = random.choice(("self", "sender", "sender", address_text(USERS[2])))
        given["payer_cap"] = random.choice((0, 1, 10**6, 10**8, 10**8))
    if often() or often():
        given["save_as"] = random.choice(("saved", "saved", "k"))
    if rarely():
        given["bid"] = 1
    if rarely():
        given["max_fee_per_cycle"] = random.choice((-1, 2**96))
    return given


def draw_transaction(random: Random, height: int, price: int, sender: Address, nonce: int) -> Transaction:
    action: Any = Transfer(random.choice(USERS + ACTORS))
    if random.random() < 0.85:
        operations = [draw_operation(random, height, price) for _ in range(random.randrange(1, 7))]
        operations += [
            ["try", ["schedule", draw_schedule(random, height, price, 0)]] for _ in range(random.randrange(7))
        ]
        target = random.choice(ACTORS) if random.random() < 0.95 else USERS[0]
        action = Call(target, "run", json.dumps(operations, separators=(",", ":")).encode())
    return Transaction(
        sender=sender,
        nonce=nonce + (random.random() < 0.03),
        gas_limit=10 * random.choice((99, 100, 1_500, *[2_500] * 9)),
        cells_limit=random.choice((50, *[6_000] * 9)),
        max_fee_per_cycle=random.choice((450, 3_000, 3_000, 5_000)),
        max_priority_fee_per_cycle=random.choice((0, 1, 700, 9_000)),
        max_fee_per_cell=random.choice((450, 3_000, 3_000, 3_000)),
        action=action,
        value=random.choice((0, 0, 10**6)),
        timer_allowance=random.choice((0, 10**8)),
    )


# --- the comparison -------------------------------------------------------------------------------------------------


def compare_chains(seed: int, kind: type[Transition] = Transition) -> Counter[str]:
    """Run one chain through code and specification; counts what was seen. Raises :class:`Mismatch`."""
    random = Random(seed)
    accounts = {user: random.choice((10**8, 10**10, 10**12)) for user in USERS}
    actors = {actor: random.choice((0, 10**8, 10**12, 10**12)) for actor in ACTORS}
    genesis = make_genesis(draw_parameters(random), accounts=accounts, actors=actors)
    chain, world = Chain(genesis, kind), spec_chain(genesis)
    counts: Counter[str] = Counter()
    for _ in range(BLOCKS):
        block = begin(world, PROPOSER)
        offered, expected = [], []
        for salt in range(random.randrange(6)):
            sender = random.choice(USERS)
            nonce = world.nonce.get(sender, 0)
            offered.append(draw_transaction(random, world.height, world.lane_price, sender, nonce))
            expected.append(refusal(block, offered[-1], salt))
        seen = finish(block)
        try:
            refusals, outcome = chain.offer(*offered)
        except (AssertionError, KeyError, Rejection) as error:
            raise Mismatch(f"height {world.height}: {error!r}") from None
        require_equal("refusals", refusals, expected)
        require_equal("receipts", pack(outcome.receipts), encode_receipts(seen))
        require_equal("carried", outcome.carried, block.phase.waits)
        require_equal("state", dict(chain.view.scan(b"")), leaves(world))
        require_equal("conservation", chain.globals.minted, sum(world.balance.values()) + chain.globals.burned)
        counts.update(expected)
        counts.update(transaction.error for transaction in seen.transactions)
        counts.update(f"fire {fire.error}" for fire in seen.fires)
        counts.update(end.reason for end in seen.destroyed)
        counts.update(block.phase.waits.values())
        names = (
            event.name if event.name != "ScriptCaught" else f"caught {event.fields[0][1]}" for event in world.events
        )
        counts.update(names)
    return counts


def refusal(block: BlockRun, transaction: Transaction, salt: int) -> str:
    """Why the specification does not admit a transaction; empty if it executes it."""
    taken = spec_transaction(transaction)._replace(hash=prepare(transaction, salt).hash)
    try:
        execute(block, taken)
    except NotAdmitted as refused:
        return refused.name
    return ""


def require_equal(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Mismatch(f"{what}: the code has {found}, the specification {expected}")


# --- tests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("examples", [50, pytest.param(400, marks=pytest.mark.soak)])
def test_code_and_specification_agree_on_random_chains(examples: int) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=True)
    @given(st.integers(0, 2**32))
    def agree(seed: int) -> None:
        compare_chains(seed)

    agree()


SEEN = (
    "BadNonce FeeTooLow GasTooLow LaneFull InsufficientFunds OutOfCycles OutOfCells ScriptFailed UnknownActor",
    "TimerFeePayerForbidden TimerRejectedBelowBasefee InsufficientBalance NotFound expired insufficient_funds",
    "lane_full gc_budget below_basefee TimerPriorityClampedAtSchedule",
)


@pytest.mark.slow
def test_random_chains_reach_what_they_are_for() -> None:
    counts: Counter[str] = Counter()
    for seed in range(60):
        counts += compare_chains(seed)
    missing = [name for name in " ".join(SEEN).split() if not counts[name]]
    assert not missing, counts
    assert counts["fire "] > 300
    assert counts["fire OutOfCycles"] and counts["fire OutOfCells"] and counts["fire ScriptFailed"]
    for name in ("TimerLimitReached", "TimerPayloadTooLarge", "TimerExpiryInvalid", "TimerGasLimitTooLow"):
        assert counts[name] + counts[f"caught {name}"], counts


# --- planted faults -------------------------------------------------------------------------------------------------


class FiresExpired(Cip1Phase):
    """A block too long."""

    def expire(self) -> None:
        terms, self.terms = self.terms, replace(self.terms, height=self.terms.height - 1)
        super().expire()
        self.terms = terms

    def _kernel_prices(self) -> Any:
        prices = super()._kernel_prices()
        prices["height"] -= np.uint64(1)
        return prices


class SpendsTheWholeGcBudget(TimerPhase):
    def expire(self) -> None:
        kept = self.terms
        self.terms = replace(kept, parameters=replace(kept.parameters, timer_gc_cycles=2 * 10**6))
        super().expire()
        self.terms = kept


class RaisesItsOwnDefault(Cip1Phase):
    def supply(self) -> None:
        super().supply()
        for row in self.index.pool.rows[: self.index.pool.count]:
            if int(row["flags"]) & OPEN_MAX:
                row["max_low"] = self.default_max_fee


class LetsAllThrough(Cip1Phase):
    def candidates(self) -> Iterator[Candidate]:
        yield from super().candidates()
        for row in self.index.pool.living():
            timer = self.world.timer(timer_id_of_row(row))
            if timer is not None and self.price(timer)[0] < self.prices.lane_price:
                yield Candidate(timer.timer_id, self._gas_limit(timer), 0)


class TakesTheWholePriority(Cip1Phase):
    def candidates(self) -> Iterator[Candidate]:
        for candidate in super().candidates():
            timer = self.world.timer(candidate.timer_id)
            yield candidate if timer is None else candidate._replace(tip=self.price(timer)[1])


class SortsUpward(Cip1Phase):
    def candidates(self) -> Iterator[Candidate]:
        return iter(list(super().candidates())[::-1])


class TakesTheOtherTieBreak(Cip1Phase):
    def _kernel_prices(self) -> Any:
        prices = super()._kernel_prices()
        prices["by_id"] = 1 - prices["by_id"]
        return prices


class CountsTheDestroyed(TimerPhase):
    def fire_or_destroy(self, candidate: Candidate) -> bool:
        super().fire_or_destroy(candidate)
        return False


class EndsAtTheFirstMisfit(TimerPhase):
    """As the FIFO phase does."""

    def scan(self, candidates: Iterable[Candidate]) -> None:
        lane = self.terms.parameters.lane_timer_cycles
        super().scan(takewhile(lambda candidate: self.use.cycles + candidate.gas_limit <= lane, candidates))


class IgnoresThePayersCap(TimerPhase):
    def _timer(self, timer_id: bytes) -> Timer:
        return structs.replace(super()._timer(timer_id), payer_cap=None)


class KeepsTheCharge(TimerPhase):
    def settle(self, timer: Timer, candidate: Candidate, meter: Meter, max_cost: int) -> tuple[int, int]:
        return super().settle(timer, candidate, meter, max_cost - 1)


class BurnsTheTip(TimerPhase):
    def settle(self, timer: Timer, candidate: Candidate, meter: Meter, max_cost: int) -> tuple[int, int]:
        burned, tip = super().settle(timer, candidate, meter, max_cost)
        self.use.tips -= tip
        self.use.burned_lane += tip
        return burned + tip, 0


class TooLongAWindow(Transition):
    def _drop_old_fires(self) -> list[Fires]:
        return []


class ForgetsWhatItSupplied(Transition):
    def keep_supplies(self, phase: TimerPhase, ended: list[Timer]) -> None:
        pass


class MissesTheRefund(Transition):
    def execute(self, prepared: PreparedTransaction) -> None:
        super().execute(prepared)
        self.world.debit(prepared.transaction.sender, 1)


class KeepsTheNonce(Transition):
    def run_action(self, prepared: PreparedTransaction, meter: Meter, created: list[Address]) -> RunResult:
        result, transaction = super().run_action(prepared, meter, created), prepared.transaction
        if not result.ok:
            account = self.world.account(transaction.sender)
            self.world.put(account_key(transaction.sender), structs.replace(account, nonce=transaction.nonce))
        return result


class AdmitsBeyondTheLane(Transition):
    def admit(self, transaction: Transaction) -> int:
        used, self.user_lane.cells = self.user_lane.cells, 0
        try:
            return super().admit(transaction)
        finally:
            self.user_lane.cells = used


class MedianOfAll(Transition):
    def close(self, phase: TimerPhase) -> int:
        burned = super().close(phase)
        tips = sorted(number(fire.tip_per_cycle) for fire in phase.fires)
        self.world.globals = structs.replace(self.world.globals, p50_tip=tips[len(tips) // 2] if tips else 0)
        return burned


LANE_FAULTS = (
    FiresExpired,
    SpendsTheWholeGcBudget,
    RaisesItsOwnDefault,
    LetsAllThrough,
    TakesTheWholePriority,
    SortsUpward,
    TakesTheOtherTieBreak,
    CountsTheDestroyed,
    EndsAtTheFirstMisfit,
    IgnoresThePayersCap,
    KeepsTheCharge,
    BurnsTheTip,
)
BLOCK_FAULTS = (TooLongAWindow, ForgetsWhatItSupplied, MissesTheRefund, KeepsTheNonce, AdmitsBeyondTheLane, MedianOfAll)


def is_caught(kind: type[Transition]) -> bool:
    for seed in PLANT_SEEDS:
        try:
            compare_chains(seed, kind)
        except Mismatch:
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("fault", LANE_FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_in_the_timer_phase_is_caught(fault: type[TimerPhase]) -> None:
    assert is_caught(type(fault.__name__, (Transition,), {"phases": phases_with(fault)}))


@pytest.mark.slow
@pytest.mark.parametrize("fault", BLOCK_FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_in_the_transition_is_caught(fault: type[Transition]) -> None:
    assert is_caught(fault)


def test_a_handler_that_keeps_its_effects_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "revert", lambda *_: None)
    assert is_caught(Transition)
