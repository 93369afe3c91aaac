"""Simplex, rule by rule, on one engine: what it must do, and for each check the fault that the check must catch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from consensus import evidence
from consensus.certificates import verify_certificate
from consensus.evidence import MAX_FORGERS
from consensus.interface import (
    BlockProposed,
    BlockVerified,
    Broadcast,
    Durable,
    Effect,
    Finalized,
    Notarized,
    Nullified,
    Parent,
    Persist,
    Propose,
    Received,
    Report,
    SendTo,
    StartTimer,
    TimerExpired,
    TimerKind,
    Verify,
    ViewEntered,
    VotingConfig,
)
from consensus.journal import decode_record
from consensus.keys import Committee, ValidatorSet
from consensus.messages import (
    MAX_REQUESTED_VIEWS,
    Certificate,
    CertificateRequest,
    ConflictingFinalize,
    ConflictingNotarize,
    Message,
    NullifyAndFinalize,
    Proposal,
    Vote,
    VoteKind,
    encode,
    verify_evidence,
)
from consensus.retransmission import BURST_CERTIFICATES, MAX_ANSWERED_PEERS, TICK_CERTIFICATES, certificate_bytes
from consensus.simplex import Simplex
from consensus.types import GENESIS_VIEW, ConsensusError, Digest, Token, ValidatorIndex, View
from consensus.voting import VotingEngine
from tests.consensus.bench import (
    FINALIZE,
    GENESIS,
    NAMESPACE,
    NOTARIZE,
    NULLIFY,
    Bench,
    HotStuffBench,
    block,
    of,
    reasons,
    resigned,
    shortened,
)

DISTRUSTED_VIEWS = VotingConfig().distrusted_views

LEADER, ADVANCE, REBROADCAST, ALLOWANCE = TimerKind


def notarize_first_block(bench: Bench) -> None:
    """The bench's validator votes for the block ``b1`` of view 1."""
    bench.receive(1, bench.proposal(1, "b1"))
    bench.verified(1, "b1")


# --- entering a view -------------------------------------------------------------------------------------------------


def test_a_view_begins_with_three_timers() -> None:
    bench = Bench(config=VotingConfig(leader_timeout_ms=11, advance_timeout_ms=22, rebroadcast_ms=33))
    assert of(ViewEntered, bench.effects) == [ViewEntered(View(1), ValidatorIndex(1))]
    allowance, *timers = of(StartTimer, bench.effects)
    assert allowance == StartTimer(ALLOWANCE, GENESIS_VIEW, 33)
    assert timers == [
        StartTimer(LEADER, View(1), 11),
        StartTimer(ADVANCE, View(1), 22),
        StartTimer(REBROADCAST, View(1), 33),
    ]


def test_each_certificate_opens_the_next_view() -> None:
    for kind in (NOTARIZE, NULLIFY, FINALIZE):
        bench = Bench()
        effects = bench.receive(2, bench.certificate(kind, 1, "b1"))
        assert bench.engine.view == 2
        assert of(ViewEntered, effects) == [ViewEntered(View(2), ValidatorIndex(2))]


def test_a_certificate_far_ahead_is_worth_the_same() -> None:
    for kind in (NOTARIZE, NULLIFY, FINALIZE):
        bench = Bench()
        bench.receive(2, bench.certificate(kind, 1000, "b1000"))
        assert bench.engine.view == 1001


# --- proposing -------------------------------------------------------------------------------------------------------


def test_the_leader_proposes_on_genesis_first() -> None:
    bench = Bench(me=1)
    assert of(Propose, bench.effects) == [Propose(View(1), Parent(GENESIS_VIEW, GENESIS))]


def test_others_do_not_propose() -> None:
    assert not of(Propose, Bench(me=0).effects)
    assert not of(Propose, Bench(me=None).effects)


def test_the_leader_proposes_on_a_notarization_and_does_not_wait_for_finality() -> None:
    bench = Bench(me=2)
    effects = bench.receive(1, bench.certificate(NOTARIZE, 1, "b1"))
    assert of(Propose, effects) == [Propose(View(2), Parent(View(1), block("b1")))]
    assert bench.engine.final_view == 0


def test_the_leader_skips_nullified_views_to_the_highest_notarized_one() -> None:
    bench = Bench(me=1)
    effects = bench.advance_to(5, notarized=(2,))
    assert of(Propose, effects) == [Propose(View(5), Parent(View(2), block("b2")))]


def test_the_leader_prefers_the_notarization_of_a_view_that_has_a_nullification_too() -> None:
    bench = Bench(me=2)
    bench.feed(Received(ValidatorIndex(3), bench.certificate(NULLIFY, 2)))
    bench.receive(3, bench.certificate(NULLIFY, 4), bench.certificate(NULLIFY, 5))
    assert bench.engine.view == 6
    bench.receive(3, bench.certificate(NOTARIZE, 3, "b3", 0))
    bench.receive(3, bench.certificate(NULLIFY, 3))
    assert of(Propose, bench.effects) == [Propose(View(6), Parent(View(3), block("b3")))]


def test_the_leader_requests_what_keeps_it_from_proposing_and_proposes_when_it_has_come() -> None:
    bench = Bench(me=0)
    effects = bench.receive(1, bench.certificate(NULLIFY, 3))
    assert not of(Propose, effects)
    requests = of(SendTo, effects)
    assert [request.recipient for request in requests] == [1, 2], "more than the fault bound are asked"
    assert {request.message for request in requests} == {CertificateRequest((View(1), View(2)))}
    assert not of(Propose, bench.receive(1, bench.certificate(NULLIFY, 1)))
    effects = bench.receive(1, bench.certificate(NULLIFY, 2))
    assert of(Propose, effects) == [Propose(View(4), Parent(GENESIS_VIEW, GENESIS))]
    assert not of(SendTo, effects), "one request is enough while its answers come in"


def test_the_proposal_follows_its_body_and_its_vote_to_the_disk() -> None:
    bench = Bench(me=1)
    effects = bench.feed(BlockProposed(View(1), Parent(GENESIS_VIEW, GENESIS), block("b1"), b"b1"))
    (persist,) = effects
    assert isinstance(persist, Persist)
    assert persist.body == b"b1"
    assert [decode_record(record) for record in persist.records] == [bench.vote(1, NOTARIZE, 1, "b1")]
    (sent,) = bench.feed(Durable(persist.token))
    assert sent == Broadcast(bench.proposal(1, "b1"))


def test_the_leader_proposes_once_in_a_view() -> None:
    bench = Bench(me=1)
    parent = Parent(GENESIS_VIEW, GENESIS)
    bench.propose(bench.effects, "b1")
    assert bench.do(BlockProposed(View(1), parent, block("other"), b"other")) == []
    assert bench.own_votes() == [(NOTARIZE, 1, block("b1"))]


def test_an_answer_that_was_not_asked_for_is_ignored() -> None:
    bench = Bench(me=1)
    assert bench.do(BlockProposed(View(1), Parent(GENESIS_VIEW, block("x")), block("b1"), b"b1")) == []
    assert bench.do(BlockProposed(View(5), Parent(GENESIS_VIEW, GENESIS), block("b1"), b"b1")) == []
    assert Bench(me=2).do(BlockProposed(View(1), Parent(GENESIS_VIEW, GENESIS), block("b1"), b"b1")) == []


def test_a_block_that_comes_after_the_leader_nullified_is_not_proposed() -> None:
    bench = Bench(me=1)
    bench.expire(LEADER)
    assert bench.propose(bench.effects, "b1") == []
    assert bench.own_votes() == [(NULLIFY, 1, b"")]


def test_an_oversized_own_block_is_a_bug_of_the_driver() -> None:
    bench = Bench(me=1, config=VotingConfig(max_body_bytes=3))
    with pytest.raises(ValueError, match="exceeds"):
        bench.propose(bench.effects, "long body")


# --- notarizing ------------------------------------------------------------------------------------------------------


def test_a_proposal_is_verified_and_then_notarized_once_durable() -> None:
    bench = Bench()
    effects = bench.receive(1, bench.proposal(1, "b1"))
    parent = Parent(GENESIS_VIEW, GENESIS)
    assert of(Verify, effects) == [Verify(View(1), parent, block("b1"), b"b1", bench.vote(1, NOTARIZE, 1, "b1"))]
    (persist,) = bench.feed(BlockVerified(View(1), block("b1"), True))
    assert isinstance(persist, Persist)
    assert persist.body == b"b1"
    assert not bench.own_votes()
    assert bench.feed(Durable(persist.token)) == [Broadcast(bench.vote(0, NOTARIZE, 1, "b1"))]


