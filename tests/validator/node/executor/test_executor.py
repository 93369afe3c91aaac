"""The executor: blocks against their headers, branches, finality, and recovery from a crash at every operation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest

from cluster.disks.memory import FaultPlan, MemoryDisk, SimulatedCrash
from tests.validator.chain.test_block import changed
from tests.validator.chains import ACTOR, ALICE, BOB, RICH, USERS, index_contents, make_genesis, schedule
from tests.validator.executors import Author, chain_of, wire, with_transactions
from validator.chain.block import Block, Header, decode_block, header_hash
from validator.chain.genesis import Genesis, GenesisAgent, Policy
from validator.chain.records import Account
from validator.chain.transactions import Transfer
from validator.node.executor.branches import Branches
from validator.node.executor.executor import Executor, RecoveryError, execution_error
from validator.node.executor.jobs import (
    AccountsRead,
    BlocksRead,
    Finalize,
    Finalized,
    FinalizedInvalid,
    ReadAccounts,
    ReadBlocks,
)
from validator.primitives.codec import decode, encode
from validator.primitives.types import Address, Hash
from validator.scheduler.index import SchedulerIndex
from validator.storage.disk import DiskError
from validator.transition.transition import PreparedTransaction, Transition

BUSY = (wire(0, schedule(1), schedule(2), ["set", "k", "v"]), wire(0, ["emit", "n", ""], user=1))


# --- blocks and headers ---------------------------------------------------------------------------------------------


def test_what_one_builds_another_finds_valid() -> None:
    author, other = Author(), Author()
    parent = None
    for nonce in range(3):
        built = author.build(parent, wire(nonce, schedule(1)), proposer=nonce)
        assert built.body == encode(built.block)
        assert built.digest == header_hash(built.block.header)
        assert other.execute(built.block) is None
        assert other.view_of(built.digest).root == built.block.header.state_root
        parent = built.digest
    assert author.execute(built.block) is None, "one's own block is known"


VIEW_IS_FOR_CONSENSUS = {"view"}
"""Any view is as good for execution; the node holds it against the proposal's."""


def test_every_wrong_field_of_a_header_makes_the_block_invalid() -> None:
    author = Author()
    first = author.build(None, *BUSY)
    second = author.build(first.digest, wire(1), wire(1, user=1))
    assert second.block.header.lane_cycles
    assert second.block.header.user_cells
    for name in Header.__struct_fields__:
        other = Author()
        assert other.execute(first.block) is None
        wrong = msgspec.structs.replace(second.block.header, **{name: changed(getattr(second.block.header, name))})
        error = other.execute(Block(wrong, second.block.transactions))
        assert (error is None) == (name in VIEW_IS_FOR_CONSENSUS), name
    for header in ({"proposer": 4}, {"proposer": -1}, {"height": 1}, {"height": 3}, {"parent_hash": bytes(32)}):
        assert author.execute(Block(msgspec.structs.replace(second.block.header, **header), ())) is not None


def test_a_check_that_is_left_out_lets_a_wrong_header_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    built = Author().build(None, *BUSY)
    wrong = msgspec.structs.replace(built.block.header, lane_cycles=5)
    assert Author().execute(Block(wrong, built.block.transactions)) == "execution gives another lane_cycles"
    monkeypatch.setattr("validator.transition.transition.Outcome.matches", lambda *_: None)
    assert Author().execute(Block(wrong, built.block.transactions)) is None


def test_other_transactions_than_the_root_says_are_no_block() -> None:
    built = Author().build(None, *BUSY)
    one, two = built.block.transactions
    for wires in ((), (one,), (two, one), (one, two, two), (one, one)):
        swapped = Block(built.block.header, wires)
        assert Author().execute(swapped) == "another transactions_root"
        assert decode_block(encode(swapped)) is None
    assert decode_block(built.body) == built.block


def test_bodies_that_are_no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    built = Author().build(None, *BUSY)
    for body in (b"", b"\xc1", built.body[:-1], built.body + b"\0", encode(built.block.header)):
        assert decode_block(body) is None
    monkeypatch.setattr("validator.chain.block.MAX_BLOCK_BYTES", len(built.body))
    assert decode_block(built.body) == built.block
    monkeypatch.setattr("validator.chain.block.MAX_BLOCK_BYTES", len(built.body) - 1)
    assert decode_block(built.body) is None


