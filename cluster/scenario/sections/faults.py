"""The ``faults`` of a scenario: the fields and facts of every fault, and how a kind is found by its name.

The code of a kind is one module in ``cluster/faults/kinds/``, a class that an installed package registers
(:mod:`cluster.common.plugins`), or a file next to the scenario. It is imported when a scenario has such a fault. The
text of a file is not executed when a scenario is read: until then its fault is an :class:`OwnFault`, whose fields are
not checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, Protocol

from pydantic import BeforeValidator, ConfigDict, Field, SerializeAsAny, ValidationInfo, create_model, model_validator

from cluster.common.plugins import FAULTS, load_named, points
from cluster.common.suggestions import instead, unknown
from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.scenario.sections.base import KEYWORDS, Height, RunMilliseconds, Section, kind_of, refuse_repeated
from cluster.scenario.sections.kinds import KEPT, OwnKind, only_class_in, refuse_path
from cluster.scenario.sections.validators import ValidatorsSection
from loadgen.workloads.own import executes
from validator.primitives.offered import expect_class
from validator.primitives.user_file import UserFileError, one_line

EVERYBODY: Final = "all"
"""The text that is shown as the target of a fault that has none."""
FIRST_VERSION: Final = "1"
"""Name of the code at the start of a run."""
VERSION_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$"
CODE_FILE: Final = "cluster/live/host/host.py"
"""The file by which a folder is recognized as a checkout of the code."""
REGION_PREFIX: Final = "region:"
MEMBER_PATTERN: Final = r"^(region:)?[a-z0-9][a-z0-9_-]{0,63}$"
Member = Annotated[str, Field(pattern=MEMBER_PATTERN)]
"""A validator's name; ``region:NAME`` means all validators of a region."""
Names = Annotated[list[Member], Field(min_length=1)]
Problem = tuple[str, str]
"""A field, with a point before it, and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Release:
    """A version of the code that an upgrade installs."""

    version: str = FIRST_VERSION
    code: str | None = None
    """The folder of the code, on the live testnet; ``None`` is the driver's own."""
    mutant: str | None = None
    """A planted bug in the new code."""


class Facts(NamedTuple):
    """What the checks know of a kind of fault."""

    lasts: bool = True
    """Whether the fault lasts until it ends by itself; otherwise until its targets are up again."""
    restarts_from: Literal["", "disk", "snapshot"] = ""
    """What its targets restart from; empty if they do not restart. A target whose disk was lost with its Ray node
    restarts from a snapshot anyway."""
    drops_messages: bool = False
    slows_progress: bool = False
    """Whether no progress is required while it is in force, however many validators are up."""


class Stop(Protocol):
    """The end of a run, before which faults have to begin."""

    @property
    def below_height(self) -> int: ...

    @property
    def duration_s(self) -> int | None: ...

    @property
    def timeout_s(self) -> int: ...


class BaseFault(Section):
    """The fields of every fault: it begins when the first validator has finalised a height, or at a time.

    A kind has a field ``kind`` in addition, a literal with its name.
    """

    FACTS: ClassVar[Facts] = Facts()
    of_links: ClassVar[bool] = False
    """Whether it acts on links alone, and so reaches validators that another party runs."""

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
    def kind_name(self) -> str:
        """The name of its kind, as reports have it."""
        return kind_of(type(self))

    @property
    def whom(self) -> str:
        """The targets, in the scenario's short form."""
        return EVERYBODY

    @property
    def named(self) -> Sequence[tuple[str, Sequence[str]]]:
        """The validators' names in the fault, by field."""
        return ()

    @property
    def release(self) -> Release | None:
        """The code that it brings; ``None`` if it brings none."""
        return None

    def with_regions_named(self, regions: Mapping[str, Sequence[str]]) -> BaseFault:
        """The fault with each region replaced by the names of its validators.

        Raises :class:`ValueError`, with the field, for an unknown region or a validator that is named twice.
        """
        return self

    def check_fits(self, validators: ValidatorsSection, stop: Stop) -> None:
        """Raise :class:`ValueError`, with the field's path after a point, if the fault does not fit its scenario."""
        names = validators.names
        joins_at = {names[index]: height for index, height in validators.late.items()}
        for field, named in self.named:
            for name in named:
                if name not in names:
                    roles = (*KEYWORDS, f"{REGION_PREFIX}NAME") if field == "target" else (f"{REGION_PREFIX}NAME",)
                    raise ValueError(f".{field}: no validator is named {name!r}; {instead(name, [*roles, *names])}")
                if self.at_height is not None and self.at_height <= joins_at.get(name, 0):
                    raise ValueError(f".at_height: {self.at_height} is not above {joins_at[name]}, where {name} joins")
        within, limit_s = ("timeout_s", stop.timeout_s) if stop.duration_s is None else ("duration_s", stop.duration_s)
        if self.at_height is not None and self.at_height >= stop.below_height:
            raise ValueError(f".at_height: {self.at_height} is not below stop.height ({stop.below_height})")
        if self.at_ms is not None and self.at_ms >= limit_s * MILLISECONDS_PER_SECOND:
            raise ValueError(f".at_ms: {self.at_ms} is not below stop.{within} ({limit_s})")

    @property
    def live_problem(self) -> Problem | None:
        """Why the live testnet cannot perform it; ``None`` if it can."""
        return None

    @property
    def simulator_problem(self) -> Problem | None:
        """Why the simulator cannot perform it; ``None`` if it can."""
        return None


