"""The mutants that there are. Their modules are loaded here alone, and not with the package."""

from __future__ import annotations

from cluster.mutants import certificates, consensus, scheduler, state, storage, unchecked
from cluster.mutants.base import Mutant
from cluster.mutants.double_fire import DOUBLE_FIRE

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        *consensus.MUTANTS,
        *certificates.MUTANTS,
        *unchecked.MUTANTS,
        DOUBLE_FIRE,
        *scheduler.MUTANTS,
        *state.MUTANTS,
        *storage.MUTANTS,
    )
}
"""Every mutant of validators, by the name that scenarios use."""
