"""What a scenario asks for and its run is not likely to give, and how long that run is told to take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.commands.cli.main import main
from cluster.commands.drills.registry import DRILLS
from cluster.commands.explain.estimate import estimate_run
from cluster.commands.explain.outline import block_ms, outline
from cluster.common.errors import ExitCode
from cluster.record.run import Backend
from cluster.scenario import Scenario
from cluster.scenario.files import load_scenario
from cluster.scenario.metric_names import METRICS, METRICS_OF_LIVE_RUNS, METRICS_OF_SIMULATIONS
from cluster.watches.watched_simulation import simulate

SHIPPED = sorted((Path(__file__).resolve().parents[4] / "scenarios").rglob("*.yaml"))
ALL = [f"validator-{index}" for index in range(4)]
TWELVE = {"stop": {"height": 12}, "success": {"heights_compared": 12}}


def scenario(**fields: Any) -> Scenario:
    loaded = {"users": [{"workload": "flood"}]}
    return Scenario.model_validate({"name": "a", "load": loaded} | fields)


def table(given: Scenario, title: str, backend: Backend | None = None) -> dict[str, str]:
    found = next((table for table in outline(given, backend) if table.title == title), None)
    return {row[0]: row[1] for row in found.rows} if found is not None else {}


def warned(given: Scenario, backend: Backend | None = None) -> dict[str, str]:
    return table(given, "Warnings", backend)


def length(given: Scenario) -> str:
    return table(given, "Estimates")["length of the run"]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_what_ships_has_no_warning(path: Path) -> None:
    assert not warned(load_scenario(path))


@pytest.mark.kits
def test_drills_have_no_warning() -> None:
    assert not any(warned(drill().scenario()) for drill in DRILLS.values())


@pytest.mark.parametrize(
    ("fault", "field", "what"),
    [
        ({"kind": "kill", "target": "leader", "at_ms": 100_000}, "at_ms", "100.0 s; the run probably ends after 5."),
        (
            {"kind": "pause", "target": ALL, "at_height": 3, "for_ms": 100_000},
            "for_ms",
            "no quorum is left for about 100.0 s; success.stall_ms allows 30.0 s: fail",
        ),
        (
            {"kind": "kill", "target": ALL[:2], "at_height": 3, "down_ms": 40_000},
            "down_ms",
            "no quorum is left for about 40.0 s",
        ),
        (
            {"kind": "partition", "groups": [ALL[:2]], "at_height": 3, "until_height": 9},
            "until_height",
            "no quorum is left until the fault ends, so this height is never reached: the run is ended after 120 s",
        ),
        (
            {"kind": "slow_disk", "target": "leader", "sync_ms": 9, "at_height": 3, "until_height": 99},
            "until_height",
            "99; the load ends by height 17, the run with the fault",
        ),
        (
            {"kind": "pause", "target": "f", "at_height": 3, "for_ms": 600_000},
            "for_ms",
            "ends after about 600.9 s; the run is ended after 120 s (stop.timeout_s)",
        ),
        ({"kind": "degrade", "loss": 0.0, "at_height": 3, "for_ms": 500}, "", "only removes losses"),
        (
            {"kind": "kill", "target": "validator-1", "at_height": 3, "down_ms": 100},
            "down_ms",
            "100 ms, shorter than the time of a block: inconclusive",
        ),
        (
            {"kind": "pause", "target": "leader", "at_height": 3, "for_ms": 2_500},
            "for_ms",
            "2,500 ms; a view without its leader takes up to 3,250 ms, so no block may become final: inconclusive",
        ),
    ],
)
def test_faults_that_probably_are_not_meant_so(fault: dict[str, Any], field: str, what: str) -> None:
    found = warned(scenario(**TWELVE, faults=[fault]))
    path = f"faults[0].{field}".rstrip(".")
    assert found[path].startswith(what)
    assert {path} <= found.keys() <= {path, "stop.timeout_s"}


def test_faults_that_may_show_what_they_are_to_show_have_no_warning() -> None:
    kill = {"kind": "kill", "at_height": 3}
    faults = [kill | {"target": "leader", "down_ms": 3_250}, kill | {"target": "validator-1", "down_ms": 2_500}]
    assert not warned(scenario(**TWELVE, faults=faults))
    pause = {"kind": "pause", "until_height": 6}
    faults = [pause | {"target": "leader", "at_height": 3}, pause | {"target": "validator-1", "at_ms": 1_500}]
    assert not warned(scenario(**TWELVE, faults=faults)), "the height that they wait for is one"


def test_faults_that_leave_no_quorum_only_together_are_seen() -> None:
    pauses = [{"kind": "pause", "target": name, "at_height": 3, "for_ms": 50_000} for name in ALL[:2]]
    assert list(warned(scenario(**TWELVE, faults=pauses))) == ["faults[1].for_ms"]
    assert not warned(scenario(**TWELVE, faults=pauses[:1]))


def test_the_length_of_the_run_counts_what_holds_it() -> None:
    assert length(scenario(**TWELVE)) == "about 5.0 s"
    pause = {"kind": "pause", "target": ALL, "at_height": 3, "for_ms": 3_600_000}
    assert length(scenario(**TWELVE, faults=[pause])) == "120.0 s, then ended (stop.timeout_s)"
    assert length(scenario(**TWELVE, faults=[pause | {"for_ms": 20_000}])) == "about 25.0 s"
    late = {"kind": "slow_disk", "target": "f", "sync_ms": 9, "at_height": 3, "until_height": 100}
    assert length(scenario(**TWELVE, faults=[late])) == "about 29.5 s"
    assert length(scenario(**TWELVE, faults=[late | {"until_height": 9_999}])) == "120.0 s, then ended (stop.timeout_s)"
    assert length(scenario(**TWELVE, faults=[late, pause | {"for_ms": 20_000}])) == "about 49.5 s"
    again = pause | {"at_height": 5, "for_ms": 10_000}
    assert length(scenario(**TWELVE, faults=[pause | {"for_ms": 20_000}, again])) == "about 35.0 s"


def test_a_run_that_is_held_takes_about_as_long_as_was_told() -> None:
    fault = {"kind": "partition", "groups": [ALL[:2]], "at_height": 5, "for_ms": 9_000}
    given = scenario(**TWELVE, faults=[fault], consensus={"signatures": "keyed-hash"}, load={})
    assert estimate_run(given, block_ms(given)).length_ms == pytest.approx(simulate(given, 3).duration_ms, rel=0.2)


def test_what_is_asked_of_a_run_that_ends_before() -> None:
    found = warned(scenario(stop={"height": 12}, success={"heights_compared": 9_000}))
    assert found == {
        "success.heights_compared": "9,000; the run probably ends by height 17: inconclusive",
    }
    epochs = {"count": 5, "epochs": [{"from_view": 500, "members": ALL}]}
    assert list(warned(scenario(**TWELVE, validators=epochs))) == ["validators.epochs[0].from_view"]
    short = warned(scenario(**TWELVE | {"stop": {"height": 12, "timeout_s": 3}}))
    assert list(short) == ["stop.timeout_s", "success.heights_compared"]


def test_validators_in_no_region_where_others_are_in_some() -> None:
    regions = {"us-east": ALL[:2], "eu-west": ALL[2:3]}
    given = scenario(links={"latencies": "azure", "regions": regions})
    assert warned(given) == {"links.regions": "validator-3 is in no region: latency_ms, 20 ms, applies"}
    few = scenario(links={"latencies": "azure", "regions": {"us-east": ALL[:2]}})
    assert warned(few) == {"links.regions": "validator-2 and 1 more are in no region: latency_ms, 20 ms, applies"}
    assert not warned(scenario(links={"regions": regions | {"eu-west": ALL[2:]}}))


def test_without_load_nothing_is_committed() -> None:
    assert list(warned(scenario(load={}))) == ["success.transactions", "success.fires"]
    assert not warned(scenario(load={}, success={"transactions": 0, "fires": 0}))


# --- metrics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "backend", "what"),
    [
        ("memory_max_mb", "sim", "the simulator does not have this metric: inconclusive there"),
        ("memory_max_mb", None, "the simulator does not have this metric: inconclusive there"),
        ("memory_max_mb", "live", None),
        ("events", "live", "the live testnet does not have this metric: inconclusive there"),
        ("events", "sim", None),
        ("deepest_reorg", "live", None),
        ("recovery_ms", "sim", "a run without faults does not have this metric: inconclusive"),
    ],
)
def test_metrics_that_a_backend_does_not_have(metric: str, backend: Backend | None, what: str | None) -> None:
    found = warned(scenario(success={"metrics": {metric: {"at_most": 500.0}}}), backend)
    assert found == ({} if what is None else {f"success.metrics.{metric}": what})


def test_each_backend_has_some_metrics_of_its_own() -> None:
    assert {
        "bytes_sent",
        "core_seconds",
        "judge_core_seconds",
        "load_average_max",
        "memory_max_mb",
        "open_files_max",
        "startup_seconds",
        "steal_share",
    } == METRICS_OF_LIVE_RUNS
    assert {"events"} == METRICS_OF_SIMULATIONS
    assert METRICS.keys() > METRICS_OF_LIVE_RUNS


def test_the_terminal_and_the_page_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, page = tmp_path / "a.yaml", tmp_path / "a.html"
    path.write_text("name: a\nsuccess: {metrics: {memory_max_mb: {at_most: 500}}}\n")
    assert main(["explain", str(path), "--backend", "sim"]) == ExitCode.PASS
    told = capsys.readouterr().out
    assert "Warnings" in told
    assert main(["explain", str(path), "--backend", "sim", "--out", str(page)]) == ExitCode.PASS
    for words in ("success.metrics.memory_max_mb", "the simulator does not have this metric: inconclusive there"):
        assert words in told and words in page.read_text(encoding="utf-8")
