"""What the simulator's users count of their requests means what it means live."""

from __future__ import annotations

from cluster.scenario import Scenario
from cluster.simulation.driver import Simulation
from consensus.keys import KeyedHashScheme


def test_a_request_to_who_is_down_failed_and_sent_nothing() -> None:
    scenario = Scenario.model_validate(
        {
            "name": "load",
            "faults": [{"kind": "kill", "target": ["validator-0", "validator-1"], "at_height": 5, "down_ms": 4_000}],
            "load": {"users": [{"workload": "transfer", "count": 4, "interval_ms": 200}]},
            "stop": {"height": 15, "drain_blocks": 2},
        }
    )
    simulation = Simulation(scenario, 3, "test", scheme=KeyedHashScheme())
    load = simulation.run().load
    answered = load.requests - load.failures
    assert load.failures > 5
    assert load.transactions_sent == answered, "each request of this workload has one transaction"
