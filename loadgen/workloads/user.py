"""A load user: a key, an account, an actor, a workload, and a nonce that survives rejections and losses.

The user is pure. Its driver (Locust over HTTP, or the simulator) calls :meth:`LoadUser.next_transactions` each time
that :meth:`~LoadUser.next_delay_ms` has passed and submits the returned transactions, in order. The driver reports
those that were rejected (:meth:`~LoadUser.rejected`) or may not have arrived (:meth:`~LoadUser.undelivered`). Times are
milliseconds since the load began.

Nonces. A transaction that was sent is remembered until it is final. One that may not have arrived is sent again, byte
for byte, before new ones. All are sent again when the account's nonce has not changed for ``STALL_BLOCKS`` blocks (a
validator may have died with them). If basefees have outgrown a transaction meanwhile, it is signed again with the same
nonce, and with fees high enough to replace the former one in mempools. A rejected transaction frees its nonce, and the
next turn fills the gap; the workload is told which intents failed. An intent with
:class:`~loadgen.workloads.base.Terms` is exempt: its transaction is sent once, and remembered until the user's next
turn, so that a refusal is noted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from nacl.signing import SigningKey

from loadgen.workloads.arrival import OpenRhythm, Rhythm, Schedule
from loadgen.workloads.base import Intent, Observation, Terms, Workload
from loadgen.workloads.measures import Sends, UserSends
from loadgen.workloads.phases import Seen
from validator.chain.transactions import Transaction, least_replacement_fee, signed_message, wire_form
from validator.primitives.types import PRICE_LIMIT, Address

FEE_HEADROOM: Final = 4
"""Factor of the observed basefee that a transaction bids: enough for about eleven blocks of the steepest rise."""
TIP_STEP: Final = 100
TIP_LEVELS: Final = 64
"""Number of different priority fees: a user's is ``TIP_STEP`` times 1 to ``TIP_LEVELS``, by the user's number."""
MAX_UNCONFIRMED: Final = 16
"""Maximum number of a user's unconfirmed transactions; it sends no new ones beyond."""
STALL_BLOCKS: Final = 8
MAX_REFUSALS: Final = 2
"""Number of refusals after which a transaction that was sent again is given up, and its nonce is used again."""


@dataclass(slots=True)
class Outgoing:
    """A transaction to be sent, possibly not signed yet."""

    number: int
    """Number of the user whose key signs."""
    public_key: bytes
    message: bytes
    """The message to be signed."""
    wire: bytes = b""
    """The signed transaction; empty until it is signed."""

    def accept(self, signature: bytes) -> None:
        self.wire = wire_form(self.public_key, self.message, signature)


@dataclass(slots=True)
class _Sent:
    """An unconfirmed transaction."""

    intent: Intent
    transaction: Transaction
    outgoing: Outgoing
    delivered: bool = True
    resent: bool = False
    refusals: int = 0


@dataclass(slots=True)
class _Stated:
    """The transactions of the user's last turn that have one nonce, which the workload chose by :class:`Terms`."""

    outgoing: list[Outgoing]
    """The transactions with this nonce that were not refused."""
    is_known: bool
    """Whether a transaction with this nonce was sent before the last turn."""


