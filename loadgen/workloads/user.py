"""A load user: a key, an account, an actor, a workload, and a nonce that survives rejections and losses.

The user is pure. Whoever drives it (Locust over HTTP, or the simulator) calls :meth:`LoadUser.next_transactions` each
time that :meth:`~LoadUser.next_delay_ms` has passed and submits the transactions that it returns, in order. It reports
which were rejected (:meth:`~LoadUser.rejected`) or may not have arrived (:meth:`~LoadUser.undelivered`).

Nonces. A transaction that was sent is remembered until it is final. One that may not have arrived is sent again, byte
for byte, before anything new; all of them are when the account's nonce has not moved for ``STALL_BLOCKS`` blocks (a
validator died with it). If basefees have outgrown a transaction meanwhile, it is signed anew with the same nonce, and
with fees so much higher that it takes the place of the former one wherever that waits.
A rejected transaction gives its nonce back, and the next turn fills the gap; the workload learns which intents failed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from nacl.signing import SigningKey

from loadgen.workloads.base import Intent, Observation, Workload
from loadgen.workloads.phases import Rhythm
from validator.chain.transactions import Transaction, least_replacement_fee, sign
from validator.primitives.types import PRICE_LIMIT, Address

FEE_HEADROOM: Final = 4
"""A transaction bids this many times the observed basefee: some eleven blocks of the steepest rise."""
TIP_STEP: Final = 100
TIP_LEVELS: Final = 64
"""A user's priority fee is ``TIP_STEP`` times 1 to ``TIP_LEVELS``, by its number."""
MAX_UNCONFIRMED: Final = 16
"""Transactions that a user has under way at most; it waits with new ones beyond."""
STALL_BLOCKS: Final = 8
MAX_REFUSALS: Final = 2
"""How often a transaction that was sent again may be refused before its nonce is used for another."""


@dataclass(slots=True)
class _Sent:
    """A transaction under way."""

    intent: Intent
    transaction: Transaction
    wire: bytes
    """Signed."""
    delivered: bool = True
    resent: bool = False
    refusals: int = 0


