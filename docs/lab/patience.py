"""A policy: ``cip1``, but a timer's tip counts once more for each block that it has waited."""

from validator.chain.records import Timer
from validator.policies.cip1 import Cip1Phase


class Patience(Cip1Phase):
    formula = None
    replaces = {"order"}

    def score(self, timer: Timer, tip: int) -> int:
        return (tip + 1) * (1 + self.terms.height - timer.trigger_height)
