"""The monitor names each thing that must not be, and says nothing of a right run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cluster.audit.books import final_queries
from cluster.audit.safety import certified_chain
from cluster.audit.safety.certified_chain import CertifiedChain
from cluster.audit.safety.rule_log import RuleLog
from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.record.archive import BlockRecord
from cluster.record.rules import SafetyRule as Rule
from cluster.record.run import JoinRecord, MonitorRecord
from cluster.scenario import Scenario
from cluster.scenario.files import load_scenario
from cluster.watches import safety_monitor
from cluster.watches.safety_monitor import FIGURES, SafetyMonitor
from cluster.watches.watched_simulation import WatchedSimulation
from consensus.keys import KeyedHashScheme
from consensus.messages import AnyCertificate, Certificate, VoteKind, vote_signing_bytes
from consensus.types import Digest, ValidatorIndex, View
from tests.cluster.records import ChainMaker, fires_too, ledger_of, make_chain, make_genesis, make_record
from tests.consensus.bench import FINALIZE, NAMESPACE, NOTARIZE, NULLIFY, HotStuffBench, block, shortened
from validator.chain.block import Block, Header, header_hash
from validator.chain.genesis import Genesis
from validator.chain.records import TIMER, account_key, timer_key
from validator.chain.transactions import address_of
from validator.node.events import BlockFinal
from validator.primitives.codec import decode, encode
from validator.primitives.types import ZERO_HASH, Height
from validator.state import HistoryError
from validator.state.proof import ProofError
from validator.storage.archive import ArchivedBlock

SMOKE = Path(__file__).resolve().parents[3] / "scenarios" / "smoke.yaml"
BENCH = HotStuffBench()


def leader(view: View) -> int:
    """As in made chains."""
    return view % 4


def make_monitor(genesis: Genesis) -> SafetyMonitor:
    """Of the bench's four validators."""
    log = RuleLog(lambda: 7.0)
    return SafetyMonitor(CertifiedChain(BENCH.validators, NAMESPACE, leader, log), genesis, log, 256)


def monitor() -> SafetyMonitor:
    """Of the bench's four validators, over the genesis of made chains."""
    return make_monitor(make_genesis())


def told(*certificates: AnyCertificate) -> list[str]:
    """What the monitor says of certificates that a validator believes, one after the other."""
    watching = monitor()
    for certificate in certificates:
        watching.certificates.certified("alice", certificate)
    return watching.log.violations


def test_right_certificates_are_believed() -> None:
    good = [BENCH.certificate(NOTARIZE, 1, "b1"), BENCH.certificate(FINALIZE, 1, "b1"), BENCH.certificate(NULLIFY, 2)]
    assert told(*good, *good) == []
    assert told(BENCH.certificate(NOTARIZE, 3, "b3"), BENCH.certificate(NULLIFY, 3)) == [], "both may exist"
    assert told(good[0], good[1], BENCH.timeouts(2, 1), BENCH.timeouts(3, 1)) == []


def small(certificate: Certificate) -> Certificate:
    return shortened(certificate, 2)


@pytest.mark.parametrize(
    ("certificates", "what"),
    [
        ([small(BENCH.certificate(NULLIFY, 1))], "certificates: alice believes a bad nullify certificate of view 1"),
        ([BENCH.certificate(NOTARIZE, 1, "b1"), BENCH.certificate(NOTARIZE, 1, "x")], "two notarized"),
        ([BENCH.certificate(FINALIZE, 1, "b1")], "notarized_first: alice finalises view 1"),
        (
            [BENCH.certificate(NOTARIZE, 1, "b1"), BENCH.certificate(FINALIZE, 1, "x")],
            "another block than it notarized",
        ),
        (
            [BENCH.certificate(NOTARIZE, 1, "b1"), BENCH.certificate(FINALIZE, 1, "b1"), BENCH.certificate(NULLIFY, 1)],
            "skips: view 1 is nullified and final",
        ),
        (
            [BENCH.certificate(NULLIFY, 1), BENCH.certificate(NOTARIZE, 1, "b1"), BENCH.certificate(FINALIZE, 1, "b1")],
            "skips: view 1 is final and nullified",
        ),
        (
            [BENCH.certificate(NOTARIZE, 5, "b5"), BENCH.certificate(FINALIZE, 5, "b5"), BENCH.timeouts(6, 4)],
            "timeouts of view 6 go back to 4, past final 5",
        ),
        (
            [BENCH.timeouts(6, 4), BENCH.certificate(NOTARIZE, 5, "b5"), BENCH.certificate(FINALIZE, 5, "b5")],
            "view 5 is final, which timeouts of view [6] did not know",
        ),
    ],
)
def test_wrong_certificates_are_named(certificates: list[AnyCertificate], what: str) -> None:
    violations = told(*certificates)
    assert any(what in violation for violation in violations), violations


