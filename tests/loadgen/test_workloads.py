"""Workloads: deterministic, well-formed, and never dearer than their limits, by the cost table of SPEC §2."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from blake3 import blake3
from pydantic import ValidationError

from loadgen.workloads import FUNDING, WORKLOADS, LoadPlan, LoadUser, Observation
from tests.hangs import HANGS_AFTER_S
from validator.chain.transactions import Call, Transaction, Transfer, parse
from validator.primitives.params import DEFAULTS
from validator.primitives.types import AMOUNT_LIMIT, is_reserved

CHAIN_ID = "chain"
SEED = 11
FIRE_CAP = DEFAULTS.max_cycles_per_fire_auction_phase
FEE_LIMIT = 2**96
START = Observation(1, 0, 1_000_000, 1_000_000, 1_000_000)

PLAN = LoadPlan.model_validate(
    {
        "users": [
            {"workload": "heartbeat", "count": 6},
            {"workload": "heartbeat", "options": {"beats": 20, "every": 1_000, "burn": 100_000}},
            {"workload": "heartbeat", "options": {"beats": 1, "burn": 0}},
            {"workload": "flood", "count": 2},
            {"workload": "flood", "options": {"timers": 1_000, "burn": 0, "spread_blocks": 1}},
            {"workload": "flood", "options": {"timers": 2, "payload_bytes": 100_000, "burn": 200_000}},
            {"workload": "flood", "options": {"explicit_percent": 100, "sender_percent": 100}},
            {"workload": "churn", "count": 2},
            {"workload": "churn", "options": {"timers": 100, "cancel_percent": 0}},
            {"workload": "transfer", "count": 2},
            {"workload": "storm", "options": {"in_all": 10_000}},
        ]
    }
)


def test_each_workload_that_ships_is_registered_by_its_own_name() -> None:
    assert [kind.name for kind in WORKLOADS.shipped.values()] == list(WORKLOADS.shipped)


def play(user: LoadUser, turns: int = 12) -> list[tuple[Observation, bytes]]:
    """What a user sends on a chain that makes everything final within a turn."""
    sent: list[tuple[Observation, bytes]] = []
    observation = START
    for turn in range(turns):
        basefee = observation.basefee_cycle * 9 // 8
        observation = replace(
            observation, height=turn + 1, confirmed_nonce=len(sent), basefee_cycle=basefee, live_timers=turn * 3
        )
        sent += [(observation, wire) for wire in user.next_transactions(observation)]
    return sent


# --- costs and form, from the specification alone -------------------------------------------------------------------


def strict_json(text: str) -> Any:
    """JSON as SPEC §2 wants a script: no duplicate keys, no fractions, at most 64 levels."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs)
        return dict(pairs)

    def no_number(number: str) -> Any:
        raise AssertionError(number)

    text.encode("ascii")
    value = json.loads(text, object_pairs_hook=unique, parse_float=no_number, parse_constant=no_number)
    assert levels(value) <= 64
    return value


def levels(value: Any) -> int:
    if not isinstance(value, list | dict):
        return 0
    return 1 + max((levels(item) for item in (value.values() if isinstance(value, dict) else value)), default=0)


class PaperActor:
    """Adds up a script's cost from SPEC §2's table and checks each operation's form on the way."""

    def __init__(self, height: int) -> None:
        self.height = height
        self.cycles = 0
        self.cells = 0
        self.timers = 0
        self.allowance = 0

    def run(self, script: Any) -> None:
        assert isinstance(script, list)
        for operation in script:
            self._perform(operation)

    def _perform(self, operation: list[Any]) -> None:
        name, *arguments = operation
        if name == "try":
            self._perform(*arguments)
        elif name == "burn":
            (cycles,) = arguments
            assert cycles >= 0
            self.cycles += cycles
        elif name == "set":
            key, value = arguments
            self.cycles += 200
            self.cells += len(key.encode()) + len(value.encode())
        elif name == "emit":
            event, text = arguments
            assert 1 <= len(event) <= 256
            self.cycles += 50
            self.cells += len(text.encode())
        elif name in ("cancel", "extend"):
            (call,) = arguments
            assert set(call) == {"saved"} | ({"expires_at"} if name == "extend" else set())
            assert call.get("expires_at", 2**62) > self.height
            self.cycles += 500 + 10
        else:
            assert name == "schedule"
            self._schedule(*arguments)

    def _schedule(self, call: dict[str, Any]) -> None:
        payload = json.dumps(call["payload"], separators=(",", ":"))
        self.timers += 1
        self.cycles += 1_000
        self.cells += len(payload)
        if "save_as" in call:
            self.cycles += 200
            self.cells += len(call["save_as"]) + 64
        assert call["in"] >= 1
        assert call.get("expires_at", 2**62) >= self.height + call["in"]
        assert call.get("tier") in (None, "economy", "standard", "fast", "urgent")
        assert not ("tier" in call and "max_priority_fee_per_cycle" in call)
        for field in ("max_fee_per_cycle", "max_priority_fee_per_cycle", "payer_cap"):
            assert 0 <= call.get(field, 0) < FEE_LIMIT
        if call.get("fee_payer") == "sender":
            assert call["payer_cap"] >= 1
            self.allowance += call["payer_cap"]
        self._check_fire(payload, call)

    def _check_fire(self, payload: str, call: dict[str, Any]) -> None:
        """The fire, on its own: it must get through with the gas limit that it was given."""
        fire = PaperActor(self.height)
        fire.run(strict_json(payload))
        used = 1_000 + fire.cycles
        assert max(1_000, used) == call["gas_limit"] <= FIRE_CAP
        assert fire.cells <= DEFAULTS.max_cells_per_fire