def test_durability_covers_everything_up_to_the_token() -> None:
    bench = Bench()
    bench.feed(Received(ValidatorIndex(1), bench.proposal(1, "b1")))
    (first,) = of(Persist, bench.feed(BlockVerified(View(1), block("b1"), True)))
    (second,) = of(Persist, bench.feed(TimerExpired(ADVANCE, View(1))))
    assert first.token < second.token
    assert bench.feed(Durable(Token(first.token - 1))) == []
    bench.feed(Durable(second.token))
    assert bench.own_votes() == [(NOTARIZE, 1, block("b1")), (NULLIFY, 1, b"")]
    assert bench.feed(Durable(second.token)) == []


def test_only_the_first_proposal_of_the_leader_is_notarized() -> None:
    bench = Bench()
    bench.receive(1, bench.proposal(1, "b1"))
    effects = bench.receive(1, bench.proposal(1, "other"))
    assert not of(Verify, effects)
    bench.verified(1, "other")
    assert not bench.own_votes()
    bench.verified(1, "b1")
    bench.verified(1, "b1")
    assert bench.own_votes() == [(NOTARIZE, 1, block("b1"))]


def test_a_proposal_that_contradicts_the_leaders_vote_is_not_notarized() -> None:
    bench = Bench()
    bench.receive(1, bench.vote(1, NOTARIZE, 1, "b1"))
    effects = bench.receive(1, bench.proposal(1, "other"))
    assert not of(Verify, effects)
    assert len(of(Report, effects)) == 1


def test_a_proposal_that_follows_the_leaders_own_vote_for_it_is_verified() -> None:
    bench = Bench()
    bench.receive(1, bench.vote(1, NOTARIZE, 1, "b1"))
    assert len(of(Verify, bench.receive(1, bench.proposal(1, "b1")))) == 1


def test_a_proposal_counts_as_the_leaders_vote() -> None:
    bench = Bench(me=3)
    bench.receive(1, bench.proposal(1, "b1"))
    bench.receive(0, bench.vote(0, NOTARIZE, 1, "b1"))
    effects = bench.receive(2, bench.vote(2, NOTARIZE, 1, "b1"))
    assert [effect.certificate.digest for effect in of(Notarized, effects)] == [block("b1")]


def test_a_proposal_for_a_later_view_waits_for_that_view() -> None:
    bench = Bench()
    assert not of(Verify, bench.receive(2, bench.proposal(2, "b2")))
    effects = bench.receive(1, bench.certificate(NOTARIZE, 1, "b1"))
    assert [effect.view for effect in of(Verify, effects)] == [2]


def test_missing_certificates_of_the_ancestry_are_requested_from_the_leader() -> None:
    bench = Bench(me=1)
    bench.receive(3, bench.certificate(NULLIFY, 5))
    effects = bench.receive(2, bench.proposal(6, "b6", parent=2))
    assert not of(Verify, effects)
    request = CertificateRequest((View(2), View(3), View(4)))
    assert of(SendTo, effects) == [SendTo(ValidatorIndex(2), request)]
    bench.receive(2, bench.certificate(NULLIFY, 3), bench.certificate(NULLIFY, 4))
    effects = bench.receive(2, bench.certificate(NOTARIZE, 2, "b2"))
    assert [effect.parent for effect in of(Verify, effects)] == [Parent(View(2), block("b2"))]


@pytest.mark.parametrize("absent", [2, 3, 4])
def test_nothing_is_notarized_while_any_justification_is_missing(absent: int) -> None:
    bench = Bench(me=1)
    certificates = {2: bench.certificate(NOTARIZE, 2, "b2"), 3: bench.certificate(NULLIFY, 3)}
    certificates |= {4: bench.certificate(NULLIFY, 4), 5: bench.certificate(NULLIFY, 5)}
    bench.receive(3, *(certificate for view, certificate in certificates.items() if view != absent))
    bench.receive(2, bench.proposal(6, "b6", parent=2))
    bench.verified(6, "b6")
    assert not of(Verify, bench.effects)
    assert not [vote for vote in bench.own_votes() if vote[0] == NOTARIZE]


def test_a_notarization_does_not_justify_skipping_its_view() -> None:
    bench = Bench(me=0)
    bench.advance_to(3, notarized=(1, 2))
    effects = bench.receive(3, bench.proposal(3, "b3", parent=1))
    assert not of(Verify, effects)
    assert of(SendTo, effects) == [SendTo(ValidatorIndex(3), CertificateRequest((View(2),)))]


def test_a_parent_behind_the_final_block_is_impossible_and_nullified_at_once() -> None:
    bench = Bench(me=0)
    bench.receive(1, bench.certificate(FINALIZE, 2, "b2"))
    effects = bench.receive(3, bench.proposal(3, "b3", parent=1))
    assert not of(Verify, effects)
    assert bench.own_votes(effects) == [(NULLIFY, 3, b"")]


@pytest.mark.parametrize("kind", [NOTARIZE, FINALIZE])
def test_a_parent_that_is_not_the_block_of_its_view_is_nullified_at_once(kind: VoteKind) -> None:
    bench = Bench(me=0)
    bench.receive(1, bench.certificate(kind, 1, "b1"))
    effects = bench.receive(2, bench.proposal(2, "b2", parent_digest=block("other")))
    assert not of(Verify, effects)
    assert bench.own_votes(effects)[-1] == (NULLIFY, 2, b"")


def test_a_validator_that_nullified_does_not_notarize() -> None:
    bench = Bench()
    bench.expire(LEADER)
    assert not of(Verify, bench.receive(1, bench.proposal(1, "b1")))
    bench.verified(1, "b1")
    assert bench.own_votes() == [(NULLIFY, 1, b"")]


def test_a_verification_that_ends_after_nullifying_does_not_notarize() -> None:
    bench = Bench()
    bench.receive(1, bench.proposal(1, "b1"))
    bench.expire(ADVANCE)
    bench.verified(1, "b1")
    assert bench.own_votes() == [(NULLIFY, 1, b"")]


def test_a_verification_that_ends_after_the_view_was_left_does_not_vote() -> None:
    bench = Bench()
    bench.receive(1, bench.proposal(1, "b1"))
    bench.receive(1, bench.certificate(NULLIFY, 1))
    assert bench.verified(1, "b1") == []
    assert bench.verified(1, "b1", valid=False) == []


def test_an_observer_verifies_and_never_votes() -> None:
    bench = Bench(me=None)
    assert len(of(Verify, bench.receive(1, bench.proposal(1, "b1")))) == 1
    bench.verified(1, "b1")
    bench.expire(LEADER)
    bench.expire(ADVANCE)
    effects = bench.receive(1, bench.certificate(NOTARIZE, 1, "b1"))
    assert len(of(Notarized, effects)) == 1
    bench.receive(1, bench.certificate(FINALIZE, 1, "b1"))
    assert bench.engine.final_view == 1
    assert not bench.own_votes()
    asked = [[effect.recipient for effect in asking(View(2), bench.expire(REBROADCAST))] for _ in range(4)]
    assert all(len(peers) == 2 for peers in asked), "more than the fault bound each time"
    assert {peer for peers in asked for peer in peers} == {0, 1, 2, 3}


def asking(view: View, effects: Sequence[Effect]) -> list[SendTo]:
    """The requests for the certificates of one view."""
    return [effect for effect in of(SendTo, effects) if effect.message == CertificateRequest((view,))]


def test_a_finalize_vote_of_an_earlier_view_does_not_keep_a_validator_from_asking() -> None:
    """It repeats that vote, which peers that went on do not answer: they would leave it behind for ever."""
    bench = Bench(me=0)
    bench.receive(1, bench.proposal(1, "b1"))
    bench.verified(1, "b1")
    bench.receive(1, bench.certificate(NOTARIZE, 1, "b1"))
    effects = bench.expire(REBROADCAST)
    repeated = [effect.message for effect in of(Broadcast, effects)]
    assert [(vote.kind, vote.view) for vote in repeated if isinstance(vote, Vote)] == [(FINALIZE, 1)]
    assert asking(View(2), effects)


# --- lost journals ---------------------------------------------------------------------------------------------------


def test_without_its_journal_a_validator_would_contradict_what_it_voted() -> None:
    before = Bench()
    notarize_first_block(before)
    for abstain_through, contradicts in ((0, True), (1, False)):
        after = Bench(abstain_through=abstain_through)
        after.receive(1, after.proposal(1, "other"))
        after.verified(1, "other")
        assert after.own_votes() == ([(NOTARIZE, 1, block("other"))] if contradicts else [])


