"""Each behaviour alone against three honest validators, as many as may be together against five, and one too many.

Alone they are the scenarios that ship, ``scenarios/byzantine-BEHAVIOUR.yaml``.
"""

from __future__ import annotations

import pytest

from cluster.audit.books import keep_books
from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.misbehaviour.byzantine.registry import BEHAVIOURS
from cluster.scenario.files import load_scenario
from cluster.watches.watched_simulation import simulate
from consensus.protocols import PROTOCOLS
from tests.cluster.misbehaviour.byzantine.runs import SEED, faults_of, run, run_with, scenario, shipped
from tests.tiers.turns import by_turns

BYZANTINE = 3
"""The byzantine one of four."""

COUNTED: dict[str, set[str]] = {
    "equivocating-leader": {"evidence_ConflictingNotarize"},
    "conflicting-voter": {"conflict", "evidence_ConflictingNotarize", "evidence_ConflictingFinalize"},
    "nullify-and-finalize": {"evidence_NullifyAndFinalize"},
    "vote-withholder": set(),
    "silent-leader": set(),
    "forgetful-leader": set(),
    "invalid-block-bad-root": {"invalid_block", "evidence_InvalidBlock"},
    "invalid-block-bad-transaction": {"invalid_block", "evidence_InvalidBlock"},
    "invalid-block-bad-header": {"invalid_block", "evidence_InvalidBlock"},
    "invalid-block-oversized": {"oversized"},
    "wrong-epoch": {"bad_signature"},
    "signature-forger": {"not_the_signer", "bad_signature", "bad_certificate"},
    "stale-replayer": {"not_the_signer"},
    "selective-sender": set(),
    "twins": {"conflict", "evidence_ConflictingNotarize"},
    "garbage": {"undecodable", "oversized", "bad_block", "bad_transactions"},
    "false-snapshots": {"bad_chunk"},
    "short-certificate": {"bad_certificate"},
    "double-signer": {"bad_certificate"},
    "outsider": {"not_a_member"},
    "kind-replayer": {"bad_certificate"},
    "sister-chain": {"bad_certificate"},
    "timeout-forger": {"bad_certificate"},
    "false-high-certificate": {"bad_certificate"},
    "understated-timeouts": {"bad_certificate", "undecodable"},
    "lock-breaker": set(),
    "invalid-block-any-field": {"invalid_block", "evidence_InvalidBlock"},
    "false-proposer": {"invalid_block", "evidence_InvalidBlock"},
    "unproved-snapshot": {"bad_offer"},
    "false-manifest": {"bad_manifest"},
    "unproved-view": {"bad_view"},
    "unproved-blocks": {"bad_final_blocks"},
    "greedy-asker": set(),
    "old-nullifications": set(),
}
"""What honest validators must count of each behaviour, at least; nothing at all where nothing wrong is said."""


HOTSTUFF_PROVES_OTHERWISE = ("nullify-and-finalize",)


def _tier(place: int, name: str, protocol: str) -> pytest.MarkDecorator:
    return pytest.mark.slow if BEHAVIOURS[name].protocol else by_turns(place, protocol)


CHEAP = (("equivocating-leader", "simplex"), ("garbage", "simplex"), ("timeout-forger", "hotstuff"))
RUNS = [
    pytest.param(name, protocol, marks=[] if (name, protocol) in CHEAP else _tier(place, name, protocol))
    for place, name in enumerate(sorted(BEHAVIOURS))
    for protocol in PROTOCOLS
    if BEHAVIOURS[name].protocol in ("", protocol)
]
"""Each behaviour with each protocol that has the messages for it. Most are slow with one, and with the other soak."""
PROVABLE = ("equivocating-leader", "conflicting-voter", "nullify-and-finalize", "twins")
"""Those that contradict themselves."""


@pytest.mark.parametrize("name", sorted(BEHAVIOURS))
def test_a_behaviour_alone_ships(name: str) -> None:
    plan = shipped(name)
    assert plan.name == f"byzantine-{name}"
    lies = [plan.validators.node(index).byzantine for index in range(plan.validators.count)]
    assert lies == [[], [], [], [name], *[[]] * (len(lies) - 4)]


@pytest.mark.parametrize(("name", "protocol"), RUNS)
def test_a_behaviour_alone_takes_effect_and_is_withstood(name: str, protocol: str) -> None:
    record = run_with(name, protocol=protocol)
    verdict = check_run(record)
    assert verdict.outcome is Outcome.PASS, verdict
    assert f"validator-3: {name} took effect " in verdict.check("byzantine").detail
    for check in ("agreement", "state_roots"):
        detail = verdict.check(check).detail
        assert f"{len(record.validators) - 1} honest validators (" in detail
        assert "not of validator-3, byzantine)" in detail


