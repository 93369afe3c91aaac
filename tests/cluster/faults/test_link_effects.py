"""Which links a fault of links hits, and whom it is said to hit."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from cluster.faults.engine import FaultEngine
from cluster.faults.link_effects import LinkFaultInForce
from cluster.faults.link_kind import LinkFault
from cluster.faults.link_model import Link, Links
from cluster.scenario import Scenario
from tests.cluster.faults.test_engine import FakeStage, begin, reach

NAMES = ["a", "b", "c", "d", "e"]
WHEN = {"at_height": 5, "for_ms": 1_000}


def scenario(*faults: dict[str, Any]) -> Scenario:
    nodes = [
        {"name": name, "region": region} for name, region in zip(NAMES, ("eu", "eu", "us", "us", "asia"), strict=True)
    ]
    return Scenario.model_validate({"name": "links", "validators": nodes, "faults": [WHEN | fault for fault in faults]})


def planned(plan: Scenario) -> LinkFault:
    """The one fault of a scenario."""
    (resolved,) = plan.planned_faults
    assert isinstance(resolved, LinkFault)
    return resolved


def heard(fault: dict[str, Any]) -> dict[str, str]:
    """Of each validator those whose messages reach it while a fault lasts."""
    plan = scenario(fault)
    force = LinkFaultInForce(planned(plan).effect(NAMES))
    links = Links(plan.network, Random(1))

    def reaches(sender: int, receiver: int) -> bool:
        link: Link = links.between(sender, receiver)
        return not force.change(sender, receiver, link).is_cut

    return {
        name: "".join(NAMES[other] for other in range(5) if other != index and reaches(other, index))
        for index, name in enumerate(NAMES)
    }


@pytest.mark.parametrize(
    ("groups", "reached"),
    [
        ([["a", "b"]], {"a": "b", "b": "a", "c": "de", "d": "ce", "e": "cd"}),
        ([["a", "b", "c"], ["c", "d", "e"]], {"a": "bc", "b": "ac", "c": "abde", "d": "ce", "e": "cd"}),
        (
            [["a", "b"], ["b", "c"], ["c", "d"], ["d", "e"], ["e", "a"]],
            {"a": "be", "b": "ac", "c": "bd", "d": "ce", "e": "ad"},
        ),
    ],
    ids=["two sides", "a bridge", "a ring"],
)
def test_validators_that_share_no_group_do_not_hear_each_other(
    groups: list[list[str]], reached: dict[str, str]
) -> None:
    assert heard({"kind": "partition", "groups": groups}) == reached


def test_a_cut_takes_the_links_between_two_regions_both_ways_and_no_others() -> None:
    fault = {"kind": "cut", "from": ["region:eu"], "to": ["region:us"]}
    assert heard(fault) == {"a": "be", "b": "ae", "c": "de", "d": "ce", "e": "abcd"}


def test_who_can_do_nothing_while_groups_overlap() -> None:
    """A group that is a quorum goes on, whoever else hears some of it."""
    fault = {"kind": "partition", "groups": [["a", "b", "c", "d"], ["d", "e"]]}
    assert planned(scenario(fault)).impaired(NAMES) == ("e",)
    ring = scenario({"kind": "partition", "groups": [["a", "b"], ["b", "c"], ["c", "d", "e", "a"]]})
    assert planned(ring).impaired(NAMES) == ("b",)
    engine, stage = begin(scenario(fault), FakeStage([[index] for index in range(len(NAMES))]))
    reach(engine, stage, 5)
    assert not engine.records[0].is_hard and not engine.records[0].sides


def test_a_degradation_is_explained_with_all_that_it_changes() -> None:
    assert (
        planned(scenario({"kind": "degrade", "loss": 0.0, "latency_ms": 5.0})).details == " (latency_ms 5.0, loss 0.0)"
    )


def test_a_fault_is_told_with_its_regions_and_with_the_group_that_nobody_names() -> None:
    engine = FaultEngine(
        scenario(
            {"kind": "partition", "groups": [["region:eu"], ["c"]]},
            {"kind": "cut", "from": ["region:eu"], "to": ["region:us"]},
            {"kind": "pause", "target": "region:asia"},
        ),
        1,
    )
    assert [record.whom for record in engine.records] == [
        "region:eu | c | the rest (d, e)",
        "region:eu <> region:us",
        "region:asia",
    ]
