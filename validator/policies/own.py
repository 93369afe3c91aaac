"""Policies of users: a Python file with a class that is derived from the timer phase of a shipped policy (SPEC §13).

The genesis has the file's text, so every validator, a replay and a re-execution run the same code. Nothing confines
it. What the genesis needs of a policy is read from the text's syntax tree (:func:`read_policy`). Only what runs a chain
executes the text (:func:`phase_of`), and a process does so once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy

# The names that annotations of a user's dataclass may need: dataclasses look for them in this module.
from dataclasses import dataclass, field, replace  # noqa: F401
from functools import lru_cache
from inspect import isabstract
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from validator.chain.genesis import Policy, PolicyFile, Replaces
from validator.chain.records import timer_key
from validator.execution.lane_rules import LaneRules
from validator.execution.timer_phase import Candidate, TimerPhase
from validator.policies.registry import PHASES
from validator.primitives.params import ParameterError, integer
from validator.primitives.types import AMOUNT_LIMIT
from validator.primitives.user_file import (
    NAME_PATTERN,
    NotWritten,
    UserFileError,
    WrittenClass,
    classes_of,
    one_line,
    place_of,
    require_runs,
)

PARAMETER_PATTERN: Final = r"[a-z][a-z0-9_]{0,63}"
"""Pattern of the name of a parameter that a user's policy states."""
LEAST, MOST = 1 - AMOUNT_LIMIT, AMOUNT_LIMIT - 1
"""The least and the greatest value that such a parameter may have."""
KEPT: Final = 16
"""Number of texts, and of phases made from them, that a process keeps."""
FIXED_RULES: Final = ("bids", "has_watches", "timers_first")
"""What the rules of a user's policy have in common with those of the policy from which it is derived."""
SHIPPED: Final = frozenset({*PHASES.values(), *(base for phase in PHASES.values() for base in phase.__mro__)})
"""The timer phases that ship, and what they are derived from."""
Kind = TypeVar("Kind", WrittenClass, type[TimerPhase])


class PolicyError(UserFileError):
    """A user's policy is invalid, or has raised an exception."""


class Stated(NamedTuple):
    """A parameter that a user's policy states: its default, and the least and the greatest value."""

    default: int
    min: int
    max: int


@lru_cache(maxsize=KEPT)
def read_policy(name: str, source: str) -> tuple[Policy, PolicyFile]:
    """A user's policy by its file's name and text, with the shipped policy from which it is derived. Its parameters
    have their defaults.

    The text is not executed: :func:`phase_of` finds more errors. Raises :class:`PolicyError`.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise PolicyError(
            f"a file's name: expected lower-case letters, digits, '-' and '_', at most 64, got {name!r:.80}"
        )
    file = PolicyFile(name, source).file
    with one_line(file, PolicyError):
        found = _written(source, file)
        base = _base(found, found.lineage, file)
        try:
            replaces = _replaces(found, found.value("replaces", {"Replaces": Replaces}), file)
        except NotWritten as error:
            raise PolicyError(
                f"{place_of(file, error.line)}: {found.name}.replaces: expected a set written out, such as {{'order'}},"
                " since it is read without executing the file"
            ) from None
        score, formula = found.holder("score"), found.holder("formula")
        is_old = not isinstance(formula, WrittenClass) and getattr(formula, "formula", None) is not None
        _check_formula(found, isinstance(score, WrittenClass) and is_old, file)
        _stated_wait(found, file)
        _check_names(found, file)
        stated = _stated_parameters(found, file)
        _check_own(source, stated, file)
    defaults = sorted((each, bounds.default) for each, bounds in stated.items())
    return base, PolicyFile(name, source, replaces, tuple(defaults))


def stated_parameters(policy: PolicyFile) -> dict[str, Stated]:
    """The parameters that a user's policy states, by name."""
    return _stated_parameters(_written(policy.source, policy.file), policy.file)


def with_parameters(policy: PolicyFile, given: Mapping[str, Any]) -> PolicyFile:
    """A user's policy with values of some of its parameters. Raises
    :class:`~validator.primitives.params.ParameterError`, whose message begins with the parameter's name."""
    if not given:
        return policy
    stated, values = stated_parameters(policy), dict(policy.parameters)
    for name, value in given.items():
        if name not in stated:
            raise ParameterError(f"{name}: unknown parameter; {policy.file} states {', '.join(stated) or 'none'}")
        values[name] = integer(name, value, stated[name][1:])
    return replace(policy, parameters=tuple(sorted(values.items())))


def stated_wait_blocks(policy: PolicyFile) -> int | None:
    """The longest wait of a due timer that a user's policy states; ``None`` if it states none."""
    return _stated_wait(_written(policy.source, policy.file), policy.file)


def phase_of_file(policy: PolicyFile) -> type[TimerPhase]:
    """The timer phase of a user's policy. Raises :class:`PolicyError`."""
    return phase_of(policy, PHASES[read_policy(policy.name, policy.source)[0]])


