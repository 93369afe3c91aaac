"""A policy with parameters: a tip counts once more for each ``step`` blocks of waiting, ``most`` times at most."""

from validator.chain.records import Timer
from validator.policies.cip1 import Cip1Phase


class Premium(Cip1Phase):
    formula = None
    replaces = {"order"}
    policy_parameters = {
        "step": {"default": 1, "min": 1, "max": 30},
        "most": {"default": 8, "min": 0, "max": 64},
    }

    def score(self, timer: Timer, tip: int) -> int:
        waited = self.terms.height - timer.trigger_height
        return (tip + 1) * (1 + min(self.own["most"], waited // self.own["step"]))
