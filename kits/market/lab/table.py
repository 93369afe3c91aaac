"""The table of a lab: one row for each run, in one columnar file.

The file is NumPy's ``.npz`` format: an array for each column. Text columns are the experiment, and the level of each
factor (``factor.NAME``), empty where an experiment lacks the factor. All others are numbers, ``nan`` where it lacks a
measure. Rows are in the order of experiments, cells and seeds, so the same runs give the same file, wherever and in
whichever order they ran.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from zipfile import BadZipFile
from zlib import error as ZlibError  # noqa: N812

import msgspec
import numpy as np

from cluster.common.errors import BadInput
from cluster.common.files import write_for_user
from cluster.tables.columns import Row as TableRow
from cluster.tables.columns import Source, Table, integer, number, text
from kits.market.trials import Key, cell_text

TABLE_FILE: Final = "lab.npz"
DIGITS: Final = 9
"""Significant digits of a number in the table."""
FACTOR: Final = "factor."
"""What the names of the factors' columns begin with."""
KINDS: Final = {"experiment": "U", "seed": "i"}
"""NumPy's kinds of the key columns. Those of factors are texts, all others floating-point numbers."""
NAMES_OF_KINDS: Final = {"U": "texts", "i": "integers", "f": "numbers"}
KEYS: Final = tuple(KINDS)


class Row(msgspec.Struct, frozen=True):
    """The measures of one run."""

    experiment: str
    levels: dict[str, str]
    """The level of each factor, as text, in the order of the factors."""
    seed: int
    measures: dict[str, float]

    @property
    def cell(self) -> str:
        """The levels, separated by spaces."""
        return cell_text(tuple(self.levels.values()))

    @property
    def key(self) -> Key:
        return self.experiment, self.cell, self.seed


def columns_of(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """The columns of a table by name: the keys, then factors and measures, each in alphabetic order."""
    factors = sorted({name for row in rows for name in row.levels})
    found: dict[str, np.ndarray] = {
        "experiment": np.array([row.experiment for row in rows], np.str_),
        "seed": np.array([row.seed for row in rows], np.int64),
        **{FACTOR + name: np.array([row.levels.get(name, "") for row in rows], np.str_) for name in factors},
    }
    return found | _measures(rows)


def _measures(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    names = sorted({name for row in rows for name in row.measures})
    return {name: np.array([rounded(row.measures.get(name, np.nan)) for row in rows], np.float64) for name in names}


def rounded(value: float) -> float:
    """A number with :data:`DIGITS` significant digits, so that the last bits of a sum do not count."""
    return float(f"{value:.{DIGITS - 1}e}") + 0.0  # no negative zero


def digest(rows: Sequence[Row]) -> str:
    """SHA-256 of experiments, cells, seeds and measures, as 64 hex digits."""
    hashed = hashlib.sha256()
    keys = {name: [getattr(row, name) for row in rows] for name in ("experiment", "cell", "seed")}
    for name, column in (keys | {name: each.tolist() for name, each in _measures(rows).items()}).items():
        hashed.update(f"{name}\n".encode())
        hashed.update("\n".join(map(str, column)).encode() + b"\n")
    return hashed.hexdigest()


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write a table, whole or not at all. Raises :class:`BadInput`."""
    data = io.BytesIO()
    np.savez_compressed(data, **columns_of(rows))  # type: ignore[arg-type]
    write_for_user(path, data.getvalue())


def read_table(path: Path, factors: Mapping[str, Sequence[str]] | None = None) -> list[Row]:
    """Read a table. Raises :class:`BadInput`.

    ``factors``: those of each experiment, in their order; ``None``: those with a level, in alphabetic order.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            columns = {name: found[name] for name in found.files}
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError, TypeError, AttributeError, BadZipFile, ZlibError) as error:
        raise BadInput(f"{path}: is no table of a lab: {error}") from None
    if problem := _problem(columns):
        raise BadInput(f"{path}: is no table of a lab: {problem}")
    measures = {name: column.tolist() for name, column in columns.items() if _kind(name) == "f"}
    rows = []
    for at, (experiment, seed) in enumerate(zip(*(columns[name].tolist() for name in KEYS), strict=True)):
        levels = _levels(columns, at) if factors is None else _levels(columns, at, factors.get(experiment, ()))
        if factors is not None and (experiment not in factors or len(levels) < len(factors[experiment])):
            raise BadInput(f"{path}: {experiment} has the factors {', '.join(levels)}, which its summary has not")
        values = {name: each[at] for name, each in measures.items() if not np.isnan(each[at])}
        rows.append(Row(experiment, levels, seed, values))
    return rows


def _levels(columns: Mapping[str, np.ndarray], at: int, factors: Sequence[str] | None = None) -> dict[str, str]:
    """The levels of a row: those of some factors in their order, or all."""
    found = {name.removeprefix(FACTOR): str(each[at]) for name, each in columns.items() if name.startswith(FACTOR)}
    return {name: found[name] for name in (found if factors is None else factors) if found.get(name)}


def _kind(name: str) -> str:
    """NumPy's kind of a column."""
    return KINDS.get(name, "U" if name.startswith(FACTOR) else "f")


def _problem(columns: Mapping[str, np.ndarray]) -> str:
    """What is wrong with the columns of a file; empty if nothing is."""
    if missing := [name for name in KEYS if name not in columns]:
        return f"has no column {missing[0]}"
    rows = len(columns["seed"])
    for name, column in columns.items():
        kind = _kind(name)
        if column.ndim != 1 or len(column) != rows or column.dtype.kind != kind:
            return f"the column {name} is not one of {rows} {NAMES_OF_KINDS[kind]}"
    return ""


# --- for notebooks ----------------------------------------------------------------------------------------------------

MEASURES: Final = Table(
    "measures",
    "Every measure of every run, a row each: by experiment, cell, seed and measure.",
    (
        text("experiment", "name of the experiment"),
        text("cell", "each of its factors with its level, such as load=0.5, policy=cip1"),
        integer("seed", "", "the seed"),
        text("measure", "name of the measure, with its unit last"),
        number("value", "", "its value"),
    ),
)


def _rows(folder: Path) -> Iterator[TableRow]:
    for row in read_table(folder / TABLE_FILE):
        cell = ", ".join(f"{name}={level}" for name, level in row.levels.items())
        key = {"experiment": row.experiment, "cell": cell, "seed": row.seed}
        for name, value in row.measures.items():
            yield MEASURES, {**key, "measure": name, "value": value}


LABS: Final = Source("a lab", (TABLE_FILE,), (MEASURES,), _rows)
"""The tables of a lab that ended."""
