"""Selects the messages and views of a run that are kept for the space-time diagram of its report.

A run has far too many messages to keep. Kept are those of a few *windows*: the beginning, the moments around each
fault's beginning and end, and stalls. The windows are bounded in number, time and messages; messages are those among at
most :data:`MAX_WATCHED` validators. Messages from before a window opens are available because a driver, or a live
validator, keeps its last messages in a ring.

Nothing here changes a run: drivers report what they see. Of a message only the first bytes are read, which give its
kind and view (:func:`peek`), and only if it is kept.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.record.run import RunRecord, TracedMessage, TraceWindow, ViewEntered
from cluster.scenario import Scenario
from consensus.messages import VoteKind

MAX_WATCHED: Final = 12
MAX_WINDOWS: Final = 12
MAX_MESSAGES_PER_WINDOW: Final = 1_500
"""The most messages kept per window. A message to several validators counts once for each."""
MAX_VIEWS: Final = 40_000
"""The most views kept. If there are more, of every two neighbouring views of a validator only the longer one stays."""
BEFORE_MS: Final = 600.0
"""How long before its cause a window begins, in milliseconds."""
AFTER_MS: Final = 1_900.0
RING_MESSAGES: Final = 2_048
"""The number of newest messages that a driver, or a live validator, buffers while no window is open."""
NEVER_MS: Final = -1e12
"""Before all times of a run, in milliseconds."""
HEAD_BYTES: Final = 32
"""The number of first bytes of a message that are kept, enough for :func:`peek`."""

# --- what a message is ----------------------------------------------------------------------------------------------


class MessageKind(StrEnum):
    """The kind of a message, in the order of the report's legend."""

    PROPOSAL = "proposal"
    NOTARIZE = "notarize"
    FINALIZE = "finalize"
    NULLIFY = "nullify"
    TIMEOUT = "timeout"
    CERTIFICATE = "certificate"
    REQUEST = "request"
    BLOCK = "block"
    SNAPSHOT = "snapshot"
    TRANSACTIONS = "transactions"
    OTHER = "other"


KINDS: Final = tuple(MessageKind)
_TAGS: Final = {
    2: MessageKind.TRANSACTIONS,
    **dict.fromkeys((3, 5, 7, 9, 11), MessageKind.REQUEST),
    **dict.fromkeys((4, 6, 13), MessageKind.BLOCK),
    **dict.fromkeys((8, 10, 12), MessageKind.SNAPSHOT),
}
"""Message tags of :mod:`validator.chain.messages`."""
_CONSENSUS: Final = 1
_UINT_BYTES: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_BYTES_LENGTHS: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4}


def peek(head: bytes) -> tuple[MessageKind, int]:
    """A message's kind, and its view (0 for none), from its first :data:`HEAD_BYTES` bytes.

    It decodes this part of the encodings of :mod:`validator.chain.messages` and :mod:`consensus.messages`; anything
    else is ``OTHER``.
    """
    try:
        tag = head[2]  # behind the envelope, an array of one, and the message's own header
        if tag != _CONSENSUS:
            return _TAGS.get(tag, MessageKind.OTHER), 0
        return _peek_consensus(head, 4 + _BYTES_LENGTHS[head[3]])
    except (IndexError, KeyError, ValueError):
        return MessageKind.OTHER, 0


def _peek_consensus(head: bytes, start: int) -> tuple[MessageKind, int]:
    """Kind and view of a consensus message whose array header is at ``start``."""
    tag, first = head[start + 1], start + 2
    match tag:
        case 1:
            return MessageKind[VoteKind(head[first]).name], _uint(head, first + 1)
        case 2:
            return MessageKind.PROPOSAL, _uint(head, first)
        case 3:
            return MessageKind.CERTIFICATE, _uint(head, first + 1)
        case 4:
            return MessageKind.REQUEST, _uint(head, first + 1)
        case 5:
            return MessageKind.CERTIFICATE, _uint(head, first)
        case 6:
            return MessageKind.TIMEOUT, _uint(head, first + 3)
    return MessageKind.OTHER, 0


def _uint(head: bytes, at: int) -> int:
    if head[at] < 0x80:
        return head[at]
    size = _UINT_BYTES[head[at]]
    if at + size >= len(head):
        raise IndexError
    return int.from_bytes(head[at + 1 : at + 1 + size], "big")


# --- which of them are kept -----------------------------------------------------------------------------------------


