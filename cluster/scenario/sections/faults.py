"""Faults as a scenario states them: what breaks, whom it hits, when it begins and how long it lasts.

One model a kind, told apart by ``kind``. What a fault does is decided by :mod:`cluster.faults.engine` and performed by
a backend; what must be seen of it is judged by :mod:`cluster.checks.run`. ``docs/scenarios.md`` is the reference of the
fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from cluster.common.suggestions import instead, unknown
from cluster.common.wording import first_few
from cluster.misbehaviour.mutants.registry import MUTANTS
from cluster.scenario.sections.base import LINK_FIELDS, Height, LinkChanges, Milliseconds, RunMilliseconds, Section
from cluster.scenario.sections.release import Release
from consensus.types import fault_bound

LEADER: Final = "leader"
RANDOM: Final = "random"
AS_MANY_AS_WITHSTOOD: Final = "f"
KEYWORDS: Final = (LEADER, RANDOM, AS_MANY_AS_WITHSTOOD)
"""Targets that are no names: no validator may be called so."""
EVERYBODY: Final = "all"
"""Whom a fault hits that needs no target."""

CODE_FILE: Final = "cluster/live/host/host.py"
"""By this file a folder is known as a checkout."""

VERSION_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$"
Version = Annotated[str, Field(pattern=VERSION_PATTERN)]
Duration = Annotated[int, Field(ge=1, le=3_600_000)]
ClockSpeed = Annotated[float, Field(ge=0.01, le=100)]
REGION_PREFIX: Final = "region:"
NAMED_OF_THE_REST: Final = 3
"""Validators of a partition's group that the scenario does not name, which words about it name."""


def _known_mutant(name: str) -> str:
    if name not in MUTANTS:
        raise ValueError(unknown("mutant", name, sorted(MUTANTS)))
    return name


MutantName = Annotated[str, AfterValidator(_known_mutant)]
"""A planted bug, by its name in ``cluster.misbehaviour.mutants``."""
MEMBER_PATTERN: Final = r"^(region:)?[a-z0-9][a-z0-9_-]{0,63}$"
Member = Annotated[str, Field(pattern=MEMBER_PATTERN)]
"""A validator's name; ``region:NAME`` stands for all validators of a region."""
Names = Annotated[list[Member], Field(min_length=1)]
Target = Annotated[
    Names,
    BeforeValidator(
        lambda given: [given] if isinstance(given, str) else given,
        json_schema_input_type=Literal["leader", "random", "f"] | Member | Names,
    ),
]
"""A :data:`Member`, a list of them, or one of :data:`KEYWORDS`."""


class _Fault(Section):
    """A fault begins when the first validator has finalised a height, or at a time."""

    at_height: Height | None = None
    """It begins once the first validator has finalised this height."""
    at_ms: RunMilliseconds | None = None
    """It begins at this time since the run began."""
    after_votes: Literal["notarize", "nullify", "finalize"] | None = None
    """With ``at_height``: it waits until a quorum has sent such votes of one view, too (``nullify``: or timeouts)."""

    @model_validator(mode="after")
    def _begins_once(self) -> _Fault:
        if (self.at_height is None) == (self.at_ms is None):
            raise ValueError("at_height: give either at_height or at_ms")
        if self.after_votes is not None and self.at_height is None:
            raise ValueError("after_votes: needs at_height")
        return self

    @property
    def whom(self) -> str:
        """Whom it hits, in words as short as a scenario's."""
        return EVERYBODY

    @property
    def named(self) -> Sequence[tuple[str, Sequence[str]]]:
        """The names of validators that it states, by field."""
        return ()


class _Lasting(_Fault):
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
        raise ValueError(f"target: {found[0]!r} stands alone, not in a list")
    if len(set(target)) < len(target):
        raise ValueError("target: a validator is named twice")


class _Targeted(Section):
    target: Target
    """Whom it hits: a validator, a list of them, ``region:NAME``, or ``leader``, ``random`` or ``f``."""

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