def test_a_timeout_below_a_view_that_was_final_later_is_no_fault() -> None:
    certificates = [BENCH.certificate(NOTARIZE, 5, "b5"), BENCH.certificate(FINALIZE, 5, "b5")]
    assert told(*certificates, BENCH.timeouts(3, 1)) == []


# --- final blocks -----------------------------------------------------------------------------------------------------


def archived(record: BlockRecord) -> ArchivedBlock:
    return ArchivedBlock(record.block, record.receipts, b"", record.computed_root)


def with_header(record: BlockRecord, change: Callable[[Header], Header]) -> BlockRecord:
    block = decode(record.block, Block)
    return replace(record, block=encode(msgspec.structs.replace(block, header=change(block.header))))


def follow(maker: ChainMaker, watching: SafetyMonitor | None = None) -> SafetyMonitor:
    watching = watching or make_monitor(maker.genesis)
    for height, record in enumerate(maker.blocks, start=1):
        watching.final("alice", height, archived(record))
        watching.final("bob", height, archived(record))
    return watching


def certificate_of(kind: VoteKind, record: BlockRecord, name: str | None = None) -> Certificate:
    """A quorum's for a block of a made chain, whose views are heights; with a name, for another of its view."""
    header = decode(record.block, Block).header
    view = header.view
    digest = Digest(header_hash(header)) if name is None else block(name)
    message = vote_signing_bytes(NAMESPACE, kind, View(view), View(view - 1), digest)
    signatures = {ValidatorIndex(index): BENCH.signers[index].sign(message) for index in range(3)}
    return Certificate.of(kind, View(view), View(view - 1), digest, signatures)


def test_a_right_chain_is_followed() -> None:
    watching = follow(make_chain())
    assert watching.log.violations == []
    assert watching.log.counts["roots"] == 2 * watching.log.counts["ancestry"] == 24


def test_the_books_are_lent_for_the_very_blocks_that_they_are_of() -> None:
    maker = make_chain()
    watching, blocks = follow(maker), maker.blocks
    lent = watching.ledger_of(blocks)
    assert lent is not None and final_queries(lent) == final_queries(ledger_of(maker.genesis, blocks))
    others: tuple[list[Any], ...]
    others = ([], blocks[:-1], [*blocks, blocks[-1]], [*blocks[:-1], replace(blocks[-1], receipts=b"")])
    assert [watching.ledger_of(other) for other in others] == [None] * 4
    watching.final("carol", 6, archived(replace(blocks[5], computed_root=bytes(32))))
    assert watching.ledger_of(blocks) is None, "something was wrong"


def test_what_differs_between_validators_is_named() -> None:
    maker = make_chain()
    watching = follow(maker)
    other = with_header(maker.blocks[4], lambda header: msgspec.structs.replace(header, view=99))
    watching.final("carol", 5, archived(other))
    watching.final("dave", 6, archived(replace(maker.blocks[5], computed_root=bytes(32))))
    watching.final("erin", 7, ArchivedBlock(b"noise", b"", b"", b""))
    assert [violation.split(": ", 1)[1] for violation in watching.log.violations] == [
        "agreement: carol has another final block at height 5",
        "roots: dave computed another root at 6",
        "agreement: erin has another final block at height 7",
    ]


