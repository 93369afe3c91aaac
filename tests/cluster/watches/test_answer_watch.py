"""A peer that is stuck is answered, or the watch tells; who need not answer is left alone."""

from __future__ import annotations

import pytest

from cluster.scenario import Scenario
from cluster.scenario.model import LimitsSection
from cluster.watches.answer_watch import AnswerWatch
from cluster.watches.watched_simulation import simulate
from consensus.messages import Message, Timeout
from consensus.types import View
from tests.cluster.watches.seen import Told, make_machine, make_settings, set_time, set_view
from tests.consensus.bench import FINALIZE, NOTARIZE, NULLIFY, HotStuffBench

BENCH = HotStuffBench()
LISTENER, STUCK = 0, 2
REBROADCAST_MS = 100.0
LIMITS = LimitsSection()


class Listening:
    """A listener's watch."""

    def __init__(self) -> None:
        self.now_ms = 1_000.0
        self.told = Told()
        settings = make_settings(LIMITS, rebroadcast_ms=int(REBROADCAST_MS))
        self.watch = AnswerWatch([f"v{i}" for i in range(4)], self.told.look, settings)
        self.listener = make_machine(LISTENER)
        self.hear(BENCH.vote(1, FINALIZE, 1, "b1"), 1)

    def hear(self, message: Message, view: int, answer: Message | None = None) -> None:
        listener, stuck = self.listener, make_machine(STUCK)
        set_view(listener, view)
        set_time(listener, self.now_ms)
        self.watch.hears(listener, stuck, message)
        if answer is not None:
            self.watch.sends(listener, STUCK, b"", answer)
        self.watch.heard(listener, stuck, message)

    @property
    def verdicts(self) -> list[bool]:
        return self.told.verdicts


def test_a_vote_far_behind_is_answered_at_once() -> None:
    vote = BENCH.vote(STUCK, NOTARIZE, 5, "b5")
    silent, helpful = Listening(), Listening()
    silent.hear(vote, 7)
    assert silent.told == [("answers", False, "v0, in view 7, hears v2 in view 5, and does not answer")]
    helpful.hear(vote, 7, BENCH.certificate(NOTARIZE, 6, "b6"))
    assert helpful.verdicts == [True]


def test_a_vote_one_view_behind_is_answered_when_it_comes_again() -> None:
    listening = Listening()
    vote = BENCH.vote(STUCK, NULLIFY, 5)
    listening.hear(vote, 5)
    listening.hear(BENCH.vote(STUCK, NOTARIZE, 5, "b5"), 6)
    assert listening.verdicts == [], "the one was no news in its view, the other is merely late"
    listening.hear(vote, 6)
    assert listening.verdicts == [False]


def test_a_certificate_of_a_view_before_does_not_help_on() -> None:
    listening = Listening()
    listening.hear(BENCH.vote(STUCK, NOTARIZE, 5, "b5"), 7, BENCH.certificate(NULLIFY, 4))
    assert listening.verdicts == [False]


@pytest.mark.parametrize(("passed_ms", "holds"), [(2 * REBROADCAST_MS, True), (2 * REBROADCAST_MS + 1, False)])
def test_an_answer_counts_for_two_ticks(passed_ms: float, holds: bool) -> None:
    listening = Listening()
    vote = BENCH.vote(STUCK, NOTARIZE, 5, "b5")
    listening.hear(vote, 7, BENCH.certificate(NOTARIZE, 6, "b6"))
    listening.now_ms += passed_ms
    listening.hear(vote, 7)
    assert listening.verdicts == [True, holds]


@pytest.mark.parametrize(("ahead", "verdicts"), [(LIMITS.view_window, [False]), (LIMITS.view_window + 1, [])])
def test_a_vote_too_far_ahead_was_not_heard(ahead: int, verdicts: list[bool]) -> None:
    listening = Listening()
    vote = BENCH.vote(STUCK, NOTARIZE, 30, "b30")
    listening.hear(vote, 30 - ahead)
    listening.hear(vote, 31)
    assert listening.verdicts == verdicts
    listening.hear(vote, 31)
    assert listening.verdicts == [*verdicts, False], "now it was"


def test_a_proposal_asks_like_its_vote() -> None:
    view = next(each for each in range(30, 40) if BENCH.engine.leader(View(each)) == STUCK)
    proposal, listening = BENCH.proposal(view, f"b{view}"), Listening()
    listening.hear(proposal, view - LIMITS.proposal_window - 1)
    listening.hear(proposal, view + 1)
    assert listening.verdicts == [], "it was dropped as too far ahead"
    listening.hear(proposal, view + 1)
    assert listening.verdicts == [False]
    listening.hear(proposal, view + 9, BENCH.certificate(NULLIFY, view + 8))
    assert listening.verdicts == [False, True]


def test_what_asks_for_no_answer() -> None:
    listening = Listening()
    unproved = Timeout(BENCH.timeout(STUCK, 5, 4).vote, None)
    for message in (BENCH.vote(STUCK, FINALIZE, 5, "b5"), unproved, BENCH.certificate(NULLIFY, 5)):
        listening.hear(message, 7)
    listening.hear(BENCH.vote(STUCK, NOTARIZE, 8, "b8"), 7)
    assert listening.verdicts == []
    listening.hear(BENCH.timeout(STUCK, 5, 4), 7)
    assert listening.verdicts == [False]


def test_who_was_started_in_its_view_may_lack_the_certificate() -> None:
    listening = Listening()
    vote = BENCH.vote(STUCK, NOTARIZE, 5, "b5")
    listening.watch.starts(listening.listener)
    listening.hear(vote, 7)
    assert listening.verdicts == []
    listening.hear(vote, 8)
    assert listening.verdicts == [False]


def test_a_pause_excuses_its_silence() -> None:
    """It sent the certificate right before; the tick that was due meanwhile comes after the vote that waited."""
    pause = {"kind": "pause", "at_height": 6, "for_ms": 900, "target": ["validator-0", "validator-1", "validator-2"]}
    times = {"leader_timeout_ms": 900, "advance_timeout_ms": 1_200, "rebroadcast_ms": 30}
    fields = {
        "name": "paused",
        "validators": {"count": 4},
        "links": {"latency_ms": 40, "jitter_ms": 20},
        "consensus": {"block_interval_ms": 100, "signatures": "keyed-hash", **times},
        "stop": {"height": 9, "drain_blocks": 1, "timeout_s": 60},
        "faults": [pause],
    }
    record = simulate(Scenario.model_validate(fields), 4)
    assert record.monitor is not None
    assert record.monitor.counts["answers"] > 50
    assert record.monitor.violations == []
