"""The spans of a block: it is built, executed, voted for and becomes final.

They are a part of the trace of each transaction and timer that has to do with the block. There are spans of single
validators for the proposer and for those of which the report keeps messages, at most twelve of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kits.tracing.spans import Span, SpanEvent, Value, span_id_of
from kits.tracing.step_log import BlockSteps
from spec.encoding import Header

MAY_OUTLAST: Final = frozenset({"execute", "finality"})
"""Spans that may end after the block is final somewhere: those of a slower validator."""


@dataclass(frozen=True, slots=True)
class Chain:
    """What is known of a run's chain beforehand."""

    run: bytes
    """Identifies the run (:func:`kits.tracing.spans.trace_id_of`)."""
    names: Sequence[str]
    shown: frozenset[int]
    """Validators that have spans in each block, by index."""
    byzantine: frozenset[int]
    quorum: Callable[[int], int]
    """The votes that a certificate of a view needs."""


@dataclass(frozen=True, slots=True)
class TracedBlock:
    """A final block, and what validators did for it."""

    chain: Chain
    header: Header
    digest: bytes
    transactions: int
    fires: int
    steps: BlockSteps
    is_retried: bool
    """Whether a view between this block and its parent failed. A block of that view may have had the same height."""

    @property
    def final_ms(self) -> float | None:
        """When the first honest validator made it final; ``None`` if that was not seen."""
        return min((at for index, at in self.steps.final.items() if index not in self.chain.byzantine), default=None)

    @property
    def start_ms(self) -> float:
        """When its proposer began to build it, or else when the first validator was seen to have it."""
        found = [began for index in self.steps.began if (began := self._began_ms(index)) is not None]
        return min([*found, self.final_ms or 0.0])

    def _began_ms(self, index: int) -> float | None:
        """When a validator began to build or execute it; not what it did for another block before."""
        began, entered = self.steps.began.get(index), self.steps.entered.get(index)
        if began is None or entered is None or not self.is_retried:
            return began
        return max(began, entered)

    @property
    def attributes(self) -> Mapping[str, Value]:
        header = self.header
        return {
            "stampede.block.height": header.height,
            "stampede.block.view": header.view,
            "stampede.block.hash": self.digest.hex(),
            "stampede.block.proposer": self._name(header.proposer),
            "stampede.block.transactions": self.transactions,
            "stampede.block.fires": self.fires,
        }

    def spans(self, trace_id: int, parent_id: int, path: str, name: str = "block", **more: Value) -> Iterator[Span]:
        """The block's spans in a trace: one with all the others below it. ``more`` are attributes of that one."""
        final_ms, start_ms = self.final_ms, self.start_ms
        assert final_ms is not None
        own = span_id_of(trace_id, path)
        attributes = {**self.attributes, **{f"stampede.{key}": value for key, value in more.items()}}
        events = (SpanEvent("final", final_ms),)
        yield Span(trace_id, own, parent_id, name, start_ms, final_ms, attributes=attributes, events=events)

        def child(name: str, start_ms: float, end_ms: float, index: int | None, **facts: Value) -> Span:
            service = "" if index is None else self._name(index)
            span_id = span_id_of(trace_id, f"{path}/{name}/{service}")
            facts = {f"stampede.{key}": value for key, value in facts.items()}
            return Span(trace_id, span_id, own, name, start_ms, max(start_ms, end_ms), service, facts)

        for index in sorted(self.chain.shown | {self.header.proposer}):
            yield from self._of_validator(index, child)
        for name, votes in (("notarize", self.steps.notarized), ("finalize", self.steps.finalized)):
            quorum = self.chain.quorum(self.header.view)
            if votes:
                at_ms = sorted(votes.values())
                end_ms = at_ms[min(quorum, len(at_ms)) - 1]
                yield child(name, max(at_ms[0], start_ms), min(end_ms, final_ms), None, votes=len(votes), quorum=quorum)

    def _of_validator(self, index: int, child: Callable[..., Span]) -> Iterator[Span]:
        """Its execution up to its vote, and its wait from then until it knows that the block is final."""
        began_ms, final_ms = self._began_ms(index), self.steps.final.get(index)
        voted_ms = self.steps.notarized.get(index)
        if began_ms is not None and voted_ms is not None and began_ms <= voted_ms:
            yield child("build" if index == self.header.proposer else "execute", began_ms, voted_ms, index)
        since_ms = voted_ms if voted_ms is not None else began_ms
        if final_ms is not None and since_ms is not None and self.start_ms <= since_ms <= final_ms:
            yield child("finality", since_ms, final_ms, index)

    def _name(self, index: int) -> str:
        return self.chain.names[index] if index < len(self.chain.names) else f"validator {index}"
