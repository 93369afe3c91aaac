"""The divergence of two executions as plain data for files and reports, and as lines for readers.

The data gives all values in full; lines shorten long ones. Numbers in values are decimal text, bytes are hex.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from cluster.audit.specified.differences import differences
from cluster.common.wording import cut
from spec.encoding import (
    CallbackReceipt,
    DestroyedReceipt,
    FireReceipt,
    MessageReceipt,
    QueryReceipt,
    TransactionReceipt,
    Unreadable,
    decode,
    reader,
)
from validator.chain import records
from validator.chain.records import GLOBALS, OVERFLOW, RecordStruct, decode_record
from validator.primitives.types import ADDRESS_BYTES, HASH_BYTES, address_text
from validator.transition.trace import SPEC_STEPS, BlockTrace, LongValue, Step, StepKind, Value

Page = dict[str, Any]

SHOWN_DIGITS: Final = 16
SHOWN_TEXT: Final = 64
KEYS_SHOWN: Final = 5
FIELDS_SHOWN: Final = 4
ABSENT: Final = "absent"

RECEIPTS: Final[dict[StepKind, type]] = {
    StepKind.TRANSACTION: TransactionReceipt,
    StepKind.EXPIRY: DestroyedReceipt,
    StepKind.DESTRUCTION: DestroyedReceipt,
    StepKind.QUERY: QueryReceipt,
    StepKind.FIRE: FireReceipt,
    StepKind.CALLBACK: CallbackReceipt,
    StepKind.MESSAGE: MessageReceipt,
}
CONCERNS: Final = {"sender": "of sender", "actor": "of actor", "agent": "to agent"}
"""The fields of receipts that say whom a step concerns."""

TITLES: Final = {
    StepKind.START: "the start of the block",
    StepKind.TRANSACTION: "transaction",
    StepKind.TRANSACTION_TIPS: "the tips of the transactions",
    StepKind.EXPIRY: "the removal of expired timers",
    StepKind.QUERY: "the bidding agent's query for timer",
    StepKind.SUPPLY: "default pricing",
    StepKind.FIRE: "the fire of timer",
    StepKind.DESTRUCTION: "the destruction of timer",
    StepKind.SELECTION: "the selection of timers",
    StepKind.FIRE_TIPS: "the tips of the fires",
    StepKind.CALLBACK: "the callback of job",
    StepKind.MESSAGE: "the message to",
    StepKind.FAIRNESS: "the counting of fires",
    StepKind.JOB_ENDS: "the end of jobs",
    StepKind.CALENDAR: "the calendar",
    StepKind.SUPPLIES: "what default pricing supplied",
    StepKind.PRICES: "the prices and counters of the next block",
}


# --- steps ----------------------------------------------------------------------------------------------------------


def step_page(step: Step | None, right: BlockTrace | None) -> Page | None:
    """A step as plain data, with the number of steps of its kind in the right execution (0 if that is unknown)."""
    if step is None:
        return None
    steps = 0 if right is None else sum(other.kind == step.kind for other in right.steps)
    return {
        "kind": step.kind.value,
        "spec_step": SPEC_STEPS[step.kind],
        "number": step.number + 1,
        "of": steps,
        "subject": step.subject.hex(),
        "words": _step_words(step, steps),
    }


def _step_words(step: Step, steps: int) -> str:
    title, subject = TITLES[step.kind], step.subject
    if subject:
        title += f" {address_text(subject) if len(subject) == ADDRESS_BYTES else subject.hex()[:SHOWN_DIGITS]}"
    if steps > 1 or subject:
        title += f" ({step.number + 1} of {max(steps, step.number + 1)})"
    about = ", ".join(_about(step))
    return f"{title}, {about}" if about else title


def _about(step: Step) -> Iterator[str]:
    """Phrases about the accounts and heights that a step concerns, from its first receipt."""
    kind = RECEIPTS.get(step.kind)
    if kind is None or not step.receipts:
        return
    try:
        receipt: Any = reader(kind)(decode(step.receipts[0]))
    except Unreadable:
        return
    for name, words in CONCERNS.items():
        if address := getattr(receipt, name, None):
            yield f"{words} {address_text(address)}"
    if isinstance(receipt, FireReceipt):
        yield f"due at height {receipt.trigger_height:,}"


# --- receipts -------------------------------------------------------------------------------------------------------


def receipt_pages(theirs: Step, right: Step) -> list[Page]:
    """The fields in which the receipts of two steps differ, as plain data.

    If the steps have different numbers of receipts, these numbers are the first item.
    """
    pages = []
    counts = [len(step.receipts) for step in (theirs, right)]
    if counts[0] != counts[1]:
        pages.append({"name": "receipts", "theirs": f"{counts[0]:,}", "right": f"{counts[1]:,}"})
    for pair in zip(theirs.receipts, right.receipts, strict=False):
        try:
            one, other = map(decode, pair)
        except Unreadable:
            continue
        pages += [
            {"name": each.field.lstrip("."), "theirs": each.said, "right": each.expected}
            for each in differences("", RECEIPTS.get(theirs.kind), one, other)
        ]
    return pages


# --- state keys -----------------------------------------------------------------------------------------------------


class KeyDifference(NamedTuple):
    """A state key that the two executions left with different values."""

    key: bytes
    before: Value
    """The value before the change, from the right execution, or from the other one if the right one did not write."""
    theirs: Value
    """The value after the execution under examination."""
    right: Value
    """The value after the right execution."""


def key_pages(differences: tuple[KeyDifference, ...]) -> list[Page]:
    """Differing keys as plain data, ascending. Keys that depend on others (counters, overflow root) come last."""
    ordered = sorted(differences, key=lambda each: (each.key in FOLLOWING_KEYS, each.key))
    return [_key_page(each) for each in ordered]


def _key_page(difference: KeyDifference) -> Page:
    values = (difference.before, difference.theirs, difference.right)
    fields = [
        {"name": name, "before": _text(before), "theirs": _text(theirs), "right": _text(right)}
        for name, (before, theirs, right) in _fields([_record(difference.key, value) for value in values])
        if theirs != right
    ]
    return {"key": difference.key.hex(), "words": key_words(difference.key), "fields": fields}


FOLLOWING_KEYS: Final = frozenset({GLOBALS, OVERFLOW})
"""Keys whose values follow from others: counters, the overflow tree's root."""


