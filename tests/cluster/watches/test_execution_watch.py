"""What a validator executes, builds on, makes final and keeps in its journal is one tree, or the watch tells."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.record.rules import SafetyRule
from cluster.watches.execution_watch import ExecutionWatch
from tests.cluster.watches.seen import Told, judged_by, make_machine
from tests.validator.network import Network
from validator.chain.block import Block, Header, header_hash, transactions_root
from validator.node.blocks.block_tree import BlockTree, HeldBlock
from validator.node.blocks.finality import Finality
from validator.node.events import Completed, Diverged, Effect, Event, ReplaceJournal, Run, Synced
from validator.node.executor.jobs import (
    Build,
    Built,
    Execute,
    Executed,
    Finalize,
    Finalized,
    FinalizedInvalid,
    Job,
    JobResult,
)
from validator.node.limits import BlockLimits
from validator.primitives.codec import encode
from validator.primitives.types import ZERO_HASH, Hash, Height
from validator.storage.journal import encode_journal
from validator.transition.trace import BlockTrace

JOURNAL_BLOCKS = 3
NOTHING = Synced(1)


def make_block(parent: Block | None, view: int) -> Block:
    """A block on another one, or on the genesis. Views tell the blocks of a height apart."""
    height = 1 if parent is None else parent.header.height + 1
    above = ROOT if parent is None else digest_of(parent)
    empty = transactions_root([])
    header = Header("chain", height, view, above, 0, empty, ZERO_HASH, ZERO_HASH, b"", b"", b"", 0, 0, 0, 0)
    return Block(header, ())


def digest_of(block: Block) -> Hash:
    return header_hash(block.header)


ROOT = Hash(b"r" * 32)
A1 = make_block(None, 1)
A2 = make_block(A1, 2)
A3 = make_block(A2, 3)
A4 = make_block(A3, 4)
B1 = make_block(None, 11)
B2 = make_block(A1, 12)
B3 = make_block(B2, 13)
B4 = make_block(B3, 14)
"""Two branches: A2 and B2 are children of A1. B1 is beside A1."""


class Following:
    """The watch of one validator."""

    def __init__(self) -> None:
        self.told = Told()
        self.watch = ExecutionWatch(["v0"], self.told.look, JOURNAL_BLOCKS)
        executor = SimpleNamespace(final_digest=ROOT, final_header=SimpleNamespace(height=0))
        self.me = make_machine(validator=SimpleNamespace(executor=executor))
        self.watch.begins(self.me)

    def handle(self, event: Event, *effects: Effect) -> list[str]:
        """What does not hold of an event with these effects."""
        before = len(self.told)
        self.watch.judge(self.me, event, effects)
        assert {rule for rule, _, _ in self.told[before:]} <= {SafetyRule.EXECUTION}
        return self.told.found(before)

    def run(self, *jobs: Job) -> list[str]:
        return self.handle(NOTHING, *map(Run, jobs))

    def done(self, result: JobResult, *effects: Effect) -> list[str]:
        return self.handle(Completed(result), *effects)

    def execute(self, *blocks: Block) -> list[str]:
        """Execute valid blocks, one after the other."""
        found = []
        for block in blocks:
            found += self.run(execute(block)) + self.done(Executed(digest_of(block), None))
        return found

    def archive(self, block: Block, *effects: Effect) -> list[str]:
        """A final block is archived, with these effects."""
        return self.done(Finalized(digest_of(block), block.header, (), {}, 0, 0, 0, 0), *effects)

    def finalize(self, block: Block, *effects: Effect) -> list[str]:
        return self.run(finalize(block)) + self.archive(block, *effects)


def execute(block: Block) -> Job:
    return Execute(digest_of(block), block, {})


def build_on(parent: Hash, view: int = 9) -> Job:
    return Build(view, parent, 0, ())


def finalize(block: Block) -> Job:
    return Finalize(digest_of(block), b"")


def journal(*blocks: Block) -> ReplaceJournal:
    return ReplaceJournal(encode_journal((b"a vote",), map(encode, blocks)))


# --- execution --------------------------------------------------------------------------------------------------------


def test_blocks_are_executed_and_built_on_live_ones() -> None:
    following = Following()
    assert following.execute(A1, B1, A2, B2, B3) == []
    assert following.run(*map(build_on, (ROOT, digest_of(A1), digest_of(B3)))) == []
    assert following.finalize(A1, journal(A2, B2, B3)) == []
    assert following.run(execute(A3), build_on(digest_of(A1)), build_on(digest_of(B3))) == []


def test_who_builds_a_block_goes_on_from_it() -> None:
    following = Following()
    following.run(build_on(ROOT, 1))
    following.done(Built(1, ROOT, digest_of(A1), A1, encode(A1), ()))
    assert following.run(execute(A2), build_on(digest_of(A1))) == []
    assert following.finalize(A1, journal()) == []


ON_A_DEAD_ONE = "v0 executes a block of height {} on a dead one"


def test_a_block_on_one_that_was_not_executed_is_told() -> None:
    following = Following()
    assert following.run(execute(A2)) == [ON_A_DEAD_ONE.format(2)]
    assert following.run(execute(A1), execute(A2)) == [ON_A_DEAD_ONE.format(2)], "its parent is being executed"
    assert following.run(build_on(digest_of(A1))) == ["v0 builds its block of view 9 on a dead one"]


def test_a_block_on_an_invalid_one_is_told() -> None:
    following = Following()
    following.run(execute(A1))
    assert following.done(Executed(digest_of(A1), "another state root"), Run(execute(A2))) == [ON_A_DEAD_ONE.format(2)]


def test_a_block_of_a_branch_that_another_ones_finality_ended_is_told() -> None:
    following = Following()
    following.execute(A1, B1, A2, B2, B3)
    following.finalize(A1, journal(A2, B2, B3))
    assert following.finalize(A2) == []
    assert following.run(build_on(ROOT), build_on(digest_of(B3), 14)) == [
        "v0 builds its block of view 9 on a dead one",
        "v0 builds its block of view 14 on a dead one",
    ]
    assert following.run(execute(B3), execute(make_block(B1, 20))) == [ON_A_DEAD_ONE.format(3), ON_A_DEAD_ONE.format(2)]


def test_what_was_being_executed_when_its_branch_ended_stays_dead() -> None:
    following = Following()
    following.execute(A1, A2)
    following.run(execute(B2))
    following.run(finalize(A1), finalize(A2))
    following.done(Executed(digest_of(B2), None))
    assert following.run(execute(B3)) == [ON_A_DEAD_ONE.format(3)]
    following.done(Built(9, digest_of(B2), digest_of(B3), B3, encode(B3), ()))
    assert following.run(build_on(digest_of(B3))) == ["v0 builds its block of view 9 on a dead one"]


# --- finality ---------------------------------------------------------------------------------------------------------


def test_blocks_become_final_one_on_the_other() -> None:
    following = Following()
    following.execute(A1, A2, A3)
    assert following.run(finalize(A1), finalize(A2), finalize(A3)) == []


def test_a_final_block_that_passes_over_another_is_told() -> None:
    following = Following()
    following.execute(A1, A2)
    assert following.run(finalize(A2)) == ["v0 makes a block final above height 0 that is not on its final one"]


def test_a_final_block_that_is_not_live_is_told_once_it_is_archived() -> None:
    following = Following()
    following.execute(A1, A2, B2)
    following.run(finalize(A1), finalize(A2))
    following.archive(A1, journal(A2))
    following.archive(A2)
    assert following.finalize(B2) == ["v0 archives the block of height 2 too soon"]


def test_final_blocks_that_are_archived_in_another_order_are_told() -> None:
    following = Following()
    following.execute(A1, A2)
    following.run(finalize(A1), finalize(A2))
    assert following.archive(A2, journal(A1)) == ["v0 archives the block of height 2 too soon"]


def test_a_validator_that_diverges_is_followed_no_longer() -> None:
    following = Following()
    following.run(execute(A1))
    following.done(Executed(digest_of(A1), "another state root"))
    following.run(finalize(A1))
    trace = BlockTrace(1, ZERO_HASH, (), "", ())
    result = FinalizedInvalid(digest_of(A1), A1.header, "another state root", ZERO_HASH, b"", trace)
    diverged = Diverged(Height(1), digest_of(A1), "another state root", ZERO_HASH, ZERO_HASH, b"")
    assert following.done(result, diverged) == []
    assert following.run(execute(A3)) == []
    following.watch.begins(following.me)
    assert following.run(execute(A3)) == [ON_A_DEAD_ONE.format(3)]


# --- the journal ------------------------------------------------------------------------------------------------------


def test_the_journal_is_replaced_with_the_first_block_and_then_every_few() -> None:
    following = Following()
    block = None
    for view in range(1, 12):
        block = make_block(block, view)
        assert following.execute(block) == []
        assert following.finalize(block, *[journal()] * (view in (1, 4, 7, 10))) == [], view


def test_a_journal_that_is_replaced_too_often_or_too_seldom_is_told() -> None:
    following = Following()
    following.execute(A1, A2, A3, A4)
    assert following.finalize(A1) == ["v0 does not replace its journal at height 1"]
    assert following.finalize(A2, journal(A3, A4)) == ["v0 replaces its journal at height 2, not when it is due"]
    assert following.handle(NOTHING, journal(A3, A4)) == ["v0 replaces its journal at height 2, not when it is due"]
    assert following.finalize(A3) == []
    assert following.finalize(A4, journal(), journal()) == ["v0 replaces its journal at height 4, not when it is due"]


def replaced(*kept: Block) -> list[str]:
    """A1 and A2 are final, A2 is not archived yet, and A3 was executed on it, when A1 is archived and the journal is
    replaced. B2 and B3 were executed, too, on another branch."""
    following = Following()
    following.execute(A1, A2, A3, B2, B3)
    following.run(finalize(A1), finalize(A2))
    return following.archive(A1, journal(*kept))


def test_a_journal_with_what_is_needed_is_right() -> None:
    assert replaced(A2, A3) == []
    following = Following()
    following.execute(A1, A2, B2, B3)
    assert following.finalize(A1, journal(A2, B2, B3)) == [], "both branches are live"


@pytest.mark.parametrize(("kept", "missing"), [((A3,), 1), ((A2,), 1), ((), 2)])
def test_a_journal_without_blocks_that_it_needs_is_told(kept: Iterable[Block], missing: int) -> None:
    assert replaced(*kept) == [f"v0 writes a journal without {missing} blocks that it needs"]


@pytest.mark.parametrize(
    ("more", "dead"),
    [((A1,), 1), ((B1,), 1), ((B2,), 1), ((B3,), 1), ((B2, B3), 2), ((B4, B3), 2)],
    ids=["archived", "below", "beside the final one", "beside the next one", "a branch", "above a dead one"],
)
def test_a_journal_with_blocks_of_dead_branches_is_told(more: Iterable[Block], dead: int) -> None:
    assert replaced(A2, A3, *more) == [f"v0 writes a journal with {dead} blocks of dead branches"]


def test_a_journal_may_have_blocks_whose_line_is_not_whole() -> None:
    assert replaced(A2, A3, B4) == [], "nobody can tell that it leads to a dead block"


def test_what_was_built_or_is_being_executed_may_be_missing() -> None:
    """The body of a block of its own is in the journal from the moment on at which it votes for it."""
    following = Following()
    following.execute(A1)
    following.done(Built(12, digest_of(A1), digest_of(B2), B2, encode(B2), ()))
    following.run(execute(A2))
    assert following.finalize(A1, journal()) == []


# --- whole validators -------------------------------------------------------------------------------------------------


def forked() -> tuple[int, list[str]]:
    """Validators whose leaders are cut off in turn: how often the watch looked, and what it found."""
    network, told = Network(blocks=BlockLimits(journal_blocks=2)), Told()
    judged_by(ExecutionWatch([machine.name for machine in network.machines], told.look, 2), network)
    late = network.random
    network.extra_ms = lambda _target, _payload: late.randrange(400)
    network.start().run_to(6)
    return len(told), told.found()


def test_nothing_is_found_where_messages_come_late_and_out_of_order() -> None:
    looks, found = forked()
    assert looks > 50
    assert found == []


def forget_the_final_one(self: BlockTree, held: HeldBlock) -> None:
    if held.digest == self.final:
        FORGET(self, held)


def replace_without_bodies(self: Finality) -> None:
    self.effects.append(ReplaceJournal(encode_journal(self.engine.journal_snapshot(), ())))


def replace_never(_self: Finality) -> None:
    """In place of the journal's replacement."""


FORGET = BlockTree._forget
FAULTS: dict[str, tuple[type, str, Any, str]] = {
    "dead branches are held": (BlockTree, "_forget", forget_the_final_one, "blocks of dead branches"),
    "bodies are dropped": (Finality, "_replace_journal", replace_without_bodies, "blocks that it needs"),
    "the journal grows": (Finality, "_replace_journal", replace_never, "does not replace its journal"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_validator_that_keeps_other_blocks_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, method, planted, words = FAULTS[name]
    monkeypatch.setattr(holder, method, planted)
    _, found = forked()
    assert any(words in what for what in found), found
