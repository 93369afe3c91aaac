"""The search for the knee, and each bound that a load can break."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cluster.checks.metrics.load_latency import WorkloadLatency
from cluster.commands.load import knee as knee_module
from cluster.commands.load.following import ChainFollower, Look
from cluster.commands.load.knee import CLOSE, MAX_STEPS, Broken, Limit, Step, broken_bound, find_knee, search
from cluster.commands.load.loading import Layout, Outcome
from cluster.commands.load.target import PlannedLoad, Target
from cluster.common.errors import ExitCode, HarnessError, TestnetError
from loadgen.runplan import LateCause, Statistics
from loadgen.workloads import LoadPlan
from validator.primitives.params import DEFAULTS

P99_MS = 1_000
SENT = 200
TOO_MUCH = Broken(Limit.TESTNET, "too much")


def outcome(
    backlog: int = 0, looks: int = 2, exit_code: int = 0, causes: dict[LateCause, int] | None = None, **changes: Any
) -> Outcome:
    """A load that keeps every bound, but for the changes."""
    figures: dict[str, Any] = {"late": 0, "rejected": 0, "skipped": 0, "measured": SENT, "final": SENT}
    figures |= {"latencies_ms": [400.0] * 195 + [900.0] * 5} | changes
    figures.setdefault("from_send_ms", figures["latencies_ms"])
    points = [Look(at, 10, 5, 0, 0) for at in range(looks - 1)] + [Look(looks, 20, 205, backlog, 0)]
    statistics = Statistics(late_by_cause=causes or {})
    return Outcome(statistics, [WorkloadLatency("flood", SENT, **figures)], points if looks else [], exit_code)


def test_a_load_that_keeps_every_bound() -> None:
    assert broken_bound(outcome(backlog=20, late=20, final=SENT - 2), P99_MS) is None
    assert outcome().rate == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"latencies_ms": [400.0] * 195 + [1_001.0] * 5}, "p99 of finality 1,001 ms, above 1,000"),
        ({"backlog": 21}, "the backlog grew by 21"),
        ({"final": SENT - 3}, "3 of 200 transactions did not become final"),
        ({"late": 15, "skipped": 6}, "21 of 200 turns were late or left out: users waited for answers"),
        ({"final": 0, "latencies_ms": []}, "nothing became final"),
        ({"exit_code": 1}, "the load or the testnet failed"),
        ({"looks": 0}, "the load or the testnet failed"),
    ],
)
def test_every_bound_can_be_broken(changes: dict[str, Any], words: str) -> None:
    broken = broken_bound(outcome(**changes), P99_MS)
    assert broken is not None and broken.text.startswith(words)
    assert broken.limit is Limit.TESTNET


QUICK, SLOW = [400.0] * SENT, [3_000.0] * SENT


@pytest.mark.parametrize(
    ("cause", "from_send_ms", "limit", "words"),
    [
        (LateCause.LOOP, QUICK, Limit.PROCESSES, "the load's own processes are at their limit"),
        (LateCause.LOOP, SLOW, Limit.PROCESSES, "the load's own processes are at their limit"),
        (LateCause.UNCONFIRMED, QUICK, Limit.USERS, "users have 16 transactions under way at most"),
        (LateCause.UNCONFIRMED, SLOW, Limit.TESTNET, "p99 of finality 3,000 ms, above 1,000"),
        (LateCause.ANSWERS, QUICK, Limit.TESTNET, "users waited for answers"),
        (LateCause.ANSWERS, SLOW, Limit.TESTNET, "p99 of finality 3,000 ms, above 1,000"),
    ],
)
@pytest.mark.parametrize("late", [10, 150])
def test_late_turns_are_put_down_to_what_they_waited_for(
    cause: LateCause, from_send_ms: list[float], limit: Limit, words: str, late: int
) -> None:
    """With a tenth of the turns late, or fewer that alone make the latency from the intended send too long."""
    others = {each: 1 for each in LateCause if each is not cause}
    latencies_ms = from_send_ms[late:] + [9_000.0] * late
    found = outcome(late=late, causes={**others, cause: late}, latencies_ms=latencies_ms, from_send_ms=from_send_ms)
    broken = broken_bound(found, P99_MS)
    assert broken is not None
    if late == 10 and from_send_ms is SLOW:
        assert broken.limit is Limit.TESTNET, "so few were late that the load was not at its limit"
    else:
        assert (broken.limit, words in broken.text) == (limit, True)


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"final": SENT - 2, "latencies_ms": [400.0] * 197 + [1_500.0]}, Limit.TESTNET),
        ({"skipped": 2, "measured_skipped": 2, "latencies_ms": [400.0] * 198 + [1_500.0] * 2}, Limit.USERS),
    ],
)
def test_what_is_lost_is_the_slowest_part(changes: dict[str, Any], limit: Limit) -> None:
    """It is few enough for its own bound; with what is slow it is more than one in a hundred."""
    broken = broken_bound(outcome(causes={LateCause.UNCONFIRMED: 1}, **changes), P99_MS)
    assert broken is not None and "1,500 ms, above 1,000" in broken.text
    assert broken.limit is limit


def as_asked(factor: float) -> float:
    return factor


@pytest.mark.parametrize("knee", [0.07, 0.9, 1.0, 3.0, 41.5])
def test_the_search_ends_close_to_the_knee(knee: float) -> None:
    tried = count()

    def try_factor(factor: float) -> Step:
        next(tried)
        return Step(factor, outcome(), None if factor <= knee else TOO_MUCH)

    steps = list(search(try_factor, as_asked))
    best = max(step.factor for step in steps if step.broken is None)
    worst = min(step.factor for step in steps if step.broken is not None)
    assert best <= knee < worst <= best * CLOSE
    assert next(tried) == len(steps) <= MAX_STEPS


@pytest.mark.parametrize("broken", [None, TOO_MUCH])
def test_the_search_ends_without_a_knee(broken: Broken | None) -> None:
    assert len(list(search(lambda factor: Step(factor, outcome(), broken), as_asked))) == MAX_STEPS


# --- the command ------------------------------------------------------------------------------------------------------

TARGET = Target(("http://127.0.0.1:9",), "chain", None, 1)
AT_REST = Look(0.0, 5, 0, 0, 0)


def planned(interval_ms: int) -> PlannedLoad:
    users = [{"workload": "transfer", "count": 3, "interval_ms": interval_ms}]
    return PlannedLoad(LoadPlan.model_validate({"users": users}), 1, DEFAULTS)


class Runs:
    """What :func:`find_knee` calls, without a testnet: each load keeps its bounds up to so many turns a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, holds_until: float = float("inf")) -> None:
        self.rates: list[float] = []
        self.look: Look | None = AT_REST
        self.then: Callable[[], None] = lambda: None
        """Called at the end of each load."""
        self._holds_until = holds_until
        monkeypatch.setattr(knee_module, "run_load", self._run)
        monkeypatch.setattr(ChainFollower, "look", lambda _: self.look)

    def _run(self, target: Target, load: PlannedLoad, *_: Any) -> Outcome:
        self.rates.append(load.turns_per_s)
        self.then()
        return outcome(exit_code=int(load.turns_per_s > self._holds_until))


