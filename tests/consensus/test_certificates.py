"""Votes into certificates: lazily, as few signatures as needed, forged ones dropped; certificates checked."""

from __future__ import annotations

from collections import Counter
from itertools import chain, product

import msgspec
import pytest

from consensus.certificates import (
    verify_certificate,
    verify_finalization,
    verify_signed,
    verify_timeout_certificate,
)
from consensus.keys import Committee, Ed25519Scheme, ValidatorSet
from consensus.leader import ELECTIONS, PseudoRandom, RoundRobin
from consensus.messages import TimeoutCertificate, VoteKind, conflict, encode
from consensus.tally import CONTRADICTED, VoteTally
from consensus.types import ConsensusError, ValidatorIndex, View
from tests.consensus.bench import (
    FINALIZE,
    NAMESPACE,
    NOTARIZE,
    NULLIFY,
    TIMEOUT,
    Bench,
    CountingScheme,
    HotStuffBench,
    block,
    resigned,
    shortened,
)


def tally_of(bench: Bench) -> VoteTally:
    return VoteTally(bench.validators, NAMESPACE, View(3))


def checks(bench: Bench) -> int:
    assert isinstance(bench.scheme, CountingScheme)
    return bench.scheme.checks


def test_a_tally_looks_for_rivals_among_all_kinds_that_a_vote_can_contradict() -> None:
    bench = Bench()
    votes = {kind: [bench.vote(1, kind, 3, name, parent) for name in "xy" for parent in (0, 2)] for kind in VoteKind}
    for kind, other in product(VoteKind, repeat=2):
        contradict = any(conflict(*pair) is not None for pair in product(votes[kind], votes[other]))
        assert (other in CONTRADICTED[kind]) == contradict
    for kept, vote in product(product(*votes.values()), chain(*votes.values())):
        tally = tally_of(bench)
        for each in kept:
            tally.add(each)
        others = (other for other in tally.votes_of(vote.signer) if other is not vote)
        assert tally.rivals(vote) == [other for other in others if conflict(vote, other) is not None]


def test_signatures_are_not_looked_at_before_a_quorum_is_possible() -> None:
    bench = Bench(n=7)
    tally = tally_of(bench)
    for signer in range(4):
        vote = bench.vote(signer, NOTARIZE, 3, "x")
        tally.add(vote)
        assert tally.assemble(vote) == (None, ())
    assert checks(bench) == 0
    vote = bench.vote(4, NOTARIZE, 3, "x")
    tally.add(vote)
    certificate, forgers = tally.assemble(vote)
    assert certificate == bench.certificate(NOTARIZE, 3, "x")
    assert forgers == ()
    assert checks(bench) == 5


def test_only_as_many_signatures_as_needed_are_checked_and_none_twice() -> None:
    bench = Bench(n=7)
    tally = tally_of(bench)
    own = bench.vote(6, NOTARIZE, 3, "x")
    tally.add(own, checked=True)
    early = bench.vote(5, NOTARIZE, 3, "x")
    tally.add(early)
    assert tally.confirm(early)
    assert checks(bench) == 1
    for signer in range(5):
        tally.add(bench.vote(signer, NOTARIZE, 3, "x"))
    certificate, _ = tally.assemble(own)
    assert certificate is not None
    assert list(certificate.signed) == [0, 1, 2, 5, 6]
    assert checks(bench) == 1 + 3


def test_votes_for_other_things_do_not_add_up() -> None:
    bench = Bench()
    tally = tally_of(bench)
    votes = [
        bench.vote(0, NOTARIZE, 3, "x"),
        bench.vote(1, NOTARIZE, 3, "y"),
        bench.vote(2, NOTARIZE, 3, "x", parent=1),
        bench.vote(3, FINALIZE, 3, "x"),
        bench.vote(2, NULLIFY, 3),
    ]
    for vote in votes:
        tally.add(vote)
    assert [tally.assemble(vote) for vote in votes] == [(None, ())] * len(votes)


