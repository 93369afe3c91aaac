"""Timers that are longer or shorter than what a validator lived through demands are named."""

from __future__ import annotations

import pytest

from cluster.record.rules import Mechanism
from cluster.watches.pacing_watch import PATIENT, PacingWatch
from consensus.journal import encode_record
from consensus.messages import Message, Vote, VoteKind, encode
from consensus.types import View
from tests.cluster.watches.seen import Told, make_machine, make_settings
from tests.consensus.bench import FINALIZE, NOTARIZE, NULLIFY, TIMEOUT, HotStuffBench
from validator.chain.messages import ConsensusMessage, encode_message, read_message
from validator.node.events import Append, Certified, Send, SetTimer, Timeout, TimerName
from validator.storage.journal import encode_batch

BENCH = HotStuffBench()
VIEW = View(9)
LEADER_MS, ADVANCE_MS = 500, 800
SETTINGS = make_settings(leader_timeout_ms=LEADER_MS, advance_timeout_ms=ADVANCE_MS, rebroadcast_ms=100)
LONGEST_ROW = 3
LAG = 2


class Paced:
    """A validator that was started in view 9."""

    def __init__(self) -> None:
        self.told = Told()
        self.watch = PacingWatch(["v0"], self.told.look, SETTINGS, lambda _: LONGEST_ROW, read_message)
        self.me = make_machine()
        self.start()
        self.view = View(VIEW - 1)
        self.learn(NULLIFY, FINALIZE)  # repeated at the start
        self.enter(1)

    def start(self) -> None:
        self.watch.starts(self.me)

    def send(self, vote: Vote) -> None:
        self.watch.votes(self.me, vote)

    def write(self, vote: Vote) -> None:
        self.watch.performs(self.me, Append(1, encode_batch([encode_record(vote)], ())))

    def enter(self, factor: int) -> list[bool]:
        """Enter the next view, with timers of ``factor``: whether the watch agrees, of the leader timer and the other.

        It says what timers the validator should have started by counting alone.
        """
        del self.told[:]
        self.view = View(self.view + 1)
        for owner, timeout_ms in (("leader", LEADER_MS), ("advance", ADVANCE_MS), ("rebroadcast", 7)):
            timer = TimerName(owner, self.view)
            self.watch.performs(self.me, SetTimer(timer, factor * timeout_ms))
        return self.told.verdicts

    def learn(self, *kinds: VoteKind) -> None:
        for kind in kinds:
            self.watch.performs(self.me, Certified(BENCH.certificate(kind, self.view, "b")))

    def wait(self, timer: str = "rebroadcast", view: int | None = None) -> None:
        self.watch.judge(self.me, Timeout(TimerName(timer, self.view if view is None else view)), ())

    def tick(self, *repeated: Message) -> bool:
        """Whether the validator may repeat these messages, and these alone, at a tick."""
        del self.told[:]
        sent = [Send(None, encode_message(ConsensusMessage(encode(message)))) for message in repeated]
        self.watch.judge(self.me, Timeout(TimerName("rebroadcast", self.view)), sent)
        assert [rule for rule, _, _ in self.told] == ["repetitions"] * 2
        return all(holds for _, holds, _ in self.told)

    def ticks_due(self, ticks: int) -> list[int]:
        """The ticks of the view, of so many, at which a vote is to be repeated; the view ends with a block."""
        vote = BENCH.vote(0, NOTARIZE, self.view, "b")
        self.send(vote)
        due = [tick for tick in range(1, ticks + 1) if not self.tick()]
        self.learn(NOTARIZE)
        self.enter(1)
        return due

    def fail(self, views: int) -> int:
        """Wait in so many views that a quorum gives up; returns the factor then."""
        for _ in range(views):
            self.wait()
            self.learn(NULLIFY)
            self.enter(self.watch.factor(0))
        return self.watch.factor(0)


def test_a_timer_of_another_length_is_named() -> None:
    paced = Paced()
    assert paced.enter(1) == [True, True]
    assert paced.enter(2) == [False, False]
    assert paced.told == [
        ("timeouts", False, "v0 starts the leader timer of view 11 with 1,000 ms, not 500"),
        ("timeouts", False, "v0 starts the advance timer of view 11 with 1,600 ms, not 800"),
    ]