def test_where_votes_may_be_forgotten_none_is_cast() -> None:
    bench = Bench(me=2, abstain_through=2)
    bench.receive(1, bench.proposal(1, "b1"))
    bench.verified(1, "b1")
    bench.expire(ADVANCE)
    effects = bench.receive(1, bench.certificate(NOTARIZE, 1, "b1"))
    assert bench.engine.view == 2
    assert not of(Propose, effects), "it leads view 2"
    bench.expire(LEADER)
    bench.receive(1, bench.certificate(NOTARIZE, 2, "b2", 1))
    assert not bench.own_votes(), "nor does it finalize"
    bench.receive(3, bench.proposal(3, "b3", 2))
    bench.verified(3, "b3")
    assert bench.own_votes() == [(NOTARIZE, 3, block("b3"))], "from there on it votes like all"


def test_abstaining_lasts_through_restarts() -> None:
    bench = Bench(abstain_through=4)
    bench.receive(1, bench.certificate(NULLIFY, 3))
    again = Bench(journal=bench.journal, abstain_through=4)
    assert again.engine.view == 4
    again.expire(ADVANCE)
    assert not again.own_votes()


# --- nullifying ------------------------------------------------------------------------------------------------------


def test_the_leader_timer_nullifies_if_no_proposal_came() -> None:
    bench = Bench()
    assert bench.own_votes(bench.expire(LEADER)) == [(NULLIFY, 1, b"")]


def test_the_leader_timer_does_nothing_if_the_proposal_came() -> None:
    bench = Bench()
    bench.receive(1, bench.proposal(1, "b1"))
    assert bench.expire(LEADER) == []


def test_the_advance_timer_nullifies_even_after_notarizing_and_only_once() -> None:
    bench = Bench()
    notarize_first_block(bench)
    bench.expire(ADVANCE)
    bench.expire(ADVANCE)
    bench.expire(LEADER)
    assert bench.own_votes() == [(NOTARIZE, 1, block("b1")), (NULLIFY, 1, b"")]


def test_timers_of_other_views_are_ignored() -> None:
    bench = Bench()
    bench.advance_to(3)
    for view in (0, 1, 2, 4):
        for kind in (LEADER, ADVANCE, REBROADCAST):
            assert bench.expire(kind, view) == []


def test_a_failed_verification_nullifies_at_once() -> None:
    bench = Bench()
    bench.receive(1, bench.proposal(1, "b1"))
    assert bench.own_votes(bench.verified(1, "b1", valid=False)) == [(NULLIFY, 1, b"")]


def test_the_leaders_own_nullify_nullifies_at_once() -> None:
    bench = Bench()
    assert bench.own_votes(bench.receive(1, bench.vote(1, NULLIFY, 1))) == [(NULLIFY, 1, b"")]


def test_the_leaders_own_nullify_of_a_later_view_is_remembered() -> None:
    bench = Bench()
    assert not bench.own_votes(bench.receive(2, bench.vote(2, NULLIFY, 2)))
    assert bench.own_votes(bench.advance_to(2)) == [(NULLIFY, 2, b"")]


def test_a_forged_or_foreign_nullify_does_not_nullify() -> None:
    bench = Bench()
    assert not bench.own_votes(bench.receive(2, bench.vote(2, NULLIFY, 1)))
    effects = bench.receive(1, bench.forged(1, NULLIFY, 1))
    assert not bench.own_votes(effects)
    assert reasons(effects) == [(1, "bad_signature")]


def test_silent_leaders_are_skipped_only_when_a_quorum_was_heard() -> None:
    bench = Bench(me=0, config=VotingConfig(skip_views=2))
    for view in range(1, 5):
        for peer in (2, 3):
            bench.receive(peer, bench.vote(peer, NULLIFY, view))
        bench.receive(2, bench.certificate(NULLIFY, view, signers=(0, 2, 3)))
    assert bench.engine.view == 5
    assert bench.engine.leader(View(5)) == 1
    assert bench.own_votes()[-1] == (NULLIFY, 5, b"")

    alone = Bench(me=0, config=VotingConfig(skip_views=2))
    alone.advance_to(5)
    assert not alone.own_votes(), "nobody was heard: the silence may be our own"

    off = Bench(me=0)
    off.advance_to(5)
    assert not off.own_votes()


def test_a_leader_whose_votes_come_too_late_to_be_kept_is_not_silent() -> None:
    """Its links are slow: its votes lie behind the windows, and yet it can lead."""
    bench = Bench(me=0, config=VotingConfig(skip_views=4, retained_views=1, evidence_views=0))
    for view in range(1, 5):
        if view >= 3:
            assert reasons(bench.receive(1, bench.vote(1, NULLIFY, view - 2))) == [(1, "stale")]
        nullify_without_the_leader(bench, view)
    assert (bench.engine.view, bench.engine.leader(View(5))) == (5, 1)
    assert (NULLIFY, 5, b"") not in bench.own_votes()


def test_a_leader_whose_votes_come_too_early_to_be_kept_is_not_silent() -> None:
    """It is ahead of us: its votes lie beyond the window."""
    bench = Bench(me=0, config=VotingConfig(skip_views=2, view_window=1))
    for view in range(1, 5):
        assert reasons(bench.receive(1, bench.vote(1, NULLIFY, view + 2))) == [(1, "future")]
        nullify_without_the_leader(bench, view)
    assert (bench.engine.view, bench.engine.leader(View(5))) == (5, 1)
    assert (NULLIFY, 5, b"") not in bench.own_votes()


def nullify_without_the_leader(bench: Bench, view: int) -> None:
    """Validators 2 and 3 give a view up, and so does validator 0."""
    for peer in (2, 3):
        bench.receive(peer, bench.vote(peer, NULLIFY, view))
    bench.receive(2, bench.certificate(NULLIFY, view, signers=(0, 2, 3)))


# --- certificates and finality ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "effect"), [(NOTARIZE, Notarized), (NULLIFY, Nullified), (FINALIZE, Finalized)])
def test_a_quorum_of_votes_is_a_certificate_that_is_broadcast_and_journaled(
    kind: VoteKind, effect: type[Notarized | Nullified | Finalized]
) -> None:
    bench = Bench(me=3)
    for peer in (0, 2):
        effects = bench.receive(peer, bench.vote(peer, kind, 1, "b1"))
        assert not of(effect, effects), "one vote less than a quorum is none"
    effects = bench.receive(1, bench.vote(1, kind, 1, "b1"))
    certificate = bench.certificate(kind, 1, "b1", signers=(0, 1, 2))
    assert effect(certificate) in effects
    assert Broadcast(certificate) in effects
    assert certificate in bench.journaled()


@pytest.mark.parametrize("kind", [NOTARIZE, NULLIFY, FINALIZE])
def test_the_leaders_of_the_next_three_views_alone_announce_a_certificate(kind: VoteKind) -> None:
    announcers = []
    for me in range(7):
        bench = Bench(n=7, me=me)
        effects = bench.cast(kind, 1, "b1")
        assert bench.engine.view == 2, "everybody makes it"
        announcers += [me for effect in of(Broadcast, effects) if isinstance(effect.message, Certificate)]
    assert announcers == [2, 3, 4]


def test_a_received_certificate_is_not_broadcast_again() -> None:
    bench = Bench()
    effects = bench.receive(1, bench.certificate(NULLIFY, 1))
    assert not of(Broadcast, effects)


def test_own_votes_count_when_durable_and_not_before() -> None:
    bench = Bench()
    for peer in (1, 2):
        bench.receive(peer, bench.vote(peer, NULLIFY, 1))
    assert bench.own_votes() == [(NULLIFY, 1, b"")]
    assert bench.engine.view == 2

    slow = Bench()
    slow.feed(Received(ValidatorIndex(2), slow.vote(2, NULLIFY, 1)))
    slow.feed(Received(ValidatorIndex(1), slow.vote(1, NULLIFY, 1)))
    assert slow.engine.view == 1


def test_a_notarization_is_answered_by_a_finalize_vote_even_without_the_block() -> None:
    bench = Bench()
    effects = bench.receive(1, bench.certificate(NOTARIZE, 1, "b1"))
    assert bench.own_votes(effects) == [(FINALIZE, 1, block("b1"))]


def test_never_finalize_after_nullify() -> None:
    bench = Bench()
    bench.expire(LEADER)
    effects = bench.receive(1, bench.certificate(NOTARIZE, 1, "b1"))
    assert bench.engine.view == 2
    assert not bench.own_votes(effects)