@lru_cache(maxsize=KEPT)
def phase_of(policy: PolicyFile, phase: type[TimerPhase]) -> type[TimerPhase]:
    """The timer phase of a user's policy. ``phase`` is that of the policy from which it is derived.

    Bugs that are planted in ``phase`` come before the user's methods. Raises :class:`PolicyError`.
    """
    found = _executed(policy.name, policy.source)
    bases = (found,) if issubclass(found, phase) else (phase, found)
    kind: type[TimerPhase] = type(found.__name__, (_CheckedPhase, *bases), {"__slots__": (), "file": policy.file})
    if policy.parameters:
        kind.own, kind.rules = MappingProxyType(dict(policy.parameters)), copy(kind.rules)
        kind.rules.__class__ = type(type(kind.rules).__name__, (type(kind.rules),), {"__slots__": (), "own": kind.own})
    return kind


class _CheckedPhase(TimerPhase):
    """A timer phase that takes no candidate that is no due timer, and none twice."""

    __slots__ = ()
    file: ClassVar[str]

    def taking_part(self) -> Iterator[Candidate]:
        seen: set[bytes] = set()
        candidates = iter(self.candidates())
        for candidate in candidates:
            timer_id = candidate.timer_id
            if timer_id in seen:
                raise self._problem(candidates, timer_id, "came twice")
            is_gone, timer = self.world.is_removed(timer_key(timer_id)), self.world.timer(timer_id)
            if not is_gone and (timer is None or timer.trigger_height > self.terms.height):
                raise self._problem(candidates, timer_id, "is none that is due; take those of self.eligible()")
            seen.add(timer_id)
            yield candidate

    def _problem(self, candidates: Iterator[Candidate], timer_id: bytes, what: str) -> PolicyError:
        frame = getattr(candidates, "gi_frame", None)
        line = frame.f_lineno if frame is not None and frame.f_code.co_filename == self.file else None
        return PolicyError(
            f"{place_of(self.file, line)}: {type(self).__name__}.candidates: timer {timer_id.hex()} {what}"
        )


@lru_cache(maxsize=KEPT)
def _executed(name: str, source: str) -> type[TimerPhase]:
    """Execute a file's text. Returns its class. Raises :class:`PolicyError`."""
    as_written = read_policy(name, source)
    file = as_written[1].file
    require_runs(file)
    namespace: dict[str, Any] = {"__name__": __name__}
    with one_line(file, PolicyError):
        exec(compile(source, file, "exec", dont_inherit=True), namespace)
        kinds = dict.fromkeys(each for each in namespace.values() if isinstance(each, type))
        phases = [
            each for each in kinds if issubclass(each, TimerPhase) and each not in SHIPPED and not isabstract(each)
        ]
        found = _only(phases, file)
        base = _base(found, found.__mro__, file)
        replaces = _replaces(found, found.replaces, file)
        stated = _checked_parameters(found, found.policy_parameters, file, None)
        if stated != stated_parameters(as_written[1]):
            raise PolicyError(
                f"{place_of(file, None)}: {found.__name__}.policy_parameters: when it runs it is not what is written"
            )
        if (base, replaces) != (as_written[0], as_written[1].replaces):
            raise PolicyError(
                f"{place_of(file, None)}: {found.__name__}: is derived from {base} and replaces {_listed(replaces)}"
                f" when it runs, but from {as_written[0]} and {_listed(as_written[1].replaces)} as it is written"
            )
        formula = getattr(found, "formula", None)
        is_old = formula is not None and formula is getattr(PHASES[base], "formula", None)
        has_score = getattr(found, "score", None) is not getattr(PHASES[base], "score", None)
        _check_formula(found, has_score and is_old, file)
        _check_rules(found, base, file)
    return found


def _listed(replaces: frozenset[Replaces]) -> str:
    return ", ".join(sorted(replaces)) or "nothing"


def _only(found: Sequence[Kind], file: str) -> Kind:
    """The one class of a file that may be its policy. Raises :class:`PolicyError`."""
    if len(found) != 1:
        names = ", ".join(map(_name_of, found))
        raise PolicyError(
            f"{place_of(file, None)}: expected one class that is derived from the timer phase of a shipped policy,"
            f" such as validator.policies.fifo.FifoPhase; got {names or 'none'}"
        )
    return found[0]


def _written(source: str, file: str) -> WrittenClass:
    """The class of a file's text that is its policy. Raises :class:`PolicyError`."""
    written = classes_of(source, file, SHIPPED)
    return _only([each for each in written if TimerPhase in each.lineage and not each.is_abstract], file)


def _stated_wait(found: WrittenClass, file: str) -> int | None:
    """The class's ``longest_wait_blocks``. Raises :class:`PolicyError`."""
    line: int | None = None
    try:
        given = found.value("longest_wait_blocks")
    except NotWritten as error:
        given, line = "an expression", error.line
    if given is None or (type(given) is int and given > 0):
        return given
    raise PolicyError(
        f"{place_of(file, line)}: {found.name}.longest_wait_blocks: expected a positive integer, or None, written out;"
        f" got {given!s:.200}"
    )


