"""Small worlds are exhausted, with as many states whatever the hash seed, and a broken engine is found."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from consensus.interface import Start, TimerExpired, TimerKind
from consensus.messages import Certificate
from consensus.protocols import PROTOCOLS
from consensus.simplex import Simplex
from consensus.tally import Round
from consensus.types import FIRST_VIEW
from kits.explore.locals import LEFT_OUT, READ
from kits.explore.scope import CONFIG, GENESIS, NAMESPACE, Scope
from kits.explore.search import Result, Search

MANY = 1_000_000
SIZES = {
    ("simplex", 1): (30, 131, 7),
    ("hotstuff", 1): (30, 131, 7),
    ("simplex", 2): (631, 3_501, 13),
    ("hotstuff", 2): (1_659, 10_279, 17),
}
"""States, moves and depth of the worlds without faults."""
LARGE_SIZES = {
    ("simplex", 3): (10_012, 66_816, 20),
    ("hotstuff", 3): (40_925, 299_514, 25),
}
COUNT = """
from kits.explore.scope import Scope
from kits.explore.search import Search
result = Search(Scope("hotstuff", views=1, byzantine=1)).run(1_000_000)
print(result.states, result.moves, result.depth, result.local_states)
"""


def search(protocol: str = "simplex", views: int = 1, **more: Any) -> Result:
    return Search(Scope(protocol, views=views, **more)).run(MANY)


@pytest.mark.parametrize(("protocol", "views"), SIZES)
def test_a_small_world_is_exhausted(protocol: str, views: int) -> None:
    result = search(protocol, views)
    assert result.is_exhausted
    assert (result.states, result.moves, result.depth) == SIZES[protocol, views]


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "views"), LARGE_SIZES)
def test_three_views_are_exhausted(protocol: str, views: int) -> None:
    result = search(protocol, views)
    assert result.is_exhausted
    assert (result.states, result.moves, result.depth) == LARGE_SIZES[protocol, views]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_faults_add_states(protocol: str) -> None:
    calm = search(protocol)
    crash = search(protocol, crashes=1)
    leader = search(protocol, byzantine=1)
    other = search(protocol, byzantine=0)
    assert all(result.is_exhausted for result in (calm, crash, leader, other))
    assert crash.states == 2 * calm.states, "a restart loses nothing that decides"
    assert leader.states > 5 * other.states, "a leader proposes two blocks"
    assert len(leader.outcomes) > len(calm.outcomes)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_forgeries_add_no_states(protocol: str) -> None:
    assert search(protocol, forges=True).states == search(protocol).states


def test_votes_to_give_up_are_limited() -> None:
    calm = search(views=2, give_ups=0)
    assert calm.is_exhausted
    assert calm.outcomes < search(views=2, give_ups=3).outcomes


def test_the_states_do_not_depend_on_the_hash_seed() -> None:
    def counted(hash_seed: str) -> str:
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        return subprocess.run(
            [sys.executable, "-c", COUNT], env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert counted("1") == counted("2")


def test_offers_that_are_made_again_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = search(byzantine=1)
    monkeypatch.setattr("kits.explore.offers.KEPT", 2)
    assert search(byzantine=1) == kept


def test_a_bounded_search_says_what_is_left() -> None:
    result = Search(Scope(views=2)).run(500)
    assert result.found is None
    assert not result.is_exhausted
    assert result.left > 0
    is_over = iter([False, True])
    timed = Search(Scope(views=2)).run(MANY, lambda: next(is_over))
    assert 0 < timed.left < timed.states


# --- engines with a bug ----------------------------------------------------------------------------------------------


class DoesNothing(Simplex):
    """No leader proposes, and no validator gives up."""

    def _proceed(self, round_: Round) -> None:
        pass

    def _give_up(self, round_: Round) -> None:
        pass


class Raises(Simplex):
    def _finalize(self, notarization: Certificate) -> None:
        raise RuntimeError("planted")


class ForgetsToHaveGivenUp(Simplex):
    """A leader that gave its view up forgets it."""

    def _give_up(self, round_: Round) -> None:
        super()._give_up(round_)
        if round_.is_ours:
            round_.own.clear()


@pytest.mark.parametrize(
    ("engine", "problem"),
    [
        (DoesNothing, "progress: validator 0 stays in view 1"),
        (Raises, "error: validator 0: RuntimeError: planted"),
        (ForgetsToHaveGivenUp, "own_votes: validator 1 finalizes view 1, which it gave up"),
    ],
)
def test_a_bug_is_found(engine: type[Simplex], problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROTOCOLS, "simplex", engine)
    found = search().found
    assert found is not None
    assert found.problem == problem


# --- the fingerprint --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_attribute_of_an_engine_is_read_or_left_out(protocol: str) -> None:
    scope = Scope(protocol)
    engine: Any = scope.engine(CONFIG, scope.validator_set, scope.honest[1], scope.signers[1], NAMESPACE, GENESIS)
    engine.handle(Start())
    engine.handle(TimerExpired(TimerKind.ADVANCE, FIRST_VIEW))
    parts = {
        "VotingEngine": vars(engine),
        "CertificateStore": vars(engine.certificates),
        "VoteJournal": vars(engine._journal),
        "Round": dict.fromkeys(Round.__slots__),
    }
    for name, attributes in parts.items():
        known = {*READ[name], *LEFT_OUT[name]}
        assert set(attributes) <= known, f"attributes of {name} that locals.py neither reads nor leaves out"
        assert not set(READ[name]) & set(LEFT_OUT[name])
