"""The tables of a run: its timers, transactions, blocks, validators and faults.

The run's chain is executed by the specification, block by block, as for the verdict: what is in a table is what the
specification says. A timer's row comes when it ends, so no more than the pending ones are kept. A block that deviates
from the specification ends timers, transactions and blocks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cluster.audit.books import Books
from cluster.audit.chains import ChainReader, longest_chain
from cluster.audit.figures import ends_of, is_due
from cluster.audit.ledger import Ledger
from cluster.audit.specified.judge import Executed
from cluster.checks.metrics.actor_classes import OTHERS, class_of_actors
from cluster.checks.metrics.metrics import participation
from cluster.record.chain_store import ServedBlocks
from cluster.record.run import RunRecord
from cluster.tables.columns import Row, Table, amount, integer, number, text, truth
from spec.encoding import FireReceipt, System
from spec.world import Timer

if TYPE_CHECKING:  # the extra `data` has it
    import arro3.core

PENDING: Final = "pending"
"""The outcome of a timer that has not ended, besides those of :class:`~cluster.audit.figures.TimerState`."""
WAITS: Final = {
    "lane_full": "the lane had no room for it, or its phase was over before its turn",
    "below_basefee": "its fees were below the lane's price",
    "over_cap": "its gas limit was above the cap of a fire",
    "gc_budget": "it was to be destroyed, and the budget for removals was used up",
    "actor_limit": "its actor had fired as often as one may in a block",
    "insufficient_funds": "its payer could not pay, and the policy keeps such timers",
}
"""Why a due timer may neither fire nor end in a block, by the specification's names."""
COUNTS: Final = ("waits", *(f"waits_{reason}" for reason in WAITS), "queries", "queries_burned")
"""The columns of timers that are counted block by block."""

