"""The objectives: which of two attacks is worse, and when a smaller attack still does as much."""

from __future__ import annotations

from typing import Any

import pytest

from kits.market.dos.measures import Effect, RunMeasures, Window, measure_attack
from kits.market.dos.search.commands import OBJECTIVES as NAMES
from kits.market.dos.search.objectives import NOTHING, OBJECTIVES, Fitness

BASELINE = RunMeasures(Window(1, 10))
BASELINE.lateness[0] = 100
PLAIN = measure_attack(BASELINE, BASELINE)._replace(acted=True)


def found(**metrics: Any) -> Effect:
    return PLAIN._replace(metrics=PLAIN.metrics | metrics)


def test_the_command_knows_all_objectives() -> None:
    assert tuple(OBJECTIVES) == NAMES


@pytest.mark.parametrize(
    ("name", "worse", "better"),
    [
        ("lateness", {"lateness_p99": 5}, {"lateness_p99": 4, "delay_blocks": 900.0}),
        ("lateness", {"lateness_p99": 5, "delay_blocks": 9.0}, {"lateness_p99": 5, "delay_blocks": 8.0}),
        ("starvation", {"honest_fires_ratio": 0.5}, {"honest_fires_ratio": 0.6}),
        ("block_time", {"block_cycles_ratio": 3.0, "spend": 9.0}, {"block_cycles_ratio": 2.0, "spend": 1.0}),
        ("block_time", {"block_cycles_ratio": 3.0, "spend": 1.0}, {"block_cycles_ratio": 3.0, "spend": 9.0}),
        (
            "spend_ratio",
            {"delay_blocks": 60.0, "spend_per_block_of_delay": 10.0},
            {"delay_blocks": 900.0, "spend_per_block_of_delay": 11.0},
        ),
        (
            "spend_ratio",
            {"delay_blocks": 60.0, "spend_per_block_of_delay": 10.0},
            {"delay_blocks": 40.0, "spend_per_block_of_delay": 1.0},
        ),
    ],
)
def test_which_attack_is_worse(name: str, worse: dict[str, Any], better: dict[str, Any]) -> None:
    objective = OBJECTIVES[name]
    assert objective.fitness(found(**worse), BASELINE, BASELINE) > objective.fitness(
        found(**better), BASELINE, BASELINE
    )


@pytest.mark.parametrize("name", OBJECTIVES)
def test_nothing_is_harmless(name: str) -> None:
    assert (
        OBJECTIVES[name].fitness(
            found(lateness_p99=9, block_cycles_ratio=9.0)._replace(acted=False), BASELINE, BASELINE
        )
        == NOTHING
    )


def test_of_equal_starvation_the_dearer_is_worse() -> None:
    cheap, dear = RunMeasures(Window(1, 10), fires=50, fees_of_fires=100), RunMeasures(Window(1, 10), fires=50)
    cheap.lateness[0] = 50
    dear.fees_of_fires = 150
    fitness = OBJECTIVES["starvation"].fitness
    assert fitness(PLAIN, dear, cheap) > fitness(PLAIN, cheap, cheap)
    assert dear.fee_per_fire == 3.0 and RunMeasures(Window(1, 10)).fee_per_fire == 0.0


def test_what_a_smaller_attack_must_keep() -> None:
    lateness, price = OBJECTIVES["lateness"], OBJECTIVES["spend_ratio"]
    assert lateness.keeps(Fitness(1.0, 9.0, 0.0), Fitness(1.0, 10.0, 5.0), 0.9)
    assert not lateness.keeps(Fitness(1.0, 8.9, 9.0), Fitness(1.0, 10.0, 5.0), 0.9)
    assert price.keeps(Fitness(1.0, -11.0, 0.0), Fitness(1.0, -10.0, 0.0), 0.9), "a price may grow by a ninth"
    assert not price.keeps(Fitness(1.0, -11.2, 0.0), Fitness(1.0, -10.0, 0.0), 0.9)
    assert not price.keeps(Fitness(0.0, 90.0, 0.0), Fitness(1.0, -10.0, 0.0), 0.9), "too little delay"
