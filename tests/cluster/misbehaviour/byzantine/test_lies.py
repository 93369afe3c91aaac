"""Each lie is wrong in the one respect that it is named for, and true in every other."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import TypeVar

import msgspec
import pytest

from cluster.misbehaviour.byzantine.base import (
    SISTER_CHAIN,
    VIEWS_REMEMBERED,
    SisterChain,
    consensus_content,
    heard_in,
    send_consensus,
)
from cluster.misbehaviour.byzantine.registry import BEHAVIOURS, Behaviour, BehaviourContext, Score
from cluster.misbehaviour.byzantine.votes import Overheard
from consensus.certificates import verify_certificate, verify_signed, verify_timeout_certificate
from consensus.keys import Committee, ValidatorSet
from consensus.messages import (
    MAX_VIEW,
    NO_DIGEST,
    AnyCertificate,
    Certificate,
    Message,
    Timeout,
    TimeoutCertificate,
    Vote,
    VoteKind,
    verify_vote,
)
from consensus.types import GENESIS_VIEW, Signature, ValidatorIndex, View
from tests.consensus.bench import FINALIZE, NAMESPACE, NOTARIZE, NULLIFY, TIMEOUT, Bench, HotStuffBench, block, resigned
from validator.chain.messages import ConsensusMessage, decode_message
from validator.node.events import Message as Received
from validator.node.events import Send

LIAR = 3
SIMPLEX, HOTSTUFF = Bench(), HotStuffBench()
AnyMessage = TypeVar("AnyMessage", bound=Message)


def liar(name: str, bench: Bench = SIMPLEX) -> Behaviour:
    kind = TIMEOUT if isinstance(bench, HotStuffBench) else NULLIFY
    sister = SisterChain(lambda index: bench.signers[index])
    at = BehaviourContext(
        LIAR, bench.signers[LIAR], bench.validators, NAMESPACE.decode(), Random(1), Score(), kind, sister
    )
    return BEHAVIOURS[name](at)


def heard(behaviour: Behaviour, *messages: Message, sender: int = 0) -> list[Send]:
    """What it says when it hears these."""
    said: list[Send] = []
    for message in messages:
        known = heard_in(Received(sender, send_consensus(None, message).payload))
        assert known is not None
        said += [effect for effect in behaviour.hear(known) if isinstance(effect, Send)]
    return said


def as_sent(send: Send, kind: type[AnyMessage]) -> AnyMessage:
    """A message that no decoder takes, as it was sent."""
    assert consensus_content(send.payload) is None
    envelope = decode_message(send.payload)
    assert isinstance(envelope, ConsensusMessage)
    return msgspec.msgpack.decode(envelope.payload, type=kind)


def only(kind: type[AnyMessage], sends: Iterable[Send]) -> AnyMessage:
    """The one message that was sent, and to everybody."""
    (send,) = sends
    assert send.recipient is None
    message = consensus_content(send.payload)
    assert isinstance(message, kind)
    return message


def holds(certificate: AnyCertificate, bench: Bench = SIMPLEX, namespace: bytes = NAMESPACE) -> bool:
    return verify_signed(certificate, bench.validators, namespace)


def are_signed(votes: Iterable[Vote], bench: Bench = SIMPLEX) -> bool:
    return all(verify_vote(vote, bench.validators, NAMESPACE) for vote in votes)


def with_signature(certificate: Certificate, vote: Vote) -> Certificate:
    return resigned(certificate, {**certificate.signed, vote.signer: vote.signature})


# --- false certificates -----------------------------------------------------------------------------------------------


def test_a_short_certificate_lacks_one_signature_and_nothing_else() -> None:
    behaviour = liar("short-certificate")
    lie = only(Certificate, heard(behaviour, SIMPLEX.proposal(1, "b1")))
    assert len(lie.signed) == SIMPLEX.quorum - 1
    assert not holds(lie)
    assert holds(with_signature(lie, SIMPLEX.vote(2, NOTARIZE, 1, "b1")))
    assert heard(behaviour, SIMPLEX.vote(0, NOTARIZE, 1, "b1")) == [], "once a view"


def test_a_short_timeout_certificate_carries_the_block_that_it_names() -> None:
    behaviour = liar("short-certificate", HOTSTUFF)
    (vote,) = [HOTSTUFF.timeout(1, 4, 3)]
    lie = only(TimeoutCertificate, heard(behaviour, vote, sender=1))
    assert (lie.high_view, lie.high) == (3, HOTSTUFF.high(3))
    assert not holds(lie, HOTSTUFF)
    other = HOTSTUFF.vote(2, TIMEOUT, 4, parent=3)
    assert holds(resigned(lie, {**lie.signed, other.signer: (other.parent_view, other.signature)}), HOTSTUFF)


def test_a_double_signer_signs_in_anothers_name_too() -> None:
    lie = only(Certificate, heard(liar("double-signer"), SIMPLEX.proposal(1, "b1")))
    assert list(lie.signed) == [0, 1, LIAR]
    assert lie.signed[ValidatorIndex(0)] == lie.signed[ValidatorIndex(LIAR)]
    assert [are_signed([vote]) for vote in lie.votes()] == [False, True, True]
    assert not holds(lie)


def test_an_outsider_votes_and_signs_where_it_is_no_member_and_nowhere_else() -> None:
    members = tuple(ValidatorIndex(index) for index in range(LIAR))
    bench = Bench(epochs=(Committee(View(5), members),))
    behaviour = liar("outsider", bench)
    assert heard(behaviour, bench.vote(0, NOTARIZE, 4, "b4"), bench.vote(1, NOTARIZE, 4, "b4"), sender=1) == []
    vote = only(Vote, heard(behaviour, bench.vote(0, NOTARIZE, 5, "b5")))
    assert (vote.kind, vote.digest, vote.signer) == (NOTARIZE, block("b5"), LIAR)
    assert are_signed([vote], bench)
    assert heard(behaviour, bench.vote(0, NULLIFY, 6)) == [], "else it would contradict itself"
    lie = only(Certificate, heard(behaviour, bench.vote(2, NOTARIZE, 5, "b5"), sender=2))
    assert list(lie.signed) == [0, 2, LIAR]
    assert not holds(lie, bench)
    assert verify_certificate(lie, ValidatorSet(bench.validators.public_keys, bench.scheme), NAMESPACE)


# --- replayed signatures ----------------------------------------------------------------------------------------------


def test_a_replayed_kind_is_a_good_notarization_called_a_finalization() -> None:
    good = SIMPLEX.certificate(NOTARIZE, 2, "b2")
    behaviour = liar("kind-replayer")
    assert heard(behaviour, SIMPLEX.certificate(FINALIZE, 1, "b1"), SIMPLEX.certificate(NULLIFY, 1)) == []
    lie = only(Certificate, heard(behaviour, good))
    assert lie == msgspec.structs.replace(good, kind=FINALIZE)
    assert not holds(lie)
    forged = msgspec.structs.replace(SIMPLEX.certificate(NOTARIZE, 3, "b3"), digest=block("x"))
    assert heard(behaviour, good, forged) == [], "once a view, and of what is true"


@pytest.mark.parametrize("bench", [SIMPLEX, HOTSTUFF], ids=["simplex", "hotstuff"])
def test_certificates_of_a_sister_chain_are_good_there_and_of_every_kind(bench: Bench) -> None:
    behaviour = liar("sister-chain", bench)
    kinds: set[VoteKind] = set()
    for view in range(1, 4):
        lie = consensus_content(heard(behaviour, bench.proposal(view, f"b{view}"))[0].payload)
        assert isinstance(lie, Certificate | TimeoutCertificate)
        assert lie.view == view
        assert holds(lie, bench, SISTER_CHAIN)
        assert not holds(lie, bench)
        kinds.add(lie.kind)
    assert kinds == {NOTARIZE, FINALIZE, behaviour.context.gives_up_by}


# --- false timeouts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bench", [SIMPLEX, HOTSTUFF], ids=["simplex", "hotstuff"])
def test_a_forger_of_timeouts_signed_them_alone(bench: Bench) -> None:
    behaviour = liar("timeout-forger", bench)
    (send,) = heard(behaviour, bench.proposal(1, "b1"))
    lie = consensus_content(send.payload)
    assert isinstance(lie, Certificate | TimeoutCertificate)
    assert lie.kind == behaviour.context.gives_up_by
    good = [vote.signer for vote in lie.votes() if verify_vote(vote, bench.validators, NAMESPACE)]
    assert good == [LIAR]
    assert len(lie.votes()) == bench.quorum
    assert not holds(lie, bench)
    assert heard(behaviour, bench.proposal(1, "b1")) == [], "once a view"


def lies_of(behaviour: Behaviour, views: Iterable[int]) -> list[Send]:
    """What it says when two peers have timed out of each view, naming the block of the view before."""
    said: list[Send] = []
    for view in views:
        for signer in (0, 1):
            said += heard(behaviour, HOTSTUFF.timeout(signer, view, view - 1), sender=signer)
    return said


def test_a_false_high_certificate_is_all_that_is_false_of_a_timeout_certificate() -> None:
    lie = only(TimeoutCertificate, lies_of(liar("false-high-certificate", HOTSTUFF), [6]))
    assert lie.high is not None
    assert (lie.high.view, lie.high_view) == (5, 5)
    assert not holds(lie, HOTSTUFF)
    assert holds(msgspec.structs.replace(lie, high=None), HOTSTUFF)
    assert holds(msgspec.structs.replace(lie, high=HOTSTUFF.high(5)), HOTSTUFF)


def test_a_false_high_certificate_is_in_timeouts_of_views_ahead_too() -> None:
    behaviour = liar("false-high-certificate", HOTSTUFF)
    lie = only(Timeout, heard(behaviour, HOTSTUFF.proposal(1, "b1")))
    assert are_signed([lie.vote], HOTSTUFF)
    assert lie.high is not None
    assert lie.vote.parent_view == lie.high.view > 1
    assert not holds(lie.high, HOTSTUFF)
    assert heard(behaviour, HOTSTUFF.proposal(2, "b2")) == [], "others would not look at its certificates"


def test_understated_timeouts_hide_the_highest_block_in_three_ways() -> None:
    behaviour = liar("understated-timeouts", HOTSTUFF)
    heard(behaviour, HOTSTUFF.certificate(NOTARIZE, 2, "b2"))
    lower, inside, bare = lies_of(behaviour, [6, 7, 8])

    signed_for_more = consensus_content(lower.payload)
    assert isinstance(signed_for_more, TimeoutCertificate)
    assert (signed_for_more.high, signed_for_more.high_view) == (HOTSTUFF.high(2), 2)
    assert not holds(signed_for_more, HOTSTUFF)
    named = tuple(View(5) if s != LIAR else named for s, (named, _) in signed_for_more.signed.items())
    true = msgspec.structs.replace(signed_for_more, high=HOTSTUFF.high(5), high_views=named)
    assert holds(true, HOTSTUFF), "what the two peers signed"

    lower_inside = as_sent(inside, TimeoutCertificate)
    assert (lower_inside.high, lower_inside.high_view) == (HOTSTUFF.high(5), 6)
    assert are_signed(lower_inside.votes(), HOTSTUFF)

    without = consensus_content(bare.payload)
    assert isinstance(without, TimeoutCertificate)
    assert (without.high, without.high_view) == (None, 7)
    assert not verify_timeout_certificate(without, HOTSTUFF.validators, NAMESPACE, View(6))
    assert verify_timeout_certificate(without, HOTSTUFF.validators, NAMESPACE, View(7))


def test_a_leader_with_false_timeouts_shows_its_block_to_f_peers_and_is_silent_about_its_own() -> None:
    behaviour = liar("understated-timeouts", HOTSTUFF)
    own = next(view for view in range(1, 9) if HOTSTUFF.engine.leader(View(view)) == LIAR)
    said = behaviour.alter(send_consensus(None, HOTSTUFF.proposal(own, f"b{own}")))
    assert [effect.recipient for effect in said if isinstance(effect, Send)] == [0]
    assert behaviour.alter(send_consensus(None, Timeout(HOTSTUFF.vote(LIAR, TIMEOUT, own, parent=0), None))) == []
    other = send_consensus(None, Timeout(HOTSTUFF.vote(LIAR, TIMEOUT, own + 1, parent=0), None))
    assert behaviour.alter(other) == [other]


def test_a_lock_breaker_keeps_certificates_and_timeouts_to_itself() -> None:
    behaviour = liar("lock-breaker", HOTSTUFF)
    own = next(view for view in range(1, 9) if HOTSTUFF.engine.leader(View(view)) == LIAR)
    kept: list[Message]
    kept = [HOTSTUFF.certificate(NOTARIZE, 1, "b1"), HOTSTUFF.timeout(LIAR, 2, 1), HOTSTUFF.proposal(own, f"b{own}")]
    assert [behaviour.alter(send_consensus(None, message)) for message in kept] == [[], [], []]
    said = send_consensus(None, HOTSTUFF.certificate(FINALIZE, 1, "b1"))
    assert behaviour.alter(said) == [said]
    assert behaviour.context.score.effects["lock-breaker"] == 0


# --- what was overheard -----------------------------------------------------------------------------------------------


def test_nothing_forged_is_overheard_and_little_is_remembered() -> None:
    overheard = Overheard(liar("short-certificate").context)
    far = msgspec.structs.replace(
        SIMPLEX.vote(0, NOTARIZE, 9, "b9"), view=View(MAX_VIEW), signature=Signature(b"0" * 64)
    )
    assert overheard.learn(far) is None
    assert overheard.learn(SIMPLEX.vote(LIAR, NOTARIZE, 9, "b9")) is None, "it can sign that itself"
    vote = SIMPLEX.vote(0, NOTARIZE, MAX_VIEW - 1, "far")
    assert overheard.learn(vote) == vote
    assert overheard.learn(vote) is None, "it is known"
    for view in range(1, 3 * VIEWS_REMEMBERED):
        overheard.learn(SIMPLEX.vote(1, NOTARIZE, view, "b"))
        overheard.learn(SIMPLEX.certificate(NOTARIZE, view, "b"))
        overheard.learn(SIMPLEX.certificate(NULLIFY, view))
    newest = SIMPLEX.vote(2, NOTARIZE, 3 * VIEWS_REMEMBERED - 1, "b")
    assert list(overheard.signatures(newest)) == [1], "a vote for a view far ahead pushes none out"
    assert (len(overheard._votes), len(overheard._certified)) == (VIEWS_REMEMBERED, VIEWS_REMEMBERED)
    assert overheard.signatures(vote) == {}
    below = overheard.certificate_below(newest.view)
    assert below is not None
    assert (below.view, below.digest != NO_DIGEST) == (newest.view - 1, True)
    assert overheard.certificate(GENESIS_VIEW) is None
