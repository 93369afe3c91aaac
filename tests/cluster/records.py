"""Synthetic runs: a chain of valid blocks and receipts, and records of validators that served it.

:class:`ChainMaker` keeps the books that a right chain would have, so that what it makes passes every check; tests then
plant one fault each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from nacl.signing import SigningKey

from benchmarks import made_blocks
from benchmarks.made_blocks import NO_EFFECTS, fire_receipt, header_of, record_of, signed, transaction_receipt
from cluster.audit.books import final_queries
from cluster.audit.ledger.ledger import Ledger
from cluster.audit.scripts.script_run import timer_id
from cluster.record.archive import BlockRecord
from cluster.record.finalizations import Finalization, Finalizations
from cluster.record.run import (
    Backend,
    FaultRecord,
    JoinRecord,
    LoadRecord,
    RunRecord,
    Sample,
    Supply,
    ValidatorRecord,
)
from cluster.scenario import Scenario
from cluster.scenario.sections.faults import KillFault
from cluster.scenario.sections.validators import NodeSection
from loadgen.workloads.script import encode_script, schedule
from validator.chain.block import (
    BlockReceipts,
    CallbackReceipt,
    Cancelled,
    DestroyedReceipt,
    Effects,
    Event,
    Extended,
    FireReceipt,
    MessageReceipt,
    Movement,
    QueryReceipt,
    Scheduled,
    Sent,
    TransactionReceipt,
)
from validator.chain.genesis import Genesis, GenesisActor, GenesisAgent, Policy
from validator.chain.transactions import (
    SCRIPT_CODE,
    Action,
    Call,
    Instruction,
    System,
    Transfer,
    address_of,
)
from validator.primitives.codec import decode, encode, pack_uint
from validator.primitives.params import Parameters
from validator.primitives.types import Address, address_text

CHAIN_ID = "test-1"
PRICE = made_blocks.PRICE
USER, USER_ADDRESS = made_blocks.USER, made_blocks.USER_ADDRESS
PROGRAM = made_blocks.PROGRAM
FUNDS = 10**18
WRITTEN = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
"""When the reports of synthetic runs are written."""
INTERVAL_MS = 250.0
LATENCY_MS = 80.0
ACTOR = Address(b"\xac" * 20)
OTHER = Address(b"\xbb" * 20)
BIDDER = Address(b"\xbd" * 20)
VALIDATOR_KEYS = tuple(bytes(SigningKey(bytes([i + 1]) * 32).verify_key) for i in range(4))
TTL = 10_000
TIP = 2
"""A cycle, of every timer but those of the actor with an agent."""
STEADY: dict[str, Any] = {"SCAN_LIMIT": 1, "MIN_BASEFEE": PRICE, "MAX_BASEFEE": PRICE}


def make_genesis(
    params: dict[str, Any] | None = None, policy: Policy = Policy.CIP1, runners: tuple[Address, ...] = ()
) -> Genesis:
    """A rich user, who may give system instructions, an actor, and one with an agent of its own.

    Timers of made chains fire when a test says so. A scan of one timer a block excuses those behind the first fire; a
    block that lets a timer wait and has no fire is found to pass it over. Basefees stay as they are.
    """
    agent = GenesisAgent("builtin:fixed", 3 * PRICE, 5)
    return Genesis(
        chain_id=CHAIN_ID,
        validators=VALIDATOR_KEYS,
        policy=policy,
        parameters=Parameters.from_names({**STEADY, **(params or {})}),
        accounts={USER_ADDRESS: FUNDS},
        actors={
            ACTOR: GenesisActor(PROGRAM, USER_ADDRESS, FUNDS),
            BIDDER: GenesisActor(PROGRAM, USER_ADDRESS, FUNDS, agent),
        },
        system_deployers=(USER_ADDRESS,),
        runners=runners,
    )


def script_genesis(**params: Any) -> Genesis:
    """As :func:`make_genesis`, but the actors run scripts: what their runs come to is judged."""
    made = make_genesis(params)
    actors = {address: replace(actor, code=SCRIPT_CODE) for address, actor in made.actors.items()}
    return replace(made, actors=actors)


def make_scenario(**changes: Any) -> Scenario:
    """A scenario of four validators and twelve heights, without faults unless asked for."""
    fields: dict[str, Any] = {
        "name": "synthetic",
        "description": "A chain made for the tests.",
        "validators": 4,
        "stop": {"height": 12},
        "success": {"heights_compared": 10, "transactions": 5, "fires": 5, "stall_ms": 5_000},
    }
    return Scenario.model_validate({**fields, **changes})


@dataclass
class ChainMaker:
    """Makes one valid block after the other. Every transaction, timer and fire pays the same prices."""

    genesis: Genesis = field(default_factory=make_genesis)
    blocks: list[BlockRecord] = field(default_factory=list)
    nonce: int = 0
    schedule_nonce: int = 0
    sequence: int = 0
    parent: bytes = bytes(32)
    transactions: list[tuple[bytes, TransactionReceipt]] = field(default_factory=list)
    fires: list[FireReceipt] = field(default_factory=list)
    destroyed: list[DestroyedReceipt] = field(default_factory=list)
    queries: list[QueryReceipt] = field(default_factory=list)
    callbacks: list[CallbackReceipt] = field(default_factory=list)
    messages: list[MessageReceipt] = field(default_factory=list)
    p50_tip: int = 0
    """The median of the block before."""
    due: dict[int, list[Scheduled]] = field(default_factory=dict)
    """Timers that :meth:`fire_due` fires, by the height."""

    @property
    def height(self) -> int:
        """Of the block that is being made."""
        return len(self.blocks) + 1

    def transact(
        self,
        action: Action,
        effects: Effects = NO_EFFECTS,
        value: int = 0,
        tip: int = 3,
        use: tuple[int, int] = (5_000, 200),
        **changes: Any,
    ) -> TransactionReceipt:
        """Add a transaction of :data:`USER` that uses so many cycles and cells, with its receipt; ``changes`` plant
        faults in the receipt."""
        cycles, cells = use
        wire = signed(CHAIN_ID, action, self.nonce, cycles + 1_000, cells, tip, value)
        self.nonce += 1
        receipt = transaction_receipt(wire, cycles, cells, tip, effects)
        receipt = msgspec.structs.replace(receipt, **changes)
        self.transactions.append((wire, receipt))
        return receipt

    def transfer(self, amount: int, to: Address = OTHER, **changes: Any) -> TransactionReceipt:
        moved = Effects(movements=(Movement(USER_ADDRESS, to, pack_uint(amount)),))
        return self.transact(Transfer(to), changes.pop("effects", moved), value=amount, **changes)

    def schedule(self, blocks_ahead: int, expires_at: int | None = None, **changes: Any) -> Scheduled:
        """Add a transaction whose script schedules one timer; ``changes`` plant faults in what was scheduled."""
        expires_at = self.height + TTL if expires_at is None else expires_at
        script = schedule(blocks_ahead, [["burn", 1]], expires_at=expires_at)
        item = self.scheduled(blocks_ahead, encode_script(script[1]["payload"]), expires_at)
        item = msgspec.structs.replace(item, **changes)
        self.transact(Call(ACTOR, "run", encode_script([script])), Effects(scheduled=(item,)))
        return item

    def scheduled(self, blocks_ahead: int, payload: bytes, expires_at: int | None = None) -> Scheduled:
        trigger = self.height + blocks_ahead
        key = timer_id(ACTOR, trigger, payload, self.schedule_nonce)
        self.schedule_nonce += 1
        self.sequence += 1
        expires_at = self.height + TTL if expires_at is None else expires_at
        return Scheduled(
            key, ACTOR, trigger, self.sequence - 1, expires_at, ACTOR, max_priority_fee_per_cycle=pack_uint(TIP)
        )

    def fire(self, timer: Scheduled, tip: int = TIP, **changes: Any) -> FireReceipt:
        receipt = msgspec.structs.replace(fire_receipt(timer, tip), **{"fee_payer": ACTOR, **changes})
        self.fires.append(receipt)
        return receipt

    def fire_due(self) -> None:
        """Add the fires of :attr:`due` of this block, in the order of their turns."""
        for timer in sorted(self.due.pop(self.height, ()), key=lambda timer: timer.timer_id):
            self.fire(timer)

    def query(self, timer: Scheduled, **changes: Any) -> QueryReceipt:
        answer = (pack_uint(3 * PRICE), pack_uint(5)) if changes.get("outcome", "ok") == "ok" else None
        receipt = QueryReceipt(timer.timer_id, timer.actor, "ok", 100, pack_uint(100 * PRICE), answer)
        receipt = msgspec.structs.replace(receipt, **changes)
        self.queries.append(receipt)
        return receipt

    def callback(self, job_id: bytes, effects: Effects | None = None, **changes: Any) -> CallbackReceipt:
        """The callback of a job of the actor, which consumes it unless ``effects`` say otherwise."""
        consumed = Effects(events=(Event("JobConsumed", ACTOR, (("job_id", job_id.hex()),)),))
        given = consumed if effects is None else effects
        receipt = CallbackReceipt(job_id, ACTOR, "back", True, "", 3_000, 20, given, None)
        receipt = msgspec.structs.replace(receipt, **changes)
        self.callbacks.append(receipt)
        return receipt

    def message(self, effects: Effects = NO_EFFECTS, **changes: Any) -> MessageReceipt:
        """One that ran, of the actor to itself, and the transaction that sent it."""
        receipt = MessageReceipt(ACTOR, ACTOR, "run", True, "", 3_000, 20, effects)
        receipt = msgspec.structs.replace(receipt, **changes)
        self.send(receipt.to, receipt.handler, receipt.cycles, receipt.cells)
        self.messages.append(receipt)
        return receipt

    def send(self, to: bytes, handler: str = "run", cycles: int = 3_000, cells: int = 20) -> Sent:
        """Add a transaction in which the actor sends a message that reserves so much, or as much as it may."""
        sent = Sent(to, handler, min(max(cycles, 2_000), 100_000), min(cells, 10_000))
        use = (sent.cycles + 2_000, sent.cells + 10)
        self.transact(Call(ACTOR, "run", b"[]"), Effects(messages=(sent,)), use=use)
        return sent

    def instruct(self, instruction: Instruction, *changes: Cancelled | Extended, **more: Any) -> TransactionReceipt:
        """A system instruction, and the timer changes that its receipt shows."""
        return self.transact(System(instruction), Effects(timer_changes=changes), **more)

    def bidders(self, blocks_ahead: int) -> Scheduled:
        """A timer of the actor with an agent, scheduled by a call of that actor."""
        trigger = self.height + blocks_ahead
        key = timer_id(BIDDER, trigger, b"", self.sequence)
        item = Scheduled(key, BIDDER, trigger, self.sequence, self.height + TTL, BIDDER)
        self.sequence += 1
        self.transact(Call(BIDDER, "run", b"[]"), Effects(scheduled=(item,)))
        return item

    def destroy(self, timer: Scheduled, reason: str) -> None:
        event = Event("TimerExpired", timer.actor, (("timer_id", timer.timer_id.hex()),))
        self.destroyed.append(DestroyedReceipt(timer.timer_id, reason, event))

    def seal(self, header_changes: dict[str, Any] | None = None, **receipt_changes: Any) -> BlockRecord:
        """End the block; the changes plant faults in its header or in its receipts before they are hashed."""
        receipts = msgspec.structs.replace(self.receipts(), **receipt_changes)
        wires, height = [wire for wire, _ in self.transactions], self.height
        header = header_of(CHAIN_ID, height, self.parent, height % 4, wires, receipts)
        header = msgspec.structs.replace(header, **(header_changes or {}))
        record, self.parent = record_of(header, wires, receipts)
        tips = sorted(int.from_bytes(fire.tip_per_cycle, "big") for fire in self.fires)
        self.p50_tip = tips[(len(tips) - 1) // 2] if tips and self.genesis.runs_auction(self.height) else 0
        self.blocks.append(record)
        self.transactions, self.fires, self.destroyed, self.queries = [], [], [], []
        self.callbacks, self.messages = [], []
        return record

    def receipts(self) -> BlockReceipts:
        """The receipts of the block that is being made."""
        return BlockReceipts(
            height=self.height,
            proposer=address_of(VALIDATOR_KEYS[self.height % 4]),
            transactions=tuple(receipt for _, receipt in self.transactions),
            fires=tuple(self.fires),
            destroyed=tuple(self.destroyed),
            queries=tuple(self.queries),
            messages=tuple(self.messages),
            gc_cycles=200 * len(self.destroyed),
            p50_tip=pack_uint(self.p50_tip),
            callbacks=tuple(self.callbacks),
        )


def make_chain(heights: int = 12) -> ChainMaker:
    """A right chain: in each block a transfer, two timers scheduled, and those fired that are due."""
    maker = ChainMaker()
    for height in range(1, heights + 1):
        maker.transfer(1_000 + height)
        for ahead in (2, 5):
            maker.due.setdefault(height + ahead, []).append(maker.schedule(ahead))
        maker.fire_due()
        maker.seal()
    return maker


OUTSIDER_KEY: Final = bytes(SigningKey(b"\x0a" * 32).verify_key).hex()
"""The key of an external validator, for scenarios in which it does not matter."""


def make_record(
    maker: ChainMaker | None = None, scenario: Scenario | None = None, backend: Backend = "sim", count: int = 4
) -> RunRecord:
    """A record in which every validator served the same right chain and answered every question rightly."""
    maker = maker if maker is not None else make_chain()
    scenario = scenario if scenario is not None else make_scenario()
    record = RunRecord(scenario, backend, scenario.seed, "0123456789ab", maker.genesis, digest="d1" * 32)
    for index in range(count):
        record.validators.append(ValidatorRecord(f"validator-{index}", index, list(maker.blocks)))
    for height in range(1, len(maker.blocks) + 1):
        proposed = height * INTERVAL_MS
        record.proposals[height] = proposed
        for index in range(count):
            at = proposed + LATENCY_MS + 3 * index + height % 5
            record.finalizations.append(Finalization(at, index, height))
    record.duration_ms = (len(maker.blocks) + 2) * INTERVAL_MS
    record.load = LoadRecord(requests=20, transactions_sent=40)
    answer(record)
    return record


def own_blocks(validator: ValidatorRecord) -> list[BlockRecord]:
    """A validator's blocks in a list of its own, to be changed."""
    validator.blocks = blocks = list(validator.blocks)
    return blocks


