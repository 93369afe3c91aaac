"""Journal records: round trip, and what is none refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from consensus.journal import JOURNAL_VERSION, MAX_RECORD_BYTES, JournalError, Pace, decode_record, encode_record
from consensus.messages import MAX_VALIDATORS, Certificate, CertificateRequest, Timeout, TimeoutCertificate, encode
from consensus.pacing import MAX_FACTOR
from consensus.types import ValidatorIndex, View
from tests.consensus.bench import FINALIZE, NOTARIZE, NULLIFY, TIMEOUT, Bench, HotStuffBench, resigned

BENCH = Bench()
TIMED_OUT, TIMEOUTS = BENCH.vote(0, TIMEOUT, 3), HotStuffBench().timeouts(5, 3)


def test_records_come_back() -> None:
    for record in (BENCH.vote(0, NOTARIZE, 3, "x"), BENCH.vote(0, NULLIFY, 3), BENCH.certificate(FINALIZE, 3, "x")):
        assert decode_record(encode_record(record)) == record
    for timed_out in (TIMED_OUT, TIMEOUTS):
        assert decode_record(encode_record(timed_out)) == timed_out


def test_a_pace_comes_back() -> None:
    for factor in (1, MAX_FACTOR):
        assert decode_record(encode_record(Pace(factor))) == Pace(factor)


def test_the_largest_certificate_fits() -> None:
    vote = BENCH.vote(0, NOTARIZE, 2**62, "x")
    certificate = BENCH.certificate(NOTARIZE, 2**62, "x")
    largest = resigned(certificate, dict.fromkeys(range(MAX_VALIDATORS), vote.signature))
    record = encode_record(largest)
    assert len(record) <= MAX_RECORD_BYTES
    assert isinstance(decode_record(record), Certificate)
    timeouts = {ValidatorIndex(signer): (View(2**62), vote.signature) for signer in range(MAX_VALIDATORS)}
    record = encode_record(TimeoutCertificate.of(View(2**63 - 1), largest, timeouts))
    assert len(record) <= MAX_RECORD_BYTES
    assert isinstance(decode_record(record), TimeoutCertificate)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\x02",
        b"\x01" + encode_record(BENCH.vote(0, NULLIFY, 3))[1:],
        encode_record(BENCH.vote(0, NULLIFY, 3))[:-1],
        encode_record(BENCH.vote(0, NULLIFY, 3)) + b"\0",
        b"\x02" + encode(BENCH.proposal(1, "x")),
        b"\x02" + encode(CertificateRequest((View(1),))),
        b"\x02" + encode(Timeout(TIMED_OUT, None)),
        b"\x02" * (MAX_RECORD_BYTES + 1),
        encode_record(Pace(1))[:-1] + b"\0",
        encode_record(Pace(MAX_FACTOR + 1)),
        encode_record(Pace(1)) + b"\0",
    ],
    ids=[
        *("empty", "version only", "other version", "cut", "longer", "proposal", "request", "timeout", "huge"),
        *("no pace", "pace too long", "longer pace"),
    ],
)
def test_what_is_no_record_is_refused(bad: bytes) -> None:
    with pytest.raises(JournalError):
        decode_record(bad)


def test_the_page_names_the_version() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "consensus.md").read_text(encoding="utf-8")
    assert f"A journal record is the version byte {JOURNAL_VERSION} and" in page
