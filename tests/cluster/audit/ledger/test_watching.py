"""The ledger on blocks with timers that watch keys: real ones pass in silence, and each broken rule is named."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from cluster.audit.ledger.context import TIMERS
from cluster.audit.ledger.ledger import Ledger
from cluster.audit.safety.state_books import contradictions
from cluster.record.rules import Mechanism
from tests.cluster.audit.ledger.test_gba_auction import PARAMETERS, Plant, told
from tests.cluster.audit.ledger.test_lanes import require_agreement, words
from tests.cluster.audit.ledger.test_script_runs import off_by_one, rewritten
from tests.cluster.records import ACTOR as MADE
from tests.cluster.records import OTHER as MADE_OTHER
from tests.cluster.records import ChainMaker
from tests.cluster.records import make_genesis as made_genesis
from tests.validator.chains import ACTOR, OTHER, RICH, USERS, make_genesis, schedule, script
from tests.validator.executors import Author, wire
from validator.chain.block import Effects, Extended, Scheduled, TimerChange, UnwatchableKey, WatchableKey, Watching
from validator.chain.genesis import Policy
from validator.chain.records import Watch
from validator.chain.transactions import Call
from validator.execution import timer_calls, watching
from validator.execution.handler_context import HandlerContext
from validator.node.executor.jobs import Finalized
from validator.primitives import costs
from validator.primitives.codec import tagged_hash
from validator.primitives.types import Address
from validator.state.working_set import World

HEIGHTS = 40


def watch(random: Random, *operations: Any) -> list[Any]:
    watched = {"actor": "0x" + random.choice((ACTOR, OTHER)).hex(), "key": random.choice("kl")}
    fields: dict[str, Any] = {"bid": random.choice((0, 5, 40_000)), "gas_limit": random.choice((3_000, 8_000))}
    if random.random() < 0.5:
        fields["save_as"] = "s"
    return ["schedule", {"watch": watched, "payload": list(operations), **fields}]


def operations(random: Random, height: int) -> list[Any]:
    """The operations of one transaction."""
    changing = ["set", random.choice("kl"), random.choice("xyz")]
    message = {"to": "0x" + OTHER.hex(), "handler": "h", "payload": [changing], "cycles": 5_000}
    again = watch(random, ["burn", random.choice((0, 1_000))])
    choices: dict[str, list[Any]] = {
        "watch": [["try", watch(random, changing)], ["try", watch(random)]],
        "again": [["try", watch(random, ["try", again])]],
        "brief": [["try", [*watch(random)[:1], {**watch(random)[1], "expires_at": height + random.choice((0, 1, 2))}]]],
        "change": [changing],
        "remove": [["del", random.choice("kl")], ["try", ["cancel", {"saved": "s"}]]],
        "extend": [["try", ["extend", {"saved": "s", "expires_at": height + random.randrange(8)}]]],
        "allow": [["allow_watching", random.choice("kl"), random.random() < 0.8]],
        "send": [["send", message]],
        "later": [schedule(random.choice((1, 2)), changing, gas_limit=5_000)],
        "fail": [changing, ["fail", ""]],
    }
    weights = {"watch": 4, "change": 3, "again": 2}
    drawn = random.choices(list(choices), [weights.get(name, 1) for name in choices])
    return choices[drawn[0]]


def walk(seed: int, **params: Any) -> tuple[Ledger, str]:
    """Build blocks with watches, and enter each into the books; they agree with the state if nothing is found.

    Returns the books, and all that they and the check of states have found.
    """
    wide = {"MAX_TTL": 12, "MAX_WATCHERS_PER_KEY": 4, "LANE_TIMER_CYCLES": 15_000}
    genesis = make_genesis(
        {**PARAMETERS, "TIE_BREAK": "aged", **wide, **params},
        actors={ACTOR: RICH, OTHER: RICH},
        policy=Policy.BIAS_AUCTION,
    )
    author, random, ledger, wrong = Author(genesis), Random(seed), Ledger(genesis), list[str]()
    for height in range(1, HEIGHTS + 1):
        nonce = author.executor.pages.account(USERS[0])["nonce"]
        first = [["allow_watching", "k", True], ["allow_watching", "l", True]] if height == 1 else []
        actions = [
            Call(actor, "run", script(*first, *operations(random, height))) for actor in (ACTOR, OTHER, ACTOR, OTHER)
        ]
        final = author.finalize(author.build(None, *(wire(nonce + i, action=a) for i, a in enumerate(actions))).digest)
        assert isinstance(final, Finalized)
        archived = author.executor.archive.get(height)
        assert archived is not None
        ledger.apply(archived.block, archived.receipts)
        wrong += contradictions(author.executor.final_view.scan(b""), 1, 0)
        if not ledger.log.violations:
            require_agreement(ledger, author.executor.final_view)
    return ledger, "\n".join([told(ledger), *wrong]).strip()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("params", [{}, {"MAX_FIRES_PER_BLOCK": 1}, {"MAX_TTL": 4}], ids=str)
def test_blocks_with_watches_pass_in_silence(seed: int, params: dict[str, Any]) -> None:
    ledger, found = walk(seed, **params)
    assert found == ""
    assert ledger.scripts.unjudged == 0
    assert len(ledger.log.reached[Mechanism.WATCHES_TRIGGERED]) > 3


def triggers_for_every_write(patched: pytest.MonkeyPatch) -> None:
    trigger = watching.trigger

    def of_all_written(world: World, height: int) -> bool:
        for key in world.written_watchables:
            if (found := world.get(key)) is not None:
                world.put(key, found._replace(digest=b"another"))
        return trigger(world, height)

    patched.setattr(watching, "trigger", of_all_written)


def keeps_watching_what_is_forbidden(patched: pytest.MonkeyPatch) -> None:
    change = watching.change
    patched.setattr(watching, "change", lambda world, watch, allowed: allowed and change(world, watch, allowed))


def triggers_nothing(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(watching, "trigger", lambda *_: False)


def triggers_late(patched: pytest.MonkeyPatch) -> None:
    trigger = watching.trigger
    patched.setattr(watching, "trigger", lambda world, height: trigger(world, height + 1))


def lets_anyone_watch(patched: pytest.MonkeyPatch) -> None:
    def require(world: Any, watch: Any, _most: int) -> None:
        if watching.find(world, watch) is None:
            watching.change(world, watch, allowed=True)

    patched.setattr(timer_calls, "require_watchable", require)


def limits_no_watchers(patched: pytest.MonkeyPatch) -> None:
    require = watching.require_watchable
    patched.setattr(timer_calls, "require_watchable", lambda world, watch, _most: require(world, watch, 10**9))


def charges_no_writer(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(costs, "TRIGGER_CYCLES", 0)


def forgets_to_say_writes(patched: pytest.MonkeyPatch) -> None:
    def note(self: HandlerContext, key: str) -> None:
        watching.note_write(self.world, Watch(self.actor, key))

    patched.setattr(HandlerContext, "_note_write", note)


@pytest.mark.parametrize(
    ("plant", "named"),
    [
        (triggers_for_every_write, "fired, though the key that it watches had not changed"),
        (keeps_watching_what_is_forbidden, "its script gives"),
        (triggers_nothing, "was due and passed over"),
        (triggers_late, "was due and passed over"),
        (lets_anyone_watch, "its script gives"),
        (limits_no_watchers, "its script gives"),
        (charges_no_writer, "its script gives"),
        (forgets_to_say_writes, "its script gives"),
        (off_by_one(costs, "ALLOW_WATCHING_CYCLES", -1), "its script gives"),
        (off_by_one(costs, "WRITE_WATCHABLE_CYCLES", -1), "its script gives"),
        (rewritten(watching.change, "allowed == ", "False and allowed == "), "its script gives"),
        (rewritten(timer_calls._expiry, "terms.height + 1 if", "terms.height if"), "its script gives"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_broken_rule_is_named(monkeypatch: pytest.MonkeyPatch, plant: Plant, named: str) -> None:
    plant(monkeypatch)
    assert any(named in walk(seed)[1] for seed in range(4))


# --- made blocks ------------------------------------------------------------------------------------------------------


def maker_of(policy: Policy = Policy.BIAS_AUCTION) -> ChainMaker:
    return ChainMaker(made_genesis({"MAX_WATCHERS_PER_KEY": 2}, policy))


def watchable(value: bytes = b"", actor: Address = MADE) -> WatchableKey:
    return WatchableKey(actor, "k", tagged_hash(b"watched value", value) if value else b"")


def change(maker: ChainMaker, *changes: TimerChange, actor: Address = MADE) -> None:
    maker.transact(Call(actor, "run", b"[]"), Effects(timer_changes=changes))


def watching_one(maker: ChainMaker, *changes: TimerChange, life: int = 20, **fields: Any) -> Scheduled:
    """Add a transaction that schedules a timer which watches the actor's key, after ``changes`` of the same run."""
    expires_at = maker.height + life
    item = maker.scheduled(life + 1, b"", expires_at)
    item = msgspec.structs.replace(item, **fields)
    effects = Effects(scheduled=(item,), timer_changes=(*changes, Watching(item.timer_id, MADE, "k")))
    maker.transact(Call(MADE, "run", b"[]"), effects)
    return item


