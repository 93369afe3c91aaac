"""The best candidates in the simulator: when one counts as confirmed, and what a whole search leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from cluster.common.interrupts import Interrupts
from cluster.scenario import Scenario
from cluster.scenario.files import load_scenario
from cluster.scenario.sections.chain import OwnPolicy
from kits.market.dos.search import confirming, search_run
from kits.market.dos.search.confirming import CONFIRM_SEEDS, confirm, confirmed, simulated_attack
from kits.market.dos.search.evaluation import Found, Problem
from kits.market.dos.search.objectives import NOTHING, OBJECTIVES, Fitness
from kits.market.dos.search.search_run import FOUND_FILE, without_attackers
from kits.market.dos.search.searching import Line
from kits.market.dos.search.space import Attack
from tests.kits.market.dos.search.planted import WEAKNESSES
from tests.kits.market.dos.search.test_objectives import PLAIN
from tests.kits.market.dos.search.test_objectives import found as does
from tests.validator.policies.own_policies import DEADLINES

ATTACK: Attack = [{"timers": 40}]
LINE = Line(7, Fitness(1.0, 0.6, 0.0), 0.6, 1.0, ATTACK)


def starves(share: float) -> Found:
    """What an attack does that keeps this share of the honest fires from happening."""
    return Found(Fitness(1.0, share, 0.0), does(honest_fires_ratio=1.0 - share))


class MadeUp(Problem):
    """Each attack starves six tenths on the trial chain."""

    def evaluate(self, attack: Attack, *_: Any, **__: Any) -> Found:
        return starves(0.6)


def problem() -> Problem:
    real = WEAKNESSES["free-actors"].problem(is_planted=True)
    return MadeUp(real.scenario_json, real.objective_name, real.budget, real.seed, real.blocks)


@pytest.mark.parametrize(
    ("shares", "is_confirmed"),
    [((0.6, 0.5, 0.31), True), ((0.6, 0.5, 0.29), False), ((0.1, 0.6, 0.6), False), ((0.9, 0.9, 0.9), True)],
)
def test_an_attack_is_confirmed_by_half_of_its_harm_with_every_seed(
    shares: tuple[float, ...], is_confirmed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = dict(zip(range(1, 1 + CONFIRM_SEEDS), shares, strict=True))
    monkeypatch.setattr(confirming, "simulated_attack", lambda problem, *_: starves(seeds[problem.seed]))
    (found,) = confirm(problem(), [LINE], 1, Interrupts())
    assert found.is_confirmed == is_confirmed
    assert [run.fitness.figure for run in found.simulated] == list(shares)
    assert found.worst.fitness.figure == min(shares)


def test_an_attack_without_harm_is_not_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirming, "simulated_attack", lambda *_: Found(NOTHING, PLAIN))
    monkeypatch.setattr(MadeUp, "evaluate", lambda self, attack: starves(0.0))
    assert not confirmed(problem(), LINE).is_confirmed


@pytest.mark.parametrize(
    ("name", "fields", "harm"),
    [
        ("lateness", {"lateness_p99": 9.0, "lateness_p99_added": 4.0}, 4.0),
        ("lateness", {"lateness_p99": None, "lateness_p99_added": None}, 0.0),
        ("starvation", {"honest_fires_ratio": 0.75}, 0.25),
        ("starvation", {"honest_fires_ratio": 1.5}, 0.0),
        ("block_time", {"block_cycles_ratio": 3.0}, 2.0),
        ("spend_ratio", {"delay_blocks": 60.0, "spend": 120.0, "spend_per_block_of_delay": 2.0}, 0.5),
    ],
)
def test_harm_is_what_an_attack_adds(name: str, fields: dict[str, Any], harm: float) -> None:
    reached = Fitness(1.0, 0.0, 0.0)
    assert OBJECTIVES[name].harm(reached, does(**fields)) == harm
    assert OBJECTIVES[name].harm(NOTHING, does(**fields)) == 0.0


@pytest.fixture(scope="module")
def weak_chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scenario with a planted weakness."""
    scenario = WEAKNESSES["free-actors"].problem(is_planted=True).scenario
    file = tmp_path_factory.mktemp("weak") / "weak.yaml"
    file.write_text(yaml.safe_dump(scenario.model_dump(mode="json", exclude_unset=True)), encoding="utf-8")
    return file


def search(scenario: Path, folder: Path) -> int:
    arguments = ["--objective", "starvation", "--budget", "2e12", "--blocks", "40", "--candidates", "24", "--seed", "1"]
    ends = ["--confirm", "1", "--processes", "1", "--out", str(folder)]
    return main(["dos", "search", str(scenario), *arguments, *ends])


@pytest.mark.slow
def test_what_was_found_can_be_run_and_does_the_same(
    weak_chain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert search(weak_chain, tmp_path / "search") == ExitCode.PASS
    assert "in the simulator with seeds 1 to 3" in capsys.readouterr().out
    (found,) = json.loads((tmp_path / "search/summary.json").read_text())["found"]
    assert found["confirmed"] and found["seeds"] == [1, 2, 3] and min(found["simulator"]) > 0.1
    scenario = load_scenario(tmp_path / "search" / FOUND_FILE)
    attackers = [group for group in scenario.load.users if group.is_attack]
    assert len(attackers) == len(found["attack"])
    again = problem_of(scenario)
    for seed, figure in zip(found["seeds"], found["simulator"], strict=True):
        run = simulated_attack(replace(again, seed=seed), found["attack"])
        assert again.objective.figure(run.effect) == figure
    assert main(["run", str(tmp_path / "search" / FOUND_FILE), "--backend", "sim", "--out", str(tmp_path / "run")]) == 0


def test_a_search_takes_the_policies_that_a_scorecard_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[Any, str]] = []

    def note(problem: Problem, command: str, *_: object) -> int:
        chain = problem.scenario.chain
        asked.append(((chain.policy, chain.preset), command))
        return 0

    monkeypatch.setattr(search_run, "run_search", note)
    own = tmp_path / "deadlines.py"
    own.write_text(DEADLINES, encoding="utf-8")
    for policy in ("hardened", "fifo", str(own)):
        assert main(["dos", "search", "narrow-lanes", "--budget", "5e13", "--policy", policy]) == 0
    chains, commands = zip(*asked, strict=True)
    assert chains == (("cip1", "hardened"), ("fifo", None), (OwnPolicy(name="deadlines", source=DEADLINES), None))
    assert all(
        f" --policy {policy} " in command for policy, command in zip(("hardened", "fifo", own), commands, strict=True)
    )
    assert main(["dos", "search", "--budget", "5e13", "--policy", "lifo"]) == ExitCode.BAD_INPUT
    assert "--policy: unknown policy 'lifo'" in capsys.readouterr().err


def problem_of(scenario: Scenario) -> Problem:
    """The problem of the search above, made of what it wrote."""
    text = json.dumps(without_attackers(scenario).model_dump(mode="json", exclude_unset=True))
    return Problem(text, "starvation", 2 * 10**12, 1, 40)


@pytest.mark.slow
def test_what_the_simulator_does_not_confirm_is_not_written(
    weak_chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(confirming, "simulated_attack", lambda *_: Found(NOTHING, PLAIN))
    assert search(weak_chain, tmp_path) == ExitCode.INCONCLUSIVE
    assert "not confirmed, below 50% of its harm" in capsys.readouterr().out
    assert not (tmp_path / FOUND_FILE).exists()
    assert not json.loads((tmp_path / "summary.json").read_text())["found"][0]["confirmed"]
