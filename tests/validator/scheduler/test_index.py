"""The scheduler's index along random branches of real blocks: wherever it goes, it equals a rebuild from that state.

Blocks grow on any parent, some are given up halfway; the index jumps between them, some become final. Timers are
scheduled near and far, cancelled, extended, fired, left to expire, priced by agents and by the default agent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from cluster.disks.memory import MemoryDisk
from tests.validator.chains import (
    ACTORS,
    ALICE,
    BOB,
    PROPOSER,
    RICH,
    SMALL,
    index_contents,
    make_genesis,
    prepare,
    schedule,
    script,
)
from validator.chain.genesis import Genesis, GenesisAgent, Policy
from validator.chain.records import BID_MEMORY, TIMER, BidMemory, Fires, Timer, decode_record
from validator.chain.transactions import Call, ExtendTimer, System, Transaction, UpdateTimerConfig
from validator.primitives.params import Parameters, WeightParty
from validator.primitives.types import Address, Height, TimerId
from validator.scheduler import calendar as calendar_module
from validator.scheduler import order, waiting
from validator.scheduler.calendar import MAX_REMOVED_IN_SMALL, Bucket, Calendar
from validator.scheduler.fairness import FireCounts
from validator.scheduler.index import SchedulerIndex
from validator.scheduler.open_timers import OpenTimers
from validator.scheduler.order import CHUNK
from validator.scheduler.overflow import OverflowTree
from validator.scheduler.parties import Parties
from validator.scheduler.rows import DEAD, ROW, Rows, gas_limit_of_row, timer_id_of_row
from validator.scheduler.waiting import WaitingPool
from validator.state import LogStateStore, View
from validator.state.working_set import Change
from validator.transition.genesis_block import genesis_batch
from validator.transition.transition import BlockContext, NotAdmitted, Transition

PARAMETERS: dict[str, Any] = {
    **SMALL,
    "LANE_TIMER_CYCLES": 10_000,
    "MIN_BASEFEE": 1_000_000,
    "EPOCH_LENGTH": 4,
    "RING_BUFFER_SIZE": 4,
    "EPOCH_HORIZON": 2,
    "FAIRNESS_WINDOW_BLOCKS": 3,
    "GBA_MAX_CYCLES": 1_000,
    "GBA_BUDGET_CYCLES": 2_100,
    "GBA_QUERIES_PER_ACTOR": 2,
    "GBA_UNPAID_PAUSE": 2,
    "TIE_BREAK": "aged",
}
"""Tiers of a few blocks, and agents that are asked about some of their timers only."""
AGENTS = {
    ACTORS[1]: GenesisAgent("builtin:fixed", 2**80, 7),
    ACTORS[2]: GenesisAgent("builtin:fixed", 1_000_001, 2**70),
    ACTORS[3]: GenesisAgent("builtin:fixed", 900_000, 1),
}
"""The first actor has none; the last bids too little for its timers to fire, until it cannot pay for queries."""
FIRES_ALWAYS = {"max_fee_per_cycle": 2**90, "max_priority_fee_per_cycle": 3}


def draw_watches(random: Random, height: int) -> list[Any]:
    """What a transaction's script does about watched keys."""
    key, value = random.choice("kl"), random.choice("xy")
    watched = {"actor": "0x" + random.choice(ACTORS[:2]).hex(), "key": random.choice("kl")}
    payload = [["set", random.choice("kl"), random.choice("xy")]] if random.random() < 0.5 else []
    fields: dict[str, Any] = {"bid": random.choice((0, 5)), "gas_limit": 8_000, "save_as": random.choice("abc")}
    if random.random() < 0.7:
        fields["expires_at"] = height + random.choice((1, 2, 4, 9))
    timer = ["schedule", {"watch": watched, "payload": payload, **fields}]
    later = {"to": "0x" + random.choice(ACTORS[:2]).hex(), "handler": "h", "payload": payload, "cycles": 5_000}
    drawn: dict[str, list[Any]] = {
        "allow": [["allow_watching", key, random.random() < 0.8] for key in "kl"],
        "watch": [["try", timer], ["try", timer]],
        "change": [["set", key, value]],
        "later": [["send", later]],
        "allow, watch and change": [["allow_watching", key, True], ["try", timer], ["set", key, value]],
    }
    names = ("allow", "watch", "watch", "watch", "change", "change", "later", "allow, watch and change")
    return drawn[random.choice(names)]


