"""Custom workloads: a Python file next to the scenario, which a group of users names instead of a shipped workload.

The reader of a scenario file replaces the path by the text of the Python file, so that run folders, other hosts and
Locust's workers need no other file. What a plan says of its workloads is read from the text's syntax tree
(:func:`facts_of`). Each process that runs the load executes the text, with all rights of that process. It is code of
the scenario's author, not an actor: nothing confines it.

Each run executes the text again (:class:`loadgen.workloads.plan.Population`): a module's data does not outlive a run,
so that equal seeds give equal transactions.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cache, lru_cache
from inspect import isabstract
from types import ModuleType
from typing import Annotated, Any, ClassVar, Final, NamedTuple

from blake3 import blake3
from pydantic import Field, ValidationError, ValidationInfo

from loadgen.workloads.base import Intent, Member, Observation, Options, Workload
from loadgen.workloads.registry import WORKLOADS, WorkloadError
from validator.chain.transactions import U64_LIMIT, Action
from validator.primitives import user_file
from validator.primitives.codec import encode
from validator.primitives.types import AMOUNT_LIMIT, PRICE_LIMIT, Address
from validator.primitives.user_file import (
    MAX_BYTES,
    NAME_PATTERN,
    SUFFIX,
    NotWritten,
    WrittenClass,
    classes_of,
    place_of,
)

MODULE_PREFIX: Final = "stampede_workload_"
"""Prefix of the names of the modules that are made from the texts of custom workloads."""
FACTS: Final = ("is_runner", "is_deployer", "is_attack", "actor_percent")
"""Class attributes with which a workload class describes its workload, in addition to ``name`` and ``options_type``."""
KEPT_KINDS: Final = 64
EXECUTES: Final[Mapping[str, bool]] = {"executes": True}
"""The context of pydantic's validation in which a plan's own code is executed, to check all of it."""


def executes(info: ValidationInfo) -> bool:
    """Whether a validation may execute a plan's own code."""
    return info.context == EXECUTES


class OwnWorkload(Options):
    """A custom workload. A scenario file names it by the path of a Python file."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    """The file's name, without ``.py``. It is also the workload's name, unless its class has another one."""
    source: Annotated[str, Field(min_length=1, max_length=MAX_BYTES)]
    """The file's text."""

    @property
    def file(self) -> str:
        """The file's name."""
        return f"{self.name}{SUFFIX}"

    @property
    def module(self) -> str:
        """The name of the module made from the text; each text has a different one."""
        digest = blake3(f"{self.name}\n{self.source}".encode()).hexdigest(length=8)
        return f"{MODULE_PREFIX}{self.name.replace('-', '_')}_{digest}"


class Facts(NamedTuple):
    """What a workload says of itself."""

    name: str
    is_runner: bool
    is_deployer: bool
    is_attack: bool
    actor_percent: int


def facts_of(workload: str | OwnWorkload) -> Facts:
    """The facts of a shipped or custom workload. The text of a custom one is not executed: :func:`kind_of` finds more
    errors. Raises :class:`WorkloadError` for an invalid custom one, and :class:`KeyError` for an unknown name."""
    if not isinstance(workload, str):
        return _written_facts(workload)
    kind = WORKLOADS[workload]
    return Facts(kind.name, *(getattr(kind, fact) for fact in FACTS))


@cache
def _shipped() -> frozenset[type]:
    """The workload classes that ship, and what they are derived from."""
    return frozenset(base for kind in WORKLOADS.shipped.values() for base in kind.__mro__)


@lru_cache(maxsize=KEPT_KINDS)
def _written_facts(own: OwnWorkload) -> Facts:
    with one_line(own.file):
        found = [each for each in classes_of(own.source, own.file, _shipped()) if Workload in each.lineage]
        kind = _only({each.name: each.is_abstract for each in found}, own.file)
        (chosen,) = (each for each in found if each.name == kind)
        values = {fact: _written(chosen, fact, own.file) for fact in FACTS}
        is_named = isinstance(chosen.holder("name"), WrittenClass)
        return _checked(kind, _written(chosen, "name", own.file) if is_named else own.name, values, own.file)


def _written(kind: WrittenClass, fact: str, file: str) -> Any:
    try:
        return kind.value(fact)
    except NotWritten as error:
        raise WorkloadError(
            f"{place_of(file, error.line)}: {kind.name}.{fact}: expected a value written out, since it is read without"
            " executing the file"
        ) from None


def _checked(kind: str, name: Any, values: Mapping[str, Any], file: str) -> Facts:
    if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name):
        raise WorkloadError(
            f"file {file}: {kind}.name: expected lower-case letters, digits, - and _, got {name!r:.200}"
        )
    if name in WORKLOADS:
        raise WorkloadError(f"file {file}: another workload is named {name}; expected another name")
    percent = values["actor_percent"]
    if not isinstance(percent, int) or not 0 <= percent <= 100:
        raise WorkloadError(f"file {file}: {kind}.actor_percent: expected 0 to 100, got {percent!r}")
    for fact, value in values.items():
        if fact != "actor_percent" and not isinstance(value, bool):
            raise WorkloadError(f"file {file}: {kind}.{fact}: expected True or False, got {value!r:.200}")
    return Facts(name, **values)


def _only(is_abstract: Mapping[str, bool], file: str) -> str:
    """The name of the one class of a file that may be its workload. Raises :class:`WorkloadError`."""
    kinds = [name for name, each in is_abstract.items() if not each]
    if len(kinds) != 1:
        abstract = ", ".join(name for name, each in is_abstract.items() if each)
        hint = f" ({abstract} has no method intents)" if abstract and not kinds else ""
        raise WorkloadError(
            f"file {file}: expected one subclass of loadgen.workloads.base.Workload, got"
            f" {', '.join(kinds) or 'none'}{hint}"
        )
    return kinds[0]