# --- kinds, by name ---------------------------------------------------------------------------------------------------

FOLDER: Final = Path(__file__).parents[2] / "faults" / "kinds"
SHIPPED: Final[Mapping[str, str]] = {
    path.stem: f"cluster.faults.kinds.{path.stem}" for path in sorted(FOLDER.glob("[a-z]*.py"))
}
"""The modules of the kinds that ship, by the kinds' names."""


@cache
def kind_names() -> tuple[str, ...]:
    """The names of all kinds that ship or are installed."""
    return tuple(dict.fromkeys([*SHIPPED, *(point.name for point in points(FAULTS))]))


def is_kind(name: str) -> bool:
    """Whether a kind of that name ships or is installed."""
    return name in SHIPPED or name in kind_names()


@cache
def kind_named(name: str) -> type[BaseFault]:
    """The class of a kind that ships, which no package replaces, or is installed. Raises :class:`BadInput` if there is
    none."""
    if name in SHIPPED:
        return only_class_in(import_module(SHIPPED[name]), BaseFault, "fault")
    return load_named(FAULTS, name, lambda found: _with_course(expect_class(found, BaseFault, name, kind_of)))


def _with_course(kind: type[BaseFault]) -> type[BaseFault]:
    if not hasattr(kind, "COURSE"):
        raise ValueError(f"expected a subclass of FaultKind that has a COURSE, got {kind!r}")
    return kind


def facts_of(kind: str) -> Facts:
    """What the checks know of a kind that ships or is installed; of any other, what they know of most."""
    return kind_named(kind).FACTS if is_kind(kind) else Facts()


# --- kinds of the user's own ------------------------------------------------------------------------------------------


class CustomFault(BaseFault):
    """A fault of a custom kind."""

    kind: OwnKind

    @property
    def kind_name(self) -> str:
        return self.kind.name


class OwnFault(CustomFault):
    """A fault of a custom kind whose text was not executed so far. Its own fields are not checked."""

    model_config = ConfigDict(extra="allow")


@lru_cache(maxsize=KEPT)
def executed(own: OwnKind) -> type[BaseFault]:
    """Execute the text of a custom kind. Returns its class. Raises :class:`UserFileError` if the text is invalid."""
    if is_kind(own.name):
        raise UserFileError(f"file {own.file}: a kind of fault is named {own.name}; expected another name")
    with one_line(own.file):
        kind = _with_course(own.executed(BaseFault, "fault"))
        return create_model(kind.__name__, __base__=(CustomFault, kind), __module__=kind.__module__)


def ready(fault: BaseFault) -> BaseFault:
    """The fault as its kind has it. The text of a custom kind is executed.

    Raises :class:`UserFileError`, and pydantic's ``ValidationError`` for wrong fields.
    """
    return executed(fault.kind).model_validate(fault.model_dump()) if isinstance(fault, OwnFault) else fault


def _of_its_kind(given: Any, info: ValidationInfo) -> Any:
    """The fault of given fields. Raises :class:`ValueError`, and its subclasses, for wrong ones."""
    if not isinstance(given, dict):
        return given
    match given.get("kind"):
        case None:
            raise ValueError(f"kind: is missing; known: {', '.join(kind_names())}")
        case dict() | OwnKind():
            fault = OwnFault.model_validate(given)
            return ready(fault) if executes(info) else fault
        case str(name) if is_kind(name):
            return kind_named(name).model_validate(given)
        case other:
            refuse_path("kind: ", other)
            raise ValueError(f"kind: {unknown('fault', other, kind_names())}")


Fault = Annotated[SerializeAsAny[BaseFault], BeforeValidator(_of_its_kind)]
"""A fault of any kind."""


# --- all faults of a scenario -----------------------------------------------------------------------------------------


def check_faults(faults: Sequence[BaseFault], validators: ValidatorsSection, stop: Stop) -> None:
    """Raise :class:`ValueError`, with the field's path, if a fault does not fit its scenario."""
    external = {validators.names[index] for index in validators.external}
    for position, fault in enumerate(faults):
        try:
            fault.check_fits(validators, stop)
            _check_reaches(fault, external)
        except ValueError as error:
            raise ValueError(f"faults[{position}]{error}") from None


def _check_reaches(fault: BaseFault, external: Collection[str]) -> None:
    if fault.of_links:
        return
    for field, named in fault.named:
        for name in named:
            if name in external:
                raise ValueError(
                    f".{field}: {name} is external: the harness has neither its process nor its disk for a"
                    f" {fault.kind_name}; only faults of links reach it"
                )


def first_of(problems: Iterable[Problem | None]) -> str | None:
    """The first problem of a scenario's faults, as ``path: reason``; ``None`` if there is none."""
    return next((f"faults[{place}]{found[0]}: {found[1]}" for place, found in enumerate(problems) if found), None)


def named_in(members: Sequence[str], regions: Mapping[str, Sequence[str]], field: str) -> list[str]:
    """Validators' names, from names and regions. Raises :class:`ValueError` as :meth:`BaseFault.with_regions_named`."""
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


def checkout_problem(code: str) -> Problem | None:
    """Why a folder cannot be the code of an upgrade; ``None`` if it can."""
    wanted = Path(code, CODE_FILE)
    return None if wanted.is_file() else (".code", f"{code} is not a checkout: {wanted} is missing")