def test_forged_votes_are_dropped_and_their_signers_named_and_may_vote_again() -> None:
    bench = Bench()
    tally = tally_of(bench)
    for vote in (bench.forged(1, NULLIFY, 3), bench.vote(2, NULLIFY, 3), bench.vote(3, NULLIFY, 3)):
        tally.add(vote)
    assert tally.assemble(bench.vote(3, NULLIFY, 3)) == (None, (1,))
    assert tally.kept(NULLIFY, bench.vote(1, NULLIFY, 3).signer) is None
    again = bench.vote(1, NULLIFY, 3)
    tally.add(again)
    certificate, forgers = tally.assemble(again)
    assert certificate == bench.certificate(NULLIFY, 3, signers=(1, 2, 3))
    assert forgers == ()


def test_checking_stops_when_a_quorum_is_out_of_reach() -> None:
    bench = Bench(n=7)
    tally = tally_of(bench)
    for signer in range(5):
        tally.add(bench.forged(signer, NULLIFY, 3))
    assert tally.assemble(bench.vote(4, NULLIFY, 3)) == (None, (0,))
    assert checks(bench) == 1


@pytest.mark.parametrize("scheme", [CountingScheme(), Ed25519Scheme()], ids=["keyed-hash", "ed25519"])
def test_a_certificate_is_a_quorum_of_good_signatures(scheme: CountingScheme | Ed25519Scheme) -> None:
    bench = Bench(n=7, scheme=scheme)
    good = bench.certificate(NOTARIZE, 3, "x")
    four, last = shortened(good, 4).signed, good.signatures[-64:]
    replace = msgspec.structs.replace
    assert verify_certificate(good, bench.validators, NAMESPACE)
    everyone = bench.certificate(NOTARIZE, 3, "x", signers=range(7))
    assert verify_certificate(everyone, bench.validators, NAMESPACE)
    planted = {
        "below quorum": shortened(good, 4),
        "a signature twice": resigned(good, {**four, 4: good.signatures[:64]}),
        "unknown signer": resigned(good, {**four, 7: last}),
        "one signature bad": resigned(good, {**four, 4: b"\0" * 64}),
        "one bad beyond the quorum": resigned(everyone, {**everyone.signed, 6: b"\0" * 64}),
        "another's signature": resigned(good, {**four, 5: last}),
        "another view": replace(good, view=4),
        "another parent": replace(good, parent_view=1),
        "another kind": replace(good, kind=FINALIZE),
        "another block": replace(good, digest=block("y")),
        "no signature": replace(good, signers=b"", signatures=b""),
    }
    for name, certificate in planted.items():
        assert not verify_certificate(certificate, bench.validators, NAMESPACE), name
    assert not verify_certificate(good, bench.validators, b"another chain")


def test_what_the_tally_found_good_is_not_checked_again_and_nothing_else_is_trusted() -> None:
    bench = Bench(n=4)
    tally = tally_of(bench)
    tally.add(bench.vote(0, NOTARIZE, 3, "x"), checked=True)
    tally.add(bench.vote(1, NOTARIZE, 3, "x"))
    tally.add(bench.vote(2, NOTARIZE, 3, "y"), checked=True)
    assert verify_certificate(bench.certificate(NOTARIZE, 3, "x"), bench.validators, NAMESPACE, tally)
    assert checks(bench) == 2
    forged = msgspec.structs.replace(bench.certificate(NOTARIZE, 3, "x"), signatures=b"\0" * 3 * 64)
    assert not verify_certificate(forged, bench.validators, NAMESPACE, tally)


def test_round_robin_gives_everyone_a_turn() -> None:
    election = RoundRobin(Bench().validators)
    assert [election.leader(View(view)) for view in range(1, 9)] == [1, 2, 3, 0, 1, 2, 3, 0]


