"""The table: what is written is read, the digest follows the numbers alone, and a broken file is one line."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from cluster.common.errors import BadInput
from kits.market.lab.table import Row, columns_of, digest, read_table, write_table

ROWS = [
    Row("one", {"k": "a", "n": "1"}, 0, {"y": 1.5, "z": -0.25}),
    Row("one", {"k": "a", "n": "1"}, 1, {"y": 1e-12}),
    Row("two", {"k": "b"}, 0, {"w": 123_456_789_123.0}),
]
FACTORS = {"one": ("k", "n"), "two": ("k",)}


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "lab.npz"
    write_table(path, ROWS)
    assert read_table(path, FACTORS) == [ROWS[0], ROWS[1], replace(ROWS[2], measures={"w": 123_456_789_000.0})]
    assert digest(read_table(path, FACTORS)) == digest(ROWS)
    assert {name: column.dtype.kind for name, column in columns_of(ROWS).items()} == {
        "experiment": "U", "seed": "i", "factor.k": "U", "factor.n": "U", "w": "f", "y": "f", "z": "f",
    }  # fmt: skip


def test_the_digest_overlooks_the_last_bits_of_a_sum_and_nothing_else() -> None:
    sums = [Row("one", {"k": "a"}, 0, {"y": value, "z": zero}) for value, zero in ((0.1 + 0.2, 0.0), (0.3, -0.0))]
    assert sums[0].measures != sums[1].measures
    assert digest(sums[:1]) == digest(sums[1:])
    for other in (
        replace(ROWS[0], measures={"y": 1.500_001, "z": -0.25}),
        replace(ROWS[0], measures={"y": 1.5}),
        replace(ROWS[0], measures={"y": 1.5, "zz": -0.25}),
        replace(ROWS[0], seed=1),
        replace(ROWS[0], levels={"k": "a", "n": "2"}),
        replace(ROWS[0], experiment="two"),
    ):
        assert digest([other, *ROWS[1:]]) != digest(ROWS)
    assert digest(ROWS[::-1]) != digest(ROWS)


def test_the_digest_is_known() -> None:
    """Other machines and versions of NumPy have the same."""
    assert digest(ROWS) == "0e8f445ec8c2f48d4e51058b1bc506be266de6ac930d61f988e27a5e0cb5cdf4"


def _columns(path: Path, **changes: np.ndarray) -> None:
    np.savez(path, **{**columns_of(ROWS), **changes})  # type: ignore[arg-type]


def _cut(path: Path) -> None:
    write_table(path, ROWS)
    path.write_bytes(path.read_bytes()[:-40])


def _without_seed(path: Path) -> None:
    np.savez(path, **{name: column for name, column in columns_of(ROWS).items() if name != "seed"})  # type: ignore[arg-type]


def _text_in_a_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("seed.npy", "no array")


BROKEN: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("seed,y\n1,2\n"),
    "cut": _cut,
    "single array": lambda path: np.save(path.open("wb"), np.zeros(3)),
    "pickle": lambda path: np.savez(path, seed=np.array([{}], dtype=object)),
    "no arrays": _text_in_a_zip,
    "no seed": _without_seed,
    "text for a number": lambda path: _columns(path, y=np.array(["1", "2", "3"])),
    "short column": lambda path: _columns(path, y=np.zeros(2)),
    "two dimensions": lambda path: _columns(path, y=np.zeros((3, 1))),
    "seeds that are no integers": lambda path: _columns(path, seed=np.zeros(3)),
    "number for a level": lambda path: _columns(path, **{"factor.k": np.zeros(3)}),
    "folder": lambda path: path.mkdir(),
    "nothing": lambda path: None,
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_table_is_one_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / "lab.npz"
    BROKEN[name](path)
    with pytest.raises(BadInput, match=r"lab\.npz: (is no table of a lab|cannot be read): ") as caught:
        read_table(path, FACTORS)
    assert "\n" not in str(caught.value)


def test_a_table_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"lab\.npz: cannot be written: No such file or directory$"):
        write_table(tmp_path / "none" / "lab.npz", ROWS)


def test_missing_measures_are_nan_in_the_file_and_absent_in_a_row(tmp_path: Path) -> None:
    path = tmp_path / "lab.npz"
    write_table(path, ROWS)
    with np.load(path) as found:
        assert [math.isnan(value) for value in found["z"]] == [False, True, True]
    assert "z" not in read_table(path, FACTORS)[1].measures


def test_a_factor_is_a_column_with_its_levels(tmp_path: Path) -> None:
    """In the order of the experiment, whatever the order of the columns."""
    path = tmp_path / "lab.npz"
    write_table(path, ROWS)
    with np.load(path) as found:
        assert found["factor.k"].tolist() == ["a", "a", "b"]
        assert found["factor.n"].tolist() == ["1", "1", ""]
    assert list(read_table(path, {**FACTORS, "one": ("n", "k")})[0].levels) == ["n", "k"]
    assert [each.levels for each in read_table(path)] == [each.levels for each in ROWS]
    for factors, problem in (({"one": ("z",)}, "one has the factors "), ({"one": ("k", "n")}, "two has the factors ")):
        with pytest.raises(BadInput, match=problem):
            read_table(path, factors)
