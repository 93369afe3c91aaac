"""What a mempool takes, refuses, drops, sends on and offers is what the second one says, or the watch tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.record.rules import Mechanism, SafetyRule
from cluster.watches import mempool_watch
from cluster.watches.mempool_watch import MOST_GOSSIPED, ROOM, ROOM_BYTES, MempoolWatch
from tests.cluster.watches.seen import Told, make_machine
from tests.validator.chains import CHAIN_ID, KEYS, PRICE, RICH, USERS, make_genesis
from validator.chain.block import Block, Header
from validator.chain.messages import (
    MAX_GOSSIPED_TRANSACTIONS,
    TransactionsMessage,
    encode_message,
    read_message,
)
from validator.chain.records import Account
from validator.chain.transactions import Transaction, Transfer, sign, transaction_hash
from validator.node import offers as offers_module
from validator.node.events import (
    Completed,
    Diverged,
    Effect,
    Event,
    Message,
    Reply,
    Run,
    Send,
    Submit,
    SubmitResult,
    Synced,
    TransactionDropped,
    TransactionRefused,
)
from validator.node.executor.jobs import (
    AccountsRead,
    Build,
    Built,
    Finalized,
    FinalizedInvalid,
    ReadAccounts,
)
from validator.node.limits import DEFAULT_POOL_LIMITS, PoolLimits
from validator.node.mempool import Mempool, PoolSizes, Refusal
from validator.node.offers import Offers
from validator.primitives.codec import pack_uint
from validator.primitives.types import ZERO_HASH, Address, Height
from validator.transition.trace import BlockTrace

GENESIS = make_genesis()
MOST_HELD = 9
"""Views after the final one's for which a builder gets something."""
FOUR = PoolLimits(max_transactions=4, max_blocks_waiting=2)
NOTHING = Synced(1)
TRACE = BlockTrace(1, ZERO_HASH, (), "", ())
Tamper = Callable[[list[Effect]], list[Effect]]


@cache
def wire(user: int = 0, nonce: int = 0, tip: int = 5, max_fee: int = 10**9) -> bytes:
    transaction = Transaction(USERS[user], nonce, 10**6, 0, max_fee, tip, 10**9, Transfer(bytes(20)))
    return sign(KEYS[user], CHAIN_ID, transaction)


def header(height: int, basefee: int = PRICE) -> Header:
    fee = pack_uint(basefee)
    return Header(CHAIN_ID, height, height, ZERO_HASH, 0, ZERO_HASH, ZERO_HASH, ZERO_HASH, fee, fee, fee, 0, 0, 0, 0)


class Bench:
    """A mempool with the way into it, and the watch of both."""

    def __init__(
        self, tamper: Tamper = list, pool: type[Mempool] = Mempool, limits: PoolLimits = DEFAULT_POOL_LIMITS
    ) -> None:
        self.tamper = tamper
        """What happens to effects before the watch sees them."""
        self.accounts: dict[Address, Account] = dict.fromkeys(USERS, Account(RICH, 0))
        self.height = 0
        self.asked: tuple[Address, ...] = ()
        self.told = Told()
        self.seen: Counter[str] = Counter()
        self._limits, self._pool_class = limits, pool
        settings: Any = SimpleNamespace(limits=SimpleNamespace(max_held_blocks=MOST_HELD, pool=lambda: limits))
        self.watch = MempoolWatch(["v0"], self.told.look, settings, GENESIS, read_message)
        self.me = make_machine()
        self.start()

    @property
    def found(self) -> list[str]:
        assert {rule for rule, _, _ in self.told} <= {SafetyRule.MEMPOOL}
        return [what.removeprefix("v0: ") for what in self.told.found()]

    def start(self) -> None:
        """The validator is started: its mempool is empty."""
        self.pool = self._pool_class(GENESIS, self._limits)
        self.offers = Offers(self.pool)
        self.me.validator.executor = SimpleNamespace(final_header=SimpleNamespace(view=self.height))
        self.me.validator.node.mempool = self.pool
        self.watch.begins(self.me)

    def handle(self, event: Event, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Run) and isinstance(effect.job, ReadAccounts):
                self.asked = effect.job.addresses
        self.seen.update(type(effect).__name__ for effect in effects)
        self.seen.update(
            effect.reason for effect in effects if isinstance(effect, TransactionRefused | TransactionDropped)
        )
        self.watch.judge(self.me, event, self.tamper(effects))

    def submit(self, *wires: bytes, request: int = 1) -> None:
        self.handle(Submit(request, wires), self.offers.submit(request, wires))

    def gossip(self, peer: int, *wires: bytes) -> None:
        message = TransactionsMessage(wires)
        self.handle(Message(peer, encode_message(message), message), self.offers.gossip(peer, wires)[0])

    def read(self) -> None:
        """The accounts come that were asked for."""
        asked, self.asked = self.asked, ()
        result = AccountsRead(header(self.height), {address: self.accounts[address] for address in asked})
        self.handle(Completed(result), self.offers.accounts_read(result))

    def final(self, *wires: bytes, basefee: int = PRICE, **accounts: Account) -> None:
        """A block is final with these transactions; it changed ``accounts``, by ``user_`` and the number of each."""
        self.height += 1
        changed = {USERS[int(name.removeprefix("user_"))]: account for name, account in accounts.items()}
        self.accounts |= changed
        digests = tuple(map(transaction_hash, wires))
        result = Finalized(ZERO_HASH, header(self.height, basefee), digests, changed, 0, 0, 0, 0)
        self.handle(Completed(result), self.offers.settle(result))

    def refuse(self, *users: int) -> None:
        """A block is built, for which nothing of these users could run."""
        refused = tuple(USERS[user] for user in users)
        self.pool.refuse(refused)
        self.handle(Completed(Built(1, ZERO_HASH, ZERO_HASH, Block(header(1), ()), b"", refused)), [])

    def build(self, view: int = 1, most: int = 99) -> None:
        """A builder gets ``most`` of what waits."""
        self.handle(NOTHING, [Run(Build(view, ZERO_HASH, 0, self.pool.candidates(most)))])

    def diverge(self) -> None:
        result = FinalizedInvalid(ZERO_HASH, header(1), "another root", ZERO_HASH, b"", TRACE)
        diverged = Diverged(Height(1), ZERO_HASH, "another root", ZERO_HASH, ZERO_HASH, b"")
        self.handle(Completed(result), [diverged, *self.offers.close(Refusal.DIVERGED, "diverged")])


