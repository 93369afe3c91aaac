"""Traces of a load beside a scenario's file: the points take the place of the path."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.common.errors import BadInput
from cluster.scenario.files import load_scenario, scenario_text
from loadgen.workloads.phases import Seen, TracePhase

SCENARIO = "name: own\nload: {phases: [{kind: trace, from_ms: 100, points: ../rates.csv}]}"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "scenarios" / "own.yaml"
    path.parent.mkdir()
    path.write_text(SCENARIO, encoding="utf-8")
    return path


def test_a_trace_is_read_with_the_scenario(own: Path, tmp_path: Path) -> None:
    trace = tmp_path / "rates.csv"
    trace.write_text("# milliseconds, rate\n0, 1\n\n500,2.5  # the rush\n900,0\n", encoding="ascii")
    scenario = load_scenario(own)
    (phase,) = scenario.load.phases
    assert isinstance(phase, TracePhase)
    assert phase.points == [(0, 1), (500, 2.5), (900, 0)]
    assert [phase.rate_milli(Seen(at_ms=at_ms)) for at_ms in (100, 599, 600, 999, 1_000)] == [
        1_000,
        1_000,
        2_500,
        2_500,
        0,
    ]
    trace.unlink()
    own.write_text(scenario_text(scenario, None), encoding="utf-8")
    assert load_scenario(own) == scenario, "the copy in a run's folder needs no other file"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "{path}: no such file"),
        ("0,1\n5;2\n", "{path}: line 2: expected a place and a rate, such as 1500,0.5; got '5;2'"),
        ("x,1\n", "{path}: line 1: expected a place and a rate, such as 1500,0.5; got 'x,1'"),
        ("0,1\n" * 250_001, "{path}: expected a trace of at most 1,000,000 bytes"),
        ("5,1\n5,2\n", "points[1]: 5 is not above 5, the place before"),
        ("5,1000\n", "expected at most 100, got 1000"),
        ("-5,1\n", "expected at least 0, got -5"),
        ("# nothing\n", "expected at least 1 in the list"),
    ],
)
def test_a_trace_that_is_none_is_one_line(own: Path, tmp_path: Path, content: str | None, line: str) -> None:
    trace = tmp_path / "rates.csv"
    if content is not None:
        trace.write_text(content, encoding="ascii")
    with pytest.raises(BadInput) as caught:
        load_scenario(own)
    text = str(caught.value)
    assert text.startswith(f"{own}: load.phases[0].points"), text
    assert line.format(path=own.parent / ".." / "rates.csv") in text
    assert "\n" not in text


def test_a_trace_of_a_group_is_read_with_the_scenario(own: Path, tmp_path: Path) -> None:
    group = "{workload: transfer, phases: [{kind: trace, from_ms: 100, points: ../rates.csv}]}"
    own.write_text(f"name: own\nload: {{users: [{{workload: heartbeat}}, {group}]}}", encoding="utf-8")
    trace = tmp_path / "rates.csv"
    trace.write_text("0,1\n500,2.5\n", encoding="ascii")
    honest, traced = load_scenario(own).load.users
    assert honest.phases is None
    (phase,) = traced.phases or []
    assert isinstance(phase, TracePhase)
    assert phase.points == [(0, 1), (500, 2.5)]
    trace.write_text("0;1\n", encoding="ascii")
    with pytest.raises(BadInput, match=r"own\.yaml: load\.users\[1\]\.phases\[0\]\.points: .*rates\.csv: line 1: "):
        load_scenario(own)
