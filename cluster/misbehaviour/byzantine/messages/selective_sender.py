"""``selective-sender``: sends messages only to one half of its peers, never to the others."""

from __future__ import annotations

from cluster.misbehaviour.byzantine.base import Behaviour, BehaviourContext
from validator.node.events import Effect, Send


class SelectiveSender(Behaviour):
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
