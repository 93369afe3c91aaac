"""``double-fire``: the first timer of a block fires twice."""

from __future__ import annotations

from cluster.mutants.base import Mutant, RunCounter
from validator.scheduler.lane import Candidate, TimerPhase
from validator.transition import Transition


def _transition(counter: RunCounter) -> type[Transition]:
    class DoubleFirePhase(TimerPhase):
        def scan(self, ordered: list[Candidate]) -> None:
            TimerPhase.scan(self, ordered)
            fired = {fire.timer_id for fire in self.fires}
            for candidate in ordered:
                needed = self.max_cost(candidate)
                if candidate.timer.timer_id in fired and self.world.balance(candidate.timer.fee_payer) >= needed:
                    counter.ran()
                    self.world.add_timer(candidate.timer)
                    self.fire(candidate, needed)
                    return

    class DoubleFire(Transition):
        def timer_phase(self) -> TimerPhase:
            return DoubleFirePhase(self.world, self.parameters, self.terms, self.prices, self.fairness)

    return DoubleFire


DOUBLE_FIRE = Mutant(
    name="double-fire",
    description="in every block the first timer that fired fires once more",
    caught_by="timers",
    transition=_transition,
)
