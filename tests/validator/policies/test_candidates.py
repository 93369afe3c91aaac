"""The candidates of ``cip1``: whose fires weigh, the smoothed median, and the clip bounds of weights."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.validator.chains import ACTOR, ACTORS, ALICE, BOB, OTHER, RICH, SMALL, Chain, make_genesis, schedule
from validator.chain.block import Header
from validator.chain.records import MEDIAN_FIRES, Fires, fires_key
from validator.primitives.params import Parameters
from validator.primitives.types import Address, Hash
from validator.scheduler.fairness import ONE, FireCounts, rounded_weight, smoothed, weigh
from validator.state.working_set import World
from validator.transition.genesis_block import genesis_batch, genesis_header

THIRD = ACTORS[2]
LARGEST_SCORE = 2**128
MILLIS = st.integers(1, 1_000)
BOUNDS = st.lists(st.integers(0, 2_000), min_size=2, max_size=2).map(sorted)
COUNTS = st.dictionaries(st.sampled_from(ACTORS), st.integers(1, 2_000), min_size=1)
PAID: dict[str, Any] = {"gas_limit": 4_000, "max_fee_per_cycle": 2**60}


def chain_of(params: dict[str, Any], deployers: dict[Address, Address] | None = None) -> Chain:
    actors = dict.fromkeys((ACTOR, OTHER, THIRD), RICH)
    return Chain(make_genesis({**SMALL, "TIE_BREAK": "aged", **params}, actors=actors, deployers=deployers))


def median_in(chain: Chain) -> int | None:
    found: int | None = chain.world().get(MEDIAN_FIRES)
    return found


def fires_in(chain: Chain) -> dict[Address, int]:
    """The fires that the newest block recorded."""
    found: Fires | None = chain.world().get(fires_key(chain.height))
    return dict(found.counts) if found is not None else {}


def fire(chain: Chain, *actors: Address, tip: int = 0) -> list[Address]:
    """Have a timer of each actor scheduled, in this order, and fired. Returns the actors in firing order."""
    first = chain.nonces.get(ALICE, 0)
    timer = schedule(1, max_priority_fee_per_cycle=tip, **PAID)
    chain.block(*(chain.call(timer, actor=actor, nonce=first + at) for at, actor in enumerate(actors)))
    return [Address(each.actor) for each in chain.block().receipts.fires]


# --- whose fires weigh ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("party", "first"), [("actor", OTHER), ("deployer", THIRD)])
def test_a_fresh_actor_weighs_what_its_deployer_does(party: str, first: Address) -> None:
    chain = chain_of({"WEIGHT_PARTY": party}, {THIRD: BOB})
    assert fire(chain, ACTOR, ACTOR, THIRD, tip=3) == [ACTOR, ACTOR, THIRD]
    assert fires_in(chain) == ({ALICE: 2, BOB: 1} if party == "deployer" else {ACTOR: 2, THIRD: 1})
    assert fire(chain, OTHER, THIRD, tip=3)[0] == first


def test_a_deployer_that_is_an_actor_is_not_followed_to_its_own() -> None:
    chain = chain_of({"WEIGHT_PARTY": "deployer"}, {OTHER: ACTOR, THIRD: BOB})
    fire(chain, OTHER, ACTOR, THIRD)
    assert fires_in(chain) == {ACTOR: 1, ALICE: 1, BOB: 1}


# --- smoothing --------------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None, derandomize=True)
@given(MILLIS, st.lists(st.integers(2, 4_000), min_size=1, max_size=60))
def test_the_average_is_below_the_exact_one_by_less_than_its_bound(milli: int, twice: list[int]) -> None:
    """``twice``: twice the medians. The bound is that of :func:`smoothed`: 1 / α units."""
    before: int | None = None
    exact, share = Fraction(twice[0], 2), Fraction(milli, 1_000)
    for each in twice:
        before = smoothed(before, ONE * each // 2, milli)
        exact = share * Fraction(each, 2) + (1 - share) * exact
        assert 0 <= exact - Fraction(before, ONE) < 1 / share / ONE


def test_an_average_that_rounds_up_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = smoothed
    monkeypatch.setitem(globals(), "smoothed", lambda *given: exact(*given) + 1)
    with pytest.raises(AssertionError):
        test_the_average_is_below_the_exact_one_by_less_than_its_bound()


def test_the_average_moves_once_a_block_and_rests_without_fires() -> None:
    chain = chain_of({"MEDIAN_SMOOTHING_MILLI": 250, "FAIRNESS_WINDOW_BLOCKS": 1})
    assert median_in(chain) is None
    chain.empty(3)
    assert median_in(chain) is None, "no window has had a median"
    fire(chain, ACTOR)
    assert median_in(chain) is None, "a block's fires count in the next one"
    chain.block()
    assert median_in(chain) == ONE, "the first median begins the average"
    chain.empty(3)
    assert median_in(chain) == ONE, "an empty window has no median"
    fire(chain, ACTOR, ACTOR, ACTOR)
    chain.block()
    assert median_in(chain) == (250 * 3 * ONE + 750 * ONE) // 1_000


def test_the_average_begins_after_activation() -> None:
    chain = chain_of({"MEDIAN_SMOOTHING_MILLI": 250, "ACTIVATION_HEIGHT": 4})
    fire(chain, ACTOR, ACTOR)
    chain.empty(2)
    assert (chain.height, median_in(chain)) == (4, None)
    fire(chain, ACTOR)
    chain.block()
    assert median_in(chain) == ONE


@pytest.mark.parametrize("params", [{}, {"WEIGHT_PARTY": "deployer"}, {"WEIGHT_CLIP_MIN_MILLI": 0}], ids=str)
def test_a_chain_without_smoothing_keeps_no_median(params: dict[str, Any]) -> None:
    chain = chain_of(params)
    fire(chain, ACTOR, OTHER)
    chain.block()
    assert median_in(chain) is None


# --- weights ----------------------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None, derandomize=True)
@given(COUNTS, BOUNDS)
def test_rounded_weights_against_fractions(counts: dict[Address, int], bounds: list[int]) -> None:
    """Without smoothing a weight is never above the exact one, and less than a unit below it."""
    ascending = sorted(counts.values())
    median = Fraction(ascending[(len(ascending) - 1) // 2] + ascending[len(ascending) // 2], 2)
    least, most = (Fraction(bound, 1_000) for bound in bounds)
    for actor in ACTORS:
        exact = min(most, max(least, 2 - min(Fraction(2), counts.get(actor, 0) / median)))
        weight = rounded_weight(
            counts.get(actor, 0), int(median * ONE), ONE * bounds[0] // 1_000, ONE * bounds[1] // 1_000
        )
        assert 0 <= exact - Fraction(int(weight), ONE) < Fraction(1, ONE)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(MILLIS, st.lists(st.integers(2, 400), min_size=1, max_size=30), st.integers(0, 500))
def test_weights_by_a_smoothed_median_against_fractions(milli: int, twice: list[int], fires: int) -> None:
    """The error of the average adds less than 2 / α units."""
    before: int | None = None
    exact, share = Fraction(twice[0], 2), Fraction(milli, 1_000)
    for each in twice:
        before = smoothed(before, ONE * each // 2, milli)
        exact = share * Fraction(each, 2) + (1 - share) * exact
    assert before is not None
    weight = Fraction(int(rounded_weight(fires, before, 0, 2 * ONE)), ONE)
    assert 0 <= 2 - min(Fraction(2), fires / exact) - weight < (2 / share + 1) / ONE


@settings(max_examples=200, deadline=None, derandomize=True)
@given(COUNTS, BOUNDS)
def test_who_fired_more_weighs_no_more(counts: dict[Address, int], bounds: list[int]) -> None:
    recent = FireCounts()
    recent.count(Fires(tuple(sorted(counts.items()))), +1)
    parameters = Parameters(weight_clip_min_milli=bounds[0], weight_clip_max_milli=bounds[1])
    weights = weigh(chain_of({}).world(), recent, parameters)
    ranked = [weights.weight(actor) for actor in sorted(ACTORS, key=lambda actor: counts.get(actor, 0))]
    assert ranked == sorted(ranked, reverse=True)


@pytest.mark.parametrize("most", [0, 1_000, 2_000])
def test_scores_stay_within_128_bits(most: int) -> None:
    weight = int(rounded_weight(0, ONE, 0, ONE * most // 1_000))
    assert weight == ONE * most // 1_000
    assert (2**96 - 1 + 10**18) * max(weight, 2**31 - 1) < LARGEST_SCORE


def test_the_bounds_of_the_specification_keep_weights_exact() -> None:
    recent = FireCounts()
    recent.count(Fires(((ACTOR, 3), (OTHER, 8))), +1)
    world: World = chain_of({}).world()
    given = Parameters(weight_clip_min_milli=1_000, weight_clip_max_milli=2_000, median_smoothing_milli=1_000)
    assert weigh(world, recent, given) == (recent.by_account, 11, None)
    assert weigh(world, recent, Parameters(weight_clip_min_milli=999)).rounding is not None


@pytest.mark.parametrize(("bounds", "first"), [((1_000, 2_000), OTHER), ((1_000, 1_000), ACTOR), ((0, 0), ACTOR)])
def test_equal_bounds_turn_fairness_off(bounds: tuple[int, int], first: Address) -> None:
    chain = chain_of({"WEIGHT_CLIP_MIN_MILLI": bounds[0], "WEIGHT_CLIP_MAX_MILLI": bounds[1]})
    fire(chain, ACTOR, tip=3)
    assert fire(chain, ACTOR, OTHER, tip=3)[0] == first


def test_who_fires_far_more_than_the_median_comes_last_with_a_lower_bound_of_0() -> None:
    tips = {"ratio 1": 3, "ratio 2": 30}

    def first_of(least: int) -> Address:
        chain = chain_of({"WEIGHT_CLIP_MIN_MILLI": least})
        fire(chain, ACTOR, ACTOR, OTHER, THIRD)
        first = chain.nonces.get(ALICE, 0)
        dear, cheap = (
            schedule(1, max_priority_fee_per_cycle=tip, **PAID) for tip in (tips["ratio 2"], tips["ratio 1"])
        )
        chain.block(chain.call(dear, nonce=first), chain.call(cheap, actor=OTHER, nonce=first + 1))
        return Address(chain.block().receipts.fires[0].actor)

    assert (first_of(1_000), first_of(0)) == (ACTOR, OTHER)


# --- the genesis ------------------------------------------------------------------------------------------------------


def content(**params: Any) -> bytes:
    genesis = make_genesis(params)
    header: Header = genesis_header(genesis, Hash(bytes(32)))
    assert genesis_batch(genesis), "it can be built"
    return header.transactions_root


def test_the_genesis_block_covers_candidates_that_are_on_and_only_those() -> None:
    usual = content()
    assert usual.hex().startswith("9aa12e3f25e0b153"), "as before there were candidates"
    assert content(WEIGHT_PARTY="actor", MEDIAN_SMOOTHING_MILLI=1_000, WEIGHT_CLIP_MAX_MILLI=2_000) == usual
    others = {
        content(WEIGHT_PARTY="deployer"),
        content(MEDIAN_SMOOTHING_MILLI=999),
        content(WEIGHT_CLIP_MIN_MILLI=999),
        content(WEIGHT_CLIP_MAX_MILLI=1_999),
    }
    assert len(others - {usual}) == 4
