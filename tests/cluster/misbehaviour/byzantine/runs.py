"""Small simulated runs with byzantine validators in them: the shipped scenarios of one behaviour each, and mixtures."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.scenario.files import find_scenario, load_scenario
from cluster.watches.watched_simulation import WatchedSimulation
from consensus.keys import KeyedHashScheme

SEED = 5


def scenario(
    validators: int,
    byzantine: dict[int, str | list[str]],
    *,
    allow_more_faults: bool = False,
    height: int | None = None,
) -> Scenario:
    """The scenario in which nobody is byzantine, with so many validators, and the named ones byzantine."""
    fields = yaml.safe_load(find_scenario(Path("byzantine-nobody")).read_text(encoding="utf-8"))
    nodes = [{"byzantine": byzantine.get(index, [])} for index in range(validators)]
    fields["validators"] = {"count": validators, "nodes": nodes, "allow_more_faults": allow_more_faults}
    fields["stop"] |= {} if height is None else {"height": height}
    return Scenario.model_validate(fields)


def shipped(behaviour: str) -> Scenario:
    """The scenario that ships in which the last of four has this behaviour alone."""
    return load_scenario(f"byzantine-{behaviour}")


def run(plan: Scenario, seed: int = SEED) -> RunRecord:
    """Run in the simulator, with signatures that cost little."""
    return WatchedSimulation(plan, seed, "test", scheme=KeyedHashScheme(), shortcuts=True).run()


@cache
def run_with(*behaviours: str, seed: int = SEED, protocol: str = "simplex") -> RunRecord:
    """A run of four with one byzantine validator, the last, that has all these behaviours."""
    plan = shipped(behaviours[0]) if len(behaviours) == 1 else scenario(4, {3: list(behaviours)})
    return run(plan.model_copy(update={"consensus": plan.consensus.model_copy(update={"protocol": protocol})}), seed)


def faults_of(record: RunRecord) -> dict[str, int]:
    """What the honest validators counted of their peers, by reason."""
    counted: dict[str, int] = {}
    for validator in record.validators:
        if not validator.byzantine:
            for reason, count in (validator.status or {}).get("faults", {}).items():
                counted[reason] = counted.get(reason, 0) + count
    return counted
