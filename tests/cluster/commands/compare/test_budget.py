"""The regression gate: what is worse than its budget fails, what cannot be said is no pass, wrong files are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from cluster.commands.cli.main import main
from cluster.commands.compare.budget import Finding, exit_code, judge_budget, read_budget
from cluster.commands.compare.comparison import Comparison, compare
from cluster.commands.compare.groups import read_group
from cluster.common.checkout import ROOT
from cluster.common.errors import BadInput, ExitCode
from cluster.common.outcome import Outcome
from tests.cluster.commands.compare.folders import drawn, write_run, write_sweep

SEEDS = range(20)
LATENCY = "finality_latency_p50_ms"
MEANS = {LATENCY: 60.0, "fires_per_second": 40.0, "blocks": 9.0}


def sweeps(root: Path, seeds: range = SEEDS, factors: Mapping[str, float] = {}) -> tuple[Path, Path]:
    """Two sweeps of the same seeds; the means of B are those of A times a factor."""
    one = drawn(seeds, Random(1), **MEANS)
    random = Random(2)
    two = {
        seed: {name: value * factors.get(name, 1.0) * random.gauss(1, 0.001) for name, value in found.items()}
        for seed, found in one.items()
    }
    return write_sweep(root / "a", seeds, one), write_sweep(root / "b", seeds, two)


def compared(*folders: Path) -> Comparison:
    first, second = folders
    return compare(read_group([first]), read_group([second]), 1)


def budget_file(root: Path, text: str) -> Path:
    path = root / "budget.yaml"
    path.write_text(text)
    return path


def judged(root: Path, text: str, seeds: range = SEEDS, factors: Mapping[str, float] = {}) -> list[Finding]:
    return judge_budget(compared(*sweeps(root, seeds, factors)), read_budget(budget_file(root, text)))


@pytest.mark.parametrize(
    ("allowed", "factor", "outcome"),
    [
        ("10%", 1.05, Outcome.PASS),
        ("10%", 1.2, Outcome.FAIL),
        ("0%", 1.01, Outcome.FAIL),
        ("0%", 0.8, Outcome.PASS),
        ("10", 1.1, Outcome.PASS),
        ("10", 1.3, Outcome.FAIL),
        ("{less: 10%}", 0.8, Outcome.FAIL),
        ("{less: 10%}", 1.5, Outcome.PASS),
    ],
)
def test_what_is_significantly_worse_than_its_budget_fails(
    tmp_path: Path, allowed: str, factor: float, outcome: Outcome
) -> None:
    (finding,) = judged(tmp_path, f"metrics: {{{LATENCY}: {allowed}}}", factors={LATENCY: factor})
    assert finding.outcome is outcome, finding.text
    assert finding.text.startswith(f"{LATENCY}: ")


def test_a_metric_for_which_more_is_better_gets_worse_by_falling(tmp_path: Path) -> None:
    (finding,) = judged(tmp_path, "metrics: {fires_per_second: 5%}", factors={"fires_per_second": 0.9})
    assert finding.outcome is Outcome.FAIL and "5 % less" in finding.text


def test_metrics_that_are_not_in_the_budget_decide_nothing(tmp_path: Path) -> None:
    findings = judged(tmp_path, "metrics: {fires_per_second: 5%}", factors={LATENCY: 2.0})
    assert exit_code(findings) == ExitCode.PASS


def test_p_values_are_adjusted_for_the_metrics_of_the_budget(tmp_path: Path) -> None:
    """Six pairs are enough for one metric, and too few for two."""
    text = f"metrics: {{{LATENCY}: 0%}}"
    assert [each.outcome for each in judged(tmp_path / "one", text, range(6), factors={LATENCY: 2.0})] == [Outcome.FAIL]
    both = f"metrics: {{{LATENCY}: 0%, fires_per_second: 0%}}"
    outcomes = [each.outcome for each in judged(tmp_path / "two", both, range(6), factors={LATENCY: 2.0})]
    assert outcomes == [Outcome.INCONCLUSIVE] * 2


def test_too_few_runs_are_no_pass(tmp_path: Path) -> None:
    (finding,) = judged(tmp_path, f"metrics: {{{LATENCY}: 0%}}", range(3), factors={LATENCY: 2.0})
    assert finding.outcome is Outcome.INCONCLUSIVE and "too few" in finding.text


def test_a_metric_of_one_group_alone_is_no_pass(tmp_path: Path) -> None:
    one, two = drawn(SEEDS, Random(1), **MEANS), drawn(SEEDS, Random(2), fires_per_second=40.0)
    folders = write_sweep(tmp_path / "a", SEEDS, one), write_sweep(tmp_path / "b", SEEDS, two)
    budget = read_budget(budget_file(tmp_path, f"metrics: {{{LATENCY}: 0%}}"))
    (finding,) = judge_budget(compared(*folders), budget)
    assert finding.outcome is Outcome.INCONCLUSIVE and "only one of the groups" in finding.text


def test_a_metric_that_is_the_same_in_all_runs_is_within_its_budget(tmp_path: Path) -> None:
    folders = write_sweep(tmp_path / "a", SEEDS), write_sweep(tmp_path / "b", SEEDS)
    (finding,) = judge_budget(compared(*folders), read_budget(budget_file(tmp_path, f"metrics: {{{LATENCY}: 0%}}")))
    assert finding.outcome is Outcome.PASS


def test_constants_that_differ_are_a_difference(tmp_path: Path) -> None:
    folders = [
        write_sweep(tmp_path / name, SEEDS, {seed: {"heights": 50.0, LATENCY: value} for seed in SEEDS})
        for name, value in (("a", 60.0), ("b", 90.0))
    ]
    (finding,) = judge_budget(compared(*folders), read_budget(budget_file(tmp_path, f"metrics: {{{LATENCY}: 10%}}")))
    assert finding.outcome is Outcome.FAIL


def test_metrics_of_two_single_runs_are_not_tested(tmp_path: Path) -> None:
    folders = write_run(tmp_path / "a"), write_run(tmp_path / "b", metrics={"heights": 50.0, LATENCY: 90.0})
    (finding,) = judge_budget(compared(*folders), read_budget(budget_file(tmp_path, f"metrics: {{{LATENCY}: 0%}}")))
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert exit_code(judge_budget(compared(*folders), None)) == ExitCode.INCONCLUSIVE


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("metrics: {", "no YAML"),
        ("[]", "expected one field, metrics"),
        ("metrics: {a: 1}\nmore: 2", "expected one field, metrics"),
        ("metrics: {}", "names no metric"),
        (f"metrics: {{{LATENCY}: 1%, {LATENCY}: 2%}}", "is given twice"),
        ("metrics: {blocks: 10%}", "metrics.blocks: has no clear direction"),
        ("metrics: {blocks: {worse: 10%}}", "expected more or less"),
        ("metrics: {1: 10%}", "1 is no name"),
        *((f"metrics: {{{LATENCY}: {bad}}}", "expected a share such as 10%") for bad in ("-1", "ten", "-5%", ".inf")),
        (f"metrics: {{{LATENCY}: true}}", "expected a share such as 10%"),
        (f"metrics: {{{LATENCY}: }}", "expected a share such as 10%"),
    ],
)
def test_a_wrong_budget_is_one_line(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_budget(budget_file(tmp_path, text))
    assert reason in str(caught.value) and "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "budget.yaml"))


def test_the_documented_budget_can_be_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.S)
    assert [each.text for each in read_budget(budget_file(tmp_path, text)).values()] == [
        "10 % more",
        "5 % less",
        "500 more",
        "2 % less",
    ]


def test_a_metric_that_no_run_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match="unknown metric 'finality_latency_p5_ms'; known: blocks, finality_latency_p50_ms"
    ):
        judged(tmp_path, "metrics: {finality_latency_p5_ms: 1}")


def test_the_command_is_a_gate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    folders = [str(folder) for folder in sweeps(tmp_path, factors={LATENCY: 1.2})]
    budget = str(budget_file(tmp_path, f"metrics: {{{LATENCY}: 10%, fires_per_second: 10%}}"))
    target = tmp_path / "c.json"
    gate = ["compare", *folders, "--fail-on", "worse"]
    assert main([*gate, "--budget", budget, "--json", str(target)]) == ExitCode.FAIL
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("fail  ")] == [
        line for line in lines if f"{LATENCY}: worse than its budget (10 % more)" in line and "::" not in line
    ]
    assert sum(line.startswith("::error title=compare::") for line in lines) == 1
    assert lines[-1] == "budget  1 metric within, 1 worse, 0 inconclusive"
    verdicts = {each["metric"]: each["verdict"] for each in json.loads(target.read_text())["budget"]}
    assert verdicts == {LATENCY: "fail", "fires_per_second": "pass"}
    assert main(gate) == ExitCode.FAIL, "without a file nothing may get worse"
    assert main(["compare", *folders]) == ExitCode.PASS
    assert main(["compare", *folders, "--budget", budget]) == ExitCode.BAD_INPUT
    loose = str(budget_file(tmp_path, f"metrics: {{{LATENCY}: 30%}}"))
    assert main([*gate, "--budget", loose]) == ExitCode.PASS
