"""A run as the command line has it: bad input, signals at awkward moments, and an output that goes away."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.commands.cli.main import main
from cluster.commands.run import ending, scenario_run
from cluster.common.checkout import version
from cluster.common.errors import ExitCode
from cluster.common.files import write_atomically
from cluster.common.interrupts import SIGNALS
from cluster.record.run import RunRecord
from cluster.report import results
from cluster.scenario.files import load_scenario, scenario_hash
from tests.hangs import HANGS_AFTER_S
from validator.chain.genesis import Genesis, GenesisError
from validator.storage.disk import DiskError

ROOT = Path(__file__).resolve().parents[4]
SCENARIO: dict[str, Any] = {
    "name": "small",
    "load": {"users": [{"workload": "heartbeat", "count": 2, "interval_ms": 300}]},
    "stop": {"height": 12, "drain_blocks": 2},
    "success": {"heights_compared": 5, "transactions": 1, "fires": 1},
}


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """The command takes signals for good; they are given back here."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scenario file in the working folder."""
    monkeypatch.chdir(tmp_path)
    return write(tmp_path, SCENARIO)


def write(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def simulate(scenario: Path, *options: str) -> int:
    return main(["run", str(scenario), "--backend", "sim", *options])


def result(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return content


def test_a_run_passes(scenario: Path) -> None:
    assert simulate(scenario, "--out", "out") == ExitCode.PASS
    assert result(Path("out"))["verdict"] == "pass"
    assert not Path("runs/latest").exists(), "it is where --out says"
    assert simulate(scenario, "--out", "runs/mine") == ExitCode.PASS
    assert Path("runs/latest").resolve() == Path("runs/mine").resolve()


def test_the_files_of_a_result_and_a_quiet_terminal(
    scenario: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    files = ["--json", "r.json", "--junit", "r.xml", "--summary", "s.md"]
    assert simulate(scenario, "--out", "out", "--quiet", *files) == ExitCode.PASS
    assert capsys.readouterr().out == "verdict  pass\nreport   out/report.html\n"
    told = json.loads(Path("r.json").read_text(encoding="utf-8"))
    kept = result(Path("out"))
    assert {**told, "date": ""} == {**kept, "date": ""}
    assert datetime.fromisoformat(told["date"]).tzinfo is UTC
    assert (kept["version"], kept["scenario_hash"]) == (version(), scenario_hash(load_scenario(scenario)))
    assert Path("r.xml").read_text(encoding="utf-8") == Path("out/junit.xml").read_text(encoding="utf-8")
    assert Path("s.md").read_text(encoding="utf-8").startswith("## ✓ run ")
    # A planted fault: the scenario wants more than the run gives.
    wanting = ["--set", "success.fires=1000000", "--out", "bad", "--quiet"]
    assert simulate(scenario, *wanting) == ExitCode.INCONCLUSIVE
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("? inconclusive") and not any("✓ pass" in line or "blocks/s" in line for line in lines)
    assert any(line.startswith("::warning title=run ") and "%0Aagain: stampede run" in line for line in lines)


# --- bad input and failures -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_load_stops_after_a_time(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = {}
    for out, length in (("short", "10s"), ("long", "20s"), ("again", "20s")):
        assert simulate(scenario, "--out", out, "--for", length, "--set", "success.heights_compared=1") == ExitCode.PASS
        runs[out] = result(Path(out))
    assert "the load stops, draining" in capsys.readouterr().out
    heights = {out: run["metrics"]["heights"] for out, run in runs.items()}
    assert heights["short"] < heights["long"] == heights["again"], "the scenario's stop height says nothing"
    assert heights["long"] > SCENARIO["stop"]["height"]
    assert runs["long"]["digest"] == runs["again"]["digest"] != runs["short"]["digest"]
    fields = yaml.safe_load(Path("long/scenario.yaml").read_text(encoding="utf-8"))
    assert fields["stop"]["duration_s"] == 20, "so that it can be repeated"
    assert 20_000 < runs["long"]["metrics"]["duration_s"] * 1_000 < 40_000


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--for", "24"], "'24' is not a valid duration: expected a number with s, m, h or d, such as 90s, 30m or 24h"),
        (["--for", "0s"], "'0s' is not a valid duration"),
        (["--for", "31d"], "up to 30d"),
        (["--for", "1.5h"], "'1.5h' is not a valid duration"),
        (["--for", "9s", "--set", "stop.height=30"], "--for: not with --set or --unset of stop.height"),
        (["--for", "9s", "--unset", "stop"], "--for: not with --set or --unset of stop, which says"),
        (
            ["--for", "2s", "--set", "faults=[{kind: kill, target: leader, at_ms: 2000}]"],
            "2000 is not below stop.duration_s (2)",
        ),
        (["--attachable", "60"], "--attachable needs --backend live"),
        (["--attachable", "1"], "expected an integer from 10 to 86,400"),
    ],
)
def test_what_does_not_fit_a_time_is_one_line(
    scenario: Path, options: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(scenario, *options) == ExitCode.BAD_INPUT
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and problem in said.err


@pytest.mark.parametrize("options", [[], ["--out", "out"]])
@pytest.mark.parametrize("backend", ["live", "sim"])
def test_a_genesis_that_cannot_be_built_is_bad_input(
    scenario: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    backend: str,
    options: list[str],
) -> None:
    def refuse(_genesis: Genesis) -> None:
        raise GenesisError("no such chain can be")

    monkeypatch.setattr("cluster.scenario.genesis.genesis_batch", refuse)
    assert main(["run", str(scenario), "--backend", backend, *options]) == ExitCode.BAD_INPUT
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"stampede: {scenario}: chain: no such chain can be")
    assert complaint.count("\n") == 1
    assert [path.name for path in scenario.parent.iterdir()] == [scenario.name]


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (GenesisError("no validators"), ExitCode.BAD_INPUT, "the genesis cannot be built: no validators"),
        (DiskError("journal: write failed"), ExitCode.INCONCLUSIVE, "the run crashed: DiskError: journal: write"),
        (OSError(28, "No space left on device"), ExitCode.INCONCLUSIVE, "out: No space left on device"),
    ],
)
def test_an_expected_failure_is_one_line(
    scenario: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: ExitCode,
    words: str,
) -> None:
    def fail(*_: object, **__: object) -> RunRecord:
        raise error

    monkeypatch.setattr(scenario_run, "drive", fail)
    assert simulate(scenario, "--out", "out") == code
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"stampede: {words}")
    assert complaint.count("\n") == 1
    assert not Path("out").exists()
    Path("out").mkdir()
    assert simulate(scenario, "--out", "out") == code
    assert Path("out").exists(), "the user made it"


