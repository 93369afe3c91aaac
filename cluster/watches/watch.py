"""The base of the watches, observers that judge what honest validators do, and what decides which an event concerns.

An event that a validator has handled concerns watches by what it is about and by the kinds of its effects. Events and
effects have no subclasses. Their type is compared: ``isinstance`` takes ten times as long for a structure of msgspec
that is of another class.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import lru_cache
from typing import ClassVar, Final

from msgspec import structs

from cluster.audit.safety.rule_log import Look
from cluster.record.rules import Mechanism
from cluster.simulation.machine import Machine
from cluster.simulation.observer import Observer
from consensus.messages import Vote
from validator.chain.messages import Reading
from validator.node.events import Completed, Effect, Event, Message, Run, Send, Started, Timeout


class Watch(Observer):
    """Watches the machines of honest validators, and tells the safety monitor's log of each rule that it evaluates."""

    SUBJECTS: ClassVar[frozenset[type | str]] = frozenset()
    """What the events are about that :meth:`judge` is called with, or their types
    (:func:`cluster.watches.handled.subject_of`)."""
    JUDGED: ClassVar[frozenset[type]] = frozenset()
    """The kinds of effects of which one is enough for :meth:`judge` to be called
    (:func:`cluster.watches.handled.kinds_of`)."""

    def __init__(self, names: Sequence[str], look: Look) -> None:
        self._names = names
        self._look = look
        self.reached: set[Mechanism] = set()
        """Mechanisms that at least one validator was seen to use."""

    def concerns(self, machine: Machine) -> bool:
        """Only honest validators are judged."""
        return machine.byzantine is None and not machine.is_twin

    def begins(self, machine: Machine) -> None:
        """The validator has handled the event with which it starts."""

    def judge(self, machine: Machine, event: Event, effects: Sequence[Effect]) -> None:
        """The validator has handled an event that concerns the watch, by its subject or by its effects."""


REMEMBERED_CHOICES: Final = 1 << 10
"""Number of kinds of events, with those of their effects, for which it is remembered which watches they concern."""

Read = Callable[[bytes], Reading | None]
"""Decodes a message."""


class Broadcast:
    """The kind of :class:`Send` to all peers."""


class Choice(Watch):
    """Passes the events that honest validators handle on to those watches that they concern."""

    def __init__(self, watches: Sequence[Watch], catch_up: Watch, lacking: Container[int], read: Read) -> None:
        """``catch_up`` is one of ``watches``. It gets all events of the validators ``lacking`` final blocks."""
        self._watches = watches
        self._catch_up = catch_up
        self._lacking = lacking
        self._read = read
        self._concerned = lru_cache(REMEMBERED_CHOICES)(self.concerned)

    def handles(self, machine: Machine, event: Event, effects: Sequence[Effect]) -> None:
        """Most events are votes without effects. They concern no watch."""
        if type(event) is Message:
            if not effects and type(event.content) is Vote:
                return
            if event.content is None:
                event = structs.replace(event, content=self._read(event.payload))
        elif type(event) is Started:
            for watch in self._watches:
                watch.begins(machine)
        lacks_blocks = machine.index in self._lacking
        for watch in self._concerned(type(event), subject_of(event), kinds_of(effects), lacks_blocks):
            watch.judge(machine, event, effects)

    def concerned(
        self, event: type, subject: type | str, kinds: frozenset[type], lacks_blocks: bool
    ) -> tuple[Watch, ...]:
        """The watches that an event concerns: by its type, its subject, the kinds of its effects, and whether the
        validator lacks blocks."""
        return tuple(
            watch
            for watch in self._watches
            if event in watch.SUBJECTS
            or subject in watch.SUBJECTS
            or not kinds.isdisjoint(watch.JUDGED)
            or (lacks_blocks and watch is self._catch_up)
        )


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


def broadcast_of(effects: Sequence[Effect], read: Read) -> list[Reading | None]:
    """The messages to all peers among a validator's effects."""
    return [read(effect.payload) for effect in effects if type(effect) is Send and effect.recipient is None]
