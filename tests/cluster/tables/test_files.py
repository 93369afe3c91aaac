"""CSV, Parquet and Arrow tables hold the rows that were given, of every type, with nulls; other libraries read them."""

from __future__ import annotations

import csv
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest
from arro3.io import read_parquet
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.common.errors import BadInput
from cluster.tables import files
from cluster.tables.columns import MOST, Row, Table, Type, amount, integer, number, text, truth
from cluster.tables.files import SCHEMA_FILE, arrow_tables, write_tables
from tests.cluster.tables.reference import PAGE, page

ALL: Final = Table(
    "all",
    "A column of each type.",
    (
        text("text", "a text"),
        integer("integer", "blocks", "an integer"),
        amount("amount", "an amount"),
        number("number", "ms", "a number"),
        truth("truth", "a truth"),
    ),
)
OTHER: Final = Table("other", "Another table.", (integer("n", "", "a number"),))
CELLS: Final = {
    "text": st.none() | st.text("abc,\"'\n\r\t\0é€;", min_size=1),
    "integer": st.none() | st.integers(-(2**63), 2**64),
    "amount": st.none() | st.integers(0, 10**39),
    "number": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    "truth": st.none() | st.booleans(),
}


def expected(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it is read again: a text on one line, no integer above its type's greatest."""
    found = {column.name: row.get(column.name) for column in ALL.columns}
    if found["text"] is not None:
        found["text"] = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in found["text"])
    if found["integer"] is not None:
        found["integer"] = min(found["integer"], 2**63 - 1)
    if found["amount"] is not None:
        found["amount"] = Decimal(min(found["amount"], 10**38 - 1))
    return found


def rows_in(table: Any) -> list[dict[str, Any]]:
    columns = {name: table[name].to_pylist() for name in table.schema.names}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@given(rows=st.lists(st.fixed_dictionaries(CELLS), max_size=8))
@settings(max_examples=60, deadline=None)
def test_all_formats_hold_the_rows(rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tables")
    given_rows: list[Row] = [each for row in rows for each in ((ALL, row), (OTHER, {"n": 1}))]
    found = write_tables(folder, (ALL, OTHER), given_rows)
    assert {path.name: count for path, count in found.items()} == dict.fromkeys(
        ("all.csv", "all.parquet", "other.csv", "other.parquet"), len(rows)
    )
    wanted = [expected(row) for row in rows]
    assert rows_in(arrow_tables((ALL, OTHER), given_rows)["all"]) == wanted
    assert rows_in(read_parquet(folder / "all.parquet").read_all()) == wanted
    with (folder / "all.csv").open(newline="", encoding="utf-8") as file:
        assert [row["text"] for row in csv.DictReader(file)] == [row["text"] or "" for row in wanted]
    assert sorted(path.name for path in folder.iterdir()) == [
        *("all.csv", "all.parquet", "other.csv", "other.parquet", SCHEMA_FILE),
    ]


def test_the_schema_has_columns_types_units_and_words(tmp_path: Path) -> None:
    write_tables(tmp_path, (ALL,), [(ALL, {"integer": 1})])
    page = json.loads((tmp_path / SCHEMA_FILE).read_text())
    assert page["format"] == "stampede-tables/1"
    (table,) = page["tables"]
    assert (table["name"], table["words"], table["rows"]) == ("all", "A column of each type.", 1)
    assert table["columns"][1] == {"name": "integer", "type": "integer", "unit": "blocks", "words": "an integer"}
    field = read_parquet(tmp_path / "all.parquet").schema.field("integer")
    assert field.metadata_str == {"unit": "blocks", "words": "an integer"}


def test_a_table_is_written_in_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BATCH_ROWS", 100)
    write_tables(tmp_path, (OTHER,), ((OTHER, {"n": n}) for n in range(250)))
    query = f"select distinct row_group_id, row_group_num_rows from parquet_metadata('{tmp_path}/other.parquet')"
    assert sorted(duckdb.execute(query).fetchall()) == [(0, 100), (1, 100), (2, 50)]


def test_a_row_with_an_unknown_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="other has no column m"):
        write_tables(tmp_path, (OTHER,), [(OTHER, {"m": 1})])
    assert list(tmp_path.iterdir()) == []


def test_one_format_alone(tmp_path: Path) -> None:
    write_tables(tmp_path / "csv", (OTHER,), [], ("csv",))
    write_tables(tmp_path / "parquet", (OTHER,), [], ("parquet",))
    assert {path.name for path in (tmp_path / "csv").iterdir()} == {"other.csv", SCHEMA_FILE}
    assert {path.name for path in (tmp_path / "parquet").iterdir()} == {"other.parquet", SCHEMA_FILE}


def test_without_the_extra_there_is_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "arro3.io", None)
    said = r"^arro3-\w+ is not installed, which this needs: pip install 'stampede\[data\]'$"
    with pytest.raises(BadInput, match=said):
        write_tables(tmp_path / "none", (OTHER,), [])
    with pytest.raises(BadInput, match=said):
        arrow_tables((OTHER,), [])
    assert not (tmp_path / "none").exists()
    assert len(write_tables(tmp_path, (OTHER,), [(OTHER, {"n": 1})], ("csv",))) == 1


def test_a_folder_that_cannot_be_written_gets_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="file: cannot be written: File exists"):
        write_tables(tmp_path / "file", (OTHER,), [])
    (tmp_path / "other.csv").mkdir()
    with pytest.raises(BadInput, match=r"other\.csv: cannot be written: "):
        write_tables(tmp_path, (OTHER,), [])


def test_other_libraries_read_tables() -> None:
    rows = [(ALL, {"integer": n, "amount": 10**30 + n, "truth": True}) for n in range(3)]
    found = arrow_tables((ALL,), rows)["all"]
    assert hasattr(found, "__arrow_c_stream__")  # by which polars and pandas take it, too
    assert duckdb.execute("select sum(integer), max(amount)::varchar from found").fetchall() == [(3, str(10**30 + 2))]


def test_every_type_has_its_greatest_value() -> None:
    assert MOST == {Type.INTEGER: 2**63 - 1, Type.AMOUNT: 10**38 - 1}


@pytest.mark.kits
def test_the_page_of_data_has_all_columns() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.cluster.tables.reference"