@pytest.mark.parametrize("number", range(PLAN.user_count))
def test_every_transaction_is_within_its_limits(number: int) -> None:
    (user,) = PLAN.build_users(SEED, CHAIN_ID, numbers=[number])
    sent = play(user)
    assert len(sent) == 12
    for nonce, (observation, wire) in enumerate(sent):
        transaction = parse(wire, CHAIN_ID)
        assert (transaction.nonce, transaction.sender) == (nonce, user.address)
        check_admission(transaction, observation)
        if isinstance(transaction.action, Call):
            check_call(transaction, transaction.action, user, observation)
        else:
            assert isinstance(transaction.action, Transfer)
            assert transaction.gas_limit == 1_000 and transaction.value >= 1


def check_admission(transaction: Transaction, observation: Observation) -> None:
    """SPEC §2, with the basefees doubled meanwhile."""
    cycle, cell = 2 * observation.basefee_cycle, 2 * observation.basefee_cell
    assert transaction.max_fee_per_cycle >= cycle + transaction.max_priority_fee_per_cycle
    assert transaction.max_fee_per_cell >= cell
    assert transaction.gas_limit <= DEFAULTS.lane_user_cycles
    assert transaction.cells_limit <= DEFAULTS.lane_user_cells
    tip = transaction.max_priority_fee_per_cycle
    cost = transaction.gas_limit * (cycle + tip) + transaction.cells_limit * cell
    assert transaction.value + cost < FUNDING // 1_000


def check_call(transaction: Transaction, call: Call, user: LoadUser, observation: Observation) -> None:
    assert call.to == user.actor
    actor = PaperActor(observation.height)
    actor.run(strict_json(call.payload.decode()))
    assert transaction.gas_limit == 1_000 + actor.cycles
    assert transaction.cells_limit == len(call.payload) + actor.cells
    assert transaction.timer_allowance == actor.allowance
    assert actor.timers <= DEFAULTS.max_timers_per_actor - observation.live_timers


def test_a_full_actor_gets_no_more_timers() -> None:
    full = replace(START, live_timers=DEFAULTS.max_timers_per_actor)
    for user in PLAN.build_users(SEED, CHAIN_ID):
        wires = user.next_transactions(full)
        assert len(wires) == (1 if user.workload == "transfer" else 0)


def test_what_the_workloads_are_for() -> None:
    """Floods have both kinds of pricing and payer, churn both cancels and extends, heartbeats every tier."""
    sent: dict[str, str] = dict.fromkeys(WORKLOADS, "")
    for user in PLAN.build_users(SEED, CHAIN_ID):
        for _, wire in play(user, turns=3):
            action = parse(wire, CHAIN_ID).action
            sent[user.workload] += action.payload.decode() if isinstance(action, Call) else ""
    for tier in ("economy", "standard", "fast", "urgent"):
        assert f'"tier":"{tier}"' in sent["heartbeat"]
    flood = sent["flood"]
    assert 0 < flood.count('"max_fee_per_cycle"') < flood.count('["schedule"')
    assert 0 < flood.count('"fee_payer":"sender"') < flood.count('["schedule"')
    assert '["cancel"' in sent["churn"] and '["extend"' in sent["churn"]
    storm = sent["storm"]
    assert 0 < storm.count('"payer_cap":1') < storm.count('["schedule"')
    assert storm.count('"expires_at"') == storm.count('["schedule"') - storm.count('"payer_cap":1')


