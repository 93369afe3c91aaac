"""Runs a validator's join by a snapshot, and queues the events for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from validator.chain.messages import may_answer_join
from validator.node.events import Effect, Event, Message, Started
from validator.node.snapshot_join import SnapshotJoin

MAX_JOIN_MESSAGES: Final = 4
"""Limit of waiting messages from one peer. A join asks each peer for its view and one other thing at a time."""


class JoinInbox:
    """The queue of events for a validator's join by a snapshot. Events are dropped while no join is under way."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[Event] | None = None
        self._messages: Counter[int] = Counter()
        """Number of queued messages, keyed by sender."""
        self._is_given_up = False

    @property
    def is_open(self) -> bool:
        """Whether a join is under way."""
        return self._events is not None

    def give_up(self) -> None:
        """End a join that is under way or about to begin; data that has arrived stays on the disk."""
        self._is_given_up = True
        if self._events is not None:
            self._events.put_nowait(Started())  # wakes it

    def deliver(self, event: Event) -> None:
        """Add an event. One that does not fit is dropped like a lost message, and requested again."""
        if self._events is None:
            return
        if isinstance(event, Message):
            if self._messages[event.sender] >= MAX_JOIN_MESSAGES or not may_answer_join(event.payload):
                return
            self._messages[event.sender] += 1
        self._events.put_nowait(event)

    async def run(
        self,
        join: SnapshotJoin,
        call: Callable[[Callable[[], Sequence[Effect]]], Awaitable[Sequence[Effect]]],
        perform: Callable[[Effect], None],
    ) -> bool:
        """Run a join to its end. Returns ``False`` if it was given up.

        ``call`` runs a function on a thread, ``perform`` performs an effect.
        """
        events = self._events = asyncio.Queue()
        event: Event = Started()
        while not self._is_given_up:
            for effect in await call(partial(join.handle, event)):
                perform(effect)
            if join.is_done:
                break
            event = await events.get()
            if isinstance(event, Message):
                self._messages[event.sender] -= 1
        self._events = None
        return join.is_done
