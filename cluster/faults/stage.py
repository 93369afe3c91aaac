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
    """How a running validator started: the height that it recovered, and that of the snapshot its disk began with."""

    recovered_height: int
    snapshot_height: int


class Stage(Protocol):
    """The driver's interface for faults. Validators are given by index."""

    random: Random
    """Random source for the choices that faults leave open."""

    # --- time ---------------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> float:
        """Milliseconds since the run began."""

    @property
    def height(self) -> int:
        """The highest final height."""

    def at(self, time_ms: int, label: str, call: Then) -> None:
        """Have ``call`` called at a time of the run; at once if that has passed."""

    def later(self, delay_ms: int, label: str, call: Then) -> None:
        """Have ``call`` called after a delay; return at once."""

    def notice(self, text: str) -> None:
        """Show a text to the user."""

    # --- links --------------------------------------------------------------------------------------------------------

    def set_links(self, faults: Mapping[int, LinkFault], then: Then) -> None:
        """Put exactly these faults of links in force, by key, in this order; call ``then`` once they are in force."""

    def seen_on_links(self, key: int, plan: LinkFault) -> Seen:
        """Whether a link fault had an observable effect on messages, with the evidence."""

    # --- validators ---------------------------------------------------------------------------------------------------

    def is_up(self, index: int) -> bool:
        """Whether the validator has recovered, or joined, and takes part."""

    def is_running(self, index: int) -> bool:
        """Whether the validator is up, or about to be."""

    def is_about_to_start(self, index: int) -> bool:
        """Whether the validator is down, does not count as running, and starts soon without being told."""

    def is_lost(self, index: int) -> bool:
        """Whether the validator can never be started again."""

    def leader(self) -> int | None:
        """The leader of the newest view that any validator is in."""

    def sharing_fate(self, index: int, plan: AnyFault) -> Sequence[int] | None:
        """All validators that a fault hits together with this one, including it: those on its host or Ray node.

        ``None`` if such a fault hits only this one.
        """

    def deaths(self, index: int) -> int:
        """How often the validator was seen to go down."""

    def prepare(self, indices: Sequence[int], release: Release, then: Then) -> None:
        """Prepare a release for validators while they still run the old one; call ``then`` when that is done."""

    def replace(self, indices: Sequence[int], release: Release) -> None:
        """Stop the running validators of a host gracefully; their next start is with the release."""

    def runs(self, index: int, release: Release) -> bool:
        """Whether a validator reports this release as the one that it runs, or ran last."""

    def height_of(self, index: int) -> int:
        """The validator's final height; 0 if it does not run."""

    def has_diverged(self, index: int) -> bool:
        """Whether the validator computed another state than the others, and has stopped."""

    def keep_blocks(self, index: int) -> None:
        """Save the blocks that the validator serves, or served while it was up, before its disk is lost."""

    def crash(self, index: int, plan: DownFault) -> None:
        """Take the validator down at once; others on its host may go down with it."""

    def start(self, index: int) -> None:
        """Start the validator from its disk, unless it runs."""

    def recovery(self, index: int) -> Recovery | None:
        """How the validator started; ``None`` if it does not run."""

    def describe_restart(self, indices: Sequence[int]) -> list[str]:
        """Further evidence that validators were down."""

    # --- their impairments --------------------------------------------------------------------------------------------

    def impair(self, impairments: Mapping[int, Impairment], then: Then) -> None:
        """Replace the impairments of these validators, keyed by index; call ``then`` once that is done."""

    def delays(self, index: int, kind: str) -> int:
        """How many effects of a kind of impairment were seen so far on the validator."""

    def seen_delays(self, kind: str, delays: int, names: Sequence[str]) -> Seen:
        """Whether an impairment took effect on these validators, with the evidence, given the number of its effects."""

    # --- their disks --------------------------------------------------------------------------------------------------

    def lay_trap(self, index: int, plan: DiskFullFault | FailedSyncFault) -> None:
        """Make the validator's disk fail at the next operation that the fault concerns."""

    def has_trap(self, index: int) -> bool:
        """Whether a failure set by :meth:`lay_trap` is still pending."""

    def lose_disk(self, index: int) -> None:
        """Give a stopped validator an empty disk, with which it has to join by a snapshot."""

    def flip_a_bit(self, index: int) -> str | None:
        """Flip a bit of a stopped validator's disk, in data that was durable for some time.

        Returns the bit's place; ``None`` if there is no such data.
        """
