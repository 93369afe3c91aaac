"""The ``faults`` of a scenario: one model per ``kind``, with targets, begin and end.

:mod:`cluster.faults.engine` decides when faults begin and end, a backend performs them, and :mod:`cluster.checks.run`
judges their effect. ``docs/scenarios.md`` is the reference of the fields.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, Protocol, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from cluster.common.suggestions import instead, unknown
from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.common.wording import first_few
from cluster.misbehaviour.mutants.registry import MUTANTS
from cluster.scenario.sections.base import (
    LINK_FIELDS,
    Height,
    LinkChanges,
    Milliseconds,
    RunMilliseconds,
    Section,
    check_kind,
    kind_of,
    refuse_repeated,
)
from consensus.types import fault_bound

LEADER: Final = "leader"
RANDOM: Final = "random"
AS_MANY_AS_WITHSTOOD: Final = "f"
KEYWORDS: Final = (LEADER, RANDOM, AS_MANY_AS_WITHSTOOD)
"""Keywords that a fault may have as its target, in place of validators' names."""
EVERYBODY: Final = "all"
"""The text that is shown as the target of a fault that has none."""

CHAOS_MESH: Final = "chaos-mesh"
CODE_FILE: Final = "cluster/live/host/host.py"
"""The file by which a folder is recognized as a checkout of the code."""

FIRST_VERSION: Final = "1"
"""Name of the code at the start of a run."""
VERSION_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$"
Version = Annotated[str, Field(pattern=VERSION_PATTERN)]
Duration = Annotated[int, Field(ge=1, le=3_600_000)]
ClockSpeed = Annotated[float, Field(ge=0.01, le=100)]
REGION_PREFIX: Final = "region:"
NAMED_OF_THE_REST: Final = 3
"""Maximum number of validators that a description lists of a partition's unnamed group."""


def _known_mutant(name: str) -> str:
    if name not in MUTANTS:
        raise ValueError(unknown("mutant", name, sorted(MUTANTS)))
    return name


MutantName = Annotated[str, AfterValidator(_known_mutant)]


@dataclass(frozen=True, slots=True)
class Release:
    """A version of the code that an upgrade installs."""

    version: str = FIRST_VERSION
    code: str | None = None
    """The folder of the code, on the live testnet; ``None`` is the driver's own."""
    mutant: str | None = None
    """A planted bug in the new code."""


"""A planted bug, by its name in ``cluster.misbehaviour.mutants``."""
MEMBER_PATTERN: Final = r"^(region:)?[a-z0-9][a-z0-9_-]{0,63}$"
Member = Annotated[str, Field(pattern=MEMBER_PATTERN)]
"""A validator's name; ``region:NAME`` means all validators of a region."""
Names = Annotated[list[Member], Field(min_length=1)]
Target = Annotated[
    Names,
    BeforeValidator(
        lambda given: [given] if isinstance(given, str) else given,
        json_schema_input_type=Literal["leader", "random", "f"] | Member | Names,
    ),
]
"""A :data:`Member`, a list of them, or one of :data:`KEYWORDS`."""


class BaseFault(Section):
    """The fields of every fault: it begins when the first validator has finalised a height, or at a time."""

    at_height: Height | None = None
    """It begins once the first validator has finalised this height."""
    at_ms: RunMilliseconds | None = None
    """It begins at this time since the start of the run."""
    after_votes: Literal["notarize", "nullify", "finalize"] | None = None
    """With ``at_height``: it also waits until a quorum has sent such votes of one view (``nullify``: or timeouts)."""

    @model_validator(mode="after")
    def _begins_once(self) -> BaseFault:
        if (self.at_height is None) == (self.at_ms is None):
            raise ValueError("at_height: give either at_height or at_ms")
        if self.after_votes is not None and self.at_height is None:
            raise ValueError("after_votes: needs at_height")
        return self

    @property
    def whom(self) -> str:
        """The targets, in the scenario's short form."""
        return EVERYBODY

    @property
    def named(self) -> Sequence[tuple[str, Sequence[str]]]:
        """The validators' names in the fault, by field."""
        return ()


