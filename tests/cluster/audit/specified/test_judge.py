"""A simulated run against the specification: what is said of one that deviates, and that shared bugs are found."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest

from cluster.audit.books import keep_books
from cluster.audit.specified.chain import spec_chain
from cluster.audit.specified.judge import SpecifiedChain
from cluster.audit.violation import CONSERVATION
from cluster.checks.run import check_run
from cluster.common.errors import BadInput, ExitCode
from cluster.common.outcome import Outcome
from cluster.misbehaviour.mutants.base import ALL, Area
from cluster.misbehaviour.mutants.registry import MUTANTS
from cluster.record.run import RunRecord
from cluster.report.results import finish_run
from cluster.scenario.model import Scenario
from cluster.simulation.driver import simulate
from cluster.tools.cli.main import main
from cluster.tools.sweeps.mutation.detection_scenarios import scenario_of
from tests.cluster.audit.chains import Blocks, judged
from tests.cluster.audit.specified.test_planted import Change, a_unit_more, one, sealed
from tests.validator.policies.own_policies import DEADLINES
from validator.chain.block import BlockReceipts
from validator.primitives.codec import decode

BOOKS = ("timers", "conservation", "bounds", "chain")
"""The checks that judge by the ledger."""
RUN = {
    "name": "specified",
    "validators": {"count": 4},
    "load": {"users": [{"workload": "heartbeat", "count": 6}, {"workload": "mailbox-flood", "count": 3}]},
    "stop": {"height": 16},
}


@cache
def record(policy: str = "cip1") -> RunRecord:
    return simulate(Scenario.model_validate(RUN | {"chain": {"policy": policy}}), 7)


def served(policy: str = "cip1") -> list[tuple[bytes, bytes]]:
    return [(each.block, each.receipts) for each in record(policy).validators[0].blocks]


def first_with_fires(blocks: Blocks) -> int:
    """The place of the first block with fires."""
    return next(place for place, (_, receipts) in enumerate(blocks) if decode(receipts, BlockReceipts).fires)


@pytest.mark.parametrize("policy", ["cip1", "fifo", "gba_auction", "bias_auction"])
def test_a_run_is_as_the_specification_says(policy: str) -> None:
    blocks = served(policy)
    assert len(blocks) >= 16 and first_with_fires(blocks)
    assert judged(record(policy).genesis, blocks) is None


def changed(change: Change) -> tuple[Blocks, int]:
    """The run's chain with a fault in the first block with fires, and that block's place."""
    blocks = served()
    place = first_with_fires(blocks)
    wrong = change([decode(receipts, BlockReceipts) for _, receipts in blocks], place)
    assert wrong is not None
    blocks[place] = sealed(blocks[place][0], wrong)
    return blocks, place


def test_a_deviation_says_where_and_what_and_ends_the_chain() -> None:
    blocks, place = changed(one("fires", a_unit_more("burned")))
    found = judged(record().genesis, blocks)
    assert found is not None and found.rules
    violation = found.violation
    assert (violation.check, violation.height) == (CONSERVATION, place + 1)
    said, expected = found.difference.said, found.difference.expected
    assert violation.what == f"receipts.fires[0].burned is {said}, by the specification {expected}"
    assert int(said, 16) == int(expected, 16) + 1
    chain = SpecifiedChain(record().genesis)
    for each in blocks:
        chain.enter(*each)
    assert chain.world.height == place + 1 and chain.enter(*served()[place]) is chain.deviation


def test_receipts_of_evidence_are_judged_alone() -> None:
    blocks, place = changed(one("fires", a_unit_more("burned")))
    right = served()[place]
    for header_of, receipts, is_found in (
        (blocks, right[1], False),
        ([*blocks[:place], right], blocks[place][1], True),
    ):
        chain = SpecifiedChain(record().genesis)
        for each in blocks[:place]:
            chain.enter(*each)
        found = chain.judge_receipts(header_of[place][0], receipts)
        assert (found is not None) is is_found
        assert found is None or found.difference.field == "receipts.fires[0].burned"


SHARED = [
    name
    for name, mutant in MUTANTS.items()
    if mutant.area is Area.SCHEDULER and mutant.detection.mutated == ALL and mutant.caught_by in BOOKS
]
"""Bugs of the transition that all validators have, so that no two disagree."""


def found_with(name: str) -> set[str]:
    """The ledger's checks that fail in the run that must catch a planted bug, with the first seed that shows it."""
    where = MUTANTS[name].detection
    for seed in range(1, where.seeds + 1):
        run = check_run(simulate(scenario_of(where, name), seed))
        failed = {check for check in BOOKS if run.check(check).verdict is Outcome.FAIL}
        if failed:
            return failed
    return set()


def test_a_bug_that_all_validators_share_is_found() -> None:
    assert MUTANTS["refund-at-wrong-price"].caught_by in found_with("refund-at-wrong-price")


@pytest.mark.soak
@pytest.mark.parametrize("name", SHARED)
def test_each_bug_that_all_validators_share_is_found(name: str) -> None:
    assert found_with(name)


def test_a_codec_that_is_wrong_both_ways_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validators that write and read amounts the wrong way round agree with each other, and not with the tables: their
    first root is another one, and so are amounts of the first block with any."""

    def pack(value: int) -> bytes:
        return value.to_bytes((value.bit_length() + 7) // 8, "little")

    def unpack(data: bytes, limit: int) -> int:
        value = int.from_bytes(data, "little")
        assert value < limit
        return value

    for name, module in list(sys.modules.items()):
        if name.startswith("validator."):
            for attribute, planted in (("pack_uint", pack), ("unpack_uint", unpack)):
                if hasattr(module, attribute):
                    monkeypatch.setattr(module, attribute, planted)
    verdict = check_run(simulate(Scenario.model_validate(RUN), 1))
    assert "all validators at height 1: header.state_root is" in verdict.check("state_roots").detail
    assert {verdict.check(name).verdict for name in ("chain", "conservation")} & {Outcome.FAIL}


def test_the_command_says_where_a_run_deviates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish_run(record(), tmp_path / "run")
    capsys.readouterr()
    assert main(["spec", "diff", str(tmp_path / "run")]) == ExitCode.PASS
    assert capsys.readouterr().out.endswith(" blocks are as the specification says\n")


def test_a_chain_of_a_users_policy_has_no_answer_without_receipts() -> None:
    own = simulate(Scenario.model_validate(RUN | {"chain": {"policy": {"name": "deadlines", "source": DEADLINES}}}), 7)
    assert keep_books(own).findings == []
    with pytest.raises(BadInput, match="the policy 'deadlines' is not specified"):
        spec_chain(own.genesis)
