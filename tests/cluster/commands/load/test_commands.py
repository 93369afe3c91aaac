"""Options of ``stampede load``: their addresses, and which of them would change nothing beside others."""

from __future__ import annotations

import argparse

import pytest

from cluster.commands.cli.main import main
from cluster.commands.load.commands import Load
from cluster.common.errors import ExitCode

NOBODY = ["--target", "http://127.0.0.1:9"]


@pytest.mark.parametrize(
    ("option", "address"),
    [
        (["--ui"], "127.0.0.1:8089"),
        (["--ui", "0.0.0.0"], "0.0.0.0:8089"),
        (["--ui", "0.0.0.0:80"], "0.0.0.0:80"),
        (["--listen", "0.0.0.0"], "0.0.0.0:5557"),
        (["--listen", "0.0.0.0:80"], "0.0.0.0:80"),
    ],
)
def test_an_address_without_a_port_has_that_of_its_option(option: list[str], address: str) -> None:
    parser = argparse.ArgumentParser()
    Load.add_to(parser)
    options = parser.parse_args(["smoke", *NOBODY, *option])
    assert getattr(options, option[0].removeprefix("--")) == address


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["smoke", "--users", "3"], "--users: only with --workload; --set changes a scenario"),
        (["smoke", "--interval-ms", "1000"], "--interval-ms: only with --workload; --set changes a scenario"),
        (["smoke", "--option", "a=1"], "--option: only with --workload; --set changes a scenario"),
        (["--workload", "flood", "--set", "seed=1"], "--set: only with SCENARIO; --option changes a workload"),
        (["smoke", "--write-plan", "a", "--find-knee"], "--find-knee: not with --write-plan, which starts no load"),
        (["smoke", "--write-plan", "a", "--json", "b"], "--json: not with --write-plan"),
        (["smoke", "--write-plan", "a", "--workers", "2"], "--workers: not with --write-plan"),
        (["smoke", "--write-plan", "a", "--listen", "b"], "--listen: not with --write-plan"),
        (["smoke", "--write-plan", "a", "--ui"], "--ui: not with --write-plan"),
        (["smoke", "--p99-ms", "2000"], "--p99-ms: only with --find-knee; --for says how long"),
        (["smoke", "--step", "15s"], "--step: only with --find-knee; --for says how long"),
        (["smoke", "--find-knee", "--for", "9s"], "--for: not with --find-knee; --step says how long"),
        (["smoke", "--find-knee", "--ui"], "--ui: not with --find-knee; --step says how long"),
        (["smoke", "--workload", "flood"], "expected either SCENARIO or --workload NAME"),
        ([], "expected either SCENARIO or --workload NAME"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(
    options: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even with the value that it has by default."""
    assert main(["load", *options, *NOBODY]) == ExitCode.BAD_INPUT
    assert capsys.readouterr().err.startswith(f"stampede: {line}")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("https://127.0.0.1:9", "https is not supported; expected http://host:port"),
        ("127.0.0.1:9", "expected http://host:port"),
        ("ftp://127.0.0.1:9", "expected http://host:port"),
    ],
)
def test_a_target_is_asked_by_plain_http(target: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["load", "smoke", "--target", target]) == ExitCode.BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"stampede: argument --target: {target!r}: {words}")
