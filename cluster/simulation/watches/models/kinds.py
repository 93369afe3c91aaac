"""The kinds of events and effects by which watches choose those that concern them.

Events and effects have no subclasses. Their type is compared: ``isinstance`` takes ten times as long for a structure of
msgspec that is of another class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from cluster.scenario.sections.consensus import ConsensusSection
from cluster.simulation.machine import Machine
from validator.chain.messages import Reading
from validator.node.assembly import Validator
from validator.node.events import Completed, Effect, Event, Message, Run, Send, Timeout


class Broadcast:
    """The kind of :class:`Send` to all peers."""


class Handled(msgspec.Struct, frozen=True):
    """An event that a machine's honest validator handled, with its effects."""

    machine: Machine
    validator: Validator
    event: Event
    effects: Sequence[Effect]
    read: Callable[[bytes], Reading | None]
    """Decodes a message."""
    consensus: ConsensusSection
    """The present section ``consensus`` of the scenario."""

    @property
    def broadcast(self) -> list[Reading | None]:
        """The messages to all peers."""
        sent = [effect.payload for effect in self.effects if type(effect) is Send and effect.recipient is None]
        return list(map(self.read, sent))


Check = Callable[[Handled], None]
"""A check of a handled event. It ignores an event that does not concern it."""


def subject_of(event: Event) -> type | str:
    """What an event is about: the type of a message's content or of a job's result, the owner of a timer, otherwise
    the event's own type."""
    if type(event) is Message:
        return type(event.content)
    if type(event) is Timeout:
        return event.timer.owner
    return type(event.result) if type(event) is Completed else type(event)


def kinds_of(effects: Sequence[Effect]) -> frozenset[type]:
    """The kinds of effects: their types; of a job that is given to the executor, the type of the job; of a message to
    all peers, :class:`Broadcast`."""
    types = frozenset(map(type, effects))
    return types if Send not in types and Run not in types else frozenset(map(_kind_of, effects))


def _kind_of(effect: Effect) -> type:
    if type(effect) is Run:
        return type(effect.job)
    return Broadcast if type(effect) is Send and effect.recipient is None else type(effect)
