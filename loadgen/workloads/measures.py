"""What is measured of a load: when its transactions were to be sent, and its requests over time.

Both are bounded, however long a load goes on, and both can be summed over processes: a process writes them with its
statistics. Times are milliseconds of one clock that all of them share.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from blake3 import blake3
from pydantic import BaseModel, ConfigDict

LATE_MS: Final = 100
"""A transaction that is sent more than this after it was due is late."""
MAX_KEPT: Final = 1 << 16
"""Transactions whose due times are kept at most. Of more a part is kept, chosen by their keys' bits."""
KEY_BYTES: Final = 8
MAX_BUCKETS: Final = 512
"""Stretches of time that requests are counted in at most; of more two neighbours become one."""
FIRST_WIDTH_MS: Final = 1_000
EXACT_TENTHS: Final = 32
"""Response times below so many tenths of a millisecond are counted by themselves."""
SLOTS_PER_OCTAVE: Final = 16


def send_key(public_key: bytes, nonce: int) -> str:
    """What a transaction is known by: its sender's public key and its nonce, so that one that is signed anew takes the
    place of the former one."""
    return blake3(public_key + nonce.to_bytes(8, "big")).digest(KEY_BYTES).hex()


def is_chosen(key: str, bits: int) -> bool:
    """Whether the first so many bits of a key are zero."""
    return int(key, 16) >> (8 * KEY_BYTES - bits) == 0


def chosen(times: dict[str, int], bits: int) -> dict[str, int]:
    """Those whose keys are chosen."""
    return {key: time_ms for key, time_ms in times.items() if is_chosen(key, bits)}


class WorkloadSends(BaseModel):
    """The transactions of one workload."""

    model_config = ConfigDict(extra="forbid")

    sent: int = 0
    """Transactions that were given to a validator, or tried to be, each once."""
    late: int = 0
    """Those that were sent more than :data:`LATE_MS` after they were due."""
    rejected: int = 0
    """Those that were given up because a mempool refused them."""
    skipped: int = 0
    """Turns that were due and were never taken; none in a closed loop."""
    unsent: int = 0
    """Transactions of turns that were taken, which found no room; none in a closed loop."""
    due: dict[str, int] = {}
    """When transactions were to be sent, by :func:`send_key`: all of them, or the chosen part."""
    waited_ms: dict[str, int] = {}
    """How long after that they were sent, of those among them that were late."""


class Sends(BaseModel):
    """Intended sends, by workload."""

    model_config = ConfigDict(extra="forbid")

    chosen_bits: int = 0
    """Due times are kept of those keys whose first so many bits are zero."""
    workloads: dict[str, WorkloadSends] = {}

    def note(self, workload: str, key: str, due_ms: int, now_ms: int) -> bool:
        """A transaction is sent now that was due at a moment. Says whether its key is known: then one was sent before
        that has not been given up, and the key stays due when that one was."""
        sends = self._of(workload)
        is_late = now_ms - due_ms > LATE_MS
        sends.sent += 1
        sends.late += is_late
        is_known = key in sends.due
        if not is_known and self._is_chosen(key):
            sends.due[key] = due_ms
            if is_late:
                sends.waited_ms[key] = now_ms - due_ms
            self._bound()
        return is_known

    def give_up(self, workload: str, key: str, is_last: bool = True) -> None:
        """A transaction was refused. ``is_last``: no other one with its key is under way."""
        sends = self._of(workload)
        sends.rejected += 1
        if is_last:
            sends.due.pop(key, None)
            sends.waited_ms.pop(key, None)

    def skip(self, workload: str, turns: int) -> None:
        """Turns were due and will not be taken."""
        self._of(workload).skipped += turns

    def leave_out(self, workload: str, transactions: int) -> None:
        """Transactions of a turn find no room, and will not be sent."""
        self._of(workload).unsent += transactions

    def plus(self, other: Sends) -> Sends:
        """The sum, with the due times that both would have chosen."""
        total = Sends(chosen_bits=max(self.chosen_bits, other.chosen_bits))
        for part in (self, other):
            for name, sends in part.workloads.items():
                own = total._of(name)
                own.sent += sends.sent
                own.late += sends.late
                own.rejected += sends.rejected
                own.skipped += sends.skipped
                own.unsent += sends.unsent
                own.due.update(chosen(sends.due, total.chosen_bits))
                own.waited_ms.update(chosen(sends.waited_ms, total.chosen_bits))
        total._bound()
        return total

    @property
    def late(self) -> int:
        """Late transactions of all workloads."""
        return sum(sends.late for sends in self.workloads.values())

    def choose(self, bits: int) -> None:
        """Keep the due times of those keys alone whose first so many bits are zero."""
        self.chosen_bits = bits
        for sends in self.workloads.values():
            sends.due = chosen(sends.due, bits)
            sends.waited_ms = chosen(sends.waited_ms, bits)

    def _of(self, workload: str) -> WorkloadSends:
        if workload not in self.workloads:
            self.workloads[workload] = WorkloadSends()
        return self.workloads[workload]

    def _is_chosen(self, key: str) -> bool:
        return is_chosen(key, self.chosen_bits)

    def _bound(self) -> None:
        while sum(len(sends.due) for sends in self.workloads.values()) > MAX_KEPT:
            self.choose(self.chosen_bits + 1)