def is_read(effect: Effect) -> bool:
    return isinstance(effect, Run) and isinstance(effect.job, ReadAccounts)


def tell_a_story(bench: Bench) -> None:
    """With room for four: some are taken, refused, replaced, evicted; blocks are built and final; the rest expires."""
    bench.submit(wire(0, 0), wire(0, 1), b"junk")
    bench.gossip(2, wire(1, 0, tip=9), wire(1, 9))
    bench.read()
    bench.read()
    bench.build()
    bench.refuse(1)
    bench.build()
    bench.submit(wire(0, 0), wire(0, 1, tip=6, max_fee=2 * 10**9), wire(1, 1, tip=99))
    bench.final(wire(0, 0), user_0=Account(RICH, 1), user_1=Account(RICH, 1))
    bench.build()
    for _ in range(3):
        bench.final()


# --- each effect ------------------------------------------------------------------------------------------------------


def test_a_mempool_that_keeps_the_rules_is_never_told() -> None:
    bench = Bench(limits=FOUR)
    tell_a_story(bench)
    assert bench.found == []
    assert len(bench.told) > 15
    expected = {"malformed", "already_known", "replaced", "evicted", "stale_nonce", "expired"}
    assert expected <= bench.seen.keys()


def without(kind: type[Effect]) -> Tamper:
    return lambda effects: [effect for effect in effects if not isinstance(effect, kind)]


def changed(kind: type[Effect], change: Callable[[Any], Effect]) -> Tamper:
    return lambda effects: [change(effect) if isinstance(effect, kind) else effect for effect in effects]


def reads(times: int) -> Tamper:
    return lambda effects: [each for effect in effects for each in [effect] * (times if is_read(effect) else 1)]


def sent_on(effects: list[Effect]) -> list[Effect]:
    """What a peer sent goes on, too."""
    is_answer = any(isinstance(effect, Reply) for effect in effects)
    more = Send(None, encode_message(TransactionsMessage((wire(1, 0, tip=9),))))
    return [*effects, more] if is_answer else effects


def backwards(effect: Run) -> Run:
    job = effect.job
    return Run(Build(1, ZERO_HASH, 0, job.candidates[::-1])) if isinstance(job, Build) else effect


def reversed_departures(effects: list[Effect]) -> list[Effect]:
    dropped = [effect for effect in effects if isinstance(effect, TransactionDropped)]
    return [*without(TransactionDropped)(effects), *dropped[::-1]]


def taken(reply: Reply) -> Reply:
    return Reply(reply.request, tuple(SubmitResult(each.transaction_hash, None) for each in reply.results))


