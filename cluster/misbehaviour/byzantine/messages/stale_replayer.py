"""``stale-replayer``: sends earlier messages, which it sent or received, to all peers again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from cluster.misbehaviour.byzantine.base import Behaviour, BehaviourContext, Heard
from consensus.messages import Message
from validator.node.events import Effect, Send

REMEMBERED = 256
"""Maximum number of past messages to choose from."""
REMEMBERED_BYTES = 64 * 1024
"""Maximum size of a message that is kept for replay, in bytes."""
REPLAYED_AT_A_TIME = 2


class StaleReplayer(Behaviour):
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
