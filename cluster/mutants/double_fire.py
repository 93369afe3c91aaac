"""``double-fire``: the first timer of a block fires twice."""

from __future__ import annotations

from cluster.mutants.base import Area, Mutant, RunCounter
from cluster.mutants.scenes import ONE, Hunt
from validator.assembly import Parts
from validator.records import Timer
from validator.scheduler.lane import Candidate, TimerPhase
from validator.transition import Transition


def _parts(counter: RunCounter) -> Parts:
    class DoubleFirePhase(TimerPhase):
        def fire(self, timer: Timer, candidate: Candidate, max_cost: int) -> None:
            payload = self.world.payload_of(timer)
            TimerPhase.fire(self, timer, candidate, max_cost)
            if len(self.fires) == 1 and self.world.balance(timer.fee_payer) >= max_cost:
                counter.ran()
                self.world.add_timer(timer, payload)
                TimerPhase.fire(self, timer, candidate, max_cost)

    class DoubleFire(Transition):
        timer_phase_class = DoubleFirePhase

    return Parts(transition=DoubleFire)


DOUBLE_FIRE = Mutant(
    name="double-fire",
    area=Area.SCHEDULER,
    description="in every block the first timer that fired fires once more",
    caught_by="timers",
    hunt=Hunt("calm", ONE),
    parts=_parts,
)