INADMISSIBLE: list[tuple[str, bytes]] = [
    ("BadNonce", wire(1)),
    ("FeeTooLow", wire(0, max_fee_per_cycle=999_999)),
    ("FeeTooLow", wire(0, max_fee_per_cell=999_999)),
    ("GasTooLow", wire(0, gas_limit=999)),
    ("LaneFull", wire(0, gas_limit=5_000_001)),
    ("LaneFull", wire(0, cells_limit=1_000_001)),
    ("InsufficientFunds", wire(0, value=10**18)),
    ("InsufficientFunds", wire(0, user=2)),
]


@pytest.mark.parametrize(("name", "bad"), INADMISSIBLE)
def test_a_transaction_that_is_not_admitted_makes_the_block_invalid_and_is_not_built_in(name: str, bad: bytes) -> None:
    author = Author()
    built = author.build(None)
    assert author.execute(with_transactions(built.block, bad)) == name
    assert author.build(None, bad).block.transactions == ()


def test_of_two_reasons_the_earlier_counts() -> None:
    """Nonce, fee, gas, lane, funds."""
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("BadNonce", {}),
        ("FeeTooLow", {"max_fee_per_cell": 5}),
        ("GasTooLow", {"gas_limit": 999}),
        ("LaneFull", {"cells_limit": 1_000_001}),
        ("InsufficientFunds", {"value": 10**20}),
    ]
    author = Author()
    empty = author.build(None).block
    for place, (name, fields) in enumerate(wrong):
        for _, more in wrong[place + 1 :]:
            bad = wire(1 if name == "BadNonce" else 0, **fields, **more)
            assert author.execute(with_transactions(empty, bad)) == name


def test_transactions_that_do_not_parse_make_the_block_invalid() -> None:
    author = Author()
    built = author.build(None)
    flipped = bytearray(wire(0))
    flipped[50] ^= 1
    for bad, reason in ((bytes(flipped), "bad signature"), (b"", "malformed"), (b"\x93\xc0\xc0\xc0", "malformed")):
        error = author.execute(with_transactions(built.block, bad))
        assert error is not None
        assert reason in error


def test_a_builder_takes_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    author = Author()
    wires = [wire(nonce) for nonce in range(4)]
    assert author.build(None, *wires).block.transactions == tuple(wires)
    assert author.build(None, wires[0], wires[2], wires[1]).block.transactions == (wires[0], wires[1])
    monkeypatch.setattr("validator.node.executor.executor.MAX_BLOCK_TRANSACTIONS", 2)
    assert author.build(None, *wires).block.transactions == tuple(wires[:2])
    monkeypatch.setattr("validator.node.executor.executor.MAX_BLOCK_PAYLOAD_BYTES", len(wires[0]))
    assert author.build(None, *wires).block.transactions == (wires[0],)


def test_a_builder_tells_whom_it_had_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    author = Author()
    poor = wire(0, user=1, value=10**37)
    ahead = wire(5, user=2)
    built = author.build(None, wire(0), wire(7), poor, ahead)
    assert built.block.transactions == (wire(0),)
    assert built.refused == (USERS[1], USERS[2]), "not one whose first transaction ran"
    again = author.build(built.digest, wire(0))
    assert (again.block.transactions, again.refused) == ((), ()), "what has run already is no refusal"


def test_known_transactions_are_not_verified_again() -> None:
    """What the mempool verified is looked up by a hash that covers the signature."""
    built = Author().build(None, *BUSY)
    other = Author()
    result = other.executor._check(built.block, {})
    known = {item.hash: PreparedTransaction(item.hash, item.wire, item.transaction) for item in result}
    assert other.executor._check(built.block, known) == result
    assert all(one is two for one, two in zip(other.executor._check(built.block, known), known.values(), strict=True))


# --- branches -------------------------------------------------------------------------------------------------------


