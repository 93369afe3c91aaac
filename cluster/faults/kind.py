"""What every kind of fault has: the fault as the scenario plans it, and its course once it has begun.

A kind is a subclass of :class:`FaultKind`, one module in ``cluster/faults/kinds/``. Most belong to a family, which has
their course: faults of links (:mod:`cluster.faults.link_kind`), faults that take validators down
(:mod:`cluster.faults.downtime`), and those that impair running ones (:mod:`cluster.faults.impairing_kind`). All is
pure: a course is told what was seen, and orders what drivers perform (:mod:`cluster.faults.events`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Protocol, Self, TypeVar, cast

from pydantic import BeforeValidator, model_validator

from cluster.common.wording import first_few
from cluster.faults.events import BitFlipped, Counted, End, FaultCall, Observed
from cluster.faults.stage import Stage
from cluster.faults.targets import Reach, Targets
from cluster.record.run import Backend, FaultRecord
from cluster.scenario import Scenario
from cluster.scenario.sections.base import (
    AS_MANY_AS_WITHSTOOD,
    KEYWORDS,
    LEADER,
    RANDOM,
    Duration,
    Height,
    Section,
    refuse_repeated,
)
from cluster.scenario.sections.faults import (
    EVERYBODY,
    REGION_PREFIX,
    BaseFault,
    CustomFault,
    Member,
    Names,
    OwnFault,
    Stop,
    first_of,
    named_in,
    ready,
)
from cluster.scenario.sections.validators import ValidatorsSection
from consensus.types import fault_bound

Cue = FaultCall | Counted | BitFlipped
"""What lets a course go on: a call that it has scheduled, or an order's answer."""
F = TypeVar("F", bound=Section)
LENGTHS: Final = {"down_ms": "down for at least {:,} ms", "for_ms": "{:,} ms", "until_height": "until height {:,}"}
"""Fields that decide how long a fault lasts, in words."""
CHAOS_MESH: Final = "chaos-mesh"
MAX_NAMED: Final = 12
"""Maximum number of validators that a description lists."""


class Drawing(Protocol):
    """What a random scenario offers to a kind that is drawn (``cluster/commands/sweeps/drawing/``)."""

    random: Any
    """The random source: a :class:`random.Random`."""
    targets: list[str]
    """Validators that faults may name."""
    latency_ms: float
    interval_ms: int
    leader_timeout_ms: int

    def target(self) -> str | list[str]: ...

    def some(self) -> list[str]: ...

    def lasting_ms(self) -> int:
        """A random duration longer than a view change, so that a fault takes effect."""


