"""Behaviours that lie once in each view, when they hear its proposal or make it."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.misbehaviour.byzantine.base import VIEWS_REMEMBERED, Behaviour, BehaviourContext, Heard
from consensus.messages import Message, Proposal
from consensus.types import View
from validator.node.events import Effect, Event


class EachView(Behaviour):
    """One that says in :meth:`lie` what it has to say in a view: ahead of the votes for the view's block."""

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._begun: dict[View, None] = {}

    def lie(self, view: View) -> Iterator[Effect]:
        """The messages that it adds in a view."""
        raise NotImplementedError

    def react(self, event: Event, heard: Heard | None) -> list[Effect]:
        return [] if heard is None else list(self._begin(heard.message))

    def say(self, send: Effect, message: Message) -> Iterator[Effect]:
        yield from self._begin(message)
        yield send

    def _begin(self, message: Message) -> Iterator[Effect]:
        if not isinstance(message, Proposal) or message.view in self._begun:
            return
        self._begun[message.view] = None
        while len(self._begun) > VIEWS_REMEMBERED:
            del self._begun[next(iter(self._begun))]
        yield from self.lie(message.view)