def _fields(values: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Split records of one kind into fields: each field's name with its value in every record.

    If the second or third record is absent or has no fields, the records are one field, ``value``.
    """
    names = [_field_names(value) for value in values]
    if not all(names[1:]):
        yield "value", values
        return
    for name in names[1]:
        yield name, [getattr(value, name, None) for value in values]


def _field_names(record: Any) -> tuple[str, ...]:
    """The names of a record's fields; empty if it has none."""
    return getattr(record, "_fields", None) or (record.__struct_fields__ if isinstance(record, RecordStruct) else ())


def _record(key: bytes, value: Value) -> Any:
    if value is None or isinstance(value, LongValue):
        return value
    try:
        return decode_record(key, value)
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError):
        return value  # written by a broken validator


KEYS: Final = {
    records.GLOBALS: "the chain's counters and prices",
    records.MEDIAN_FIRES: "the smoothed median of fires",
    records.BIAS_RATE: "the rate of the bias",
    records.OVERFLOW: "the root of the calendar's overflow tree",
    records.JOB_COUNTERS: "the jobs' counters",
    records.ACCOUNT: "account {address}",
    records.ACTOR: "actor {address}",
    records.BID_MEMORY: "bids of actor {address}",
    records.ACTOR_WEIGHT: "earned weight of actor {address}",
    records.ACTOR_JOBS: "jobs of actor {address}",
    records.RUNNER: "runner {address}",
    records.TIMER: "timer {id}",
    records.TIMER_PAYLOAD: "payload of timer {id}",
    records.CODE: "program {id}",
    records.JOB: "job {id}",
    records.JOB_PAYLOAD: "payload of job {id}",
    records.JOB_RESULT: "result of job {id} by runner {runner}",
    records.MESSAGE: "message number {number:,}",
    records.SUPPLY: "default pricing's supply of height {number:,}",
    records.FIRES: "fires of height {number:,}",
    records.COMPLETION: "callback number {number:,}",
    records.JOB_END: "end of job number {number:,}",
    records.STORAGE: "storage of actor {address}, entry {name!r}",
    records.WATCHABLE: "watchers of actor {address}'s entry {name!r}",
    records.LONG_STORAGE: "storage of actor {address}, entry with hash {hash}",
    records.PUBLISHED: "value {name!r} published by actor {address}",
    records.LONG_PUBLISHED: "value with key hash {hash} published by actor {address}",
    records.KEPT_ANSWER: "last bid of agent {agent} for actor {address}",
}
"""What the keys of each kind of record refer to."""


