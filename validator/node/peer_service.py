"""Answers to the requests of peers: blocks by digest, ranges of final blocks, snapshots, and the current view.

A peer that catches up or joins can make a node read a lot. The executor performs one read at a time per peer. Blocks
sent by digest, and single certificates, are charged to an allowance that ticks of consensus refill.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from consensus.allowance import Allowances
from consensus.messages import encode as encode_consensus
from consensus.retransmission import MAX_ANSWERED_PEERS
from consensus.types import FIRST_VIEW, View
from consensus.voting import VotingEngine
from validator.chain import messages
from validator.chain.block import MAX_BLOCK_BYTES
from validator.node.blocks.block_tree import BlockTree
from validator.node.events import Run
from validator.node.executor.jobs import BlocksRead, ReadBlocks, ReadSnapshot, SnapshotRead
from validator.node.outbox import Outbox
from validator.primitives.types import HASH_BYTES, Hash

BURST_BYTES: Final = 4 * MAX_BLOCK_BYTES
"""Bytes of a peer's full allowance: what it may be sent at once in blocks by digest and single certificates."""
TICK_BYTES: Final = MAX_BLOCK_BYTES
"""Bytes that a tick of consensus adds to a peer's allowance: enough for a block of any size."""

Request = (
    messages.BlockRequest
    | messages.FinalBlocksRequest
    | messages.SnapshotRequest
    | messages.ChunkRequest
    | messages.ViewRequest
)


@dataclass(slots=True)
class PeerService:
    """Answers the requests of one node's peers."""

    engine: VotingEngine
    tree: BlockTree
    effects: Outbox
    _reading_for: set[int] = field(default_factory=set)
    """Peers for which the executor reads: one read per peer at a time."""
    _allowances: Allowances = field(default_factory=lambda: Allowances(BURST_BYTES, TICK_BYTES, MAX_ANSWERED_PEERS))

    def tick(self) -> None:
        """Refill the peers' allowances."""
        self._allowances.tick()

    def answer(self, sender: int, request: Request) -> None:
        """Answer a request, at once or by a job whose result is passed to :meth:`read`."""
        match request:
            case messages.BlockRequest(digest=digest):
                self._give_block(sender, Hash(digest))
            case messages.ViewRequest(nonce=nonce):
                self._report_view(sender, nonce)
            case _ if sender in self._reading_for:
                pass
            case messages.FinalBlocksRequest(first=first, most=most):
                if first >= 1 and most >= 1:
                    self._run(ReadBlocks(sender, first, min(most, messages.MAX_BLOCKS_ASKED)))
            case messages.SnapshotRequest() | messages.ChunkRequest():
                self._run(ReadSnapshot(sender, request))

    def read(self, result: BlocksRead | SnapshotRead) -> None:
        """Send the data that the executor read for a peer."""
        self._reading_for.discard(result.peer)
        match result:
            case BlocksRead(peer, bodies, links, certificate, begins_at):
                if bodies:
                    self.effects.send(peer, messages.FinalBlocksResponse(bodies, links, certificate))
                elif begins_at:
                    self.effects.send(peer, messages.BlocksPruned(begins_at))
            case SnapshotRead(peer, response):
                if response is not None:
                    self.effects.send(peer, response)

    def _run(self, job: ReadBlocks | ReadSnapshot) -> None:
        self._reading_for.add(job.peer)
        self.effects.append(Run(job))

    def _give_block(self, sender: int, digest: Hash) -> None:
        """Answer with the block or, if it is not held, with the newest finalization: the block may be final.

        A peer that builds on a block that is final elsewhere, and missed its finalization, would ask forever, since
        final blocks leave the trees. The finalization makes it request final blocks instead.
        """
        if len(digest) != HASH_BYTES:
            return
        held = self.tree.get(digest)
        if held is not None:
            self._give(sender, messages.BlockResponse(held.body), len(held.body))
            return
        newest = self.engine.certificates.best_of(self.engine.final_view)
        if newest is not None:
            encoded = encode_consensus(newest)
            self._give(sender, messages.ConsensusMessage(encoded), len(encoded))

    def _report_view(self, sender: int, nonce: bytes) -> None:
        """Report the current view to a joining validator, with the certificate that opened it as proof."""
        opening = self.engine.certificates.best_of(View(self.engine.view - 1))
        if opening is not None or self.engine.view == FIRST_VIEW:
            proof = b"" if opening is None else encode_consensus(opening)
            self._give(sender, messages.ViewReport(nonce[: messages.MAX_NONCE_BYTES], proof), len(proof))

    def _give(self, peer: int, message: messages.PeerMessage, size: int) -> None:
        """Send an answer of this size, unless the peer's allowance is used up."""
        if self._allowances.take(peer, size):
            self.effects.send(peer, message)
