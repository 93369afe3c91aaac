"""A simulated run against the specification: right ones pass, and bugs that all validators share are found, those that
no receipt shows by state roots."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from cluster.audit.books import keep_books
from cluster.audit.specified import chain, judge
from cluster.audit.specified.chain import spec_chain
from cluster.audit.specified.judge import Deviation, SpecifiedChain
from cluster.checks.run import check_run
from cluster.commands.cli.main import main
from cluster.common.errors import BadInput, ExitCode
from cluster.common.outcome import Outcome
from cluster.record.run import RunRecord
from cluster.report.results import finish_run
from cluster.scenario.model import Scenario
from cluster.watches.watched_simulation import simulate
from tests.validator.policies.own_policies import DEADLINES
from validator.chain.block import decode_block
from validator.primitives.codec import encode

BOOKS = ("timers", "conservation", "bounds", "chain")
"""The checks that judge by the ledger."""
RUN = {
    "name": "specified",
    "validators": {"count": 4},
    "load": {"users": [{"workload": "heartbeat", "count": 6}, {"workload": "mailbox-flood", "count": 3}]},
    "stop": {"height": 16},
}


def run_of(policy: Any) -> RunRecord:
    return simulate(Scenario.model_validate(RUN | {"chain": {"policy": policy}}), 7)


@cache
def record() -> RunRecord:
    return run_of("cip1")


def deviations(run: RunRecord) -> list[Deviation]:
    """What is found of the longest chain."""
    chain = SpecifiedChain(run.genesis)
    blocks = max(run.validators, key=lambda validator: validator.tip).blocks
    found = [chain.enter(each.block, each.receipts) for each in blocks]
    assert chain.deviation is not None or chain.world.height == len(blocks) >= 16, "it was executed to its end"
    return [each for each in found if each is not None]


@pytest.mark.parametrize("policy", ["fifo", "gba_auction", "bias_auction"])
def test_a_run_is_as_the_specification_says(policy: str) -> None:
    assert deviations(run_of(policy)) == []


def test_a_chain_of_a_users_policy_has_no_answer_without_receipts() -> None:
    own = run_of({"name": "deadlines", "source": DEADLINES})
    assert keep_books(own).findings == [] and deviations(own) == []
    with pytest.raises(BadInput, match="the policy 'deadlines' is not specified"):
        spec_chain(own.genesis)


@pytest.mark.kits
def test_the_command_says_where_a_run_deviates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish_run(record(), tmp_path / "run")
    capsys.readouterr()
    assert main(["spec", "diff", str(tmp_path / "run")]) == ExitCode.PASS
    assert capsys.readouterr().out.endswith(" blocks are as the specification says\n")


# --- bugs that all validators have, so that no two disagree -----------------------------------------------------------


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


# --- state roots ------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(("module", "name", "limit"), [(judge, "ROOTS_COMPARED", 8), (chain, "MOST_LEAVES", 10)])
def test_roots_are_compared_up_to_a_height_and_a_size(
    module: ModuleType, name: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, limit)
    chain = SpecifiedChain(record().genesis)
    assert [chain.enter(*each) for each in blocks_with_a_wrong_root(9)] == [None] * 9
