"""The index of a folder of runs: its runs and sweeps with their results, newest first, for the page and the terminal.

Runs and sweeps are recognized by their files. Any other folder is listed as foreign or broken and is no error. The page
is ``index.html`` in the folder itself, written atomically.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

from cluster.common.files import write_atomically
from cluster.common.outcome import Outcome
from cluster.record.folder import (
    GRID_FILE,
    JUNIT_FILE,
    REPORT_FILE,
    RESULT_FILE,
    RUNS_FOLDER,
    SCENARIO_FILE,
    SWEEP_LOG_FILE,
    SWEEP_SUMMARY_FILE,
)
from cluster.report.page import render_page

INDEX_FILE: Final = "index.html"
MAX_SHOWN: Final = 1_000
"""Maximum number of entries on the page, the newest ones; the others are only counted."""
MAX_EXECUTORS_SHOWN: Final = 3
"""Maximum number of foreign executors that are named per run on the page."""
MAX_RESULT_BYTES: Final = 16 << 20
"""Maximum size of a result file; a run with a larger one counts as broken."""

State = Literal["pass", "fail", "inconclusive", "unfinished", "broken", "foreign"]
LINKED: Final = ((REPORT_FILE, "report"), (RESULT_FILE, "result"), (SCENARIO_FILE, "scenario"), (JUNIT_FILE, "JUnit"))

LINKED_OF_SWEEPS: Final = ((SWEEP_SUMMARY_FILE, "summary"), (SWEEP_LOG_FILE, "seeds"), (GRID_FILE, "grid"))


@dataclass(frozen=True, slots=True)
class Entry:
    """One folder of the index."""

    name: str
    at: datetime
    """Time at which the result was written, or else of the folder's last change; UTC."""
    state: State
    kind: Literal["run", "sweep", ""] = ""
    scenario: str = ""
    backend: str = ""
    seed: str = ""
    commit: str = ""
    version: str = ""
    """The version that wrote the folder; empty if it is not known."""
    duration_s: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    """A note on the entry: the counts of a sweep, the reason why a run did not pass, or the error of the folder."""
    executors: Mapping[str, str] = field(default_factory=dict)
    """The commands of foreign executors, by the name of the validator."""
    links: tuple[tuple[str, str], ...] = ()
    """The links to the folder's files, as file name and link text. Only existing files are linked."""

    @property
    def href(self) -> str:
        """The folder's address, relative to the page."""
        return quote(os.fsencode(self.name))

    @property
    def outcome(self) -> Outcome | None:
        return Outcome(self.state) if self.state in set(Outcome) else None

    def page(self) -> dict[str, Any]:
        """The entry as JSON in the output of ``stampede runs --json``."""
        page = asdict(self) | {"at": self.at.isoformat(timespec="seconds")}
        del page["links"]
        return page


def read_index(root: Path) -> list[Entry]:
    """The entries of a folder's subfolders, newest first. Symbolic links and hidden folders are left out.

    Raises :class:`OSError`.
    """
    folders = [path for path in root.iterdir() if path.is_dir() and not path.is_symlink() and path.name[0] != "."]
    return sorted((read_entry(folder) for folder in folders), key=lambda entry: (entry.at, entry.name), reverse=True)


def read_entry(folder: Path) -> Entry:
    """The index entry of a folder: a run, a sweep, or what is wrong with it."""
    if (folder / RESULT_FILE).exists():
        return _readable(folder, _run, RESULT_FILE, "result")
    if (folder / SWEEP_LOG_FILE).exists() or (folder / GRID_FILE).exists():
        return _readable(folder, _sweep, SWEEP_SUMMARY_FILE, "summary")
    if any((folder / name).exists() for name in (SCENARIO_FILE, "logs", "data")):
        return Entry(folder.name, _changed(folder), "unfinished", "run", note="no result: running, or aborted")
    return Entry(folder.name, _changed(folder), "foreign", note="no run")


def write_index(root: Path, entries: Sequence[Entry]) -> None:
    """Write the index page of a folder of runs. Raises :class:`OSError`."""
    shown = entries[:MAX_SHOWN]
    counts = {state: sum(entry.state == state for entry in entries) for state in Outcome}
    write_atomically(
        root / INDEX_FILE,
        render_page(
            "runs.html.j2",
            entries=shown,
            left_out=len(entries) - len(shown),
            counts=counts,
            total=len(entries),
            max_executors=MAX_EXECUTORS_SHOWN,
        ),
    )


def refresh_index(folder: Path, root: Path = RUNS_FOLDER) -> None:
    """Update the index after a run, if the run's folder is in it. Raises :class:`OSError`."""
    if folder.resolve().parent == root.resolve():
        write_index(root, read_index(root))