TIMERS: Final = Table(
    "timers",
    "Every timer that was ever scheduled, once: in the order in which they ended, then those that are pending.",
    (
        text("timer_id", "its id, 64 hex digits"),
        integer("sequence", "", "its number in the order of scheduling"),
        text("actor", "address of the actor that scheduled it"),
        text("actor_class", f"the actor's workload and program, or its name in the scenario; or {OTHERS}"),
        text("fee_payer", "address of the account that pays its fire"),
        text("handler", "the handler that it calls"),
        integer("scheduled_at", "height", "when it was scheduled"),
        integer("trigger_height", "height", "when it is due; null while it watches a key"),
        integer("expires_at", "height", "the last block in which it may fire"),
        integer("gas_limit", "cycles", "the most cycles of its fire; null if it leaves that open"),
        amount("max_fee_per_cycle", "the greatest lane price that it pays; null if it leaves that open", "cycle"),
        amount("max_priority_fee_per_cycle", "the greatest tip that it pays; null if it leaves that open", "cycle"),
        amount("payer_cap", "the most that its payer pays for it; null if there is no bound"),
        amount("bid", "its locked bid under bias_auction; null under other policies"),
        text("outcome", "fired, cancelled, expired, insufficient_funds (destroyed when due) or pending (at the end)"),
        integer("ended_at", "height", "when it fired, was cancelled or was destroyed; null if it is pending"),
        truth("due", "whether it had come due when it ended, or by the end of the run"),
        integer(
            "late_blocks",
            "blocks",
            "from its trigger height to its end, or to the block after the last one if it is pending; null if it was"
            " not due or was cancelled",
        ),
        integer("waits", "blocks", "blocks in which it was due, did not fire and was not destroyed"),
        *(
            integer(f"waits_{reason}", "blocks", f"those of `waits` in which {words}")
            for reason, words in WAITS.items()
        ),
        integer("queries", "", "how often an agent was asked about it"),
        amount("queries_burned", "what these queries burned"),
        truth("ok", "whether its handler succeeded; null if it did not fire, as in all columns that follow"),
        text("error", "the error that reverted its fire; null if there was none"),
        integer("cycles", "cycles", "cycles that its fire used"),
        integer("cells", "cells", "cells that its fire used"),
        amount("price_per_cycle", "the prices of the block in which it fired: cycle basefee and lane price", "cycle"),
        amount("tip_per_cycle", "its tip", "cycle"),
        amount("burned", "what its fire burned"),
        amount("tip", "what its fire tipped"),
    ),
)
TRANSACTIONS: Final = Table(
    "transactions",
    "Every transaction of the final blocks, in their order.",
    (
        integer("height", "height", "height of its block"),
        integer("place", "", "its place in the block, from 0"),
        text("hash", "its hash, 64 hex digits"),
        text("sender", "address of the sender"),
        text("kind", "Transfer, Deploy, Call, CancelTimer, ExtendTimer or UpdateTimerConfig"),
        text("to", "address that is called or paid, or of the new actor; null if there is none"),
        text("handler", "the handler that it calls; null if it is no call"),
        integer("nonce", "", "its nonce"),
        integer("gas_limit", "cycles", "the most cycles that it uses"),
        integer("cells_limit", "cells", "the most cells that it uses"),
        amount("max_fee_per_cycle", "the greatest price that it pays, tip included", "cycle"),
        amount("max_priority_fee_per_cycle", "the greatest tip that it pays", "cycle"),
        amount("max_fee_per_cell", "the greatest price of a cell that it pays", "cell"),
        amount("value", "what it pays the address"),
        amount("timer_allowance", "what its sender lets timers cost that it schedules"),
        truth("ok", "whether it succeeded"),
        text("error", "the error that reverted it; null if there was none"),
        integer("cycles", "cycles", "cycles that it used"),
        integer("cells", "cells", "cells that it used"),
        amount("burned", "what it burned"),
        amount("tip", "what it tipped"),
        integer("timers_scheduled", "", "timers that it scheduled"),
    ),
)
BLOCKS: Final = Table(
    "blocks",
    "Every final block, by height. Prices are those in force during the block.",
    (
        integer("height", "height", "its height"),
        text("hash", "its hash, 64 hex digits"),
        integer("view", "", "the view of consensus in which it was proposed"),
        integer("proposer", "", "index of the validator that proposed it"),
        text("proposer_name", "its name"),
        number("proposed_ms", "ms", "when it was first seen, since the run began; null if that is unknown"),
        number("final_ms", "ms", "when it was first final, since the run began; null if that is unknown"),
        integer("transactions", "", "transactions in it"),
        integer("reverted", "", "those of them that failed"),
        integer("scheduled", "", "timers that were scheduled"),
        integer("fires", "", "timers that fired"),
        integer("destroyed", "", "timers that expired, or could not pay"),
        integer("messages", "", "messages that ran"),
        integer("queries", "", "queries of agents"),
        integer("pending", "", "timers pending after it"),
        integer("backlog", "", "those of them that were due"),
        amount("basefee_cycle", "the cycle basefee", "cycle"),
        amount("basefee_cell", "the cell basefee", "cell"),
        amount("basefee_lane_timer", "the lane basefee", "cycle"),
        integer("lane_cycles", "cycles", "cycles that fires used"),
        integer("lane_limit", "cycles", "the most that fires may use"),
        integer("lane_cells", "cells", "cells that fires used"),
        integer("user_cycles", "cycles", "cycles that transactions used"),
        integer("user_cells", "cells", "cells that transactions used"),
        amount("burned", "what it burned: by transactions, fires and queries"),
        amount("tips", "what its proposer got"),
    ),
)
VALIDATORS: Final = Table(
    "validators",
    "Every validator as it was at the end, by index.",
    (
        integer("index", "", "its index in the genesis"),
        text("name", "its name"),
        integer("height", "height", "height of its last final block; 0 if it served none"),
        integer("first_height", "height", "height of its first block: above 1 if it joined by a snapshot"),
        text("state_root", "the root that it computed of its last block, 64 hex digits"),
        text("byzantine", "its byzantine behaviours, with commas; null if it is honest"),
        text("planted_bug", "the bug that was planted in it; null if there is none"),
        integer("led", "views", "views that it led, up to that of the newest final block"),
        integer("proposed", "blocks", "final blocks that it proposed"),
        integer("votes", "", "certificates with its vote"),
        integer("certificates", "", "certificates that it could have signed"),
        integer("disk_max", "bytes", "the most disk that it used; null if that was not measured, as in what follows"),
        integer("memory_max", "bytes", "the most memory of its process, which validators of a host share"),
        integer("open_files_max", "", "the most open files of its process"),
    ),
)
FAULTS: Final = Table(
    "faults",
    "Every fault, planned or not, in the order of the record. Times are since the run began.",
    (
        text("kind", "its kind"),
        text("target", "its targets in the scenario's words"),
        text("targets", "the validators that it hit, with commas; null if it hit links"),
        truth("is_planned", "whether it is in the scenario"),
        integer("at_height", "height", "when it was to begin; null if that was a time"),
        number("at_ms", "ms", "when it was to begin; null if that was a height"),
        number("begun_ms", "ms", "when it began; null if it did not"),
        number("ended_ms", "ms", "when it was over; null if it was not"),
        integer("height_when_begun", "height", "the highest final height when it began"),
        integer("height_when_ended", "height", "the highest final height when it was over"),
        truth("took_effect", "whether an effect was observed"),
        text("evidence", "the observed effect, in words"),
        text("problem", "a result that its kind must not have, in words; null if there is none"),
    ),
)
TABLES: Final = (TIMERS, TRANSACTIONS, BLOCKS, VALIDATORS, FAULTS)


