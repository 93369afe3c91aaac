"""A synthetic chain of any length for benchmarks of the judge: right blocks and receipts, made without executing them.

In each block one call schedules timers for the block after the next, and those that are due fire. Nobody executes it,
so state roots are made up; everything that the auditor recomputes is right.
"""

from __future__ import annotations

from collections.abc import Iterator

from nacl.signing import SigningKey

from cluster.record.archive import BlockRecord
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
from validator.chain.genesis import Genesis, GenesisActor
from validator.chain.transactions import Call, Transaction, address_of, sign, transaction_hash
from validator.primitives.codec import encode, keccak256, pack_uint, tagged_hash
from validator.primitives.params import Parameters
from validator.primitives.types import Address

CHAIN_ID = "long-1"
PRICE = 1_000_000
FUNDS = 10**20
AHEAD = 2
TTL = 10_000
FIRE_CYCLES, FIRE_CELLS = 2_000, 10
CALL_CYCLES, CALL_CELLS = 5_000, 200
TIP = 2
HEIGHTS_PER_FAILED_VIEW = 97
USER = SigningKey(bytes([7]) * 32)
USER_ADDRESS = address_of(bytes(USER.verify_key))


def view_of(height: int) -> int:
    """In which view a height's block is proposed: some views fail."""
    return height + height // HEIGHTS_PER_FAILED_VIEW


class LongChain:
    """Makes the blocks of a chain one after the other."""

    def __init__(self, validators: int, timers_per_block: int, actors: int = 16) -> None:
        self._keys = tuple(bytes(SigningKey(bytes([1]) * 31 + bytes([i])).verify_key) for i in range(validators))
        self._accounts = [address_of(key) for key in self._keys]
        self._actors = [Address(bytes([0xAC, number]) * 10) for number in range(actors)]
        self._timers = timers_per_block
        self._nonces = dict.fromkeys(self._actors, 0)
        parameters = {"SCAN_LIMIT": 1, "MIN_BASEFEE": PRICE, "MAX_BASEFEE": PRICE}
        self.genesis = Genesis(
            chain_id=CHAIN_ID,
            validators=self._keys,
            parameters=Parameters.from_names(parameters),
            accounts={USER_ADDRESS: FUNDS},
            actors={actor: GenesisActor("builtin:script", USER_ADDRESS, FUNDS) for actor in self._actors},
        )

    def blocks(self, heights: int) -> Iterator[BlockRecord]:
        """The blocks from height 1 on."""
        due: dict[int, list[Scheduled]] = {}
        parent, p50_tip, sequence = bytes(32), 0, 0
        for height in range(1, heights + 1):
            actor = self._actors[height % len(self._actors)]
            scheduled = [self._schedule(actor, height, sequence + place) for place in range(self._timers)]
            sequence += self._timers
            due[height + AHEAD] = scheduled
            wire = self._call(actor, height - 1)
            receipts = BlockReceipts(
                height=height,
                proposer=self._accounts[height % len(self._keys)],
                transactions=(_receipt(wire, scheduled),),
                fires=tuple(map(_fire, sorted(due.pop(height, []), key=lambda timer: timer.timer_id))),
                destroyed=(),
                queries=(),
                messages=(),
                gc_cycles=0,
                p50_tip=pack_uint(p50_tip),
                callbacks=(),
            )
            header = self._header(height, parent, wire, receipts)
            parent, p50_tip = header_hash(header), TIP if receipts.fires else 0
            yield BlockRecord(encode(Block(header, (wire,))), encode(receipts), header.state_root)

    def _schedule(self, actor: Address, height: int, sequence: int) -> Scheduled:
        nonce = self._nonces[actor]
        self._nonces[actor] += 1
        trigger = height + AHEAD
        key = keccak256(actor + trigger.to_bytes(8, "big") + nonce.to_bytes(8, "big"))
        return Scheduled(key, actor, trigger, sequence, height + TTL, actor, max_priority_fee_per_cycle=pack_uint(TIP))

    def _call(self, actor: Address, nonce: int) -> bytes:
        call = Transaction(
            sender=USER_ADDRESS,
            nonce=nonce,
            gas_limit=CALL_CYCLES,
            cells_limit=CALL_CELLS,
            max_fee_per_cycle=2 * PRICE,
            max_priority_fee_per_cycle=TIP,
            max_fee_per_cell=2 * PRICE,
            action=Call(actor, "run", b"what it schedules is not in the script"),
            value=0,
        )
        return sign(USER, CHAIN_ID, call)

    def _header(self, height: int, parent: bytes, wire: bytes, receipts: BlockReceipts) -> Header:
        return Header(
            chain_id=CHAIN_ID,
            height=height,
            view=view_of(height),
            parent_hash=parent,
            proposer=height % len(self._keys),
            transactions_root=transactions_root([transaction_hash(wire)]),
            receipts_root=receipts_root(receipts),
            state_root=tagged_hash(b"root", height.to_bytes(8, "big")),
            basefee_cycle=pack_uint(PRICE),
            basefee_cell=pack_uint(PRICE),
            basefee_lane_timer=pack_uint(PRICE),
            lane_cycles=sum(fire.cycles for fire in receipts.fires),
            lane_cells=sum(fire.cells for fire in receipts.fires),
            user_cycles=CALL_CYCLES,
            user_cells=CALL_CELLS,
        )


def _receipt(wire: bytes, scheduled: list[Scheduled]) -> TransactionReceipt:
    return TransactionReceipt(
        transaction_hash=transaction_hash(wire),
        sender=USER_ADDRESS,
        ok=True,
        error="",
        cycles=CALL_CYCLES,
        cells=CALL_CELLS,
        burned=pack_uint((CALL_CYCLES + CALL_CELLS) * PRICE),
        tip=pack_uint(CALL_CYCLES * TIP),
        effects=Effects(scheduled=tuple(scheduled)),
    )


def _fire(timer: Scheduled) -> FireReceipt:
    return FireReceipt(
        timer_id=timer.timer_id,
        actor=timer.actor,
        trigger_height=timer.trigger_height,
        sequence=timer.sequence,
        fee_payer=timer.actor,
        ok=True,
        error="",
        cycles=FIRE_CYCLES,
        cells=FIRE_CELLS,
        burned=pack_uint(FIRE_CYCLES * 2 * PRICE + FIRE_CELLS * PRICE),
        tip=pack_uint(FIRE_CYCLES * TIP),
        tip_per_cycle=pack_uint(TIP),
        effects=Effects(),
    )
