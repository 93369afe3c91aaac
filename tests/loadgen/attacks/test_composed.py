"""The composed attack turn by turn: what each of its options does to the transactions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from loadgen.workloads.attacks.composed import BIDS, Agent, ComposedOptions
from loadgen.workloads.script import encode_script
from tests.loadgen.attacks.test_attacks import PRICE, START, calls, play, schedules, scripts, user_of
from validator.chain.transactions import SCRIPT_CODE, Call, Transfer
from validator.primitives.codec import keccak256
from validator.primitives.types import address_text


def kinds(**options: Any) -> list[list[str]]:
    """The operations of each turn."""
    return [[operation[0] for operation in script] for _, script in scripts(user_of("composed", **options))]


def test_timers_are_due_where_the_options_say() -> None:
    made = schedules(
        user_of("composed", timers=6, due_blocks=10, every_blocks=8, spread_blocks=3, wait_blocks=5), turns=1
    )
    assert [call["height"] for _, call in made] == [16, 17, 18, 16, 17, 18]
    assert all(call["expires_at"] == call["height"] + 5 for _, call in made)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tip_milli": 250}, {"max_fee_per_cycle": 4 * PRICE + PRICE // 4, "max_priority_fee_per_cycle": PRICE // 4}),
        ({"bid": "market"}, {}),
        ({"bid": "urgent"}, {"tier": "urgent"}),
    ],
)
def test_what_timers_bid(options: dict[str, Any], expected: dict[str, Any]) -> None:
    fields = ("max_fee_per_cycle", "max_priority_fee_per_cycle", "tier")
    for _, call in schedules(user_of("composed", timers=2, **options), turns=1):
        assert {name: call[name] for name in fields if name in call} == expected


@pytest.mark.parametrize(("percent", "gas_limit"), [(50, 3_000), (100, 6_000), (200, 12_000), (1_000, 60_000)])
def test_cycles_of_a_fire(percent: int, gas_limit: int) -> None:
    for _, call in schedules(user_of("composed", burn=5_000, gas_percent=percent), turns=1):
        assert call["gas_limit"] == gas_limit


def test_ground_timers_have_the_least_id_of_those_tried() -> None:
    """As the chain makes the ids, if the actor's schedules all went well."""
    user = user_of("composed", timers=3, burn=100, grind=8)
    for nonce, (_, call) in enumerate(schedules(user, turns=2)):
        head, tail = user.actor + call["height"].to_bytes(8, "big"), nonce.to_bytes(8, "big")
        tried = [keccak256(head + encode_script([["burn", 100 + extra]]) + tail) for extra in range(8)]
        assert call["payload"] == [["burn", 100 + tried.index(min(tried))]]
        assert call["gas_limit"] == 1_107


def test_timers_of_the_turn_before_are_cancelled_and_extended() -> None:
    first, second, *_ = kinds(timers=10, cancel_percent=20, extend_percent=50)
    assert first == ["schedule"] * 10
    assert second == ["cancel"] * 2 + ["extend"] * 3 + ["schedule"] * 10


def test_messages_and_payments() -> None:
    user = user_of("composed", timers=1, messages=2, message_bytes=30, drain_percent=10)
    ((_, script),) = scripts(user, turns=1)
    (_, message), _, (_, payment), _ = script
    assert message["to"] == address_text(user.actor) and len(message["payload"]) == 30
    assert payment == {"to": address_text(user.address), "amount": START.actor_balance // 10}


def test_transfers_stand_beside_the_call() -> None:
    actions = [transaction.action for _, transaction in play(user_of("composed", transfers=3), turns=1)]
    assert [type(action) for action in actions] == [Call, Transfer, Transfer, Transfer]
    assert play(user_of("composed", timers=0), turns=3) is not None
    assert [*play(user_of("composed", timers=0), turns=3)] == [], "nothing to do"


def test_reactions_to_backlog_and_price() -> None:
    waiting = user_of("composed", above_backlog=10)
    assert waiting.next_transactions(replace(START, backlog=9)) == []
    assert len(waiting.next_transactions(replace(START, backlog=10))) == 1
    thrifty = user_of("composed", below_price_percent=150)
    assert thrifty.next_transactions(replace(START, basefee_lane_timer=2 * PRICE)) == []
    assert len(thrifty.next_transactions(START)) == 1


@pytest.mark.parametrize("options", [{"write_cells": 5}, {"respawn": 1}, {"jobs": 1}, {"agent": "low"}])
def test_what_scripts_cannot_do_makes_the_actor_a_program(options: dict[str, Any]) -> None:
    user = user_of("composed", timers=4, **options)
    ((handler, payload),) = calls(user, turns=1)
    assert (handler, payload["timers"]) == ("plan", 4)
    code = type(user._workload).actor_code(ComposedOptions.model_validate(options))
    assert code != SCRIPT_CODE
    assert ("get_gas_bid" in code) == ("agent" in options)
    assert (payload["max_fee"] is None) == ("agent" in options), "an agent bids for timers that leave their fees open"


def test_each_agent_has_its_bid_and_others_are_refused() -> None:
    assert BIDS.keys() == set(Agent) - {Agent.NONE}
    with pytest.raises(ValidationError):
        ComposedOptions.model_validate({"agent": "kind"})