@pytest.mark.parametrize("height", [1, 7])
def test_a_block_with_another_parent_is_named(height: int) -> None:
    maker = make_chain()
    maker.blocks[height - 1] = with_header(
        maker.blocks[height - 1], lambda header: msgspec.structs.replace(header, parent_hash=bytes(32))
    )
    what = f"ancestry: the final block at height {height} does not build"
    assert any(what in violation for violation in follow(maker).log.violations)


def test_a_block_before_the_one_below_it_is_named() -> None:
    maker = make_chain()
    gap = make_monitor(maker.genesis)
    gap.final("alice", 3, archived(maker.blocks[2]))
    assert any("height 3 comes before the one below it" in violation for violation in gap.log.violations)


def test_a_final_block_of_another_than_its_views_leader_is_named() -> None:
    maker = ChainMaker()
    maker.seal()
    maker.seal(proposer=3)
    assert follow(maker).log.violations == [
        "7 ms: leaders: the final block at height 2 is of validator 3, 2 leads view 2"
    ]


def test_who_diverged_may_speak_again_after_a_restart_and_not_before() -> None:
    watching = monitor()
    watching.said("alice", 1)
    watching.diverged("alice", 1)
    watching.said("bob", 1)
    watching.said("alice", 2)
    assert watching.log.violations == []
    watching.said("alice", 1)
    assert watching.log.violations == ["7 ms: silence: alice diverged and takes part all the same"]


def skipping_chain() -> ChainMaker:
    """The block of height 2 is of view 5."""
    maker = ChainMaker()
    for view in (1, 5):
        maker.seal(view=view, proposer=leader(View(view)))
    return maker


@pytest.mark.parametrize(
    ("certificates", "is_justified"),
    [
        ([], False),
        ([BENCH.certificate(NULLIFY, 2), BENCH.certificate(NULLIFY, 4)], False),
        ([BENCH.certificate(NULLIFY, view) for view in (2, 3, 4)], True),
        ([BENCH.timeouts(4, 1)], True),
        ([BENCH.timeouts(4, 2)], False),
        ([BENCH.timeouts(3, 1)], False),
    ],
)
def test_a_skip_takes_the_certificates_for_it(certificates: list[AnyCertificate], is_justified: bool) -> None:
    maker = skipping_chain()
    watching = make_monitor(maker.genesis)
    for certificate in certificates:
        watching.certificates.certified("alice", certificate)
    violations = follow(maker, watching).log.violations
    assert violations == ([] if is_justified else [violations[0]])
    assert is_justified or "skips from view 1 to 5 without the certificates for it" in violations[0]


def test_views_must_ascend() -> None:
    maker = ChainMaker()
    for view in (4, 4):
        maker.seal(view=view)
    watching = make_monitor(maker.genesis)
    watching.certificates.certified("alice", BENCH.timeouts(3, 0))
    assert any(
        "is of view 4, its parent of view 4" in violation for violation in follow(maker, watching).log.violations
    )


def test_final_blocks_that_no_finalization_proves_are_named() -> None:
    maker = make_chain(4)
    watching = follow(maker)
    assert watching.log.counts["proved_final"] == 4
    assert watching.log.violations == [], "a finalization may still come"
    assert watching.record().violations == [
        "7 ms: proved_final: 4 blocks from height 1 on were made final, and no validator knows a finalization"
    ]
    for kind in (NOTARIZE, FINALIZE):
        watching.certificates.certified("alice", certificate_of(kind, maker.blocks[1]))
    assert "2 blocks from height 3 on" in watching.record().violations[0]
    for kind in (NOTARIZE, FINALIZE):
        watching.certificates.certified("alice", certificate_of(kind, maker.blocks[3]))
    assert watching.record().violations == []
    assert watching.log.counts["certified"] == 6, (
        "a finalization is held against the block together with its notarization"
    )


