"""Policies of users: a Python file with a class that is derived from the timer phase of a shipped policy (SPEC §13).

The genesis has the file's text, so every validator, a replay and a re-execution run the same code. Nothing confines
it. A process executes a text once.
"""

from __future__ import annotations

import re

# The names that annotations of a user's dataclass may need: dataclasses look for them in this module.
from dataclasses import dataclass, field  # noqa: F401
from functools import lru_cache
from inspect import isabstract
from typing import Any, ClassVar, Final  # noqa: F401

from validator.chain.genesis import Policy, PolicyFile, Replaces
from validator.execution.lane_rules import LaneRules
from validator.execution.timer_phase import TimerPhase
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
    return type(found.__name__, (found,) if issubclass(found, phase) else (phase, found), {"__slots__": ()})


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
    return found[0]


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
