"""All mutants. Their modules are loaded only here, not with the package."""

from __future__ import annotations

from cluster.misbehaviour.mutants import (
    blocks,
    certificates,
    consensus,
    lanes,
    mempool,
    scheduler,
    state,
    storage,
    subtle,
    unchecked,
)
from cluster.misbehaviour.mutants.base import Mutant

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        *consensus.MUTANTS,
        *certificates.MUTANTS,
        *mempool.MUTANTS,
        *blocks.MUTANTS,
        *unchecked.MUTANTS,
        *scheduler.MUTANTS,
        *lanes.MUTANTS,
        *state.MUTANTS,
        *storage.MUTANTS,
        *subtle.MUTANTS,
    )
}
"""Every mutant of validators, keyed by the name that scenarios use."""
