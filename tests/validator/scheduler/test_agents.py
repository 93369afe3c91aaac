"""Agents as contracts, published values and origins (SPEC §2, §4, §9): what each does, and that the index follows."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, run_state_machine_as_test

from cluster.disks.memory import MemoryDisk
from tests.validator.chains import ALICE, RICH, Chain, index_contents, make_genesis
from tests.validator.scheduler.test_index import PARAMETERS, SETTINGS, IndexMachine, Node, everything, sweeping_often
from validator.chain.genesis import Genesis, GenesisActor, GenesisAgent
from validator.chain.records import KEPT_ANSWER, KeptAnswer, Timer, decode_record
from validator.chain.transactions import Call, Deploy, Transaction, deployed_address
from validator.execution.bidding import BiddingRound
from validator.policies.cip1 import Cip1Phase
from validator.primitives.types import Address, Height
from validator.pvm.runtime.values import decode_value, encode_value
from validator.scheduler.agents import Party
from validator.scheduler.index import SchedulerIndex
from validator.scheduler.open_timers import OpenTimers
from validator.scheduler.parties import Parties
from validator.scheduler.rows import timer_id_of_row
from validator.state import LogStateStore
from validator.state.working_set import World
from validator.transition.genesis_block import genesis_batch
from validator.transition.transition import Outcome

OWNER_CODE = """
class Owner(Actor):
    def plan(self, payload):
        for each in payload:
            at = self.height + each[0]
            then = each[3] if len(each) > 3 else ""
            self.schedule_timer_ex(at, then, "fire", max_fee_per_cycle=each[1], bidding_agent=each[2])

    def name(self, payload):
        self.set_bidding_agent(payload)

    def fire(self, payload):
        if payload == "":
            self.emit("origin", self.origin_hash)
        elif self.height % 2 == 0:
            self.set_bidding_agent(payload)
        else:
            self.send(self.address, "name", payload, cycles=20000, cells=100)

    def name_and_fail(self, payload):
        self.set_bidding_agent(payload)
        self.publish("price", 5)
        assert False, "on purpose"

    def tell(self, payload):
        self.set("answer", payload)

    def publish_it(self, payload):
        self.publish("price", payload)

    def read(self, payload):
        self.emit("read", self.published(payload, "price") or 0)

    def pass_on(self, payload):
        self.emit("origin", self.origin_hash)
        if payload > 0:
            self.send(self.address, "pass_on", payload - 1, cycles=20000 * payload, cells=200 * payload)

    def bid_given(self, payload):
        self.schedule(self.height + 1, None, "fire", bid=payload)
"""
AGENT_CODE = """
class Agent(Actor):
    def tell(self, payload):
        self.set("answer", payload)

    def get_gas_bid(self, context):
        answer = self.get("answer")
        if answer == "who":
            assert context["owner"] == self.sender and len(context["timer_id"]) == 32
            owner = int.from_bytes(context["owner"][:8])
            return {"max_fee_per_cycle": owner, "max_priority_fee_per_cycle": self.height}
        if answer == "price":
            return {"max_fee_per_cycle": self.published(context["owner"], "price")}
        if answer == "mixed":
            return {"max_fee_per_cycle": 1 if context["trigger_block_height"] % 2 == 0 else 2**70}
        return answer