@pytest.mark.parametrize("is_first", [True, False])
def test_a_final_block_that_its_view_certified_another_of_is_named(is_first: bool) -> None:
    maker = make_chain(4)
    watching = monitor() if is_first else follow(maker)
    for kind in (NOTARIZE, FINALIZE):
        watching.certificates.certified("alice", certificate_of(kind, maker.blocks[2], "another"))
    if is_first:
        follow(maker, watching)
    assert set(watching.log.violations) == {
        f"7 ms: certified: view 3 {verb} another block than was made final" for verb in ("notarizes", "finalises")
    }


@pytest.mark.parametrize("is_first", [True, False])
def test_a_finalised_view_that_the_chain_passes_over_is_named(is_first: bool) -> None:
    maker = ChainMaker()
    for view in (1, 3):
        maker.seal(view=view)
    watching = monitor()
    watching.certificates.certified("alice", BENCH.timeouts(2, 1))
    if not is_first:
        follow(maker, watching)
    for kind in (NOTARIZE, FINALIZE):
        watching.certificates.certified("alice", BENCH.certificate(kind, 2, "b2"))
    if is_first:
        follow(maker, watching)
    words = "height 2 passes it over" if is_first else "no final block is of it"
    assert f"7 ms: certified: view 2 is finalised, and {words}" in watching.log.violations


def test_signatures_borrowed_from_another_certificate_are_no_certificate() -> None:
    good = BENCH.certificate(NOTARIZE, 1, "b1")
    borrowed = msgspec.structs.replace(good, digest=block("x"))
    assert any("believes a bad notarize certificate of view 1" in each for each in told(good, borrowed))


def test_proofs_are_asked_for_timers_that_are_there_and_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = ChainMaker()
    gone, kept = maker.schedule(1), maker.schedule(9)
    maker.seal()
    maker.seal()
    watching = follow(maker)
    asked: list[bytes] = []

    def prove(key: bytes, _height: int) -> bytes:
        asked.append(key)
        return b"present" if key == timer_key(kept.timer_id) else b""

    monkeypatch.setattr("cluster.watches.safety_monitor.verify", lambda _root, _key, proof: proof or None)
    watching.check_proofs("alice", 2, 0, prove)
    assert {timer_key(gone.timer_id), timer_key(kept.timer_id)} <= set(asked)
    about_timers = [text for text in watching.log.violations if f"proof of {TIMER.hex()}" in text]
    assert about_timers == []
    monkeypatch.setattr("cluster.watches.safety_monitor.verify", lambda *_: b"present")
    watching.check_proofs("alice", 2, 0, prove)
    assert any(
        f"proof of {timer_key(gone.timer_id).hex()} says the contrary" in text for text in watching.log.violations
    )
    monkeypatch.setattr("cluster.watches.safety_monitor.verify", lambda *_: None)
    watching.check_proofs("alice", 2, 0, prove)
    assert any(
        f"proof of {timer_key(kept.timer_id).hex()} says the contrary" in text for text in watching.log.violations
    )


@pytest.mark.parametrize("is_funded", [True, False])
def test_an_account_that_must_be_there_or_must_not_is_judged(monkeypatch: pytest.MonkeyPatch, is_funded: bool) -> None:
    """Of a validator: of the genesis, or never paid anything."""
    genesis = make_genesis()
    accounts = [address_of(key) for key in genesis.validators]
    if is_funded:
        genesis = replace(genesis, accounts={**genesis.accounts, **dict.fromkeys(accounts, 5)})
    maker = ChainMaker(genesis)
    maker.seal()
    there = {account_key(address) for address in genesis.accounts}
    lie = False

    def prove(key: bytes, _height: int) -> bytes:
        is_validators = key in {account_key(address) for address in accounts}
        return b"present" if (key in there) != (lie and is_validators) else b""

    monkeypatch.setattr("cluster.watches.safety_monitor.verify", lambda _root, _key, proof: proof or None)
    watching = make_monitor(maker.genesis)
    follow(maker, watching).check_proofs("alice", 1, 0, prove)
    assert watching.log.violations == []
    lie = True
    watching.check_proofs("alice", 1, 0, prove)
    assert ["says the contrary" in text for text in watching.log.violations] == [True]


