"""A run's folder: what is written at its end, and how it is read again.

====================  ==============================================================================================
``result.json``       verdict, checks, how often invariants were evaluated, metrics, validators' tips, the machine;
                      where the simulator ran, ``digest`` and, by height, ``checkpoints``
``report.html``       the same for people, self-contained
``junit.xml``         the verdict for continuous integration (:mod:`cluster.junit`)
``series.json``       figures of each height, for ``stampede compare`` (:func:`cluster.measures.series`)
``scenario.yaml``     the scenario as it was given, with all that it inherited
``genesis.json``      the genesis (:mod:`cluster.genesis_file`)
``blocks.bin``        the longest validator's final blocks and receipts (:mod:`cluster.archive`)
``traces.bin``        where validators diverged, how each executed that block
====================  ==============================================================================================

Every file appears whole or not at all: it is written beside its place and moved there. :func:`finish_run` is the one
entry for drivers.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from cluster.actor_classes import class_figures, use_by_actor, use_by_class
from cluster.archive import (
    BLOCKS_FILE,
    GENESIS_FILE,
    TRACES_FILE,
    BlockRecord,
    DivergedExecution,
    decode_blocks,
    decode_traces,
    encode_blocks,
    encode_traces,
)
from cluster.books import Books, keep_books
from cluster.checks import Verdict, check_run
from cluster.divergence.bisect import diverged_executions
from cluster.errors import BadInput
from cluster.files import write_atomically
from cluster.genesis_file import read_genesis, to_json
from cluster.junit import run_xml
from cluster.lag import lag_by_host
from cluster.machine import machine
from cluster.measures import metrics, series
from cluster.options import is_seed
from cluster.record import RunRecord
from cluster.report.page import render_report
from cluster.scenario.files import scenario_text
from validator.genesis import Genesis

RESULT_FILE: Final = "result.json"
JUNIT_FILE: Final = "junit.xml"
SERIES_FILE: Final = "series.json"
REPORT_FILE: Final = "report.html"
SCENARIO_FILE: Final = "scenario.yaml"
RUNS_FOLDER: Final = Path("runs")
ENDPOINTS_FILE: Final = "endpoints.json"
"""Where everybody can be reached while a live run goes on."""
TOKEN_FILE: Final = "token"
"""What a live run has to be shown before it obeys (:mod:`cluster.live.control`)."""
FAUCET_TOKEN_FILE: Final = "faucet-token"
"""What its faucet has to be shown before it pays."""
LATEST: Final = "latest"

MAX_FOLDERS_TRIED: Final = 10_000
GIT_TIMEOUT_S: Final = 10
UNKNOWN_COMMIT: Final = "unknown"


@dataclass(frozen=True, slots=True)
class ArchivedRun:
    """What a run's folder holds for whoever executes it again."""

    genesis: Genesis
    blocks: list[BlockRecord]
    result: dict[str, Any]
    executions: list[DivergedExecution]
    """Of the validators that diverged."""


def finish_run(
    record: RunRecord, folder: Path, scenario_path: Path | None = None, books: Books | None = None
) -> Verdict:
    """Check a run and write everything about it into ``folder``, which is created where it does not exist.

    ``scenario_path`` is the file that the scenario came from: it is copied as it is, comments included, where it
    inherits nothing, and named in the command that reproduces the run. ``books`` are the record's, where they exist
    already. Raises :class:`OSError` where the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    books = books if books is not None else keep_books(record)
    verdict = check_run(record, books)
    write_atomically(folder / SCENARIO_FILE, scenario_text(record.given or record.scenario, scenario_path))
    write_atomically(folder / GENESIS_FILE, to_json(record.genesis))
    write_atomically(folder / BLOCKS_FILE, encode_blocks(books.chain))
    write_atomically(folder / SERIES_FILE, json.dumps(series(books), separators=(",", ":")) + "\n")
    if books.divergences:
        write_atomically(folder / TRACES_FILE, encode_traces(diverged_executions(books)))
    write_atomically(folder / RESULT_FILE, json.dumps(result_of(books, verdict), indent=2) + "\n")
    command = reproduce_command(record, folder, scenario_path)
    write_atomically(folder / JUNIT_FILE, run_xml(record, verdict, command))
    write_atomically(folder / REPORT_FILE, render_report(books, verdict, command))
    return verdict


def result_of(books: Books, verdict: Verdict) -> dict[str, Any]:
    """The content of ``result.json``."""
    record = books.record
    result: dict[str, Any] = {
        "scenario": record.scenario.name,
        "backend": record.backend,
        "seed": record.seed,
        "commit": record.commit,
        "policy": record.genesis.policy.value,
        "preset": record.genesis.preset,
        "verdict": verdict.outcome.value,
        "checks": [
            {"name": check.name, "verdict": check.verdict.value, "detail": check.detail, "applies": check.applies}
            for check in verdict.checks
        ],
        "evaluations": {each.rule: {"times": each.times, "needed": each.needed} for each in verdict.evaluations},
        "metrics": metrics(books),
        "classes": class_figures(use_by_class(use_by_actor(books))),
        "validators": [_tip_of(books, validator.name) for validator in record.validators],
        "machine": machine(),
        "lag": {
            "driver" if host is None else f"host-{host}": {"lag_ms": round(lag_ms, 3)}
            for host, lag_ms in lag_by_host(record).items()
        },
        "divergences": books.bisections,
    }
    if record.drill is not None:
        result["drill"] = record.drill.page(record.scenario, record.drill_changes)
    if record.backend == "sim":
        result["digest"] = record.digest
        result["checkpoints"] = {str(height): digest for height, digest in record.checkpoints.items()}
    if record.given is not None:
        result["forks"] = [fork.model_dump(mode="json") for fork in record.given.forks]
    return result


def reproduce_command(record: RunRecord, folder: Path, scenario_path: Path | None = None) -> str:
    """The one command that runs this again: scenario, seed, commit."""
    path = scenario_path if scenario_path is not None else folder / SCENARIO_FILE
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    backend = " --backend sim" if record.backend == "sim" else ""
    command = f"stampede run {shlex.quote(str(path))}"
    if record.drill is not None:
        command = record.drill.command(record.drill_changes)
    return f"{command}{backend} --seed {record.seed}  # at commit {record.commit}"


# --- folders --------------------------------------------------------------------------------------------------------


def new_run_folder(scenario_name: str, now: datetime, root: Path = RUNS_FOLDER) -> Path:
    """Create ``<root>/<UTC time>-<scenario name>``, with ``-2``, ``-3`` … behind where it exists already.

    ``now`` is in UTC. Raises :class:`BadInput` where no folder can be made.
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