TAMPERED: dict[str, tuple[Tamper, str]] = {
    "refused, and not told": (without(TransactionRefused), "refused: 0 (none), expected 1 ("),
    "refused for another reason": (
        changed(TransactionRefused, lambda each: TransactionRefused(each.transaction_hash, "busy", each.peer)),
        "refused: 1 (",
    ),
    "refused in another's name": (
        changed(TransactionRefused, lambda each: TransactionRefused(each.transaction_hash, each.reason, 3)),
        "refused: 1 (",
    ),
    "a client hears nothing": (without(Reply), "replies: 0 (none), expected 1 ("),
    "a client hears that all were taken": (changed(Reply, taken), "replies: 1 ("),
    "another client hears it": (changed(Reply, lambda each: Reply(7, each.results)), "replies: 1 (7 "),
    "what is taken is not sent on": (without(Send), "sent: 0 (none), expected 2 ("),
    "what a peer sent is sent on": (sent_on, "sent: 3 ("),
    "accounts are not read": (reads(0), "read: 0 (none), expected 1 ("),
    "accounts are read twice": (reads(2), "read: 2 ("),
    "dropped, and not told": (without(TransactionDropped), "dropped: 0 (none), expected"),
    "dropped for another reason": (
        changed(TransactionDropped, lambda each: TransactionDropped(each.transaction_hash, "expired")),
        "dropped: ",
    ),
    "dropped in another order": (reversed_departures, "dropped: 2 ("),
    "offered in another order": (changed(Run, backwards), "offers a builder what waits in another order"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_mempool_with_other_effects_is_told(name: str) -> None:
    tamper, words = TAMPERED[name]
    bench = Bench(tamper, limits=FOUR)
    tell_a_story(bench)
    assert [what[: len(words)] for what in bench.found] == [words]


NOT_WHEN_DUE = "offers a builder what waits in another order, or not when it is due"


@pytest.mark.parametrize(("final", "views"), [(0, MOST_HELD), (4, MOST_HELD), (3, 1)])
def test_a_builder_gets_nothing_after_so_many_failed_views(final: int, views: int) -> None:
    """``final`` blocks are final, of which the validator made ``final // 2`` so in a former life."""
    for more, most, told in ((0, 99, False), (0, 0, True), (1, 99, True), (1, 0, False)):
        bench = Bench()
        for height in range(1, final + 1):
            bench.final()
            if height == final // 2:
                bench.start()
        bench.submit(wire(0, 0))
        bench.read()
        bench.build(final + (MOST_HELD if more else views) + more, most)
        assert bench.found == [NOT_WHEN_DUE] * told
        assert (Mechanism.PROPOSED_WITHOUT_ROOM in bench.watch.reached) == bool(more)


def test_a_mempool_that_keeps_too_much_is_told() -> None:
    class Keeping(Mempool):
        @property
        def sizes(self) -> PoolSizes:
            count, size, idle = super().sizes
            return PoolSizes(count, size + (count == 2), idle)

    bench, size = Bench(pool=Keeping), len(wire(0, 0))
    bench.submit(wire(0, 0))
    bench.read()
    assert bench.found == []
    bench.submit(wire(0, 1))
    assert bench.found == [f"keeps (2, {2 * size + 1}, 0), expected (2, {2 * size}, 0)"]


# --- what a model knows -----------------------------------------------------------------------------------------------


def test_a_sender_is_read_once_and_offers_wait_for_one_read() -> None:
    bench = Bench()
    bench.submit(wire(0, 0))
    bench.submit(wire(1, 0), request=2)
    bench.gossip(2, wire(0, 1))
    bench.read()
    bench.read()
    bench.submit(wire(0, 2), request=3)
    assert bench.found == []
    assert (bench.seen["Run"], bench.seen["Reply"], bench.seen["Send"]) == (2, 3, 3)


def test_a_mempool_is_empty_after_a_start() -> None:
    bench = Bench()
    bench.submit(wire(0, 0))
    bench.read()
    bench.start()
    bench.submit(wire(0, 0))
    assert bench.asked == (USERS[0],)
    bench.read()
    bench.build()
    assert bench.found == []


def test_a_mempool_that_is_wrong_once_is_followed_again_from_its_next_start_on() -> None:
    bench = Bench(changed(Run, backwards))
    for _ in range(2):
        bench.start()
        bench.submit(wire(0, 0), wire(0, 1))
        bench.read()
        bench.build()
        bench.build()
    assert len(bench.found) == 2


def test_what_waits_to_be_judged_is_refused_by_who_diverges() -> None:
    for tamper, found in ((list, 0), (without(TransactionRefused), 1), (without(Reply), 1)):
        bench = Bench(tamper)
        bench.submit(wire(0, 0))
        bench.gossip(2, wire(1, 0))
        bench.diverge()
        assert len(bench.found) == found
        assert bench.seen["diverged"] == 2
        bench.handle(Submit(3, (wire(2, 0),)), [Reply(3, ())])
        assert len(bench.found) == found, "it is followed no longer"


def test_a_mempool_with_too_many_is_followed_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mempool_watch, "MOST_ROWS", 2)
    bench = Bench(changed(Run, backwards))
    bench.submit(wire(0, 0), wire(0, 1), wire(0, 2))
    bench.read()
    looks = len(bench.told)
    bench.build()
    assert (bench.found, len(bench.told)) == ([], looks)


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_the_room_is_that_of_a_node() -> None:
    assert MOST_GOSSIPED == MAX_GOSSIPED_TRANSACTIONS
    assert (ROOM, ROOM_BYTES) == (offers_module.MAX_OFFERED_TRANSACTIONS, offers_module.MAX_OFFERED_BYTES)


def test_a_message_that_is_too_long_is_dropped_whole() -> None:
    bench = Bench()
    message = TransactionsMessage((b"junk",) * (MOST_GOSSIPED + 1))
    bench.handle(Message(2, encode_message(message), message), [])
    assert bench.found == []
    bench.gossip(2, *message.transactions[1:])
    assert (bench.found, bench.seen["malformed"]) == ([], MOST_GOSSIPED)


def fill_the_way(bench: Bench) -> None:
    """Clients and peers offer more than has room while accounts are read."""
    bench.gossip(1, wire(0, 0), wire(0, 1))
    bench.gossip(1, wire(0, 2))
    bench.gossip(2, wire(1, 0), wire(1, 1))
    bench.gossip(3, wire(2, 0))
    bench.submit(*[wire(3, nonce) for nonce in range(4)])
    bench.submit(wire(3, 4), b"junk", request=2)
    bench.read()
    bench.submit(wire(3, 4), request=3)


@pytest.mark.parametrize("unit", [1, len(wire(0, 0))], ids=["transactions", "bytes"])
def test_what_waits_for_accounts_has_room_of_which_peers_have_parts(unit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, nodes = ("ROOM", "MAX_OFFERED_TRANSACTIONS") if unit == 1 else ("ROOM_BYTES", "MAX_OFFERED_BYTES")
    monkeypatch.setattr(offers_module, nodes, 8 * unit)
    monkeypatch.setattr(mempool_watch, ours, 8 * unit)
    bench = Bench()
    fill_the_way(bench)
    assert (bench.found, bench.seen["busy"]) == ([], 3), "of a peer's third, the third peer's, and a client's"
    monkeypatch.setattr(offers_module, nodes, 16 * unit)
    bench = Bench()
    fill_the_way(bench)
    assert len(bench.found) == 1, "the planted fault: a node with more room"


# --- drawn ------------------------------------------------------------------------------------------------------------

SMALL = PoolLimits(
    max_transactions=6,
    max_nonces=5,
    near_nonces=2,
    max_sender_bytes=4 * len(wire()),
    max_evictions=2,
    max_idle_senders=1,
    max_blocks_refused=2,
    max_blocks_waiting=4,
)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_a_real_mempool_is_never_told(seed: int) -> None:
    assert play(Random(seed)).found == []


def test_the_play_meets_most_reasons() -> None:
    seen = sum((play(Random(seed)).seen for seed in range(20)), Counter[str]())
    expected = {"malformed", "already_known", "stale_nonce", "nonce_too_high", "fee_too_low", "unaffordable", "expired"}
    assert expected | {"replacement_underpriced", "mempool_full", "replaced", "evicted"} <= seen.keys()


def play(random: Random, steps: int = 60) -> Bench:
    """Events in any order."""
    bench = Bench(limits=SMALL)

    def drawn() -> bytes:
        if random.random() < 0.05:
            return b"junk"
        user = random.randrange(4)
        nonce = bench.accounts[USERS[user]].nonce + random.choice((-1, 0, 0, 0, 1, 1, 2, 5))
        max_fee = random.choice((10**4, PRICE, 2 * PRICE, 10**9, 2 * 10**9))
        return wire(user, max(0, nonce), random.choice((1, 2, 9)), max_fee)

    for _ in range(steps):
        wires = [drawn() for _ in range(random.randint(1, 3))]
        match random.randrange(6):
            case 0:
                bench.submit(*wires)
            case 1:
                bench.gossip(random.randint(1, 3), *wires)
            case 2:
                user = random.randrange(4)
                waiting = [row for row in bench.pool.candidates(99) if row.transaction.sender == USERS[user]]
                first = bench.accounts[USERS[user]].nonce
                run = [row.wire for row in waiting[:1] if row.transaction.nonce == first]
                account = Account(random.choice((RICH, RICH, 10**15)), first + random.choice((len(run), len(run), 1)))
                bench.final(*run, basefee=random.choice((PRICE, 2 * PRICE)), **{f"user_{user}": account})
            case 3:
                bench.refuse(random.randrange(4))
            case 4:
                bench.build()
            case _ if bench.asked:
                bench.read()
    return bench
