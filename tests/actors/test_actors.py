"""The example actors do what their texts say, refuse what they must, and go on by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from loadgen.workloads.actor_program import NAMES, source_of
from tests.actors.bench import Bench
from tests.validator.chains import ALICE, BOB, RICH
from validator.primitives.types import Address
from validator.pvm.language.subset import parse

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


@pytest.mark.parametrize("handler", ["start", "stop"])
def test_a_heart_whose_timer_was_lost_is_its_owners_all_the_same(handler: str) -> None:
    """It stopped for want of funds; what it kept of the timer once made both handlers fail for ever."""
    bench = Bench(("heartbeat",), funds=0)
    assert bench.call("heartbeat", "start", {"every": 2, "times": None}) == ""
    bench.chain.empty(3)
    assert [end.reason for outcome in bench.chain.blocks for end in outcome.receipts.destroyed] == [
        "insufficient_funds"
    ]
    bench.chain.block(bench.chain.transfer(bench.at["heartbeat"], 10**14))
    payload = {"every": 1, "times": 2} if handler == "start" else None
    assert bench.call("heartbeat", handler, payload) == ""
    bench.wait(3)
    assert len(bench.events()) == (2 if handler == "start" else 0)


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
    set_up = {"arbiter": CAROL, "least": 10, "token": bench.at["token"]}
    assert bench.call("escrow", "init", set_up) == ""
    assert bench.call("escrow", "init", set_up) == "ActorError: set up already"
    pay_escrow(bench, 500, f"house {blocks} {BOB.hex()}")
    assert held(bench, bench.at["escrow"]) == 500
    return bench


def pay_escrow(bench: Bench, amount: int, note: str) -> None:
    assert bench.call("token", "pay", {"amount": amount, "note": note, "to": bench.at["escrow"]}) == ""
    assert not bench.failures(bench.chain.blocks[-1]), "the tokens are there: the message about them must not fail"


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
    assert bench.call("escrow", "expire", "house") == "ActorError: before the deadline"
    assert bench.call("escrow", "withdraw") == "ActorError: nothing is owed"
    fake = {"amount": 9, "from": BOB, "note": f"x 2 {BOB.hex()}"}
    assert bench.call("escrow", "received", fake) == "ActorError: not from the token"
    assert bench.call("escrow", "refund", "house", BOB) == ""
    bench.wait(2)
    assert held(bench, bench.at["escrow"]) == 0


@pytest.mark.parametrize("handler", ["release", "refund", "decide", "expire"])
def test_a_deal_whose_timer_was_lost_is_settled_all_the_same(handler: str) -> None:
    bench = opened_escrow(blocks=4)
    bench.lose_timers()
    bench.wait(4)
    who = {"release": ALICE, "refund": BOB, "decide": CAROL, "expire": DAVE}[handler]
    bench.chain.block(bench.chain.transfer(who, 10**15))
    bench.chain.nonces.setdefault(who, 0)
    payload = {"deal": "house", "for": "seller"} if handler == "decide" else "house"
    assert bench.call("escrow", handler, payload, who, max_fee_per_cycle=10**6, max_fee_per_cell=10**6) == ""
    bench.wait(1)
    assert held(bench, bench.at["escrow"]) == 0
    assert held(bench, BOB) == (500 if handler in ("release", "decide") else 0)


HEX = BOB.hex()
BAD_NOTES = (
    "", " ", "  ", "house", f"house 5 {HEX}", f"new 0 {HEX}", f"new 100001 {HEX}", f"new 9999999 {HEX}",
    f"new -1 {HEX}", f"new x {HEX}", f"new  {HEX}", f"new 5 {HEX[1:]}", f"new 5 {HEX.upper()[:-1]}Z",
    f"new 5 0x{HEX[2:]}", f"new 5 {HEX} ", f"{'n' * 65} 5 {HEX}", f"new \u0665 {HEX}", "\u00e9" * 100, " " * 200,
)  # fmt: skip


def test_tokens_that_open_no_deal_are_given_back() -> None:
    bench = opened_escrow(blocks=1_000)
    supply = bench.stored("token", "supply")
    for note in BAD_NOTES:
        pay_escrow(bench, 20, note)
    pay_escrow(bench, 9, f"new 5 {HEX}")
    owed = 20 * len(BAD_NOTES) + 9
    assert bench.stored("escrow", "owed:" + ALICE.hex()) == owed
    assert bench.call("escrow", "withdraw", None, BOB) == "ActorError: nothing is owed"
    assert bench.call("escrow", "withdraw") == ""
    assert bench.call("escrow", "withdraw") == "ActorError: nothing is owed"
    assert (held(bench, ALICE), held(bench, bench.at["escrow"])) == (supply - 500, 500)


def test_a_note_is_a_short_text_or_the_payment_is_none() -> None:
    bench = opened_escrow()
    before = held(bench, ALICE)
    for note, error in (
        ({"blocks": 0}, "TypeError"),
        (None, "TypeError"),
        (["x"] * 5, "TypeError"),
        ("n" * 201, "ActorError: note: at most 200 bytes"),
    ):
        assert bench.call("token", "pay", {"amount": 20, "note": note, "to": bench.at["escrow"]}) == error
    assert held(bench, ALICE) == before
    pay_escrow(bench, 20, f"{'n' * 64} 100000 {HEX}")
    assert ("opened", "n" * 64) in bench.events("escrow")


def test_a_deal_without_room_for_a_timer_opens_all_the_same() -> None:
    full = source_of("escrow").replace("MOST_TIMERS = 1000", "MOST_TIMERS = 1")
    bench = Bench(("token", "escrow"), sources={"escrow": full})
    assert bench.call("token", "create") == ""
    assert bench.call("escrow", "init", {"arbiter": CAROL, "least": 1, "token": bench.at["token"]}) == ""
    for name in ("a", "b"):
        pay_escrow(bench, 20, f"{name} 3 {HEX}")
    assert len(bench.chain.timers()) == 1
    bench.wait(4)
    assert bench.call("escrow", "expire", "a") == "ActorError: no such deal"
    assert bench.call("escrow", "expire", "b") == ""
    assert held(bench, bench.at["escrow"]) == 0
    assert bench.stored("escrow", "open") == 0


# --- oracle and liquidation bot ---------------------------------------------------------------------------------------

RUNNERS = (CAROL, DAVE, ERIN)
DEPOSIT = 1_000


def oracle_bench() -> Bench:
    bench = Bench(("price_oracle", "liquidation_bot"), RUNNERS)
    set_up = {"deposit": DEPOSIT, "oracle": bench.at["price_oracle"]}
    assert bench.call("liquidation_bot", "init", set_up) == ""
    assert bench.call("liquidation_bot", "init", set_up) == "ActorError: set up already"
    assert bench.call("price_oracle", "start", {"every": 4, "pair": "CBY/USD"}) == ""
    assert bench.call("price_oracle", "subscribe", bench.at["liquidation_bot"]) == ""
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
        ("runner contract", "submit_result", [job_id, price.to_bytes(8, "big")], runner, {})
        for price, runner in results
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
    assert (
        bench.call("liquidation_bot", "open_position", {"collateral": 1_000, "debt": 900_000}, BOB, value=DEPOSIT) == ""
    )
    bench.wait(4)
    calm = [
        fire
        for outcome in bench.chain.blocks
        for fire in outcome.receipts.fires
        if fire.actor == bench.at["liquidation_bot"]
    ]
    assert bench.stored("liquidation_bot", "liquidated") is None
    answer(bench, 1_000, 1_000, 1_000)
    bench.wait(4)
    assert bench.events("liquidation_bot")[-1] == ("liquidated", BOB.hex())
    assert bench.stored("liquidation_bot", "positions") == {}
    fires = [
        fire
        for outcome in bench.chain.blocks
        for fire in outcome.receipts.fires
        if fire.actor == bench.at["liquidation_bot"]
    ]
    tips = [int.from_bytes(fire.tip_per_cycle, "big") for fire in fires]
    assert max(tips[len(calm) :]) > 0
    assert all(query.outcome == "ok" for outcome in bench.chain.blocks for query in outcome.receipts.queries)
    assert bench.call("liquidation_bot", "price_changed", {"before": 1, "price": 1}) == "ActorError: only the oracle"


def test_the_oracle_is_its_owners_and_tells_nobody_who_cannot_hear() -> None:
    bench = oracle_bench()
    bot = bench.at["liquidation_bot"]
    for handler, payload in (("subscribe", bot), ("start", {"every": 1, "pair": "x"}), ("push", 5)):
        assert bench.call("price_oracle", handler, payload, BOB) == "ActorError: only the owner"
    assert bench.call("price_oracle", "unsubscribe", bot, BOB) == "ActorError: only the owner, or the subscriber"
    assert bench.call("price_oracle", "ask") == "ActorError: only the timer"
    assert bench.call("price_oracle", "subscribe", BOB) == "UnknownActor"
    assert bench.call("price_oracle", "subscribe", b"x") == "ValueError"
    assert bench.call("price_oracle", "subscribe", "x") == "TypeError"
    assert bench.stored("price_oracle", "subscribers") == [bot]
    assert bench.call("price_oracle", "subscribe", bench.at["price_oracle"]) == "", (
        "an actor, though it will not listen"
    )
    assert bench.call("price_oracle", "subscribe", bot) == "ActorError: no room"
    for price in (0, -1, 2**64, None):
        assert bench.call("price_oracle", "push", price) in ("ActorError: no price", "TypeError")
    assert bench.call("price_oracle", "push", 7) == ""
    assert [message.error for message in bench.messages()] == ["", "UnknownHandler"]
    assert bench.call("price_oracle", "unsubscribe", bench.at["price_oracle"]) == ""
    assert bench.call("price_oracle", "unsubscribe", bench.at["price_oracle"]) == "ActorError: not subscribed"
    assert bench.stored("liquidation_bot", "price") == 7


def test_an_oracle_starts_anew_with_one_timer() -> None:
    bench = oracle_bench()
    assert bench.call("price_oracle", "start", {"every": 5, "pair": "CBY/EUR"}) == ""
    assert [timer.handler for timer in bench.chain.timers() if timer.actor == bench.at["price_oracle"]] == ["ask"]
    bench.lose_timers()
    assert bench.call("price_oracle", "start", {"every": 2, "pair": "CBY/EUR"}) == ""
    answer(bench, 5, 6, 7)
    assert bench.stored("price_oracle", "price") == 6
    assert bench.stored("price_oracle", "subscribers") == [bench.at["liquidation_bot"]]


def test_an_oracle_that_nobody_answers_goes_on_asking() -> None:
    """It once asked until the chain refused the 65th open job, and with that the timer was gone."""
    bench = Bench(("price_oracle",), RUNNERS)
    assert bench.call("price_oracle", "start", {"every": 1, "pair": "CBY/USD"}) == ""
    bench.wait(70)
    assert len(bench.stored("price_oracle", "open")) == 16
    assert ("unanswered", "16") in bench.events()
    assert bench.chain.timers()


def test_a_price_needs_most_of_the_runners() -> None:
    bench = oracle_bench()
    answer(bench, 0, 0, 9)
    assert bench.stored("price_oracle", "price") is None
    assert [name for name, _ in bench.events("price_oracle")] == ["no_price"]
    answer(bench, 0, 8, 9)
    assert bench.stored("price_oracle", "price") == 9


def crowded_bench() -> Bench:
    """Sixteen positions, as large as can be."""
    crowd = tuple(Address(bytes([0x50 + number]) * 20) for number in range(16))
    bench = Bench(("price_oracle", "liquidation_bot"), (*RUNNERS, *crowd))
    assert bench.call("liquidation_bot", "init", {"deposit": DEPOSIT, "oracle": bench.at["price_oracle"]}) == ""
    assert bench.call("price_oracle", "subscribe", bench.at["liquidation_bot"]) == ""
    most = {"collateral": 2**96 - 1, "debt": 1}
    for who in crowd:
        assert bench.call("liquidation_bot", "open_position", most, who, value=DEPOSIT) == ""
    assert bench.call("liquidation_bot", "open_position", most, BOB, value=DEPOSIT) == "ActorError: no room"
    return bench


def test_no_position_and_no_price_stops_the_checks() -> None:
    bench = crowded_bench()
    assert bench.call("price_oracle", "push", 2**64 - 1) == ""
    assert bench.call("price_oracle", "push", 1) == ""
    bench.wait(8)
    first = Address(b"\x50" * 20)
    assert bench.call("liquidation_bot", "close_position", None, first) == ""
    assert bench.call("liquidation_bot", "close_position", None, first) == "ActorError: no position"
    bad = [{"collateral": 2**96, "debt": 1}, {"collateral": 1, "debt": 2**96}, {"collateral": 1, "debt": 0}]
    for position in bad:
        refused = bench.call("liquidation_bot", "open_position", position, first, value=DEPOSIT)
        assert refused.startswith(("ActorError: debt", "ActorError: collateral"))
    fair = {"collateral": 1, "debt": 1}
    assert bench.call("liquidation_bot", "open_position", fair, first) == "ActorError: the value is not the deposit"
    assert bench.call("liquidation_bot", "open_position", fair, first, value=DEPOSIT) == ""
    assert bench.call("liquidation_bot", "open_position", fair, first, value=DEPOSIT).startswith("ActorError: close")


def test_all_positions_fall_in_one_check() -> None:
    bench = crowded_bench()
    for number in range(16):
        who = Address(bytes([0x50 + number]) * 20)
        assert bench.call("liquidation_bot", "close_position", None, who) == ""
        weak = {"collateral": 1, "debt": 2**96 - 1}
        assert bench.call("liquidation_bot", "open_position", weak, who, value=DEPOSIT) == ""
    assert bench.call("price_oracle", "push", 2**64 - 1) == ""
    bench.wait(4)
    assert bench.stored("liquidation_bot", "liquidated") == 16


def test_lost_checks_are_resumed_by_the_owner() -> None:
    bench = oracle_bench()
    assert bench.call("liquidation_bot", "resume") == "ActorError: the next check is planned"
    bench.lose_timers()
    assert bench.call("liquidation_bot", "resume", None, BOB) == "ActorError: only the owner"
    assert bench.call("liquidation_bot", "resume") == ""
    bench.wait(7)
    assert len([timer for timer in bench.chain.timers() if timer.handler == "check"]) == 1


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


def test_a_game_has_one_clock_and_goes_on_when_that_was_lost() -> None:
    bench = Bench(("game_loop",))
    everywhere = [[x, y] for x in range(8) for y in range(8)]
    start = {"cells": everywhere, "every": 1}
    assert bench.call("game_loop", "start", start) == ""
    assert bench.call("game_loop", "start", start) == ""
    assert len(bench.chain.timers()) == 1
    bench.wait(2)
    assert bench.stored("game_loop", "generation") == 2, "the fullest board fits a tick"
    assert bench.call("game_loop", "resume") == "ActorError: the next tick is planned"
    bench.lose_timers()
    assert bench.call("game_loop", "resume", None, BOB) == "ActorError: only the owner"
    assert bench.call("game_loop", "resume") == ""
    bench.wait(2)
    assert bench.stored("game_loop", "generation") > 3


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


def test_a_member_whose_timer_was_lost_leaves_with_the_rest_or_is_resumed() -> None:
    bench = Bench(("subscription",))
    assert bench.call("subscription", "init", {"fee": 100, "period": 4}) == ""
    for who in (ALICE, BOB):
        assert bench.call("subscription", "join", None, who, value=10**9) == ""
    assert bench.call("subscription", "resume", BOB.hex()) == "ActorError: its timer is pending"
    bench.lose_timers()
    before = bench.balance(bench.at["subscription"])
    assert bench.call("subscription", "leave", None, BOB) == ""
    assert before - bench.balance(bench.at["subscription"]) == 10**9 - 100
    assert bench.call("subscription", "resume", ALICE.hex(), BOB) == "ActorError: only the owner"
    assert bench.call("subscription", "resume", "fee") == "ActorError: no member"
    assert bench.call("subscription", "resume", ALICE.hex()) == ""
    bench.wait(1)
    assert ("renewed", ALICE.hex()) in bench.events()


def test_what_is_held_for_members_is_not_the_owners_and_is_paid_when_it_is_there() -> None:
    bench = Bench(("subscription",), funds=0)
    assert bench.call("subscription", "init", {"fee": 100, "period": 4}) == ""
    assert bench.call("subscription", "join", None, BOB, value=1_000) == ""
    assert bench.call("subscription", "top_up", None, BOB, value=500) == ""
    assert bench.stored("subscription", "held") == 1_400
    assert bench.call("subscription", "collect") == ""
    assert bench.balance(bench.at["subscription"]) == 1_400
    bench.chain.empty(5)
    assert not bench.chain.timers(), "a renewal that cannot be paid for is lost"
    bench.chain.block(bench.chain.transfer(bench.at["subscription"], 1))
    assert bench.call("subscription", "leave", None, BOB) == ""
    assert (bench.balance(bench.at["subscription"]), bench.stored("subscription", "held")) == (1, 0)


def test_a_deposit_that_is_not_there_is_owed_until_it_is() -> None:
    poor = source_of("subscription").replace(
        "def collect(",
        "def waste(self, payload):\n        self.transfer(self.deployer, self.balance)\n\n    def collect(",
    )
    bench = Bench(("subscription",), funds=0, sources={"subscription": poor})
    assert bench.call("subscription", "init", {"fee": 100, "period": 4}) == ""
    assert bench.call("subscription", "join", None, BOB, value=1_000) == ""
    assert bench.call("subscription", "waste") == ""
    assert bench.call("subscription", "leave", None, BOB) == ""
    assert bench.stored("subscription", "owed:" + BOB.hex()) == 900
    assert bench.call("subscription", "withdraw", None, BOB) == "InsufficientBalance"
    assert bench.call("subscription", "collect") == "", "nothing is there, and nothing is taken"
    bench.chain.block(bench.chain.transfer(bench.at["subscription"], 900))
    assert bench.call("subscription", "withdraw", None, BOB) == ""
    assert bench.call("subscription", "withdraw", None, BOB) == "ActorError: nothing is owed"
    assert bench.balance(bench.at["subscription"]) == 0


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
    assert bench.balance(bench.at["keeper"]) < RICH, "who works pays"


def test_work_is_resumed_where_its_timer_was_lost_and_never_twice() -> None:
    bench = Bench(("keeper",))
    assert bench.call("keeper", "start", {"jobs": [["a", 1, 950]]}) == ""
    bench.wait(2)
    assert bench.call("keeper", "resume", "a") == "ActorError: under way"
    bench.lose_timers()
    assert bench.call("keeper", "resume", "a", BOB) == "ActorError: only the owner"
    assert bench.call("keeper", "resume", "b") == "ActorError: no such work"
    assert bench.call("keeper", "resume", "a") == ""
    bench.wait(5)
    assert bench.stored("keeper", "done:a") == sum(n * n % 7 for n in range(1, 951))


def test_a_piece_of_work_that_no_step_could_do_is_none() -> None:
    bench = Bench(("keeper",))
    for first, last in ((2**64 - 1, 2**64), (-1, 5), (5, 4)):
        assert bench.call("keeper", "start", {"jobs": [["a", first, last]]}).startswith("ActorError: first to last")
    twice = [["a", 1, 2], ["a", 3, 4]]
    assert bench.call("keeper", "start", {"jobs": twice}) == "ActorError: under way already"
    assert bench.call("keeper", "start", {"jobs": [["a", 2**64 - 300, 2**64 - 1]]}) == ""
    bench.wait(3)
    assert bench.stored("keeper", "done:a") == sum(n * n % 7 for n in range(2**64 - 300, 2**64))


# --- a bidding agent --------------------------------------------------------------------------------------------------


def test_an_agent_bids_for_others_by_what_an_oracle_published() -> None:
    bench = Bench(("price_oracle", "bidding_agent", "heartbeat"))
    oracle, agent = bench.at["price_oracle"], bench.at["bidding_agent"]
    assert bench.call("bidding_agent", "init", oracle, BOB) == "ActorError: only the owner"
    assert bench.call("bidding_agent", "init", oracle) == ""
    started = {"every": 2, "times": None, "agent": agent}
    assert bench.call("heartbeat", "start", {**started, "agent": oracle}) == "UnknownActor", "the oracle does not bid"
    assert bench.call("heartbeat", "start", started) == ""
    assert asked(bench, 2) == [(None, None)], "nothing is published yet"
    assert bench.call("price_oracle", "push", 1_000) == ""
    assert asked(bench, 2) == [(None, 0)], "calm: the limit is the default agent's"
    assert bench.call("price_oracle", "push", 2_000) == ""
    (bid,) = asked(bench, 2)
    assert bid[0] is not None and bid[1] is not None and bid[0] > 2 * bid[1] > 0, "the price has doubled"
    assert bench.call("heartbeat", "start", {"every": 2, "times": None}) == ""
    assert asked(bench, 4) == [], "the heart went back to the default agent"
    assert bench.balance(agent) == RICH, "whoever names an agent pays for it"


def asked(bench: Bench, blocks: int) -> list[tuple[int | None, ...]]:
    """The bids of some blocks, in each of which whoever was asked about fires."""
    queries = [query for outcome in bench.wait(blocks) for query in outcome.receipts.queries]
    assert {query.agent for query in queries} <= {bytes(bench.at["bidding_agent"])}
    return [
        tuple(None if figure is None else int.from_bytes(figure, "big") for figure in query.bid or ())
        for query in queries
    ]
