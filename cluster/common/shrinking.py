"""Shrinking of what fails: the search for the smallest thing that still fails in the same way. Pure and deterministic.

The caller has the thing as plain data, a function that says how a candidate fails, and the *passes*. A pass derives
smaller candidates from :attr:`Shrinker.best` and offers them to :meth:`Shrinker.holds`. The passes are repeated until a
round changes nothing. No candidate is tried twice, and the number of runs is limited.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

MAX_ROUNDS: Final = 20
"""Maximum number of times that the passes are repeated."""

Thing = TypeVar("Thing")
Failure = TypeVar("Failure")
Item = TypeVar("Item")
Path = tuple[str | int, ...]


class NoCandidate(Exception):
    """Raised by the caller's function for data that cannot be run. This costs no run."""


class _UsedUp(Exception):
    """Raised to end the search: no more runs are allowed."""


class Shrinker(Generic[Thing, Failure]):
    """Searches for the smallest thing that fails. What it found so far is kept if a signal ends the search."""

    def __init__(
        self, whole: Thing, failure: Failure, failure_of: Callable[[Thing], Failure | None], most_runs: int
    ) -> None:
        """``whole`` fails as ``failure``. ``failure_of`` runs a candidate, at most ``most_runs`` times.

        It returns ``None`` for one that does not fail in the same way, and raises :class:`NoCandidate` for one that
        cannot be run.
        """
        self.best, self.failure = whole, failure
        self.runs = 0
        self.is_used_up = False
        """Whether the search ended since all runs were used up."""
        self._failure_of, self._most_runs = failure_of, most_runs
        self._known = {_key(whole): True}

    def shrink(self, *passes: Callable[[], object]) -> Thing:
        """Search; returns the smallest thing found. What ``failure_of`` raises ends the search."""
        try:
            for _ in range(MAX_ROUNDS):
                before = self.best
                for each in passes:
                    each()
                if self.best == before:
                    break
        except _UsedUp:
            self.is_used_up = True
        return self.best

    def holds(self, candidate: Thing) -> bool:
        """Whether a candidate fails in the same way. If it was not known before, it becomes :attr:`best` then."""
        key = _key(candidate)
        if key not in self._known:
            self._known[key] = self._try(candidate)
        return self._known[key]

    def _try(self, candidate: Thing) -> bool:
        if self.runs >= self._most_runs:
            raise _UsedUp
        self.runs += 1
        try:
            failure = self._failure_of(candidate)
        except NoCandidate:
            self.runs -= 1
            return False
        if failure is not None:
            self.best, self.failure = candidate, failure
        return failure is not None


def _key(thing: object) -> bytes:
    return msgspec.json.encode(thing, order="deterministic")


def value_at(thing: Any, path: Path) -> Any:
    """The value at a path in nested dicts and lists; ``None`` if there is none."""
    for step in path:
        try:
            thing = thing[step]
        except (KeyError, IndexError, TypeError):
            return None
    return thing


def with_value(thing: Any, path: Path, value: Any) -> Any:
    """A copy of nested dicts and lists with another value at a path."""
    changed = copy.deepcopy(thing)
    value_at(changed, path[:-1])[path[-1]] = copy.deepcopy(value)
    return changed


def ddmin(items: Sequence[Item], holds: Callable[[list[Item]], bool]) -> list[Item]:
    """Delta debugging (Zeller and Hildebrandt, 2002): a 1-minimal subsequence of the items for which ``holds`` is true.

    1-minimal means that ``holds`` is false without any single one of its items.
    """
    kept = list(items)
    if not kept or holds([]):
        return []
    parts = 2
    while len(kept) >= 2:
        chunks = _split(kept, parts)
        rest = [[item for other in chunks if other is not chunk for item in other] for chunk in chunks]
        smaller = next((part for part in chunks if holds(part)), None)
        if smaller is not None:
            kept, parts = smaller, 2
            continue
        smaller = next((part for part in rest if holds(part)), None) if parts > 2 else None
        if smaller is not None:
            kept, parts = smaller, max(parts - 1, 2)
        elif parts >= len(kept):
            break
        else:
            parts = min(2 * parts, len(kept))
    return kept


def _split(items: list[Item], parts: int) -> list[list[Item]]:
    return [items[len(items) * i // parts : len(items) * (i + 1) // parts] for i in range(parts)]
