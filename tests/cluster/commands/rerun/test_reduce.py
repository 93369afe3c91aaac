"""Smaller scenarios: the parts that must stay do, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.commands.rerun.reduce import Fields, shrink_fields
from cluster.common.shrinking import NoCandidate, Shrinker
from cluster.scenario import Scenario
from cluster.scenario.files import minimal_fields
from tests.cluster.commands.rerun.runs import NOISE, scenario

BROAD: Fields = minimal_fields(
    Scenario.model_validate(
        scenario(
            validators=[{}, {"name": "anna"}, {}, {}, {"byzantine": "silent-leader"}, {}, {}],
            faults=[
                *NOISE,
                {
                    "kind": "partition",
                    "groups": [["validator-5", "anna"], ["validator-2"]],
                    "at_height": 8,
                    "for_ms": 4000,
                },
                {"kind": "kill", "target": ["anna", "validator-6"], "at_height": 9},
            ],
            links={"loss": 0.1, "regions": {"eu": ["anna", "validator-3"]}, "latency_matrix_ms": {"eu": {"eu": 5.0}}},
        )
    )
)


def reduced(holds: Any) -> Fields:
    """What stays of the broad scenario; every candidate that counts is a scenario."""

    def failure_of(fields: Fields) -> bool | None:
        try:
            scenario = Scenario.model_validate(fields)
        except ValueError:
            raise NoCandidate from None
        return holds(scenario) or None

    assert failure_of(BROAD)
    shrinker = Shrinker(BROAD, True, failure_of, most_runs=10_000)
    return minimal_fields(Scenario.model_validate(shrink_fields(shrinker)))


def test_nothing_stays_of_what_fails_anyway() -> None:
    assert reduced(lambda _: True) == {
        "name": "small",
        "seed": 3,
        "validators": {"count": 1},
        "consensus": {"signatures": "keyed-hash"},
        "stop": {"height": 1},
    }


def test_a_fault_stays_with_the_validators_that_it_names() -> None:
    kept = reduced(lambda s: any(fault.kind == "partition" and "anna" in fault.whom for fault in s.faults))
    assert kept["faults"] == [{"at_height": 1, "for_ms": 1, "kind": "partition", "groups": [["anna"]]}]
    assert kept["validators"] == {"count": 2, "nodes": [{"name": "anna"}]}
    assert kept["stop"] == {"height": 2}


def test_validators_that_move_up_take_their_faults_along() -> None:
    kept = reduced(lambda s: any(fault.kind == "kill" and "validator" in fault.whom for fault in s.faults))
    assert kept["faults"] == [{"at_height": 1, "target": ["validator-0"], "kind": "kill"}]
    assert kept["validators"] == {"count": 1}


def test_a_byzantine_validator_stays_among_as_many_as_withstand_it() -> None:
    kept = reduced(lambda s: any(s.validators.node(index).byzantine for index in range(s.validators.count)))
    assert Scenario.model_validate(kept).validators.count == 4
    assert [node for node in kept["validators"]["nodes"] if node] == [{"byzantine": ["silent-leader"]}]


def test_a_setting_stays_alone() -> None:
    assert reduced(lambda s: s.links.loss == 0.1)["links"] == {"loss": 0.1}
    kept = reduced(lambda s: s.links.region_latency_ms("eu", "eu") == 5.0)
    assert kept["links"]["latency_matrix_ms"] == {"eu": {"eu": 5.0}}
    assert len(kept["links"]["regions"]["eu"]) == 1


@pytest.mark.parametrize("height", [2, 9, 13])
def test_the_height_is_as_low_as_it_can_be(height: int) -> None:
    assert reduced(lambda s: s.stop.height >= height)["stop"]["height"] == height
