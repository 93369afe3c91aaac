"""Timers that watch keys of actors (``bias_auction``), rule by rule, by examples of a few timers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.validator.chains import (
    ACTOR,
    ALICE,
    OTHER,
    PRICE,
    PROPOSER,
    SMALL,
    Chain,
    fired,
    index_contents,
    make_genesis,
    prepare,
    script,
)
from tests.validator.executors import Author, wire
from validator.chain.block import TransactionReceipt, UnwatchableKey, WatchableKey, Watching
from validator.chain.genesis import Policy
from validator.chain.records import TIMER, WATCHABLE, Timer, Watch, Watchable, decode_record, encode_record
from validator.chain.transactions import Call, CancelTimer, Deploy, deployed_address
from validator.execution.watching import NO_VALUE
from validator.primitives.types import Address, Height, TimerId
from validator.scheduler.index import SchedulerIndex
from validator.transition.transition import BlockContext, Transition

ALLOW = ["allow_watching", "k", True]
FORBID = ["allow_watching", "k", False]


def chain_of(params: dict[str, Any] | None = None, policy: Policy = Policy.BIAS_AUCTION, **fields: Any) -> Chain:
    given = {**SMALL, "TIE_BREAK": "aged", "MIN_BASEFEE": PRICE, **(params or {})}
    return Chain(make_genesis(given, policy=policy, **fields))


def watch(*operations: Any, actor: Address = OTHER, key: str = "k", **fields: Any) -> list[Any]:
    """The operation that schedules a script for the next change of a key."""
    watched = {"actor": "0x" + actor.hex(), "key": key}
    return ["schedule", {"watch": watched, "payload": list(operations), "gas_limit": 8_000, **fields}]


def allowed(*after: Any, **fields: Any) -> Chain:
    """A chain whose second actor lets its key be watched, which has the value ``a``, and whose first one watches it."""
    chain = chain_of(**fields)
    chain.run(["set", "k", "a"], ALLOW, actor=OTHER)
    if after:
        assert chain.run(*after).ok
    return chain


def watchers(chain: Chain) -> list[tuple[TimerId, ...]]:
    found: list[Watchable] = [decode_record(key, value) for key, value in chain.view.scan(WATCHABLE)]
    return [each.watchers for each in found]


# --- what makes a timer due -------------------------------------------------------------------------------------------


def test_a_change_fires_the_timer_in_its_block_once() -> None:
    chain = allowed(watch(bid=7))
    (timer,) = chain.timers()
    assert timer.is_watching
    assert timer.trigger_height == timer.expires_at + 1
    assert watchers(chain) == [(timer.timer_id,)]
    assert chain.empty(3).receipts.fires == ()
    outcome = chain.block(chain.call(["set", "k", "b"], actor=OTHER))
    assert fired(outcome) == [(chain.height, timer.sequence)]
    assert (chain.timers(), watchers(chain)) == ([], [()])
    assert not chain.block(chain.call(["set", "k", "c"], actor=OTHER)).receipts.fires
    chain.require_conservation()


@pytest.mark.parametrize(
    ("operations", "fires"),
    [
        ([["set", "k", "a"]], 0),
        ([["set", "k", "b"], ["set", "k", "a"]], 0),
        ([["set", "other", "b"]], 0),
        ([["get", "k"]], 0),
        ([["set", "k", ""]], 1),
        ([["del", "k"]], 1),
        ([["set", "k", "b"]], 1),
    ],
)
def test_only_another_value_at_the_end_of_the_transactions_is_a_change(operations: list[Any], fires: int) -> None:
    chain = allowed(watch())
    outcome = chain.block(*[chain.call(each, actor=OTHER, nonce=i + 2) for i, each in enumerate(operations)])
    assert all(receipt.ok for receipt in outcome.receipts.transactions)
    assert len(outcome.receipts.fires) == fires


def test_a_run_that_fails_changes_nothing() -> None:
    chain = allowed(watch())
    assert chain.run(["set", "k", "b"], ["fail", ""], actor=OTHER).error == "ScriptFailed"
    assert not chain.blocks[-1].receipts.fires
    assert len(chain.timers()) == 1


def test_a_key_without_a_value_can_be_watched() -> None:
    chain = chain_of()
    chain.run(ALLOW, actor=OTHER)
    (found,) = (decode_record(key, value) for key, value in chain.view.scan(WATCHABLE))
    assert found == Watchable(NO_VALUE)
    chain.run(watch())
    assert not chain.block(chain.call(["del", "k"], actor=OTHER)).receipts.fires
    assert len(chain.block(chain.call(["set", "k", ""], actor=OTHER)).receipts.fires) == 1


@pytest.mark.parametrize("how", ["fire", "message"])
def test_a_change_after_the_transactions_fires_in_the_next_block(how: str) -> None:
    """No fire of a block can trigger another one of it."""
    chain = allowed(watch())
    match how:
        case "fire":
            chain.run(["schedule", {"in": 1, "payload": [["set", "k", "b"]], "gas_limit": 5_000}], actor=OTHER)
        case _:
            to = {"to": "0x" + OTHER.hex(), "handler": "x", "payload": [["set", "k", "b"]], "cycles": 5_000}
            chain.run(["send", to], actor=ACTOR)
    outcome = chain.blocks[-1] if how == "message" else chain.block()
    changed_at = chain.height
    assert all(fire.actor == OTHER for fire in outcome.receipts.fires)
    assert [timer.trigger_height for timer in chain.timers()] == [changed_at + 1]
    assert fired(chain.block()) == [(changed_at + 1, 0)]


def test_a_timer_scheduled_in_the_block_of_a_change_fires_in_the_next_one() -> None:
    chain = allowed()
    outcome = chain.block(chain.call(watch()), chain.call(["set", "k", "b"], actor=OTHER, nonce=2))
    assert not outcome.receipts.fires
    assert len(chain.block().receipts.fires) == 1


def test_a_timer_that_is_scheduled_again_by_its_fire_misses_no_change() -> None:
    again = watch(["burn", 1])
    chain = allowed(watch(again))
    message = {"to": "0x" + OTHER.hex(), "handler": "x", "payload": [["set", "k", "c"]], "cycles": 5_000}
    outcome = chain.block(chain.call(["set", "k", "b"], ["send", message], actor=OTHER))
    assert [fire.error for fire in outcome.receipts.fires] == [""]
    assert len(outcome.receipts.messages) == 1
    assert fired(chain.block()) == [(chain.height, 1)]


def test_timers_that_watch_go_by_bid_and_wait_like_others() -> None:
    chain = allowed(watch(bid=5), watch(bid=9), watch(bid=7), params={"MAX_FIRES_PER_BLOCK": 1})
    outcome = chain.block(chain.call(["set", "k", "b"], actor=OTHER))
    first = chain.height
    assert fired(outcome) == [(first, 1)]
    assert outcome.backlog == 2
    assert [timer.trigger_height for timer in chain.timers()] == [first, first]
    assert fired(chain.block()) == [(first, 2)]
    assert fired(chain.block()) == [(first, 0)]
    chain.require_conservation()


def test_the_limit_of_an_actors_fires_holds() -> None:
    chain = allowed(watch(), watch(), params={"MAX_FIRES_PER_ACTOR": 1})
    outcome = chain.block(chain.call(["set", "k", "b"], actor=OTHER))
    assert len(outcome.receipts.fires) == 1
    assert list(outcome.carried.values()) == ["actor_limit"]


# --- who may watch ----------------------------------------------------------------------------------------------------


def test_a_key_is_watched_only_with_its_actors_leave() -> None:
    chain = chain_of()
    assert chain.run(watch()).error == "WatchNotAllowed"
    chain.run(["allow_watching", "k", True], actor=ACTOR)
    assert chain.run(watch()).error == "WatchNotAllowed"
    chain.run(ALLOW, actor=OTHER)
    assert chain.run(watch(key="l")).error == "WatchNotAllowed"
    assert chain.run(watch()).ok
    chain.run(FORBID, actor=OTHER)
    assert chain.run(watch()).error == "WatchNotAllowed"


@pytest.mark.parametrize("policy", [Policy.CIP1, Policy.FIFO, Policy.GBA_AUCTION, None])
def test_other_policies_and_the_time_before_activation_have_no_watches(policy: Policy | None) -> None:
    chain = chain_of(policy=policy) if policy else chain_of({"ACTIVATION_HEIGHT": 2})
    assert chain.run(ALLOW).error == "WatchUnavailable"
    assert chain.run(watch(actor=ACTOR)).error == "WatchUnavailable"
    assert chain.run(ALLOW).ok == (policy is None)
    assert chain.run(watch(actor=ACTOR)).ok == (policy is None)


def test_long_keys_are_not_watched() -> None:
    chain = chain_of()
    longest, too_long = "k" * 256, "é" * 129
    assert chain.run(["allow_watching", longest, True], actor=OTHER).ok
    assert chain.run(["allow_watching", too_long, True], actor=OTHER).error == "WatchKeyInvalid"
    assert chain.run(watch(key=longest)).ok
    assert chain.run(watch(key=too_long)).error == "WatchKeyInvalid"
    assert chain.run(["set", too_long, "v"], actor=OTHER).ok
    assert len(chain.block(chain.call(["set", longest, "v"], actor=OTHER)).receipts.fires) == 1


@pytest.mark.parametrize("given", [{"in": 1}, {"height": 9}])
def test_a_timer_has_a_height_or_a_key(given: dict[str, Any]) -> None:
    chain = allowed()
    assert chain.run(watch(**given)).error == "BadScript"
    malformed: Any
    for malformed in ([], {"key": "k"}, {"actor": "0x" + OTHER.hex()}, {"actor": "k", "key": "k"}):
        assert chain.run(["schedule", {"watch": malformed, "payload": []}]).error == "BadScript"
    assert chain.run(["allow_watching", "k", 1]).error == "BadScript"


def test_a_key_has_a_limited_number_of_watchers() -> None:
    chain = allowed(watch(save_as="s"), watch(), params={"MAX_WATCHERS_PER_KEY": 2})
    assert chain.run(watch()).error == "WatcherLimitReached"
    assert chain.run(["cancel", {"saved": "s"}], watch()).ok
    assert chain.run(watch()).error == "WatcherLimitReached"
    chain.block(chain.call(["set", "k", "b"], actor=OTHER))
    assert chain.run(watch(), watch()).ok


def test_a_key_that_is_no_more_watchable_leaves_its_timers_to_their_expiry() -> None:
    chain = allowed(watch(expires_at=6))
    chain.run(FORBID, ALLOW, actor=OTHER)
    assert watchers(chain) == [()]
    assert not chain.block(chain.call(["set", "k", "b"], actor=OTHER)).receipts.fires
    outcome = chain.empty(7 - chain.height)
    assert [each.reason for each in outcome.receipts.destroyed] == ["expired"]
    assert chain.timers() == []


def test_leave_that_is_given_twice_keeps_the_timers() -> None:
    chain = allowed(watch())
    receipt = chain.run(ALLOW, actor=OTHER)
    assert receipt.effects.timer_changes == ()
    assert len(chain.block(chain.call(["set", "k", "b"], actor=OTHER)).receipts.fires) == 1


# --- how it ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["cancelled", "by the system", "expired"])
def test_a_timer_that_ends_watches_no_more_and_gets_its_bid_back(end: str) -> None:
    chain = allowed(system_deployers=(ALICE,))
    before = chain.balance(ACTOR)
    chain.run(watch(bid=500, save_as="s", expires_at=4))
    (timer,) = chain.timers()
    match end:
        case "cancelled":
            chain.run(["cancel", {"saved": "s"}])
        case "by the system":
            chain.block(chain.system(CancelTimer(timer.timer_id)))
        case _:
            assert not chain.empty(4 - chain.height).receipts.destroyed
            assert [each.reason for each in chain.block().receipts.destroyed] == ["expired"]
    assert (chain.timers(), watchers(chain), chain.balance(ACTOR)) == ([], [()], before)
    assert not chain.block(chain.call(["set", "k", "b"], actor=OTHER)).receipts.fires


def test_a_timer_fires_up_to_its_last_block() -> None:
    chain = allowed(watch(expires_at=5))
    chain.empty(4 - chain.height)
    assert len(chain.block(chain.call(["set", "k", "b"], actor=OTHER)).receipts.fires) == 1
    late = allowed(watch(expires_at=5))
    late.empty(5 - late.height)
    outcome = late.block(late.call(["set", "k", "b"], actor=OTHER))
    assert not outcome.receipts.fires
    assert [each.reason for each in outcome.receipts.destroyed] == ["expired"]
    message = {"to": "0x" + OTHER.hex(), "handler": "x", "payload": [["set", "k", "b"]], "cycles": 5_000}
    last = allowed(watch(expires_at=5))
    last.empty(4 - last.height)
    last.run(["send", message])
    assert [timer.is_watching for timer in last.timers()] == [True]
    assert [each.reason for each in last.block().receipts.destroyed] == ["expired"]


def test_a_watch_lives_at_least_to_the_next_block() -> None:
    chain = allowed()
    assert chain.run(watch(expires_at=2)).error == "TimerExpiryInvalid"
    assert chain.run(watch(expires_at=4)).ok


def test_an_extended_timer_still_watches() -> None:
    chain = allowed(watch(expires_at=5, save_as="s"))
    chain.run(["extend", {"saved": "s", "expires_at": 9}])
    (timer,) = chain.timers()
    assert (timer.expires_at, timer.trigger_height) == (9, 10)
    chain.empty(6 - chain.height)
    assert len(chain.block(chain.call(["set", "k", "b"], actor=OTHER)).receipts.fires) == 1
    both = allowed(watch(expires_at=5, save_as="s"))
    extend = both.call(["extend", {"saved": "s", "expires_at": 9}])
    assert len(both.block(extend, both.call(["set", "k", "b"], actor=OTHER, nonce=3)).receipts.fires) == 1


# --- what it costs ----------------------------------------------------------------------------------------------------


def test_writers_of_a_watchable_key_pay_for_its_timers() -> None:
    chain = chain_of()

    def cycles(*operations: Any) -> int:
        return chain.run(*operations, actor=OTHER).cycles - 1_000

    assert cycles(["set", "k", "a"]) == 200
    assert cycles(ALLOW) == 200
    assert (cycles(["set", "k", "a"]), cycles(["del", "k"])) == (400, 400)
    chain.run(watch(), watch(), watch())
    assert cycles(["set", "k", "a"]) == 200 + 200 + 3 * 200
    assert cycles(["set", "k", "a"]) == 400
    assert cycles(["set", "l", "a"]) == 200
    assert chain.run(["allow_watching", "keys", True], cells_limit=10_000).cells - chain.run().cells > 4
    chain.run(watch(), watch())
    assert chain.run(["set", "k", "b"], actor=OTHER, gas_limit=1_000 + 799).error == "OutOfCycles"
    assert len(chain.timers()) == 2


def test_receipts_say_who_watches_what_and_what_was_written() -> None:
    chain = chain_of()
    (change,) = chain.run(ALLOW, actor=OTHER).effects.timer_changes
    assert change == WatchableKey(OTHER, "k", NO_VALUE)
    (change,) = chain.run(watch()).effects.timer_changes
    assert change == Watching(chain.timers()[0].timer_id, OTHER, "k")
    one, two = chain.run(["set", "k", "a"], ["del", "k"], actor=OTHER).effects.timer_changes
    assert isinstance(one, WatchableKey)
    assert len(one.digest) == 32
    assert two == WatchableKey(OTHER, "k", NO_VALUE)
    assert chain.run(FORBID, actor=OTHER).effects.timer_changes == (UnwatchableKey(OTHER, "k"),)


def test_a_timers_page_names_the_key_that_it_watches() -> None:
    author = Author(allowed().genesis)
    calls = (Call(OTHER, "run", script(ALLOW)), Call(ACTOR, "run", script(watch())))
    built = author.build(None, *(wire(nonce, action=action) for nonce, action in enumerate(calls)))
    author.finalize(built.digest)
    ((key, _),) = author.executor.final_view.scan(TIMER)
    page = author.executor.pages.timer(key[len(TIMER) :])
    assert page is not None
    assert page["watch"] == {"actor": "0x" + OTHER.hex(), "key": "k"}
    assert (page["trigger_height"], page["deferrals"]) == (page["expires_at"] + 1, 0)


# --- records and index ------------------------------------------------------------------------------------------------


def test_records_survive_their_encoding() -> None:
    chain = allowed(watch(bid=0), watch(bid=3))
    for timer in chain.timers():
        assert decode_record(timer.key, encode_record(timer.key, timer)) == timer
        assert timer.watch == Watch(OTHER, "k")
        plain: Timer = replace(timer, watch=None)
        assert decode_record(plain.key, encode_record(plain.key, plain)) == plain
    assert list(map(len, watchers(chain))) == [2]


def test_a_block_that_is_given_up_leaves_the_index_as_it_was() -> None:
    chain = allowed(watch(bid=1), watch(bid=2), params={"MAX_FIRES_PER_BLOCK": 1})
    before = index_contents(chain.index)
    for finishes in (False, True):
        context = BlockContext(Height(chain.height + 1), PROPOSER, chain.genesis)
        block = Transition(chain.view, chain.index, context)
        block.start()
        block.execute(prepare(chain.call(["set", "k", "b"], actor=OTHER)))
        if finishes:
            assert len(block.finish().receipts.fires) == 1
        else:
            block.trigger_timers()
        chain.index.abandon()
        assert index_contents(chain.index) == before
    changed = chain.block(chain.call(["set", "k", "b"], actor=OTHER))
    after = index_contents(chain.index)
    assert after == index_contents(SchedulerIndex.rebuild(chain.genesis, chain.view))
    chain.index.retreat(changed.changes)
    assert index_contents(chain.index) == before
    chain.index.redo(chain.height, changed.changes)
    assert index_contents(chain.index) == after


# --- Python actors ----------------------------------------------------------------------------------------------------


def test_the_programs_of_the_page_do_what_it_says() -> None:
    page = (Path(__file__).parents[3] / "docs" / "policies.md").read_text(encoding="utf-8")
    section = page.partition("### Watching keys\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    chain = chain_of({"LANE_TIMER_CYCLES": 200_000, "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 100_000})
    pool, bot = (deployed(chain, source) for source in re.split(r"(?=^class )", block, flags=re.MULTILINE)[1:])
    chain.block(chain.transfer(bot, 10**15))
    assert called(chain, bot, "start", bytes(pool)).error == "WatchNotAllowed"
    for handler, to, value in (("open", pool, None), ("start", bot, bytes(pool)), ("trade", pool, 7)):
        assert called(chain, to, handler, value).ok
    (fire,) = chain.blocks[-1].receipts.fires
    assert (fire.error, [event.name for event in fire.effects.events]) == ("", ["reacted"])
    assert called(chain, pool, "trade", 8).ok
    assert not chain.blocks[-1].receipts.fires


def test_arguments_of_programs_are_checked() -> None:
    chain = chain_of()
    key = "'k'"
    calls = {
        f"self.allow_watching({key}, 1)": "TypeError",
        "self.allow_watching(1)": "TypeError",
        f"self.schedule(self.height + 1, watch=(self.address, {key}))": "ValueError",
        f"self.schedule(None, watch=[self.address, {key}])": "TypeError",
        "self.schedule(watch=(self.address,))": "TypeError",
        f"self.schedule(watch=({key}, {key}))": "TypeError",
        f"self.schedule(watch=(self.address[1:], {key}))": "ValueError",
        "self.schedule()": "TypeError",
        f"self.schedule(watch=(self.address, {key}))": "WatchNotAllowed",
        f"self.schedule(watch=(self.address, {key}), height=None)": "WatchNotAllowed",
    }
    methods = "".join(f"    def m{i}(self, payload):\n        {call}\n" for i, call in enumerate(calls))
    actor = deployed(chain, "class A(Actor):\n" + methods)
    found = {call: called(chain, actor, f"m{i}", None).error for i, call in enumerate(calls)}
    assert found == calls


def deployed(chain: Chain, source: str) -> Address:
    address = deployed_address(ALICE, chain.nonces.get(ALICE, 0))
    limits: dict[str, Any] = {"gas_limit": 2_000_000, "cells_limit": 100_000}
    assert chain.block(chain.transaction(Deploy(source), **limits)).receipts.transactions[0].ok
    return address


def called(chain: Chain, actor: Address, handler: str, value: Any) -> TransactionReceipt:
    action = Call(actor, handler, msgspec.msgpack.encode(value))
    return chain.block(chain.transaction(action)).receipts.transactions[0]
