"""The figures of a load from outside, in the terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.checks.metrics.load_latency import WorkloadLatency
from cluster.commands.cli.main import main
from cluster.commands.load import loading
from cluster.commands.load.following import Look
from cluster.commands.load.loading import Layout, Outcome, perform_load, show
from cluster.common.errors import Crash, ExitCode, HarnessError
from cluster.live.web.server import NotReady
from loadgen.runplan import LateCause, Statistics
from loadgen.workloads.measures import LoadTimeline
from tests.cluster.commands.load.test_knee import TARGET, planned
from tests.cluster.commands.load.test_target import SEED, Pages
from tests.loadgen.fake_validator import FakePages, ServerThread
from tests.loadgen.test_run import QUITTER
from validator.node.events import SubmitResult
from validator.primitives.types import Hash

BEGAN_MS = 10_000.0


def outcome() -> Outcome:
    """Four seconds with 100 good answers and 4 failures, all of these in the third."""
    timeline = LoadTimeline()
    for number in range(100):
        timeline.requested(BEGAN_MS + 40 * number)
        timeline.answered(BEGAN_MS + 40 * number, 200 if number >= 97 else 20)
    for _ in range(4):
        timeline.requested(BEGAN_MS + 2_500)
        timeline.failed(BEGAN_MS + 2_500)
    statistics = Statistics(
        requests=104,
        failures=4,
        errors={"POST /transactions: status 503": 4},
        late_by_cause={LateCause.ANSWERS: 2},
        timeline=timeline,
    )
    latencies = [WorkloadLatency("flood", 69, 2, 9, 1, measured=60, final=58, latencies_ms=[500.0] * 58, unsent=7)]
    return Outcome(statistics, latencies, [Look(0, 1, 0, 0, 0), Look(4, 9, 58, 0, 0)], 0, BEGAN_MS)


def test_response_times_and_failures_are_those_of_a_runs_report() -> None:
    page = json.loads(json.dumps(outcome().page, allow_nan=False))
    assert page["responses"] == {
        name: pytest.approx(ms, rel=1 / 16) for name, ms in (("p50_ms", 20), ("p95_ms", 20), ("p99_ms", 200))
    }
    assert (page["requests"], page["failures"], page["late_by_cause"]) == (104, 4, {"answers": 2})
    timeline = page["timeline"]
    assert (timeline["at_ms"], timeline["failures"]) == ([0, 1_000, 2_000, 3_000], [0, 0, 4, 0])
    assert timeline["requests"] == [25, 25, 29, 25]
    assert timeline["response_p50_ms"] == [pytest.approx(20, rel=1 / 16)] * 4


def test_what_never_became_final_has_no_number() -> None:
    page = outcome().page
    assert (page["latency"]["load_latency_p50_ms"], page["latency"]["load_latency_p99_ms"]) == (500.0, None)
    assert page["workloads"]["flood"]["latency_p99_ms"] is None


def test_the_terminal_shows_both(capsys: pytest.CaptureFixture[str]) -> None:
    show(outcome())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("104 requests, 4 failures;")
    assert lines[1].startswith("responses p50 ") and " · p95 " in lines[1] and " · p99 " in lines[1]
    assert lines[2] == "failure   4 × POST /transactions: status 503"
    assert lines[-2].split("  ")[:7] == ["workload", "sent", "late", "skipped", "unsent", "rejected", "never final"]
    assert lines[-1].split() == ["flood", "69", "2", "1", "7", "9", "2", "500", "500", "never", "never"]


# --- a load that sent nothing -----------------------------------------------------------------------------------------


class Going(Pages):
    """Its chain goes on, with empty blocks."""

    async def status(self) -> dict[str, Any]:
        return await FakePages.status(self) | {"chain_id": self.chain_id}


class Refusing(Going):
    """It refuses what it is sent."""

    async def submit(self, transactions: list[bytes]) -> Sequence[SubmitResult]:
        return [SubmitResult(Hash(bytes(32)), "the mempool is full", "full") for _ in transactions]


class Busy(Going):
    """It takes nothing at all."""

    async def submit(self, transactions: list[bytes]) -> Sequence[SubmitResult]:
        raise NotReady("not now")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pages", "interval_ms", "reason"),
    [
        (Busy, 100, "nothing was sent: "),
        (Going, 3_600_000, "nothing was sent: no turn was taken"),
        (Refusing, 100, "none became final: "),
        (Going, 100, "none became final: none was refused"),
        (Pages, 100, "nothing was sent: "),
    ],
)
def test_a_load_without_an_effect_is_inconclusive(
    pages: type[Pages], interval_ms: int, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Locust itself ends with 0: it did run."""
    with ServerThread(pages()) as server:
        options = ["--workload", "transfer", "--interval-ms", str(interval_ms), "--seed", str(SEED), "--for", "3s"]
        code = main(["load", *options, "--target", server.url, "--json", str(tmp_path / "load.json")])
    assert (code, reason in (said := capsys.readouterr().err)) == (ExitCode.INCONCLUSIVE, True), said
    assert said.startswith("stampede: the load shows nothing: ") and said.count("\n") == 1
    assert json.loads((tmp_path / "load.json").read_text())["workloads"].get("transfer", {}).get("final", 0) == 0


