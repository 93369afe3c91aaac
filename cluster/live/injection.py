"""What faults do to the validators of a live host: the driver's order, and the host's answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from cluster.faults.impairment import Impairment
from cluster.scenario.sections.faults import DiskFullFault, FailedSyncFault, LinkFault

UNIMPAIRED: Final = Impairment()


@dataclass(frozen=True, slots=True)
class Injection:
    """All that is in force, as from now on. A newer one replaces an older one as a whole."""

    number: int = 0
    """Of two the higher one is newer, whichever arrives later."""
    links: dict[int, LinkFault] = field(default_factory=dict)
    """Faults of links, by their keys, in the order in which they began."""
    impairments: dict[int, Impairment] = field(default_factory=dict)
    """By validator; those that are missing are not impaired. Pauses are done from outside."""
    traps: dict[int, tuple[int, DiskFullFault | FailedSyncFault]] = field(default_factory=dict)
    """Disks that fail next, by validator, each with a number by which it is laid once."""


@dataclass(frozen=True, slots=True)
class LastWords:
    """Why a host ended itself."""

    pid: int
    validator: int
    reason: str


@dataclass(slots=True)
class DelayCounts:
    """How often a validator was slowed down since its process began, by kind of impairment."""

    slow_disk: int = 0
    slow_execution: int = 0
    clock_skew: int = 0