def draw_operations(random: Random, height: int) -> list[Any]:
    """What a transaction's script does."""
    delay, key = random.choice((1, 1, 1, 2, 2, 3, 5, 6, 7, 9, 13, 30)), random.choice("abc")
    nested = [["try", ["cancel", {"saved": key}]]] if random.random() < 0.3 else []
    return {
        "one": [schedule(delay, *nested, save_as=key)],
        "dear": [schedule(delay, *nested, save_as=key, **FIRES_ALWAYS)],
        "cheap": [schedule(delay, max_fee_per_cycle=1_000_000, save_as=key)],
        "many": [schedule(delay, ["burn", 6_000]) for _ in range(4)],
        "brief": [schedule(delay, gas_limit=8_000, expires_at=height + delay) for _ in range(3)],
        "cancel": [["try", ["cancel", {"saved": key}]]],
        "extend": [["try", ["extend", {"saved": key, "expires_at": height + random.randrange(60)}]]],
    }[random.choice(("one", "dear", "cheap", "many", "brief", "cancel", "extend"))]


@dataclass(eq=False)
class Node:
    """A block: its state, what it changed, and what it stands on."""

    view: View
    changes: list[Change]
    parent: Node | None
    nonces: dict[Address, int] = field(default_factory=dict)

    def line(self) -> list[Node]:
        """From the last final block to this one."""
        return [*(self.parent.line() if self.parent else []), self]


