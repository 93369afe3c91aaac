"""The timeline's data: whole, bounded, and in places that its script understands."""

from __future__ import annotations

import json

import pytest

from cluster.audit.books import keep_books
from cluster.record.finalizations import Finalization, Finalizations
from cluster.record.message_trace import KINDS
from cluster.record.run import TracedMessage, TraceWindow, ViewEntered
from cluster.report.fault_labels import marked
from cluster.report.timeline import COLOURS, MAX_MOMENTS, legend, timeline_data
from tests.cluster.records import make_record, make_scenario, with_kill


def test_lanes_faults_and_messages_are_those_of_the_watched_validators() -> None:
    record = with_kill(make_record())
    record.trace.watched = (0, 2)
    record.trace.views = [ViewEntered(10.0, 0, 1), ViewEntered(11.004, 2, 1), ViewEntered(12.0, 1, 1)]
    kept = [
        TracedMessage(0, 2, 100.0, 120.5, "proposal", 4, 900),
        TracedMessage(2, 0, 101.0, None, "notarize", 4, 200),
        TracedMessage(2, 0, None, 103.0, "finalize", 3, 200),
        TracedMessage(0, 1, 100.0, 120.0, "proposal", 4, 900),
    ]
    record.trace.windows = [TraceWindow("the beginning", 0.0, 400.0, kept)]
    data = timeline_data(keep_books(record), marked(record))
    assert [lane["name"] for lane in data["lanes"]] == ["validator-0", "validator-2"]
    assert data["lanes"][1]["views"] == [[11.0, 1]]
    assert data["hidden"] == 2
    (fault,) = data["faults"]
    assert (fault["name"], fault["number"], fault["lanes"]) == ("kill validator-2", "", [1])
    assert data["windows"][0]["messages"] == [
        [KINDS.index("proposal"), 4, 0, 1, 100_000, 20_500, 900],
        [KINDS.index("notarize"), 4, 1, 0, 101_000, -1, 200],
        [KINDS.index("finalize"), 3, 1, 0, 103_000, -2, 200],
    ]
    assert [(kind, count) for kind, _, _, count in legend(record)] == [
        ("proposal", 2),
        ("notarize", 1),
        ("finalize", 1),
    ]
    json.dumps(data)


def test_a_fault_of_all_links_is_a_band_on_every_lane() -> None:
    record = with_kill(make_record())
    record.faults[0].targets = record.faults[0].impaired = ()
    (fault,) = timeline_data(keep_books(record), marked(record))["faults"]
    assert fault["lanes"] == [0, 1, 2, 3]


def test_a_long_run_is_thinned() -> None:
    record = make_record(scenario=make_scenario())
    record.finalizations = Finalizations(Finalization(float(at), 0, at) for at in range(20 * MAX_MOMENTS))
    record.trace.views = [ViewEntered(float(at), 0, at) for at in range(20 * MAX_MOMENTS)]
    lane = timeline_data(keep_books(record), marked(record))["lanes"][0]
    assert MAX_MOMENTS / 3 < len(lane["views"]) <= MAX_MOMENTS
    assert MAX_MOMENTS / 3 < len(lane["blocks"]) <= MAX_MOMENTS


@pytest.mark.slow
@pytest.mark.parametrize("long", [17_003, 17_004, 17_005, 17_006])
def test_the_longest_view_of_a_long_run_is_drawn_as_long_as_it_was(long: int) -> None:
    record = make_record(scenario=make_scenario())
    times = [at + 4_000.0 * (at > long) for at in range(20 * MAX_MOMENTS)]
    record.trace.views = [ViewEntered(at, 0, view) for view, at in enumerate(times)]
    views = timeline_data(keep_books(record), marked(record))["lanes"][0]["views"]
    (longest,) = (view for view in views if view[1] == long)
    assert longest == [long, long, long + 4_001.0]
    assert len(views) <= MAX_MOMENTS


def test_every_kind_of_message_has_a_look_of_its_own() -> None:
    assert set(COLOURS) == set(KINDS)
    assert len(set(COLOURS.values())) == len(KINDS)