def _stated_parameters(found: WrittenClass, file: str) -> dict[str, Stated]:
    """The class's ``policy_parameters``. Raises :class:`PolicyError`."""
    line: int | None = None
    try:
        given = found.value("policy_parameters")
    except NotWritten as error:
        given, line = "an expression", error.line
    return _checked_parameters(found, given, file, line)


def _checked_parameters(found: WrittenClass | type, given: Any, file: str, line: int | None) -> dict[str, Stated]:
    where = f"{place_of(file, line)}: {_name_of(found)}.policy_parameters"
    if not isinstance(given, Mapping):
        raise PolicyError(
            f"{where}: expected names with their bounds written out, such as"
            f" {{'most_fires': {{'default': 4, 'min': 1, 'max': 100}}}}, got {given!s:.200}"
        )
    stated = {}
    for name, bounds in given.items():
        if not isinstance(name, str) or not re.fullmatch(PARAMETER_PATTERN, name):
            raise PolicyError(f"{where}: expected names of lower-case letters, digits and '_', got {name!r:.80}")
        if not isinstance(bounds, Mapping) or {*bounds} != {*Stated._fields}:
            raise PolicyError(f"{where}.{name}: expected 'default', 'min' and 'max', got {bounds!r:.200}")
        stated[name] = value = Stated(**bounds)
        if any(type(each) is not int for each in value) or not LEAST <= value.min <= value.default <= value.max <= MOST:
            raise PolicyError(
                f"{where}.{name}: expected integers of at most 128 bits, min <= default <= max, got {bounds!r:.200}"
            )
    return stated


def _check_own(source: str, stated: Mapping[str, Stated], file: str) -> None:
    """Raise :class:`PolicyError` if the text reads a parameter by a name that it does not state."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Subscript(ast.Attribute(ast.Name("self"), "own"), ast.Constant(str(name))) if name not in stated:
                raise PolicyError(f"{place_of(file, node.lineno)}: policy_parameters has no {name!r:.80}")


def _name_of(found: WrittenClass | type) -> str:
    return found.name if isinstance(found, WrittenClass) else found.__name__


def _base(found: WrittenClass | type, lineage: Sequence[object], file: str) -> Policy:
    """The shipped policy from which a class is derived. Raises :class:`PolicyError`."""
    base = next((policy for each in lineage for policy, phase in PHASES.items() if each is phase), None)
    if base is None:
        names = ", ".join(phase.__name__ for phase in PHASES.values())
        raise PolicyError(f"{place_of(file, None)}: {_name_of(found)}: expected a class derived from one of {names}")
    return base


def _replaces(found: WrittenClass | type, given: Any, file: str) -> frozenset[Replaces]:
    """What a class says that it replaces. Raises :class:`PolicyError`."""
    known = [each.value for each in Replaces]
    if not isinstance(given, set | frozenset) or not given <= {*known}:
        raise PolicyError(
            f"{place_of(file, None)}: {_name_of(found)}.replaces: expected a set with some of"
            f" {', '.join(map(repr, known))}, got {given!r:.200}"
        )
    return frozenset(map(Replaces, given))


def _check_formula(found: WrittenClass | type, is_old: bool, file: str) -> None:
    """Raise :class:`PolicyError` for a class with a score whose formula is still that of the policy below."""
    if is_old:
        raise PolicyError(
            f"{place_of(file, None)}: {_name_of(found)}.formula: expected None, since the class has a score"
        )


def _check_names(found: WrittenClass, file: str) -> None:
    """Raise :class:`PolicyError` if a method of the class reads something of ``self`` that is not there."""
    methods = [
        method
        for method in found.node.body
        if isinstance(method, ast.FunctionDef) and method.args.args and not method.decorator_list
    ]
    used = [
        each
        for method in methods
        for each in ast.walk(method)
        if isinstance(each, ast.Attribute)
        and isinstance(each.value, ast.Name)
        and each.value.id == method.args.args[0].arg
    ]
    known = {each.attr for each in used if isinstance(each.ctx, ast.Store)}
    known = known.union(*(part.names if isinstance(part, WrittenClass) else dir(part) for part in found.lineage))
    if not found.is_whole or "__getattr__" in known:
        return
    for each in used:
        if each.attr not in known:
            raise PolicyError(f"{place_of(file, each.lineno)}: {found.name} has no {each.attr}")


def _check_rules(found: type[TimerPhase], base: Policy, file: str) -> None:
    """Raise :class:`PolicyError` if the rules of a class are not what they must be."""
    rules, needed = found.rules, PHASES[base].rules
    if not isinstance(rules, LaneRules):
        raise PolicyError(f"{place_of(file, None)}: {found.__name__}.rules: expected LaneRules, got {rules!r:.200}")
    for name in FIXED_RULES:
        if getattr(rules, name) is not getattr(needed, name):
            raise PolicyError(
                f"{place_of(file, None)}: {found.__name__}.rules.{name}: expected {getattr(needed, name)!s} as in"
                f" {base}, got {getattr(rules, name)!s:.200}"
            )
