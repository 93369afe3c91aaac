"""Checks of the user's own: a file next to the scenario, or an installed package."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.checks.kind import Judged, shipped
from cluster.checks.run import judge_run
from cluster.checks.verdict import Check, Evaluation
from cluster.commands.explain.outline import outline
from cluster.common.errors import BadInput
from cluster.common.outcome import Outcome
from cluster.common.plugins import CHECKS
from cluster.live.driver.hosts import Hosts
from cluster.scenario import Scenario
from cluster.scenario.code.gate import Gate, code_of, opened
from cluster.scenario.files import load_scenario, scenario_from
from cluster.scenario.sections import success
from cluster.watches.watched_simulation import simulate
from tests.packages import install
from validator.primitives.user_file import nothing_runs

DOCS = Path(__file__).resolve().parents[3] / "docs" / "scenarios.md"
(EVEN,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
SCENARIO = """
name: own-check
validators: 4
load: {users: [{workload: heartbeat, count: 4}, {workload: transfer, count: 2}]}
stop: {height: 20}
success:
  heights_compared: 10
  transactions: 5
  fires: 5
  checks: [./even.py]
  metrics: {even_least_blocks: {at_least: 1}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "even.py").write_text(EVEN, encoding="utf-8")
    (tmp_path / "scenario.yaml").write_text(SCENARIO, encoding="utf-8")
    return tmp_path


def judged(folder: Path, source: str = EVEN) -> Judged:
    (folder / "even.py").write_text(source, encoding="utf-8")
    with opened(Gate(allows=False)):
        return judge_run(simulate(load_scenario(folder / "scenario.yaml"), 1))


def refusal(folder: Path, source: str, text: str = SCENARIO) -> str:
    """Why a scenario cannot be run."""
    (folder / "even.py").write_text(source, encoding="utf-8")
    (folder / "scenario.yaml").write_text(text, encoding="utf-8")
    with opened(Gate(allows=True)), pytest.raises(BadInput) as caught:
        load_scenario(folder / "scenario.yaml")
    return str(caught.value).removeprefix(f"{folder / 'scenario.yaml'}: ")


def test_it_judges_measures_and_is_counted_like_any_other(folder: Path) -> None:
    found = judged(folder)
    assert found.verdict.outcome is Outcome.PASS, found.verdict
    names = [check.name for check in found.verdict.checks]
    assert names == [*(kind.name for kind in shipped()[:-2]), "even", "no_problems", "coverage"]
    least = found.metrics["even_least_blocks"]
    assert found.verdict.check("even").detail.partition("; ")[2].startswith(f"proposed {least:.0f} to ")
    assert f"even_least_blocks {least:.0f}, at least 1 required" in found.verdict.check("criteria").detail
    assert Evaluation("even: blocks", found.books.ledger.height, 10) in found.verdict.evaluations


def test_one_that_fails_fails_the_run(folder: Path) -> None:
    found = judged(folder, EVEN.replace("MOST_TIMES = 3", "MOST_TIMES = 0")).verdict
    assert found.outcome is Outcome.FAIL and found.reason.startswith("even: ")


def test_too_few_evaluations_are_told_by_coverage(folder: Path) -> None:
    found = judged(folder, EVEN.replace("self.times[", "{}[")).verdict
    assert found.check("coverage").detail == "too seldom evaluated: even: blocks 0 times of 10"


def test_one_with_nothing_to_judge_passes_and_evaluates_nothing(folder: Path) -> None:
    verdict = judged(folder, f"{EVEN}\n    def idle(self):\n        return 'all are odd'\n").verdict
    assert verdict.check("even") == Check("even", Outcome.PASS, "all are odd", applies=False)
    assert verdict.outcome is Outcome.PASS and not [each for each in verdict.evaluations if "even" in each.rule]


