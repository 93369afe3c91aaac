"""Virtual time: a queue of calls and messages, ordered by time, then by insertion. Each machine has its clock by it.

Time is counted in whole microseconds, so that no rounding of floats decides an order. Every event is hashed into a
rolling digest with its label and content: equal digests mean equal runs, event by event. A message's bytes are hashed
once, when it is sent; each delivery refers to them by the message's number.

Most events are messages. All pending deliveries of one message share one queue entry, whose time is that of the next
delivery. So the queue holds a broadcast only once, and advancing costs one step in a small heap. The digest is fed in
batches.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from blake3 import blake3

from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from validator.node.events import TimerName

DIGEST_BATCH_BYTES: Final = 1 << 16
TRACE_DIGEST_BYTES: Final = 8

_DELIVERY: Final = Struct("<qqii")


Deliver = Callable[[int, int, bytes], None]
"""The receiver of arriving messages, called as ``deliver(sender, recipient, payload)``."""


class _Call(NamedTuple):
    label: str
    content: bytes
    run: Callable[[], None]


@dataclass(slots=True, eq=False)
class _Deliveries:
    """The pending deliveries of one message, sorted so that the next one is the last item of ``places``."""

    sender: int
    message: int
    payload: bytes
    deliver: Deliver
    places: list[tuple[int, int, int]]
    """Each delivery's time, its insertion number, which orders events of the same time, and its recipient."""


_Entry = tuple[int, int, _Call | _Deliveries]
"""A queue entry: the event's time, its insertion number, which orders events of the same time, and the event."""


class VirtualClock:
    """Runs calls and delivers messages in virtual time."""

    def __init__(self) -> None:
        self._queue: list[_Entry] = []
        self._number = 0
        self._messages = 0
        self._digest = blake3()
        self._undigested = bytearray()
        self.now_us = 0
        self.events = 0
        self.last_label = ""
        """The last event's label; maintained if :attr:`keeps_labels`."""
        self.keeps_labels = False

    @property
    def now_ms(self) -> float:
        """Milliseconds since the run began."""
        return self.now_us / MICROSECONDS_PER_MILLISECOND

    @property
    def next_us(self) -> int:
        """The time of the next event in microseconds; the present time if there is none."""
        return self._queue[0][0] if self._queue else self.now_us

    def after(self, delay_us: int, label: str, content: bytes, call: Callable[[], None]) -> None:
        """Run ``call`` after a delay. ``label`` and ``content`` describe it for the digest."""
        heapq.heappush(self._queue, (self.now_us + delay_us, self._number, _Call(label, content, call)))
        self._number += 1

    def send(self, sender: int, payload: bytes, arrivals: Sequence[tuple[int, int]], deliver: Deliver) -> None:
        """Schedule a message's delivery for each ``(recipient, time)`` of ``arrivals``; no time may be in the past."""
        self._messages += 1
        self._note(payload)
        if not arrivals:
            return
        first = self._number
        self._number += len(arrivals)
        places = [(at_us, number, recipient) for number, (recipient, at_us) in enumerate(arrivals, first)]
        if len(places) > 1:
            places.sort(reverse=True)
        at_us, number, _ = places[-1]
        heapq.heappush(self._queue, (at_us, number, _Deliveries(sender, self._messages, payload, deliver, places)))

    def step(self) -> bool:
        """Run the next call or deliver the next message; ``False`` if there is none."""
        if not self._queue:
            return False
        at_us, _, what = self._queue[0]
        self.now_us = at_us
        self.events += 1
        if isinstance(what, _Deliveries):
            self._deliver_next(what)
        else:
            heapq.heappop(self._queue)
            self._note(f"{at_us} {what.label} ".encode())
            self._note(what.content)
            if self.keeps_labels:
                self.last_label = what.label
            what.run()
        if len(self._undigested) > DIGEST_BATCH_BYTES:
            self._flush()
        return True

    def _deliver_next(self, what: _Deliveries) -> None:
        """Deliver to the next recipient of the message at the head of the queue."""
        places, sender, payload = what.places, what.sender, what.payload
        at_us, _, recipient = places.pop()
        if places:
            next_at_us, number, _ = places[-1]
            heapq.heapreplace(self._queue, (next_at_us, number, what))
        else:
            heapq.heappop(self._queue)
        self._undigested += _DELIVERY.pack(at_us, what.message, sender, recipient)
        if self.keeps_labels:
            self.last_label = f"message {what.message} {sender}>{recipient}, {len(payload)} bytes"
        what.deliver(sender, recipient, payload)

    def digest(self) -> str:
        """Hash over every event so far and all messages sent, as hex."""
        self._flush()
        return self._digest.hexdigest()

    def trace_line(self) -> str:
        """The last event, its time, and the rolling digest after it; needs :attr:`keeps_labels`."""
        self._flush()
        digest = self._digest.digest(length=TRACE_DIGEST_BYTES).hex()
        return f"{self.events}\t{self.now_us}\t{digest}\t{self.last_label}"

    def _note(self, data: bytes) -> None:
        self._undigested += len(data).to_bytes(4, "little")
        self._undigested += data

    def _flush(self) -> None:
        self._digest.update(self._undigested)
        self._undigested.clear()


