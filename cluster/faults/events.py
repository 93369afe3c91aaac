"""What the engine of faults is told, what it orders, and its future calls. Times are milliseconds since the run began.

A call is plain data, and names its fault by number alone.

Validators are given by index. A driver performs the orders in their order. Some have an answer, which it tells the
engine; a field ``then`` is a call that it tells, as :class:`Due`, once the order is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from cluster.disks import Trap
from cluster.faults.impairment import Impairment
from cluster.faults.link_effects import LinkEffect
from cluster.scenario.sections.faults import Release
from consensus.messages import VoteKind


class Begin(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call that begins a planned fault."""

    planned: int
    """The fault's number among all that were ever planned."""


class End(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call that ends a fault."""

    key: int
    """The fault's number among all faults that began. The field ``key`` of the classes below is the same number."""


class InForce(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call that notes that a fault is in force everywhere."""

    key: int


class NoteEnd(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call that notes that a fault is undone everywhere, and completes its record."""

    key: int


class Restart(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call with which a fault lets validators run again. They start unless another fault holds them down."""

    key: int
    indices: list[int]


class StartValidator(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call that starts a validator whose disk was replaced."""

    index: int


class UpgradeNext(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call that continues an upgrade with its next host."""

    key: int


class UpgradeStart(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call that starts the validators of an upgraded host with the new code."""

    key: int
    group: list[int]


class GoOn(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call with which a fault of any kind goes on, as it has planned."""

    key: int


FaultCall = Begin | End | InForce | NoteEnd | Restart | StartValidator | UpgradeNext | UpgradeStart | GoOn


# --- what was seen ----------------------------------------------------------------------------------------------------


class Recovery(NamedTuple):
    """How a running validator started: the height that it recovered, and that of the snapshot its disk began with."""

    recovered_height: int
    snapshot_height: int


class Seat(NamedTuple):
    """A validator as the driver sees it."""

    on_host: tuple[int, ...]
    """All validators on its host, including it."""
    on_node: tuple[int, ...]
    """All validators on its Ray node."""
    is_up: bool = False
    """Whether it has recovered, or joined, and takes part."""
    is_running: bool = False
    """Whether it is up, or about to be."""
    is_about_to_start: bool = False
    """Whether it is down, does not count as running, and starts soon without being told."""
    is_lost: bool = False
    """Whether it can never be started again."""
    has_diverged: bool = False
    """Whether it computed another state than the others, and has stopped."""
    has_trap: bool = False
    """Whether a failure set by :class:`LayTrap` is still pending."""
    deaths: int = 0
    """How often it was seen to go down."""
    height: int = 0
    """Its final height; 0 if it does not run."""
    recovery: Recovery | None = None
    """How it started; ``None`` if it does not run."""


class Network(NamedTuple):
    """The validators, as they are now."""

    at_ms: float
    seats: tuple[Seat, ...]
    leader: int | None
    """The leader of the newest view that any validator is in."""
    acts_on_processes: bool = False
    """Whether faults that stop validators act on processes, and so on all validators of a host."""
    has_pods: bool = False
    """Whether faults can act on pods of Kubernetes, and so on all validators of a Ray node."""


class Due(NamedTuple):
    """A call of the engine is due."""

    at_ms: float
    call: FaultCall


class Voted(NamedTuple):
    """A validator sent a vote. It is told while a fault waits for votes."""

    sender: int
    view: int
    kind: VoteKind


class Failed(NamedTuple):
    """A validator stopped by itself, for a reason that a fault explains, and is down."""

    at_ms: float
    validator: int
    reason: str


class MachineLost(NamedTuple):
    """The machine of some validators is lost, and they with it. They may start elsewhere right afterwards."""

    at_ms: float
    validators: Sequence[int]
    what: str
    reason: str


class Counted(NamedTuple):
    """The answer to :class:`Count`."""

    key: int
    effects: int


class BitFlipped(NamedTuple):
    """The answer to :class:`FlipBit`, if there was data of which a bit could flip."""

    key: int
    validator: int
    place: str


class Observed(NamedTuple):
    """The answer to :class:`Observe`."""

    key: int
    took_effect: bool = False
    """Whether a fault of links, or an impairment, had an effect. Of the others the engine knows that itself."""
    evidence: str = ""
    """What was seen of it, in words."""
    running: int = 0
    """For an upgrade, how many of the validators run the release, or ran it last."""


FaultSeen = Network | Due | Voted | Failed | MachineLost | Counted | BitFlipped | Observed

# --- what is to be done -----------------------------------------------------------------------------------------------


class Tell(NamedTuple):
    """Tell the user a line."""

    text: str


class Wake(NamedTuple):
    """Tell the call at a time of the run; at once if that has passed."""

    at_ms: float
    label: str
    call: FaultCall


class SetLinks(NamedTuple):
    """Put exactly these faults of links in force, by key, in this order."""

    faults: Mapping[int, LinkEffect]
    then: FaultCall


class Impair(NamedTuple):
    """Replace the impairments of these validators."""

    impairments: Mapping[int, Impairment]
    then: FaultCall


class Prepare(NamedTuple):
    """Prepare a release for validators while they still run the old one."""

    validators: Sequence[int]
    release: Release
    then: FaultCall


class Replace(NamedTuple):
    """Stop the running validators of a host gracefully; their next start is with the release."""

    validators: Sequence[int]
    release: Release


class KeepBlocks(NamedTuple):
    """Save the blocks that the validator serves, or served while it was up, before its disk is lost."""

    validator: int


class Way(NamedTuple):
    """How validators are taken down. The simulator reads ``reorders`` alone."""

    how: str = "process"
    """On the live testnet: ``process`` (a SIGKILL), ``actor`` (Ray kills it), ``pod``, ``node`` or ``chaos-mesh`` (by
    Kubernetes, where that is possible)."""
    down_ms: int = 0
    """Minimum time that it stays down."""
    ends_node: bool = False
    """Whether its Ray node ends with it: by SIGKILLs (``process``), or gracefully."""
    reorders: bool = False
    """Whether its disk reorders writes: any part of the unsynced data may survive."""

    @property
    def is_of_pods(self) -> bool:
        """Whether it takes down pods, where the live testnet runs in Kubernetes."""
        return not self.ends_node and self.how not in ("actor", "process")


class Crash(NamedTuple):
    """Take the validator down at once; others on its host may go down with it."""

    validator: int
    way: Way


class Start(NamedTuple):
    """Start the validator from its disk, unless it runs."""

    validator: int


class LayTrap(NamedTuple):
    """Make the validator's disk fail at the next operation that the fault concerns."""

    validator: int
    trap: Trap


class LoseDisk(NamedTuple):
    """Give a stopped validator an empty disk, with which it has to join by a snapshot."""

    validator: int


class FlipBit(NamedTuple):
    """Flip a bit of a stopped validator's disk, in data that was durable for some time."""

    key: int
    validator: int


class Confirm(NamedTuple):
    """Tell the call once all orders before this one are carried out: on real machines they take their time."""

    then: FaultCall


class Count(NamedTuple):
    """Count the effects of a kind of impairment that were seen so far on these validators."""

    key: int
    kind: str
    validators: Sequence[int]


class ObserveLinks(NamedTuple):
    """Find out what a fault of links did."""

    key: int
    effect: LinkEffect


class ObserveDelays(NamedTuple):
    """Find out what an impairment did."""

    key: int
    kind: str
    """As in :class:`Count`."""
    validators: Sequence[int]
    count_before: int
    """The number of effects that were counted before it began."""


class ObserveProcesses(NamedTuple):
    """Find out what became of the processes of validators."""

    key: int
    validators: Sequence[int]
    release: Release | None = None
    """The release that they should run by now, if there is one."""


Observe = ObserveLinks | ObserveDelays | ObserveProcesses
MachineOrder = Replace | KeepBlocks | Crash | Start | LayTrap | LoseDisk | FlipBit
"""An order for one validator, or for the validators of a host."""
FaultOrder = Tell | Wake | SetLinks | Impair | Prepare | MachineOrder | Confirm | Count | Observe