@pytest.mark.parametrize("method", ["judge", "idle", "measure", "needed"])
def test_an_error_in_it_leaves_the_run_judged(folder: Path, method: str) -> None:
    source = f"{EVEN}\n    def {method}(self):\n        return {{}}['nothing']\n"
    line = source.splitlines().index("        return {}['nothing']") + 1
    (folder / "scenario.yaml").write_text(SCENARIO.replace("  metrics:", "  # metrics:"), encoding="utf-8")
    verdict = judged(folder, source).verdict
    expected = f"file even.py, line {line}: KeyError: 'nothing'"
    assert verdict.check("even") == Check("even", Outcome.INCONCLUSIVE, expected)
    assert verdict.check("chain").verdict is Outcome.PASS


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("__init__(self, run): 1 / 0", "file even.py, line {line}: ZeroDivisionError: division by zero"),
        (
            "__init__(self, run): pass",
            "file even.py, line {books}: AttributeError: 'Even' object has no attribute ",
        ),
        ("measure(self): return {'most_blocks': 1}", "it measures most_blocks, which METRICS does not name"),
        (
            "judge(self): self.times['even: blocks'] = 'x'; return 'pass', ''",
            "'str' object cannot be interpreted as ",
        ),
        ("needed(self): return {'even: blocks': 0.5}", "'float' object cannot be interpreted as an integer"),
        ("judge(self): return 'good', ''", "ValueError: 'good' is not a valid Outcome"),
    ],
)
def test_what_it_does_wrong_is_inconclusive_with_file_and_line(folder: Path, method: str, expected: str) -> None:
    source = f"{EVEN}\n    def {method}\n"
    lines = EVEN.splitlines()
    (folder / "scenario.yaml").write_text(SCENARIO.replace("  metrics:", "  # metrics:"), encoding="utf-8")
    check = judged(folder, source).verdict.check("even")
    books = next(n for n, line in enumerate(lines, 1) if "Counter(self.books" in line)
    assert check.verdict is Outcome.INCONCLUSIVE
    assert check.detail.startswith("file even.py")
    assert expected.format(line=len(lines) + 2, books=books) in check.detail


def test_its_figures_are_one_line(folder: Path) -> None:
    found = judged(folder, EVEN.replace("blocks; proposed", "blocks;\\n proposed")).verdict.check("even")
    assert found.verdict is Outcome.PASS and " blocks; proposed " in found.detail


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("RULES = (", "SUBJECT = 'odd'; RULES = (", "SUBJECT: expected a Subject other than COVERAGE, got 'odd'"),
        (
            "RULES = (",
            "SUBJECT = type(CheckKind.SUBJECT).COVERAGE; RULES = (",
            "SUBJECT: expected a Subject other",
        ),
        (
            '("even: blocks",)',
            '"even: b"',
            r"RULES: expected a tuple of texts like even: \S.*, got 'even: b'",
        ),
        (
            '("even: blocks",)',
            '("same block",)',
            r"RULES: expected a tuple of texts like even: \S.*, got ('same ",
        ),
        ('("least_blocks",)', '"ab"', "METRICS: expected a tuple of texts like [a-z][a-z0-9_]*, got 'ab'"),
        ('("least_blocks",)', '("Least blocks",)', "METRICS: expected a tuple of texts like [a-z][a-z0-9_]*, got ("),
        ("def judge", "def judges", "expected a class that has judge, and none of check, measurements, evaluations"),
        ("def judge", "def check", "expected a class that has judge, and none of check, measurements, evaluations"),
        ("def judge", "def __init__(self, run, more): ...\n    def judge", "missing a required argument: 'more'"),
        ("(CheckKind)", "(CheckKind.__base__)", "expected a subclass of CheckKind, got "),
    ],
)
def test_a_class_that_does_not_fit_is_refused_before_the_run(folder: Path, old: str, new: str, expected: str) -> None:
    assert old in EVEN
    assert expected in refusal(folder, EVEN.replace(old, new))


def test_no_metric_that_ships_is_replaced(folder: Path) -> None:
    source = EVEN.replace("even: ", "lateness: ").replace("least_blocks", "max_blocks")
    (folder / "lateness.py").write_text(source, encoding="utf-8")
    text = SCENARIO.replace("./even", "./lateness").replace("even_least_blocks", "lateness_max_blocks")
    expected = "METRICS: a metric that ships is named lateness_max_blocks; expected another name"
    assert refusal(folder, EVEN, text).endswith(expected)


def test_only_metrics_that_a_check_names_have_bounds(folder: Path) -> None:
    assert refusal(folder, EVEN, SCENARIO.replace("even_least", "even_lest")) == (
        "success.metrics.even_lest_blocks: unknown metric; did you mean even_least_blocks?"
    )
    other = EVEN.replace("even: ", "even_least: ").replace('("least_', '("')
    (folder / "even_least.py").write_text(other, encoding="utf-8")
    both = SCENARIO.replace("[./even.py]", "[./even.py, ./even_least.py]")
    assert refusal(folder, EVEN, both) == "success.checks: two checks measure even_least_blocks"


def test_what_is_wrong_is_found_before_the_run(folder: Path) -> None:
    assert refusal(folder, "x = 1 / 0\n").startswith("success.checks[0]: file even.py, line 1: ZeroDivisionError")
    assert refusal(folder, "x = 1\n").endswith("ValueError: expected one class of a check, got none")
    (folder / "chain.py").write_text(EVEN, encoding="utf-8")
    assert refusal(folder, EVEN, SCENARIO.replace("even", "chain")).endswith(
        "a check that ships is named chain; expected another name"
    )
    twice = SCENARIO.replace("[./even.py]", "[./even.py, ./even.py]")
    assert refusal(folder, EVEN, twice) == "success.checks: a check is named twice"
    assert refusal(folder, EVEN, SCENARIO.replace("even_least", "odd_least")).startswith(
        "success.metrics.odd_least_blocks: unknown metric; "
    )
    assert refusal(folder, EVEN, SCENARIO.replace("./even.py", "even")) == (
        "success.checks[0]: no installed package has the check 'even'"
    )