def knee(interval_ms: int, file: Path) -> ExitCode:
    return find_knee(TARGET, planned(interval_ms), Layout(), 1, P99_MS, file)


def page_of(file: Path) -> dict[str, Any]:
    page: dict[str, Any] = json.loads(file.read_text())
    return page


def test_the_knee_is_written_with_what_broke(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = Runs(monkeypatch, holds_until=10.0)
    assert knee(1_000, tmp_path / "knee.json") is ExitCode.PASS
    page = page_of(tmp_path / "knee.json")
    assert (page["limit"], page["ended"]) == ("testnet", None)
    assert 9.0 < 3 * page["knee"]["factor"] <= 10.0
    assert [3 * each["factor"] for each in page["steps"]] == pytest.approx(runs.rates)


def test_users_that_cannot_be_faster_are_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = Runs(monkeypatch)
    assert knee(5, tmp_path / "knee.json") is ExitCode.PASS
    page = page_of(tmp_path / "knee.json")
    assert runs.rates == [600.0, 1_500.0, 3_000.0], "of users with 5, 2 and 1 ms"
    assert [each["factor"] for each in page["steps"]] == [1.0, 2.5, 5.0]
    assert (page["knee"]["factor"], page["limit"]) == (5.0, "load users")
    assert "more users are needed" in capsys.readouterr().out


def test_rates_between_two_whole_milliseconds_are_not_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = Runs(monkeypatch, holds_until=1_600.0)
    assert knee(5, tmp_path / "knee.json") is ExitCode.PASS
    assert runs.rates == [600.0, 1_500.0, 3_000.0]
    assert page_of(tmp_path / "knee.json")["knee"]["factor"] == 2.5


def test_loads_that_all_ended_early_are_no_knee_and_no_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is known of the testnet then: it did not break a bound, the load did not do its work."""
    Runs(monkeypatch)
    ended = replace(outcome(exit_code=1), why_ended="it ended with exit code 1: lost")
    monkeypatch.setattr(knee_module, "run_load", lambda *_: ended)
    with pytest.raises(HarnessError, match="no load shows anything: it ended with exit code 1: lost") as failed:
        knee(1_000, tmp_path / "knee.json")
    assert failed.value.exit_code is ExitCode.INCONCLUSIVE
    assert page_of(tmp_path / "knee.json")["knee"] is None


def test_an_interrupted_search_keeps_its_steps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = Runs(monkeypatch)
    runs.then = lambda: signal.raise_signal(signal.SIGINT) if len(runs.rates) == 3 else None
    with pytest.raises(KeyboardInterrupt):
        knee(1_000, tmp_path / "knee.json")
    page = page_of(tmp_path / "knee.json")
    assert ([each["factor"] for each in page["steps"]], page["knee"]["factor"]) == ([1.0, 2.0], 2.0)
    assert page["ended"] == "interrupted"
    assert "not searched further: interrupted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("look", "words"),
    [(Look(0.0, 5, 0, 7, 3), "3 pending · backlog 7"), (None, "no validator answers")],
)
def test_a_testnet_that_comes_to_no_rest_ends_the_search(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, look: Look | None, words: str
) -> None:
    """The next load would be measured on what is left of the one before."""
    runs = Runs(monkeypatch)
    monkeypatch.setattr(knee_module, "REST_S", 0.0)
    runs.then = lambda: setattr(runs, "look", look)
    with pytest.raises(TestnetError, match=f"did not come to rest within 0 s: {words}"):
        knee(1_000, tmp_path / "knee.json")
    page = page_of(tmp_path / "knee.json")
    assert (len(runs.rates), len(page["steps"])) == (1, 1)
    assert words in page["ended"]
