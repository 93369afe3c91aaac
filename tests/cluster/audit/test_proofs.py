"""Proofs served at the end of a run: those of a sound run hold, and each kind of wrong one is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cluster.audit.chains import longest_chain
from cluster.audit.proofs import (
    SERVED_FINALITY,
    SERVED_PROOFS,
    SERVED_RULES,
    Answers,
    Page,
    ProofAudit,
    Unproved,
    timers_at,
    with_answers,
)
from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.record.run import MonitorRecord, RunRecord, ValidatorRecord
from cluster.scenario.files import load_scenario
from cluster.simulation.recorder import _Pages
from cluster.watches.live.collect import ServedOverHttp
from cluster.watches.watched_simulation import WatchedSimulation
from consensus.keys import KeyedHashScheme
from consensus.messages import Certificate, VoteKind, decode, encode
from loadgen.client import NotFound, Refused, ValidatorClient
from tests.cluster.records import ChainMaker, ledger_of, make_record
from validator.chain.records import timer_key

SMOKE = Path(__file__).resolve().parents[3] / "scenarios" / "smoke.yaml"
RETAINED = 8
HASH_BYTES = 32

Finality = tuple[bytes, Sequence[bytes], bytes]


class Ended:
    """A short simulated run whose validators still answer."""

    def __init__(self) -> None:
        plan = load_scenario(SMOKE)
        stop = plan.stop.model_copy(update={"height": 16, "drain_blocks": 0})
        storage = plan.storage.model_copy(update={"retained_heights": RETAINED})
        plan = plan.model_copy(update={"faults": [], "stop": stop, "storage": storage})
        self.simulation = WatchedSimulation(plan, 3, "test", scheme=KeyedHashScheme())
        self.record: RunRecord = self.simulation.run()
        self.chain = longest_chain(self.record.validators)
        self.audit = ProofAudit(self.record, self.chain, ledger_of(self.record.genesis, self.chain))

    def pages(self, index: int) -> _Pages:
        validator = self.simulation.machines[index].validator
        assert validator is not None
        return _Pages(validator.executor.pages)

    def ask(self, server: Any, found: ValidatorRecord | None = None) -> Answers:
        found = self.record.validators[0] if found is None else found
        answers = Answers(found.name)
        assert all(pause is None for pause in self.audit.ask(found, server, answers))
        return answers


@pytest.fixture(scope="module")
def ended() -> Ended:
    return Ended()


class Changed:
    """Serves what a validator does, with changes."""

    def __init__(
        self,
        pages: _Pages,
        finality: Callable[[Finality], Finality | None] = lambda proof: proof,
        proof: Callable[[Page], Page] = lambda page: page,
    ) -> None:
        self.pages, self.change_finality, self.change_proof = pages, finality, proof
        self.asked: list[tuple[bytes, int]] = []

    def finality(self, height: int) -> Finality | None:
        proof = self.pages.finality(height)
        assert proof is not None
        return self.change_finality(proof)

    def proof(self, key: bytes, height: int) -> Page:
        self.asked.append((key, height))
        return self.change_proof(self.pages.proof(key, height))


def test_a_sound_runs_answers_hold_and_are_counted(ended: Ended) -> None:
    monitor = ended.record.monitor
    assert monitor is not None
    assert monitor.violations == []
    assert all(monitor.counts[rule] >= len(ended.record.validators) for rule in SERVED_RULES)
    served = Changed(ended.pages(1))
    found = ended.record.validators[1]
    assert ended.ask(served, found).violations == []
    heights = {height for _, height in served.asked}
    assert max(heights) == found.tip and len(heights) > 1, "of the final height, and of one before"
    assert min(heights) > found.tip - RETAINED
    assert all(len({key for key, at in served.asked if at == height}) >= 2 for height in heights)


def test_a_key_that_is_there_and_one_that_was_never_written_are_asked_for(ended: Ended) -> None:
    told: list[Page] = []
    ended.ask(Changed(ended.pages(0), proof=lambda page: told.append(page) or page))
    for height in {page["height"] for page in told}:
        pages = [page for page in told if page["height"] == height]
        assert any(page["value"] is not None for page in pages)
        drawn = [page for page in pages if len(bytes.fromhex(page["key"])) == HASH_BYTES]
        assert [page["value"] for page in drawn] == [None], "no record has a key of that length"


def certificate_with(**changes: Any) -> Callable[[Finality], Finality]:
    def change(proof: Finality) -> Finality:
        certificate = decode(proof[2])
        assert isinstance(certificate, Certificate)
        made = {name: make(certificate) for name, make in changes.items()}
        return proof[0], proof[1], encode(msgspec.structs.replace(certificate, **made))

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            certificate_with(signers=lambda _: b"\x03", signatures=lambda each: each.signatures[:128]),
            "is not signed by a quorum: [0, ",
        ),
        (certificate_with(kind=lambda _: VoteKind.NOTARIZE), "has no finalization"),
        (certificate_with(view=lambda each: each.view + 1), "is of another block"),
        (certificate_with(digest=lambda _: bytes(32)), "is of another block"),
        (lambda proof: (*proof[:2], b"?"), "cannot be read: undecodable message"),
        (lambda proof: (b"?", *proof[1:]), "is not of the chain's blocks"),
        (lambda proof: (proof[0], [*proof[1], proof[0]], proof[2]), "is not of the chain's blocks"),
    ],
)
def test_a_finality_proof_that_does_not_hold_is_named(ended: Ended, change: Any, words: str) -> None:
    answers = ended.ask(Changed(ended.pages(0), finality=change))
    assert len(answers.violations) == answers.counts[SERVED_FINALITY] > 1
    assert all(text.startswith("at the end: served_finality: validator-0: ") for text in answers.violations)
    assert all(words in text for text in answers.violations)


def test_a_finality_proof_is_of_the_final_block_at_its_height(ended: Ended) -> None:
    other = ended.pages(0).finality(1)
    assert other is not None
    assert ended.ask(Changed(ended.pages(0), finality=lambda _: other)).violations


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda page: page | {"value": "00"}, "proves another value than the page tells"),
        (lambda page: page | {"proof": page["proof"][:-2]}, "does not verify: the proof is cut off"),
        (lambda page: {"value": None}, "cannot be read: KeyError: 'proof'"),
        (lambda page: page | {"proof": 7}, "cannot be read: TypeError"),
    ],
)
def test_a_proof_of_a_key_that_does_not_hold_is_named(ended: Ended, change: Any, words: str) -> None:
    answers = ended.ask(Changed(ended.pages(0), proof=change))
    assert answers.counts[SERVED_PROOFS] == len(answers.violations)
    assert all(words in text for text in answers.violations)


def test_a_proof_of_another_height_is_none(ended: Ended) -> None:
    class Stale(Changed):
        def proof(self, key: bytes, height: int) -> Page:
            return super().proof(key, height - 1)

    assert any("the proof leads to another state root" in text for text in ended.ask(Stale(ended.pages(0))).violations)


def test_the_books_say_what_is_there(ended: Ended, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.audit.proofs.verify", lambda *_: None)
    absent = ended.ask(Changed(ended.pages(0), proof=lambda page: page | {"value": None})).violations
    assert absent and all("says that it is absent, and it is not" in text for text in absent)
    monkeypatch.setattr("cluster.audit.proofs.verify", lambda *_: b"\x01")
    there = ended.ask(Changed(ended.pages(0), proof=lambda page: page | {"value": "01"})).violations
    assert there and all("says that it is there, and it is not" in text for text in there)


def test_who_does_not_serve_a_retained_height_is_named(ended: Ended) -> None:
    class Forgetful(Changed):
        def proof(self, key: bytes, height: int) -> Page:
            raise Unproved(f"height {height} is not retained")

    answers = ended.ask(Forgetful(ended.pages(0)))
    assert len(answers.violations) == answers.counts[SERVED_PROOFS] > 1
    assert "is not retained" in answers.violations[0]


@pytest.mark.parametrize(("status", "is_refused"), [(404, False), (500, True), (503, True)])
def test_over_http_no_proof_is_told_from_a_page_that_failed(
    status: int, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> bytes:
        raise (Refused if is_refused else NotFound)("http://x/y", status, "no")

    with ValidatorClient("http://127.0.0.1:1") as client:
        monkeypatch.setattr(client, "_request", refuse)
        server = ServedOverHttp(client)
        if is_refused:
            with pytest.raises(Unproved, match=f"status {status}: no"):
                server.finality(7)
        else:
            assert server.finality(7) is None
        with pytest.raises(Unproved, match=f"status {status}: no"):
            server.proof(b"k", 7)


def test_who_has_no_finality_proof_is_named_unless_its_newest_blocks_are_proved_by_others() -> None:
    def told(*answers: Answers) -> list[str]:
        return [text.split(": ")[2] for text in with_answers(None, answers).violations]

    def answered(name: str, proved: int, *unproved: int, is_asked: bool = True, awaits: int = 0) -> Answers:
        awaited = frozenset({awaits} - {0})
        return Answers(name, is_asked=is_asked, proved_final=proved, unproved=list(unproved), awaited=awaited)

    assert told(answered("ahead", 9), answered("behind", 6, 7, 8)) == []
    assert told(answered("ahead", 9), answered("behind", 6, 5)) == ["behind"]
    assert told(answered("ahead", 8, 9), answered("behind", 6)) == ["ahead"]
    assert told(answered("ahead", 8, 9), answered("byzantine", 0, is_asked=False)) == []
    assert told(answered("ahead", 8, 9, awaits=9), answered("level", 8, 9)) == [], "a finalization is known"
    assert told(answered("ahead", 8, 7, 9, awaits=9)) == ["ahead"], "that of 8 proves 7, too"


def test_a_block_of_which_a_later_finalization_is_known_awaits_its_proof(ended: Ended) -> None:
    found, silent = ended.record.validators[0], Changed(ended.pages(0), finality=lambda _: None)
    view = ended.audit._view_of(found.tip)
    for final_view, awaits_tip in ((view, False), (view + 1, True)):
        answers = ended.ask(silent, replace(found, status={"final_view": final_view}))
        assert found.tip in answers.unproved
        assert (found.tip in answers.awaited) is awaits_tip


def test_who_is_byzantine_or_diverged_or_has_nothing_is_not_asked(ended: Ended) -> None:
    sound = ended.record.validators[0]
    for found in (
        replace(sound, byzantine=("equivocator",)),
        replace(sound, status={"diverged": {}}),
        replace(sound, blocks=[]),
    ):
        assert not ended.ask(None, found).is_asked


def test_timers_are_there_from_their_schedule_to_their_end() -> None:
    maker = ChainMaker()
    gone, kept = maker.schedule(1), maker.schedule(9)
    maker.seal()
    maker.seal()
    ledger = ledger_of(maker.genesis, maker.blocks)
    gone_key, kept_key = timer_key(gone.timer_id), timer_key(kept.timer_id)
    assert timers_at(ledger, 0) == {}
    assert timers_at(ledger, 1) == {gone_key: True, kept_key: True}
    assert timers_at(ledger, 2) == {gone_key: False, kept_key: True}


@pytest.mark.parametrize(
    ("rule", "outcome"), [("", Outcome.PASS), *((rule, Outcome.INCONCLUSIVE) for rule in SERVED_RULES)]
)
def test_a_live_run_in_which_nothing_was_proved_is_inconclusive(rule: str, outcome: Outcome) -> None:
    record = make_record(backend="live")
    record.monitor = MonitorRecord([], dict.fromkeys(SERVED_RULES, 9) | ({rule: 0} if rule else {}))
    check = check_run(record).check("safety")
    assert check.verdict is (Outcome.INCONCLUSIVE if rule else Outcome.PASS)
    words = f"never evaluated: {rule}" if rule else "served_proofs 9"
    assert check.detail.endswith(words)