def test_reading_and_explaining_execute_nothing_and_the_gate_sees_it(folder: Path) -> None:
    (folder / "even.py").write_text("raise SystemExit('executed')\n", encoding="utf-8")
    with nothing_runs():
        scenario = load_scenario(folder / "scenario.yaml")
        tables = {table.title: table.rows for table in outline(scenario)}
    assert tables["Checks"][-1] == ("even", "as even.py has it")
    assert [(code.place, code.name) for code in code_of(scenario)] == [("success.checks[0]", "even.py")]
    inside = {"name": "a", "success": {"checks": [{"name": "even", "source": EVEN}]}}
    with opened(Gate(allows=False)), pytest.raises(BadInput, match=r"has code inside, even\.py \(success\.checks"):
        scenario_from(inside)
    with pytest.raises(ValueError, match="is a path, which only a scenario that is read from a file may have"):
        Scenario.model_validate({"name": "a", "success": {"checks": ["./even.py"]}})


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that registers the check ``even``, and under another name, too."""
    points = f"[{CHECKS}]\neven = their_checks:Even\nodd = their_checks:Even\n"
    install(tmp_path / "theirs", "their_checks", points, f'{EVEN}\n    name = "even"\n')
    monkeypatch.syspath_prepend(tmp_path / "theirs")
    success.check_of.cache_clear()
    yield
    success.check_of.cache_clear()
    sys.modules.pop("their_checks", None)


def test_a_package_registers_a_check_which_judges_the_runs_that_name_it(package: None, folder: Path) -> None:
    (folder / "scenario.yaml").write_text(SCENARIO.replace("./even.py", "even"), encoding="utf-8")
    record = simulate(load_scenario(folder / "scenario.yaml"), 1)
    assert judge_run(record).verdict.check("even").verdict is Outcome.PASS
    odd = SCENARIO.replace("./even.py", "odd").replace("even_least", "odd_least")
    (folder / "scenario.yaml").write_text(odd, encoding="utf-8")
    offered = "their_checks: their_checks:Even, its stampede.checks odd, cannot be used"
    with opened(Gate(allows=False)), pytest.raises(BadInput, match=f"^{offered}: .*a class whose name is 'odd', got "):
        load_scenario(folder / "scenario.yaml")
    with pytest.raises(ValueError, match=r"unknown check 'evn'; did you mean even\?"):
        Scenario.model_validate({"name": "a", "success": {"checks": ["evn"]}})


def test_an_error_in_a_check_of_a_package_leaves_the_run_judged(package: None, folder: Path, tmp_path: Path) -> None:
    source = f'{EVEN}\n    name = "even"\n    def __init__(self, run): 1 / 0\n'
    file = tmp_path / "theirs" / "their_checks.py"
    file.write_text(source, encoding="utf-8")
    (folder / "scenario.yaml").write_text(SCENARIO.replace("./even.py", "even"), encoding="utf-8")
    verdict = judge_run(simulate(load_scenario(folder / "scenario.yaml"), 1)).verdict
    expected = f"file {file}, line {len(source.splitlines())}: ZeroDivisionError: division by zero"
    assert verdict.check("even") == Check("even", Outcome.INCONCLUSIVE, expected)
    assert verdict.check("chain").verdict is Outcome.PASS


def sent_to_a_host(scenario: Scenario) -> Any:
    """The scenario that a host gets, as JSON."""
    sent: list[Any] = []
    session = SimpleNamespace(start_host=lambda *arguments: sent.append(arguments[3][1]))
    host = SimpleNamespace(validators=(0,), processes=SimpleNamespace(), place=SimpleNamespace(bind=""))
    host.number, host.release, host.actor_name = 0, None, ""
    hosts: Any = SimpleNamespace(_session=session, nodes=SimpleNamespace(lease_s=None))
    Hosts._begin(hosts, scenario, 1, Path())
    hosts._start_actor(host)
    return sent[0]


def test_a_host_gets_no_check_and_so_needs_no_package(package: None) -> None:
    given = {"name": "a", "success": {"checks": ["even"], "metrics": {"even_least_blocks": {"at_least": 1}}}}
    assert Scenario.model_validate_json(sent_to_a_host(Scenario.model_validate(given))) == Scenario(name="a")


def test_the_page_of_operations_has_a_row_for_each_that_ships() -> None:
    text = DOCS.with_name("operations.md").read_text(encoding="utf-8").partition("| check | fails if |\n")[2]
    assert re.findall(r"^\| `(\w+)` \|", text.partition("\n\n")[0], re.MULTILINE) == [k.name for k in shipped()]
