"""A worker's batch leaves no files behind, also when it is cancelled; folders are sent whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from cluster.commands.sweeps import worker
from cluster.commands.sweeps.worker import LEFT_OUT_FILE, Arriving, Finished, packed, run_batch


def leave(number: int, leaves: Path) -> int:
    leaves.mkdir()
    (leaves / "file").write_text("content")
    return 2 * number


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(worker, "bound_memory", lambda memory: None)
    monkeypatch.setattr(worker, "free_memory", lambda: None)
    return tmp_path


def test_what_a_number_leaves_is_sent_and_removed(temporary: Path) -> None:
    *pieces, finished = run_batch(leave, [4], None, 0)
    assert isinstance(finished, Finished) and finished[:2] == (4, 8)
    assert pieces and list(temporary.iterdir()) == []


def test_a_batch_that_is_cancelled_while_it_removes_a_folder_removes_it(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove, calls = shutil.rmtree, list[Path]()

    def cancelled_once(folder: Path, **options: Any) -> None:
        calls.append(folder)
        if len(calls) == 1:
            raise KeyboardInterrupt
        remove(folder, **options)

    monkeypatch.setattr(shutil, "rmtree", cancelled_once)
    with pytest.raises(KeyboardInterrupt):
        list(run_batch(leave, [4], None, 0))
    assert list(temporary.iterdir()) == [] and len(calls) == 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "logs").mkdir(parents=True)
    (source / "report.html").write_text("a page")
    (source / "logs" / "one.log").write_bytes(bytes(range(256)) * 40)
    return source


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_arrives_as_it_was(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "CHUNK_BYTES", 100)
    pieces, arriving, target = list(packed(folder)), Arriving(), tmp_path / "out" / "seed-7"
    assert len(pieces) > 3 and max(map(len, pieces)) == 100
    for piece in pieces:
        arriving.add(piece)
        assert not target.exists(), "not before all is there"
    arriving.finish(target)
    assert content(target) == content(folder)
    assert [path.name for path in target.parent.iterdir()] == ["seed-7"]


def test_pieces_of_a_worker_that_was_lost_are_forgotten(folder: Path, tmp_path: Path) -> None:
    arriving, target = Arriving(), tmp_path / "seed-7"
    arriving.add(b"half of a")
    arriving.drop()
    for piece in packed(folder):
        arriving.add(piece)
    arriving.finish(target)
    assert content(target) == content(folder)
    arriving.finish(tmp_path / "seed-8")
    assert not (tmp_path / "seed-8").exists(), "seed 8 left nothing"


def test_a_folder_takes_the_place_of_an_older_one(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "seed-7"
    target.mkdir()
    (target / "traceback.txt").touch()
    arriving = Arriving()
    for piece in packed(folder):
        arriving.add(piece)
    arriving.finish(target)
    assert content(target) == content(folder)


def test_what_is_too_large_is_left_out_and_named(folder: Path, tmp_path: Path) -> None:
    arriving, target = Arriving(), tmp_path / "seed-7"
    for piece in packed(folder, max_bytes=1_000):
        arriving.add(piece)
    arriving.finish(target)
    assert (target / "report.html").read_text() == "a page"
    assert (target / LEFT_OUT_FILE).read_text() == "logs/one.log 10,240 bytes\n"
    assert not (target / "logs").exists()


def test_nothing_is_sent_of_a_seed_that_left_nothing(tmp_path: Path) -> None:
    assert list(packed(tmp_path / "none")) == []