def test_the_draw_is_fair_and_everybodys() -> None:
    validators = Bench(n=4).validators
    election = PseudoRandom(validators, NAMESPACE)
    drawn = Counter(election.leader(View(view)) for view in range(1, 4_001))
    assert set(drawn) == {0, 1, 2, 3}
    assert all(900 < count < 1_100 for count in drawn.values())
    again = ELECTIONS["random"](validators, NAMESPACE)
    assert [again.leader(View(view)) for view in range(1, 50)] == [election.leader(View(v)) for v in range(1, 50)]
    other = PseudoRandom(validators, b"another chain")
    assert [other.leader(View(view)) for view in range(1, 50)] != [election.leader(View(v)) for v in range(1, 50)]


# --- committees ------------------------------------------------------------------------------------------------------


def scheduled(*epochs: tuple[int, tuple[int, ...]], n: int = 7) -> ValidatorSet:
    committees = tuple(Committee(View(at), tuple(map(ValidatorIndex, members))) for at, members in epochs)
    validators = Bench(n=n).validators
    return ValidatorSet(validators.public_keys, validators.scheme, committees)


def test_each_view_has_the_committee_of_its_epoch() -> None:
    validators = scheduled((5, (1, 2, 4, 6)), (9, (0,)))
    assert [validators.committee(View(view)).members for view in (1, 4)] == [tuple(range(7))] * 2
    assert [validators.committee(View(view)).members for view in (5, 8)] == [(1, 2, 4, 6)] * 2
    assert [validators.committee(View(view)).members for view in (9, 10**9)] == [(0,)] * 2
    assert [(c.quorum, c.faults_withstood) for c in validators.committees] == [(5, 2), (3, 1), (1, 0)]
    assert [index in validators.committee(View(5)) for index in range(-1, 8)] == [
        index in (1, 2, 4, 6) for index in range(-1, 8)
    ]
    assert scheduled((1, (2, 3))).committees[0].members == (2, 3), "nobody else ever votes"
    election = RoundRobin(validators)
    assert [election.leader(View(view)) for view in range(5, 9)] == [2, 4, 6, 1]
    assert {PseudoRandom(validators, NAMESPACE).leader(View(view)) for view in (5, 6, 7, 8)} <= {1, 2, 4, 6}


@pytest.mark.parametrize(
    ("epochs", "what"),
    [
        ([(5, (1,)), (5, (2,))], "is not above 5"),
        ([(0, (1,))], "is not above 0"),
        ([(5, ())], "is empty"),
        ([(5, (2, 1))], "not in ascending order"),
        ([(5, (1, 1))], "not in ascending order"),
        ([(5, (1, 7))], "members outside the 7"),
        ([(5, (-1, 2))], "members outside the 7"),
    ],
)
def test_a_schedule_that_does_not_fit_is_refused(epochs: list[tuple[int, tuple[int, ...]]], what: str) -> None:
    with pytest.raises(ConsensusError, match=what):
        scheduled(*epochs)


def test_a_certificate_takes_a_quorum_of_the_views_committee() -> None:
    bench = Bench(n=7)
    validators = scheduled((5, (1, 2, 4, 6)))
    three = bench.certificate(NOTARIZE, 5, "x", signers=(1, 2, 4))
    assert verify_certificate(three, validators, NAMESPACE)
    assert not verify_certificate(three, bench.validators, NAMESPACE), "of seven it takes five"
    stranger = bench.certificate(NOTARIZE, 5, "x", signers=(1, 2, 3))
    assert not verify_certificate(stranger, validators, NAMESPACE)
    five = bench.certificate(NOTARIZE, 5, "x", signers=(0, 1, 2, 3, 4))
    assert not verify_certificate(five, validators, NAMESPACE), "the others' votes do not count"


# --- timeouts --------------------------------------------------------------------------------------------------------