class _Lasting(BaseFault):
    """A fault that ends after a time or at a height, whichever comes first."""

    for_ms: Duration | None = None
    """How long it lasts."""
    until_height: Height | None = None
    """It ends once the first validator has finalised this height; with ``for_ms`` too, whichever comes first."""

    @model_validator(mode="after")
    def _ends(self) -> _Lasting:
        if self.for_ms is None and self.until_height is None:
            raise ValueError("for_ms: give for_ms or until_height")
        if self.until_height is not None and self.until_height <= (self.at_height or 0):
            raise ValueError(f"until_height: {self.until_height} is not above at_height ({self.at_height})")
        return self


def _check_target(target: Sequence[str]) -> None:
    if len(target) > 1 and (found := [name for name in target if name in KEYWORDS]):
        raise ValueError(f"target: {found[0]!r} cannot be in a list")
    refuse_repeated("target", target)


class _Targeted(Section):
    target: Target
    """A validator, a list of them, ``region:NAME``, or ``leader``, ``random`` or ``f``."""

    @model_validator(mode="after")
    def _keywords_stand_alone(self) -> _Targeted:
        _check_target(self.target)
        return self

    @property
    def whom(self) -> str:
        return ", ".join(self.target)

    @property
    def named(self) -> Sequence[tuple[str, Sequence[str]]]:
        return () if self.target[0] in KEYWORDS else (("target", self.target),)


# --- the network ----------------------------------------------------------------------------------------------------


class _OfLinks(_Lasting):
    how: Literal["transport", "chaos-mesh"] = "transport"
    """On the live testnet: by the validators' transport, or by Chaos Mesh between pods, where that is possible."""


class PartitionFault(_OfLinks):
    """Validators without a common group cannot reach each other; those in no group form one more group.

    A validator in several groups is a bridge between them.
    """

    kind: Literal["partition"]
    groups: Annotated[list[Names], Field(min_length=1)]
    """The groups: validators' names and ``region:NAME``."""

    @model_validator(mode="after")
    def _groups_have_no_repetition(self) -> PartitionFault:
        for number, group in enumerate(self.groups):
            refuse_repeated(f"groups[{number}]", group)
        return self

    @property
    def whom(self) -> str:
        return " | ".join(", ".join(group) for group in self.groups)

    @property
    def named(self) -> Sequence[tuple[str, Sequence[str]]]:
        return [(f"groups[{number}]", group) for number, group in enumerate(self.groups)]

    def sides(self, names: Sequence[str]) -> list[set[str]]:
        """The groups of the partition, including that of the validators in no named group, if there are such."""
        groups = [set(group) for group in self.groups]
        rest = set(names).difference(*groups)
        return [*groups, rest] if rest else groups

    def cuts_any(self, names: Sequence[str]) -> bool:
        """Whether the partition separates any validators: at least two share no group."""
        heard = [set[str]().union(*(side for side in self.sides(names) if name in side)) for name in names]
        return any(len(each) < len(names) for each in heard)

    def overlap(self) -> bool:
        """Whether a validator is in more than one group."""
        return len({name for group in self.groups for name in group}) < sum(map(len, self.groups))


class _Directed(_OfLinks):
    senders: Names | None = Field(default=None, alias="from")
    """Senders; by default all validators except those of ``to``."""
    receivers: Names | None = Field(default=None, alias="to")
    """Receivers; by default all validators except those of ``from``."""

    @property
    def whom(self) -> str:
        return f"{', '.join(self.senders or ['all'])} > {', '.join(self.receivers or ['all'])}"

    @property
    def named(self) -> Sequence[tuple[str, Sequence[str]]]:
        return [("from", self.senders or []), ("to", self.receivers or [])]

    def ends(self, names: Sequence[str]) -> tuple[set[str], set[str]]:
        """Senders and receivers. A missing side is all other validators; if both are missing, both are all."""
        everybody = set(names)
        senders, receivers = set(self.senders or ()), set(self.receivers or ())
        if not senders and not receivers:
            return everybody, everybody
        return senders or everybody - receivers, receivers or everybody - senders


