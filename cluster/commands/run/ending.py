"""The end of a run: its books, its verdict, and the files, the text and the outputs that show it.

A process loads this module once the run is over: no testnet waits for checks and report.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cluster.audit.books import keep_books
from cluster.audit.reexecution.again import execute_again
from cluster.audit.reexecution.describe import lines
from cluster.checks.kind import Judged
from cluster.checks.run import Judge, judge_run
from cluster.checks.verdict import Check, Verdict
from cluster.commands.console.outputs import Ending, Part
from cluster.commands.console.terminal import STYLES
from cluster.commands.run.reasons import note_reasons
from cluster.common.checkout import version
from cluster.common.errors import BadInput
from cluster.common.interrupts import Interrupts
from cluster.common.outcome import SIGNS, Outcome, worst
from cluster.record.run import RunRecord
from cluster.report.junit import run_xml
from cluster.report.results import finish_run, result_of
from cluster.report.tables import tiles
from cluster.scenario.files import scenario_hash


def finish(
    record: RunRecord,
    folder: Path,
    interrupts: Interrupts,
    scenario_path: Path | None = None,
    judge: Judge | None = None,
    is_again: bool = False,
) -> Judged:
    """Judge a run and write its folder. After a signal, the run counts as interrupted.

    The blocks of a user's policy are executed again before (:mod:`cluster.audit.reexecution.again`), and so are those
    in which programs failed (:mod:`cluster.commands.run.reasons`).
    If the signal comes during the writing, all files are written again, so that files and exit code agree. If a file
    cannot be written, the verdict is at best inconclusive, and the others say so.
    """
    if not record.interrupted and not interrupts.seen:
        execute_again(record, folder)
    books = keep_books(record)
    if not record.interrupted and not interrupts.seen:
        note_reasons(books)
    while True:
        record.interrupted = record.interrupted or interrupts.seen
        judged = judge_run(record, books, judge)
        try:
            finish_run(record, folder, scenario_path, judged, is_again=is_again)
        except BadInput as error:
            judged.verdict = _unwritten(judged.verdict, str(error))
            with suppress(BadInput):
                finish_run(record, folder, scenario_path, judged, is_again=is_again)
            return judged
        if record.interrupted or not interrupts.seen:
            return judged


def _unwritten(verdict: Verdict, problem: str) -> Verdict:
    """The verdict of a run of which a file could not be written: at best inconclusive. ``problem`` is the reason."""
    checks = tuple(
        check
        if check.name != "no_problems"
        else Check(check.name, worst([check.verdict, Outcome.INCONCLUSIVE]), f"{problem}; {check.detail}")
        for check in verdict.checks
    )
    return replace(verdict, outcome=worst([verdict.outcome, Outcome.INCONCLUSIVE]), checks=checks)


def print_verdict(console: Console, verdict: Verdict, report: Path | None, reproduce: str, quiet: bool = False) -> None:
    """Print the table of checks, the verdict with its reason, and the report's path.

    If the run did not pass, also print the command that repeats it. With ``quiet`` the table has only the checks that
    did not pass, and no blank lines are printed.
    """
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in verdict.checks:
        if quiet and check.verdict is Outcome.PASS:
            continue
        state = Text(f"{SIGNS[check.verdict]} {check.verdict.value}", style=STYLES[check.verdict])
        if not check.applies:
            state = Text("– n/a", style="dim")
        table.add_row(state, check.name, Text(check.detail))
    if not quiet:
        console.print()
    if table.rows:
        console.print(table)
    for page in verdict.divergences:
        console.print()
        console.print(Text("\n".join(lines(page))), soft_wrap=True)
    if not quiet:
        console.print()
    for warning in verdict.warnings:
        console.print(Text(f"warning  {warning}", style="yellow"), soft_wrap=True)
    line = Text.assemble("verdict  ", (verdict.outcome.value, STYLES[verdict.outcome]), _why(verdict))
    console.print(line, soft_wrap=True)
    console.print(Text(f"report   {report or 'could not be written'}"), soft_wrap=True)
    if verdict.outcome is not Outcome.PASS:
        console.print(Text(f"again    {reproduce}"), soft_wrap=True)


def _why(verdict: Verdict) -> str:
    """Text after the verdict: the check that decided it, the reason, and the other checks with the same outcome."""
    alike = [check.name for check in verdict.checks if check.verdict is verdict.outcome]
    others = f" (so did {', '.join(alike[1:])})" if verdict.reason and alike[1:] else ""
    return f": {verdict.reason}{others}" if verdict.reason else ""


def print_kept(console: Console, endpoints: Path) -> None:
    """Print that the testnet is still running, idle, and where its endpoints are listed."""
    console.print(Text(f"kept     the testnet is idle and still serves its pages (see {endpoints}); Ctrl-C ends it"))


def print_traces(console: Console, line: str, is_complete: bool, quiet: bool = False) -> None:
    """Print what became of a run's spans. With ``quiet`` only if some were not exported."""
    if not is_complete or not quiet:
        console.print(Text(f"traces   {line}", style="" if is_complete else "yellow"), soft_wrap=True)


def ending_of(judged: Judged, reproduce: str, date: datetime) -> Ending:
    """Describe the end of a judged run. ``reproduce`` is the command that repeats it, ``date`` is now, in UTC."""
    record, verdict = judged.books.record, judged.verdict
    is_drill = record.drill is not None
    return Ending(
        title=record.scenario.name if is_drill else f"run {record.scenario.name}",
        outcome=verdict.outcome,
        parts=[
            Part(check.name, check.verdict, check.detail)
            for check in verdict.checks
            if check.verdict is not Outcome.PASS
        ],
        kind="check",
        figures={name: f"{value} {unit}".strip() for name, value, unit in tiles(judged.metrics)},
        facts={
            "backend": record.backend,
            "seed": str(record.seed),
            "commit": record.commit,
            "version": version(),
            "scenario hash": scenario_hash(record.given or record.scenario),
            "date": f"{date:%Y-%m-%d %H:%M:%S} UTC",
        },
        again=reproduce,
        page=lambda: result_of(judged, date),
        junit=lambda: run_xml(record, verdict, reproduce),
    )