def found_in(maker: ChainMaker) -> str:
    """What the books say of the made blocks' timers."""
    return words(maker, TIMERS)


def test_right_watches_pass() -> None:
    maker = maker_of()
    change(maker, watchable())
    first, second = watching_one(maker), watching_one(maker)
    maker.seal()
    change(maker, watchable(b"a"))
    maker.fire(first, trigger_height=2)
    maker.seal()
    maker.fire(second, trigger_height=2)
    third = watching_one(maker, watchable(b"b"))
    maker.seal()
    maker.fire(third, trigger_height=4)
    change(maker, UnwatchableKey(MADE, "k"))
    maker.seal()
    assert found_in(maker) == ""


def in_the_block_of_its_schedule(maker: ChainMaker) -> None:
    change(maker, watchable())
    timer = watching_one(maker, watchable(b"a"))
    maker.fire(timer, trigger_height=1)


def by_a_fire_of_the_same_block(maker: ChainMaker) -> None:
    change(maker, watchable())
    timer, other = watching_one(maker), maker.schedule(1)
    maker.seal()
    maker.fire(other, effects=Effects(timer_changes=(watchable(b"a"),)))
    maker.fire(timer, trigger_height=2)


def without_a_change(maker: ChainMaker) -> None:
    change(maker, watchable(b"a"))
    timer = watching_one(maker)
    maker.seal()
    change(maker, watchable(b"b"), watchable(b"a"))
    maker.fire(timer, trigger_height=2)