class IndexMachine(RuleBasedStateMachine):
    """Blocks grow on random parents; the index follows."""

    @initialize(
        activation=st.sampled_from([0, 3]),
        paid=st.booleans(),
        weight_party=st.sampled_from(WeightParty),
        watches=st.sampled_from([False, False, True]),
    )
    def begin(
        self,
        activation: int,
        paid: bool,
        weight_party: WeightParty = WeightParty.ACTOR,
        watches: bool = False,
    ) -> None:
        """``watches``: whether timers watch keys, under ``bias_auction``, which asks no agents."""
        self.watches, self.agents = watches, {} if watches else AGENTS
        balances = {**dict.fromkeys(ACTORS, RICH), ACTORS[3]: RICH if paid else 13 * 10**8}
        self.genesis: Genesis = make_genesis(
            {**PARAMETERS, "ACTIVATION_HEIGHT": activation, "WEIGHT_PARTY": weight_party.value},
            actors=balances,
            agents=self.agents,
            system_deployers=(BOB,),
            deployers={ACTORS[1]: BOB},
            policy=Policy.BIAS_AUCTION if watches else Policy.CIP1,
        )
        self.store = LogStateStore.open(MemoryDisk())
        self.store.commit(self.store.final.derive(Height(0), genesis_batch(self.genesis)))
        self.index = SchedulerIndex.rebuild(self.genesis, self.store.final)
        self.nodes = [Node(self.store.final, [], None)]
        self.here = self.nodes[0]

    # --- steps --------------------------------------------------------------------------------------------------------

    @rule(parent=st.integers(0, 10**6), seed=st.integers(0, 10**6), count=st.integers(1, 6))
    def grow(self, parent: int, seed: int, count: int) -> None:
        """Some blocks, one on the other, on some parent, mostly a late one."""
        self.move_to(self.nodes[-1 - parent % min(len(self.nodes), 8)])
        for number in range(count):
            transition, nonces = self.process(seed + number)
            outcome = transition.finish()
            self.index.advance(outcome.changes)
            self.here = Node(outcome.view, outcome.changes, self.here, nonces)
            self.nodes.append(self.here)
            self.equals_a_rebuild()

    @rule(seed=st.integers(0, 10**6), halfway=st.booleans())
    def give_up(self, seed: int, halfway: bool) -> None:
        """A block whose processing is given up, before its end or after: the index is the parent's again."""
        transition, _ = self.process(seed)
        if not halfway:
            transition.finish()
        self.index.abandon()

    @rule(place=st.integers(0, 10**6))
    def jump(self, place: int) -> None:
        self.move_to(self.nodes[place % len(self.nodes)])

    @rule()
    def go_back(self) -> None:
        """To the last final block."""
        self.move_to(self.nodes[0])

    @rule(place=st.integers(0, 10**6), stays=st.booleans())
    def finalize(self, place: int, stays: bool) -> None:
        """The next block on the way to some block becomes final; what does not descend from it is dropped."""
        line = self.nodes[place % len(self.nodes)].line()
        if len(line) < 2:
            return
        final = line[1]
        if final not in self.here.line() or not stays:
            self.move_to(final)
        self.store.commit(final.view)
        self.index.settle(final.view.height)
        self.nodes = [node for node in self.nodes if final in node.line()]
        final.parent = None

    # --- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def equals_a_rebuild(self) -> None:
        if not hasattr(self, "index"):
            return
        fresh = SchedulerIndex.rebuild(self.genesis, self.here.view)
        assert everything(self.index) == everything(fresh)
        self.follows_the_state()
        memories: list[BidMemory] = [decode_record(*item) for item in self.here.view.scan(BID_MEMORY)]
        for place, bound in enumerate(self.index.parties.greatest_bid):
            assert bound >= max((memory[3 + place] or 0 for memory in memories), default=0)
        require_summary(self.index.pool)

    def follows_the_state(self) -> None:
        """What stands in the rows is what stands in the timers' records, without a rebuild in between."""
        timers: list[Timer] = [decode_record(*item) for item in self.here.view.scan(TIMER)]
        timers.sort(key=lambda timer: (timer.trigger_height, timer.sequence))
        rows = self.index.timers_rows()
        assert [timer_id_of_row(row) for row in rows] == [timer.timer_id for timer in timers]
        for row, timer in zip(rows, timers, strict=True):
            assert (row["trigger"], row["sequence"]) == (timer.trigger_height, timer.sequence)
            assert (row["expires_at"], row["gas_limit"]) == (timer.expires_at, timer.gas_limit or 0)
        due = [timer for timer in timers if timer.trigger_height <= self.here.view.height]
        assert self.index.pool.live == len(due)
        for actor in ACTORS:
            ids = [
                timer.timer_id
                for timer in due
                if timer.actor == actor and None in (timer.max_fee_per_cycle, timer.max_priority_fee_per_cycle)
            ]
            assert self.open_ids(actor) == (ids if actor in self.agents else [])

    def open_ids(self, actor: Address) -> list[bytes]:
        return [timer_id_of_row(row) for row in self.index.open_rows(actor, with_own=True)]

    # --- parts --------------------------------------------------------------------------------------------------------

    def process(self, seed: int) -> tuple[Transition, dict[Address, int]]:
        """A random block up to its last transaction, and the nonces after it; the index is left begun for it."""
        random, height = Random(seed), self.here.view.height + 1
        context = BlockContext(Height(height), PROPOSER, self.genesis, explains=random.random() < 0.5)
        transition, nonces = Transition(self.here.view, self.index, context), dict(self.here.nonces)
        transition.start()
        for salt in range(random.randrange(7)):
            sender = BOB if random.random() < 0.15 else ALICE
            transaction = self.draw(random, height, sender, nonces.get(sender, 0))
            try:
                transition.execute(prepare(transaction, salt))
            except NotAdmitted:
                continue
            nonces[sender] = transaction.nonce + 1
        return transition, nonces

    def draw(self, random: Random, height: int, sender: Address, nonce: int) -> Transaction:
        draws = draw_watches if self.watches and random.random() < 0.6 else draw_operations
        action: Any = Call(random.choice(ACTORS), "run", script(*draws(random, height)))
        timers = [key[1:] for key, _ in self.here.view.scan(b"t")]
        if sender == BOB and timers and random.random() < 0.5:
            action = System(ExtendTimer(random.choice(timers), height + random.randrange(90)))
        elif sender == BOB:
            action = System(UpdateTimerConfig(f'{{"FAIRNESS_WINDOW_BLOCKS": {random.randrange(1, 5)}}}'))
        return Transaction(sender, nonce, 200_000, 20_000, 10**9, random.choice((0, 5)), 10**9, action)

    def move_to(self, node: Node) -> None:
        here, there = self.here.line(), node.line()
        shared = sum(1 for one, other in zip(here, there, strict=False) if one is other)
        for block in reversed(here[shared:]):
            self.index.retreat(block.changes)
            assert block.parent is not None
            self.here = block.parent
            self.equals_a_rebuild()
        for block in there[shared:]:
            self.index.redo(block.view.height, block.changes)
            self.here = block
            self.equals_a_rebuild()
        assert self.here is node


