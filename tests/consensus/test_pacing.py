"""Timeouts that adapt: alone, in the engines, and in networks slower than every timeout."""

from __future__ import annotations

from itertools import combinations

import pytest

import consensus.pacing
from consensus.hotstuff import HotStuff
from consensus.interface import Broadcast, Effect, Received, Start, StartTimer, TimerKind, VotingConfig
from consensus.journal import VoteJournal
from consensus.messages import NO_DIGEST, NO_PARENT, Certificate, Vote, VoteKind, vote_signing_bytes
from consensus.pacing import (
    FIRST_PATIENT_VIEW,
    MAX_FACTOR,
    MAX_PATIENCE,
    PATIENT_VIEWS,
    SAMPLES,
    Pacing,
    Repetition,
)
from consensus.simplex import Simplex
from consensus.types import ValidatorIndex, View
from tests.consensus.bench import FINALIZE, NOTARIZE, Bench, HotStuffBench, of
from tests.consensus.network import NAMESPACE, Faults, Host, MakeEngine, Network

FINAL_VIEWS = VotingConfig().final_views

LONGEST_HONEST = 3
"""Views between two finalizations that one faulty leader of four, or chance, may fail."""


def failed(pacing: Pacing, views: int) -> int:
    """The factor after so many views that others gave up, and that lasted here until a timer expired."""
    for _ in range(views):
        pacing.enter_view(View(1))
        pacing.waited()
        pacing.left(given_up=True, longest_row=LONGEST_HONEST)
    return pacing.factor


def finalized(pacing: Pacing, views: int) -> list[int]:
    """The factors after each of so many views whose blocks became final, with a vote of ours for each."""
    factors = []
    for _ in range(views):
        pacing.enter_view(View(1))
        pacing.voted(gives_up=False)
        pacing.left(given_up=False, longest_row=LONGEST_HONEST)
        pacing.finalized()
        factors.append(pacing.factor)
    return factors


def test_timeouts_double_with_each_view_too_many_up_to_the_bound() -> None:
    pacing = Pacing(FINAL_VIEWS)
    assert failed(pacing, LONGEST_HONEST) == 1
    assert [failed(pacing, 1) for _ in range(6)] == [2, 4, 8, MAX_FACTOR, MAX_FACTOR, MAX_FACTOR]


def test_failed_views_count_from_the_last_finalization() -> None:
    pacing = Pacing(FINAL_VIEWS)
    for _ in range(5):
        assert failed(pacing, LONGEST_HONEST) == 1
        pacing.finalized()


def test_finality_takes_one_step_back_at_a_time() -> None:
    pacing = Pacing(FINAL_VIEWS)
    failed(pacing, LONGEST_HONEST + 2)
    factors = finalized(pacing, 3 * FINAL_VIEWS)
    assert factors == [4] * (FINAL_VIEWS - 1) + [2] * FINAL_VIEWS + [1] * (FINAL_VIEWS + 1)


def final_until_shorter(pacing: Pacing) -> int:
    """Finalizations until the factor is a step lower."""
    before, count = pacing.factor, 0
    while pacing.factor == before:
        finalized(pacing, 1)
        count += 1
    return count


def test_a_step_back_that_did_not_hold_takes_twice_as_many_finalizations_the_next_time() -> None:
    pacing = Pacing(FINAL_VIEWS)
    counts = []
    for _ in range(7):
        failed(pacing, LONGEST_HONEST + 1)
        counts.append(final_until_shorter(pacing))
    assert counts == [
        FINAL_VIEWS,
        32,
        64,
        128,
        MAX_PATIENCE * FINAL_VIEWS,
        MAX_PATIENCE * FINAL_VIEWS,
        MAX_PATIENCE * FINAL_VIEWS,
    ]


def test_a_step_back_that_held_takes_half_as_many_finalizations_the_next_time() -> None:
    pacing = Pacing(FINAL_VIEWS)
    for _ in range(3):
        failed(pacing, LONGEST_HONEST + 1)
        final_until_shorter(pacing)
    failed(pacing, LONGEST_HONEST + 4)
    assert pacing.factor == MAX_FACTOR
    assert [final_until_shorter(pacing) for _ in range(4)] == [128, 128, 64, 32]
    finalized(pacing, 32 + FINAL_VIEWS)
    assert pacing.final_views == FINAL_VIEWS


def test_a_network_that_needs_twice_the_timeouts_seldom_tries_shorter_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """31 validators in a network in which each view fails at factor 1, and none at factor 2."""

    def blocks(views: int) -> int:
        pacing, made = Pacing(FINAL_VIEWS), 0
        for _ in range(views):
            pacing.enter_view(View(1))
            pacing.waited()
            is_final = pacing.factor >= 2
            pacing.left(given_up=not is_final, longest_row=21)
            if is_final:
                pacing.finalized()
                made += 1
        return made

    assert (blocks(214), blocks(1_000)) == (126, 846)
    monkeypatch.setattr(consensus.pacing, "MAX_PATIENCE", 1)
    assert (blocks(214), blocks(1_000)) == (82, 416), "with a step back after each 16 finalizations"


