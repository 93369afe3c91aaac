"""The validator against the specification, field by field and leaf by leaf, over generated cases; and whether these
would notice a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import pytest

from cluster.audit.specified import roots
from cluster.audit.specified.chain import spec_chain
from cluster.tools.inspect.conform.case import Page
from cluster.tools.inspect.conform.cases.crowded import crowded_case
from cluster.tools.inspect.conform.cases.made import odd_scripts_case, watch_case
from cluster.tools.inspect.conform.families.table import TABLE
from cluster.tools.inspect.t8n_by_spec import answer_of, execute_page
from spec import tree
from spec.leaves import leaves
from tests.conformance.compare import compare, read, specs_answer, validators_answer
from tests.conformance.mutants import MUTANTS, mutated
from validator.chain.records import Timer
from validator.execution.timer_phase import Candidate, TimerPhase
from validator.policies import auction
from validator.policies.cip1 import Cip1Phase
from validator.primitives.params import TieBreak
from validator.scheduler.fairness import FireCounts
from validator.scheduler.index import SchedulerIndex
from validator.scheduler.rows import timer_id_of_row
from validator.transition.transition import Transition

SEEDS = 250
CHUNK = 25
SOAK_SEEDS = range(1_000_000, 1_005_000)
SOAK_BLOCKS = 60
MADE = {-1: odd_scripts_case, -2: watch_case}
FAMILIES = [name for name in TABLE.families if name != "crowded"]


def disagreements(cases: Iterable[tuple[object, Page, list[Page]]]) -> dict[object, str]:
    """How validator and specification differ, by the name of the case."""
    return {name: how for name, genesis, blocks in cases if (how := compare(genesis, blocks)) is not None}


def family_cases(name: str, seeds: range) -> Iterable[tuple[object, Page, list[Page]]]:
    family = TABLE.families[name]
    for seed in family.of_seeds(seeds):
        case, _ = family.case(seed)
        yield seed, case.genesis, case.blocks


@pytest.mark.parametrize("family", FAMILIES)
def test_agree_on_a_family(family: str) -> None:
    assert disagreements(family_cases(family, range(1))) == {}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_agree_on_more_of_a_family(family: str) -> None:
    assert disagreements(family_cases(family, range(1, 4))) == {}


@pytest.mark.soak
@pytest.mark.parametrize("family", FAMILIES)
def test_agree_on_much_of_a_family(family: str) -> None:
    assert disagreements(family_cases(family, range(4, 150))) == {}


@pytest.mark.parametrize(
    "first",
    [
        0,
        *(
            pytest.param(first, marks=pytest.mark.slow if first < SEEDS // 2 else pytest.mark.soak)
            for first in range(CHUNK, SEEDS, CHUNK)
        ),
    ],
)
def test_agree_on_crowded_cases(first: int) -> None:
    assert disagreements((seed, *crowded_case(seed)) for seed in range(first, first + CHUNK)) == {}


@pytest.mark.parametrize("number", MADE)
def test_agree_on_the_made_cases(number: int) -> None:
    assert compare(*MADE[number]()) is None


@pytest.mark.soak
@pytest.mark.parametrize("first", SOAK_SEEDS[::CHUNK])
def test_agree_at_length(first: int) -> None:
    seeds = range(first, first + CHUNK)
    assert disagreements((seed, *crowded_case(seed, most_blocks=SOAK_BLOCKS)) for seed in seeds) == {}


def test_the_made_case_of_watched_keys_does_what_it_is_for() -> None:
    answer = specs_answer(*watch_case())
    assert all(tx["status"] == "ok" for block in answer["blocks"] for tx in block["txs"])
    fires = [block["height"] for block in answer["blocks"] for _ in block["fires"]]
    assert fires == [3, 5, 7, 9, 13, 14, 23, 25, 26]


@pytest.mark.parametrize("seed", [3, 11])
def test_the_specification_answers_with_the_validators_roots(seed: int) -> None:
    made = crowded_case(seed)
    assert answer_of(*read(*made)) == validators_answer(*made)


def test_a_state_that_was_large_has_no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    genesis, inputs = read(*crowded_case(3))
    world = spec_chain(genesis)
    execute_page(world, inputs[0].proposer, inputs[0].transactions)
    monkeypatch.setattr(roots, "MOST_LEAVES", len(leaves(world)))
    answer = answer_of(genesis, inputs)
    has_root = ["state_root" in block for block in answer["blocks"]]
    assert has_root[0] and has_root == sorted(has_root, reverse=True)
    assert not has_root[-1] and "state_root" not in answer["final"]


def test_a_wrong_root_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tree.KINDS, "root", bytes(32))
    found = compare(*crowded_case(3))
    assert found is not None and found.startswith("height 1: $.state_root: ")


@pytest.mark.parametrize("seed", range(0, SEEDS, 50))
def test_nothing_is_made_or_lost(seed: int) -> None:
    """What the genesis gave is what is there and what was burned."""
    genesis, blocks = crowded_case(seed)
    output = validators_answer(genesis, blocks)
    given = [int(entry["balance"]) for part in ("accounts", "actors") for entry in genesis[part].values()]
    left = sum(account["balance"] for account in output["final"]["accounts"].values())
    assert sum(given) == left + output["final"]["burned"]
    assert output["final"]["burned"] == sum(block["burned"] for block in output["blocks"])


# --- would a fault be noticed? ----------------------------------------------------------------------------------------


LIKELY = [*MADE, *range(SEEDS)]
"""The default cases. A case that noticed a fault comes first: the next fault is mostly of the same part or policy."""


@cache
def case_and_answer(seed: int) -> tuple[tuple[Page, list[Page]], Page]:
    """A default case and the specification's answer."""
    made = crowded_case(seed) if seed >= 0 else MADE[seed]()
    return made, specs_answer(*made)


