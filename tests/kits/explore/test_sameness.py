"""Worlds with equal keys lead to the same largest sets of certificates, and a key that leaves out too much is seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any, Final

import pytest

from consensus.hotstuff import HotStuff
from consensus.messages import Certificate, VoteKind
from consensus.tally import Round
from consensus.types import FIRST_VIEW, GENESIS_VIEW, Digest, ValidatorIndex, View
from kits.explore.locals import Local
from kits.explore.offers import Offers
from kits.explore.sameness import Sameness
from kits.explore.scope import Scope
from kits.explore.search import Found, Search, Step, World

MANY: Final = 1_000_000
LED: Final = {"views": 3, "validators": 3, "give_ups": 1, "crashes": 1}
THREE: Final = {"views": 2, "validators": 3}
LEADER: Final = {"views": 1, "byzantine": 1}
SECOND: Final = {"views": 2, "byzantine": 2, "give_ups": 1}
QUICK: Final[list[dict[str, Any]]] = [LED, THREE, LEADER, SECOND, {"views": 2, "give_ups": 2}]
SLOW: Final[list[dict[str, Any]]] = [
    {"views": 2, "give_ups": 4},
    {"views": 2, "byzantine": 0},
    {"views": 2, "byzantine": 1, "give_ups": 2},
    {"views": 2, "byzantine": 2, "give_ups": 2},
    {"views": 2, "byzantine": 3},
    {"views": 2, "crashes": 1, "give_ups": 3},
    {"views": 2, "validators": 3, "crashes": 2},
    {"views": 3, "give_ups": 2},
    {"views": 3, "byzantine": 2, "give_ups": 1},
]


def is_less(one: frozenset[Any], other: frozenset[Any]) -> bool:
    """Whether one set of certificates permits less than the other. A timeout certificate of a lower high view permits
    more, and is in more sets that break a rule.
    """

    def permits(certificate: Any) -> bool:
        if certificate[0] != "timeouts":
            return certificate in other
        return any(("timeouts", certificate[1], high) in other for high in range(certificate[2] + 1))

    return one != other and all(map(permits, one))


def largest(outcomes: Iterable[frozenset[Any]]) -> set[frozenset[Any]]:
    sets = set(outcomes)
    return {each for each in sets if not any(is_less(each, other) for other in sets)}


class EachWorld(Search):
    """A search that takes no two worlds for the same, and keeps which one leads to which."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.after: dict[World, set[World]] = defaultdict(set)

    def _key(self, world: World, offers: Offers) -> object:
        return world

    def _visit(self, world: World, way: tuple[int, Step] | None) -> Found | None:
        settled = self._settled(world)[0]
        if way is not None and settled != (before := self._worlds[way[0]]):
            self.after[before].add(settled)
        return super()._visit(world, way)

    @cached_property
    def reached(self) -> Mapping[World, int]:
        """For each world a mask of the largest sets of certificates that can come about from it on."""
        sets = list(dict.fromkeys(self._outcomes.values()))
        numbers = {number: sets.index(each) for number, each in self._outcomes.items()}
        larger = [sum(1 << at for at, other in enumerate(sets) if is_less(each, other)) for each in sets]
        reached: dict[World, int] = {}
        waiting = [self._worlds[0]]
        while waiting:
            world = waiting[-1]
            if missing := [each for each in self.after[world] if each not in reached]:
                waiting += missing
                continue
            mask = 1 << numbers[self._offers(world).number]
            for each in self.after[world]:
                mask |= reached[each]
            reached[world] = sum(1 << at for at in range(len(sets)) if mask >> at & 1 and not mask & larger[at])
            waiting.pop()
        return reached

    def keys(self) -> dict[object, set[int]]:
        """What is reached from the worlds with each key."""
        sameness = Sameness(self.scope, self._moves, self._locals)
        keys = defaultdict(set)
        for world, reached in self.reached.items():
            keys[sameness.key(world, self._offers(world), self._lives(world))].add(reached)
        return keys


@cache
def explored(protocol: str, **world: Any) -> EachWorld:
    search = EachWorld(Scope(protocol, **world))
    assert search.run(MANY).is_exhausted
    return search


def check_keys(search: EachWorld) -> None:
    keys = search.keys()
    assert len(keys) < len(search.reached) / 2
    assert all(len(reached) == 1 for reached in keys.values())
    result = Search(search.scope).run(MANY)
    assert result.is_exhausted
    assert result.states <= len(keys)
    assert largest(result.outcomes) == largest(search._outcomes.values())


@pytest.mark.parametrize("protocol", ["simplex", "hotstuff"])
@pytest.mark.parametrize("world", QUICK, ids=str)
def test_equal_keys_lead_to_the_same_certificates(protocol: str, world: dict[str, Any]) -> None:
    check_keys(explored(protocol, **world))


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["simplex", "hotstuff"])
@pytest.mark.parametrize("world", SLOW, ids=str)
def test_equal_keys_of_larger_worlds_lead_to_the_same_certificates(protocol: str, world: dict[str, Any]) -> None:
    search = EachWorld(Scope(protocol, **world))
    assert search.run(MANY).is_exhausted
    check_keys(search)


# --- keys that go too far --------------------------------------------------------------------------------------------