def test_a_view_that_did_not_last_failed_for_nobody() -> None:
    pacing = Pacing(FINAL_VIEWS)
    for gives_up in (False, True):
        for _ in range(10 * LONGEST_HONEST):
            pacing.enter_view(View(1))
            pacing.voted(gives_up)
            pacing.left(given_up=True, longest_row=LONGEST_HONEST)
    assert pacing.factor == 1


def test_of_the_finalizations_between_two_votes_or_waits_one_counts() -> None:
    pacing = Pacing(FINAL_VIEWS)
    failed(pacing, LONGEST_HONEST + 1)
    for _ in range(FINAL_VIEWS - 1):
        for _ in range(2 * FINAL_VIEWS):
            pacing.finalized()
        pacing.waited()
    assert pacing.factor == 2
    pacing.finalized()
    assert pacing.factor == 1


OLD = 64
"""Certificates that a peer gives one after the other to a validator that was cut off."""


def test_old_certificates_leave_timeouts_as_they_are() -> None:
    bench = Bench()
    bench.advance_to(1 + OLD)
    assert bench.engine._pacing.factor == 1, "given up by others, long ago"
    for _ in range(LONGEST_HONEST + 2):
        bench.expire(TimerKind.ADVANCE)
        bench.advance_to(bench.engine.view + 1)
    assert bench.engine._pacing.factor == 4
    for view in range(bench.engine.view, bench.engine.view + OLD):
        bench.receive(1, bench.certificate(NOTARIZE, view, f"b{view}"), bench.certificate(FINALIZE, view, f"b{view}"))
    assert bench.engine.final_view == bench.engine.view - 1
    assert bench.engine._pacing.factor == 4, "final for others, long ago"


def blocks_after(old_nullifications: int) -> int:
    """Blocks in a minute of a network with a silent validator, another one having got old nullifications first."""
    slow = Faults(min_delay_ms=250, max_delay_ms=250, healed_at_ms=10**9)
    network = Network(4, 1, slow, config=VotingConfig(), silent=(3,))
    network.run(0)
    for view in range(1, 1 + old_nullifications):
        statement = (VoteKind.NULLIFY, View(view), NO_PARENT, NO_DIGEST)
        message = vote_signing_bytes(NAMESPACE, *statement)
        signed = {ValidatorIndex(signer): network.signers[signer].sign(message) for signer in (1, 2, 3)}
        network.feed(network.hosts[0], Received(ValidatorIndex(3), Certificate.of(*statement, signed)))
    network.run(60_000)
    return len(network.chain()) - 1


def test_old_nullifications_slow_no_network_down(monkeypatch: pytest.MonkeyPatch) -> None:
    assert blocks_after(old_nullifications=8) == blocks_after(old_nullifications=0) == 47
    monkeypatch.setattr(Pacing, "enter_view", lambda self, view: self.waited())
    assert blocks_after(old_nullifications=8) == 5, "if a view counted that did not last"


@pytest.mark.parametrize("bench_type", [Bench, HotStuffBench])
def test_an_engine_waits_longer_after_failed_views_and_repeats_as_often(bench_type: type[Bench]) -> None:
    bench = bench_type(config=VotingConfig(leader_timeout_ms=11, advance_timeout_ms=22, rebroadcast_ms=33))

    def delays(view: int) -> dict[TimerKind, int]:
        effects: list[Effect] = []
        while bench.engine.view < view:
            bench.expire(TimerKind.REBROADCAST)
            effects = bench.advance_to(bench.engine.view + 1)
        return {timer.kind: timer.delay_ms for timer in of(StartTimer, effects) if timer.view == view}

    usual = {TimerKind.LEADER: 11, TimerKind.ADVANCE: 22, TimerKind.REBROADCAST: 33}
    assert delays(2 + LONGEST_HONEST - 1) == usual
    assert delays(2 + LONGEST_HONEST) == usual | {TimerKind.LEADER: 22, TimerKind.ADVANCE: 44}
    view = 2 + LONGEST_HONEST
    for each in range(view, view + FINAL_VIEWS):
        bench.expire(TimerKind.REBROADCAST)
        effects = bench.receive(1, bench.certificate(NOTARIZE, each, f"b{each}", each - 1 if each > view else 0))
        effects += bench.receive(1, bench.certificate(FINALIZE, each, f"b{each}", each - 1 if each > view else 0))
    assert delays(view + FINAL_VIEWS + 1) == usual


