"""Joining by a snapshot: a validator without state fetches one before its node begins.

A pure state machine with the same events and effects as the node's (:mod:`validator.node.events`). It asks one peer
after the other for an offer, and accepts one whose block is proved by a finalization. Then it requests chunks from all
peers, one at a time from each, and checks every chunk before it keeps it. A peer that sent a wrong chunk is reported
and skipped. When all chunks have arrived, the data folder is completed, and
:func:`validator.node.assembly.open_validator` opens it like any other; the node fetches the blocks above the snapshot
by its usual catch-up. An interrupted join resumes with its chunks if a peer still offers that height.

It also learns in which views it may have voted before (:class:`PastViews`), and stores the last view in which it must
abstain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from consensus.certificates import verify_signed
from consensus.keys import ValidatorSet
from consensus.messages import AnyCertificate, MessageError
from consensus.messages import decode as decode_consensus
from consensus.types import FIRST_VIEW, View
from validator.chain.block import BlockReceipts, Header, decode_block, receipts_root
from validator.chain.messages import (
    MAX_CHUNK_BYTES,
    MAX_PIECE_BYTES,
    ChunkRequest,
    ChunkResponse,
    SnapshotOffer,
    SnapshotRequest,
    ViewReport,
    ViewRequest,
    decode_message,
)
from validator.node.events import Effect, Event, Joined, Message, SetTimer, Started, Timeout, TimerName
from validator.node.outbox import Outbox
from validator.primitives.codec import CodecError, decode
from validator.primitives.types import Hash, Height
from validator.state.intake import SnapshotIntake
from validator.state.log import BASE_NAME
from validator.state.snapshot import SnapshotError
from validator.storage.archive import ArchivedBlock, ArchiveStart, begin_archive
from validator.storage.disk import Disk
from validator.storage.finality_proof import MAX_LINKS, is_proved

STATE_FOLDER: Final = "state"
JOIN_TIMER: Final = TimerName("join")
JOIN_NONCE_BYTES: Final = 16
MAX_CHUNKS_AT_ONCE: Final = 8
"""Maximum number of chunks in transit, from different peers. Each may take ``MAX_CHUNK_BYTES`` until it is checked."""
ROUNDS_WITHOUT_PROGRESS: Final = 5
"""Number of consecutive timeouts without a new chunk after which another offer is requested."""
MAX_RETRY_FACTOR: Final = 16
"""Largest factor by which the timeout grows, on a network slower than the configuration assumed."""


@dataclass(slots=True)
class PastViews:
    """The views in which a validator may have voted before it lost its journal, by what peers reported during one join.

    It must not vote twice, so it abstains in every view that it may have entered. Each peer proves its current view by
    the certificate that opened it (``docs/consensus.md``, *Lost journals*).
    """

    validators: ValidatorSet
    namespace: bytes
    nonce: bytes
    """Differs for each join, so that reports for an earlier one, before the journal was lost, do not count."""
    reported: dict[int, int] = field(default_factory=dict)
    """A view that each peer had reached when it was asked."""

    @property
    def abstain_through(self) -> int:
        """The last view that this validator can have entered before it lost its journal. Valid if :attr:`are_known`."""
        return max(self.reported.values(), default=0) + 1

    @property
    def are_known(self) -> bool:
        """Whether enough peers reported for :attr:`abstain_through` to be valid.

        These are more than ``2 f`` members of the highest reported view's committee, and of the next view's.
        """
        highest = max(self.reported.values(), default=0)
        active = {self.validators.committee(View(view)) for view in (max(highest, FIRST_VIEW), highest + 1)}
        return all(
            sum(member in self.reported for member in committee.members) > 2 * committee.faults_withstood
            for committee in active
        )

    def take(self, sender: int, report: ViewReport) -> bool:
        """Take a peer's first report. Returns whether its certificate is valid."""
        if not report.certificate:
            self.reported[sender] = FIRST_VIEW
            return True
        try:
            opening = decode_consensus(report.certificate)
        except MessageError:
            return False
        if not isinstance(opening, AnyCertificate) or not verify_signed(opening, self.validators, self.namespace):
            return False
        self.reported[sender] = opening.view + 1
        return True


