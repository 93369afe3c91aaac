"""The hosts of a live run as one driver leaves them to another (:class:`~cluster.live.driver.hosts.Hosts`)."""

from __future__ import annotations

from typing import Literal

import msgspec

from cluster.disks.bit_rot import Rot
from cluster.faults.link_faults import LinkCounts
from cluster.live.handover.calls import LiveCall
from cluster.live.host.host import ValidatorAddress
from cluster.live.host.lag import LagSpan
from cluster.live.host.validator_loop import LoopState
from cluster.live.injection import DelayCounts
from cluster.live.processes.history import ProcessHistory
from cluster.live.processes.processes import Process
from cluster.scenario.sections.faults import Release

LeftPlace = tuple[str, str, bool]
"""Node, address to listen on, and whether the node is for this host alone
(:class:`~cluster.live.driver.ray_session.Place`)."""


DiskOperation = Literal["wipe", "flip", "arrive"]
"""An operation on a validator's disk: the name of the host's method that performs it."""


class LeftCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The effects of faults on a validator, as one of its host's processes counted them."""

    process: Process
    index: int
    """Index of the validator."""
    delays: DelayCounts
    links: dict[int, LinkCounts]
    """Effects on messages, keyed by link fault."""


class LeftReports(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reports of a host's validators (:class:`~cluster.live.driver.supervised_host.HostReports`)."""

    addresses: list[ValidatorAddress]
    states: dict[int, LoopState]
    old_file_sizes: dict[int, dict[str, int]]
    counts: list[LeftCounts]
    lags: list[LagSpan]
    totals_before: tuple[int, int, int, float]
    """Totals of processes that are gone: messages sent, bytes sent, messages lost, and processor seconds."""


class LeftHost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One host (:class:`~cluster.live.driver.supervised_host.Host`), without its open question and its pause."""

    number: int
    place: LeftPlace
    validators: list[int]
    late: dict[int, int]
    is_placed: bool
    moves: int
    release: Release
    phase: Literal["down", "starting", "up", "stopping", "doubted", "dead"]
    why_lost: str | None
    is_held_down: bool
    pending_disk_operations: list[tuple[DiskOperation, list[int | Rot]]]
    processes: ProcessHistory
    reports: LeftReports


class LeftHosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All hosts of a run."""

    all: list[LeftHost]
    compiled: list[tuple[LeftPlace, str]]
    """Places where code of other folders was compiled, or is being compiled."""
    calls: list[LiveCall]
    """Calls to make once the orders under way are complete. Another driver gives the orders again."""
    lost_nodes: set[str]