class _Cutting(_Directed):
    @model_validator(mode="after")
    def _someone_is_named(self) -> _Cutting:
        if self.senders is None and self.receivers is None:
            raise ValueError("from: give from or to, or both")
        return self


class OneWayPartitionFault(_Cutting):
    """Messages of some validators do not reach others; the other direction works."""

    kind: Literal["one_way_partition"]


class CutFault(_Cutting):
    """The links between two sides carry no messages in either direction. All other links work."""

    kind: Literal["cut"]

    @property
    def whom(self) -> str:
        return f"{', '.join(self.senders or ['all'])} <> {', '.join(self.receivers or ['all'])}"


class DegradeFault(LinkChanges, _Directed):
    """Links are worse for a while: the given values override those of the scenario."""

    kind: Literal["degrade"]

    @model_validator(mode="after")
    def _something_changes(self) -> DegradeFault:
        if not self.changes:
            raise ValueError(f"latency_ms: give at least one of {', '.join(LINK_FIELDS)}")
        return self


class LeaderDelayFault(_Lasting):
    """Messages of the current view's leader are delayed."""

    kind: Literal["leader_delay"]
    delay_ms: Duration
    """The additional delay."""

    @property
    def whom(self) -> str:
        return LEADER


# --- validators -----------------------------------------------------------------------------------------------------


class _Down(_Targeted, BaseFault):
    down_ms: Milliseconds = 2_000
    """Minimum time that it stays down."""


class KillFault(_Down):
    """A validator's host is killed and loses data that was not synced. It starts again from its disk.

    Ray restarts a live host's process at once; its validators wait for ``down_ms``.
    """

    kind: Literal["kill"]
    how: Literal["actor", "process", "pod", "node", "chaos-mesh"] = "actor"
    """On the live testnet: Ray kills the host's actor, or the process gets a SIGKILL without Ray. In Kubernetes also:
    the host's pod is deleted, or evicted from its node, which is cordoned meanwhile, or Chaos Mesh kills it."""
    reorders: bool = False
    """Its disk reorders writes: any part of the unsynced data may survive, not only the earliest."""


class WipeFault(_Down):
    """A validator is killed and loses its disk; it starts again without state and joins by a snapshot."""

    kind: Literal["wipe"]


class LoseNodeFault(_Down):
    """The Ray node (machine) that runs a validator is lost for good, with all validators on it.

    They restart on another node: from their disks if those are kept, otherwise without state, by a snapshot.
    """

    kind: Literal["lose_node"]
    how: Literal["ray", "process"] = "process"
    """On the live testnet: every process of the node gets a SIGKILL, or Ray ends the node gracefully."""
    disks: Literal["lost", "kept"] = "lost"
    """The disks of the node: lost with it, or on a volume that other nodes share. A live node that does not share the
    run's folder loses them anyway."""


class DiskFullFault(_Down):
    """A validator's disk is full at its next write: it stops, and starts again when there is space."""

    kind: Literal["disk_full"]


class FailedSyncFault(_Down):
    """The next sync of a validator fails: it stops, loses the data of that sync, and starts again."""

    kind: Literal["failed_sync"]
    of: Literal["journal", "blocks", "state"] | None = None
    """The files: the journal, the archive of final blocks or the state's log; by default the first one synced."""


class BitRotFault(_Down):
    """A validator is killed and one bit of its durable data flips: it must refuse to start, and gets an empty disk."""

    kind: Literal["bit_rot"]


class PauseFault(_Targeted, _Lasting):
    """A validator pauses: messages wait, timers are late."""

    kind: Literal["pause"]


class SlowDiskFault(_Targeted, _Lasting):
    """Each sync takes longer."""

    kind: Literal["slow_disk"]
    sync_ms: Duration
    """Time of a sync."""


