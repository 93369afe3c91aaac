"""What a mutant is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from validator.transition import Transition


class RunCounter:
    """How often a mutated line ran, in one validator."""

    def __init__(self) -> None:
        self.runs = 0

    def ran(self) -> None:
        self.runs += 1


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted bug."""

    name: str
    description: str
    caught_by: str
    """The check that must fail (:mod:`cluster.checks`)."""
    transition: Callable[[RunCounter], type[Transition]]
    """Makes the mutated transition, which tells the counter whenever the mutated line runs."""
