"""Topologies: by which path validators reach each other, and what the path is like."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.scenario import Scenario
from cluster.scenario.network import Network
from cluster.scenario.sections.links import LinksSection
from cluster.scenario.sections.measurements.latencies import MATRICES
from tests.hangs import HANGS_AFTER_S

ROOT = Path(__file__).resolve().parents[3]


def network(count: int = 6, seed: int = 1, regions: dict[str, list[str]] | None = None, **fields: Any) -> Network:
    section = LinksSection.model_validate({"latency_ms": 10.0, "jitter_ms": 2.0, **fields})
    return Network(section, [f"v{index}" for index in range(count)], regions or section.regions, seed)


def test_everybody_has_a_link_to_everybody_unless_said_otherwise() -> None:
    full = network(4)
    assert full.links == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    assert full.route(1, 3) == (1, 3)


def test_a_direct_link_is_taken_even_where_a_detour_is_faster() -> None:
    fields: dict[str, Any] = {
        "regions": {"a": ["v0"], "b": ["v1"], "c": ["v2"]},
        "latency_matrix_ms": {"a": {"b": 100.0, "c": 10.0}, "b": {"c": 10.0}},
    }
    direct, underlay = network(3, **fields), network(3, **fields, topology="ring")
    assert direct.quality(0, 1).latency_ms == 100.0  # type: ignore[union-attr]
    assert underlay.route(0, 1) == (0, 2, 1)
    assert underlay.quality(0, 1).latency_ms == 20.0  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("topology", "links"),
    [
        ("ring", [(0, 1), (0, 5), (1, 2), (2, 3), (3, 4), (4, 5)]),
        ("star", [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5)]),
        ({"kind": "star", "hub": "v2"}, [(0, 2), (1, 2), (2, 3), (2, 4), (2, 5)]),
        ([["v0", "v1"], ["v1", "v2"], ["v2", "v3"], ["v3", "v4"], ["v5", "v4"]], [(i, i + 1) for i in range(5)]),
    ],
)
def test_plain_topologies(topology: Any, links: list[tuple[int, int]]) -> None:
    assert network(topology=topology).links == links


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_ring_or_a_star_of_few(count: int) -> None:
    assert len(network(count, topology="star").links) == count - 1
    assert len(network(count, topology="ring").links) == {1: 0, 2: 1, 3: 3}[count]


def test_regions_are_linked_by_their_gateways() -> None:
    regions = {"east": ["v0", "v1", "v2"], "west": ["v3", "v4"], "south": ["v5"]}
    one = network(regions=regions, topology="regions")
    assert one.links == [(0, 1), (0, 2), (0, 3), (0, 5), (1, 2), (3, 4), (3, 5)]
    assert one.route(2, 4) == (2, 0, 3, 4)
    two = network(regions=regions, topology={"kind": "regions", "gateways": 2})
    assert {(1, 4), (1, 5), (4, 5), (0, 3)} <= set(two.links)
    assert (2, 4) not in two.links


def test_along_a_path_latencies_add_up_losses_compose_and_the_least_bandwidth_counts() -> None:
    edges = [
        {"between": ["v0", "v1"], "latency_ms": 5.0, "loss": 0.1, "bandwidth_kbps": 900},
        {"between": ["v1", "v2"], "jitter_ms": 1.0, "duplication": 0.2, "reordering": 0.5, "bandwidth_kbps": 700},
        ["v2", "v3"],
    ]
    found = network(4, loss=0.5, topology=edges).quality(0, 3)
    assert found is not None
    assert (found.latency_ms, found.jitter_ms, found.bandwidth_kbps) == (25.0, 5.0, 700)
    assert found.loss == pytest.approx(1 - 0.9 * 0.5 * 0.5)
    assert (found.duplication, found.reordering) == pytest.approx((0.2, 0.5))
    assert network(4, topology=edges).quality(2, 3).bandwidth_kbps is None  # type: ignore[union-attr]


def test_a_way_back_that_takes_longer_may_be_another_one() -> None:
    fields: dict[str, Any] = {
        "regions": {"a": ["v0"], "b": ["v1"], "c": ["v2"]},
        "latency_matrix_ms": {"a": {"b": 10.0, "c": 50.0}, "b": {"a": 500.0, "c": 10.0}, "c": {"a": 20.0}},
    }
    ring = network(3, **fields, topology="ring")
    assert ring.route(0, 1) == (0, 1)
    assert ring.route(1, 0) == (1, 2, 0)


def test_of_equally_fast_paths_the_shortest_counts() -> None:
    edges = [
        {"between": ["v0", "v1"], "latency_ms": 5.0},
        {"between": ["v1", "v2"], "latency_ms": 5.0},
        {"between": ["v0", "v2"], "latency_ms": 10.0},
    ]
    assert network(3, topology=edges).route(0, 2) == (0, 2)


@given(
    st.sampled_from(
        ["ring", "star", {"kind": "random-regular", "degree": 4}, {"kind": "small-world", "k": 4, "p": 0.5}]
    ),
    st.integers(6, 20),
    st.integers(0, 2**64 - 1),
)
@settings(max_examples=40, deadline=None)
def test_no_path_is_shorter_than_the_one_taken(topology: Any, count: int, seed: int) -> None:
    found = network(count, seed, topology=topology)
    assert found.graph is not None
    lengths = dict(nx.all_pairs_shortest_path_length(found.graph.links))
    for sender in range(count):
        for receiver in range(count):
            if sender != receiver:
                route, quality = found.route(sender, receiver), found.quality(sender, receiver)
                assert route is not None and quality is not None
                assert len(route) - 1 == lengths[sender][receiver]
                assert quality.latency_ms == 10.0 * lengths[sender][receiver]


# --- drawn ones -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "topology", [{"kind": "random-regular", "degree": 3}, {"kind": "small-world", "k": 2, "p": 0.4}]
)
def test_what_is_drawn_follows_from_the_seed_and_is_connected(topology: dict[str, Any]) -> None:
    drawn = {seed: network(12, seed, topology=topology).links for seed in range(20)}
    assert drawn[3] == network(12, 3, topology=topology).links
    assert len({tuple(links) for links in drawn.values()}) > 10
    assert network(12, 5, topology=topology | {"seed": 3}).links == drawn[3], "a seed of its own"
    for links in drawn.values():
        assert nx.is_connected(nx.Graph(links))


def test_every_node_of_a_random_regular_graph_has_its_degree() -> None:
    found = network(10, topology={"kind": "random-regular", "degree": 3})
    assert found.graph is not None
    assert {degree for _, degree in found.graph.links.degree} == {3}


@pytest.mark.slow
def test_a_drawn_topology_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "from cluster.scenario import Scenario\n"
        "for kind in ('random-regular', 'small-world'):\n"
        "    print(Scenario(name='a', seed=5, validators=16, links={'topology': kind}).network.links)\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
            timeout=HANGS_AFTER_S,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
    assert "(0, " in said.pop()


# --- what does not fit ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topology", "reason"),
    [
        ({"kind": "star", "hub": "bob"}, "topology.hub: no validator is named 'bob'"),
        ({"kind": "random-regular", "degree": 6}, "topology.degree: 6 is not below the number of validators (6)"),
        ({"kind": "random-regular", "degree": 1}, "topology: v"),
        ({"kind": "small-world", "k": 6}, "topology.k: 6 is not below the number of validators (6)"),
        ("regions", "topology.kind: v0 is in no region"),
        ([["v0", "bob"]], "topology.edges[0].between: no validator is named 'bob'"),
        ([["v0", "v0"]], "topology.edges[0].between: v0 is not linked to itself"),
        ([["v0", "v1"], ["v1", "v0"]], "topology.edges[1].between: v1 and v0 are linked twice"),
        ([["v0", "v1"], ["v1", "v2"], ["v4", "v5"]], "topology: v4 cannot reach v0: the validators are in 3 parts"),
    ],
)
def test_a_topology_that_does_not_fit_is_refused(topology: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}"):
        network(topology=topology)


def test_an_odd_number_of_ends_cannot_be_linked() -> None:
    with pytest.raises(ValueError, match=r"topology.degree: 3 links of each of 7 validators cannot be"):
        network(7, topology={"kind": "random-regular", "degree": 3})


def test_validators_without_a_way_between_them_may_be_meant() -> None:
    topology = {"kind": "edges", "edges": [["v0", "v1"]], "allow_disconnected": True}
    found = network(3, topology=topology)
    assert (found.route(0, 2), found.quality(0, 2), found.route(0, 1)) == (None, None, (0, 1))
    drawn = network(6, topology={"kind": "random-regular", "degree": 1, "allow_disconnected": True})
    assert len(drawn.links) == 3


# --- real latencies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MATRICES)
def test_a_matrix_has_a_figure_for_each_pair(name: Any) -> None:
    matrix = MATRICES[name]
    places = list(matrix.places)
    assert [len(row) for row in matrix.round_trips_ms] == list(range(len(places) - 1, -1, -1))
    for one in places:
        assert matrix.latency_ms(one, one) == 1.0
        for other in places:
            assert matrix.latency_ms(one, other) == matrix.latency_ms(other, one)
            assert one == other or 4 <= matrix.latency_ms(one, other) <= 200
    with pytest.raises(KeyError):
        matrix.latency_ms("us-east", "mars")


def test_matrices_agree_about_the_earth() -> None:
    """Two providers' figures for the same two places are alike: a slip in one of them would show."""
    one, other = MATRICES["azure"], MATRICES["ibm"]
    common = [place for place in one.places if place in other.places]
    assert len(common) >= 6
    for a in common:
        for b in common:
            assert one.latency_ms(a, b) == pytest.approx(other.latency_ms(a, b), rel=0.2, abs=8), (a, b)


