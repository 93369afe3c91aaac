"""The auditor's view of agents: who bids for whom, what is kept of whose answers, and queries that must not be."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from cluster.audit.chain_codec import Bid, Bidder, QueryReceipt, Scheduled, read_block, read_receipts
from cluster.audit.ledger.agent_queries import Agents, QueryAudit
from cluster.audit.ledger.context import POLICY_RULES, TIMERS, AuditLog, BlockContext
from cluster.audit.ledger.ledger import Ledger
from cluster.audit.ledger.timer_phase import TimerLife, TurnAudit
from cluster.audit.reexecution.describe import key_words
from tests.cluster.records import ACTOR, ChainMaker, script_genesis
from tests.validator.chains import CHAIN_ID, KEYS, USERS
from tests.validator.executors import Author
from tests.validator.scheduler.test_agents import AGENT, BOTH, OTHER_AGENT, OWNER, AgentMachine, genesis
from tests.validator.scheduler.test_index import PARAMETERS
from validator.chain import block
from validator.chain.block import Effects
from validator.chain.genesis import GenesisAgent, Policy
from validator.chain.records import kept_answer_key, published_key
from validator.chain.transactions import Call, sign
from validator.policies.cip1 import Cip1Phase
from validator.primitives.codec import encode
from validator.primitives.params import DEFAULTS
from validator.state.working_set import World

PRICE = 10**6


class Auditor:
    """Queries and prices of one block, of timers of one owner."""

    def __init__(self, **agents: GenesisAgent) -> None:
        self.genesis = genesis({BOTH: agents["both"]} if agents else None)
        self.agents = Agents(self.genesis)
        self.audit, self.turns = QueryAudit(self.genesis, self.agents), TurnAudit(self.genesis, self.agents)
        self.count = 0

    def timer(self, actor: bytes, agent: bytes = b"") -> bytes:
        """A timer that is due at height 1, all of it open."""
        self.count += 1
        item = Scheduled(bytes([self.count]) * 32, actor, 1, self.count, 99, actor, None, None, None, None)
        life = TimerLife(item.timer_id, actor, 0, 1, self.count, 99, item)
        self.turns.scheduled(life)
        if agent:
            assert list(self.agents.named(actor, Bidder(life.timer_id, agent))) == []
        return life.timer_id

    def begin(self, height: int = 1) -> None:
        self.audit.begin_block(height)
        record = ChainMaker().seal()
        receipts, header = read_receipts(record.receipts)._replace(height=height), read_block(record.block).header
        self.turns.begin_phase(BlockContext(receipts, DEFAULTS, POLICY_RULES[Policy.CIP1], AuditLog(), header))

    def query(self, timer_id: bytes, actor: bytes, agent: bytes, bid: tuple[int | None, int | None]) -> list[str]:
        receipt = QueryReceipt(timer_id, actor, "ok", 700, 0, Bid(*bid), agent)
        return [*self.audit.problems(receipt, 10**30, PRICE), *self.turns.queried(receipt)]

    def fees(self, timer_id: bytes) -> tuple[int, int]:
        self.turns.price()
        offer = self.turns.offer(timer_id)
        assert offer is not None
        return offer.max_fee, offer.tip


def test_each_agents_answer_prices_the_timers_that_it_bids_for() -> None:
    auditor = Auditor()
    assert list(auditor.agents.named(OWNER, Bidder(b"", AGENT))) == []
    asked, same, other = auditor.timer(OWNER), auditor.timer(OWNER), auditor.timer(OWNER, OTHER_AGENT)
    auditor.begin()
    assert auditor.query(asked, OWNER, AGENT, (3 * PRICE, 5)) == []
    assert auditor.fees(asked) == auditor.fees(same) == (3 * PRICE, 5)
    assert auditor.fees(other) == (2 * PRICE, 0), "its agent was not asked: the default agent's"


def test_what_an_answer_leaves_open_is_the_default_agents() -> None:
    auditor = Auditor()
    timer = auditor.timer(OWNER, AGENT)
    auditor.begin()
    assert auditor.query(timer, OWNER, AGENT, (None, 5)) == []
    assert auditor.fees(timer) == (2 * PRICE, 5)


def test_who_names_itself_means_its_own_bid_unless_that_is_fixed() -> None:
    for fixed, agent in ((None, b""), (GenesisAgent("builtin:fixed", 5, 5), bytes(BOTH))):
        auditor = Auditor() if fixed is None else Auditor(both=fixed)
        timer = auditor.timer(BOTH, BOTH)
        assert auditor.agents.agent_of(BOTH, timer) == agent
    auditor = Auditor()
    assert list(auditor.agents.named(BOTH, Bidder(b"", AGENT))) == []
    assert auditor.agents.agent_of(BOTH, b"any") == AGENT
    assert list(auditor.agents.named(BOTH, Bidder(b"", b""))) == []
    assert auditor.agents.agent_of(BOTH, b"any") == b"" and auditor.agents.agent_of(OWNER, b"any") is None


@pytest.mark.parametrize(
    ("agent", "named", "what"),
    [
        (OTHER_AGENT, AGENT, "was made of another agent than bids for that timer"),
        (b"", AGENT, "was made of another agent than bids for that timer"),
        (AGENT, b"", "was made of an actor without an agent"),
    ],
)
def test_a_query_of_somebody_else_is_found(agent: bytes, named: bytes, what: str) -> None:
    auditor = Auditor()
    timer = auditor.timer(OWNER, named)
    auditor.begin()
    assert what in auditor.query(timer, OWNER, agent, (1, 1))


def test_an_agent_that_is_none_and_one_that_a_script_names_are_found() -> None:
    auditor = Auditor()
    assert list(auditor.agents.named(OWNER, Bidder(b"", OWNER))) == [
        f"named 0x{OWNER.hex()} for its agent, which has no get_gas_bid"
    ]
    maker = ChainMaker(script_genesis())
    maker.transact(Call(ACTOR, "run", b"[]"), Effects(timer_changes=(block.Bidder(b"", AGENT),)), use=(1_000, 2))
    record = maker.seal()
    ledger = Ledger(maker.genesis)
    ledger.apply(record.block, record.receipts)
    found = [(violation.check, violation.what) for violation in ledger.log.violations]
    assert found[-1:] == [(TIMERS, "an agent was named for the timers of an actor by who must not")]


def test_the_new_keys_of_state_are_described() -> None:
    owner, agent = f"0x{OWNER.hex()}", f"0x{AGENT.hex()}"
    assert key_words(published_key(OWNER, "price")) == f"value 'price' published by actor {owner}"
    assert key_words(published_key(OWNER, "k" * 300)).endswith(f" published by actor {owner}")
    assert key_words(kept_answer_key(OWNER, AGENT)) == f"last bid of agent {agent} for actor {owner}"


# --- chains -----------------------------------------------------------------------------------------------------------


def violations(seeds: range) -> list[str]:
    """What the auditor finds wrong with random chains whose actors name agents, tell them answers and leave them."""
    found: list[str] = []
    for seed in seeds:
        found.extend(violations_of(seed))
    return found


def violations_of(seed: int) -> list[str]:
    wide = {"GBA_MAX_CYCLES": 3_000, "GBA_BUDGET_CYCLES": 7_000, "LANE_TIMER_CYCLES": 60_000}
    caps = {"MAX_CYCLES_PER_FIRE": 30_000, "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 30_000}
    given = genesis(**{**PARAMETERS, **wide, **caps, "ACTIVATION_HEIGHT": 3 * (seed % 2)})
    author = Author(replace(given, accounts={**given.accounts, USERS[0]: 10**24}))
    ledger, machine, nonce = Ledger(author.genesis), AgentMachine(), 0
    for height in range(1, 23):
        random, wires = Random(1_000 * seed + height), []
        for place in range(random.randrange(7)):
            drawn = machine.draw(random, height, USERS[0], nonce + place)
            wires.append(sign(KEYS[0], CHAIN_ID, replace(drawn, sender=USERS[0])))
        built = author.build(None, *wires)
        nonce = World(author.view_of(built.digest)).account(USERS[0]).nonce
        ledger.apply(encode(built.block), encode(author.outcome_of(built.digest).receipts))
        author.finalize(built.digest)
    return [violation.what for violation in ledger.log.violations]


def test_the_auditor_prices_as_the_chain_does() -> None:
    assert violations(range(6, 10)) == []


def forgets_when_prices_were_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Agents, "keep", lambda self: None)


def lets_low_bids_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a price that clears the gate takes a timer out of what its party is priced at."""
    apart = Cip1Phase._priced_apart

    def cleared(phase: Cip1Phase) -> dict[int, Any]:
        return {place: priced for place, priced in apart(phase).items() if priced is not None}

    monkeypatch.setattr(Cip1Phase, "_priced_apart", cleared)


@pytest.mark.parametrize("fault", [forgets_when_prices_were_fixed, lets_low_bids_pass])
def test_an_auditor_and_a_chain_that_differ_are_found(monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    fault(monkeypatch)
    assert violations(range(6, 13)) != []