@pytest.mark.parametrize("bench_type", [Bench, HotStuffBench])
def test_a_restart_goes_on_with_the_factor_in_the_journal(bench_type: type[Bench]) -> None:
    bench = bench_type()

    def fail(views: int) -> None:
        for _ in range(views):
            bench.expire(TimerKind.REBROADCAST)
            bench.advance_to(bench.engine.view + 1)

    fail(LONGEST_HONEST)
    before = list(bench.journal)
    fail(2)
    journals = {1: before, 2: bench.journal[:-1], 4: bench.journal}
    for factor, journal in journals.items():
        again = bench_type(journal=journal, start=False)
        assert again.engine._pacing.factor == factor
        timers = of(StartTimer, again.feed(Start()))
        assert [timer.delay_ms for timer in timers if timer.kind is TimerKind.LEADER] == [factor * 2_000]
        assert bench_type(journal=again.engine.journal_snapshot()).engine._pacing.factor == factor
    for view in range(bench.engine.view, bench.engine.view + FINAL_VIEWS):
        bench.expire(TimerKind.REBROADCAST)
        bench.receive(1, bench.certificate(NOTARIZE, view, f"b{view}"), bench.certificate(FINALIZE, view, f"b{view}"))
    assert bench_type(journal=bench.journal).engine._pacing.factor == 2, "and with a step back"


@pytest.mark.slow
def test_a_restart_in_a_slow_network_with_a_silent_validator_costs_no_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    def blocks(is_restarted: bool) -> int:
        """In the five minutes after the restart, or without one."""
        slow = Faults(min_delay_ms=8_000, max_delay_ms=10_000, healed_at_ms=10**9)
        network = Network(4, 1, slow, config=VotingConfig(), silent=(3,))
        network.run(1_200_000)
        before = len(network.chain())
        if is_restarted:
            network.crash(network.hosts[0])
            network.start(network.hosts[0])
        network.run(1_500_000)
        return len(network.chain()) - before

    made = blocks(is_restarted=False)
    assert blocks(is_restarted=True) >= made - 1, "one more or less fits into the five minutes"
    monkeypatch.setattr(VoteJournal, "pace", lambda self, factor: None)
    assert blocks(is_restarted=True) <= made - 4, "with timeouts as configured"


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
        while bench.engine.view < view:
            bench.expire(TimerKind.REBROADCAST)
            bench.advance_to(bench.engine.view + 1)
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
    bench.expire(TimerKind.ADVANCE)
    bench.receive(1, bench.certificate(FINALIZE, 40, "b40"))
    assert bench.engine.view == View(41)
    assert bench.engine._pacing.factor == 1


# --- repetition ------------------------------------------------------------------------------------------------------

UNBOUNDED = 1_000


def repetitions(repetition: Repetition, ticks: int, longest: int = UNBOUNDED, view: int = 1) -> list[int]:
    """The ticks of a view at which it repeats; the view ends with a block."""
    repetition.enter_view(View(view))
    at = [tick for tick in range(1, ticks + 1) if repetition.tick(longest)]
    repetition.made_block()
    return at


def test_repetition_waits_two_block_times_once_most_views_take_long() -> None:
    repetition = Repetition()
    for _ in range(SAMPLES // 2 + 1):
        assert repetitions(repetition, 5) == [1, 2, 3, 4, 5]
    assert repetitions(repetition, 35) == [11, 22, 33], "a block takes five to six ticks"


def test_repetition_is_as_configured_again_once_most_views_are_quick() -> None:
    repetition = Repetition()
    for _ in range(SAMPLES):
        repetitions(repetition, 5)
    for _ in range(SAMPLES // 2 + 1):
        assert repetitions(repetition, 1) == []
    assert repetitions(repetition, 7) == [3, 6], "two block times"
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
        assert repetitions(repetition, 2, view=FIRST_PATIENT_VIEW) == [2], "lost messages, that are sent a tick later"
    for _ in range(SAMPLES):
        repetitions(repetition, 2)
    for _ in range(10 * SAMPLES):
        assert repetitions(repetition, 5) == [5]


@pytest.mark.parametrize("unclear", [1, SAMPLES // 2, SAMPLES, 2 * SAMPLES])
def test_a_patient_view_tells_whether_blocks_take_as_long_as_the_interval(unclear: int) -> None:
    repetition = Repetition()
    for _ in range(unclear):
        assert repetitions(repetition, 1) == [1]
    assert repetitions(repetition, 1, view=FIRST_PATIENT_VIEW) == [], "nobody repeated, and yet it took a tick"
    is_most = 1 + unclear > SAMPLES // 2
    assert repetitions(repetition, 4, view=FIRST_PATIENT_VIEW) == ([4] if is_most else [2, 3, 4])


def test_a_quick_patient_view_ends_what_was_unclear() -> None:
    repetition = Repetition()
    for _ in range(SAMPLES):
        repetitions(repetition, 1)
    assert repetitions(repetition, 0, view=FIRST_PATIENT_VIEW) == []
    assert repetitions(repetition, 1, view=FIRST_PATIENT_VIEW + PATIENT_VIEWS) == []
    assert repetitions(repetition, 2) == [1, 2]


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
