"""The watch of promises: it checks that validators keep their promises to clients.

A validator that accepts a client's transaction promises to pass it on and to put it into a block. The watch is an
observer, like the monitor (:mod:`cluster.watches.safety_monitor`): it sees what validators answer, send,
drop and build, and compares it with the books of final blocks.

=============  =======================================================================================================
rule           what must hold
=============  =======================================================================================================
passed_on      when a client hears that its transaction was taken, the validator has sent it to all others
kept           the transaction is in a final block that the validator began to build after that, in the same life: in
               the first one in which it could have run. It could have run if its nonce was the next, its fees reached
               the basefees, its sender could pay for it, and the block had room for it. A block whose view is more
               than ``max_held_blocks`` after that of the builder's final block counts as without room
dropped        a transaction that was taken leaves for a reason that shows: its nonce is spent by another one; its
               sender cannot pay for all that waits; another one with its nonce was taken; there were as many
               transactions as a mempool holds; it waited for as many blocks as it may
=============  =======================================================================================================

A promise ends with the validator's life: mempools are not durable. Transactions that wait because a block had no room,
or because a validator leads no view, are not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from cluster.audit.ledger import Ledger
from cluster.audit.safety.rule_log import RuleLog
from cluster.record.rules import PromiseRule as Rule
from cluster.record.run import PromiseRecord
from cluster.scenario.model import LimitsSection
from cluster.simulation.machine import Machine
from cluster.simulation.observer import Observer
from spec.encoding import Block, System, Unreadable, read_block, read_transaction, transaction_hash
from validator.chain.messages import Reading, TransactionsMessage
from validator.node.blocks.proposals import MAX_CANDIDATES
from validator.node.events import Run, TransactionDropped
from validator.node.executor.executor import MAX_BLOCK_PAYLOAD_BYTES, MAX_BLOCK_TRANSACTIONS
from validator.node.executor.jobs import Build
from validator.node.mempool import Departure

HASH_DIGITS: Final = 16


class _Offered(msgspec.Struct, frozen=True):
    """A client's transaction: the fields that decide when it can run."""

    sender: bytes
    nonce: int
    is_system: bool
    gas_limit: int
    cells_limit: int
    max_fee_per_cycle: int
    max_fee_per_cell: int
    value: int
    size: int

    @property
    def cost(self) -> int:
        """The maximum amount that the transaction can cost its sender."""
        return self.value + self.gas_limit * self.max_fee_per_cycle + self.cells_limit * self.max_fee_per_cell

    @classmethod
    def read(cls, wire: bytes, chain_id: str) -> _Offered:
        """Raises :class:`~spec.encoding.Unreadable` for a transaction that no block may have."""
        body = read_transaction(wire, chain_id)
        return cls(
            sender=body.sender,
            nonce=body.nonce,
            is_system=isinstance(body.action, System),
            gas_limit=body.gas_limit,
            cells_limit=body.cells_limit,
            max_fee_per_cycle=body.max_fee_per_cycle,
            max_fee_per_cell=body.max_fee_per_cell,
            value=body.value,
            size=len(wire),
        )


class _Promise(NamedTuple):
    """A transaction that one validator accepted from a client."""

    offered: _Offered
    number: int
    """The promise's number in the order of all watched events."""
    height: int
    """The validator's final height when it accepted the transaction."""


@dataclass(slots=True)
class _Memory:
    """The watch's knowledge of one validator, since its last start."""

    life: int = 0
    open: dict[bytes, _Promise] = field(default_factory=dict)
    """The validator's promises whose transactions are neither final nor dropped, keyed by transaction hash."""
    sent: set[bytes] = field(default_factory=set)
    """Hashes of the transactions that the validator sent to all others, but has not confirmed to a client yet."""
    gone: dict[bytes, str] = field(default_factory=dict)
    """The reasons for which the validator dropped transactions of ``sent``, keyed by hash. Within one request a
    transaction may replace another, which leaves before the client hears that it was accepted."""
    built: dict[int, int] = field(default_factory=dict)
    """When the validator began to build its block of a view, as a number in the order of all watched events; keyed by
    view."""
    dropped: list[tuple[bytes, _Promise, str]] = field(default_factory=list)
    """The promised transactions that the validator dropped, with reasons, to be judged with its next final block."""


