"""A second price: a fire tips, for each cycle, what the next timer in the order offers, and not more than its offer.

It shows how a charge is lowered: the payer gets the difference, and the tips of the block become less by as much."""

from collections.abc import Iterable
from itertools import pairwise

from validator.chain.records import Timer
from validator.execution.timer_phase import Candidate
from validator.policies.cip1 import Cip1Phase
from validator.primitives.meter import Meter


class SecondPrice(Cip1Phase):
    """The auction of ``cip1``, with the tip of the next in the order."""

    replaces = {"prices"}
    policy_parameters = {"reserve_tip": {"default": 0, "min": 0, "max": 1_000_000_000_000}}

    def scan(self, candidates: Iterable[Candidate]) -> None:
        turns = list(candidates)
        self.next_tip = {turn.timer_id: after.tip for turn, after in pairwise(turns)}
        super().scan(turns)

    def settle(self, timer: Timer, candidate: Candidate, meter: Meter, max_cost: int) -> tuple[int, int]:
        burned, tip = super().settle(timer, candidate, meter, max_cost)
        due = max(self.own["reserve_tip"], self.next_tip.get(timer.timer_id, 0))
        rebate = tip - meter.cycles_used * min(candidate.tip, due)
        self.world.credit(timer.fee_payer, rebate)
        self.use.tips -= rebate
        return burned, tip - rebate
