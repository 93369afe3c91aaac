"""Custom workloads: a Python file next to the scenario, which a group of users names instead of a shipped workload.

The reader of a scenario file replaces the path by the text of the Python file, so that run folders, other hosts and
Locust's workers need no other file. Each process that reads the scenario executes the text, with all rights of that
process. It is code of the scenario's author, not an actor: nothing confines it.

Each run executes the text again (:class:`loadgen.workloads.plan.Population`): a module's data does not outlive a run,
so that equal seeds give equal transactions.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import lru_cache
from inspect import isabstract
from types import ModuleType
from typing import Annotated, Any, ClassVar, Final

from blake3 import blake3
from pydantic import Field, ValidationError

from loadgen.workloads.base import Intent, Member, Observation, Options, Workload
from loadgen.workloads.registry import WORKLOADS
from validator.chain.transactions import U64_LIMIT, Action
from validator.primitives import user_file
from validator.primitives.codec import encode
from validator.primitives.types import AMOUNT_LIMIT, PRICE_LIMIT, Address
from validator.primitives.user_file import MAX_BYTES, NAME_PATTERN, SUFFIX, UserFileError

MODULE_PREFIX: Final = "stampede_workload_"
"""Prefix of the names of the modules that are made from the texts of custom workloads."""
FACTS: Final = ("options_type", "is_runner", "is_deployer", "is_attack", "goal", "defence", "actor_percent")
"""Class attributes with which a workload class describes its workload, in addition to ``name``."""
KEPT_KINDS: Final = 64


class WorkloadError(UserFileError):
    """A custom workload is invalid, or has raised an exception."""


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


def kind_of(workload: str | OwnWorkload) -> type[Workload[Any]]:
    """The class of a shipped or custom workload. Raises :class:`WorkloadError` for an invalid custom one, and
    :class:`KeyError` for an unknown name."""
    return WORKLOADS[workload] if isinstance(workload, str) else _known_kind(workload)


def kind_of_a_run(workload: str | OwnWorkload) -> type[Workload[Any]]:
    """The class of a workload for one run: the text of a custom one is executed again, so that no other run shares its
    module. Errors are those of :func:`kind_of`."""
    return WORKLOADS[workload] if isinstance(workload, str) else execute(workload)


@lru_cache(maxsize=KEPT_KINDS)
def _known_kind(own: OwnWorkload) -> type[Workload[Any]]:
    return execute(own)


def execute(own: OwnWorkload) -> type[Workload[Any]]:
    """Execute the text of a custom workload. Returns its class, wrapped so that its exceptions become
    :class:`WorkloadError`. Raises :class:`WorkloadError` if the text is invalid."""
    module = ModuleType(own.module)
    sys.modules[own.module] = module  # dataclasses and pydantic look there for the names in annotations
    with one_line(own.file):
        exec(compile(own.source, own.file, "exec", dont_inherit=True), vars(module))
    found = {
        value: None
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Workload) and value.__module__ == own.module
    }
    kinds = [kind for kind in found if not isabstract(kind)]
    if len(kinds) != 1:
        names = ", ".join(kind.__name__ for kind in kinds)
        abstract = ", ".join(kind.__name__ for kind in found if isabstract(kind))
        hint = f" ({abstract} has no method intents)" if abstract and not kinds else ""
        raise WorkloadError(
            f"file {own.file}: expected one subclass of loadgen.workloads.base.Workload, got {names or 'none'}{hint}"
        )
    return _guarded(own, kinds[0])


def _guarded(own: OwnWorkload, kind: type[Workload[Any]]) -> type[Workload[Any]]:
    inside = [vars(each) for each in kind.__mro__ if each.__module__ == own.module]
    name = next((fields["name"] for fields in inside if "name" in fields), own.name)
    if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name):
        raise WorkloadError(
            f"file {own.file}: {kind.__name__}.name: expected lower-case letters, digits, - and _, got {name!r:.200}"
        )
    if name in WORKLOADS:
        raise WorkloadError(f"file {own.file}: a workload that ships is named {name}; expected another name")
    facts = {fact: getattr(kind, fact) for fact in FACTS}
    if not isinstance(facts["options_type"], type) or not issubclass(facts["options_type"], Options):
        raise WorkloadError(
            f"file {own.file}: {kind.__name__}.options_type: expected a subclass of loadgen.workloads.base.Options"
        )
    percent = facts["actor_percent"]
    if not isinstance(percent, int) or not 0 <= percent <= 100:
        raise WorkloadError(f"file {own.file}: {kind.__name__}.actor_percent: expected 0 to 100, got {percent!r}")
    return type(kind.__name__, (_Guarded,), {"name": name, "file": own.file, "kind": kind, **facts})


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
