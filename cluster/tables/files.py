"""Writes tables: CSV files as rows come, Parquet files from these, and the schema. Arrow tables come by the same way.

All tables of a folder are written in one pass over what it holds, whatever their order. No more than a batch of rows
is in memory. In CSV a null is an empty field, and an empty text is a null.
"""

from __future__ import annotations

import csv
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.common.errors import BadInput
from cluster.common.files import write_json_for_user, writing_atomically, writing_for_user
from cluster.common.plugins import lacking_library
from cluster.tables.columns import FORMAT, Row, Table, Type

if TYPE_CHECKING:  # the extra `data` has it
    import arro3.core

SCHEMA_FILE: Final = "schema.json"
FORMATS: Final = ("csv", "parquet")
BATCH_ROWS: Final = 65_536
"""Rows of a batch, and of a row group of Parquet."""
COMPRESSION: Final = "zstd(3)"


def write_tables(
    folder: Path, tables: Sequence[Table], rows: Iterable[Row], formats: Sequence[str] = FORMATS
) -> dict[Path, int]:
    """Write tables into a folder, which is created if need be; returns the files with their numbers of rows.

    Raises :class:`BadInput` if a file cannot be written, or if Parquet is to be and the extra ``data`` is not there.
    """
    if "parquet" in formats:
        require_arrow()
    with writing_for_user(folder):
        folder.mkdir(parents=True, exist_ok=True)
    found: dict[Path, int] = {}
    with tempfile.TemporaryDirectory(dir=folder, prefix=".tables-") as temporary:
        place = folder if "csv" in formats else Path(temporary)
        counts = _write_csv(place, tables, rows)
        for table in tables:
            if "csv" in formats:
                found[_csv_file(folder, table)] = counts[table.name]
            if "parquet" in formats:
                path = folder / f"{table.name}.parquet"
                _write_parquet(path, table, _csv_file(place, table))
                found[path] = counts[table.name]
    pages = [{**table.page, "rows": counts[table.name]} for table in tables]
    write_json_for_user(folder / SCHEMA_FILE, {"format": FORMAT, "tables": pages})
    return found


def arrow_tables(tables: Sequence[Table], rows: Iterable[Row]) -> dict[str, arro3.core.Table]:
    """Tables in memory, by name. Raises :class:`BadInput` without the extra ``data``."""
    require_arrow()
    with tempfile.TemporaryDirectory(prefix="stampede-tables-") as temporary:
        place = Path(temporary)
        _write_csv(place, tables, rows)
        return {table.name: _read_csv(_csv_file(place, table), table).read_all() for table in tables}


def require_arrow() -> None:
    """Raise :class:`BadInput`, with what to install, if there is no library for Arrow and Parquet."""
    try:
        import arro3.core
        import arro3.io  # noqa: F401
    except ModuleNotFoundError as error:
        raise BadInput(lacking_library(error) or str(error)) from None


# --- CSV --------------------------------------------------------------------------------------------------------------


def _csv_file(folder: Path, table: Table) -> Path:
    return folder / f"{table.name}.csv"


def _write_csv(folder: Path, tables: Sequence[Table], rows: Iterable[Row]) -> Counter[str]:
    """Write a file for each table; returns the numbers of rows by table."""
    counts = Counter[str]()
    with ExitStack() as stack:
        writers: dict[str, Any] = {}
        for table in tables:
            path = _csv_file(folder, table)
            stack.enter_context(writing_for_user(path))
            file = TextIOWrapper(stack.enter_context(writing_atomically(path)), encoding="utf-8", newline="")
            stack.callback(file.detach)
            writers[table.name] = csv.writer(file, lineterminator="\n")
            writers[table.name].writerow([column.name for column in table.columns])
        for table, row in rows:
            writers[table.name].writerow(_cells(table, row))
            counts[table.name] += 1
    return counts


def _cells(table: Table, row: Mapping[str, Any]) -> list[object]:
    if unknown := row.keys() - {column.name for column in table.columns}:
        raise ValueError(f"{table.name} has no column {min(unknown)}")
    cells = [column.plain(row.get(column.name)) for column in table.columns]
    return [str(cell).lower() if isinstance(cell, bool) else cell for cell in cells]


# --- Arrow ------------------------------------------------------------------------------------------------------------


def _schema(table: Table) -> arro3.core.Schema:
    from arro3.core import DataType, Field, Schema

    types = {
        Type.TEXT: DataType.utf8(),
        Type.INTEGER: DataType.int64(),
        Type.AMOUNT: DataType.decimal128(38, 0),
        Type.NUMBER: DataType.float64(),
        Type.TRUTH: DataType.bool(),
    }
    fields = [
        Field(each.name, types[each.type], metadata={"unit": each.unit, "words": each.words}) for each in table.columns
    ]
    return Schema(fields, metadata={"format": FORMAT, "table": table.name, "words": table.words})


def _read_csv(path: Path, table: Table) -> arro3.core.RecordBatchReader:
    """The rows of a table in batches, as they are asked for."""
    from arro3.io import read_csv

    return read_csv(path, _schema(table), has_header=True, batch_size=BATCH_ROWS)


def _write_parquet(path: Path, table: Table, source: Path) -> None:
    from arro3.io import write_parquet

    with writing_for_user(path), writing_atomically(path) as file:
        rows = _read_csv(source, table)
        write_parquet(rows, file, compression=COMPRESSION, max_row_group_size=BATCH_ROWS)
