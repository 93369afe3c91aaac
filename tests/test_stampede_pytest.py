"""The pytest plugin, in suites outside of this project, by the entry point through which pytest finds it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.validator.policies.own_policies import DEADLINES

ROOT = Path(__file__).resolve().parents[1]
SCENARIO = """
name: mine
validators: {count: 2, hosts: 1}
consensus: {block_interval_ms: 100}
load: {users: [{workload: heartbeat, count: 2, interval_ms: 300}]}
stop: {height: 10, drain_blocks: 2, timeout_s: 60}
success: {heights_compared: 5, transactions: 1, fires: 1}
"""
LOCUSTFILE = """
from locust import FastHttpUser, task

class Reader(FastHttpUser):
    @task
    def look(self):
        self.client.get("/status")
"""
UNREACHABLE = "success.fires=1000"
"""With it a run is inconclusive."""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A project with a scenario, and no tests yet."""
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "mine.yaml").write_text(SCENARIO, encoding="utf-8")
    return tmp_path / "suite"


def session(suite: Path, text: str = "", *options: str) -> tuple[int, str]:
    """The exit code and output of pytest with tests of this text. Its working directory is the one above theirs."""
    if text:
        (suite / "test_mine.py").write_text(text, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    folders = [f"--rootdir={suite}", f"--basetemp={suite.parent / 'temporary'}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *folders, *options, str(suite)],
        cwd=suite.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_session_without_its_tests_loads_nothing_of_the_harness(suite: Path) -> None:
    text = (
        "def test_it():\n    import sys\n    assert 'stampede_pytest' in sys.modules and 'cluster' not in sys.modules\n"
    )
    assert session(suite, text)[0] == 0


@pytest.mark.slow
def test_a_failed_test_names_its_runs_reports_and_commands(suite: Path) -> None:
    text = f"""
import pytest

def test_passes(stampede):
    outcome = stampede.simulate("mine.yaml", seed=7)
    assert outcome.passed, outcome.explain()
    assert outcome.record.seed == 7 and outcome.folder is None

@pytest.mark.stampede(seeds=range(2), settings=["{UNREACHABLE}"])
def test_fails(stampede):
    stampede.simulate("mine.yaml", seed=5, settings=["success.fires=1"])
    assert stampede.simulate("mine.yaml").passed
"""
    code, output = session(suite, text, "--stampede-out=kept")
    assert code == 1 and "2 failed, 1 passed" in output
    for seed in range(2):
        assert f"\nmine, seed {seed}, sim: inconclusive: load: " in output
    assert output.count("\nmine, seed 5, sim: pass\nreport   ") == 2
    reports = [Path(path) for path in re.findall(r"^report   (.*)$", output, re.MULTILINE)]
    assert len(set(reports)) == 4 and all(report.is_file() for report in reports)
    assert {report.parents[2] for report in reports} == {suite.parent / "kept"}
    *_, command = re.findall(r"^again    (.*)$", output, re.MULTILINE)
    again = [sys.executable, "-m", "cluster.commands.cli.main", *shlex.split(command, comments=True)[1:]]
    done = subprocess.run([*again, "--out", "again"], cwd=suite.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "1,000 needed" in done.stdout


@pytest.mark.slow
def test_a_report_that_cannot_be_written_is_said_in_its_place(suite: Path) -> None:
    (suite.parent / "kept").touch()
    text = "def test_fails(stampede):\n    assert stampede.simulate('mine.yaml', seed=7) is None\n"
    code, output = session(suite, text, "--stampede-out=kept")
    assert code == 1 and "1 failed" in output and "INTERNALERROR" not in output
    assert "\nmine, seed 7, sim: pass\nreport   none: " in output and "\nagain " not in output


@pytest.mark.slow
def test_seeds_are_the_same_tests_in_any_number_of_processes(suite: Path) -> None:
    text = """
import pytest

@pytest.mark.stampede(seeds=[3, 18446744073709551615])
def test_it(stampede):
    assert stampede.simulate("mine.yaml").record.seed == stampede.seed
"""
    code, output = session(suite, text, "-n", "2", "-v")
    assert code == 0, output
    assert all(f"test_it[seed {seed}]" in output for seed in (3, 2**64 - 1))


@pytest.mark.parametrize(
    ("mark", "problem"),
    [
        ("seeds=[1, -1]", "seeds: -1 is not a seed: expected an integer from 0 to 2**64 - 1"),
        ("seed=1", "the argument 'seed' is unknown; expected seeds=… or settings=…"),
        ("[1]", "a positional argument is unknown; expected seeds=… or settings=…"),
        ("seeds=[]", "seeds: none; expected at least one, such as range(5)"),
        ("seeds=1", "seeds: 1: expected several seeds, such as range(5)"),
        ("settings='links.loss=0.1'", "settings: expected a list of settings, got 'links.loss=0.1'"),
    ],
    ids=["no seed", "unknown", "positional", "no seeds", "one seed", "one setting"],
)
def test_a_wrong_mark_is_one_line(suite: Path, mark: str, problem: str) -> None:
    text = f"import pytest\n@pytest.mark.stampede({mark})\ndef test_it(stampede):\n    pass\n"
    code, output = session(suite, text)
    assert code == 2 and f"\ntest_mine.py::test_it: @pytest.mark.stampede: {problem}\n" in output


def test_a_mark_without_the_fixture_is_one_line(suite: Path) -> None:
    code, output = session(suite, "import pytest\n@pytest.mark.stampede(seeds=[1])\ndef test_it():\n    pass\n")
    assert code == 2 and "test_it: @pytest.mark.stampede: the test has no fixture named 'stampede'\n" in output


# --- scenario files ---------------------------------------------------------------------------------------------------


def documented(*replaced: tuple[str, str]) -> str:
    """The configuration in ``docs/python.md``."""
    (text,) = re.findall(r"```ini\n(.*?)```", (ROOT / "docs" / "python.md").read_text(encoding="utf-8"), re.DOTALL)
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    return str(text)


def test_files_are_no_tests_without_the_setting(suite: Path) -> None:
    code, output = session(suite)
    assert code == pytest.ExitCode.NO_TESTS_COLLECTED, output


@pytest.mark.slow
def test_scenario_files_are_tests(suite: Path) -> None:
    (suite / "pytest.ini").write_text(documented(("0:10", "0:2")), encoding="utf-8")
    scenarios = suite / "scenarios"
    scenarios.mkdir()
    (suite / "mine.yaml").rename(scenarios / "good.yaml")
    (scenarios / "bad.yaml").write_text("extends: good.yaml\nname: bad\nsuccess: {fires: 1000}\n", encoding="utf-8")
    (scenarios / "readers.py").write_text(LOCUSTFILE, encoding="utf-8")
    (scenarios / "live.yaml").write_text("extends: good.yaml\nload: {locust: ./readers.py}\n", encoding="utf-8")
    (scenarios / "broken.yaml").write_text("name: broken\nvalidator: 4\n", encoding="utf-8")
    code, output = session(suite, "", "-vv", "-rs")
    assert code == 1 and "4 failed, 2 passed, 2 skipped" in output, output
    assert "scenarios/good.yaml::simulate[seed 1] PASSED" in output
    assert "bad, seed 1, sim: inconclusive: load: " in output
    assert "again    stampede run suite/scenarios/bad.yaml --backend sim --seed 1  # at commit" in output
    assert "broken.yaml: validator: unknown" in output and "Traceback" not in output
    assert "only the live testnet answers (--backend live)" in output


@pytest.mark.slow
def test_a_scenario_file_runs_the_code_next_to_it_and_none_inside(suite: Path) -> None:
    source = f"open({str(suite / 'ran')!r}, 'a').close()\n{DEADLINES}"
    (suite / "policy.py").write_text(source, encoding="utf-8")
    (suite / "pytest.ini").write_text("[pytest]\nstampede_scenarios = inside.yaml\n", encoding="utf-8")
    for name, policy in (("inside", {"name": "policy", "source": source}), ("next_to_it", "./policy.py")):
        fields = {"extends": "mine.yaml", "name": name, "chain": {"policy": policy}}
        (suite / f"{name}.yaml").write_text(json.dumps(fields), encoding="utf-8")
    code, output = session(suite)
    assert code == 1 and "inside.yaml: has code inside, policy.py (chain.policy)" in output, output
    assert not (suite / "ran").exists()
    (suite / "pytest.ini").write_text("[pytest]\nstampede_scenarios = next_to_it.yaml\n", encoding="utf-8")
    code, output = session(suite)
    assert code == 0 and (suite / "ran").exists(), output


@pytest.mark.parametrize(
    ("seeds", "problem"),
    [
        ("3", "is no range of seeds: expected A:B"),
        ("2:2", "is no range of seeds: expected A:B"),
        ("0:1000000000000", "are 1,000,000,000,000 seeds: expected at most 1,000,000"),
        ("a:b", "is no range of seeds: expected A:B"),
    ],
)
def test_wrong_seeds_of_files_are_one_line(suite: Path, seeds: str, problem: str) -> None:
    (suite / "pytest.ini").write_text(documented(("scenarios/*.yaml", "*.yaml"), ("0:10", seeds)), encoding="utf-8")
    code, output = session(suite)
    assert code != 0 and f"stampede_seeds: '{seeds}' {problem}" in output


# --- testnets ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.live
def test_a_testnet_that_does_not_pass_fails_the_session(suite: Path) -> None:
    text = f"""
def test_it_is_up(stampede_up):
    stampede_up("mine.yaml", settings=["{UNREACHABLE}"]).wait_for_height(2)

def test_it_is_the_same_one(stampede_up):
    stampede_up("mine.yaml", settings=["{UNREACHABLE}"]).wait_for_height(4)
"""
    code, output = session(suite, text)
    assert code == 1 and "2 passed, 1 error" in output, output
    assert "a live testnet did not pass:" in output
    assert "mine, seed 1, live: inconclusive: " in output
    (report,) = set(re.findall(r"report   (.*)$", output, re.MULTILINE))  # in CI, pytest's summary has it again
    assert Path(report).is_file()


@pytest.mark.parametrize("pattern", ["scenario/*.yaml", "mine.yml", "test_mine.py", "/mine.yaml", "''"])
def test_a_pattern_that_matches_no_file_is_one_line(suite: Path, pattern: str) -> None:
    (suite / "pytest.ini").write_text(f"[pytest]\nstampede_scenarios = mine.yaml {pattern}\n", encoding="utf-8")
    code, output = session(suite, "def test_it(): pass\n", "--quiet")
    shown = pattern.strip("'")
    assert (code, output) == (4, f"ERROR: stampede_scenarios: {shown}: matches no YAML file below {suite}\n\n")