def test_never_finalize_after_a_nullify_that_is_still_on_its_way_to_the_disk() -> None:
    bench = Bench()
    bench.feed(TimerExpired(LEADER, View(1)))
    bench.sync(bench.feed(Received(ValidatorIndex(1), bench.certificate(NOTARIZE, 1, "b1"))))
    assert FINALIZE not in [kind for kind, _, _ in bench.own_votes()]


def test_never_nullify_after_finalize() -> None:
    bench = Bench()
    bench.receive(1, bench.certificate(NOTARIZE, 1, "b1"))
    for kind in TimerKind:
        bench.expire(kind, 1)
    bench.receive(1, bench.vote(1, NULLIFY, 1))
    assert [vote for vote in bench.own_votes() if vote[1] == 1] == [(FINALIZE, 1, block("b1"))]


def test_no_finalize_after_seen_equivocation() -> None:
    bench = Bench()
    bench.receive(1, bench.proposal(1, "b1"))
    bench.receive(1, bench.proposal(1, "other"))
    bench.receive(2, bench.certificate(NOTARIZE, 1, "b1"))
    assert bench.engine.view == 2
    assert not bench.own_votes()


def test_equivocation_of_another_validator_does_not_keep_from_finalizing() -> None:
    bench = Bench()
    effects = bench.receive(2, bench.vote(2, NOTARIZE, 1, "b1"), bench.vote(2, NOTARIZE, 1, "other"))
    assert len(of(Report, effects)) == 1
    bench.receive(2, bench.certificate(NOTARIZE, 1, "b1"))
    assert bench.own_votes() == [(FINALIZE, 1, block("b1"))]


def test_no_finalize_in_a_view_that_is_nullified() -> None:
    bench = Bench()
    bench.receive(1, bench.certificate(NULLIFY, 1))
    bench.receive(1, bench.certificate(NOTARIZE, 1, "b1"))
    assert not bench.own_votes()


def test_a_notarization_of_a_view_that_was_jumped_over_may_still_be_finalized() -> None:
    bench = Bench()
    bench.receive(1, bench.certificate(NULLIFY, 5))
    bench.receive(1, bench.certificate(NOTARIZE, 3, "b3"))
    assert bench.own_votes() == [(FINALIZE, 3, block("b3"))]


def test_a_view_is_finalized_long_after_it_was_left() -> None:
    bench = Bench()
    bench.advance_to(9, notarized=(1,))
    effects = bench.cast(FINALIZE, 1, "b1")
    assert [effect.certificate.view for effect in of(Finalized, effects)] == [1]
    assert bench.engine.final_view == 1
    assert bench.engine.view == 9


def test_finalizations_are_announced_once_and_ascending() -> None:
    bench = Bench()
    for view in (3, 2, 3, 5, 4):
        bench.receive(1, bench.certificate(FINALIZE, view, f"b{view}"))
    assert [effect.certificate.view for effect in of(Finalized, bench.effects)] == [3, 5]
    assert bench.engine.certificates.final == Parent(View(5), block("b5"))


def test_the_best_certificate_of_a_view_is_served() -> None:
    bench = Bench()
    bench.receive(1, bench.certificate(NULLIFY, 1))
    assert bench.engine.certificates.best_of(View(1)) == bench.certificate(NULLIFY, 1)
    bench.receive(1, bench.certificate(NOTARIZE, 1, "b1"))
    assert bench.engine.certificates.best_of(View(1)) == bench.certificate(NOTARIZE, 1, "b1")
    bench.receive(1, bench.certificate(NOTARIZE, 2, "b2"), bench.certificate(FINALIZE, 2, "b2"))
    assert bench.engine.certificates.best_of(View(2)) == bench.certificate(FINALIZE, 2, "b2")
    assert bench.engine.certificates.best_of(View(3)) is None


# --- when messages are lost ------------------------------------------------------------------------------------------


def test_a_stuck_validator_repeats_its_votes_and_no_certificates() -> None:
    bench = Bench()
    bench.receive(1, bench.certificate(FINALIZE, 1, "b1"), bench.certificate(NULLIFY, 2))
    bench.expire(LEADER)
    effects = bench.expire(REBROADCAST)
    assert [effect.message for effect in of(Broadcast, effects)] == [
        bench.vote(0, NULLIFY, 3),
    ]
    assert of(StartTimer, effects) == [StartTimer(REBROADCAST, View(3), VotingConfig().rebroadcast_ms)]


@pytest.mark.parametrize("made", [Bench, HotStuffBench])
def test_a_leader_proposes_again_to_those_of_whom_it_heard_nothing(made: type[Bench]) -> None:
    times = VotingConfig(leader_timeout_ms=300, advance_timeout_ms=800, rebroadcast_ms=100)
    bench = made(me=1, config=times)
    bench.propose(bench.effects, "b1")
    bench.receive(2, bench.vote(2, NOTARIZE, 1, "b1"))
    ticks = [bench.expire(REBROADCAST) for _ in range(4)]
    own = Broadcast(bench.vote(1, NOTARIZE, 1, "b1"))
    assert [of(Broadcast, effects) for effects in ticks] == [[own]] * 4, "a tick repeats the vote alone"
    again = [SendTo(ValidatorIndex(peer), bench.proposal(1, "b1")) for peer in (0, 3)]
    assert [proposals_to_one(effects) for effects in ticks] == [again, [], [], again], "once in a leader timeout"


def test_a_leader_that_gave_up_proposes_to_nobody_again() -> None:
    bench = Bench(me=1)
    bench.propose(bench.effects, "b1")
    bench.expire(ADVANCE)
    effects = bench.expire(REBROADCAST)
    repeated = [effect.message for effect in of(Broadcast, effects)]
    assert repeated == [bench.vote(1, NOTARIZE, 1, "b1"), bench.vote(1, NULLIFY, 1)]
    assert not proposals_to_one(effects)


def test_a_proposal_that_is_not_durable_is_not_sent_again() -> None:
    bench = Bench(me=1)
    (request,) = of(Propose, bench.effects)
    bench.feed(BlockProposed(request.view, request.parent, block("b1"), b"b1"))
    assert not proposals_to_one(bench.feed(TimerExpired(REBROADCAST, View(1))))


def test_a_leader_proposes_again_to_who_asks_and_said_nothing() -> None:
    bench = Bench(me=1)
    bench.propose(bench.effects, "b1")
    bench.receive(2, bench.vote(2, NOTARIZE, 1, "b1"))
    asks = CertificateRequest((View(1),))
    again = SendTo(ValidatorIndex(3), bench.proposal(1, "b1"))
    assert [proposals_to_one(bench.receive(peer, asks)) for peer in (3, 3, 2)] == [[again], [], []]
    assert [effect.recipient for effect in proposals_to_one(bench.expire(REBROADCAST))] == [0]


def test_without_the_proposal_its_leader_is_asked_at_each_tick() -> None:
    for n in (4, 16):
        bench = Bench(n)
        for _ in range(n):
            assert bench.engine.leader(View(1)) in {
                effect.recipient for effect in asking(View(1), bench.expire(REBROADCAST))
            }


def proposals_to_one(effects: Sequence[Effect]) -> list[SendTo]:
    """Proposals that are sent to one peer each."""
    return [effect for effect in of(SendTo, effects) if isinstance(effect.message, Proposal)]


def test_all_members_of_a_committee_are_asked_in_turn() -> None:
    """They are members 0 to 9 of 64: the places of the round are those of the committee."""
    committee = Committee(View(2), tuple(ValidatorIndex(index) for index in range(10)))
    bench = Bench(64, me=3, epochs=(committee,))
    bench.advance_to(2)
    for _ in range(3):
        asked = [effect.recipient for _ in range(10) for effect in asking(View(2), bench.expire(REBROADCAST))]
        assert set(asked) == set(range(10)) - {3}


def test_who_asks_for_our_view_is_not_told_what_opened_it() -> None:
    bench = Bench()
    bench.advance_to(4)
    assert of(SendTo, bench.receive(3, CertificateRequest((View(4),)))) == []
    assert of(SendTo, bench.receive(3, CertificateRequest((View(2), View(9))))) == [
        SendTo(ValidatorIndex(3), bench.certificate(NULLIFY, 2))
    ]
    assert len(of(SendTo, bench.receive(2, CertificateRequest((View(2),))))) == 2, "who may be behind is told"


