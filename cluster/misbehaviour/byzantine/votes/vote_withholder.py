"""``vote-withholder``: takes part, but sends no votes except those in its own proposals."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.misbehaviour.byzantine.base import Behaviour
from consensus.messages import Message, Proposal, vote_of
from validator.node.events import Effect, Send


class VoteWithholder(Behaviour):
    name = "vote-withholder"
    description = "sends no votes except those in its own proposals"

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        if vote_of(message) is None or isinstance(message, Proposal):
            yield send
        else:
            self.count_effect()
