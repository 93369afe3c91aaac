"""Feeds the loop of a run, for both drivers: tells it what was seen, and has its orders performed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cluster.faults.events import FaultSeen
from cluster.run.events import Order, Seen
from cluster.run.loop import RunLoop

Told = tuple[Seen, Sequence[Order]]
"""What a loop was told, and the orders that follow."""


class Feed:
    """Connects a driver and the loop of its run.

    ``look()`` returns how the network is now. ``perform(order)`` performs an order, and returns its answers.
    ``note(told)`` is called with what the loop was told at once, and the orders that follow of each, before these are
    performed.
    """

    def __init__(
        self,
        loop: RunLoop,
        look: Callable[[], Iterable[Seen]],
        perform: Callable[[Order], Iterable[Seen]],
        note: Callable[[Sequence[Told]], object] = lambda told: None,
    ) -> None:
        self._loop = loop
        self._look = look
        self._perform = perform
        self._note = note

    def see(self, *seen: Seen) -> None:
        """Tell the loop what was seen, have its orders performed in their order, and tell it the answers."""
        told = [(each, self._loop.handle(each)) for each in seen]
        self._note(told)
        answers = [answer for _, orders in told for order in orders for answer in self._perform(order)]
        for answer in answers:
            self.see(answer)

    def go_on(self, due: Iterable[Order]) -> None:
        """Have the orders of another driver carried out that had no answer yet (:attr:`RunLoop.due`)."""
        for order in due:
            for answer in list(self._perform(order)):
                self.see(answer)

    def look(self) -> None:
        """Tell the loop how the network is now."""
        for seen in self._look():
            self.see(seen)

    def see_fault(self, seen: FaultSeen) -> None:
        """Tell the loop something that concerns faults, in the network as it is, and what follows for the network."""
        self.look()
        self.see(seen)
        self.look()
