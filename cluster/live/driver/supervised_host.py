"""One host as the driver knows it: its phase, its processes, and the reports of its validators."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import asdict

from cluster.disks.bit_rot import Rot
from cluster.live.handover.left import DiskOperation, LeftHost
from cluster.live.host.validator_loop import LoopState
from cluster.live.nodes.ray_nodes import Place
from cluster.live.processes.history import Phase

ARRIVE: Final = "arrive"
"""The method of a host that announces a validator from a lost node."""
STALE_S: Final = 3.0
"""A host that did not answer for this long has no heights any more."""


def actor_name(host: int, actor: int) -> str:
    """The name of an actor of a host. The host's first one has the number 1."""
    return f"host-{host}.{actor}"


class Host(LeftHost, kw_only=True, eq=False):
    """One host as the driver knows it. :class:`~cluster.live.driver.hosts.Hosts` changes its attributes, too."""

    number: int
    validators: list[int]
    """Indices of the validators that it carries."""
    late: dict[int, int] = {}
    """Join heights of the validators that join later, keyed by index."""
    actor: Any = None
    """Handle of the host's Ray actor; ``None`` while the host has no place, since its node is lost."""
    question: Any = None
    """Pending answer to the question that is open; ``None`` if none is."""
    is_held_down: bool = False
    """Whether its validators must not be started."""
    is_paused: bool = False
    """Whether its process is stopped: it does not answer, but is not lost."""
    answered_s: float = 0.0
    """Time of the last answer (monotonic)."""

    @property
    def left(self) -> LeftHost:
        """The state for another driver that takes the run over: it finds the actor, if there is one, by its name."""
        fields = {name: getattr(self, name) for name in LeftHost.__struct_fields__}
        return LeftHost(**fields | {"has_actor": self.is_placed})

    @classmethod
    def of(cls, left: LeftHost, number: int, validators: list[int], late: dict[int, int]) -> Host:
        """The host that another driver left. Its actor is to be found (:meth:`find`)."""
        return cls(number=number, validators=validators, late=late, actor=left.has_actor or None, **asdict(left))

    def find(self, find: Callable[[str], Any], forget: Callable[[Any], None]) -> None:
        """Find the actor that another driver has left, by its name.

        That driver may have created a newer actor after its checkpoint; no validator was started there. The newer actor
        takes the place of the known one if that has ended; otherwise the newer one is ended.
        """
        self.answered_s = -math.inf
        if self.is_placed:
            self.actor = find(self.actor_name)
            if self.actor is None:
                self.went_down()
                self.phase, self.why_lost = Phase.DEAD, "it had ended before another driver came"
        newer = find(actor_name(self.number, self.processes.actors + 1))
        if newer is None:
            return
        self.processes.actors += 1
        if self.phase is Phase.DEAD:
            self.actor, self.phase, self.why_lost = newer, Phase.DOWN, None
        else:
            forget(newer)

    @property
    def actor_name(self) -> str:
        """The name of its newest actor."""
        return actor_name(self.number, self.processes.actors)

    @property
    def pid(self) -> int | None:
        return None if self.processes.current is None else self.processes.current.pid

    @property
    def is_running(self) -> bool:
        """Whether the host has a process that carries validators, or is about to."""
        return self.phase in (Phase.STARTING, Phase.UP)

    @property
    def can_answer(self) -> bool:
        """Whether the host will eventually answer an order."""
        return (self.is_running or self.phase is Phase.STOPPING) and not self.is_paused

    @property
    def not_ready(self) -> list[int]:
        """Its validators that cannot be queried for their state: down, or not recovered or joined yet."""
        states = self.reports.states if self.is_running else {}
        return [index for index in self.validators if index not in states or not states[index].ready]

    @property
    def is_silent(self) -> bool:
        """Whether it did not answer recently."""
        return time.monotonic() - self.answered_s > STALE_S

    def note_answer(self) -> None:
        self.answered_s = time.monotonic()

    def state(self, index: int) -> LoopState | None:
        """A validator's last state; ``None`` if it does not run."""
        return self.reports.states.get(index)

    def newest_state(self, index: int) -> LoopState | None:
        """A validator's state; ``None`` if it is not ready or did not answer recently."""
        state = self.state(index)
        return None if state is None or not state.ready or self.is_silent else state

    def height(self, index: int) -> int | None:
        """A validator's final height; ``None`` if it is not ready or did not answer recently."""
        state = self.newest_state(index)
        return None if state is None else state.height

    def view(self, index: int) -> int | None:
        """A validator's view; ``None`` if it is not ready or did not answer recently."""
        state = self.newest_state(index)
        return None if state is None else state.view

    def describe(self, index: int) -> str:
        """A validator's condition in a word, for the sample."""
        state = self.state(index)
        if state is None and self.phase is Phase.UP:
            return "absent"  # it joins later
        if state is None or self.phase is not Phase.UP:
            return self.phase.value
        if state.diverged:
            return "diverged"
        if self.is_silent:
            return "silent"
        return "up" if state.ready else "joining"

    def is_started(self, height: int) -> bool:
        """Whether every validator that takes part at a height was started."""
        return all(index in self.reports.states for index in self.carried_at(height))

    def carried_at(self, height: int) -> list[int]:
        """Its validators that take part at a height."""
        return [index for index in self.validators if self.late.get(index, 0) <= height]

    def went_down(self, why_lost: str | None = None) -> None:
        """Note that the process is gone, or about to be. ``why_lost`` is the reason if it went down by itself."""
        self.phase = Phase.DOWN
        self.why_lost = why_lost
        self.is_paused = False
        self.question = None
        self.processes.end()
        self.reports.end()

    def doubt(self, why_lost: str) -> None:
        """Note that Ray has given up the actor, and that its node may have ended, too."""
        self.went_down(why_lost)
        self.phase = Phase.DOUBTED

    def give_up(self) -> str:
        """Note that the host is lost for good, although its node is not. Returns the reason."""
        self.phase = Phase.DEAD
        return self.why_lost or ""

    @property
    def is_placed(self) -> bool:
        return self.actor is not None

    @property
    def is_on_a_node(self) -> bool:
        """Whether the host is placed, or Ray has given up its actor there."""
        return self.is_placed or self.phase is Phase.DEAD

    def lose_place(self, is_certain: bool) -> None:
        """Note that the node is lost with the host's process. With ``is_certain`` that process is known to be gone."""
        self.processes.have_surely_ended = is_certain
        if self.phase is not Phase.DOWN:
            self.went_down()
        self.why_lost, self.question, self.actor = None, None, None
        self.processes.successor = None
        self.processes.note_death()

    def move(self, place: Place) -> None:
        """Assign another node to the host. Validators that ever ran are told so before they start there."""
        is_on_its_way = any(method == ARRIVE for method, _ in self.pending_disk_operations)
        if self.reports.addresses and not is_on_its_way:
            self.moves += 1
            starts = self.processes.deaths
            arrivals: list[tuple[DiskOperation, tuple[int | Rot, ...]]]
            arrivals = [(ARRIVE, (index, self.moves, starts)) for index in self.validators]
            self.pending_disk_operations[:0] = arrivals
        self.place, self.processes.have_surely_ended = place, False

    def revive(self) -> None:
        """Note that the host had not gone down, since its last process answers."""
        self.processes.revive()
        self.phase, self.why_lost = Phase.STARTING, None