@pytest.mark.slow
def test_a_load_that_ends_early_is_inconclusive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "quitter.py").write_text(QUITTER, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text("name: mine\nload: {locust: ./quitter.py}\n", encoding="utf-8")
    with ServerThread(Going()) as server:
        words = ["load", str(tmp_path / "mine.yaml"), "--for", "60s", "--target", server.url]
        assert main([*words, "--json", str(tmp_path / "load.json")]) == ExitCode.INCONCLUSIVE
    reason = "it ended with exit code 1: Locust process 0 ended without its statistics"
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("stampede: executes quitter.py (load.locust), ")
    assert second == f"stampede: the load did not do its work: {reason}"
    assert json.loads((tmp_path / "load.json").read_text())["transactions_sent"] == 0


@pytest.mark.parametrize(("code", "kind"), [(1, HarnessError), (4, Crash), (-9, HarnessError)])
def test_a_load_that_did_not_do_its_work_has_no_verdict(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: type[HarnessError]
) -> None:
    ended = replace(outcome(), exit_code=code, why_ended=f"it ended with exit code {code}: lost")
    monkeypatch.setattr(loading, "run_load", lambda *_, **__: ended)
    with pytest.raises(HarnessError) as failed:
        perform_load(TARGET, planned(100), Layout(), 1, None)
    assert type(failed.value) is kind
    assert str(failed.value) == f"the load did not do its work: it ended with exit code {code}: lost"


@pytest.mark.parametrize(
    ("statistics", "final", "reason"),
    [
        (Statistics(requests=4, transactions_sent=3), 1, ""),
        (Statistics(requests=4), None, ""),
        (Statistics(requests=4), 0, "nothing was sent: no turn was taken"),
        (Statistics(requests=4, failures=4, errors={"a": 1, "b": 3}), None, "nothing was sent: 3 × b"),
        (Statistics(), None, "nothing was sent: no turn was taken"),
        (
            Statistics(requests=4, transactions_sent=3, rejections={"full": 3}),
            0,
            "of 3 transactions none became final: 3 × full",
        ),
    ],
)
def test_what_was_sent_and_became_final_is_what_a_load_shows(
    statistics: Statistics, final: int | None, reason: str
) -> None:
    """Users of the user's own Locustfiles send what they like: answers are enough."""
    latencies = [] if final is None else [WorkloadLatency("flood", 3, 0, 0, 0, measured=3, final=final)]
    assert Outcome(statistics, latencies, [], 0, sends_transactions=final is not None).why_nothing == reason
