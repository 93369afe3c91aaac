"""The executed blocks above the last final one, and the scheduler's index, which moves along their tree.

An executed block is a view over its parent's state plus the changes that moved the index. Switching branches moves the
index back along one path and forward along the other. A final block becomes the base; all blocks that do not descend
from it are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from validator.chain.block import Block, Header, header_hash
from validator.primitives.types import Hash
from validator.scheduler.index import SchedulerIndex
from validator.state.working_set import Change
from validator.transition.transition import BlockResult

NO_ROOT: Final = Hash(b"")
"""State root of a block whose execution was aborted."""


@dataclass(frozen=True, slots=True)
class ExecutedBlock:
    digest: Hash
    parent: Hash
    block: Block
    outcome: BlockResult


@dataclass(frozen=True, slots=True)
class RejectedBlock:
    """A block that did not execute to its header, with the results up to where execution ended."""

    block: Block
    reason: str
    computed_root: Hash = NO_ROOT
    receipts: bytes = b""
    """Encoded receipts."""
    changes: Sequence[Change] = ()


class Branches:
    """The tree of executed blocks over the last final one."""

    def __init__(self, final: Header, index: SchedulerIndex) -> None:
        """``index`` must be positioned at the final block."""
        self.index = index
        """The scheduler's index, positioned at the block of the last job."""
        self.final_header = final
        self.final = header_hash(final)
        self.invalid: dict[Hash, RejectedBlock] = {}
        """Blocks that did not execute to their headers, by digest."""
        self._executed: dict[Hash, ExecutedBlock] = {}
        self._index_at = self.final

    def __contains__(self, digest: Hash) -> bool:
        """Whether a block is the last final one or an executed one above it, so that a child can be executed."""
        return digest == self.final or digest in self._executed

    def executed(self, digest: Hash) -> ExecutedBlock | None:
        """The executed block with this digest above the last final one; ``None`` if there is none."""
        return self._executed.get(digest)

    def header_of(self, digest: Hash) -> Header:
        return self.final_header if digest == self.final else self._executed[digest].block.header

    def add(self, digest: Hash, block: Block, outcome: BlockResult) -> None:
        """Add an executed block to the tree; the index, which was begun for it, moves to it."""
        self.index.advance(outcome.changes)
        self._index_at = digest
        self._executed[digest] = ExecutedBlock(digest, Hash(block.header.parent_hash), block, outcome)

    def move_index(self, digest: Hash) -> None:
        """Move the index to an executed block, back and forth along the tree."""
        if digest == self._index_at:
            return
        here, there = self._path(self._index_at), self._path(digest)
        shared = 0
        while shared < min(len(here), len(there)) and here[shared].digest == there[shared].digest:
            shared += 1
        for block in reversed(here[shared:]):
            self.index.retreat(block.outcome.changes)
        for block in there[shared:]:
            self.index.redo(block.block.header.height, block.outcome.changes)
        self._index_at = digest

    def finalize(self, digest: Hash) -> None:
        """Make an executed child of the last final block the final one; keep only its descendants."""
        if all(block.digest != digest for block in self._path(self._index_at)):
            self.move_index(digest)
        self.final, self.final_header = digest, self._executed[digest].block.header
        self.index.settle(self.final_header.height)
        kept: dict[Hash, ExecutedBlock] = {}
        for block in sorted(self._executed.values(), key=lambda block: block.block.header.height):
            if block.parent == self.final or block.parent in kept:
                kept[block.digest] = block
        self._executed = kept
        self.invalid = {
            digest: rejected
            for digest, rejected in self.invalid.items()
            if Hash(rejected.block.header.parent_hash) in self
        }

    def _path(self, digest: Hash) -> list[ExecutedBlock]:
        """The executed blocks from the last final one (exclusive) to ``digest``, ascending."""
        path: list[ExecutedBlock] = []
        while digest != self.final:
            path.append(self._executed[digest])
            digest = path[-1].parent
        path.reverse()
        return path