def test_branches_do_not_see_each_other_and_the_index_follows_all_of_them() -> None:
    """A deep fork on three parents, then one block final."""
    author = Author()
    root = author.build(None, wire(0, schedule(1), schedule(3)))
    left = [author.build(root.digest, wire(1, schedule(1), ["set", "k", "left"]))]
    right = [author.build(root.digest, wire(1, schedule(2), ["set", "k", "right"]))]
    for nonce in range(2, 6):
        left.append(author.build(left[-1].digest, wire(nonce, schedule(1))))
        right.append(author.build(right[-1].digest, wire(nonce, ["burn", nonce]), proposer=1))
    fork = author.build(left[2].digest, wire(4, schedule(5)), proposer=2)
    blocks = [root, *left, *right, fork]
    for built in [*blocks, *reversed(blocks), left[4], right[4], left[0], fork, right[2]]:
        author.require_index(built.digest)
    fresh = Author()
    for built in (root, *right, *left, fork):
        assert fresh.execute(built.block) is None, "in another order, to the same headers"
    assert isinstance(author.finalize(root.digest), Finalized)
    assert isinstance(author.finalize(left[0].digest), Finalized)
    for built in (*left[1:], fork):
        author.require_index(built.digest)
    for built in right:
        assert built.digest not in author.executor._branches
    child = author.build(left[4].digest, wire(6))
    orphan = Block(msgspec.structs.replace(child.block.header, parent_hash=right[4].digest), child.block.transactions)
    assert author.execute(orphan) == "the parent is not executed"


def test_a_branch_that_is_final_while_the_index_stands_elsewhere() -> None:
    author = Author()
    left, right = author.build(None, wire(0, schedule(1))), author.build(None, wire(0, schedule(2)))
    author.require_index(right.digest)
    author.finalize(left.digest)
    author.require_index(left.digest)
    child = author.build(left.digest, wire(1))
    for digest in (child.digest, left.digest, child.digest):
        author.require_index(digest)


def test_an_executor_that_does_not_move_its_index_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Branches, "move_index", lambda *_: None)
    with pytest.raises((AssertionError, KeyError)):
        test_branches_do_not_see_each_other_and_the_index_follows_all_of_them()


def test_an_invalid_block_that_becomes_final_is_a_divergence() -> None:
    built = Author().build(None, *BUSY)
    wrong = msgspec.structs.replace(built.block.header, state_root=bytes(32))
    author = Author()
    assert author.execute(Block(wrong, built.block.transactions)) == "execution gives another state_root"
    result = author.finalize(header_hash(wrong))
    assert isinstance(result, FinalizedInvalid)
    assert (result.computed_root, result.header) == (built.block.header.state_root, wrong)
    assert result.receipts
    assert author.executor.final_header.height == author.executor.archive.height == 0


def test_blocks_become_final_in_order() -> None:
    author = Author()
    first = author.build(None)
    second = author.build(first.digest)
    with pytest.raises(AssertionError):
        author.finalize(second.digest)


def test_figures_of_a_final_block() -> None:
    author = Author()
    built = author.build(None, wire(0, schedule(1), schedule(9)), wire(0, user=1))
    final = author.finalize(built.digest)
    assert isinstance(final, Finalized)
    nonces = {address: account.nonce for address, account in final.accounts.items() if account.nonce}
    assert (nonces, final.pending_timers, final.fires) == ({ALICE: 1, BOB: 1}, 2, 0)
    final = author.finalize(author.build(None).digest)
    assert isinstance(final, Finalized)
    assert (final.pending_timers, final.fires, final.destroyed, final.backlog) == (1, 1, 0, 0)


# --- ranges for peers -----------------------------------------------------------------------------------------------


def test_accounts_come_with_the_blocks_that_change_them_and_can_be_read() -> None:
    author = Author()
    stranger = Address(b"\x77" * 20)
    read = author.executor.run(ReadAccounts((ALICE, stranger)))
    assert isinstance(read, AccountsRead)
    assert (read.header, read.accounts) == (author.executor.final_header, {ALICE: Account(RICH), stranger: Account()})
    built = author.build(None, wire(0, action=Transfer(stranger), value=5))
    final = author.finalize(built.digest)
    assert isinstance(final, Finalized)
    again = author.executor.run(ReadAccounts(tuple(final.accounts)))
    assert isinstance(again, AccountsRead)
    assert again.header == final.header and again.accounts == final.accounts
    assert list(final.accounts) == sorted(final.accounts) and final.accounts[stranger] == Account(5, 0)
    assert BOB not in final.accounts, "the block did not touch it"


