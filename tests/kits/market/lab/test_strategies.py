"""Each strategy offers what it says."""

from __future__ import annotations

from random import Random

import pytest

from kits.market.lab.strategies import (
    SHARES,
    DefaultAgent,
    Learner,
    Outbidder,
    Seen,
    Share,
    Spammer,
    Strategy,
    Tier,
    Truthful,
)

SEEN = Seen(height=10, floor=0, marginal=200)


@pytest.mark.parametrize(
    ("strategy", "premium"),
    [
        (Truthful(), 1_000),
        (Share(0.3), 300),
        (Share(1.5), 1_500),
        (Spammer(), 0),
        (Outbidder(), 210),
        (Outbidder(step=9), 1_000),
        (DefaultAgent(), 0),
        (Tier("fast"), 0),
    ],
)
def test_offers(strategy: Strategy, premium: int) -> None:
    assert strategy.premium(1, 1_000, SEEN) == premium


def test_an_outbidder_bids_something_against_a_price_of_nothing() -> None:
    assert Outbidder().premium(1, 1_000, SEEN._replace(marginal=0)) == 1


def test_who_leaves_fields_open_names_no_price() -> None:
    assert DefaultAgent().leaves_open
    assert not Truthful().leaves_open
    assert Tier("fast").tier == "fast"


def taught(gain_of: dict[float, float], jobs: int, seed: int = 0) -> tuple[Learner, list[float]]:
    """A learner that had some jobs, of which each share gains a fixed amount, and the shares that it offered."""
    learner, offered = Learner(Random(seed)), []
    for job in range(jobs):
        share = learner.premium(job, 10_000, SEEN) / 10_000
        offered.append(share)
        learner.learn(job, gain_of[share])
    return learner, offered


@pytest.mark.parametrize("best", SHARES)
def test_a_learner_finds_the_share_that_gains_most(best: float) -> None:
    learner, offered = taught({share: 0.5 if share == best else 0.1 for share in SHARES}, 100)
    assert learner.favourite == best
    assert offered[20:].count(best) > 60


def test_a_learner_tries_each_share_first() -> None:
    assert set(taught(dict.fromkeys(SHARES, 0.2), 25)[1]) == set(SHARES)


def test_a_learner_follows_a_change() -> None:
    learner, _ = taught({share: 0.5 if share == 0.1 else 0.1 for share in SHARES}, 100)
    for job in range(1_000, 1_400):
        share = learner.premium(job, 10_000, SEEN) / 10_000
        learner.learn(job, 0.5 if share == 0.8 else 0.1)
    assert learner.favourite == 0.8


def test_a_learner_has_its_own_chance() -> None:
    gains = dict.fromkeys(SHARES, 0.2)
    assert taught(gains, 60, seed=1)[1] == taught(gains, 60, seed=1)[1]
    assert taught(gains, 60, seed=1)[1] != taught(gains, 60, seed=2)[1]
