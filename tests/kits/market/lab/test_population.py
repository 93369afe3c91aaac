"""Demand follows its stated distributions, and is the same wherever it is drawn."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import replace
from statistics import fmean, median, pstdev

import pytest

from cluster.common.errors import BadInput
from kits.market.lab.population import FLOOR_PRICE, Group, Job, draw_jobs
from kits.market.lab.strategies import Share

LANE = 400_000
USERS = Group(name="users", agents=40, load=0.8)
BLOCKS = 2_000


def demand(jobs: list[Job], blocks: int = BLOCKS) -> float:
    """The mean demand of jobs, in lanes."""
    return sum(job.cycles for job in jobs) / LANE / blocks


def test_demand_is_the_stated_load() -> None:
    assert demand(draw_jobs([USERS], 0, BLOCKS, LANE)) == pytest.approx(0.8, rel=0.03)


def test_an_agent_has_at_most_one_job_a_block() -> None:
    counts = Counter((job.agent, job.due) for job in draw_jobs([USERS], 0, BLOCKS, LANE))
    assert set(counts.values()) == {1}


def test_more_load_than_agents_can_have_is_refused() -> None:
    with pytest.raises(BadInput, match="too few"):
        draw_jobs([replace(USERS, agents=2)], 0, 10, LANE)


def test_values_are_lognormal_around_the_stated_median() -> None:
    logs = [math.log(job.worth / (40 * FLOOR_PRICE)) for job in draw_jobs([USERS], 0, BLOCKS, LANE)]
    assert len(logs) > 10_000
    assert median(logs) == pytest.approx(0, abs=0.03)
    assert pstdev(logs) == pytest.approx(USERS.spread, rel=0.03)
    within = sum(abs(each) < USERS.spread for each in logs) / len(logs)
    assert within == pytest.approx(0.683, abs=0.02)


def test_gas_limits_are_uniform_in_their_range() -> None:
    cycles = [job.cycles for job in draw_jobs([USERS], 0, BLOCKS, LANE)]
    assert [min(cycles), max(cycles)] == pytest.approx([10_000, 80_000], abs=50)
    assert fmean(cycles) == pytest.approx(45_000, rel=0.02)
    assert pstdev(cycles) == pytest.approx(70_000 / math.sqrt(12), rel=0.03)


@pytest.mark.parametrize(
    ("height", "value"),
    [(99, 0), (100, 3_000), (101, 2_900), (115, 1_500), (129, 100), (130, 0), (500, 0)],
)
def test_values_fall_evenly_to_zero(height: int, value: int) -> None:
    job = Job(0, "users", 0, 0, due=100, cycles=10, value=3_000, life=30)
    assert job.value_at(height) == value


def test_the_last_height_is_the_last_one_with_a_value() -> None:
    job = Job(0, "users", 0, 0, due=100, cycles=10, value=3_000, life=30)
    assert job.value_at(job.last_height) > 0
    assert job.value_at(job.last_height + 1) == 0


def test_jobs_do_not_depend_on_how_they_are_scheduled() -> None:
    """Cells that differ in strategy, timing or actors meet the same jobs, so that they can be paired."""
    other = replace(USERS, strategy=lambda _: Share(0.5), early=4, actors=3, budget_milli=100)
    jobs, changed = (draw_jobs([group], 0, 300, LANE) for group in (USERS, other))
    assert [(job.due, job.agent, job.value) for job in jobs if job.due > 6] == [
        (job.due, job.agent, job.value) for job in changed
    ]


def test_another_group_changes_no_jobs() -> None:
    alone = draw_jobs([USERS], 0, 300, LANE)
    both = draw_jobs([replace(USERS, name="others"), USERS], 0, 300, LANE)
    assert [(j.due, j.agent, j.value) for j in both if j.group == "users"] == [(j.due, j.agent, j.value) for j in alone]


def test_seeds_differ() -> None:
    assert draw_jobs([USERS], 0, 50, LANE) != draw_jobs([USERS], 1, 50, LANE)


def test_bursts_have_the_whole_load_in_their_blocks() -> None:
    jobs = draw_jobs([replace(USERS, load=0.4, burst=(10, 40))], 0, BLOCKS, LANE)
    assert {job.due % 40 for job in jobs} == set(range(10))
    assert demand(jobs) == pytest.approx(0.4, rel=0.05)


def test_a_group_has_jobs_in_its_part_of_the_run() -> None:
    heights = [job.due for job in draw_jobs([replace(USERS, active=(0.5, 0.75))], 0, 400, LANE)]
    assert (min(heights), max(heights)) == (201, 300)


def test_a_later_load_holds_from_the_half_on() -> None:
    jobs = draw_jobs([replace(USERS, later=0.25)], 0, BLOCKS, LANE)
    before = [job for job in jobs if job.due <= BLOCKS / 2]
    after = [job for job in jobs if job.due > BLOCKS / 2]
    assert demand(before, BLOCKS // 2) == pytest.approx(0.8, rel=0.05)
    assert demand(after, BLOCKS // 2) == pytest.approx(0.2, rel=0.05)


def test_actors_have_an_agents_jobs_by_turns() -> None:
    jobs = [job for job in draw_jobs([replace(USERS, actors=3)], 0, 200, LANE) if job.agent == 5]
    assert [job.actor for job in jobs] == [place % 3 for place in range(len(jobs))]


def test_draws_are_the_same_everywhere() -> None:
    """The digest of the jobs of a seed, as drawn when this test was written."""
    drawn = "\n".join(f"{j.due} {j.agent} {j.cycles} {j.value}" for j in draw_jobs([USERS], 7, 500, LANE))
    assert hashlib.sha256(drawn.encode()).hexdigest()[:16] == "240549d083361ff4"