class ChunkPieces:
    """The pieces of one chunk from one peer. Two peers may cut a chunk differently, so their pieces are never mixed.

    Only the size of each value in a chunk is bounded (2**24 bytes), so a chunk may be longer than a message. The server
    cuts it into pieces of ``MAX_PIECE_BYTES``. They are requested one after the other, and the whole chunk is checked
    at the end. Until then at most ``MAX_CHUNK_BYTES`` are kept for a peer.
    """

    def __init__(self, height: Height, chunk: int) -> None:
        self.height = height
        self.chunk = chunk
        self._data = bytearray()
        self._total = 0

    @property
    def request(self) -> ChunkRequest:
        """The request for the next piece."""
        return ChunkRequest(self.height, self.chunk, len(self._data))

    def take(self, response: ChunkResponse) -> bytes | None:
        """Take a piece. Returns the whole chunk, not checked yet, with its last piece.

        A piece that was not requested, or came before, is ignored; the caller sends :attr:`request` again if nothing
        was taken. Raises :class:`SnapshotError` if no honest peer cuts such a piece.
        """
        if (response.height, response.chunk, response.offset) != (self.height, self.chunk, len(self._data)):
            return None
        if not 0 < response.total <= MAX_CHUNK_BYTES or self._total not in (0, response.total):
            raise SnapshotError(f"a chunk of {response.total} bytes")
        if len(response.data) != min(response.total - response.offset, MAX_PIECE_BYTES):
            raise SnapshotError(f"a piece of {len(response.data)} bytes")
        self._total = response.total
        self._data += response.data
        return bytes(self._data) if len(self._data) == self._total else None


def _are_receipts_of(header: Header, encoded: bytes) -> bool:
    """Whether the header commits to these encoded receipts."""
    try:
        return receipts_root(decode(encoded, BlockReceipts)) == header.receipts_root
    except CodecError:
        return False


def has_joined(disk: Disk) -> bool:
    """Whether a join completed this data folder."""
    return disk.size(f"{STATE_FOLDER}/{BASE_NAME}") > 0


class _Snapshot(NamedTuple):
    """An offered and proved snapshot, with the progress of its transfer."""

    offer: SnapshotOffer
    intake: SnapshotIntake


class _Retry(NamedTuple):
    """The time after which requests without an answer are repeated, and its upper bound."""

    delay_ms: int
    longest_ms: int

    def longer(self) -> _Retry:
        return self._replace(delay_ms=min(2 * self.delay_ms, self.longest_ms))


class _Peers:
    """The peers of a join, in the order in which they are asked."""

    def __init__(self, index: int, count: int) -> None:
        self.all = [peer for peer in range(count) if peer != index]
        self.refused: set[int] = set()
        """Peers that sent something wrong, or an offer that no peer serves any more. They are skipped until all peers
        are in this set."""
        self._newest = index
        """The peer that was asked last."""

    def in_turn(self) -> list[int]:
        """The peers to ask, beginning after the last one asked; all of them again if all were refused."""
        if self.refused.issuperset(self.all):
            self.refused.clear()
        return sorted(set(self.all) - self.refused, key=lambda peer: (peer <= self._newest, peer))

    def next(self) -> int:
        self._newest = self.in_turn()[0]
        return self._newest


