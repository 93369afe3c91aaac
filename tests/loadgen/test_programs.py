"""The workload ``program``: Python actors from the genesis on, called as the scenario says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from loadgen.workloads import LoadPlan, LoadUser, Observation
from loadgen.workloads.actor_program import source_of
from loadgen.workloads.user import MAX_UNCONFIRMED
from validator.chain.transactions import Call, parse
from validator.pvm.runtime.values import decode_value

SEED = 3
START = Observation(1, 0, 1_000_000, 1_000_000, 1_000_000)
PAY = {"handler": "pay", "payload": {"amount": {"random": [3, 9]}, "note": {"turn": "t"}, "to": {"account": 1}}}


def plan(*calls: dict[str, Any], **options: Any) -> LoadPlan:
    given = {"program": "token", "setup": [{"handler": "create"}], "calls": list(calls), **options}
    users = [{"workload": "program", "options": given}, {"workload": "transfer"}]
    return LoadPlan.model_validate({"users": users})


def calls_of(user: LoadUser, turns: int) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for turn in range(turns):
        observation = replace(START, height=turn + 1, confirmed_nonce=len(found))
        for wire in user.next_transactions(observation):
            action = parse(wire, "chain").action
            assert isinstance(action, Call)
            assert action.to == user.actor
            found.append((action.handler, decode_value(action.payload)))
    return found


def test_the_genesis_holds_the_program_and_plain_users_keep_the_script() -> None:
    codes = [actor.code for actor in plan().genesis_actors(SEED).values()]
    assert codes == [source_of("token"), "builtin:script"]


def test_calls_are_made_in_turn_with_what_stands_for_users_and_draws() -> None:
    approve = {"handler": "approve", "payload": {"amount": 5, "spender": {"actor": 1}}}
    made = plan(PAY, approve)
    users = made.build_users(SEED, "chain")
    (first, *calls) = calls_of(users[0], 5)
    assert first == ("create", None)
    assert [handler for handler, _ in calls] == ["approve", "pay", "approve", "pay"]
    payments = [payload for handler, payload in calls if handler == "pay"]
    assert all(payment["to"] == users[1].address and 3 <= payment["amount"] <= 9 for payment in payments)
    assert len({payment["note"] for payment in payments}) == 2
    assert calls[0][1] == {"amount": 5, "spender": users[1].actor}
    assert calls_of(made.build_users(SEED, "chain")[0], 5) == [first, *calls], "the same from the same seed"


def test_a_text_is_joined_of_what_stands_for_its_parts() -> None:
    note = {"handler": "pay", "payload": {"text": [{"turn": "deal-"}, " ", 5, " ", {"account": 1}, {"hex": "0f"}]}}
    made = plan(note, setup=[])
    users = made.build_users(SEED, "chain")
    address = users[1].address.hex()
    assert calls_of(users[0], 2) == [("pay", f"deal-1 5 {address}0f"), ("pay", f"deal-2 5 {address}0f")]


def test_without_calls_the_setup_is_all() -> None:
    assert calls_of(plan().build_users(SEED, "chain")[0], 4) == [("create", None)]


@pytest.mark.parametrize(
    ("calls", "options", "what"),
    [
        ([], {"program": "nothing"}, "unknown program 'nothing'; known: bidding_agent, escrow, "),
        ([{"handler": "pay", "payload": {"actor": 7}}], {}, "there is no user 7, the last is 1"),
        ([{"handler": "pay", "payload": {"hex": "0"}}], {}, "non-hexadecimal number"),
        ([{"handler": "pay", "payload": {"random": [9, 3]}}], {}, "is no pair of least and most"),
        ([{"handler": "pay", "payload": {"account": -1}}], {}, "is no number of a user"),
        ([{"handler": "pay", "payload": {"text": ["a", None]}}], {}, "text: None is no text, bytes or number"),
        ([{"handler": "pay", "payload": {"text": "a"}}], {}, "text: 'a' is no list of texts"),
        ([{"handler": "pay", "payload": {"text": [{"account": 9}]}}], {}, "there is no user 9"),
        ([{"handler": "pay", "payload": 1.5}], {}, "no value for a handler: ValueInvalid"),
        ([{"handler": ""}], {}, "at least 1 character"),
        ([{"handler": "pay", "gas_limit": 1}], {}, "greater than or equal to 1000"),
    ],
)
def test_what_cannot_be_is_refused(calls: list[dict[str, Any]], options: dict[str, Any], what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        plan(*calls, **options)


# --- runners ----------------------------------------------------------------------------------------------------------

JOBS = (b"a" * 32, b"b" * 32)


def served(**options: Any) -> LoadPlan:
    users = [
        {"workload": "program", "options": {"program": "price_oracle"}},
        {"workload": "runner", "count": 2, "options": {"serves": 0, **options}},
    ]
    return LoadPlan.model_validate({"users": users})


def test_runners_are_registered_and_look_at_whom_they_serve() -> None:
    made = served()
    oracle, *runners = made.build_users(SEED, "chain")
    assert made.genesis_runners(SEED) == tuple(sorted(runner.address for runner in runners))
    assert {runner.actor for runner in runners} == {oracle.actor}
    assert plan().genesis_runners(SEED) == ()


def test_a_runner_answers_each_job_once_with_a_number_of_its_own() -> None:
    runners = served(least=5, most=90).build_users(SEED, "chain")[1:]
    given = []
    for runner in runners:
        assert runner.next_transactions(START) == []
        wires = runner.next_transactions(replace(START, open_jobs=JOBS))
        assert runner.next_transactions(replace(START, open_jobs=JOBS)) == [], "answered already"
        answers = [parse(wire, "chain").action for wire in wires]
        assert [answer.handler for answer in answers if isinstance(answer, Call)] == ["submit_result"] * 2
        results = [decode_value(answer.payload) for answer in answers if isinstance(answer, Call)]
        assert [job_id for job_id, _ in results] == list(JOBS)
        assert all(5 <= int.from_bytes(result, "big") <= 90 and len(result) == 8 for _, result in results)
        given.append(results)
    assert given[0] != given[1]


def job_ids(wires: list[bytes]) -> list[bytes]:
    actions = [parse(wire, "chain").action for wire in wires]
    return [decode_value(action.payload)[0] for action in actions if isinstance(action, Call)]


def test_an_answer_that_was_refused_is_given_again() -> None:
    runner = served().build_users(SEED, "chain")[1]
    observation = replace(START, open_jobs=JOBS)
    first, second = runner.next_transactions(observation)
    runner.rejected(second)
    assert job_ids(runner.next_transactions(observation)) == [JOBS[1]]
    runner.rejected(first)
    assert job_ids(runner.next_transactions(observation)) == list(JOBS), "with what came after it"
    assert runner.next_transactions(observation) == []


def test_jobs_beyond_what_a_user_may_have_under_way_are_answered_later() -> None:
    runner = served().build_users(SEED, "chain")[1]
    many = tuple(bytes([number]) * 32 for number in range(MAX_UNCONFIRMED + 5))
    observation = replace(START, open_jobs=many)
    assert job_ids(runner.next_transactions(observation)) == list(many[:MAX_UNCONFIRMED])
    assert runner.next_transactions(observation) == []
    later = replace(observation, height=2, confirmed_nonce=MAX_UNCONFIRMED)
    assert job_ids(runner.next_transactions(later)) == list(many[MAX_UNCONFIRMED:])


def test_a_runner_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValidationError, match="least: 9 is above most"):
        served(least=9, most=5)
    with pytest.raises(ValidationError, match="there is no user 7"):
        served(serves=7)
