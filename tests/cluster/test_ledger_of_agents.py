"""The auditor's view of agents: who bids for whom, what is kept of whose answers, and queries that must not be."""

from __future__ import annotations

import pytest

from cluster.divergence.words import key_words
from cluster.fee_market import Basefees
from cluster.ledger import TIMERS, Ledger
from cluster.queries import Agents, QueryAudit
from cluster.turns import Terms, TurnAudit
from tests.cluster.records import ACTOR, ChainMaker
from tests.validator.test_agents import AGENT, BOTH, OTHER_AGENT, OWNER, genesis
from validator.block import Bidder, Effects, QueryReceipt, Scheduled
from validator.codec import pack_uint
from validator.genesis import GenesisAgent
from validator.params import DEFAULTS
from validator.records import kept_answer_key, published_key
from validator.transactions import Call

PRICE = 10**6


class Life:
    """A timer that is pending."""

    is_pending = True
    expires_at = 99


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
        item = Scheduled(bytes([self.count]) * 32, actor, 1, self.count, 99, actor)
        self.turns.scheduled(item, Terms.of(item), Life())
        if agent:
            assert list(self.agents.named(actor, Bidder(item.timer_id, agent))) == []
        return item.timer_id

    def begin(self, height: int = 1) -> None:
        self.audit.begin_block(height)
        self.turns.begin_phase(height, DEFAULTS, Basefees(PRICE, PRICE, PRICE))

    def query(self, timer_id: bytes, actor: bytes, agent: bytes, bid: tuple[int | None, int | None]) -> list[str]:
        figures = tuple(None if figure is None else pack_uint(figure) for figure in bid)
        receipt = QueryReceipt(timer_id, actor, "ok", 700, b"", (figures[0], figures[1]), agent)
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
    maker = ChainMaker()
    maker.transact(Call(ACTOR, "run", b"[]"), Effects(timer_changes=(Bidder(b"", AGENT),)))
    record = maker.seal()
    ledger = Ledger(maker.genesis)
    ledger.apply(record.block, record.receipts)
    found = [(violation.check, violation.what) for violation in ledger.violations]
    assert found == [(TIMERS, "an agent was named for the timers of an actor by who must not")]


def test_the_new_keys_of_state_are_described() -> None:
    owner, agent = f"0x{OWNER.hex()}", f"0x{AGENT.hex()}"
    assert key_words(published_key(OWNER, "price")) == f"value 'price' published by actor {owner}"
    assert key_words(published_key(OWNER, "k" * 300)).endswith(f" published by actor {owner}")
    assert key_words(kept_answer_key(OWNER, AGENT)) == f"last bid of agent {agent} for actor {owner}"
