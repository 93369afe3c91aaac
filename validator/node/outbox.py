"""The effects of one event: the parts of a node emit them into one list, in the order in which they are performed."""

from __future__ import annotations

from validator.chain.messages import PeerMessage, encode_message
from validator.node.events import Effect, EvidenceFound, PeerFault, Send


class Outbox(list[Effect]):
    """Effects that wait for the end of their event."""

    def send(self, recipient: int | None, message: PeerMessage) -> None:
        """Send a message to one peer, or to all of them if ``recipient`` is ``None``."""
        self.append(Send(recipient, encode_message(message)))

    def fault(self, peer: int, reason: str) -> None:
        """A peer sent something that no honest peer sends."""
        self.append(PeerFault(peer, reason))

    def blame(self, kind: str, culprit: int, proof: bytes) -> None:
        """A validator misbehaved, provably so."""
        self.append(EvidenceFound(kind, culprit, proof))
        self.fault(culprit, f"evidence_{kind}")

    def drain(self) -> list[Effect]:
        """Take all effects out."""
        effects = self[:]
        self.clear()
        return effects
