"""Small simulated runs with byzantine validators in them."""

from __future__ import annotations

from functools import cache

from cluster.record import RunRecord
from cluster.scenario import Scenario
from cluster.simulation.driver import Simulation
from consensus.keys import KeyedHashScheme

SEED = 5
HEIGHT = 24
LOST_DISK = {"kind": "wipe", "target": "validator-1", "at_height": 12, "down_ms": 800}
"""So that somebody asks for a snapshot; the last of four is the second one asked."""


def scenario(
    validators: int,
    byzantine: dict[int, str | list[str]],
    *,
    allow_more_faults: bool = False,
    height: int = HEIGHT,
    protocol: str = "simplex",
) -> Scenario:
    """Some load, short timeouts, and the named validators byzantine."""
    forgets = any("forgetful-leader" in names for names in byzantine.values())
    nodes = [{"byzantine": byzantine.get(index, [])} for index in range(validators)]
    return Scenario.model_validate(
        {
            "name": "byzantine",
            "validators": {"count": validators, "nodes": nodes, "allow_more_faults": allow_more_faults},
            "consensus": {
                "protocol": protocol,
                "block_interval_ms": 0 if forgets else 50,  # so that there is something that is not final yet
                "leader_timeout_ms": 400,
                "advance_timeout_ms": 600,
                "rebroadcast_ms": 300,
            },
            "load": {
                "users": [
                    {"workload": "heartbeat", "count": 4, "interval_ms": 400},
                    {"workload": "transfer", "count": 4, "interval_ms": 100},
                ]
            },
            "faults": [LOST_DISK] if any("false-snapshots" in node["byzantine"] for node in nodes) else [],
            "stop": {"height": height, "drain_blocks": 3, "timeout_s": 60},
            "success": {"heights_compared": 20, "transactions": 20, "fires": 10, "stall_ms": 5_000},
        }
    )


def run(plan: Scenario, seed: int = SEED) -> RunRecord:
    """Run in the simulator, with signatures that cost little."""
    return Simulation(plan, seed, "test", scheme=KeyedHashScheme()).run()


@cache
def run_with(*behaviours: str, seed: int = SEED, protocol: str = "simplex") -> RunRecord:
    """A run of four with one byzantine validator, the last, that has all these behaviours."""
    return run(scenario(4, {3: list(behaviours)}, protocol=protocol), seed)


def faults_of(record: RunRecord) -> dict[str, int]:
    """What the honest validators counted of their peers, by reason."""
    counted: dict[str, int] = {}
    for validator in record.validators:
        if not validator.byzantine:
            for reason, count in (validator.status or {}).get("faults", {}).items():
                counted[reason] = counted.get(reason, 0) + count
    return counted
