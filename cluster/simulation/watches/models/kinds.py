"""The kinds of events and effects by which watches choose those that concern them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from validator.node.events import Completed, Effect, Event, Message, Run, Send, Timeout

_NONE: Final[frozenset[type]] = frozenset()


class Broadcast:
    """The kind of :class:`Send` to all peers."""


def subject_of(event: Event) -> type | str:
    """What an event is about: the type of a message's content or of a job's result, the owner of a timer, otherwise
    the event's own type."""
    if isinstance(event, Message):
        return type(event.content)
    if isinstance(event, Timeout):
        return event.timer.owner
    return type(event.result) if isinstance(event, Completed) else type(event)


def kinds_of(effects: Sequence[Effect]) -> frozenset[type]:
    """The kinds of effects: their types; of a job that is given to the executor, the type of the job; of a message to
    all peers, :class:`Broadcast`."""
    if not effects:
        return _NONE
    kinds = set[type]()
    for effect in effects:
        if isinstance(effect, Run):
            kinds.add(type(effect.job))
        else:
            kinds.add(Broadcast if isinstance(effect, Send) and effect.recipient is None else type(effect))
    return frozenset(kinds)
