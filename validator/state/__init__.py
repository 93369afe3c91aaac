"""Authenticated state: keys and values under one Merkle root, versioned per block.

The rest of the validator uses only the interface (:mod:`validator.state.interface`). How the root is computed is
internal to this package, and described in ``docs/state.md``.
"""

from validator.state.interface import Batch, StateStore, View
from validator.state.log import Recovery
from validator.state.store import HistoryError, LogStateStore, StaleViewError
from validator.state.treeless import TreelessStore

__all__ = [
    "Batch",
    "HistoryError",
    "LogStateStore",
    "Recovery",
    "StaleViewError",
    "StateStore",
    "TreelessStore",
    "View",
]
