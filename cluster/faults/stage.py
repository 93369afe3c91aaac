"""The interface between faults and the driver that performs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple, Protocol

from cluster.faults.impairment import Impairment
from cluster.faults.link_faults import Seen
from cluster.scenario.sections.faults import AnyFault, DiskFullFault, DownFault, FailedSyncFault, LinkFault, Release

Then = Callable[[], None]


class Recovery(NamedTuple):
    """The heights at which a running validator started."""

    recovered_height: int
    snapshot_height: int


class Stage(Protocol):
    """A driver, as faults act on it. Validators are given by their index."""

    random: Random
    """Of the choices that faults leave open."""

    # --- time ---------------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> float:
        """Since the run began."""

    @property
    def height(self) -> int:
        """The highest final height."""

    def at(self, time_ms: int, label: str, call: Then) -> None:
        """Call at a time of the run; at once if it has passed."""

    def later(self, delay_ms: int, label: str, call: Then) -> None:
        """Call after a delay."""

    def notice(self, text: str) -> None:
        """Show a text to whoever watches."""

    # --- links --------------------------------------------------------------------------------------------------------

    def set_links(self, faults: Mapping[int, LinkFault], then: Then) -> None:
        """From now on exactly these faults of links are in force, by their keys, in their order."""

    def seen_on_links(self, key: int, plan: LinkFault) -> Seen:
        """What a fault of links did to messages."""

    # --- validators ---------------------------------------------------------------------------------------------------

    def is_up(self, index: int) -> bool:
        """Whether it has recovered, or joined, and takes part."""

    def is_running(self, index: int) -> bool:
        """Whether it is up, or about to be."""

    def is_lost(self, index: int) -> bool:
        """Whether it can never be started again."""

    def leader(self) -> int | None:
        """The leader of the newest view that any validator is in."""

    def sharing_fate(self, index: int, plan: AnyFault) -> Sequence[int] | None:
        """All validators that a fault hits with one, itself included: those of its host, or of its Ray node.

        ``None`` if such a fault hits it alone.
        """

    def deaths(self, index: int) -> int:
        """How often it was seen to go down."""

    def prepare(self, indices: Sequence[int], release: Release, then: Then) -> None:
        """Prepare the release that validators will run, while they run the old one."""

    def replace(self, indices: Sequence[int], release: Release) -> None:
        """Stop those validators of a host in good order that run; their next start is with the release."""

    def runs(self, index: int, release: Release) -> bool:
        """Whether a validator reports this release as the one that it runs, or ran last."""

    def height_of(self, index: int) -> int:
        """Its final height; 0 if it does not run."""

    def has_diverged(self, index: int) -> bool:
        """Whether it computed another state than the others, and stands still."""

    def keep_blocks(self, index: int) -> None:
        """Keep the blocks that it serves, or served while it was up: its disk is about to be lost."""

    def crash(self, index: int, plan: DownFault) -> None:
        """Take it down at once; others on its host may go down with it."""

    def start(self, index: int) -> None:
        """Start it from its disk, unless it runs."""

    def recovery(self, index: int) -> Recovery | None:
        """How it started; ``None`` if it does not run."""

    def describe_restart(self, indices: Sequence[int]) -> list[str]:
        """Further evidence that validators were down."""

    # --- their impairments --------------------------------------------------------------------------------------------

    def impair(self, impairments: Mapping[int, Impairment], then: Then) -> None:
        """From now on these validators are impaired so."""

    def delays(self, index: int, kind: str) -> int:
        """How many effects of a kind of impairment were seen so far."""

    def seen_delays(self, kind: str, delays: int, names: Sequence[str]) -> Seen:
        """What a kind of impairment did to these validators: its last ``delays`` effects."""

    # --- their disks --------------------------------------------------------------------------------------------------

    def lay_trap(self, index: int, plan: DiskFullFault | FailedSyncFault) -> None:
        """Its disk fails at the next operation that the fault is about."""

    def has_trap(self, index: int) -> bool:
        """Whether that is still to come."""

    def lose_disk(self, index: int) -> None:
        """While it is down: give it an empty disk, with which it has to join by a snapshot."""

    def flip_a_bit(self, index: int) -> str | None:
        """While it is down: flip a bit of what was durable long before. Returns where; ``None`` if nothing is."""
