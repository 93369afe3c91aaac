"""Phases: which rate holds at which height, and how many turns users take by it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.workloads import LoadPlan, Observation
from loadgen.workloads.phases import Rhythm
from validator.chain.transactions import parse

CHAIN_ID = "chain"


def rhythm(*phases: dict[str, Any], interval_ms: int = 100, **bounds: int) -> Rhythm:
    plan = LoadPlan.model_validate({"phases": list(phases)})
    return Rhythm(interval_ms, plan.phases, **bounds)


def rates(found: Rhythm, heights: range) -> list[float]:
    return [found.rate_milli(height) / 1_000 for height in heights]


def turns_at(found: Rhythm, height: int, for_ms: int) -> int:
    """Turns in so many milliseconds, while one height is the newest."""
    found.takes_turn(height)
    turns = passed = 0
    while passed < for_ms:
        delay_ms = found.next_delay_ms()
        turns += found.takes_turn(height)
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


# --- turns ----------------------------------------------------------------------------------------------------------


def test_without_phases_every_look_is_a_turn() -> None:
    plain = Rhythm(250)
    assert [(plain.next_delay_ms(), plain.takes_turn(height)) for height in (0, 1, 9)] == [(250, True)] * 3


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
    found.takes_turn(1)
    assert found.next_delay_ms() == 100, "and not in ten seconds, when the phase may long be over"


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=60),
    st.sampled_from([0.1, 0.3, 1.0, 2.5, 100.0]),
    st.integers(1, 2_000),
)
def test_equal_heights_give_equal_turns(heights: list[int], rate: float, interval_ms: int) -> None:
    def follow() -> list[tuple[int, bool]]:
        found = rhythm({"kind": "ramp", "until_height": 9, "to_rate": rate}, interval_ms=interval_ms)
        return [(found.next_delay_ms(), found.takes_turn(height)) for height in heights]

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
