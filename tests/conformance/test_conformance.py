"""The project against the reference, field by field, over generated cases; and whether these would notice a fault."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cluster.tools.inspect.conform.cases.crowded import crowded_case
from cluster.tools.inspect.conform.cases.made import odd_scripts_case, watch_case
from tests.conformance import reference
from tests.conformance.compare import compare, difference, project_output, without_roots
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
Case = tuple[dict[str, Any], list[dict[str, Any]]]


MADE = {-1: odd_scripts_case, -2: watch_case}


@cache
def case_and_answer(seed: int) -> tuple[Case, dict[str, Any]]:
    """A default case and the reference's output; case -1 is the corpus of scripts, -2 that of watched keys."""
    made = crowded_case(seed) if seed >= 0 else MADE[seed]()
    return made, reference.run(*made)


def disagreement(seed: int) -> str | None:
    """How the project differs from the reference on a default case."""
    made, answer = case_and_answer(seed)
    return difference(without_roots(project_output(*made)), answer)


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
def test_agrees(first: int) -> None:
    found = {seed: how for seed in range(first, first + CHUNK) if (how := disagreement(seed)) is not None}
    assert not found, f"see `python -m tests.conformance.compare {next(iter(found))}`: {found}"


@pytest.mark.parametrize("number", MADE)
def test_agrees_on_the_made_cases(number: int) -> None:
    assert disagreement(number) is None


def test_the_made_case_of_watched_keys_does_what_it_is_for() -> None:
    _, answer = case_and_answer(-2)
    assert all(tx["status"] == "ok" for block in answer["blocks"] for tx in block["txs"])
    fires = [block["height"] for block in answer["blocks"] for _ in block["fires"]]
    assert fires == [3, 5, 7, 9, 13, 14, 23, 25, 26]


@pytest.mark.slow
def test_the_command_writes_the_same(tmp_path: Path) -> None:
    for seed in (3, 11):
        (genesis, blocks), answer = case_and_answer(seed)
        (tmp_path / "g.json").write_text(json.dumps(genesis), encoding="utf-8")
        (tmp_path / "b.json").write_text(json.dumps(blocks), encoding="utf-8")
        arguments = ["--genesis", "g.json", "--blocks", "b.json", "--out", "o.json"]
        root = Path(__file__).parent.parent.parent
        command = [sys.executable, "-m", "cluster.tools.cli.main", "t8n", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(root)}, capture_output=True, check=True)
        assert (done.stdout, done.stderr) == (b"", b"")
        output = json.loads((tmp_path / "o.json").read_text(encoding="utf-8"))
        assert difference(without_roots(output), answer) is None
        roots = [block["state_root"] for block in output["blocks"]]
        assert all(len(bytes.fromhex(root)) == 32 for root in roots)
        assert output["final"]["state_root"] == roots[-1]


@pytest.mark.parametrize("seed", range(0, SEEDS, 50))
def test_nothing_is_made_or_lost(seed: int) -> None:
    """What the genesis gave is what is there and what was burned."""
    (genesis, blocks), _ = case_and_answer(seed)
    output = project_output(genesis, blocks)
    given = [int(entry["balance"]) for part in ("accounts", "actors") for entry in genesis[part].values()]
    left = sum(account["balance"] for account in output["final"]["accounts"].values())
    assert sum(given) == left + output["final"]["burned"]
    assert output["final"]["burned"] == sum(block["burned"] for block in output["blocks"])


@pytest.mark.soak
@pytest.mark.parametrize("first", SOAK_SEEDS[::CHUNK])
def test_agrees_at_length(first: int) -> None:
    found = {
        seed: how
        for seed in range(first, first + CHUNK)
        if (how := compare(*crowded_case(seed, most_blocks=SOAK_BLOCKS))) is not None
    }
    assert not found, f"see `python -m tests.conformance.compare {next(iter(found))} {SOAK_BLOCKS}`: {found}"


# --- would a fault be noticed? ----------------------------------------------------------------------------------------


LIKELY = [*MADE, *range(SEEDS)]
"""The default cases. A case that noticed a fault comes first: the next fault is mostly of the same part or policy."""


def is_noticed(notices: Callable[[int], bool]) -> bool:
    """Whether some default case notices a fault."""
    noticed = next((seed for seed in LIKELY if notices(seed)), None)
    if noticed is not None:
        LIKELY.remove(noticed)
        LIKELY.insert(0, noticed)
    return noticed is not None


@pytest.mark.slow
@pytest.mark.parametrize(("name", "old", "new"), MUTANTS, ids=[name for name, _, _ in MUTANTS])
def test_a_broken_rule_changes_a_default_case(name: str, old: str, new: str) -> None:
    broken = mutated(old, new)

    def notices(seed: int) -> bool:
        (genesis, blocks), answer = case_and_answer(seed)
        try:
            return bool(broken.run(genesis, blocks) != answer)
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
    assert any(disagreement(seed) is not None for seed in range(SEEDS))