def everything(index: SchedulerIndex) -> dict[str, Any]:
    """All that a state determines of its index."""
    used = {int(number) for number in index.timers_rows()["actor"]}
    rows = index.parties.table.copy()
    rows["recent"], rows["counted_at"] = rows["recent"][rows["counted_at"]], 0
    table = {index.parties.numbers.party(number): tuple(rows[number].tolist()) for number in used}
    waiting_for = {
        (actor, with_own): [timer_id_of_row(row) for row in index.open_rows(actor, with_own)]
        for actor, _ in index.open._places
        for with_own in (False, True)
    }
    parties = {index.parties.numbers.party(number) for number in used}
    return {
        "contents": index_contents(index),
        "parties": {party: known for party, known in table.items() if any(known)},
        "open": waiting_for,
        "agents": {party: index.parties.agent_of(party) for party in parties},
        "answered": {party: index.parties.answered_since(party) for party in parties},
        "left": {party: index.unsupplied([party]) for party in parties},
        "asked": index.open.asked,
        "unsettled": index.parties.unsettled,
        "live": index.pool.live,
        "supplies": {height: index.supplies.max_fees[height] for height in index.supplies.standing},
        "divisor": index.parties.fires.divisor(),
        "overflow": index.calendar.overflow_root(),
    }


