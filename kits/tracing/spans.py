"""Spans and their ids, without OpenTelemetry.

Ids follow from the run and from the hash of a transaction or the id of a timer. So a span can link to a trace that is
not exported yet, and a driver that takes a run over goes on with the traces of the one before. The last eight bytes of
a trace id are the first eight of that hash: by them OpenTelemetry's samplers choose, so equal runs trace the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from blake3 import blake3

Value = str | int | float | bool
HALF_BYTES: Final = 8
"""Bytes of a span id, and of each half of a trace id."""
NO_PARENT: Final = 0
ROOT: Final = "root"
CHAIN: Final = ""
"""Service of spans that belong to no single validator."""


class Link(NamedTuple):
    """A link to the first span of another trace, with the relation to it in words."""

    trace_id: int
    relation: str


class SpanEvent(NamedTuple):
    """A moment within a span, in milliseconds since the run began."""

    name: str
    at_ms: float


@dataclass(frozen=True, slots=True)
class Span:
    """A span. Times are milliseconds since the run began."""

    trace_id: int
    span_id: int
    parent_id: int
    """:data:`NO_PARENT` for the first span of a trace."""
    name: str
    start_ms: float
    end_ms: float
    service: str = CHAIN
    """The validator's name, or :data:`CHAIN`."""
    attributes: Mapping[str, Value] = field(default_factory=dict)
    events: Sequence[SpanEvent] = ()
    links: Sequence[Link] = ()
    error: str = ""
    """The reason for which what the span describes failed; empty if it did not."""
    why: str = ""
    """The error in words, and its line; empty if they are not known."""


def trace_id_of(run: bytes, key: bytes) -> int:
    """The id of the trace of a transaction or timer (``key``) in a run."""
    return int.from_bytes(blake3(run + key).digest(HALF_BYTES) + key[:HALF_BYTES], "big")


def span_id_of(trace_id: int, path: str) -> int:
    """The id of a span, by its path within the trace."""
    return int.from_bytes(blake3(trace_id.to_bytes(2 * HALF_BYTES, "big") + path.encode()).digest(HALF_BYTES), "big")


def root_of(trace_id: int) -> int:
    """The id of the first span of a trace."""
    return span_id_of(trace_id, ROOT)
