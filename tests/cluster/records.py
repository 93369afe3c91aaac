"""Chains that a state transition executed, without consensus, and records of validators that served them.

Whatever :class:`ChainMaker` makes passes every check; tests then plant one fault each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import msgspec
from nacl.signing import SigningKey

from cluster.audit.books import KeptLedger, final_queries
from cluster.audit.ledger import Ledger
from cluster.faults.kinds.kill import KillFault
from cluster.local_chain.bare_chain import BareChain
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
from cluster.scenario.sections.validators import NodeSection
from loadgen.workloads.script import encode_script, schedule
from validator.chain.block import (
    Block,
    BlockReceipts,
    Effects,
    FireReceipt,
    Header,
    Scheduled,
    TransactionReceipt,
    header_hash,
    receipts_root,
    transactions_root,
)
from validator.chain.genesis import Genesis, GenesisActor, Policy
from validator.chain.transactions import (
    SCRIPT_CODE,
    Action,
    Call,
    Transaction,
    Transfer,
    address_of,
    parse,
    sign,
    transaction_hash,
)
from validator.primitives.codec import decode, encode, pack_uint
from validator.primitives.params import Parameters
from validator.primitives.types import Address, address_text
from validator.pvm.runtime.machine import PythonVm
from validator.transition.genesis_block import genesis_header
from validator.transition.transition import Outcome, PreparedTransaction, Transition

CHAIN_ID = "test-1"
PRICE = 1_000_000
USER = SigningKey(bytes([7]) * 32)
USER_ADDRESS = address_of(bytes(USER.verify_key))
"""The sender of every transaction."""
FUNDS = 10**18
WRITTEN = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
"""When the reports of synthetic runs are written."""
INTERVAL_MS = 250.0
LATENCY_MS = 80.0
ACTOR = Address(b"\xac" * 20)
OTHER = Address(b"\xbb" * 20)
VALIDATOR_KEYS = tuple(bytes(SigningKey(bytes([i + 1]) * 32).verify_key) for i in range(4))
TTL = 10_000
TIP = 2
"""A cycle, of every timer."""
STEADY: dict[str, Any] = {"MIN_BASEFEE": PRICE, "MAX_BASEFEE": PRICE}


def make_genesis(
    params: dict[str, Any] | None = None, policy: Policy = Policy.CIP1, runners: tuple[Address, ...] = ()
) -> Genesis:
    """A rich user, who may give system instructions, and a rich actor. Basefees stay as they are."""
    return Genesis(
        chain_id=CHAIN_ID,
        validators=VALIDATOR_KEYS,
        policy=policy,
        parameters=Parameters.from_names({**STEADY, **(params or {})}),
        accounts={USER_ADDRESS: FUNDS},
        actors={ACTOR: GenesisActor(SCRIPT_CODE, USER_ADDRESS, FUNDS)},
        system_deployers=(USER_ADDRESS,),
        runners=runners,
    )


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


Change = Callable[[BlockReceipts], BlockReceipts]
"""A fault in a block's receipts."""


