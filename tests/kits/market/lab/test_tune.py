"""The search for a policy's parameters finds a planted optimum, and claims nothing that held-out seeds do not show."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from rich.console import Console

from cluster.commands.cli.main import main
from cluster.common.errors import BadInput, ExitCode
from kits.market.estimates import Cell
from kits.market.lab.experiment import Effort
from kits.market.lab.files import policies_of
from kits.market.lab.tune import LOG_FILE, Problem, Tried, judge, make_problem, parse_constraint, search, summary
from kits.market.metric import Metric
from tests.kits.market.lab.planted import Tiny

EXAMPLE: Final = Path(__file__).resolve().parents[4] / "docs/lab/premium.py"
ROUND = 10


class Hill(Tiny):
    """The measure is greatest at step 20 and most 40. Its cost grows with both."""

    name = "hill"
    metrics = {"y": Metric("height", "metres", "more"), "cost": Metric("cost", "", "less"), "seen": Metric("seeds")}
    shown = ("y",)
    plots = Tiny.plots[:0]  # type: ignore[assignment]

    def value(self, step: int, most: int, seed: int) -> float:
        return -((step - 20) ** 2) - ((most - 40) / 2) ** 2 + Random(seed).random()

    def run(self, cell: Cell, seed: int, effort: Effort) -> dict[str, float]:
        own = dict(self.policies["premium"].parameters)
        return {"y": self.value(own["step"], own["most"], seed), "cost": float(own["step"] + own["most"])}


class Lucky(Hill):
    """Candidates do not differ but by luck: each seed likes others."""

    name = "lucky"

    def value(self, step: int, most: int, seed: int) -> float:
        return Random(f"{step} {most} {seed}").gauss()


def problem(kind: type[Hill] = Hill, candidates: int = 40, keep: tuple[str, ...] = ()) -> Problem:
    policies = policies_of([str(EXAMPLE)])
    experiment = kind().changed(None, None, policies)
    return make_problem(experiment, policies["premium"], "y", keep, (), range(2), range(5, 11), candidates)


def searched(given: Problem, folder: Path) -> list[Tried]:
    return search(given, folder, 1, Console(file=io.StringIO()))


def test_a_planted_optimum_is_found_and_confirmed(tmp_path: Path) -> None:
    given = problem()
    tried = searched(given, tmp_path)
    assert tried[0].values == {"most": 8, "step": 1}, "the defaults come first"
    found = judge(given, tried, 1)
    assert abs(found.best.values["step"] - 20) <= ROUND and abs(found.best.values["most"] - 40) <= ROUND
    assert found.is_confirmed(given.sign)
    page = summary(given, tried, found)
    assert page["held_out"]["confirmed"] and page["held_out"]["seeds"] == [5, 11] and page["candidates"] == 40


def test_luck_is_not_confirmed(tmp_path: Path) -> None:
    given = problem(Lucky)
    tried = searched(given, tmp_path)
    found = judge(given, tried, 1)
    assert found.best.means["y"] > tried[0].means["y"] + 1, "in the search it looks better"
    assert not found.is_confirmed(given.sign)


def test_constraints_hold_for_the_best(tmp_path: Path) -> None:
    given = problem(keep=("cost<=30",))
    found = judge(given, searched(given, tmp_path), 1)
    assert found.holds and found.best.means["cost"] <= 30 and found.is_confirmed(given.sign)
    impossible = problem(keep=("cost>=1000",), candidates=6)
    none = judge(impossible, searched(impossible, tmp_path / "none"), 1)
    assert none.best.values == {"most": 8, "step": 1} and not none.is_confirmed(given.sign)


def test_an_interrupted_search_goes_on_to_the_same_candidates(tmp_path: Path) -> None:
    whole = searched(problem(candidates=14), tmp_path / "whole")
    log = tmp_path / "part" / LOG_FILE
    log.parent.mkdir()
    lines = (tmp_path / "whole" / LOG_FILE).read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:6]) + lines[6][:10])
    assert searched(problem(candidates=14), tmp_path / "part") == whole
    assert log.read_bytes() == (tmp_path / "whole" / LOG_FILE).read_bytes()
    with pytest.raises(BadInput, match=r"belongs to another tuning: its constraints is \[\], expected "):
        searched(problem(keep=("cost<=30",)), tmp_path / "part")


def test_the_policy_of_the_example_is_tuned_on_real_markets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(EXAMPLE, tmp_path)
    command = "--measure wait_mean --keep welfare>=0.1 --at conduct=truthful --at pattern=bursts --candidates 3"
    effort = "--seeds 0:1 --held-out 5:7 --blocks 15 --jobs 1"
    given = ["lab", "tune", "rivals", "--policy", str(tmp_path / "premium.py"), *command.split(), *effort.split()]
    assert main([*given, "--out", str(tmp_path / "out")]) in (ExitCode.PASS, ExitCode.INCONCLUSIVE)
    assert "held out  wait_mean changes by " in capsys.readouterr().out
    page: dict[str, Any] = json.loads((tmp_path / "out/tuning.json").read_text())
    assert page["cells"] == [["truthful", "bursts", "premium"]] and page["candidates"] == 3
    assert page["metric"]["unit"] == "blocks" and page["constraints"] == ["welfare >= 0.1"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--measure welfar", "rivals: unknown measure 'welfar'"),
        ("--measure revenue", "--measure revenue: neither more nor less of it is better by itself"),
        ("--measure welfare --keep welfare=1", "--keep welfare=1: expected MEASURE<=BOUND or MEASURE>=BOUND"),
        ("--measure welfare --keep nothing<=1", "rivals: unknown measure 'nothing'"),
        (
            "--measure welfare --at pattern=calm",
            "--at pattern=calm: expected FACTOR=LEVEL of conduct=truthful|",
        ),
        ("--measure welfare --seeds 3:9 --held-out 8:10", "--held-out: expected seeds that --seeds has not"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], more: str, message: str) -> None:
    assert main(["lab", "tune", "rivals", "--policy", str(EXAMPLE), *more.split()]) == ExitCode.BAD_INPUT
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"stampede: {message}")


def test_a_policy_without_parameters_has_nothing_to_tune(capsys: pytest.CaptureFixture[str]) -> None:
    own = str(EXAMPLE.with_name("patience.py"))
    assert main(["lab", "tune", "rivals", "--policy", own, "--measure", "welfare"]) == ExitCode.BAD_INPUT
    assert "patience.py: states no policy_parameters, so there is nothing to tune" in capsys.readouterr().err


def test_a_constraint_is_read() -> None:
    assert parse_constraint("late.late_max <= 1e-3") == ("late.late_max", True, 0.001)
    assert parse_constraint("y>=-2").excess(-3) == 1
