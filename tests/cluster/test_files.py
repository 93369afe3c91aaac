"""Tests of files that are there whole or not at all."""

from pathlib import Path

import pytest

from cluster.errors import BadInput
from cluster.files import write_atomically, write_for_user


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")

    def full(_descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_a_user_names_in_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be written: No such file or directory"):
        write_for_user(tmp_path / "nowhere" / "file", "text")
