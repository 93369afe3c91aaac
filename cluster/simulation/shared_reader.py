"""Reads each payload once for all validators of a simulation that get it.

What is read is frozen throughout, and a function of the bytes alone: it is handed to each recipient with the bytes
(:class:`validator.node.events.Message`), and whether to believe it is for each of them to find out. What was read is
remembered up to a bound in bytes, the oldest forgotten first: a broadcast reaches everybody soon after it was sent, or
is read again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from validator.chain.messages import Reading, read_message
from validator.primitives.codec import CodecError

REMEMBERED_BYTES: Final = 32 << 20
"""Payload bytes of which it is remembered what they say; decoded they take some five times as much."""


class SharedReader:
    """One simulation's; its validators do not hold it."""

    def __init__(self, remembered_bytes: int = REMEMBERED_BYTES) -> None:
        self._most = remembered_bytes
        self._read: OrderedDict[bytes, Reading] = OrderedDict()
        self._bytes = 0

    def read(self, payload: bytes) -> Reading | None:
        """The message in a payload; ``None`` if it cannot be read, for the recipient to find out."""
        known = self._read.get(payload)
        if known is not None:
            return known
        try:
            known = self._read[payload] = read_message(payload)
        except CodecError:
            return None
        self._bytes += len(payload)
        while self._bytes > self._most:
            self._bytes -= len(self._read.popitem(last=False)[0])
        return known