class LoadUser:
    """One user of a load plan. Equal seeds and observations give equal transactions, byte for byte."""

    def __init__(
        self, key: SigningKey, chain_id: str, schedule: Schedule, workload: Workload[Any], is_open: bool = False
    ) -> None:
        """``is_open``: its turns are due by the clock only (:mod:`loadgen.workloads.arrival`)."""
        member = workload.member
        self.number: int = member.number
        """Position in the plan, from 0."""
        self.workload: str = workload.name
        self.address: Address = member.address
        self.actor: Address = workload.watched
        """The actor that the user reads: the one that its transactions call, or whose jobs it answers."""
        self.first_delay_ms: int = member.random.randrange(schedule.interval_ms)
        """Time from the load's start to the first turn, drawn so that users are not synchronised."""
        self._rhythm = OpenRhythm(schedule, self.first_delay_ms) if is_open else Rhythm(schedule)
        self._log = UserSends(Sends(), workload.name, bytes(key.verify_key))
        self._key = key
        self._chain_id = chain_id
        self._workload = workload
        self._next_nonce = 0
        self._confirmed_nonce = 0
        self._progress_height = 0
        self._sent: dict[int, _Sent] = {}
        """Transactions that are not known to be final, by nonce."""
        self._stated: dict[int, _Stated] = {}
        """Transactions of the last turn whose terms the workload chose, by nonce."""

    @property
    def _tip(self) -> int:
        return TIP_STEP * (1 + self.number % TIP_LEVELS)

    @property
    def is_open(self) -> bool:
        """Whether its turns are due by the clock only."""
        return isinstance(self._rhythm, OpenRhythm)

    def measure(self, sends: Sends, title: str, origin_ms: int) -> None:
        """Record the user's transactions in ``sends``, under a title. The clock of ``sends`` shows ``origin_ms`` when
        the load begins."""
        self._log = UserSends(sends, title, self._log.public_key, origin_ms)

    def begin(self, now_ms: int) -> None:
        """Begin at ``now_ms``, after the load itself began. In an open loop, turns that were due before are dropped."""
        if isinstance(self._rhythm, OpenRhythm):
            self._rhythm.begin(now_ms)

    def end(self, now_ms: int) -> None:
        """End the load of this user. In an open loop, turns that still wait are recorded as skipped."""
        if isinstance(self._rhythm, OpenRhythm):
            self._rhythm.advance(now_ms)
            turns = self._rhythm.skipped + len(self._rhythm.waiting)
            if turns:
                self._log.skip(turns)

    def next_delay_ms(self, now_ms: int = 0) -> int:
        """Milliseconds until the user's next turn may be due. A driver calls this at each check of the user: before
        :meth:`next_transactions` in a closed loop, after it in an open loop."""
        return self._rhythm.next_delay_ms(now_ms)

    def has_due_turns(self, now_ms: int) -> bool:
        """Whether a turn is due at ``now_ms``; always true in a closed loop."""
        if not isinstance(self._rhythm, OpenRhythm):
            return True
        self._rhythm.advance(now_ms)
        return bool(self._rhythm.waiting)

    def reseed(self, seed: int) -> None:
        """Seed the user's random source again, so that its further choices follow from ``seed``."""
        self._workload.member.random.seed(f"{seed}/user/{self.number}")

    def next_transactions(self, observation: Observation, now_ms: int = 0) -> list[bytes]:
        """The signed transactions of this turn, or of all due turns, in nonce order. Empty if no turn is due."""
        outgoing = self.next_outgoing(observation, now_ms)
        for each in outgoing:
            self.sign(each)
        return [each.wire for each in outgoing]

    def sign(self, outgoing: Outgoing) -> None:
        """Sign a transaction that is not signed yet."""
        if not outgoing.wire:
            outgoing.accept(self._key.sign(outgoing.message).signature)

    def next_outgoing(self, observation: Observation, now_ms: int = 0) -> list[Outgoing]:
        """The transactions of this turn, or of all due turns, in nonce order, possibly not signed yet. The caller signs
        all of them before the next call. Empty if no turn is due."""
        self._settle(observation)
        self._stated.clear()
        seen = Seen(observation.height, now_ms, observation.basefee_lane_timer, observation.backlog)
        if isinstance(self._rhythm, OpenRhythm):
            return self._due_turns(self._rhythm, observation, seen)
        if not self._rhythm.takes_turn(seen):
            return []
        return self._send_again(observation) or self._turn(observation, now_ms, now_ms)

    def _due_turns(self, rhythm: OpenRhythm, observation: Observation, seen: Seen) -> list[Outgoing]:
        """Transactions to send again, and those of all due turns for which there is room; other turns keep waiting."""
        rhythm.see(seen)
        outgoing = [] if rhythm.is_paused else self._send_again(observation)
        while rhythm.waiting and len(self._sent) < MAX_UNCONFIRMED:
            outgoing += self._turn(observation, rhythm.waiting.popleft(), seen.at_ms)
        return outgoing

    def _turn(self, observation: Observation, due_ms: int, now_ms: int) -> list[Outgoing]:
        room = MAX_UNCONFIRMED - len(self._sent)
        if room <= 0:
            return []
        intents = self._workload.intents(replace(observation, next_nonce=self._next_nonce))
        for intent in intents[room:]:
            self._workload.dropped(intent)
        if self.is_open and len(intents) > room:
            self._log.leave_out(len(intents) - room)
        return [self._send(intent, observation, due_ms, now_ms) for intent in intents[:room]]

    def rejected(self, wire: bytes) -> None:
        """Take note that the mempool refused this transaction: free its nonce and those after it.

        A transaction that was sent again may be refused because it is known already, so it is kept until it was refused
        twice.
        """
        sent = self._find(wire)
        if sent is None:
            self._refuse_stated(wire)
            return
        sent.refusals += 1
        if sent.resent and sent.refusals < MAX_REFUSALS:
            return
        self._next_nonce = sent.transaction.nonce
        for nonce in [nonce for nonce in self._sent if nonce >= sent.transaction.nonce]:
            self._workload.dropped(self._sent.pop(nonce).intent)
            self._log.give_up(nonce)

    def _refuse_stated(self, wire: bytes) -> None:
        """Take note that a transaction whose terms the workload chose was refused; any other transaction is ignored.
        The nonce's due time is kept if the mempool may have another transaction with that nonce."""
        for nonce, stated in self._stated.items():
            left = [each for each in stated.outgoing if each.wire != wire]
            if len(left) < len(stated.outgoing):
                stated.outgoing = left
                self._log.give_up(nonce, is_last=not left and not stated.is_known)
                return

    def undelivered(self, wires: list[bytes]) -> None:
        """Take note that these transactions may not have arrived; the next turn sends them again."""
        for wire in wires:
            sent = self._find(wire)
            if sent is not None:
                sent.delivered = False

    def _settle(self, observation: Observation) -> None:
        """Forget final transactions, and note when the account's nonce last changed."""
        if observation.confirmed_nonce > self._confirmed_nonce or not self._sent:
            self._progress_height = observation.height
        self._confirmed_nonce = max(self._confirmed_nonce, observation.confirmed_nonce)
        self._next_nonce = max(self._next_nonce, self._confirmed_nonce)
        self._sent = {nonce: sent for nonce, sent in self._sent.items() if nonce >= self._confirmed_nonce}

    def _send_again(self, observation: Observation) -> list[Outgoing]:
        stalled = observation.height - self._progress_height >= STALL_BLOCKS
        if stalled:
            self._progress_height = observation.height
        outgoing: list[Outgoing] = []
        for sent in self._sent.values():
            if not stalled and sent.delivered:
                continue
            sent.delivered, sent.resent = True, True
            bid = sent.transaction
            if bid.max_fee_per_cycle < observation.basefee_cycle or bid.max_fee_per_cell < observation.basefee_cell:
                self._sign_again(sent, observation)
            outgoing.append(sent.outgoing)
        return outgoing

    def _send(self, intent: Intent, observation: Observation, due_ms: int, now_ms: int) -> Outgoing:
        terms = intent.terms or self._terms(observation)
        transaction = Transaction(
            sender=self.address,
            nonce=terms.nonce,
            gas_limit=intent.gas_limit,
            cells_limit=intent.cells_limit,
            max_fee_per_cycle=terms.max_fee_per_cycle,
            max_priority_fee_per_cycle=terms.max_priority_fee_per_cycle,
            max_fee_per_cell=terms.max_fee_per_cell,
            action=intent.action,
            value=intent.value,
            timer_allowance=intent.timer_allowance,
        )
        outgoing = self._outgoing(transaction)
        is_known = self._log.note(terms.nonce, due_ms, now_ms)
        if intent.terms is None:
            self._sent[self._next_nonce] = _Sent(intent, transaction, outgoing)
            self._next_nonce += 1
        else:
            self._stated.setdefault(terms.nonce, _Stated([], is_known)).outgoing.append(outgoing)
        return outgoing

    def _outgoing(self, transaction: Transaction) -> Outgoing:
        return Outgoing(self.number, bytes(self._key.verify_key), signed_message(self._chain_id, transaction))

    def _terms(self, observation: Observation) -> Terms:
        """The user's next nonce, and fees that suffice for some blocks even if basefees rise."""
        cycle, cell = _bid(observation, self._tip)
        return Terms(self._next_nonce, cycle, self._tip, cell)

    def _sign_again(self, sent: _Sent, observation: Observation) -> None:
        """Make an unconfirmed transaction again, with the same nonce and fees that replace it in mempools."""
        before = sent.transaction
        tip = least_replacement_fee(before.max_priority_fee_per_cycle)
        cycle, cell = _bid(observation, tip)
        sent.transaction = replace(
            before,
            max_fee_per_cycle=min(max(cycle, least_replacement_fee(before.max_fee_per_cycle)), PRICE_LIMIT - 1),
            max_priority_fee_per_cycle=tip,
            max_fee_per_cell=max(cell, before.max_fee_per_cell),
        )
        sent.outgoing = self._outgoing(sent.transaction)

    def _find(self, wire: bytes) -> _Sent | None:
        return next((sent for sent in self._sent.values() if sent.outgoing.wire == wire), None)


def _bid(observation: Observation, tip: int) -> tuple[int, int]:
    """The maximum fees per cycle and per cell that a transaction bids, given the observed basefees and a tip."""
    cycle, cell = FEE_HEADROOM * observation.basefee_cycle + tip, FEE_HEADROOM * observation.basefee_cell
    return min(cycle, PRICE_LIMIT - 1), min(cell, PRICE_LIMIT - 1)