class SlowExecutionFault(_Targeted, _Lasting):
    """Each job of the executor takes longer."""

    kind: Literal["slow_execution"]
    job_ms: Duration
    """Time of a job."""
    how: Literal["executor", "chaos-mesh"] = "executor"
    """On the live testnet: the executor waits, or Chaos Mesh loads the processors of the host's pod instead."""
    threads: Annotated[int, Field(ge=1, le=64)] = 4
    """The busy threads of Chaos Mesh in each pod."""


class ClockSkewFault(_Targeted, _Lasting):
    """A validator's clock runs faster or slower: 2 is twice as fast, so its timers expire after half the time."""

    OLD_NAMES = {"factor": "clock_speed"}

    kind: Literal["clock_skew"]
    clock_speed: ClockSpeed
    """Speed of its clock: at 2, timers expire after half the time."""

    @model_validator(mode="after")
    def _something_changes(self) -> ClockSkewFault:
        if self.clock_speed == 1:
            raise ValueError("clock_speed: 1 is the normal speed; expected another one")
        return self


class UpgradeFault(BaseFault):
    """Validators get other code, one host after the other: each stops gracefully and starts again from its disk.

    The next host follows when the validators of the last one have finalised ``heights_between`` heights with the new
    code. The upgrade ends if one of them diverges.
    """

    kind: Literal["upgrade"]
    target: Target | None = None
    """The order, by hosts; ``None`` means all validators."""
    version: Version = "2"
    """Name of the new code."""
    code: str | None = None
    """Folder of another checkout, on the live testnet; ``None`` is the same code under a new name."""
    mutant: MutantName | None = None
    """A planted bug of the new code, by its name in ``cluster.misbehaviour.mutants``."""
    down_ms: Milliseconds = 500
    """Minimum time that each host stays down."""
    heights_between: Height = 3
    """Heights that a host's validators finalise with the new code before the next host follows."""

    @model_validator(mode="after")
    def _target_fits(self) -> UpgradeFault:
        _check_target(self.target or [])
        return self

    @property
    def release(self) -> Release:
        return Release(self.version, self.code, self.mutant)

    @property
    def whom(self) -> str:
        return EVERYBODY if self.target is None else ", ".join(self.target)

    @property
    def named(self) -> Sequence[tuple[str, Sequence[str]]]:
        return () if self.target is None or self.target[0] in KEYWORDS else (("target", self.target),)


DiskLossFault = WipeFault | BitRotFault
DownFault = KillFault | WipeFault | LoseNodeFault | DiskFullFault | FailedSyncFault | BitRotFault
LinkFault = PartitionFault | OneWayPartitionFault | CutFault | DegradeFault | LeaderDelayFault
ImpairingFault = PauseFault | SlowDiskFault | SlowExecutionFault | ClockSkewFault
NodeFault = DownFault | ImpairingFault
AnyFault = LinkFault | NodeFault | UpgradeFault
KINDS: Final[tuple[type[AnyFault], ...]] = get_args(NodeFault | LinkFault | UpgradeFault)
KIND_NAMES: Final = tuple(kind_of(model) for model in KINDS)
LASTING_KINDS: Final = frozenset(kind_of(model) for model in KINDS if issubclass(model, _Lasting | UpgradeFault))
"""Kinds of faults that last for a while, and whose effect is reported when they end."""
RECOVERED_FROM_DISK: Final = frozenset({"kill", "lose_node", "disk_full", "failed_sync", "upgrade"})
"""Kinds of faults whose targets restart from their disk, those of a lost node unless the disks were lost with it."""
RECOVERED_BY_SNAPSHOT: Final = frozenset({"wipe", "bit_rot"})
"""Kinds of faults whose targets lose their disk, and so join again by a snapshot."""
CUTTING: Final = frozenset({"partition", "one_way_partition", "cut", "degrade"})
"""Kinds of faults that drop messages."""
SLOWING: Final = frozenset({"degrade", "leader_delay"})
"""Kinds of faults during which no progress is required, however many validators are up."""