class FaultKind(BaseFault):
    """A fault as the scenario plans it: words, estimates and demands on drivers. Its subclasses say what it does."""

    COURSE: ClassVar[type[Course]]
    """Its course once it has begun."""
    SHOWN: ClassVar[tuple[str, ...]] = ()
    """Fields that ``stampede explain`` shows, if they have a value."""
    DRAWN: ClassVar[dict[str, Callable[[Drawing], Any]]] = {}
    """How a random scenario draws its fields, besides kind and beginning."""
    EXAMPLE: ClassVar[Mapping[str, Any]] = {}
    """The fields of a fault that takes effect among four validators, all but kind and beginning. Tests of all kinds use
    it for a kind that they do not list."""
    stops: ClassVar[bool] = False
    """Whether what it hits takes no part in consensus, or cannot."""
    spoils_disks: ClassVar[bool] = False
    """Whether disks must be able to fail or to be slow."""
    rots: ClassVar[bool] = False
    """Whether bits of disks flip, in data whose age must be known."""
    ends_nodes: ClassVar[bool] = False
    """Whether it ends Ray nodes of the testnet's own."""

    @classmethod
    def draw(cls, drawing: Drawing) -> dict[str, Any]:
        """Draw the fields for a random scenario, all but kind and beginning."""
        return {name: draw(drawing) for name, draw in cls.DRAWN.items()}

    @property
    def prefers_chaos_mesh(self) -> bool:
        """Whether Chaos Mesh performs it on the live testnet, where that is possible."""
        return getattr(self, "how", None) == CHAOS_MESH

    @property
    def needs_kubernetes(self) -> bool:
        """Whether the live testnet can perform it only in Kubernetes."""
        return False

    def deaths(self, names: set[str]) -> int:
        """How often it may end the processes of a host that carries these validators."""
        return 0

    # --- words and estimates ------------------------------------------------------------------------------------------

    def words(self, names: Sequence[str], given: BaseFault) -> str:
        """Its targets in the words of the scenario, in which it is ``given``."""
        return given.whom

    def aim(self, validators: ValidatorsSection, given: BaseFault) -> str:
        """Its targets, as far as they are known before it begins; ``given`` may name regions instead."""
        return self.whom

    @property
    def details(self) -> str:
        """What else is to be known of it, after a space and in brackets; empty if it is nothing."""
        values = ((name, getattr(self, name)) for name in self.SHOWN)
        given = [(name, value) for name, value in values if value is not None and value is not False]
        shown = [f"{name} {'true' if value is True else value}" for name, value in given]
        return f" ({', '.join(shown)})" if shown else ""

    @property
    def lengths(self) -> dict[str, int]:
        """What decides how long it lasts: fields of :data:`LENGTHS` that have a value."""
        return {name: value for name in LENGTHS if (value := getattr(self, name, None)) is not None}

    @property
    def length(self) -> str:
        """How long it lasts, in words."""
        return " or ".join(LENGTHS[name].format(value) for name, value in self.lengths.items())

    @property
    def length_field(self) -> str:
        """The field that decides how long it lasts, after a point; empty if there is none."""
        return next((f".{name}" for name in self.lengths), "")

    @property
    def stops_for_ms(self) -> int | None:
        """For how long it surely keeps validators from taking part; ``None`` if that is not known, or no matter."""
        lengths = list(self.lengths.values())
        return lengths[0] if self.stops and "until_height" not in self.lengths else None

    @property
    def warning(self) -> str | None:
        """Why it cannot be observed; ``None`` if it can."""
        return None

    def end_ms(self, begins_ms: float, each_ms: float, validators: ValidatorsSection, height_ms: float) -> float:
        """Estimate of its end, if a block takes ``each_ms``. ``height_ms`` is the time of its ``until_height``."""
        ends = {name: begins_ms + value for name, value in self.lengths.items()}
        if "until_height" in ends:
            ends["until_height"] = max(begins_ms, height_ms)
        return min(ends.values(), default=begins_ms)

    def gone(self, validators: ValidatorsSection) -> set[str]:
        """The validators that certainly take no part during the fault."""
        return set()


class Unread(CustomFault, FaultKind):
    """A fault of a custom kind whose text is not executed: only when it begins is known."""

    def aim(self, validators: ValidatorsSection, given: BaseFault) -> str:
        return f"as {self.kind.file} has it"


def plans_of(scenario: Scenario) -> list[FaultKind]:
    """The faults of a scenario with regions replaced by their validators. Custom kinds are executed."""
    regions = scenario.regions
    return [cast(FaultKind, ready(given).with_regions_named(regions)) for given in scenario.faults]


def problem_of(scenario: Scenario, backend: Backend) -> str | None:
    """The first fault that a backend cannot perform, as ``path: reason``. Custom kinds are executed, and asked, too."""
    plans = plans_of(scenario)
    return first_of(plan.live_problem if backend == "live" else plan.simulator_problem for plan in plans)


def known_plans(scenario: Scenario) -> list[FaultKind]:
    """As :func:`plans_of`, but nothing is executed."""
    common = set(BaseFault.model_fields) | {"kind"}
    faults = [
        Unread.model_validate(fault.model_dump(include=common)) if isinstance(fault, OwnFault) else fault
        for fault in scenario.faults
    ]
    return plans_of(scenario.model_copy(update={"faults": faults}))


class Lasting(FaultKind):
    """A fault that ends after a time or at a height, whichever comes first."""

    for_ms: Duration | None = None
    """How long it lasts."""
    until_height: Height | None = None
    """It ends once the first validator has finalised this height; with ``for_ms`` too, whichever comes first."""

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.for_ms is None and self.until_height is None:
            raise ValueError("for_ms: give for_ms or until_height")
        if self.until_height is not None and self.until_height <= (self.at_height or 0):
            raise ValueError(f"until_height: {self.until_height} is not above at_height ({self.at_height})")
        return self


