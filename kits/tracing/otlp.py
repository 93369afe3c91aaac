"""Exports spans over OTLP (HTTP, protobuf), on a thread next to the run.

The exporter is OpenTelemetry's. It reads ``OTEL_EXPORTER_OTLP_HEADERS``, ``…_TIMEOUT``, ``…_COMPRESSION`` and
``…_CERTIFICATE``. The queue in front of it is ours, because the one of the SDK neither counts what it drops nor bounds
its end: here a run never waits for the collector, except for :data:`LAST_WAIT_S` at its end, and every span that was
not exported is counted. Spans are made of records after the fact, so they are :class:`ReadableSpan` from the start.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link as OtelLink
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from cluster.common.errors import BadInput
from cluster.common.units import NANOSECONDS_PER_MILLISECOND
from kits.tracing.spans import CHAIN, NO_PARENT, Link, Span, root_of

QUEUE_SPANS: Final = 1 << 16
"""Bound for the spans that wait. New ones are dropped beyond it."""
BATCH_SPANS: Final = 512
"""Bound for the spans of a request."""
LAST_WAIT_S: Final = 5.0
"""How long the end of a run waits for the spans that are left, in seconds."""
SCOPE: Final = "stampede"
DISABLED_VARIABLE: Final = "OTEL_SDK_DISABLED"
SERVICE_VARIABLE: Final = "OTEL_SERVICE_NAME"
ANSWER: Final = re.compile(r"code: (?P<code>[0-9]+), reason: (?P<words>.+)")
RETRIED: Final = re.compile(r"Transient error (?P<words>[A-Za-z ]+) encountered")
SYSTEM_ERROR: Final = re.compile(r"\[Errno -?[0-9]+\] (?P<words>[\w ]+)")
OF_THE_END: Final = ("Shutdown in progress", "Failed to export spans batch due to")
"""Beginnings of lines that say that an export was given up, and not why."""
MAX_REASON: Final = 200
"""Characters of the collector's answer that are shown."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What became of a run's spans."""

    exported: int
    left_out: int
    """Spans that the collector did not take."""
    reason: str
    """Why, in the exporter's words; empty if that is not known."""


class SpanExport:
    """Exports the spans of one run. :meth:`close` ends it."""

    def __init__(self, url: str, facts: Mapping[str, str], exporter: SpanExporter | None = None) -> None:
        """``facts`` are attributes of the run, the same for all its spans.

        Raises :class:`BadInput` if one of OpenTelemetry's variables is wrong.
        """
        self._reason = _Reason()
        self._resources = _Resources(facts)
        self._exporter = _exporter(url) if exporter is None else exporter
        self._queue: deque[tuple[float, Span]] = deque()
        self._added = self._exported = 0
        self._awake, self._progress = threading.Event(), threading.Event()
        self._has_stalled = False
        self._deadline_s: float | None = None
        """When the thread must have ended (monotonic seconds); ``None`` as long as the run goes on."""
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def add(self, spans: Iterable[Span], began_epoch_ms: float) -> None:
        """Queue spans, and drop what finds no room. Never waits. The run began at ``began_epoch_ms``."""
        for span in spans:
            self._added += 1
            if len(self._queue) < QUEUE_SPANS:
                self._queue.append((began_epoch_ms, span))
        if self._queue:
            self._awake.set()

    def wait_for_room(self) -> None:
        """Wait until half of the queue is free, as long as the collector answers within :data:`LAST_WAIT_S`.

        It is for a run that is over: its spans are made faster than they are exported.
        """
        while len(self._queue) > QUEUE_SPANS // 2 and not self._has_stalled:
            self._progress.clear()
            self._has_stalled = not self._progress.wait(LAST_WAIT_S)

    def close(self, wait_s: float = LAST_WAIT_S) -> Exported:
        """Export what is left, for at most ``wait_s`` seconds. Returns what became of all spans."""
        self._deadline_s = time.monotonic() + wait_s
        self._awake.set()
        self._thread.join(wait_s)
        exported, is_late = self._exported, self._thread.is_alive()
        self._queue.clear()
        reason = self._reason.text or (f"it did not take them within {wait_s:g} s" if is_late else "")
        self._exporter.shutdown()
        return Exported(exported, self._added - exported, reason)

    def _run(self) -> None:
        self._reason.thread = threading.get_ident()
        with closing(self._reason):
            while self._deadline_s is None or (self._queue and not self._is_late):
                self._awake.wait()
                self._awake.clear()
                while self._queue and not self._is_late:
                    count = min(len(self._queue), BATCH_SPANS)
                    self._send([self._queue.popleft() for _ in range(count)])

    @property
    def _is_late(self) -> bool:
        return self._deadline_s is not None and time.monotonic() >= self._deadline_s

    def _send(self, batch: Sequence[tuple[float, Span]]) -> None:
        readable = [self._resources.readable(span, began_epoch_ms) for began_epoch_ms, span in batch]
        if self._exporter.export(readable) is SpanExportResult.SUCCESS:
            self._exported += len(batch)
        self._progress.set()


