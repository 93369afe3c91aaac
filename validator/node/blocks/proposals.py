"""The node's own proposals: built once the parent is executed and the block interval has passed.

While no block becomes final, the blocks of all views have to be held. So a proposal has no transactions if its view is
more than ``max_held_blocks`` after that of the newest final and committed block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from consensus import interface as engine_border
from consensus.types import Digest, View
from consensus.voting import VotingEngine
from validator.node.blocks.block_tree import BlockState, BlockTree
from validator.node.blocks.finality import Finality
from validator.node.events import Run, SetTimer, TimerName
from validator.node.executor.jobs import Build, Built
from validator.node.limits import MOST_TRANSACTIONS
from validator.node.mempool import Mempool
from validator.node.outbox import Outbox
from validator.primitives.types import Hash

MAX_CANDIDATES: Final = MOST_TRANSACTIONS
"""Number of mempool transactions offered to a block builder: all, since a block may lack room for any of them."""
PROPOSE_TIMER: Final = TimerName("propose")


@dataclass(slots=True)
class Proposals:
    """Builds the proposals that the engine requests. It keeps the last request until the block is built."""

    index: int
    """The node's own validator index."""
    engine: VotingEngine
    tree: BlockTree
    finality: Finality
    mempool: Mempool
    effects: Outbox
    consensus: Callable[[engine_border.Event], None]
    """Passes an event to the engine."""
    max_held_blocks: int
    """The limit of this name in :class:`~validator.node.limits.BlockLimits`."""
    _due: engine_border.Propose | None = None
    _may_build: bool = False

    @property
    def is_due(self) -> bool:
        return self._due is not None

    def propose(self, proposal: engine_border.Propose, interval_ms: int) -> None:
        """Take the engine's request for a proposal, to be built after the block interval."""
        self._due, self._may_build = proposal, interval_ms == 0
        if interval_ms:
            self.effects.append(SetTimer(PROPOSE_TIMER, interval_ms))

    def interval_passed(self) -> None:
        self._may_build = True

    def try_build(self) -> Hash | None:
        """Build the proposal if possible. Returns its parent if that has to be executed first."""
        proposal = self._due
        if proposal is None or not self._may_build:
            return None
        parent = Hash(proposal.parent.digest)
        if proposal.view == self.engine.view and not self.tree.is_executed(parent):
            return parent
        self._due = None
        if proposal.view == self.engine.view:
            has_room = proposal.view - self.finality.view <= self.max_held_blocks
            candidates = self.mempool.candidates(MAX_CANDIDATES) if has_room else ()
            self.effects.append(Run(Build(proposal.view, parent, self.index, candidates)))
        return None

    def built(self, built: Built) -> None:
        """Propose the block that the executor built."""
        self.mempool.refuse(built.refused)
        held = self.tree.add(built.block, built.body)
        if held is None:
            return
        held.state = BlockState.VALID
        above = self.tree.get(built.parent)
        view = self.tree.final_view if above is None else above.block.header.view
        parent = engine_border.Parent(View(view), Digest(built.parent))
        self.consensus(engine_border.BlockProposed(View(built.view), parent, Digest(built.digest), built.body))
