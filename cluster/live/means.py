"""What performs the faults of a live run that act on pods: by default nothing, since each host performs its own.

An installed package may do better where it has an entry point of ``stampede.means``: the kit ``kubernetes`` performs
faults by the API of Kubernetes and by Chaos Mesh.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Final, Protocol

from cluster.common.errors import BadInput
from cluster.common.plugins import MEANS, load_named
from cluster.faults.events import FaultCall, Way
from cluster.faults.impairment import Impairment
from cluster.faults.kind import FaultKind
from cluster.faults.link_effects import LinkCounts, LinkEffect, Seen
from cluster.scenario import Scenario
from validator.primitives.offered import expect_class

KUBERNETES: Final = "kubernetes"
"""Name of the entry point."""


class Agenda:
    """Scheduled calls, by time since the run began."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        """The time of each call and its number: of calls at the same time the lower one is first."""
        self._numbers = count()

    @property
    def now_ms(self) -> float:
        return self._now_ms()

    @property
    def next_ms(self) -> float | None:
        """The time of the next call, in milliseconds since the run began; ``None`` if there is none."""
        return self._due[0][0] if self._due else None

    def at(self, at_ms: float, call: Callable[[], None]) -> None:
        """Have ``call`` made at a time of the run."""
        heapq.heappush(self._due, (at_ms, next(self._numbers), call))

    def perform(self) -> None:
        """Make the calls that are due by now."""
        now_ms = self._now_ms()
        while self._due and self._due[0][0] <= now_ms:
            _, _, call = heapq.heappop(self._due)
            call()


class MeansPort(Protocol):
    """The parts of a run on which means act."""

    @property
    def agenda(self) -> Agenda: ...

    def make(self, call: FaultCall) -> None:
        """Make a call of the fault engine."""

    def lose_node(self, host: int, reason: str) -> None:
        """Take all hosts off the Ray node of a host, and hold them down, since the node ends."""

    def link_counts(self, key: int) -> LinkCounts:
        """The messages that a link fault affected in the transport."""


class Means:
    """Leaves every fault to the hosts."""

    port: MeansPort
    """Set once the testnet is up."""

    def __init__(
        self, scenario: Scenario, notice: Callable[[str], None], note_leftovers: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """``note_leftovers`` gets the arguments of :meth:`take_back` whenever they change."""

    @property
    def has_pods(self) -> bool:
        """Whether hosts are in pods that can be taken down."""
        return False

    def prepare(self, faults: Sequence[FaultKind]) -> None:
        """Make ready for faults. Raises :class:`BadInput` if one needs what is not here."""
        for position, fault in enumerate(faults):
            if fault.needs_kubernetes or fault.prefers_chaos_mesh:
                _installed(f"faults[{position}].how: {getattr(fault, 'how', '')}")

    # --- pods ---------------------------------------------------------------------------------------------------------

    def take(self, host: int, way: Way) -> None:
        """Take down the pod of a host."""

    def note_signal(self, host: int, way: Way) -> None:
        """Note that a host gets a signal in place of what ``way`` says."""

    def describe(self, hosts: Iterable[int]) -> list[str]:
        """How hosts were last taken down, in words, if the fault's plan does not say that. Each is returned once."""
        return []

    # --- links and processors -----------------------------------------------------------------------------------------

    def set_links(
        self, faults: Mapping[int, LinkEffect], then: FaultCall
    ) -> tuple[dict[int, LinkEffect], Callable[[], None]]:
        """Have exactly ``faults`` in force. Returns those that the transport must do, and what to call then, which
        makes the call ``then``.
        """
        return self.links_of_hosts(faults), partial(self.port.make, then)

    def links_of_hosts(self, faults: Mapping[int, LinkEffect]) -> dict[int, LinkEffect]:
        """Those of the faults in force that the transport of hosts does."""
        return dict(faults)

    def seen_on_links(self, key: int, effect: LinkEffect) -> Seen:
        """The observed effect of a link fault."""
        return effect.seen(self.port.link_counts(key))

    def set_stress(
        self, impairments: Mapping[int, Impairment], then: FaultCall
    ) -> tuple[dict[int, Impairment], Callable[[], None]]:
        """Begin and end the stress of hosts, as the impairments of their validators say.

        Returns the impairments that the hosts must do themselves, and what to call then, which makes the call ``then``.
        """
        return self.impairments_of_hosts(impairments), partial(self.port.make, then)

    def impairments_of_hosts(self, impairments: Mapping[int, Impairment]) -> dict[int, Impairment]:
        """What hosts do themselves of the impairments in force."""
        return {index: replace(each, stress=None) for index, each in impairments.items()}

    def seen_stress(self, indices: Sequence[int], otherwise: Seen) -> Seen:
        """The observed effect on validators of a fault that ends now. ``otherwise`` is the effect by the executor."""
        return otherwise

    # --- from driver to driver, and the end ---------------------------------------------------------------------------

    @property
    def state(self) -> dict[str, Any]:
        """Plain data for another driver that takes the run over."""
        return {}

    def take_over(self, left: dict[str, Any]) -> None:
        """Restore the state that another driver left. Raises :class:`BadInput` if it is of other means.

        Its orders without an answer are given again.
        """
        if left:
            raise BadInput(
                "the run's faults act on pods; expected the kit kubernetes: pip install 'stampede[kubernetes]'"
            )

    def go_on(self) -> None:
        """Schedule again what was to come, now that the :attr:`port` is there."""

    def note(self) -> None:
        """Note all leftovers: another process may be there that is to undo them."""

    def close(self) -> None:
        """Undo everything that faults have changed outside of the run. Never raises."""

    @staticmethod
    def take_back(facts: Mapping[str, Any], notice: Callable[[str], None]) -> None:
        """Undo what a driver that was killed had noted. Never raises."""


def means_class() -> type[Means]:
    """The class of the means that are installed."""
    try:
        return _installed()
    except BadInput:  # said as soon as a fault needs it
        return Means


def _installed(purpose: str = "") -> type[Means]:
    return load_named(MEANS, KUBERNETES, partial(expect_class, base=Means), purpose=purpose, kit=KUBERNETES)
