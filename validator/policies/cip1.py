"""The policy ``cip1`` (SPEC §6 to §9): an auction in a lane with a basefee, by tips and fairness weights."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from validator.chain.records import Fires, Timer, fires_key
from validator.execution.lane_rules import LaneRules
from validator.policies.auction import AuctionPhase, AuctionRules
from validator.primitives.params import Parameters, WeightParty
from validator.primitives.types import Address
from validator.scheduler.order import Formula
from validator.scheduler.pricing import lane_price, next_basefee


class Cip1Rules(AuctionRules):
    """The rules of ``cip1``: the lane's own price is on top of the cycle's basefee, and is the fee floor (SPEC §7)."""

    __slots__ = ()
    timers_first: ClassVar[bool] = False

    def lane_price(self, basefee_lane: int, parameters: Parameters) -> int:
        return lane_price(basefee_lane, parameters)

    def fee_floor(self, basefee_lane: int, parameters: Parameters) -> int:
        return lane_price(basefee_lane, parameters)

    def next_basefee_lane(self, basefee_lane: int, basefee_cycle: int, used: int, parameters: Parameters) -> int:
        target, slope = parameters.lane_timer_cycles // 2, parameters.lane_basefee_slope
        return next_basefee(basefee_lane, used, target, slope, parameters)


class Cip1Phase(AuctionPhase):
    """The timer phase of ``cip1``: a score is the tip, with its floor, times the actor's fairness weight (SPEC §8).

    The weight is of at most 31 bits if it is exact, and of 18 if it is rounded, so a score is of at most 128.
    """

    __slots__ = ()
    rules: ClassVar[LaneRules] = Cip1Rules()
    formula: ClassVar[Formula] = Formula.PRODUCT

    def score(self, timer: Timer, tip: int) -> int:
        weight = self.fairness.weight(self.account_of(timer.actor))
        return (tip + self.terms.parameters.priority_floor) * weight

    def account_of(self, actor: Address) -> Address:
        """The account for which an actor's fires are counted: its own, or that of its deployer (``WEIGHT_PARTY``)."""
        if self.terms.parameters.weight_party is WeightParty.ACTOR:
            return actor
        record = self.world.actor(actor)
        assert record is not None, "a timer's actor exists"
        return record.deployer

    def count_fires(self) -> None:
        """Count this block's fires for the fairness window."""
        counts = Counter(self.account_of(Address(fire.actor)) for fire in self.fires)
        if counts:
            self.world.put(fires_key(self.terms.height), Fires(tuple(sorted(counts.items()))))

    def _kernel_prices(self) -> npt.NDArray[np.void]:
        prices = AuctionPhase._kernel_prices(self)
        prices["floor"], prices["divisor"] = self.terms.parameters.priority_floor, self.fairness.divisor
        if self.fairness.rounding is not None:
            prices["formula"] = Formula.ROUNDED
            prices["median"], prices["least_weight"], prices["most_weight"] = self.fairness.rounding
        return prices
