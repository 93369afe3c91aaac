"""Verification of the blocks that the consensus engine asks about: comparison with the proposal, execution, answer.

An invalid block convicts every signer of a vote for it (:mod:`validator.node.evidence`), including the leader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from consensus import interface as engine_border
from consensus.messages import Vote
from validator.chain.block import Block, decode_block, header_hash
from validator.node.blocks.block_tree import BlockState, BlockTree, HeldBlock
from validator.node.evidence import INVALID_BLOCK, InvalidBlock, encode_misconduct
from validator.node.outbox import Outbox
from validator.primitives.types import Hash


@dataclass(slots=True)
class Verification:
    """Answers the engine's requests to verify blocks, and keeps those that are not answered yet."""

    tree: BlockTree
    effects: Outbox
    consensus: Callable[[engine_border.Event], None]
    """Passes answers to the engine."""
    _requests: dict[Hash, list[engine_border.Verify]] = field(default_factory=dict)
    """Requests by digest of the block."""

    @property
    def awaited(self) -> list[Hash]:
        """Digests of the blocks that the engine waits for."""
        return list(self._requests)

    def add(self, request: engine_border.Verify) -> bool:
        """Take a request, and answer it if possible. Returns whether its block has to be executed first."""
        block = decode_block(request.body)
        digest = Hash(request.digest)
        if block is None or header_hash(block.header) != digest or not self._is_what_was_proposed(request, block):
            self._answer(request, valid=False)
            return False
        held = self.tree.add(block, request.body)
        if held is None:
            return False  # below the final height, or no room: the engine's timeouts cover it
        self._requests.setdefault(digest, []).append(request)
        if held.state not in (BlockState.VALID, BlockState.INVALID):
            return True
        self._answer_all(held)
        return False

    def executed(self, held: HeldBlock, is_valid: bool) -> None:
        """Answer the requests for a block that was executed, and those for its descendants if it is invalid."""
        if is_valid:
            held.state = BlockState.VALID
            self._answer_all(held)
            return
        bodies = self.tree.bodies(held.digest)
        for request in self._requests.get(held.digest, ()):
            self._prove_invalid(request.vote, bodies)
        self._reject(held)

    def forget_unheld(self) -> None:
        """Drop the requests for blocks that are no longer in the tree, after other blocks became final."""
        self._requests = {digest: requests for digest, requests in self._requests.items() if digest in self.tree}

    def _is_what_was_proposed(self, request: engine_border.Verify, block: Block) -> bool:
        """Whether a block's header matches its proposal. A mismatch that convicts the vote's signer is reported."""
        header, parent = block.header, Hash(request.parent.digest)
        if header.view != request.view or header.proposer != request.proposer:
            self._prove_invalid(request.vote, (request.body,))
            return False
        if header.parent_hash != parent:
            return False  # the vote does not name its parent's digest
        if self.tree.follows_its_parent(block):
            return True
        if self.tree.is_executed(parent):
            self._prove_invalid(request.vote, (*self.tree.bodies(parent), request.body))
        return False

    def _prove_invalid(self, vote: Vote, bodies: tuple[bytes, ...]) -> None:
        """Report the signer of a vote for an invalid block, the last of ``bodies``, unless the evidence is too long."""
        proof = encode_misconduct(InvalidBlock(vote, bodies))
        if proof is not None:
            self.effects.blame(INVALID_BLOCK, vote.signer, proof)

    def _reject(self, held: HeldBlock) -> None:
        """Mark a block and its descendants as invalid, and answer the requests for them."""
        self.tree.reject(held)
        self._answer_all(held)
        for child in list(self.tree.children(held.digest)):
            self._reject(child)

    def _answer_all(self, held: HeldBlock) -> None:
        for request in self._requests.pop(held.digest, ()):
            self._answer(request, valid=held.state is BlockState.VALID)

    def _answer(self, request: engine_border.Verify, *, valid: bool) -> None:
        if not valid:
            self.effects.fault(request.proposer, "invalid_block")
        self.consensus(engine_border.BlockVerified(request.view, request.digest, valid))
