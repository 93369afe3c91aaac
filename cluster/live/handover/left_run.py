"""A live run as one driver leaves it to another: the content of a checkpoint, in one structure.

Each part of a driver gives a plain record of what it knows, and is built again from that record. A record has numbers,
texts, lists and records alone: no object of the driver, and no function. What changes in it gets another
:data:`VERSION`. A :class:`LeftRun` that refers to what it does not have is refused (:class:`ValueError`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final, Literal, NamedTuple

import msgspec

from cluster.common.limits import MAX_SEED, is_seed
from cluster.live.handover.calls import references
from cluster.live.handover.left_hosts import LeftHosts
from cluster.live.handover.left_record import LeftAudit, LeftEnd, LeftRecord, LeftWatch
from cluster.live.handover.left_stage import LeftStage
from cluster.live.processes.processes import Process
from cluster.scenario import Scenario
from loadgen.runplan import Statistics

VERSION: Final[Literal[5]] = 5

RunPhase = Literal["following", "ending", "collected"]
"""Of :mod:`cluster.live.handover.handover`."""


class KeptRay(NamedTuple):
    """A Ray that outlives its driver, as another driver finds it."""

    address: str
    namespace: str
    """Of the run's actors."""
    lease_s: float
    """So long the hosts go on without a driver."""
    folder: str | None = None
    """Of a Ray that the run started itself."""
    token: str | None = None
    """Likewise."""
    nodes: int = 1


class LeftLoad(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The load of a driver that died, as another one finds it."""

    process: Process | None = None
    before: Statistics = msgspec.field(default_factory=Statistics)
    """The counts of loads that ended earlier."""
    began_epoch_ms: int | None = None
    is_over: bool = True
    """It was told to stop, or there is none."""


class LeftTestnet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A testnet that outlives its driver, as another one finds it."""

    served: tuple[str, int]
    """Address and port of its endpoint."""
    ray: KeptRay | None
    load: LeftLoad
    hosts: dict[int, str]
    """The names of the actors, by the number of the host."""


class LeftClock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The time of a run, and when and where a record of it was written."""

    at_ms: float
    """When it was written, since the run began."""
    began_epoch_ms: float
    written_epoch_s: float
    """When it was written, by the machine's clock."""
    reading: str
    """The driver's reading of the machine's clock (:mod:`cluster.live.processes.steady_clock`)."""
    machine: str
    """The driver's."""

    def __post_init__(self) -> None:
        float(self.reading.rpartition(" ")[2])  # a ValueError refuses it


class LeftRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run that outlives its driver, as another one finds it."""

    version: Literal[5]
    """:data:`VERSION`."""
    commit: str
    phase: RunPhase
    clock: LeftClock
    scenario: Scenario
    """With the faults that were added."""
    seed: int
    height: int
    """The highest final one."""
    stop_on_fail: bool
    testnet: LeftTestnet
    end: LeftEnd
    record: LeftRecord
    watch: LeftWatch
    stage: LeftStage
    hosts: LeftHosts
    audit: LeftAudit

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ValueError(problem)

    def _problems(self) -> Iterator[str]:
        if not is_seed(self.seed):
            yield f"seed: {self.seed} is not between 0 and {MAX_SEED}"
        numbers = [host.number for host in self.hosts.all]
        if numbers != [*range(len(numbers))]:
            yield f"hosts: their numbers are {numbers}; expected {[*range(len(numbers))]}"
        joins, late = len(self.record.joins), len(self.scenario.validators.late)
        if joins != late:
            yield f"record.joins: there are {joins}; expected {late}, one for each validator that joins later"
        engine = self.stage.engine
        known: dict[str, Container[int]] = {
            "planned fault": range(len(engine.planned)),
            "fault": range(len(engine.active)),
            "downtime of fault": [each.key for each in engine.downtimes],
            "upgrade of fault": [each.key for each in engine.upgrades],
            "validator": range(self.scenario.validators.count),
            "host": range(len(numbers)),
        }
        for call in (*(due.what for due in self.stage.agenda.due), *self.hosts.calls):
            for kind, number in references(call):
                if number not in known[kind]:
                    yield f"a call to come is for {kind} {number}, which is not there"
