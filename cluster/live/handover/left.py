"""A live run as one driver leaves it to another: the content of a checkpoint, in one structure.

Each part of a driver exports its state as a plain record, and is rebuilt from that record. A record has only numbers,
texts, lists and records: no object of the driver, and no function. A change of its fields needs another
:data:`VERSION`. A :class:`LeftRun` with a dangling reference is refused (:class:`ValueError`). What grows with a run is
in separate files (:mod:`cluster.live.handover.rows`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, Final, Literal, NamedTuple

import msgspec

from cluster.common.limits import MAX_SEED, is_seed
from cluster.disks.bit_rot import Rot
from cluster.faults.calls import FaultCall, Restart, StartValidator, UpgradeStart
from cluster.live.host.reports import HostReports
from cluster.live.injection import Injection
from cluster.live.means import MeansCall
from cluster.live.nodes.ray_nodes import Place
from cluster.live.processes.history import Phase, ProcessHistory
from cluster.live.processes.processes import Process
from cluster.record.message_trace import TraceState
from cluster.record.resources import ResourceState
from cluster.record.saved import SavedRecord, SavedValidator
from cluster.scenario import Scenario
from cluster.scenario.sections.faults import Release
from loadgen.runplan import Statistics
from validator.node.events import BlockFinal

VERSION: Final[Literal[8]] = 8

RunPhase = Literal["following", "ending", "collected"]
"""Phase of a run, as named in :mod:`cluster.live.handover.handover`."""

# --- calls to make ----------------------------------------------------------------------------------------------------


class Prepared(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Make the call ``then``. This call is due once the code of an upgrade is compiled."""

    then: LiveCall


class TakePlace(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Have an actor with other code take the place of a host that was shut down."""

    host: int


class Together(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Make several calls, one after the other."""

    calls: list[LiveCall]


LiveCall = FaultCall | Prepared | TakePlace | Together | MeansCall


def references(call: LiveCall | None) -> Iterator[tuple[str, int]]:
    """The kind and the number of each validator and host that a call looks up when it is made."""
    match call:
        case Restart(_, indices) | UpgradeStart(_, indices):
            yield from (("validator", index) for index in indices)
        case StartValidator(index):
            yield "validator", index
        case TakePlace(host):
            yield "host", host
        case Prepared(then):
            yield from references(then)
        case Together(calls):
            for each in calls:
                yield from references(each)


# --- testnet and hosts ------------------------------------------------------------------------------------------------


class KeptRay(NamedTuple):
    """A Ray that outlives its driver: how another driver finds it."""

    address: str
    namespace: str
    """Ray namespace of the run's actors."""
    lease_s: float
    """How long the hosts go on without a driver."""
    folder: str | None = None
    """Folder of a Ray that the run started itself."""
    token: str | None = None
    """Token of a Ray that the run started itself."""
    nodes: int = 1


class LeftLoad(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The load of a driver that died: how another driver continues it."""

    process: Process | None = None
    before: Statistics = msgspec.field(default_factory=Statistics)
    """The counts of loads that ended earlier."""
    began_epoch_ms: int | None = None
    is_over: bool = True
    """Whether the load was told to stop, or there is none."""


class LeftTestnet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A testnet that outlives its driver: how another driver finds it."""

    served: tuple[str, int]
    """Address and port of its endpoint."""
    ray: KeptRay | None
    load: LeftLoad
    hosts: dict[int, str]
    """The names of the actors, keyed by host number."""


DiskOperation = Literal["wipe", "flip", "arrive"]
"""An operation on a validator's disk: the name of the host's method that performs it."""


class LeftHost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One host (:class:`~cluster.live.driver.supervised_host.Host`), without its open question and its pause."""

    number: int
    place: Place
    validators: list[int]
    late: dict[int, int]
    is_placed: bool
    moves: int
    release: Release
    phase: Phase
    why_lost: str | None
    is_held_down: bool
    pending_disk_operations: list[tuple[DiskOperation, tuple[int | Rot, ...]]]
    processes: ProcessHistory
    reports: HostReports


class LeftHosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All hosts of a run."""

    all: list[LeftHost]
    compiled: list[tuple[Place, str]]
    """Places where code of other folders was compiled, or is being compiled."""
    calls: list[LiveCall]
    """Calls to make once the orders under way are complete. Another driver gives the orders again."""
    lost_nodes: set[str]


# --- faults -----------------------------------------------------------------------------------------------------------


class LeftCall(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """A scheduled call."""

    at_ms: float
    """Time since the run began."""
    number: int
    """Sequence number: of calls at the same time the lower one is first."""
    what: LiveCall


class LeftAgenda(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scheduled calls (:class:`~cluster.live.driver.live_stage.Agenda`)."""

    count: int
    due: list[LeftCall]

    def __post_init__(self) -> None:
        numbers = {each.number for each in self.due}
        if len(numbers) < len(self.due) or max(numbers, default=0) > self.count:
            raise ValueError(f"each planned call has another number, and none is above {self.count}")


class LeftLooks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a host's process was seen to be stopped, in milliseconds since the run began."""

    host: int
    process: Process
    seen_ms: list[float]


class LeftPauses(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The validators that are paused (:class:`~cluster.live.driver.live_stage.Pauses`)."""

    paused: set[int]
    seen: list[LeftLooks]


class LeftStage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of the fault stage of a run (:class:`~cluster.live.driver.live_stage.LiveStage`)."""

    agenda: LeftAgenda
    means: dict[str, Any]
    """State of the means, as plain data of theirs (:class:`~cluster.live.means.Means`)."""
    injection: Injection
    pauses: LeftPauses


# --- watches ----------------------------------------------------------------------------------------------------------


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
    """Number of rows of :class:`~cluster.live.handover.rows.Told` that were judged."""


class LeftAudit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a run's audit (:class:`~cluster.live.audit.live_audit.LiveAudit`)."""

    known: dict[int, SavedValidator]
    safety: LeftSafety


# --- the run ----------------------------------------------------------------------------------------------------------


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


class LeftJournal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of a run's journal from which its loop comes to where it was."""

    size: int
    """Its length in bytes."""
    blake3: str
    """Its hash, in hex: nothing else is told to a loop."""


class LeftRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run that outlives its driver: all that another driver needs to continue it."""

    version: Literal[8]
    """Version of the fields: :data:`VERSION`."""
    commit: str
    phase: RunPhase
    clock: LeftClock
    scenario: Scenario
    """The scenario with which the run began."""
    is_open: bool
    """Whether it began without an end."""
    journal: LeftJournal
    height: int
    """The highest final height."""
    stop_on_fail: bool
    testnet: LeftTestnet
    record: SavedRecord
    """Without what is in separate files (:data:`~cluster.record.saved.BESIDES`)."""
    watch: LeftWatch
    stage: LeftStage
    hosts: LeftHosts
    audit: LeftAudit

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ValueError(problem)

    def _problems(self) -> Iterator[str]:
        if not is_seed(self.record.seed):
            yield f"record.seed: {self.record.seed} is not between 0 and {MAX_SEED}"
        numbers = [host.number for host in self.hosts.all]
        if numbers != [*range(len(numbers))]:
            yield f"hosts: their numbers are {numbers}; expected {[*range(len(numbers))]}"
        known: dict[str, Container[int]] = {
            "validator": range(self.scenario.validators.count),
            "host": range(len(numbers)),
        }
        for call in (*(due.what for due in self.stage.agenda.due), *self.hosts.calls):
            for kind, number in references(call):
                if number not in known[kind]:
                    yield f"a call to come is for {kind} {number}, which is not there"
