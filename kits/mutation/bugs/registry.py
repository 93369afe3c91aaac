"""All planted bugs of validators. They are registered under ``stampede.planted``, and scenarios name them."""

from __future__ import annotations

from typing import Final

from cluster.misbehaviour.planted import Planted
from kits.mutation.bugs import (
    blocks,
    certificates,
    consensus,
    mempool,
    scheduler,
    state,
    storage,
    subtle,
    unchecked,
)

OF_VALIDATORS: Final[dict[str, Planted]] = {
    bug.name: bug
    for bug in (
        *consensus.MUTANTS,
        *certificates.MUTANTS,
        *mempool.MUTANTS,
        *blocks.MUTANTS,
        *unchecked.MUTANTS,
        *scheduler.MUTANTS,
        *state.MUTANTS,
        *storage.MUTANTS,
        *subtle.MUTANTS,
    )
}
"""Every bug of validators, keyed by the name that scenarios use."""