def needs_kubernetes(fault: AnyFault) -> bool:
    """Whether the live testnet can perform a fault only in Kubernetes."""
    return isinstance(fault, KillFault) and fault.how in ("pod", "node")


def prefers_chaos_mesh(fault: AnyFault) -> bool:
    """Whether Chaos Mesh performs a fault on the live testnet, where that is possible."""
    return getattr(fault, "how", None) == CHAOS_MESH


def acts_on_pods(fault: AnyFault) -> bool:
    """Whether a fault takes down the pods of its targets, where the live testnet runs in Kubernetes."""
    return isinstance(fault, KillFault) and fault.how not in ("actor", "process")


def may_lose_node(fault: AnyFault) -> bool:
    """Whether the Ray nodes of the targets may be lost with them, on the live testnet."""
    return isinstance(fault, LoseNodeFault) or acts_on_pods(fault)


def loses_disk(fault: AnyFault) -> bool:
    """Whether a fault's targets lose their disks."""
    return isinstance(fault, DiskLossFault) or (isinstance(fault, LoseNodeFault) and fault.disks == "lost")


Fault = Annotated[
    Annotated[AnyFault, Field(discriminator="kind")],
    BeforeValidator(lambda given: check_kind(given, "fault", KIND_NAMES)),
]


def with_regions_named(fault: AnyFault, regions: Mapping[str, Sequence[str]]) -> AnyFault:
    """The fault with each region replaced by the names of its validators.

    Raises :class:`ValueError`, with the field, for an unknown region or a validator that is named twice.
    """
    changes: dict[str, list[str] | list[list[str]]] = {}
    for field in ("target", "senders", "receivers"):
        named = getattr(fault, field, None)
        if named is not None and any(name.startswith(REGION_PREFIX) for name in named):
            changes[field] = _named(named, regions, {"senders": "from", "receivers": "to"}.get(field, field))
    if isinstance(fault, PartitionFault):
        groups = [_named(group, regions, f"groups[{number}]") for number, group in enumerate(fault.groups)]
        if groups != fault.groups:
            changes["groups"] = groups
    return fault.model_copy(update=changes) if changes else fault


def _named(members: Sequence[str], regions: Mapping[str, Sequence[str]], field: str) -> list[str]:
    found: list[str] = []
    for member in members:
        region = member.removeprefix(REGION_PREFIX)
        if region == member:
            found.append(member)
        elif region in regions:
            found += regions[region]
        else:
            known = f"there are {', '.join(regions)}" if regions else "the scenario has none"
            raise ValueError(f"{field}: no region is named {region!r}; {known}")
    refuse_repeated(field, found)
    return found


def in_the_scenarios_words(given: AnyFault, fault: AnyFault, names: Sequence[str]) -> str:
    """The targets of a fault as text: ``given`` as in the scenario, ``fault`` with regions resolved.

    The text includes the unnamed group of a partition.
    """
    if not isinstance(fault, PartitionFault):
        return given.whom
    rest = set(names).difference(*fault.groups)
    named = first_few([name for name in names if name in rest], NAMED_OF_THE_REST)
    return f"{given.whom} | the rest ({named})" if rest else given.whom


class Stop(Protocol):
    """The end of a run, before which faults have to begin."""

    @property
    def below_height(self) -> int: ...

    @property
    def duration_s(self) -> int | None: ...

    @property
    def timeout_s(self) -> int: ...


