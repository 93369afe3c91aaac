"""``garbage``: sends every kind of wrong message in addition to the correct ones.

Wrong are bytes that are no message, messages of every type with random fields, too many and too large ones, and validly
signed votes for views far ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from cluster.misbehaviour.byzantine.base import Behaviour, BehaviourContext, send_consensus, send_peer_message
from consensus.messages import MAX_VIEW, NO_PARENT, CertificateRequest, Message, VoteKind
from consensus.types import View
from validator.chain.messages import (
    MAX_GOSSIPED_TRANSACTIONS,
    BlockRequest,
    BlockResponse,
    ChunkRequest,
    ChunkResponse,
    ConsensusMessage,
    FinalBlocksRequest,
    FinalBlocksResponse,
    SnapshotOffer,
    SnapshotRequest,
    TransactionsMessage,
    ViewReport,
    ViewRequest,
)
from validator.node.events import Effect, Send

PIECES_AT_A_TIME = 3
MAX_NOISE_BYTES = 200
LARGE_NOISE_BYTES = 512 * 1024
FLOODED_VIEWS = 64
"""Maximum number of views by which a vote for a near future view is ahead; other votes are for the highest possible
view. Also the number of views in a request for certificates."""
EDGES = (-(2**63), -1, 0, 1, 7, 64, 2**31, 2**63 - 1, 2**64 - 1)


class Garbage(Behaviour):
    name = "garbage"
    description = "sends undecodable, oversized and random messages in addition to the right ones"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._view = 1
        self._kinds: tuple[Callable[[Random, Send], Send], ...] = (
            self._noise,
            self._large_noise,
            self._damaged,
            self._no_consensus,
            self._too_many_transactions,
            self._no_transactions,
            self._request,
            self._answer,
            self._far_vote,
            self._certificate_request,
        )

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        yield send
        self._view = max(self._view, getattr(message, "view", 1))
        random = self.context.random
        for _ in range(PIECES_AT_A_TIME):
            yield random.choice(self._kinds)(random, send)
            self.count_effect()

    def _noise(self, random: Random, sent: Send) -> Send:
        return Send(None, _bytes(random))

    def _large_noise(self, random: Random, sent: Send) -> Send:
        return Send(None, random.randbytes(16) * (LARGE_NOISE_BYTES // 16))

    def _damaged(self, random: Random, sent: Send) -> Send:
        """The message ``sent`` with one byte changed, and in half of the cases cut off after it."""
        position = random.randrange(len(sent.payload))
        changed = bytes([sent.payload[position] ^ random.randint(1, 255)])
        rest = sent.payload[position + 1 :] if random.random() < 0.5 else b""
        return Send(None, sent.payload[:position] + changed + rest)

    def _no_consensus(self, random: Random, sent: Send) -> Send:
        return send_peer_message(None, ConsensusMessage(_bytes(random)))

    def _too_many_transactions(self, random: Random, sent: Send) -> Send:
        return send_peer_message(None, TransactionsMessage((b"",) * (MAX_GOSSIPED_TRANSACTIONS + 1)))

    def _no_transactions(self, random: Random, sent: Send) -> Send:
        return send_peer_message(None, TransactionsMessage((_bytes(random), _bytes(random))))

    def _request(self, random: Random, sent: Send) -> Send:
        first, second = random.choice(EDGES), random.choice(EDGES)
        requests = (
            BlockRequest(_bytes(random)),
            FinalBlocksRequest(first, second),
            SnapshotRequest(),
            ChunkRequest(first, second, first),
            ViewRequest(_bytes(random)),
        )
        return send_peer_message(None, random.choice(requests))

    def _answer(self, random: Random, sent: Send) -> Send:
        first, second = random.choice(EDGES), random.choice(EDGES)
        answers = (
            BlockResponse(_bytes(random)),
            FinalBlocksResponse((_bytes(random),), (), _bytes(random)),
            SnapshotOffer(_bytes(random), _bytes(random), (), _bytes(random), _bytes(random)),
            ChunkResponse(first, second, _bytes(random), first, second),
            ViewReport(_bytes(random), _bytes(random)),
        )
        return send_peer_message(None, random.choice(answers))

    def _far_vote(self, random: Random, sent: Send) -> Send:
        ahead = random.choice((random.randint(1, FLOODED_VIEWS), MAX_VIEW))
        view = min(self._view + ahead, MAX_VIEW)
        at = self.context
        return send_consensus(None, at.vote(VoteKind.NOTARIZE, view, NO_PARENT, at.random_digest()))

    def _certificate_request(self, random: Random, sent: Send) -> Send:
        first = random.randint(0, MAX_VIEW - FLOODED_VIEWS)
        return send_consensus(None, CertificateRequest(tuple(View(first + step) for step in range(FLOODED_VIEWS))))


def _bytes(random: Random) -> bytes:
    return random.randbytes(random.randrange(MAX_NOISE_BYTES))
