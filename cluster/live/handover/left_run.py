"""A live run as one driver leaves it to another: the content of a checkpoint, in one structure.

Each part of a driver exports its state as a plain record, and is rebuilt from that record. A record has only numbers,
texts, lists and records: no object of the driver, and no function. A change of its fields needs another
:data:`VERSION`. A :class:`LeftRun` with a dangling reference is refused (:class:`ValueError`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final, Literal, NamedTuple

import msgspec

from cluster.common.limits import MAX_SEED, is_seed
from cluster.live.handover.calls import references
from cluster.live.handover.left_hosts import LeftHosts
from cluster.live.handover.left_stage import LeftStage
from cluster.live.handover.left_watch import LeftAudit, LeftWatch
from cluster.live.processes.processes import Process
from cluster.record.saved import SavedRecord
from cluster.scenario import Scenario
from loadgen.runplan import Statistics

VERSION: Final[Literal[7]] = 7

RunPhase = Literal["following", "ending", "collected"]
"""Phase of a run, as named in :mod:`cluster.live.handover.handover`."""


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

    version: Literal[7]
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
