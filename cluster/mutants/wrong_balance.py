"""``wrong-balance``: a transaction's sender gets one unit too much back."""

from __future__ import annotations

from cluster.mutants.base import Mutant, RunCounter
from validator.transition import PreparedTransaction, Transition

FIRST_HEIGHT = 6
"""The bug sleeps until this height, so that the height which the checks name is not simply the first."""


def _transition(counter: RunCounter) -> type[Transition]:
    class WrongBalance(Transition):
        def execute(self, prepared: PreparedTransaction) -> None:
            Transition.execute(self, prepared)
            if self.context.height >= FIRST_HEIGHT:
                counter.ran()
                self.world.credit(prepared.transaction.sender, 1)

    return WrongBalance


WRONG_BALANCE = Mutant(
    name="wrong-balance",
    description=f"from height {FIRST_HEIGHT} on, a transaction's sender is refunded one unit too much",
    caught_by="state_roots",
    transition=_transition,
)
