"""Garbage, mutations and floods into a running engine: it answers with ``Rejected``, never with an exception."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consensus import voting
from consensus.interface import MALFORMED, Broadcast, Finalized, Received, Rejected, Verify, VotingConfig
from consensus.messages import (
    Certificate,
    CertificateRequest,
    Message,
    MessageError,
    Timeout,
    Vote,
    VoteKind,
    decode,
    encode,
)
from consensus.types import ValidatorIndex, View
from tests.consensus.bench import FINALIZE, NOTARIZE, NULLIFY, Bench, HotStuffBench, of
from tests.consensus.test_messages import messages

CONFIG = VotingConfig(view_window=4, proposal_window=2, retained_views=3, evidence_views=1, max_body_bytes=64)
senders = st.integers(-2, 9).map(ValidatorIndex)


either = pytest.mark.parametrize("bench_type", [Bench, pytest.param(HotStuffBench, marks=pytest.mark.slow)])


def running(bench_type: type[Bench]) -> Bench:
    """An engine in the middle of things: view 6, final view 2."""
    bench = bench_type(config=CONFIG)
    bench.receive(1, bench.certificate(FINALIZE, 2, "b2", signers=(1, 2, 3)))
    if isinstance(bench, HotStuffBench):
        bench.receive(1, bench.timeouts(3, 2), bench.certificate(NOTARIZE, 4, "b4", 2), bench.timeouts(5, 4))
        return bench
    bench.receive(1, bench.certificate(NULLIFY, 3), bench.certificate(NOTARIZE, 4, "b4", 2))
    bench.receive(1, bench.certificate(NULLIFY, 5))
    return bench


@either
@given(st.lists(st.tuples(senders, messages()), max_size=12))
@settings(max_examples=100, deadline=None)
def test_well_formed_nonsense_changes_nothing(
    bench_type: type[Bench], story: list[tuple[ValidatorIndex, Message]]
) -> None:
    bench = running(bench_type)
    before = (bench.engine.view, bench.engine.certificates.final, bench.engine.journal_snapshot())
    for sender, message in story:
        effects = bench.receive(sender, message)
        assert of(Rejected, effects) or isinstance(message, Vote | Timeout | CertificateRequest)
    assert (bench.engine.view, bench.engine.certificates.final, bench.engine.journal_snapshot()) == before


@st.composite
def true_messages(draw: st.DrawFn) -> tuple[int, Message]:
    """What real validators could say around view 6, honest or not."""
    bench, signer, view = HotStuffBench(), draw(st.integers(0, 3)), draw(st.integers(1, 12))
    kind, name = draw(st.sampled_from((NOTARIZE, NULLIFY, FINALIZE))), draw(st.sampled_from(("x", "y")))
    parent = draw(st.integers(0, view - 1))
    match draw(st.integers(0, 5)):
        case 0:
            return signer, bench.vote(signer, kind, view, name, parent)
        case 1:
            return view % 4, bench.proposal(view, name, parent)
        case 2:
            count = draw(st.integers(1, 4))
            return signer, bench.certificate(kind, view, name, parent, signers=range(count))
        case 3:
            return signer, bench.timeout(signer, view, high=parent)
        case 4:
            return signer, bench.timeouts(view, parent, signers=range(draw(st.integers(1, 4))))
        case _:
            return signer, CertificateRequest(tuple(View(one) for one in range(draw(st.integers(0, 5)), 7)))


def mutated(message: Any, data: st.DataObject) -> Any:
    """One field replaced by something of the right type that need not make sense."""
    name = data.draw(st.sampled_from(message.__struct_fields__))
    value = getattr(message, name)
    if isinstance(value, int) and not isinstance(value, bool) and name != "kind":
        return msgspec.structs.replace(message, **{name: data.draw(st.integers(-1, 2**64))})
    if isinstance(value, bytes):
        return msgspec.structs.replace(message, **{name: data.draw(st.binary(max_size=70))})
    if isinstance(value, Vote):
        return msgspec.structs.replace(message, vote=mutated(value, data))
    if isinstance(value, Certificate):
        return msgspec.structs.replace(message, high=None if data.draw(st.booleans()) else mutated(value, data))
    if isinstance(value, tuple) and value:
        at = data.draw(st.integers(0, len(value) - 1))
        return msgspec.structs.replace(message, **{name: value[:at] + value[at:][::-1] + value[:at]})
    return message


@either
@given(st.lists(true_messages(), max_size=25), st.data())
@settings(max_examples=150, deadline=None)
def test_mutated_messages_never_raise_and_memory_stays_bounded(
    bench_type: type[Bench], story: list[tuple[int, Message]], data: st.DataObject
) -> None:
    bench = running(bench_type)
    for sender, message in story:
        if data.draw(st.booleans()):
            message = mutated(message, data)
        if data.draw(st.integers(0, 4)) == 0:
            sender = data.draw(senders)
        bench.receive(sender, message)
        engine = bench.engine
        floor = engine._rounds.floor()
        assert all(floor < view <= engine.view + CONFIG.view_window for view in engine._rounds)
        assert engine._rounds.open == range(floor + 1, engine.view + CONFIG.view_window + 1)
    finalized = [effect.certificate.view for effect in of(Finalized, bench.effects)]
    assert finalized == sorted(set(finalized))
    for effect in of(Broadcast, bench.effects):
        assert decode(encode(effect.message)) == effect.message


@either
@given(st.lists(true_messages(), max_size=25))
@settings(max_examples=100, deadline=None)
def test_a_decoded_message_has_the_same_effects_whether_it_is_checked_again_or_not(
    bench_type: type[Bench], story: list[tuple[int, Message]]
) -> None:
    checking, trusting = running(bench_type), running(bench_type)
    for sender, message in story:
        try:
            decoded = decode(encode(message))
        except MessageError:
            continue
        said = Received(ValidatorIndex(sender), decoded)
        assert trusting.do(msgspec.structs.replace(said, is_checked=True)) == checking.do(said)
    assert trusting.journal == checking.journal


@either
@given(st.lists(true_messages(), max_size=25))
@settings(max_examples=150, deadline=None)
def test_a_certificate_that_no_kept_vote_can_contradict_is_not_compared_and_nothing_else_changes(
    bench_type: type[Bench], story: list[tuple[int, Message]]
) -> None:
    looking, comparing = running(bench_type), running(bench_type)
    comparing.engine._accountability._may_be_contradicted = lambda certificate: True
    for sender, message in story:
        assert looking.receive(sender, message) == comparing.receive(sender, message)


def test_an_engine_checks_only_what_was_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, checked = running(Bench), []
    monkeypatch.setattr(voting, "is_well_formed", lambda message: bool(checked.append(message)))
    vote = bench.vote(1, NULLIFY, 6)
    assert not of(Rejected, bench.do(Received(ValidatorIndex(1), vote, is_checked=True)))
    assert checked == []
    assert of(Rejected, bench.do(Received(ValidatorIndex(1), vote))) == [Rejected(ValidatorIndex(1), MALFORMED)]
    assert checked == [vote]


@either
@given(true_messages(), st.data())
@settings(max_examples=100, deadline=None)
def test_mutated_bytes_are_refused_before_they_reach_the_engine(
    bench_type: type[Bench], said: tuple[int, Message], data: st.DataObject
) -> None:
    sender, message = said
    try:
        encoded = bytearray(encode(message))
    except MessageError:
        return
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    try:
        decoded = decode(bytes(encoded))
    except MessageError:
        return
    bench = running(bench_type)
    views = {bench.engine.view}
    if isinstance(decoded, Timeout) and isinstance(message, Timeout) and decoded.high == message.high is not None:
        views.add(View(message.high.view + 1))  # the certificate that it carries is as it was, and proves itself
    effects = bench.receive(sender, decoded)
    if decoded != message and not isinstance(decoded, CertificateRequest):
        assert bench.engine.view in views
        assert not of(Verify, effects)


def test_floods_of_well_signed_votes_and_proposals_stay_bounded() -> None:
    bench = running(Bench)
    engine, ahead = bench.engine, CONFIG.view_window
    for step in range(2_000):
        view = 6 + step % 500
        for kind in (NOTARIZE, FINALIZE, NULLIFY):
            bench.receive(1, bench.vote(1, kind, view, "" if kind == NULLIFY else f"{step}", 0))
        if view % 4 == 1:
            bench.receive(1, bench.proposal(view, f"p{step}", 4))
    rounds = engine._rounds
    assert all(view <= engine.view + ahead for view in rounds)
    assert len(rounds) <= ahead + engine.view - engine._rounds.floor()
    assert all(sum(len(kept) for kept in round_.tally._kept) <= 2 * len(VoteKind) for round_ in rounds.values())
    assert all(
        round_.proposal is None or view <= engine.view + CONFIG.proposal_window for view, round_ in rounds.items()
    )
    assert engine.certificates.notarizations.keys() <= {4}
