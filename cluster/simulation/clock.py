"""Virtual time: a queue of calls and messages ordered by time, and by the order in which they were put there.

Time is counted in whole microseconds, so that no rounding of floats decides an order. Everything that runs is hashed
into a rolling digest with what it says of itself: equal digests mean equal runs, event by event. A message's bytes are
hashed once, when it is sent; each delivery refers to them by the message's number.

Messages are most of a run, so a message on its way is one flat tuple of numbers and bytes, which the garbage collector
does not even look at, and the digest is fed in batches.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from blake3 import blake3

MICROSECONDS_A_MILLISECOND: Final = 1_000
NO_SENDER: Final = -1
DIGEST_BATCH_BYTES: Final = 1 << 16
TRACE_DIGEST_BYTES: Final = 8

_DELIVERY: Final = Struct("<qqii")


class _Call(NamedTuple):
    label: str
    content: bytes
    run: Callable[[], None]


_Entry = tuple[int, int, int, int, int, bytes | _Call]
"""When, the entry's number, sender and recipient of a message or :data:`NO_SENDER`, its number, its bytes or a call."""


class VirtualClock:
    """Runs calls and delivers messages in virtual time."""

    def __init__(self) -> None:
        self.deliver: Callable[[int, int, bytes], None] = _to_nobody
        """``deliver(sender, recipient, payload)`` takes the messages that arrive."""
        self._queue: list[_Entry] = []
        self._number = 0
        self._messages = 0
        self._digest = blake3()
        self._undigested = bytearray()
        self.now_us = 0
        self.events = 0
        self.last_label = ""
        """What the last event said of itself; kept up where :attr:`keeps_labels`."""
        self.keeps_labels = False

    @property
    def now_ms(self) -> float:
        """Milliseconds since the run began."""
        return self.now_us / MICROSECONDS_A_MILLISECOND

    @property
    def next_us(self) -> int:
        """When the next event is; now, where there is none."""
        return self._queue[0][0] if self._queue else self.now_us

    def after(self, delay_us: int, label: str, content: bytes, call: Callable[[], None]) -> None:
        """Run ``call`` after a delay. ``label`` and ``content`` say what it is, for the digest."""
        entry = (self.now_us + delay_us, self._number, NO_SENDER, 0, 0, _Call(label, content, call))
        heapq.heappush(self._queue, entry)
        self._number += 1

    def take_message(self, payload: bytes) -> int:
        """Hash a message that is sent now; returns its number."""
        self._messages += 1
        self._note(payload)
        return self._messages

    def deliver_at(self, at_us: int, sender: int, recipient: int, message: int, payload: bytes) -> None:
        """Deliver a message, by its number, at a time that is not past."""
        heapq.heappush(self._queue, (at_us, self._number, sender, recipient, message, payload))
        self._number += 1

    def step(self) -> bool:
        """Run the next call or deliver the next message; ``False`` where there is none."""
        if not self._queue:
            return False
        at_us, _, sender, recipient, message, what = heapq.heappop(self._queue)
        self.now_us = at_us
        self.events += 1
        if isinstance(what, bytes):
            self._undigested += _DELIVERY.pack(at_us, message, sender, recipient)
            if self.keeps_labels:
                self.last_label = f"message {message} {sender}>{recipient}, {len(what)} bytes"
            self.deliver(sender, recipient, what)
        else:
            self._note(f"{at_us} {what.label} ".encode())
            self._note(what.content)
            if self.keeps_labels:
                self.last_label = what.label
            what.run()
        if len(self._undigested) > DIGEST_BATCH_BYTES:
            self._flush()
        return True

    def digest(self) -> str:
        """Hash over every event so far and all messages sent, as hex."""
        self._flush()
        return self._digest.hexdigest()

    def trace_line(self) -> str:
        """The last event, when it was, and the rolling digest after it; needs :attr:`keeps_labels`."""
        self._flush()
        digest = self._digest.digest(length=TRACE_DIGEST_BYTES).hex()
        return f"{self.events}\t{self.now_us}\t{digest}\t{self.last_label}"

    def _note(self, data: bytes) -> None:
        self._undigested += len(data).to_bytes(4, "little")
        self._undigested += data

    def _flush(self) -> None:
        self._digest.update(self._undigested)
        self._undigested.clear()


def _to_nobody(_sender: int, _recipient: int, _payload: bytes) -> None:
    raise AssertionError("nobody takes messages")