Target = Annotated[
    Names,
    BeforeValidator(
        lambda given: [given] if isinstance(given, str) else given,
        json_schema_input_type=Literal["leader", "random", "f"] | Member | Names,
    ),
]
"""A :data:`Member`, a list of them, or one of :data:`KEYWORDS`."""


class OfValidators(FaultKind):
    """A fault of validators. Its subclasses have a field ``target``; ``None`` in it means all validators."""

    is_hard: ClassVar[bool] = False
    """Whether its targets cannot take part in consensus at all, so that without a quorum nothing may become final."""
    takes_all: ClassVar[bool] = False
    """Whether the other validators on the targets' hosts are targets, too."""

    if TYPE_CHECKING:
        target: Any

    @model_validator(mode="after")
    def _target_fits(self) -> Self:
        target = self.target or []
        if len(target) > 1 and (found := [name for name in target if name in KEYWORDS]):
            raise ValueError(f"target: {found[0]!r} cannot be in a list")
        refuse_repeated("target", target)
        return self

    @property
    def whom(self) -> str:
        return EVERYBODY if self.target is None else ", ".join(self.target)

    @property
    def named(self) -> Sequence[tuple[str, Sequence[str]]]:
        return () if self.keyword or self.target is None else (("target", self.target),)

    @property
    def keyword(self) -> str:
        """The keyword that is its target; empty if it is none."""
        first: str = self.target[0] if self.target else ""
        return first if first in KEYWORDS else ""

    def with_regions_named(self, regions: Mapping[str, Sequence[str]]) -> Self:
        return with_fields_named(self, regions, target="target")

    def check_fits(self, validators: ValidatorsSection, stop: Stop) -> None:
        super().check_fits(validators, stop)
        if self.keyword == AS_MANY_AS_WITHSTOOD and not fault_bound(validators.count):
            raise ValueError(f".target: f is 0 of {validators.count} validators, so the fault has no target")

    def reach(self, acts_on_processes: bool = False, has_pods: bool = False) -> Reach:
        """What it hits with a target, in a network that acts on processes, or has pods."""
        return "validator"

    def along(self, validators: ValidatorsSection) -> list[str]:
        """The validators that go down with named targets, since they are on the same hosts or Ray nodes."""
        if self.reach() == "validator" or self.keyword:
            return []
        mates = validators.on_same_host if self.reach() == "host" else validators.on_same_ray_node
        found = {index for name in self.target for index in mates(validators.names.index(name))}
        return [name for index, name in enumerate(validators.names) if index in found and name not in self.target]

    def gone(self, validators: ValidatorsSection) -> set[str]:
        return {*self.target, *self.along(validators)} if self.stops and not self.keyword else set()

    def aim(self, validators: ValidatorsSection, given: BaseFault) -> str:
        if self.target is None:
            return "all hosts, one after the other"
        if self.keyword:
            return {
                LEADER: "the leader of the newest view",
                RANDOM: "a random running validator",
                AS_MANY_AS_WITHSTOOD: f"{validators.withstood} of {validators.count}, random among those running",
            }[self.keyword]
        region = [name.removeprefix(REGION_PREFIX) for name in getattr(given, "target", ()) if ":" in name]
        aimed = first_few(self.target, MAX_NAMED) + (f" (region {', '.join(region)})" if region else "")
        others, place = self.along(validators), "host" if self.reach() == "host" else "Ray node"
        return f"{aimed}, and on the same {place} {first_few(others, MAX_NAMED)}" if others else aimed


def with_fields_named(fault: F, regions: Mapping[str, Sequence[str]], **fields: str) -> F:
    """The fault with regions replaced in some fields, each with its name in a file."""
    changes = {}
    for field, name in fields.items():
        given = getattr(fault, field)
        if given is not None and any(each.startswith(REGION_PREFIX) for each in given):
            changes[field] = named_in(given, regions, name)
    return fault.model_copy(update=changes) if changes else fault


# --- once it has begun ------------------------------------------------------------------------------------------------


