"""The network as the engine of faults last saw it, what is in force there, and the orders that it gives."""

from __future__ import annotations

from cluster.faults.events import FaultCall, FaultOrder, Impair, Network, Seat, SetLinks, Tell, Wake
from cluster.faults.impairment import Impairment
from cluster.faults.link_effects import LinkEffect


class Stage:
    """What faults read of a run, and their orders, which wait for the driver (:meth:`take_orders`)."""

    def __init__(self, validators: int) -> None:
        """``validators`` is their number; nothing is known of them yet."""
        self.network = Network(0.0, tuple(Seat((index,), (index,)) for index in range(validators)), None)
        self.now_ms = 0.0
        """Milliseconds since the run began."""
        self.height = 0
        """The highest final height."""
        self._links: dict[int, LinkEffect] = {}
        """The effects on links that are in force, by the faults' keys."""
        self._impairments: dict[int, tuple[list[int], Impairment]] = {}
        """The impairments in force, each with its validators, by the faults' keys."""
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

    def set_links(self, key: int, effect: LinkEffect | None, then: FaultCall) -> None:
        """Put the effect of a fault on links in force in place of an earlier one; ``None`` ends it."""
        self._links.pop(key, None)
        if effect is not None:
            self._links[key] = effect
        self.order(self.renewed(SetLinks({}, then)))

    def impair(self, key: int, indices: list[int], impairment: Impairment | None, then: FaultCall) -> None:
        """Put the impairment of validators by a fault in force, next to those of other faults; ``None`` ends it."""
        self._impairments.pop(key, None)
        if impairment is not None:
            self._impairments[key] = indices, impairment
        self.order(self.renewed(Impair(dict.fromkeys(indices, Impairment()), then)))

    @property
    def links(self) -> dict[int, LinkEffect]:
        """The effects on links that are in force, by the faults' keys, in their order."""
        return dict(sorted(self._links.items()))

    @property
    def impairments(self) -> dict[int, Impairment]:
        """The impairments in force, by validator."""
        parts: dict[int, list[Impairment]] = {}
        for indices, part in self._impairments.values():
            for index in indices:
                parts.setdefault(index, []).append(part)
        return {index: Impairment.together(each) for index, each in parts.items()}

    def renewed(self, order: SetLinks | Impair) -> SetLinks | Impair:
        """The order with what is to be in force by now."""
        if isinstance(order, SetLinks):
            return order._replace(faults=self.links)
        in_force = self.impairments
        return order._replace(impairments={each: in_force.get(each, Impairment()) for each in order.impairments})