@pytest.mark.parametrize(("views", "factor"), [(0, 1), (3, 1), (4, 2), (5, 4), (7, 16), (20, 16)])
def test_timeouts_grow_with_the_views_that_fail(views: int, factor: int) -> None:
    assert Paced().fail(views) == factor


@pytest.mark.parametrize("timer", ["leader", "advance", "rebroadcast"])
def test_each_timer_of_the_view_is_a_wait(timer: str) -> None:
    paced = Paced()
    paced.fail(LONGEST_ROW)
    paced.wait(timer)
    paced.learn(TIMEOUT)
    assert paced.enter(2) == [True, True]


@pytest.mark.parametrize(("timer", "ago"), [("propose", 0), ("leader", 1)])
def test_a_view_in_which_no_timer_of_it_expired_did_not_fail(timer: str, ago: int) -> None:
    paced = Paced()
    paced.fail(LONGEST_ROW)
    paced.wait(timer, paced.view - ago)
    paced.learn(NULLIFY)
    assert paced.enter(1) == [True, True]


@pytest.mark.parametrize(("ago", "factor"), [(0, 2), (1, 1)])
def test_a_view_that_it_gave_up_itself_failed_though_others_notarized_its_block(ago: int, factor: int) -> None:
    paced = Paced()
    paced.fail(LONGEST_ROW)
    paced.wait()
    paced.write(BENCH.vote(0, NULLIFY, paced.view - ago))
    paced.learn(NOTARIZE)
    assert paced.enter(factor) == [True, True]


def test_finality_ends_the_row() -> None:
    paced = Paced()
    paced.fail(LONGEST_ROW)
    paced.learn(FINALIZE)
    assert paced.fail(LONGEST_ROW) == 1
    assert paced.fail(1) == 2


def test_finality_makes_timeouts_shorter_once_for_each_vote_or_wait() -> None:
    for takes_part in (lambda paced: paced.wait(), lambda paced: paced.write(BENCH.vote(0, NOTARIZE, 9))):
        paced = Paced()
        paced.fail(LONGEST_ROW + 2)
        for finalizations, factor in ((15, 4), (1, 2), (15, 2), (1, 1), (99, 1)):
            for _ in range(finalizations):
                takes_part(paced)
                paced.write(BENCH.vote(0, FINALIZE, 9))
                paced.learn(FINALIZE, FINALIZE)
            assert paced.watch.factor(0) == factor


def test_longer_timeouts_and_timeouts_that_are_level_again_are_mechanisms_that_are_reached() -> None:
    paced = Paced()
    paced.fail(3)
    assert paced.watch.reached == set()
    paced.fail(2)  # twice longer
    assert (paced.watch.factor(0), paced.watch.reached) == (4, {Mechanism.TIMEOUTS_LENGTHENED})
    for factor, expected in ((2, set()), (1, {Mechanism.TIMEOUTS_LEVEL_AGAIN})):
        for _ in range(16):
            paced.wait()
            paced.learn(NOTARIZE, FINALIZE)
            paced.enter(paced.watch.factor(0))
        assert (paced.watch.factor(0), paced.watch.reached) == (factor, {Mechanism.TIMEOUTS_LENGTHENED} | expected)
    paced.watch.begins_to_join(paced.me, b"")
    paced.start()
    assert Mechanism.TIMEOUTS_LEVEL_AGAIN in paced.watch.reached, "in an earlier life"


def test_a_step_back_that_did_not_hold_takes_twice_as_many_finalizations_the_next_time() -> None:
    paced, counts = Paced(), []
    for failing in (1, 1, 1, 1, 1, 1, 4, 0, 0, 0, 0):
        paced.fail(LONGEST_ROW * bool(failing) + failing)
        before, count = paced.watch.factor(0), 0
        while count < 256 and paced.watch.factor(0) == before:
            paced.wait()
            paced.learn(FINALIZE)
            count += 1
        counts.append(count)
    assert counts == [16, 32, 64, 128, 256, 256, 256, 256, 128, 64, 256], "the last one at factor 1"


