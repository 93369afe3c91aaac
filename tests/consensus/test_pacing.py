"""Timeouts that adapt: alone, in the engines, and in networks slower than every timeout."""

from __future__ import annotations

from itertools import combinations

import pytest

import consensus.pacing
from consensus.hotstuff import HotStuff
from consensus.interface import Broadcast, Effect, StartTimer, TimerKind, VotingConfig
from consensus.messages import Vote
from consensus.pacing import FINAL_VIEWS, MAX_FACTOR, SAMPLES, Pacing, Repetition
from consensus.simplex import Simplex
from consensus.types import View
from tests.consensus.bench import FINALIZE, NOTARIZE, Bench, HotStuffBench, of
from tests.consensus.network import Faults, Host, MakeEngine, Network

LONGEST_HONEST = 3
"""Views between two finalizations that one faulty leader of four, or chance, may fail."""


def failed(pacing: Pacing, views: int) -> int:
    for _ in range(views):
        pacing.failed(LONGEST_HONEST)
    return pacing.factor


def test_timeouts_double_with_each_view_too_many_up_to_the_bound() -> None:
    pacing = Pacing()
    assert failed(pacing, LONGEST_HONEST) == 1
    assert [failed(pacing, 1) for _ in range(6)] == [2, 4, 8, MAX_FACTOR, MAX_FACTOR, MAX_FACTOR]


def test_failed_views_count_from_the_last_finalization() -> None:
    pacing = Pacing()
    for _ in range(5):
        assert failed(pacing, LONGEST_HONEST) == 1
        pacing.finalized()


def test_finality_takes_one_step_back_at_a_time() -> None:
    pacing = Pacing()
    failed(pacing, LONGEST_HONEST + 2)
    factors = []
    for _ in range(3 * FINAL_VIEWS):
        pacing.finalized()
        factors.append(pacing.factor)
    assert factors == [4] * (FINAL_VIEWS - 1) + [2] * FINAL_VIEWS + [1] * (FINAL_VIEWS + 1)


@pytest.mark.parametrize("bench_type", [Bench, HotStuffBench])
def test_an_engine_waits_longer_after_failed_views_and_repeats_as_often(bench_type: type[Bench]) -> None:
    bench = bench_type(config=VotingConfig(leader_timeout_ms=11, advance_timeout_ms=22, rebroadcast_ms=33))

    def delays(view: int) -> dict[TimerKind, int]:
        effects = bench.advance_to(view)
        return {timer.kind: timer.delay_ms for timer in of(StartTimer, effects) if timer.view == view}

    usual = {TimerKind.LEADER: 11, TimerKind.ADVANCE: 22, TimerKind.REBROADCAST: 33}
    assert delays(2 + LONGEST_HONEST - 1) == usual
    assert delays(2 + LONGEST_HONEST) == usual | {TimerKind.LEADER: 22, TimerKind.ADVANCE: 44}
    view = 2 + LONGEST_HONEST
    for each in range(view, view + FINAL_VIEWS):
        effects = bench.receive(1, bench.certificate(NOTARIZE, each, f"b{each}", each - 1 if each > view else 0))
        effects += bench.receive(1, bench.certificate(FINALIZE, each, f"b{each}", each - 1 if each > view else 0))
    assert delays(view + FINAL_VIEWS + 1) == usual


