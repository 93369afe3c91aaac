"""Policies of users: a Python file with a class that is derived from the timer phase of a shipped policy (SPEC §13).

The genesis has the file's text, so every validator, a replay and a re-execution run the same code. Nothing confines
it. A process executes a text once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

# The names that annotations of a user's dataclass may need: dataclasses look for them in this module.
from dataclasses import dataclass, field  # noqa: F401
from functools import lru_cache
from inspect import isabstract
from typing import Any, ClassVar, Final

from validator.chain.genesis import Policy, PolicyFile, Replaces
from validator.chain.records import timer_key
from validator.execution.lane_rules import LaneRules
from validator.execution.timer_phase import Candidate, TimerPhase
from validator.policies.registry import PHASES
from validator.primitives.user_file import NAME_PATTERN, UserFileError, one_line, place_of

KEPT: Final = 16
"""Number of texts, and of phases made from them, that a process keeps."""
FIXED_RULES: Final = ("bids", "has_watches", "timers_first")
"""What the rules of a user's policy have in common with those of the policy from which it is derived."""


class PolicyError(UserFileError):
    """A user's policy is invalid, or has raised an exception."""


def read_policy(name: str, source: str) -> tuple[Policy, PolicyFile]:
    """A user's policy by its file's name and text, with the shipped policy from which it is derived.

    Raises :class:`PolicyError`.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise PolicyError(
            f"a file's name: expected lower-case letters, digits, '-' and '_', at most 64, got {name!r:.80}"
        )
    found = _executed(name, source)
    replaces = frozenset(map(Replaces, found.replaces))
    return _base(found), PolicyFile(name, source, replaces)


@lru_cache(maxsize=KEPT)
def phase_of(policy: PolicyFile, phase: type[TimerPhase]) -> type[TimerPhase]:
    """The timer phase of a user's policy. ``phase`` is that of the policy from which it is derived.

    Bugs that are planted in ``phase`` come before the user's methods. Raises :class:`PolicyError`.
    """
    found = _executed(policy.name, policy.source)
    bases = (found,) if issubclass(found, phase) else (phase, found)
    return type(found.__name__, (_CheckedPhase, *bases), {"__slots__": (), "file": policy.file})


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
    file = PolicyFile(name, source).file
    namespace: dict[str, Any] = {"__name__": __name__}
    with one_line(file, PolicyError):
        exec(compile(source, file, "exec", dont_inherit=True), namespace)
    shipped = {*PHASES.values(), *(base for phase in PHASES.values() for base in phase.__mro__)}
    found = [
        value
        for value in dict.fromkeys(each for each in namespace.values() if isinstance(each, type))
        if issubclass(value, TimerPhase) and value not in shipped and not isabstract(value)
    ]
    if len(found) != 1:
        names = ", ".join(each.__name__ for each in found)
        raise PolicyError(
            f"{place_of(file, None)}: expected one class that is derived from the timer phase of a shipped policy,"
            f" such as validator.policies.fifo.FifoPhase; got {names or 'none'}"
        )
    with one_line(file, PolicyError):
        _check(found[0], file)
    _check_names(found[0], source, file)
    return found[0]


def _check_names(found: type[TimerPhase], source: str, file: str) -> None:
    """Raise :class:`PolicyError` if a method of the class reads something of ``self`` that is not there."""
    methods = [
        method
        for cls in ast.walk(ast.parse(source))
        if isinstance(cls, ast.ClassDef) and cls.name == found.__name__
        for method in cls.body
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
    known = {*dir(found), *(each.attr for each in used if isinstance(each.ctx, ast.Store))}
    for each in used:
        if each.attr not in known and not hasattr(found, "__getattr__"):
            raise PolicyError(f"{place_of(file, each.lineno)}: {found.__name__} has no {each.attr}")


def _base(found: type[TimerPhase]) -> Policy:
    """The shipped policy from which a class is derived. Raises :class:`StopIteration` if there is none."""
    return next(policy for base in found.__mro__ for policy, phase in PHASES.items() if base is phase)


def _check(found: type[TimerPhase], file: str) -> None:
    """Raise :class:`PolicyError` if a class is derived from no shipped policy, or does not keep what it must keep."""
    if not any(phase in found.__mro__ for phase in PHASES.values()):
        names = ", ".join(phase.__name__ for phase in PHASES.values())
        raise PolicyError(f"{place_of(file, None)}: {found.__name__}: expected a class derived from one of {names}")
    known = [each.value for each in Replaces]
    given: Any = found.replaces
    if not isinstance(given, set | frozenset) or not given <= {*known}:
        raise PolicyError(
            f"{place_of(file, None)}: {found.__name__}.replaces: expected a set with some of"
            f" {', '.join(map(repr, known))}, got {given!r:.200}"
        )
    base: Any = PHASES[_base(found)]
    has_score = getattr(found, "score", None) is not getattr(base, "score", None)
    formula = getattr(found, "formula", None)
    if has_score and formula is not None and formula is getattr(base, "formula", None):
        raise PolicyError(
            f"{place_of(file, None)}: {found.__name__}.formula: expected None, since the class has a score"
        )
    rules, needed = found.rules, base.rules
    if not isinstance(rules, LaneRules):
        raise PolicyError(f"{place_of(file, None)}: {found.__name__}.rules: expected LaneRules, got {rules!r:.200}")
    for name in FIXED_RULES:
        if getattr(rules, name) is not getattr(needed, name):
            raise PolicyError(
                f"{place_of(file, None)}: {found.__name__}.rules.{name}: expected {getattr(needed, name)!s} as in"
                f" {_base(found)}, got {getattr(rules, name)!s:.200}"
            )