class PromiseWatch(Observer):
    """Checks in one run that honest validators keep their promises to clients.

    It sees byzantine validators, too: what they send to others counts.
    """

    effects = frozenset({Run, TransactionDropped})

    def __init__(
        self,
        names: Sequence[str],
        ledger: Callable[[], Ledger],
        now_ms: Callable[[], float],
        limits: LimitsSection,
    ) -> None:
        """``ledger`` gives the books of final blocks; ``limits`` are those of each mempool."""
        self._limits = limits
        self._names = names
        self._ledger = ledger
        self._log = RuleLog(now_ms)
        self._memories = [_Memory() for _ in names]
        self._offered: dict[bytes, dict[bytes, _Offered]] = {}
        """Transactions accepted from clients that are not final, keyed by sender, then by transaction hash."""
        self._balances: dict[bytes, int] = {}
        """The balance of each sender in ``_offered`` after the newest final block."""
        self._height = 0
        """The height of the newest final block."""
        self._views = [0]
        """The views of final blocks, by height."""
        self._final_heights = [0] * len(names)
        """The final height of each validator."""
        self._number = 0
        self._taken = self._final = 0
        self._seen = self._seen_bytes = 0
        """Number and bytes of all transactions that came into any mempool, counted each time. No mempool holds more."""

    @property
    def violations(self) -> list[str]:
        """The violations so far, in words."""
        return self._log.violations

    def record(self) -> PromiseRecord:
        """The counts and violations so far."""
        counts: dict[str, int] = {rule: self._log.counts[rule] for rule in Rule}
        return PromiseRecord(list(self._log.violations), counts, self._taken, self._final)

    # --- what validators do -------------------------------------------------------------------------------------------

    def sends(self, machine: Machine, recipient: int | None, payload: bytes, content: Reading | None) -> None:
        """Note transactions that a validator sends to its peers."""
        if type(content) is TransactionsMessage:
            self._note_seen(content.transactions)
            if recipient is None:
                self._memories[machine.index].sent.update(map(transaction_hash, content.transactions))

    def takes(self, machine: Machine, transactions: Mapping[bytes, bytes]) -> None:
        """Note what a validator tells a client that it accepts. Nothing is expected of one that is byzantine."""
        assert machine.validator is not None, "it answers"
        index, height, is_honest = machine.index, machine.validator.node.height, machine.byzantine is None
        memory, ledger = self._memory(machine), self._ledger()
        self._note_seen(transactions.values())
        for digest, wire in transactions.items():
            try:
                offered = _Offered.read(wire, ledger.genesis.chain_id)
            except Unreadable:
                if is_honest:
                    self._look(Rule.KEPT, False, index, digest, "that no block may have")
                continue
            if offered.nonce < ledger.world.nonce.get(offered.sender, 0):
                continue  # it has become final, or cannot any more: the validator is behind
            self._offered.setdefault(offered.sender, {})[digest] = offered
            self._balances.setdefault(offered.sender, ledger.world.balance.get(offered.sender, 0))
            if is_honest:
                self._taken += 1
                promise, reason = _Promise(offered, self._next(), height), memory.gone.get(digest)
                if reason is None:
                    memory.open[digest] = promise
                else:
                    memory.dropped.append((digest, promise, reason))
                self._look(Rule.PASSED_ON, digest in memory.sent, index, digest, "and did not send it to all others")
        memory.sent.clear()
        memory.gone.clear()

    def performs(self, machine: Machine, effect: Run | TransactionDropped) -> None:
        """Note that a validator begins to build its block of a view, or that a transaction left its mempool without
        becoming final."""
        if type(effect) is TransactionDropped:
            self._drops(self._memories[machine.index], effect.transaction_hash, effect.reason)
        elif type(effect) is Run and type(effect.job) is Build:
            view = effect.job.view
            if view - self._views[self._final_heights[machine.index]] <= self._limits.max_held_blocks:
                self._memory(machine).built[view] = self._next()

    def _drops(self, memory: _Memory, digest: bytes, reason: str) -> None:
        promise = memory.open.pop(digest, None)
        if promise is not None:
            memory.dropped.append((digest, promise, reason))
        elif digest in memory.sent:
            memory.gone[digest] = reason

    def _memory(self, machine: Machine) -> _Memory:
        """The watch's knowledge of a validator in this life; its earlier promises ended with the life before."""
        index, life = machine.index, machine.incarnation
        if self._memories[index].life != life:
            self._memories[index] = _Memory(life, sent=self._memories[index].sent)
        return self._memories[index]

    # --- final blocks -------------------------------------------------------------------------------------------------

    def finalizes(self, index: int, height: int, encoded: bytes) -> None:
        """Check a validator's promises when it made a block final. The books have the block already."""
        if self._ledger().broken:
            return
        if height == self._height + 1:
            self._enter(read_block(encoded))
        self._final_heights[index] = height
        dropped, self._memories[index].dropped = self._memories[index].dropped, []
        for digest, promise, reason in dropped:
            shows = self._shows(promise, reason, height)
            if shows is not None:
                self._look(Rule.DROPPED, shows, index, digest, f"and dropped it as {reason}, of which nothing shows")

    def _enter(self, block: Block) -> None:
        """Enter the next final block, and check that it has the transactions that its proposer promised for it."""
        header, ledger = block.header, self._ledger()
        memory = self._memories[header.proposer]
        built = memory.built.get(header.view, 0)
        hashes = [transaction_hash(wire) for wire in block.transactions]
        due = [
            digest
            for digest, (offered, number, _) in memory.open.items()
            if number < built and self._could_run(offered, block, hashes)
        ]
        if due and self._could_offer_all(block):
            for digest in due:
                del memory.open[digest]
                what = f"and left it out of its block of height {header.height}, in which it could have run"
                self._look(Rule.KEPT, False, header.proposer, digest, what)
        memory.built = {view: number for view, number in memory.built.items() if view > header.view}
        for each in self._memories:
            self._note_kept(each, hashes)
        for sender, offers in list(self._offered.items()):
            first = ledger.world.nonce.get(sender, 0)
            left = {digest: offered for digest, offered in offers.items() if offered.nonce >= first}
            if left:
                self._offered[sender] = left
            else:
                del self._offered[sender]
        self._balances = {sender: ledger.world.balance.get(sender, 0) for sender in self._offered}
        self._height = header.height
        self._views.append(header.view)

    def _note_kept(self, memory: _Memory, hashes: Iterable[bytes]) -> None:
        kept = sum(memory.open.pop(digest, None) is not None for digest in hashes)
        self._final += kept
        self._log.counts[Rule.KEPT] += kept

    def _could_run(self, offered: _Offered, block: Block, hashes: Iterable[bytes]) -> bool:
        """Whether a transaction could have run at the end of a block, the newest in the books, that does not have it.

        What the sender received in that block is ignored, and its spending is taken as the most possible.
        """
        header, ledger, sender = block.header, self._ledger(), offered.sender
        if offered.nonce != ledger.world.nonce.get(sender, 0) or sender not in self._balances:
            return False
        limits = ledger.world.parameters
        if offered.max_fee_per_cycle < header.basefee_cycle or offered.max_fee_per_cell < header.basefee_cell:
            return False
        lane = limits["LANE_SYSTEM_CYCLES" if offered.is_system else "LANE_USER_CYCLES"]
        has_room = (
            header.user_cycles + offered.gas_limit <= lane
            and header.user_cells + offered.cells_limit <= limits["LANE_USER_CELLS"]
            and offered.gas_limit >= limits["TX_BASE_CYCLES"]
        )
        known = self._offered.get(sender, {})
        spent = sum(known[digest].cost for digest in hashes if digest in known)
        return has_room and self._balances[sender] - spent >= offered.cost

    def _could_offer_all(self, block: Block) -> bool:
        """Whether all transactions that may have waited fit into a mempool's offer for a block."""
        sizes = [offered.size for offers in self._offered.values() for offered in offers.values()]
        is_small = len(sizes) <= MAX_CANDIDATES and sum(sizes) <= MAX_BLOCK_PAYLOAD_BYTES
        return is_small and len(block.transactions) < MAX_BLOCK_TRANSACTIONS

    def _shows(self, promise: _Promise, reason: str, height: int) -> bool | None:
        """Whether the books confirm a validator's reason to drop a transaction, at its height; ``None`` if the books
        are at another height by now, and cannot tell."""
        offered, ledger = promise.offered, self._ledger()
        if offered.nonce < ledger.world.nonce.get(offered.sender, 0):
            return True
        others = self._offered.get(offered.sender, {}).values()
        if reason == Departure.UNAFFORDABLE:
            is_short = sum(one.cost for one in others) > ledger.world.balance.get(offered.sender, 0)
            return is_short if ledger.height == height else None
        if reason == Departure.REPLACED:
            same = (one for one in reversed(others) if one.nonce == offered.nonce)  # they are among the last, mostly
            return next(islice(same, 1, None), None) is not None
        if reason == Departure.EVICTED:
            return self._seen >= self._limits.max_transactions or self._seen_bytes >= self._limits.max_bytes
        return reason == Departure.EXPIRED and height - promise.height > self._limits.max_blocks_waiting

    # --- books and words ----------------------------------------------------------------------------------------------

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _note_seen(self, transactions: Iterable[bytes]) -> None:
        for wire in transactions:
            self._seen += 1
            self._seen_bytes += len(wire)

    def _look(self, rule: str, holds: bool, index: int, digest: bytes, what: str) -> None:
        transaction = digest.hex()[:HASH_DIGITS]
        self._log.look(rule, holds, f"{self._names[index]} took transaction {transaction} from a client {what}")
