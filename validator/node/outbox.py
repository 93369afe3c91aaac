"""The effects of one event: the parts of a node emit them into one list, in the order of performance."""

from __future__ import annotations

from validator.chain.messages import PeerMessage, encode_message
from validator.node.events import Effect, EvidenceFound, PeerFault, Send


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

    def drain(self) -> list[Effect]:
        """Remove and return all effects."""
        effects = self[:]
        self.clear()
        return effects
