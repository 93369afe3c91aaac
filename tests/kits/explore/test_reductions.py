"""The reductions lose no outcome: the whole search of a tiny world reaches the same sets of certificates, at most."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kits.explore.moves import Moves
from kits.explore.scope import Scope
from kits.explore.search import Result, Search

WORLDS: list[dict[str, Any]] = [
    {"views": 1},
    {"views": 1, "byzantine": 0},
    {"views": 1, "byzantine": 1},
    {"views": 2, "validators": 3},
]
BUGS = [
    ("simplex", "finalizes-after-nullify", {"views": 1}),
    ("simplex", "proposes-again-after-restart", {"views": 1, "crashes": 1}),
    ("hotstuff", "finalizes-after-timeout", {"views": 1}),
    ("hotstuff", "timeout-without-lock", {"views": 2}),
]
MANY = 1_000_000


def largest(outcomes: Iterable[frozenset[object]]) -> set[frozenset[object]]:
    """The sets that are part of no other one. A rule that a set breaks is broken by any larger one."""
    sets = set(outcomes)
    return {each for each in sets if not any(each < other for other in sets)}


def both(protocol: str, world: dict[str, Any], **more: Any) -> tuple[Result, Result]:
    reduced, whole = (
        Search(Scope(protocol, reduced=is_reduced, **world, **more)).run(MANY) for is_reduced in (True, False)
    )
    return reduced, whole


@pytest.mark.parametrize("protocol", ["simplex", "hotstuff"])
@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_the_outcomes_are_those_of_the_whole_search(protocol: str, world: dict[str, Any]) -> None:
    reduced, whole = both(protocol, world)
    assert reduced.is_exhausted
    assert whole.is_exhausted
    assert reduced.states < whole.states / 3
    assert largest(reduced.outcomes) == largest(whole.outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["simplex", "hotstuff"])
def test_the_outcomes_of_a_crash_are_those_of_the_whole_search(protocol: str) -> None:
    reduced, whole = both(protocol, {"views": 1, "crashes": 1})
    assert reduced.is_exhausted
    assert whole.is_exhausted
    assert largest(reduced.outcomes) == largest(whole.outcomes)


@pytest.mark.parametrize(("protocol", "mutant", "world"), BUGS)
def test_the_same_bugs_are_found(protocol: str, mutant: str, world: dict[str, Any]) -> None:
    reduced, whole = both(protocol, world, mutant=mutant)
    assert reduced.found is not None
    assert whole.found is not None
    assert reduced.found.problem.split(":")[0] == whole.found.problem.split(":")[0]


def test_a_reduction_that_goes_too_far_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who can do nothing at once gives its view up, in each world."""
    timer = Moves._timer
    monkeypatch.setattr(Moves, "_timer", lambda *given: timer(*given)._replace(is_eager=True))
    reduced, whole = both("simplex", {"views": 1})
    assert reduced.is_exhausted
    assert not largest(reduced.outcomes) >= largest(whole.outcomes)
