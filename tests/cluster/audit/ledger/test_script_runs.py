"""Each run of a script is judged: real ones at the limits of what is allowed pass, and whatever differs is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import msgspec
import pytest

from cluster.audit.ledger.context import CHAIN
from cluster.audit.ledger.ledger import Ledger
from cluster.record.rules import LedgerRule
from loadgen.workloads.base import Member, Observation
from loadgen.workloads.limits import Limits, LimitsOptions
from tests.cluster.records import ACTOR, BIDDER, TTL, USER_ADDRESS, ChainMaker, script_genesis
from tests.validator import chains as small
from tests.validator.executors import Author, wire
from tests.validator.fixed_chain import ACTIVATION
from tests.validator.rewriting import rewrite
from validator.chain.block import BlockReceipts, Cancelled, Effects, Event, Movement, Sent
from validator.chain.transactions import SCRIPT_CODE, Call
from validator.execution import handler_context, mailbox, timer_calls
from validator.node.executor.jobs import Finalized
from validator.policies.auction import AuctionRules
from validator.primitives import costs
from validator.primitives.codec import decode, encode, pack_uint
from validator.primitives.types import address_text
from validator.state.working_set import World
from validator.transition import transition

PARAMETERS = {
    **ACTIVATION,
    "ACTIVATION_HEIGHT": 60,
    "MAX_TTL": 8,
    "MAX_TIMERS_PER_ACTOR": 10,
    "MAILBOX_BYTES": 900,
    "MAX_TIMER_PAYLOAD": 2_000,
    "MAX_CYCLES_PER_FIRE": 60_000,
    "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 50_000,
}
ACTORS = (small.ACTOR, small.OTHER)


@dataclass
class Walk:
    """A real chain of users at the limits, and the books of it."""

    ledger: Ledger
    receipts: list[BlockReceipts]

    @property
    def violations(self) -> str:
        return "\n".join(violation.what for violation in self.ledger.log.violations)

    def errors(self) -> Counter[str]:
        """Of runs that failed, and of calls that were refused and caught."""
        found: Counter[str] = Counter()
        for receipts in self.receipts:
            runs: list[Any] = [*receipts.transactions, *receipts.fires, *receipts.messages]
            for run in runs:
                found[run.error] += 1
                found.update(
                    dict(event.fields)["error"] for event in run.effects.events if event.name == "ScriptCaught"
                )
        return found


def walk(heights: int, seed: int = 1) -> Walk:
    """As many blocks, or up to the first in which something is wrong."""
    author = Author(small.make_genesis(PARAMETERS, system_deployers=(small.BOB,)))
    result = Walk(Ledger(author.genesis), [])
    members = [
        Member(
            user,
            small.USERS[user],
            ACTORS[user],
            small.USERS[:2],
            ACTORS,
            Random(f"{seed}/{user}"),
            author.genesis.parameters,
        )
        for user in range(2)
    ]
    users = [Limits(LimitsOptions(calls=10), member) for member in members]
    for height in range(1, heights + 1):
        receipts = enter(result.ledger, author, *wires(author, users, height))
        result.receipts.append(decode(receipts, BlockReceipts))
        if result.ledger.log.violations:
            break
    return result


def enter(ledger: Ledger, author: Author, *transactions: bytes) -> bytes:
    """Make a final block of these, and enter it into the books; returns its receipts."""
    built = author.build(None, *transactions)
    assert isinstance(author.finalize(built.digest), Finalized)
    archived = author.executor.archive.get(built.block.header.height)
    assert archived is not None
    ledger.apply(archived.block, archived.receipts)
    return archived.receipts


def wires(author: Author, users: list[Limits], height: int) -> Iterator[bytes]:
    """The transactions of a block, as far as the chain takes them."""
    world = World(author.executor.final_view)
    for number, user in enumerate(users):
        nonce, balance = world.account(small.USERS[number]).nonce, world.account(ACTORS[number]).balance
        price = world.globals.basefee_lane_timer
        seen = Observation(height - 1, nonce, small.PRICE, small.PRICE, price, actor_balance=balance)
        for intent in user.intents(seen):
            yield wire(
                nonce,
                user=number,
                action=intent.action,
                gas_limit=min(intent.gas_limit, 2_000_000),
                cells_limit=min(intent.cells_limit, 100_000),
                value=intent.value,
                timer_allowance=intent.timer_allowance,
                max_fee_per_cycle=10**9,
                max_fee_per_cell=10**9,
            )


REACHED = {
    *("", "BadScript", "OutOfCycles", "OutOfCells", "ScriptFailed", "NotFound", "InsufficientBalance"),
    *("EventNameTooLong", "MailboxFull", "MessageHandlerInvalid", "MessageLimitInvalid", "TooManyMessages"),
    *("UnknownActor", "TimerArgDeprecated", "TimerExpiryInvalid", "TimerFeeOutOfRange", "TimerFeePayerForbidden"),
    *("TimerGasLimitTooHigh", "TimerGasLimitTooLow", "TimerHandlerInvalid", "TimerHeightNotInFuture"),
    *("TimerHeightOutOfRange", "TimerLimitReached", "TimerPayloadTooLarge", "TimerRejectedBelowBasefee"),
}
"""Every error of a script's call but ``NotOwner``: nobody knows another's timers."""


def test_real_runs_at_the_limits_pass_and_meet_every_error() -> None:
    done = walk(400)
    assert done.violations == ""
    assert done.errors().keys() >= REACHED
    assert done.ledger.log.evaluated[LedgerRule.SCRIPTS] > 1_000


def off_by_one(module: Any, name: str, more: int) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(module, name, getattr(module, name) + more)


def rewritten(function: Any, old: str, new: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: rewrite(patch, function, old, new)


CONTEXT = handler_context.HandlerContext
FAULTS = {
    "two more messages a run": off_by_one(transition, "MESSAGES_PER_DEFERRED_RUN", 1),
    "the last message is refused": rewritten(CONTEXT.send, "messages_left == 0", "messages_left == 1"),
    "the least message is refused": off_by_one(mailbox, "MIN_MESSAGE_CYCLES", 1),
    "no cells are refused": rewritten(mailbox.within_limits, "0 <= cells", "0 < cells"),
    "an empty handler is refused": rewritten(mailbox.enqueue, "may_be_empty=True", "may_be_empty=False"),
    "a full mailbox is refused": rewritten(mailbox.enqueue, "waiting > parameters", "waiting >= parameters"),
    "the least cap is refused": rewritten(timer_calls._fee_payer, "not 1 <= cap", "not 2 <= cap"),
    "all of the allowance is refused": rewritten(timer_calls._fee_payer, "<= allowance.left", "< allowance.left"),
    "the allowance is not taken": rewritten(timer_calls.schedule, "allowance.left -= payer_cap", "pass"),
    "the lane's price is refused": rewritten(AuctionRules.admit, "max_fee < fee_floor", "max_fee <= fee_floor"),
    "the priority is not clamped": rewritten(AuctionRules.admit, "headroom, clamped_from=priority", "priority"),
    "the cap is refused": rewritten(timer_calls._check_gas_limit, "gas_limit > terms", "gas_limit >= terms"),
    "the least gas is refused": rewritten(timer_calls._check_gas_limit, "gas_limit < terms", "gas_limit <= terms"),
    "expiry at the trigger is refused": rewritten(
        timer_calls._expiry, "expires_at < earliest", "expires_at <= earliest"
    ),
    "expiry is not clamped": rewritten(timer_calls._expiry, "min(request.expires_at, latest)", "request.expires_at"),
    "extended to the same end": rewritten(timer_calls._extend, "expires_at <= timer", "expires_at < timer"),
    "one timer too many": rewritten(timer_calls.schedule, ">= parameters.max_timers", "> parameters.max_timers"),
    "the greatest price is refused": rewritten(timer_calls._check_fees, "< PRICE_LIMIT:", "< PRICE_LIMIT - 1:"),
    "bid is ignored too long": rewritten(CONTEXT.schedule_timer, "self.terms.rules.bids is Bids.IGNORED", "True"),
    "bid is not reported": rewritten(CONTEXT.schedule_timer, 'self.report("TimerBidIgnored")', "pass"),
    "cells are free": rewritten(CONTEXT.emit, "len(data.encode())", "0"),
    "a name too long": rewritten(CONTEXT.emit, "not is_name(name, may_be_empty=True)", "False"),
    "a schedule is cheaper": rewritten(CONTEXT.schedule_timer, "costs.SCHEDULE_TIMER_CYCLES", "999"),
    "events are cheaper": off_by_one(costs, "EMIT_CYCLES", -1),
    "money from nowhere": rewritten(CONTEXT.move, "self.world.debit(source, amount)", "self.world.credit(source, 0)"),
}


@pytest.mark.parametrize("plant", FAULTS.values(), ids=FAULTS)
def test_a_chain_that_decides_otherwise_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert "its script gives" in walk(400).violations


# --- made blocks ------------------------------------------------------------------------------------------------------

PAYLOAD = b'[["emit","e","d"],["schedule",{"in":2,"payload":[["burn",1]]}]]'
CYCLES, CELLS = 1_000 + costs.EMIT_CYCLES + costs.SCHEDULE_TIMER_CYCLES, len(PAYLOAD) + 1 + len('[["burn",1]]')


def made(change: Callable[[Effects], Effects] = lambda effects: effects, **changes: Any) -> str:
    """What the books say of one call of a script whose receipt is changed."""
    maker = ChainMaker(script_genesis(MAX_TTL=TTL))
    item = msgspec.structs.replace(maker.scheduled(2, b'[["burn",1]]'), max_priority_fee_per_cycle=None)
    effects = Effects(scheduled=(item,), events=(Event("e", ACTOR, (("data", "d"),)),))
    maker.transact(Call(ACTOR, "run", PAYLOAD), change(effects), use=(CYCLES, CELLS), **changes)
    maker.seal()
    ledger = Ledger(maker.genesis)
    ledger.apply(maker.blocks[0].block, maker.blocks[0].receipts)
    assert ledger.log.evaluated[LedgerRule.SCRIPTS] == 1
    return "\n".join(violation.what for violation in ledger.log.violations if violation.check == CHAIN)


def with_timer(**fields: Any) -> Callable[[Effects], Effects]:
    return lambda effects: msgspec.structs.replace(
        effects, scheduled=(msgspec.structs.replace(effects.scheduled[0], **fields),)
    )


def with_effects(**fields: Any) -> Callable[[Effects], Effects]:
    return lambda effects: msgspec.structs.replace(effects, **fields)


def test_a_receipt_as_the_script_gives_it_passes() -> None:
    assert made() == ""


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (with_timer(timer_id=bytes(32)), f"has scheduled[0].timer_id {bytes(32).hex()}, its script gives "),
        (with_timer(trigger_height=4), "has scheduled[0].trigger_height 4, its script gives 3"),
        (with_timer(sequence=7), "has scheduled[0].sequence 7, its script gives 0"),
        (with_timer(expires_at=77), f"has scheduled[0].expires_at 77, its script gives {TTL + 1}"),
        (with_timer(fee_payer=USER_ADDRESS), f"has scheduled[0].fee_payer {USER_ADDRESS.hex()}, its script gives"),
        (with_timer(gas_limit=2_000), "has scheduled[0].gas_limit 2000, its script gives None"),
        (with_timer(payer_cap=b"\7"), "has scheduled[0].payer_cap 7, its script gives None"),
        (with_effects(events=()), "has 0 events, its script gives 1"),
        (with_effects(scheduled=()), "has 0 scheduled, its script gives 1"),
        (with_effects(events=(Event("f", ACTOR, (("data", "d"),)),)), "has events[0].name 'f', its script gives 'e'"),
        (with_effects(timer_changes=(Cancelled(bytes(32)),)), "has 1 timer changes, its script gives 0"),
        (with_effects(messages=(Sent(ACTOR, "run", 2_000, 0),)), "has 1 messages, its script gives 0"),
        (with_effects(movements=(Movement(ACTOR, ACTOR, pack_uint(1)),)), "has 1 movements, its script gives 0"),
    ],
)
def test_effects_that_the_script_does_not_have_are_named(change: Callable[[Effects], Effects], what: str) -> None:
    assert what in made(change)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"ok": False, "error": "OutOfCycles"}, "ended with OutOfCycles, its script gives success"),
        ({"cycles": CYCLES + 1}, f"used {CYCLES + 1} cycles, its script gives {CYCLES}"),
        ({"cells": CELLS - 1}, f"used {CELLS - 1} cells, its script gives {CELLS}"),
    ],
)
def test_another_result_or_use_is_named(changes: dict[str, Any], what: str) -> None:
    assert what in made(**changes)


def chain_with_a_script_called_by_a_program() -> ChainMaker:
    """A Python actor has sent a script a message, of which nobody knows what it did."""
    maker = ChainMaker()
    actors = {**maker.genesis.actors, BIDDER: replace(maker.genesis.actors[BIDDER], code=SCRIPT_CODE)}
    maker.genesis = replace(maker.genesis, actors=actors)
    maker.message(to=BIDDER)
    maker.seal()
    return maker


def judged(maker: ChainMaker) -> tuple[int, int]:
    """How many runs are judged, and how many not; none is wrong."""
    ledger = Ledger(maker.genesis)
    for record in maker.blocks:
        ledger.apply(record.block, record.receipts)
    assert ledger.log.violations == []
    return ledger.log.evaluated[LedgerRule.SCRIPTS], ledger.scripts.unjudged


CANCEL = b'[["try",["cancel",{"saved":"k"}]]]'
CAUGHT = Event("ScriptCaught", BIDDER, (("error", "NotFound"),))


def test_nothing_is_claimed_of_what_a_python_actor_sent() -> None:
    maker = chain_with_a_script_called_by_a_program()
    maker.transact(Call(BIDDER, "run", CANCEL), use=(1_510, len(CANCEL)))
    maker.seal()
    assert judged(maker) == (0, 2)


def test_what_is_written_anew_is_known_again() -> None:
    maker = chain_with_a_script_called_by_a_program()
    delete = b'[["del","k"]]'
    maker.transact(Call(BIDDER, "run", delete), use=(1_200, len(delete)))
    maker.transact(Call(BIDDER, "run", CANCEL), Effects(events=(CAUGHT,)), use=(1_510, len(CANCEL)))
    maker.seal()
    assert judged(maker) == (2, 1)


def test_ids_of_timers_that_ended_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.audit.ledger.script_runs.LEAST_SWEPT", 4)
    author = Author(small.make_genesis(PARAMETERS))
    ledger = Ledger(author.genesis)
    for height in range(1, 30):
        enter(ledger, author, wire(height - 1, ["schedule", {"in": 1, "payload": [], "save_as": f"k{height}"}]))
    assert ledger.log.violations == []
    assert len(ledger.scripts._stored[small.ACTOR]) < 10


def test_evidence_without_its_block_says_nothing_of_scripts() -> None:
    maker = ChainMaker(script_genesis(MAX_TTL=TTL))
    maker.transact(Call(ACTOR, "run", b"[]"), use=(1, 1))
    ledger = Ledger(maker.genesis)
    ledger.apply_evidence(encode(maker.receipts()))
    assert (ledger.log.evaluated[LedgerRule.SCRIPTS], ledger.log.violations) == (0, [])


def test_what_a_sender_paid_ahead_it_cannot_spend() -> None:
    """The account of a key may be an actor, too: of the genesis."""
    genesis = small.make_genesis(PARAMETERS, accounts={}, actors={small.ALICE: 10**15, small.OTHER: 1})
    author = Author(genesis)
    transfer = {"to": address_text(small.OTHER), "amount": 10**15 - 1}
    call = Call(small.ALICE, "run", small.script(["try", ["transfer", transfer]]))
    ledger = Ledger(genesis)
    enter(ledger, author, wire(0, action=call))
    assert ledger.log.violations == []
    assert ledger.log.evaluated[LedgerRule.SCRIPTS] == 1
