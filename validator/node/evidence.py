"""Proof that a validator voted for an invalid block, for any verifier that holds the chain below it.

Evidence of consensus consists of two votes, and keys suffice to verify it. A vote for an invalid block is one vote,
which signs the digest of the block's header; to show that the block is invalid takes the state of its parent. So this
evidence carries the vote, the block and those ancestors that were not final for the finder. A verifier executes them on
its own state of the block below. A header that names another view than the vote, or another proposer than that view's
leader, convicts by itself: then only the block is included, and nothing is executed. A digest has one body, since the
header commits to its transactions; so a valid block cannot be made to look invalid.

Honest validators, including leaders, vote for a block only after it has executed to its header. The vote therefore
convicts its signer, whether or not that was the view's leader. A vote names only the view of its parent: it cannot
prove that a header names another block of that view than the notarized one.
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
"""Size limit of reported evidence, which has to be kept and shown. Longer evidence is not reported."""
INVALID_BLOCK: Final = "InvalidBlock"
"""Name of this kind of evidence."""


class InvalidBlock(msgspec.Struct, frozen=True, array_like=True, tag=1, forbid_unknown_fields=True):
    """A notarize vote for a block that is invalid on its parent."""

    vote: Vote
    bodies: tuple[bytes, ...]
    """The blocks from the child of a final block to the invalid block, each the child of the one before; only the
    invalid block if its header contradicts the vote."""


def encode_misconduct(evidence: InvalidBlock) -> bytes | None:
    """The canonical encoding of the evidence; ``None`` if it is longer than the limit."""
    encoded = encode(evidence)
    return encoded if len(encoded) <= MAX_EVIDENCE_BYTES else None


def decode_misconduct(encoded: bytes) -> InvalidBlock:
    """Evidence from its encoding; raises :class:`CodecError`. Does not verify it."""
    if len(encoded) > MAX_EVIDENCE_BYTES:
        raise CodecError(f"evidence of {len(encoded)} bytes: expected at most {MAX_EVIDENCE_BYTES}")
    evidence = decode(encoded, InvalidBlock)
    if not evidence.bodies:
        raise CodecError("evidence of an invalid block without the block")
    return evidence


def base_digest(evidence: InvalidBlock) -> Hash | None:
    """The final block that the evidence builds on; ``None`` if its first body is not a block.

    By this digest a verifier finds the block without trusting the height in any header.
    """
    first = decode_block(evidence.bodies[0])
    return None if first is None else Hash(first.header.parent_hash)


def contradicts_its_vote(
    evidence: InvalidBlock, validators: ValidatorSet, namespace: bytes, election: LeaderElection
) -> bool:
    """Whether keys and the schedule of leaders suffice to convict the vote's signer: the block's header names another
    view than the vote, or a proposer that does not lead that view."""
    accused = decode_block(evidence.bodies[-1])
    if accused is None or not _is_vote_for(evidence.vote, accused, validators, namespace):
        return False
    view = evidence.vote.view
    return accused.header.view != view or accused.header.proposer != election.leader(view)


def verify_misconduct(evidence: InvalidBlock, executor: Executor, validators: ValidatorSet, namespace: bytes) -> bool:
    """Whether the evidence proves that the vote's signer voted for a block that is invalid on its parent.

    ``executor``'s final block must be that of :func:`base_digest`; evidence that builds on another block proves nothing
    to it. Its final state does not change, and blocks executed here are dropped when its next block becomes final.
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
    """Whether ``vote`` is a validly signed vote to notarize the block."""
    is_meant = vote.kind == VoteKind.NOTARIZE and Hash(vote.digest) == header_hash(block.header)
    return is_meant and verify_vote(vote, validators, namespace)
