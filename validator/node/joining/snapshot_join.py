"""Joining by a snapshot: what a validator without state does before it becomes one.

A pure state machine with the same events and effects as the node's (:mod:`validator.node.events`). It asks one peer
after the other for an offer, believes one whose block a quorum's finalization proves, then asks all peers for chunks,
one at a time each, and checks every chunk before it is kept. A peer whose chunk is wrong is named and asked no more.
When all chunks are there, the data folder is made ready, and :func:`validator.node.assembly.open_validator` opens it
like any other; the blocks above the snapshot come by the node's own catch-up. An interrupted join goes on with the
chunks it has, as long as a peer still offers that height.

Whoever joins may have voted before, with a journal that is lost: what keeps it from voting twice is that it abstains in
every view that it may have been in. It learns which these are from ``2f + 1`` peers, each of which proves its current
view by the certificate that opened it (:mod:`consensus.simplex`, *Lost journals*), and writes that down with the rest.
"""

from __future__ import annotations

from typing import ClassVar, Final

from consensus.certificates import verify_signed
from consensus.keys import ValidatorSet
from consensus.messages import AnyCertificate, MessageError
from consensus.messages import decode as decode_consensus
from consensus.types import FIRST_VIEW, View
from validator.chain.block import BlockReceipts, Header, decode_block, receipts_root
from validator.chain.messages import (
    ChunkResponse,
    PeerMessage,
    SnapshotOffer,
    SnapshotRequest,
    ViewReport,
    ViewRequest,
    decode_message,
    encode_message,
)
from validator.node.events import Effect, Event, Joined, Message, PeerFault, Send, SetTimer, Started, Timeout, TimerName
from validator.node.joining.pieces import ChunkPieces
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
"""Chunks under way from different peers; each may take ``MAX_CHUNK_BYTES`` until it is checked."""
ROUNDS_WITHOUT_PROGRESS: Final = 8
"""Timeouts in a row without a new chunk after which another offer is asked for."""


def _are_receipts_of(header: Header, encoded: bytes) -> bool:
    """Whether encoded receipts are those that a header commits to."""
    try:
        return receipts_root(decode(encoded, BlockReceipts)) == header.receipts_root
    except CodecError:
        return False


def has_joined(disk: Disk) -> bool:
    """Whether a join made this data folder one that can be opened."""
    return disk.size(f"{STATE_FOLDER}/{BASE_NAME}") > 0