@dataclass(frozen=True, slots=True)
class UserSends:
    """Where one user notes its intended sends; times are milliseconds since the load began."""

    sends: Sends
    title: str
    """The user's workload."""
    public_key: bytes
    origin_ms: int = 0
    """What the clock of the sends shows when the load begins."""

    def note(self, nonce: int, due_ms: int, now_ms: int) -> bool:
        """As :meth:`Sends.note`."""
        key = send_key(self.public_key, nonce)
        return self.sends.note(self.title, key, self.origin_ms + due_ms, self.origin_ms + now_ms)

    def give_up(self, nonce: int, is_last: bool = True) -> None:
        """As :meth:`Sends.give_up`."""
        self.sends.give_up(self.title, send_key(self.public_key, nonce), is_last)

    def skip(self, turns: int) -> None:
        """Turns were due and will not be taken."""
        self.sends.skip(self.title, turns)

    def leave_out(self, transactions: int) -> None:
        """Transactions of a turn find no room, and will not be sent."""
        self.sends.leave_out(self.title, transactions)


class TimeBucket(BaseModel):
    """The requests of a stretch of time."""

    model_config = ConfigDict(extra="forbid")

    requests: int = 0
    failures: int = 0
    times: dict[int, int] = {}
    """How often each response time occurred among the good answers, by :func:`time_slot`."""

    @property
    def counts(self) -> Counter[int]:
        return Counter(self.times)

    def add(self, other: TimeBucket) -> None:
        self.requests += other.requests
        self.failures += other.failures
        self.times = dict(Counter(self.times) + Counter(other.times))


class LoadTimeline(BaseModel):
    """Requests, failures and response times over time."""

    model_config = ConfigDict(extra="forbid")

    width_ms: int = FIRST_WIDTH_MS
    """Of each stretch: the first width, doubled as often as needed."""
    buckets: dict[int, TimeBucket] = {}
    """By the time at which the stretch begins over the width."""

    def requested(self, at_ms: float) -> None:
        self._at(at_ms).requests += 1

    def answered(self, at_ms: float, took_ms: float) -> None:
        """A good answer came."""
        times, slot = self._at(at_ms).times, time_slot(took_ms)
        times[slot] = times.get(slot, 0) + 1

    def failed(self, at_ms: float) -> None:
        self._at(at_ms).failures += 1

    def plus(self, other: LoadTimeline) -> LoadTimeline:
        total = LoadTimeline(width_ms=max(self.width_ms, other.width_ms))
        for part in (self, other):
            for number, bucket in part.buckets.items():
                total._bucket(number * part.width_ms // total.width_ms).add(bucket)
        total._bound()
        return total

    def _at(self, at_ms: float) -> TimeBucket:
        number = int(at_ms) // self.width_ms
        if number not in self.buckets and len(self.buckets) >= MAX_BUCKETS:
            self._bucket(number)
            self._bound()
            return self._at(at_ms)
        return self._bucket(number)

    def _bucket(self, number: int) -> TimeBucket:
        if number not in self.buckets:
            self.buckets[number] = TimeBucket()
        return self.buckets[number]

    def _bound(self) -> None:
        while len(self.buckets) > MAX_BUCKETS:
            before, self.buckets = self.buckets, {}
            self.width_ms *= 2
            for number, bucket in before.items():
                self._bucket(number // 2).add(bucket)


def time_slot(took_ms: float) -> int:
    """The slot of a response time: by tenths of a millisecond, and from :data:`EXACT_TENTHS` on by sixteenths of each
    power of two, so that a slot is at most a sixteenth wide of what it has."""
    tenths = max(0, int(took_ms * 10))
    if tenths < EXACT_TENTHS:
        return tenths
    octave = tenths.bit_length() - EXACT_TENTHS.bit_length() + 1
    return EXACT_TENTHS + (octave - 1) * SLOTS_PER_OCTAVE + (tenths >> octave) - SLOTS_PER_OCTAVE


def slot_ms(slot: int) -> float:
    """The response time in the middle of a slot, in milliseconds."""
    if slot < EXACT_TENTHS:
        return (slot + 0.5) / 10
    octave, place = divmod(slot - EXACT_TENTHS, SLOTS_PER_OCTAVE)
    octave += 1
    return ((place + SLOTS_PER_OCTAVE) * 2**octave + 2 ** (octave - 1)) / 10
