"""The names agree with those of the rest of the project."""

from __future__ import annotations

from cluster.live.kubernetes import names
from cluster.live.nodes import ray_nodes


def test_a_pod_of_a_component_is_a_ray_node_with_that_role() -> None:
    assert {names.VALIDATORS, names.LOAD, names.SEEDS} == set(ray_nodes.ROLES)


def test_labels_and_resources_begin_as_those_of_other_nodes() -> None:
    assert names.HOST_LABEL.startswith(ray_nodes.LABEL_PREFIX)
    assert names.host_resource(3) == ray_nodes.RESOURCE_PREFIX + "host_3"


def test_labels_of_a_host_select_it_alone() -> None:
    mine, other = names.host_labels("smoke", 1), names.host_labels("smoke", 2)
    assert mine.items() != other.items()
    assert names.component_labels("smoke", names.VALIDATORS).items() <= mine.items() & other.items()
    assert not names.component_labels("other", names.VALIDATORS).items() <= mine.items()
