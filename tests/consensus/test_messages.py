"""Messages: one encoding each, hostile bytes refused, signing bytes, evidence."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consensus import messages as messages_module
from consensus.keys import Ed25519Scheme
from consensus.messages import (
    MAX_BODY_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_REQUESTED_VIEWS,
    MAX_VALIDATORS,
    MAX_VIEW,
    Certificate,
    CertificateRequest,
    ConflictingFinalize,
    ConflictingNotarize,
    ConflictingTimeout,
    FinalizeAndTimeout,
    Message,
    MessageError,
    NullifyAndFinalize,
    Proposal,
    Timeout,
    TimeoutCertificate,
    Vote,
    VoteKind,
    check,
    conflict,
    decode,
    decode_evidence,
    encode,
    encode_evidence,
    verify_evidence,
    vote_signing_bytes,
)
from consensus.types import Digest, Signature, ValidatorIndex, View
from tests.consensus.bench import FINALIZE, NAMESPACE, NOTARIZE, NULLIFY, TIMEOUT, Bench, HotStuffBench, block

digests = st.binary(min_size=32, max_size=32).map(Digest)
signatures = st.binary(min_size=64, max_size=64).map(Signature)
signers = st.integers(0, MAX_VALIDATORS - 1).map(ValidatorIndex)


@st.composite
def subjects(draw: st.DrawFn) -> tuple[VoteKind, View, View, Digest]:
    kind = draw(st.sampled_from(list(VoteKind)))
    view = draw(st.integers(1, MAX_VIEW))
    if kind == NULLIFY:
        return kind, View(view), View(0), Digest(b"")
    if kind == TIMEOUT:
        return kind, View(view), View(draw(st.integers(0, view - 1))), Digest(b"")
    return kind, View(view), View(draw(st.integers(0, view - 1))), draw(digests)


@st.composite
def high_certificates(draw: st.DrawFn, view: View) -> Certificate | None:
    """What may certify the block of a high view."""
    if view == 0 or draw(st.booleans()):
        return None
    kind, parent_view = draw(st.sampled_from((NOTARIZE, FINALIZE))), View(draw(st.integers(0, view - 1)))
    members = sorted(draw(st.sets(signers, min_size=1, max_size=4)))
    return Certificate.of(kind, view, parent_view, draw(digests), {m: draw(signatures) for m in members})


@st.composite
def messages(draw: st.DrawFn) -> Message:
    kind, view, parent_view, digest = draw(subjects())
    vote = Vote(kind, view, parent_view, digest, draw(signers), draw(signatures))
    members = sorted(draw(st.sets(signers, min_size=1, max_size=9)))
    match draw(st.integers(1, 6)):
        case 1:
            return vote
        case 2:
            digest = draw(digests)
            vote = Vote(NOTARIZE, view, parent_view, digest, vote.signer, vote.signature)
            return Proposal(view, parent_view, draw(digests), digest, draw(st.binary(max_size=200)), vote)
        case 3 if kind != TIMEOUT:
            return Certificate.of(kind, view, parent_view, digest, {member: draw(signatures) for member in members})
        case 5:
            signed = {member: (View(draw(st.integers(0, view - 1))), draw(signatures)) for member in members}
            high = draw(high_certificates(max(high_view for high_view, _ in signed.values())))
            return TimeoutCertificate.of(view, high, signed)
        case 6:
            high_view = View(draw(st.integers(0, view - 1)))
            vote = Vote(TIMEOUT, view, high_view, Digest(b""), vote.signer, vote.signature)
            return Timeout(vote, draw(high_certificates(high_view)))
        case _:
            views = draw(st.sets(st.integers(0, MAX_VIEW), min_size=1, max_size=MAX_REQUESTED_VIEWS))
            return CertificateRequest(tuple(View(view) for view in sorted(views)))


@given(messages())
@settings(max_examples=150, deadline=None)
def test_every_message_has_one_encoding(message: Message) -> None:
    encoded = encode(message)
    assert decode(encoded) == message
    assert encode(decode(encoded)) == encoded


@given(messages(), st.data())
@settings(max_examples=200, deadline=None)
def test_mutated_bytes_are_refused_or_are_another_canonical_message(message: Message, data: st.DataObject) -> None:
    encoded = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(encoded) - 1))
        match data.draw(st.sampled_from(("flip", "insert", "delete"))):
            case "flip":
                encoded[at] ^= data.draw(st.integers(1, 255))
            case "insert":
                encoded.insert(at, data.draw(st.integers(0, 255)))
            case _ if len(encoded) > 1:
                del encoded[at]
    try:
        decoded = decode(bytes(encoded))
    except MessageError:
        return
    assert encode(decoded) == bytes(encoded)


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_garbage_is_refused(garbage: bytes) -> None:
    with contextlib.suppress(MessageError):
        assert encode(decode(garbage)) == garbage


def test_the_encoding_is_the_documented_one() -> None:
    vote = Vote(NOTARIZE, View(300), View(2), Digest(b"d" * 32), ValidatorIndex(5), Signature(b"s" * 64))
    expected = b"\x97\x01\x01" + b"\xcd\x01\x2c" + b"\x02" + b"\xc4\x20" + b"d" * 32 + b"\x05" + b"\xc4\x40" + b"s" * 64
    assert encode(vote) == expected
    assert encode(CertificateRequest((View(1), View(9)))) == b"\x92\x04\x92\x01\x09"
    gave_up = Vote(TIMEOUT, View(7), View(0), Digest(b""), ValidatorIndex(2), Signature(b"s" * 64))
    expected = b"\x97\x01\x04\x07\x00\xc4\x00\x02\xc4\x40" + b"s" * 64
    assert encode(Timeout(gave_up, None)) == b"\x93\x06" + expected + b"\xc0"
    certificate = TimeoutCertificate.of(View(7), None, {ValidatorIndex(2): (View(0), Signature(b"s" * 64))})
    assert encode(certificate) == b"\x96\x05\x07\xc0\xc4\x01\x04\x91\x00\xc4\x40" + b"s" * 64
    signed = {ValidatorIndex(9): Signature(b"t" * 64), ValidatorIndex(2): Signature(b"s" * 64)}
    nullification = Certificate.of(NULLIFY, View(7), View(0), Digest(b""), signed)
    expected = b"\x97\x03\x02\x07\x00\xc4\x00\xc4\x02\x04\x02\xc4\x80" + b"s" * 64 + b"t" * 64
    assert encode(nullification) == expected
    assert list(nullification.signed.items()) == sorted(signed.items())


def test_other_encodings_of_a_message_are_refused() -> None:
    encoded = encode(Bench().vote(1, NOTARIZE, 3, "x"))
    long_integer = encoded.replace(b"\x97\x01\x01\x03", b"\x97\x01\x01\xcc\x03", 1)
    long_array = b"\xdc\x00\x07" + encoded[1:]
    one_field_more = b"\x98" + encoded[1:] + b"\x00"
    for other in (long_integer, long_array, one_field_more, encoded + b"\x00", encoded[:-1], b"", b"\xc0"):
        assert other != encoded
        with pytest.raises(MessageError):
            decode(other)


def test_deep_nesting_and_great_size_are_refused() -> None:
    with pytest.raises(MessageError):
        decode(b"\x91" * 100_000)
    with pytest.raises(MessageError, match="exceeds"):
        decode(b"\x00" * (MAX_MESSAGE_BYTES + 1))


def broken(message: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(message, **changes)


BENCH = Bench()
VOTE = BENCH.vote(1, NOTARIZE, 3, "x")
NULL = BENCH.vote(1, NULLIFY, 3)
PROPOSAL = BENCH.proposal(1, "x")
CERTIFICATE = BENCH.certificate(NOTARIZE, 3, "x")
TIMED_OUT = BENCH.vote(1, TIMEOUT, 5, parent=3)
GIVEN_UP = Timeout(TIMED_OUT, CERTIFICATE)
TIMEOUTS = HotStuffBench().timeouts(5, 1, 3)
PLANTED = {
    "view 0": broken(VOTE, view=0, parent_view=0),
    "view too large": broken(VOTE, view=MAX_VIEW + 1),
    "parent not below": broken(VOTE, parent_view=3),
    "negative parent": broken(VOTE, parent_view=-1),
    "short digest": broken(VOTE, digest=b"d" * 31),
    "no digest": broken(VOTE, digest=b""),
    "short signature": broken(VOTE, signature=b"s" * 63),
    "long signature": broken(VOTE, signature=b"s" * 65),
    "signer too large": broken(VOTE, signer=MAX_VALIDATORS),
    "negative signer": broken(VOTE, signer=-1),
    "nullify with a digest": broken(NULL, digest=b"d" * 32),
    "nullify with a parent": broken(NULL, parent_view=1),
    "proposal with another digest": broken(PROPOSAL, digest=b"d" * 32),
    "proposal with another view": broken(PROPOSAL, view=2),
    "proposal with another parent": broken(broken(PROPOSAL, view=2), parent_view=1),
    "proposal with a finalize vote": broken(PROPOSAL, vote=BENCH.vote(1, FINALIZE, 1, "x")),
    "proposal with a short parent digest": broken(PROPOSAL, parent_digest=b"d"),
    "proposal with a huge body": broken(PROPOSAL, body=bytes(MAX_BODY_BYTES + 1)),
    "certificate without signers": broken(CERTIFICATE, signers=b"", signatures=b""),
    "certificate without signatures": broken(CERTIFICATE, signatures=b""),
    "certificate with a signer too few": broken(CERTIFICATE, signers=b"\x03"),
    "certificate with a signer too many": broken(CERTIFICATE, signers=b"\x0f"),
    "certificate with a longer bitmap than it needs": broken(CERTIFICATE, signers=CERTIFICATE.signers + b"\0"),
    "certificate with a bitmap of too many": broken(CERTIFICATE, signers=b"\x03" + bytes(127) + b"\x01"),
    "certificate with a short signature": broken(CERTIFICATE, signatures=CERTIFICATE.signatures[:-1]),
    "certificate of view 0": broken(CERTIFICATE, view=0),
    "timeout vote with a digest": broken(TIMED_OUT, digest=b"d" * 32),
    "timeout vote that names its own view": broken(TIMED_OUT, parent_view=5),
    "certificate of timeouts in the other form": broken(CERTIFICATE, kind=TIMEOUT, digest=b""),
    "timeout with another vote": broken(GIVEN_UP, vote=VOTE),
    "timeout with the certificate of another view": broken(GIVEN_UP, high=broken(CERTIFICATE, view=4)),
    "timeout with a nullification": broken(GIVEN_UP, high=BENCH.certificate(NULLIFY, 3)),
    "timeout with a broken certificate": broken(GIVEN_UP, high=broken(CERTIFICATE, signatures=b"")),
    "timeouts without signatures": broken(TIMEOUTS, signatures=b""),
    "timeouts with a signer too many": broken(TIMEOUTS, signers=b"\x0f"),
    "timeouts with a high view too few": broken(TIMEOUTS, high_views=TIMEOUTS.high_views[1:]),
    "timeouts of view 0": broken(TIMEOUTS, view=0),
    "timeouts that name their own view": broken(TIMEOUTS, view=3),
    "timeouts with a lower certificate": broken(TIMEOUTS, high=broken(CERTIFICATE, view=2, parent_view=1)),
    "timeouts with a nullification": broken(TIMEOUTS, high=BENCH.certificate(NULLIFY, 3)),
    "timeouts with a short signature": broken(TIMEOUTS, signatures=TIMEOUTS.signatures[:-1]),
    "request for nothing": CertificateRequest(()),
    "request out of order": CertificateRequest((View(2), View(1))),
    "request for one view twice": CertificateRequest((View(2), View(2))),
    "request for too much": CertificateRequest(tuple(View(view) for view in range(MAX_REQUESTED_VIEWS + 1))),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_fields_that_do_not_fit_are_refused(fault: str) -> None:
    with pytest.raises(MessageError):
        check(PLANTED[fault])
    with pytest.raises(MessageError):
        decode(msgspec.msgpack.encode(PLANTED[fault]))


def test_an_unknown_kind_or_tag_is_refused() -> None:
    for at, value in ((1, 9), (2, 5), (2, 0)):
        encoded = bytearray(encode(VOTE))
        encoded[at] = value
        with pytest.raises(MessageError):
            decode(bytes(encoded))


def test_signing_bytes_are_the_documented_ones() -> None:
    signed = vote_signing_bytes(b"chain", NOTARIZE, View(258), View(1), Digest(b"d" * 32))
    assert (
        signed == b"stampede/consensus/vote/1\x05chain\x01" + b"\0\0\0\0\0\0\x01\x02" + b"\0" * 7 + b"\x01" + b"d" * 32
    )
    with pytest.raises(MessageError):
        vote_signing_bytes(b"n" * 256, NULLIFY, View(1), View(0), Digest(b""))


def test_signing_bytes_differ_in_every_field() -> None:
    base: dict[str, Any] = {
        "namespace": b"chain",
        "kind": NOTARIZE,
        "view": View(3),
        "parent_view": View(1),
        "digest": block("x"),
    }
    others = {"namespace": b"chain2", "kind": FINALIZE, "view": View(4), "parent_view": View(2), "digest": block("y")}
    signed = {vote_signing_bytes(**base)} | {vote_signing_bytes(**{**base, name: to}) for name, to in others.items()}
    assert len(signed) == 1 + len(others)


# --- evidence --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bench", [Bench(), Bench(scheme=Ed25519Scheme())], ids=["keyed-hash", "ed25519"])
def test_evidence_convinces_third_parties(bench: Bench) -> None:
    x, y = bench.vote(1, NOTARIZE, 3, "x"), bench.vote(1, NOTARIZE, 3, "y")
    fx, fy = bench.vote(1, FINALIZE, 3, "x"), bench.vote(1, FINALIZE, 3, "x", parent=1)
    null = bench.vote(1, NULLIFY, 3)
    tx, ty = bench.vote(1, TIMEOUT, 5, parent=1), bench.vote(1, TIMEOUT, 5, parent=2)
    for one, other, kind in (
        (x, y, ConflictingNotarize),
        (fx, fy, ConflictingFinalize),
        (null, fx, NullifyAndFinalize),
        (tx, ty, ConflictingTimeout),
        (fx, tx, FinalizeAndTimeout),
        (fx, bench.vote(1, TIMEOUT, 3, parent=2), FinalizeAndTimeout),
    ):
        evidence = conflict(one, other)
        assert isinstance(evidence, kind)
        assert evidence == conflict(other, one)
        assert verify_evidence(evidence, bench.validators, NAMESPACE)
        assert decode_evidence(encode_evidence(evidence)) == evidence


def test_what_is_no_contradiction_makes_no_evidence() -> None:
    vote = BENCH.vote
    x = vote(1, NOTARIZE, 3, "x")
    for other in (
        x,
        vote(2, NOTARIZE, 3, "y"),
        vote(1, NOTARIZE, 4, "y"),
        vote(1, FINALIZE, 3, "y"),
        vote(1, NULLIFY, 3),
        vote(1, TIMEOUT, 3, parent=0),
    ):
        assert conflict(x, other) is None
    finalized = vote(1, FINALIZE, 3, "x")
    for other in (
        vote(1, TIMEOUT, 2, parent=0),
        vote(1, TIMEOUT, 5, parent=3),
        vote(1, TIMEOUT, 5, parent=4),
        vote(2, TIMEOUT, 5, parent=0),
        vote(1, NULLIFY, 5),
    ):
        assert conflict(finalized, other) is None
        assert conflict(other, finalized) is None


def test_false_evidence_is_refused() -> None:
    vote, forged = BENCH.vote, BENCH.forged
    x, y = sorted((vote(1, NOTARIZE, 3, "x"), vote(1, NOTARIZE, 3, "y")), key=lambda vote: vote.digest)
    planted = {
        "the same vote twice": ConflictingNotarize(x, x),
        "not in order": ConflictingNotarize(y, x),
        "of two signers": ConflictingNotarize(x, vote(2, NOTARIZE, 3, "y")),
        "of two views": ConflictingNotarize(x, vote(1, NOTARIZE, 4, "y")),
        "under a wrong name": ConflictingFinalize(x, y),
        "no contradiction": NullifyAndFinalize(vote(1, NULLIFY, 3), x),
        "one forged": ConflictingNotarize(forged(1, NOTARIZE, 3, min(("x", "y"), key=block)), y),
        "other forged": ConflictingNotarize(x, forged(1, NOTARIZE, 3, max(("x", "y"), key=block))),
        "a timeout that keeps to the block": FinalizeAndTimeout(vote(1, FINALIZE, 3, "x"), TIMED_OUT),
        "a timeout before": FinalizeAndTimeout(vote(1, FINALIZE, 6, "x"), TIMED_OUT),
        "timeouts not in order": ConflictingTimeout(TIMED_OUT, vote(1, TIMEOUT, 5, parent=2)),
        "unknown signer": ConflictingNotarize(broken(x, signer=9), broken(y, signer=9)),
        "malformed": NullifyAndFinalize(broken(NULL, digest=b"d" * 32), vote(1, FINALIZE, 3, "x")),
    }
    assert verify_evidence(ConflictingNotarize(x, y), BENCH.validators, NAMESPACE)
    for name, evidence in planted.items():
        assert not verify_evidence(evidence, BENCH.validators, NAMESPACE), name  # type: ignore[arg-type]
    assert not verify_evidence(ConflictingNotarize(x, y), BENCH.validators, b"another chain")
    long_integer = encode_evidence(ConflictingNotarize(x, y)).replace(b"\x97\x01\x01\x03", b"\x97\x01\x01\xcc\x03", 1)
    for garbage in (b"", encode(x), long_integer, encode_evidence(ConflictingNotarize(x, y)) + b"\0"):
        with pytest.raises(MessageError):
            decode_evidence(garbage)


def test_messages_are_frozen() -> None:
    with pytest.raises(AttributeError):
        VOTE.view = View(9)  # type: ignore[misc]


# --- what the documents say -------------------------------------------------------------------------------------------


def test_the_tables_of_messages_have_their_tags_and_fields() -> None:
    """That of the module by the names of the fields, that of the page in words."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "consensus.md").read_text(encoding="utf-8")
    for message in (Vote, Proposal, Certificate, CertificateRequest, TimeoutCertificate, Timeout):
        tag, fields = message.__struct_config__.tag, message.__struct_fields__
        assert re.search(
            rf"^:class:`{message.__name__}` +{tag}  {', '.join(fields)}$", messages_module.__doc__ or "", re.M
        )
        assert f"| {tag} | {message.__name__} | {', '.join(fields).replace('_', ' ')} |" in page