@pytest.mark.parametrize("made", [Bench, HotStuffBench])
@pytest.mark.parametrize("gap", [3, 100])
def test_a_leader_is_helped_at_the_first_vote_or_proposal_of_a_view_long_left(made: type[Bench], gap: int) -> None:
    for carries_proposal in (True, False):
        bench = made()
        bench.receive(2, bench.certificate(FINALIZE, 1 + gap, "later"))
        leader = bench.engine.leader(View(1))
        message = bench.proposal(1, "b1") if carries_proposal else bench.vote(leader, NOTARIZE, 1, "b1")
        (told,) = of(SendTo, bench.receive(leader, message))
        assert told == SendTo(leader, bench.certificate(FINALIZE, 1 + gap, "later"))


def test_the_finalize_vote_of_the_view_before_is_repeated() -> None:
    bench = Bench()
    bench.receive(1, bench.certificate(NOTARIZE, 1, "b1"))
    repeated = [effect.message for effect in of(Broadcast, bench.expire(REBROADCAST))]
    assert repeated == [bench.vote(0, FINALIZE, 1, "b1")]


def test_what_is_not_durable_is_not_repeated() -> None:
    bench = Bench()
    bench.feed(TimerExpired(LEADER, View(1)))
    bench.feed(TimerExpired(REBROADCAST, View(1)))
    assert not bench.own_votes()


def test_a_peer_that_is_stuck_is_given_what_brings_it_level() -> None:
    bench = Bench()
    bench.receive(1, bench.certificate(FINALIZE, 3, "b3"))
    bench.advance_to(8, notarized=(5,))
    effects = bench.receive(2, bench.vote(2, NULLIFY, 5))
    assert of(SendTo, effects) == [
        SendTo(ValidatorIndex(2), bench.certificate(NOTARIZE, 5, "b5", 0)),
        SendTo(ValidatorIndex(2), bench.certificate(NULLIFY, 7)),
        SendTo(ValidatorIndex(2), bench.certificate(FINALIZE, 3, "b3")),
    ]


def test_a_peer_stuck_behind_all_that_is_kept_is_helped_too() -> None:
    bench = Bench(config=VotingConfig(retained_views=2, evidence_views=1))
    for view in range(1, 10):
        bench.receive(1, bench.certificate(FINALIZE, view, f"b{view}"))
    effects = bench.receive(2, bench.vote(2, NULLIFY, 1))
    assert of(SendTo, effects) == [SendTo(ValidatorIndex(2), bench.certificate(FINALIZE, 9, "b9"))]
    assert reasons(effects) == [(2, "stale")]
    leader = bench.proposal(1, "b1").vote.signer
    effects = bench.receive(leader, bench.proposal(1, "b1"))
    assert of(SendTo, effects) == [SendTo(leader, bench.certificate(FINALIZE, 9, "b9"))]
    assert reasons(effects) == [(leader, "stale")]


def test_a_vote_that_is_merely_late_is_not_answered_until_it_is_repeated() -> None:
    bench = Bench()
    bench.receive(1, bench.certificate(NULLIFY, 1))
    late = bench.vote(2, NULLIFY, 1)
    assert not of(SendTo, bench.receive(2, late))
    assert of(SendTo, bench.receive(2, late)) == [SendTo(ValidatorIndex(2), bench.certificate(NULLIFY, 1))]


def test_finalize_votes_for_views_left_are_ordinary_and_not_answered() -> None:
    bench = Bench()
    bench.advance_to(9, notarized=(1,))
    vote = bench.vote(2, FINALIZE, 1, "b1")
    assert not of(SendTo, bench.receive(2, vote) + bench.receive(2, vote))


def test_help_is_limited_per_peer_and_view_until_a_tick() -> None:
    bench = Bench()
    bench.advance_to(4)
    vote = bench.vote(2, NULLIFY, 1)
    assert len(of(SendTo, bench.receive(2, vote))) == 2
    assert not of(SendTo, bench.receive(2, vote)), "already answered"
    assert len(of(SendTo, bench.receive(3, bench.vote(3, NULLIFY, 1)))) == 2, "another peer has its own"
    bench.expire(ALLOWANCE)
    assert len(of(SendTo, bench.receive(2, vote))) == 2
    bench.advance_to(5)
    assert of(SendTo, bench.receive(2, vote)) == [SendTo(ValidatorIndex(2), bench.certificate(NULLIFY, 4))]
    bench.expire(REBROADCAST)
    assert not of(SendTo, bench.receive(2, vote)), "the timers of a view are no tick of the allowance"


def test_requests_are_answered_from_what_is_kept() -> None:
    bench = Bench()
    bench.receive(1, bench.certificate(FINALIZE, 1, "b1"))
    bench.receive(1, bench.certificate(NULLIFY, 2), bench.certificate(NOTARIZE, 2, "b2"), bench.certificate(NULLIFY, 3))
    effects = bench.receive(3, CertificateRequest((View(2),)))
    assert [effect.message for effect in of(SendTo, effects)] == [
        bench.certificate(NOTARIZE, 2, "b2"),
        bench.certificate(NULLIFY, 2),
        bench.certificate(NULLIFY, 3),
    ]
    effects = bench.receive(3, CertificateRequest((View(1),)))
    assert [effect.message for effect in of(SendTo, effects)] == [bench.certificate(FINALIZE, 1, "b1")]


def test_answers_to_one_peer_are_bounded_over_time_and_not_by_views() -> None:
    bench = Bench()
    last = 3 * MAX_REQUESTED_VIEWS
    bench.receive(1, *(bench.certificate(NULLIFY, view) for view in range(1, last)))
    certificates = [bench.certificate(NULLIFY, view) for view in range(1, last)]
    allowed = certificate_bytes(4)

    def answered(peer: int) -> int:
        """Bytes of the answers to requests for everything."""
        views = [View(view) for view in range(1, last)]
        requests = [CertificateRequest(tuple(views[at : at + 64])) for at in range(0, last - 1, 64)]
        effects = bench.receive(peer, *requests)
        assert (peer, "flood") in reasons(effects)
        return sum(len(encode(effect.message)) for effect in of(SendTo, effects))

    largest = max(len(encode(certificate)) for certificate in certificates)
    assert 0 <= answered(3) - BURST_CERTIFICATES * allowed < largest
    bench.advance_to(last + 5)
    bench.expire(REBROADCAST)
    assert answered(3) == 0, "neither views nor their timers are ticks"
    for _ in range(2):
        bench.expire(ALLOWANCE, GENESIS_VIEW)
        assert TICK_CERTIFICATES * allowed - largest < answered(3) < TICK_CERTIFICATES * allowed + largest
    assert answered(2) >= BURST_CERTIFICATES * allowed, "each peer has its own"


def test_what_brings_a_peer_level_is_less_than_a_tick_adds() -> None:
    """However many validators there are: certificates grow with their number, and so does the allowance."""
    bench = HotStuffBench(200)
    bench.receive(1, bench.certificate(NOTARIZE, 1, "b1"), bench.certificate(FINALIZE, 1, "b1"))
    bench.receive(1, bench.certificate(NOTARIZE, 2, "b2"), bench.timeouts(2, 1), bench.timeouts(3, 2))
    helped = of(SendTo, bench.receive(5, bench.timeout(5, 2, high=1)) + bench.receive(5, bench.timeout(5, 2, high=1)))
    assert len(helped) == 4, "both certificates of the view, the one that opened ours, and the newest finalization"
    sizes = [len(encode(effect.message)) for effect in helped]
    assert sum(sizes) < TICK_CERTIFICATES * certificate_bytes(200)


def test_answered_peers_are_bounded() -> None:
    bench = Bench()
    bench.advance_to(2)
    for peer in range(MAX_ANSWERED_PEERS):
        bench.feed(Received(ValidatorIndex(100 + peer), CertificateRequest((View(1),))))
    assert reasons(bench.receive(3, CertificateRequest((View(1),)))) == [(3, "flood")]


def test_open_requests_are_repeated_to_other_peers() -> None:
    bench = Bench(me=1)
    bench.receive(3, bench.certificate(NULLIFY, 5))
    bench.receive(2, bench.proposal(6, "b6", parent=4))
    request = CertificateRequest((View(4),))
    asked = [[effect.recipient for effect in asking(View(4), bench.expire(REBROADCAST))] for _ in range(3)]
    assert all(len(peers) == 2 for peers in asked), "more than the fault bound each time"
    assert {peer for peers in asked for peer in peers} == {0, 2, 3}
    assert {effect.message for effect in of(SendTo, bench.effects)} <= {request, CertificateRequest((View(6),))}


def test_a_leaders_open_request_is_repeated_too() -> None:
    bench = Bench(me=0)
    bench.receive(1, bench.certificate(NULLIFY, 3))
    effects = bench.expire(REBROADCAST)
    request = CertificateRequest((View(1), View(2)))
    sent = [effect for effect in of(SendTo, effects) if effect.message == request]
    assert sent == [SendTo(ValidatorIndex(peer), request) for peer in (2, 3)]


