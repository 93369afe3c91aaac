"""The chain for tests of actors: callers, blocks, balances, events, and one line for whatever is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cluster.common.errors import BadInput
from stampede import Chain

SHOP = '''class Shop(Actor):
    """Sells tea, and says each third block how much it has sold."""

    PRICE = 5

    def open(self, payload):
        self.set("sold", 0)
        self.schedule(self.height + 3, handler="report")

    def buy(self, payload):
        assert self.value >= self.PRICE, "too little"
        self.set("sold", self.get("sold") + 1)
        self.publish("last", self.sender)

    def report(self, payload):
        self.emit("sold", str(self.get("sold")))
        self.schedule(self.height + 3, handler="report")
'''


@pytest.fixture
def chain() -> Chain:
    return Chain(accounts={"alice": 10**20, "bob": 10**15, "carol": 0})


def test_several_callers_use_an_actor_over_blocks(chain: Chain) -> None:
    shop = chain.deploy(SHOP, by="alice", balance=10**18)
    assert chain.height == 1 and shop.balance == 10**18
    opened = shop.call("open", by="alice")
    assert opened.ok and len(opened.timers) == 1 and opened.height == 2
    bought = [shop.prepare("buy", by=name, value=5) for name in ("alice", "bob", "alice")]
    receipts = chain.block(*bought)
    assert [receipt.ok for receipt in receipts] == [True] * 3 and chain.height == 3
    assert shop.balance == 10**18 + 15
    assert shop.storage() == {"sold": 3} and shop.published() == {"last": chain.address("alice")}
    (timer,) = chain.timers()
    assert (timer.timer_id, timer.handler, timer.height) == (opened.timers[0], "report", 5)
    ran = chain.blocks_until(8)
    assert [(receipt.kind, receipt.handler, receipt.height) for receipt in ran] == [
        ("fire", "report", 5),
        ("fire", "report", 8),
    ]
    sold = [event for event in chain.events if event.name == "sold"]
    assert [(event.height, event.data) for event in sold] == [(5, "3"), (8, "3")]
    assert chain.receipts[-2:] == ran and all(receipt.fee > 0 for receipt in ran)
    assert shop.balance == 10**18 + 15 - sum(receipt.fee for receipt in ran)


def test_a_failed_call_names_the_line_and_is_paid(chain: Chain) -> None:
    shop = chain.deploy(SHOP)
    shop.call("open")
    before = chain.balance("bob")
    failed = shop.call("buy", by="bob", value=4)
    assert (failed.ok, failed.error, failed.line) == (False, "ActorError: too little", 11)
    assert chain.balance("bob") == before - failed.fee and failed.fee > 0 and shop.storage() == {"sold": 0}


def test_a_transfer_pays(chain: Chain) -> None:
    receipt = chain.transfer("carol", 7, by="bob")
    assert (receipt.kind, receipt.ok, chain.balance("carol")) == ("transfer", True, 7)
    assert chain.balance("bob") == 10**15 - 7 - receipt.fee


def test_the_same_calls_give_the_same_receipts() -> None:
    def play() -> Chain:
        chain = Chain(accounts={"alice": 10**20})
        shop = chain.deploy(SHOP, balance=10**18)
        shop.call("open", by="alice")
        chain.blocks(7)
        return chain

    assert play().receipts == play().receipts


def test_a_chain_has_the_parameters_of_a_scenario() -> None:
    chain = Chain(chain={"policy": "fifo", "params": {"TX_BASE_CYCLES": 30_000}})
    shop = chain.deploy(SHOP)
    assert shop.call("open").cycles > 30_000


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (lambda chain: chain.balance("bop"), "no account is named 'bop'; known: developer, alice, bob, carol"),
        (lambda chain: chain.balance(b"bob"), "b'bob': expected an address of 20 bytes"),
        (lambda chain: chain.transfer("bob", -1), "amount: -1: expected an amount in the smallest CBY unit"),
        (lambda chain: chain.transfer("bob", 1, by="carol"), "block 1: a transaction is not admitted: "),
        (lambda chain: chain.deploy("nowhere.py"), "nowhere.py: cannot be read: No such file or directory"),
        (lambda chain: chain.deploy("class A(Actor):\n    x = 1.5\n"), "<text>:2:9: "),
        (lambda chain: chain.deploy(SHOP).call("by"), "has no handler 'by'; did you mean buy?"),
        (lambda chain: chain.deploy(SHOP).call("buy", [2**300]), "buy: payload[0]: an integer of more than 256 bits"),
        (lambda chain: chain.deploy(SHOP).call("buy", {"a": 1.5}), "buy: payload['a']: 1.5: expected None, "),
        (lambda chain: chain.deploy(SHOP).call("buy", "a" * 2**20), "buy: payload: cannot be passed to a handler"),
        (lambda chain: chain.blocks(-1), "blocks: -1: expected a number from 0 to 1,000,000"),
        (lambda chain: [chain.blocks(3), chain.blocks_until(2)], "height: 2 is past: the last block is 3"),
        (lambda chain: Chain({"developer": 1}), "accounts: 'developer': expected a name other than"),
        (lambda chain: Chain(chain={"policy": "lifo"}), "chain.policy"),
    ],
)
def test_what_is_wrong_is_one_line_and_no_block(chain: Chain, wrong: Callable[[Chain], object], problem: str) -> None:
    with pytest.raises(BadInput) as error:
        wrong(chain)
    assert problem in str(error.value) and "\n" not in str(error.value)
    assert chain.height == len({receipt.height for receipt in chain.receipts}) or chain.height == 3
