"""Attacks without a chain: the same bytes from the same seed, within the limits, and what each sets out to do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from pydantic.fields import FieldInfo

from loadgen.workloads import FUNDING, WORKLOADS, LoadPlan, LoadUser, Observation
from loadgen.workloads.script import cost_of
from tests.hangs import HANGS_AFTER_S
from tests.validator.chains import Chain, make_genesis
from validator.chain.transactions import SCRIPT_CODE, Call, Transaction, Transfer, least_replacement_fee, parse
from validator.primitives.params import DEFAULTS
from validator.primitives.types import Address, address_text
from validator.pvm.deployment import refusal
from validator.pvm.runtime.values import decode_value

CHAIN_ID = "chain"
SEED = 7
BUDGET = 10**18
PRICE = 1_000_000
START = Observation(1, 0, PRICE, PRICE, PRICE, balance=BUDGET // 2, actor_balance=BUDGET // 2)
ATTACKS = [name for name, workload in WORKLOADS.items() if workload.is_attack]
PAGE = Path(__file__).resolve().parents[3] / "docs" / "attacks.md"


def plan_of(name: str, options: dict[str, Any] | None = None, count: int = 1) -> LoadPlan:
    group = {"workload": name, "count": count, "options": options or {}, "budget": BUDGET}
    return LoadPlan.model_validate({"users": [group]})


def user_of(name: str, **options: Any) -> LoadUser:
    (user,) = plan_of(name, options).build_users(SEED, CHAIN_ID)
    return user


def play(user: LoadUser, turns: int = 6, start: Observation = START) -> Iterator[tuple[Observation, Transaction]]:
    """What a user sends, with three blocks between two turns, on a chain that takes whatever may run."""
    confirmed, observation = 0, start
    for turn in range(turns):
        observation = replace(
            observation, height=start.height + 3 * turn, confirmed_nonce=confirmed, live_timers=turn * 3
        )
        for wire in user.next_transactions(observation):
            transaction = parse(wire, CHAIN_ID)
            confirmed += transaction.nonce == confirmed
            yield observation, transaction


def scripts(user: LoadUser, turns: int = 6, start: Observation = START) -> list[tuple[Observation, list[Any]]]:
    """The scripts that it runs, without their ``try``."""
    found = []
    for observation, transaction in play(user, turns, start):
        assert isinstance(transaction.action, Call)
        script = json.loads(transaction.action.payload)
        found.append((observation, [step[1] if step[0] == "try" else step for step in script]))
    return found


def schedules(user: LoadUser, turns: int = 6) -> list[tuple[Observation, dict[str, Any]]]:
    """The timers that its scripts schedule."""
    return [
        (observation, step[1])
        for observation, script in scripts(user, turns)
        for step in script
        if step[0] == "schedule"
    ]


def calls(user: LoadUser, turns: int = 3) -> list[tuple[str, Any]]:
    """The handlers of its Python actor that it calls, and their arguments."""
    actions = [transaction.action for _, transaction in play(user, turns)]
    return [(action.handler, decode_value(action.payload)) for action in actions if isinstance(action, Call)]


# --- all attacks ----------------------------------------------------------------------------------------------------


def bounds_of(field: FieldInfo) -> tuple[int, int] | None:
    least = [rule.ge for rule in field.metadata if hasattr(rule, "ge")]
    most = [rule.le for rule in field.metadata if hasattr(rule, "le")]
    return (least[0], most[0]) if least and most else None


def extremes(name: str) -> list[dict[str, int]]:
    """The defaults; each option at its least and at its greatest; all of them at once."""
    fields = WORKLOADS[name].options_type.model_fields
    bounds = {field: found for field, rules in fields.items() if (found := bounds_of(rules)) and field != "target"}
    single = [{field: value} for field, pair in bounds.items() for value in pair]
    return [{}, *single, *({field: pair[side] for field, pair in bounds.items()} for side in (0, 1))]


@pytest.mark.parametrize("name", ATTACKS)
def test_every_numeric_option_has_a_range(name: str) -> None:
    for field, rules in WORKLOADS[name].options_type.model_fields.items():
        assert rules.annotation is not int or bounds_of(rules), field
        assert not rules.is_required(), "an attack can be named without options"


@pytest.mark.parametrize("name", ATTACKS)
def test_equal_seeds_and_observations_give_equal_bytes(name: str) -> None:
    def wires(seed: int) -> list[bytes]:
        return [
            wire
            for user in plan_of(name, count=2).build_users(seed, CHAIN_ID)
            for height in (1, 4, 7, 11)
            for wire in user.next_transactions(replace(START, height=height))
        ]

    assert wires(SEED) == wires(SEED) != wires(SEED + 1)


_DIGEST = """
from blake3 import blake3
from tests.loadgen.attacks.test_attacks import digest_of_all
print(digest_of_all(), end="")
"""


def digest_of_all() -> str:
    digest = blake3()
    for name in ATTACKS:
        for user in plan_of(name).build_users(SEED, CHAIN_ID):
            for height in (1, 4, 17):
                digest.update(b"".join(user.next_transactions(replace(START, height=height))))
    return digest.hexdigest()


@pytest.mark.slow
def test_hash_seeds_do_not_matter() -> None:
    def run(hash_seed: str) -> str:
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", _DIGEST]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=HANGS_AFTER_S
        ).stdout

    assert run("1") == run("2") == digest_of_all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_whatever_the_options_transactions_fit_their_lane(name: str) -> None:
    """A script's limits are its exact cost, which the chain would refuse otherwise."""
    for options in extremes(name):
        for _, transaction in play(user_of(name, **options), turns=4):
            assert DEFAULTS.tx_base_cycles <= transaction.gas_limit <= DEFAULTS.lane_user_cycles, options
            assert transaction.cells_limit <= DEFAULTS.lane_user_cells, options
            action = transaction.action
            if isinstance(action, Call) and action.handler == "run":
                cost = cost_of(json.loads(action.payload))
                assert transaction.gas_limit == DEFAULTS.tx_base_cycles + cost.cycles, options
                assert transaction.cells_limit == len(action.payload) + cost.cells, options


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_whatever_the_options_the_first_turn_gets_through(name: str) -> None:
    """On a chain with the default parameters: cycles and cells are enough, and by default every timer is taken."""
    for options in extremes(name):
        plan = plan_of(name, options)
        genesis = make_genesis(accounts=plan.genesis_accounts(SEED))
        chain = Chain(replace(genesis, actors=plan.genesis_actors(SEED)))
        (user,) = plan.build_users(SEED, CHAIN_ID)
        sent = [parse(wire, CHAIN_ID) for wire in user.next_transactions(replace(START, height=0))]
        for transaction in [each for each in sent if each.nonce == 0][:1]:
            (receipt,) = chain.block(transaction).receipts.transactions
            assert (receipt.ok, receipt.error) == (True, ""), options
            assert options or not receipt.effects.events or name == "unanswered-jobs"


