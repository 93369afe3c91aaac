"""A full block fills the lanes that it is to fill."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.audit.reexecution.full_block import full_block_seconds
from tests.validator.chains import make_genesis
from validator.chain.genesis import Genesis, Policy
from validator.primitives.params import Parameters

SMALL = {
    "LANE_USER_CYCLES": 60_000,
    "LANE_TIMER_CYCLES": 40_000,
    "LANE_DEFERRED_CYCLES": 100_000,
    "MAX_CYCLES_PER_FIRE": 10_000,
    "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 10_000,
}


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("more", [{}, {"MAX_TIMERS_PER_ACTOR": 16}, {"INITIAL_BASEFEE": 10**24}])
def test_a_full_block_is_full_and_the_rest_is_added_by_cycles(policy: Policy, more: dict[str, Any]) -> None:
    genesis = Genesis("a", make_genesis().validators, policy, Parameters.from_names({**SMALL, **more}))
    calls = 0

    def clock() -> float:
        """Each execution takes a second."""
        nonlocal calls
        calls += 1
        return calls

    seconds = full_block_seconds(genesis, clock)
    assert 2.0 <= seconds < 2.05, "200,000 cycles of the lanes, of which payments and fires use nearly 100,000"