def test_watches_are_allowed_and_forbidden_and_their_limits_suffice_for_all_watchers() -> None:
    options = {"timers": 8, "forbid_percent": 30, "life_blocks": 5}
    plan = LoadPlan.model_validate({"users": [{"workload": "watch", "count": 3, "options": options}]})
    watched, kinds = set(), Counter[str]()
    for user in plan.build_users(SEED, CHAIN_ID):
        for observation, wire in play(user):
            transaction = parse(wire, CHAIN_ID)
            check_admission(transaction, observation)
            assert isinstance(transaction.action, Call)
            script = strict_json(transaction.action.payload.decode())
            for name, *arguments in (operation[1] if operation[0] == "try" else operation for operation in script):
                kinds[f"{name} {arguments[1]}" if name == "allow_watching" else name] += 1
                if name == "schedule":
                    watched.add(arguments[0]["watch"]["actor"])
                    assert arguments[0]["expires_at"] == observation.height + 5
            assert transaction.gas_limit >= 1_000 + 200 + 200 + 8 * 1_000 + 200 * (1 + 64)
    assert kinds["schedule"] == 8 * 12 * 3
    assert kinds["set"] == 12 * 3
    assert kinds["allow_watching True"] + kinds["allow_watching False"] == 2 * 12 * 3
    assert kinds["allow_watching False"] > 3
    assert 3 < kinds["send"] < 30
    assert len(watched) == 3


def test_an_actor_without_room_schedules_no_watches() -> None:
    plan = LoadPlan.model_validate({"users": [{"workload": "watch"}]})
    (user,) = plan.build_users(SEED, CHAIN_ID)
    (wire,) = user.next_transactions(replace(START, live_timers=DEFAULTS.max_timers_per_actor))
    action = parse(wire, CHAIN_ID).action
    assert isinstance(action, Call)
    assert b'["schedule"' not in action.payload


def test_a_storm_ends() -> None:
    plan = LoadPlan.model_validate({"users": [{"workload": "storm", "options": {"timers": 30, "in_all": 70}}]})
    (user,) = plan.build_users(SEED, CHAIN_ID)
    actions = [parse(wire, CHAIN_ID).action for _, wire in play(user, turns=6)]
    sizes = [action.payload.count(b'["schedule"') for action in actions if isinstance(action, Call)]
    assert sizes == [30, 30, 10]


