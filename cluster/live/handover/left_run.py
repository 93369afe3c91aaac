"""A live run as one driver leaves it to another: the content of a checkpoint, in one structure.

Each part of a driver gives a plain record of what it knows, and is built again from that record. A record has numbers,
texts, lists and records alone: no object of the driver, and no function. What changes in it gets another
:data:`VERSION`.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

from cluster.live.handover.left_hosts import LeftHosts
from cluster.live.handover.left_record import LeftAudit, LeftEnd, LeftRecord, LeftWatch
from cluster.live.handover.left_stage import LeftStage
from cluster.live.processes.processes import Process
from cluster.scenario import Scenario
from loadgen.runplan import Statistics

VERSION: Final[Literal[3]] = 3


class KeptRay(NamedTuple):
    """A Ray that outlives its driver, as another driver finds it."""
RunPhase = Literal["following", "ending", "collected"]
"""Of :mod:`cluster.live.handover.handover`."""


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


class LeftRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run that outlives its driver, as another one finds it."""

    version: Literal[3]
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
