"""Finds, for each validator of a run that diverged, the step of the block and the state keys that differ.

The run's final blocks are executed again, by this code without a mutation, up to the block concerned. That block is
traced as the diverged validator traced it, and the two traces are compared. The findings are plain data
(:func:`bisect`), in ``result.json`` under ``divergences``:

========================  ==========================================================================================
``validator``, ``height`` who diverged, and where; ``block``, ``reason`` and both roots as the validator reports them;
                          no validator where another process executed the final block to something else
``theirs``, ``right``     names of the execution that is shown, and of the one that it is compared with
``step``                  the first step that differs: ``kind``, ``number`` ``of`` its kind, ``subject`` (a hash or
                          an id), ``spec_step`` (of SPEC §3), ``words``; null where execution had ended before
``right_step``            the right execution's step there; differs in kind or subject where the order is another
``same_steps_before``     how many steps agree before it; ``differing_steps_after``
``keys``                  ``key`` (hex), ``words``, ``fields``: ``name``, value ``before``, ``theirs``, ``right``
``receipts``, ``figures`` fields of the step's receipts and of the header that differ
``note``                  a remark, or empty
========================  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import astuple

from cluster.audit.reexecution.describe import (
    FOLLOWING_KEYS,
    KeyDifference,
    Page,
    key_pages,
    receipt_pages,
    step_page,
)
from cluster.audit.reexecution.reexecutor import Reexecution, RightExecution
from cluster.record.archive import BlockRecord, DivergedExecution, Reexecuted
from validator.chain.block import BlockReceipts
from validator.primitives.codec import CodecError, decode, encode, tagged_hash
from validator.transition.trace import BlockTrace, Step, StepKind, Value, Write, steps_apart

REEXECUTION: Final = "re-execution"
ANOTHER_PROCESS: Final = "another process"
FINAL_BLOCK: Final = "the final block"

STATE_TREE: Final = (
    "every step left the same values under the same keys, and the root over them is another: look at the state tree"
)
NOT_REPEATED: Final = (
    "executed once more, the validator did not come to the same: it takes something outside of the block (a restart,"
    " memory, a race); this is what the receipts and changes of its first execution tell"
)
NO_TRACE: Final = "the validator gave no trace: this is what its receipts tell"
TOO_LONG: Final = "the trace was full before this step: which keys it left differently is not known"
FIRST_CHANGE: Final = (
    "this is the first step whose receipt differs, or else the first that writes a key that differs in the end"
)
NO_STEPS: Final = f"the foreign executor gives no steps: {FIRST_CHANGE}"
NOTHING: Final = "neither trace nor receipts tell where"
OTHERS_ARE_WRONG: Final = (
    "its execution is what this code gives; the final block is not: look for the bug in those that voted for it"
)


class Parting(NamedTuple):
    """The first step at which an execution of a block differs from the right one, and how."""

    same_before: int
    """The number of steps before it, all of which agree."""
    theirs: Step | None
    """The first differing step of the execution; ``None`` if it had ended."""
    right: Step | None
    """The right execution's step at the same position; ``None`` if it had no more steps."""
    keys: tuple[KeyDifference, ...]
    """Keys with different values after this step, ascending."""
    differing_after: int
    """Number of later steps that differ too."""

    @property
    def is_shortened(self) -> bool:
        """Whether the step's writes are missing from a trace, because the trace was full."""
        return any(step is not None and step.is_shortened for step in (self.theirs, self.right))


def bisect(reexecution: Reexecution, executions: Sequence[DivergedExecution]) -> list[Page]:
    """Compare each diverged execution with the right one. Returns a page for each, ascending by height, then validator.

    Raises :class:`BadInput` if the genesis cannot be built.
    """
    ordered = sorted(executions, key=lambda each: (each.height, each.validator))
    return [_page(each, reexecution.at(each.height)) for each in ordered]


