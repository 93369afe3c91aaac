"""The base of the watches: observers that judge what honest validators do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cluster.audit.safety.rule_log import Look
from cluster.record.rules import Mechanism
from cluster.simulation.machine import Machine
from cluster.simulation.observer import Observer
from validator.node.events import Effect, Event


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
