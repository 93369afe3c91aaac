"""The checks ``byzantine`` and ``evidence``, and what the others make of byzantine validators, on synthetic records."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cluster.audit.books import keep_books
from cluster.audit.chains import longest_chain
from cluster.checks.run import check_run
from cluster.checks.verdict import Check
from cluster.record.finalizations import Finalization, Finalizations
from cluster.record.run import FaultRecord, RunRecord
from cluster.record.status import Tally
from cluster.scenario import Scenario
from cluster.scenario.genesis import validator_signer
from cluster.scenario.sections.validators import NodeSection
from consensus.keys import KeyedHashScheme
from consensus.leader import ELECTIONS
from consensus.messages import Evidence, Vote, VoteKind, conflict, encode_evidence, vote_signing_bytes
from consensus.types import Digest, Signature, ValidatorIndex, View
from tests.cluster.checks.cases import FAIL, INCONCLUSIVE, PASS
from tests.cluster.checks.cases import run_check as found
from tests.cluster.misbehaviour.byzantine.runs import run, run_with, scenario
from tests.cluster.records import make_chain, make_record, make_scenario
from validator.chain.block import Block, header_hash
from validator.node.events import EvidenceFound
from validator.node.evidence import INVALID_BLOCK, InvalidBlock, base_digest, decode_misconduct
from validator.primitives.codec import decode, encode

SIGNERS = [KeyedHashScheme().signer(bytes([index]) * 32) for index in range(4)]
NAME = "conflicting-voter"


def byzantine_record(effects: int = 5, expected: int = 3, *, own_keys: bool = True) -> RunRecord:
    """A right run in which the last validator is byzantine.

    With keys that tests can sign for, fees go to other accounts than the books expect.
    """
    nodes = [{}, {}, {}, {"byzantine": NAME}]
    record = make_record(scenario=make_scenario(validators={"count": 4, "nodes": nodes}))
    if own_keys:
        record.genesis = replace(record.genesis, validators=tuple(signer.public_key for signer in SIGNERS))
        record.scheme = KeyedHashScheme()
    record.validators[3].byzantine = (NAME,)
    status_of(record, 3)["byzantine"] = {"took_effect": {NAME: effects}, "expected_evidence": expected}
    return record


def status_of(record: RunRecord, index: int) -> dict[str, Any]:
    status = record.validators[index].status
    assert status is not None
    return status


def evidence_of(record: RunRecord, culprit: int, view: int = 7) -> Evidence:
    namespace = record.genesis.chain_id.encode()

    def vote(digest: bytes) -> Vote:
        subject = (View(view), View(view - 1), Digest(digest * 32))
        signature = SIGNERS[culprit].sign(vote_signing_bytes(namespace, VoteKind.NOTARIZE, *subject))
        return Vote(VoteKind.NOTARIZE, *subject, ValidatorIndex(culprit), signature)

    evidence = conflict(vote(b"a"), vote(b"b"))
    assert evidence is not None
    return evidence


def show(record: RunRecord, finder: int, data: bytes) -> None:
    status_of(record, finder).setdefault("evidence", []).append({"kind": "ConflictingNotarize", "data": data.hex()})


# --- byzantine --------------------------------------------------------------------------------------------------------


def test_a_behaviour_without_effect_makes_the_run_inconclusive() -> None:
    assert found(make_record(), "byzantine") == Check("byzantine", PASS, "the scenario has none", applies=False)
    assert found(byzantine_record(), "byzantine").detail == "validator-3: conflicting-voter took effect 5 times"
    idle = found(byzantine_record(effects=0), "byzantine")
    assert (idle.verdict, idle.detail) == (INCONCLUSIVE, "conflicting-voter of validator-3 had no observable effect")
    silent = byzantine_record()
    silent.validators[3].status = None
    assert found(silent, "byzantine").verdict is INCONCLUSIVE
    silent.validators = []
    assert found(silent, "byzantine").verdict is INCONCLUSIVE


# --- evidence ---------------------------------------------------------------------------------------------------------


def test_expected_evidence_must_be_found() -> None:
    record = byzantine_record()
    assert found(record, "evidence").verdict is FAIL
    assert "evidence against validator-3 is expected for 3 views" in found(record, "evidence").detail
    assert found(replace(record, interrupted=True), "evidence").verdict is INCONCLUSIVE
    assert found(byzantine_record(expected=2), "evidence").verdict is INCONCLUSIVE
    assert found(byzantine_record(expected=0), "evidence").verdict is PASS
    show(record, 1, encode_evidence(evidence_of(record, 3)))
    assert found(record, "evidence").verdict is PASS
    assert "blames byzantine ones alone: validator-3 (1)" in found(record, "evidence").detail


@pytest.mark.kits
def test_evidence_that_blames_an_honest_validator_fails() -> None:
    record = byzantine_record()
    show(record, 0, encode_evidence(evidence_of(record, 3)))
    show(record, 1, encode_evidence(evidence_of(record, 2)))
    check = found(record, "evidence")
    assert check.verdict is FAIL
    assert "validator-1 proves ConflictingNotarize of validator-2 in view 7, which is honest" in check.detail
    nodes = [NodeSection(), NodeSection(), NodeSection(mutant="quorum-of-2f")]
    validators = record.scenario.validators.model_copy(update={"nodes": nodes})
    record.scenario = record.scenario.model_copy(update={"validators": validators})
    assert "of validator-2 in view 7, which runs the planted bug quorum-of-2f" in found(record, "evidence").detail


@pytest.mark.parametrize("how", ["signature", "noise", "another chain"])
def test_evidence_that_does_not_hold_fails(how: str) -> None:
    record = byzantine_record()
    evidence = evidence_of(record, 3)
    if how == "signature":
        first = msgspec.structs.replace(evidence.first, signature=Signature(bytes(64)))
        data = encode_evidence(type(evidence)(first, evidence.second))
    else:
        data = b"noise" if how == "noise" else encode_evidence(evidence)
    if how == "another chain":
        record.scheme = KeyedHashScheme()
        record.genesis = replace(record.genesis, chain_id="another")
    show(record, 0, data)
    assert found(record, "evidence").verdict is FAIL
    assert "which does not hold" in found(record, "evidence").detail


def test_what_a_byzantine_validator_shows_is_no_evidence() -> None:
    record = byzantine_record(expected=0)
    show(record, 3, encode_evidence(evidence_of(record, 1)))
    assert found(record, "evidence").verdict is PASS


def test_votes_that_waited_for_an_uplink_may_have_come_too_late_to_be_compared() -> None:
    record = byzantine_record()
    links = record.scenario.links.model_copy(update={"uplink_kbps": 500})
    record.scenario = record.scenario.model_copy(update={"links": links})
    assert found(record, "evidence").verdict is INCONCLUSIVE


def test_who_was_cut_off_told_perhaps_nobody() -> None:
    record = byzantine_record()
    assert found(record, "evidence").verdict is FAIL
    cut = FaultRecord("one_way_partition", "validator-3 > all", 3, begun_ms=100.0, ended_ms=900.0)
    cut.impaired = ("validator-3",)
    record.faults.append(cut)
    assert found(record, "evidence").verdict is INCONCLUSIVE


# --- the other checks -------------------------------------------------------------------------------------------------


def test_nothing_that_a_byzantine_validator_serves_counts() -> None:
    record, sound = byzantine_record(expected=0, own_keys=False), byzantine_record(expected=0, own_keys=False)
    liar = record.validators[3]
    other = make_chain(8)
    for _ in range(9):
        other.seal(view=100)
    liar.blocks = list(other.blocks)
    liar.balances = dict.fromkeys(liar.balances, 1)
    liar.pending_timers = dict.fromkeys(liar.pending_timers, True)
    status_of(record, 3).update(height=17, pending_timers=99, diverged={"height": 2, "reason": "I say so"})
    record.finalizations = Finalizations(seen for seen in record.finalizations if seen.validator != 3)
    record.finalizations.append(Finalization(1_000_000.0, 3, 17))
    assert longest_chain(record.validators) == longest_chain(sound.validators[:3])
    assert check_run(record).outcome is PASS, check_run(record)
    assert keep_books(record).common_height == 12
    for name in ("agreement", "state_roots", "timers"):
        assert found(record, name) == found(sound, name)
    assert "12 heights of 3 honest validators (not of validator-3, byzantine)" in found(record, "agreement").detail


def test_honest_validators_that_differ_fail_whatever_the_byzantine_one_serves() -> None:
    record = byzantine_record(expected=0)
    other = make_chain(8)
    while len(other.blocks) < 12:
        other.seal(view=100)
    record.validators[1].blocks = list(other.blocks)
    assert found(record, "agreement").verdict is FAIL


# --- live -------------------------------------------------------------------------------------------------------------


def test_twins_are_refused_on_the_live_testnet_in_one_line() -> None:
    problem = scenario(4, {2: ["garbage", "twins"]}).live_problem
    assert problem is not None
    assert problem.startswith("validators.nodes[2].byzantine: twins runs in the simulator only: ")
    assert scenario(4, {2: ["garbage", "equivocating-leader"]}).live_problem is None


EPOCHS = [
    {"from_view": 5, "members": ["validator-0", "validator-2", "validator-3", "validator-4"]},
    {"from_view": 12, "members": ["validator-0", "validator-1", "validator-2", "validator-3"]},
]


def changing_run(election: str, epochs: list[dict[str, Any]]) -> RunRecord:
    fields = scenario(5, {3: "invalid-block-bad-root"}).model_dump(mode="json", exclude_unset=True)
    fields["consensus"] |= {"leader_election": election}
    fields["validators"] |= {"epochs": epochs}
    return run(Scenario.model_validate(fields))


@pytest.mark.slow
@pytest.mark.parametrize("election", sorted(ELECTIONS))
@pytest.mark.parametrize("epochs", [pytest.param([], id="one committee"), pytest.param(EPOCHS, id="committees")])
def test_a_proof_of_an_invalid_block_is_judged_on_the_runs_own_chain(
    election: str, epochs: list[dict[str, Any]]
) -> None:
    record = changing_run(election, epochs)
    shown = [proof for proof in keep_books(record).proofs if proof.kind == INVALID_BLOCK]
    assert len(shown) > 3
    assert {(proof.culprit, proof.holds) for proof in shown} == {(3, True)}

    # an honest leader's block, said to be invalid
    chain = longest_chain(record.validators)
    body, above = chain[9].block, chain[10].block
    header = decode(body, Block).header
    subject = (View(header.view), View(header.view - 1), Digest(header_hash(header)))
    signed = vote_signing_bytes(record.genesis.chain_id.encode(), VoteKind.NOTARIZE, *subject)
    signature = validator_signer(record.scheme, record.seed, 0).sign(signed)
    vote = Vote(VoteKind.NOTARIZE, *subject, ValidatorIndex(0), signature)
    for bodies in ((body,), (body, above), (chain[8].block, body)):
        false = replace(record, validators=[replace(validator) for validator in record.validators])
        finder = false.validators[1]
        data = encode(InvalidBlock(vote, bodies)).hex()
        finder.status = {**status_of(record, 1), "evidence": [{"kind": INVALID_BLOCK, "data": data}]}
        assert found(false, "evidence").verdict is FAIL
        assert found(false, "evidence").detail == "validator-1 shows InvalidBlock, which does not hold"


def test_a_proof_on_a_block_that_nobody_served_cannot_be_judged() -> None:
    record = run_with("invalid-block-bad-root")
    true = [each for validator in record.validators[:3] for each in status_of(record, validator.index)["evidence"]]
    last = max(true, key=lambda each: decode_misconduct(bytes.fromhex(each["data"])).vote.view)
    base = base_digest(decode_misconduct(bytes.fromhex(last["data"])))
    short = replace(record, validators=[replace(validator) for validator in record.validators])
    for validator in short.validators:
        hashes = [header_hash(decode(block.block, Block).header) for block in validator.blocks]
        assert base in hashes
        validator.blocks = validator.blocks[: hashes.index(base)]
    assert [proof.holds for proof in keep_books(short).proofs].count(None) >= 1
    assert all(proof.holds is not False for proof in keep_books(short).proofs)
    check = found(short, "evidence")
    assert (check.verdict, "on a block that no validator served" in check.detail) == (INCONCLUSIVE, True)


# --- memory -----------------------------------------------------------------------------------------------------------


def test_status_pages_stay_bounded_however_much_is_proved() -> None:
    record = run_with("conflicting-voter")
    for validator in record.validators[:3]:
        status = validator.status
        assert status is not None
        assert status["faults"]["evidence_ConflictingNotarize"] > 10
        shown = Counter(each["kind"] for each in status["evidence"])
        assert shown == {"ConflictingNotarize": 4, "ConflictingFinalize": 4}


def test_one_who_is_proved_guilty_often_does_not_hide_another() -> None:
    record = byzantine_record()
    tally = Tally()
    for view in range(1, 200):
        tally.note(EvidenceFound("ConflictingNotarize", 3, encode_evidence(evidence_of(record, 3, view))))
    tally.note(EvidenceFound("ConflictingNotarize", 2, encode_evidence(evidence_of(record, 2))))
    assert len(tally.evidence) == 5
    assert tally.crimes == {("ConflictingNotarize", 3): 199, ("ConflictingNotarize", 2): 1}
