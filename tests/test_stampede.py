"""The public Python API: what it gives, and that what is wrong with its arguments is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import stampede
from cluster.live import ray_session
from loadgen.client import ValidatorClient
from stampede import BadInput, Outcome, Scenario, load_scenario, simulate, up

SMALL: dict[str, Any] = {
    "name": "small",
    "consensus": {"block_interval_ms": 100},
    "load": {"users": [{"workload": "heartbeat", "count": 2, "interval_ms": 300}]},
    "stop": {"height": 10, "drain_blocks": 2, "timeout_s": 60},
    "success": {"heights_compared": 5, "transactions": 1, "fires": 1},
}
WAIT_S = 20.0


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("simulated") / "run"
    return simulate(Scenario.model_validate(SMALL), 7, folder, ["stop.height=12", "links.loss=0.01"])


def test_a_simulation_is_judged(outcome: Outcome) -> None:
    assert outcome.passed, outcome.explain()
    assert outcome.explain() == ""
    assert outcome.check("progress").detail.startswith("14 heights finalised, target 12")
    assert outcome.metrics["heights"] == outcome.books.ledger.height == 14
    with pytest.raises(KeyError):
        outcome.check("nothing")


def test_its_folder_holds_the_same(outcome: Outcome) -> None:
    assert outcome.folder is not None
    result = json.loads((outcome.folder / "result.json").read_text(encoding="utf-8"))
    assert result["metrics"] == outcome.metrics
    assert result["digest"] == outcome.record.digest
    again = simulate(outcome.folder / "scenario.yaml", 7)
    assert again.record.digest == outcome.record.digest
    assert again.folder is None


def test_what_does_not_pass_is_explained() -> None:
    failed = simulate(Scenario.model_validate(SMALL), settings=["success.stall_ms=1", "success.fires=10000"])
    assert not failed.passed
    lines = failed.explain().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["progress", "load", "coverage"]
    assert "allowed 1 ms" in lines[0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["links.loss"], "settings: 'links.loss' is no setting: expected path=value"),
        (["links.los=1"], "small with settings: links.los: "),
        (["stop.height=-1"], "small with settings: stop.height: "),
    ],
)
def test_a_setting_that_is_wrong_is_one_line(settings: list[str], words: str) -> None:
    with pytest.raises(BadInput) as caught:
        simulate(Scenario.model_validate(SMALL), settings=settings)
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    for call in (load_scenario, simulate):
        with pytest.raises(BadInput, match=r"none\.yaml: cannot be read"):
            call(tmp_path / "none.yaml")


def test_everything_public_is_there_and_described() -> None:
    for name in stampede.__all__:
        assert getattr(stampede, name).__doc__, name


# --- live -------------------------------------------------------------------------------------------------------------


@pytest.mark.xdist_group("ray")
def test_a_testnet_is_up_for_as_long_as_the_block_lasts(tmp_path: Path) -> None:
    little = ["success.transactions=0", "success.fires=0"]
    with up(Scenario.model_validate(SMALL), out=tmp_path / "run", settings=little) as testnet:
        assert testnet.outcome is None
        for name, url in testnet.validators.items():
            with ValidatorClient(url, WAIT_S) as client:
                status = client.status()
            assert status["name"] == name
        assert status["chain_id"]
    assert testnet.outcome is not None
    assert testnet.outcome.passed, testnet.outcome.explain()
    assert json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))["verdict"] == "pass"


@pytest.mark.xdist_group("ray")
def test_a_testnet_that_cannot_come_up_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ray_session.TestnetError("Ray cannot be started: no reason")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_session, "_start_own", broken)
    with (
        pytest.raises(stampede.HarnessError, match=r"^Ray cannot be started: no reason$"),
        up(Scenario.model_validate(SMALL), out=tmp_path / "run"),
    ):
        pytest.fail("it was not up")