def page_of_two(again: Reexecuted, recorded: BlockRecord | None) -> Page:
    """The page of a block that another process executed to something else; ``recorded`` is ``None`` if the block did
    not become final."""
    parting = None if recorded is None else part_by_receipts(again.receipts, recorded.receipts)
    told = DivergedExecution("", again.heights + 1, again.reason, "", "", again.receipts, b"")
    return _page_of(told, None) | _parting_page(parting, None) | {"theirs": ANOTHER_PROCESS, "right": FINAL_BLOCK}


def _page(told: DivergedExecution, right: RightExecution) -> Page:
    theirs = _read(told.trace)
    page = _page_of(told, theirs)
    if right.trace is None or right.recorded is None:
        return page | {"note": _why_not(right.mismatch)}
    return page | _differences(told, theirs, right.trace, right.recorded, right.mismatch)


def _page_of(told: DivergedExecution, theirs: BlockTrace | None) -> Page:
    """A page that does not say yet where the executions differ."""
    return {
        "validator": told.validator,
        "height": told.height,
        "block": "" if theirs is None else theirs.block.hex(),
        "reason": told.reason,
        "expected_root": told.expected_root,
        "computed_root": told.computed_root,
        "theirs": told.validator,
        "right": REEXECUTION,
        **_parting_page(None, None),
        "figures": [],
        "note": "",
    }


def _differences(
    told: DivergedExecution,
    theirs: BlockTrace | None,
    right: BlockTrace,
    recorded: BlockRecord,
    mismatch: Reexecuted | None,
) -> Page:
    by_receipts = part_by_receipts(told.receipts, recorded.receipts)
    if theirs is None:
        return _parting_page(by_receipts, right) | {"note": NOTHING if by_receipts is None else NO_TRACE}
    parting = first_difference(theirs.steps, right.steps)
    if parting is None and mismatch is not None:
        parting = part_by_receipts(recorded.receipts, mismatch.receipts)
        return _parting_page(parting, right) | {"theirs": FINAL_BLOCK, "note": OTHERS_ARE_WRONG}
    if not theirs.repeats and (parting is None or theirs.figure("state_root") == right.figure("state_root")):
        keys = key_pages(key_differences(theirs.first_writes, net_writes(right)))
        return _parting_page(by_receipts, right) | {"keys": keys, "note": NOT_REPEATED}
    if not theirs.steps and theirs.first_writes:
        parting = part_by_changes(theirs.first_writes, by_receipts, right)
        note = STATE_TREE if parting is None else f"{theirs.remark}: {FIRST_CHANGE}" if theirs.remark else NO_STEPS
    elif theirs.refusal:
        note = f"refused by {told.validator}: {theirs.refusal}"
    else:
        note = STATE_TREE if parting is None else TOO_LONG if parting.is_shortened else ""
    return _parting_page(parting, right) | {"figures": _figures(theirs, right), "note": note}


def _parting_page(parting: Parting | None, right: BlockTrace | None) -> Page:
    theirs, other = (None, None) if parting is None else (parting.theirs, parting.right)
    return {
        "step": step_page(theirs, right),
        "right_step": step_page(other, right),
        "same_steps_before": 0 if parting is None else parting.same_before,
        "differing_steps_after": 0 if parting is None else parting.differing_after,
        "keys": [] if parting is None else key_pages(parting.keys),
        "receipts": receipt_pages(theirs, other) if theirs and other and theirs.name == other.name else [],
    }


def _figures(theirs: BlockTrace, right: BlockTrace) -> list[Page]:
    """The header fields in which two executions differ, without the state root and the receipts root."""
    followers = {"state_root", "receipts_root"}
    return [
        {"name": name, "theirs": value, "right": right.figure(name)}
        for name, value in theirs.figures
        if value != right.figure(name) and name not in followers
    ]


def _why_not(mismatch: Reexecuted | None) -> str:
    if mismatch is None:
        return "no validator served the final block of that height"
    return f"the final blocks are not what this code gives, from height {mismatch.heights + 1:,} on: {mismatch.reason}"


