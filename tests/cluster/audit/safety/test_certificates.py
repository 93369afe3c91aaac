"""The second account of what a certificate is agrees with the first, and does not come from it."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest

from cluster.audit.safety import certificates as certificate_audit
from cluster.audit.safety.certificates import is_certified, members_of
from consensus import certificates, messages
from consensus.certificates import verify_signed, verify_timeout_certificate
from consensus.keys import Committee
from consensus.messages import AnyCertificate, TimeoutCertificate, VoteKind, vote_signing_bytes
from consensus.types import Digest, ValidatorIndex, View
from tests.consensus.bench import FINALIZE, NAMESPACE, NOTARIZE, NULLIFY, HotStuffBench

EPOCHS = tuple(
    Committee(View(first), tuple(map(ValidatorIndex, members)))
    for first, members in ((5, (0, 1, 2, 4)), (9, (1, 2, 3, 4, 5, 6)))
)
BENCH = HotStuffBench(7, epochs=EPOCHS)


def replaced(certificate: AnyCertificate, **changes: object) -> AnyCertificate:
    return msgspec.structs.replace(certificate, **changes)


GOOD: list[AnyCertificate] = [
    BENCH.certificate(NOTARIZE, 1, "b1"),
    BENCH.certificate(FINALIZE, 4, "b4", parent=1, signers=(1, 2, 3, 5, 6)),
    BENCH.certificate(NULLIFY, 4, signers=range(7)),
    BENCH.certificate(NOTARIZE, 5, "b5", signers=(0, 1, 4)),
    BENCH.certificate(FINALIZE, 9, "b9", signers=(1, 2, 3, 5, 6)),
    BENCH.timeouts(3, 1, 2),
    BENCH.timeouts(6, 4, signers=(1, 2, 4)),
    BENCH.timeouts(2),
]
BAD: list[AnyCertificate] = [
    BENCH.certificate(NOTARIZE, 1, "b1", signers=range(4)),
    BENCH.certificate(NOTARIZE, 5, "b5", signers=(0, 1)),
    BENCH.certificate(NOTARIZE, 5, "b5", signers=(0, 1, 3)),
    BENCH.certificate(FINALIZE, 9, "b9", signers=(0, 1, 2, 3, 4)),
    BENCH.certificate(NOTARIZE, 5, "b5", signers=(0, 1, 1)),
    replaced(BENCH.certificate(NOTARIZE, 1, "b1"), kind=FINALIZE),
    replaced(BENCH.certificate(NOTARIZE, 1, "b1"), view=View(2)),
    replaced(BENCH.certificate(NOTARIZE, 3, "b3"), parent_view=View(1)),
    replaced(BENCH.certificate(NOTARIZE, 1, "b1"), digest=Digest(bytes(32))),
    BENCH.timeouts(3, 1, signers=(0, 1, 2)),
    BENCH.timeouts(6, 4, signers=(1, 2, 3)),
    BENCH.timeouts(6, 4, signers=(1, 2, 2)),
    replaced(BENCH.timeouts(4, 2), high=BENCH.high(1)),
    replaced(BENCH.timeouts(4, 2), high=None),
    replaced(BENCH.timeouts(4, 2), high=BENCH.certificate(NULLIFY, 2)),
    replaced(BENCH.timeouts(4, 2), high=BENCH.certificate(NOTARIZE, 2, "b2", signers=range(4))),
]


def believed(certificate: AnyCertificate) -> bool:
    """What a validator believes that knows of no final block."""
    if isinstance(certificate, TimeoutCertificate):
        return verify_timeout_certificate(certificate, BENCH.validators, NAMESPACE, View(0))
    return verify_signed(certificate, BENCH.validators, NAMESPACE)


@pytest.mark.parametrize("certificate", GOOD + BAD)
def test_both_accounts_agree(certificate: AnyCertificate) -> None:
    assert is_certified(certificate, BENCH.validators, NAMESPACE, 0) == (certificate in GOOD)
    assert believed(certificate) == (certificate in GOOD)
    assert not is_certified(certificate, BENCH.validators, b"another chain", 0)


def test_a_timeout_certificate_may_lean_on_what_is_final() -> None:
    bare = replaced(BENCH.timeouts(4, 2), high=None)
    assert [is_certified(bare, BENCH.validators, NAMESPACE, final) for final in (1, 2, 3)] == [False, True, True]


def test_committees_are_those_of_the_schedule() -> None:
    for view in range(1, 12):
        assert tuple(members_of(BENCH.validators, view)) == BENCH.validators.committee(View(view)).members


def test_a_bug_in_the_code_that_is_watched_is_none_of_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted where everybody has it, the monitor included: what votes sign, and what a quorum is."""

    def without_kind(namespace: bytes, kind: VoteKind, view: View, parent_view: View, digest: Digest) -> bytes:
        return vote_signing_bytes(namespace, VoteKind.NOTARIZE, view, parent_view, digest)

    replayed = replaced(BENCH.certificate(NOTARIZE, 1, "b1"), kind=FINALIZE)
    short = BENCH.certificate(NOTARIZE, 1, "b1", signers=range(4))
    with monkeypatch.context() as planted:
        planted.setattr(certificates, "vote_signing_bytes", without_kind)
        planted.setattr(messages, "vote_signing_bytes", without_kind)
        assert believed(replayed)
        assert not is_certified(replayed, BENCH.validators, NAMESPACE, 0)
    with monkeypatch.context() as planted:
        planted.setattr(certificates, "_is_quorum", lambda signers, committee: True)
        assert believed(short)
        assert not is_certified(short, BENCH.validators, NAMESPACE, 0)


def test_it_takes_no_rule_from_the_code_that_is_watched() -> None:
    tree = ast.parse(Path(certificate_audit.__file__).read_text(encoding="utf-8"))
    taken = {name.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names}
    assert taken == {"annotations", "Final", "ValidatorSet", "AnyCertificate", "Certificate", "TimeoutCertificate"}
    called = {
        node.func.attr for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert not called & {"committee", "votes", "verify_vote"}