def test_timeouts_add_up_whatever_they_name() -> None:
    bench = HotStuffBench()
    tally = tally_of(bench)
    for signer, high in ((0, 0), (1, 2)):
        tally.add(bench.vote(signer, TIMEOUT, 3, parent=high))
        assert tally.assemble_timeouts() == ((), ())
    forged = bench.forged(2, TIMEOUT, 3, parent=1)
    tally.add(forged)
    assert tally.assemble_timeouts() == ((), (2,))
    tally.add(bench.vote(3, TIMEOUT, 3, parent=1))
    votes, forgers = tally.assemble_timeouts()
    assert [(vote.signer, vote.parent_view) for vote in votes] == [(0, 0), (1, 2), (3, 1)]
    assert forgers == ()


def test_timeout_certificates_are_checked() -> None:
    bench = HotStuffBench(scheme=Ed25519Scheme())
    good, replace = bench.timeouts(5, 1, 3), msgspec.structs.replace
    (first, of_first), (second, of_second), (third, of_third) = good.signed.items()
    high = bench.certificate(FINALIZE, 3, "b3")

    def is_good(certificate: TimeoutCertificate, final: int = 0) -> bool:
        return verify_timeout_certificate(certificate, bench.validators, NAMESPACE, View(final))

    assert is_good(good)
    assert is_good(replace(good, high=high)), "a finalization certifies a block too"
    assert is_good(replace(good, high=None), final=3)
    assert is_good(bench.timeouts(5))
    planted = {
        "too few": resigned(good, {first: of_first, third: of_third}),
        "an unknown signer": resigned(good, {first: of_first, second: of_second, 4: of_third}),
        "another high view": resigned(good, {**good.signed, first: (View(2), of_first[1])}),
        "another view": replace(good, view=View(6)),
        "nothing to show for the high view": replace(good, high=None),
        "the certificate of another view": replace(good, high=bench.high(2)),
        "no certificate of a block": replace(good, high=bench.certificate(NULLIFY, 3)),
        "a bad certificate": replace(good, high=shortened(high, 2)),
    }
    for name, certificate in planted.items():
        assert not is_good(certificate), name
    assert not verify_timeout_certificate(good, bench.validators, b"another chain", View(0))


def test_signatures_of_timeouts_that_were_found_good_are_not_checked_again() -> None:
    bench = HotStuffBench()
    tally = VoteTally(bench.validators, NAMESPACE, View(5))
    for signer in range(3):
        tally.add(bench.vote(signer, TIMEOUT, 5, parent=0))
    tally.assemble_timeouts()
    before = checks(bench)
    assert verify_timeout_certificate(bench.timeouts(5), bench.validators, NAMESPACE, View(0), tally)
    assert checks(bench) == before


def test_what_only_says_who_signed_takes_the_high_view_at_its_word() -> None:
    bench = HotStuffBench()
    bare = msgspec.structs.replace(bench.timeouts(5, 1, 3), high=None)
    assert not verify_timeout_certificate(bare, bench.validators, NAMESPACE, View(0))
    assert verify_signed(bare, bench.validators, NAMESPACE)
    assert verify_signed(bench.certificate(NULLIFY, 3), bench.validators, NAMESPACE)
    for certificate in (bare, bench.certificate(NULLIFY, 3), msgspec.structs.replace(bare, high=bench.high(2))):
        assert not verify_signed(shortened(certificate, 2), bench.validators, NAMESPACE)
    assert not verify_signed(msgspec.structs.replace(bare, high=bench.high(2)), bench.validators, NAMESPACE)


def test_a_finalization_is_of_the_block_that_is_asked_about() -> None:
    bench = Bench()
    good = bench.certificate(FINALIZE, 3, "x")
    assert verify_finalization(encode(good), block("x"), bench.validators, NAMESPACE)
    refused = {
        "another block": (encode(good), "y"),
        "notarized only": (encode(bench.certificate(NOTARIZE, 3, "x")), "x"),
        "a vote": (encode(bench.vote(1, FINALIZE, 3, "x")), "x"),
        "too few": (encode(shortened(good, 2)), "x"),
        "no message": (b"\xc1", "x"),
    }
    for name, (encoded, of) in refused.items():
        assert not verify_finalization(encoded, block(of), bench.validators, NAMESPACE), name
