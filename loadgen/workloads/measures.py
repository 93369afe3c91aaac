"""Measurements of a load: intended send times of its transactions, and its requests over time.

Both have a bounded size for any duration of a load. They can be summed over processes, which write them with their
statistics. Times are milliseconds on one clock that all processes share.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from blake3 import blake3
from pydantic import BaseModel, ConfigDict

LATE_MS: Final = 100
"""Milliseconds after its due time at which a transaction counts as late."""
MAX_KEPT: Final = 1 << 16
"""Maximum number of due times that are kept. If there are more, a sample is kept, chosen by the keys' first bits."""
KEY_BYTES: Final = 8
MAX_BUCKETS: Final = 512
"""Maximum number of intervals that requests are counted in; beyond it, pairs of neighbours are merged."""
FIRST_WIDTH_MS: Final = 1_000
EXACT_TENTHS: Final = 32
"""Response time, in tenths of a millisecond, below which each tenth is counted separately."""
SLOTS_PER_OCTAVE: Final = 16


def send_key(public_key: bytes, nonce: int) -> str:
    """Key of a transaction: a hash, in hex, of its sender's public key and its nonce. A transaction that is signed
    again has the same key."""
    return blake3(public_key + nonce.to_bytes(8, "big")).digest(KEY_BYTES).hex()


def is_chosen(key: str, bits: int) -> bool:
    """Whether a key is in the sample: its first ``bits`` bits are zero."""
    return int(key, 16) >> (8 * KEY_BYTES - bits) == 0


def chosen(times: dict[str, int], bits: int) -> dict[str, int]:
    """The times, by key, of those keys whose first ``bits`` bits are zero."""
    return {key: time_ms for key, time_ms in times.items() if is_chosen(key, bits)}


class WorkloadSends(BaseModel):
    """Counts and due times of the transactions of one workload."""

    model_config = ConfigDict(extra="forbid")

    sent: int = 0
    """Transactions that were sent to a validator, or that could not be delivered, each counted once."""
    late: int = 0
    """Transactions sent more than :data:`LATE_MS` after they were due."""
    rejected: int = 0
    """Transactions that were given up because a mempool refused them."""
    skipped: int = 0
    """Due turns that were never taken; none in a closed loop."""
    unsent: int = 0
    """Transactions of taken turns that their user did not send, because it had too many unconfirmed ones; none in a
    closed loop."""
    due: dict[str, int] = {}
    """Due times of transactions, by :func:`send_key`: of all transactions, or of the chosen sample."""
    waited_ms: dict[str, int] = {}
    """Delays of the late transactions in ``due``, by :func:`send_key`: milliseconds from due time to sending."""


class Sends(BaseModel):
    """Counts and due times of a load's transactions, by workload."""

    model_config = ConfigDict(extra="forbid")

    chosen_bits: int = 0
    """Due times are kept for keys whose first ``chosen_bits`` bits are zero."""
    workloads: dict[str, WorkloadSends] = {}

    def note(self, workload: str, key: str, due_ms: int, now_ms: int) -> bool:
        """Count a transaction that is sent now, and keep its due time. Returns whether its key is known already: an
        earlier transaction with the key was sent and not given up. Then the key keeps its earlier due time."""
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
        """Count a refused transaction. Its due time is dropped if ``is_last``: no other transaction with its key is
        unconfirmed."""
        sends = self._of(workload)
        sends.rejected += 1
        if is_last:
            sends.due.pop(key, None)
            sends.waited_ms.pop(key, None)

    def skip(self, workload: str, turns: int) -> None:
        """Note due turns that will not be taken."""
        self._of(workload).skipped += turns

    def leave_out(self, workload: str, transactions: int) -> None:
        """Note transactions of a turn that will not be sent, because there is no room."""
        self._of(workload).unsent += transactions

    def plus(self, other: Sends) -> Sends:
        """The sum of both. Its due times are those in the smaller of their two samples."""
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
        """Number of late transactions of all workloads."""
        return sum(sends.late for sends in self.workloads.values())

    def choose(self, bits: int) -> None:
        """Keep only the due times of keys whose first ``bits`` bits are zero."""
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
    """Records one user's transactions in :class:`Sends`. Its methods take milliseconds since the load began."""

    sends: Sends
    title: str
    """The title of the user's workload, under which ``sends`` counts."""
    public_key: bytes
    origin_ms: int = 0
    """Time at which the load began, in milliseconds on the clock of ``sends``."""

    def note(self, nonce: int, due_ms: int, now_ms: int) -> bool:
        """Count the user's transaction with this nonce, which is sent now, and keep its due time. Returns whether its
        key is known already, as :meth:`Sends.note` does."""
        key = send_key(self.public_key, nonce)
        return self.sends.note(self.title, key, self.origin_ms + due_ms, self.origin_ms + now_ms)

    def give_up(self, nonce: int, is_last: bool = True) -> None:
        """Count a refused transaction with this nonce; ``is_last`` is as in :meth:`Sends.give_up`."""
        self.sends.give_up(self.title, send_key(self.public_key, nonce), is_last)

    def skip(self, turns: int) -> None:
        """Note due turns that will not be taken."""
        self.sends.skip(self.title, turns)

    def leave_out(self, transactions: int) -> None:
        """Note transactions of a turn that will not be sent, because there is no room."""
        self.sends.leave_out(self.title, transactions)


class TimeBucket(BaseModel):
    """Counts and response times of the requests that ended in one interval."""

    model_config = ConfigDict(extra="forbid")

    requests: int = 0
    failures: int = 0
    times: dict[int, int] = {}
    """Number of successful answers with each response time, by :func:`time_slot`."""

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
    """Width of each interval, in milliseconds: the first width, doubled until :data:`MAX_BUCKETS` intervals suffice."""
    buckets: dict[int, TimeBucket] = {}
    """The requests of each interval, by the time at which the interval begins divided by ``width_ms``."""

    def requested(self, at_ms: float) -> None:
        self._at(at_ms).requests += 1

    def answered(self, at_ms: float, took_ms: float) -> None:
        """Count a successful answer that came at ``at_ms`` after a response time of ``took_ms`` milliseconds."""
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
    """The histogram slot of a response time in milliseconds. A slot is a tenth of a millisecond wide below
    :data:`EXACT_TENTHS`. From there on each power of two has 16 slots, so that a slot's width is at most a sixteenth of
    its times."""
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