@pytest.mark.parametrize("name", ATTACKS)
def test_programs_of_actors_are_programs(name: str) -> None:
    workload = WORKLOADS[name]
    for options in extremes(name):
        code = workload.actor_code(workload.options_type.model_validate(options))
        assert code == SCRIPT_CODE or refusal(code) is None, options


@pytest.mark.parametrize("name", ATTACKS)
def test_a_budget_is_all_that_the_attackers_have(name: str) -> None:
    users = [{"workload": "heartbeat"}, {"workload": name, "count": 3, "budget": BUDGET}]
    plan = LoadPlan.model_validate({"users": users})
    accounts, actors = plan.genesis_accounts(SEED), plan.genesis_actors(SEED)
    held = [*accounts.values()], [actor.balance for actor in actors.values()]
    assert plan.attackers == (1, 2, 3)
    assert (held[0][0], held[1][0]) == (FUNDING, FUNDING), "of the honest user"
    assert len(set(held[0][1:])) == len(set(held[1][1:])) == 1, "equal shares"
    assert 0 <= BUDGET - sum(held[0][1:]) - sum(held[1][1:]) < 3
    assert plan.attacking_addresses(SEED) == {*[*accounts][1:], *[*actors][1:]}


def test_without_a_budget_users_hold_what_they_held() -> None:
    plan = LoadPlan.model_validate({"users": [{"workload": "same-block"}, {"workload": "flood"}]})
    assert {*plan.genesis_accounts(SEED).values()} == {FUNDING}
    assert {actor.balance for actor in plan.genesis_actors(SEED).values()} == {FUNDING}
    assert plan.attackers == (0,)


