"""For each validator of a run that diverged: in which step of the block, and in which state keys.

The run's final blocks are executed again, honestly and by this code, up to the block concerned; that block is traced
like the diverged validator traced it, and the two are laid side by side. What is found is plain data
(:func:`bisect`), in ``result.json`` under ``divergences``:

========================  ==========================================================================================
``validator``, ``height`` who diverged, and where; ``block``, ``reason`` and both roots as it says
``theirs``, ``right``     who did what is shown, and what it is held against
``step``                  the first step that differs: ``kind``, ``number`` ``of`` its kind, ``subject`` (a hash or
                          an id), ``spec_step`` (of SPEC §3), ``words``; null where execution had ended before
``right_step``            what the right execution did there; differs in kind or subject where the order is another
``same_steps_before``     how many steps agree before it; ``differing_steps_after``
``keys``                  ``key`` (hex), ``words``, ``fields``: ``name``, value ``before``, ``theirs``, ``right``
``receipts``, ``figures`` fields of the step's receipts and of the header that differ
``note``                  what else has to be said, or nothing
========================  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cluster.audit.reexecution.compare import Parting, key_differences, net_writes, part, part_by_receipts
from cluster.audit.reexecution.describe import Page, key_pages, receipt_pages, step_page
from cluster.audit.reexecution.reexecutor import Mismatch, Reexecution, RightExecution
from cluster.record.archive import BlockRecord, DivergedExecution
from validator.primitives.codec import CodecError, decode
from validator.transition.trace import BlockTrace

REEXECUTION: Final = "re-execution"
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
NOTHING: Final = "neither trace nor receipts tell where"
OTHERS_ARE_WRONG: Final = (
    "its execution is what this code gives; the final block is not: look for the bug in those that voted for it"
)


def bisect(reexecution: Reexecution, executions: Sequence[DivergedExecution]) -> list[Page]:
    """A page for each execution, by height. Raises :class:`BadInput` if the genesis cannot be built."""
    ordered = sorted(executions, key=lambda each: (each.height, each.validator))
    return [_page(each, reexecution.at(each.height)) for each in ordered]


def _page(told: DivergedExecution, right: RightExecution) -> Page:
    theirs = _read(told.trace)
    page: Page = {
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
    if right.trace is None or right.recorded is None:
        return page | {"note": _why_not(right.mismatch)}
    return page | _differences(told, theirs, right.trace, right.recorded, right.mismatch)


def _differences(
    told: DivergedExecution,
    theirs: BlockTrace | None,
    right: BlockTrace,
    recorded: BlockRecord,
    mismatch: Mismatch | None,
) -> Page:
    """The differences, by the best that is known."""
    if theirs is None:
        parting = part_by_receipts(told.receipts, recorded.receipts)
        return _parting_page(parting, right) | {"note": NO_TRACE if parting is not None else NOTHING}
    parting = part(theirs, right)
    if parting is None and mismatch is not None:
        parting = part_by_receipts(recorded.receipts, mismatch.receipts)
        return {"theirs": FINAL_BLOCK, **_parting_page(parting, right), "note": OTHERS_ARE_WRONG}
    if not theirs.repeats and (parting is None or theirs.figure("state_root") == right.figure("state_root")):
        parting = part_by_receipts(told.receipts, recorded.receipts)
        keys = key_pages(key_differences(theirs.first_writes, net_writes(right)))
        return _parting_page(parting, right) | {"keys": keys, "note": NOT_REPEATED}
    note = f"refused by {told.validator}: {theirs.refusal}" if theirs.refusal else ""
    if parting is None and not note:
        note = STATE_TREE
    elif parting is not None and parting.is_shortened:
        note = note or TOO_LONG
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
    """Fields of the header that the two executions give differently, but those that differ whenever anything does."""
    followers = {"state_root", "receipts_root"}
    return [
        {"name": name, "theirs": value, "right": right.figure(name)}
        for name, value in theirs.figures
        if value != right.figure(name) and name not in followers
    ]


def _why_not(mismatch: Mismatch | None) -> str:
    if mismatch is None:
        return "no validator served the final block of that height"
    return f"the final blocks are not what this code gives, from height {mismatch.height:,} on: {mismatch.reason}"


def _read(trace: bytes) -> BlockTrace | None:
    if not trace:
        return None
    try:
        return decode(trace, BlockTrace)
    except CodecError:
        return None
