"""Who gives a view up although the proposal came is named; who may give it up is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import pytest

from cluster.watches.patience_watch import HEARD_VIEWS, PatienceWatch
from consensus.journal import encode_record
from consensus.messages import Message, Vote
from consensus.types import View
from tests.cluster.watches.seen import Told, make_machine, make_settings, set_time
from tests.consensus.bench import FINALIZE, NOTARIZE, NULLIFY, HotStuffBench
from validator.chain.block import MAX_BLOCK_BYTES
from validator.node.events import Append, PeerFault
from validator.storage.journal import encode_batch

BENCH = HotStuffBench()
VIEW = View(9)
LEADER = int(BENCH.engine.leader(VIEW))
ME, OTHER = sorted({0, 1, 2} - {LEADER})[:2]
LEADER_MS: Final = 500
ADVANCE_MS: Final = 800


class Waiting:
    """A validator that entered view 9 when its clock said 1,000 ms, having heard the leader in view 8."""

    def __init__(self, *, skips: bool = True, heard_in: int = VIEW - 1, may_vote_from: int = 1) -> None:
        self.told = Told()
        settings = make_settings(
            protocol="simplex" if skips else "hotstuff", leader_timeout_ms=LEADER_MS, advance_timeout_ms=ADVANCE_MS
        )
        self.watch = PatienceWatch(
            [f"v{index}" for index in range(4)],
            self.told.look,
            settings,
            lambda _: LEADER,
            lambda _index, view: view >= may_vote_from,
            lambda _index: 1,
        )
        self.me = make_machine(ME)
        self.enter(View(VIEW - 1), 0)
        self.hear(BENCH.vote(LEADER, FINALIZE, heard_in, "b"), 10)
        self.enter(VIEW, 1_000)

    def start(self) -> None:
        self.watch.starts(self.me)

    def enter(self, view: View, now_ms: float) -> None:
        set_time(self.me, now_ms)
        self.watch.enters(self.me, view)

    def hear(
        self,
        message: Message,
        now_ms: float,
        *,
        sender: int = LEADER,
        is_sound: bool = True,
        writes: Sequence[Vote] = (),
    ) -> None:
        """Hear a message, and write these votes to the journal for it."""
        set_time(self.me, now_ms)
        peer = make_machine(sender, deviation=None if is_sound else "a bug")
        self.watch.hears(self.me, peer, message)
        self.write(*writes)
        self.watch.heard(self.me, peer, message)

    def write(self, *votes: Vote) -> None:
        self.watch.performs(self.me, Append(1, encode_batch(map(encode_record, votes), ())))

    def send(self, vote: Vote, now_ms: float) -> None:
        set_time(self.me, now_ms)
        self.watch.votes(self.me, vote)

    def give_up(self, now_ms: float) -> list[bool]:
        self.send(BENCH.vote(ME, NULLIFY, VIEW), now_ms)
        return self.told.verdicts


PROPOSAL = BENCH.proposal(VIEW, "b")


def test_whoever_heard_the_proposal_waits_for_the_advance_timer() -> None:
    waiting = Waiting()
    waiting.hear(PROPOSAL, 1_400)
    waiting.send(BENCH.vote(ME, NULLIFY, VIEW), 1_500)
    assert waiting.told == [("patience", False, f"v{ME} gives up view 9, whose proposal came, 299 ms too soon")]
    patient = Waiting()
    patient.hear(PROPOSAL, 1_400)
    assert patient.give_up(1_800) == [True]


@pytest.mark.parametrize("message", [BENCH.vote(ME, NULLIFY, VIEW), BENCH.timeout(ME, VIEW, VIEW - 1).vote])
def test_whoever_voted_for_the_block_waits_for_the_advance_timer(message: Vote) -> None:
    waiting = Waiting(heard_in=1)
    waiting.send(BENCH.vote(ME, NOTARIZE, VIEW, "b"), 1_300)
    waiting.send(message, 1_799 - 1)
    assert [holds for _, holds, _ in waiting.told] == [False]


def test_without_a_proposal_the_leader_timer_may_give_up() -> None:
    assert Waiting().give_up(1_500) == [True]


def test_a_proposal_that_came_too_late_binds_nobody() -> None:
    waiting = Waiting()
    waiting.hear(PROPOSAL, 1_500)
    assert waiting.give_up(1_501) == [True], "the vote may have been on its way to the disk"


def test_a_proposal_of_one_that_is_not_sound_may_be_bad() -> None:
    waiting = Waiting()
    waiting.hear(PROPOSAL, 1_400, is_sound=False)
    assert waiting.give_up(1_500) == [True]


def test_a_proposal_of_another_than_the_leader_binds_nobody() -> None:
    waiting = Waiting()
    its_own = msgspec.structs.replace(PROPOSAL, vote=BENCH.vote(OTHER, NOTARIZE, VIEW, "b"))
    waiting.hear(its_own, 1_400, sender=OTHER)
    waiting.hear(PROPOSAL, 1_400, sender=OTHER)
    assert waiting.give_up(1_500) == [True]


def test_a_leader_who_was_long_silent_may_have_been_skipped() -> None:
    skipped, waiting = Waiting(heard_in=VIEW - HEARD_VIEWS - 1), Waiting(heard_in=1, skips=False)
    for each in (skipped, waiting):
        each.hear(PROPOSAL, 1_001)
        each.give_up(1_002)
    assert [holds for _, holds, _ in skipped.told] == [True]
    assert [holds for _, holds, _ in waiting.told] == [False]


@pytest.mark.parametrize(("more_bytes", "holds"), [(0, False), (1, True)])
def test_a_proposal_above_the_limit_of_blocks_breaks_no_silence(more_bytes: int, holds: bool) -> None:
    waiting = Waiting(heard_in=VIEW - HEARD_VIEWS - 1)
    body = bytes(MAX_BLOCK_BYTES + more_bytes)
    waiting.enter(View(VIEW + 4), 2_000)
    waiting.hear(msgspec.structs.replace(BENCH.proposal(VIEW, "b"), body=body), 2_001, is_sound=False)
    waiting.enter(View(VIEW + 4), 3_000)
    waiting.send(BENCH.vote(ME, NULLIFY, VIEW + 4), 3_001)
    assert [given_up for _, given_up, _ in waiting.told] == [holds]


@pytest.mark.parametrize(("more_bytes", "holds"), [(0, True), (1, False)])
def test_whoever_hears_but_a_proposal_above_the_limit_of_blocks_waits_for_the_leader_timer(
    more_bytes: int, holds: bool
) -> None:
    waiting = Waiting()
    waiting.hear(msgspec.structs.replace(PROPOSAL, body=bytes(MAX_BLOCK_BYTES + more_bytes)), 1_400, is_sound=False)
    assert waiting.give_up(1_401) == [holds]


@pytest.mark.parametrize(("sender", "holds"), [(LEADER, True), (OTHER, False)])
def test_a_leader_who_gives_up_is_followed(sender: int, holds: bool) -> None:
    waiting = Waiting()
    waiting.hear(PROPOSAL, 1_400)
    waiting.hear(BENCH.vote(sender, NULLIFY, VIEW), 1_450, sender=sender, writes=[BENCH.vote(ME, NULLIFY, VIEW)])
    assert waiting.give_up(1_451)[-1] == holds


def test_a_leaders_nullify_may_be_heard_before_the_view_begins() -> None:
    waiting = Waiting()
    waiting.hear(BENCH.vote(LEADER, NULLIFY, VIEW + 1), 1_100)
    waiting.enter(View(VIEW + 1), 1_200)
    waiting.send(BENCH.vote(ME, NOTARIZE, VIEW + 1, "c"), 1_300)
    waiting.send(BENCH.vote(ME, NULLIFY, VIEW + 1), 1_301)
    assert [holds for _, holds, _ in waiting.told] == [True]


def test_the_view_in_which_it_was_started_is_not_judged() -> None:
    waiting = Waiting()
    waiting.start()
    waiting.enter(VIEW, 1_100)
    waiting.send(BENCH.vote(ME, NOTARIZE, VIEW, "b"), 1_101)
    assert waiting.give_up(1_102) == []
    waiting.enter(View(VIEW + 1), 1_200)
    waiting.send(BENCH.vote(ME, NOTARIZE, VIEW + 1, "c"), 1_300)
    waiting.send(BENCH.vote(ME, NULLIFY, VIEW + 1), 1_301)
    assert [holds for _, holds, _ in waiting.told] == [False], "the next one is"


def test_whoever_finds_the_block_invalid_gives_up_at_once() -> None:
    waiting = Waiting()
    waiting.hear(PROPOSAL, 1_400)
    waiting.watch.performs(waiting.me, PeerFault(LEADER, "invalid_block"))
    assert waiting.give_up(1_402) == []


def test_without_a_proposal_nobody_gives_up_before_the_leader_timer() -> None:
    waiting = Waiting(heard_in=VIEW - 1)
    waiting.send(BENCH.vote(ME, NULLIFY, VIEW), 1_400)
    assert waiting.told == [("patience", False, f"v{ME} gives up view 9, whose proposal did not come, 99 ms too soon")]
    bad = Waiting()
    bad.hear(PROPOSAL, 1_100, is_sound=False)
    assert bad.give_up(1_200) == [True], "a bad proposal may be given up at once"
    early = Waiting()
    next_one = BENCH.proposal(VIEW + 1, "c")
    early.hear(msgspec.structs.replace(next_one, vote=BENCH.vote(LEADER, NOTARIZE, VIEW + 1, "c")), 1_100)
    early.enter(View(VIEW + 1), 1_200)
    early.send(BENCH.vote(ME, NULLIFY, VIEW + 1), 1_201)
    assert [holds for _, holds, _ in early.told] == [True], "also one that came before the view"


def test_what_is_repeated_is_judged_once() -> None:
    waiting = Waiting()
    waiting.hear(PROPOSAL, 1_400)
    assert waiting.give_up(1_500) == waiting.give_up(1_700) == [False]


def test_votes_of_another_view_are_left_alone() -> None:
    waiting = Waiting()
    waiting.hear(PROPOSAL, 1_400)
    waiting.send(BENCH.vote(ME, NULLIFY, VIEW - 1), 1_450)
    assert waiting.told == []


# --- leaders that give up ---------------------------------------------------------------------------------------------

GIVEN_UP = BENCH.vote(LEADER, NULLIFY, VIEW)
OWN = {kind: BENCH.vote(ME, kind, VIEW, "b" if kind != NULLIFY else "") for kind in (NOTARIZE, NULLIFY, FINALIZE)}


def follow(waiting: Waiting, *votes: Vote) -> list[str]:
    """What is told of a validator that hears the leader give up, and writes these votes."""
    waiting.hear(GIVEN_UP, 1_100, writes=votes)
    return waiting.told.found()


def test_a_leader_that_gives_up_is_followed_at_once() -> None:
    assert follow(Waiting(), OWN[NULLIFY]) == []
    assert follow(Waiting()) == [f"v{ME} hears that the leader of view 9 nullifies it, and does not"]


def test_a_leader_is_not_followed_by_who_finalized_may_not_vote_is_in_another_view_or_started_in_this() -> None:
    finalized = Waiting()
    finalized.write(OWN[NOTARIZE], OWN[FINALIZE])
    assert follow(finalized) == []
    assert follow(Waiting(may_vote_from=VIEW + 1)) == []
    ahead = Waiting()
    ahead.enter(View(VIEW + 1), 1_050)
    assert follow(ahead) == []
    started = Waiting()
    started.start()
    started.enter(VIEW, 1_000)
    assert follow(started) == []


def test_who_gave_up_before_need_not_do_it_again_and_a_leader_with_a_bug_binds_nobody() -> None:
    waiting = Waiting()
    waiting.write(OWN[NULLIFY])
    assert follow(waiting) == []
    entering = Waiting()
    entering.enter(View(VIEW - 1), 0)
    entering.write(OWN[NULLIFY])
    entering.enter(VIEW, 1_000)
    assert follow(entering) == []
    waiting = Waiting()
    waiting.hear(GIVEN_UP, 1_100, is_sound=False)
    assert all(holds for _, holds, _ in waiting.told)
