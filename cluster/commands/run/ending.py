"""The end of a judged run, as the outputs of a command show it (:mod:`cluster.commands.console.outputs`)."""

from __future__ import annotations

from datetime import datetime

from cluster.checks.kind import Judged
from cluster.commands.console.outputs import Ending, Part
from cluster.common.checkout import version
from cluster.common.outcome import Outcome
from cluster.report.junit import run_xml
from cluster.report.results import result_of
from cluster.report.tables import tiles
from cluster.scenario.files import scenario_hash


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
