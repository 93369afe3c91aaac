"""The policy ``gba_auction`` (SPEC §13, seed design 000): an auction before the transactions, without a lane price.

A fire pays the cycle's basefee and its tip, and a fee limit covers both, as that of a transaction does. Timers go by
tip, and those of equal tips by the weight that their actors earned (:mod:`validator.scheduler.fairness`). Each actor
has a slice of the lane by its weight; an actor that has used its slice waits until the others had theirs. A timer whose
payer cannot pay is not destroyed, but carried over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from validator.chain.block import FireReceipt
from validator.chain.records import ActorWeight, Timer, actor_weight_key
from validator.execution.lane_rules import LaneRules
from validator.execution.timer_phase import Candidate
from validator.policies.auction import AuctionPhase, AuctionRules
from validator.primitives.params import Parameters
from validator.primitives.types import Address
from validator.scheduler.fairness import ONE, Decay, fixed_point
from validator.scheduler.order import Formula

WEIGHT_BITS: Final = 32
"""Number of low bits of a score that hold the weight; the tip is above them."""


class GbaAuctionRules(AuctionRules):
    """The rules of ``gba_auction``: fee limits are compared with the cycle's basefee; the lane's is an alias of it."""

    __slots__ = ()
    timers_first: ClassVar[bool] = True

    def fee_floor(self, basefee_lane: int, parameters: Parameters) -> int:
        return basefee_lane


@dataclass(slots=True)
class GbaAuctionPhase(AuctionPhase):
    """The timer phase of ``gba_auction``: a score is the tip, then the weight. The lane is given out in two passes."""

    rules: ClassVar[LaneRules] = GbaAuctionRules()
    formula: ClassVar[Formula] = Formula.TIP_FIRST

    used: dict[Address, int] = field(default_factory=dict)
    """The cycles of the lane that each actor's fires have used."""
    closed: set[Address] = field(default_factory=set)
    """Actors that have used their slices."""
    _apart: dict[int, tuple[int, int] | None] = field(default_factory=dict)
    _unpaid: set[bytes] = field(default_factory=set)
    """Ids of timers whose payer could not pay at their turn."""

    def candidates(self) -> Iterator[Candidate]:
        self.supply()
        self._apart = self._priced_apart()
        return self.in_order(self._apart)

    def scan(self, candidates: Iterable[Candidate]) -> None:
        """Fire the candidates within their actors' slices, then the others while the lane lasts, both in order."""
        try:
            AuctionPhase.scan(self, self._of_actors(candidates, is_closed=False))
            if self.closed:
                AuctionPhase.scan(self, self._of_actors(self.in_order(self._apart, closed=True), is_closed=True))
        finally:
            self.index.parties.reopen()

    def _of_actors(self, candidates: Iterable[Candidate], is_closed: bool) -> Iterator[Candidate]:
        """The candidates that wait, and whose actors have used their slices or not.

        The search for candidates leaves the others out already, but for those that it found before their actor closed.
        """
        return self.those_of(candidates, lambda actor: (actor in self.closed) == is_closed)

    def slice_of(self, actor: Address) -> int:
        """The cycles of the lane that an actor may use before it waits for the others."""
        p = self.terms.parameters
        return max(1, p.lane_timer_cycles * self.earned(actor) // (ONE * p.budget_slices))

    def turn_away(self, timer: Timer, needed: int, balance: int) -> bool:
        """Carry over a timer whose payer cannot pay."""
        self._unpaid.add(timer.timer_id)
        return False

    def fire(self, timer: Timer, candidate: Candidate, max_cost: int) -> None:
        AuctionPhase.fire(self, timer, candidate, max_cost)
        self.used[timer.actor] = used = self.used.get(timer.actor, 0) + self.fires[-1].cycles
        if used >= self.slice_of(timer.actor):
            self.closed.add(timer.actor)
            self.index.parties.close(timer.actor)

    def count_fires(self) -> None:
        """Add the scores of this block's fires to their actors' records."""
        p, found = self.terms.parameters, dict[Address, list[int]]()
        decay = Decay.of(p)
        for fire in self.fires:
            score = fire_score(fire, self.terms.height, self.prices.p50_tip, p)
            found.setdefault(Address(fire.actor), []).append(score)
        for actor, scores in sorted(found.items()):
            record = decay.with_fires(self._record(actor), self.epoch, sum(scores), len(scores))
            self.world.put(actor_weight_key(actor), record)

    # --- weights ----------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self.terms.height // self.terms.parameters.epoch_length

    def earned(self, actor: Address) -> int:
        """The weight that an actor has in this epoch."""
        return Decay.of(self.terms.parameters).weight(self._record(actor), self.epoch)

    def weight(self, timer: Timer) -> int:
        """The weight of a timer: its actor's, but no less than that of a starving timer."""
        p, weight = self.terms.parameters, self.earned(timer.actor)
        is_starving = self.terms.height - timer.trigger_height >= p.starvation_blocks
        return max(weight, fixed_point(p.starvation_floor_milli)) if is_starving else weight

    def score(self, timer: Timer, tip: int) -> int:
        return tip << WEIGHT_BITS | self.weight(timer)

    # --- parts ------------------------------------------------------------------------------------------------------

    def _record(self, actor: Address) -> ActorWeight | None:
        record: ActorWeight | None = self.world.get(actor_weight_key(actor))
        return record

    def _reason(self, timer: Timer, expires_at: int) -> str:
        is_unpaid = timer.timer_id in self._unpaid
        return "insufficient_funds" if is_unpaid else AuctionPhase._reason(self, timer, expires_at)

    def _kernel_prices(self) -> npt.NDArray[np.void]:
        prices, p = AuctionPhase._kernel_prices(self), self.terms.parameters
        prices["epoch"] = self.epoch
        prices["decay"], prices["least_weight"], prices["most_weight"] = Decay.of(p)
        prices["starvation_blocks"] = p.starvation_blocks
        prices["starvation_weight"] = fixed_point(p.starvation_floor_milli)
        return prices


def fire_score(fire: FireReceipt, height: int, p50_tip: int, parameters: Parameters) -> int:
    """The score of a fire in units of 1 / :data:`ONE`: the mean of four figures from 0 to 1.

    They are its tip (one half at the median tip), its outcome (0 if it reverted), its lateness (one half after
    ``STARVATION_BLOCKS``), and the share of the lane that it left to others.
    """
    tip, late = int.from_bytes(fire.tip_per_cycle, "big"), height - fire.trigger_height
    tipped = ONE * tip // (tip + p50_tip) if tip + p50_tip else ONE // 2
    waited = ONE * late // (late + parameters.starvation_blocks)
    left = ONE - ONE * fire.cycles // parameters.lane_timer_cycles
    return (tipped + ONE * fire.ok + waited + left) // 4
