"""A validator that comes from a lost node starts from its disk only if that is the one that it ran on last."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cluster.live.host.host import DATA_FOLDER, NOTES_SUFFIX, HostNotes, ValidatorHost
from cluster.scenario import Scenario

SCENARIO = Scenario.model_validate({"name": "arrival"})
NAME = "validator-1"


def host_on(folder: Path) -> ValidatorHost:
    return ValidatorHost(str(folder), SCENARIO.model_dump_json(), 1, 1, "127.0.0.1")


def leave_disk(folder: Path, notes: HostNotes) -> Path:
    disk = folder / DATA_FOLDER / NAME
    disk.mkdir(parents=True)
    (disk / "journal").write_bytes(b"votes")
    (folder / DATA_FOLDER / f"{NAME}{NOTES_SUFFIX}").write_bytes(msgspec.json.encode(notes))
    return disk


def notes_on(folder: Path) -> HostNotes:
    return msgspec.json.decode((folder / DATA_FOLDER / f"{NAME}{NOTES_SUFFIX}").read_bytes(), type=HostNotes)


def test_without_the_runs_folder_it_joins(tmp_path: Path) -> None:
    host_on(tmp_path).arrive(1, 1, 1)
    assert notes_on(tmp_path) == HostNotes(starts=1, joins=True, moves=1)
    assert not (tmp_path / DATA_FOLDER / NAME).exists()
    assert host_on(tmp_path).wipe(1) is None, "nothing is left to lose"


@pytest.mark.parametrize(("moved_before", "move"), [(0, 1), (3, 4), (4, 4)])
def test_on_a_shared_volume_it_starts_from_its_disk(tmp_path: Path, moved_before: int, move: int) -> None:
    disk = leave_disk(tmp_path, HostNotes(starts=2, http_port=80, moves=moved_before))
    host_on(tmp_path).arrive(1, move, 1)
    assert (disk / "journal").read_bytes() == b"votes"
    assert notes_on(tmp_path) == HostNotes(starts=2, http_port=80, moves=move)


def test_a_disk_from_before_an_earlier_move_is_emptied(tmp_path: Path) -> None:
    """It ran elsewhere meanwhile, and may have voted there."""
    disk = leave_disk(tmp_path, HostNotes(starts=2, moves=0))
    host_on(tmp_path).arrive(1, 2, 5)
    assert not disk.exists()
    assert notes_on(tmp_path) == HostNotes(starts=5, joins=True, moves=2)
