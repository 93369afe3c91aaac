"""What hosts tell of certificates and votes: told in words by the audit, and part of the check *safety* at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from cluster.audit.safety import certified_chain
from cluster.audit.safety.certified_chain import CertifiedChain, claim_of
from cluster.audit.safety.rule_log import RuleLog
from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.live.handover.left import LeftAudit
from cluster.live.handover.rows import Told
from cluster.live.host import observations
from cluster.live.host.observations import (
    MAX_REMEMBERED,
    NOT_TOLD,
    CertificateSeen,
    CertificateTap,
    FirstSeen,
    Observations,
    VoteSent,
)
from cluster.record.rules import WATCHED_LIVE
from cluster.record.run import RunRecord
from cluster.scenario.genesis import validator_signer
from cluster.watches.live import safety_watch as module
from cluster.watches.live.live_audit import LiveAudit
from cluster.watches.live.safety_watch import SafetyWatch
from consensus.keys import Ed25519Scheme
from consensus.messages import Certificate, VoteKind, vote_signing_bytes
from consensus.types import Digest, ValidatorIndex, View
from tests.cluster.live.handover.parts import written_and_read
from tests.cluster.records import ChainMaker, make_chain, make_scenario
from tests.consensus.bench import FINALIZE, NAMESPACE, NOTARIZE, NULLIFY, TIMEOUT, HotStuffBench
from validator.chain.block import Block, header_hash
from validator.primitives.codec import decode

BENCH = HotStuffBench()


def record_of(maker: ChainMaker) -> RunRecord:
    record = RunRecord(make_scenario(), "live", 1, "0123456789ab", maker.genesis)
    for block in maker.blocks:
        record.store.append(block)
    return record


def signed(record: RunRecord, kind: VoteKind, view: int, digest: bytes, by: Sequence[int] = (0, 1, 2)) -> Certificate:
    """A certificate by the validators of made chains, whose parent is the view before."""
    parent = View(0 if kind == NULLIFY else view - 1)
    message = vote_signing_bytes(record.genesis.chain_id.encode(), kind, View(view), parent, Digest(digest))
    signatures = {
        ValidatorIndex(index): validator_signer(Ed25519Scheme(), record.seed, index).sign(message) for index in by
    }
    return Certificate.of(kind, View(view), parent, Digest(digest), signatures)


def watch_of(record: RunRecord) -> SafetyWatch:
    """The watch of validators that sign with the keys of :func:`signed`; made chains have keys that nobody has."""
    keys = tuple(validator_signer(Ed25519Scheme(), record.seed, index).public_key for index in range(4))
    genesis = replace(record.genesis, validators=keys)
    return SafetyWatch(replace(record, genesis=genesis), lambda: 7.0)


def seen(certificate: Certificate, looks_good: bool = True) -> CertificateSeen:
    return CertificateSeen(certificate, looks_good)


def digest_at(record: RunRecord, height: int) -> bytes:
    return header_hash(decode(record.store.at(height).block, Block).header)


def certify(record: RunRecord, watch: SafetyWatch) -> None:
    """Everybody tells the notarization and the finalization of each block."""
    for height in range(1, len(record.store) + 1):
        for kind in (NOTARIZE, FINALIZE):
            certificate = signed(record, kind, height, digest_at(record, height))
            for index in range(4):
                watch.take(index, [seen(certificate)])


def test_two_certificates_that_must_not_exist_together_are_told() -> None:
    record = record_of(make_chain(2))
    audit = LiveAudit(record, lambda: 7.0)
    audit.safety = watch_of(record)
    certify(record, audit.safety)
    audit.look({}, frozenset())
    audit.go_round()
    assert audit.look({}, frozenset()) == []
    assert audit.page["violations"]["safety"] == 0
    audit.safety.take(1, [seen(signed(record, NOTARIZE, 2, bytes(32), (1, 2, 3)))])
    audit.go_round()
    assert audit.look({}, frozenset()) == ["safety: 7 ms: one_block_a_view: view 2 has two notarized blocks"]
    assert audit.page["violations"]["safety"] == 1
    record.monitor = audit.safety.record()
    check = check_run(record).check("safety")
    assert (check.verdict, check.detail) == (Outcome.FAIL, "7 ms: one_block_a_view: view 2 has two notarized blocks")


def test_a_right_run_evaluates_every_rule_that_is_watched_live() -> None:
    record = record_of(make_chain(12))
    watch = watch_of(record)
    certify(record, watch)
    watch.take(0, [VoteSent(View(view), NOTARIZE, View(view - 1), b"b") for view in range(1, 13)])
    watch.look(record.store)
    found = watch.record()
    assert found.violations == []
    assert {rule for rule, count in found.counts.items() if count} == set(WATCHED_LIVE)
    assert found.counts["certificates"] == 24, "one of each statement is judged"


def test_another_driver_goes_on_with_what_was_evaluated_and_found() -> None:
    record = record_of(make_chain(12))
    first = LiveAudit(record, lambda: 7.0)
    first.safety = watch_of(record)
    certify(record, first.safety)
    first.safety.take(0, [VoteSent(View(2), NOTARIZE, View(1), digest) for digest in (b"b", b"c")])
    first.go_round()
    counts = dict(first.safety.log.counts)
    second = LiveAudit(record, lambda: 9.0)
    second.safety = watch_of(record)
    second.take_over(written_and_read(first.state()))
    second.go_round()
    assert second.page["violations"]["safety"] == 1
    found = second.safety.record()
    assert found.violations == first.safety.log.violations != []
    assert found.counts == counts, "blocks are evaluated once by each driver, and count once"


def left_by(watch: SafetyWatch) -> LeftAudit:
    return LeftAudit({}, watch.counts, list(watch.log.violations), watch.backlog.judged)


@pytest.mark.parametrize("is_judged", [False, True])
def test_what_was_told_to_a_driver_that_was_killed_is_judged_by_the_next(tmp_path: Path, is_judged: bool) -> None:
    """Two votes of one view: one was judged, the other was told only, or comes to the next driver."""
    record, told = record_of(make_chain(1)), Told(tmp_path / "told")
    one, other = (VoteSent(View(3), NOTARIZE, View(2), digest) for digest in (b"a", b"b"))
    first = SafetyWatch(record, lambda: 7.0, told)
    first.take(2, [one])
    first.take(2, [FirstSeen(1, 5.0)])
    first.look(record.store)
    state = left_by(first)
    if not is_judged:
        first.take(2, [other])
    told.flush()

    again, rows = Told.reopen(tmp_path / "told")
    second = SafetyWatch(record, lambda: 7.0, again)
    second.take_over(state, rows)
    if is_judged:
        second.take(2, [other])
    second.look(record.store)
    found = second.record()
    assert found.violations == ["7 ms: own_votes: validator-2 notarizes view 3, and did so before with another vote"]
    assert found.counts["own_votes"] == 2, "what was judged counts once"
    third = watch_of(record)
    third.take_over(left_by(second), Told.reopen(tmp_path / "told")[1])
    third.look(record.store)
    assert third.record() == found


def test_another_driver_waits_for_no_certificates_of_views_that_are_in_doubt(now: list[float]) -> None:
    record = skipping()
    watch = watch_of(record)
    watch.heard.note_hosts(HOSTS, now[0])
    watch.heard.doubt(9)
    watch.look(record.store)
    assert (watch._height, ancestry(watch)) == (2, [])


def test_a_certificate_that_is_not_a_quorums_is_told_though_a_good_one_came_first() -> None:
    record = record_of(make_chain(1))
    watch, digest = watch_of(record), digest_at(record, 1)
    bad = signed(record, NOTARIZE, 1, digest, (0, 1))
    watch.take(0, [seen(signed(record, NOTARIZE, 1, digest)), seen(bad, looks_good=False)])
    watch.look(record.store)
    assert watch.log.violations == ["7 ms: certificates: validator-0 believes a bad notarize certificate of view 1"]


def test_votes_that_contradict_earlier_ones_are_told_over_restarts() -> None:
    watch = watch_of(record_of(make_chain(1)))
    watch.take(2, [VoteSent(View(3), NOTARIZE, View(2), b"a"), VoteSent(View(3), NOTARIZE, View(2), b"a")])
    watch.take(2, [VoteSent(View(3), NOTARIZE, NOT_TOLD)])
    watch.take(1, [VoteSent(View(3), NOTARIZE, View(2), b"b")])
    watch.take(2, [VoteSent(View(3), FINALIZE, View(2), b"a")])
    watch.look([])  # type: ignore[arg-type]
    assert watch.log.violations == []
    watch.take(2, [VoteSent(View(3), NOTARIZE, View(2), b"b"), VoteSent(View(3), NULLIFY, View(0))])
    watch.look([])  # type: ignore[arg-type]
    assert watch.log.violations == [
        "7 ms: own_votes: validator-2 notarizes view 3, and did so before with another vote",
        "7 ms: own_votes: validator-2 nullifies view 3, which it voted to finalize",
    ]


def test_what_a_byzantine_validator_says_does_not_count() -> None:
    watch = watch_of(record_of(make_chain(1)))
    watch._byzantine = {2}
    watch.take(2, [VoteSent(View(3), NOTARIZE, View(2), digest) for digest in (b"a", b"b")])
    watch.look([])  # type: ignore[arg-type]
    assert not watch.log.violations and not watch.log.counts


def skipping() -> RunRecord:
    """The block of height 2 is of view 5."""
    maker = ChainMaker()
    for view in (1, 5):
        maker.seal(view=view, proposer=view % 4)
    return record_of(maker)


def ancestry(watch: SafetyWatch) -> list[str]:
    return [violation for violation in watch.log.violations if "ancestry" in violation]


@pytest.mark.parametrize("is_of_run", [True, False])
def test_the_first_block_must_build_on_the_genesis_block(is_of_run: bool) -> None:
    record = record_of(make_chain(2))
    if not is_of_run:
        record = replace(record, genesis=replace(record.genesis, validators=record.genesis.validators[::-1]))
    watch = LiveAudit(record).safety
    watch.look(record.store, is_end=True)
    assert ["height 1 does not build on the one below it" in what for what in ancestry(watch)] == [True] * (
        not is_of_run
    )


HOSTS = frozenset({(0, 1), (1, 2)})


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which the test sets."""
    found = [1_000.0]
    monkeypatch.setattr("cluster.watches.live.safety_watch.time.monotonic", lambda: found[0])
    return found