def page_problems(text: str) -> list[str]:
    """What the page of attacks lacks, or says otherwise than the code."""
    rows = re.findall(r"^\| `([a-z-]+)` \| (.+?) \| (.+?) \| .+ \|$", text, re.MULTILINE)
    said = {name: (goal, defence) for name, goal, defence in rows}
    stated = {name: (WORKLOADS[name].goal, WORKLOADS[name].defence) for name in ATTACKS}
    problems = [f"{name}: is no attack" for name in said.keys() - stated.keys()]
    problems += [f"{name}: no row" for name in stated.keys() - said.keys()]
    return problems + [f"{name}: other words" for name in said.keys() & stated.keys() if said[name] != stated[name]]


def test_the_page_says_of_each_attack_what_its_class_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page_problems(text) == []
    assert page_problems(text.replace("`same-block`", "`same-blocks`")) == [
        "same-blocks: is no attack",
        "same-block: no row",
    ]
    goal = WORKLOADS["same-block"].goal
    assert page_problems(text.replace(goal, "fun")) == ["same-block: other words"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_attacks_say_what_they_want_and_what_holds(name: str) -> None:
    workload = WORKLOADS[name]
    assert bool(workload.goal) == bool(workload.defence) == workload.is_attack
    assert "\n" not in workload.goal + workload.defence


# --- the lane and its price -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["same-block", "sybil-fragmentation", "lane-cycles", "gas-exhaustion", "expiry-storm"])
def test_bursts_aim_at_common_heights(name: str) -> None:
    heights = {
        (turn, call["height"])
        for user in plan_of(name, {"every_blocks": 7}, count=2).build_users(SEED, CHAIN_ID)
        for turn, (_, script) in enumerate(scripts(user))
        for _, call in script
    }
    assert heights == {(0, 7), (1, 14), (2, 14), (3, 14), (4, 21), (5, 21)}


def test_a_burst_is_no_larger_than_the_actors_room() -> None:
    full = replace(START, live_timers=DEFAULTS.max_timers_per_actor)
    for name in ("same-block", "lane-cells", "greedy-agents", "far-future", "payload-abuse"):
        assert user_of(name).next_transactions(full) == []
    few = replace(full, live_timers=DEFAULTS.max_timers_per_actor - 3)
    (wire,) = user_of("same-block").next_transactions(few)
    action = parse(wire, CHAIN_ID).action
    assert isinstance(action, Call) and len(json.loads(action.payload)) == 3


@pytest.mark.parametrize(("limit", "tip"), [(100, 0), (400, 50)])
def test_what_a_burst_bids(limit: int, tip: int) -> None:
    for _, call in schedules(user_of("tip-outbidding", max_fee_percent=limit, tip_percent=tip or 1), turns=1):
        assert call["max_priority_fee_per_cycle"] == PRICE * (tip or 1) // 100
        assert call["max_fee_per_cycle"] == PRICE * limit // 100 + call["max_priority_fee_per_cycle"]


def test_exhausted_fires_lack_one_cycle() -> None:
    for _, call in schedules(user_of("gas-exhaustion", gas_limit=9_000), turns=1):
        assert call["gas_limit"] == 9_000
        assert DEFAULTS.fire_base_cycles + cost_of(call["payload"]).cycles == 9_001


@pytest.mark.parametrize("name", ["lane-cycles", "expiry-storm"])
def test_the_largest_fires_use_all_that_a_fire_may(name: str) -> None:
    for _, call in schedules(user_of(name), turns=1):
        assert call["gas_limit"] == DEFAULTS.max_cycles_per_fire_auction_phase
        assert DEFAULTS.fire_base_cycles + cost_of(call["payload"]).cycles == call["gas_limit"]
        assert cost_of(call["payload"]).cells == 0


def test_an_oscillation_fills_every_other_half_period_once() -> None:
    fires = Counter(call["height"] for _, call in schedules(user_of("basefee-oscillation", period_blocks=6)))
    full = [height for height in range(START.height + 4, START.height + 3 * 5 + 4 + 16) if height % 6 < 3]
    assert fires == dict.fromkeys(full, 8)
    calls_made = [call for _, call in schedules(user_of("basefee-oscillation"))]
    assert all(call["expires_at"] == call["height"] for call in calls_made)


def test_a_refused_oscillation_is_scheduled_anew() -> None:
    user = user_of("basefee-oscillation")
    (wire,) = user.next_transactions(START)
    user.rejected(wire)
    (again,) = user.next_transactions(START)
    assert again == wire


def test_a_chain_reaction_starts_so_often() -> None:
    made = calls(user_of("chain-reaction", starts=2, fan_out=3), turns=4)
    assert [(handler, payload["fan_out"]) for handler, payload in made] == [("start", 3)] * 2


def test_a_refused_start_is_made_up_for() -> None:
    user = user_of("chain-reaction", starts=1)
    (wire,) = user.next_transactions(START)
    assert user.next_transactions(START) == []
    user.rejected(wire)
    assert len(user.next_transactions(START)) == 1


def test_cell_hogs_ask_for_no_more_cells_than_a_fire_may_use() -> None:
    for cells, least, most in ((540_000, 539_000, 540_000), (1_000_000, 549_000, 550_000)):
        for handler, payload in calls(user_of("lane-cells", cells=cells)):
            assert handler == "plan" and least <= payload["bytes"] <= most
            assert payload["gas"] < DEFAULTS.max_cycles_per_fire_auction_phase // 2


# --- agents ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["slow-agents", "failing-agents", "lying-agents", "greedy-agents", "tip-sniping"])
def test_timers_of_bidding_agents_leave_their_fees_open(name: str) -> None:
    workload = WORKLOADS[name]
    code = workload.actor_code(workload.options_type())
    assert "def get_gas_bid(self, context):" in code
    (schedule,) = re.findall(r"self\.schedule\((.+)\)", code)
    assert "fee" not in schedule and "tier" not in schedule
    ((handler, payload),) = calls(user_of(name, timers=5), turns=1)
    assert (handler, payload["timers"]) == ("plan", 5)


# --- timers ---------------------------------------------------------------------------------------------------------


def test_far_timers_are_far() -> None:
    for _, call in schedules(user_of("far-future", ahead_blocks=90_000, spread_blocks=50)):
        assert 90_000 <= call["in"] < 90_050


def test_cancellations_follow_what_was_scheduled() -> None:
    (_, first), (_, second) = scripts(user_of("cancel-storm", timers=5), turns=2)
    saved = [step[1]["save_as"] for step in first]
    assert len(set(saved)) == 5
    assert [step[1]["saved"] for step in second if step[0] == "cancel"] == saved


def test_extensions_are_each_later_than_the_one_before() -> None:
    (_, first), *others = scripts(user_of("extend-storm", timers=4, times=3))
    saved = [step[1]["save_as"] for step in first]
    newest = {step[1]["save_as"]: step[1]["expires_at"] for step in first}
    for _, script in others:
        assert Counter(step[1]["saved"] for step in script) == dict.fromkeys(saved, 3)
        for _, call in script:
            assert call["expires_at"] > newest[call["saved"]]
            newest[call["saved"]] = call["expires_at"]


def test_expiring_timers_wait_no_longer_than_asked_for() -> None:
    for _, call in schedules(user_of("expiry-storm", wait_blocks=2)):
        assert call["expires_at"] == call["height"] + 2


def test_insolvent_actors_are_funded_filled_and_drained_in_each_period() -> None:
    user, balance = user_of("insolvency-storm", every_blocks=16, timers=5), BUDGET // 2
    done: list[tuple[int, str, int]] = []
    for height in range(1, 33, 3):
        observation = replace(START, height=height, actor_balance=balance, confirmed_nonce=len(done))
        for wire in user.next_transactions(observation):
            transaction = parse(wire, CHAIN_ID)
            assert isinstance(transaction.action, Call)
            steps = [step[1] for step in json.loads(transaction.action.payload)]
            balance += transaction.value
            if steps[0][0] == "transfer":
                assert steps == [["transfer", {"to": address_text(user.address), "amount": balance}]]
                balance = 0
            done.append((height, steps[0][0], transaction.value))
    assert done == [
        (1, "schedule", 0),
        (4, "schedule", 0),
        (7, "schedule", 0),
        (10, "transfer", 0),
        (16, "schedule", BUDGET // 4),
        (19, "schedule", 0),
        (22, "schedule", 0),
        (25, "schedule", 0),
        (28, "transfer", 0),
    ]


def test_payloads_are_as_long_as_a_transaction_can_pay_for() -> None:
    for size, most in ((1_000, 1_000), (1_048_576, DEFAULTS.lane_user_cells)):
        ((_, transaction),) = play(user_of("payload-abuse", payload_bytes=size), turns=1)
        assert isinstance(transaction.action, Call)
        payload = decode_value(transaction.action.payload)
        assert most - 1_000 < payload["bytes"] <= most


# --- messages and jobs ----------------------------------------------------------------------------------------------


def test_a_flood_of_messages_fills_the_mailbox_of_its_target() -> None:
    users = [{"workload": "heartbeat"}, {"workload": "mailbox-flood", "options": {"target": 0, "messages": 7}}]
    victim, attacker = LoadPlan.model_validate({"users": users}).build_users(SEED, CHAIN_ID)
    for handler, payload in calls(attacker):
        assert (handler, Address(payload["to"])) == ("flood", victim.actor)
        filled = payload["bytes"] * payload["messages"]
        assert DEFAULTS.mailbox_bytes * 98 // 100 < filled <= DEFAULTS.mailbox_bytes


def test_a_target_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no user 3, the last is 0"):
        plan_of("mailbox-flood", {"target": 3})


def test_messages_that_multiply_get_their_cycles_from_the_call() -> None:
    ((_, transaction),) = play(user_of("message-fan-out", messages=20), turns=1)
    assert transaction.gas_limit > 20 * DEFAULTS.message_cycles


def test_jobs_are_requested_until_there_is_no_more_room() -> None:
    user = user_of("unanswered-jobs", jobs=40)
    asked = []
    for opened in (0, 40, 60, 64, 70):
        jobs = tuple(number.to_bytes(32, "big") for number in range(opened))
        for wire in user.next_transactions(replace(START, open_jobs=jobs)):
            action = parse(wire, CHAIN_ID).action
            assert isinstance(action, Call)
            asked.append(decode_value(action.payload)["jobs"])
    assert asked == [40, 24, 4]


# --- the mempool ----------------------------------------------------------------------------------------------------


def test_gaps_are_never_filled() -> None:
    user, seen = user_of("nonce-gaps", gap=2, per_turn=5), []
    for _ in range(53):
        wires = user.next_transactions(replace(START, confirmed_nonce=3))
        seen += [parse(wire, CHAIN_ID).nonce for wire in wires]
    assert seen[:260] == list(range(5, 265)), "up to some that are refused, which are over 258"
    assert seen[260:] == list(range(5, 10)), "and from the start again"


@pytest.mark.parametrize("gap", [0, 1])
def test_replacements_bid_just_enough(gap: int) -> None:
    user = user_of("replacement-churn", gap=gap, per_turn=4, replacements=5)
    sent = [parse(wire, CHAIN_ID) for _ in range(3) for wire in user.next_transactions(START)]
    assert [transaction.nonce for transaction in sent] == [gap] * 6 + [gap + 1] * 6
    for before, after in pairwise(sent):
        if before.nonce == after.nonce:
            assert after.max_fee_per_cycle == least_replacement_fee(before.max_fee_per_cycle)
            assert after.max_priority_fee_per_cycle == least_replacement_fee(before.max_priority_fee_per_cycle)
    assert len({transaction.max_fee_per_cycle for transaction in sent[:6]}) == 6


def test_spam_pays_its_sender_as_often_as_it_may() -> None:
    user = user_of("transfer-spam")
    sent = [parse(wire, CHAIN_ID) for _ in range(2) for wire in user.next_transactions(START)]
    assert [transaction.nonce for transaction in sent] == list(range(16))
    assert {transaction.action for transaction in sent} == {Transfer(user.address)}
