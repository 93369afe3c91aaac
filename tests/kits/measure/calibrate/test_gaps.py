"""The gaps between live and simulated runs, and the verdicts on them."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from cluster.common.outcome import Outcome
from kits.measure.calibrate.gaps import GOALS, ScenarioGaps, gaps_of
from kits.measure.calibrate.output import calibration_page, print_gaps, profile_text
from tests.kits.measure.calibrate.synthetic import TRUTH

P50 = GOALS[0]


def gaps(live: list[float], simulated: list[float], within: float = 0.15) -> ScenarioGaps:
    """All goals' metrics have these values in the runs."""
    one, other = ([dict.fromkeys(GOALS, value) for value in values] for values in (live, simulated))
    return gaps_of("mine", True, one, other, (0, 0), within)


@pytest.mark.parametrize(
    ("live", "simulated", "outcome"),
    [
        ([100, 100, 100], [100, 100, 100], Outcome.PASS),
        ([100, 100, 100], [114, 115, 116], Outcome.PASS),
        ([98, 100, 102], [130, 131, 132], Outcome.FAIL),
        ([98, 100, 102], [70, 71, 72], Outcome.FAIL),
        ([60, 100, 140], [118, 120, 122], Outcome.INCONCLUSIVE),  # the interval reaches into the goal
        ([100], [116], Outcome.FAIL),
        ([0, 0], [0, 0], Outcome.INCONCLUSIVE),  # no share of nothing
    ],
)
def test_a_gap_has_a_verdict(live: list[float], simulated: list[float], outcome: Outcome) -> None:
    found = gaps(live, simulated)
    assert found.outcome_of(P50) is outcome
    assert found.outcome is outcome


def test_the_wider_the_goal_the_more_passes() -> None:
    assert gaps([100] * 3, [130] * 3, 0.15).outcome is Outcome.FAIL
    assert gaps([100] * 3, [130] * 3, 0.30).outcome is Outcome.PASS


def test_a_missing_metric_is_inconclusive() -> None:
    runs = [{name: 5.0 for name in GOALS if name != P50}]
    found = gaps_of("mine", False, runs, runs, (0, 0), 0.15)
    assert [gap.name for gap in found.gaps] == list(GOALS[1:])
    assert found.outcome_of(P50) is Outcome.INCONCLUSIVE
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "not measured: inconclusive" in printed(found)


def test_one_missed_goal_fails_the_scenario() -> None:
    live = dict.fromkeys(GOALS, 100.0)
    found = gaps_of("mine", True, [live], [live | {P50: 150.0}], (0, 0), 0.15)
    assert [found.outcome_of(name) for name in GOALS] == [Outcome.FAIL, Outcome.PASS, Outcome.PASS]
    assert found.outcome is Outcome.FAIL


def test_other_metrics_have_no_verdict() -> None:
    live = dict.fromkeys((*GOALS, "blocks_per_second", "bytes_sent"), 100.0)
    found = gaps_of("mine", True, [live], [live | {"blocks_per_second": 900.0}], (0, 0), 0.15)
    assert [gap.name for gap in found.gaps] == [*GOALS, "blocks_per_second"]
    assert found.outcome is Outcome.PASS
    assert found.page()["metrics"]["blocks_per_second"]["verdict"] is None


def printed(found: ScenarioGaps) -> str:
    text = io.StringIO()
    print_gaps(Console(file=text, width=180, highlight=False), found)
    return text.getvalue()


def test_the_table_shows_both_sides_with_their_intervals() -> None:
    lines = printed(gaps([98, 100, 102], [109, 110, 111])).splitlines()
    assert lines[0] == "mine  (the profile is fitted to these runs)"
    row = next(line.split() for line in lines if line.startswith(P50))
    assert row[1:5] == ["100", "98", "…", "102"]
    assert row[5:9] == ["110", "109", "…", "111"]
    assert row[9:11] == ["+10.0", "%"]
    assert row[-1] == "pass"
    told = gaps_of("mine", False, [], [], (2, 0), 0.15)
    assert "(not used to fit)" in printed(told)
    assert "not all runs passed their checks: 2 live and 0 simulated did not" in printed(told)


def test_the_page_is_json() -> None:
    found = gaps([98, 100, 102], [109, 110, 111])
    page = json.loads(json.dumps(calibration_page([found], TRUTH, found.outcome)))
    assert page["verdict"] == "pass"
    assert page["within_share"] == 0.15
    assert page["profile"] == TRUTH.model_dump()
    metric = page["scenarios"][0]["metrics"][P50]
    assert metric["runs"] == [3, 3]
    assert (metric["live"], metric["simulated"]) == (100.0, 110.0)
    assert metric["gap_share"] == pytest.approx(0.1)
    assert metric["gap_share_interval"][0] < 0.1 < metric["gap_share_interval"][1]


def test_a_profiles_text_is_short() -> None:
    lines = profile_text(TRUTH, "where it comes from").splitlines()
    assert lines[0] == "# where it comes from"
    assert max(map(len, lines)) <= 120
    assert "link_us: [100, 200, 400, 800, 3000]" in lines
