"""The files of a run's folder, written at its end.

====================  ==============================================================================================
``result.json``       verdict, checks, how often invariants were evaluated, metrics, validators' tips, the machine;
                      of simulated runs ``digest`` and, by height, ``checkpoints``
``report.html``       the same for readers, self-contained
``junit.xml``         the verdict for continuous integration (:mod:`cluster.report.junit`)
``series.json``       metrics of each height, for ``stampede compare`` (:func:`cluster.checks.metrics.metrics.series`)
``scenario.yaml``     the scenario, with everything that it inherits
``genesis.json``      the genesis (:mod:`cluster.record.genesis_file`)
``blocks.bin``        the longest validator's final blocks and receipts (:mod:`cluster.record.archive`)
``record.bin``        all that the run is judged from (:mod:`cluster.record.saved`), but for genesis and blocks
``traces.bin``        the executions of diverged validators
====================  ==============================================================================================

Every file is written atomically. Drivers call :func:`finish_run`, and :func:`leave_unjudged` for a run that cannot be
judged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cluster.audit.books import Books
from cluster.audit.chains import longest_chain
from cluster.checks.kind import Judged
from cluster.checks.metrics.actor_classes import class_metrics
from cluster.checks.metrics.load_latency import timeline_page
from cluster.checks.metrics.metrics import series
from cluster.checks.run import judge_run
from cluster.checks.verdict import Verdict
from cluster.common.checkout import NAMESPACE_VARIABLE
from cluster.common.files import all_tried, write_atomically, writing_for_user
from cluster.common.wording import json_text, printable, quoted
from cluster.record.archive import BLOCKS_FILE, GENESIS_FILE, TRACES_FILE, encode_traces, write_blocks
from cluster.record.chain_store import FileBlocks, ServedBlocks
from cluster.record.folder import (
    JUNIT_FILE,
    RECORD_FILE,
    REPORT_FILE,
    RESULT_FILE,
    SCENARIO_FILE,
    SERIES_FILE,
    complete_folder,
    unjudged_result,
)
from cluster.record.genesis_file import to_json
from cluster.record.lag import lag_by_host
from cluster.record.run import FaultRecord, RunRecord, about_run
from cluster.record.saved import write_record
from cluster.report.junit import run_xml
from cluster.report.page import render_report
from cluster.report.tables import disks, failed_run_pages
from cluster.scenario.code.gate import option_for
from cluster.scenario.files import scenario_text


def finish_run(
    record: RunRecord,
    folder: Path,
    scenario_path: Path | None = None,
    judged: Judged | None = None,
    known_as: Path | None = None,
    date: datetime | None = None,
    is_again: bool = False,
) -> Verdict:
    """Write a run's files into ``folder``, which is created if it does not exist; returns the verdict.

    ``scenario_path`` is the scenario's file: it is copied with its comments if it inherits nothing, and named in the
    command that reproduces the run. ``judged`` is the judged run, if it was judged already. ``known_as`` is the
    folder's final path, if it will be moved; the command then names this path. ``date`` is when the files are written,
    in UTC; by default now. With ``is_again`` the folder's record stays as it is, and so do genesis and blocks. Raises
    :class:`BadInput` with a line for each file that cannot be written, after all others were.
    """
    with writing_for_user(folder):
        folder.mkdir(parents=True, exist_ok=True)
    judged = judged if judged is not None else judge_run(record)
    books, date = judged.books, date or datetime.now(UTC)
    command = reproduce_command(record, known_as or folder, scenario_path)
    with all_tried() as trying:

        @contextmanager
        def writing(name: str) -> Iterator[Path]:
            with trying(), writing_for_user(folder / name):
                yield folder / name

        with writing(SCENARIO_FILE) as path:
            write_atomically(path, scenario_text(record.given or record.scenario, scenario_path or path))
        if not is_again:
            with writing(GENESIS_FILE) as path:
                write_atomically(path, to_json(record.genesis))
            with writing(BLOCKS_FILE) as path:
                _write_chain(path, books)
            with writing(RECORD_FILE) as path:
                write_record(record, books.chain, path)
        with writing(SERIES_FILE) as path:
            write_atomically(path, json_text(series(books), separators=(",", ":")) + "\n")
        if books.divergences:
            with writing(TRACES_FILE) as path:
                write_atomically(path, encode_traces(books.divergences))
        with writing(RESULT_FILE) as path:
            write_atomically(path, json_text(result_of(judged, date), indent=2) + "\n")
        with writing(JUNIT_FILE) as path:
            write_atomically(path, run_xml(record, judged.verdict, command))
        with writing(REPORT_FILE) as path:
            write_atomically(path, render_report(judged, command, date))
    return judged.verdict


def leave_unjudged(record: RunRecord, folder: Path, why: str) -> None:
    """Write what is known of a run that cannot be judged for the reason ``why``, as far as :func:`finish_run` did not.

    Its ``result.json`` has no checks but this reason, and the violations that were seen. Raises :class:`OSError`.
    """
    complete_folder(folder, unjudged_result(about_run(record), why, record.seen_violations))
    if not (folder / SCENARIO_FILE).exists():
        write_atomically(folder / SCENARIO_FILE, scenario_text(record.given or record.scenario, None))
    if not (folder / GENESIS_FILE).exists():
        write_atomically(folder / GENESIS_FILE, to_json(record.genesis))
    if not (folder / BLOCKS_FILE).exists():
        chain = longest_chain(record.lives) or ServedBlocks.all_of(record.store)
        write_blocks(folder / BLOCKS_FILE, chain)
        write_record(record, chain, folder / RECORD_FILE)


def _write_chain(path: Path, books: Books) -> None:
    """Write the run's chain to ``path``: publish the run's block store there if it has exactly this chain, otherwise
    write a new archive."""
    store = books.record.store
    if isinstance(store, FileBlocks):
        if store.is_there and store.path.parent == path.parent and books.chain == ServedBlocks.all_of(store):
            store.publish(path)
            return
        store.discard()
    write_blocks(path, books.chain)


def result_of(judged: Judged, date: datetime) -> dict[str, Any]:
    """The content of ``result.json``. ``date`` is when it is written."""
    books, verdict, record = judged.books, judged.verdict, judged.books.record
    stated = record.genesis.policy_parameters
    result: dict[str, Any] = {
        **about_run(record),
        "date": date.isoformat(timespec="seconds"),
        "policy": record.genesis.policy_name,
        **({"policy_parameters": stated} if stated else {}),
        "preset": record.genesis.preset,
        "verdict": verdict.outcome.value,
        "checks": [
            {"name": check.name, "verdict": check.verdict.value, "detail": check.detail, "applies": check.applies}
            for check in verdict.checks
        ],
        "warnings": list(verdict.warnings),
        "failed_runs": failed_run_pages(books, judged.actor_classes),
        "evaluations": {each.rule: {"times": each.times, "needed": each.needed} for each in verdict.evaluations},
        "metrics": judged.metrics,
        "classes": class_metrics(judged.classes),
        "load": {
            "workloads": {each.workload: each.page for each in judged.latencies},
            "timeline": timeline_page(record.load.timeline, record.began_epoch_ms),
        },
        "participation": [part._asdict() for part in judged.participation],
        "validators": [_tip_of(books, validator.name) for validator in record.validators],
        "faults": [_fault_page(fault) for fault in record.faults],
        "machine": record.machine,
        "lag": {
            "driver" if host is None else f"host-{host}": {"lag_ms": round(lag_ms, 3)}
            for host, lag_ms in lag_by_host(record).items()
        },
        "disks": disks(books),
        "divergences": books.bisections,
    }
    if record.reexecuted is not None:
        result["reexecuted"] = {"heights": record.reexecuted.heights, "reason": record.reexecuted.reason}
    if record.absences:
        result["absences"] = [{**asdict(absence), "text": str(absence)} for absence in record.absences]
    if record.drill is not None:
        result["drill"] = record.drill.page
    if record.backend == "sim":
        result["digest"] = record.digest
        result["checkpoints"] = {str(height): digest for height, digest in record.checkpoints.items()}
    if record.given is not None:
        result["forks"] = [fork.model_dump(mode="json") for fork in record.given.forks]
    return result


def reproduce_command(record: RunRecord, folder: Path, scenario_path: Path | None = None) -> str:
    """The command that runs the scenario again: scenario, seed, commit.

    A path in a pod says nothing to the user, so there the command names the scenario of the fetched folder.
    """
    command, place, namespace = "stampede run", "", os.environ.get(NAMESPACE_VARIABLE)
    path = scenario_path if scenario_path is not None else folder / SCENARIO_FILE
    if namespace is not None:
        path, place = Path(SCENARIO_FILE), "in the fetched folder, "
        command = command if record.backend == "sim" else f"stampede k8s run --namespace {namespace}"
    elif path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    backend = " --backend sim" if record.backend == "sim" else ""
    is_copy = scenario_path is None or namespace is not None
    command = f"{command} {quoted(str(path))}{option_for(record.scenario, is_copy=is_copy)}"
    if record.drill is not None:
        command, place = record.drill.command, ""
    return f"{command}{backend} --seed {record.seed}  # {place}at commit {record.commit}"


# --- parts ----------------------------------------------------------------------------------------------------------


def _tip_of(books: Books, name: str) -> dict[str, Any]:
    chain = books.chains[name]
    last = chain.at(chain.tip)
    page = {"name": name, "height": chain.tip, "state_root": last.computed_root.hex() if last else None}
    command = books.record.scenario.validators.executors.get(name)
    return page if command is None else page | {"executor": printable(command)}


def _fault_page(fault: FaultRecord) -> dict[str, Any]:
    """A fault as JSON in ``result.json``. Times are milliseconds since the run began, ``None`` for what did not
    happen."""
    has_begun = fault.begun_ms is not None
    return {
        "kind": fault.kind,
        "target": fault.target,
        "targets": list(fault.targets),
        "planned": fault.planned if fault.is_planned else None,
        "begun_ms": _rounded(fault.begun_ms),
        "ended_ms": _rounded(fault.ended_ms),
        "height_when_begun": fault.height_when_begun if has_begun else None,
        "height_when_ended": fault.height_when_ended,
        "took_effect": fault.took_effect,
        "evidence": fault.evidence,
        "problem": fault.problem,
    }


def _rounded(at_ms: float | None) -> float | None:
    return None if at_ms is None else round(at_ms, 3)