def is_disabled() -> bool:
    """Whether OpenTelemetry's variable switches all export off."""
    return os.environ.get(DISABLED_VARIABLE, "").strip().lower() == "true"


def _exporter(url: str) -> SpanExporter:
    try:  # it reads OpenTelemetry's variables when it is imported
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(url)
    except (ValueError, OSError) as error:
        raise BadInput(f"--otlp: OpenTelemetry's variables: {' '.join(str(error).split())[:MAX_REASON]}") from None


class _Resources:
    """The resource of each service, and spans in the form of OpenTelemetry."""

    def __init__(self, facts: Mapping[str, str]) -> None:
        self._facts = facts
        self._scope = InstrumentationScope(SCOPE, facts.get("service.version"))
        self._made: dict[str, Resource] = {}

    def of(self, service: str) -> Resource:
        """The resource of a validator, or of the chain. ``OTEL_RESOURCE_ATTRIBUTES`` adds to it."""
        if service not in self._made:
            name = service if service != CHAIN else os.environ.get(SERVICE_VARIABLE) or SCOPE
            self._made[service] = Resource.create({**self._facts, "service.name": name})
        return self._made[service]

    def readable(self, span: Span, began_epoch_ms: float) -> ReadableSpan:
        """A span for the exporter."""

        def nanoseconds(at_ms: float) -> int:
            # apart, since their sum has less than a microsecond's precision as a float
            return round(began_epoch_ms * NANOSECONDS_PER_MILLISECOND) + round(at_ms * NANOSECONDS_PER_MILLISECOND)

        def link(each: Link) -> OtelLink:
            return OtelLink(_context(each.trace_id, root_of(each.trace_id)), {"stampede.relation": each.relation})

        attributes, told = dict(span.attributes), ": ".join(filter(None, (span.error, span.why)))
        if span.error:
            attributes["error.type"] = span.error
        return ReadableSpan(
            span.name,
            _context(span.trace_id, span.span_id),
            None if span.parent_id == NO_PARENT else _context(span.trace_id, span.parent_id),
            self.of(span.service),
            attributes,
            [Event(each.name, None, nanoseconds(each.at_ms)) for each in span.events],
            [link(each) for each in span.links],
            SpanKind.SERVER if span.parent_id == NO_PARENT else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, told) if told else Status(StatusCode.UNSET),
            start_time=nanoseconds(span.start_ms),
            end_time=nanoseconds(span.end_ms),
            instrumentation_scope=self._scope,
        )


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, False, TraceFlags(TraceFlags.SAMPLED))


def plain_reason(text: str) -> str:
    """Why spans were not exported, from a line that the exporter logs: an answer of the collector, or an error of the
    connection without the calls in which it occurred."""
    if found := ANSWER.search(text):
        return f"it answered {found['code']} {found['words']}"
    if found := RETRIED.search(text):
        return f"it answered {found['words']}"
    if found := SYSTEM_ERROR.search(text):
        return found["words"]
    if "NameResolutionError" in text:
        return "its name is unknown"
    if "timed out" in text or "Timeout" in text:
        return "it did not answer in time"
    return text[:MAX_REASON]


class _Reason(logging.Handler):
    """Takes what OpenTelemetry logs, which would be printed otherwise, and keeps the newest line of one
    thread."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""
        self.thread: int | None = None
        """The thread whose lines are kept, once it runs."""
        self._logger = logging.getLogger("opentelemetry")
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        text = " ".join(record.getMessage().split())
        if record.thread == self.thread and not text.startswith(OF_THE_END):
            self.text = plain_reason(text)

    def close(self) -> None:
        self._logger.removeHandler(self)
        super().close()
