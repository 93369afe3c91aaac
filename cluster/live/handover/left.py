"""What one driver of a live run leaves to another besides journal and rows: the content of a checkpoint.

The run's loop comes to where it was by its journal, and its orders without an answer are carried out again
(:attr:`~cluster.run.loop.RunLoop.due`). Here is what neither the loop nor the hosts, Ray or the run's folder can tell.
A record has only numbers, texts, lists and records: no object of the driver, and no function. A change of its fields
needs another :data:`VERSION`. What grows with a run is in separate files (:mod:`cluster.live.handover.rows`).
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from cluster.common.limits import MAX_SEED, is_seed
from cluster.disks import Trap
from cluster.disks.bit_rot import Rot
from cluster.live.host.reports import HostReports
from cluster.live.nodes.ray_nodes import KeptRay, Place
from cluster.live.processes.history import Phase, ProcessHistory
from cluster.live.processes.processes import Process
from cluster.record.message_trace import TraceState
from cluster.record.resources import ResourceState
from cluster.record.saved import SavedRecord, SavedValidator
from cluster.scenario import Scenario
from cluster.scenario.sections.faults import Release
from loadgen.runplan import Statistics
from validator.node.events import BlockFinal

VERSION: Final[Literal[9]] = 9

RunPhase = Literal["following", "ending", "collected"]
"""Phase of a run, as named in :mod:`cluster.live.handover.handover`."""
DiskOperation = Literal["wipe", "flip", "arrive"]
"""An operation on a validator's disk: the name of the host's method that performs it."""


class LeftLoad(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The load of a driver that died: how another driver continues it."""

    process: Process | None = None
    before: Statistics = msgspec.field(default_factory=Statistics)
    """The counts of loads that ended earlier."""
    began_epoch_ms: int | None = None
    is_over: bool = True
    """Whether the load was told to stop, or there is none."""


class LeftHost(msgspec.Struct, forbid_unknown_fields=True):
    """What a driver knows of a host: processes that are gone cannot be asked."""

    place: Place
    """The current place, or the last one while the host has none."""
    has_actor: bool = False
    """Whether its actor is to be found; ``False`` while its node is lost."""
    moves: int = 0
    """How often the host moved to another node and started validators there, or is about to."""
    release: Release = Release()
    """The code that the host is to run."""
    phase: Phase = Phase.DOWN
    why_lost: str | None = None
    """Why the host is dead, or went down by itself; until its successor answers."""
    pending_disk_operations: list[tuple[DiskOperation, tuple[int | Rot, ...]]] = []
    """Methods of the host and their arguments, for the next process before it starts validators."""
    processes: ProcessHistory = msgspec.field(default_factory=ProcessHistory)
    reports: HostReports = msgspec.field(default_factory=HostReports)


class LeftStage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What faults have begun on the hosts, besides what is in force by the loop."""

    injections: int
    """Number of the newest injection: hosts ignore older ones."""
    traps: dict[int, tuple[int, Trap]]
    """Disk failures that have not happened yet, each with the number of its injection: a host sets it once."""
    stopped: set[tuple[int, Process, float]]
    """Looks at which a process was seen stopped: host, process, and time since the run began."""
    means: dict[str, Any]
    """State of the means, as plain data of theirs (:class:`~cluster.live.means.Means`)."""


class SeenChain(msgspec.Struct, forbid_unknown_fields=True):
    """What was seen of the chain: each validator reports a block once, and it is counted once."""

    heights: set[int] = set()
    """The newest heights of which a block was reported."""
    newest: BlockFinal | None = None
    fires: int = 0
    transactions: int = 0

    @property
    def height(self) -> int:
        """The highest final height."""
        return 0 if self.newest is None else self.newest.height


class LeftAudit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The findings of a run's audit: validators and reports that are gone cannot be asked again."""

    known: dict[int, SavedValidator]
    counts: dict[str, int]
    """Number of evaluations of certificates and votes, keyed by rule."""
    violations: list[str]
    rows: int
    """Number of rows of :class:`~cluster.live.handover.rows.Told` that were judged."""


class LeftClock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When and where a run's checkpoint was written."""

    at_ms: float
    """Time of the checkpoint, since the run began."""
    written_epoch_s: float
    """Time of the checkpoint, by the machine's clock."""
    reading: str
    """The driver's reading of the machine's clock (:mod:`cluster.live.processes.steady_clock`)."""
    machine: str
    """The hostname of the driver's machine."""

    def __post_init__(self) -> None:
        float(self.reading.rpartition(" ")[2])  # a ValueError refuses it


class LeftRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run that outlives its driver."""

    version: Literal[9]
    """Version of the fields: :data:`VERSION`."""
    commit: str
    phase: RunPhase
    clock: LeftClock
    scenario: Scenario
    """The scenario with which the run began."""
    is_open: bool
    """Whether it began without an end."""
    stop_on_fail: bool
    journal: tuple[int, str]
    """Length in bytes and BLAKE3, in hex, of the part of the journal from which the loop comes to where it was."""
    record: SavedRecord
    """Without what is in separate files (:data:`~cluster.record.saved.BESIDES`)."""
    served: tuple[str, int]
    """Address and port of the testnet's endpoint."""
    ray: KeptRay | None
    load: LeftLoad
    hosts: list[LeftHost]
    lost_nodes: set[str]
    """Nodes that carry no host any more: one that is about to end may still be alive for Ray."""
    stage: LeftStage
    trace: TraceState
    resources: ResourceState
    chain: SeenChain
    audit: LeftAudit

    def __post_init__(self) -> None:
        if not is_seed(self.record.seed):
            raise ValueError(f"record.seed: {self.record.seed} is not between 0 and {MAX_SEED}")