class PartitionFault(_Lasting):
    """Validators that share no group do not hear each other; those in none are a group of their own.

    A validator may be in several groups: one that is in both of two groups is a bridge between them.
    """

    kind: Literal["partition"]
    groups: Annotated[list[Names], Field(min_length=1)]
    """The groups, by validators' names and ``region:NAME``."""

    @model_validator(mode="after")
    def _groups_name_nobody_twice(self) -> PartitionFault:
        for number, group in enumerate(self.groups):
            if len(set(group)) < len(group):
                raise ValueError(f"groups[{number}]: a validator is named twice")
        return self

    @property
    def whom(self) -> str:
        return " | ".join(", ".join(group) for group in self.groups)

    @property
    def named(self) -> Sequence[tuple[str, Sequence[str]]]:
        return [(f"groups[{number}]", group) for number, group in enumerate(self.groups)]

    def sides(self, names: Sequence[str]) -> list[set[str]]:
        """The groups, that of the rest included where there is one."""
        groups = [set(group) for group in self.groups]
        rest = set(names).difference(*groups)
        return [*groups, rest] if rest else groups

    def cuts_any(self, names: Sequence[str]) -> bool:
        """Whether two validators share no group."""
        heard = [set[str]().union(*(side for side in self.sides(names) if name in side)) for name in names]
        return any(len(each) < len(names) for each in heard)

    def overlap(self) -> bool:
        """Whether a validator is in more than one group."""
        return len({name for group in self.groups for name in group}) < sum(map(len, self.groups))


class _Directed(_Lasting):
    senders: Names | None = Field(default=None, alias="from")
    """Whose messages; by default everybody else's than of ``to``."""
    receivers: Names | None = Field(default=None, alias="to")
    """To whom; by default to everybody else than ``from``."""

    @property
    def whom(self) -> str:
        return f"{', '.join(self.senders or ['all'])} > {', '.join(self.receivers or ['all'])}"

    @property
    def named(self) -> Sequence[tuple[str, Sequence[str]]]:
        return [("from", self.senders or []), ("to", self.receivers or [])]

    def ends(self, names: Sequence[str]) -> tuple[set[str], set[str]]:
        """From whom to whom. The side that is not given is everybody else, and everybody where neither is."""
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
    """What some validators send does not reach others; the other direction works."""

    kind: Literal["one_way_partition"]


class CutFault(_Cutting):
    """The links between two sides carry nothing, either way. All other links work."""

    kind: Literal["cut"]

    @property
    def whom(self) -> str:
        return f"{', '.join(self.senders or ['all'])} <> {', '.join(self.receivers or ['all'])}"


class DegradeFault(LinkChanges, _Directed):
    """Links are worse for a while: what is given replaces the scenario's own value."""

    kind: Literal["degrade"]

    @model_validator(mode="after")
    def _something_changes(self) -> DegradeFault:
        if not self.changes:
            raise ValueError(f"latency_ms: give at least one of {', '.join(LINK_FIELDS)}")
        return self


class LeaderDelayFault(_Lasting):
    """Whatever the leader of the current view sends takes longer."""

    kind: Literal["leader_delay"]
    delay_ms: Duration
    """How much later it arrives."""

    @property
    def whom(self) -> str:
        return LEADER


# --- validators -----------------------------------------------------------------------------------------------------


class _Down(_Targeted, _Fault):
    down_ms: Milliseconds = 2_000
    """How long it stays down at least."""


class KillFault(_Down):
    """Kill a validator's host, losing what was not synced, and start it again from its disk.

    ``down_ms`` is how long it stays down at least: Ray restarts a live host's process at once, its validators wait.
    """

    kind: Literal["kill"]
    how: Literal["actor", "process"] = "actor"
    """On the live testnet: Ray kills the host's actor, or the process gets a SIGKILL that Ray does not know of."""
    reorders: bool = False
    """Its disk reorders: of what was not synced any part may survive, not only what was written first."""


class WipeFault(_Down):
    """A validator dies with its disk; it comes back without any state, and joins by a snapshot."""

    kind: Literal["wipe"]


class DiskFullFault(_Down):
    """The next bytes that a validator writes do not fit: it stops, and starts again once there is room."""

    kind: Literal["disk_full"]


class FailedSyncFault(_Down):
    """The next sync of a validator fails: it stops, what the sync covered is lost, and it starts again."""

    kind: Literal["failed_sync"]
    of: Literal["journal", "blocks", "state"] | None = None
    """Of which files: the journal, the archive of final blocks, the state's log; by default whichever comes first."""


class BitRotFault(_Down):
    """A validator dies, and one bit of what was durable flips: it must refuse to start, and gets another disk."""

    kind: Literal["bit_rot"]


class PauseFault(_Targeted, _Lasting):
    """A validator stands still: it does nothing, messages wait, timers are late."""

    kind: Literal["pause"]