@pytest.mark.parametrize("name", ["blocks.bin", "result.json", "report.html"])
def test_a_run_whose_files_find_no_room_has_its_table_and_is_no_pass(
    scenario: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    write_all = write_atomically

    def no_room(path: Path, content: str | bytes) -> None:
        if path.name == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write_all(path, content)

    monkeypatch.setattr(results, "write_atomically", no_room)
    if name == "blocks.bin":
        monkeypatch.setattr(results, "write_blocks", lambda path, _: no_room(path, b""))
    assert simulate(scenario, "--out", "out") == ExitCode.INCONCLUSIVE
    printed = capsys.readouterr().out
    assert "✓ pass          agreement" in printed
    problem = f"no_problems: out/{name}: cannot be written: No space left on device"
    assert f"verdict  inconclusive: {problem}" in printed
    assert ("report   could not be written" in printed) is (name == "report.html")
    written = {path.name for path in Path("out").iterdir()}
    assert {"blocks.bin", "result.json", "report.html", "junit.xml", "series.json"} - written == {name}
    if name != "result.json":
        assert result(Path("out"))["verdict"] == "inconclusive", "files and exit code agree"


# --- signals ----------------------------------------------------------------------------------------------------------


def before_each_call(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, work: Callable[[], None]) -> None:
    function = getattr(module, name)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        work()
        return function(*arguments, **named)

    monkeypatch.setattr(module, name, wrapped)


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(
    ("module", "name"),
    [
        (ending, "finish_run"),
        (ending, "judge_run"),
        (results, "write_atomically"),
        (results, "render_report"),
    ],
)
def test_signals_while_it_is_judged_and_written_lose_nothing(
    scenario: Path, monkeypatch: pytest.MonkeyPatch, number: int, module: Any, name: str
) -> None:
    before_each_call(monkeypatch, module, name, lambda: os.kill(os.getpid(), number))
    assert simulate(scenario, "--out", "out") == ExitCode.INCONCLUSIVE
    written = result(Path("out"))
    assert written["verdict"] == "inconclusive"
    assert [check["name"] for check in written["checks"] if check["verdict"] != "pass"] == ["no_problems"]
    assert written["validators"][0]["height"] >= 14
    assert {"report.html", "blocks.bin", "genesis.json", "scenario.yaml"} <= {p.name for p in Path("out").iterdir()}
    assert not [path for path in Path("out").iterdir() if path.name.startswith(".")]


def test_a_signal_after_everything_is_written_changes_nothing(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before_each_call(monkeypatch, ending, "print_verdict", lambda: os.kill(os.getpid(), signal.SIGINT))
    assert simulate(scenario, "--out", "out") == ExitCode.PASS
    assert result(Path("out"))["verdict"] == "pass"


def test_signals_end_a_simulation_and_what_is_known_is_written(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(scenario.parent, {**SCENARIO, "stop": {"height": 9_999}})

    def interrupt(*_: object) -> None:
        for number in SIGNALS:
            os.kill(os.getpid(), number)

    monkeypatch.setattr("cluster.commands.run.scenario_run.Progress.update", interrupt)
    assert simulate(scenario, "--out", "out") == ExitCode.INCONCLUSIVE
    assert result(Path("out"))["verdict"] == "inconclusive"


# --- an output that goes away -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_pipe_that_is_closed_does_not_end_the_run(scenario: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stampede = [sys.executable, "-m", "cluster.commands.cli.main"]
    command = [*stampede, "run", str(scenario), "--backend", "sim", "--out", "out"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, text=True, env=environment, timeout=HANGS_AFTER_S, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (ExitCode.PASS, "")
    assert result(Path("out"))["verdict"] == "pass"


def test_a_run_that_is_compared_with_itself_does_not_stop_early(
    scenario: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(scenario, "--stop-on-fail", "--check-determinism") == ExitCode.BAD_INPUT
    assert "--stop-on-fail: not with --check-determinism" in capsys.readouterr().err
