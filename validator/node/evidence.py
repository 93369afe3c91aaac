"""Proof that a validator voted for an invalid block, for anybody who holds the chain below it.

Consensus makes evidence of two votes, which keys alone decide. That a block is invalid follows from one vote, which
signs the digest of its header, and the state of its parent. So this evidence carries the vote, the block and those of
its ancestors that were not final for the finder. A verifier executes them on its own state of the block below.
A header that names another view than the vote, or another proposer than that view's leader, convicts by itself: then
the block alone is shown, and nothing is executed. A digest has one body: the header commits to its transactions, and so
nobody can make a good block look bad.

Honest validators vote for a block only after it has executed to its header, leaders included. The vote therefore
convicts whoever signed it, whether or not that was the view's leader. Of the parent a vote says the view alone: that a
header names another block of that view than was notarized cannot be shown with it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from consensus.keys import ValidatorSet
from consensus.leader import LeaderElection
from consensus.messages import Vote, VoteKind, verify_vote
from validator.chain.block import Block, decode_block, header_hash
from validator.node.executor.executor import Executor, execution_error
from validator.primitives.codec import CodecError, decode, encode
from validator.primitives.types import Hash

MAX_EVIDENCE_BYTES: Final = 512 * 1024
"""A longer line of blocks is no evidence: it would have to be kept and shown."""
INVALID_BLOCK: Final = "InvalidBlock"
"""The kind of evidence."""


class InvalidBlock(msgspec.Struct, frozen=True, array_like=True, tag=1, forbid_unknown_fields=True):
    """A notarize vote for a block that is invalid on its parent."""

    vote: Vote
    bodies: tuple[bytes, ...]
    """From the child of a final block to the invalid block, each the child of the one before; the invalid block alone
    if its header contradicts the vote."""


def encode_misconduct(evidence: InvalidBlock) -> bytes | None:
    """The evidence's one encoding, or ``None`` if it is too long to be any."""
    encoded = encode(evidence)
    return encoded if len(encoded) <= MAX_EVIDENCE_BYTES else None


def decode_misconduct(encoded: bytes) -> InvalidBlock:
    """Evidence from its encoding; raises :class:`CodecError`. Says nothing about whether it is true."""
    if len(encoded) > MAX_EVIDENCE_BYTES:
        raise CodecError(f"evidence of {len(encoded)} bytes: expected at most {MAX_EVIDENCE_BYTES}")
    evidence = decode(encoded, InvalidBlock)
    if not evidence.bodies:
        raise CodecError("evidence of an invalid block without the block")
    return evidence


def base_digest(evidence: InvalidBlock) -> Hash | None:
    """The final block that the evidence builds on, of which no header's height need be believed; ``None`` if its
    first body is no block."""
    first = decode_block(evidence.bodies[0])
    return None if first is None else Hash(first.header.parent_hash)


def contradicts_its_vote(
    evidence: InvalidBlock, validators: ValidatorSet, namespace: bytes, election: LeaderElection
) -> bool:
    """Whether keys and the schedule of leaders alone convict the vote's signer: the block's header names another view
    than the vote for it, or a proposer that does not lead that view."""
    accused = decode_block(evidence.bodies[-1])
    if accused is None or not _is_vote_for(evidence.vote, accused, validators, namespace):
        return False
    view = evidence.vote.view
    return accused.header.view != view or accused.header.proposer != election.leader(view)


def verify_misconduct(evidence: InvalidBlock, executor: Executor, validators: ValidatorSet, namespace: bytes) -> bool:
    """Whether the vote's signer must be believed to have voted for a block that is invalid on its parent.

    ``executor``'s final block must be the one of :func:`base_digest`; its final state does not change, and what it
    executes here goes when its next block becomes final. Evidence that builds on any other block proves nothing to it.
    """
    line = [decode_block(body) for body in evidence.bodies]
    blocks = [block for block in line if block is not None]
    if len(blocks) < len(line) or not _is_vote_for(evidence.vote, blocks[-1], validators, namespace):
        return False
    parent = executor.final_digest
    for block in blocks:
        if block.header.parent_hash != parent:
            return False
        parent = header_hash(block.header)
    *ancestors, accused = blocks
    if any(execution_error(executor, block) is not None for block in ancestors):
        return False
    return execution_error(executor, accused) is not None


def _is_vote_for(vote: Vote, block: Block, validators: ValidatorSet, namespace: bytes) -> bool:
    """Whether it is a signed vote to notarize the block."""
    is_meant = vote.kind == VoteKind.NOTARIZE and Hash(vote.digest) == header_hash(block.header)
    return is_meant and verify_vote(vote, validators, namespace)
