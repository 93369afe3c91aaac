"""Virtual time: a queue of calls and messages, ordered by time, then by insertion.

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