@pytest.mark.parametrize("make_engine", [Simplex, pytest.param(HotStuff, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "silent", [pytest.param((), id="all-honest", marks=pytest.mark.slow), pytest.param((0,), id="one-silent")]
)
def test_a_network_slower_than_every_timeout_makes_blocks(
    make_engine: MakeEngine, silent: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = VotingConfig(leader_timeout_ms=200, advance_timeout_ms=300, rebroadcast_ms=200)
    slow = Faults(min_delay_ms=400, max_delay_ms=800, healed_at_ms=10**9)

    def blocks(seed: int) -> int:
        network = Network(4, seed, slow, config=config, silent=silent, make_engine=make_engine)
        network.run(120_000)
        return len(network.chain()) - 1

    assert all(blocks(seed) >= 10 for seed in range(3))
    monkeypatch.setattr(consensus.pacing, "MAX_FACTOR", 1)
    assert all(blocks(seed) == 0 for seed in range(3)), "without it there is none"


@pytest.mark.parametrize("bench_type", [Bench, HotStuffBench])
def test_a_view_that_we_gave_up_failed_though_others_notarized_its_block(bench_type: type[Bench]) -> None:
    for gives_up, factor in ((False, 1), (True, 2)):
        bench = bench_type()
        view = 1 + LONGEST_HONEST
        bench.advance_to(view)
        if gives_up:
            bench.expire(TimerKind.ADVANCE)
        bench.receive(1, bench.certificate(NOTARIZE, view, f"b{view}"))
        assert (bench.engine.view, bench.engine._pacing.factor) == (view + 1, factor)


@pytest.mark.slow
@pytest.mark.parametrize("make_engine", [Simplex, HotStuff])
def test_silent_leaders_alone_make_nobody_wait_longer(make_engine: MakeEngine) -> None:
    fast = Faults(min_delay_ms=5, max_delay_ms=10, healed_at_ms=10**9)
    for silent in combinations(range(7), 2):
        network = Network(7, 1, fast, config=VotingConfig(), silent=silent, make_engine=make_engine)
        network.run(60_000)
        engines = [host.engine for index, host in enumerate(network.hosts) if index not in silent]
        factors = {engine._pacing.factor for engine in engines if engine is not None}
        assert factors == {1}, silent
        assert len(network.chain()) > 10


def test_the_view_of_a_far_certificate_counts_once() -> None:
    bench = Bench()
    bench.advance_to(3)
    bench.receive(1, bench.certificate(FINALIZE, 40, "b40"))
    assert bench.engine.view == View(41)
    assert bench.engine._pacing.factor == 1


# --- repetition ------------------------------------------------------------------------------------------------------

UNBOUNDED = 1_000


def repetitions(repetition: Repetition, ticks: int, longest: int = UNBOUNDED) -> list[int]:
    """The ticks of a view at which it repeats; the view ends with a block."""
    repetition.enter_view()
    at = [tick for tick in range(1, ticks + 1) if repetition.tick(longest)]
    repetition.made_block()
    return at


def test_repetition_waits_two_block_times_once_most_views_take_long() -> None:
    repetition = Repetition()
    for _ in range(SAMPLES // 2 + 1):
        assert repetitions(repetition, 5) == [1, 2, 3, 4, 5]
    assert repetitions(repetition, 35) == [10, 20, 30]


def test_repetition_is_as_configured_again_once_most_views_are_quick() -> None:
    repetition = Repetition()
    for _ in range(SAMPLES):
        repetitions(repetition, 5)
    for _ in range(SAMPLES // 2 + 1):
        assert repetitions(repetition, 1) == []
    assert repetitions(repetition, 5) == [2, 4], "two block times"
    for _ in range(SAMPLES // 2 + 1):
        assert repetitions(repetition, 0) == []
    assert repetitions(repetition, 3) == [1, 2, 3]


def test_repetition_is_no_rarer_than_the_leader_timeout() -> None:
    repetition = Repetition()
    for _ in range(SAMPLES):
        repetitions(repetition, 50)
    assert repetitions(repetition, 12, longest=4) == [4, 8, 12]


def test_views_that_the_first_repetition_ended_make_nobody_wait_longer() -> None:
    repetition = Repetition()
    for _ in range(10 * SAMPLES):
        assert repetitions(repetition, 1) == [1]
    for _ in range(SAMPLES):
        repetitions(repetition, 2)
    for _ in range(10 * SAMPLES):
        assert repetitions(repetition, 4) == [4]


def votes_a_block(make_engine: MakeEngine) -> float:
    """Votes that one validator broadcasts a block if blocks take some eight rebroadcasts; after a minute."""
    config = VotingConfig(leader_timeout_ms=8_000, advance_timeout_ms=12_000)
    network = Network(7, 1, Faults(min_delay_ms=1_500, max_delay_ms=2_600, healed_at_ms=10**9), config=config)
    network.make_engine = make_engine
    network.run(60_000)
    votes, blocks = [], len(network.chain())

    def count(host: Host, effect: Effect) -> None:
        if isinstance(effect, Broadcast) and isinstance(effect.message, Vote):
            votes.append(host.place)

    network.on_effect = count
    network.run(240_000)
    return len(votes) / 7 / (len(network.chain()) - blocks)


@pytest.mark.parametrize("make_engine", [Simplex, HotStuff])
def test_votes_are_not_repeated_before_they_count(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert votes_a_block(make_engine) <= 2.5, "notarize and finalize, and few of them twice"
    monkeypatch.setattr(Repetition, "made_block", lambda self: None)
    assert votes_a_block(make_engine) > 8, "without it each goes out at every tick"