def test_a_long_gap_is_requested_in_pieces() -> None:
    bench = Bench(me=0)
    gap = 3 * MAX_REQUESTED_VIEWS
    bench.receive(1, bench.certificate(NULLIFY, 199))
    requests = 0
    wanted = of(SendTo, bench.effects)[0].message
    for _ in range(gap):
        assert isinstance(wanted, CertificateRequest)
        assert len(wanted.views) <= MAX_REQUESTED_VIEWS
        requests += 1
        effects = bench.receive(1, *(bench.certificate(NULLIFY, view) for view in wanted.views))
        if of(Propose, effects):
            break
        wanted = of(SendTo, effects)[0].message
    assert requests == -(-198 // MAX_REQUESTED_VIEWS)
    assert of(Propose, bench.effects) == [Propose(View(200), Parent(GENESIS_VIEW, GENESIS))]


# --- hostile input ---------------------------------------------------------------------------------------------------


def test_votes_that_do_not_count() -> None:
    bench = Bench(config=VotingConfig(view_window=5))
    bench.receive(1, bench.certificate(FINALIZE, 20, "b20"))
    vote = bench.vote
    replace = msgspec.structs.replace
    planted = [
        (9, replace(vote(1, NULLIFY, 21), signer=9), "unknown_signer"),
        (-1, replace(vote(1, NULLIFY, 21), signer=-1), "unknown_signer"),
        (2, vote(1, NULLIFY, 21), "not_the_signer"),
        (0, vote(0, NULLIFY, 21), "own_key"),
        (1, replace(vote(1, NULLIFY, 21), digest=block("x")), "malformed"),
        (1, replace(vote(1, NOTARIZE, 21, "x"), signature=b"s"), "malformed"),
        (1, replace(vote(1, NOTARIZE, 21, "x"), digest=b"d"), "malformed"),
        (1, vote(1, NULLIFY, 27), "future"),
        (1, vote(1, NULLIFY, 12), "stale"),
    ]
    for sender, bad, reason in planted:
        before = len(bench.engine._rounds)
        assert reasons(bench.receive(sender, bad)) == [(sender, reason)]
        assert len(bench.engine._rounds) == before
    assert not reasons(bench.receive(1, vote(1, NULLIFY, 26)))
    assert not reasons(bench.receive(1, vote(1, NULLIFY, 13)))
    assert reasons(bench.receive(1, vote(1, NULLIFY, 26))) == [(1, "duplicate")]


def test_proposals_that_do_not_count() -> None:
    bench = Bench(config=VotingConfig(proposal_window=2, max_body_bytes=8, retained_views=1))
    bench.advance_to(3)
    good = bench.proposal(3, "b3", parent=0)
    replace = msgspec.structs.replace
    planted = [
        (2, good, "not_the_leader"),
        (3, replace(good, vote=bench.vote(2, NOTARIZE, 3, "b3", parent=0)), "not_the_leader"),
        (3, replace(good, body=b"too large"), "oversized"),
        (3, replace(good, digest=block("other")), "malformed"),
        (3, replace(good, vote=bench.forged(3, NOTARIZE, 3, "b3", parent=0)), "bad_signature"),
        (1, bench.proposal(1, "b1"), "stale"),
        (1, replace(bench.proposal(2, "b2"), vote=bench.vote(1, NOTARIZE, 2, "b2")), "not_the_leader"),
        (2, replace(bench.proposal(2, "b2"), digest=block("other")), "malformed"),
        (2, bench.proposal(6, "b6"), "future"),
    ]
    for sender, bad, reason in planted:
        effects = bench.receive(sender, bad)
        assert reasons(effects) == [(sender, reason)]
        assert not of(Verify, effects)
    assert len(of(Verify, bench.receive(3, good))) == 1
    assert reasons(bench.receive(3, good)) == [(3, "duplicate")]


@pytest.mark.parametrize("made", [Bench, HotStuffBench])
def test_a_proposal_for_a_view_that_was_left_is_the_vote_that_it_carries(made: type[Bench]) -> None:
    bench = made()
    leader = bench.engine.leader(View(1))
    bench.receive(leader, bench.proposal(1, "b1"))
    bench.advance_to(2)
    assert reasons(bench.receive(leader, bench.proposal(1, "b1"))) == [(leader, "duplicate")]
    effects = bench.receive(leader, bench.proposal(1, "other"))
    (report,) = of(Report, effects)
    assert isinstance(report.evidence, ConflictingNotarize)
    assert verify_evidence(report.evidence, bench.validators, NAMESPACE)
    assert not of(Verify, effects)
    assert not bench.own_votes(effects)


def test_a_leader_that_is_behind_is_told_where_the_others_are() -> None:
    bench = Bench()
    bench.advance_to(3)
    leader = bench.engine.leader(View(1))
    (told,) = of(SendTo, bench.receive(leader, bench.proposal(1, "b1")))[:1]
    assert (told.recipient, told.message) == (leader, bench.certificate(NULLIFY, 1))


def test_a_late_proposal_completes_a_certificate() -> None:
    bench = Bench()
    bench.receive(2, bench.vote(2, NOTARIZE, 1, "b1"))
    bench.receive(3, bench.vote(3, NOTARIZE, 1, "b1"))
    bench.advance_to(2)
    (said,) = of(Broadcast, bench.receive(1, bench.proposal(1, "b1")))
    assert isinstance(said.message, Certificate)
    assert (said.message.kind, list(said.message.signed)) == (NOTARIZE, [1, 2, 3])


def test_own_messages_that_come_back_are_no_news() -> None:
    bench = Bench(me=1)
    proposal = bench.proposal(1, "b1")
    assert reasons(bench.receive(1, proposal)) == [(1, "own_key")]
    assert reasons(bench.receive(1, CertificateRequest((View(1),)))) == [(1, "own_key")]


def test_certificates_that_do_not_count() -> None:
    bench = Bench()
    bench.receive(1, bench.certificate(FINALIZE, 2, "b2"), bench.certificate(NULLIFY, 3))
    good = bench.certificate(NOTARIZE, 4, "b4")
    replace = msgspec.structs.replace
    planted = [
        (bench.certificate(NULLIFY, 2), "stale"),
        (bench.certificate(NULLIFY, 3), "duplicate"),
        (replace(good, signatures=good.signatures[:-1]), "malformed"),
        (replace(good, signers=good.signers + b"\0"), "malformed"),
        (shortened(good, 2), "bad_certificate"),
        (resigned(good, {**shortened(good, 2).signed, 3: b"\0" * 64}), "bad_certificate"),
        (resigned(good, {**shortened(good, 2).signed, 9: good.signatures[-64:]}), "bad_certificate"),
        (replace(good, view=5), "bad_certificate"),
    ]
    for observer, (bad, reason) in enumerate(planted, 100):
        assert reasons(bench.receive(observer, bad)) == [(observer, reason)]
        assert bench.engine.view == 4
    bench.receive(2, good)
    assert bench.engine.view == 5


def test_one_bad_certificate_is_all_that_a_peer_has_checked_in_many_views(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One with all but one good signature costs as much to check as a good one."""
    bench = Bench()
    good = bench.certificate(NOTARIZE, 1, "b1")
    bad = resigned(good, {**shortened(good, 2).signed, 3: b"\0" * 64})
    checked = []

    def count(*given: Any) -> bool:
        checked.append(given[0])
        return verify_certificate(*given)

    monkeypatch.setattr(evidence, "verify_certificate", count)
    assert reasons(bench.receive(2, bad)) == [(2, "bad_certificate")]
    for view in range(2, 2 + DISTRUSTED_VIEWS):
        bench.expire(REBROADCAST)
        assert reasons(bench.receive(2, bad)) == reasons(bench.receive(2, good)) == [(2, "flood")]
        assert not reasons(bench.receive(1, bench.certificate(NULLIFY, view - 1))), "what others send is looked at"
    assert len(checked) == 1 + DISTRUSTED_VIEWS
    assert not reasons(bench.receive(2, bench.certificate(NULLIFY, 1 + DISTRUSTED_VIEWS)))


def test_a_forger_that_forges_again_is_distrusted_anew() -> None:
    bench = Bench()
    bad = shortened(bench.certificate(NOTARIZE, 200, "b"), 2)
    for _ in range(2):
        assert [reasons(bench.receive(2, bad)) for _ in range(2)] == [[(2, "bad_certificate")], [(2, "flood")]]
        bench.advance_to(bench.engine.view + DISTRUSTED_VIEWS)


def test_the_forgers_that_are_remembered_are_bounded() -> None:
    bench = Bench()
    bad = shortened(bench.certificate(NOTARIZE, 1, "b1"), 2)
    for peer in range(MAX_FORGERS):
        bench.feed(Received(ValidatorIndex(100 + peer), bad))
    assert reasons(bench.receive(100, bad)) == [(100, "flood")]
    assert reasons(bench.receive(3, bad)) == [(3, "bad_certificate")]
    assert reasons(bench.receive(101, bad)) == [(101, "flood")]
    assert reasons(bench.receive(100, bad)) == [(100, "bad_certificate")], "the first is forgotten"


def test_requests_that_do_not_count() -> None:
    bench = Bench()
    for views in ((), (2, 1), tuple(range(MAX_REQUESTED_VIEWS + 1))):
        request = CertificateRequest(tuple(View(view) for view in views))
        assert reasons(bench.receive(1, request)) == [(1, "malformed")]


def test_forged_votes_found_at_the_quorum_are_dropped_and_named() -> None:
    bench = Bench(n=7)
    bench.receive(1, bench.forged(1, NULLIFY, 2))
    for peer in (2, 3, 4):
        bench.receive(peer, bench.vote(peer, NULLIFY, 2))
    effects = bench.receive(5, bench.vote(5, NULLIFY, 2))
    assert reasons(effects) == [(1, "bad_signature")]
    assert bench.engine.view == 1
    bench.receive(6, bench.vote(6, NULLIFY, 2))
    assert bench.engine.view == 3


def test_votes_far_ahead_may_make_a_certificate_within_the_window() -> None:
    bench = Bench()
    bench.cast(NULLIFY, 9)
    assert bench.engine.view == 10


def test_contradictions_are_reported_once_with_both_signatures() -> None:
    bench = Bench()
    vote = bench.vote
    planted = [
        (vote(2, NOTARIZE, 1, "x"), vote(2, NOTARIZE, 1, "y"), ConflictingNotarize),
        (vote(3, FINALIZE, 1, "x"), vote(3, FINALIZE, 1, "y"), ConflictingFinalize),
        (vote(2, NULLIFY, 2), vote(2, FINALIZE, 2, "x"), NullifyAndFinalize),
        (vote(3, FINALIZE, 2, "x"), vote(3, NULLIFY, 2), NullifyAndFinalize),
    ]
    for first, second, kind in planted:
        assert not of(Report, bench.receive(first.signer, first))
        (report,) = of(Report, bench.receive(second.signer, second))
        assert isinstance(report.evidence, kind)
        assert verify_evidence(report.evidence, bench.validators, NAMESPACE)
        assert not of(Report, bench.receive(first.signer, first, second))
    third = vote(2, NOTARIZE, 1, "z")
    effects = bench.receive(2, third)
    assert not of(Report, effects)
    assert reasons(effects) == [(2, "conflict")]


def test_a_forged_vote_accuses_nobody_and_gives_way_to_the_true_one() -> None:
    bench = Bench()
    effects = bench.receive(2, bench.forged(2, NOTARIZE, 1, "x"), bench.vote(2, NOTARIZE, 1, "y"))
    assert not of(Report, effects)
    assert reasons(effects) == [(2, "bad_signature")]
    effects = bench.receive(2, bench.forged(2, NOTARIZE, 1, "x"))
    assert not of(Report, effects)
    assert reasons(effects) == [(2, "bad_signature")]
    effects = bench.receive(3, bench.forged(3, NULLIFY, 1), bench.vote(3, FINALIZE, 1, "x"))
    assert not of(Report, effects)
    for peer in (1, 3):
        bench.receive(peer, bench.vote(peer, NOTARIZE, 1, "y"))
    assert bench.engine.view == 2


def test_the_same_vote_with_another_signature_is_no_second_vote() -> None:
    bench = Bench(n=7)
    effects = bench.receive(2, bench.vote(2, NOTARIZE, 1, "x"), bench.forged(2, NOTARIZE, 1, "x"))
    assert reasons(effects) == [(2, "duplicate")]
    for peer in (3, 4, 5, 6):
        bench.receive(peer, bench.vote(peer, NOTARIZE, 1, "x"))
    assert bench.engine.view == 2


@pytest.mark.parametrize("made", [Bench, HotStuffBench])
def test_a_forged_copy_sent_first_does_not_hide_a_contradiction(made: type[Bench]) -> None:
    bench = made()
    planted = [
        (bench.forged(2, NOTARIZE, 1, "x"), bench.vote(2, NOTARIZE, 1, "x"), bench.vote(2, NOTARIZE, 1, "y")),
        (bench.forged(3, FINALIZE, 2, "x"), bench.vote(3, FINALIZE, 2, "x"), bench.vote(3, FINALIZE, 2, "y")),
    ]
    if made is Bench:
        planted.append((bench.forged(2, FINALIZE, 3, "x"), bench.vote(2, FINALIZE, 3, "x"), bench.vote(2, NULLIFY, 3)))
    for forged, true, other in planted:
        effects = bench.receive(forged.signer, forged, true, true, other)
        (report,) = of(Report, effects)
        assert {report.evidence.first, report.evidence.second} == {true, other}
        assert verify_evidence(report.evidence, bench.validators, NAMESPACE)
        said = "conflict" if true.kind == other.kind else None
        assert [reason for _, reason in reasons(effects)] == ["bad_signature", "duplicate", *filter(None, [said])]


def test_copies_forged_one_after_the_other_keep_one_vote_and_are_each_named() -> None:
    bench = Bench()
    copies = [msgspec.structs.replace(bench.vote(2, NOTARIZE, 1, "x"), signature=bytes([n]) * 64) for n in range(5)]
    effects = bench.receive(2, *copies, bench.vote(2, NOTARIZE, 1, "x"))
    assert reasons(effects) == [(2, "bad_signature")] * 5
    for peer in (1, 3):
        bench.receive(peer, bench.vote(peer, NOTARIZE, 1, "x"))
    assert bench.engine.view == 2


def test_a_forged_copy_of_its_vote_does_not_keep_a_leaders_proposal_out() -> None:
    bench = Bench()
    effects = bench.receive(1, bench.forged(1, NOTARIZE, 1, "b1"), bench.proposal(1, "b1"))
    assert reasons(effects) == [(1, "bad_signature")]
    assert len(of(Verify, effects)) == 1


def test_contradictions_between_votes_and_certificates_are_found() -> None:
    bench = Bench()
    bench.receive(2, bench.vote(2, NOTARIZE, 1, "other"))
    (report,) = of(Report, bench.receive(1, bench.certificate(NOTARIZE, 1, "b1", signers=(1, 2, 3))))
    assert isinstance(report.evidence, ConflictingNotarize)
    assert verify_evidence(report.evidence, bench.validators, NAMESPACE)
    bench.receive(3, bench.vote(3, FINALIZE, 2, "b2"))
    (report,) = of(Report, bench.receive(1, bench.certificate(NULLIFY, 2, signers=(1, 2, 3))))
    assert isinstance(report.evidence, NullifyAndFinalize)
    assert verify_evidence(report.evidence, bench.validators, NAMESPACE)


@pytest.mark.parametrize("made", [Bench, HotStuffBench])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_vote_and_a_certificate_that_contradict_each_other_are_found_in_either_order(
    made: type[Bench], is_first: bool
) -> None:
    bench = made()
    certificate, vote = bench.certificate(NOTARIZE, 1, "b1", signers=(1, 2, 3)), bench.vote(3, NOTARIZE, 1, "other")
    said: list[tuple[int, Message]]
    said = [(3, vote), (2, certificate)] if is_first else [(2, certificate), (3, vote)]
    (report,) = [report for sender, message in said for report in of(Report, bench.receive(sender, message))]
    assert isinstance(report.evidence, ConflictingNotarize)
    assert report.evidence.first.signer == 3
    assert verify_evidence(report.evidence, bench.validators, NAMESPACE)


def test_a_forged_vote_that_contradicts_a_certificate_proves_nothing() -> None:
    bench = Bench()
    bench.receive(2, bench.certificate(NOTARIZE, 1, "b1", signers=(1, 2, 3)))
    effects = bench.receive(3, bench.forged(3, NOTARIZE, 1, "other"))
    assert not of(Report, effects)
    assert reasons(effects) == [(3, "bad_signature")]


def test_forged_votes_leave_nothing_behind() -> None:
    bench = Bench()
    bench.receive(3, bench.vote(3, NULLIFY, 1))
    for number in range(200):
        assert reasons(bench.receive(3, bench.forged(3, FINALIZE, 1, f"x{number}"))) == [(3, "bad_signature")]
    assert len(bench.engine._rounds[View(1)].tally._messages) <= 1


def test_a_leader_is_not_silent_to_who_has_just_come_back() -> None:
    """It heard nobody before; who says nothing for so long from then on is skipped."""
    config = VotingConfig(skip_views=4)
    before = Bench(config=config)
    before.receive(1, *(before.certificate(kind, 39, "b39", parent=0) for kind in (NOTARIZE, FINALIZE)))
    bench = Bench(config=config, journal=before.journal)
    skipped = []
    for view in range(40, 47):
        assert bench.engine.view == view
        if (NULLIFY, view, b"") in bench.own_votes():
            skipped.append(view)
        for peer in (2, 3):
            bench.receive(peer, bench.vote(peer, NULLIFY, view))
        bench.receive(2, bench.certificate(NULLIFY, view, signers=(0, 2, 3)))
    assert [view for view in range(40, 47) if bench.engine.leader(View(view)) == 1] == [41, 45]
    assert skipped == [45]


def test_a_leader_that_was_heard_of_a_view_ahead_was_not_silent_before_that_view() -> None:
    """Such a vote is not kept again when it is repeated: its view counts, not the view in which it came."""
    bench = Bench(config=VotingConfig(skip_views=4))
    ahead = bench.vote(1, NULLIFY, 10)
    bench.receive(1, ahead)
    bench.receive(2, bench.certificate(NULLIFY, 10, signers=(1, 2, 3)))
    bench.receive(1, ahead)
    skipped = []
    for view in range(11, 18):
        assert bench.engine.view == view
        if (NULLIFY, view, b"") in bench.own_votes():
            skipped.append(view)
        for peer in (2, 3):
            bench.receive(peer, bench.vote(peer, NULLIFY, view))
        bench.receive(2, bench.certificate(NULLIFY, view, signers=(0, 2, 3)))
    assert [view for view in range(11, 18) if bench.engine.leader(View(view)) == 1] == [13, 17]
    assert skipped == [17]


def test_a_leaders_equivocation_shown_by_a_certificate_keeps_from_finalizing() -> None:
    bench = Bench()
    bench.receive(1, bench.proposal(1, "other"))
    effects = bench.receive(2, bench.certificate(NOTARIZE, 1, "b1", signers=(1, 2, 3)))
    assert len(of(Report, effects)) == 1
    assert not bench.own_votes(effects)


def test_memory_is_bounded_under_a_flood() -> None:
    config = VotingConfig(view_window=8, proposal_window=2, retained_views=4, evidence_views=2)
    bench = Bench(config=config)
    for step in range(1, 60):
        for peer in (1, 2, 3):
            for view in range(max(1, step - 20), step + 30):
                for name in ("x", "y"):
                    bench.feed(Received(ValidatorIndex(peer), bench.forged(peer, NOTARIZE, view, name)))
            for view in range(step, step + 30):
                bench.feed(Received(ValidatorIndex(peer), bench.proposal(view, f"b{view}")))
        bench.receive(1, bench.certificate(FINALIZE, step, f"b{step}"))
        engine = bench.engine
        assert len(engine._rounds) <= config.view_window + config.evidence_views + 1
        assert sum(round_.proposal is not None for round_ in engine._rounds.values()) <= 1 + config.proposal_window
        assert sum(len(held) for held in engine.certificates.by_kind.values()) <= 2 * (config.retained_views + 1)
        bench.effects.clear()


def test_bodies_are_let_go_when_their_view_is_left() -> None:
    bench = Bench()
    for view in range(1, 5):
        bench.receive(view % 4, bench.proposal(view, f"b{view}")) if view % 4 else None
    bench.receive(1, bench.certificate(NULLIFY, 7))
    assert all(round_.proposal is None for round_ in bench.engine._rounds.values())


def test_every_certificate_above_the_final_view_is_kept_however_long_it_takes() -> None:
    bench = Bench(me=0, config=VotingConfig(retained_views=2))
    bench.advance_to(200)
    assert of(Propose, bench.effects)[-1] == Propose(View(200), Parent(GENESIS_VIEW, GENESIS))


# --- construction ----------------------------------------------------------------------------------------------------


def test_an_engine_can_start_from_a_later_root() -> None:
    root = Parent(View(1000), block("root"))
    bench = Bench(me=1, root=root)
    assert (bench.engine.view, bench.engine.final_view) == (1001, 1000)
    assert of(Propose, bench.effects) == [Propose(View(1001), root)]
    assert reasons(bench.receive(2, bench.vote(2, NULLIFY, 1000))) == [(2, "stale")]


def test_simplex_is_an_engine() -> None:
    engine: VotingEngine = Bench().engine
    assert (engine.view, engine.final_view, engine.certificates.best_of(View(1))) == (1, 0, None)
    assert engine.journal_snapshot() == ()


def test_an_engine_can_start_from_a_known_finalization() -> None:
    maker = Bench()
    maker.receive(1, maker.certificate(FINALIZE, 40, "b40"))
    late = Bench(me=1, journal=maker.engine.journal_snapshot())
    assert late.engine.certificates.final == Parent(View(40), block("b40"))
    assert of(Propose, late.effects) == [Propose(View(41), Parent(View(40), block("b40")))]


def test_wrong_identities_and_configurations_are_refused() -> None:
    bench = Bench()
    config, validators = VotingConfig(), bench.validators
    twice = ValidatorSet((validators.public_keys[0],) * 4, bench.scheme)
    for members, me, signer in (
        (validators, 4, bench.signers[0]),
        (validators, -1, bench.signers[0]),
        (validators, 1, bench.signers[0]),
        (validators, 1, None),
        (ValidatorSet((), bench.scheme), None, None),
        (twice, 0, bench.signers[0]),
    ):
        with pytest.raises(ConsensusError):
            Simplex(config, members, None if me is None else ValidatorIndex(me), signer, NAMESPACE, GENESIS)
    with pytest.raises(ConsensusError):
        Simplex(config, validators, None, None, NAMESPACE, Digest(b"short"))
    for fault in ({"leader_timeout_ms": 0}, {"view_window": 0}, {"skip_views": -1}, {"max_body_bytes": 2**30}):
        with pytest.raises(ConsensusError):
            VotingConfig(**fault)


def test_only_votes_and_proposals_of_ours_and_certificates_and_requests_are_sent() -> None:
    bench = Bench(me=1)
    bench.propose(bench.effects, "b1")
    bench.cast(NOTARIZE, 1, "b1")
    for effect in of(Broadcast, bench.effects):
        assert isinstance(effect.message, Vote | Proposal | Certificate | CertificateRequest)


# --- committees ------------------------------------------------------------------------------------------------------


def test_who_is_no_member_does_not_vote_and_is_not_counted() -> None:
    epochs = (Committee(View(1), tuple(map(ValidatorIndex, (0, 1, 2, 3)))),)
    outside = Bench(n=7, me=5, epochs=epochs)
    outside.receive(1, outside.proposal(1, "b1"))
    outside.verified(1, "b1")
    outside.expire(ADVANCE)
    assert not outside.own_votes()
    inside = Bench(n=7, me=0, epochs=epochs)
    assert reasons(inside.receive(6, inside.vote(6, NULLIFY, 1))) == [(6, "not_a_member")]
    for peer in (1, 2, 3):
        inside.receive(peer, inside.vote(peer, NULLIFY, 1))
    assert inside.engine.view == 2, "three of four are a quorum"


def test_a_member_comes_with_its_epoch() -> None:
    members = [tuple(map(ValidatorIndex, each)) for each in ((0, 1, 2, 3), (2, 3, 4, 5))]
    epochs = (Committee(View(1), members[0]), Committee(View(3), members[1]))
    bench = Bench(n=7, me=5, config=VotingConfig(skip_views=2), epochs=epochs)
    bench.receive(1, bench.certificate(NULLIFY, 1, signers=(0, 1, 2)))
    bench.expire(ADVANCE)
    assert not bench.own_votes()
    bench.receive(1, bench.certificate(NULLIFY, 2, signers=(0, 1, 2)))
    assert bench.engine.leader(View(3)) == 5
    assert of(Propose, bench.effects) == [Propose(View(3), Parent(GENESIS_VIEW, GENESIS))]
    other = Bench(n=7, me=4, config=VotingConfig(skip_views=2), epochs=epochs)
    for view in (1, 2):
        other.receive(1, other.certificate(NULLIFY, view, signers=(0, 1, 2)))
    assert not other.own_votes(), "a leader that is new was not silent"