def kind_of(workload: str | OwnWorkload) -> type[Workload[Any]]:
    """The class of a shipped or custom workload; the text of a custom one is executed. Raises :class:`WorkloadError`
    for an invalid custom one, and :class:`KeyError` for an unknown name."""
    if isinstance(workload, str):
        return WORKLOADS[workload]
    kind = _EXECUTED.get(workload)
    if kind is None:
        kind = execute(workload)
        if len(_EXECUTED) >= KEPT_KINDS:
            _EXECUTED.clear()
        _EXECUTED[workload] = kind
    return kind


_EXECUTED: Final[dict[OwnWorkload, type[Workload[Any]]]] = {}


def known_kind(workload: str | OwnWorkload) -> type[Workload[Any]] | None:
    """The class of a workload; ``None`` if it is a custom one that this process has not executed."""
    return WORKLOADS.get(workload) if isinstance(workload, str) else _EXECUTED.get(workload)


def kind_of_a_run(workload: str | OwnWorkload) -> type[Workload[Any]]:
    """The class of a workload for one run: the text of a custom one is executed again, so that no other run shares its
    module. Errors are those of :func:`kind_of`."""
    return WORKLOADS[workload] if isinstance(workload, str) else execute(workload)


def execute(own: OwnWorkload) -> type[Workload[Any]]:
    """Execute the text of a custom workload. Returns its class, wrapped so that its exceptions become
    :class:`WorkloadError`. Raises :class:`WorkloadError` if the text is invalid."""
    as_written = facts_of(own)
    user_file.require_runs(own.file)
    module = ModuleType(own.module)
    sys.modules[own.module] = module  # dataclasses and pydantic look there for the names in annotations
    with one_line(own.file):
        exec(compile(own.source, own.file, "exec", dont_inherit=True), vars(module))
    found = {
        value.__name__: value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Workload) and value.__module__ == own.module
    }
    kind = found[_only({name: isabstract(each) for name, each in found.items()}, own.file)]
    options_type: Any = kind.options_type
    if not isinstance(options_type, type) or not issubclass(options_type, Options):
        raise WorkloadError(
            f"file {own.file}: {kind.__name__}.options_type: expected a subclass of loadgen.workloads.base.Options"
        )
    inside = [vars(each) for each in kind.__mro__ if each.__module__ == own.module]
    name = next((fields["name"] for fields in inside if "name" in fields), own.name)
    facts = _checked(kind.__name__, name, {fact: getattr(kind, fact) for fact in FACTS}, own.file)
    for fact, value, said in zip(Facts._fields, facts, as_written, strict=True):
        if value != said:
            raise WorkloadError(
                f"file {own.file}: {kind.__name__}.{fact}: is {value!r} when the file runs, but {said!r} as its class"
                " is written"
            )
    fields = {"file": own.file, "kind": kind, "options_type": options_type, **facts._asdict()}
    return type(kind.__name__, (_Guarded,), fields)


class _Guarded(Workload[Any]):
    """A wrapper of a custom workload, which turns the workload's exceptions into :class:`WorkloadError`."""

    file: ClassVar[str]
    kind: ClassVar[type[Workload[Any]]]

    def __init__(self, options: Options, member: Member) -> None:
        super().__init__(options, member)
        with one_line(self.file):
            self._own = self.kind(options, member)

    @property
    def watched(self) -> Address:
        with one_line(self.file):
            return self._own.watched

    @classmethod
    def actor_code(cls, options: Options) -> str:
        with one_line(cls.file):
            return cls.kind.actor_code(options)

    def intents(self, observation: Observation) -> list[Intent]:
        with one_line(self.file):
            intents = self._own.intents(observation)
        self._check(intents)
        return intents

    def dropped(self, intent: Intent) -> None:
        with one_line(self.file):
            self._own.dropped(intent)

    def _check(self, intents: Any) -> None:
        """Raise :class:`WorkloadError` for intents that cannot become transactions."""
        if not isinstance(intents, list) or not all(isinstance(each, Intent) for each in intents):
            raise WorkloadError(f"file {self.file}: intents: expected a list of Intent, got {intents!r:.200}")
        for intent in intents:
            for name, value, limit in _amounts(intent):
                if not isinstance(value, int) or not 0 <= value < limit:
                    raise WorkloadError(
                        f"file {self.file}: intents: {name}: expected a whole number below {limit}, got {value!r:.200}"
                    )
            try:
                if not isinstance(intent.action, Action):
                    raise TypeError("expected Transfer, Deploy, Call or System")
                encode(intent.action)
            except (TypeError, ValueError, OverflowError) as error:
                raise WorkloadError(f"file {self.file}: intents: action: {error}, got {intent.action!r:.200}") from None


def _amounts(intent: Intent) -> Iterator[tuple[str, Any, int]]:
    """An intent's numbers: name, value, and exclusive bound."""
    for name, limit in (
        ("gas_limit", U64_LIMIT), ("cells_limit", U64_LIMIT), ("value", AMOUNT_LIMIT), ("timer_allowance", AMOUNT_LIMIT)
    ):  # fmt: skip
        yield name, getattr(intent, name), limit
    if intent.terms is not None:
        yield "terms.nonce", intent.terms.nonce, U64_LIMIT
        for name in ("max_fee_per_cycle", "max_priority_fee_per_cycle", "max_fee_per_cell"):
            yield f"terms.{name}", getattr(intent.terms, name), PRICE_LIMIT


def one_line(file: str) -> AbstractContextManager[None]:
    """Context manager that turns exceptions of a custom workload's code into :class:`WorkloadError`, with file and
    line. Validation errors of options are not changed."""
    return user_file.one_line(file, WorkloadError, (ValidationError,))