class LoadUser:
    """One user of a load plan. Equal seeds and observations give equal transactions, byte for byte."""

    def __init__(self, key: SigningKey, chain_id: str, rhythm: Rhythm, workload: Workload[Any]) -> None:
        member = workload.member
        self.number: int = member.number
        """Position in the plan, from 0 on."""
        self.workload: str = workload.name
        self.address: Address = member.address
        self.actor: Address = workload.watched
        """The actor that it looks at: the one that its transactions call, or whose jobs it answers."""
        self._rhythm = rhythm
        self.first_delay_ms: int = member.random.randrange(rhythm.interval_ms)
        """When the first turn is due after the load's start, so that users do not move in step."""
        self._key = key
        self._chain_id = chain_id
        self._workload = workload
        self._tip = TIP_STEP * (1 + self.number % TIP_LEVELS)
        self._next_nonce = 0
        self._confirmed_nonce = 0
        self._progress_height = 0
        self._sent: dict[int, _Sent] = {}
        """Not known to be final, by nonce."""

    def next_delay_ms(self) -> int:
        """How long until its next turn may be due; asked for once a turn."""
        return self._rhythm.next_delay_ms()

    def reseed(self, seed: int) -> None:
        """Draw from another source from now on."""
        self._workload.member.random.seed(f"{seed}/user/{self.number}")

    def next_transactions(self, observation: Observation) -> list[bytes]:
        """The signed transactions of this turn, in nonce order. Empty if it is not the user's turn."""
        self._settle(observation)
        if not self._rhythm.takes_turn(observation.height):
            return []
        again = self._send_again(observation)
        if again:
            return again
        room = MAX_UNCONFIRMED - len(self._sent)
        if room <= 0:
            return []
        intents = self._workload.intents(replace(observation, next_nonce=self._next_nonce))
        for intent in intents[room:]:
            self._workload.dropped(intent)
        return [self._send(intent, observation) for intent in intents[:room]]

    def rejected(self, wire: bytes) -> None:
        """The mempool refused this transaction: its nonce, and those after it, are free again.

        One that was sent again may be refused because it is known already, and is kept until it was refused twice.
        """
        sent = self._find(wire)
        if sent is None:
            return
        sent.refusals += 1
        if sent.resent and sent.refusals < MAX_REFUSALS:
            return
        self._next_nonce = sent.transaction.nonce
        for nonce in [nonce for nonce in self._sent if nonce >= sent.transaction.nonce]:
            self._workload.dropped(self._sent.pop(nonce).intent)

    def undelivered(self, wires: list[bytes]) -> None:
        """It is unknown whether these arrived anywhere; the next turn sends them again."""
        for wire in wires:
            sent = self._find(wire)
            if sent is not None:
                sent.delivered = False

    def _settle(self, observation: Observation) -> None:
        """Forget what is final, and note when the account's nonce moved last."""
        if observation.confirmed_nonce > self._confirmed_nonce or not self._sent:
            self._progress_height = observation.height
        self._confirmed_nonce = max(self._confirmed_nonce, observation.confirmed_nonce)
        self._next_nonce = max(self._next_nonce, self._confirmed_nonce)
        self._sent = {nonce: sent for nonce, sent in self._sent.items() if nonce >= self._confirmed_nonce}

    def _send_again(self, observation: Observation) -> list[bytes]:
        stalled = observation.height - self._progress_height >= STALL_BLOCKS
        if stalled:
            self._progress_height = observation.height
        wires: list[bytes] = []
        for sent in self._sent.values():
            if not stalled and sent.delivered:
                continue
            sent.delivered, sent.resent = True, True
            bid = sent.transaction
            if bid.max_fee_per_cycle < observation.basefee_cycle or bid.max_fee_per_cell < observation.basefee_cell:
                self._sign_again(sent, observation)
            wires.append(sent.wire)
        return wires

    def _send(self, intent: Intent, observation: Observation) -> bytes:
        cycle, cell = _bid(observation, self._tip)
        transaction = Transaction(
            sender=self.address,
            nonce=self._next_nonce,
            gas_limit=intent.gas_limit,
            cells_limit=intent.cells_limit,
            max_fee_per_cycle=cycle,
            max_priority_fee_per_cycle=self._tip,
            max_fee_per_cell=cell,
            action=intent.action,
            value=intent.value,
            timer_allowance=intent.timer_allowance,
        )
        wire = sign(self._key, self._chain_id, transaction)
        self._sent[self._next_nonce] = _Sent(intent, transaction, wire)
        self._next_nonce += 1
        return wire

    def _sign_again(self, sent: _Sent, observation: Observation) -> None:
        """Bid anew, high enough to replace the transaction in a mempool in which it waits."""
        before = sent.transaction
        tip = least_replacement_fee(before.max_priority_fee_per_cycle)
        cycle, cell = _bid(observation, tip)
        sent.transaction = replace(
            before,
            max_fee_per_cycle=min(max(cycle, least_replacement_fee(before.max_fee_per_cycle)), PRICE_LIMIT - 1),
            max_priority_fee_per_cycle=tip,
            max_fee_per_cell=max(cell, before.max_fee_per_cell),
        )
        sent.wire = sign(self._key, self._chain_id, sent.transaction)

    def _find(self, wire: bytes) -> _Sent | None:
        return next((sent for sent in self._sent.values() if sent.wire == wire), None)


def _bid(observation: Observation, tip: int) -> tuple[int, int]:
    """The most to pay for a cycle and for a cell."""
    cycle, cell = FEE_HEADROOM * observation.basefee_cycle + tip, FEE_HEADROOM * observation.basefee_cell
    return min(cycle, PRICE_LIMIT - 1), min(cell, PRICE_LIMIT - 1)
