"""The strategies of agents: what an agent offers for a job above the price that each fire pays.

A *premium* is an offer for each cycle above the market's floor. It becomes the priority of a timer under the policies
with fees, and its bid under ``bias_auction``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple


class Seen(NamedTuple):
    """What an agent sees of the market when it makes an offer. Prices are in wei for each cycle."""

    height: int
    floor: int
    """The least price of a fire in the next block."""
    marginal: int
    """The least premium that fired in the last block, if the lane was full; else 0."""


class Strategy:
    """An agent's way to choose premiums."""

    tier: str | None = None
    """The tier that timers are scheduled with, instead of fee fields."""
    leaves_open: bool = False
    """Whether the fee fields are left open, for the default agent or the actor's own."""

    def premium(self, job: int, room: int, seen: Seen) -> int:
        """The premium for a job; 0 unless a strategy says more.

        ``room``: what the job is worth to the agent, for each cycle, above the floor. ``job``: the job's number.
        """
        return 0

    def bids_now(self, job: int, room: int, seen: Seen, due: int) -> bool:
        """Whether a job's timer is scheduled in the next block; else the agent is asked again a block later.

        ``due``: the height at which the fire is wanted. The others are those of :meth:`premium`; ``room`` is not
        negative.
        """
        return True

    def learn(self, job: int, gain: float) -> None:
        """Hear what a job gained, as a share of its value; 0 if it did not fire."""


class Truthful(Strategy):
    """Offers the whole value."""

    @classmethod
    def of(cls, random: Random) -> Truthful:
        return cls()

    def premium(self, job: int, room: int, seen: Seen) -> int:
        return room


@dataclass(slots=True)
class Share(Strategy):
    """Offers a share of the value: less than 1 shades the offer, more overbids."""

    share: float

    def premium(self, job: int, room: int, seen: Seen) -> int:
        return int(room * self.share)


class Spammer(Strategy):
    """Offers nothing above the floor."""


@dataclass(slots=True)
class Outbidder(Strategy):
    """Offers a little more than the least premium that fired in the last block, up to the value."""

    step: float = 1.05

    def premium(self, job: int, room: int, seen: Seen) -> int:
        return min(room, max(1, int(seen.marginal * self.step)))


class DefaultAgent(Strategy):
    """Leaves the fee fields open: the default agent bids, or the actor's program if it has one."""

    leaves_open = True


@dataclass(slots=True)
class Tier(Strategy):
    """Names a tier instead of a price."""

    tier: str | None


SHARES: Final = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0)
"""The shares among which a learner chooses."""
CURIOSITY: Final = 0.1
"""Share of jobs for which a learner tries a share at random."""
MEMORY: Final = 0.1
"""Least weight of the newest gain in the mean of a share."""


@dataclass(slots=True)
class Learner(Strategy):
    """Looks for the share of its value that gains most, by trying: an ε-greedy bandit over :data:`SHARES`.

    Its best responses make the market of strategic agents: each one adapts to what the others do.
    """

    random: Random
    means: list[float] = field(default_factory=lambda: [1.0] * len(SHARES))
    """Mean gain of each share, of late. All begin at 1, the greatest one, so each is tried."""
    heard: list[int] = field(default_factory=lambda: [0] * len(SHARES))
    """Number of gains heard of each share."""
    tried: dict[int, int] = field(default_factory=dict)
    """The place of the share that was offered for each job without an answer."""

    def premium(self, job: int, room: int, seen: Seen) -> int:
        chosen = max(range(len(SHARES)), key=lambda place: (self.means[place], -place))
        if self.random.random() < CURIOSITY:
            chosen = self.random.randrange(len(SHARES))
        self.tried[job] = chosen
        return int(room * SHARES[chosen])

    def learn(self, job: int, gain: float) -> None:
        place = self.tried.pop(job)
        self.heard[place] += 1
        self.means[place] += max(MEMORY, 1 / self.heard[place]) * (gain - self.means[place])

    @property
    def favourite(self) -> float:
        """The share that gained most so far."""
        return SHARES[max(range(len(SHARES)), key=lambda place: (self.means[place], -place))]


CONDUCT: Final[Mapping[str, Callable[[Random], Strategy]]] = {"truthful": Truthful.of, "learning": Learner}
"""Strategies of markets in which all agents are alike, by name."""