class SnapshotJoin:
    """The join of one validator. ``is_done``: whether its data folder is ready to be opened."""

    intake_class: ClassVar[type[SnapshotIntake]] = SnapshotIntake
    views_class: ClassVar[type[PastViews]] = PastViews

    def __init__(
        self,
        disk: Disk,
        index: int,
        validators: ValidatorSet,
        chain_id: str,
        retry_ms: int = 250,
        nonce: bytes = b"",
    ) -> None:
        """``nonce`` differs for each join and has at most ``MAX_NONCE_BYTES``.

        ``retry_ms`` doubles after each round without progress, up to ``MAX_RETRY_FACTOR`` times its value.
        """
        self.is_done = False
        self.chunks: dict[int, int] = {}
        """Number of chunks accepted from each peer."""
        self._disk = disk
        self._validators = validators
        self._namespace = chain_id.encode()
        self._retry = _Retry(retry_ms, MAX_RETRY_FACTOR * retry_ms)
        self._effects = Outbox()
        self._peers = _Peers(index, len(validators))
        self._views = self.views_class(validators, self._namespace, nonce)
        self._snapshot: _Snapshot | None = None
        self._offered_by: int | None = None
        self._asked_for_offers: set[int] = set()
        """Peers asked since the last offer was accepted; offers of others are ignored."""
        self._asked: dict[int, ChunkPieces] = {}
        """The chunk requested from each peer, with the pieces received so far."""
        self._sending: set[int] = set()
        """Peers that sent a piece since the last round; their requests are not repeated."""
        self._idle_rounds = 0

    @property
    def abstain_through(self) -> int:
        """The last view in which the validator must not vote (:attr:`PastViews.abstain_through`)."""
        return self._views.abstain_through

    def handle(self, event: Event) -> list[Effect]:
        """Take one event; return the effects that follow, in order."""
        match event:
            case Started() | Timeout(timer=TimerName("join")) if not self.is_done:
                self._on_round()
            case Message(sender, payload) if not self.is_done:
                self._on_message(sender, payload)
        return self._effects.drain()

    def _on_round(self) -> None:
        """Repeat the requests that have no answer, when a join begins or its timer fires."""
        for peer in self._peers.all:
            if peer not in self._views.reported:
                self._effects.send(peer, ViewRequest(self._views.nonce))
        self._idle_rounds += 1
        if self._idle_rounds > 1:
            self._retry = self._retry.longer()
        if self._idle_rounds > ROUNDS_WITHOUT_PROGRESS and not (self._snapshot and self._snapshot.intake.is_complete):
            self._give_offer_up()
        self._asked = {peer: pieces for peer, pieces in self._asked.items() if peer in self._sending}
        self._sending.clear()
        peer = self._peers.next()  # another peer each time: one that does not answer must not be asked forever
        if self._snapshot is None:
            self._asked_for_offers.add(peer)
            self._effects.send(peer, SnapshotRequest())
        else:
            self._ask_for_chunks(self._snapshot.intake)
        self._effects.append(SetTimer(JOIN_TIMER, self._retry.delay_ms))

    def _give_offer_up(self) -> None:
        """Drop the accepted offer, whose chunks no peer has any more. Skip the peer that made it: it may repeat it."""
        if self._offered_by is not None:
            self._peers.refused.add(self._offered_by)
        self._snapshot = self._offered_by = None
        self._idle_rounds = 0
        self._sending.clear()

    def _on_message(self, sender: int, payload: bytes) -> None:
        try:
            message = decode_message(payload)
        except CodecError:
            self._refuse(sender, "undecodable")
            return
        if isinstance(message, SnapshotOffer) and self._snapshot is None and sender in self._asked_for_offers:
            self._asked_for_offers.discard(sender)
            self._on_offer(sender, message)
        elif isinstance(message, ChunkResponse) and self._snapshot is not None:
            self._on_chunk(sender, message, self._snapshot)
        elif isinstance(message, ViewReport) and message.nonce == self._views.nonce:
            self._on_view(sender, message)

    def _on_view(self, sender: int, report: ViewReport) -> None:
        if sender in self._views.reported:
            return
        if not self._views.take(sender, report):
            self._refuse(sender, "bad_view")
        elif self._snapshot is not None:
            self._go_on(sender, self._snapshot)

    def _on_offer(self, sender: int, offer: SnapshotOffer) -> None:
        block = decode_block(offer.body)
        if (
            block is None
            or len(offer.links) > MAX_LINKS
            or not is_proved([block.header, *offer.links], offer.certificate, self._validators, self._namespace)
            or not _are_receipts_of(block.header, offer.receipts)
        ):
            self._refuse(sender, "bad_offer")
            return
        header = block.header
        intake = self.intake_class(self._disk, STATE_FOLDER, Height(header.height), Hash(header.state_root))
        try:
            intake.take_manifest(offer.manifest)
        except SnapshotError:
            self._refuse(sender, "bad_manifest")
            return
        self._snapshot, self._offered_by, self._idle_rounds = _Snapshot(offer, intake), sender, 0
        self._asked_for_offers.clear()
        self._go_on(sender, self._snapshot)

    def _on_chunk(self, sender: int, response: ChunkResponse, snapshot: _Snapshot) -> None:
        pieces = self._asked.get(sender)
        if pieces is None:
            return
        asked = pieces.request
        try:
            whole = pieces.take(response)
            if whole is not None:
                snapshot.intake.take_chunk(pieces.chunk, whole)
        except SnapshotError:
            del self._asked[sender]
            self._refuse(sender, "bad_chunk")
            self._go_on(sender, snapshot)
            return
        if whole is not None:
            del self._asked[sender]
            self._idle_rounds = 0
            self.chunks[sender] = self.chunks.get(sender, 0) + 1
            self._go_on(sender, snapshot)
        elif pieces.request != asked:
            self._idle_rounds = 0
            self._sending.add(sender)
            self._effects.send(sender, pieces.request)

    def _go_on(self, sender: int, snapshot: _Snapshot) -> None:
        """Request missing chunks, or complete the folder."""
        if not snapshot.intake.is_complete:
            self._ask_for_chunks(snapshot.intake)
        elif self._views.are_known:
            try:
                self._install(snapshot)
            except SnapshotError:
                self._refuse(sender, "bad_manifest")
                self._snapshot = None

    def _install(self, snapshot: _Snapshot) -> None:
        """Write the data folder of a validator at the snapshot's height. The state is written last."""
        offer, intake = snapshot
        own_certificate = b"" if offer.links else offer.certificate
        block = ArchivedBlock(offer.body, offer.receipts, own_certificate, intake.root)
        begin_archive(self._disk, ArchiveStart(intake.height, block, self.abstain_through))
        intake.install()
        self.is_done = True
        self._effects.append(Joined(intake.height))

    def _ask_for_chunks(self, intake: SnapshotIntake) -> None:
        asked = {pieces.chunk for pieces in self._asked.values()}
        waiting = [chunk for chunk in intake.missing() if chunk not in asked]
        for peer in self._peers.in_turn():
            if waiting and peer not in self._asked and len(self._asked) < MAX_CHUNKS_AT_ONCE:
                self._asked[peer] = ChunkPieces(intake.height, waiting.pop(0))
                self._effects.send(peer, self._asked[peer].request)

    def _refuse(self, peer: int, reason: str) -> None:
        self._peers.refused.add(peer)
        self._effects.fault(peer, reason)