@pytest.mark.parametrize(("name", "protocol"), RUNS)
def test_what_is_wrong_is_counted_against_its_sender_and_nobody_else(name: str, protocol: str) -> None:
    record = run_with(name, protocol=protocol)
    counted = faults_of(record)
    expected = {"evidence_FinalizeAndTimeout"} if name in HOTSTUFF_PROVES_OTHERWISE else COUNTED[name]
    assert (expected if protocol == "hotstuff" else COUNTED[name]) <= set(counted)
    assert bool(COUNTED[name]) == bool(counted)
    honest = [validator for validator in record.validators if not validator.byzantine]
    blamed = {peer for validator in honest for peer in (validator.status or {})["faults_by_peer"]}
    assert blamed <= {str(BYZANTINE)}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_votes_for_views_far_ahead_are_counted_by_their_sender(protocol: str) -> None:
    pages = [validator.status or {} for validator in run_with("garbage", protocol=protocol).validators]
    others = [validator.status or {} for validator in run_with("silent-leader", protocol=protocol).validators]
    for page, other in zip(pages[:BYZANTINE], others[:BYZANTINE], strict=True):
        assert page["dropped"]["future"] > 10 > other["dropped"].get("future", 0)
        assert sum(page["dropped"].values()) == sum(page["dropped_by_peer"].values())
        assert page["dropped_by_peer"][str(BYZANTINE)] > page["dropped"]["future"] / 2


@pytest.mark.parametrize(("name", "protocol"), RUNS)
def test_what_is_owed_is_proved(name: str, protocol: str) -> None:
    record = run_with(name, protocol=protocol)
    found = keep_books(record).proofs
    assert all(proof.holds and proof.culprit == BYZANTINE for proof in found)
    owed = (record.validators[BYZANTINE].status or {})["byzantine"]["expected_evidence"]
    if name in PROVABLE:
        assert owed >= 3
        assert found
        assert {proof.finder for proof in found} <= {f"validator-{index}" for index in range(BYZANTINE)}


@pytest.mark.slow
def test_another_seed_gives_another_run_and_the_same_seed_the_same() -> None:
    names = ("equivocating-leader", "twins", "garbage", "selective-sender")
    first, second = run_with(*names), run_with.__wrapped__(*names)
    assert first is not second
    assert first.digest == second.digest
    assert first.validators == second.validators
    assert run_with(*names, seed=SEED + 1).digest != first.digest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("twins", "equivocating-leader"),
        ("equivocating-leader", "conflicting-voter"),
        ("nullify-and-finalize", "selective-sender"),
        ("invalid-block-bad-root", "stale-replayer"),
        ("signature-forger", "wrong-epoch"),
        ("short-certificate", "kind-replayer"),
    ],
)
def test_as_many_as_may_be_are_withstood_together(one: str, other: str) -> None:
    verdict = check_run(run(scenario(7, {2: one, 5: other})))
    assert verdict.outcome is Outcome.PASS, verdict


def test_one_more_than_may_be_breaks_agreement_and_the_check_says_so() -> None:
    colluding: dict[int, str | list[str]] = {2: ["equivocating-leader", "conflicting-voter"], 3: "conflicting-voter"}
    plan = scenario(4, colluding, allow_more_faults=True, height=80)
    plan = plan.model_copy(update={"stop": plan.stop.model_copy(update={"timeout_s": 9})})
    record = run(plan)
    verdict = check_run(record)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.check("agreement").verdict is Outcome.FAIL
    assert verdict.check("safety").verdict is Outcome.FAIL
    assert "different blocks at height" in verdict.check("agreement").detail
    assert verdict.check("evidence").verdict is Outcome.PASS
    assert {proof.culprit for proof in keep_books(record).proofs} == {2, 3}, "both can be held to account for it"


def test_an_outsider_is_not_heard_in_certificates_either() -> None:
    """Each of the three others looks at one, and at no other for many views."""
    assert faults_of(run_with("outsider"))["bad_certificate"] == 3


def test_the_drill_that_ships_breaks_agreement_and_says_so() -> None:
    plan = load_scenario("byzantine-drill")
    verdict = check_run(simulate(plan, plan.seed))
    assert verdict.outcome is Outcome.FAIL
    assert verdict.check("byzantine").verdict is Outcome.PASS
    assert verdict.check("agreement").verdict is Outcome.FAIL