def test_skipped_views_wait_for_their_certificates(now: list[float]) -> None:
    record = skipping()
    watch = watch_of(record)
    watch.heard.note_hosts(HOSTS, now[0])
    watch.look(record.store)
    assert watch._height == 1
    for view in (2, 3, 4):
        watch.take(0, [seen(signed(record, NULLIFY, view, b""))])
    watch.look(record.store)
    assert (watch._height, ancestry(watch)) == (2, [])


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_skip_that_nobody_certified_is_told_unless_a_process_ended_with_it(now: list[float], is_gone: bool) -> None:
    record = skipping()
    watch = watch_of(record)
    watch.heard.note_hosts(HOSTS, now[0])
    watch.look(record.store)
    now[0] += module.PATIENCE_S + 1
    watch.look(record.store)
    assert watch._height == 1, "a host has not answered since"
    watch.heard.note_hosts(HOSTS - {(0, 1)} if is_gone else HOSTS, now[0])
    watch.look(record.store)
    assert watch._height == 2
    assert bool(ancestry(watch)) != is_gone


@pytest.mark.parametrize("where", [module, observations], ids=["by the driver", "by a host"])
def test_a_skip_whose_certificates_may_have_been_dropped_is_not_told(
    now: list[float], monkeypatch: pytest.MonkeyPatch, where: ModuleType
) -> None:
    record = skipping()
    watch, notes = watch_of(record), Observations()
    monkeypatch.setattr(where, "MAX_WAITING" if where is module else "MAX_OBSERVATIONS", 1)
    for view in (2, 3, 4):
        notes.certified(seen(signed(record, NULLIFY, view, b"")))
    told = notes.drain()
    watch.take(0, told)
    watch.heard.note_hosts(HOSTS, now[0])
    watch.look(record.store)
    assert watch.heard.doubtful_view == 3 + module.VIEWS_UNTOLD
    now[0] += module.PATIENCE_S + 1
    watch.heard.note_hosts(HOSTS, now[0])
    watch.look(record.store)
    assert (watch._height, ancestry(watch)) == (2, [])
    assert notes.drain() == [], "it is said once"


