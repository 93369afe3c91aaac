"""A chain against the specification: a run that is right, and what is found of one that is not."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cluster.audit.books import KeptLedger, ledger_of
from cluster.audit.specified.chain import spec_chain
from cluster.audit.specified.judge import Deviation, SpecifiedChain
from cluster.common.errors import BadInput, ExitCode
from cluster.misbehaviour.mutants.base import ALL, Area
from cluster.misbehaviour.mutants.registry import MUTANTS
from cluster.record.archive import BlockRecord
from cluster.record.run import RunRecord
from cluster.report.results import finish_run
from cluster.scenario.model import Scenario
from cluster.simulation.driver import simulate
from cluster.tools.cli.main import main
from cluster.tools.sweeps.mutation.detection_scenarios import scenario_of
from tests.validator.policies.own_policies import DEADLINES
from validator.chain.block import BlockReceipts, decode_block, receipts_root
from validator.primitives.codec import decode, encode, pack_uint
from validator.primitives.types import address_text, parse_address

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


def judged(blocks: list[tuple[bytes, bytes]], policy: str = "cip1") -> Deviation | None:
    chain = SpecifiedChain(record(policy).genesis)
    for block, receipts in blocks:
        chain.enter(block, receipts)
    return chain.deviation


def served(policy: str = "cip1") -> list[tuple[bytes, bytes]]:
    return [(each.block, each.receipts) for each in record(policy).validators[0].blocks]


@pytest.mark.parametrize("policy", ["cip1", "fifo", "gba_auction", "bias_auction"])
def test_a_run_is_as_the_specification_says(policy: str) -> None:
    blocks = served(policy)
    assert len(blocks) >= 16 and any(decode(receipts, BlockReceipts).fires for _, receipts in blocks)
    assert judged(blocks, policy) is None


Change = Callable[[bytes, bytes], tuple[bytes, bytes]]


def in_header(**fields: Any) -> Change:
    def changed(block: bytes, receipts: bytes) -> tuple[bytes, bytes]:
        read = decode_block(block)
        assert read is not None
        return encode(replace(read, header=replace(read.header, **fields))), receipts

    return changed


def in_first_fire(**fields: Any) -> Change:
    def changed(block: bytes, receipts: bytes) -> tuple[bytes, bytes]:
        read = decode(receipts, BlockReceipts)
        wrong = replace(read, fires=(replace(read.fires[0], **fields), *read.fires[1:]))
        return in_header(receipts_root=receipts_root(wrong))(block, encode(wrong))

    return changed


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (in_header(basefee_lane_timer=pack_uint(7)), "header.basefee_lane_timer"),
        (in_header(lane_cycles=1), "header.lane_cycles"),
        (in_header(transactions_root=bytes(32)), "header.transactions_root"),
        (in_header(receipts_root=bytes(32)), "header.receipts_root"),
        (in_header(height=99), "the block"),
        (in_first_fire(burned=pack_uint(1)), "receipts.fires[0].burned"),
        (in_first_fire(timer_id=bytes(32)), "receipts.fires[0].timer_id"),
        (lambda block, receipts: (block, receipts + b"\0"), "receipts"),
        (lambda block, receipts: (block[:-1], receipts), "the block"),
    ],
)
def test_a_field_that_is_wrong_is_named(change: Callable[[bytes, bytes], tuple[bytes, bytes]], field: str) -> None:
    blocks = served()
    place = next(place for place, (_, receipts) in enumerate(blocks) if decode(receipts, BlockReceipts).fires)
    blocks[place] = change(*blocks[place])
    found = judged(blocks)
    assert found is not None and (found.height, found.field) == (place + 1, field)
    assert found.said != found.expected and found.text.startswith(field)


SHARED = [
    name
    for name, mutant in MUTANTS.items()
    if mutant.area is Area.SCHEDULER and mutant.detection.mutated == ALL and mutant.caught_by in BOOKS
]
"""Bugs of the transition that all validators have, so that nobody disagrees."""


def found_with(name: str) -> str:
    """What the specification finds in the run that must catch a planted bug, with the first seed that shows it."""
    where = MUTANTS[name].detection
    for seed in range(1, where.seeds + 1):
        run = simulate(scenario_of(where, name), seed)
        chain = SpecifiedChain(run.genesis)
        longest = max(run.validators, key=lambda validator: validator.tip)
        for each in longest.blocks:
            chain.enter(each.block, each.receipts)
        if chain.deviation is not None:
            return chain.deviation.text
        for text, balance in longest.balances.items():
            if chain.balance(parse_address(text)) != balance:
                return f"balance of {text}"
        for text, is_pending in longest.pending_timers.items():
            if (bytes.fromhex(text) in chain.pending) != is_pending:
                return f"timer {text}"
        if longest.supply is not None and (longest.supply.balances, longest.supply.burned) != (
            chain.held,
            chain.burned,
        ):
            return "supply"
    return ""


def test_a_bug_that_all_validators_share_is_found() -> None:
    assert found_with("refund-at-wrong-price").startswith("balance of 0x")


@pytest.mark.soak
@pytest.mark.parametrize("name", SHARED)
def test_each_bug_that_all_validators_share_is_found(name: str) -> None:
    assert found_with(name)


def kept(blocks: list[BlockRecord]) -> KeptLedger:
    genesis = record().genesis
    return KeptLedger(blocks, ledger_of(genesis, blocks), specified=SpecifiedChain(genesis)).advance()


def test_books_and_specification_judge_each_other() -> None:
    blocks = list(record().validators[0].blocks)
    right = kept(blocks).compared()
    assert right.ledger.log.violations == []
    address = next(iter(right.ledger.accounts.balances))
    right.ledger.accounts.balances[address] += 1
    right.ledger.timers.pending.popitem()
    found = right.compared().ledger.log.violations
    assert [violation.check for violation in found] == ["conservation", "timers"]
    assert found[0].what.startswith(f"{address_text(address)} has ") and found[1].what.endswith(" as specified alone")
    place = next(place for place, each in enumerate(blocks) if decode(each.receipts, BlockReceipts).fires)
    changed = in_first_fire(burned=b"\x01")
    blocks[place] = BlockRecord(*changed(blocks[place].block, blocks[place].receipts), blocks[place].computed_root)
    wrong = [violation for violation in kept(blocks).ledger.log.violations if "by the specification" in violation.what]
    assert [(violation.check, violation.height) for violation in wrong] == [("conservation", place + 1)]


def test_the_command_says_where_a_run_deviates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish_run(record(), tmp_path / "run")
    capsys.readouterr()
    assert main(["spec", "diff", str(tmp_path / "run")]) == ExitCode.PASS
    assert capsys.readouterr().out.endswith(" blocks are as the specification says\n")


def test_a_chain_of_a_users_policy_has_no_answer_without_receipts() -> None:
    own = simulate(Scenario.model_validate(RUN | {"chain": {"policy": {"name": "deadlines", "source": DEADLINES}}}), 7)
    with pytest.raises(BadInput, match="the policy 'deadlines' is not specified"):
        spec_chain(own.genesis)
