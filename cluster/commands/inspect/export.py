"""``stampede export``: writes the tables of a run, a sweep, or of what an installed package knows, for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from cluster.commands.inspect.judge import read_run_of
from cluster.commands.sweeps.outcome import SeedOutcome
from cluster.common.errors import BadInput
from cluster.common.plugins import TABLES as PACKAGED
from cluster.common.plugins import load_all
from cluster.common.wording import counted, first_few
from cluster.record.folder import CHECKPOINT_FILES, GRID_FILE, RECORD_FILE, SWEEP_LOG_FILE, claimed, expect_run_folder
from cluster.tables import runs
from cluster.tables.columns import Column, Row, Source, Table, integer, number, text, truth
from cluster.tables.files import FORMATS, SCHEMA_FILE, write_tables

TABLES_FOLDER: Final = "tables"
"""The folder for tables in the folder that is exported."""


def export(folder: Path, target: Path | None = None, formats: Sequence[str] = FORMATS) -> Iterator[str]:
    """Write the tables of a folder; yields a line for each file. Raises :class:`BadInput`."""
    source, target = source_of(folder), target or folder / TABLES_FOLDER
    with claimed(target):
        written = write_tables(target, source.tables, source.rows(folder), formats)
    for path, rows in written.items():
        yield f"{counted(rows, 'row'):>16}  {path}"
    yield f"{'':>16}  {target / SCHEMA_FILE}"


def source_of(folder: Path) -> Source:
    """The source of a folder's tables. Raises :class:`BadInput`."""
    expect_run_folder(folder)
    known = sources()
    for source in known:
        if any((folder / name).exists() for name in source.files):
            return source
    titles = first_few([f"{each.title} ({' or '.join(each.files)})" for each in known], len(known))
    raise BadInput(f"{folder}: has no tables; expected the folder of {titles}")


def sources() -> list[Source]:
    """The sources of tables of the core and of installed packages."""
    found = [RUNS, SWEEPS]
    load_all(PACKAGED, lambda offered: found.append(_fitting(offered, found)))
    return found


def _fitting(offered: Any, known: Sequence[Source]) -> Source:
    """What a package offers, if it is a source of other files. Raises :class:`ValueError`."""
    if not isinstance(offered, Source):
        raise ValueError(f"expected a {Source.__name__}, got {offered!r}")
    if taken := {name for each in known for name in each.files}.intersection(offered.files):
        raise ValueError(f"folders with {min(taken)} have tables already")
    return offered


# --- sweeps -----------------------------------------------------------------------------------------------------------

_CELL: Final[Column] = text("cell", "folder of the grid's cell; null if the sweep is no grid")
_SEED: Final[Column] = integer("seed", "", "the seed")
SEEDS: Final = Table(
    "seeds",
    "Every seed that ended, by cell and seed.",
    (
        _CELL,
        _SEED,
        text("verdict", "pass, fail, inconclusive or crash"),
        truth("passed", "whether it counts as passed: enough happened"),
        text("reason", "the first check that did not pass, in words; null if all did"),
        text("undecided", "the inconclusive checks, with commas"),
        integer("heights", "blocks", "final blocks that all validators have"),
        integer("fires", "", "timers that fired"),
        integer("faults", "", "faults and byzantine behaviours that took effect"),
        text("digest", "rolling hash over the run's events"),
    ),
)
METRICS: Final = Table(
    "metrics",
    "Every metric of every seed, a row each. The unit is last in a metric's name.",
    (_CELL, _SEED, text("metric", "its name, as in result.json"), number("value", "", "its value")),
)


def _sweep_rows(folder: Path) -> Iterator[Row]:
    cells = sorted(folder.glob(f"cell-*/{SWEEP_LOG_FILE}"), key=lambda log: int(log.parent.name.split("-")[1]))
    for log in cells or [folder / SWEEP_LOG_FILE]:
        cell = log.parent.name if cells else None
        for each in _outcomes(log):
            yield SEEDS.row(each, cell=cell, undecided=tuple(each.undecided), faults=sum(each.faults.values()))
            for name, value in each.metrics.items():
                yield METRICS.row(each, cell=cell, metric=name, value=value)


def _outcomes(path: Path) -> list[SeedOutcome]:
    """The outcomes in a sweep's log, by seed. A last line that was cut off does not count."""
    try:
        whole = path.read_bytes().rpartition(b"\n")[0].splitlines()[1:]
        found = [msgspec.json.decode(line, type=SeedOutcome) for line in whole]
    except (OSError, msgspec.MsgspecError) as error:
        raise BadInput(f"{path}: is no log of a sweep: {error}") from None
    return sorted(found, key=lambda outcome: outcome.seed)


def _run_rows(folder: Path) -> Iterator[Row]:
    return runs.rows_of(read_run_of(folder))


RUNS: Final = Source("a run", (RECORD_FILE, *CHECKPOINT_FILES), runs.TABLES, _run_rows)
SWEEPS: Final = Source("a sweep", (SWEEP_LOG_FILE, GRID_FILE), (SEEDS, METRICS), _sweep_rows)
