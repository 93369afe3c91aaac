"""The events of a live run, from what its folder keeps. A live run cannot be run again.

What its loop decided follows from the journal: another loop is told the same (:mod:`cluster.run.journal`), and must
come to the faults, joins and absences of the record. What was seen of validators and messages is in the record
(:mod:`cluster.record.saved`). Reorgs and problems have no time there, and are no events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from heapq import merge
from itertools import zip_longest
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Final, NamedTuple

from cluster.commands.rerun.entries import KINDS, Entry, describe_final
from cluster.common.checkout import checkout_commit
from cluster.common.errors import BadInput
from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.faults.events import Network, Seat, Tell
from cluster.record.archive import BlockRecord
from cluster.record.folder import JOURNAL_FILE
from cluster.record.message_trace import MessageKind
from cluster.record.run import RunRecord, Sample, TracedMessage
from cluster.record.saved import read_record
from cluster.run.events import Absent, Begun, Left, NewHeight, Order, Seen, StopLoad, Up, Violation
from cluster.run.journal import DamagedJournal, read_journal
from cluster.run.loop import RunLoop
from cluster.scenario.code.gate import code_of, pass_gate
from validator.chain.block import Block, BlockReceipts, header_hash
from validator.chain.genesis import Genesis
from validator.primitives.codec import CodecError, decode
from validator.primitives.user_file import UserFileError

MESSAGES: Final[Mapping[str, str]] = {
    **{kind: kind for kind in MessageKind if kind in KINDS},
    **dict.fromkeys((MessageKind.NOTARIZE, MessageKind.FINALIZE, MessageKind.NULLIFY, MessageKind.TIMEOUT), "vote"),
    MessageKind.OTHER: "garbage",
}
"""The kind of entry of each kind of message."""
LIVE_KINDS: Final = frozenset({*MESSAGES.values(), "final", "machine", "fault", "view", "sample", "violation"})
"""The kinds of entries of a live run. The last three are no kinds of a simulated one (:data:`KINDS`)."""
FOLLOWS: Final = ("faults", "joins", "absences")
"""The fields of a record that follow from a journal alone."""
BLOCKS_REMEMBERED: Final = 1_024


class LiveRun(NamedTuple):
    """What the folder of a live run keeps."""

    record: RunRecord
    decided: list[Entry]
    """What the journal tells, in the order of time."""
    problem: str
    """In a line, how much of the journal is torn, and which fields of the record do not follow from it; or empty."""
    follows: bool
    """Whether all of :data:`FOLLOWS` follow from the journal."""

    def entries(self) -> Iterator[Entry]:
        """All entries, in the order of time."""
        record = self.record
        seen = sorted((*self.decided, *_views(record), *_samples(record), *_messages(record)), key=_AT)
        return merge(seen, _proposals(record), _finals(record), key=_AT)


_AT: Final = attrgetter("at_us")


def read_live(folder: Path) -> LiveRun:
    """Read the folder of a finished live run. Raises :class:`BadInput`, with one line."""
    record, path = read_record(folder), folder / JOURNAL_FILE
    pass_gate([*code_of(record.given or record.scenario), *code_of(record.scenario)], str(folder))
    with reading(path):
        content = path.read_bytes()
        told, whole = read_journal(content)
        begun = beginning(told)
        pass_gate(code_of(begun.scenario), str(folder))
        again = Decided(begun, record.genesis, record.finalizations.earliest())
        decided = list(again.entries(told))
    torn = f"its last {len(content) - whole:,} bytes are torn" if whole < len(content) else ""
    differing = " and ".join(name for name in FOLLOWS if getattr(again.record, name) != getattr(record, name))
    differs = f"leads to other {differing} than the record has" if differing else ""
    problem = "; ".join(filter(None, (torn, differs)))
    return LiveRun(record, decided, f"{path}: {problem}" if problem else "", not differing)


# --- what the loop decided ------------------------------------------------------------------------------------------


class Decided:
    """What another loop decides if it is told the same as the loop of a run, as entries in the order of time.

    What was told without a time has the time of what was told before it, or of the first finalization of a height.
    """

    def __init__(self, begun: Begun, genesis: Genesis, first: Mapping[int, float] = {}) -> None:
        """``first`` has the times of first finalizations, keyed by height, as far as they are known."""
        scenario = begun.scenario
        self.record = RunRecord(scenario, "live", begun.seed, checkout_commit(), genesis)
        self._loop = RunLoop(self.record, begun.is_open, begun.stops_on_fail)
        self._names, self._first = scenario.validators.names, first
        self._seats: tuple[Seat, ...] = ()
        self._at_ms = 0.0

    def entries(self, told: Iterable[Seen]) -> Iterator[Entry]:
        """The entries of what is told next."""
        for seen in told:
            self._at_ms = max(self._at_ms, _moment(seen, self._first) or 0.0)
            at_us = _us(self._at_ms)
            if isinstance(seen, Network):
                both = zip_longest(seen.seats, self._seats, fillvalue=Seat((), ()))
                for index, (now, before) in enumerate(both):
                    for what in _changes(before, now):
                        yield Entry(at_us, "machine", (index,), f"{self._names[index]} {what}")
                self._seats = seen.seats
            for kind, text in _lines(seen, self._loop.handle(seen), self.record):
                yield Entry(at_us, kind, (), text)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Inside the block, what is wrong with the journal at ``path`` is one line of :class:`BadInput`."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
    except DamagedJournal as error:
        raise BadInput(f"{path}: {error}; expected a journal as this code writes it") from None
    except UserFileError:
        raise
    except (LookupError, RuntimeError, ValueError):  # the second is a search without a result in a generator
        raise BadInput(f"{path}: tells of faults or validators that the run's scenario does not have") from None


def beginning(told: Sequence[Seen]) -> Begun:
    """How the run of a journal began. Raises :class:`DamagedJournal` if it does not tell."""
    if told and isinstance(told[0], Begun):
        return told[0]
    raise DamagedJournal("does not tell how its run began")


def _moment(seen: Seen, first: Mapping[int, float]) -> float | None:
    match seen:
        case NewHeight(height):
            return first.get(height)
        case Absent(until_ms=until_ms):
            return until_ms
    return getattr(seen, "at_ms", None)


def _lines(seen: Seen, orders: list[Order], record: RunRecord) -> Iterator[tuple[str, str]]:
    """The kinds and texts of what the loop was told, and of what the user was told then."""
    match seen:
        case Up():
            yield "machine", "the testnet is up"
        case Left():
            yield "machine", "the run is not watched any more"
        case Violation(text):
            yield "violation", text
    for order in orders:
        match order:
            case Tell(text):
                yield "fault", text
            case StopLoad(height):
                yield "fault", record.drain_notice(height)


def _changes(before: Seat, now: Seat) -> Iterator[str]:
    if now.is_up != before.is_up:
        yield "is up" if now.is_up else "is down"
    elif now.is_up and now.deaths > before.deaths:
        yield "was down for a moment"
    if now.has_diverged and not before.has_diverged:
        yield "diverged"
    if now.is_lost and not before.is_lost:
        yield "is lost: it can never be started again"


# --- what was seen --------------------------------------------------------------------------------------------------


def _views(record: RunRecord) -> Iterator[Entry]:
    names = record.scenario.validators.names
    for seen in record.trace.views:
        yield Entry(_us(seen.at_ms), "view", (seen.validator,), f"{names[seen.validator]} enters view {seen.view}")


def _samples(record: RunRecord) -> Iterator[Entry]:
    for sample in record.samples:
        yield Entry(_us(sample.at_ms), "sample", (), _describe_sample(sample))


def _describe_sample(sample: Sample) -> str:
    heights = [height for height in sample.heights if height is not None]
    reached = f"heights {min(heights)} to {max(heights)}" if heights else "no validator answers"
    states = [f"{count} {state}" for state, count in Counter(sample.states).items()]
    waiting = f"backlog {sample.backlog:,}, {sample.pending_timers:,} timers pending"
    return "; ".join(filter(None, (reached, ", ".join(states), waiting, *sample.faults)))


def _messages(record: RunRecord) -> Iterator[Entry]:
    names = record.scenario.validators.names
    for window in record.trace.windows:
        for message in window.messages:
            arrow = "✗" if message.received_ms is None else "→"
            ends = f"{names[message.sender]} {arrow} {names[message.receiver]}"
            moments = [each for each in (message.sent_ms, message.received_ms) if each is not None]
            whom = (message.sender, message.receiver)
            yield Entry(_us(moments[-1]), MESSAGES[message.kind], whom, f"{ends}  {_describe_message(message)}")


def _describe_message(message: TracedMessage) -> str:
    about = f"{message.kind} of view {message.view}" if message.view else message.kind
    took = ""
    if message.sent_ms is not None and message.received_ms is not None:
        took = f", took {message.received_ms - message.sent_ms:,.3f} ms"
    return f"{about}, {message.size:,} bytes{took}"


def _proposals(record: RunRecord) -> Iterator[Entry]:
    for height, at_ms in sorted(record.proposals.items(), key=itemgetter(1)):
        yield Entry(_us(at_ms), "proposal", (), f"the block of height {height} is first seen")


def _finals(record: RunRecord) -> Iterator[Entry]:
    served = {each.index: each for each in record.validators}
    for seen in record.finalizations.by_time():
        name, mine = record.scenario.validators.names[seen.validator], served.get(seen.validator)
        has_block = mine is not None and mine.first_height <= seen.height <= mine.tip
        block = mine.blocks[seen.height - mine.first_height] if mine is not None and has_block else None
        what = None if block is None else _describe_block(block)
        yield Entry(_us(seen.at_ms), "final", (seen.validator,), f"{name} {what or f'height {seen.height}'}")


@lru_cache(BLOCKS_REMEMBERED)
def _describe_block(record: BlockRecord) -> str | None:
    """The block as a validator served it; ``None`` if that is no block."""
    try:
        block, receipts = decode(record.block, Block), decode(record.receipts, BlockReceipts)
    except CodecError:
        return None
    header, digest = block.header, header_hash(block.header)
    counts = (len(block.transactions), len(receipts.fires))
    return describe_final(header.height, header.view, digest, *counts, record.computed_root)


def _us(at_ms: float) -> int:
    return round(at_ms * MICROSECONDS_PER_MILLISECOND)
