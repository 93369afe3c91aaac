"""Values of options that are parsed before a command runs."""

from __future__ import annotations

import argparse

import pytest

from cluster.commands.console.options import COLLECTOR_VARIABLES, parse_collector


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in COLLECTOR_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/traces"),
        ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
        ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
        ("https://traces.example/otlp?key=1", "https://traces.example/otlp/v1/traces?key=1"),
        ("https://traces.example/mine/v1/traces", "https://traces.example/mine/v1/traces"),
    ],
)
def test_the_path_of_traces_is_appended(given: str, address: str) -> None:
    assert parse_collector(given) == address


@pytest.mark.parametrize(
    "given",
    [
        "",
        "localhost:4318",
        "ftp://x",
        "http://",
        "http://x:0",
        "http://x:99999",
        "http://[::1",
        "http://a b",
        "http://a\n",
    ],
)
def test_what_is_no_url_is_refused(given: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no URL of a collector: expected one such as http://"):
        parse_collector(given)


def test_the_address_may_be_in_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="neither OTEL_EXPORTER_OTLP_TRACES_ENDPOINT nor OTEL_"):
        parse_collector("env")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1")
    assert parse_collector("env") == "http://a:1/v1/traces"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://b:2/whole")
    assert parse_collector("env") == "http://b:2/whole"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "b")
    with pytest.raises(argparse.ArgumentTypeError, match="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'b' is no URL"):
        parse_collector("env")
