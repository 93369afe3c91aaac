"""A synthetic chain of any length for benchmarks of the judge: right blocks and receipts, made without executing them.

In each block one call schedules timers for the block after the next, and those that are due fire. Nobody executes it,
so state roots are made up; everything that the auditor recomputes is right.
"""

from __future__ import annotations

from collections.abc import Iterator

import reporting  # noqa: F401 - before any package: it says where they are
from made_blocks import PRICE, PROGRAM, USER_ADDRESS, fire_receipt, header_of, record_of, signed, transaction_receipt
from nacl.signing import SigningKey

from cluster.record.archive import BlockRecord
from validator.chain.block import BlockReceipts, Effects, Scheduled
from validator.chain.genesis import Genesis, GenesisActor
from validator.chain.transactions import Call, address_of
from validator.primitives.codec import keccak256, pack_uint
from validator.primitives.params import Parameters
from validator.primitives.types import Address

CHAIN_ID = "long-1"
FUNDS = 10**20
AHEAD = 2
TTL = 10_000
CALL_CYCLES, CALL_CELLS = 5_000, 200
TIP = 2
HEIGHTS_PER_FAILED_VIEW = 97


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
            actors={actor: GenesisActor(PROGRAM, USER_ADDRESS, FUNDS) for actor in self._actors},
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
            effects = Effects(scheduled=tuple(scheduled))
            fired = sorted(due.pop(height, []), key=lambda timer: timer.timer_id)
            proposer = height % len(self._keys)
            receipts = BlockReceipts(
                height=height,
                proposer=self._accounts[proposer],
                transactions=(transaction_receipt(wire, CALL_CYCLES, CALL_CELLS, TIP, effects),),
                fires=tuple(fire_receipt(timer, TIP) for timer in fired),
                destroyed=(),
                queries=(),
                messages=(),
                gc_cycles=0,
                p50_tip=pack_uint(p50_tip),
                callbacks=(),
            )
            header = header_of(CHAIN_ID, view_of(height), parent, proposer, [wire], receipts)
            record, parent = record_of(header, [wire], receipts)
            p50_tip = TIP if receipts.fires else 0
            yield record

    def _schedule(self, actor: Address, height: int, sequence: int) -> Scheduled:
        nonce = self._nonces[actor]
        self._nonces[actor] += 1
        trigger = height + AHEAD
        key = keccak256(actor + trigger.to_bytes(8, "big") + nonce.to_bytes(8, "big"))
        return Scheduled(key, actor, trigger, sequence, height + TTL, actor, max_priority_fee_per_cycle=pack_uint(TIP))

    def _call(self, actor: Address, nonce: int) -> bytes:
        action = Call(actor, "run", b"what it schedules is not in the script")
        return signed(CHAIN_ID, action, nonce, CALL_CYCLES, CALL_CELLS, TIP)
