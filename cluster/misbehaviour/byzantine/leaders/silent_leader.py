"""``silent-leader``: votes like an honest validator, but does not propose when it leads."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.misbehaviour.byzantine.base import Behaviour
from consensus.messages import Message, Proposal
from validator.node.events import Effect, Send


class SilentLeader(Behaviour):
    name = "silent-leader"
    description = "as leader, sends no proposal"

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        if isinstance(message, Proposal):
            self.count_effect()
        else:
            yield send
