"""What a scenario will do, in words and figures."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from cluster.checks.kind import shipped
from cluster.commands.explain.outline import Table, block_ms, distances, outline
from cluster.scenario import Scenario
from cluster.scenario.files import load_scenario
from cluster.watches.watched_simulation import simulate
from tests.loadgen.own_workloads import PAYS, group

pytestmark = pytest.mark.kits

ROOT = Path(__file__).resolve().parents[4]
SHIPPED = sorted((ROOT / "scenarios").rglob("*.yaml"))

FULL: dict[str, Any] = {
    "name": "everything",
    "description": "Something of everything.",
    "validators": {
        "count": 7,
        "hosts": 4,
        "allow_more_faults": True,
        "nodes": [
            {"name": "anna", "mutant": "double-fire"},
            {"byzantine": ["garbage", "stale-replayer"]},
            {"joins_at_height": 9},
            {"sync_ms": 1_500, "job_ms": 20, "clock_speed": 1.5},
        ],
        "epochs": [{"from_view": 20, "members": ["anna", "validator-1", "validator-2", "validator-3"]}],
    },
    "links": {"regions": {"us-east": ["anna", "validator-4"], "eu-west": ["validator-5"]}, "latencies": "azure"},
    "load": {
        "users": [
            {"workload": "flood", "count": 2, "interval_ms": 500, "options": {"timers": 5}},
            {"workload": "transfer", "from_height": 5, "until_height": 9, "budget": 5_000_000},
        ],
        "phases": [
            {"kind": "ramp", "until_height": 4, "to_rate": 2.0},
            {"kind": "burst", "from_height": 10, "until_height": 20, "rate": 3.0},
            {"kind": "steady", "from_height": 20, "until_height": 25, "rate": 0.5},
            {"kind": "pause", "from_height": 25},
        ],
    },
    "faults": [
        {"kind": "kill", "target": "anna", "at_height": 12},
        {"kind": "pause", "target": "f", "at_ms": 100, "for_ms": 2_500},
        {"kind": "slow_disk", "target": "leader", "at_height": 14, "until_height": 16, "sync_ms": 30},
        {
            "kind": "clock_skew",
            "target": "random",
            "at_height": 15,
            "for_ms": 9,
            "until_height": 17,
            "clock_speed": 2.0,
        },
        {"kind": "pause", "target": "region:us-east", "at_height": 16, "for_ms": 5},
        {"kind": "partition", "groups": [["region:us-east"], ["validator-5"]], "at_height": 18, "for_ms": 5},
        {"kind": "one_way_partition", "from": ["anna"], "at_height": 19, "for_ms": 5},
        {"kind": "degrade", "loss": 0.5, "at_height": 20, "after_votes": "nullify", "for_ms": 5},
        {"kind": "leader_delay", "delay_ms": 70, "at_height": 21, "for_ms": 5},
        {"kind": "upgrade", "version": "next", "at_height": 22},
    ],
    "success": {
        "metrics": {"fires": {"at_least": 10.0}},
        "samples": {"lateness_blocks": {"at_most": 2.0, "breach_share": 0.05}},
    },
    "forks": [{"at_height": 30, "seed": 3, "changes": {"links.loss": 0.1}}],
}


@pytest.fixture(scope="module")
def everything() -> list[Table]:
    return outline(Scenario.model_validate(FULL))


def rows(found: list[Table], title: str) -> list[tuple[str, ...]]:
    return list(next(table.rows for table in found if table.title == title))


def words(found: list[Table], title: str) -> str:
    return "\n".join(" ".join(row) for row in rows(found, title))


def test_what_is_particular_to_validators(everything: list[Table]) -> None:
    told = [(name, host, region, special) for _, name, host, region, special in rows(everything, "Validators")]
    assert told[:5] == [
        ("anna", "0", "us-east", "planted bug double-fire"),
        ("validator-1", "1", "", "byzantine: garbage, stale-replayer"),
        ("validator-2", "2", "", "joins at height 9"),
        ("validator-3", "3", "", "each sync takes 1,500 ms; each job takes 20 ms; clock at 1.5 of its speed"),
        ("validator-4", "0", "us-east", ""),
    ]


def test_of_many_validators_only_the_particular_ones_are_listed() -> None:
    found = outline(Scenario.model_validate({"name": "a", "validators": {"count": 40, "nodes": [{}, {"job_ms": 3}]}}))
    assert [row[1] for row in rows(found, "Validators")] == ["validator-1"]


def test_committees_with_their_quorums(everything: list[Table]) -> None:
    assert rows(everything, "Committees") == [
        ("from view 1", "all", "7", "2", "5"),
        ("from view 20", "anna, validator-1, validator-2, validator-3", "4", "1", "3"),
    ]


def test_what_happens_is_in_the_order_of_time(everything: list[Table]) -> None:
    timeline = rows(everything, "Timeline")
    heights = [int(when.split()[1]) for when, _, _ in timeline if when.startswith("height")]
    assert heights == sorted(heights)
    assert timeline[0][0] == "at the start"
    assert timeline[-1][1] == "the run is ended (stop.timeout_s)"
    assert len(timeline) == 2 + 4 + 1 + 1 + 10 + 1 + 2


def test_a_groups_budget_stands_with_its_options(everything: list[Table]) -> None:
    assert [row[-1] for row in rows(everything, "Load")] == ["timers 5", "budget 5,000,000"]


@pytest.mark.parametrize(
    "line",
    [
        "fault: kill, anna, and on the same host validator-4 down for at least 2,000 ms",
        "0.1 s fault: pause, 1 of 7, random among those running 2,500 ms",
        "fault: slow disk, the leader of the newest view (sync_ms 30) until height 16",
        "fault: clock skew, a random running validator (clock_speed 2.0) 9 ms or until height 17",
        "fault: pause, anna, validator-4 (region us-east) 5 ms",
        "fault: partition, anna, validator-4 | validator-5 | validator-1, validator-2, validator-3, validator-6 5 ms",
        "fault: one way partition, anna to the others 5 ms",
        "fault: degrade, all links (loss 0.5), after nullify votes 5 ms",
        "fault: leader delay, the current leader (delay_ms 70) 5 ms",
        "fault: upgrade, all hosts, one after the other (version next) down for at least 500 ms",
        "validator-2 joins by a snapshot",
        "the committee becomes anna, validator-1, validator-2, validator-3",
        "load: ramp, from 0 to 2 times as many turns until height 4",
        "load: bursts of 1 of every 10 blocks, 3 times as many turns (between them 1) until height 20",
        "load: steady, 0.5 times as many turns until height 25",
        "load: pause, no turns to the end",
        "users of group 1 (1 × transfer) begin until height 9",
        "fork: links.loss becomes 0.1; random choices follow seed 3",
        "the load stops then 5 blocks to drain",
    ],
)
def test_each_moment_is_told(everything: list[Table], line: str) -> None:
    assert line in words(everything, "Timeline")


def test_what_must_be_reached_and_what_it_means_otherwise(everything: list[Table]) -> None:
    told = rows(everything, "Success criteria")
    assert ("fires", "at least 10", "fail") in told
    assert ("lateness_blocks", "at most 2; up to 5 % may be outside", "fail") in told
    assert ("committed transactions", "at least 50", "inconclusive") in told


def test_every_check_is_told(everything: list[Table]) -> None:
    told = rows(everything, "Checks")
    assert [name for name, _ in told] == [kind.name for kind in shipped()]
    assert all(what and ":mod:" not in what for _, what in told)


def test_where_it_runs(everything: list[Table]) -> None:
    assert rows(everything, "Backends")[1][1].startswith("no: forks: only the simulator")
    assert rows(outline(Scenario(name="a")), "Backends") == [("simulator", "yes"), ("live testnet", "yes")]


def test_metrics_follow_from_the_scenario(everything: list[Table]) -> None:
    told = {row[0]: row[1] for row in rows(everything, "Estimates")}
    assert told["faulty validators tolerated"] == "f = 2 of 7"
    assert told["quorum"] == "5 of 7"
    assert told["recovery after the last fault"] == f"within {Scenario.model_validate(FULL).recovery_ms:,} ms"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_scenario_can_be_told(path: Path) -> None:
    scenario = load_scenario(path)
    found = outline(scenario)
    assert [table.title for table in found][:3] == ["Backends", "Validators", "Committees"] or (
        scenario.validators.count > 12
    )
    assert all(len(row) == len(table.columns) for table in found for row in table.rows)


# --- estimates ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["simplex", "hotstuff"])
@pytest.mark.parametrize(
    "links",
    [
        {"latency_ms": 20},
        {"latency_ms": 10, "topology": "ring"},
        {"regions": {"us-east": ["validator-0", "validator-1"], "ap-south": ["validator-2"]}, "latencies": "azure"},
    ],
)
def test_a_block_takes_about_as_long_as_was_told(links: dict[str, Any], protocol: str) -> None:
    scenario = Scenario.model_validate(
        {
            "name": "a",
            "validators": 7,
            "links": links,
            "consensus": {"protocol": protocol, "block_interval_ms": 100, "signatures": "keyed-hash"},
            "stop": {"height": 22, "drain_blocks": 0},
        }
    )
    moments = list(simulate(scenario, 3).first_finalizations.values())
    measured = mean(later - earlier for earlier, later in pairwise(moments))
    assert block_ms(scenario) == pytest.approx(measured, rel=0.15)


def test_where_no_quorum_can_be_reached_there_is_an_estimate_all_the_same() -> None:
    edges = {"kind": "edges", "edges": [["validator-0", "validator-1"]], "allow_disconnected": True}
    assert block_ms(Scenario.model_validate({"name": "a", "links": {"topology": edges}})) == 255


# --- latencies ------------------------------------------------------------------------------------------------------


def test_few_validators_have_a_row_each_and_regions_are_put_together() -> None:
    plain = distances(Scenario.model_validate({"name": "a", "links": {"topology": "ring"}}).network)
    assert plain.columns[1:] == ("validator-0", "validator-1", "validator-2", "validator-3")
    assert plain.rows[0] == ("validator-0", "", "20", "40", "20")
    assert plain.note.startswith(
        "milliseconds of one message; 4 links; the median path leads over 1, the longest over 2"
    )
    regions = distances(Scenario.model_validate(FULL).network)
    assert regions.columns[1:] == ("us-east", "(no region)", "eu-west")
    assert regions.rows[0] == ("us-east", "1", "20", "41.5")


def test_many_validators_are_one_row() -> None:
    many = distances(Scenario.model_validate({"name": "a", "validators": 200, "links": {"topology": "ring"}}).network)
    assert (many.columns[1:], many.rows) == (("all",), (("all", "20–140"),))


def test_where_there_is_no_way_it_says_so() -> None:
    edges = {"kind": "edges", "edges": [["validator-0", "validator-1"]], "allow_disconnected": True}
    cut = distances(Scenario.model_validate({"name": "a", "links": {"topology": edges}}).network)
    assert cut.rows[0] == ("validator-0", "", "20", "cut", "cut")


def test_phases_by_time_and_open_loops_are_told() -> None:
    phases: list[dict[str, Any]] = [
        {"kind": "step", "until_ms": 1_000, "to_rate": 4.0, "steps": 4},
        {"kind": "spike", "from_ms": 1_000, "until_ms": 2_000, "rate": 9.0},
        {"kind": "sine", "from_ms": 2_000, "until_ms": 3_000, "rate": 2.0, "amplitude": 1.0, "period_ms": 500},
        {"kind": "burst", "from_ms": 3_000, "until_ms": 4_000, "rate": 9.0, "lasts_ms": 10, "every_ms": 50},
        {"kind": "trace", "from_ms": 4_000, "until_ms": 5_000, "points": [[0, 1], [9, 2]]},
        {
            "kind": "feedback",
            "from_ms": 5_000,
            "watches": "basefee_lane",
            "low": 0,
            "high": 9_000,
            "low_rate": 2,
            "high_rate": 0,
        },
    ]
    of_the_group = [{"kind": "pause", "from_height": 4, "until_height": 7}]
    raid = group(PAYS, "raid", count=2, phases=of_the_group)
    users = [{"workload": "flood", "arrival": "open", "interval_ms": 250}, raid]
    locust = [{"name": "readers", "source": "a = 1"}]
    plan = Scenario.model_validate({"name": "s", "load": {"users": users, "phases": phases, "locust": locust}})
    cells = {cell for table in outline(plan) for row in table.rows for cell in row}
    assert "250 ms, open loop" in cells
    assert {"raid", "users of group 1 (2 × raid) begin", "Locust", "readers.py"} <= cells
    assert cells >= {
        "load: 4 steps, from 0 to 4 times as many turns",
        "load: spike, 9 times as many turns in the middle (at its ends 1)",
        "load: sine of 500 ms, 2 ± 1 times as many turns",
        "load: bursts of 10 of every 50 ms, 9 times as many turns (between them 1)",
        "load: trace of 2 points",
        "load: feedback, 2 times as many turns up to a basefee of the lane of 0, 0 from 9,000 on",
        "until 5.0 s",
        "group 1: pause, no turns",
        "until height 7",
    }
