"""Feeds the loop of a run, for both drivers: tells it what was seen, and has its orders performed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cluster.faults.events import FaultSeen
from cluster.run.events import Order, Seen
from cluster.run.loop import RunLoop


class Feed:
    """Connects a driver and the loop of its run.

    ``look()`` returns how the network is now. ``perform(order)`` performs an order, and returns its answers.
    ``note(seen, orders)`` is called with all that the loop was told, before the orders that follow are performed.
    """

    def __init__(
        self,
        loop: RunLoop,
        look: Callable[[], Iterable[Seen]],
        perform: Callable[[Order], Iterable[Seen]],
        note: Callable[[Seen, Sequence[Order]], None] = lambda seen, orders: None,
    ) -> None:
        self._loop = loop
        self._look = look
        self._perform = perform
        self._note = note

    def see(self, seen: Seen) -> None:
        """Tell the loop what was seen, have its orders performed in their order, and tell it the answers."""
        orders = self._loop.handle(seen)
        self._note(seen, orders)
        answers = [answer for order in orders for answer in self._perform(order)]
        for answer in answers:
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