FUTURE, CAN_CAST = Sameness.future, Sameness.can_cast


def without(part: int, put: Callable[[object], object] = lambda part: None) -> Callable[..., object]:
    """Futures of which a part is left out, or replaced."""

    def future(self: Sameness, index: ValidatorIndex, local: Local, final: tuple[View, ...]) -> object:
        found = FUTURE(self, index, local, final)
        if local.view > self._scope.views:
            return found
        assert isinstance(found, tuple)
        return *found[:part], put(found[part]), *found[part + 1 :]

    return future


def never(*kinds: VoteKind) -> Callable[..., bool]:
    """No validator is expected to cast a vote of these kinds."""
    return lambda self, local, kind, view: kind not in kinds and CAN_CAST(self, local, kind, view)


def no_final(self: Sameness, index: ValidatorIndex, local: Local, final: tuple[View, ...]) -> object:
    return FUTURE(self, index, local, ())


WRONG: Final[dict[str, tuple[str, object, str, dict[str, Any]]]] = {
    "may finalize": ("future", no_final, "simplex", LEADER),
    "the current view": ("future", without(2), "hotstuff", SECOND),
    "the lock": ("future", without(3), "hotstuff", THREE),
    "which views are to be led": ("future", without(4, bool), "hotstuff", LED),
    "the life of a leader": ("future", without(5), "hotstuff", LED),
    "votes to notarize": ("can_cast", never(VoteKind.NOTARIZE), "simplex", THREE),
    "votes to finalize": ("can_cast", never(VoteKind.FINALIZE), "hotstuff", THREE),
    "votes to nullify": ("can_cast", never(VoteKind.NULLIFY), "simplex", THREE),
    "votes to time out": ("can_cast", never(VoteKind.TIMEOUT), "hotstuff", THREE),
}
"""What is left out of the key: the method that is replaced, by what, and a world in which it is seen."""


@pytest.mark.parametrize("name", WRONG)
def test_a_key_that_leaves_out_what_matters_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, wrong, protocol, world = WRONG[name]
    search = explored(protocol, **world)
    monkeypatch.setattr(Sameness, method, wrong)
    assert any(len(reached) > 1 for reached in search.keys().values())


# --- steps from worlds that are not followed --------------------------------------------------------------------------


class FinalizesOlderViews(HotStuff):
    """Votes to finalize a view that it did not give up, though it gave up a later one."""

    def _finalize(self, notarization: Certificate) -> None:
        timed_out = self._timed_out
        if VoteKind.TIMEOUT not in self._journal.own.get(notarization.view, {}):
            self._timed_out = GENESIS_VIEW
        super()._finalize(notarization)
        self._timed_out = timed_out


class NotarizesAfterTimeout(HotStuff):
    """Votes to notarize a proposal of a view that it gave up."""

    def _proceed(self, round_: Round) -> None:
        with self._timeout_aside():
            super()._proceed(round_)

    def _on_block_verified(self, view: View, digest: Digest, valid: bool) -> None:
        with self._timeout_aside():
            super()._on_block_verified(view, digest, valid)

    @contextmanager
    def _timeout_aside(self) -> Iterator[None]:
        round_ = self._rounds.get(self.certificates.view)
        own = {} if round_ is None else round_.own
        timeout = own.pop(VoteKind.TIMEOUT, None)
        yield
        if timeout is not None:
            own[VoteKind.TIMEOUT] = timeout


@pytest.mark.parametrize("engine", [FinalizesOlderViews, NotarizesAfterTimeout])
def test_a_broken_rule_is_seen_one_step_after_a_world_that_is_not_followed(
    engine: type[HotStuff], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scope, "engine", property(lambda scope: engine))
    found = Search(Scope("hotstuff", views=2)).run(MANY).found
    assert found is not None
    assert found.problem.startswith("own_votes: ")
    monkeypatch.setattr(Search, "_check_steps", lambda *given: None)
    assert Search(Scope("hotstuff", views=2)).run(MANY).is_exhausted


# --- what can still be cast ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["simplex", "hotstuff"])
@pytest.mark.parametrize("world", QUICK, ids=str)
def test_a_vote_that_cannot_be_cast_is_never_cast(protocol: str, world: dict[str, Any]) -> None:
    """After any step, a restart too, no more votes can be cast than before, and each vote cast was one of these."""
    search = explored(protocol, **world)
    scope, sameness = search.scope, Sameness(search.scope, search._moves, search._locals)
    kinds = VoteKind.NOTARIZE, VoteKind.FINALIZE, scope.gives_up
    votes = {(kind, View(view)) for kind in kinds for view in range(FIRST_VIEW, scope.views + 1)}
    cast: set[object] = set()

    def able(local: Local) -> set[object]:
        return {vote for vote in votes if sameness.can_cast(local, *vote)}

    for index, states in zip(scope.honest, search._locals, strict=True):
        for (number, _), after in states._steps.items():
            before, then = states.all[number], states.all[after]
            if then.final > before.final:
                continue  # a finalization is checked and not followed
            said = [search._facts.all[fact] for fact in search._facts.numbers(then.said & ~before.said)]
            new = {(what.kind, what.view) for what in said if what.signer == index} & votes
            assert able(then) | new <= able(before)
            cast |= new
    assert cast == votes
