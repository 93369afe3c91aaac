"""Each attack in a simulated run beside honest users: it really happens, and every check of the run passes.

What is asserted is the attack's own effect, in final blocks and receipts, in the auditor's books, and on the
validators' status pages. How much it harms others is not: that depends on the budget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import pytest

from cluster.audit.books import Books
from cluster.checks.run import judge_run
from cluster.common.outcome import Outcome
from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.watches.watched_simulation import WatchedSimulation
from consensus.keys import KeyedHashScheme
from loadgen.workloads import FUNDING, WORKLOADS
from spec.encoding import read_receipts, uint
from validator.primitives.params import DEFAULTS

SEED = 1
BUDGET = 10**16
HONEST = {"workload": "heartbeat", "count": 3, "interval_ms": 500}
SENDER = '''
class Sender(Actor):
    """Sends a message to another actor in each block."""

    def start(self, payload):
        assert self.sender == self.deployer, "only the owner"
        self.schedule(self.height + 1, payload, "tick", gas_limit=60000)
        for number in range(40):
            self.schedule(self.height + 2 + number, payload, "tick", gas_limit=60000)

    def tick(self, payload):
        assert self.sender == self.address, "only the timer"
        self.send(payload, "hello", "x" * 20000, cycles=2000, cells=0)
'''


def number(amount: bytes) -> int:
    return int.from_bytes(amount, "big")


class Seen:
    """A run, and what its final blocks say of the attackers and of the others."""

    def __init__(self, record: RunRecord, books: Books) -> None:
        self.record, self.books = record, books
        self.attackers: frozenset[bytes] = frozenset(record.scenario.load.attacking_addresses(SEED))
        self.blocks = [read_receipts(block.receipts) for block in books.chain]
        transactions = [each for block in self.blocks for each in block.transactions]
        self.sent = Counter(each.error for each in transactions if each.sender in self.attackers)
        self.honest_sent = Counter(each.error for each in transactions if each.sender not in self.attackers)
        fires = [each for block in self.blocks for each in block.fires]
        self.fires = Counter(each.error for each in fires if each.actor in self.attackers)
        self.honest_fires = Counter(each.error for each in fires if each.actor not in self.attackers)
        self.fires_per_block = [sum(each.actor in self.attackers for each in block.fires) for block in self.blocks]
        self.destroyed_per_block = [Counter(each.reason for each in block.destroyed) for block in self.blocks]
        self.destroyed = sum(self.destroyed_per_block, Counter[str]())
        self.queries = Counter(each.outcome for block in self.blocks for each in block.queries)
        self.queries_per_block = [len(block.queries) for block in self.blocks]
        self.messages = Counter(each.handler for block in self.blocks for each in block.messages)

    @cached_property
    def full_blocks(self) -> list[int]:
        """Positions of the blocks whose lane has not a twentieth of its cycles left."""
        columns = self.books.ledger.blocks
        used = zip(columns.lane_cycles, columns.lane_limit, strict=True)
        return [at for at, (cycles, limit) in enumerate(used) if cycles * 20 >= limit * 19]

    @property
    def spent(self) -> int:
        """What the attackers' accounts and actors hold less than at genesis."""
        plan, balances = self.record.scenario.load, self.books.ledger.world.balance
        funded = sum(
            group.funding.account + group.funding.actor
            for group in plan.users
            if group.is_attack
            for _ in range(group.count)
        )
        return funded - sum(balances.get(address, 0) for address in self.attackers)

    def status(self, name: str) -> Counter[str]:
        """A status page's counts, of all validators together."""
        return sum((Counter((each.status or {})[name]) for each in self.record.validators), Counter[str]())


@dataclass(frozen=True)
class Case:
    """An attack, and the effect that it must have."""

    effect: Callable[[Seen], None]
    options: dict[str, Any] = field(default_factory=dict)
    count: int = 2
    height: int = 18
    from_height: int | None = None
    is_free: bool = False
    others: list[dict[str, Any]] = field(default_factory=list)
    params: dict[str, Any] = field(default_factory=dict)


