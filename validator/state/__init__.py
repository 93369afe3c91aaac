"""Authenticated state: keys and values under one Merkle root, versioned per block.

What the rest of the validator relies on is this border (:mod:`validator.state.interface`); how the root is made is the
matter of this package alone, and stands in ``docs/state.md``.
"""

from validator.state.interface import Batch, StateStore, View
from validator.state.log import Recovery
from validator.state.store import HistoryError, LogStateStore, StaleViewError

__all__ = ["Batch", "HistoryError", "LogStateStore", "Recovery", "StaleViewError", "StateStore", "View"]
