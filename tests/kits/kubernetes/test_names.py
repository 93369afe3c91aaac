"""Labels that select."""

from __future__ import annotations

from cluster.live.nodes.ray_nodes import VALIDATORS
from kits.kubernetes import names


def test_labels_of_a_host_select_it_alone() -> None:
    mine, other = names.host_labels("smoke", 1), names.host_labels("smoke", 2)
    assert mine.items() != other.items()
    assert names.component_labels("smoke", VALIDATORS).items() <= mine.items() & other.items()
    assert not names.component_labels("other", VALIDATORS).items() <= mine.items()
