"""Random scenarios: a seed draws what it always drew."""

from __future__ import annotations

import pytest
from blake3 import blake3

from cluster.commands.sweeps.drawing.random_scenario import random_scenario
from cluster.common.limits import MAX_SEED

BEFORE = {
    "simplex": "a50d0565fc9c76c649bd3d93d51bfac3b52d97bd367f36b1f63a63a25217173b",
    "hotstuff": "383f11bb05cebb38f5bf28f949cc5c0580a851a5c1db49b4c90609acd64a2c7a",
}
"""Digests of the fields of some seeds' scenarios."""
SEEDS = (*range(60), 10**6, MAX_SEED)


@pytest.mark.parametrize("protocol", list(BEFORE))
def test_seeds_draw_what_they_drew_before(protocol: str) -> None:
    plans = "".join(random_scenario(seed, protocol).model_dump_json(exclude_unset=True) for seed in SEEDS)
    assert blake3(plans.encode()).hexdigest() == BEFORE[protocol]