def answer(record: RunRecord) -> None:
    """Fill in what honest validators would answer at their tips."""
    for validator in record.validators:
        asked = final_queries(record.genesis, validator.blocks)
        ledger = Ledger(record.genesis)
        for block in validator.blocks:
            ledger.apply(block.block, block.receipts)
        pending = {key.hex() for key in ledger.timers.pending}
        balances = {address_text(address): balance for address, balance in ledger.accounts.balances.items()}
        validator.balances = {text: balances.get(text, 0) for text in asked.accounts}
        validator.supply = Supply(ledger.accounts.held(), ledger.accounts.burned)
        validator.pending_timers = {text: text in pending for text in asked.timers}
        validator.status = {
            "name": validator.name,
            "height": len(validator.blocks),
            "pending_timers": len(pending),
            "starts": 1,
            "recovered_height": 0,
            "snapshot_height": 0,
            "diverged": None,
        }


def stalled(record: RunRecord, after: int = 5, by_ms: float = 7_000.0) -> RunRecord:
    """Everything above a height became final so much later."""
    record.finalizations = Finalizations(
        replace(seen, at_ms=seen.at_ms + by_ms * (seen.height > after)) for seen in record.finalizations
    )
    record.duration_ms += by_ms
    return record


def with_kill(record: RunRecord, target: int = 2, height: int = 6, down_ms: float = 800.0) -> RunRecord:
    """The record of a run in which one validator was killed and came back."""
    name = f"validator-{target}"
    scenario = record.scenario.model_copy(update={"faults": [KillFault(kind="kill", target=[name], at_height=height)]})
    begun = record.proposals[height]
    ended = begun + down_ms
    record.finalizations = Finalizations(
        replace(seen, at_ms=ended) if seen.validator == target and begun < seen.at_ms < ended else seen
        for seen in record.finalizations
    )
    fault = FaultRecord("kill", name, height, begun, ended, True, "process 10 became 11", height, height + 3)
    section = scenario.validators
    on_host = tuple(n for i, n in enumerate(section.names) if section.host_of(i) == section.host_of(target))
    record.faults = [replace(fault, targets=on_host, impaired=on_host, is_hard=True)]
    status = record.validators[target].status
    assert status is not None
    status.update(starts=2, recovered_height=height - 1)
    return replace(record, scenario=scenario)