class SlowDiskFault(_Targeted, _Lasting):
    """Each sync takes longer."""

    kind: Literal["slow_disk"]
    sync_ms: Duration
    """How long a sync takes."""


class SlowExecutionFault(_Targeted, _Lasting):
    """Each job of the executor takes longer."""

    kind: Literal["slow_execution"]
    job_ms: Duration
    """How long a job takes."""


class ClockSkewFault(_Targeted, _Lasting):
    """A validator's clock runs faster or slower: 2 is twice as fast, so its timers expire after half the time."""

    OLD_NAMES = {"factor": "clock_speed"}

    kind: Literal["clock_skew"]
    clock_speed: ClockSpeed
    """How fast its clock runs: at 2, timers expire after half the time."""

    @model_validator(mode="after")
    def _something_changes(self) -> ClockSkewFault:
        if self.clock_speed == 1:
            raise ValueError("clock_speed: at 1 a clock runs as it does anyway")
        return self


class UpgradeFault(_Fault):
    """Validators get other code, one host after the other: each ends in good order and starts again from its disk.

    The next host goes once the validators of the one before have made so many heights final with the new code. Where
    one of them diverges the upgrade ends there.
    """

    kind: Literal["upgrade"]
    target: Target | None = None
    """In this order, as far as they are on different hosts; ``None`` is all validators."""
    version: Version = "2"
    """What the new code is called."""
    code: str | None = None
    """On the live testnet, the folder to take it from: another checkout. ``None`` is the same code under a new name."""
    mutant: MutantName | None = None
    """A bug that is planted in it, by its name in ``cluster.misbehaviour.mutants``."""
    down_ms: Milliseconds = 500
    """How long each host stays down at least."""
    heights_between: Height = 3
    """So many heights a host's validators make final with the new code before the next host goes."""

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
DownFault = KillFault | WipeFault | DiskFullFault | FailedSyncFault | BitRotFault
LinkFault = PartitionFault | OneWayPartitionFault | CutFault | DegradeFault | LeaderDelayFault
ImpairingFault = PauseFault | SlowDiskFault | SlowExecutionFault | ClockSkewFault
NodeFault = DownFault | ImpairingFault
AnyFault = LinkFault | NodeFault | UpgradeFault

KINDS: Final[tuple[type[AnyFault], ...]] = (
    KillFault,
    WipeFault,
    DiskFullFault,
    FailedSyncFault,
    BitRotFault,
    PauseFault,
    SlowDiskFault,
    SlowExecutionFault,
    ClockSkewFault,
    PartitionFault,
    OneWayPartitionFault,
    CutFault,
    DegradeFault,
    LeaderDelayFault,
    UpgradeFault,
)


def kind_of(model: type[AnyFault]) -> str:
    """A model's kind, as scenarios write it."""
    name: str = model.model_fields["kind"].annotation.__args__[0]  # type: ignore[union-attr]
    return name


KIND_NAMES: Final = tuple(kind_of(model) for model in KINDS)
LASTING_KINDS: Final = frozenset(kind_of(model) for model in KINDS if issubclass(model, _Lasting | UpgradeFault))
"""Faults of which is said what was seen of them once they are over."""
RECOVERED_FROM_DISK: Final = frozenset({"kill", "disk_full", "failed_sync", "upgrade"})
"""Faults whose targets restart from their disk."""
RECOVERED_BY_SNAPSHOT: Final = frozenset({"wipe", "bit_rot"})
"""Faults whose targets lose their disk."""
CUTTING: Final = frozenset({"partition", "one_way_partition", "cut", "degrade"})
"""Faults that drop messages."""
SLOWING: Final = frozenset({"degrade", "leader_delay"})
"""Faults during which no progress is demanded, however many validators are up."""


def _is_known(given: Any) -> Any:
    """One clear line for an unknown kind, in place of one that lists all models."""
    if isinstance(given, dict):
        if "kind" not in given:
            raise ValueError(f"kind: is missing; known: {', '.join(KIND_NAMES)}")
        if given["kind"] not in KIND_NAMES:
            raise ValueError(f"kind: {unknown('fault', given['kind'], KIND_NAMES)}")
    return given


Fault = Annotated[Annotated[AnyFault, Field(discriminator="kind")], BeforeValidator(_is_known)]


