"""Deliberately broken validators, by which the harness proves itself.

A mutant is a small named patch outside the production path: a subclass of the state transition, or of one of its
phases, that replaces exactly one step, for the one validator that the scenario names. It counts how often the mutated
line ran. Caught means that the check named for it fails, the line ran, and the same seed passes without it.
"""

from __future__ import annotations

from cluster.mutants.base import Mutant
from cluster.mutants.double_fire import DOUBLE_FIRE
from cluster.mutants.wrong_balance import WRONG_BALANCE

MUTANTS: dict[str, Mutant] = {mutant.name: mutant for mutant in (WRONG_BALANCE, DOUBLE_FIRE)}
"""Every mutant, by the name that scenarios use."""

__all__ = ["MUTANTS", "Mutant"]
