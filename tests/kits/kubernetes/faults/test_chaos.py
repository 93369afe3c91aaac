"""Objects of Chaos Mesh: which faults they can do, whom they are about, and that its own schemas accept them."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cluster.faults.link_effects import LinkEffect, LinkFaultInForce
from cluster.faults.link_kind import LinkFault
from cluster.scenario import Scenario
from kits.kubernetes.faults.chaos import (
    NETWORK,
    POD,
    STRESS,
    Deployment,
    NotByPods,
    by_pods,
    network_chaos,
    pod_chaos,
    stress_chaos,
)

SCHEMAS: Final = Path(__file__).parents[5] / "shared" / "k8s-schemas"
DOCS: Final = Path(__file__).parents[4] / "docs"
DEPLOYMENT: Final = Deployment("testnets", "smoke")
CLEAR: Final = {"links": {"latency_ms": 0, "jitter_ms": 0}}
V: Final = [f"validator-{number}" for number in range(8)]


def planned(fault: dict[str, Any], count: int = 4, hosts: int = 4, **fields: Any) -> tuple[Scenario, LinkEffect]:
    timed = {"at_height": 5, "for_ms": 2_500, "how": "chaos-mesh"}
    validators = {"count": count, "hosts": hosts}
    scenario = Scenario.model_validate({"name": "chaos", "validators": validators, "faults": [timed | fault]} | fields)
    (plan,) = scenario.planned_faults
    assert isinstance(plan, LinkFault)
    return scenario, plan.effect(scenario.validators.names)


def hosts_of(scenario: Scenario) -> list[int]:
    return [scenario.validators.host_of(index) for index in range(scenario.validators.count)]


def pairs(fault: dict[str, Any], **fields: Any) -> set[tuple[int, int]]:
    scenario, plan = planned(fault, **fields)
    return set(by_pods(plan, scenario.network, hosts_of(scenario)).pairs)


def objects(fault: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    scenario, plan = planned(fault, **fields)
    return network_chaos("smoke-1", DEPLOYMENT, plan, by_pods(plan, scenario.network, hosts_of(scenario)))


def selected(selector: dict[str, Any]) -> set[int]:
    """The hosts whose pods a selector selects."""
    assert selector["namespaces"] == [DEPLOYMENT.namespace]
    assert selector["labelSelectors"] == {"app.kubernetes.io/instance": DEPLOYMENT.instance}
    (by_host,) = selector["expressionSelectors"]
    assert (by_host["key"], by_host["operator"]) == ("stampede.io/host", "In")
    return set(map(int, by_host["values"]))


def reached(found: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """The hosts between which objects act, in one direction."""
    assert all(each["spec"]["direction"] == "to" for each in found)
    return [
        (sender, receiver)
        for each in found
        for sender in selected(each["spec"]["selector"])
        for receiver in selected(each["spec"]["target"]["selector"])
    ]


def test_a_partition_is_one_object_for_each_side() -> None:
    one, other = objects({"kind": "partition", "groups": [V[:1], V[1:4]]})
    assert one["metadata"] == {
        "name": "smoke-1-0",
        "namespace": "testnets",
        "labels": {"app.kubernetes.io/name": "stampede", "app.kubernetes.io/instance": "smoke"},
    }
    assert one["spec"]["action"] == "partition" and one["spec"]["mode"] == one["spec"]["target"]["mode"] == "all"
    assert one["spec"]["duration"] == "63s", "it ends by itself if nobody deletes it"
    assert reached([one]) == [(0, 1), (0, 2), (0, 3)] and sorted(reached([other])) == [(1, 0), (2, 0), (3, 0)]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"kind": "one_way_partition", "from": V[:1]}, {(0, 1), (0, 2), (0, 3)}),
        ({"kind": "one_way_partition", "to": V[:1]}, {(1, 0), (2, 0), (3, 0)}),
        ({"kind": "cut", "from": V[:1], "to": V[1:2]}, {(0, 1), (1, 0)}),
        ({"kind": "partition", "groups": [V[:2], V[1:4]]}, {(0, 2), (2, 0), (0, 3), (3, 0)}),
        ({"kind": "degrade", "from": V[:1], "to": V[1:2], "loss": 0.1}, {(0, 1)}),
    ],
)
def test_the_hosts_are_those_of_the_validators(fault: dict[str, Any], expected: set[tuple[int, int]]) -> None:
    assert pairs(fault) == expected
    assert sorted(reached(objects(fault))) == sorted(expected), "each once"


def test_what_a_link_gets_is_written_in_the_units_of_chaos_mesh() -> None:
    fault = {"kind": "degrade", "from": V[:1], "latency_ms": 40.5, "jitter_ms": 3, "loss": 0.25, "duplication": 0.005}
    (found,) = objects(fault, **CLEAR)
    assert found["spec"]["action"] == "netem"
    assert found["spec"]["delay"] == {"latency": "40500us", "jitter": "3000us"}
    assert (found["spec"]["loss"], found["spec"]["duplicate"]) == ({"loss": "25"}, {"duplicate": "0.5"})


def test_whole_hosts_are_separated_and_halves_are_not() -> None:
    """Hosts carry validators in turn: host 0 has validators 0 and 4."""
    on_four = {"count": 8, "hosts": 4}
    assert pairs({"kind": "partition", "groups": [[V[0], V[4]]]}, **on_four) == {(0, other) for other in (1, 2, 3)} | {
        (other, 0) for other in (1, 2, 3)
    }
    for fault in (
        {"kind": "partition", "groups": [V[:4]]},
        {"kind": "cut", "from": [V[0]], "to": [V[4]]},
        {"kind": "cut", "from": [V[0]], "to": [V[1], V[5]]},
        {"kind": "one_way_partition", "from": [V[0], V[4]], "to": [V[1]]},
        {"kind": "degrade", "loss": 0.1},
    ):
        with pytest.raises(NotByPods, match=r"pods cannot tell validator-. and validator-. apart"):
            pairs(fault, **on_four)
    assert len(pairs({"kind": "degrade", "loss": 0.1})) == 12, "alone on its host each can be told apart"


def test_what_would_mean_something_else_is_not_for_chaos_mesh() -> None:
    with pytest.raises(NotByPods, match="it cannot change bandwidth_kbps, reordering of single messages"):
        pairs({"kind": "degrade", "reordering": 0.1, "bandwidth_kbps": 100, "loss": 0.1})
    slow = {"links": {"latency_ms": 20, "jitter_ms": 1}}
    for fault in ({"jitter_ms": 3}, {"latency_ms": 19}):
        with pytest.raises(NotByPods, match=f"some of the links have an emulated {next(iter(fault))} already"):
            pairs({"kind": "degrade", "from": V[:1], **fault}, **slow)
    (found,) = objects({"kind": "degrade", "from": V[:1], "latency_ms": 60}, **slow)
    assert found["spec"]["delay"] == {"latency": "40000us", "jitter": "0us"}, "the transport's 20 ms are there already"


@given(st.data())
def test_objects_separate_exactly_those_that_the_transport_would(data: st.DataObject) -> None:
    """Or the fault is refused, and then some host is on both sides."""
    count = data.draw(st.integers(2, 8))
    hosts = data.draw(st.integers(1, count))
    names = st.lists(st.sampled_from(V[:count]), min_size=1, max_size=count, unique=True)
    kind = data.draw(st.sampled_from(["partition", "one_way_partition", "cut"]))
    fault: dict[str, Any] = {"kind": kind}
    if kind == "partition":
        fault["groups"] = data.draw(st.lists(names, min_size=1, max_size=3))
    else:
        fault |= {"from": data.draw(names), "to": data.draw(names)}
    try:
        scenario, plan = planned(fault, count, hosts)
    except ValueError:
        return  # no scenario
    carried, in_transport = hosts_of(scenario), LinkFaultInForce(plan)
    pairs = [(one, other) for one in range(count) for other in range(count) if one != other]
    hit = {pair for pair in pairs if in_transport.hits(*pair)}
    try:
        found = network_chaos("x", DEPLOYMENT, plan, by_pods(plan, scenario.network, carried))
    except NotByPods:
        by_hosts = {(carried[one], carried[other]) for one, other in hit}
        spread = {pair for pair in pairs if (carried[pair[0]], carried[pair[1]]) in by_hosts}
        assert spread != hit or any(carried[one] == carried[other] for one, other in hit)
    else:
        between = set(reached(found))
        assert {pair for pair in pairs if (carried[pair[0]], carried[pair[1]]) in between} == hit


# --- schemas --------------------------------------------------------------------------------------------------------


def closed(schema: Any) -> Any:
    """A schema that accepts no field that it does not name."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and not is_open:
        found["additionalProperties"] = False
    return found


