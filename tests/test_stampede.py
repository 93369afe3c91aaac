"""The public Python API: what it gives, and that what is wrong with its arguments is one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import ray
import urllib3

import stampede
from cluster.common.errors import TestnetError
from cluster.live.driver import ray_session
from cluster.record.run import Sample
from loadgen.client import ValidatorClient
from stampede import BadInput, HarnessError, LiveTestnet, RunOutcome, Scenario, load_scenario, simulate, up
from tests.hangs import HANGS_AFTER_S

SMALL: dict[str, Any] = {
    "name": "small",
    "consensus": {"block_interval_ms": 100},
    "load": {"users": [{"workload": "heartbeat", "count": 2, "interval_ms": 300}]},
    "stop": {"height": 10, "drain_blocks": 2, "timeout_s": 60},
    "success": {"heights_compared": 5, "transactions": 1, "fires": 1},
}
DEGRADED_MS = 2 * Scenario.model_validate(SMALL).consensus.view_change_ms
"""Where the validator killed meanwhile leads, nobody sends anything until its view is given up."""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    folder = tmp_path_factory.mktemp("simulated") / "run"
    return simulate(Scenario.model_validate(SMALL), 7, folder, ["stop.height=12", "links.loss=0.01"])


def test_a_simulation_is_judged(outcome: RunOutcome) -> None:
    assert outcome.passed, outcome.explain()
    assert outcome.explain() == ""
    assert outcome.check("progress").detail.startswith("14 heights finalised, target 12")
    assert outcome.metrics["heights"] == outcome.books.ledger.height == 14
    with pytest.raises(KeyError, match=r"no check is named 'progres'; did you mean progress"):
        outcome.check("progres")
    with pytest.raises(KeyError, match=r"no check is named 'nothing'; there are .*progress, "):
        outcome.check("nothing")


def test_it_is_shown_in_one_line(outcome: RunOutcome) -> None:
    assert outcome.verdict.outcome == "pass" and str(outcome.verdict) == "pass" and outcome.verdict.reason == ""
    assert repr(outcome.verdict) == "<Verdict pass>"
    assert repr(outcome) == "<RunOutcome of small, seed 7: pass>"


def test_its_folder_holds_the_same(outcome: RunOutcome) -> None:
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
    assert str(failed.verdict) == f"{failed.verdict.outcome}: {failed.verdict.reason}"
    assert failed.verdict.reason == lines[0].replace(f": {failed.verdict.outcome}: ", ": ")
    assert repr(failed.verdict) == f"<Verdict {failed.verdict}>" and "\n" not in repr(failed)


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


def test_a_scenario_is_given_as_its_fields() -> None:
    assert stampede.scenario_from(SMALL) == Scenario.model_validate(SMALL)
    given = simulate(SMALL, 7)
    assert given.passed and given.record.scenario == Scenario.model_validate(SMALL)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({**SMALL, "falts": []}, "scenario: falts: unknown field; did you mean faults?"),
        ({"validators": 4}, "scenario: name: is missing"),
        ({1: 2, "name": "a"}, "scenario: [1]: expected the name of a field, got 1"),
        (None, "scenario: expected a path, a mapping of fields or a Scenario, got NoneType"),
        ([SMALL], "scenario: expected a path, a mapping of fields or a Scenario, got list"),
    ],
)
def test_a_scenario_that_is_none_is_one_line(given: Any, line: str, tmp_path: Path) -> None:
    for start in (simulate, stampede.run, lambda given, **more: up(given, **more).__enter__()):
        with pytest.raises(BadInput) as caught:
            start(given, out=tmp_path / "run")
        assert str(caught.value).startswith(line) and "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    for call in (load_scenario, simulate):
        with pytest.raises(BadInput, match=r"none\.yaml: cannot be read"):
            call(tmp_path / "none.yaml")


def test_everything_public_is_there_and_described() -> None:
    for name in stampede.__all__:
        assert getattr(stampede, name).__doc__, name


@pytest.mark.parametrize("seed", [-1, 2**64, "7", True, 1.0])
def test_a_seed_that_is_none_is_one_line(seed: Any) -> None:
    with pytest.raises(BadInput, match=r"^seed: .* is not a seed: expected an integer from 0 to 2\*\*64 - 1$"):
        simulate(Scenario.model_validate(SMALL), seed)


def test_settings_are_a_list() -> None:
    with pytest.raises(BadInput, match=r"^settings: expected a list of settings, got 'stop.height=12'$"):
        simulate(Scenario.model_validate(SMALL), 7, settings="stop.height=12")


def test_what_cannot_run_on_the_live_testnet_leaves_no_folder(tmp_path: Path) -> None:
    settings = ["consensus.signatures=keyed-hash"]
    for start in (stampede.run, lambda *given, **more: up(*given, **more).__enter__()):
        with pytest.raises(BadInput, match=r"^small: consensus\.signatures: "):
            start(Scenario.model_validate(SMALL), out=tmp_path / "run", settings=settings)
    assert not (tmp_path / "run").exists()


# --- live -------------------------------------------------------------------------------------------------------------


def word_of_ray(token: str) -> str:
    """What Ray tells another process of this machine that shows it a token."""
    address = ray.get_runtime_context().gcs_address
    plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    ask = f"GcsClient({address!r}).internal_kv_get(b'x', b'y', 5)"
    done = subprocess.run(
        [sys.executable, "-c", f"from ray._raylet import GcsClient; {ask}; print('let in')"],
        env=plain | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token},
        capture_output=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    return (done.stdout + done.stderr).decode()


def look(*heights: int | None) -> Sample:
    return Sample(0.0, heights, 0, 0, 0, 0, 0, 0)


@pytest.fixture
def watched() -> tuple[LiveTestnet, stampede._LastSample]:
    """A testnet of three validators, of which the last one joins late, and how it is looked at."""
    looks = stampede._LastSample(["one", "two", "late"])
    return LiveTestnet(Path("run"), "", {"one": "", "two": ""}, _last_sample=looks), looks


def test_waiting_for_a_height_ends_when_it_is_final_everywhere(
    watched: tuple[LiveTestnet, stampede._LastSample],
) -> None:
    testnet, looks = watched
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(testnet.wait_for_height, 5, HANGS_AFTER_S)
        for heights in ((5, 4, None), (6, None, 7), (None, 5, None), (5, 5, None)):
            looks.take(look(*heights))
        assert waiting.result(HANGS_AFTER_S) is None
    testnet.wait_for_height(5, 0)
    looks.take(look(9, 4, None))
    testnet.wait_for_height(9, 0, ["one"])


def test_a_height_that_is_not_reached_is_one_line(watched: tuple[LiveTestnet, stampede._LastSample]) -> None:
    testnet, looks = watched
    looks.take(look(9, 4, None))
    with pytest.raises(HarnessError, match=r"^height 5 was not reached: 0 s are over: two is at height 4$"):
        testnet.wait_for_height(5, 0)
    with pytest.raises(BadInput, match=r"^validators: no validator is named 'tow'; did you mean two\?"):
        testnet.wait_for_height(5, 0, ["tow"])
    looks.end()
    with pytest.raises(HarnessError, match=r"^height 5 was not reached: the testnet ended: late does not answer$"):
        testnet.wait_for_height(5, HANGS_AFTER_S, ["one", "late"])


def wait_for_faults(testnet: LiveTestnet, count: int) -> None:
    """Until so many faults are over, with a look at each height."""
    deadline = time.monotonic() + HANGS_AFTER_S
    while True:
        page = json.loads(urllib3.request("GET", f"{testnet.url}/status", timeout=HANGS_AFTER_S).data)
        if [fault["ended_ms"] is not None for fault in page.get("faults", [])] == [True] * count:
            return
        assert time.monotonic() < deadline, page
        testnet.wait_for_height(page["height"] + 1, HANGS_AFTER_S, ["validator-0"])


@pytest.mark.slow
@pytest.mark.live
def test_a_testnet_is_up_for_as_long_as_the_block_lasts(tmp_path: Path) -> None:
    with up(Scenario.model_validate(SMALL), out=tmp_path / "run") as testnet:
        assert testnet.outcome is None
        for name, url in testnet.validators.items():
            with ValidatorClient(url, HANGS_AFTER_S) as client:
                status = client.status()
            assert status["name"] == name
        assert status["chain_id"]
        assert word_of_ray(ray_session._token) == "let in\n"
        assert "nauthenticated" in (word := word_of_ray("0" * 64)) and "let in" not in word
        with pytest.raises(BadInput, match=r"^target: no validator is named 'nobody'; there are leader, ran"):
            testnet.inject(kind="kill", target="nobody")
        with pytest.raises(BadInput, match=r"^at_ms: 0 is over: it is \d+ ms since the testnet was up$"):
            testnet.inject(kind="kill", target="validator-1", at_ms=0)
        testnet.inject(kind="degrade", **{"from": ["validator-0"]}, latency_ms=30, for_ms=DEGRADED_MS)
        told = testnet.inject(kind="kill", target="validator-2", down_ms=100)
        assert told["at_ms"] > 0
        wait_for_faults(testnet, 2)
        testnet.wait_for_height(6, HANGS_AFTER_S)
    assert testnet.outcome is not None
    assert testnet.outcome.passed, testnet.outcome.explain()
    assert [fault.kind for fault in testnet.outcome.record.faults] == ["degrade", "kill"]
    assert all(fault.took_effect for fault in testnet.outcome.record.faults)
    again = load_scenario(tmp_path / "run" / "scenario.yaml")
    assert [fault.kind for fault in again.faults] == ["degrade", "kill"], "the folder has what ran"
    with pytest.raises(BadInput, match="that run is over"):
        testnet.inject(kind="kill", target="validator-2")
    assert json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))["verdict"] == "pass"


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize("how", ["interrupted", "without_a_block"])
def test_a_testnet_that_is_not_up_yet_can_be_ended(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for it gets the prompt back, and nothing runs on."""
    wait = threading.Event.wait

    def waiting(self: threading.Event, timeout: float | None = None) -> bool:
        if timeout != stampede.FIRST_BLOCK_TIMEOUT_S:
            return wait(self, timeout)
        if how == "interrupted":
            raise KeyboardInterrupt
        return False

    monkeypatch.setattr(threading.Event, "wait", waiting)
    with (
        pytest.raises(KeyboardInterrupt if how == "interrupted" else stampede.HarnessError, match=r"no block|^$"),
        up(Scenario.model_validate({**SMALL, "validators": {"count": 2, "hosts": 1}}), out=tmp_path / "run"),
    ):
        pytest.fail("it was not up")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("testnet")]


@pytest.mark.live
def test_a_testnet_that_cannot_come_up_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise TestnetError("Ray cannot be started: no reason")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_session, "_start_own", broken)
    with (
        pytest.raises(stampede.HarnessError, match=r"^Ray cannot be started: no reason$"),
        up(Scenario.model_validate(SMALL), out=tmp_path / "run"),
    ):
        pytest.fail("it was not up")
