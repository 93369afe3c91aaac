"""Bugs in a node's handling of blocks: how it catches up, and which branches above its final block it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from consensus.interface import Verify
from kits.mutation.bugs.table import ALL, Area, Detection, MutantTable, Mutated
from validator.chain.block import Block
from validator.node.blocks.block_tree import BlockTree
from validator.node.blocks.catch_up import CatchUp
from validator.node.blocks.finality import Finality
from validator.node.blocks.proposals import Proposals
from validator.node.blocks.verification import Verification
from validator.node.events import ReplaceJournal
from validator.node.executor.jobs import Finalized
from validator.node.node import Node
from validator.primitives.types import Hash
from validator.storage.journal import encode_journal

MUTANTS = MutantTable(Area.NODE)


@MUTANTS.part("asks-one-peer", Detection("bad-links"), "safety", "catch_up")
class AsksOnePeer(Mutated, CatchUp):
    """who catches up asks the same peer ever again"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._peers = self._one_of(self._peers)

    def _one_of(self, peers: Iterator[int]) -> Iterator[int]:
        for peer in peers:
            yield peer
            while True:
                self.counter.ran()
                yield peer


@MUTANTS.part("asks-all-at-once", Detection("bad-links"), "safety", "catch_up")
class AsksAllAtOnce(Mutated, CatchUp):
    """who waits for blocks from one peer asks the next one for them already"""

    def ask(self, *, is_block_awaited: bool) -> None:
        self.counter.runs += self._is_asking
        self._is_asking = False
        super().ask(is_block_awaited=is_block_awaited)


@MUTANTS.part("never-asks-again", Detection("bad-links", seeds=8), "safety", "catch_up")
class NeverAsksAgain(Mutated, CatchUp):
    """a request for blocks that is not answered is not repeated"""

    def ask_next(self, *, is_block_awaited: bool) -> None:
        self.counter.runs += self._is_asking


@MUTANTS.part("keeps-dead-branches", Detection("short-journals", seeds=8), "safety", "execution")
class KeepsDeadBranches(Mutated, Node):
    """blocks on branches that died are held for ever, and kept in the journal"""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        tree, forget = self._tree, self._tree._forget

        def forget_the_final_one(held: Any) -> None:
            if held.digest == tree.final:
                forget(held)
            else:
                self.counter.ran()

        tree._forget = forget_the_final_one  # type: ignore[method-assign]


@MUTANTS.part("full-of-failed-views", Detection("failing-views", ALL), "recovery")
class FullOfFailedViews(Mutated, BlockTree):
    """once the blocks of failed views fill the room, no other is held"""

    def _make_room(self, block: Block, size: int) -> bool:
        fits = super()._make_room(block, size)
        self.counter.runs += fits and not self._fits(size)
        return self._fits(size)


@MUTANTS.part("proposes-without-room", Detection("failing-views", ALL), "safety", "mempool")
class ProposesWithoutRoom(Mutated, Proposals):
    """a leader proposes transactions, however many views failed"""

    def try_build(self) -> Hash | None:
        self.counter.runs += self.engine.view - self.finality.view > self.max_held_blocks
        self.max_held_blocks, most = self.engine.view, self.max_held_blocks
        try:
            return super().try_build()
        finally:
            self.max_held_blocks = most


@MUTANTS.part("blames-leaders", Detection("calm", ALL), "safety", "blames")
class BlamesLeaders(Mutated, Verification):
    """a validator says of leaders that their blocks are invalid, and votes for them"""

    def _answer(self, request: Verify, *, valid: bool) -> None:
        if valid:
            self.counter.ran()
            self.effects.fault(request.proposer, "invalid_block")
        super()._answer(request, valid=valid)


@MUTANTS.part("journal-without-bodies", Detection("short-journals"), "safety", "execution")
class DropsBodies(Mutated, Finality):
    """replacing the journal drops the blocks above the final one, though not the votes for them"""

    def _replace_journal(self) -> None:
        self.counter.runs += bool(self._uncommitted) or any(held.body for held in self.tree.held())
        self.effects.append(ReplaceJournal(encode_journal(self.engine.journal_snapshot(), ())))


@MUTANTS.part("journal-replaced-once", Detection("short-journals"), "safety", "execution")
class ReplacesOnce(Mutated, Finality):
    """a journal is replaced once after a start, and grows without end from then on"""

    _is_replaced = False

    def _replace_journal(self) -> None:
        if self._is_replaced:
            self.counter.ran()
        else:
            self._is_replaced = True
            super()._replace_journal()


@MUTANTS.part("counts-late", Detection("calm"), "safety", "figures")
class CountsLate(Mutated, Finality):
    """a validator counts the timers that wait as they were a block before"""

    _before: Finalized | None = None

    def committed(self, final: Finalized) -> None:
        before, self._before = self._before, final
        if before is not None:
            self.counter.runs += before.pending_timers != final.pending_timers
            final = replace(final, pending_timers=before.pending_timers)
        super().committed(final)