def test_a_process_that_ended_excuses_no_later_view(now: list[float]) -> None:
    record = skipping()
    watch = watch_of(record)
    watch.heard.note_hosts(HOSTS, now[0])
    watch.heard.note_hosts(frozenset(), now[0])
    assert watch.heard.doubtful_view == module.VIEWS_UNTOLD
    watch.heard.doubtful_view = 1
    watch.look(record.store)
    watch.heard.note_hosts(HOSTS, now[0] + module.PATIENCE_S)
    watch.look(record.store)
    assert ancestry(watch)


def test_at_the_end_nothing_is_waited_for(now: list[float]) -> None:
    record = skipping()
    watch = watch_of(record)
    watch.look(record.store, is_end=True)
    assert (watch._height, ancestry(watch)) == (2, [])


@pytest.mark.parametrize("is_gone", [False, True])
def test_final_blocks_that_nobody_proves_final_are_told(now: list[float], is_gone: bool) -> None:
    record = record_of(make_chain(3))
    watch = watch_of(record)
    watch.heard.note_hosts(HOSTS, now[0])
    watch.take(0, [seen(signed(record, kind, 2, digest_at(record, 2))) for kind in (NOTARIZE, FINALIZE)])
    watch.look(record.store)
    assert watch.record().violations == [], "it may still be told"
    watch.heard.note_hosts(frozenset() if is_gone else HOSTS, now[0] + module.PATIENCE_S)
    for _ in range(2):
        watch.look(record.store)
    told = ["7 ms: proved_final: a block of view 3 was made final, and no validator knows a finalization"]
    assert watch.record().violations == ([] if is_gone else told)


