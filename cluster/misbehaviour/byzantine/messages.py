"""Behaviours that send wrong, stale or unproved messages to peers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Final

import msgspec

from cluster.misbehaviour.byzantine.base import (
    Behaviour,
    BehaviourContext,
    EachView,
    Heard,
    forget_old,
    peer_message,
    send_consensus,
    send_peer_message,
)
from consensus.messages import (
    MAX_REQUESTED_VIEWS,
    MAX_VIEW,
    NO_PARENT,
    AnyCertificate,
    Certificate,
    CertificateRequest,
    Message,
    Proposal,
    Timeout,
    TimeoutCertificate,
    VoteKind,
    vote_of,
)
from consensus.messages import decode as decode_consensus
from consensus.messages import encode as encode_consensus
from consensus.types import FIRST_VIEW, GENESIS_VIEW, Digest, View
from validator.chain.block import decode_block, header_hash
from validator.chain.messages import (
    MAX_GOSSIPED_TRANSACTIONS,
    BlockRequest,
    BlockResponse,
    ChunkRequest,
    ChunkResponse,
    ConsensusMessage,
    FinalBlocksRequest,
    FinalBlocksResponse,
    PeerMessage,
    SnapshotOffer,
    SnapshotRequest,
    TransactionsMessage,
    ViewReport,
    ViewRequest,
)
from validator.chain.records import ACCOUNT
from validator.node.events import Certified, Completed, Effect, Event, Run, Send, Started
from validator.node.executor.jobs import ReadSnapshot, SnapshotRead
from validator.primitives.codec import encode
from validator.primitives.types import Hash, Height
from validator.state.hashing import BITMAP_BYTES, TWIG_ENTRIES, TWIG_LEVELS, decode_entry, twig_hash
from validator.state.snapshot import Manifest, SnapshotError, known_nodes, tree_of

FIRST_CHUNK: Final = 0


class FalseSnapshots(Behaviour):
    """Gives a joining validator chunks of snapshots with one wrong bit; the manifest is the true one."""

    name = "false-snapshots"
    description = "gives chunks of snapshots in which one bit is wrong"

    def send(self, send: Send) -> list[Effect]:
        chunk = peer_message(send.payload)
        if not isinstance(chunk, ChunkResponse) or not chunk.data:
            return [send]
        data, random = bytearray(chunk.data), self.context.random
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        self.count_effect()
        return [send_peer_message(send.recipient, msgspec.structs.replace(chunk, data=bytes(data)))]


class FalseManifest(Behaviour):
    """Offers a joining validator snapshots of a false state, which does not match the state root.

    They are made from the true snapshot's first chunk, which a separate job reads.
    """

    name = "false-manifest"
    description = "offers snapshots of another state than the block's, and gives their chunks"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._offers: dict[int, tuple[SnapshotOffer, Height, Hash]] = {}
        """The offers held back until the first chunk is read, keyed by peer; each with its block's height and state
        root."""
        self._chunk: tuple[int, bytes] = (0, b"")
        """The height of the snapshot offered last, and its false first chunk."""

    def send(self, send: Send) -> list[Effect]:
        message, peer = peer_message(send.payload), send.recipient
        if isinstance(message, SnapshotOffer) and peer is not None:
            block = decode_block(message.body)
            if block is None:
                return [send]  # another behaviour has made something else of it
            height = Height(block.header.height)
            self._offers[peer] = (message, height, Hash(block.header.state_root))
            return [Run(ReadSnapshot(self.context.index, ChunkRequest(height, FIRST_CHUNK)))]
        if isinstance(message, ChunkResponse) and (message.height, message.chunk) == (self._chunk[0], FIRST_CHUNK):
            piece = self._chunk[1][message.offset : message.offset + len(message.data)]
            return [send_peer_message(peer, msgspec.structs.replace(message, data=piece))]
        return [send]

    def swallows(self, event: Event) -> bool:
        if isinstance(event, Started):
            self._offers.clear()
        return _is_read_for(event, self.context.index)

    def react(self, event: Event) -> list[Effect]:
        if not isinstance(event, Completed) or not _is_read_for(event, self.context.index):
            return []
        assert isinstance(event.result, SnapshotRead)
        offers, self._offers = self._offers, {}
        chunk = event.result.response
        return [send_peer_message(peer, self._false(*offer, chunk)) for peer, offer in sorted(offers.items())]

    def _false(self, offer: SnapshotOffer, height: Height, root: Hash, chunk: object) -> SnapshotOffer:
        """The offer of a false state, made from a true offer and its first chunk. Returns the true offer if the chunk
        is gone, does not come in one piece or has no account, or if another behaviour has changed the manifest."""
        if not isinstance(chunk, ChunkResponse) or chunk.height != height or len(chunk.data) != chunk.total:
            return offer
        try:
            manifest = Manifest.decode(offer.manifest, height, root)
        except SnapshotError:
            return offer
        false = _with_another_amount(manifest, chunk.data)
        if false is None:
            return offer
        self._chunk = (height, false)
        manifest = replace(manifest, twig_roots=(_root_of_first_twig(manifest, false), *manifest.twig_roots[1:]))
        self.count_effect()
        return msgspec.structs.replace(offer, manifest=manifest.encode())


def _is_read_for(event: Event, index: int) -> bool:
    """Whether an event is the result of a read job of the behaviour. A validator itself only reads for its peers."""
    return isinstance(event, Completed) and isinstance(event.result, SnapshotRead) and event.result.peer == index


def _root_of_first_twig(manifest: Manifest, chunk: bytes) -> bytes:
    """The root of the twig that the first chunk begins with."""
    nodes, _ = known_nodes(manifest, FIRST_CHUNK, chunk)[manifest.first_twig]
    entries = min(manifest.next_position - manifest.first_twig * TWIG_ENTRIES, TWIG_ENTRIES)
    return twig_hash(tree_of(nodes, entries)[TWIG_LEVELS][0], chunk[:BITMAP_BYTES])


def _with_another_amount(manifest: Manifest, chunk: bytes) -> bytes | None:
    """The chunk with another balance in an account of its first twig; ``None`` if the twig has no account."""
    _, entries = known_nodes(manifest, FIRST_CHUNK, chunk)[manifest.first_twig]
    for _, encoded in sorted(entries.items()):
        if decode_entry(encoded).key[:1] == ACCOUNT:
            at = chunk.index(encoded) + len(encoded) - 1
            return chunk[:at] + bytes([chunk[at] ^ 1]) + chunk[at + 1 :]
    return None


PIECES_AT_A_TIME = 3
MAX_NOISE_BYTES = 200
LARGE_NOISE_BYTES = 512 * 1024
FLOODED_VIEWS = 64
"""Maximum number of views by which a vote for a near future view is ahead; other votes are for the highest possible
view. Also the number of views in a request for certificates."""
EDGES = (-(2**63), -1, 0, 1, 7, 64, 2**31, 2**63 - 1, 2**64 - 1)


class Garbage(Behaviour):
    """Sends every kind of wrong message in addition to the correct ones.

    Wrong are bytes that are no message, messages of every type with random fields, too many and too large ones, and
    validly signed votes for views far ahead.
    """

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


class GreedyAsker(EachView):
    """Asks every peer for the certificates of many views, again in each view."""

    name = "greedy-asker"
    description = "asks all validators for the certificates of many views, in each view again"

    def lie(self, view: View) -> Iterator[Effect]:
        views = range(max(FIRST_VIEW, view - MAX_REQUESTED_VIEWS), view)
        if views:
            yield send_consensus(None, CertificateRequest(tuple(map(View, views))))
            self.count_effect()


AT_A_TIME = 5
"""Minimum number of certificates sent at once: enough to double timeouts twice with four validators."""
BEHIND = 2
"""Minimum number of views by which a peer must be behind to count as cut off."""


class OldNullifications(Behaviour):
    """Sends a peer that is cut off the certificates of views given up long ago, one by one.

    As leader it sends no proposal, so that views are given up. It sends no certificate that would bring a peer up to
    date, only those of abandoned views, in order, once a peer lacks :data:`AT_A_TIME` of them. A validator that counts
    these views as failures of the network waits ever longer for each leader.
    """

    name = "old-nullifications"
    description = "as leader, sends no proposal; gives peers that are behind old nullifications, one after the other"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._given_up: dict[int, AnyCertificate] = {}
        self._newest = GENESIS_VIEW
        self._views: dict[int, View] = {}
        """The view that each peer's last vote or request for certificates was about, keyed by peer."""

    def alter(self, effect: Effect) -> list[Effect]:
        if isinstance(effect, Certified):
            certificate = effect.certificate
            self._newest = max(self._newest, certificate.view)
            if certificate.kind in (VoteKind.NULLIFY, VoteKind.TIMEOUT):
                self._given_up[certificate.view] = certificate
                forget_old(self._given_up)
        return super().alter(effect)

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        if isinstance(message, Timeout) and send.recipient is None:
            # its certificate would bring peers up to date
            yield from (Send(peer, send.payload) for peer in self.context.peers if not self._is_behind(peer))
        elif not isinstance(message, Proposal | Certificate | TimeoutCertificate):
            yield send

    def hear(self, heard: Heard) -> Iterator[Effect]:
        vote, message = vote_of(heard.message), heard.message
        if vote is not None and vote.kind != VoteKind.FINALIZE:
            at = vote.view
        elif isinstance(message, CertificateRequest):
            at = message.views[0]
        else:
            return
        self._views[heard.sender] = at
        lacks = [certificate for view, certificate in sorted(self._given_up.items()) if view >= at]
        if self._is_behind(heard.sender) and len(lacks) >= AT_A_TIME:
            self.count_effect()
            yield from (send_consensus(heard.sender, certificate) for certificate in lacks)

    def _is_behind(self, peer: int) -> bool:
        return self._views.get(peer, self._newest) + BEHIND <= self._newest


