"""A posted price with ageing: each cycle of a fire costs what the chain posts, and a tip counts more the longer the
timer has waited, so that a low tip comes first some day."""

from validator.chain.records import Timer
from validator.policies.cip1 import Cip1Phase, Cip1Rules
from validator.primitives.params import Parameters


class PostedPrice(Cip1Rules):
    """The lane has one price, which does not follow its use."""

    def lane_price(self, basefee_lane: int, parameters: Parameters) -> int:
        return self.own["lane_price"]

    def fee_floor(self, basefee_lane: int, parameters: Parameters) -> int:
        return self.own["lane_price"]

    def next_basefee_lane(self, basefee_lane: int, basefee_cycle: int, used: int, parameters: Parameters) -> int:
        return basefee_lane


class Ageing(Cip1Phase):
    """A timer's score is its tip, raised by a share for each block that it has waited."""

    rules = PostedPrice()
    formula = None
    replaces = {"order", "prices"}
    policy_parameters = {
        "lane_price": {"default": 1_000, "min": 0, "max": 1_000_000_000_000},
        "growth_milli": {"default": 250, "min": 0, "max": 100_000},
    }

    def score(self, timer: Timer, tip: int) -> int:
        waited = self.terms.height - timer.trigger_height
        return (tip + 1) * (1_000 + self.own["growth_milli"] * waited)
