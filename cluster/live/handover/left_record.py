"""The observations that one driver of a live run leaves to another: the run's record, and the watches that fill it.

Finalizations, proposals and blocks are in separate files, to which rows are appended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final, NamedTuple

import msgspec

from cluster.record.archive import BlockRecord, Reexecuted
from cluster.record.chain_store import BlockStore, ServedBlocks, as_stored
from cluster.record.message_trace import TraceState
from cluster.record.resources import ResourceState
from cluster.record.run import (
    MAX_SAMPLES,
    Absence,
    DrillRecord,
    JoinRecord,
    Lag,
    LoadRecord,
    MonitorRecord,
    PromiseRecord,
    Reorg,
    Resources,
    RunRecord,
    Sample,
    Supply,
    TraceRecord,
    ValidatorRecord,
)
from cluster.scenario import Scenario
from validator.node.events import BlockFinal


class LeftBlocks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The blocks that a validator served (:class:`~cluster.record.chain_store.ServedBlocks`)."""

    first_height: int
    count: int
    differing: dict[int, BlockRecord]

    @classmethod
    def of(cls, blocks: Sequence[BlockRecord], first_height: int) -> LeftBlocks:
        if isinstance(blocks, ServedBlocks):
            return cls(blocks.first_height, len(blocks), blocks.differing)
        return cls(first_height, len(blocks), dict(enumerate(blocks, first_height)))

    def again(self, store: BlockStore) -> Sequence[BlockRecord]:
        """Rebuild the served blocks from the store. Blocks that the store no longer has are left out."""
        return as_stored(ServedBlocks.known(store, self.first_height, self.count, self.differing))


class LeftValidator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that was collected from one validator (:class:`~cluster.record.run.ValidatorRecord`)."""

    name: str
    index: int
    blocks: LeftBlocks
    first_height: int
    status: dict[str, Any] | None
    balances: dict[str, int]
    pending_timers: dict[str, bool]
    supply: Supply | None
    trace: bytes
    mutant: str | None
    mutant_runs: int
    byzantine: tuple[str, ...]
    serves_state: bool = True

    @classmethod
    def of(cls, found: ValidatorRecord) -> LeftValidator:
        blocks = LeftBlocks.of(found.blocks, found.first_height)
        return cls(**{each.name: getattr(found, each.name) for each in fields(found)} | {"blocks": blocks})

    def again(self, store: BlockStore) -> ValidatorRecord:
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return ValidatorRecord(**values | {"blocks": self.blocks.again(store)})


class LeftRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run's record (:class:`~cluster.record.run.RunRecord`), without the fields :data:`ELSEWHERE`."""

    scenario: Scenario
    given: Scenario | None
    former: list[Scenario]
    validators: list[LeftValidator]
    lost: list[LeftValidator]
    samples: list[Sample]
    trace: TraceRecord
    resources: list[Resources]
    lags: list[Lag]
    joins: list[JoinRecord]
    monitor: MonitorRecord | None
    promises: PromiseRecord | None
    reexecuted: Reexecuted | None
    load: LoadRecord
    duration_ms: float
    stop_requested_at_height: int | None
    interrupted: bool
    time_up: str
    absences: list[Absence]
    seen_violations: dict[str, list[str]]
    problems: list[str]
    own_problems: list[str]
    digest: str | None
    checkpoints: dict[int, str]
    metrics: dict[str, int | float]
    reorgs: list[Reorg]
    drill: DrillRecord | None

    @classmethod
    def of(cls, record: RunRecord) -> LeftRecord:
        """The record as it is now. It shares the record's lists: do not change it."""
        values = {name: getattr(record, name) for name in cls.__struct_fields__}
        validators, lost = [[LeftValidator.of(each) for each in found] for found in (record.validators, record.lost)]
        return cls(**values | {"validators": validators, "lost": lost, "samples": list(record.samples)})

    def enter(self, record: RunRecord) -> None:
        """Fill the record of another driver, whose store already has the run's blocks."""
        for name in self.__struct_fields__:
            setattr(record, name, getattr(self, name))
        record.validators = [each.again(record.store) for each in self.validators]
        record.lost = [each.again(record.store) for each in self.lost]
        record.samples = deque(self.samples, maxlen=MAX_SAMPLES)


ELSEWHERE: Final = frozenset(
    {
        "backend",  # it is live
        "seed",  # in the LeftRun itself, as is the next
        "commit",
        "began_epoch_ms",
        "genesis",  # rebuilt from scenario and seed
        "scheme",
        "kept_ledger",
        "store",  # in separate files, as is the next
        "finalizations",
        "proposals",
        "faults",  # the stage's
        "timings",  # no other driver takes a calibration over
    }
)
"""Fields of a record that a :class:`LeftRecord` does not have."""


class SeenBlock(NamedTuple):
    """A final block as the dashboard shows it, and when it was first seen, in milliseconds since the run began."""

    at_ms: float
    height: int
    view: int
    transactions: int
    fires: int
    lane_cycles: int


class LeftWatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Observations of the chain (:class:`~cluster.live.driver.chain_watch.ChainWatch`)."""

    trace: TraceState
    resources: ResourceState
    heights: set[int]
    newest: BlockFinal | None
    fires: int
    transactions: int
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

    known: dict[int, LeftValidator]
    safety: LeftSafety