def test_latencies_are_the_matrix_unless_the_scenario_has_its_own() -> None:
    section = LinksSection.model_validate({"latencies": "azure", "latency_matrix_ms": {"eu-west": {"us-east": 1.5}}})
    assert section.region_latency_ms("us-west", "us-east") == 34.5
    assert section.region_latency_ms("eu-west", "eu-west") == 1.0
    assert section.region_latency_ms("us-east", "eu-west") == 1.5
    assert section.region_latency_ms(None, "eu-west") == section.region_latency_ms(None, None) == 20.0


def test_validators_may_say_themselves_where_they_are() -> None:
    nodes = [{"region": "eu-west"}, {"region": "us-east"}, {}, {}]
    links = {"regions": {"us-east": ["validator-2"], "eu-west": ["validator-0"]}, "latencies": "azure"}
    scenario = Scenario.model_validate({"name": "a", "validators": nodes, "links": links})
    assert scenario.regions == {"us-east": ["validator-2", "validator-1"], "eu-west": ["validator-0"]}
    assert scenario.network.regions == ("eu-west", "us-east", "us-east", None)
    assert scenario.network.quality(0, 1).latency_ms == 41.5  # type: ignore[union-attr]


def test_a_copy_of_a_scenario_has_a_network_of_its_own() -> None:
    scenario = Scenario(name="a")
    assert len(scenario.network.names) == 4
    seven = scenario.model_copy(update={"validators": scenario.validators.model_copy(update={"count": 7})})
    assert len(seven.network.names) == 7
