"""The finality of a node's chain: blocks are proved by certificates, executed, then committed one by one.

A finalization may name a block that the node does not hold. It is then the *target*, until the line of blocks to it is
complete. The newest finalized block with a complete line is *proven*: all blocks up to it are executed and committed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from consensus.messages import Certificate
from consensus.messages import encode as encode_consensus
from consensus.voting import VotingEngine
from validator.node.blocks.block_tree import BlockState, BlockTree, HeldBlock
from validator.node.events import BlockFinal, ReplaceJournal, Run
from validator.node.executor.jobs import Finalize, Finalized
from validator.node.outbox import Outbox
from validator.primitives.types import Hash, Height
from validator.storage.journal import encode_journal


@dataclass(slots=True)
class Finality:
    """Makes the blocks of a node's chain final: tracks which are proved, and commits them in order."""

    engine: VotingEngine
    tree: BlockTree
    effects: Outbox
    height: Height
    """Height of the newest block that is final and committed."""
    view: int
    """View of the newest block that is final and committed."""
    journal_blocks: int
    """The limit of this name in :class:`~validator.node.limits.BlockLimits`."""
    target: Certificate | None = None
    """The newest finalization whose block cannot be reached from our final one yet."""
    proven: Hash | None = None
    """The newest block that is proved final and can be reached."""
    _certificates: dict[Hash, bytes] = field(default_factory=dict)
    """Encoded finalizations of blocks that are not final here yet, by digest."""
    _uncommitted: dict[Hash, bytes] = field(default_factory=dict)
    """Bodies of blocks that are final but not in the archive yet, by digest."""
    _reorgs: dict[Hash, int] = field(default_factory=dict)
    """Number of executed blocks of another branch that each final, uncommitted block displaced, by digest."""
    _journal_height: int | None = None
    """Height at the last replacement of the journal; ``None`` before the first one in this run. The first committed
    block causes one, since earlier runs may have left any number of blocks in the journal."""

    @property
    def proven_height(self) -> int:
        held = None if self.proven is None else self.tree.get(self.proven)
        return self.tree.final_height if held is None else held.height

    def certify(self, certificate: Certificate) -> bool:
        """Take a finalization from the engine. Returns whether it is new."""
        digest = Hash(certificate.digest)
        if digest == self.tree.final or certificate.view <= self.tree.final_view:
            return False
        self._certificates[digest] = encode_consensus(certificate)
        if self.target is None or certificate.view > self.target.view:
            self.target = certificate
        return True

    def prove(self, held: HeldBlock, certificate: bytes) -> None:
        """Note that a block is proved final, by its own encoded finalization or, with ``b""``, by a descendant's."""
        if self.tree.first_missing(held.digest) is None and held.height > self.proven_height:
            self.proven = held.digest
            if certificate:
                self._certificates[held.digest] = certificate

    def commit(self) -> HeldBlock | None:
        """Make proved blocks final, in order. Returns the first one that is not executed yet, if any."""
        if self.target is not None and self.tree.first_missing(Hash(self.target.digest)) is None:
            self.proven, self.target = Hash(self.target.digest), None
        if self.proven is None:
            return None
        for held in self.tree.line(self.proven):
            if held.state in (BlockState.HELD, BlockState.RUNNING):
                return held
            if held.state is BlockState.INVALID:
                self.effects.append(Run(Finalize(held.digest, b"")))  # the answer will be that we diverged
                break
            self._finalize(held)
        self.proven = None
        return None

    def _finalize(self, held: HeldBlock) -> None:
        """Make the next block final. The executor commits it and answers with :class:`Finalized`."""
        self.effects.append(Run(Finalize(held.digest, self._certificates.pop(held.digest, b""))))
        self._uncommitted[held.digest] = held.body
        self._reorgs[held.digest] = self.tree.reorg_depth(held.digest)
        self.tree.finalize(held.digest)

    def committed(self, final: Finalized) -> None:
        """Report a block that the executor committed to observers, and replace the journal from time to time."""
        header = final.header
        self.height, self.view = Height(header.height), header.view
        del self._uncommitted[final.digest]
        self.effects.append(
            BlockFinal(
                height=self.height,
                view=header.view,
                digest=final.digest,
                state_root=Hash(header.state_root),
                transactions=len(final.transactions),
                fires=final.fires,
                destroyed=final.destroyed,
                pending_timers=final.pending_timers,
                backlog=final.backlog,
                basefee_cycle=int.from_bytes(header.basefee_cycle, "big"),
                basefee_lane_timer=int.from_bytes(header.basefee_lane_timer, "big"),
                lane_cycles=header.lane_cycles,
                burned=final.burned,
                reorg_depth=self._reorgs.pop(final.digest, 0),
            )
        )
        if self._journal_height is None or self.height >= self._journal_height + self.journal_blocks:
            self._journal_height = self.height
            self._replace_journal()

    def _replace_journal(self) -> None:
        """Replace the journal by the records and bodies that are still needed: those above the archived blocks."""
        bodies = [*self._uncommitted.values(), *(held.body for held in self.tree.held() if held.body)]
        self.effects.append(ReplaceJournal(encode_journal(self.engine.journal_snapshot(), bodies)))
