"""The folder of a run: the names of its files, how it is claimed, and how its result is read.

This module imports no part of a validator, so that a process that only writes a result starts in a fraction of the time
(:mod:`cluster.live.processes.cleanup_watchdog`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple

from cluster.common.checkout import version
from cluster.common.errors import BadInput
from cluster.common.files import read_json_object, write_atomically
from cluster.common.limits import is_seed
from cluster.common.outcome import Outcome, worst
from cluster.common.wording import json_text, printable

RESULT_FILE: Final = "result.json"
JUNIT_FILE: Final = "junit.xml"
SERIES_FILE: Final = "series.json"
REPORT_FILE: Final = "report.html"
TRACEBACK_FILE: Final = "traceback.txt"
"""The traceback of a seed that crashed, in its folder."""
SCENARIO_FILE: Final = "scenario.yaml"
RECORD_FILE: Final = "record.bin"
"""The record of a run, from which it can be judged again (:mod:`cluster.record.saved`)."""
STORE_FILE: Final = "blocks.part"
"""The file to which a live run appends its blocks. At the end it becomes the archive of blocks."""
JOURNAL_FILE: Final = "journal.bin"
"""The file with what the loop of a live run was told (:mod:`cluster.run.journal`)."""
CHECKPOINT_FILE: Final = "driver.checkpoint"
"""The file with a live run's state, from which another driver may take it over
(:mod:`cluster.live.handover.checkpoint`)."""
CHECKPOINT_BEFORE_FILE: Final = "driver.checkpoint.before"
CHECKPOINT_FILES: Final = (CHECKPOINT_FILE, CHECKPOINT_BEFORE_FILE)
"""The files that may hold the checkpoint, newest first. A driver killed between two renames leaves only the second."""
WATCHDOG_FILE: Final = "driver.watchdog"
"""Names the cleanup watchdog of the newest driver that took over a live run."""
RUNS_FOLDER: Final = Path("runs")
ENDPOINTS_FILE: Final = "endpoints.json"
LOAD_PLAN_FILE: Final = "load-plan.json"
"""The plan of a live run's load (:class:`loadgen.runplan.RunPlan`)."""
TOKEN_FILE: Final = "token"
"""The token of a live run's control server (:mod:`cluster.live.driver.control_server`)."""
FAUCET_TOKEN_FILE: Final = "faucet-token"
"""The token of a live run's faucet."""
SWEEP_LOG_FILE: Final = "seeds.jsonl"
"""A file of a sweep's folder, with a line per seed (:mod:`cluster.commands.sweeps.log`)."""
SWEEP_SUMMARY_FILE: Final = "summary.json"
"""A file of a sweep's folder: its result."""
GRID_FILE: Final = "grid.json"
"""A file of a grid's folder, which identifies the grid (:mod:`cluster.commands.sweeps.grid`)."""
SCORECARD_FILE: Final = "scorecard.json"
"""A file of a folder of ``stampede dos``: its result."""
SCORECARD_PAGE_FILE: Final = "scorecard.html"
SCORECARD_FORMAT: Final = "stampede-dos/1"
CALIBRATION_FILE: Final = "calibration.json"
"""A file of a folder of ``stampede calibrate``: gaps and profile, or the scenarios alone until they are known."""
TABLE_FILES: Final = ("tables/*.csv", "tables/*.parquet", "tables/schema.json")
"""What ``stampede export`` writes into a folder of any kind."""
UPLOADED_FILE: Final = "uploaded.txt"
"""The address in a bucket where a copy of the folder is; missing if not all of it was uploaded."""
LATEST: Final = "latest"

SHOWN_CHARACTERS: Final = 40
"""Characters shown of a version."""
_TOLD_VERSIONS: Final[set[str]] = set()
MAX_FOLDERS_TRIED: Final = 10_000
MAX_CLAIMS_TRIED: Final = 100
"""How often a claim of a folder is tried that others remove at the same moment."""


# --- folders --------------------------------------------------------------------------------------------------------