class WindowsState(msgspec.Struct, forbid_unknown_fields=True):
    """The state of a :class:`Windows`, besides the windows in the record."""

    awaited: list[int]
    """The numbers of the faults that have not ended yet."""
    known: int
    """How many faults there are."""
    begun: set[int]
    height: int
    height_ms: float
    stall_seen: bool
    has_begun: bool
    open_until_ms: float
    """The time until which messages are kept, in milliseconds; :data:`NEVER_MS` before the first window."""


class Windows:
    """Opens the windows of a run as events happen, and keeps the messages within them."""

    def __init__(self, record: RunRecord, state: WindowsState | None = None) -> None:
        """``state`` is that of another process, whose windows ``record`` has."""
        self._run, self._record = record, record.trace
        if state is None:
            known = len(record.faults)
            state = WindowsState([*range(known)], known, set(), 0, 0.0, False, False, NEVER_MS)
            self._record.watched = choose_watched(record.scenario)
        self.state = state
        self.watched = frozenset(self._record.watched)
        consensus = record.scenario.consensus
        self._stall_ms = consensus.leader_timeout_ms + consensus.block_interval_ms  # a leader was missed

    def entered(self, at_ms: float, validator: int, view: int) -> None:
        """Note that a validator entered another view, if it is watched."""
        if validator not in self.watched:
            return
        self._record.views.append(ViewEntered(at_ms, validator, view))
        if len(self._record.views) > MAX_VIEWS:
            self._record.views[:] = halved(self._record.views)

    def look(self, now_ms: float, height: int) -> list[TraceWindow]:
        """Open windows for the events since the last call. Returns the windows opened or extended."""
        opened = [self._open(reason, at_ms) for at_ms, reason in [*sorted(self._news()), *self._stalls(now_ms, height)]]
        return [window for window in opened if window is not None]

    def begin(self, at_ms: float = 0.0) -> None:
        """Open the first window, when the first validator enters its first view. Later calls have no effect."""
        if not self.state.has_begun:
            self.state.has_begun = True
            self._open("the beginning", at_ms)

    def at(self, at_ms: float) -> TraceWindow | None:
        """The window that covers a time; ``None`` if there is none, or if it is full."""
        for window in reversed(self._record.windows):
            if window.begun_ms <= at_ms <= window.ended_ms:
                return None if window.is_full else window
        return None

    def keep(self, message: TracedMessage) -> None:
        """Keep a message in the window that covers its time, if there is one and it is not full."""
        window = self.at(_moment(message))
        if window is not None:
            self.keep_in(window, message)

    @staticmethod
    def keep_in(window: TraceWindow, message: TracedMessage) -> None:
        """Keep a message in the window that covers its time, unless that is full."""
        if len(window.messages) < MAX_MESSAGES_PER_WINDOW:
            window.messages.append(message)
        else:
            window.is_full = True

    def close(self, now_ms: float) -> None:
        """End the trace: cut the windows to the run's end, and full ones to their last kept message."""
        for window in self._record.windows:
            window.ended_ms = min(window.ended_ms, now_ms)
            window.messages.sort(key=_moment)
            if window.is_full and window.messages:
                window.ended_ms = min(window.ended_ms, _moment(window.messages[-1]))

    def _news(self) -> Iterator[tuple[float, str]]:
        """The times and descriptions of the beginnings and ends of faults since the last look."""
        faults = self._run.faults
        if len(faults) < self.state.known:  # other settings apply, which have fewer
            self.state.awaited = [number for number in self.state.awaited if number < len(faults)]
        self.state.awaited += range(self.state.known, len(faults))
        self.state.known = len(faults)
        for number in self.state.awaited:
            fault = faults[number]
            if fault.begun_ms is not None and number not in self.state.begun:
                self.state.begun.add(number)
                yield fault.begun_ms, f"{fault.title} begins"
            if fault.ended_ms is not None:
                yield fault.ended_ms, f"{fault.title} is over"
        self.state.awaited = [number for number in self.state.awaited if faults[number].ended_ms is None]

    def _stalls(self, now_ms: float, height: int) -> Iterator[tuple[float, str]]:
        if height > self.state.height:
            self.state.height, self.state.height_ms, self.state.stall_seen = height, now_ms, False
        elif self.state.height and not self.state.stall_seen and now_ms - self.state.height_ms > self._stall_ms:
            self.state.stall_seen = True
            yield now_ms, f"no final block after height {height}"

    def _open(self, reason: str, at_ms: float) -> TraceWindow | None:
        """Open a window around a moment. A window that includes the moment is extended instead."""
        windows = self._record.windows
        end_ms = at_ms + AFTER_MS
        if windows and windows[-1].begun_ms <= at_ms <= windows[-1].ended_ms and not windows[-1].is_full:
            windows[-1].reason += f"; {reason}"
            windows[-1].ended_ms = max(windows[-1].ended_ms, end_ms)
        elif len(windows) < MAX_WINDOWS:
            begun_ms = max(0.0, at_ms - BEFORE_MS)
            if windows:
                begun_ms = max(begun_ms, min(windows[-1].ended_ms, at_ms))
            windows.append(TraceWindow(reason, begun_ms, end_ms))
        else:
            return None
        self.state.open_until_ms = max(self.state.open_until_ms, end_ms)
        return windows[-1]