def key_words(key: bytes) -> str:
    """What a state key refers to, in words, such as an account or a timer."""
    rest = key[1:]
    behind = rest[ADDRESS_BYTES:]
    return KEYS.get(key[:1], "key {key}").format(
        key=key.hex(),
        address=address_text(rest[:ADDRESS_BYTES]),
        agent=address_text(behind),
        name=behind.decode("utf-8", "replace"),
        hash=behind.hex(),
        number=int.from_bytes(rest, "big"),
        id=rest[:HASH_BYTES].hex(),
        runner=address_text(rest[HASH_BYTES:]),
    )


def _text(value: Any) -> str:
    match value:
        case None:
            return ABSENT
        case LongValue(size, digest):
            return f"{size:,} bytes with hash {digest.hex()}"
        case bytes():
            return value.hex() or "(empty)"
        case _ if names := _field_names(value):
            return ", ".join(f"{name} {_text(getattr(value, name))}" for name in names)
        case tuple() | list():
            return f"[{', '.join(map(_text, value))}]"
        case int() if not isinstance(value, bool):
            return f"{value:,}"
    return str(value)


# --- lines ----------------------------------------------------------------------------------------------------------


def lines(page: Page) -> list[str]:
    """A page of :func:`~cluster.audit.reexecution.bisect.bisect` as lines of text.

    The first line is a complete summary by itself.
    """
    theirs, right = page["theirs"], page["right"]
    block = f"block {page['block'][:SHOWN_DIGITS]}" if page["block"] else "its block"
    who, height = page["validator"], f"{page['height']:,}"
    what = f"{who} diverged at height {height} ({block})" if who else f"two executions of block {height} differ"
    said = [f"{what}: {page['reason']}"]
    said += _step_lines(page, theirs, right)
    said += [_key_line(key, theirs, right) for key in page["keys"][:KEYS_SHOWN]]
    if len(page["keys"]) > KEYS_SHOWN:
        said.append(f"  key      … and {len(page['keys']) - KEYS_SHOWN:,} more keys (result.json has all)")
    for part, word in (("receipts", "receipt "), ("figures", "header  ")):
        said += [f"  {word} {field['name']}: {_both(field, theirs, right)}" for field in page[part][:FIELDS_SHOWN]]
    if page["differing_steps_after"]:
        said.append(f"  after    {steps_after(page['differing_steps_after'])}")
    said += [f"  note     {page['note']}"] if page["note"] else []
    return said


def _step_lines(page: Page, theirs: str, right: str) -> list[str]:
    step, other = page["step"], page["right_step"]
    if step is None and other is None:
        return []
    before = page["same_steps_before"]
    place = f"step {(step or other)['spec_step']} of a block, {steps_before(before)}"
    if step is not None and other is not None and step["words"] == other["words"]:
        return [f"  step     {step['words']} ({place})"]
    did, instead = (each["words"] if each is not None else "nothing more" for each in (step, other))
    return [f"  step     {theirs}: {did}; {right}: {instead} ({place})"]


def steps_before(count: int) -> str:
    """A phrase that says how many steps before the differing one agree."""
    return "the step before it agrees" if count == 1 else f"{count:,} steps before it agree"


def steps_after(count: int) -> str:
    """A phrase that says how many steps after the first differing one differ too."""
    return "the step behind it differs too" if count == 1 else f"{count:,} steps behind it differ too"


def _key_line(key: Page, theirs: str, right: str) -> str:
    fields = key["fields"]
    said = "; ".join(f"{field['name']} {_both(field, theirs, right)}{_was(field)}" for field in fields[:FIELDS_SHOWN])
    more = f"; and {len(fields) - FIELDS_SHOWN:,} more fields" if len(fields) > FIELDS_SHOWN else ""
    return f"  key      {key['words']}: {said}{more}"


def _was(field: Page) -> str:
    """A phrase with the field's value before the change; empty if one of the executions left that value."""
    return "" if field["before"] in (field["theirs"], field["right"]) else f", before {_short(field['before'])}"


def _both(field: Page, theirs: str, right: str) -> str:
    mine, other = field["theirs"], field["right"]
    return f"{_short(mine)} on {theirs}, {_short(other)} by {right}{_by_how_much(mine, other)}"


def _by_how_much(mine: str, other: str) -> str:
    try:
        difference = int(mine.replace(",", "")) - int(other.replace(",", ""))
    except ValueError:
        return ""
    return f" ({difference:+,})"


def _short(text: str) -> str:
    return cut(text, SHOWN_TEXT)
