"""The way into the mempool: reads of accounts, answers in order, gossip by the same rules, floods that pay nothing."""

from __future__ import annotations

from typing import Any

import pytest
from nacl.signing import SigningKey

from tests.validator.chains import ALICE, BOB, CHAIN_ID, KEYS, PRICE, RICH, USERS, make_genesis
from tests.validator.executors import Author, wire
from tests.validator.network import Network
from validator.chain.messages import TransactionsMessage, decode_message, encode_message
from validator.chain.transactions import Transaction, Transfer, address_of, sign, transaction_hash
from validator.node import offers as module
from validator.node.events import (
    Effect,
    Message,
    PeerFault,
    Reply,
    Run,
    Send,
    Submit,
    SubmitResult,
    TransactionDropped,
    TransactionRefused,
)
from validator.node.executor.jobs import AccountsRead, Finalized, ReadAccounts
from validator.node.limits import PoolLimits
from validator.node.mempool import Mempool, Refusal
from validator.node.offers import Offers

POOR = USERS[2]
UNFUNDED_REQUESTS = 20


class Desk:
    """Offers whose reads are answered when the test says so."""

    def __init__(self) -> None:
        self.author = Author()
        self.mempool = Mempool(make_genesis())
        self.offers = Offers(self.mempool)
        self.told: list[Effect] = []

    def submit(self, request: int, *wires: bytes) -> list[Effect]:
        return self._note(self.offers.submit(request, wires))

    def read(self) -> list[Effect]:
        """Answer the read that is under way."""
        job = next(effect.job for effect in reversed(self.told) if isinstance(effect, Run))
        assert isinstance(job, ReadAccounts)
        result = self.author.executor.run(job)
        assert isinstance(result, AccountsRead)
        return self._note(self.offers.accounts_read(result))

    def settle(self, *wires: bytes) -> list[Effect]:
        """The next block holds these."""
        final = self.author.finalize(self.author.build(None, *wires).digest)
        assert isinstance(final, Finalized)
        return self._note(self.offers.settle(final))

    def _note(self, effects: list[Effect]) -> list[Effect]:
        self.told += effects
        return effects


def result(data: bytes, reason: Refusal | None = None) -> tuple[bytes, str | None]:
    return transaction_hash(data), None if reason is None else reason.value


def answers(effects: list[Effect]) -> dict[int, list[tuple[bytes, str | None]]]:
    """The hash and the reason of each transaction, by request."""
    replies = [effect for effect in effects if isinstance(effect, Reply)]
    return {reply.request: [(item.transaction_hash, item.reason) for item in reply.results] for reply in replies}


def passed_on(effects: list[Effect]) -> list[bytes]:
    messages = [decode_message(effect.payload) for effect in effects if isinstance(effect, Send)]
    return [item for message in messages if isinstance(message, TransactionsMessage) for item in message.transactions]


def test_a_senders_account_is_read_once_and_followed_from_then_on() -> None:
    desk = Desk()
    assert desk.submit(1, wire(0)) == [Run(ReadAccounts((ALICE,)))]
    effects = desk.read()
    assert answers(effects) == {1: [result(wire(0))]}
    assert passed_on(effects) == [wire(0)]
    assert answers(desk.submit(2, wire(0), wire(1))) == {2: [result(wire(0), Refusal.ALREADY_KNOWN), result(wire(1))]}
    desk.settle(wire(0))
    assert answers(desk.submit(3, wire(0))) == {3: [result(wire(0), Refusal.STALE_NONCE)]}
    account = desk.mempool.account_of(ALICE)
    assert account is not None and account.nonce == 1 and account.balance < RICH