Later = Callable[[int, str, bytes, Callable[[], None]], None]
"""``later(delay_us, label, content, call)`` schedules a call, which is dropped if the machine stops before."""


class _Armed(NamedTuple):
    """A running timer."""

    number: int
    expires_us: int


class OwnClock:
    """A clock that may run at another speed than virtual time: at 2, timers expire after half the time."""

    def __init__(self, clock: VirtualClock, speed: float, later: Later, expire: Callable[[TimerName], None]) -> None:
        self.speed = speed
        self._clock = clock
        self._later = later
        self._expire = expire
        self._own_us = 0.0
        """The clock's time when its present speed was set."""
        self._own_since_us = 0
        """The virtual time when its present speed was set."""
        self._paused_since_ms: float | None = None
        """The clock's time when the machine's present pause began; ``None`` if it is not paused."""
        self._paused_ms = 0.0
        """Total duration of the machine's past pauses."""
        self._timers: dict[TimerName, _Armed] = {}
        self._timer_number = 0

    @property
    def now_ms(self) -> float:
        """The clock's time, by which timers expire."""
        passed_us = self._clock.now_us - self._own_since_us
        return (self._own_us + passed_us * self.speed) / MICROSECONDS_PER_MILLISECOND

    @property
    def awake_ms(self) -> float:
        """The clock's time without the machine's pauses: a timer that expires during a pause is noticed after it."""
        now_ms = self.now_ms if self._paused_since_ms is None else self._paused_since_ms
        return now_ms - self._paused_ms

    def pause(self) -> None:
        """Note that the machine pauses; the clock continues."""
        if self._paused_since_ms is None:
            self._paused_since_ms = self.now_ms

    def go_on(self) -> None:
        """Note that the machine's pause ends."""
        if self._paused_since_ms is not None:
            self._paused_ms += self.now_ms - self._paused_since_ms
            self._paused_since_ms = None

    def set_speed(self, speed: float) -> None:
        """Change the clock's speed from now on; the remaining time of each running timer changes accordingly."""
        self._own_us, self._own_since_us = self.now_ms * MICROSECONDS_PER_MILLISECOND, self._clock.now_us
        before, self.speed = self.speed, speed
        if speed == before:
            return
        for timer, armed in list(self._timers.items()):
            left_us = max(0, armed.expires_us - self._clock.now_us)
            self._arm(timer, round(left_us * before / speed))

    def set_timer(self, timer: TimerName, delay_ms: int) -> None:
        """Start or restart a timer."""
        delay_us = delay_ms * MICROSECONDS_PER_MILLISECOND
        self._arm(timer, delay_us if self.speed == 1.0 else round(delay_us / self.speed))

    def cancel_timer(self, timer: TimerName) -> None:
        """Stop a timer, if it runs."""
        self._timers.pop(timer, None)

    def cancel_all(self) -> None:
        """Stop every timer."""
        self._timers.clear()

    def _arm(self, timer: TimerName, delay_us: int) -> None:
        self._timer_number += 1
        armed = self._timers[timer] = _Armed(self._timer_number, self._clock.now_us + delay_us)

        def expire() -> None:
            if self._timers.get(timer) == armed:
                del self._timers[timer]
                self._expire(timer)

        self._later(delay_us, f"timer {timer.owner} {timer.number}", b"", expire)
