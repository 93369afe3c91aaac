"""Which node carries which host, and which nodes there are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.live.nodes.placement import HostToPlace, hosts_to_place, place
from cluster.live.nodes.ray_nodes import HEAD_RESOURCE, RayNode, hosts_with_nodes, read_nodes
from cluster.scenario import Scenario
from consensus.types import fault_bound


def node(name: str, is_head: bool = False, is_alive: bool = True, **labels: str) -> RayNode:
    resources = {"CPU": 2.0} | ({HEAD_RESOURCE: 1.0} if is_head else {})
    return RayNode(
        name, f"address-{name}", {f"stampede.io/{key}": value for key, value in labels.items()}, resources, is_alive
    )


HEAD = node("head", is_head=True)
A, B, C = (node(name) for name in "abc")


def hosts(count: int, each: int = 1, region: str | None = None) -> list[HostToPlace]:
    return [HostToPlace(number, range(number * each, (number + 1) * each), region) for number in range(count)]


def placed(count: int, nodes: list[RayNode], withstood: int, **fields: Any) -> list[str]:
    found = place(hosts(count, **fields), nodes, withstood)
    return [found.nodes[number].node_id for number in sorted(found.nodes)]


def test_hosts_go_to_the_nodes_in_turn_and_not_to_the_head() -> None:
    assert placed(4, [HEAD, A, B, C, node("d")], 1) == ["a", "b", "c", "d"]
    assert place(hosts(4), [HEAD, A, B, C, node("d")], 1).warnings == []


def test_the_head_helps_if_a_node_would_carry_more_than_is_withstood() -> None:
    assert placed(4, [HEAD, A, B, C], 1) == ["head", "a", "b", "c"]
    assert placed(8, [HEAD, A, B, C], 2) == ["head", "a", "b", "c"] * 2
    assert placed(9, [HEAD, A, B, C], 3) == ["a", "b", "c"] * 3, "it need not"
    assert placed(4, [HEAD], 1) == ["head"] * 4


def test_a_loss_that_the_network_does_not_survive_is_told() -> None:
    (warning,) = place(hosts(4), [HEAD, A], 1).warnings
    assert warning == (
        "the loss of node address-head (head) would take 2 validators, and the network survives the loss of 1"
    )


def test_nodes_that_are_for_validators_carry_them_alone() -> None:
    chosen = [node("x", validators="true"), node("y", is_head=True, validators="true")]
    assert set(placed(4, [A, *chosen, B], 1)) == {"x", "y"}
    by_resource = A._replace(resources={"stampede_validators": 1.0})
    assert placed(2, [HEAD, by_resource, B], 1) == ["a", "a"]
    assert by_resource.roles == ["validators"]


def test_a_lost_node_carries_nothing() -> None:
    assert placed(4, [A, B._replace(is_alive=False)], 1) == ["a"] * 4
    assert place(hosts(4), [B._replace(is_alive=False)], 1).nodes == {}
    assert placed(1, [A, node("x", is_alive=False, validators="true")], 1) == ["a"], "nor does it keep a role"


def test_regions_of_hosts_are_those_of_nodes() -> None:
    nodes = [HEAD, node("x", region="eu"), node("y", region="us"), node("z", region="eu")]
    assert placed(2, nodes, 5, region="eu") == ["x", "z"]
    assert placed(3, nodes, 5, region=None) == ["x", "y", "z"]
    found = place(hosts(1, region="asia"), nodes, 5)
    assert found.warnings == ["no node is in region asia: its hosts go to any node"]
    rays = A._replace(labels={"ray.io/availability-region": "eu"})
    assert placed(1, [B, rays], 5, region="eu") == ["a"]
    assert place(hosts(1, region="asia"), [A, B], 5).warnings == [], "of a cluster without regions"


def test_hosts_of_a_scenario_have_the_regions_of_their_validators() -> None:
    fields = {
        "name": "regions",
        "validators": {"count": 8, "hosts": 4},
        "links": {"regions": {"eu": ["validator-0", "validator-4"], "us": ["validator-1"]}},
    }
    found = hosts_to_place(Scenario.model_validate(fields))
    assert [host.region for host in found] == ["eu", None, None, None]
    assert [list(host.validators) for host in found] == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_what_nodes_carry_already_counts() -> None:
    found = place(hosts(2), [HEAD, A, B], 2, {"a": 2})
    assert {number: each.node_id for number, each in found.nodes.items()} == {0: "b", 1: "b"}
    assert found.most == 2


def pinned(name: str, *numbers: int, is_alive: bool = True) -> RayNode:
    resources = {f"stampede_host_{number}": 1.0 for number in numbers} | {"stampede_validators": 1.0}
    return node(name, is_alive=is_alive)._replace(resources=resources)


def test_a_host_goes_to_its_own_node_and_no_other_host_does() -> None:
    own = [pinned("z", 0), pinned("y", 1), pinned("x", 2)]
    found = place(hosts(3, each=2), [HEAD, A, *own], 2)
    assert {number: each.node_id for number, each in found.nodes.items()} == {0: "z", 1: "y", 2: "x"}
    assert (found.most, found.warnings) == (2, [])
    assert placed(3, [HEAD, pinned("z", 1), A], 3) == ["a", "z", "a"]
    assert placed(2, [pinned("z", 7)], 3) == [], "the node is another host's"
    assert placed(2, [A, pinned("z", 0, 1)], 3) == ["z", "z"]
    regional = node("b", region="eu")
    assert place(hosts(1, region="eu"), [regional, pinned("z", 0)], 1).nodes[0].node_id == "z", "its disk is there"


def test_a_host_that_had_a_node_of_its_own_goes_nowhere_else() -> None:
    nodes = [HEAD, A, pinned("z", 0, is_alive=False), pinned("y", 1)]
    assert place(hosts(2), nodes, 1, pinned={0, 1}).nodes == {1: nodes[3]}
    back = pinned("w", 0)
    assert place(hosts(2), [*nodes, back], 1, pinned={0, 1}).nodes == {0: back, 1: nodes[3]}


def test_the_loss_of_an_own_node_is_told_too() -> None:
    (warning,) = place(hosts(2, each=2), [HEAD, pinned("z", 0), pinned("y", 1)], 1).warnings
    assert warning == "the loss of node address-z (z) would take 2 validators, and the network survives the loss of 1"


def test_own_hosts_are_read_from_resources() -> None:
    odd = A._replace(resources={"stampede_host_3": 1.0, "stampede_host_4": 0.0, "stampede_host_x": 1.0, "CPU": 1.0})
    assert odd.own_hosts == {3}
    assert hosts_with_nodes([odd, pinned("z", 7, is_alive=False)]) == {3}


@given(st.lists(st.sampled_from(["own", "lost", "none"]), min_size=1, max_size=8), st.integers(1, 4))
def test_own_nodes_change_nothing_for_the_others(kinds: list[str], free: int) -> None:
    """Hosts without nodes of their own are spread as if the others did not exist."""
    nodes = [HEAD, *(node(f"n{index}") for index in range(free))]
    own = [pinned(f"own-{number}", number) for number, kind in enumerate(kinds) if kind == "own"]
    had = {number for number, kind in enumerate(kinds) if kind != "none"}
    every = hosts(len(kinds))
    found = place(every, [*own, *nodes], len(kinds), pinned=had)
    alone = place([host for host in every if kinds[host.number] == "none"], nodes, len(kinds))
    expected = {number: each.node_id for number, each in alone.nodes.items()}
    expected |= {number: f"own-{number}" for number, kind in enumerate(kinds) if kind == "own"}
    assert {number: each.node_id for number, each in found.nodes.items()} == expected


@given(st.integers(1, 12), st.integers(1, 3), st.integers(1, 6))
def test_no_spread_is_better(count: int, each: int, number: int) -> None:
    """Hosts of one size: no node carries a host more than it must."""
    nodes = [node(f"n{index}") for index in range(number)]
    found = place(hosts(count, each=each), nodes, fault_bound(count * each))
    assert found.most == -(-count // number) * each
    assert bool(found.warnings) == (found.most > fault_bound(count * each) and count * each > 1)
    assert len(found.nodes) == count


@pytest.mark.parametrize("labels", [{}, None])
def test_nodes_are_read_as_ray_lists_them(labels: dict[str, str] | None) -> None:
    pages = [
        {
            "NodeID": "b" * 8,
            "NodeManagerAddress": "10.0.0.2",
            "Labels": {"stampede.io/validators": "true"},
            "Resources": {"CPU": 1.0},
            "Alive": False,
            "DeathReasonMessage": "health check failed",
        },
        {
            "NodeID": "a" * 8,
            "NodeManagerAddress": "10.0.0.9",
            "Labels": labels,
            "Resources": {HEAD_RESOURCE: 1.0},
            "Alive": True,
        },
    ]
    head, other = read_nodes(SimpleNamespace(nodes=lambda: pages))
    assert head.is_head and head.is_alive and head.name == "10.0.0.9 (aaaaaa)" and head.roles == []
    assert not other.is_alive and other.why_lost == "health check failed" and other.roles == ["validators"]
