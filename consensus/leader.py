"""Who leads a view.

Every validator must name the same leader for a view without having seen the same certificates: a certificate of the
view before may be a notarization here and a nullification there, and even equal certificates differ in their signers.
An election may therefore depend on the view and on what all validators of the set share from its start, and on nothing
else. A pseudo-random election takes its seed in its constructor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from consensus.types import ValidatorIndex, View


class LeaderElection(Protocol):
    """Names the one validator that may propose in a view."""

    def leader(self, view: View) -> ValidatorIndex:
        """The leader of ``view``; a pure function."""


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Validators lead in the order of their indices."""

    validators: int

    def leader(self, view: View) -> ValidatorIndex:
        return ValidatorIndex(view % self.validators)