def halved(views: Iterable[ViewEntered]) -> list[ViewEntered]:
    """Halve the kept views: of every two neighbouring views of a validator the longer one stays, and the newest too."""
    by_validator: dict[int, list[ViewEntered]] = {}
    for seen in views:
        by_validator.setdefault(seen.validator, []).append(seen)
    kept = []
    for mine in by_validator.values():
        ended = [
            seen if seen.until_ms is not None else seen._replace(until_ms=later.at_ms) for seen, later in pairwise(mine)
        ]
        kept += [max(ended[place : place + 2], key=lasted_ms) for place in range(0, len(ended), 2)]
        kept.append(mine[-1])
    return sorted(kept, key=lambda seen: seen[:3])


def lasted_ms(seen: ViewEntered) -> float:
    """How long a validator was in a view, in milliseconds; 0 if its end is not known."""
    return 0.0 if seen.until_ms is None else seen.until_ms - seen.at_ms


def choose_watched(scenario: Scenario) -> tuple[int, ...]:
    """Choose at most :data:`MAX_WATCHED` validators whose messages are traced.

    Faulty ones come first, then those that faults name, then late ones, then others.
    """
    section = scenario.validators
    named = {name for fault in scenario.faults for _, names in fault.named for name in names}
    order = sorted(
        range(section.count),
        key=lambda index: (
            not section.node(index).is_faulty,
            section.names[index] not in named,
            index not in section.late,
            index,
        ),
    )
    return tuple(sorted(order[:MAX_WATCHED]))


def _moment(message: TracedMessage) -> float:
    moment = message.sent_ms if message.sent_ms is not None else message.received_ms
    assert moment is not None
    return moment


# --- the simulator's ------------------------------------------------------------------------------------------------


class _Sent(msgspec.Struct, frozen=True):
    """A message sent in the simulator, with the time of its arrival at each receiver that gets it."""

    at_us: int
    sender: int
    recipients: Sequence[int]
    head: bytes
    size: int
    arrivals: Sequence[tuple[int, int]]


class SimulatedTrace:
    """Keeps the messages of a simulated run, in which a message's arrival is known when it is sent."""

    def __init__(self, record: RunRecord) -> None:
        self.windows = Windows(record)
        self._ring: deque[_Sent] = deque(maxlen=RING_MESSAGES)
        self.sent_by = [0] * record.scenario.validators.count
        """Number of messages sent by each validator so far; every copy counts."""

    def sent(
        self,
        at_us: int,
        sender: int,
        recipients: Sequence[int],
        payload: bytes,
        arrivals: Sequence[tuple[int, int]],
    ) -> None:
        """Enter a message that a validator sent: keep it if a window is open, or else buffer it."""
        self.sent_by[sender] += len(recipients) - (sender in recipients)
        sent = _Sent(at_us, sender, recipients, payload[:HEAD_BYTES], len(payload), arrivals)
        if at_us <= self.windows.state.open_until_ms * MICROSECONDS_PER_MILLISECOND:
            self._keep(sent)
        else:
            self._ring.append(sent)

    def look(self, now_ms: float, height: int) -> None:
        """Open windows for new events. If one opens, keep the buffered messages from before."""
        if self.windows.look(now_ms, height):
            for sent in self._ring:
                self._keep(sent)
            self._ring.clear()

    def _keep(self, sent: _Sent) -> None:
        watched, sent_ms = self.windows.watched, sent.at_us / MICROSECONDS_PER_MILLISECOND
        window = self.windows.at(sent_ms) if sent.sender in watched else None
        if window is None:
            return
        about = (*peek(sent.head), sent.size)
        lost = set(sent.recipients) - {sent.sender, *(receiver for receiver, _ in sent.arrivals)}
        ends = [(receiver, at_us / MICROSECONDS_PER_MILLISECOND) for receiver, at_us in sent.arrivals]
        for receiver, received_ms in [*ends, *((receiver, None) for receiver in sorted(lost))]:
            if receiver in watched:
                message = TracedMessage(sent.sender, receiver, sent_ms, received_ms, *about)
                self.windows.keep_in(window, message)


