"""Tests of files that are there whole or not at all."""

import json
from pathlib import Path

import pytest

from cluster.common.errors import BadInput
from cluster.common.files import check_target, write_atomically, write_for_user, write_json_for_user


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


def test_a_page_is_written_as_json_where_a_file_is_named(tmp_path: Path) -> None:
    write_json_for_user(None, {"is": "ignored"})
    write_json_for_user(tmp_path / "page.json", {"name": "ü", "numbers": [1, 2]})
    assert [each.name for each in tmp_path.iterdir()] == ["page.json"]
    text = (tmp_path / "page.json").read_text(encoding="utf-8")
    assert text.endswith("]\n}\n") and json.loads(text) == {"name": "ü", "numbers": [1, 2]}
    with pytest.raises(BadInput, match=r"nowhere.*cannot be written"):
        write_json_for_user(tmp_path / "nowhere" / "page.json", {})


def test_a_target_is_looked_at_before_the_work(tmp_path: Path) -> None:
    check_target(None)
    check_target(tmp_path / "new")
    (tmp_path / "old").write_text("kept")
    check_target(tmp_path / "old")
    assert [path.name for path in tmp_path.iterdir()] == ["old"] and (tmp_path / "old").read_text() == "kept"
    for wrong, why in (
        (tmp_path, "is a folder, expected a file's name"),
        (tmp_path / "nowhere" / "file", f"{tmp_path / 'nowhere'}: No such file or directory"),
        (tmp_path / "old" / "file", f"{tmp_path / 'old'}: Not a directory"),
    ):
        with pytest.raises(BadInput) as caught:
            check_target(wrong)
        assert str(caught.value) == f"{wrong}: cannot be written: {why}"
