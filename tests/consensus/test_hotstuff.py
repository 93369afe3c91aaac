"""HotStuff, rule by rule, on one engine. What it shares with Simplex is tested in ``test_simplex.py``."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from consensus.hotstuff import HotStuff
from consensus.interface import (
    BlockProposed,
    BlockVerified,
    Broadcast,
    Durable,
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
from consensus.keys import Ed25519Scheme
from consensus.messages import (
    Certificate,
    CertificateRequest,
    ConflictingNotarize,
    ConflictingTimeout,
    FinalizeAndTimeout,
    Proposal,
    Timeout,
    TimeoutCertificate,
    Vote,
    verify_evidence,
)
from consensus.types import GENESIS_VIEW, ConsensusError, Digest, ValidatorIndex, View
from consensus.voting import VotingEngine
from tests.consensus.bench import (
    FINALIZE,
    GENESIS,
    NAMESPACE,
    NOTARIZE,
    NULLIFY,
    TIMEOUT,
    Bench,
    CountingScheme,
    HotStuffBench,
    block,
    of,
    reasons,
    resigned,
    shortened,
)

DISTRUSTED_VIEWS = VotingConfig().distrusted_views

LEADER, ADVANCE, REBROADCAST, ALLOWANCE = TimerKind


def peer(index: int) -> ValidatorIndex:
    return ValidatorIndex(index)


def own_timeout(bench: HotStuffBench) -> Timeout:
    """Our newest timeout message."""
    return [effect.message for effect in of(Broadcast, bench.effects) if isinstance(effect.message, Timeout)][-1]


# --- entering a view and proposing -----------------------------------------------------------------------------------


def test_hotstuff_is_an_engine() -> None:
    engine: VotingEngine = HotStuffBench().engine
    assert (engine.view, engine.final_view, engine.certificates.best_of(View(1))) == (1, 0, None)
    assert engine.certificates.final == Parent(GENESIS_VIEW, GENESIS)
    assert engine.journal_snapshot() == ()


def test_a_view_begins_with_three_timers() -> None:
    bench = HotStuffBench(config=VotingConfig(leader_timeout_ms=11, advance_timeout_ms=22, rebroadcast_ms=33))
    assert of(ViewEntered, bench.effects) == [ViewEntered(View(1), peer(1))]
    assert [(timer.kind, timer.delay_ms) for timer in of(StartTimer, bench.effects)] == [
        (ALLOWANCE, 33),
        (LEADER, 11),
        (ADVANCE, 22),
        (REBROADCAST, 33),
    ]


@pytest.mark.parametrize("ahead", [1, 1000])
def test_each_certificate_opens_the_next_view_however_far_ahead(ahead: int) -> None:
    for kind in (NOTARIZE, FINALIZE, TIMEOUT):
        bench = HotStuffBench()
        certificate = bench.timeouts(ahead) if kind == TIMEOUT else bench.certificate(kind, ahead, f"b{ahead}")
        effects = bench.receive(2, certificate)
        assert bench.engine.view == ahead + 1
        assert of(ViewEntered, effects) == [ViewEntered(View(ahead + 1), peer((ahead + 1) % 4))]
        assert bench.engine.certificates.best_of(View(ahead)) == certificate


def test_the_next_leader_collects_the_votes_and_proposes_on_them() -> None:
    bench = HotStuffBench(me=2)
    bench.receive(1, bench.proposal(1, "b1"))
    assert bench.own_votes(bench.verified(1, "b1")) == [], "our own vote needs no sending"
    effects = bench.receive(3, bench.vote(3, NOTARIZE, 1, "b1"))
    certificate = bench.certificate(NOTARIZE, 1, "b1", signers=(1, 2, 3))
    assert Broadcast(certificate) in effects
    assert of(Propose, effects) == [Propose(View(2), Parent(View(1), block("b1")))]
    sent = bench.propose(effects, "b2")
    assert [effect.message for effect in of(Broadcast, sent)] == [bench.proposal(2, "b2")]


def test_a_leader_proposes_on_its_high_block_right_after_timeouts() -> None:
    bench = HotStuffBench(me=0)
    bench.receive(1, bench.certificate(NOTARIZE, 1, "b1"))
    effects = bench.receive(2, bench.timeouts(3, 1))
    assert of(Propose, effects) == [Propose(View(4), Parent(View(1), block("b1")))]


def test_a_leader_learns_its_parent_from_the_timeout_certificate() -> None:
    bench = HotStuffBench(me=0)
    effects = bench.receive(2, bench.timeouts(3, 2))
    assert of(Notarized, effects) == [Notarized(bench.certificate(NOTARIZE, 2, "b2"))]
    assert [entered.view for entered in of(ViewEntered, effects)] == [4], "no view is entered on the way"
    assert of(Propose, effects) == [Propose(View(4), Parent(View(2), block("b2")))]


def test_a_proposal_is_preceded_by_what_justifies_it() -> None:
    bench = HotStuffBench(me=0)
    timeouts = bench.timeouts(3, 2)
    sent = bench.propose(bench.receive(2, timeouts), "b4")
    assert [effect.message for effect in of(Broadcast, sent)] == [
        timeouts,
        bench.certificate(NOTARIZE, 2, "b2"),
        bench.proposal(4, "b4", parent=2),
    ]


def test_the_leader_proposes_once_and_not_after_it_timed_out() -> None:
    bench = HotStuffBench(me=1)
    bench.propose(bench.effects, "b1")
    again = BlockProposed(View(1), Parent(GENESIS_VIEW, GENESIS), block("other"), b"other")
    assert bench.do(again) == []
    late = HotStuffBench(me=1)
    late.expire(LEADER)
    assert late.propose(late.effects, "b1") == []
    assert late.own_votes() == [(TIMEOUT, 1, b"")]


# --- notarizing ------------------------------------------------------------------------------------------------------


def test_a_proposal_is_notarized_to_the_next_leader_once_durable() -> None:
    bench = HotStuffBench(me=3)
    effects = bench.receive(1, bench.proposal(1, "b1"))
    parent = Parent(GENESIS_VIEW, GENESIS)
    assert of(Verify, effects) == [Verify(View(1), parent, block("b1"), b"b1", bench.vote(1, NOTARIZE, 1, "b1"))]
    (persist,) = bench.feed(BlockVerified(View(1), block("b1"), True))
    assert isinstance(persist, Persist)
    assert persist.body == b"b1"
    assert bench.feed(Durable(persist.token)) == [SendTo(peer(2), bench.vote(3, NOTARIZE, 1, "b1"))]


def test_only_the_first_proposal_of_the_leader_is_notarized_and_once() -> None:
    bench = HotStuffBench()
    bench.receive(1, bench.proposal(1, "b1"))
    assert not of(Verify, bench.receive(1, bench.proposal(1, "other")))
    bench.verified(1, "other")
    bench.verified(1, "b1")
    bench.verified(1, "b1")
    assert bench.own_votes() == [(NOTARIZE, 1, block("b1"))]


def test_a_block_on_the_view_before_needs_its_certificate_and_no_other() -> None:
    bench = HotStuffBench()
    bench.receive(2, bench.proposal(2, "b2"))
    assert len(of(Verify, bench.receive(2, bench.certificate(NOTARIZE, 1, "b1")))) == 1


def test_skipping_views_needs_the_timeouts_of_the_view_before() -> None:
    bench = HotStuffBench(me=0)
    bench.receive(1, bench.certificate(NOTARIZE, 1, "b1"), bench.certificate(NOTARIZE, 2, "b2"))
    effects = bench.receive(3, bench.proposal(3, "b3", parent=1))
    assert not of(Verify, effects)
    assert of(SendTo, effects) == [SendTo(peer(3), CertificateRequest((View(2),)))]
    effects = bench.receive(3, bench.timeouts(2, 1))
    assert [request.parent for request in of(Verify, effects)] == [Parent(View(1), block("b1"))]


def test_timeouts_with_a_higher_block_do_not_justify_a_lower_parent() -> None:
    bench = HotStuffBench(me=0)
    bench.receive(1, bench.certificate(NOTARIZE, 1, "b1"), bench.certificate(NOTARIZE, 2, "b2"))
    bench.receive(1, bench.timeouts(4, 2))
    effects = bench.receive(1, bench.proposal(5, "b5", parent=1))
    assert not of(Verify, effects)
    assert of(SendTo, effects) == [SendTo(peer(1), CertificateRequest((View(4),)))]
    bench.verified(5, "b5")
    assert NOTARIZE not in [kind for kind, view, _ in bench.own_votes() if view == 5]


def test_other_timeouts_of_the_view_before_may_permit_more() -> None:
    """The leader had other timeouts than we: its certificate takes the place of ours, though we know a higher block."""
    bench = HotStuffBench(me=0)
    bench.receive(1, bench.certificate(NOTARIZE, 1, "b1"))
    bench.receive(1, bench.timeouts(4, 3))
    bench.receive(1, bench.proposal(5, "b5", parent=1))
    lower = bench.timeouts(4, 1, signers=(1, 2, 3))
    effects = bench.receive(1, lower)
    assert [request.parent for request in of(Verify, effects)] == [Parent(View(1), block("b1"))]
    assert reasons(bench.receive(1, bench.timeouts(4, 3))) == [(1, "duplicate")], "the one that permits more is kept"
    assert reasons(bench.receive(1, bench.timeouts(4, 1, 1))) == [(1, "duplicate")]
    again = HotStuffBench(me=0, journal=bench.journal)
    assert again.engine.certificates.best_of(View(4)) == lower


def test_an_impossible_parent_times_the_view_out_at_once() -> None:
    bench = HotStuffBench(me=0)
    bench.receive(1, bench.certificate(FINALIZE, 2, "b2"))
    assert bench.own_votes(bench.receive(3, bench.proposal(3, "b3", parent=1))) == [(TIMEOUT, 3, b"")]
    other = HotStuffBench(me=0)
    other.receive(1, other.certificate(NOTARIZE, 1, "b1"))
    effects = other.receive(2, other.proposal(2, "b2", parent_digest=block("x")))
    assert not of(Verify, effects)
    assert (TIMEOUT, 2, b"") in other.own_votes(effects)


def test_an_invalid_block_times_the_view_out_at_once() -> None:
    bench = HotStuffBench()
    bench.receive(1, bench.proposal(1, "b1"))
    assert bench.own_votes(bench.verified(1, "b1", valid=False)) == [(TIMEOUT, 1, b"")]


def test_whoever_timed_out_does_not_notarize() -> None:
    bench = HotStuffBench()
    bench.expire(LEADER)
    assert not of(Verify, bench.receive(1, bench.proposal(1, "b1")))
    bench.verified(1, "b1")
    late = HotStuffBench()
    late.receive(1, late.proposal(1, "b1"))
    late.expire(ADVANCE)
    late.verified(1, "b1")
    for one in (bench, late):
        assert one.own_votes() == [(TIMEOUT, 1, b"")]


# --- finalizing and the lock -----------------------------------------------------------------------------------------


def test_a_notarization_is_answered_by_a_finalize_vote_to_the_leader_after_next() -> None:
    bench = HotStuffBench(me=0)
    effects = bench.receive(2, bench.certificate(NOTARIZE, 1, "b1"))
    assert of(SendTo, effects) == [SendTo(peer(3), bench.vote(0, FINALIZE, 1, "b1"))]
    records = [record for persist in of(Persist, effects) for record in persist.records]
    kinds = [record.kind for record in map(decode_record, records) if isinstance(record, Vote | Certificate)]
    assert kinds == [NOTARIZE, FINALIZE], "the lock is journaled before the vote that rests on it"


def test_a_quorum_of_finalize_votes_is_a_finalization_that_stands_alone() -> None:
    bench = HotStuffBench(me=3)
    bench.receive(2, bench.certificate(NOTARIZE, 1, "b1"))
    bench.receive(1, bench.vote(1, FINALIZE, 1, "b1"))
    effects = bench.receive(2, bench.vote(2, FINALIZE, 1, "b1"))
    certificate = bench.certificate(FINALIZE, 1, "b1", signers=(1, 2, 3))
    assert of(Finalized, effects) == [Finalized(certificate)]
    assert Broadcast(certificate) in effects
    assert bench.engine.certificates.final == Parent(View(1), block("b1"))


def test_a_certified_child_alone_makes_nothing_final() -> None:
    bench = HotStuffBench()
    for view in range(1, 9):
        bench.receive(2, bench.certificate(NOTARIZE, view, f"b{view}"))
    assert bench.engine.final_view == 0


@pytest.mark.parametrize("timed_out", [1, 2, 5])
def test_never_finalize_what_lies_at_or_below_a_view_timed_out(timed_out: int) -> None:
    bench = HotStuffBench(me=2)
    bench.advance_to(timed_out)
    bench.expire(ADVANCE)
    bench.receive(2, bench.certificate(NOTARIZE, 1, "b1"))
    assert FINALIZE not in [kind for kind, _, _ in bench.own_votes()]
    bench.receive(2, bench.certificate(NOTARIZE, timed_out + 1, "next"))
    assert bench.own_votes()[-1] == (FINALIZE, timed_out + 1, block("next"))


def test_never_finalize_below_a_timeout_that_is_still_on_its_way_to_the_disk() -> None:
    bench = HotStuffBench()
    bench.feed(TimerExpired(LEADER, View(1)))
    bench.sync(bench.feed(Received(peer(1), bench.certificate(NOTARIZE, 1, "b1"))))
    assert FINALIZE not in [kind for kind, _, _ in bench.own_votes()]


def test_timeouts_name_the_highest_certified_block_and_prove_it() -> None:
    bench = HotStuffBench()
    bench.expire(LEADER)
    assert own_timeout(bench) == Timeout(bench.vote(0, TIMEOUT, 1, parent=0), None)
    bench.receive(2, bench.certificate(NOTARIZE, 3, "b3"), bench.timeouts(6, 2))
    bench.expire(LEADER)
    assert own_timeout(bench) == bench.timeout(0, 7, high=3)
    final = bench.certificate(FINALIZE, 8, "b8")
    bench.receive(2, final)
    bench.expire(ADVANCE)
    assert own_timeout(bench) == Timeout(bench.vote(0, TIMEOUT, 9, parent=8), final), "a finalization certifies too"


def test_the_lock_comes_back_from_the_journal_and_from_the_snapshot() -> None:
    bench = HotStuffBench()
    bench.receive(2, bench.certificate(NOTARIZE, 3, "b3"), bench.timeouts(6))
    for journal in (bench.journal, bench.engine.journal_snapshot()):
        again = HotStuffBench(journal=journal)
        again.expire(LEADER)
        assert own_timeout(again) == again.timeout(0, 7, high=3)


def test_that_it_timed_out_comes_back_from_the_journal_and_from_the_snapshot() -> None:
    bench = HotStuffBench()
    bench.advance_to(5)
    bench.expire(LEADER)
    for journal in (bench.journal, bench.engine.journal_snapshot()):
        again = HotStuffBench(journal=journal)
        again.receive(2, again.certificate(NOTARIZE, 4, "b4"), again.certificate(NOTARIZE, 5, "b5"))
        assert FINALIZE not in [kind for kind, _, _ in again.own_votes()]


# --- timeouts --------------------------------------------------------------------------------------------------------


def test_a_view_is_timed_out_once_and_only_by_its_own_timers() -> None:
    bench = HotStuffBench()
    for kind in (LEADER, ADVANCE):
        assert bench.expire(kind, 2) == []
    bench.expire(LEADER)
    bench.expire(ADVANCE)
    assert bench.own_votes() == [(TIMEOUT, 1, b"")]
    waits = HotStuffBench()
    waits.receive(1, waits.proposal(1, "b1"))
    assert waits.expire(LEADER) == [], "the proposal came"


def test_votes_whose_collectors_may_have_failed_go_with_a_timeout_to_everyone() -> None:
    bench = HotStuffBench(me=0)
    bench.receive(1, bench.certificate(NOTARIZE, 1, "b1"))
    bench.receive(2, bench.proposal(2, "b2"))
    bench.verified(2, "b2")
    effects = bench.expire(ADVANCE)
    assert [effect.message for effect in of(Broadcast, effects)] == [
        bench.vote(0, NOTARIZE, 2, "b2"),
        bench.timeout(0, 2, high=1),
        bench.vote(0, FINALIZE, 1, "b1"),
    ]


def test_a_quorum_of_timeouts_with_different_high_blocks_is_a_certificate() -> None:
    bench = HotStuffBench(me=3)
    bench.receive(0, bench.timeout(0, 4, high=0))
    bench.receive(1, bench.timeout(1, 4, high=2))
    effects = bench.receive(2, bench.timeout(2, 4, high=1))
    certificate = bench.timeouts(4, 0, 2, 1)
    assert of(Nullified, effects) == [Nullified(certificate)]
    assert Broadcast(certificate) in effects
    assert certificate in bench.journaled()
    assert certificate.high_view == 2
    assert bench.engine.view == 5


def test_a_timeout_teaches_the_certificate_that_it_carries() -> None:
    bench = HotStuffBench(me=3)
    effects = bench.receive(2, bench.timeout(2, 4, high=3))
    assert bench.engine.view == 4
    assert of(Notarized, effects) == [Notarized(bench.certificate(NOTARIZE, 3, "b3"))]


def test_the_quorum_is_not_two_thirds_of_the_faults() -> None:
    bench = HotStuffBench(me=3)
    for signer in (0, 1):
        bench.receive(signer, bench.timeout(signer, 1), bench.vote(signer, NOTARIZE, 1, "b1"))
    assert bench.engine.view == 1


# --- when messages are lost ------------------------------------------------------------------------------------------


def test_a_stuck_validator_repeats_to_everyone_what_it_said() -> None:
    bench = HotStuffBench()
    bench.receive(1, bench.certificate(FINALIZE, 1, "b1"), bench.certificate(NOTARIZE, 2, "b2"), bench.timeouts(3, 2))
    bench.expire(LEADER)
    effects = bench.expire(REBROADCAST)
    assert [effect.message for effect in of(Broadcast, effects)] == [
        bench.timeout(0, 4, high=2),
        bench.vote(0, FINALIZE, 2, "b2"),
    ]


def test_a_leader_repeats_its_vote_and_its_timeout() -> None:
    bench = HotStuffBench(me=1)
    bench.propose(bench.effects, "b1")
    assert of(Broadcast, bench.expire(REBROADCAST)) == [Broadcast(bench.vote(1, NOTARIZE, 1, "b1"))]
    bench.expire(ADVANCE)
    repeated = [effect.message for effect in of(Broadcast, bench.expire(REBROADCAST))]
    assert repeated == [bench.vote(1, NOTARIZE, 1, "b1"), bench.timeout(1, 1)]


def test_a_peer_that_is_stuck_is_given_what_brings_it_level() -> None:
    bench = HotStuffBench()
    bench.receive(1, bench.certificate(FINALIZE, 3, "b3"))
    bench.advance_to(8)
    effects = bench.receive(2, bench.timeout(2, 5))
    assert [effect.message for effect in of(SendTo, effects) if effect.recipient == 2] == [
        bench.timeouts(5, 0),
        bench.timeouts(7, 0),
        bench.certificate(FINALIZE, 3, "b3"),
    ]
    effects = bench.receive(1, CertificateRequest((View(6),)))
    assert SendTo(peer(1), bench.timeouts(6, 0)) in effects


# --- hostile input ---------------------------------------------------------------------------------------------------


def test_timeouts_that_do_not_count() -> None:
    bench = HotStuffBench(config=VotingConfig(view_window=5))
    bench.receive(1, bench.certificate(FINALIZE, 20, "b20"))
    replace = msgspec.structs.replace
    good = bench.timeout(1, 22, high=21)
    assert good.high is not None
    planted: list[tuple[int, Timeout | Vote, str]] = [
        (2, good, "not_the_signer"),
        (1, replace(good, high=bench.high(20)), "malformed"),
        (1, replace(good, high=bench.certificate(NULLIFY, 21)), "malformed"),
        (1, replace(good, vote=bench.vote(1, NOTARIZE, 22, "x")), "malformed"),
        (1, replace(good, high=shortened(good.high, 2)), "bad_certificate"),
        (2, replace(bench.timeout(2, 22, high=21), high=replace(good.high, digest=block("x"))), "bad_certificate"),
        (1, replace(good, high=None), "unproved"),
        (1, good.vote, "unproved"),
        (1, bench.timeout(1, 27, high=21), "future"),
        (1, bench.timeout(1, 12, high=11), "stale"),
        (0, bench.timeout(0, 22, high=21), "own_key"),
    ]
    for sender, bad, reason in planted:
        assert reasons(bench.receive(sender, bad)) == [(sender, reason)]
        assert (bench.engine.view, bench.engine._high.view) == (21, 20)
        bench.expire(REBROADCAST)
    assert not reasons(bench.receive(1, bench.vote(1, TIMEOUT, 22, parent=20))), "final blocks need no proof"
    assert reasons(bench.receive(1, bench.timeout(1, 22, high=20))) == [(1, "duplicate")]


def test_what_a_forger_sends_is_not_checked_for_many_views() -> None:
    bench = HotStuffBench(config=VotingConfig(view_window=5))
    bench.receive(1, bench.certificate(FINALIZE, 20, "b20"))
    replace = msgspec.structs.replace
    certificate, timeout = bench.timeouts(22, 21), bench.timeout(1, 22, high=21)
    assert timeout.high is not None
    bad = replace(timeout, high=shortened(timeout.high, 2))
    assert reasons(bench.receive(1, bad)) == [(1, "bad_certificate")]
    for sent in (bad, timeout, certificate):
        assert reasons(bench.receive(1, sent)) == [(1, "flood")]
    assert bench.engine.view == 21
    bench.expire(REBROADCAST)
    assert reasons(bench.receive(1, certificate)) == [(1, "flood")]
    bench.receive(2, bench.certificate(FINALIZE, 20 + DISTRUSTED_VIEWS, "b"))
    assert not reasons(bench.receive(1, bench.certificate(FINALIZE, 21 + DISTRUSTED_VIEWS, "c")))


def test_timeout_certificates_that_do_not_count() -> None:
    bench = HotStuffBench()
    bench.receive(1, bench.certificate(FINALIZE, 2, "b2"), bench.timeouts(3, 2))
    good = bench.timeouts(5, 4)
    assert good.high is not None
    replace = msgspec.structs.replace
    (first, of_first), (second, of_second), (third, of_third) = good.signed.items()
    planted = [
        (bench.timeouts(2), "stale"),
        (bench.timeouts(3, 2), "duplicate"),
        (replace(good, signatures=b""), "malformed"),
        (replace(good, high_views=good.high_views[:2]), "malformed"),
        (replace(good, high=bench.high(3)), "malformed"),
        (replace(good, high=replace(good.high, kind=TIMEOUT, digest=Digest(b""))), "malformed"),
        (replace(good, high=None), "unproved"),
        (resigned(good, {first: of_first, third: of_third}), "bad_certificate"),
        (resigned(good, {first: of_first, second: of_second, 9: of_third}), "bad_certificate"),
        (resigned(good, {**good.signed, second: (View(1), of_second[1])}), "bad_certificate"),
        (replace(good, high=shortened(good.high, 2)), "bad_certificate"),
        (replace(good, view=6), "bad_certificate"),
    ]
    for observer, (bad, reason) in enumerate(planted, 100):
        assert reasons(bench.receive(observer, bad)) == [(observer, reason)]
        assert (bench.engine.view, bench.engine._high.view) == (4, 2)
    bench.receive(2, good)
    assert bench.engine.view == 6


def test_the_other_protocols_words_are_foreign() -> None:
    bench, simplex = HotStuffBench(), Bench()
    foreign: list[Any] = [bench.vote(1, NULLIFY, 1), bench.certificate(NULLIFY, 1)]
    for message in foreign:
        assert reasons(bench.receive(1, message)) == [(1, "foreign")]
    foreign = [bench.timeout(1, 1), bench.timeouts(1), bench.vote(1, TIMEOUT, 1)]
    for message in foreign:
        assert reasons(simplex.receive(1, message)) == [(1, "foreign")]
    assert bench.engine.view == simplex.engine.view == 1


def test_a_forged_copy_sent_first_does_not_hide_a_timeout_that_goes_back() -> None:
    bench = HotStuffBench()
    true, back = bench.vote(3, FINALIZE, 1), bench.timeout(3, 2, high=0)
    effects = bench.receive(3, bench.forged(3, FINALIZE, 1), true, back)
    (report,) = of(Report, effects)
    assert {report.evidence.first, report.evidence.second} == {true, back.vote}
    assert verify_evidence(report.evidence, bench.validators, NAMESPACE)
    assert reasons(effects) == [(3, "bad_signature")]


def test_forged_timeouts_found_at_the_quorum_are_dropped_and_named() -> None:
    bench = HotStuffBench(n=7, me=0)
    bench.receive(1, Timeout(bench.forged(1, TIMEOUT, 1, parent=0), None))
    for signer in (2, 3, 4):
        bench.receive(signer, bench.timeout(signer, 1))
    assert reasons(bench.receive(5, bench.timeout(5, 1))) == [(1, "bad_signature")]
    assert bench.engine.view == 1
    bench.receive(6, bench.timeout(6, 1))
    assert bench.engine.view == 2


def test_signatures_of_timeouts_are_not_looked_at_before_a_quorum_is_possible_and_none_twice() -> None:
    bench = HotStuffBench(n=7, me=0)
    assert isinstance(bench.scheme, CountingScheme)
    for signer in (1, 2, 3, 4):
        bench.receive(signer, bench.timeout(signer, 1))
    assert bench.scheme.checks == 0
    bench.receive(5, bench.timeout(5, 1))
    assert bench.scheme.checks == 5


@pytest.mark.parametrize("scheme", [CountingScheme(), Ed25519Scheme()], ids=["keyed-hash", "ed25519"])
def test_contradictions_are_reported_once_within_a_view_and_across_views(scheme: Any) -> None:
    vote = HotStuffBench(scheme=scheme).vote
    planted = [
        (vote(2, NOTARIZE, 1, "x"), vote(2, NOTARIZE, 1, "y"), ConflictingNotarize),
        (vote(2, TIMEOUT, 4, parent=0), vote(2, TIMEOUT, 4, parent=1), ConflictingTimeout),
        (vote(2, FINALIZE, 3, "x"), vote(2, TIMEOUT, 3, parent=1), FinalizeAndTimeout),
        (vote(2, FINALIZE, 3, "x"), vote(2, TIMEOUT, 6, parent=2), FinalizeAndTimeout),
        (vote(2, TIMEOUT, 6, parent=2), vote(2, FINALIZE, 3, "x"), FinalizeAndTimeout),
    ]
    for first, second, kind in planted:
        bench = HotStuffBench(scheme=scheme)
        others = [bench.certificate(NOTARIZE, view, f"b{view}", signers=(0, 1, 3)) for view in (1, 2)]
        bench.receive(3, *others)
        assert not of(Report, bench.receive(2, first))
        (report,) = of(Report, bench.receive(2, second))
        assert isinstance(report.evidence, kind)
        assert verify_evidence(report.evidence, bench.validators, NAMESPACE)
        assert not of(Report, bench.receive(2, first, second))
    quiet = HotStuffBench(scheme=scheme)
    quiet.receive(3, quiet.certificate(NOTARIZE, 3, "b3"))
    said = (vote(2, FINALIZE, 3, "b3"), vote(2, TIMEOUT, 6, parent=3), vote(2, TIMEOUT, 2, parent=0))
    assert not of(Report, quiet.receive(2, *said, vote(2, NOTARIZE, 6, "b6")))


def test_contradictions_between_votes_and_timeout_certificates_are_found() -> None:
    bench = HotStuffBench()
    bench.receive(3, bench.vote(3, FINALIZE, 2, "b2"))
    (report,) = of(Report, bench.receive(1, bench.timeouts(4, signers=(1, 2, 3))))
    assert isinstance(report.evidence, FinalizeAndTimeout)


def test_memory_is_bounded_under_a_flood() -> None:
    config = VotingConfig(view_window=8, proposal_window=2, retained_views=4, evidence_views=2)
    bench = HotStuffBench(config=config)
    for step in range(1, 40):
        for sender in (1, 2, 3):
            for view in range(max(1, step - 20), step + 30):
                for high in (0, 1):
                    bench.feed(Received(peer(sender), Timeout(bench.forged(sender, TIMEOUT, view, parent=0), None)))
                    bench.feed(Received(peer(sender), bench.forged(sender, FINALIZE, view, str(high))))
            for view in range(step, step + 30):
                bench.feed(Received(peer(sender), bench.proposal(view, f"b{view}")))
        bench.receive(1, bench.timeouts(step, step - 1), bench.certificate(FINALIZE, step, f"b{step}"))
        engine = bench.engine
        assert len(engine._rounds) <= config.view_window + config.evidence_views + 1
        known = engine.certificates
        assert len(known.notarizations) + len(known.finalizations) <= 2 * (config.retained_views + 1)
        assert len(known.skips) <= config.retained_views + 1
        assert len(engine._retransmission.announced) <= 3
        bench.effects.clear()


# --- after losing the journal ----------------------------------------------------------------------------------------


def test_an_abstaining_validator_says_nothing_in_the_views_that_it_may_have_forgotten() -> None:
    bench = HotStuffBench(me=1, abstain_through=View(5))
    assert not of(Propose, bench.effects)
    bench.expire(LEADER)
    bench.receive(2, bench.certificate(NOTARIZE, 1, "b1"))
    bench.receive(2, bench.proposal(2, "b2"))
    bench.verified(2, "b2")
    bench.receive(2, bench.certificate(NOTARIZE, 4, "b4"))
    assert not of(Propose, bench.effects), "view 5 would be ours"
    bench.expire(ADVANCE)
    assert not bench.own_votes()
    assert bench.engine.view == 5
    bench.receive(2, bench.timeouts(5, 4))
    bench.receive(2, bench.proposal(6, "b6", parent=4))
    bench.verified(6, "b6")
    assert bench.own_votes() == [(NOTARIZE, 6, block("b6"))]


def test_an_abstaining_validator_does_not_time_out_below_what_it_may_have_finalized() -> None:
    bench = HotStuffBench(me=0, abstain_through=View(5))
    bench.receive(2, bench.timeouts(6, 4))
    bench.expire(LEADER)
    assert not bench.own_votes(), "it may have finalized view 5, and knows no higher block than that of view 4"
    bench.receive(2, bench.certificate(NOTARIZE, 7, "b7"))
    assert bench.own_votes() == [(FINALIZE, 7, block("b7"))]
    bench.receive(2, bench.timeouts(8, 7))
    bench.expire(LEADER)
    assert (TIMEOUT, 9, b"") in bench.own_votes()


# --- construction ----------------------------------------------------------------------------------------------------


def test_an_engine_can_start_from_a_later_root_or_a_known_finalization() -> None:
    root = Parent(View(1000), block("root"))
    bench = HotStuffBench(me=1, root=root)
    assert (bench.engine.view, bench.engine.final_view) == (1001, 1000)
    assert of(Propose, bench.effects) == [Propose(View(1001), root)]
    bench.expire(LEADER)
    assert own_timeout(bench) == Timeout(bench.vote(1, TIMEOUT, 1001, parent=1000), None)
    maker = HotStuffBench()
    maker.receive(1, maker.certificate(FINALIZE, 40, "b40"))
    late = HotStuffBench(me=1, journal=maker.engine.journal_snapshot())
    assert of(Propose, late.effects) == [Propose(View(41), Parent(View(40), block("b40")))]


def test_wrong_identities_are_refused() -> None:
    bench = HotStuffBench()
    with pytest.raises(ConsensusError):
        HotStuff(VotingConfig(), bench.validators, peer(1), bench.signers[0], NAMESPACE, GENESIS)
    with pytest.raises(ConsensusError):
        HotStuff(VotingConfig(), bench.validators, None, None, NAMESPACE, Digest(b"short"))


def test_an_observer_follows_and_never_votes() -> None:
    bench = HotStuffBench(me=None)
    bench.receive(1, bench.proposal(1, "b1"))
    bench.verified(1, "b1")
    for kind in (LEADER, ADVANCE):
        bench.expire(kind)
    bench.receive(1, bench.certificate(NOTARIZE, 1, "b1"), bench.certificate(FINALIZE, 1, "b1"), bench.timeouts(2, 1))
    assert (bench.engine.final_view, bench.engine.view) == (1, 3)
    assert not bench.own_votes()
    assert not [effect for effect in of(Broadcast, bench.effects) if isinstance(effect.message, Proposal)]
    assert isinstance(bench.engine.certificates.best_of(View(2)), TimeoutCertificate)