def read(executor: Executor, first: int, most: int) -> tuple[list[int], list[int], bytes]:
    """Heights of the bodies, heights of the links, and the certificate."""
    result = executor.run(ReadBlocks(1, first, most))
    assert isinstance(result, BlocksRead)
    bodies = [decode(body, Block).header.height for body in result.bodies]
    return bodies, [header.height for header in result.links], result.certificate


def archive_of(certified: set[int], count: int = 6) -> Author:
    author = Author()
    for height in range(1, count + 1):
        author.finalize(author.build(None).digest, b"certificate %d" % height if height in certified else b"")
    return author


def test_a_range_is_proved_by_its_last_block_or_by_headers_that_lead_to_a_certificate() -> None:
    executor = archive_of({1, 3, 4}).executor
    assert read(executor, 1, 9) == ([1, 2, 3, 4], [], b"certificate 4")
    assert read(executor, 2, 2) == ([2, 3], [], b"certificate 3")
    assert read(executor, 1, 2) == ([1, 2], [3], b"certificate 3")
    assert read(executor, 2, 1) == ([2], [3], b"certificate 3")
    assert read(executor, 5, 9) == ([], [], b"")
    assert read(executor, 7, 9) == ([], [], b"")
    assert read(executor, 2**63, 9) == ([], [], b"")


def test_a_range_is_bounded_in_bytes_and_still_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = archive_of({3, 4, 5, 6}).executor
    monkeypatch.setattr("validator.node.executor.executor.MAX_BLOCK_BYTES", 1)
    assert read(executor, 1, 9) == ([1], [2, 3], b"certificate 3")
    assert read(executor, 4, 9) == ([4], [], b"certificate 4")
    monkeypatch.setattr("validator.storage.finality_proof.MAX_LINKS", 1)
    assert read(executor, 1, 1) == ([], [], b"")


# --- recovery -------------------------------------------------------------------------------------------------------


COUNT = 4
LINE = chain_of(COUNT)
ROOTS = [Author().executor.final_view.root, *[built.block.header.state_root for built in LINE]]


def apply_line(disk: MemoryDisk) -> int:
    """Open and go on to the end of the line; the last height that was final when the fault came."""
    height = -1
    with suppress(SimulatedCrash, DiskError):
        executor = Executor(disk, make_genesis())
        height = executor.final_header.height
        assert executor.final_view.root == ROOTS[height]
        for built in LINE[height:]:
            assert execution_error(executor, built.block) is None
            result = executor.run(Finalize(built.digest, b"certificate"))
            assert isinstance(result, Finalized)
            height += 1
    return height


def require_recovery(disk: MemoryDisk, least: int) -> Executor:
    executor = Executor(disk, make_genesis())
    height = executor.final_header.height
    assert least <= height <= max(least, 0) + 1
    assert executor.archive.height == height
    assert executor.final_view.root == ROOTS[height]
    assert index_contents(executor.index) == index_contents(
        SchedulerIndex.rebuild(executor.genesis, executor.final_view)
    )
    for at in range(1, height + 1):
        assert executor.archive.block(at) == LINE[at - 1].block
    return executor


def operations_of_a_run() -> int:
    disk = MemoryDisk()
    assert apply_line(disk) == COUNT
    return disk.operations


@pytest.mark.parametrize("crash", [True, False], ids=["crash", "failing disk"])
def test_a_fault_at_every_operation_loses_no_final_block(crash: bool) -> None:
    replayed = 0
    operations = operations_of_a_run()
    assert operations >= 4 * COUNT
    for operation in range(1, operations + 1):
        for seed in range(3):
            disk = MemoryDisk(FaultPlan(operation, crash))
            done = apply_line(disk)
            disk.crash(Random(f"{operation} {seed}"))
            disk.plan = None
            replayed += require_recovery(disk, done).replayed_blocks
            assert apply_line(disk) == COUNT
            require_recovery(disk, COUNT)
    assert replayed > 0, "in some the state lagged behind the archive"


def test_an_archive_that_is_written_after_the_state_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: a block's state becomes durable before the block itself."""
    sync = MemoryDisk.sync

    def lazy(disk: MemoryDisk, name: str) -> None:
        if name != "blocks/archive":
            sync(disk, name)

    monkeypatch.setattr(MemoryDisk, "sync", lazy)
    caught = 0
    for seed in range(20):
        disk = MemoryDisk(FaultPlan(operations_of_a_run() - 1, crash=True))
        done = apply_line(disk)
        disk.crash(Random(seed))
        try:
            require_recovery(disk, done)
        except (RecoveryError, AssertionError):
            caught += 1
    assert caught


