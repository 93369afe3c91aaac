"""The watches of a live run as one driver leaves them to another. They fill the run's record.

Finalizations, proposals and blocks are in separate files, to which rows are appended.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from cluster.record.message_trace import TraceState
from cluster.record.resources import ResourceState
from cluster.record.saved import SavedValidator
from validator.node.events import BlockFinal


class SeenBlock(NamedTuple):
    """A final block as the dashboard shows it, and when it was first seen, in milliseconds since the run began."""

    at_ms: float
    height: int
    view: int
    transactions: int
    fires: int
    lane_cycles: int


class SeenChain(msgspec.Struct, forbid_unknown_fields=True):
    """What was seen of the chain, each block counted once."""

    heights: set[int]
    """The newest heights of which a block was reported."""
    newest: BlockFinal | None
    fires: int
    transactions: int


class LeftWatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Observations of the chain (:class:`~cluster.live.driver.chain_watch.ChainWatch`)."""

    trace: TraceState
    resources: ResourceState
    chain: SeenChain
    blocks: list[SeenBlock]
    """The newest final blocks, in the order in which they were seen."""


class LeftSafety(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The findings about certificates and votes (:class:`~cluster.live.audit.safety_watch.SafetyWatch`)."""

    counts: dict[str, int]
    """Number of evaluations, keyed by rule."""
    violations: list[str]
    rows: int
    """Number of rows of :class:`~cluster.live.handover.told.Told` that were judged."""


class LeftAudit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a run's audit (:class:`~cluster.live.audit.live_audit.LiveAudit`)."""

    known: dict[int, SavedValidator]
    safety: LeftSafety