def a_second_time_unwatched(maker: ChainMaker) -> None:
    change(maker, watchable(b"a"))
    timer = watching_one(maker)
    change(maker, UnwatchableKey(MADE, "k"), watchable(b"b"), watchable(b"c"))
    maker.seal()
    maker.fire(timer, trigger_height=2)


def after_its_expiry(maker: ChainMaker) -> None:
    change(maker, watchable(b"a"))
    timer = watching_one(maker, life=1)
    maker.seal()
    maker.seal()
    change(maker, watchable(b"b"))
    maker.fire(timer, trigger_height=3)


def for_its_extension(maker: ChainMaker) -> None:
    change(maker, watchable(b"a"))
    timer = watching_one(maker, life=1)
    change(maker, Extended(timer.timer_id, 9))
    maker.seal()
    maker.seal()
    maker.fire(timer)


def beyond_the_limit(maker: ChainMaker) -> None:
    change(maker, watchable())
    for _ in range(3):
        watching_one(maker)


def without_leave(maker: ChainMaker) -> None:
    change(maker, watchable(), UnwatchableKey(MADE, "k"))
    watching_one(maker)


def another_actors_key(maker: ChainMaker) -> None:
    change(maker, watchable(actor=MADE_OTHER))


def an_older_timer(maker: ChainMaker) -> None:
    change(maker, watchable())
    timer = maker.schedule(9)
    change(maker, Watching(timer.timer_id, MADE, "k"))


def with_a_height(maker: ChainMaker) -> None:
    change(maker, watchable())
    watching_one(maker, trigger_height=9)


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (in_the_block_of_its_schedule, "fired 1 blocks before its trigger height 2"),
        (by_a_fire_of_the_same_block, "fired, though the key that it watches had not changed"),
        (without_a_change, "fired, though the key that it watches had not changed"),
        (a_second_time_unwatched, "fired, though the key that it watches had not changed"),
        (after_its_expiry, "fired, though the key that it watches had not changed"),
        (for_its_extension, "fired, though the key that it watches had not changed"),
        (beyond_the_limit, "watches a key as the 3th"),
        (without_leave, "watches a key that its actor does not allow to be watched"),
        (another_actors_key, "was changed by"),
        (an_older_timer, "watches a key, but was not scheduled for that"),
        (with_a_height, "watches a key to 21, with the trigger height 9"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_block_that_breaks_a_rule_is_named(plant: Callable[[ChainMaker], None], expected: str) -> None:
    maker = maker_of()
    plant(maker)
    maker.seal()
    assert expected in found_in(maker)


@pytest.mark.parametrize("policy", [Policy.CIP1, Policy.FIFO, Policy.GBA_AUCTION])
def test_watches_under_a_policy_without_them_are_named(policy: Policy) -> None:
    maker = maker_of(policy)
    change(maker, watchable())
    maker.seal()
    assert "which this policy does not have" in found_in(maker)
