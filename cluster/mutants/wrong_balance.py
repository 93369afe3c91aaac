"""``wrong-balance``: a transaction's sender gets one unit too much back."""

from __future__ import annotations

from cluster.mutants.base import Area, Mutant, RunCounter
from cluster.mutants.scenes import ONE, Hunt
from validator.assembly import Parts
from validator.transition import PreparedTransaction, Transition

FIRST_HEIGHT = 6
"""The bug sleeps until this height, so that the height which the checks name is not simply the first."""


def _parts(counter: RunCounter) -> Parts:
    class WrongBalance(Transition):
        def execute(self, prepared: PreparedTransaction) -> None:
            Transition.execute(self, prepared)
            if self.context.height >= FIRST_HEIGHT:
                counter.ran()
                self.world.credit(prepared.transaction.sender, 1)

    return Parts(transition=WrongBalance)


WRONG_BALANCE = Mutant(
    name="wrong-balance",
    area=Area.STATE,
    description=f"from height {FIRST_HEIGHT} on, a transaction's sender is refunded one unit too much",
    caught_by="state_roots",
    hunt=Hunt("calm", ONE),
    parts=_parts,
)
