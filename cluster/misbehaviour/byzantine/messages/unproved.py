"""``unproved-…``: sends blocks and views that no quorum finalized, with a finalization that no validator signed.

Such a block is the true one of its height except for its view, on which execution does not depend: a validator that
does not verify the signatures executes it without an error.

- ``unproved-snapshot``: the block of a snapshot, offered to a validator that joins, with its true receipts and state.
- ``unproved-blocks``: the last block of a range that a validator requested to catch up.
- ``unproved-view``: a view far ahead, in which a joining validator would abstain for long.
"""

from __future__ import annotations

from typing import Final

import msgspec

from cluster.misbehaviour.byzantine.base import (
    Behaviour,
    BehaviourContext,
    peer_message,
    send_peer_message,
)
from consensus.messages import MAX_VIEW, AnyCertificate, Certificate, VoteKind
from consensus.messages import decode as decode_consensus
from consensus.messages import encode as encode_consensus
from consensus.types import Digest, View
from validator.chain.block import decode_block, header_hash
from validator.chain.messages import FinalBlocksResponse, PeerMessage, SnapshotOffer, ViewReport
from validator.node.events import Effect, Send
from validator.primitives.codec import encode

VIEWS_AHEAD: Final = 1_000


class Unproved(Behaviour):
    """Replaces messages by ones with a forged finalization: the base class of the variants."""

    def send(self, send: Send) -> list[Effect]:
        message = peer_message(send.payload)
        lie = None if message is None else self._lie(message)
        if lie is None:
            return [send]
        self.count_effect()
        return [send_peer_message(send.recipient, lie)]

    def _lie(self, message: PeerMessage) -> PeerMessage | None:
        """The message that replaces ``message``; ``None`` to send it unchanged."""
        raise NotImplementedError


class UnprovedSnapshot(Unproved):
    name = "unproved-snapshot"
    description = "offers snapshots of a block that is not final, with a forged finalization"

    def _lie(self, message: PeerMessage) -> PeerMessage | None:
        if not isinstance(message, SnapshotOffer):
            return None
        forged = forged_final(self.context, message.body)
        if forged is None:
            return None
        body, certificate = forged
        return msgspec.structs.replace(message, body=body, links=(), certificate=certificate)


class UnprovedBlocks(Unproved):
    name = "unproved-blocks"
    description = "gives ranges of final blocks whose last is not final, with a forged finalization"

    def _lie(self, message: PeerMessage) -> PeerMessage | None:
        if not isinstance(message, FinalBlocksResponse) or not message.bodies:
            return None
        forged = forged_final(self.context, message.bodies[-1])
        if forged is None:
            return None
        body, certificate = forged
        return FinalBlocksResponse((*message.bodies[:-1], body), (), certificate)


class UnprovedView(Unproved):
    name = "unproved-view"
    description = "tells joining validators that it is in a view far ahead, with a forged finalization"

    def _lie(self, message: PeerMessage) -> PeerMessage | None:
        if not isinstance(message, ViewReport) or not message.certificate:
            return None
        opening = decode_consensus(message.certificate)
        assert isinstance(opening, AnyCertificate), "the validator is honest so far"
        view = View(opening.view + VIEWS_AHEAD)
        signatures, digest = self.context.forged_signatures(view), self.context.random_digest()
        forged = Certificate.of(VoteKind.FINALIZE, view, View(view - 1), digest, signatures)
        return msgspec.structs.replace(message, certificate=encode_consensus(forged))


def forged_final(context: BehaviourContext, body: bytes) -> tuple[bytes, bytes] | None:
    """A block that differs from the final one in ``body`` in its view alone, and its forged finalization, both encoded.

    ``None`` if another behaviour has changed the body.
    """
    block = decode_block(body)
    if block is None or block.header.view >= MAX_VIEW:
        return None
    block = msgspec.structs.replace(block, header=msgspec.structs.replace(block.header, view=block.header.view + 1))
    view, digest = View(block.header.view), Digest(header_hash(block.header))
    signatures = context.forged_signatures(view)
    certificate = Certificate.of(VoteKind.FINALIZE, view, View(view - 1), digest, signatures)
    return encode(block), encode_consensus(certificate)