def test_a_restart_goes_on_with_a_factor_that_may_be_the_last_in_its_journal() -> None:
    for begins_with, holds in ((1, False), (2, True), (4, True), (8, False)):
        paced = Paced()
        paced.fail(LONGEST_ROW + 1)
        paced.send(BENCH.vote(0, NULLIFY, paced.view))
        paced.fail(1)
        paced.send(BENCH.vote(0, FINALIZE, paced.view - 1))
        paced.start()
        assert paced.enter(begins_with) == [holds, holds]
        assert paced.watch.factor(0) == (begins_with if holds else 4)


def test_what_is_durable_cannot_be_lost() -> None:
    for begins_with, holds in ((1, False), (2, False), (4, True)):
        paced = Paced()
        paced.fail(LONGEST_ROW + 2)
        paced.send(BENCH.timeout(0, paced.view, paced.view - 1).vote)
        paced.start()
        assert paced.enter(begins_with) == [holds, holds]


def test_without_a_journal_it_begins_anew() -> None:
    paced = Paced()
    paced.fail(LONGEST_ROW + 2)
    paced.send(BENCH.vote(0, NULLIFY, paced.view))
    paced.start()
    paced.watch.begins_to_join(paced.me, b"")
    assert paced.enter(1) == [True, True]


# --- repetitions -----------------------------------------------------------------------------------------------------


def test_votes_are_repeated_when_two_block_times_have_passed_and_no_sooner() -> None:
    paced = Paced()
    assert [paced.ticks_due(2) for _ in range(5)] == [[1, 2]] * 5
    assert paced.ticks_due(15) == [5, 10, 15]
    timeout = BENCH.timeout(0, paced.view, paced.view - 1)
    votes: list[Message] = [BENCH.vote(0, NOTARIZE, paced.view, "b"), timeout]
    paced.send(BENCH.vote(0, NOTARIZE, paced.view, "b"))
    paced.send(timeout.vote)
    assert [paced.tick(*votes) for _ in range(5)] == [False] * 4 + [True]
    assert [paced.tick() for _ in range(5)] == [True] * 4 + [False]
    assert [paced.tick(*votes[1:]) for _ in range(5)] == [False] * 5, "and all of them"
    assert (
        paced.told[-1][2]
        == f"v0 repeats 1 vote, not 2, at tick 15 of view {paced.view}; it has to at ticks [5, 10, 15]"
    )


def test_repetition_is_no_rarer_than_the_leader_timeout() -> None:
    paced = Paced()
    for _ in range(9):
        paced.ticks_due(20)
    assert paced.ticks_due(11) == [5, 10], "of 100 ms each"


def test_a_view_that_its_first_repetition_ended_is_no_sample() -> None:
    paced = Paced()
    assert [paced.ticks_due(1) for _ in range(20)] == [[1]] * 20
    assert paced.ticks_due(3) == [1, 2, 3]


@pytest.mark.parametrize(("ticks", "due", "then"), [(1, [], [3]), (2, [2], [1, 2, 3, 4])])
def test_a_patient_view_tells_whether_repetitions_ended_the_views_before(
    ticks: int, due: list[int], then: list[int]
) -> None:
    paced = Paced()
    while paced.view not in PATIENT:
        assert paced.ticks_due(1) == [1]
    assert paced.ticks_due(ticks) == due
    assert paced.ticks_due(4) == then


def test_votes_to_finalize_are_repeated_in_the_next_views_and_no_later() -> None:
    for view, holds in ((VIEW - 1, True), (VIEW - LAG, True), (VIEW - LAG - 1, False)):
        paced = Paced()
        assert paced.tick(BENCH.vote(0, FINALIZE, view, "b")) == holds
    assert paced.told[0][2] == f"v0 repeats in view {VIEW} what it said in views [{VIEW - LAG - 1}]"


def test_other_messages_are_repeated_as_they_like() -> None:
    paced = Paced()
    for _ in range(9):
        paced.ticks_due(3)
    paced.send(BENCH.vote(0, NOTARIZE, paced.view, "b"))
    old = BENCH.vote(0, FINALIZE, paced.view - 1, "b")
    assert paced.tick(old, BENCH.certificate(NOTARIZE, VIEW, "b"), BENCH.vote(0, NULLIFY, paced.view))
