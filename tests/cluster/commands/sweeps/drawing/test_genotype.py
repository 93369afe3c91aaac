"""Genotypes: plain seeds draw what they always drew, and every change of draws gives a valid scenario."""

from __future__ import annotations

from random import Random

import pytest
from blake3 import blake3

from cluster.commands.sweeps.drawing.genotype import (
    MAIN_PARTS,
    MAX_CHANGES,
    OWN_PARTS,
    PARTS,
    RUN,
    ChangedRandom,
    Draws,
    Genotype,
)
from cluster.commands.sweeps.drawing.random_scenario import random_scenario
from cluster.commands.sweeps.guided.schedule import mutant
from cluster.common.errors import BadInput
from cluster.common.limits import MAX_SEED
from cluster.scenario import Scenario

BEFORE = {
    "simplex": "a50d0565fc9c76c649bd3d93d51bfac3b52d97bd367f36b1f63a63a25217173b",
    "hotstuff": "383f11bb05cebb38f5bf28f949cc5c0580a851a5c1db49b4c90609acd64a2c7a",
}
"""Digests of the fields of some seeds' scenarios as they were drawn before there were genotypes."""
SEEDS = (*range(60), 10**6, MAX_SEED)


def drawn(genotype: str, protocol: str = "simplex") -> Scenario:
    return random_scenario(Genotype.parse(genotype), protocol)


def same_but_for_its_name(one: Scenario, other: Scenario) -> bool:
    return one.model_copy(update={"description": "", "seed": 0}) == other.model_copy(
        update={"description": "", "seed": 0}
    )


@pytest.mark.parametrize("protocol", list(BEFORE))
def test_plain_seeds_draw_what_they_drew_before(protocol: str) -> None:
    plans = "".join(random_scenario(seed, protocol).model_dump_json(exclude_unset=True) for seed in SEEDS)
    assert blake3(plans.encode()).hexdigest() == BEFORE[protocol]


def test_a_genotype_without_changes_is_its_seed() -> None:
    assert drawn("7") == random_scenario(7, "simplex")
    rerun = drawn("7,run=9")
    assert same_but_for_its_name(rerun, random_scenario(7, "simplex"))
    assert rerun.seed == 9
    assert Genotype.of(7, {"faults": 7, "load.2": 7}) == Genotype(7, (("load.2", 7),))


@pytest.mark.parametrize("part", MAIN_PARTS)
def test_a_part_from_another_seed_leaves_the_other_main_parts_as_they_are(part: str) -> None:
    """Sections that depend on another are drawn anew in its context; those that do not are untouched."""
    free = {"chain": "chain", "links": "links", "load": "load", "consensus": "consensus"}
    if part not in free:
        assert any(not same_but_for_its_name(drawn(f"{seed},{part}=99"), drawn(str(seed))) for seed in range(5))
        return
    differ = 0
    for seed in range(12):
        one, other = drawn(f"{seed},{part}=99"), drawn(str(seed))
        differ += getattr(one, free[part]) != getattr(other, free[part])
        assert one.validators == other.validators
        assert [fault.kind_name for fault in one.faults][:2] == [fault.kind_name for fault in other.faults][:2]
    assert differ


def test_all_parts_of_another_seed_are_the_other_seeds_scenario() -> None:
    for seed in (24, 32, 40):  # whether signatures are real goes by the seed itself
        parts = ",".join(f"{part}={seed}" for part in PARTS)
        assert same_but_for_its_name(drawn(f"16,{parts}"), drawn(str(seed)))


def test_a_changed_draw_changes_that_draw_alone() -> None:
    plain, source = Random(5), Random(5)
    changed = ChangedRandom().replace(source.getstate(), {1: 77})
    values = [plain.random(), plain.getrandbits(40), plain.random()]
    assert [changed.random(), changed.getrandbits(40), changed.random()] == [
        values[0],
        Random(77).getrandbits(40),
        values[2],
    ]


def test_every_part_is_drawn_under_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt name of a part would draw from a source that no genotype can change."""
    asked: set[str] = set()
    own = Draws.part

    def part(self: Draws, name: str) -> Random:
        asked.add(name)
        return own(self, name)

    monkeypatch.setattr(Draws, "part", part)
    for seed in range(120):
        random_scenario(seed, "simplex")
    assert asked == set(OWN_PARTS)
    assert (*MAIN_PARTS, *OWN_PARTS, RUN) == PARTS


def test_mutants_of_mutants_are_valid_and_read_back() -> None:
    random = Random(1)
    some = [Genotype(seed) for seed in range(10)]
    for _ in range(80):
        made = mutant(random, random.choice(some), random.choice(some))
        assert Genotype.parse(str(made)) == made
        assert len(made.changes) <= MAX_CHANGES
        protocol = random.choice(["simplex", "hotstuff"])
        plan = random_scenario(made, protocol)
        assert not plan.simulator_problem
        assert len(plan.faults) >= 2
        assert plan.seed == made.run_seed
        some.append(made)
    assert any(len(made.changes) > 8 for made in some)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected SEED"),
        ("x", "expected SEED"),
        ("-1", "expected SEED"),
        (str(MAX_SEED + 1), "expected SEED"),
        ("1,", "''"),
        ("1,nothing=2", "'nothing=2'"),
        ("1,load", "'load'"),
        ("1,load=", "'load='"),
        ("1,load.x=2", "'load.x=2'"),
        ("1,load.01=2", "'load.01=2'"),
        ("1,load.1000=2", "'load.1000=2'"),
        ("1,run.0=2", "'run.0=2'"),
        ("1,load=2,load=3", "'load=3'"),
        (",".join(["1", *(f"load.{draw}=2" for draw in range(MAX_CHANGES + 1))]), "49 changes, expected at most 48"),
    ],
)
def test_what_is_no_genotype_is_told(text: str, problem: str) -> None:
    with pytest.raises(BadInput, match="is no genotype") as refused:
        Genotype.parse(text)
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)