def test_a_mempool_that_begins_late_learns_the_basefees_and_the_height_with_the_accounts() -> None:
    """Where a validator restarts, say: what comes before its next final block is judged by the last one."""
    desk = Desk()
    for _ in range(10):
        desk.author.finalize(desk.author.build(None).digest)
    low: dict[str, Any] = {"max_fee_per_cycle": 3 * PRICE // 10, "max_fee_per_cell": 3 * PRICE // 10}
    desk.submit(1, wire(0, **low))
    assert answers(desk.read()) == {1: [result(wire(0, **low))]}
    assert desk.mempool._height == 10, "it does not expire early"


def test_one_read_is_under_way_at_a_time_and_answers_keep_their_order() -> None:
    desk = Desk()
    desk.submit(1, wire(0))
    assert desk.submit(2, wire(0, user=1)) == desk.submit(3, wire(1)) == desk.submit(4, wire(1, user=1)) == []
    effects = desk.read()
    assert list(answers(effects)) == [1] and effects[-1] == Run(ReadAccounts((BOB, ALICE)))
    assert desk.submit(5, wire(2)) == [], "known by now, but behind others"
    assert list(answers(desk.read())) == [2, 3, 4, 5]
    assert len(desk.mempool) == 5


def test_what_needs_no_account_to_be_refused_is_answered_at_once() -> None:
    desk = Desk()
    assert answers(desk.submit(1, b"junk")) == {1: [result(b"junk", Refusal.MALFORMED)]}
    assert answers(desk.submit(2)) == {2: []}
    desk.submit(3, b"junk", wire(0), wire(0, user=2))
    expected = [result(b"junk", Refusal.MALFORMED), result(wire(0)), result(wire(0, user=2), Refusal.UNAFFORDABLE)]
    assert answers(desk.read()) == {3: expected}
    refused = [effect for effect in desk.told if isinstance(effect, TransactionRefused)]
    assert [(effect.reason, effect.peer) for effect in refused] == [
        ("malformed", None),
        ("malformed", None),
        ("unaffordable", None),
    ]


@pytest.mark.parametrize(("name", "most"), [("MAX_OFFERED_TRANSACTIONS", 2), ("MAX_OFFERED_BYTES", 2 * len(wire(0)))])
def test_few_wait_for_their_accounts(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, name, most)
    desk = Desk()
    desk.submit(1, wire(0))
    desk.submit(2, wire(1))
    assert answers(desk.submit(3, wire(2), b"junk")) == {
        3: [result(wire(2), Refusal.BUSY), result(b"junk", Refusal.MALFORMED)]
    }
    assert list(answers(desk.read())) == [1, 2]
    assert answers(desk.submit(4, wire(2))) == {4: [result(wire(2))]}, "there is room again"


def gossips(desk: Desk, peer: int, count: int, first: int = 0) -> bool:
    """Whether so many transactions of a peer wait for their senders' accounts, or were judged."""
    effects, is_honest = desk.offers.gossip(peer, [wire(first + number) for number in range(count)])
    assert is_honest
    return not any(isinstance(effect, TransactionRefused) for effect in effects)


def peers_fill_the_desk() -> None:
    """One peer leaves room for another, and both together leave some for clients."""
    desk = Desk()
    desk.submit(1, wire(0, user=1))
    assert gossips(desk, 1, 2) and not gossips(desk, 1, 1)
    assert gossips(desk, 2, 2) and not gossips(desk, 3, 1)
    assert answers(desk.submit(2, wire(1, user=1), wire(2, user=1), wire(3, user=1))) == {}, "it waits"
    assert answers(desk.submit(3, wire(4, user=1))) == {3: [result(wire(4, user=1), Refusal.BUSY)]}
    desk.read()
    desk.read()
    assert gossips(desk, 1, 2, first=2), "there is room again"


@pytest.mark.parametrize(("name", "room"), [("MAX_OFFERED_TRANSACTIONS", 8), ("MAX_OFFERED_BYTES", 8 * len(wire(0)))])
def test_peers_cannot_take_the_room_of_clients_or_of_each_other(
    name: str, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, room)
    peers_fill_the_desk()
    for share in ("PEER_SHARE", "PEERS_SHARE"):
        with monkeypatch.context() as patch:
            patch.setattr(module, share, 1)
            with pytest.raises(AssertionError):
                peers_fill_the_desk()


def test_what_waits_is_answered_when_nothing_is_taken_any_more() -> None:
    desk = Desk()
    desk.submit(1, wire(0))
    desk.submit(2, wire(1))
    effects = desk.offers.close(Refusal.DIVERGED, "the validator diverged at height 3")
    assert answers(effects) == {1: [result(wire(0), Refusal.DIVERGED)], 2: [result(wire(1), Refusal.DIVERGED)]}
    assert len(desk.mempool) == 0


def test_each_that_leaves_is_told_with_its_reason() -> None:
    desk = Desk()
    desk.submit(1, wire(0), wire(1))
    desk.read()
    dearer: dict[str, Any] = {"max_fee_per_cycle": 2 * 10**9, "max_priority_fee_per_cycle": 9}
    assert TransactionDropped(transaction_hash(wire(1)), "replaced") in desk.submit(2, wire(1, **dearer))
    other = wire(0, ["emit", "n", "another with the same nonce"])
    assert desk.settle(other) == [TransactionDropped(transaction_hash(wire(0)), "stale_nonce")]


# --- gossip -----------------------------------------------------------------------------------------------------------


def gossip(*wires: bytes) -> bytes:
    return encode_message(TransactionsMessage(wires))


def test_gossip_obeys_the_same_rules_and_goes_no_further() -> None:
    desk = Desk()
    unpaid, spent = wire(0, user=2), wire(2**64 - 1)
    effects, is_honest = desk.offers.gossip(2, (unpaid, wire(0), spent))
    assert is_honest and effects == [Run(ReadAccounts((POOR, ALICE)))]
    desk._note(effects)
    effects = desk.read()
    assert not passed_on(effects) and not answers(effects)
    assert [effect for effect in effects if isinstance(effect, TransactionRefused)] == [
        TransactionRefused(transaction_hash(unpaid), "unaffordable", 2),
        TransactionRefused(transaction_hash(spent), "nonce_too_high", 2),
    ]
    assert len(desk.mempool) == 1 and transaction_hash(wire(0)) in desk.mempool


def test_who_gossips_what_no_validator_takes_is_at_fault() -> None:
    network = Network().start()
    foreign = sign(KEYS[0], "another chain", Transaction(ALICE, 0, 10**6, 0, 10**9, 1, 10**9, Transfer(BOB)))
    for bad in (b"junk", foreign):
        effects = network.validator(0).node.handle(Message(1, gossip(bad)))
        assert PeerFault(1, "bad_transactions") in effects
    effects = network.validator(0).node.handle(Message(1, gossip(wire(2**64 - 1))))
    assert not [effect for effect in effects if isinstance(effect, PeerFault)], "an honest one may have seen less"


# --- floods -----------------------------------------------------------------------------------------------------------


def unfunded(number: int) -> bytes:
    """A transaction that pays very well, of an account that holds nothing."""
    key = SigningKey(number.to_bytes(32, "big"))
    sender = address_of(bytes(key.verify_key))
    return sign(key, CHAIN_ID, Transaction(sender, 0, 10**6, 0, 10**12, 10**6, 10**12, Transfer(BOB)))


@pytest.mark.parametrize("by_gossip", [False, True])
def test_requests_of_unfunded_senders_leave_the_pool_open_for_one_who_pays(by_gossip: bool) -> None:
    network = Network(pool=PoolLimits(max_transactions=16)).start()
    for request in range(UNFUNDED_REQUESTS):
        wires = tuple(unfunded(1_000 * request + number) for number in range(4))
        if by_gossip:
            network.machines[0].receive(3, gossip(*wires))
        else:
            network.machines[0].deliver(Submit(10**6 + request, wires))
    assert network.submit(0, wire(0)) == [None]
    pools = [network.validator(index).node.mempool for index in range(4)]
    assert len(pools[0]) == 1
    network.run_to(4)
    assert network.validator(1).executor.pages.account(ALICE)["nonce"] == 1
    assert [len(pool) for pool in pools] == [0] * 4
    refused = [effect for index, effect in network.effects if index == 0 and isinstance(effect, TransactionRefused)]
    assert {effect.reason for effect in refused} == {"unaffordable"} and len(refused) == 4 * UNFUNDED_REQUESTS


def test_a_wrong_transaction_does_not_stand_in_the_way_of_the_right_one() -> None:
    network = Network().start()
    wrong = [wire(0, gas_limit=999), wire(0, max_fee_per_cycle=0), wire(0, value=10**30), wire(2**64 - 1)]
    results: tuple[SubmitResult, ...] = network.offer(0, *wrong, wire(0))
    assert [item.reason for item in results] == ["gas_too_low", "fee_too_low", "unaffordable", "nonce_too_high", None]
    assert all(item.error is not None and "\n" not in item.error for item in results[:-1])
    network.run_to(4)
    assert network.validator(3).executor.pages.account(ALICE)["nonce"] == 1
