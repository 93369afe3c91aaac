"""Answers to the requests of peers: blocks by digest, ranges of final blocks, snapshots, and the current view.

A peer that catches up or joins can make a node read a lot. The executor reads for one peer once at a time, and a peer
gets a bounded number of bytes by digest between two ticks of consensus.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from consensus.messages import encode as encode_consensus
from consensus.types import FIRST_VIEW, View
from consensus.voting import VotingEngine
from validator.chain import messages
from validator.node.blocks.block_tree import BlockTree
from validator.node.events import Run
from validator.node.executor.jobs import BlocksRead, ReadBlocks, ReadSnapshot, SnapshotRead
from validator.node.outbox import Outbox
from validator.primitives.types import HASH_BYTES, Hash

MAX_GIVEN_BYTES: Final = 16 * 1024 * 1024
"""Of blocks given to one peer by digest between two ticks of consensus, after which it is given no more."""

Request = (
    messages.BlockRequest
    | messages.FinalBlocksRequest
    | messages.SnapshotRequest
    | messages.ChunkRequest
    | messages.ViewRequest
)


@dataclass(slots=True)
class PeerService:
    """The answers of one node."""

    engine: VotingEngine
    tree: BlockTree
    effects: Outbox
    _reading_for: set[int] = field(default_factory=set)
    """Peers for which the executor reads: one read a peer at a time."""
    _given_bytes: Counter[int] = field(default_factory=Counter)
    """Of blocks, to each peer since the last tick."""

    def tick(self) -> None:
        self._given_bytes.clear()

    def answer(self, sender: int, request: Request) -> None:
        """Answer a request, at once or by a job whose result :meth:`read` takes."""
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
        """Pass on what the executor read for a peer."""
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
        """Answer with the block. If it is not here, answer with the newest finalization: the block may be final.

        A peer that builds on a block that is final elsewhere, and has missed its finalization, would ask forever: the
        block is in no tree any more. The finalization makes it ask for final blocks.
        """
        if len(digest) != HASH_BYTES or self._given_bytes[sender] >= MAX_GIVEN_BYTES:
            return
        held = self.tree.get(digest)
        if held is not None:
            self._given_bytes[sender] += len(held.body)
            self.effects.send(sender, messages.BlockResponse(held.body))
            return
        newest = self.engine.certificates.best_of(self.engine.final_view)
        if newest is not None:
            encoded = encode_consensus(newest)
            self._given_bytes[sender] += len(encoded)
            self.effects.send(sender, messages.ConsensusMessage(encoded))

    def _report_view(self, sender: int, nonce: bytes) -> None:
        """Report the current view to a validator that joins, with the certificate that opened it as proof."""
        opening = self.engine.certificates.best_of(View(self.engine.view - 1))
        if opening is not None or self.engine.view == FIRST_VIEW:
            proof = b"" if opening is None else encode_consensus(opening)
            self.effects.send(sender, messages.ViewReport(nonce[: messages.MAX_NONCE_BYTES], proof))
