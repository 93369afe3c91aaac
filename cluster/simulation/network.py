"""The network of a simulated run: messages leave machines, travel over links, and arrive in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.faults.link_effects import LinkFaults
from cluster.faults.link_model import Links
from cluster.simulation.clock import VirtualClock
from cluster.simulation.machine import Machine
from consensus.messages import Vote, vote_of
from validator.chain.messages import Reading
from validator.node.shared_work import SharedReader

MAX_TWIN_DELAY_US: Final = 20 * MICROSECONDS_PER_MILLISECOND
"""Maximum delay with which a twin, a second validator with the same key, gets a message after the first one."""


class Network:
    """Carries messages between the machines of one run."""

    def __init__(
        self,
        clock: VirtualClock,
        random: Random,
        links: Links,
        machines: Sequence[Machine],
        twins: Mapping[int, Machine],
        draw_us: Callable[[], int] | None = None,
    ) -> None:
        """``draw_us`` draws the time that a message takes in addition to that of its link. ``machines`` and ``twins``,
        which are keyed by index, may be filled later."""
        self.links = links
        self.faults = LinkFaults(links)
        self.reader = SharedReader()
        self._clock = clock
        self._random = random
        self._machines = machines
        self._twins = twins
        self._draw_us = draw_us

    def send(self, sender: int, recipient: int | None, payload: bytes) -> None:
        """Send a message to one peer, or to all if ``recipient`` is ``None``."""
        machine, content = self._machines[sender], self.reader.read(payload)
        listeners = machine.listeners
        for sends in listeners.sends:
            sends(machine, recipient, payload, content)
        if listeners.votes and (vote := vote_of(content)) is not None:
            for votes in listeners.votes:
                votes(machine, vote)
        recipients = range(len(self._machines)) if recipient is None else (recipient,)
        arrivals = self.links.arrivals(sender, recipients, len(payload), self._clock.now_us)
        if later_us := self._leader_delay_us(machine):
            arrivals = [(target, at_us + later_us) for target, at_us in arrivals]
        if self._draw_us is not None:
            arrivals = [(target, at_us + self._draw_us()) for target, at_us in arrivals]
        for sent in listeners.sent:
            sent(machine, recipients, payload, arrivals)
        self._clock.send(sender, payload, arrivals, self.arrive)

    def arrive(self, sender: int, recipient: int, payload: bytes) -> None:
        """Deliver a message that has arrived."""
        content, machine, peer = self.reader.read(payload), self._machines[recipient], self._machines[sender]
        for receives in machine.listeners.receives:
            receives(machine, peer, payload)
        if isinstance(content, Vote) and machine.take_vote(sender, content):
            for counts in machine.listeners.counts:
                counts(machine, peer, content)
        else:
            machine.take_message(lambda: _hand_over(peer, machine, payload, content))
        twin = self._twins.get(recipient)
        if twin is not None:  # it is at another place in the network
            delay_us = self._random.randrange(MAX_TWIN_DELAY_US)
            self._clock.after(delay_us, f"{sender}>{recipient} twin", payload, lambda: twin.receive(sender, payload))

    def _leader_delay_us(self, machine: Machine) -> int:
        """The delay in microseconds that a fault adds to a machine's message if its validator leads now, or 0."""
        if not self.faults.delay_leaders:
            return 0
        validator = machine.validator
        return self.faults.leader_delay_us() if validator and validator.node.leader == machine.index else 0


def _hand_over(sender: Machine, machine: Machine, payload: bytes, content: Reading | None) -> None:
    for hears in machine.listeners.hears:
        hears(machine, sender, content)
    machine.receive(sender.index, payload, content)
    for heard in machine.listeners.heard:
        heard(machine, sender, content)