# --- the live testnet's ---------------------------------------------------------------------------------------------


class Stamp(NamedTuple):
    """A live validator sent or received a message. Times are milliseconds since the epoch."""

    at_ms: float
    is_sent: bool
    peer: int | None
    """The other end: the receiver of a sent message (``None`` for all), or the sender of a received one."""
    head: bytes
    size: int
    mark: int
    """Checksum of the message's first bytes, by which the sender's and the receiver's records of it are matched."""


class _Half(NamedTuple):
    """The sending or the receiving of a message between two watched validators, to be matched with the other end."""

    at_ms: float
    kind: str
    view: int


_Ends = tuple[int, int, int, int]
"""What both ends know of a message, to match their records of it: sender, receiver, size, mark."""


class TraceState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a :class:`LiveTrace`: unmatched ends, and windows."""

    windows: WindowsState
    sent: list[tuple[_Ends, list[_Half]]]
    received: list[tuple[_Ends, list[_Half]]]


MAX_HALVES: Final = 4 * MAX_WINDOWS * MAX_MESSAGES_PER_WINDOW
"""The most ends of messages that a live run keeps until its end, when they are matched."""
CLOCK_SLACK_MS: Final = 5.0
"""The most by which a message may seem to arrive before it was sent: hosts' clocks differ."""


class LiveTrace:
    """Traces the messages of a live run, by matching the stamps of senders and receivers at the end."""

    def __init__(self, record: RunRecord, began_epoch_ms: float, state: TraceState | None = None) -> None:
        """``state`` is that of another process, whose windows ``record`` has."""
        self.windows = Windows(record, None if state is None else state.windows)
        self._timings = record.timings
        self._began_ms = began_epoch_ms
        self._sent: defaultdict[_Ends, list[_Half]] = defaultdict(list, () if state is None else state.sent)
        self._received: defaultdict[_Ends, list[_Half]] = defaultdict(list, () if state is None else state.received)
        self._count = sum(len(halves) for each in (self._sent, self._received) for halves in each.values())

    @property
    def state(self) -> TraceState:
        """What another process needs to continue this trace, besides the windows in the record."""
        return TraceState(self.windows.state, list(self._sent.items()), list(self._received.items()))

    def wants(self, now_ms: float) -> bool:
        """Whether the driver should fetch validators' stamps now: a window is or was just open, or all are recorded."""
        return self._timings is not None or now_ms <= self.windows.state.open_until_ms + BEFORE_MS

    def take(self, validator: int, stamps: Iterable[Stamp]) -> None:
        """Enter the stamps of a validator."""
        watched = self.windows.watched
        if validator not in watched:
            return
        for stamp in stamps:
            half = _Half(stamp.at_ms - self._began_ms, *peek(stamp.head))
            peers = watched - {validator} if stamp.peer is None else watched & {stamp.peer}
            for peer in sorted(peers):
                if self._count == MAX_HALVES:
                    return
                self._count += 1
                ends = (validator, peer) if stamp.is_sent else (peer, validator)
                halves = self._sent if stamp.is_sent else self._received
                halves[*ends, stamp.size, stamp.mark].append(half)

    def close(self, now_ms: float) -> None:
        """Match sent with received messages; equal messages between two validators are matched in order."""
        for message in sorted(self._matched(), key=_moment):
            self.windows.keep(message)
            if self._timings is not None and message.sent_ms is not None and message.received_ms is not None:
                self._timings.messages.append(message)
        self.windows.close(now_ms)

    def _matched(self) -> Iterator[TracedMessage]:
        for ends in self._sent.keys() | self._received.keys():
            sender, receiver, size, _ = ends
            received = deque(sorted(self._received[ends]))
            for half in sorted(self._sent[ends]):
                while received and received[0].at_ms < half.at_ms - CLOCK_SLACK_MS:
                    early = received.popleft()  # was sent before any validator kept its messages
                    yield TracedMessage(sender, receiver, None, early.at_ms, early.kind, early.view, size)
                arrived_ms = max(received.popleft().at_ms, half.at_ms) if received else None
                yield TracedMessage(sender, receiver, half.at_ms, arrived_ms, half.kind, half.view, size)
            for half in received:
                yield TracedMessage(sender, receiver, None, half.at_ms, half.kind, half.view, size)
