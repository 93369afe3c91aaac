"""The validator against the specification, field by field and leaf by leaf, over generated cases; and whether these
would notice a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from operator import attrgetter

import pytest

from cluster.audit.specified import chain
from cluster.audit.specified.chain import spec_chain
from cluster.misbehaviour.planted import Planted
from kits.conform.case import Page
from kits.conform.families import encodings
from kits.conform.families.table import TABLE
from kits.conform.t8n_by_spec import answer_of, execute_page
from spec import tree
from spec.leaves import leaves
from tests.kits.conform.planted import BUGS, planted
from tests.kits.conform.specification.compare import compare, read, specs_answer, validators_answer
from tests.kits.conform.specification.made import crowded_case, odd_scripts_case, watch_case
from tests.kits.conform.specification.mutants import BROKEN, mutated

SEEDS = 250
CHUNK = 25
SOAK_SEEDS = range(1_000_000, 1_005_000)
SOAK_BLOCKS = 60
MADE = {-1: odd_scripts_case, -2: watch_case}
FAMILIES = [name for name in TABLE.families if name != "crowded" and name not in encodings.family.families]


def disagreements(cases: Iterable[tuple[object, Page, list[Page]]]) -> dict[object, str]:
    """How validator and specification differ, by the name of the case."""
    return {name: how for name, genesis, blocks in cases if (how := compare(genesis, blocks)) is not None}


def family_cases(name: str, seeds: range) -> Iterable[tuple[object, Page, list[Page]]]:
    family = TABLE.families[name]
    for seed in family.of_seeds(seeds):
        case, _ = family.case(seed)
        yield seed, case.genesis, case.blocks


@pytest.mark.parametrize("family", FAMILIES)
def test_agree_on_a_family(family: str) -> None:
    assert disagreements(family_cases(family, range(1))) == {}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_agree_on_more_of_a_family(family: str) -> None:
    assert disagreements(family_cases(family, range(1, 4))) == {}


@pytest.mark.soak
@pytest.mark.parametrize("family", FAMILIES)
def test_agree_on_much_of_a_family(family: str) -> None:
    assert disagreements(family_cases(family, range(4, 150))) == {}


@pytest.mark.parametrize(
    "first",
    [
        0,
        *(
            pytest.param(first, marks=pytest.mark.slow if first < SEEDS // 2 else pytest.mark.soak)
            for first in range(CHUNK, SEEDS, CHUNK)
        ),
    ],
)
def test_agree_on_crowded_cases(first: int) -> None:
    assert disagreements((seed, *crowded_case(seed)) for seed in range(first, first + CHUNK)) == {}


@pytest.mark.parametrize("number", MADE)
def test_agree_on_the_made_cases(number: int) -> None:
    assert compare(*MADE[number]()) is None


@pytest.mark.soak
@pytest.mark.parametrize("first", SOAK_SEEDS[::CHUNK])
def test_agree_at_length(first: int) -> None:
    seeds = range(first, first + CHUNK)
    assert disagreements((seed, *crowded_case(seed, most_blocks=SOAK_BLOCKS)) for seed in seeds) == {}


def test_the_made_case_of_watched_keys_does_what_it_is_for() -> None:
    answer = specs_answer(*watch_case())
    assert all(tx["status"] == "ok" for block in answer["blocks"] for tx in block["txs"])
    fires = [block["height"] for block in answer["blocks"] for _ in block["fires"]]
    assert fires == [3, 5, 7, 9, 13, 14, 23, 25, 26]


@pytest.mark.parametrize("seed", [3, 11])
def test_the_specification_answers_with_the_validators_roots(seed: int) -> None:
    made = crowded_case(seed)
    assert answer_of(*read(*made)) == validators_answer(*made)


def test_a_state_that_was_large_has_no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    genesis, inputs = read(*crowded_case(3))
    world = spec_chain(genesis)
    execute_page(world, inputs[0].proposer, inputs[0].transactions)
    monkeypatch.setattr(chain, "MOST_LEAVES", len(leaves(world)))
    answer = answer_of(genesis, inputs)
    has_root = ["state_root" in block for block in answer["blocks"]]
    assert has_root[0] and has_root == sorted(has_root, reverse=True)
    assert not has_root[-1] and "state_root" not in answer["final"]


def test_a_wrong_root_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tree.KINDS, "root", bytes(32))
    found = compare(*crowded_case(3))
    assert found is not None and found.startswith("height 1: state_root: ")


@pytest.mark.parametrize("seed", range(0, SEEDS, 50))
def test_nothing_is_made_or_lost(seed: int) -> None:
    """What the genesis gave is what is there and what was burned."""
    genesis, blocks = crowded_case(seed)
    output = validators_answer(genesis, blocks)
    given = [int(entry["balance"]) for part in ("accounts", "actors") for entry in genesis[part].values()]
    left = sum(account["balance"] for account in output["final"]["accounts"].values())
    assert sum(given) == left + output["final"]["burned"]
    assert output["final"]["burned"] == sum(block["burned"] for block in output["blocks"])


# --- would a fault be noticed? ----------------------------------------------------------------------------------------


LIKELY = [*MADE, *range(SEEDS)]
"""The default cases. A case that noticed a fault comes first: the next fault is mostly of the same part or policy."""


@cache
def case_and_answer(seed: int) -> tuple[tuple[Page, list[Page]], Page]:
    """A default case and the specification's answer."""
    made = crowded_case(seed) if seed >= 0 else MADE[seed]()
    return made, specs_answer(*made)


def is_noticed(notices: Callable[[int], bool]) -> bool:
    """Whether some default case notices a fault."""
    noticed = next((seed for seed in LIKELY if notices(seed)), None)
    if noticed is not None:
        LIKELY.remove(noticed)
        LIKELY.insert(0, noticed)
    return noticed is not None


@pytest.mark.slow
@pytest.mark.parametrize("bug", BROKEN, ids=attrgetter("name"))
def test_a_broken_rule_changes_a_default_case(bug: Planted) -> None:
    with mutated(bug) as answer:

        def notices(seed: int) -> bool:
            made, right = case_and_answer(seed)
            try:
                return answer(*made) != right
            except (AssertionError, LookupError, ArithmeticError):
                return True  # it fell over what the rule keeps away

        assert is_noticed(notices), f"no default case depends on: {bug.name}"


@pytest.mark.parametrize("name", ["nonce-not-checked", "fire-base-free", "messages-without-a-limit", "cap-ignored"])
def test_a_bug_of_the_validator_is_found(name: str) -> None:
    with planted(name):
        assert disagreements(family_cases(BUGS[name].must_fail, range(1))) != {}
