"""Joining by a snapshot: what a validator without state does before it becomes one.

A pure state machine with the same events and effects as the node's (:mod:`validator.events`). It asks one peer after
the other for an offer, believes one whose block a quorum's finalization proves, then asks all peers for chunks, one
at a time each, and checks every chunk before it is kept. A peer whose chunk is wrong is named and asked no more. When
all chunks are there, the data folder is made ready, and :func:`validator.assembly.open_validator` opens it like any
other; the blocks above the snapshot come by the node's own catch-up. An interrupted join goes on with the chunks it
has, as long as a peer still offers that height.

Whoever has voted before must not join like this with the same key: its journal is what keeps it from voting twice.
"""

from __future__ import annotations

from typing import Final

from consensus.certificates import verify_certificate
from consensus.keys import ValidatorSet
from consensus.messages import Certificate, MessageError, VoteKind
from consensus.messages import decode as decode_consensus
from validator.archive import ArchivedBlock, ArchiveStart, begin_archive
from validator.block import header_hash
from validator.codec import CodecError
from validator.disk import Disk
from validator.events import Effect, Event, Message, PeerFault, Send, SetTimer, Started, Timeout, TimerName
from validator.executor import decode_block
from validator.messages import (
    ChunkRequest,
    ChunkResponse,
    PeerMessage,
    SnapshotOffer,
    SnapshotRequest,
    decode_message,
    encode_message,
)
from validator.state.intake import SnapshotIntake
from validator.state.snapshot import SnapshotError
from validator.types import Hash, Height

STATE_FOLDER: Final = "state"
JOIN_TIMER: Final = TimerName("join")
ROUNDS_WITHOUT_PROGRESS: Final = 8
"""Timeouts in a row without a new chunk after which another offer is asked for."""


class SnapshotJoin:
    """One validator's join. ``is_done`` says when its data folder is ready to be opened."""

    def __init__(self, disk: Disk, index: int, validators: ValidatorSet, chain_id: str, retry_ms: int = 250) -> None:
        self.is_done = False
        self._disk = disk
        self._index = index
        self._validators = validators
        self._namespace = chain_id.encode()
        self._retry_ms = retry_ms
        self._effects: list[Effect] = []
        self._intake: SnapshotIntake | None = None
        self._offer: SnapshotOffer | None = None
        self._asked: dict[int, int] = {}
        """Which chunk each peer was asked for."""
        self._refused: set[int] = set()
        """Peers that sent something wrong."""
        self._idle_rounds = 0
        self._next_peer = index

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
        self._idle_rounds += 1
        if self._idle_rounds > ROUNDS_WITHOUT_PROGRESS:
            self._intake, self._idle_rounds = None, 0
        self._asked.clear()
        self._next_peer = self._peers()[0]  # another one each time: who does not answer must not be asked for ever
        if self._intake is None:
            self._send(self._next_peer, SnapshotRequest())
        else:
            self._ask_for_chunks()
        self._effects.append(SetTimer(JOIN_TIMER, self._retry_ms))

    def _on_message(self, sender: int, payload: bytes) -> None:
        try:
            message = decode_message(payload)
        except CodecError:
            self._refuse(sender, "undecodable")
            return
        if isinstance(message, SnapshotOffer) and self._intake is None:
            self._on_offer(sender, message)
        elif isinstance(message, ChunkResponse) and self._intake is not None:
            self._on_chunk(sender, message, self._intake)

    def _on_offer(self, sender: int, offer: SnapshotOffer) -> None:
        block = decode_block(offer.body)
        if block is None or not self._is_final(header_hash(block.header), offer.certificate):
            self._refuse(sender, "bad_offer")
            return
        header = block.header
        intake = SnapshotIntake(self._disk, STATE_FOLDER, Height(header.height), Hash(header.state_root))
        try:
            intake.take_manifest(offer.manifest)
        except SnapshotError:
            self._refuse(sender, "bad_manifest")
            return
        self._intake, self._offer, self._idle_rounds = intake, offer, 0
        self._go_on(sender)

    def _on_chunk(self, sender: int, response: ChunkResponse, intake: SnapshotIntake) -> None:
        if response.height != intake.height or self._asked.pop(sender, None) != response.chunk:
            return
        try:
            intake.take_chunk(response.chunk, response.data)
        except SnapshotError:
            self._refuse(sender, "bad_chunk")
        else:
            self._idle_rounds = 0
        self._go_on(sender)

    def _go_on(self, sender: int) -> None:
        """Ask for what is missing, or make the folder ready."""
        assert self._intake is not None, "an offer was taken"
        if not self._intake.is_complete:
            self._ask_for_chunks()
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
        block = ArchivedBlock(offer.body, offer.receipts, offer.certificate, intake.root)
        begin_archive(self._disk, ArchiveStart(intake.height, block))
        intake.install()
        self.is_done = True

    def _ask_for_chunks(self) -> None:
        assert self._intake is not None, "an offer was taken"
        asked = set(self._asked.values())
        waiting = [chunk for chunk in self._intake.missing() if chunk not in asked]
        for peer in self._peers():
            if waiting and peer not in self._asked:
                self._asked[peer] = waiting.pop(0)
                self._send(peer, ChunkRequest(self._intake.height, self._asked[peer]))

    def _is_final(self, digest: Hash, encoded: bytes) -> bool:
        try:
            certificate = decode_consensus(encoded)
        except MessageError:
            return False
        return (
            isinstance(certificate, Certificate)
            and certificate.kind == VoteKind.FINALIZE
            and Hash(certificate.digest) == digest
            and verify_certificate(certificate, self._validators, self._namespace)
        )

    def _peers(self) -> list[int]:
        """Whom to ask, beginning behind the last one asked; everybody again where all have sent something wrong."""
        everybody = [peer for peer in range(len(self._validators)) if peer != self._index]
        if self._refused.issuperset(everybody):
            self._refused.clear()
        start = self._next_peer
        peers = [peer for peer in everybody if peer not in self._refused]
        return sorted(peers, key=lambda peer: (peer <= start, peer))

    def _refuse(self, peer: int, reason: str) -> None:
        self._refused.add(peer)
        self._effects.append(PeerFault(peer, reason))

    def _send(self, peer: int, message: PeerMessage) -> None:
        self._effects.append(Send(peer, encode_message(message)))