class Course:
    """A fault that has begun: its plan, its record, its targets and how far it has come.

    A family says what :meth:`begin` orders, and what :meth:`undo` does. What it is told besides, it may use.
    """

    plan: FaultKind
    watches_heights: ClassVar[bool] = False
    """Whether each new height of a validator may matter to it."""

    def __init__(
        self, plan: FaultKind, key: int, number: int, record: FaultRecord, stage: Stage, validators: Targets, lot: str
    ) -> None:
        """``key`` is its number among the faults that began, ``number`` that in the scenario. ``lot``, a text, decides
        what the scenario leaves open."""
        self.plan = plan
        self.key = key
        self.number = number
        self.record = record
        self.stage = stage
        self.validators = validators
        self.lot = lot
        self.targets: list[int] = []
        self.others: list[int] = []
        """Other validators on the same hosts, which go down with the targets."""
        self.is_in_force = False
        self._is_to_end = False
        """Whether it was to end before it was in force. It then ends as soon as it is in force."""
        self.is_over = False
        self.is_noted = False
        """Whether it is over, and its record is complete."""
        self._note_beginning()

    @property
    def hit(self) -> list[int]:
        """The targets, and the validators that go down with them."""
        return [*self.targets, *self.others]

    @property
    def is_awaited(self) -> bool:
        """Whether the run must wait for it to end: it is not over, and no target is lost for good."""
        return not (self.is_noted or any(self.stage.seat(index).is_lost for index in self.targets))

    def begin(self) -> None:
        """Order what puts it in force. The call :class:`InForce` follows once that is done."""
        raise NotImplementedError

    def come_into_force(self) -> None:
        """Note that it is in force from now on, and schedule its end, if a time decides that."""
        self.is_in_force = True
        self._note_beginning()
        self.stage.notice(f"{self.record.kind} of {self.record.whom} begins")
        for_ms = getattr(self.plan, "for_ms", None)
        if self._is_to_end:
            self.end()
        elif for_ms is not None:
            self.stage.later(for_ms, f"fault {self.number} ends", End(self.key))

    def end(self) -> None:
        """End it, or let it end once it is in force."""
        if self.is_over:
            return
        if not self.is_in_force:
            self._is_to_end = True
            return
        self.is_over = True
        self.record.ended_ms = self.stage.now_ms
        self.undo()

    def undo(self) -> None:
        """Order what undoes it. The call :class:`NoteEnd` follows once that is done, if it has to be waited for."""
        self.observe()

    def observe(self) -> None:
        """Order what finds out what it did. The answer is noted by :meth:`complete`."""
        raise NotImplementedError

    def go_on(self, cue: Cue) -> None:
        """A call that it has scheduled is due, or an order has an answer."""

    def look(self) -> None:
        """The network was seen again."""

    def note_loss(self, indices: Sequence[int]) -> bool:
        """Note that the machine of some validators is lost. Returns whether the fault is the cause."""
        return False

    def explains(self, index: int, reason: str) -> bool:
        """Whether it is the cause of a validator's stop: the reason must be an effect of the fault."""
        return False

    def note_failure(self, index: int, reason: str) -> None:
        """Note a validator that stopped because of it, and schedule its restart."""

    def complete(self, seen: Observed) -> None:
        """Complete the record."""
        self.record.evidence = evidence = self.conclude(seen)
        self.is_noted = True
        self.record.height_when_ended = self.stage.height
        self.stage.notice(f"{self.record.kind} of {self.record.whom} is over: {evidence}")

    def conclude(self, seen: Observed) -> str:
        """Note whether it took effect. Returns the evidence."""
        self.record.took_effect = seen.took_effect
        return seen.evidence

    def names_of(self, indices: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.validators.names[index] for index in indices)

    def _note_beginning(self) -> None:
        self.record.begun_ms, self.record.height_when_begun = self.stage.now_ms, self.stage.height


class TargetedCourse(Course):
    """The course of a fault of validators."""

    plan: OfValidators

    def choose(self) -> None:
        """Choose the validators that it hits."""
        plan, network = self.plan, self.stage.network
        reach = plan.reach(network.acts_on_processes, network.has_pods)
        self.targets, self.others = self.validators.pick(plan.target, reach, self.lot, takes_all=plan.takes_all)
        self.record.targets = self.names_of(self.targets)
        self.record.impaired = self.names_of(self.hit)
        self.record.is_hard = plan.is_hard
