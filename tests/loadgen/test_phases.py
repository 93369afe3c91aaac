"""Phases: which rate holds at which height, and how many turns users take by it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from loadgen.workloads import LoadPlan, Observation
from loadgen.workloads.arrival import Rhythm, Schedule
from loadgen.workloads.phases import Seen
from validator.chain.transactions import parse

CHAIN_ID = "chain"


def rhythm(*phases: dict[str, Any], interval_ms: int = 100, **bounds: int) -> Rhythm:
    plan = LoadPlan.model_validate({"phases": list(phases)})
    return Rhythm(Schedule(interval_ms, plan.phases, **bounds))


def rates(found: Rhythm, heights: range) -> list[float]:
    return [found.schedule.rate_milli(Seen(height)) / 1_000 for height in heights]


def turns_at(found: Rhythm, height: int, for_ms: int) -> int:
    """Turns in so many milliseconds, while one height is the newest."""
    found.takes_turn(Seen(height))
    turns = passed = 0
    while passed < for_ms:
        delay_ms = found.next_delay_ms()
        turns += found.takes_turn(Seen(height))
        passed += delay_ms
    return turns


# --- rates ----------------------------------------------------------------------------------------------------------


def test_outside_of_phases_the_rate_is_one() -> None:
    found = rhythm({"kind": "pause", "from_height": 3, "until_height": 5})
    assert rates(found, range(7)) == [1, 1, 1, 0, 0, 1, 1]


def test_a_ramp_changes_by_as_much_at_each_height() -> None:
    up = rhythm({"kind": "ramp", "from_height": 2, "until_height": 6, "from_rate": 1.0, "to_rate": 3.0})
    assert rates(up, range(1, 8)) == [1, 1, 1.5, 2, 2.5, 1, 1]
    down = rhythm({"kind": "ramp", "until_height": 5, "from_rate": 2.0, "to_rate": 0.0})
    assert rates(down, range(1, 6)) == [2, 1.5, 1, 0.5, 1]


def test_bursts_return() -> None:
    found = rhythm({"kind": "burst", "from_height": 2, "rate": 5.0, "base_rate": 0.5, "blocks": 2, "every": 4})
    assert rates(found, range(1, 11)) == [1, 5, 5, 0.5, 0.5, 5, 5, 0.5, 0.5, 5]


def test_phases_follow_each_other() -> None:
    found = rhythm(
        {"kind": "steady", "rate": 2.0, "until_height": 3},
        {"kind": "pause", "from_height": 3, "until_height": 4},
        {"kind": "steady", "rate": 0.5, "from_height": 6},
    )
    assert rates(found, range(8)) == [1, 2, 2, 0, 1, 1, 0.5, 0.5]


def test_a_group_may_begin_late_and_end_early_whatever_the_phase() -> None:
    found = rhythm({"kind": "steady", "rate": 2.0}, from_height=2, until_height=4)
    assert rates(found, range(6)) == [0, 0, 2, 2, 0, 0]


# --- by time --------------------------------------------------------------------------------------------------------


def rates_at(phase: dict[str, Any], *moments_ms: int) -> list[float]:
    schedule = rhythm(phase).schedule
    return [schedule.rate_milli(Seen(at_ms=at_ms)) / 1_000 for at_ms in moments_ms]


def test_a_ramp_by_time_goes_on_while_the_chain_stalls() -> None:
    by_time = {"kind": "ramp", "from_ms": 1_000, "until_ms": 3_000, "from_rate": 0.0, "to_rate": 4.0}
    assert rates_at(by_time, 999, 1_000, 1_500, 2_000, 2_949, 3_000) == [1, 0, 1, 2, 3.8, 1]
    by_height = rhythm({"kind": "ramp", "from_height": 1, "until_height": 5, "to_rate": 4.0}).schedule
    assert {by_height.rate_milli(Seen(2, at_ms)) for at_ms in range(0, 9_000, 500)} == {1_000}


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        ({"kind": "step", "from_rate": 1.0, "to_rate": 3.0, "steps": 3}, [1, 1, 2, 2, 3, 3]),
        ({"kind": "spike", "base_rate": 1.0, "rate": 7.0}, [1, 3, 5, 7, 5, 3]),
        ({"kind": "trace", "points": [[100, 2.0], [400, 0.5]]}, [0, 2, 2, 2, 0.5, 0.5]),
    ],
)
def test_shapes_are_the_same_by_height_and_by_time(phase: dict[str, Any], expected: list[float]) -> None:
    assert rates_at(phase | {"until_ms": 600}, *range(0, 600, 100)) == expected
    in_blocks = {"points": [[1, 2.0], [4, 0.5]]} if phase["kind"] == "trace" else {}
    found = rhythm(phase | in_blocks | {"from_height": 1, "until_height": 7})
    assert rates(found, range(1, 7)) == expected


def test_a_sine_swings_around_its_mean() -> None:
    phase = {"kind": "sine", "rate": 2.0, "amplitude": 1.0, "period_ms": 1_200, "from_ms": 0}
    found = rates_at(phase, *range(0, 2_400, 50))
    assert found[:24] == found[24:], "it returns"
    exact = [2 + math.sin(2 * math.pi * place / 24) for place in range(24)]
    assert found[:24] == pytest.approx(exact, abs=0.003)
    blocks = rhythm({"kind": "sine", "amplitude": 1.0, "period": 4})
    assert rates(blocks, range(1, 6)) == [1, 2, 1, 0, 1]


def test_bursts_by_time_return() -> None:
    phase = {"kind": "burst", "from_ms": 100, "rate": 9.0, "lasts_ms": 20, "every_ms": 50}
    assert rates_at(phase, 99, 100, 119, 120, 149, 150, 169, 170) == [1, 9, 9, 1, 1, 9, 9, 1]


def test_feedback_follows_what_is_seen_within_its_bounds() -> None:
    phase = {"kind": "feedback", "watches": "backlog", "low": 10, "high": 30, "low_rate": 4.0, "high_rate": 0.0}
    schedule = rhythm(phase).schedule
    assert [schedule.rate_milli(Seen(1, 0, 10**9, backlog)) for backlog in (0, 10, 15, 20, 30, 99)] == [
        4_000,
        4_000,
        3_000,
        2_000,
        0,
        0,
    ]
    pressing = rhythm(phase | {"watches": "basefee_lane", "low_rate": 1.0, "high_rate": 2.0}).schedule
    assert [pressing.rate_milli(Seen(1, 0, basefee, 99)) for basefee in (5, 20, 40)] == [1_000, 1_500, 2_000]


TIMED = [
    {"kind": "steady", "rate": 2.0, "until_ms": 730},
    {"kind": "ramp", "until_ms": 1_010, "from_ms": 15, "to_rate": 3.0},
    {"kind": "step", "until_ms": 701, "to_rate": 3.0, "steps": 7},
    {"kind": "spike", "until_ms": 515, "rate": 3.0},
    {"kind": "sine", "from_ms": 5, "rate": 2.0, "amplitude": 2.0, "period_ms": 333},
    {"kind": "burst", "from_ms": 33, "rate": 5.0, "lasts_ms": 7, "every_ms": 61},
    {"kind": "trace", "from_ms": 9, "points": [[3, 1.5], [77, 0.0], [240, 2.0]]},
    {"kind": "feedback", "from_ms": 9, "watches": "backlog", "low": 0, "high": 1, "low_rate": 3.0, "high_rate": 1.0},
    {"kind": "pause", "from_ms": 100, "until_ms": 1_000},
]


@pytest.mark.parametrize("phase", TIMED, ids=lambda phase: phase["kind"])
def test_a_rate_changes_at_no_other_moment_than_is_told(phase: dict[str, Any]) -> None:
    schedule = rhythm(phase).schedule
    rate = [schedule.rate_milli(Seen(at_ms=at_ms)) for at_ms in range(1_100)]
    changes = {at_ms for at_ms in range(1, 1_100) if rate[at_ms] != rate[at_ms - 1]}
    told, at_ms = set(), schedule.next_change_ms(0)
    while at_ms is not None and at_ms < 1_100:
        told.add(at_ms)
        at_ms = schedule.next_change_ms(at_ms)
    assert changes <= told
    assert len(told) < 100, "a look at each millisecond would be as good"


@pytest.mark.parametrize(
    ("phases", "words"),
    [
        ([{"kind": "pause", "from_ms": 5, "until_height": 9}], "from_ms: a phase goes by height or by time; this one"),
        ([{"kind": "ramp", "from_ms": 5, "to_rate": 1}], "until_ms: a ramp needs one"),
        ([{"kind": "spike", "rate": 1}], "until_height: a spike needs one"),
        ([{"kind": "pause", "from_ms": 5, "until_ms": 5}], "until_ms: 5 is not above from_ms (5)"),
        ([{"kind": "sine", "amplitude": 2, "period": 5}], "amplitude: 2 is above rate (1)"),
        ([{"kind": "sine", "amplitude": 1}], "period: is missing in a phase by height"),
        ([{"kind": "sine", "amplitude": 1, "period": 9, "from_ms": 0}], "period: the phase goes by time"),
        ([{"kind": "burst", "rate": 1, "lasts_ms": 9}], "lasts_ms: the phase goes by height"),
        ([{"kind": "burst", "rate": 1, "from_ms": 0}], "lasts_ms: is missing in a phase by time"),
        ([{"kind": "burst", "rate": 1, "from_ms": 0, "every": 3}], "every: the phase goes by time"),
        ([{"kind": "burst", "rate": 1, "from_ms": 0, "lasts_ms": 9, "every_ms": 9}], "lasts_ms: 9 is not below"),
        ([{"kind": "trace", "points": "a.csv"}], "'a.csv' is a path, which only a scenario that is read from a file"),
        ([{"kind": "trace", "points": [[5, 1], [5, 2]]}], "points[1]: 5 is not above 5, the place before"),
        ([{"kind": "trace", "points": []}], "at least 1"),
        (
            [{"kind": "feedback", "watches": "backlog", "low": 5, "high": 5, "low_rate": 1, "high_rate": 2}],
            "high: 5 is not above low (5)",
        ),
        (
            [{"kind": "pause", "until_height": 5}, {"kind": "pause", "from_ms": 9}],
            "phases[1]: goes by time, and the phase before by height; expected all by height or all by time",
        ),
        (
            [{"kind": "pause", "until_ms": 5}, {"kind": "pause", "from_ms": 4}],
            "phases[1].from_ms: 4 is below 5, where the phase before ends",
        ),
        ([{"kind": "pause", "from_ms": 0}, {"kind": "pause", "from_ms": 4}], "phases[0].until_ms: is missing, and"),
    ],
)
def test_phases_that_cannot_be(phases: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        LoadPlan.model_validate({"phases": phases})
    assert words in str(caught.value)


def test_phases_are_the_same_after_a_plan_file() -> None:
    plan = LoadPlan.model_validate(
        {"phases": [TIMED[0], {"kind": "trace", "from_ms": 800, "points": [[0, 2], [9, 1]]}]}
    )
    assert LoadPlan.model_validate_json(plan.model_dump_json(exclude_none=True)) == plan


# --- turns ----------------------------------------------------------------------------------------------------------


def test_without_phases_every_look_is_a_turn() -> None:
    plain = Rhythm(Schedule(250))
    assert [(plain.next_delay_ms(), plain.takes_turn(Seen(height))) for height in (0, 1, 9)] == [(250, True)] * 3


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.3, 0.5, 1.0, 1.5, 2.0, 3.0, 7.0, 50.0])
def test_a_rate_is_how_many_turns_there_are(rate: float) -> None:
    found = rhythm({"kind": "steady", "rate": rate}, interval_ms=1_000)
    assert turns_at(found, 1, 100_000) == pytest.approx(100 * rate, abs=2 + rate / 2)


def test_a_pause_has_no_turns_and_saves_none_up() -> None:
    found = rhythm({"kind": "pause", "from_height": 2, "until_height": 3})
    assert turns_at(found, 1, 1_000) == 10
    assert turns_at(found, 2, 100_000) == 0
    assert turns_at(found, 3, 1_000) in (10, 11)


def test_whoever_hears_late_of_a_height_is_looked_at_once_more_at_least() -> None:
    found = rhythm({"kind": "steady", "rate": 0.01, "until_height": 5}, interval_ms=100)
    found.takes_turn(Seen(1))
    assert found.next_delay_ms() == 100, "and not in ten seconds, when the phase may long be over"


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=60),
    st.sampled_from([0.1, 0.3, 1.0, 2.5, 100.0]),
    st.integers(1, 2_000),
)
def test_equal_heights_give_equal_turns(heights: list[int], rate: float, interval_ms: int) -> None:
    def follow() -> list[tuple[int, bool]]:
        found = rhythm({"kind": "ramp", "until_height": 9, "to_rate": rate}, interval_ms=interval_ms)
        return [(found.next_delay_ms(), found.takes_turn(Seen(height))) for height in heights]

    assert follow() == follow()
    assert all(1 <= delay_ms <= interval_ms for delay_ms, _ in follow())


# --- users ----------------------------------------------------------------------------------------------------------


def test_a_user_sends_nothing_while_it_is_not_its_turn() -> None:
    plan = LoadPlan.model_validate(
        {
            "users": [{"workload": "transfer", "from_height": 3}],
            "phases": [{"kind": "pause", "from_height": 5, "until_height": 6}],
        }
    )
    user = plan.build_users(3, CHAIN_ID)[0]
    sent = []
    for height in range(1, 8):
        user.next_delay_ms()
        wires = user.next_transactions(Observation(height, 0, 1_000_000, 1_000_000, 1_000_000))
        sent.append([parse(wire, CHAIN_ID).nonce for wire in wires])
    assert sent[:2] == [[], []]
    assert sent[4] == []
    assert [nonce for nonces in sent for nonce in nonces] == [0, 1, 2]


def test_phases_change_nothing_about_who_the_users_are() -> None:
    plain = LoadPlan.model_validate({"users": [{"workload": "churn", "count": 3}]})
    phased = LoadPlan.model_validate({"users": [{"workload": "churn", "count": 3}], "phases": [{"kind": "pause"}]})
    assert plain.genesis_accounts(1) == phased.genesis_accounts(1)
    assert [user.first_delay_ms for user in plain.build_users(1, CHAIN_ID)] == [
        user.first_delay_ms for user in phased.build_users(1, CHAIN_ID)
    ]


# --- phases of a group ----------------------------------------------------------------------------------------------

SPIKE = {"kind": "spike", "from_height": 3, "until_height": 7, "rate": 5.0, "base_rate": 1.0}
HALF = {"kind": "steady", "rate": 0.5}


def group_rates(load: dict[str, Any], *seen: Seen) -> list[list[float]]:
    """Of each group, the rates at these moments, as its first user has them."""
    plan = LoadPlan.model_validate(load)
    firsts = [sum(group.count for group in plan.users[:place]) for place in range(len(plan.users))]
    schedules = [user._rhythm.schedule for user in plan.build_users(3, CHAIN_ID, numbers=firsts)]
    assert [schedule.rate_milli(each) for schedule in schedules for each in seen] == [
        plan.schedule_of(group).rate_milli(each) for group in plan.users for each in seen
    ]
    return [[schedule.rate_milli(each) / 1_000 for each in seen] for schedule in schedules]


def test_a_group_has_its_own_phases_in_place_of_the_loads() -> None:
    users = [
        {"workload": "transfer", "count": 2},
        {"workload": "same-block", "count": 2, "phases": [SPIKE]},
        {"workload": "heartbeat", "phases": []},
    ]
    heights = [Seen(height) for height in range(2, 8)]
    flat, spiking = [1.0] * 6, [1, 1, 3, 5, 3, 1]
    assert group_rates({"users": users}, *heights) == [flat, spiking, flat]
    assert group_rates({"users": users, "phases": [HALF]}, *heights) == [[0.5] * 6, spiking, flat]


def test_phases_of_a_group_end_with_the_group_and_may_go_by_another_scale_than_the_loads() -> None:
    timed = {"kind": "steady", "from_ms": 0, "until_ms": 100, "rate": 4.0}
    users = [{"workload": "transfer", "phases": [timed], "until_height": 5}, {"workload": "transfer"}]
    moments = [Seen(4, 99), Seen(4, 100), Seen(5, 99)]
    assert group_rates({"users": users, "phases": [HALF]}, *moments) == [[4, 1, 0], [0.5] * 3]


def test_one_group_reacts_to_prices_while_another_does_not() -> None:
    reacts = {"kind": "feedback", "watches": "basefee_lane", "low": 10, "high": 20, "low_rate": 0.0, "high_rate": 2.0}
    users = [{"workload": "heartbeat"}, {"workload": "lane-cells", "phases": [reacts]}]
    moments = [Seen(5, basefee_lane=price) for price in (5, 15, 25)]
    assert group_rates({"users": users}, *moments) == [[1, 1, 1], [0, 1, 2]]


def test_a_group_without_phases_is_written_as_before_there_were_any() -> None:
    """The hash of a scenario, by which sweeps know their seeds again, stays what it was."""
    plain = LoadPlan.model_validate({"users": [{"workload": "transfer"}]})
    assert list(plain.users[0].model_dump()) == [
        "workload", "count", "interval_ms", "arrival", "options", "from_height", "until_height", "budget"
    ]  # fmt: skip


@pytest.mark.parametrize("phases", [None, [], [SPIKE], [{"kind": "trace", "from_ms": 8, "points": [[0, 2], [9, 1]]}]])
def test_phases_of_a_group_are_the_same_after_a_plan_file(phases: list[dict[str, Any]] | None) -> None:
    plan = LoadPlan.model_validate({"users": [{"workload": "transfer", "phases": phases}], "phases": [HALF]})
    for dumped in (plan.model_dump_json(exclude_none=True), plan.model_dump_json()):
        assert LoadPlan.model_validate_json(dumped) == plan


def test_phases_of_a_group_change_nothing_about_who_the_users_are() -> None:
    def load(**fields: Any) -> LoadPlan:
        return LoadPlan.model_validate({"users": [{"workload": "churn", "count": 3}, {"workload": "churn", **fields}]})

    plain, phased = load(), load(phases=[{"kind": "steady", "rate": 1.0}])
    assert plain.genesis_accounts(1) == phased.genesis_accounts(1)
    for before, after in zip(plain.build_users(1, CHAIN_ID), phased.build_users(1, CHAIN_ID), strict=True):
        seen = Observation(3, 0, 1_000_000, 1_000_000, 1_000_000)
        for user in (before, after):
            user.next_delay_ms()
        assert (before.first_delay_ms, before.next_transactions(seen)) == (
            after.first_delay_ms, after.next_transactions(seen)
        )  # fmt: skip


def test_phases_of_a_group_that_overlap_are_refused() -> None:
    phases = [{"kind": "pause", "until_height": 9}, {"kind": "pause", "from_height": 8}]
    with pytest.raises(ValidationError, match=r"phases\[1\]\.from_height: 8 is below 9, where the phase before ends"):
        LoadPlan.model_validate({"users": [{"workload": "transfer", "phases": phases}]})


def test_phases_may_reach_beyond_their_group() -> None:
    group = {"workload": "transfer", "from_height": 5, "until_height": 9}
    for phase in ({"from_height": 1, "until_height": 6}, {"from_height": 8}, {"from_ms": 1}, {}):
        plan = LoadPlan.model_validate({"users": [group | {"phases": [{"kind": "pause", **phase}]}]})
        assert plan.users[0].phases


# --- heights with turns ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phases", "heights"),
    [
        ([], [2, 3, 4, 5]),
        ([{"kind": "pause", "from_height": 3, "until_height": 5}], [2, 5]),
        ([{"kind": "pause", "from_ms": 0}], [2, 3, 4, 5]),
        ([{"kind": "burst", "rate": 3.0, "base_rate": 0.0, "every": 2}], [3, 5]),
        ([{"kind": "feedback", "watches": "backlog", "low": 1, "high": 5, "low_rate": 0.0, "high_rate": 2.0}],
         [2, 3, 4, 5]),
        ([{"kind": "feedback", "watches": "backlog", "low": 1, "high": 5, "low_rate": 0.0, "high_rate": 0.0}], []),
    ],
)  # fmt: skip
def test_there_may_be_turns_at_heights_at_which_no_phase_forbids_them(
    phases: list[dict[str, Any]], heights: list[int]
) -> None:
    schedule = rhythm(*phases, from_height=2, until_height=6).schedule
    assert [height for height in range(9) if schedule.has_turns_at(height)] == heights