# --- reading --------------------------------------------------------------------------------------------------------


def _readable(folder: Path, read: Callable[[Path], Entry], name: str, what: str) -> Entry:
    try:
        return read(folder)
    except OSError as error:
        note = f"{name}: {error.strerror}"
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError) as error:
        note = f"{name} is not a {what}: {' '.join(str(error).split())[:200]}"
    return Entry(folder.name, _changed(folder), "broken", note=note, links=_links(folder))


def _run(folder: Path) -> Entry:
    path = folder / RESULT_FILE
    if path.stat().st_size > MAX_RESULT_BYTES:
        raise ValueError("is too large")
    result = json.loads(path.read_text(encoding="utf-8"))
    outcome = Outcome(_text(result, "verdict"))
    metrics = result.get("metrics", {})
    if not isinstance(metrics, dict):
        raise ValueError("metrics is no object")
    metrics = {name: float(value) for name, value in metrics.items() if type(value) in (int, float)}
    return Entry(
        name=folder.name,
        at=_changed(path),
        state=outcome.value,
        kind="run",
        scenario=_text(result, "scenario"),
        backend=_text(result, "backend"),
        seed=str(result.get("seed", "")),
        commit=_text(result, "commit"),
        version=_version(result),
        duration_s=metrics.get("duration_s"),
        metrics=metrics,
        note="" if outcome is Outcome.PASS else _reason(result.get("checks"), outcome),
        executors=_executors(result.get("validators")),
        links=_links(folder),
    )


def _sweep(folder: Path) -> Entry:
    path = folder / SWEEP_SUMMARY_FILE
    begun = _begun(folder)
    title = str(begun.get("task", "sweep"))
    if not path.exists():
        at = _changed(folder / (GRID_FILE if (folder / GRID_FILE).exists() else SWEEP_LOG_FILE))
        return Entry(folder.name, at, "unfinished", "sweep", title, "sim", note="no summary yet")
    summary = json.loads(path.read_text(encoding="utf-8"))
    seeds, passed = int(summary["seeds"]), int(summary["passed"])
    failed, undecided = len(summary["failed"]), len(summary["undecided"])
    cells = math.prod(len(values) for values in summary.get("grid", {}).values())
    is_whole = cells == len(summary.get("cells", [None]))
    is_open = undecided or passed < seeds or not seeds or not is_whole
    state: State = "fail" if failed else "inconclusive" if is_open else "pass"
    return Entry(
        name=folder.name,
        at=_changed(path),
        state=state,
        kind="sweep",
        scenario=title,
        backend="sim",
        seed=f"{seeds:,} seeds",
        note=f"{passed:,} passed, {failed:,} failed, {undecided:,} undecided",
        version=_version(begun),
        links=tuple((name, word) for name, word in LINKED_OF_SWEEPS if (folder / name).exists()),
    )


def _version(page: Mapping[str, Any]) -> str:
    writer = page.get("version")
    return writer if isinstance(writer, str) else ""


def _begun(folder: Path) -> Mapping[str, Any]:
    """What a sweep or a grid wrote when it began; empty if it cannot be read."""
    path = folder / (GRID_FILE if (folder / GRID_FILE).exists() else SWEEP_LOG_FILE)
    try:
        with path.open(encoding="utf-8") as file:
            begun = json.loads(file.read() if path.name == GRID_FILE else file.readline(MAX_RESULT_BYTES))
    except (OSError, ValueError):
        return {}
    return begun if isinstance(begun, dict) else {}


def _links(folder: Path) -> tuple[tuple[str, str], ...]:
    return tuple((name, word) for name, word in LINKED if (folder / name).exists())


def _changed(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _text(result: Any, name: str) -> str:
    value = result.get(name) if isinstance(result, dict) else None
    if not isinstance(value, str):
        raise ValueError(f"{name} is missing or not a text")
    return value


def _executors(validators: Any) -> dict[str, str]:
    """The commands of foreign executors, by the name of the validator."""
    found = [each for each in validators if isinstance(each, dict)] if isinstance(validators, list) else []
    return {str(each.get("name")): each["executor"] for each in found if isinstance(each.get("executor"), str)}


def _reason(checks: Any, state: str) -> str:
    """The name and detail of the first check whose outcome is the run's verdict ``state``, as text."""
    for check in checks if isinstance(checks, list) else ():
        if isinstance(check, dict) and check.get("verdict") == state:
            return f"{check.get('name')}: {check.get('detail')}"
    return ""