def test_a_host_tells_each_statement_once_and_all_that_looks_bad() -> None:
    tap, namespace = CertificateTap(), NAMESPACE
    first, second = (BENCH.certificate(NOTARIZE, 4, "b4", signers=signers) for signers in ((0, 1, 2), (1, 2, 3)))
    assert tap.take(first, BENCH.validators, namespace) == CertificateSeen(first, True)
    assert tap.take(first, BENCH.validators, namespace) is None
    assert tap.take(second, BENCH.validators, namespace) is None, "the same statement"
    small = BENCH.certificate(NOTARIZE, 4, "b4", signers=(0, 1))
    assert tap.take(small, BENCH.validators, namespace) == CertificateSeen(small, False)
    other = BENCH.certificate(NOTARIZE, 4, "x")
    assert tap.take(other, BENCH.validators, namespace) == CertificateSeen(other, True)
    assert claim_of(BENCH.timeouts(6, 4)) == (6, TIMEOUT, 4, b"")


def test_what_a_host_remembers_is_bounded() -> None:
    tap = CertificateTap()
    for view in range(1, MAX_REMEMBERED + 20):
        tap.take(Certificate(NULLIFY, View(view), View(0), Digest(b""), b"", b""), BENCH.validators, NAMESPACE)
    assert len(tap._seen) == len(tap._claims) == MAX_REMEMBERED


def test_views_that_are_long_passed_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certified_chain, "CERTIFICATES_REMEMBERED", 32)
    maker, log = make_chain(1), RuleLog(lambda: 7.0)
    chain = CertifiedChain(BENCH.validators, NAMESPACE, lambda view: view % 4, log, views_kept=8)
    header = decode(maker.blocks[0].block, Block).header
    for height in range(1, 101):
        for kind in (NOTARIZE, FINALIZE):
            chain.certified("alice", BENCH.certificate(kind, height, f"b{height}"))
        chain.final(height, msgspec.structs.replace(header, height=height, view=height), bytes(32))
        held = chain._views.keys() | chain._final_of.keys() | chain._timeouts.keys()
        assert len(held) <= 16 and len(chain._seen) <= 32
    assert not chain.is_news(BENCH.certificate(NOTARIZE, 5, "x")), "nothing is said of views that are forgotten"