def check_faults_fit(faults: Sequence[AnyFault], names: Sequence[str], joins_at: Mapping[str, int], stop: Stop) -> None:
    """Raise :class:`ValueError`, with the field's path, if a fault does not fit its scenario."""
    for position, fault in enumerate(faults):
        where = f"faults[{position}]"
        for field, named in fault.named:
            for name in named:
                if name not in names:
                    roles = (*KEYWORDS, f"{REGION_PREFIX}NAME") if field == "target" else (f"{REGION_PREFIX}NAME",)
                    hint = instead(name, [*roles, *names])
                    raise ValueError(f"{where}.{field}: no validator is named {name!r}; {hint}")
                if fault.at_height is not None and fault.at_height <= joins_at.get(name, 0):
                    raise ValueError(
                        f"{where}.at_height: {fault.at_height} is not above {joins_at[name]}, where {name} joins"
                    )
        _check_begin(fault, where, stop)
        most = fault_bound(len(names))
        if isinstance(fault, DiskLossFault) and len(fault.target) > most:
            raise ValueError(
                f"{where}.target: {len(fault.target)} of {len(names)} validators lose their disks; at most {most} may,"
                f" since the others must report the current view to them"
            )
        if isinstance(fault, PartitionFault) and not fault.cuts_any(names):
            raise ValueError(f"{where}.groups: every two validators share a group")
        if getattr(fault, "target", None) == [AS_MANY_AS_WITHSTOOD] and not most:
            raise ValueError(f"{where}.target: f is 0 of {len(names)} validators, so the fault has no target")
        if isinstance(fault, _Directed):
            _check_ends(fault, names, where)


def check_faults_reach(faults: Sequence[AnyFault], external: Collection[str]) -> None:
    """Raise :class:`ValueError` if a fault of processes or disks names a validator that the harness does not run."""
    for position, fault in enumerate(faults):
        if isinstance(fault, LinkFault):
            continue
        for field, named in fault.named:
            for name in named:
                if name in external:
                    raise ValueError(
                        f"faults[{position}].{field}: {name} is external: the harness has neither its process nor its"
                        f" disk for a {fault.kind}; only faults of links reach it"
                    )


def _check_begin(fault: AnyFault, where: str, stop: Stop) -> None:
    within, limit_s = ("timeout_s", stop.timeout_s) if stop.duration_s is None else ("duration_s", stop.duration_s)
    if fault.at_height is not None and fault.at_height >= stop.below_height:
        raise ValueError(f"{where}.at_height: {fault.at_height} is not below stop.height ({stop.below_height})")
    if fault.at_ms is not None and fault.at_ms >= limit_s * MILLISECONDS_PER_SECOND:
        raise ValueError(f"{where}.at_ms: {fault.at_ms} is not below stop.{within} ({limit_s})")


def _check_ends(fault: _Directed, names: Sequence[str], where: str) -> None:
    senders, receivers = fault.ends(names)
    if fault.senders is not None or fault.receivers is not None:
        where += ".from" if fault.senders is not None else ".to"
    if not senders or not receivers:
        raise ValueError(f"{where}: all validators are on one side")
    if len(senders | receivers) == 1:
        raise ValueError(f"{where}: {next(iter(senders))} has no link to itself, so the fault has no link")


def live_problem(faults: Sequence[AnyFault]) -> str | None:
    """The first fault that the live testnet cannot perform, as ``path: reason``; ``None`` if there is none."""
    for position, fault in enumerate(faults):
        if isinstance(fault, KillFault) and fault.reorders:
            return (
                f"faults[{position}].reorders: only the simulator can do this (--backend sim): on the live testnet the"
                f" operating system keeps what a killed process wrote"
            )
        if isinstance(fault, UpgradeFault) and fault.code is not None:
            wanted = Path(fault.code, CODE_FILE)
            if not wanted.is_file():
                return f"faults[{position}].code: {fault.code} is not a checkout: {wanted} is missing"
    return None


def simulator_problem(faults: Sequence[AnyFault]) -> str | None:
    """The first fault that the simulator cannot perform, as ``path: reason``; ``None`` if there is none."""
    for position, fault in enumerate(faults):
        if isinstance(fault, UpgradeFault) and fault.code is not None:
            return (
                f"faults[{position}].code: only the live testnet can do this (--backend live): all machines of the"
                f" simulator run in one process; see mutant"
            )
    return None
