"""The table of checks and the verdict on the terminal."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from cluster.checks.run import check_run
from cluster.commands.run.ending import print_verdict
from cluster.record.finalizations import Finalizations
from tests.cluster.records import make_record


def plain_console(width: int = 100) -> tuple[Console, io.StringIO]:
    output = io.StringIO()
    return Console(file=output, width=width, force_terminal=False, color_system=None), output


def test_the_verdict_of_a_pass_names_checks_and_report() -> None:
    console, output = plain_console()
    print_verdict(console, check_run(make_record()), Path("runs/x/report.html"), "stampede run x.yaml --seed 1")
    text = output.getvalue()
    assert "✓ pass  agreement" in text
    assert "verdict  pass" in text
    assert "report   runs/x/report.html" in text
    assert "stampede run" not in text
    assert all(len(line) <= 100 for line in text.splitlines())


def test_the_line_of_the_verdict_says_which_check_and_why() -> None:
    console, output = plain_console(width=60)
    record = make_record()
    record.problems = ["the load generator died"]
    record.finalizations = Finalizations([record.finalizations[0]])
    verdict = check_run(record)
    print_verdict(console, verdict, Path("runs/x/report.html"), "stampede run x.yaml")
    (line,) = [line for line in output.getvalue().splitlines() if line.startswith("verdict")]
    assert verdict.decisive is not None
    assert line.startswith(f"verdict  {verdict.outcome.value}: {verdict.decisive.name}: {verdict.decisive.detail}")
    others = [c.name for c in verdict.checks if c.verdict is verdict.outcome and c is not verdict.decisive]
    assert all(name in line for name in others)


def test_the_verdict_of_a_failure_ends_with_the_command_that_reproduces_it() -> None:
    console, output = plain_console(width=60)
    record = make_record()
    record.problems = ["a problem with [brackets] " * 10]
    command = "stampede run scenarios/a-long-name.yaml --backend sim --seed 123456789  # at commit 0123456789ab"
    print_verdict(console, check_run(record), Path("runs/x/report.html"), command)
    assert output.getvalue().splitlines()[-1] == f"again    {command}"
    assert "[brackets]" in output.getvalue()
    assert "✕ fail" in output.getvalue()