def require_summary(pool: WaitingPool) -> None:
    """What a chunk's summary says is so; for the cap that is known, without which there is none."""
    cap = pool._cap
    fresh = np.zeros((pool.count + CHUNK - 1) // CHUNK, order.SUMMARY)
    for chunk in range(len(fresh)):
        order.summarize(pool.rows, pool.count, chunk, np.uint64(cap), fresh)
    assert np.array_equal(pool.summary(cap)[: len(fresh)], fresh)


@contextmanager
def sweeping_often() -> Iterator[None]:
    """Dead rows are swept as soon as there are three."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(waiting, "MIN_SWEPT", 3)
        yield


SETTINGS = settings(stateful_step_count=15, deadline=None, derandomize=True)


@pytest.mark.parametrize("examples", [10, *(pytest.param(examples, marks=pytest.mark.soak) for examples in (40, 400))])
def test_the_index_equals_a_rebuild_wherever_it_goes(examples: int) -> None:
    with sweeping_often():
        run_state_machine_as_test(IndexMachine, settings=settings(SETTINGS, max_examples=examples))


def long_chain(
    activation: int, watches: bool = False, hesitates: bool = False, seeds: range = range(60)
) -> Iterator[IndexMachine]:
    """Blocks, one on the other, of which all but the newest few become final. Yields after each new one.

    With ``hesitates``, each block is given up once before it is there to stay.
    """
    machine = IndexMachine()
    machine.begin(activation, paid=False, watches=watches)
    for seed in seeds:
        if hesitates:
            machine.give_up(seed, halfway=False)
            machine.equals_a_rebuild()
        machine.grow(0, seed, count=1)
        yield machine
        if seed - seeds.start > 3:
            machine.finalize(len(machine.nodes) - 1, stays=True)
        while seed % 10 == 9 and len(machine.nodes) > 1:  # now and then all of them: only then rows are swept
            machine.finalize(1, stays=True)


# --- what the random chains reach -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_random_chains_reach_what_they_are_for() -> None:
    """Far timers, carried ones, expiries, all outcomes of queries, several supplies at a time, sweeps."""
    seen: set[str] = set()
    with sweeping_often():
        for activation in (0, 3):
            rows = 0
            for machine in long_chain(activation):
                seen |= reached(machine, machine.nodes[-1])
                if machine.index.pool.count < rows:
                    seen.add("swept")
                rows = machine.index.pool.count
    assert seen == {"fired", "expired", "ok", "unpaid", "defaulted", "far", "carried", "window", "swept", "supplies"}


@pytest.mark.slow
def test_random_chains_with_watches_reach_what_they_are_for() -> None:
    """Keys change before the fires and after them, and timers end while they watch, and once they are due."""
    seen: set[str] = set()
    with sweeping_often():
        for activation in (0, 3):
            for machine in long_chain(activation, watches=True):
                node = machine.nodes[-1]
                seen |= {what for change in node.changes for what in became(change, node.view.height)}
    assert seen == {"due at once", "due in the next block", "ended watching", "ended due", "extended"}


def became(change: Change, height: int) -> Iterator[str]:
    """What a block made of a timer that watched a key."""
    before, after = change.before, change.after
    if not isinstance(before, Timer) or before.watch is None:
        return
    if after is None:
        yield "ended watching" if before.is_watching else "ended due"
    elif before.is_watching and not after.is_watching:
        yield "due at once" if after.trigger_height == height else "due in the next block"
    elif before.is_watching and after.expires_at > before.expires_at:
        yield "extended"


def reached(machine: IndexMachine, node: Node) -> set[str]:
    index, seen = machine.index, set()
    for change in node.changes:
        match change.before, change.after:
            case Timer() as timer, None:
                seen.add("expired" if timer.expires_at < node.view.height else "fired")
            case Timer(default_max_fee=None), Timer(default_max_fee=int()):
                seen.add("defaulted")
            case _, BidMemory() as memory:
                seen.add("unpaid" if memory.unpaid_height == node.view.height else "ok")
            case Fires(), None:
                seen.add("window")
    if len(index.supplies.standing) > 1:
        seen.add("supplies")
    if any(index.timers_rows()["trigger"] > node.view.height + 12):
        seen.add("far")
    if index.pool.live:
        seen.add("carried")
    return seen


# --- planted faults ---------------------------------------------------------------------------------------------------

Method = Callable[..., Any]


def nothing(_: Method) -> Method:
    return lambda *_arguments: None


def keeping_summaries(kill: Method) -> Method:
    def changed(pool: WaitingPool, places: Any) -> Any:
        stale = set(pool._stale)
        answer = kill(pool, places)
        pool._stale = stale
        return answer

    return changed


def keeping_the_supply(abandon: Method) -> Method:
    """What the default agent supplied in the block that is undone still counts."""

    def changed(index: SchedulerIndex) -> None:
        supplied = dict(index.supplies.standing)
        abandon(index)
        index.supplies.standing = supplied

    return changed


def reviving(sweep: Method) -> Method:
    def changed(pool: WaitingPool) -> Any:
        dead, swept = pool.rows[: pool.count].copy(), sweep(pool)
        if swept:
            lost = dead[(dead["flags"] & DEAD) != 0][:1]
            lost["flags"] = lost["flags"] & ~np.uint32(DEAD)
            pool.put(lost)
        return swept

    return changed


def always_up(count: Method) -> Method:
    return lambda counts, fires, _sign: count(counts, fires, +1)


def forgetting_which(expect_bids: Method) -> Method:
    def changed(parties: Parties, kept: Any) -> None:
        expect_bids(parties, kept)
        parties._expected = []

    return changed


def forgetting_what_was_staged(abandon: Method) -> Method:
    """What the overflow tree took in ahead stays in it."""

    def changed(index: SchedulerIndex) -> None:
        index._staged = None
        abandon(index)

    return changed


def taking_nothing(_method: Method) -> Method:
    return lambda _tree, _part, _height: np.zeros(0, ROW)


def timers_first(advance: Method) -> Method:
    """A block's changes without those of other records."""
    return lambda index, changes: advance(index, [change for change in changes if change.key[:1] == b"t"])


def leaving_it_due(abandon: Method) -> Method:
    """What the block made due stays so when it is undone."""

    def changed(index: SchedulerIndex) -> None:
        index._beginnings[-1] = index._beginnings[-1]._replace(triggered={})
        abandon(index)

    return changed


def as_before(_: Method) -> Method:
    return lambda _index, timer: timer


FAULTS: list[tuple[type, str, Callable[[Method], Method]]] = [
    (WaitingPool, "kill", keeping_summaries),
    (WaitingPool, "withdraw_supplies", nothing),
    (WaitingPool, "sweep", reviving),
    (SchedulerIndex, "abandon", keeping_the_supply),
    (Parties, "expect", forgetting_which),
    (SchedulerIndex, "advance", timers_first),
    (OpenTimers, "remove", nothing),
    (OpenTimers, "add", nothing),
    (OpenTimers, "append", nothing),
    (OpenTimers, "cut", nothing),
    (Calendar, "change", nothing),
    (Calendar, "remove", nothing),
    (Calendar, "enter", nothing),
    (Calendar, "leave", nothing),
    (OverflowTree, "remove", nothing),
    (OverflowTree, "rows_at", taking_nothing),
    (SchedulerIndex, "abandon", forgetting_what_was_staged),
    (FireCounts, "count", always_up),
    (SchedulerIndex, "make_due", nothing),
    (SchedulerIndex, "abandon", leaving_it_due),
    (SchedulerIndex, "_when_due", as_before),
]


FAULT_NAMES = [f"{name} {fault.__name__}" for _, name, fault in FAULTS]


def go_everywhere() -> None:
    """Long chains first: short ones hardly ever sweep."""
    for activation in (0, 3):
        for watches in (False, True):
            deque(long_chain(activation, watches, hesitates=True), maxlen=0)
    for first in range(100, 1_000, 10):  # the first block that prices timers is undone once it has priced some
        deque(long_chain(3, hesitates=True, seeds=range(first, first + 5)), maxlen=0)
    run_state_machine_as_test(IndexMachine, settings=settings(SETTINGS, phases=[Phase.generate], max_examples=2_000))


@pytest.mark.slow
@pytest.mark.parametrize(("owner", "name", "fault"), FAULTS, ids=FAULT_NAMES)
def test_a_broken_index_is_caught(
    owner: type, name: str, fault: Callable[[Method], Method], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, fault(getattr(owner, name)))
    with sweeping_often(), pytest.raises((AssertionError, KeyError, IndexError, ValueError)):
        go_everywhere()


def test_a_number_may_be_another_timers_on_another_branch() -> None:
    """The same sequence number and height, another timer: what comes back is what was put in last."""
    bucket = Bucket()
    for sequence in (7, 8):
        bucket.add(packed(sequence, expires_at=50), sequence)
    bucket.remove(7)
    assert contents(bucket) == [(8, 50)]
    bucket.add(packed(7, expires_at=60), 7)
    assert contents(bucket) == [(7, 60), (8, 50)]
    assert len(bucket) == 2


def test_a_bucket_keeps_what_a_plain_table_keeps() -> None:
    """Rows come in any order of numbers, are replaced, removed and brought back, before and after rewriting."""
    random = Random(5)
    bucket, expected = Bucket(), dict[int, int]()
    for _ in range(4_000):
        sequence, expiry = random.randrange(60), random.randrange(1_000)
        if sequence not in expected:
            bucket.add(packed(sequence, expiry), sequence)
            expected[sequence] = expiry
        elif random.random() < 0.6:
            bucket.remove(sequence)
            del expected[sequence]
        else:
            bucket.change(packed(sequence, expiry), sequence)
            expected[sequence] = expiry
        assert contents(bucket) == sorted(expected.items())
        assert len(bucket) == len(expected)


def test_cancelled_and_extended_timers_cost_blocks_of_other_heights_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block looks up the removed and replaced rows of its own height, and of removed ones few (SPEC §5)."""
    calendar, looked_up = Calendar(Parameters()), list[int]()
    timers = {height: [timer_at(height, 1_000 * height + i) for i in range(300)] for height in (5_000, 5_001, 5_002)}
    for height, some in timers.items():
        for timer in some:
            calendar.add(timer, row_of(timer).tobytes())
        for timer in some[: {5_000: 0, 5_001: 200, 5_002: 299}[height]]:
            calendar.change(timer, row_of(timer).tobytes())
            calendar.remove(timer)
    original = calendar_module._positions

    def counting(rows: Rows, sequences: Collection[int]) -> Any:
        looked_up.append(len(sequences))
        return original(rows, sequences)

    monkeypatch.setattr(calendar_module, "_positions", counting)
    assert len(calendar.rows_at(5_000)) == 300
    assert sum(looked_up) == 0, "nothing was cancelled or extended at that height"
    assert len(calendar.rows_at(5_001)) == 100
    assert sum(looked_up) <= 2 * 100
    looked_up.clear()
    assert len(calendar.rows_at(5_002)) == 1
    assert sum(looked_up) <= 2 * MAX_REMOVED_IN_SMALL


def test_what_is_read_from_a_rows_buffer_is_what_its_fields_say() -> None:
    for row in np.frombuffer(Random(1).randbytes(50 * ROW.itemsize), ROW):
        assert timer_id_of_row(row) == b"".join(int(row[f"id{word}"]).to_bytes(8, "big") for word in range(4))
        assert gas_limit_of_row(row) == row["gas_limit"]


def timer_at(height: int, sequence: int) -> Timer:
    owner, timer_id = ACTORS[0], TimerId(sequence.to_bytes(32, "big"))
    return Timer(
        timer_id, owner, height, sequence, "tick", b"", owner, None, height + 10, None, None, None, None, scheduled_at=1
    )


def row_of(timer: Timer) -> Rows:
    return np.frombuffer(packed(timer.sequence, timer.expires_at, timer.trigger_height), ROW)


def contents(bucket: Bucket) -> list[tuple[int, int]]:
    """Sequence numbers and expiries."""
    return [(int(row["sequence"]), int(row["expires_at"])) for row in bucket.rows()]


def packed(sequence: int, expires_at: int, trigger: int = 35) -> bytes:
    row = np.zeros(1, ROW)
    row["trigger"], row["sequence"], row["expires_at"] = trigger, sequence, expires_at
    return row.tobytes()
