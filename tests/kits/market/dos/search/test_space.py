"""The space of attacks: every attack of it is a scenario, and what a seed draws is always the same."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.scenario import Scenario
from kits.market.dos.search.space import MAX_PARTS, OF_GROUPS, Attack, Gene, Space, option_genes
from loadgen.workloads.attacks.composed import ComposedOptions

BUDGET = 10**13
BLOCKS = 60
SCENARIO = Scenario.model_validate(
    {"name": "honest", "load": {"users": [{"workload": "heartbeat", "count": 3}]}, "stop": {"height": 60}}
)
SPACE = Space.of(SCENARIO, BUDGET, BLOCKS)


def attack_after(seed: int, steps: int) -> Attack:
    """An attack that was drawn, and then changed and mixed so often."""
    random = Random(seed)
    attack = SPACE.draw(random)
    for step in range(steps):
        attack = SPACE.mix(attack, SPACE.draw(random), random) if step % 3 == 2 else SPACE.change(attack, random)
    return attack


@given(st.integers(0, 10**6), st.integers(0, 12))
@settings(max_examples=60, deadline=None)
def test_every_attack_is_a_scenario_within_the_budget(seed: int, steps: int) -> None:
    attack = attack_after(seed, steps)
    assert 1 <= len(attack) <= MAX_PARTS
    scenario = SPACE.attacked(SCENARIO, attack, BLOCKS)
    attacking = [group for group in scenario.load.users if group.is_attack]
    assert len(attacking) == len(attack)
    assert BUDGET - len(attack) < sum(group.budget or 0 for group in attacking) <= BUDGET
    assert scenario.load.users[0] == SCENARIO.load.users[0], "the honest users are as they were"
    for part in attack:
        assert all(part[gene.name] != gene.default for gene in SPACE.genes if gene.name in part), "defaults go unsaid"


def test_equal_seeds_draw_equal_attacks() -> None:
    assert attack_after(5, 9) == attack_after(5, 9) != attack_after(6, 9)
    assert json.loads(json.dumps(attack_after(5, 9))) == attack_after(5, 9)


def test_the_genes_are_the_options_and_the_group() -> None:
    names = [gene.name for gene in SPACE.genes]
    assert names == [*OF_GROUPS, *ComposedOptions.model_fields]
    defaults = ComposedOptions.model_validate({gene.name: gene.default for gene in option_genes()})
    assert defaults == ComposedOptions()
    target = next(gene for gene in SPACE.genes if gene.name == "target")
    assert (target.least, target.most) == (0, 2), "an honest user"


@pytest.mark.parametrize("gene", [Gene("plain", 3, 2, 9), Gene("wide", 0, 0, 10_000), Gene("from", 1, 1, 64)])
def test_numbers_reach_both_ends_of_their_range_and_go_no_further(gene: Gene) -> None:
    random = Random(1)
    drawn = {gene.draw(random) for _ in range(3_000)}
    near = {gene.near(gene.default, random) for _ in range(3_000)}
    assert min(map(int, drawn)) == gene.least
    assert max(map(int, drawn)) >= gene.most * 0.9
    assert min(map(int, near)) >= gene.least and max(map(int, near)) <= gene.most
    assert all(isinstance(value, int) for value in drawn | near)