@pytest.mark.parametrize("percent", [100, 115, 400])
def test_what_a_storm_bids(percent: int) -> None:
    options = {"timers": 50, "bid_percent": percent}
    plan = LoadPlan.model_validate({"users": [{"workload": "storm", "options": options}]})
    (user,) = plan.build_users(SEED, CHAIN_ID)
    ((observation, wire),) = play(user, turns=1)
    price = user._workload.member.lane_price(observation)
    action = parse(wire, CHAIN_ID).action
    assert isinstance(action, Call)
    bids = [
        (b'"payer_cap":1' in timer, int(fee[1]))
        for timer in action.payload.split(b'["schedule"')[1:]
        if (fee := re.search(rb'"max_fee_per_cycle":(\d+)', timer))
    ]
    assert len(bids) == 50
    assert set(bids) == {(True, 4 * price), (False, price * percent // 100)}


# --- determinism ----------------------------------------------------------------------------------------------------


def test_equal_seeds_give_equal_transactions() -> None:
    def played(seed: int) -> list[list[tuple[Observation, bytes]]]:
        return [play(user, turns=4) for user in PLAN.build_users(seed, CHAIN_ID)]

    assert played(1) == played(1)
    assert not set(played(1)[0]) & set(played(2)[0])


_DIGEST = """
import sys
from blake3 import blake3
from tests.loadgen.test_workloads import CHAIN_ID, PLAN, play
digest = blake3()
for user in PLAN.build_users(5, CHAIN_ID):
    for _, wire in play(user, turns=3):
        digest.update(wire)
print(digest.hexdigest(), "locust" in sys.modules, "gevent" in sys.modules)
"""


def test_hash_seeds_do_not_matter_and_locust_is_not_imported() -> None:
    def run(hash_seed: str) -> str:
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        return subprocess.run(
            [sys.executable, "-c", _DIGEST],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=HANGS_AFTER_S,
        ).stdout

    digest = blake3()
    for user in PLAN.build_users(5, CHAIN_ID):
        for _, wire in play(user, turns=3):
            digest.update(wire)
    assert run("1") == run("2") == f"{digest.hexdigest()} False False\n"


def test_users_do_not_depend_on_who_else_is_built() -> None:
    everybody = PLAN.build_users(SEED, CHAIN_ID)
    some = PLAN.build_users(SEED, CHAIN_ID, numbers=range(1, PLAN.user_count, 3))
    assert [user.number for user in some] == list(range(1, PLAN.user_count, 3))
    for user in some:
        same = everybody[user.number]
        assert (user.address, user.actor, user.first_delay_ms) == (same.address, same.actor, same.first_delay_ms)
        assert play(user, turns=3) == play(same, turns=3)


def test_genesis() -> None:
    accounts, actors = PLAN.genesis_accounts(SEED), PLAN.genesis_actors(SEED)
    users = PLAN.build_users(SEED, CHAIN_ID)
    assert list(accounts) == [user.address for user in users]
    assert list(actors) == [user.actor for user in users]
    assert not set(accounts) & set(actors)
    for address in (*accounts, *actors):
        assert len(address) == 20 and not is_reserved(address)
    assert {actor.code for actor in actors.values()} == {"builtin:script"}
    assert [actor.deployer for actor in actors.values()] == list(accounts)
    total = sum(accounts.values()) + sum(actor.balance for actor in actors.values())
    assert total < AMOUNT_LIMIT
    assert 20_000 * FUNDING < AMOUNT_LIMIT
    assert not set(accounts) & set(PLAN.genesis_accounts(SEED + 1))
    assert all(0 <= user.first_delay_ms < 1_000 for user in users)


def test_an_empty_plan() -> None:
    plan = LoadPlan()
    assert plan.genesis_accounts(1) == {} and plan.genesis_actors(1) == {} and plan.build_users(1, CHAIN_ID) == []


def test_a_budget_is_shared_by_the_users_of_a_group() -> None:
    group = {"workload": "flood", "count": 3, "budget": 1_000}
    plan = LoadPlan.model_validate({"users": [{"workload": "flood"}, group]})
    assert list(plan.genesis_accounts(SEED).values()) == [FUNDING, 167, 167, 167]
    assert [actor.balance for actor in plan.genesis_actors(SEED).values()] == [FUNDING, 166, 166, 166]
    (same,) = LoadPlan.model_validate({"users": [{"workload": "flood"}]}).build_users(SEED, CHAIN_ID)
    assert play(plan.build_users(SEED, CHAIN_ID)[0], turns=2) == play(same, turns=2), "a budget changes nobody else"


def test_a_plan_tells_attackers_from_others() -> None:
    groups = [{"workload": "flood"}, {"workload": "storm", "count": 2}, {"workload": "transfer"}]
    plan = LoadPlan.model_validate({"users": groups})
    assert plan.attackers == (1, 2)
    accounts, actors = list(plan.genesis_accounts(SEED)), list(plan.genesis_actors(SEED))
    assert plan.attacking_addresses(SEED) == {*accounts[1:3], *actors[1:3]}


# --- plans ----------------------------------------------------------------------------------------------------------


def test_a_plan_survives_json() -> None:
    assert LoadPlan.model_validate(PLAN.model_dump()) == PLAN
    assert LoadPlan.model_validate_json(PLAN.model_dump_json()) == PLAN


@pytest.mark.parametrize(
    ("given", "place", "words"),
    [
        ({"user": []}, ("user",), "Extra inputs are not permitted"),
        ({"processes": 0}, ("processes",), "greater than or equal to 1"),
        ({"processes": "2"}, ("processes",), "valid integer"),
        ({"users": {}}, ("users",), "valid list"),
        ({"users": [{}]}, ("users", 0, "workload"), "Field required"),
        (
            {"users": [{"workload": "nope"}]},
            ("users", 0, "workload"),
            f"known: {', '.join(sorted(WORKLOADS))}",
        ),
        ({"users": [{"workload": "flood", "count": 0}]}, ("users", 0, "count"), "greater than or equal to 1"),
        ({"users": [{"workload": "flood", "interval_ms": 1.5}]}, ("users", 0, "interval_ms"), "valid integer"),
        ({"users": [{"workload": "flood", "options": 3}]}, ("users", 0, "options"), "valid dictionary"),
        ({"users": [{"workload": "flood", "budget": 0}]}, ("users", 0, "budget"), "greater than or equal to 1"),
        (
            {"users": [{"workload": "transfer"}, {"workload": "flood", "options": {"beats": 3}}]},
            ("users", 1, "options", "beats"),
            "Extra inputs are not permitted",
        ),
        (
            {"users": [{"workload": "heartbeat", "options": {"beats": 21}}]},
            ("users", 0, "options", "beats"),
            "less than or equal to 20",
        ),
        (
            {"users": [{"workload": "flood", "options": {"burn": True}}]},
            ("users", 0, "options", "burn"),
            "valid integer",
        ),
        (
            {"users": [{"workload": "flood", "options": {"timers": 1_000, "payload_bytes": 1_000}}]},
            ("users", 0, "options"),
            "a burst of 1000 timers with payload_bytes 1000 takes up to 1200000 bytes, expected at most 250000",
        ),
        (
            {"users": [{"workload": "transfer", "count": 60_000}, {"workload": "flood", "count": 40_001}]},
            (),
            "users: 100001 users in all, expected at most 100000",
        ),
    ],
)
def test_wrong_plans(given: dict[str, Any], place: tuple[str | int, ...], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        LoadPlan.model_validate(given)
    (problem,) = caught.value.errors(include_url=False, include_context=False)
    assert problem["loc"] == place
    assert words in problem["msg"]
