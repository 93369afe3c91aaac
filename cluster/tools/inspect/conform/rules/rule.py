"""A numbered rule: its id in the documents, what it says, and how an execution shows that it was reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cluster.tools.inspect.conform.rules.observation import Observation

Reached = Callable[[Observation], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    """A numbered rule."""

    id: str
    about: str
    """The rule in a few words; the documents say it whole."""
    reached: Reached


def failing(*names: str) -> Reached:
    """Reached by a run that ended with one of these errors, or a script that caught it."""
    return lambda seen: seen.failed(*names)


def failing_in(kind: str, *names: str) -> Reached:
    """Reached by a run of a kind (``txs``, ``fires`` …) that ended with one of these errors."""
    return lambda seen: not seen.errors[kind].isdisjoint(names)


def rejecting(name: str) -> Reached:
    """Reached by a transaction that was refused with this error."""
    return lambda seen: bool(seen.rejected(name))


def showing(*names: str) -> Reached:
    """Reached by one of these events."""
    return lambda seen: not seen.event_names.isdisjoint(names)


def waiting(reason: str) -> Reached:
    """Reached by a timer that waits for this reason."""
    return lambda seen: bool(seen.waited(reason))


def operating(name: str) -> Reached:
    """Reached by a transaction's script with this operation."""
    return lambda seen: name in seen.operations


def rules_of(letter: str, listed: Iterable[tuple[str, Reached]]) -> list[Rule]:
    """Rules numbered from 1 under a letter: ``T-01``, ``T-02`` …"""
    return [Rule(f"{letter}-{number:02d}", about, reached) for number, (about, reached) in enumerate(listed, 1)]
