"""What can be seen of a simulated run: the methods of an observer, one for each kind of event.

Recorder, load, tracer, watches, replay and the course of the run are observers, called in the order in which they were
connected. Those that only watch change nothing of a run. A kind that no observer of a machine overrides costs a look at
an empty tuple.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Final

from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.simulation.machine import Listeners, Machine
from consensus.messages import Vote
from validator.chain.messages import Reading
from validator.node.events import Effect, Event


class Observer:
    """Sees what happens in a run. It overrides the methods of what it needs."""

    effects: ClassVar[frozenset[type[Effect]]] = frozenset()
    """The types of effects with which :meth:`performs` is called."""

    def concerns(self, machine: Machine) -> bool:
        """Whether the observer sees what happens on a machine."""
        return not machine.is_twin

    # --- the run ------------------------------------------------------------------------------------------------------

    def forks(self, scenario: Scenario) -> None:
        """Other settings apply."""

    @property
    def violation(self) -> str:
        """The first violation of a rule that was seen so far, in words; empty if there is none."""
        return ""

    def ends(self, record: RunRecord) -> None:
        """The run is over, and the record has what each validator serves."""

    # --- a machine ----------------------------------------------------------------------------------------------------

    def starts(self, machine: Machine) -> None:
        """A machine is about to start."""

    def opens(self, machine: Machine) -> None:
        """The validator has opened its disk. It does so at every start, except after a join."""

    def stops(self, machine: Machine, is_crash: bool) -> None:
        """A machine is about to stop."""

    def pauses(self, machine: Machine) -> None:
        """A machine is about to pause."""

    def goes_on(self, machine: Machine) -> None:
        """A machine is about to continue after a pause."""

    def begins_to_join(self, machine: Machine, nonce: bytes) -> None:
        """A machine without state begins to join by a snapshot, with this nonce."""

    # --- its validator ------------------------------------------------------------------------------------------------

    def gets(self, machine: Machine, event: Event) -> None:
        """An event comes to the validator, or to its join."""

    def handles(self, machine: Machine, event: Event, effects: Sequence[Effect]) -> None:
        """The validator has handled an event. Its effects follow."""

    def performs(self, machine: Machine, effect: Any) -> None:
        """An effect of one of the types in :attr:`effects` is about to be performed."""

    def enters(self, machine: Machine, view: int) -> None:
        """The validator has entered another view."""

    def takes(self, machine: Machine, transactions: Mapping[bytes, bytes]) -> None:
        """The validator tells a client that it has taken these transactions, keyed by their hashes."""

    # --- messages -----------------------------------------------------------------------------------------------------

    def sends(self, machine: Machine, recipient: int | None, payload: bytes, content: Reading | None) -> None:
        """A message is sent to one peer, or to all if ``recipient`` is ``None``. ``content`` is the decoded message."""

    def votes(self, machine: Machine, vote: Vote) -> None:
        """The message that is sent is a vote, or carries one. This comes after :meth:`sends`."""

    def sent(
        self, machine: Machine, recipients: Sequence[int], payload: bytes, arrivals: Sequence[tuple[int, int]]
    ) -> None:
        """A message is on its way. It arrives at those of its recipients, and at those times in microseconds, that
        ``arrivals`` has."""

    def receives(self, machine: Machine, sender: Machine, payload: bytes) -> None:
        """A message arrives at a machine, which may be down or paused."""

    def hears(self, machine: Machine, sender: Machine, content: Reading | None) -> None:
        """A message is about to be delivered to the validator, or to its join."""

    def heard(self, machine: Machine, sender: Machine, content: Reading | None) -> None:
        """A message was delivered, and its effects are performed."""

    def counts(self, machine: Machine, sender: Machine, vote: Vote) -> None:
        """The validator has counted a vote of which no effect follows, without an event (:meth:`Machine.take_vote`)."""


KINDS: Final = tuple(each.name for each in fields(Listeners) if each.name != "performs")


def connect(machine: Machine, observers: Iterable[Observer]) -> None:
    """Let observers see what happens on a machine from now on, those that it concerns."""
    for observer in observers:
        if not observer.concerns(machine):
            continue
        listeners = machine.listeners
        for kind in KINDS:
            if getattr(type(observer), kind) is not getattr(Observer, kind):
                setattr(listeners, kind, (*getattr(listeners, kind), getattr(observer, kind)))
        for effect in observer.effects:
            listeners.performs[effect] = (*listeners.performs.get(effect, ()), observer.performs)