def _read(trace: bytes) -> BlockTrace | None:
    if not trace:
        return None
    try:
        return decode(trace, BlockTrace)
    except CodecError:
        return None


# --- two executions side by side --------------------------------------------------------------------------------------


def part_by_receipts(theirs: bytes, right: bytes) -> Parting | None:
    """Find the first receipt in which an execution differs from the right one, given both executions' receipts.

    ``None`` if all agree, or if one of the two encodings cannot be read.
    """
    try:
        mine, other = (receipt_steps(decode(receipts, BlockReceipts)) for receipts in (theirs, right))
    except CodecError:
        return None
    return first_difference(mine, other)


def part_by_changes(writes: Sequence[Write], by_receipts: Parting | None, right: BlockTrace) -> Parting | None:
    """Find where an execution that has no steps differs from the right one, given all its changes.

    The step is that of the first receipt that differs. If all receipts agree, it is the first of the right execution
    that writes a key that differs in the end, or its end if no step does. ``None`` if all agree.
    """
    keys = key_differences(writes, net_writes(right))
    if by_receipts is not None:
        return by_receipts._replace(keys=keys)
    if not keys:
        return None
    causes = {each.key for each in keys}
    causes = causes - FOLLOWING_KEYS or causes
    writing = (place for place, step in enumerate(right.steps) if any(write.key in causes for write in step.writes))
    place = next(writing, len(right.steps))
    step = right.steps[place] if place < len(right.steps) else None
    return Parting(place, step, step, keys, 0)


def first_difference(theirs: Sequence[Step], right: Sequence[Step]) -> Parting | None:
    """Compare two sequences of steps. Returns the first difference; ``None`` if all steps agree."""
    apart = list(steps_apart(theirs, right))
    if not apart:
        return None
    first = apart[0]
    mine, other = (steps[first] if first < len(steps) else None for steps in (theirs, right))
    keys = key_differences(() if mine is None else mine.writes, () if other is None else other.writes)
    return Parting(first, mine, other, keys, len(apart) - 1)


def key_differences(theirs: Iterable[Write], right: Iterable[Write]) -> tuple[KeyDifference, ...]:
    """Keys whose values differ after two sets of writes; a key written by only one keeps its old value in the other."""
    mine, other = ({write.key: write for write in writes} for writes in (theirs, right))
    found = []
    for key in sorted(mine.keys() | other.keys()):
        before = other[key].before if key in other else mine[key].before
        ends = [writes[key].after if key in writes else before for writes in (mine, other)]
        if ends[0] != ends[1]:
            found.append(KeyDifference(key, before, *ends))
    return tuple(found)


def net_writes(trace: BlockTrace) -> list[Write]:
    """The net changes of a whole execution: one write per key whose value changed, ascending by key."""
    first: dict[bytes, Value] = {}
    last: dict[bytes, Value] = {}
    for step in trace.steps:
        for write in step.writes:
            first.setdefault(write.key, write.before)
            last[write.key] = write.after
    return [Write(key, first[key], last[key]) for key in sorted(last) if first[key] != last[key]]


RECEIPT_LISTS: Final = {
    "transactions": StepKind.TRANSACTION,
    "queries": StepKind.QUERY,
    "destroyed": StepKind.DESTRUCTION,
    "fires": StepKind.FIRE,
    "callbacks": StepKind.CALLBACK,
    "messages": StepKind.MESSAGE,
}
"""The lists of a block's receipts, in the order of SPEC §3, and the steps to which their items refer."""


def receipt_steps(receipts: BlockReceipts) -> list[Step]:
    """The steps to which receipts refer, without writes, in the order of SPEC §3. The first field of a receipt is the
    subject of its step."""
    items = [
        (kind, number, receipt)
        for name, kind in RECEIPT_LISTS.items()
        for number, receipt in enumerate(getattr(receipts, name))
    ]
    return [
        Step(kind, number, astuple(receipt)[0], tagged_hash(b"receipt step", content), receipts=(content,))
        for kind, number, receipt in items
        for content in (encode(receipt),)
    ]