def is_noticed(notices: Callable[[int], bool]) -> bool:
    """Whether some default case notices a fault."""
    noticed = next((seed for seed in LIKELY if notices(seed)), None)
    if noticed is not None:
        LIKELY.remove(noticed)
        LIKELY.insert(0, noticed)
    return noticed is not None


@pytest.mark.slow
@pytest.mark.parametrize(("name", "module", "old", "new"), MUTANTS, ids=[mutant[0] for mutant in MUTANTS])
def test_a_broken_rule_changes_a_default_case(name: str, module: str, old: str, new: str) -> None:
    with mutated(module, old, new) as answer:

        def notices(seed: int) -> bool:
            made, right = case_and_answer(seed)
            try:
                return answer(*made) != right
            except (AssertionError, LookupError, ArithmeticError):
                return True  # it fell over what the rule keeps away

        assert is_noticed(notices), f"no default case depends on: {name}"


def wrong_tie_break(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_prices = Cip1Phase._kernel_prices

    def of_the_other(self: Cip1Phase) -> Any:
        prices = kernel_prices(self)
        prices["by_id"] = self.terms.parameters.tie_break is TieBreak.AGED
        return prices

    monkeypatch.setattr(Cip1Phase, "_kernel_prices", of_the_other)


def refund_at_the_wrong_price(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = TimerPhase.settle

    def without_tip(self: TimerPhase, timer: Timer, candidate: Candidate, meter: Any, max_cost: int) -> tuple[int, int]:
        unused = meter.cycles_limit - meter.cycles_used
        return settle(self, timer, candidate, meter, max_cost - unused * candidate.tip)

    monkeypatch.setattr(TimerPhase, "settle", without_tip)


def weight_from_the_wrong_median(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_the_highest(self: FireCounts) -> int:
        return max(2, 2 * max(self.by_account.values(), default=0))

    monkeypatch.setattr(FireCounts, "divisor", from_the_highest)


def no_fee_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever bids less than the lane price is taken to bid just that."""
    candidates = Cip1Phase.candidates

    def open_gate(self: Cip1Phase) -> Any:
        yield from candidates(self)
        for row in self.index.pool.living():
            timer = self.world.timer(timer_id_of_row(row))
            if timer is not None and self.price(timer)[0] < self.prices.lane_price:
                yield Candidate(timer.timer_id, self._gas_limit(timer), 0)

    monkeypatch.setattr(Cip1Phase, "candidates", open_gate)


def median_not_wired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auction, "median_tip", lambda _fires, _weight: 0)


def carried_timers_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = SchedulerIndex.begin

    def only_new(self: SchedulerIndex, height: int, dropped: Any) -> None:
        begin(self, height, dropped)
        new = self.pool.rows["trigger"][: self.pool.count] == height
        self.pool.rows["gas_limit"][: self.pool.count][~new] = 2**32 - 1  # over every cap

    monkeypatch.setattr(SchedulerIndex, "begin", only_new)


def messages_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    run_message = Transition.run_message
    monkeypatch.setattr(Transition, "run_message", lambda self, message: 0 * run_message(self, message))


def expiry_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimerPhase, "expire", lambda _self: None)


FAULTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    wrong_tie_break,
    refund_at_the_wrong_price,
    weight_from_the_wrong_median,
    no_fee_gate,
    median_not_wired,
    carried_timers_lost,
    messages_never_end,
    expiry_ignored,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch, fault: Callable[[Any], None]) -> None:
    fault(monkeypatch)
    assert any(compare(*crowded_case(seed)) is not None for seed in range(SEEDS))
