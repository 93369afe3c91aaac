"""A worker's batch leaves no files behind, also when it is cancelled."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from cluster.commands.sweeps import worker
from cluster.commands.sweeps.worker import Finished, run_batch


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