class SnapshotJoin:
    """One validator's join. ``is_done`` says when its data folder is ready to be opened."""

    intake_class: ClassVar[type[SnapshotIntake]] = SnapshotIntake

    def __init__(
        self,
        disk: Disk,
        index: int,
        validators: ValidatorSet,
        chain_id: str,
        retry_ms: int = 250,
        nonce: bytes = b"",
    ) -> None:
        """``nonce`` is another one for each join, of at most ``MAX_NONCE_BYTES``: views told to an earlier one, before
        this validator lost its journal, must not count for this one."""
        self.is_done = False
        self.chunks: dict[int, int] = {}
        """How many chunks were taken from each peer."""
        self._disk = disk
        self._index = index
        self._validators = validators
        self._namespace = chain_id.encode()
        self._retry_ms = retry_ms
        self._nonce = nonce
        self._effects: list[Effect] = []
        self._intake: SnapshotIntake | None = None
        self._offer: SnapshotOffer | None = None
        self._offered_by: int | None = None
        self._asked_for_offers: set[int] = set()
        """Peers that were asked since an offer was taken last; nobody else's is looked at."""
        self._asked: dict[int, ChunkPieces] = {}
        """The chunk that each peer was asked for, as far as it has come."""
        self._sending: set[int] = set()
        """Peers that sent a piece since the last round; what they were asked for goes on."""
        self._views: dict[int, int] = {}
        """The view that each peer was in at least, when it was asked."""
        self._refused: set[int] = set()
        """Peers that sent something wrong."""
        self._idle_rounds = 0
        self._next_peer = index
        self._everybody = [peer for peer in range(len(validators)) if peer != index]

    @property
    def abstain_through(self) -> int:
        """The last view that an earlier life of this validator can have entered, once enough peers told theirs."""
        return max(self._views.values(), default=0) + 1

    def handle(self, event: Event) -> list[Effect]:
        """Take one event; return the effects that follow, in order."""
        match event:
            case Started() | Timeout(timer=TimerName("join")) if not self.is_done:
                self._on_round()
            case Message(sender, payload) if not self.is_done:
                self._on_message(sender, payload)
        effects, self._effects = self._effects, []
        return effects

    def _on_round(self) -> None:
        """Ask anew for whatever was not answered."""
        for peer in self._everybody:
            if peer not in self._views:
                self._send(peer, ViewRequest(self._nonce))
        self._idle_rounds += 1
        if self._idle_rounds > ROUNDS_WITHOUT_PROGRESS and not (self._intake and self._intake.is_complete):
            self._give_offer_up()
        self._asked = {peer: pieces for peer, pieces in self._asked.items() if peer in self._sending}
        self._sending.clear()
        self._next_peer = self._peers()[0]  # another one each time: who does not answer must not be asked for ever
        if self._intake is None:
            self._asked_for_offers.add(self._next_peer)
            self._send(self._next_peer, SnapshotRequest())
        else:
            self._ask_for_chunks()
        self._effects.append(SetTimer(JOIN_TIMER, self._retry_ms))

    def _give_offer_up(self) -> None:
        """Nobody has these chunks any more. Whoever offered them is asked last from now on: it may do so for ever."""
        if self._offered_by is not None:
            self._refused.add(self._offered_by)
        self._intake = self._offered_by = None
        self._idle_rounds = 0
        self._sending.clear()

    def _on_message(self, sender: int, payload: bytes) -> None:
        try:
            message = decode_message(payload)
        except CodecError:
            self._refuse(sender, "undecodable")
            return
        if isinstance(message, SnapshotOffer) and self._intake is None and sender in self._asked_for_offers:
            self._asked_for_offers.discard(sender)
            self._on_offer(sender, message)
        elif isinstance(message, ChunkResponse) and self._intake is not None:
            self._on_chunk(sender, message, self._intake)
        elif isinstance(message, ViewReport) and message.nonce == self._nonce and sender not in self._views:
            self._on_view(sender, message)

    def _on_view(self, sender: int, report: ViewReport) -> None:
        opening = self._proved(report.certificate) if report.certificate else None
        if report.certificate and opening is None:
            self._refuse(sender, "bad_view")
            return
        self._views[sender] = opening.view + 1 if opening is not None else FIRST_VIEW
        if self._intake is not None:
            self._go_on(sender)

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
        self._intake, self._offer, self._offered_by, self._idle_rounds = intake, offer, sender, 0
        self._asked_for_offers.clear()
        self._go_on(sender)

    def _on_chunk(self, sender: int, response: ChunkResponse, intake: SnapshotIntake) -> None:
        pieces = self._asked.get(sender)
        if pieces is None:
            return
        asked = pieces.request
        try:
            whole = pieces.take(response)
            if whole is not None:
                intake.take_chunk(pieces.chunk, whole)
        except SnapshotError:
            del self._asked[sender]
            self._refuse(sender, "bad_chunk")
            self._go_on(sender)
            return
        if whole is not None:
            del self._asked[sender]
            self._idle_rounds = 0
            self.chunks[sender] = self.chunks.get(sender, 0) + 1
            self._go_on(sender)
        elif pieces.request != asked:
            self._idle_rounds = 0
            self._sending.add(sender)
            self._send(sender, pieces.request)

    def _go_on(self, sender: int) -> None:
        """Ask for what is missing, or make the folder ready."""
        assert self._intake is not None, "an offer was taken"
        if not self._intake.is_complete:
            self._ask_for_chunks()
            return
        if not self._knows_where_it_voted():
            return
        try:
            self._install(self._intake)
        except SnapshotError:
            self._refuse(sender, "bad_manifest")
            self._intake = None

    def _install(self, intake: SnapshotIntake) -> None:
        """Make the data folder one of a validator at the snapshot's height; the state comes last."""
        assert self._offer is not None, "an offer was taken"
        offer = self._offer
        own_certificate = b"" if offer.links else offer.certificate
        block = ArchivedBlock(offer.body, offer.receipts, own_certificate, intake.root)
        begin_archive(self._disk, ArchiveStart(intake.height, block, self.abstain_through))
        intake.install()
        self.is_done = True
        self._effects.append(Joined(intake.height))

    def _ask_for_chunks(self) -> None:
        assert self._intake is not None, "an offer was taken"
        asked = {pieces.chunk for pieces in self._asked.values()}
        waiting = [chunk for chunk in self._intake.missing() if chunk not in asked]
        for peer in self._peers():
            if waiting and peer not in self._asked and len(self._asked) < MAX_CHUNKS_AT_ONCE:
                self._asked[peer] = ChunkPieces(self._intake.height, waiting.pop(0))
                self._send(peer, self._asked[peer].request)

    def _knows_where_it_voted(self) -> bool:
        """Whether enough members of each committee told their views that can have let it vote above all views told."""
        highest = max(self._views.values(), default=0)
        ruling = {self._validators.committee(View(view)) for view in (max(highest, FIRST_VIEW), highest + 1)}
        return all(
            sum(member in self._views for member in committee.members) > 2 * committee.faults_withstood
            for committee in ruling
        )

    def _proved(self, encoded: bytes) -> AnyCertificate | None:
        """The certificate that these bytes are, if it is good."""
        try:
            message = decode_consensus(encoded)
        except MessageError:
            return None
        if not isinstance(message, AnyCertificate) or not verify_signed(message, self._validators, self._namespace):
            return None
        return message

    def _peers(self) -> list[int]:
        """Whom to ask, beginning behind the last one asked; everybody again where all have sent something wrong."""
        if self._refused.issuperset(self._everybody):
            self._refused.clear()
        start = self._next_peer
        peers = [peer for peer in self._everybody if peer not in self._refused]
        return sorted(peers, key=lambda peer: (peer <= start, peer))

    def _refuse(self, peer: int, reason: str) -> None:
        self._refused.add(peer)
        self._effects.append(PeerFault(peer, reason))

    def _send(self, peer: int, message: PeerMessage) -> None:
        self._effects.append(Send(peer, encode_message(message)))