@cache
def validator_of(kind: str) -> jsonschema.protocols.Validator:
    """The definition is read by libyaml, and checked, once."""
    path = SCHEMAS / f"chaos-mesh.org_{kind}.yaml.gz"
    if not path.is_file():
        pytest.skip(f"needs {path.name}, the definition of the resource")
    definition = yaml.load(gzip.decompress(path.read_bytes()), Loader=yaml.CSafeLoader)
    (version,) = definition["spec"]["versions"]
    schema = closed(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}  # Kubernetes' own
    found = jsonschema.validators.validator_for(schema)
    found.check_schema(schema)
    return found(schema)


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "partition", "groups": [V[:1]]},
        {"kind": "one_way_partition", "from": V[:1]},
        {"kind": "cut", "from": V[:1], "to": V[1:2], "for_ms": None, "until_height": 9},
        {"kind": "degrade", "latency_ms": 40, "jitter_ms": 0.001, "loss": 0.1, "duplication": 0.1},
        {"kind": "degrade", "jitter_ms": 3},
    ],
)
def test_the_definitions_of_chaos_mesh_accept_faults_of_links(fault: dict[str, Any]) -> None:
    validator = validator_of(NETWORK)
    for each in objects(fault, **CLEAR):
        validator.validate(each)
        wrong = {**each, "spec": {**each["spec"], "directions": "to"}}
        with pytest.raises(jsonschema.ValidationError, match="directions"):
            validator.validate(wrong)