def test_a_height_that_is_promised_and_cannot_be_proved_is_named() -> None:
    watching = follow(make_chain(8))

    def refuse(_key: bytes, height: int) -> bytes:
        raise HistoryError(f"height {height} is not retained")

    watching.check_proofs("alice", 8, 2, refuse)
    for height in (8, 4, 2):
        refused = f"proofs: alice: height {height} cannot be proved: height {height} is not"
        assert any(refused in text for text in watching.log.violations)


def test_no_height_is_asked_for_that_a_validator_need_not_have() -> None:
    """One below the retained heights, or below the snapshot that it joined with."""
    watching, asked = follow(make_chain(8)), set()

    def note(_key: bytes, height: int) -> bytes:
        asked.add(height)
        raise HistoryError("none")

    watching.check_proofs("alice", 8, 6, note)
    assert asked == {8, 6}


@pytest.mark.parametrize("figure", FIGURES.values())
def test_what_a_validator_counts_is_held_against_the_books(figure: str) -> None:
    maker = ChainMaker()
    maker.schedule(1)
    maker.schedule(9)
    maker.seal()
    maker.seal()
    watching = follow(maker)
    blocks = watching.ledger.blocks
    figures = {other: getattr(blocks, own)[1] for own, other in FIGURES.items()}
    right = BlockFinal(Height(2), 2, ZERO_HASH, ZERO_HASH, **figures)
    watching.counts_of("alice", right)
    assert watching.log.violations == []
    watching.counts_of("alice", msgspec.structs.replace(right, **{figure: figures[figure] + 1}))
    (told,) = watching.log.violations
    wrong = f"{figure} {figures[figure] + 1:,} of {figures[figure]:,}"
    assert told.endswith(f"figures: alice counts otherwise than the books at height 2: {wrong}")


def test_what_the_books_find_is_told_at_once() -> None:
    maker = ChainMaker()
    timer = maker.schedule(9)
    maker.seal()
    maker.seal(fires_too(timer))
    violations = follow(maker).log.violations
    assert len(violations) == 1
    assert "ledger: height 2: receipts.fires[0] is 0x" in violations[0]


# --- whole runs -------------------------------------------------------------------------------------------------------


def short_scenario(protocol: str) -> Scenario:
    plan = load_scenario(SMOKE)
    stop = plan.stop.model_copy(update={"height": 20, "drain_blocks": 0})
    consensus = plan.consensus.model_copy(update={"protocol": protocol})
    return plan.model_copy(update={"faults": [], "stop": stop, "consensus": consensus})


@pytest.mark.parametrize("protocol", ["simplex", pytest.param("hotstuff", marks=pytest.mark.slow)])
def test_every_rule_is_looked_at_in_a_run(protocol: str) -> None:
    record = WatchedSimulation(short_scenario(protocol), 3, "test", scheme=KeyedHashScheme()).run()
    assert record.monitor is not None
    assert record.monitor.violations == []
    unseen = [rule for rule in Rule if not record.monitor.counts[rule]]
    assert unseen == [Rule.ABSTENTION, Rule.ANSWERS, Rule.PATIENCE, Rule.REPETITIONS, Rule.BLAMES], (
        "nobody joins, nobody is stuck or blamed, and no view is given up or lasts"
    )
    assert check_run(record).check("safety").verdict is Outcome.PASS


@pytest.mark.slow
def test_a_proof_that_does_not_verify_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = WatchedSimulation(short_scenario("simplex"), 3, "test", scheme=KeyedHashScheme())
    monkeypatch.setattr("cluster.watches.safety_monitor.verify", _refuse)
    record = simulation.run()
    assert record.monitor is not None
    assert any(": proofs: validator-" in violation for violation in record.monitor.violations)
    assert check_run(record).check("safety").verdict is Outcome.FAIL


