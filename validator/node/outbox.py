"""The effects of one event: the parts of a node emit them into one list, in the order of performance."""

from __future__ import annotations

from consensus import interface as engine_border
from consensus.interface import HARMLESS_REASONS
from consensus.messages import encode_evidence, encode_unchecked
from validator.chain.messages import ConsensusMessage, PeerMessage, encode_message
from validator.node import events
from validator.node.events import Effect, EvidenceFound, PeerFault, Send
from validator.storage.journal import encode_batch


class Outbox(list[Effect]):
    """Effects that are returned at the end of their event."""

    def send(self, recipient: int | None, message: PeerMessage) -> None:
        """Send a message to one peer, or to all of them if ``recipient`` is ``None``."""
        self.append(Send(recipient, encode_message(message)))

    def fault(self, peer: int, reason: str) -> None:
        """Report a peer that sent something that no honest peer sends."""
        self.append(PeerFault(peer, reason))

    def blame(self, kind: str, culprit: int, proof: bytes) -> None:
        """Report a validator's provable misbehaviour."""
        self.append(EvidenceFound(kind, culprit, proof))
        self.fault(culprit, f"evidence_{kind}")

    # --- effects of the consensus engine --------------------------------------------------------------------------

    def broadcast(self, effect: engine_border.Broadcast) -> None:
        """Send a message of the engine to all peers."""
        self.send(None, ConsensusMessage(encode_unchecked(effect.message)))

    def send_to(self, effect: engine_border.SendTo) -> None:
        """Send a message of the engine to one peer."""
        self.send(effect.recipient, ConsensusMessage(encode_unchecked(effect.message)))

    def start_timer(self, effect: engine_border.StartTimer) -> None:
        """Start a timer of the engine."""
        self.append(events.SetTimer(events.TimerName(effect.kind.value, effect.view), effect.delay_ms))

    def persist(self, effect: engine_border.Persist) -> None:
        """Append the engine's records, and the body with them, to the journal."""
        bodies = () if effect.body is None else (effect.body,)
        self.append(events.Append(effect.token, encode_batch(effect.records, bodies)))

    def certify(self, effect: engine_border.Notarized | engine_border.Nullified | engine_border.Finalized) -> None:
        """Report a certificate that the engine knows."""
        self.append(events.Certified(effect.certificate))

    def accuse(self, effect: engine_border.Report) -> None:
        """Report the contradictory votes that the engine found."""
        evidence = effect.evidence
        self.blame(type(evidence).__name__, evidence.first.signer, encode_evidence(evidence))

    def reject(self, effect: engine_border.Rejected) -> None:
        """Report a message that the engine dropped."""
        if effect.reason in HARMLESS_REASONS:
            self.append(events.Dropped(effect.sender, effect.reason))
        else:
            self.fault(effect.sender, effect.reason)

    def drain(self) -> list[Effect]:
        """Remove and return all effects."""
        effects = self[:]
        self.clear()
        return effects
