"""A run of a handler: its meter, and what it did.

A run that fails takes back all that it changed, but for its cycles and cells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from spec.encoding import NO_HASH, Address, Effects, Event, Hash, Movement, Scheduled, Sent, uint
from spec.world import Failure, World

MESSAGES_PER_TRANSACTION = 1_024
MESSAGES_PER_DEFERRED_RUN = 2
"""Messages and jobs of a transaction, and of a fire, a message or a callback."""


class Meter:
    """The cycles and cells of a run, and their limits."""

    def __init__(self, world: World, cycles: int, cells: int) -> None:
        self.world, self.cycle_limit, self.cell_limit = world, cycles, cells
        self.cycles = self.cells = 0

    def charge(self, cycles: int, cells: int = 0) -> None:
        """Raises ``OutOfCycles``, which uses up all cycles, or ``OutOfCells``, which leaves the cycles charged."""
        if self.cycles + cycles > self.cycle_limit:
            self.world.reached("A-12")
            self.cycles = self.cycle_limit
            raise Failure("OutOfCycles")
        self.cycles += cycles
        if self.cells + cells > self.cell_limit:
            raise self.world.failure("A-13", "OutOfCells")
        self.cells += cells


class Run:
    """One run of a handler of ``actor``, called by ``sender``."""

    def __init__(self, world: World, meter: Meter, actor: Address, sender: Address) -> None:
        self.world, self.meter, self.actor, self.sender = world, meter, actor, sender
        self.allowance: int | None = None
        """What the transaction's timers may still cost its sender; ``None`` outside of the transaction phase."""
        self.messages_left = MESSAGES_PER_DEFERRED_RUN
        self.reserved = 0
        """The cycles that it reserved for messages and jobs."""
        self.is_query = False
        """Whether it is the run of an agent's ``get_gas_bid``."""
        self.callback_of = b""
        """The job whose callback it is."""
        self.value = 0
        self.origin: Hash = NO_HASH
        self.prepaid = 0
        """What is charged already for the next call."""
        self.movements: list[Movement] = []
        self.scheduled: list[Scheduled] = []
        self.changes: list[Any] = []
        self.events: list[Event] = []
        self.messages: list[Sent] = []

    @property
    def height(self) -> int:
        return self.world.height

    @property
    def effects(self) -> Effects:
        return Effects(self.movements, self.scheduled, self.changes, self.events, self.messages)

    def move(self, source: Address, target: Address, amount: int) -> None:
        """Move an amount. Raises ``InsufficientBalance``."""
        self.world.debit(source, amount)
        self.world.credit(target, amount)
        if amount:
            self.movements.append(Movement(source, target, uint(amount)))

    def report(self, name: str, **fields: str) -> None:
        self.events.append(Event(name, self.actor, list(fields.items())))

    def prepay(self, cycles: int) -> None:
        """Charge the part of the next call that does not depend on its arguments, before they are read."""
        self.meter.charge(cycles)
        self.prepaid = cycles

    def pay(self, cycles: int, cells: int = 0, rule: str = "") -> None:
        """Charge a call, by a rule."""
        self.world.reached(rule, rule)
        prepaid, self.prepaid = self.prepaid, 0
        self.meter.charge(cycles - prepaid, cells)

    def change(self, cycles: int, cells: int = 0, rule: str = "") -> None:
        """Charge a call that changes something. A query pays the cycles, and fails."""
        self.pay(cycles, 0 if self.is_query else cells, rule)
        if self.is_query:
            raise Failure("ReadOnly")


class Ended(NamedTuple):
    """How a run ended, as receipts have it. The error's name is empty if it returned."""

    ok: bool
    error: str
    cycles: int
    cells: int
    effects: Effects


def perform(run: Run, body: Callable[[], None]) -> Ended:
    """Perform a run. If it fails, all that it changed is taken back, numbers included."""
    world, meter, error, effects = run.world, run.meter, "", run.effects
    mark = world.mark()
    try:
        body()
    except Failure as failure:
        world.reached("B-11", world.mark() > mark)
        world.reached("R-21", run.scheduled or run.messages)
        world.back(mark)
        run.reserved, error, effects = 0, failure.name, Effects([], [], [], [], [])
    else:
        world.events.extend(run.events)
    return Ended(not error, error, meter.cycles, meter.cells, effects)
