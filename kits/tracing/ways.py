"""The traces of a run: one for each chosen transaction, and one for each chosen timer.

================  ==================================================================================================
transaction       from the moment when a validator took it until it is final: ``mempool``, then its ``block``
timer             from the block that schedules it to the block in which it fires, expires or is cancelled:
                  ``schedule``, ``wait``, ``late`` if it fires later than it is due, and ``fire``
================  ==================================================================================================

A timer has a trace if its scheduler has one: then both link to each other, so that a chain of timers can be followed
from trace to trace. A timer that a message or a callback schedules is chosen by its own id.

The sources are final blocks with their receipts, and steps of validators. Nothing is read from a validator's state.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from cluster.audit.figures import Failure, RunKind
from cluster.record.archive import BlockRecord
from kits.tracing.block_spans import Chain, TracedBlock
from kits.tracing.sampler import Sampler
from kits.tracing.spans import NO_PARENT, Link, Span, Value, root_of, span_id_of, trace_id_of
from kits.tracing.step_log import StepLog
from spec.encoding import (
    Block,
    Call,
    Effects,
    FireReceipt,
    Receipts,
    Scheduled,
    TransactionReceipt,
    Transfer,
    Unreadable,
    address_text,
    read_block,
    read_receipts,
    read_transaction,
    transaction_hash,
)

MAX_OPEN_TIMERS: Final = 10_000
"""Bound for the pending timers with a trace. While there are this many, others that are scheduled have none."""
MAX_UNEXPLAINED: Final = 1_000
"""Bound for the failures that get their reasons at the end."""
UNKNOWN_MS: Final = -1.0


class _Effect(NamedTuple):
    """The effects of one handler, and the kind and the trace of what ran it, if it has a trace."""

    kind: str
    trace_id: int | None
    effects: Effects


@dataclass(frozen=True, slots=True)
class _OpenTimer:
    """A pending timer with a trace."""

    trace_id: int
    scheduled: Scheduled
    height: int
    """The height of the block that scheduled it."""
    start_ms: float
    final_ms: float
    """When that block became final."""
    scheduled_by: str
    links: Sequence[Link]


class Ways:
    """Makes the spans of final blocks, one block after the other."""

    def __init__(self, chain: Chain, steps: StepLog, sampler: Sampler) -> None:
        self._chain, self._steps, self._sampler = chain, steps, sampler
        self.height = 0
        """The height of the last block that was added."""
        self._view = 0
        self._timers: dict[bytes, _OpenTimer] = {}
        self._starts_ms = array("d")
        """When each block began, by height from 1 on; :data:`UNKNOWN_MS` if that is not known."""
        self.traces = 0
        """Number of traces so far."""
        self.timers_left_out = 0
        """Timers without a trace because too many others had one."""
        self.reasons: Mapping[Failure, str] = {}
        """Why runs failed, in words; empty as long as the run goes on."""
        self._unexplained: dict[Failure, Span] = {}
        """The first span of each failure whose reason was not known."""

    def skip(self, height: int) -> None:
        """Go on above a height: steps up to there were not reported to this process."""
        self._starts_ms.extend([UNKNOWN_MS] * (height - self.height))
        self.height = height

    def add(self, record: BlockRecord) -> list[Span]:
        """The spans of the next block; none if it cannot be read, or if no validator was seen to make it final."""
        self.height += 1
        self._starts_ms.append(UNKNOWN_MS)
        try:
            block, receipts = read_block(record.block), read_receipts(record.receipts)
            hashes = tuple(transaction_hash(wire) for wire in block.transactions)
        except Unreadable:
            return []
        view, parents_view = block.header.view, self._view
        self._view = view
        traced = TracedBlock(
            self._chain,
            block.header,
            block.hash,
            len(hashes),
            len(receipts.fires),
            self._steps.of_block(self.height, view),
            view > parents_view + 1,
        )
        if traced.final_ms is None:
            return []
        self._starts_ms[-1] = traced.start_ms
        spans = [*self._of_block(traced, block, receipts, hashes)]
        self._steps.forget(self.height, view, hashes)
        return spans

    def finish(self, end_ms: float) -> list[Span]:
        """The first spans of the timers that are pending when the run ends, and a span ``reason`` below the first span
        of each failure that was exported before its reason was known."""
        pending = [self._root_of_timer(timer, end_ms, "pending") for timer in self._take_all()]
        return pending + [
            replace(
                span,
                span_id=span_id_of(span.trace_id, "reason"),
                parent_id=span.span_id,
                name="reason",
                start_ms=span.end_ms,
                links=(),
                why=self.reasons[failure],
            )
            for failure, span in self._unexplained.items()
            if failure in self.reasons
        ]

    def _explained(self, span: Span, kind: RunKind, actor: bytes) -> Span:
        """The span of an actor's run, which may have failed, with the reason if it is known."""
        failure = kind, actor, span.error
        if not span.error:
            return span
        if failure not in self.reasons and len(self._unexplained) < MAX_UNEXPLAINED:
            self._unexplained.setdefault(failure, span)
        return replace(span, why=self.reasons.get(failure, ""))

    def _take_all(self) -> list[_OpenTimer]:
        left = [*self._timers.values()]
        self._timers.clear()
        return left

    # --- a block ------------------------------------------------------------------------------------------------------

    def _of_block(
        self, traced: TracedBlock, block: Block, receipts: Receipts, hashes: Sequence[bytes]
    ) -> Iterator[Span]:
        chosen = self._sampler.choose(hashes)
        new = self._new_timers(traced, chosen, receipts)
        links = self._links_to(new)
        for wire, receipt in zip(block.transactions, receipts.transactions, strict=False):
            if receipt.transaction_hash in chosen:
                self.traces += 1
                yield from self._of_transaction(traced, wire, receipt, links)
        for timer in new:
            self.traces += 1
            yield from traced.spans(timer.trace_id, root_of(timer.trace_id), "schedule", "schedule")
            self._timers[timer.scheduled.timer_id] = timer
        yield from self._ends(traced, receipts, links)

    def _handlers(self, chosen: set[bytes], receipts: Receipts) -> Iterator[_Effect]:
        """The effects of all handlers of a block."""
        for sent in receipts.transactions:
            key = sent.transaction_hash
            yield _Effect("transaction", self._trace_id(key) if key in chosen else None, sent.effects)
        for fire in receipts.fires:
            timer = self._timers.get(fire.timer_id)
            yield _Effect("timer", None if timer is None else timer.trace_id, fire.effects)
        for callback in receipts.callbacks:
            yield _Effect("callback", None, callback.effects)
        for message in receipts.messages:
            yield _Effect("message", None, message.effects)

    def _new_timers(self, traced: TracedBlock, chosen: set[bytes], receipts: Receipts) -> list[_OpenTimer]:
        """The timers that the block schedules and that get a trace."""
        final_ms = traced.final_ms
        assert final_ms is not None
        found: dict[bytes, _OpenTimer] = {}
        for kind, trace_id, effects in self._handlers(chosen, receipts):
            if trace_id is None and kind in ("transaction", "timer"):
                continue
            links = [] if trace_id is None else [Link(trace_id, "scheduled by")]
            for each in effects.scheduled:
                own, began = self._trace_id(each.timer_id), (traced.header.height, traced.start_ms, final_ms)
                found[each.timer_id] = _OpenTimer(own, each, *began, kind, links)
        taken = sorted(self._sampler.choose(found))
        room = max(0, MAX_OPEN_TIMERS - len(self._timers))
        self.timers_left_out += len(taken[room:])
        return [found[key] for key in taken[:room]]

    def _links_to(self, timers: Sequence[_OpenTimer]) -> dict[int, list[Link]]:
        """The links from the traces of schedulers to those of their timers, by trace id."""
        found: dict[int, list[Link]] = {}
        for timer in timers:
            for link in timer.links:
                found.setdefault(link.trace_id, []).append(Link(timer.trace_id, "schedules"))
        return found

    # --- transactions -------------------------------------------------------------------------------------------------

    def _of_transaction(
        self, traced: TracedBlock, wire: bytes, receipt: TransactionReceipt, links: dict[int, list[Link]]
    ) -> Iterator[Span]:
        key = receipt.transaction_hash
        trace_id, taken, block_ms = self._trace_id(key), self._steps.taken(key), traced.start_ms
        start_ms = block_ms if taken is None else min(taken[0], block_ms)
        assert traced.final_ms is not None
        kind, called, more = describe(wire, traced.header.chain_id)
        attributes: dict[str, Value] = {
            "stampede.transaction.hash": key.hex(),
            "stampede.transaction.sender": address_text(receipt.sender),
            "stampede.transaction.cycles": receipt.cycles,
            "stampede.transaction.fee": _fee(receipt),
            **more,
            **traced.attributes,
        }
        root = root_of(trace_id)
        span = Span(
            trace_id,
            root,
            NO_PARENT,
            kind,
            start_ms,
            traced.final_ms,
            attributes=attributes,
            links=links.get(trace_id, ()),
            error="" if receipt.ok else receipt.error,
        )
        yield self._explained(span, RunKind.TRANSACTION, called)
        if taken is not None:
            name = self._chain.names[taken[1]]
            yield Span(trace_id, span_id_of(trace_id, "mempool"), root, "mempool", start_ms, block_ms, name)
        yield from traced.spans(trace_id, root, "block")

    # --- timers -------------------------------------------------------------------------------------------------------

    def _ends(self, traced: TracedBlock, receipts: Receipts, links: dict[int, list[Link]]) -> Iterator[Span]:
        """The spans of timers that fire or end in the block."""
        final_ms = traced.final_ms
        assert final_ms is not None
        for fire in receipts.fires:
            if timer := self._timers.pop(fire.timer_id, None):
                yield from self._fire(timer, traced, fire, links.get(timer.trace_id, ()))
        for destroyed in receipts.destroyed:
            if timer := self._timers.pop(destroyed.timer_id, None):
                yield self._root_of_timer(timer, final_ms, destroyed.reason, error=destroyed.reason)
        for _, _, effects in self._handlers(set(), receipts):
            for change in effects.timer_changes:
                if change[0] == "cancelled" and (timer := self._timers.pop(change[1], None)):
                    yield self._root_of_timer(timer, final_ms, "cancelled")

    def _fire(self, timer: _OpenTimer, traced: TracedBlock, fire: FireReceipt, links: Sequence[Link]) -> Iterator[Span]:
        trace_id, fire_ms, height = timer.trace_id, traced.start_ms, traced.header.height
        assert traced.final_ms is not None
        root, late_blocks = root_of(trace_id), height - fire.trigger_height
        more: dict[str, Value] = {
            "stampede.timer.fired_at": height,
            "stampede.timer.late_blocks": late_blocks,
            "stampede.timer.cycles": fire.cycles,
            "stampede.timer.fee": _fee(fire),
        }
        outcome = "fired" if fire.ok else "failed"
        span = self._root_of_timer(timer, traced.final_ms, outcome, more, links, "" if fire.ok else fire.error)
        yield self._explained(span, RunKind.FIRE, fire.actor)
        trigger_ms = self._start_ms(fire.trigger_height)
        due_ms = fire_ms if trigger_ms is None or not late_blocks else min(trigger_ms, fire_ms)
        wait = span_id_of(trace_id, "wait")
        yield Span(trace_id, wait, root, "wait", min(timer.final_ms, due_ms), due_ms)
        if due_ms < fire_ms:
            yield Span(trace_id, span_id_of(trace_id, "late"), root, "late", due_ms, fire_ms)
        yield from traced.spans(trace_id, root, "fire", "fire")

    def _root_of_timer(
        self,
        timer: _OpenTimer,
        end_ms: float,
        outcome: str,
        more: dict[str, Value] | None = None,
        links: Sequence[Link] = (),
        error: str = "",
    ) -> Span:
        scheduled = timer.scheduled
        attributes: dict[str, Value] = {
            "stampede.timer.id": scheduled.timer_id.hex(),
            "stampede.timer.actor": address_text(scheduled.actor),
            "stampede.timer.trigger_height": scheduled.trigger_height,
            "stampede.timer.scheduled_at": timer.height,
            "stampede.timer.scheduled_by": timer.scheduled_by,
            "stampede.timer.outcome": outcome,
            **(more or {}),
        }
        end_ms = max(timer.start_ms, end_ms)
        root, all_links = root_of(timer.trace_id), (*timer.links, *links)
        return Span(
            timer.trace_id,
            root,
            NO_PARENT,
            "timer",
            timer.start_ms,
            end_ms,
            attributes=attributes,
            links=all_links,
            error=error,
        )

    def _start_ms(self, height: int) -> float | None:
        """When a block began; ``None`` if that is not known."""
        found = self._starts_ms[height - 1] if 1 <= height <= len(self._starts_ms) else UNKNOWN_MS
        return None if found == UNKNOWN_MS else found

    def _trace_id(self, key: bytes) -> int:
        return trace_id_of(self._chain.run, key)


def _fee(run: TransactionReceipt | FireReceipt) -> str:
    """What a run cost."""
    return str(int.from_bytes(run.burned, "big") + int.from_bytes(run.tip, "big"))


def describe(wire: bytes, chain_id: str) -> tuple[str, bytes, dict[str, Value]]:
    """The name of a transaction's first span, the actor that it calls (empty if none), and attributes from its body."""
    try:
        transaction = read_transaction(wire, chain_id)
    except Unreadable:
        return "transaction", b"", {}
    action = transaction.action
    attributes: dict[str, Value] = {"stampede.transaction.nonce": transaction.nonce}
    if isinstance(action, Call | Transfer):
        attributes["stampede.transaction.to"] = address_text(action.to)
    if isinstance(action, Call):
        attributes["stampede.transaction.handler"] = action.handler
    called = action.to if isinstance(action, Call) else b""
    return f"transaction {type(action).__name__.lower()}", called, attributes