def run(name: str, case: Case, budget: int = BUDGET) -> Seen:
    group = {
        "workload": name,
        "count": case.count,
        "interval_ms": 400,
        "options": case.options,
        "budget": budget,
        "from_height": case.from_height,
    }
    scenario = Scenario.model_validate(
        {
            "name": name,
            "chain": {"params": case.params},
            "load": {"users": [HONEST, *case.others, group]},
            "stop": {"height": case.height, "drain_blocks": 4},
            "success": {"heights_compared": case.height, "transactions": 10, "fires": 10},
        }
    )
    record = WatchedSimulation(scenario, SEED, "test", scheme=KeyedHashScheme(), shortcuts=True).run()
    judged = judge_run(record)
    failed = [(check.name, check.detail) for check in judged.verdict.checks if check.verdict is not Outcome.PASS]
    assert not failed, failed
    return Seen(record, judged.books)


# --- effects --------------------------------------------------------------------------------------------------------


def full_of_one_height(seen: Seen) -> None:
    """Nothing before the common height, and then a lane that is full for several blocks."""
    assert seen.fires_per_block[:11] == [0] * 11
    assert seen.full_blocks[:3] == [11, 12, 13]
    triggers = {fire.trigger_height for block in seen.blocks for fire in block.fires if fire.actor in seen.attackers}
    assert triggers <= {12, 24}


def multiplied(seen: Seen) -> None:
    assert sum(seen.sent.values()) == 2, "two calls"
    assert sum(seen.fires.values()) > 300, "and hundreds of fires"
    growing = [fires for fires in seen.fires_per_block if fires]
    assert growing[:4] == sorted(growing[:4]) and growing[3] >= 3 * growing[0]


def one_purse_many_actors(seen: Seen) -> None:
    actors = {fire.actor for block in seen.blocks for fire in block.fires if fire.actor in seen.attackers}
    assert len(actors) == 10
    assert max(seen.fires_per_block) > 3 * 10, "together in one block"


def full_of_cycles(seen: Seen) -> None:
    assert len(seen.full_blocks) >= 4
    for at in seen.full_blocks:
        assert seen.fires_per_block[at] <= 8
        assert seen.books.ledger.blocks.lane_cycles[at] == DEFAULTS.lane_timer_cycles


def full_of_cells(seen: Seen) -> None:
    """The lane is closed by its cells, with hardly any of its cycles used, so that its basefee falls."""
    closed = [at for at, block in enumerate(seen.blocks) if sum(fire.cells for fire in block.fires) >= 1_000_000]
    assert len(closed) >= 4 and seen.full_blocks == []
    for at in closed:
        assert seen.books.ledger.blocks.lane_cycles[at] < DEFAULTS.lane_timer_cycles // 10
    assert seen.books.ledger.blocks.backlog[closed[-1]] > 0


def out_of_cycles(seen: Seen) -> None:
    assert seen.fires.keys() == {"OutOfCycles"} and seen.fires["OutOfCycles"] > 50
    for block in seen.blocks:
        for fire in block.fires:
            assert fire.actor not in seen.attackers or fire.cycles == 50_000, "all of it is paid"


def oscillated(seen: Seen) -> None:
    prices = seen.books.ledger.blocks.basefee_lane_timer
    rises = [after > before for before, after in pairwise(prices)]
    turns = sum(before != after for before, after in pairwise(rises))
    assert turns >= 5, "up and down, and again"


def outbid(seen: Seen) -> None:
    """Its tips are the highest in every full block, and raise the median that other timers follow."""
    assert len(seen.full_blocks) > 5
    followed = 0
    for at in seen.full_blocks:
        tips: dict[bool, list[int]] = {True: [], False: [0]}
        for fire in seen.blocks[at].fires:
            tips[fire.actor in seen.attackers].append(number(fire.tip_per_cycle))
        assert max(tips[True]) > max(tips[False])
        followed = max(followed, *tips[False])
    assert followed > DEFAULTS.initial_basefee // 2, "without the attack all tips are zero"
    assert max(seen.books.ledger.blocks.backlog) > 50