def with_late(record: RunRecord, target: int = 3, at_height: int = 1, snapshot: int = 1) -> RunRecord:
    """The record of a run in which one validator joined by a snapshot."""
    name = f"validator-{target}"
    nodes = [NodeSection(joins_at_height=at_height if index == target else None) for index in range(4)]
    section = record.scenario.validators.model_copy(update={"nodes": nodes})
    begun = record.proposals[at_height]
    record.joins = [JoinRecord(name, at_height, begun, begun + 50.0, at_height, at_height + 1, {0: 2, 1: 1})]
    late = record.validators[target]
    late.first_height, late.blocks = snapshot + 1, late.blocks[snapshot:]
    assert late.status is not None
    late.status.update(snapshot_height=snapshot, recovered_height=snapshot)
    return replace(record, scenario=record.scenario.model_copy(update={"validators": section}))


def edit_receipts(record: BlockRecord, change: Callable[[BlockReceipts], BlockReceipts]) -> bytes:
    """A block's receipts, changed after they were hashed."""
    return encode(change(decode(record.receipts, BlockReceipts)))


def make_samples(record: RunRecord, every_ms: float = 500.0) -> list[Sample]:
    """Looks at the network while it ran."""
    samples, at = [], 0.0
    while at <= record.duration_ms:
        seen = [f for f in record.finalizations if f.at_ms <= at]
        heights = tuple(max((f.height for f in seen if f.validator == v.index), default=0) for v in record.validators)
        samples.append(Sample(at, heights, 10 * max(heights), 5 * max(heights), 12, 3, PRICE, PRICE))
        at += every_ms
    return samples
