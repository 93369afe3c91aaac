"""A collector of OpenTelemetry on the loopback address, which decodes what it gets with the package's own messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

ERROR = 2
"""The code of a status that is an error."""


@dataclass(frozen=True)
class GotSpan:
    """A span as it came over the wire. Times are nanoseconds since the epoch."""

    trace: bytes
    span: bytes
    parent: bytes
    name: str
    start: int
    end: int
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]
    links: tuple[tuple[bytes, bytes, str], ...] = ()
    """Trace, span and relation of each."""
    error: str = ""

    @property
    def service(self) -> str:
        return str(self.resource["service.name"])


@dataclass
class Collector:
    """What came, and how the collector answers."""

    status: int = 200
    hangs: bool = False
    spans: list[GotSpan] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    url: str = ""


def _plain(attributes: Any) -> dict[str, Any]:
    def value(each: KeyValue) -> Any:
        kind = each.value.WhichOneof("value")
        return None if kind is None else getattr(each.value, kind)

    return {each.key: value(each) for each in attributes}


def read(body: bytes) -> Iterator[GotSpan]:
    """The spans of a request."""
    for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = _plain(of_resource.resource.attributes)
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield GotSpan(
                    span.trace_id,
                    span.span_id,
                    span.parent_span_id,
                    span.name,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    _plain(span.attributes),
                    resource,
                    tuple(
                        (each.trace_id, each.span_id, _plain(each.attributes)["stampede.relation"])
                        for each in span.links
                    ),
                    span.status.message if span.status.code == ERROR else "",
                )


@contextmanager
def collecting(collector: Collector | None = None) -> Iterator[Collector]:
    """Serve a collector. What hangs is let go at the end."""
    found = Collector() if collector is None else collector

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.headers.append({name.lower(): value for name, value in self.headers.items()})
            found.asked.set()
            if found.hangs:
                found.released.wait()
                return
            if found.status == 200:
                found.spans.extend(read(body))
            self.send_response(found.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        found.url = f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
        try:
            yield found
        finally:
            found.released.set()
            server.shutdown()
            thread.join()