class SelectiveSender(Behaviour):
    """Sends messages only to one half of its peers, never to the others."""

    name = "selective-sender"
    description = "sends to some peers only, the same ones for the whole run"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        peers = context.peers
        self._favoured = sorted(context.random.sample(peers, (len(peers) + 1) // 2))

    def send(self, send: Send) -> list[Effect]:
        addressed = self.context.peers if send.recipient is None else [send.recipient]
        reached = [peer for peer in addressed if peer in self._favoured]
        if len(reached) < len(addressed):
            self.count_effect()
        return [Send(peer, send.payload) for peer in reached]


REMEMBERED = 256
"""Maximum number of past messages to choose from."""
REMEMBERED_BYTES = 64 * 1024
"""Maximum size of a message that is kept for replay, in bytes."""
REPLAYED_AT_A_TIME = 2


class StaleReplayer(Behaviour):
    """Sends earlier messages, which it sent or received, to all peers again."""

    name = "stale-replayer"
    description = "repeats old messages, its own and those of others"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._old: deque[bytes] = deque(maxlen=REMEMBERED)

    def hear(self, heard: Heard) -> list[Effect]:
        self._remember(heard.payload)
        return []

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        yield send
        for _ in range(min(REPLAYED_AT_A_TIME, len(self._old))):
            yield Send(None, self._old[self.context.random.randrange(len(self._old))])
            self.count_effect()
        self._remember(send.payload)

    def _remember(self, payload: bytes) -> None:
        if len(payload) <= REMEMBERED_BYTES:
            self._old.append(payload)


VIEWS_AHEAD: Final = 1_000


class Unproved(Behaviour):
    """Sends blocks and views that no quorum finalized, with a finalization that no validator signed: the base class of
    the variants.

    Such a block is the true one of its height except for its view, on which execution does not depend: a validator that
    does not verify the signatures executes it without an error.
    """

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
    """The block of a snapshot, offered to a validator that joins, with its true receipts and state."""

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
    """The last block of a range that a validator requested to catch up."""

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
    """A view far ahead, in which a joining validator would abstain for long."""

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