def test_the_definitions_of_chaos_mesh_accept_a_kill() -> None:
    found = pod_chaos("smoke-2", DEPLOYMENT, 3)
    assert selected(found["spec"]["selector"]) == {3}
    assert (found["kind"], found["spec"]["action"], found["spec"]["gracePeriod"]) == ("PodChaos", "pod-kill", 1)
    validator_of(POD).validate(found)


def seconds(found: dict[str, Any]) -> int:
    duration: str = found["spec"]["duration"]
    return int(duration.removesuffix("s"))


def test_pages_say_after_how_long_an_object_ends_by_itself() -> None:
    endless, *_ = objects({"kind": "cut", "from": V[:1], "for_ms": None, "until_height": 9}, **CLEAR)
    stress = stress_chaos("smoke-3", DEPLOYMENT, 2, 8)
    assert seconds(endless) == seconds(stress) == 61 * 60
    for page in ("scenarios", "kubernetes", "operations"):
        text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
        assert "61 minutes" in text.partition("## Faults by Kubernetes\n")[2].partition("\n## ")[0], page


def test_the_definitions_of_chaos_mesh_accept_stress() -> None:
    found = stress_chaos("smoke-3", DEPLOYMENT, 2, 8)
    assert selected(found["spec"]["selector"]) == {2}
    assert (found["kind"], found["spec"]["stressors"]) == ("StressChaos", {"cpu": {"workers": 8, "load": 100}})
    validator = validator_of(STRESS)
    validator.validate(found)
    with pytest.raises(jsonschema.ValidationError, match="threads"):
        validator.validate(found | {"spec": {**found["spec"], "stressors": {"cpu": {"threads": 8}}}})