def rows_of(record: RunRecord) -> Iterator[Row]:
    """The rows of a run's tables.

    It takes as long as judging the run does. Raises :class:`~validator.policies.own.PolicyError`.
    """
    chain = longest_chain(record.lives) or ServedBlocks.all_of(record.store)  # where no validator was asked
    walk = _Walk(record, Ledger(record.genesis))
    for served in chain:
        walk.ledger.apply(served.block, served.receipts)
        if walk.ledger.broken:
            walk.take_back()
            break
        yield from walk.rows()
    yield from walk.pending()
    reader = ChainReader()
    chains = {each.name: reader.read(each) for each in record.validators}
    yield from _validators(Books(record, walk.ledger, chain, chains))
    for fault in record.faults:
        yield FAULTS.row(fault, height_when_begun=None if fault.begun_ms is None else fault.height_when_begun)


# --- the chain --------------------------------------------------------------------------------------------------------


class _Walk:
    """A walk over the blocks of a run. The ledger enters a block, then :meth:`rows` has its rows."""

    def __init__(self, record: RunRecord, ledger: Ledger) -> None:
        self.ledger = ledger
        self._classes = class_of_actors(record)
        self._names = {each.index: each.name for each in record.validators}
        self._proposed, self._final = record.proposals, record.first_finalizations
        self._kept: defaultdict[bytes, Counter[str]] = defaultdict(Counter)
        """The counts of timers that waited or were asked about, by column, keyed by id."""
        self._paid = 0, 0
        """What all blocks so far burned and tipped."""

    def rows(self) -> Iterator[Row]:
        """The rows of the last block that the ledger entered."""
        executed, world = self.ledger.chain.last, self.ledger.world
        assert executed is not None, "the ledger entered a block"
        for timer_id, reason in executed.run.phase.waits.items():
            self._kept[timer_id].update(("waits", f"waits_{reason}"))
        for query in executed.receipts.queries:
            self._kept[query.timer_id].update(queries=1, queries_burned=int.from_bytes(query.burned))
        fires = {fire.timer_id: fire for fire in executed.receipts.fires}
        for timer, state in ends_of(executed.receipts, world.removed(world.timers)):
            yield self._timer(timer, state.value, fires.get(timer.timer_id))
        for place in range(len(executed.transactions)):
            yield self._transaction(executed, place)
        yield self._block(executed)

    def take_back(self) -> None:
        """Have the state before the block that deviated: its timers are those that the rows so far do not have."""
        world = self.ledger.world
        if world.height > self.ledger.height:  # the block was executed
            world.back(0)

    def pending(self) -> Iterator[Row]:
        """The rows of the timers that have not ended."""
        for timer in sorted(self.ledger.world.timers.values(), key=lambda timer: timer.sequence):
            yield self._timer(timer, PENDING, None)

    def _timer(self, timer: Timer, outcome: str, fire: FireReceipt | None) -> Row:
        height, world = self.ledger.height, self.ledger.world
        due, is_pending = is_due(timer, height), outcome == PENDING
        return TIMERS.row(
            *(timer, fire),
            actor_class=self._classes.get(timer.actor, OTHERS),
            trigger_height=None if timer.is_watching else timer.trigger_height,
            max_fee_per_cycle=timer.max_fee,
            max_priority_fee_per_cycle=timer.priority,
            outcome=outcome,
            ended_at=None if is_pending else height,
            due=due,
            late_blocks=height + is_pending - timer.trigger_height if due and outcome != "cancelled" else None,
            price_per_cycle=None if fire is None else world.basefee_cycle + world.lane_price,
            **dict.fromkeys(COUNTS, 0) | self._kept.pop(timer.timer_id, {}),
        )

    @staticmethod
    def _transaction(executed: Executed, place: int) -> Row:
        sent, receipt = executed.transactions[place], executed.receipts.transactions[place]
        action = sent.action
        return TRANSACTIONS.row(
            *(sent, action, receipt),
            height=executed.receipts.height,
            place=place,
            kind=type(action.instruction if isinstance(action, System) else action).__name__,
            to=getattr(action, "to", receipt.created),
            timers_scheduled=len(receipt.effects.scheduled),
        )

    def _block(self, executed: Executed) -> Row:
        header, ledger = executed.block.header, self.ledger
        (burned, tips), self._paid = self._paid, (ledger.burned, ledger.tips)
        return BLOCKS.row(
            *(header, executed.block),
            proposer_name=self._names.get(header.proposer),
            proposed_ms=self._proposed.get(header.height),
            final_ms=self._final.get(header.height),
            burned=ledger.burned - burned,
            tips=ledger.tips - tips,
            **ledger.blocks.last,
        )