def claim_run_folder(folder: Path) -> Path:
    """Create the folder that the user named. Raises :class:`BadInput` where it holds something or cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        occupied = any(folder.iterdir())
    except OSError as error:
        raise BadInput(f"{folder}: cannot be used for the run: {error.strerror}") from None
    if occupied:
        raise BadInput(f"{folder}: is not empty, and a run never overwrites another")
    return folder


def point_latest(folder: Path, root: Path = RUNS_FOLDER) -> None:
    """Make ``<root>/latest`` a symbolic link to a folder inside the root, in one step.

    Of a folder elsewhere nothing is done: ``--out`` says where it is. Something else of the link's name is left alone.
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


def checkout_commit(folder: Path | None = None) -> str:
    """The git commit of the checkout that holds the code, ``-dirty`` behind it where a file changed; else ``unknown``.

    ``folder`` is another checkout. Files that git does not know are not looked at. Where the code is in no checkout, as
    in a container's image, the environment's ``STAMPEDE_COMMIT`` says which commit it is.
    """
    checkout = folder if folder is not None else Path(__file__).resolve().parent.parent
    if not (checkout / ".git").exists():
        return os.environ.get("STAMPEDE_COMMIT") or UNKNOWN_COMMIT
    commit = _git(checkout, "rev-parse", "--short=12", "HEAD")
    changes = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    if not commit or changes is None:
        return UNKNOWN_COMMIT
    return f"{commit}-dirty" if changes else commit


def _git(checkout: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


# --- reading ------------------------------------------------------------------------------------------------------


def read_run(folder: Path) -> ArchivedRun:
    """A run's genesis, blocks and result. Raises :class:`BadInput`."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder")
    try:
        result = json.loads((folder / RESULT_FILE).read_text(encoding="utf-8"))
        archive = (folder / BLOCKS_FILE).read_bytes()
        traces = (folder / TRACES_FILE).read_bytes() if (folder / TRACES_FILE).exists() else None
    except OSError as error:
        raise BadInput(f"{error.filename}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"{folder / RESULT_FILE}: no JSON: {error}") from None
    if not isinstance(result, dict):
        raise BadInput(f"{folder / RESULT_FILE}: expected an object")
    executions = [] if traces is None else decode_traces(traces, str(folder / TRACES_FILE))
    blocks = decode_blocks(archive, str(folder / BLOCKS_FILE))
    return ArchivedRun(read_genesis(folder / GENESIS_FILE), blocks, result, executions)


def seed_of(result: Mapping[str, Any]) -> int:
    """The seed in the content of a ``result.json``. Raises :class:`KeyError` and :class:`ValueError`."""
    seed: int = result["seed"]
    if not is_seed(seed):
        raise ValueError(f"{seed!r} is no seed")
    return seed


# --- parts ----------------------------------------------------------------------------------------------------------


def _tip_of(books: Books, name: str) -> dict[str, Any]:
    chain = books.seals[name]
    last = chain.at(chain.tip)
    return {"name": name, "height": chain.tip, "state_root": last.computed_root.hex() if last else None}
