"""Faults on the validators of a live host: the driver's order, and the host's answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from cluster.disks import Trap
from cluster.faults.impairment import Impairment
from cluster.faults.link_effects import LinkEffect


@dataclass(frozen=True, slots=True)
class Injection:
    """All faults in force. A newer injection replaces an older one as a whole."""

    number: int = 0
    """A higher number is newer, even if it arrives earlier."""
    links: dict[int, LinkEffect] = field(default_factory=dict)
    """What faults do to links, by the faults' keys, in the order in which they began."""
    impairments: dict[int, Impairment] = field(default_factory=dict)
    """Impairments by validator; one without an entry is not impaired. Pauses are not applied here: the driver stops the
    process of a paused host.
    """
    traps: dict[int, tuple[int, Trap]] = field(default_factory=dict)
    """Disk faults to trigger next, keyed by validator, each with a number so that it is set only once."""


@dataclass(slots=True)
class DelayCounts:
    """Counts of slowed operations of a validator since its process began, by kind of impairment."""

    slow_disk: int = 0
    slow_execution: int = 0
    clock_skew: int = 0
