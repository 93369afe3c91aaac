"""The export: every span is counted, and no collector holds a run up."""

from __future__ import annotations

import logging
import os
import time
from unittest.mock import patch

import pytest

from cluster.common.checkout import keep_out
from kits.tracing import otlp
from kits.tracing.otlp import Exported, SpanExport, plain_reason
from kits.tracing.spans import NO_PARENT, Link, Span, SpanEvent
from tests.hangs import HANGS_AFTER_S
from tests.kits.tracing.collector import Collector, collecting
from tests.ports import free_ports

TRACE = 5 << 64 | 7
BEGAN_MS = 1_700_000_000_000.125
WAIT_S = 0.05
EXPORTERS_TIMEOUT_S = 10.0
"""How long OpenTelemetry's exporter waits for an answer."""


def span(number: int = 6) -> Span:
    return Span(TRACE, number, NO_PARENT, "transaction call", 1.5, 2.25)


def test_a_span_is_as_it_was() -> None:
    whole = Span(
        TRACE,
        6,
        9,
        "fire",
        1.5,
        2.25,
        "validator-2",
        {"stampede.block.height": 7, "stampede.block.proposer": "validator-1"},
        [SpanEvent("final", 2.0)],
        [Link(TRACE, "schedules")],
        "OutOfGas",
    )
    with collecting() as collector:
        export = SpanExport(collector.url, {"service.version": "1", "stampede.backend": "live"})
        export.add([whole], BEGAN_MS)
        assert export.close(HANGS_AFTER_S) == Exported(1, 0, "")
    (found,) = collector.spans
    assert (found.trace, found.span, found.parent) == (
        TRACE.to_bytes(16, "big"),
        b"\0" * 7 + b"\x06",
        b"\0" * 7 + b"\x09",
    )
    assert (found.name, found.service, found.error) == ("fire", "validator-2", "OutOfGas")
    assert found.end - found.start == 750_000 and round(found.start / 1_000) == 1_700_000_000_001_625
    assert found.attributes == {**whole.attributes, "error.type": "OutOfGas"}
    assert found.resource["stampede.backend"] == "live" and found.links[0][2] == "schedules"


@patch.dict(os.environ)
def test_a_collector_on_this_machine_is_reached_without_the_users_proxy() -> None:
    os.environ["http_proxy"] = "http://127.0.0.1:9"  # where nothing listens
    keep_out()  # as the command does
    with collecting() as collector:
        export = SpanExport(collector.url, {})
        export.add([span()], BEGAN_MS)
        assert export.close(HANGS_AFTER_S) == Exported(1, 0, "")


def test_variables_of_opentelemetry_are_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=chains")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=lab")
    with collecting() as collector:
        export = SpanExport(collector.url, {})
        export.add([span()], BEGAN_MS)
        export.close(HANGS_AFTER_S)
    (found,) = collector.spans
    assert collector.headers[0]["x-team"] == "chains"
    assert (found.service, found.resource["deployment.environment.name"]) == ("mine", "lab")


@pytest.mark.parametrize(
    ("collector", "reason"),
    [
        (Collector(status=500), "it answered 500 Internal Server Error"),
        (Collector(status=503), "it answered Service Unavailable"),
        (Collector(hangs=True), "it did not take them within 0.05 s"),
    ],
)
def test_what_is_not_exported_is_counted(collector: Collector, reason: str, capfd: pytest.CaptureFixture[str]) -> None:
    with collecting(collector):
        export = SpanExport(collector.url, {})
        export.add([span(), span(8)], BEGAN_MS)
        assert collector.asked.wait(HANGS_AFTER_S)
        while collector.status != 200 and not export._reason.text:
            os.sched_yield()
        begun_s = time.monotonic()
        found = export.close(WAIT_S)
        assert time.monotonic() - begun_s < EXPORTERS_TIMEOUT_S
        assert (found.exported, found.left_out, found.reason) == (0, 2, reason)
    assert capfd.readouterr().err == ""


def test_a_collector_that_is_not_there_is_said_so(capfd: pytest.CaptureFixture[str]) -> None:
    export = SpanExport(f"http://127.0.0.1:{free_ports()}/v1/traces", {})
    export.add([span()], BEGAN_MS)
    while not export._reason.text:
        os.sched_yield()
    found = export.close(WAIT_S)
    assert (found.exported, found.left_out, found.reason) == (0, 1, "Connection refused")
    export._thread.join(HANGS_AFTER_S)
    assert capfd.readouterr().err == "" and export._reason not in logging.getLogger("opentelemetry").handlers


def test_exports_at_the_same_time_do_not_hear_each_others_reasons() -> None:
    with collecting(Collector(status=500)) as collector:
        refused = SpanExport(f"http://127.0.0.1:{free_ports()}/v1/traces", {})
        answered = SpanExport(collector.url, {})
        for export in (refused, answered):
            export.add([span()], BEGAN_MS)
        while not (refused._reason.text and answered._reason.text):
            os.sched_yield()
        reasons = [export.close(WAIT_S).reason for export in (answered, refused)]
    assert reasons == ["it answered 500 Internal Server Error", "Connection refused"]
    for export in (refused, answered):
        export._thread.join(HANGS_AFTER_S)
    assert logging.getLogger("opentelemetry").propagate


def test_the_queue_is_bounded_and_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "QUEUE_SPANS", 10)
    with collecting(Collector(hangs=True)) as collector:
        export = SpanExport(collector.url, {})
        export.add([span()], BEGAN_MS)
        assert collector.asked.wait(HANGS_AFTER_S)
        export.add([span(number) for number in range(10, 60)], BEGAN_MS)
        assert len(export._queue) == 10
        assert export.close(WAIT_S).left_out == 51


def test_the_end_of_a_run_waits_for_a_collector_that_answers_and_once_for_one_that_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(otlp, "QUEUE_SPANS", 10)
    monkeypatch.setattr(otlp, "BATCH_SPANS", 2)
    with collecting() as collector:
        export = SpanExport(collector.url, {})
        for number in range(1, 41):
            export.add([span(number)], BEGAN_MS)
            export.wait_for_room()
        assert export.close(HANGS_AFTER_S) == Exported(40, 0, "")
    monkeypatch.setattr(otlp, "LAST_WAIT_S", WAIT_S)
    with collecting(Collector(hangs=True)) as collector:
        export = SpanExport(collector.url, {})
        waits: list[float] = []
        monkeypatch.setattr(export._progress, "wait", lambda wait_s: waits.append(wait_s) is not None)
        for number in range(1, 401):
            export.add([span(number)], BEGAN_MS)
            export.wait_for_room()
        assert waits == [WAIT_S]
        assert export.close(WAIT_S).left_out == 400


def test_a_slow_collector_gets_what_it_takes_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "BATCH_SPANS", 5)
    with collecting() as collector:
        export = SpanExport(collector.url, {})
        export.add([span(number) for number in range(1, 24)], BEGAN_MS)
        found = export.close(HANGS_AFTER_S)
    assert (found.exported, found.left_out) == (23, 0) and len(collector.headers) == 5


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("… (Caused by NameResolutionError(\"HTTPConnection(host='x', port=80)", "its name is unknown"),
        (
            "Transient error HTTPConnectionPool: Read timed out. encountered",
            "it did not answer in time",
        ),
        ("something else", "something else"),
    ],
)
def test_reasons_are_plain(text: str, reason: str) -> None:
    assert plain_reason(text) == reason