def sniped(seen: Seen) -> None:
    """Its tips are the median of the block before and one more."""
    medians, exact = [], 0
    for before, block in pairwise(seen.blocks):
        tips = sorted(number(fire.tip_per_cycle) for fire in before.fires)
        medians.append(tips[(len(tips) - 1) // 2] if tips else 0)
        for query in block.queries:
            assert query.bid is not None and query.bid[1] == uint(medians[-1] + 1)
            exact += 1
    assert exact > 50 and medians[-1] > 3, "which the attack raises, block by block"


def queries_failed(seen: Seen) -> None:
    assert seen.queries.keys() == {"failed"} and seen.queries["failed"] > 50
    assert seen.fires[""] > 50, "the default agent bids for them"


def queries_were_long(seen: Seen) -> None:
    queries_failed(seen)
    cycles = {query.cycles for block in seen.blocks for query in block.queries}
    assert cycles == {DEFAULTS.gba_max_cycles}


def bids_were_lies(seen: Seen) -> None:
    assert seen.queries.keys() == {"ok"} and not seen.fires
    assert seen.destroyed["insufficient_funds"] > 100
    bids = {query.bid for block in seen.blocks for query in block.queries}
    assert bids == {(uint(2**96 - 1), uint(2**96 - 1))}


def queries_filled_their_budget(seen: Seen) -> None:
    most = max(seen.queries_per_block)
    assert 90 < most <= 1 + DEFAULTS.gba_budget_cycles // 9_000
    assert most < 8 * DEFAULTS.gba_queries_per_actor, "not all that they asked for"
    assert not seen.fires


def lay_in_the_overflow(seen: Seen) -> None:
    far = [
        timer
        for timer in seen.books.ledger.world.timers.values()
        if timer.actor in seen.attackers and timer.trigger_height > 25 * DEFAULTS.epoch_length
    ]
    assert len(far) > 1_500
    assert Counter(timer.actor for timer in far).most_common(1)[0][1] <= DEFAULTS.max_timers_per_actor


def cancelled(seen: Seen) -> None:
    changes = changes_of(seen)
    assert changes["cancelled"] > 1_000 and not changes["extended"] and not seen.fires


def extended(seen: Seen) -> None:
    assert changes_of(seen)["extended"] > 3_000
    scheduled = seen.books.ledger.timers.by_actor
    assert sum(scheduled[actor].scheduled for actor in scheduled if actor in seen.attackers) == 2 * 200


def changes_of(seen: Seen) -> Counter[str]:
    changes = [change for block in seen.blocks for each in block.transactions for change in each.effects.timer_changes]
    return Counter(change[0] for change in changes)


def expired_at_once(seen: Seen) -> None:
    (expired,) = [counts["expired"] for counts in seen.destroyed_per_block if counts]
    assert expired > 500
    assert sum(seen.fires.values()) <= 8, "paid for few"


def were_insolvent(seen: Seen) -> None:
    (destroyed,) = [counts["insufficient_funds"] for counts in seen.destroyed_per_block if counts]
    assert destroyed > 500 and not seen.fires


def were_long(seen: Seen) -> None:
    lengths = [each.cells for block in seen.blocks for each in block.transactions if each.sender in seen.attackers]
    assert len(lengths) > 10 and min(lengths) > 990_000
    assert seen.fires[""] > 3, "and are read"
    cells = seen.books.ledger.blocks.basefee_cell
    assert cells[-5] > 2 * min(cells), "each of them raises the price"


def mailbox_was_full(seen: Seen) -> None:
    assert seen.messages["nothing"] > 50
    assert seen.honest_fires["MailboxFull"] > 3, "timers that send to the target fail"
    assert seen.messages["hello"] > 3, "but for those in blocks between"


def messages_multiplied(seen: Seen) -> None:
    calls, runs = sum(seen.sent.values()), seen.messages["spread"]
    assert runs > 200 * calls > 0
    last_run = max(at for at, block in enumerate(seen.blocks) if block.messages)
    assert last_run >= last_sent(seen) + 3, "over several blocks"


def last_sent(seen: Seen) -> int:
    """The position of the last block with a transaction of an attacker."""
    return max(
        at for at, block in enumerate(seen.blocks) if any(each.sender in seen.attackers for each in block.transactions)
    )


def jobs_stayed_open(seen: Seen) -> None:
    open_jobs = Counter(job.actor for job in seen.books.ledger.world.jobs.values())
    assert sorted(open_jobs.values()) == [64, 64]
    assert not any(block.callbacks for block in seen.blocks)


def waited_in_the_mempool(seen: Seen) -> None:
    assert not seen.sent, "none runs"
    assert [(each.status or {})["pending_transactions"] for each in seen.record.validators] == [2 * 255] * 4
    assert seen.status("transactions_refused")["nonce_too_high"] > 5


def were_replaced(seen: Seen) -> None:
    assert not seen.sent, "none runs"
    assert seen.status("transactions_dropped")["replaced"] > 4 * 200
    assert max((each.status or {})["pending_transactions"] for each in seen.record.validators) < 2 * 20


def did_it_all(seen: Seen) -> None:
    """Timers that fire and others that are cancelled, messages that run, transfers."""
    assert seen.sent.keys() == {""}
    assert seen.fires[""] > 50
    assert seen.messages["run"] > 10
    actions = [len(block.transactions) for block in seen.blocks]
    assert sum(actions) > 50, "of each turn three"
    cancelled = [
        change for block in seen.blocks for each in block.transactions for change in each.effects.timer_changes
    ]
    assert len(cancelled) > 20


def paid_themselves(seen: Seen) -> None:
    assert seen.sent[""] > 300
    assert seen.sent[""] > 5 * seen.honest_sent[""]


def both_kinds_were_removed(seen: Seen) -> None:
    assert seen.destroyed["insufficient_funds"] > 100 and seen.destroyed["expired"] > 100


SENDERS = {
    "workload": "program",
    "interval_ms": 400,
    "options": {
        "program": {"name": "sender", "source": SENDER},
        "setup": [{"handler": "start", "payload": {"actor": 0}}],
    },
}
BURST = {"every_blocks": 12}
CASES = {
    "storm": Case(both_kinds_were_removed, {"wait_blocks": 1}),
    "same-block": Case(full_of_one_height, {**BURST, "burn": 50_000}),
    "chain-reaction": Case(multiplied, {"starts": 1}, height=12),
    "sybil-fragmentation": Case(one_purse_many_actors, BURST, count=10, height=14),
    "lane-cycles": Case(full_of_cycles, BURST),
    "lane-cells": Case(full_of_cells, BURST),
    "gas-exhaustion": Case(out_of_cycles, BURST),
    "basefee-oscillation": Case(oscillated, {"period_blocks": 4}),
    "tip-outbidding": Case(outbid, height=14),
    "tip-sniping": Case(sniped, {"timers": 16}),
    "slow-agents": Case(queries_were_long, height=12),
    "failing-agents": Case(queries_failed, height=12),
    "lying-agents": Case(bids_were_lies, height=12),
    "greedy-agents": Case(queries_filled_their_budget, count=8, height=12),
    "far-future": Case(lay_in_the_overflow),
    "cancel-storm": Case(cancelled, height=14),
    "extend-storm": Case(extended, height=14),
    "expiry-storm": Case(expired_at_once, BURST),
    "insolvency-storm": Case(were_insolvent, {"every_blocks": 16}),
    "payload-abuse": Case(were_long, {"ahead_blocks": 6, "payload_bytes": 995_000}),
    "mailbox-flood": Case(mailbox_was_full, others=[SENDERS], from_height=6),
    "message-fan-out": Case(messages_multiplied, height=14),
    "unanswered-jobs": Case(jobs_stayed_open),
    "nonce-gaps": Case(waited_in_the_mempool, is_free=True, height=24),
    "replacement-churn": Case(were_replaced, is_free=True),
    "transfer-spam": Case(paid_themselves),
    "composed": Case(
        did_it_all, {"timers": 12, "cancel_percent": 25, "messages": 2, "transfers": 2, "grind": 4, "due_blocks": 6}
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_an_attack_happens_and_the_run_passes(name: str) -> None:
    case = CASES[name]
    seen = run(name, case)
    case.effect(seen)
    assert seen.honest_sent[""] > 10 and seen.honest_fires[""] > 10
    assert (seen.spent == 0) is case.is_free
    assert seen.spent <= BUDGET


def test_there_is_a_run_of_every_attack() -> None:
    assert CASES.keys() == {name for name, workload in WORKLOADS.items() if workload.is_attack}


def test_an_attacker_that_has_spent_its_budget_is_done() -> None:
    """Its transactions are refused, and others go on."""
    budget, constant_price = 20 * 10**9, {"MIN_BASEFEE": DEFAULTS.initial_basefee}
    seen = run("transfer-spam", Case(paid_themselves, {"per_turn": 4}, height=16, params=constant_price), budget)
    assert 0 < seen.spent <= budget < FUNDING
    assert seen.status("transactions_refused")["unaffordable"] > 5
    last = last_sent(seen)
    assert last < len(seen.blocks) - 6
    assert any(block.transactions for block in seen.blocks[last + 1 :])
