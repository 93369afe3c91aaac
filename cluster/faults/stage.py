"""The network as the engine of faults last saw it, and the orders that it gives."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.faults.calls import FaultCall
from cluster.faults.events import FaultOrder, Network, Seat, Tell, Wake
from cluster.scenario.sections.faults import AnyFault, DownFault, KillFault, LoseNodeFault, PauseFault, acts_on_pods


class Stage:
    """What faults read of a run, and their orders, which wait for the driver (:meth:`take_orders`)."""

    def __init__(self, validators: int) -> None:
        """``validators`` is their number; nothing is known of them yet."""
        self.network = Network(0.0, tuple(Seat((index,), (index,)) for index in range(validators)), None)
        self.now_ms = 0.0
        """Milliseconds since the run began."""
        self.height = 0
        """The highest final height."""
        self._orders: list[FaultOrder] = []

    def seat(self, index: int) -> Seat:
        """The validator as it was last seen."""
        return self.network.seats[index]

    def order(self, *orders: FaultOrder) -> None:
        self._orders += orders

    def later(self, delay_ms: int, label: str, call: FaultCall) -> None:
        """Have a call told after a delay."""
        self.order(Wake(self.now_ms + delay_ms, label, call))

    def notice(self, text: str) -> None:
        self.order(Tell(f"height {self.height}: {text}"))

    def take_orders(self) -> list[FaultOrder]:
        """The orders since the last call."""
        orders, self._orders = self._orders, []
        return orders

    def sharing_fate(self, index: int, plan: AnyFault) -> Sequence[int] | None:
        """All validators that a fault hits together with this one, including it: those on its host or Ray node.

        ``None`` if such a fault hits only this one.
        """
        network, seat = self.network, self.seat(index)
        if isinstance(plan, LoseNodeFault) or (network.has_pods and acts_on_pods(plan)):
            return seat.on_node
        if isinstance(plan, KillFault) or (network.acts_on_processes and isinstance(plan, DownFault | PauseFault)):
            return seat.on_host
        return None
