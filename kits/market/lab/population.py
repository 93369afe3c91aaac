"""The demand of a market: groups of agents, and the jobs that they want done.

An *agent* is one party with a purse and a strategy; it has one actor, or several. A *job* is a fire that an agent wants
at a height. Its value is known to the agent alone. The value falls evenly to zero over the job's life. Jobs depend on
the seed and the group alone, not on the policy, so that policies meet the same demand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from random import Random
from typing import Final

from cluster.common.errors import BadInput
from kits.market.lab.strategies import Strategy, Truthful

FLOOR_PRICE: Final = 10_000
"""The least basefee of a cycle, in wei. Values are multiples of it."""
EXACT: Final = Context(prec=30)
"""Decimal arithmetic, whose exponential is rounded correctly: values are the same on all platforms."""


@dataclass(frozen=True, slots=True)
class Job:
    """A fire that an agent wants. ``number`` is its place among all jobs of a market."""

    number: int
    group: str
    agent: int
    """Number of the agent in its group."""
    actor: int
    """Number of the actor among those of its agent."""
    due: int
    """Height at which the fire is wanted."""
    cycles: int
    """The fire's gas limit, and within 1 % its use."""
    value: int
    """Value of a fire at ``due``, in wei."""
    life: int
    """Number of blocks after which a late fire is worth nothing."""
    left: Callable[[int, int, int], int] | None = None
    """As :attr:`Group.left`."""

    def value_at(self, height: int) -> int:
        """The value of a fire at a height: nothing before ``due``, then less with each block."""
        late = height - self.due
        if not 0 <= late < self.life:
            return 0
        return (
            self.value * (self.life - late) // self.life
            if self.left is None
            else self.left(self.value, late, self.life)
        )

    @property
    def last_height(self) -> int:
        """The last height at which a fire has a value."""
        return self.due + self.life - 1

    @property
    def worth(self) -> int:
        """The value for each cycle, at ``due``."""
        return self.value // self.cycles


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group of agents that draw their jobs from the same distributions."""

    name: str
    agents: int
    load: float
    """Mean demand of the group, as a share of the timer lane. Each agent has at most one job a block."""
    strategy: Callable[[Random], Strategy] = Truthful.of
    """Makes an agent's strategy, with a generator of random numbers that is the agent's."""
    cycles: tuple[int, int] = (10_000, 80_000)
    """Least and greatest gas limit of a job."""
    worth: float = 40.0
    """Median value for each cycle at the wanted height, as a multiple of :data:`FLOOR_PRICE`. Values are lognormal."""
    spread: float = 0.8
    """Standard deviation of the logarithm of a value."""
    life: int = 30
    value: Callable[[float, int], int] | None = None
    """An agent's valuation, in place of ``worth`` and ``spread``: the value of a job in wei, by a normal random number
    and the job's cycles."""
    left: Callable[[int, int, int], int] | None = None
    """What is left of a value after some blocks of the life: ``left(value, late, life)``. ``None``: it falls evenly. It
    never rises, and programs that bid take it to fall evenly."""
    actors: int = 1
    """Number of actors of an agent, which have its jobs by turns. One address deploys them."""
    early: int = 0
    """Number of blocks before the wanted height for which a job's timer is scheduled."""
    notice: int = 2
    """Number of blocks before its trigger height at which a timer is scheduled."""
    active: tuple[float, float] = (0.0, 1.0)
    """The part of the run, as shares of its blocks, in which the group has jobs."""
    later: float = 1.0
    """The load in the second half of the run, as a multiple of that in the first."""
    burst: tuple[int, int] = (1, 1)
    """``(on, period)``: the group has jobs in the first ``on`` of each ``period`` blocks, as many as its load says."""
    budget_milli: int | None = None
    """What an agent's actors have to spend on fires, in thousandths of the value of the agent's jobs; ``None``: no end.
    """
    bids_by_program: bool = False
    """Whether the actors are programs that bid at the time of the fire, for which the fee fields are left open."""

    def is_active(self, due: int, blocks: int) -> bool:
        start, end = (share * blocks for share in self.active)
        on, period = self.burst
        return start < due <= end and due % period < on

    def jobs(self, seed: int, blocks: int, lane_cycles: int) -> Iterator[tuple[int, int, int, int]]:
        """``(due, agent, cycles, value)`` of each job, in the order of agents and heights."""
        low, high = self.cycles
        on, period = self.burst
        chance = self.load * lane_cycles / ((low + high) / 2) / self.agents * period / on
        if chance * max(1.0, self.later) > 1:
            raise BadInput(f"group {self.name}: {self.agents} agents are too few for a load of {self.load}")
        for agent in range(self.agents):
            random = Random(f"{seed} {self.name} {agent}")
            for due in range(1, blocks + 1):  # all are drawn, so the jobs do not depend on loads and times
                drawn, cycles, spread = random.random(), random.randint(low, high), _normal(random)
                happens = drawn < (chance if due <= blocks / 2 else chance * self.later)
                if happens and due > self.early + self.notice and self.is_active(due, blocks):
                    yield due, agent, cycles, self.valued(spread, cycles)

    def valued(self, normal: float, cycles: int) -> int:
        """The value of a job, in wei. Raises :class:`BadInput` for one that is not positive."""
        if self.value is None:
            worth = EXACT.exp(Decimal(normal * self.spread)) * Decimal(self.worth * FLOOR_PRICE)
            return int(worth) * cycles
        found = int(self.value(normal, cycles))
        if found <= 0:
            raise BadInput(f"group {self.name}: value({normal:.3f}, {cycles}) is {found}; expected a positive number")
        return found


def _normal(random: Random) -> float:
    """A number that is nearly normal: the sum of twelve uniform ones. It is the same on all platforms."""
    return math.fsum(random.random() for _ in range(12)) - 6


def draw_jobs(groups: Sequence[Group], seed: int, blocks: int, lane_cycles: int) -> list[Job]:
    """The jobs of all groups by wanted height."""
    drawn = sorted(
        (due, place, agent, cycles, value)
        for place, group in enumerate(groups)
        for due, agent, cycles, value in group.jobs(seed, blocks, lane_cycles)
    )
    turns: dict[tuple[int, int], int] = {}
    jobs: list[Job] = []
    for due, place, agent, cycles, value in drawn:
        group, turn = groups[place], turns.get((place, agent), 0)
        turns[place, agent] = turn + 1
        job = Job(len(jobs), group.name, agent, turn % group.actors, due, cycles, value, group.life, group.left)
        jobs.append(job)
    return jobs
