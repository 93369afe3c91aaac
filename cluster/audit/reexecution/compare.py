"""Two executions of one block laid side by side: the first step that differs, and what differs in it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from validator.chain.block import BlockReceipts
from validator.primitives.codec import CodecError, decode, encode, tagged_hash
from validator.transition.trace import BlockTrace, Step, StepKind, Value, Write, steps_apart


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """A state key that the two executions left with different values."""

    key: bytes
    before: Value
    """The value before, by the right execution (by the other one if that did not touch it)."""
    theirs: Value
    """After the execution that is looked into."""
    right: Value
    """After the one that it is held against."""


@dataclass(frozen=True, slots=True)
class Parting:
    """Where an execution parts from the right one."""

    same_before: int
    """Steps that agree before."""
    theirs: Step | None
    """The first step that differs, as the execution did it; ``None`` if it ended."""
    right: Step | None
    """The same of the right one."""
    keys: tuple[KeyDifference, ...]
    """Keys that this step left with different values, ascending."""
    differing_after: int
    """Steps behind it that differ too."""

    @property
    def is_shortened(self) -> bool:
        """Whether a trace was too full to keep what the step changed."""
        return any(step is not None and step.is_shortened for step in (self.theirs, self.right))


def part(theirs: BlockTrace, right: BlockTrace) -> Parting | None:
    """The first step in which an execution differs from the right one; ``None`` if all steps agree."""
    return first_difference(theirs.steps, right.steps)


def part_by_receipts(theirs: bytes, right: bytes) -> Parting | None:
    """The same, as far as the receipts of two executions tell; ``None`` too if one of them cannot be read."""
    try:
        mine, other = (receipt_steps(decode(receipts, BlockReceipts)) for receipts in (theirs, right))
    except CodecError:
        return None
    return first_difference(mine, other)


def first_difference(theirs: Sequence[Step], right: Sequence[Step]) -> Parting | None:
    """The first step that differs, and how many there are."""
    apart = list(steps_apart(theirs, right))
    if not apart:
        return None
    first = apart[0]
    mine, other = (steps[first] if first < len(steps) else None for steps in (theirs, right))
    keys = key_differences(() if mine is None else mine.writes, () if other is None else other.writes)
    return Parting(first, mine, other, keys, len(apart) - 1)


def key_differences(theirs: Iterable[Write], right: Iterable[Write]) -> tuple[KeyDifference, ...]:
    """Keys that two sets of writes leave with different values; a key that only one wrote stays as it was before."""
    mine, other = ({write.key: write for write in writes} for writes in (theirs, right))
    found = []
    for key in sorted(mine.keys() | other.keys()):
        before = other[key].before if key in other else mine[key].before
        ends = [writes[key].after if key in writes else before for writes in (mine, other)]
        if ends[0] != ends[1]:
            found.append(KeyDifference(key, before, *ends))
    return tuple(found)


def net_writes(trace: BlockTrace) -> list[Write]:
    """The changes of a whole execution, keys ascending."""
    first: dict[bytes, Value] = {}
    last: dict[bytes, Value] = {}
    for step in trace.steps:
        for write in step.writes:
            first.setdefault(write.key, write.before)
            last[write.key] = write.after
    return [Write(key, first[key], last[key]) for key in sorted(last) if first[key] != last[key]]


def receipt_steps(receipts: BlockReceipts) -> list[Step]:
    """The steps that receipts speak of, without writes, in the order of SPEC §3."""
    lists: list[tuple[StepKind, list[tuple[bytes, object]]]] = [
        (StepKind.TRANSACTION, [(receipt.transaction_hash, receipt) for receipt in receipts.transactions]),
        (StepKind.QUERY, [(receipt.timer_id, receipt) for receipt in receipts.queries]),
        (StepKind.DESTRUCTION, [(receipt.timer_id, receipt) for receipt in receipts.destroyed]),
        (StepKind.FIRE, [(receipt.timer_id, receipt) for receipt in receipts.fires]),
        (StepKind.CALLBACK, [(receipt.job_id, receipt) for receipt in receipts.callbacks]),
        (StepKind.MESSAGE, [(receipt.to, receipt) for receipt in receipts.messages]),
    ]
    return [
        Step(kind, number, subject, tagged_hash(b"receipt step", content), receipts=(content,))
        for kind, items in lists
        for number, (subject, content) in enumerate((subject, encode(receipt)) for subject, receipt in items)
    ]