"""
OWNER, AGENT, OTHER_AGENT, BOTH = (Address(bytes([0xB0 + i]) * 20) for i in range(4))
FULL = {"max_fee_per_cycle": 5_000_000, "max_priority_fee_per_cycle": 3}
BOTH_CODE = OWNER_CODE.replace("class Owner", "class Both") + AGENT_CODE[AGENT_CODE.index("    def get_gas_bid") :]


def genesis(agents: dict[Address, GenesisAgent] | None = None, **parameters: Any) -> Genesis:
    codes = {OWNER: OWNER_CODE, AGENT: AGENT_CODE, OTHER_AGENT: AGENT_CODE, BOTH: BOTH_CODE}
    given = agents or {}
    actors = {at: GenesisActor(code, ALICE, RICH, given.get(at)) for at, code in codes.items()}
    return replace(make_genesis(parameters), actors=actors)


class AgentChain(Chain):
    """A chain with an owner, two contracts that bid, and an actor that does both."""

    def calls(self, *given: tuple[Address, str, Any]) -> Outcome:
        made, nonce = [], self.nonces.get(ALICE, 0)
        for at, handler, value in given:
            action = Call(at, handler, encode_value(value))
            made.append(self.transaction(action, ALICE, nonce=nonce, gas_limit=900_000, cells_limit=60_000))
            nonce += 1
        return self.block(*made)

    def call(self, at: Address, handler: str, value: Any = None) -> str:  # type: ignore[override]
        return self.calls((at, handler, value)).receipts.transactions[-1].error

    def next_bids(self) -> list[tuple[bytes, tuple[int | None, ...] | None]]:
        """The queries of the next block: whom, and what came of each."""
        return [
            (query.agent, None if query.bid is None else tuple(map(figure, query.bid)))
            for query in self.block().receipts.queries
        ]

    def published(self, at: Address) -> Any:
        found = World(self.view).published_get(at, "price")
        return None if found is None else decode_value(found)

    def kept(self, agent: Address, owner: Address = OWNER) -> KeptAnswer:
        data = self.view.get(KEPT_ANSWER + owner + agent)
        assert data is not None
        found: KeptAnswer = decode_record(KEPT_ANSWER, data)
        return found

    def agent_named(self) -> Address | None:
        """Whom the owner named."""
        record = World(self.view).actor(OWNER)
        return None if record is None or record.naming is None else record.naming.agent


def figure(packed: bytes | None) -> int | None:
    return None if packed is None else int.from_bytes(packed, "big")


def events(outcome: Outcome) -> list[tuple[str, str]]:
    return [(event.name, dict(event.fields).get("data", "")) for event in outcome.events]


# --- published values -------------------------------------------------------------------------------------------------


def test_what_is_published_every_actor_reads_and_nobody_stores() -> None:
    chain = AgentChain(genesis())
    outcome = chain.calls(
        (OWNER, "read", AGENT), (OWNER, "publish_it", 7), (BOTH, "read", OWNER), (OWNER, "publish_it", 9)
    )
    assert events(outcome) == [("read", "0"), ("read", "7")], "each reads what stands there at that point of the block"
    assert chain.published(OWNER) == 9
    world = World(chain.view)
    assert world.storage_get(OWNER, "price") is None and world.published_get(BOTH, "price") is None
    long_key = "k" * 300
    world.published_set(OWNER, long_key, b"\x05")
    assert world.published_get(OWNER, long_key) == b"\x05" and world.storage_get(OWNER, long_key) is None


def test_what_a_failing_handler_published_and_named_is_undone() -> None:
    chain = AgentChain(genesis())
    assert chain.call(OWNER, "publish_it", 1) == ""
    assert chain.call(OWNER, "name_and_fail", AGENT) == "ActorError: on purpose"
    record = World(chain.view).actor(OWNER)
    assert chain.published(OWNER) == 1 and record is not None and record.naming is None


# --- origins ----------------------------------------------------------------------------------------------------------


def test_a_message_has_its_senders_origin_even_when_it_waits_and_a_fire_has_none() -> None:
    chain = AgentChain(genesis())
    first = chain.calls((OWNER, "pass_on", 2), (OWNER, "plan", [[1, None, None]]))
    origin = first.receipts.transactions[0].transaction_hash.hex()
    assert events(first) == [("origin", origin), ("origin", origin)], "sent by the transaction"
    second = chain.block()
    assert events(second) == [("origin", "00" * 32), ("origin", origin)], "a fire; then what the message sent"


# --- scheduling -------------------------------------------------------------------------------------------------------


def test_a_bid_is_ignored_before_activation_and_refused_after() -> None:
    assert AgentChain(genesis()).call(OWNER, "bid_given", 5) == "TimerArgDeprecated"
    assert AgentChain(genesis()).call(OWNER, "bid_given", None) == ""
    chain = AgentChain(genesis(ACTIVATION_HEIGHT=3))
    outcome = chain.calls((OWNER, "bid_given", 5))
    assert [event.name for event in outcome.events] == ["TimerBidIgnored"]


@pytest.mark.parametrize("address", [OWNER, ALICE, Address(bytes(20)), Address(b"\x77" * 20)])
def test_an_agent_is_a_program_with_a_bid(address: Address) -> None:
    chain = AgentChain(genesis())
    assert chain.call(OWNER, "name", address) == "UnknownActor"
    assert chain.call(OWNER, "plan", [[1, None, address]]) == "UnknownActor"
    assert not chain.timers()


def test_an_agent_has_to_be_there_at_that_moment() -> None:
    chain = AgentChain(genesis())
    outcome = chain.block(chain.transaction(Deploy(AGENT_CODE), ALICE, gas_limit=2_000_000, cells_limit=5_000))
    deployed = Address(outcome.receipts.transactions[0].created)
    assert chain.call(OWNER, "name", deployed) == ""


# --- queries ----------------------------------------------------------------------------------------------------------


def test_a_contract_is_asked_over_its_own_storage_and_its_owner_pays() -> None:
    chain = AgentChain(genesis())
    chain.calls((OWNER, "tell", {}), (AGENT, "tell", "who"), (OWNER, "name", AGENT), (OWNER, "plan", [[1, None, None]]))
    before = World(chain.view).balance(OWNER)
    height = chain.view.height + 1
    assert chain.next_bids() == [(AGENT, (int.from_bytes(OWNER[:8], "big"), height))]
    assert World(chain.view).balance(AGENT) == RICH and World(chain.view).balance(OWNER) < before
    assert chain.kept(AGENT).since == height


def test_a_contract_reads_what_others_published() -> None:
    chain = AgentChain(genesis())
    chain.calls((OWNER, "publish_it", 8_000_000), (AGENT, "tell", "price"), (OWNER, "plan", [[1, None, AGENT]]))
    assert chain.next_bids() == [(AGENT, (8_000_000, None))]


def test_the_timers_own_agent_wins_and_stays() -> None:
    chain = AgentChain(genesis())
    other = {**FULL, "max_fee_per_cycle": 4_000_000}
    chain.calls((AGENT, "tell", FULL), (OTHER_AGENT, "tell", other), (OWNER, "name", AGENT))
    chain.calls((OWNER, "plan", [[1, None, OTHER_AGENT], [1, None, None]]))
    assert sorted(chain.next_bids()) == [(AGENT, (5_000_000, 3)), (OTHER_AGENT, (4_000_000, 3))]
    chain.calls((OWNER, "plan", [[2, None, OTHER_AGENT], [2, None, None]]))
    assert chain.call(OWNER, "name", None) == ""
    assert chain.next_bids() == [(OTHER_AGENT, (4_000_000, 3))], "the owner's own choice was taken back"


def test_whoever_names_nobody_again_has_what_is_its_own() -> None:
    chain = AgentChain(genesis())
    chain.calls((AGENT, "tell", FULL), (BOTH, "tell", {}), (BOTH, "name", AGENT), (BOTH, "plan", [[1, None, None]]))
    assert chain.next_bids() == [(AGENT, (5_000_000, 3))]
    chain.calls((BOTH, "name", None), (BOTH, "plan", [[1, None, None], [1, None, BOTH]]))
    assert chain.next_bids() == [(b"", (None, None))] * 2, "who names itself means its own bid"
    fixed = AgentChain(genesis({BOTH: GenesisAgent("builtin:fixed", 7_000_000, 1)}))
    fixed.calls((BOTH, "tell", {}), (BOTH, "plan", [[1, None, None], [1, None, BOTH]]))
    assert sorted(fixed.next_bids()) == [(b"", (7_000_000, 1)), (bytes(BOTH), (None, None))], "two agents"


def test_answers_are_kept_for_each_owner_and_agent() -> None:
    """One query a block: a timer that is not asked about takes the answer of its own agent, if there is one."""
    chain = AgentChain(genesis(GBA_QUERIES_PER_ACTOR=1))
    chain.calls((AGENT, "tell", {**FULL, "max_priority_fee_per_cycle": 111}), (OTHER_AGENT, "tell", FULL))
    chain.calls((OWNER, "plan", [[1, None, AGENT], [2, None, AGENT], [2, None, AGENT], [2, None, OTHER_AGENT]]))
    assert len(chain.block().receipts.queries) == 1
    tips = {fire.sequence: figure(fire.tip_per_cycle) for fire in chain.block().receipts.fires}
    assert tips == {1: 111, 2: 111, 3: figure_of_default(chain)}


def figure_of_default(chain: Chain) -> int:
    """The tip of the default agent in the last block: the median of the block before."""
    return figure(chain.blocks[-1].receipts.p50_tip) or 0


def test_a_bid_too_low_for_the_gate_is_not_raised_by_the_answer_about_another_timer() -> None:
    chain = AgentChain(genesis())
    chain.calls((AGENT, "tell", "mixed"), (OWNER, "plan", [[1, None, AGENT], [2, None, AGENT]]))
    assert chain.block().receipts.fires == ()
    outcome = chain.block()
    assert [query.bid and figure(query.bid[0]) for query in outcome.receipts.queries] == [1, 2**70]
    assert [fire.trigger_height for fire in outcome.receipts.fires] == [3], "the one that was bid for, not the other"


def test_what_an_answer_leaves_open_is_the_default_agents() -> None:
    chain = AgentChain(genesis())
    chain.calls(
        (AGENT, "tell", {"max_priority_fee_per_cycle": 77, "max_fee_per_cell": 1}), (OWNER, "plan", [[1, None, AGENT]])
    )
    (fire,) = chain.block().receipts.fires
    assert figure(fire.tip_per_cycle) == 77, "below twice the lane price, which the default agent gives"


def test_a_timer_that_is_left_to_the_default_agent_late_gets_that_blocks_fee_for_good() -> None:
    """Its agent priced it too low to fire; then the agent leaves the fee open, and the default agent's is kept."""
    chain = AgentChain(genesis(MIN_BASEFEE=1_000))
    chain.calls((AGENT, "tell", {"max_fee_per_cycle": 1}), (OWNER, "plan", [[1, None, AGENT]]))
    assert chain.block().receipts.fires == ()
    (timer,) = chain.timers()
    assert timer.default_max_fee is None
    record = World(chain.view).timer(timer.timer_id)
    assert record is not None and chain.index.supplies.height_for(record, chain.view.height) is None
    chain.calls((AGENT, "tell", {}))
    assert len(chain.blocks[-1].receipts.fires) == 1, "priced by the default agent, it fires at once"
    assert chain.kept(AGENT) == KeptAnswer(None, None, 0)


