"""The example actors do what their texts say, refuse what they must, and go on by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from loadgen.workloads.shipped import NAMES, source_of
from tests.actors.bench import Bench
from tests.validator.chain import ALICE, BOB, RICH
from validator.pvm.subset import parse
from validator.types import Address

CAROL = Address(b"\x33" * 20)
DAVE = Address(b"\x34" * 20)
ERIN = Address(b"\x35" * 20)


@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_a_program(name: str) -> None:
    program = parse(source_of(name))
    assert program.handlers
    assert f"class {program.name}(Actor):" in source_of(name)


# --- heartbeat --------------------------------------------------------------------------------------------------------


def test_a_heart_beats_on_time_and_as_often_as_asked() -> None:
    bench = Bench(("heartbeat",))
    assert bench.call("heartbeat", "start", {"every": 3, "times": 4}) == ""
    bench.wait(20)
    assert bench.events() == [("beat", str(number)) for number in (1, 2, 3, 4)]
    assert bench.stored("heartbeat", "last") == 1 + 4 * 3
    assert bench.chain.blocks[-1].live_timers == 0


def test_a_heart_is_changed_and_stopped_by_its_owner_alone() -> None:
    bench = Bench(("heartbeat",))
    assert bench.call("heartbeat", "start", {"every": 2, "times": None}) == ""
    bench.wait(5)
    assert bench.call("heartbeat", "start", {"every": 1, "times": None}, BOB) == "ActorError: only the owner"
    assert bench.call("heartbeat", "beat", None) == "ActorError: only the timer beats"
    assert bench.call("heartbeat", "start", {"every": 0, "times": None}) == "ActorError: every: at least one block"
    assert bench.call("heartbeat", "stop") == ""
    assert bench.chain.blocks[-1].live_timers == 0
    beats = len(bench.events())
    bench.wait(5)
    assert len(bench.events()) == beats > 2


# --- token and escrow -------------------------------------------------------------------------------------------------


def token_bench(*others: str) -> Bench:
    bench = Bench(("token", *others))
    assert bench.call("token", "create") == ""
    return bench


def held(bench: Bench, who: Address) -> int:
    return int(bench.stored("token", "balance:" + who.hex()) or 0)


def test_tokens_move_and_never_come_to_be() -> None:
    bench = token_bench()
    supply = bench.stored("token", "supply")
    assert bench.call("token", "create") == "ActorError: created already"
    assert bench.call("token", "pay", {"amount": 100, "to": BOB}) == ""
    assert bench.call("token", "pay", {"amount": 101, "to": ALICE}, BOB) == "ActorError: more than there is"
    assert bench.call("token", "pay", {"amount": 0, "to": ALICE}, BOB) == "ActorError: amounts are positive"
    assert bench.call("token", "pay", {"amount": -5, "to": ALICE}, BOB) == "ActorError: amounts are positive"
    assert bench.call("token", "pay", {"amount": 5, "to": b"x"}, BOB) == "ActorError: no address"
    assert bench.call("token", "pay", {"amount": 40, "to": BOB}, BOB) == "", "to oneself"
    assert (held(bench, ALICE), held(bench, BOB)) == (supply - 100, 100)
    assert bench.call("token", "approve", {"amount": 30, "spender": CAROL}, BOB) == ""
    spent = {"amount": 20, "from": BOB, "to": ALICE}
    assert bench.call("token", "take", spent) == "ActorError: more than was approved"
    assert bench.call("token", "approve", {"amount": 30, "spender": ALICE}, BOB) == ""
    assert bench.call("token", "take", spent) == ""
    assert bench.call("token", "take", spent) == "ActorError: more than was approved"
    assert held(bench, ALICE) + held(bench, BOB) == supply


def opened_escrow(blocks: int = 6) -> Bench:
    bench = token_bench("escrow")
    assert bench.call("escrow", "init", {"arbiter": CAROL, "token": bench.at["token"]}) == ""
    note = {"blocks": blocks, "deal": "house", "seller": BOB}
    assert bench.call("token", "pay", {"amount": 500, "note": note, "to": bench.at["escrow"]}) == ""
    assert not bench.failures(bench.chain.blocks[-1])
    assert held(bench, bench.at["escrow"]) == 500
    return bench


def test_the_buyer_releases_and_the_seller_is_paid() -> None:
    bench = opened_escrow()
    assert bench.call("escrow", "release", "house", BOB) == "ActorError: only the buyer"
    assert bench.call("escrow", "release", "house") == ""
    bench.wait(10)
    assert (held(bench, BOB), held(bench, bench.at["escrow"])) == (500, 0)
    assert bench.call("escrow", "release", "house") == "ActorError: no such deal"
    assert bench.chain.blocks[-1].live_timers == 0, "the deadline is cancelled"


def test_a_deadline_gives_the_tokens_back() -> None:
    bench = opened_escrow(blocks=4)
    bench.wait(8)
    assert held(bench, bench.at["escrow"]) == held(bench, BOB) == 0
    assert ("settled", "house") in bench.events("escrow")


def test_nobody_decides_for_others() -> None:
    bench = opened_escrow()
    assert bench.call("escrow", "refund", "house") == "ActorError: only the seller"
    assert bench.call("escrow", "decide", {"deal": "house", "for": "seller"}, BOB) == "ActorError: only the arbiter"
    assert bench.call("escrow", "expire", "house") == "ActorError: only the timer"
    fake = {"amount": 9, "from": BOB, "note": {"blocks": 2, "deal": "x", "seller": BOB}}
    assert bench.call("escrow", "received", fake) == "ActorError: not from the token"
    assert bench.call("escrow", "refund", "house", BOB) == ""
    bench.wait(2)
    assert held(bench, bench.at["escrow"]) == 0


# --- oracle and liquidation bot ---------------------------------------------------------------------------------------

RUNNERS = (CAROL, DAVE, ERIN)


def oracle_bench() -> Bench:
    bench = Bench(("price_oracle", "liquidation_bot"), RUNNERS)
    assert bench.call("liquidation_bot", "init", {"oracle": bench.at["price_oracle"]}) == ""
    assert bench.call("price_oracle", "start", {"every": 4, "pair": "CBY/USD"}) == ""
    assert bench.call("price_oracle", "subscribe", bench.at["liquidation_bot"], BOB) == ""
    return bench


def answer(bench: Bench, *prices: int) -> None:
    """Let blocks pass until a job is open, and have each runner answer it."""
    for _ in range(8):
        (outcome,) = bench.wait(1)
        asked = [dict(event.fields)["job_id"] for event in outcome.events if event.name == "JobRequested"]
        if asked:
            break
    job_id = bytes.fromhex(asked[0])
    results = zip(prices, RUNNERS, strict=True)
    submitted: list[tuple[str, str, Any, Address, dict[str, Any]]] = [
        ("runner contract", "submit_result", [job_id, price.to_bytes(8, "big")], runner, {}) for price, runner in results
    ]
    outcome = bench.calls(*submitted)
    assert [receipt.error for receipt in outcome.receipts.transactions] == ["", "", ""]
    bench.wait(1)


def test_prices_come_from_jobs_and_reach_who_subscribed() -> None:
    bench = oracle_bench()
    answer(bench, 2_000, 9_999, 2_100)
    assert bench.stored("price_oracle", "price") == 2_100, "the median"
    assert bench.stored("liquidation_bot", "price") == 2_100
    answer(bench, 2_100, 2_100, 0)
    assert bench.events("price_oracle") == [("price", "2100"), ("price", "2100")]
    late = bench.call("price_oracle", "answered", {"job": bytes(32), "results": []})
    assert late == "NotFound", "nobody makes results up"


def test_the_bot_closes_what_a_fall_made_unsafe_and_bids_more_for_it() -> None:
    bench = oracle_bench()
    answer(bench, 2_000, 2_000, 2_000)
    assert bench.call("liquidation_bot", "open_position", {"collateral": 1_000, "debt": 900_000}, BOB) == ""
    bench.wait(4)
    calm = [fire for outcome in bench.chain.blocks for fire in outcome.receipts.fires if fire.actor == bench.at["liquidation_bot"]]
    assert bench.stored("liquidation_bot", "liquidated") is None
    answer(bench, 1_000, 1_000, 1_000)
    bench.wait(4)
    assert bench.events("liquidation_bot")[-1] == ("liquidated", BOB.hex())
    assert bench.stored("liquidation_bot", "positions") == {}
    fires = [fire for outcome in bench.chain.blocks for fire in outcome.receipts.fires if fire.actor == bench.at["liquidation_bot"]]
    tips = [int.from_bytes(fire.tip_per_cycle, "big") for fire in fires]
    assert max(tips[len(calm) :]) > 0
    assert all(query.outcome == "ok" for outcome in bench.chain.blocks for query in outcome.receipts.queries)
    assert bench.call("liquidation_bot", "price_changed", {"before": 1, "price": 1}) == "ActorError: only the oracle"


# --- game -------------------------------------------------------------------------------------------------------------


def test_a_glider_flies() -> None:
    bench = Bench(("game_loop",))
    glider = [[1, 0], [2, 1], [0, 2], [1, 2], [2, 2]]
    assert bench.call("game_loop", "start", {"cells": glider, "every": 1}) == ""
    before = bench.stored("game_loop", "alive")
    bench.wait(4)
    moved = sorted((place // 8 + 1) % 8 * 8 + (place % 8 + 1) % 8 for place in before)
    assert bench.stored("game_loop", "alive") == moved, "after four ticks, one cell further"
    assert bench.stored("game_loop", "generation") == 4
    assert bench.call("game_loop", "toggle", [9, 0], BOB) == "ActorError: outside the board"
    assert bench.call("game_loop", "toggle", [7, 0], BOB) == ""
    assert bench.stored("game_loop", "moves") == 1


# --- subscription -----------------------------------------------------------------------------------------------------


def test_memberships_are_renewed_dunned_and_cancelled() -> None:
    bench = Bench(("subscription",))
    assert bench.call("subscription", "init", {"fee": 100, "period": 4}) == ""
    assert bench.call("subscription", "join", None, BOB, value=99) == "ActorError: the deposit is below one fee"
    assert bench.call("subscription", "join", None, BOB, value=250) == ""
    bench.wait(4 + 4 + 4)
    kinds = [name for name, _ in bench.events()]
    assert kinds == ["joined", "renewed", "reminded", "reminded", "reminded", "cancelled"]
    assert bench.stored("subscription", BOB.hex()) is None
    before = bench.balance(ALICE)
    assert bench.call("subscription", "collect", None, max_fee_per_cycle=10**6, max_fee_per_cell=10**6) == ""
    assert bench.stored("subscription", "earned") == 0
    assert bench.balance(ALICE) < before, "the fee of the call is more than what was earned here"


def test_a_member_tops_up_and_leaves_with_the_rest() -> None:
    bench = Bench(("subscription",))
    assert bench.call("subscription", "init", {"fee": 100, "period": 4}) == ""
    assert bench.call("subscription", "join", None, BOB, value=100) == ""
    assert bench.call("subscription", "top_up", None, BOB, value=10**9) == ""
    bench.wait(4)
    held_by_actor = bench.balance(bench.at["subscription"])
    assert bench.call("subscription", "leave", None, BOB) == ""
    assert held_by_actor - bench.balance(bench.at["subscription"]) == 10**9 - 100
    assert bench.call("subscription", "leave", None, BOB) == "ActorError: no member"
    assert bench.chain.blocks[-1].live_timers == 0


# --- keeper -----------------------------------------------------------------------------------------------------------


def test_long_work_is_done_in_parts_and_once() -> None:
    bench = Bench(("keeper",))
    ranges = {"a": (1, 950), "b": (5, 5), "c": (100, 480)}
    assert bench.call("keeper", "start", {"jobs": [[name, *limits] for name, limits in ranges.items()]}) == ""
    assert bench.call("keeper", "start", {"jobs": [["a", 1, 2]]}) == "ActorError: under way already"
    bench.wait(8)
    for name, (first, last) in ranges.items():
        assert bench.stored("keeper", "done:" + name) == sum(n * n % 7 for n in range(first, last + 1))
        assert bench.stored("keeper", "work:" + name) is None
    assert sum(len(outcome.receipts.fires) for outcome in bench.chain.blocks) == 5 + 1 + 2
    assert RICH > bench.balance(bench.at["keeper"]), "who works pays"