def with_regions_named(fault: AnyFault, regions: Mapping[str, Sequence[str]]) -> AnyFault:
    """The fault with the names of a region's validators in the place of the region.

    Raises :class:`ValueError`, with the field, for an unknown region, and where a validator is named twice then.
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
    if len(set(found)) < len(found):
        raise ValueError(f"{field}: a validator is named twice")
    return found


def in_the_scenarios_words(given: AnyFault, fault: AnyFault, names: Sequence[str]) -> str:
    """Whom a fault hits: ``given`` as the scenario has it, ``fault`` with regions named.

    The group of a partition that is named nowhere is told, too.
    """
    if not isinstance(fault, PartitionFault):
        return given.whom
    rest = set(names).difference(*fault.groups)
    named = first_few([name for name in names if name in rest], NAMED_OF_THE_REST)
    return f"{given.whom} | the rest ({named})" if rest else given.whom


def check_faults_fit(
    faults: Sequence[AnyFault], names: Sequence[str], joins_at: Mapping[str, int], stop_height: int, stop_ms: int
) -> None:
    """Raise :class:`ValueError`, with the path of the field, where a fault does not fit its scenario."""
    for position, fault in enumerate(faults):
        where = f"faults[{position}]"
        for field, named in fault.named:
            for name in named:
                if name not in names:
                    roles = (*KEYWORDS, f"{REGION_PREFIX}NAME") if field == "target" else (f"{REGION_PREFIX}NAME",)
                    told = instead(name, [*roles, *names])
                    raise ValueError(f"{where}.{field}: no validator is named {name!r}; {told}")
                if fault.at_height is not None and fault.at_height <= joins_at.get(name, 0):
                    raise ValueError(
                        f"{where}.at_height: {fault.at_height} is not above {joins_at[name]}, where {name} joins"
                    )
        if fault.at_height is not None and fault.at_height >= stop_height:
            raise ValueError(f"{where}.at_height: {fault.at_height} is not below stop.height ({stop_height})")
        if fault.at_ms is not None and fault.at_ms >= stop_ms:
            raise ValueError(f"{where}.at_ms: {fault.at_ms} is not below stop.timeout_s ({stop_ms // 1_000})")
        most = fault_bound(len(names))
        if isinstance(fault, DiskLossFault) and len(fault.target) > most:
            raise ValueError(
                f"{where}.target: {len(fault.target)} of {len(names)} validators lose their disks; at most {most} may,"
                f" since the others must tell them where they may have voted"
            )
        if isinstance(fault, PartitionFault) and not fault.cuts_any(names):
            raise ValueError(f"{where}.groups: every two validators share a group")
        if getattr(fault, "target", None) == [AS_MANY_AS_WITHSTOOD] and not most:
            raise ValueError(f"{where}.target: f is 0 of {len(names)} validators, so that nobody would be hit")
        if isinstance(fault, _Directed):
            _check_ends(fault, names, where)


def _check_ends(fault: _Directed, names: Sequence[str], where: str) -> None:
    senders, receivers = fault.ends(names)
    if fault.senders is not None or fault.receivers is not None:
        where += ".from" if fault.senders is not None else ".to"
    if not senders or not receivers:
        raise ValueError(f"{where}: all validators are on one side")
    if len(senders | receivers) == 1:
        raise ValueError(f"{where}: {next(iter(senders))} has no link to itself, so that none would be hit")


def live_problem(faults: Sequence[AnyFault]) -> str | None:
    """What of the faults the live testnet cannot perform, as ``path: reason``; ``None`` where it can perform all."""
    for position, fault in enumerate(faults):
        if isinstance(fault, KillFault) and fault.reorders:
            return (
                f"faults[{position}].reorders: on the live testnet a killed process loses nothing that the operating"
                f" system has, and only a power cut would reorder it; the simulator does that (--backend sim)"
            )
        if isinstance(fault, UpgradeFault) and fault.code is not None:
            wanted = Path(fault.code, CODE_FILE)
            if not wanted.is_file():
                return f"faults[{position}].code: {fault.code} is no checkout: there is no {wanted}"
    return None


def simulator_problem(faults: Sequence[AnyFault]) -> str | None:
    """What of the faults the simulator cannot perform, likewise."""
    for position, fault in enumerate(faults):
        if isinstance(fault, UpgradeFault) and fault.code is not None:
            return (
                f"faults[{position}].code: all machines of the simulator run in one process and from one folder, where"
                f" only a mutant can be other code; on the live testnet each host has its own (--backend live)"
            )
    return None