def test_a_restart_without_a_fault_replays_nothing() -> None:
    disk = MemoryDisk()
    apply_line(disk)
    executor = Executor(disk, make_genesis())
    assert (executor.recovered_height, executor.replayed_blocks) == (COUNT, 0)
    assert executor.final_digest == LINE[-1].digest


OTHERS: list[Callable[[Genesis], Genesis]] = [
    lambda g: make_genesis({"MAX_TTL": 5}),
    lambda g: make_genesis(accounts={ALICE: 1}),
    lambda g: make_genesis(actors={}),
    lambda g: make_genesis(agents={ACTOR: GenesisAgent("builtin:fixed", 1, 1)}),
    lambda g: replace(g, chain_id="other"),
    lambda g: replace(g, validators=g.validators[::-1]),
    lambda g: replace(g, system_deployers=(ALICE,)),
    lambda g: replace(g, policy=Policy.FIFO),
]


@pytest.mark.parametrize("height", [0, 2])
@pytest.mark.parametrize("change", OTHERS)
def test_a_foreign_genesis_is_refused(change: Callable[[Genesis], Genesis], height: int) -> None:
    disk = MemoryDisk()
    executor = Executor(disk, make_genesis())
    for built in LINE[:height]:
        execution_error(executor, built.block)
        executor.run(Finalize(built.digest, b""))
    with pytest.raises(RecoveryError, match="another genesis"):
        Executor(disk, change(make_genesis()))
    assert Executor(disk, make_genesis()).final_header.height == height


class Generous(Transition):
    def execute(self, prepared_transaction: PreparedTransaction) -> None:
        super().execute(prepared_transaction)
        self.world.credit(ALICE, 1)


def test_an_archived_block_that_does_not_execute_is_said() -> None:
    """The state was lost, and the code is not the one that made the blocks."""
    disk = MemoryDisk()
    apply_line(disk)
    disk.remove("state/log-000001")
    assert Executor(disk, make_genesis()).replayed_blocks == COUNT
    disk.remove("state/log-000001")
    with pytest.raises(RecoveryError, match="archived block 1 does not execute: execution gives another state_root"):
        Executor(disk, make_genesis(), Generous)


def test_a_state_without_its_blocks_is_said() -> None:
    disk = MemoryDisk()
    apply_line(disk)
    disk.remove("blocks/archive")
    with pytest.raises(RecoveryError, match=f"state is at height {COUNT}, the archive ends at 0"):
        Executor(disk, make_genesis())


# --- pages ----------------------------------------------------------------------------------------------------------


def test_pages_of_a_final_chain() -> None:
    author = Author()
    first = author.build(
        None, wire(0, schedule(3), ["emit", "n", "x"]), wire(0, action=Transfer(ALICE), user=1, value=7)
    )
    author.finalize(first.digest)
    pages = author.executor.pages
    page = pages.block(1)
    assert page is not None
    assert (page["hash"], page["height"]) == (first.digest.hex(), 1)
    assert page["basefee_cycle"] == 1_000_000
    receipt = pages.receipt(Hash(bytes.fromhex(page["transactions"][0])))
    assert receipt is not None
    assert (receipt["status"], receipt["error"], receipt["index"]) == ("ok", None, 0)
    timer = pages.timer(bytes.fromhex(receipt["scheduled"][0]))
    assert timer is not None
    assert (timer["trigger_height"], timer["due_height"], timer["deferrals"]) == (4, 4, 0)
    assert receipt["events"] == [{"name": "n", "actor": timer["actor"], "data": "x"}]
    assert pages.account(ALICE)["nonce"] == 1
    assert pages.account(b"\x09" * 20) == {
        "address": "0x" + "09" * 20,
        "balance": 0,
        "nonce": 0,
        "code": None,
        "live_timers": 0,
        "open_jobs": [],
    }
    assert pages.block(0) is pages.block(2) is pages.receipt(Hash(bytes(32))) is pages.timer(bytes(32)) is None
    assert [len(item) for item in pages.blocks(0, 5)] == [3]
