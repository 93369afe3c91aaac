"""Rendering of pages, and the report of one run."""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from cluster.checks.kind import Judged
from cluster.checks.verdict import Verdict
from cluster.common.files import STYLE_FILE, THEME_FILE
from cluster.common.outcome import SIGNS, Outcome
from cluster.report import tables
from cluster.report.charts import charts, resource_charts
from cluster.report.fault_labels import MAX_LISTED, marked
from cluster.report.svg import DASHES, MARK_DASHES, number
from cluster.report.timeline import legend, timeline_data

TEMPLATES: Final = Path(__file__).parent / "templates"
SCRIPT: Final = "page.js"
OUTCOME_WORDS: Final = {Outcome.PASS: "Pass", Outcome.FAIL: "Fail", Outcome.INCONCLUSIVE: "Inconclusive"}


def render_page(template: str, **content: Any) -> str:
    """Render a template of ``templates/`` as a page, with the style and the script that all pages share."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = "".join(path.read_text(encoding="utf-8") for path in (THEME_FILE, TEMPLATES / SCRIPT))
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template(template).render(
        style=Markup(STYLE_FILE.read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=hashed,
        words=OUTCOME_WORDS,
        signs=SIGNS,
        number=number,
        **content,
    )


def render_report(judged: Judged, command: str, date: datetime) -> str:
    """Render the report of a judged run as HTML. ``command`` reproduces the run, ``date`` is when it was written."""
    books, verdict, record = judged.books, judged.verdict, judged.books.record
    marks = marked(record)
    return render_page(
        "report.html.j2",
        scenario=record.scenario,
        record=record,
        outcome=verdict.outcome,
        checks=verdict.checks,
        counts=_counts(verdict),
        evaluations=verdict.evaluations,
        because=verdict.decisive,
        tiles=tables.tiles(judged.metrics),
        charts=charts(books, marks, judged.actors, judged.classes, judged.latencies),
        resources=resource_charts(record, marks),
        classes=tables.class_table(judged.classes),
        failed_runs=tables.failed_run_pages(books, judged.actor_classes),
        warnings=verdict.warnings,
        workloads=tables.workload_table(judged.latencies),
        timeline=timeline_data(books, marks),
        legend=legend(record),
        validators=tables.validator_rows(books),
        participation=tables.participation_table(judged.participation),
        divergences=tables.divergence_rows(books),
        faults=tables.fault_rows(books),
        fault_kinds=tables.fault_kind_table(record),
        max_listed=MAX_LISTED,
        facts=tables.facts(books, date),
        metrics=[(name, number(value), value) for name, value in judged.metrics.items()],
        mutated=[(validator.name, validator.mutant) for validator in record.validators if validator.mutant],
        executors=tables.executor_rows(record),
        byzantine=[
            (validator.name, ", ".join(validator.byzantine)) for validator in record.validators if validator.byzantine
        ],
        command=command,
        dashes=DASHES,
        mark_dashes=MARK_DASHES,
    )


def _counts(verdict: Verdict) -> str:
    found = [check.verdict if check.applies else None for check in verdict.checks]
    names = (
        (Outcome.FAIL, "failed"),
        (Outcome.INCONCLUSIVE, "inconclusive"),
        (Outcome.PASS, "passed"),
        (None, "not applicable"),
    )
    return ", ".join(f"{found.count(outcome)} {name}" for outcome, name in names if outcome in found)