class ChainMaker:
    """Makes one block after the other by execution. Each is of the view of its height unless a test says otherwise."""

    def __init__(self, genesis: Genesis | None = None) -> None:
        self.genesis = make_genesis() if genesis is None else genesis
        self.blocks: list[BlockRecord] = []
        self.wires: list[bytes] = []
        """The transactions of the block that is being made."""
        self._chain = BareChain(self.genesis, PythonVm())
        self.parent = bytes(header_hash(genesis_header(self.genesis, self._chain.view.root)))
        self._transition: Transition | None = None
        self._nonce = 0

    @property
    def height(self) -> int:
        """Of the block that is being made."""
        return len(self.blocks) + 1

    def transact(self, action: Action, **fields: Any) -> TransactionReceipt:
        """Execute a transaction of :data:`USER`, by default of a tip of 3 and with room in every limit."""
        given: dict[str, Any] = {
            "gas_limit": 50_000,
            "cells_limit": 1_000,
            "max_fee_per_cycle": 2 * PRICE,
            "max_priority_fee_per_cycle": 3,
            "max_fee_per_cell": 2 * PRICE,
        }
        wire = sign(USER, CHAIN_ID, Transaction(USER_ADDRESS, self._nonce, action=action, **{**given, **fields}))
        self._nonce += 1
        self.wires.append(wire)
        transition = self._begun(self.height % 4)
        transition.execute(PreparedTransaction(transaction_hash(wire), wire, parse(wire, CHAIN_ID)))
        return transition.receipts[-1]

    def transfer(self, amount: int, to: Address = OTHER, **fields: Any) -> TransactionReceipt:
        return self.transact(Transfer(to), value=amount, **fields)

    def schedule(self, blocks_ahead: int, expires_at: int | None = None) -> Scheduled:
        """Execute a script that schedules one timer, which fires so many blocks later."""
        ends = self.height + TTL if expires_at is None else expires_at
        script = schedule(blocks_ahead, [["burn", 1]], expires_at=ends, max_priority_fee_per_cycle=TIP)
        (item,) = self.transact(Call(ACTOR, "run", encode_script([script]))).effects.scheduled
        return item

    def seal(self, change: Change = lambda receipts: receipts, /, **header: Any) -> BlockRecord:
        """End the block. ``change`` plants a fault in its receipts before they are hashed, ``header`` in its header;
        another ``proposer`` of a block without transactions executes it."""
        outcome, wires = self._begun(header.get("proposer", self.height % 4)).finish(), tuple(self.wires)
        self._chain.commit(outcome)
        record, self.parent = self._record_of(outcome, wires, change(outcome.receipts), header)
        self.blocks.append(record)
        self._transition, self.wires = None, []
        return record

    def _begun(self, proposer: int) -> Transition:
        if self._transition is None:
            self._transition = self._chain.begin(address_of(self.genesis.validators[proposer]))
            self._transition.start()
        return self._transition

    def _record_of(
        self, outcome: Outcome, wires: tuple[bytes, ...], receipts: BlockReceipts, changes: dict[str, Any]
    ) -> tuple[BlockRecord, bytes]:
        """The block as validators serve it, and its hash."""
        fields: dict[str, Any] = {
            **outcome.header_fields(),
            "chain_id": CHAIN_ID,
            "view": self.height,
            "parent_hash": self.parent,
            "proposer": self.height % 4,
            "transactions_root": transactions_root([transaction_hash(wire) for wire in wires]),
            "receipts_root": receipts_root(receipts),
        }
        header = Header(**{**fields, **changes})
        record = BlockRecord(encode(Block(header, wires)), encode(receipts), header.state_root)
        return record, header_hash(header)


def make_chain(heights: int = 12) -> ChainMaker:
    """A right chain: each block has a transfer, schedules two timers, and fires those that are due."""
    maker = ChainMaker()
    for height in range(1, heights + 1):
        maker.transfer(1_000 + height)
        for ahead in (2, 5):
            maker.schedule(ahead)
        maker.seal()
    return maker


def ledger_of(genesis: Genesis, blocks: Sequence[BlockRecord]) -> Ledger:
    """The ledger of a chain from height 1 on."""
    return KeptLedger(blocks, Ledger(genesis)).advance().ledger


@cache
def _right_chain() -> ChainMaker:
    """Of those who only read it."""
    return make_chain()


# --- planted faults ---------------------------------------------------------------------------------------------------


def fires_twice(receipts: BlockReceipts) -> BlockReceipts:
    """The block's first fire comes a second time."""
    return msgspec.structs.replace(receipts, fires=(receipts.fires[0], *receipts.fires))


def fires_too(timer: Scheduled) -> Change:
    """A fault: a timer fires that does not."""
    fire = FireReceipt(
        timer_id=timer.timer_id,
        actor=timer.actor,
        trigger_height=timer.trigger_height,
        sequence=timer.sequence,
        fee_payer=timer.actor,
        ok=True,
        error="",
        cycles=2_000,
        cells=10,
        burned=pack_uint(4_010 * PRICE),
        tip=pack_uint(2_000 * TIP),
        tip_per_cycle=pack_uint(TIP),
        effects=Effects(),
    )
    return lambda receipts: msgspec.structs.replace(receipts, fires=(*receipts.fires, fire))


OUTSIDER_KEY: Final = bytes(SigningKey(b"\x0a" * 32).verify_key).hex()
"""The key of an external validator, for scenarios in which it does not matter."""


def make_record(
    maker: ChainMaker | None = None, scenario: Scenario | None = None, backend: Backend = "sim", count: int = 4
) -> RunRecord:
    """A record in which every validator served the same right chain and answered every question rightly."""
    maker = maker if maker is not None else _right_chain()
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
    blocks, ledger = record.validators[0].blocks, ledger_of(record.genesis, record.validators[0].blocks)
    for validator in record.validators:
        if validator.blocks != blocks:
            blocks, ledger = validator.blocks, ledger_of(record.genesis, validator.blocks)
        asked = final_queries(ledger)
        pending = {key.hex() for key in ledger.world.timers}
        balances = {address_text(Address(address)): held for address, held in ledger.world.balance.items()}
        validator.balances = {text: balances.get(text, 0) for text in asked.accounts}
        validator.supply = Supply(ledger.held, ledger.burned)
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