def _refuse(*_: object) -> bytes:
    raise ProofError("planted")


@pytest.mark.slow
def test_a_proof_that_says_the_contrary_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = WatchedSimulation(short_scenario("simplex"), 3, "test", scheme=KeyedHashScheme())
    monkeypatch.setattr("cluster.watches.safety_monitor.verify", lambda *_: b"something")
    record = simulation.run()
    assert record.monitor is not None
    assert any("says the contrary" in violation for violation in record.monitor.violations)


def test_the_check_says_what_was_watched() -> None:
    record = make_record()
    assert check_run(record).check("safety").verdict is Outcome.PASS
    record.monitor = MonitorRecord(["7 ms: skips: view 1 is final and nullified"], dict.fromkeys(Rule, 3))
    assert check_run(record).check("safety").verdict is Outcome.FAIL
    record.monitor = MonitorRecord([], {**dict.fromkeys(Rule, 3), "proofs": 0})
    check = check_run(record).check("safety")
    assert (check.verdict, check.detail) == (Outcome.INCONCLUSIVE, "never evaluated: proofs")


@pytest.mark.parametrize(("ended_ms", "outcome"), [(None, Outcome.PASS), (9.0, Outcome.INCONCLUSIVE)])
def test_who_joined_must_have_been_watched(ended_ms: float | None, outcome: Outcome) -> None:
    record = make_record()
    record.monitor = MonitorRecord([], {**dict.fromkeys(Rule, 10), "abstention": 0})
    record.joins = [JoinRecord("validator-3", 5, ended_ms=ended_ms)]
    assert check_run(record).check("safety").verdict is outcome


@pytest.mark.parametrize(("count", "outcome"), [(1, Outcome.PASS), (2, Outcome.INCONCLUSIVE)])
def test_only_one_validator_has_nobody_to_agree_with(count: int, outcome: Outcome) -> None:
    record = make_record(count=count)
    record.monitor = MonitorRecord([], {**dict.fromkeys(Rule, 10), "agreement": 0})
    verdict = check_run(record)
    assert [verdict.check(name).verdict for name in ("safety", "coverage")] == [outcome] * 2


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_another_block_is_found_however_late() -> None:
    maker = make_chain(60)
    watching = follow(maker)
    late = with_header(maker.blocks[2], lambda header: msgspec.structs.replace(header, state_root=bytes(32)))
    watching.final("carol", 3, archived(late))
    assert watching.log.violations == ["7 ms: agreement: carol has another final block at height 3"]


def test_a_certificate_of_another_block_is_found_however_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certified_chain, "CERTIFICATES_REMEMBERED", 4)
    maker = make_chain(30)
    watching = follow(maker)
    for record in maker.blocks:
        watching.certificates.certified("alice", certificate_of(NOTARIZE, record))
        watching.certificates.certified("alice", certificate_of(FINALIZE, record))
    assert watching.log.violations == []
    watching.certificates.certified("carol", certificate_of(NOTARIZE, maker.blocks[2]))
    assert watching.log.violations == [], "one that comes again is right again"
    watching.certificates.certified("carol", certificate_of(NOTARIZE, maker.blocks[2], "other"))
    assert any("view 3 has two notarized blocks" in violation for violation in watching.log.violations)


def test_a_block_is_kept_as_a_few_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Receipts of any size: what is kept of them is the same."""

    def kept(receipts: bytes) -> int:
        record = make_chain(1).blocks[0]
        final = safety_monitor._Final.of(
            ArchivedBlock(record.block, receipts, b"", record.computed_root), decode(record.block, Block).header
        )
        return sum(len(part) for part in (final.content, final.block, final.digest, final.state_root))

    assert kept(b"r") == kept(bytes(1_000_000)) == 128
    monkeypatch.setattr(certified_chain, "CERTIFICATES_REMEMBERED", 4)
    watching = follow(make_chain(1))
    for view in range(1, 40):
        watching.certificates.certified("alice", BENCH.certificate(NULLIFY, view))
    assert len(watching.certificates._seen) == 4