# --- the index --------------------------------------------------------------------------------------------------------


class AgentMachine(IndexMachine):
    """The same with contracts: named, told other answers, left, and asked about some of the timers only."""

    @initialize(activation=st.sampled_from([0, 3]))
    def begin(self, activation: int = 0) -> None:
        wide = {"GBA_MAX_CYCLES": 3_000, "GBA_BUDGET_CYCLES": 7_000, "LANE_TIMER_CYCLES": 60_000}
        caps = {"MAX_CYCLES_PER_FIRE": 30_000, "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 30_000}
        self.genesis = genesis(**{**PARAMETERS, **wide, **caps, "ACTIVATION_HEIGHT": activation})
        self.store = LogStateStore.open(MemoryDisk())
        self.store.commit(self.store.final.derive(Height(0), genesis_batch(self.genesis)))
        self.index = SchedulerIndex.rebuild(self.genesis, self.store.final)
        self.nodes = [Node(self.store.final, [], None)]
        self.here = self.nodes[0]

    def draw(self, random: Random, height: int, sender: Address, nonce: int) -> Transaction:
        owner, agent = random.choice((OWNER, BOTH)), random.choice((AGENT, OTHER_AGENT, BOTH, None))
        price = random.choice((None, None, 2**80))
        timers = [
            [random.choice((1, 1, 2, 5)), price, random.choice((agent, None)), random.choice(("", "", agent))]
            for _ in range(random.randrange(1, 6))
        ]
        answers: tuple[Any, ...] = (
            FULL,
            {},
            {"max_fee_per_cycle": 1},
            {"max_fee_per_cycle": 2**70},
            "bad",
            "mixed",
            {"max_priority_fee_per_cycle": 9},
        )
        action = random.choice(
            (
                Call(owner, "plan", encode_value(timers)),
                Call(owner, "plan", encode_value(timers)),
                Call(owner, "name", encode_value(agent)),
                Call(random.choice((AGENT, OTHER_AGENT, BOTH)), "tell", encode_value(random.choice(answers))),
            )
        )
        return Transaction(ALICE, nonce, 200_000, 20_000, 10**9, random.choice((0, 5)), 10**9, action)

    def follows_the_state(self) -> None:
        """Each party's kept answer says since when it prices what it prices; and nobody is asked who has no agent."""
        view = self.here.view
        for actor in (OWNER, BOTH):
            record = World(view).actor(actor)
            assert record is not None
            assert self.index.parties.agent_of(Party(actor)) is not None or record.agent is None
        timers: list[Timer] = [decode_record(*item) for item in view.scan(b"t")]
        assert len(self.index.timers_rows()) == len(timers)


@pytest.mark.parametrize("examples", [8, pytest.param(400, marks=pytest.mark.soak)])
def test_the_index_follows_agents_wherever_it_goes(examples: int) -> None:
    with sweeping_often():
        run_state_machine_as_test(AgentMachine, settings=settings(SETTINGS, max_examples=examples))


class NaivePrices:
    """What each due timer offers, by SPEC §9 alone: per timer, in lists and dicts, block after block."""

    def __init__(self) -> None:
        self.kept: dict[tuple[bytes, bytes], tuple[int | None, ...]] = {}
        self.defaults: dict[bytes, int] = {}

    def fees(
        self, timer: Timer, agent: bytes | None, answers: dict[bytes, Any], price: int, p50: int
    ) -> tuple[int, int]:
        bid = answers[timer.timer_id] if timer.timer_id in answers else self.kept.get((timer.actor, agent or b""))
        if agent is None or bid is None:
            bid = (None, None)
        max_fee = timer.max_fee_per_cycle if timer.max_fee_per_cycle is not None else bid[0]
        if max_fee is None:
            max_fee = self.defaults.setdefault(timer.timer_id, 2 * price)
        priority = timer.max_priority_fee_per_cycle if timer.max_priority_fee_per_cycle is not None else bid[1]
        return max_fee, p50 if priority is None else priority


def check_prices(machine: AgentMachine, seed: int, naive: NaivePrices) -> int:
    """One block on the last one; how many prices were compared."""
    transition, nonces = machine.process(seed)
    records = {actor: transition.world.actor(actor) for actor in (OWNER, BOTH)}
    with pytest.MonkeyPatch.context() as patched:
        found = noted_prices(patched)
        outcome = transition.finish()
    answers: dict[bytes, Any] = {}
    for query in outcome.receipts.queries:
        bid = None if query.bid is None else tuple(map(figure, query.bid))
        answers[query.timer_id] = bid
        if bid is not None:
            naive.kept[query.actor, query.agent] = bid
    for timer, price in found:
        record = records[timer.actor]
        assert record is not None
        agent: bytes | None = timer.bidding_agent or (record.naming.agent if record.naming else None)
        if record.agent is not None and agent in (None, timer.actor):
            agent = b""
        lane, p50 = transition.prices.lane_price, transition.prices.p50_tip
        assert price == naive.fees(timer, agent, answers, lane, p50), (seed, timer)
    machine.index.advance(outcome.changes)
    machine.here = Node(outcome.view, outcome.changes, None, nonces)
    machine.nodes = [machine.here]
    machine.store.commit(outcome.view)
    machine.index.settle(outcome.view.height)
    return len(found)


def noted_prices(patched: pytest.MonkeyPatch) -> list[tuple[Timer, tuple[int, int]]]:
    """What each due timer with an open field offers in a block, when the scan begins."""
    found: list[tuple[Timer, tuple[int, int]]] = []
    scan = Cip1Phase.scan

    def noting(phase: Cip1Phase, candidates: Any) -> None:
        candidates = list(candidates)
        tips = {candidate.timer_id: candidate.tip for candidate in candidates}
        for row in phase.index.pool.living():
            timer = phase.world.timer(timer_id_of_row(row))
            if timer is None or None not in (timer.max_fee_per_cycle, timer.max_priority_fee_per_cycle):
                continue
            max_fee, priority = phase.price(timer)
            found.append((timer, (max_fee, priority)))
            room = max_fee - phase.prices.lane_price
            offered = min(priority, room) if room >= 0 and timer.expires_at >= phase.terms.height else None
            assert tips.get(timer.timer_id) == offered, "the index prices it as the transition does"
        return scan(phase, candidates)

    patched.setattr(Cip1Phase, "scan", noting)
    return found


def compared_prices(seeds: range) -> int:
    compared = 0
    for seed in seeds:
        machine, naive = AgentMachine(), NaivePrices()
        machine.begin(activation=3 * (seed % 2))
        compared += sum(check_prices(machine, 1_000 * seed + block, naive) for block in range(14))
    return compared


def test_every_timer_has_the_price_that_its_agent_gives() -> None:
    assert compared_prices(range(12)) > 300


def forgets_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer for all the agents of an actor."""
    kept = BiddingRound._kept
    monkeypatch.setattr(BiddingRound, "_kept", lambda self, actor, _agent: kept(self, actor, AGENT))


def forgets_who_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BiddingRound, "_left", lambda _self, _parties: [])


def settles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BiddingRound, "_settle_naming", lambda _self, _actor: None)


@pytest.mark.parametrize("fault", [forgets_the_agent, forgets_who_was_left, settles_nothing])
def test_a_price_of_another_agent_is_found(monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    fault(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        compared_prices(range(60))


def test_a_far_timer_of_an_actor_that_was_deployed_in_the_same_block_is_open_to_agents() -> None:
    """The overflow tree takes timers in before the index knows the block's new actors."""
    chain = AgentChain(genesis(EPOCH_LENGTH=4, RING_BUFFER_SIZE=4, EPOCH_HORIZON=2))
    at = deployed_address(ALICE, 0)
    limits = {"gas_limit": 2_000_000, "cells_limit": 5_000}
    chain.block(
        chain.transaction(Deploy(BOTH_CODE), ALICE, value=10**15, nonce=0, **limits),
        chain.transaction(Call(at, "plan", encode_value([[60, None, None]])), ALICE, nonce=1, **limits),
    )
    assert [timer.actor for timer in chain.timers()] == [at]
    fresh = SchedulerIndex.rebuild(chain.genesis, chain.view)
    assert index_contents(chain.index) == index_contents(fresh)


# --- work that nobody pays for ----------------------------------------------------------------------------------------


def counted(patched: pytest.MonkeyPatch, owner: type, name: str) -> list[Any]:
    """The arguments of each call of a method."""
    calls: list[Any] = []
    method = getattr(owner, name)

    def counting(self: Any, *arguments: Any) -> Any:
        calls.append(arguments)
        return method(self, *arguments)

    patched.setattr(owner, name, counting)
    return calls


def work_of_a_block(parties: int) -> tuple[int, ...]:
    """Looks at parties and kept answers in a block with queries, of an actor that named so many contracts before."""
    chain = AgentChain(genesis())
    chain.calls((AGENT, "tell", {"max_fee_per_cycle": 1}), (OWNER, "name", AGENT))
    chain.calls((OWNER, "plan", [[1, None, None]] * 8))
    for number in range(parties):
        chain.index.parties.number(Party(OWNER, Address(number.to_bytes(20, "big"))))
    chain.block()
    with pytest.MonkeyPatch.context() as patched:
        looks = [counted(patched, Parties, "_set_bid"), counted(patched, BiddingRound, "_kept")]
        assert len(chain.block().receipts.queries) == 8
    return tuple(map(len, looks))


def test_a_query_costs_the_same_however_many_agents_its_actor_ever_named() -> None:
    assert work_of_a_block(parties=300) == work_of_a_block(parties=0)


def test_timers_that_come_due_are_noted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = AgentChain(genesis())
    chain.calls((OWNER, "plan", [[1, None, None]] * 40 + [[1, None, AGENT]] * 40))
    noted = counted(monkeypatch, OpenTimers, "refresh")
    chain.index.begin(chain.view.height + 1, [])
    assert noted == [(OWNER,)] and chain.index.open.asked == {OWNER}
    chain.index.abandon()
    assert noted == [(OWNER,)] * 2 and chain.index.open.asked == set()


def test_an_agent_that_leaves_again_and_again_has_its_timers_looked_at_once() -> None:
    """What the default agent supplied stays: only timers that it never priced are given its fee."""
    few: dict[str, Any] = {
        "LANE_TIMER_CYCLES": 20_000,
        "MAX_CYCLES_PER_FIRE": 20_000,
        "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 20_000,
    }
    chain = AgentChain(genesis(GBA_QUERIES_PER_ACTOR=1, **few))
    chain.calls((AGENT, "tell", {"max_fee_per_cycle": 1}), (OWNER, "plan", [[1, None, AGENT]] * 60))
    chain.block()
    answers: tuple[dict[str, int], ...] = ({}, {"max_fee_per_cycle": 1}, {}, {"max_fee_per_cycle": 1}, {})
    defaulted = [len(set(chain.calls((AGENT, "tell", answer)).bidding.defaulted)) for answer in answers]
    assert len(chain.timers()) > 40
    assert defaulted == [60, 0, 1, 0, 1], "then the timer that was asked about alone"


def test_naming_an_agent_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The actor's record says whether its program bids; compiling it anew would be unpaid."""
    chain = AgentChain(genesis())
    monkeypatch.setattr("validator.execution.timer_calls.compiled_as", None)
    assert chain.call(OWNER, "name", AGENT) == ""
    assert chain.call(OWNER, "name", OWNER) == "UnknownActor"


LOW = {"max_fee_per_cycle": 1}
"""Prices the max fee, so that the timer waits."""


@pytest.mark.parametrize("delay", [1, 2], ids=["by a fire", "by a message"])
@pytest.mark.parametrize(("answer", "other"), [(LOW, None), ({}, LOW)], ids=["to nothing kept", "to a kept answer"])
def test_an_agent_that_is_named_after_pricing_prices_nothing_of_that_block(answer: Any, other: Any, delay: int) -> None:
    """The default agent supplied before that, or not; an index that goes back and forth, or is rebuilt, says so."""
    one_fires: dict[str, Any] = {
        "LANE_TIMER_CYCLES": 30_000,
        "MAX_CYCLES_PER_FIRE": 30_000,
        "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 30_000,
    }
    chain = AgentChain(genesis(**one_fires, TIE_BREAK="aged"))
    told = [(AGENT, "tell", answer), (OTHER_AGENT, "tell", other), (BOTH, "tell", {})]
    chain.calls(*told, (OWNER, "name", AGENT))
    if other is not None:
        chain.calls((OWNER, "plan", [[1, None, OTHER_AGENT]]))
    while chain.view.height < 2:
        chain.block()
    waiting = [[delay, None, None]] * 3
    chain.calls((OWNER, "plan", [[delay, 2**80, None, OTHER_AGENT], *waiting]), (BOTH, "plan", waiting))
    while chain.agent_named() == AGENT:
        outcome = chain.block()
    assert chain.view.height == 3 + delay and len(chain.timers()) >= 6 and chain.index.parties.unsettled == {OWNER}
    expected = everything(SchedulerIndex.rebuild(chain.genesis, chain.view))
    assert everything(chain.index) == expected
    chain.index.retreat(outcome.changes)
    chain.index.redo(chain.view.height, outcome.changes)
    assert everything(chain.index) == expected
    chain.block()
    assert everything(chain.index) == everything(SchedulerIndex.rebuild(chain.genesis, chain.view))