# --- validators --------------------------------------------------------------------------------------------


def _validators(books: Books) -> Iterator[Row]:
    for part, validator in zip(participation(books), books.record.validators, strict=True):
        looks = [look for look in books.record.resources if look.validator == validator.index]
        yield VALIDATORS.row(
            *(validator, part),
            index=validator.index,
            state_root=validator.blocks[-1].computed_root if validator.blocks else None,
            planted_bug=validator.mutant,
            disk_max=max((look.disk_bytes for look in looks), default=None),
            memory_max=max((look.memory_bytes or 0 for look in looks), default=0) or None,
            open_files_max=max((look.open_files or 0 for look in looks), default=0) or None,
        )


# --- for Python -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """A run, and its tables as Arrow tables. The first call makes all, which takes as long as judging the run.

    All raise :class:`~cluster.common.errors.BadInput` without the extra ``data``.
    """

    record: RunRecord = field(repr=False)
    _tables: dict[str, arro3.core.Table] = field(default_factory=dict, init=False, repr=False, compare=False)

    def timers(self) -> arro3.core.Table:
        """Every timer: when it was scheduled and due, how it ended, who paid what, how long it waited and why."""
        return self._made(TIMERS)

    def transactions(self) -> arro3.core.Table:
        """Every final transaction."""
        return self._made(TRANSACTIONS)

    def blocks(self) -> arro3.core.Table:
        """Every final block."""
        return self._made(BLOCKS)

    def validators(self) -> arro3.core.Table:
        """Every validator as it was at the end."""
        return self._made(VALIDATORS)

    def faults(self) -> arro3.core.Table:
        """Every fault."""
        return self._made(FAULTS)

    def _made(self, table: Table) -> arro3.core.Table:
        from cluster.tables.files import arrow_tables

        if not self._tables:
            self._tables.update(arrow_tables(TABLES, rows_of(self.record)))
        return self._tables[table.name]
