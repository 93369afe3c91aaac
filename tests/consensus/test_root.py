"""A validator that begins with a final block has what opened its first view, and gives it to who is behind."""

from __future__ import annotations

import pytest

from consensus.interface import Finalized, Parent, SendTo, TimerKind
from consensus.journal import encode_record
from consensus.messages import Certificate, CertificateRequest
from consensus.types import View
from tests.consensus.bench import FINALIZE, NOTARIZE, TIMEOUT, Bench, HotStuffBench, block, of

BENCHES = [Bench, HotStuffBench]
ROOT_VIEW = 10
ROOT = Parent(View(ROOT_VIEW), block("b10"))


def begun(bench: type[Bench], name: str = "b10") -> tuple[Bench, Certificate]:
    """A bench that begins with the block of view 10, with a finalization of that view in its journal."""
    certificate = bench().certificate(FINALIZE, ROOT_VIEW, name)
    return bench(journal=[encode_record(certificate)], root=ROOT), certificate


@pytest.mark.parametrize("bench", BENCHES)
def test_the_finalization_of_the_root_is_kept_and_given(bench: type[Bench]) -> None:
    engine, certificate = begun(bench)
    assert engine.engine.view == ROOT_VIEW + 1
    assert engine.engine.certificates.best_of(View(ROOT_VIEW)) == certificate
    assert of(Finalized, engine.effects) == [Finalized(certificate)]
    answers = of(SendTo, engine.receive(2, CertificateRequest((View(ROOT_VIEW),))))
    assert [answer.message for answer in answers] == [certificate]


@pytest.mark.parametrize("bench", BENCHES)
def test_another_blocks_finalization_in_the_roots_view_is_not_taken_for_it(bench: type[Bench]) -> None:
    engine, _ = begun(bench, "other")
    assert engine.engine.certificates.best_of(View(ROOT_VIEW)) is None
    assert engine.engine.certificates.final == ROOT


def test_the_high_block_is_never_below_the_final_one() -> None:
    bench = HotStuffBench()
    journal = [bench.certificate(NOTARIZE, 60, "b60"), bench.certificate(FINALIZE, 100, "b100")]
    again = HotStuffBench(journal=[encode_record(record) for record in journal])
    again.expire(TimerKind.ADVANCE)
    votes = [vote for vote in again.sent(again.effects) if vote.kind == TIMEOUT]
    assert [(vote.view, vote.parent_view) for vote in votes] == [(101, 100)]