def new_run_folder(scenario_name: str, now: datetime, root: Path = RUNS_FOLDER) -> Path:
    """Create ``<root>/<UTC time>-<scenario name>``, with the suffix ``-2``, ``-3`` … if that exists already.

    ``now`` is in UTC. Raises :class:`BadInput` if no folder can be created.
    """
    stem = f"{now:%Y%m%d-%H%M%S}-{scenario_name}"
    for attempt in range(1, MAX_FOLDERS_TRIED):
        folder = root / (stem if attempt == 1 else f"{stem}-{attempt}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise BadInput(f"{folder}: cannot be created: {error.strerror}") from None
        return folder
    raise BadInput(f"{root / stem}: there are {MAX_FOLDERS_TRIED - 1} runs of this name already")


@contextmanager
def run_folder(out: Path | None, name: str, goes_on: bool = False) -> Iterator[Path]:
    """Claim the folder of a run inside the block: the one that the user named, or a new one in ``runs`` for ``name``.

    With ``goes_on`` it may hold what an interrupted run left there; otherwise it must be empty. Raises
    :class:`BadInput`, as :func:`claimed` does.
    """
    folder = new_run_folder(name, datetime.now(UTC)) if out is None else out
    with claimed(folder, must_be_empty=not goes_on, is_new=out is None):
        yield folder


def expect_run_folder(folder: Path) -> None:
    """Raise :class:`BadInput` if a folder, which is to be that of a run, is not there."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder: expected that of a run, such as runs/latest")


class Kind(NamedTuple):
    """What a kind of command writes into its folder."""

    title: str
    marks: tuple[str, ...]
    """Patterns of files of which a finished or interrupted command of this kind left at least one."""
    names: tuple[str, ...]
    """Patterns of the paths of all its files, as of :mod:`fnmatch`, with slashes, relative to the folder."""


RUN: Final = Kind(
    "a run",
    (RESULT_FILE,),
    (
        *(RESULT_FILE, JUNIT_FILE, SERIES_FILE, REPORT_FILE, TRACEBACK_FILE, SCENARIO_FILE, ENDPOINTS_FILE, STORE_FILE),
        *(RECORD_FILE, JOURNAL_FILE, "blocks.bin", "traces.bin", "genesis.json"),
        *(LOAD_PLAN_FILE, "load-endpoints.json", "load-stats.json"),
        *("data/*/*", "data/host-*", "logs/*.log", "logs/ray/*", UPLOADED_FILE),
    ),
)
_SWEEP: Final = (
    *(SWEEP_LOG_FILE, SWEEP_SUMMARY_FILE, GRID_FILE, SCENARIO_FILE, TRACEBACK_FILE),
    *("work.jsonl", "left-out.txt", "index.html", "start.json", UPLOADED_FILE),
    *(f"seed-*/{name}" for name in RUN.names),
)
SWEEP: Final = Kind("a sweep", (SWEEP_LOG_FILE, GRID_FILE), (*_SWEEP, *(f"cell-*/{name}" for name in _SWEEP)))
SEARCH: Final = Kind(
    "a search", ("candidates.jsonl",), ("candidates.jsonl", "found.yaml", SWEEP_SUMMARY_FILE, TRACEBACK_FILE)
)
SCORECARD: Final = Kind(
    "a scorecard",
    (SCORECARD_FILE,),
    (SCORECARD_FILE, SCORECARD_PAGE_FILE, TRACEBACK_FILE, UPLOADED_FILE, *(f"[0-9]*-*/{name}" for name in RUN.names)),
)
CALIBRATION: Final = Kind(
    "a calibration",
    (CALIBRATION_FILE,),
    (CALIBRATION_FILE, TRACEBACK_FILE, *(f"*-[0-9]*/{name}" for name in RUN.names)),
)
MACHINE: Final = Kind("a search for bugs", ("machine.jsonl",), ("machine.jsonl", TRACEBACK_FILE))
FAILING_CASES: Final = Kind(
    "failing cases",
    ("*-[0-9]*/expected.json",),
    tuple(f"*-[0-9]*/{name}" for name in ("genesis.json", "blocks.json", "expected.json", "got.json", "index.html")),
)
LAB: Final = Kind("a lab", ("runs.jsonl",), ("runs.jsonl", "lab.npz", "lab.json", "index.html", TRACEBACK_FILE))
TUNING: Final = Kind("a tuning", ("tuning.jsonl",), ("tuning.jsonl", "tuning.json", TRACEBACK_FILE))
_REPLACED: Final[dict[Path, Kind]] = {}
"""Folders that the user lets this process replace, with the kind of command that wrote them."""


def replace_at_claim(folder: Path, kind: Kind) -> None:
    """Let this process's next claim of a folder empty it first, if all in it is what a command of its kind wrote."""
    _REPLACED[folder] = kind


def _make_empty(folder: Path, kind: Kind) -> None:
    """Remove all in a folder. Raises :class:`BadInput` if something is not what a command of its kind wrote."""
    if not any(folder.iterdir()):
        return
    found = list(_files(folder))
    if not any(fnmatchcase(path, mark) for path in found for mark in kind.marks):
        raise BadInput(f"{folder}: --force: is no folder of {kind.title}: it has no {' or '.join(kind.marks)}")
    for path in sorted(found):
        if not any(fnmatchcase(path, name) for name in (*kind.names, *TABLE_FILES)):
            raise BadInput(f"{folder}: --force: {printable(path)} is not of {kind.title}, and would be lost")
    for each in folder.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()


def _files(folder: Path) -> Iterator[str]:
    """The paths of all files below a folder, relative to it. Symbolic links are files, whatever they point at."""
    for place, folders, files in os.walk(folder):
        for name in (*files, *(name for name in folders if os.path.islink(os.path.join(place, name)))):
            yield os.path.relpath(os.path.join(place, name), folder)


@contextmanager
def claimed(folder: Path, must_be_empty: bool = False, is_new: bool = False) -> Iterator[None]:
    """Claim a folder inside the block: until its end no other claim of the folder is granted, in any process.

    The folder is created if need be. One that was created for the claim (``is_new``: by the caller) is removed at the
    end if it is still empty. The claim is the system's lock of the folder itself: it leaves no file, and it ends with
    its process, however that ends. On a network file system it may hold only between processes of one machine.

    Raises :class:`BadInput` if the folder is claimed already, cannot be created, or is not empty though it must be.
    """
    file, was_made = _claim(folder)
    try:
        if (kind := _REPLACED.pop(folder, None)) is not None:
            _make_empty(folder, kind)
        if must_be_empty and any(folder.iterdir()):
            raise BadInput(f"{folder}: is not empty, expected a new or empty folder")
        yield
    finally:
        if was_made or is_new:
            with suppress(OSError):
                folder.rmdir()
        os.close(file)


def _claim(folder: Path) -> tuple[int, bool]:
    """Lock a folder. Returns its descriptor, and whether the folder was created. Raises :class:`BadInput`."""
    try:
        for _ in range(MAX_CLAIMS_TRIED):
            was_made = _make(folder)
            with suppress(FileNotFoundError):  # its owner has just removed it
                file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    if not takes_lock(file):
                        raise BadInput(f"{folder}: another process writes it: choose another folder, or wait")
                    if is_at(file, folder):
                        return file, was_made
                except BaseException:
                    os.close(file)
                    raise
                os.close(file)
    except (NotADirectoryError, FileExistsError):
        raise BadInput(f"{folder}: is no folder, expected one") from None
    except OSError as error:
        raise BadInput(f"{folder}: cannot be used as a folder: {error.strerror}") from None
    raise BadInput(f"{folder}: cannot be used as a folder: it does not stay there")


def _make(folder: Path) -> bool:
    """Create a folder. Returns whether it was missing. Raises :class:`OSError`."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def takes_lock(file: int) -> bool:
    """Lock an open file or folder until it is closed; ``False`` if it is locked already. Raises :class:`OSError`."""
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def is_locked(path: Path, access: int = os.O_RDONLY) -> bool:
    """Whether a process has locked a file, or claimed a folder (:func:`claimed`)."""
    with suppress(OSError):
        file = os.open(path, access | os.O_CLOEXEC)
        try:
            return not takes_lock(file)
        finally:
            os.close(file)
    return False


def is_at(file: int, path: Path) -> bool:
    """Whether a path still names an open file or folder."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file), path.stat())
    return False


def point_latest(folder: Path, root: Path = RUNS_FOLDER) -> None:
    """Atomically make ``<root>/latest`` a symbolic link to a folder inside the root.

    It does nothing for a folder outside of the root, or if ``latest`` is not a symbolic link.
    """
    link = root / LATEST
    if root.resolve() not in folder.resolve().parents or (link.exists() and not link.is_symlink()):
        return
    root.mkdir(parents=True, exist_ok=True)
    target = os.path.relpath(folder.resolve(), root.resolve())
    temporary = root / f".{LATEST}.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(link)


# --- completing -----------------------------------------------------------------------------------------------------


def unjudged_result(
    about: Mapping[str, Any], why: str, seen_violations: Mapping[str, list[str]] = {}
) -> dict[str, Any]:
    """The content of ``result.json`` for a run whose driver wrote none, but for the date (:func:`complete_folder`).

    ``about`` identifies the run, by the names of these fields: scenario, backend, seed, commit, version, scenario_hash.
    The verdict is *inconclusive* for the reason ``why``, or *fail* if violations were reported
    (:attr:`~cluster.record.run.RunRecord.seen_violations`).
    """
    outcomes = [("no_problems", Outcome.INCONCLUSIVE, why)]
    outcomes += [(check, Outcome.FAIL, "; ".join(words)) for check, words in seen_violations.items()]
    verdict = worst(outcome for _, outcome, _ in outcomes)
    return {
        **about,
        "verdict": verdict.value,
        "checks": [
            {"name": name, "verdict": outcome.value, "detail": detail, "applies": True}
            for name, outcome, detail in outcomes
        ],
        "metrics": {},
        "validators": [],
    }


def complete_folder(folder: Path, result: Mapping[str, Any]) -> None:
    """Write ``result.json``, dated now, unless the driver wrote it. Raises :class:`OSError`."""
    target = folder / RESULT_FILE
    if not target.exists():
        dated = {**result, "date": datetime.now(UTC).isoformat(timespec="seconds")}
        write_atomically(target, json_text(dated, indent=2) + "\n")


# --- reading ------------------------------------------------------------------------------------------------------


def read_result(folder: Path) -> dict[str, Any]:
    """The content of a run's ``result.json``. Says so if another version wrote it. Raises :class:`BadInput`."""
    path = folder / RESULT_FILE
    try:
        result = read_json_object(path)
    except FileNotFoundError:
        raise BadInput(f"{folder}: holds no finished run: it has no {RESULT_FILE}") from None
    tell_version(folder, result.get("version"))
    return result


def tell_version(folder: Path, writer: object) -> None:
    """Say on standard error if another version wrote a folder, once for each version: its fields may mean another
    thing."""
    if isinstance(writer, str) and writer != version() and writer not in _TOLD_VERSIONS:
        _TOLD_VERSIONS.add(writer)
        shown = printable(writer)[:SHOWN_CHARACTERS]
        print(f"stampede: {folder}: written by version {shown}, read by {version()}", file=sys.stderr)


def seed_folder(number: int) -> str:
    """The name of the folder in which a seed's run is kept."""
    return f"seed-{number}"


def seed_of(result: Mapping[str, Any]) -> int:
    """The seed in the content of a ``result.json``. Raises :class:`KeyError` and :class:`ValueError`."""
    seed: int = result["seed"]
    if not is_seed(seed):
        raise ValueError(f"{seed!r} is no seed")
    return seed
