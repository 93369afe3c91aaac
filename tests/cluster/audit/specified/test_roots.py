"""State roots of a chain against the specification's tree: faults in state that no receipt shows."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from msgspec.structs import replace as with_fields

from cluster.audit.books import keep_books
from cluster.audit.specified import judge
from cluster.audit.specified.judge import Deviation, SpecifiedChain
from cluster.checks.agreement import check_state_roots
from cluster.common.outcome import Outcome
from cluster.misbehaviour.mutants.base import ALL
from cluster.misbehaviour.mutants.registry import MUTANTS
from cluster.record.run import RunRecord
from cluster.scenario.model import Scenario
from cluster.simulation.driver import simulate
from cluster.tools.sweeps.mutation.detection_scenarios import scenario_of
from tests.validator.policies.own_policies import DEADLINES
from validator.chain.block import decode_block
from validator.primitives.codec import encode

RUN = {
    "name": "roots",
    "validators": {"count": 4},
    "load": {"users": [{"workload": "heartbeat", "count": 6}, {"workload": "mailbox-flood", "count": 3}]},
    "stop": {"height": 16},
}
OWN = {"chain": {"policy": {"name": "deadlines", "source": DEADLINES}}}


@cache
def record() -> RunRecord:
    return simulate(Scenario.model_validate(RUN), 7)


def deviations(run: RunRecord) -> list[Deviation]:
    """What is found of the longest chain."""
    chain = SpecifiedChain(run.genesis)
    blocks = max(run.validators, key=lambda validator: validator.tip).blocks
    found = [chain.enter(each.block, each.receipts) for each in blocks]
    assert chain.deviation is not None or chain.world.height == len(blocks), "it was executed to its end"
    return [each for each in found if each is not None]


def blocks_with_a_wrong_root(height: int) -> list[tuple[bytes, bytes]]:
    """A run's blocks up to a height, of which the last has a wrong state root."""
    *blocks, last = [(each.block, each.receipts) for each in record().validators[0].blocks[:height]]
    read = decode_block(last[0])
    assert read is not None
    return [*blocks, (encode(with_fields(read, header=with_fields(read.header, state_root=bytes(32)))), last[1])]


@pytest.mark.parametrize("height", [1, 9])
def test_a_wrong_root_is_found_and_the_chain_goes_on(height: int) -> None:
    chain = SpecifiedChain(record().genesis)
    *before, last = [chain.enter(*each) for each in blocks_with_a_wrong_root(height)]
    assert before == [None] * (height - 1) and last is not None
    assert (last.height, last.check, last.difference.field) == (height, "state_roots", "header.state_root")
    assert last.difference.said == "0x" + bytes(32).hex() != last.difference.expected
    assert chain.deviation is None and chain.world.height == height


@pytest.mark.parametrize("limits", [{"ROOTS_COMPARED": 8}, {"LEAVES_COMPARED": 10}])
def test_roots_are_compared_up_to_a_height_and_a_size(limits: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in limits.items():
        monkeypatch.setattr(judge, name, limit)
    chain = SpecifiedChain(record().genesis)
    assert [chain.enter(*each) for each in blocks_with_a_wrong_root(9)] == [None] * 9


@pytest.mark.parametrize("more", [OWN, {"chain": {"policy": "gba_auction"}}, {"chain": {"policy": "bias_auction"}}])
def test_a_right_chain_has_the_roots_of_the_specification(more: dict[str, object]) -> None:
    run = simulate(Scenario.model_validate(RUN | more), 7)
    assert run.validators[0].tip >= 16 and deviations(run) == []


@pytest.mark.parametrize(("name", "seed"), [("queries-not-charged", 1), ("published-survives-a-revert", 2)])
def test_a_leaf_that_all_validators_write_wrong_is_found(name: str, seed: int) -> None:
    run = simulate(scenario_of(replace(MUTANTS[name].detection, mutated=ALL), name), seed)
    first = deviations(run)[0]
    assert (first.check, first.difference.field) == ("state_roots", "header.state_root")
    assert len({block.computed_root for each in run.validators for block in each.blocks[first.height - 1 :][:1]}) == 1
    check = check_state_roots(keep_books(run))
    assert check.verdict is Outcome.FAIL
    assert f"all validators at height {first.height}: header.state_root is 0x" in check.detail
