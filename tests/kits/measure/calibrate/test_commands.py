"""``stampede calibrate`` from its arguments to its files.

A simulation with synthetic timings takes the live run's place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from cluster.record.run import RunRecord, RunRequest, Timings
from cluster.scenario.files import load_scenario
from cluster.scenario.sections.measurements.profile import ProfileSection
from cluster.watches.watched_simulation import simulate
from kits.measure.calibrate import calibration
from kits.measure.calibrate.observed import Observed
from tests.kits.measure.calibrate.synthetic import TRUTH, measured

FIELDS: dict[str, Any] = {
    "name": "mine",
    "load": {"users": [{"workload": "heartbeat", "count": 4}, {"workload": "flood"}]},
    "stop": {"height": 9, "drain_blocks": 1},
    "success": {"heights_compared": 5, "transactions": 4, "fires": 4},
}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "other"):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(FIELDS | {"name": name}), encoding="utf-8")
    return tmp_path / "mine.yaml"


class Live:
    """Stands for the live testnet: simulates with the true profile, or without one."""

    def __init__(self) -> None:
        self.profile: ProfileSection | None = TRUTH
        self.ran: list[tuple[str, int]] = []
        self.interrupted = False
        self._seen = measured(100)

    @contextmanager
    def testnet(self, request: RunRequest, *_: Any) -> Iterator[RunRecord]:
        assert request.takes_timings
        self.ran.append((request.scenario.name, request.seed))
        scenario = request.scenario.model_copy(update={"profile": self.profile})
        record = simulate(scenario, request.seed, request.commit)
        record.timings, record.interrupted = Timings(), self.interrupted
        yield record

    def observed(self, *_: Any) -> Observed:
        """The synthetic measurements, an hour later for each run."""
        seen, later_ms = self._seen, 3_600_000 * len(self.ran)
        work = [each._replace(ended_ms=each.ended_ms + later_ms) for each in seen.work]
        return Observed(work, seen.delays, seen.starts_us)


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Live:
    found = Live()
    monkeypatch.setattr(calibration, "live_testnet", found.testnet)
    monkeypatch.setattr(calibration, "observed_in", found.observed)
    return found


@pytest.mark.slow
def test_the_simulator_is_as_live_with_the_fitted_profile(
    mine: Path, live: Live, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, page_file = tmp_path / "profile.yaml", tmp_path / "page.json"
    options = ["--check", "other.yaml", "--runs", "2", "--save", str(saved), "--json", str(page_file)]
    assert main(["calibrate", str(mine), *options, "--out", str(tmp_path / "out")]) == ExitCode.PASS
    shown = capsys.readouterr()
    assert live.ran == [("mine", 1), ("other", 1), ("mine", 2), ("other", 2)]  # in turns, each round with its seed
    assert shown.err.splitlines()[:2] == ["live run 1 of 2: mine", "live run 1 of 2: other"]
    assert "mine  (the profile is fitted to these runs)" in shown.out
    assert "other  (not used to fit)" in shown.out
    assert shown.out.splitlines()[-1] == "verdict  pass: gaps of at most 15 % are wanted"
    page = json.loads(page_file.read_text())
    assert [(each["scenario"], each["fitted"]) for each in page["scenarios"]] == [("mine", True), ("other", False)]
    profile = ProfileSection.model_validate(page["profile"])
    assert profile.processors >= 1
    assert (tmp_path / "out" / "mine-2" / "result.json").exists()
    assert json.loads((tmp_path / "out" / "calibration.json").read_text()) == page
    named = load_scenario(mine)
    (tmp_path / "named.yaml").write_text(yaml.safe_dump(FIELDS | {"profile": "profile.yaml"}), encoding="utf-8")
    assert load_scenario(tmp_path / "named.yaml").profile == profile != named.profile


def test_a_simulator_that_is_far_from_live_fails(mine: Path, live: Live, capsys: pytest.CaptureFixture[str]) -> None:
    live.profile = TRUTH.model_copy(update={"link_us": [20_000, 22_000]})  # slower than what was measured of them
    assert main(["calibrate", str(mine), "--runs", "1"]) == ExitCode.FAIL
    assert "verdict  fail" in capsys.readouterr().out
    assert main(["calibrate", str(mine), "--runs", "1", "--within", "80"]) == ExitCode.PASS


def test_an_interrupt_ends_it(mine: Path, live: Live, capsys: pytest.CaptureFixture[str]) -> None:
    live.interrupted = True
    command = ["calibrate", str(mine), "--check", "other.yaml", "--out", "used"]
    assert main(command) == ExitCode.INCONCLUSIVE
    assert capsys.readouterr().err.splitlines()[-1] == "stampede: interrupted"
    assert live.ran == [("mine", 1)]
    assert main(command) == ExitCode.BAD_INPUT and "is not empty" in capsys.readouterr().err
    assert main([*command, "--force"]) == ExitCode.INCONCLUSIVE, "what an interrupted one left is replaced"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["mine.yaml", "--check", "mine.yaml"], "mine: is named twice"),
        (["mine.yaml", "--runs", "0"], "'0' is not a valid number of runs: expected an integer from 1 to 100"),
        (["mine.yaml", "--within", "x"], "'x' is not a valid percentage"),
        (["mine.yaml", "--save", "."], "cannot be written: is a folder"),
        (["mine.yaml", "--set", "consensus.signatures=keyed-hash"], "mine: consensus.signatures: the live testnet"),
        (["mine.yaml", "--check", "twins"], "no scenario of that name ships"),
    ],
)
def test_wrong_input_is_one_line(
    mine: Path, live: Live, arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", *arguments]) == ExitCode.BAD_INPUT
    assert why in capsys.readouterr().err
    assert live.ran == []
