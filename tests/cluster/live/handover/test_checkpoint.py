"""The checkpoint of a run: whole and of this version, or refused in one line that says what would be right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cluster.common.errors import BadInput
from cluster.live.handover import checkpoint
from cluster.live.handover.left import VERSION, LeftRun
from cluster.record.folder import CHECKPOINT_BEFORE_FILE, CHECKPOINT_FILE
from cluster.record.saved import encode, sealed
from tests.cluster.live.handover.parts import left_run

ADVICE = "attach with the code that began the run"


def written_by(commit: str) -> LeftRun:
    return replace(left_run(), commit=commit)


def write_body(folder: Path, body: bytes, number: int = checkpoint.FORMAT) -> None:
    """A whole file with this body."""
    file = folder / CHECKPOINT_FILE
    file.write_bytes(sealed("checkpoint", number, body))
    file.chmod(0o600)


def changed(folder: Path, change: Callable[[Any], None]) -> None:
    """Change a written checkpoint, which is whole afterwards."""
    checkpoint.write(folder, left_run())
    content = json.loads((folder / CHECKPOINT_FILE).read_bytes().split(b"\n", 2)[2])
    change(content)
    write_body(folder, json.dumps(content).encode())


def refusal(folder: Path) -> str:
    """Why the checkpoint of a run is refused. The files are the same afterwards."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(BadInput) as refused:
        checkpoint.read(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    left = left_run()
    checkpoint.write(tmp_path, left)
    assert checkpoint.read(tmp_path) == left


def test_it_is_its_owners_alone(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, left_run())
    file = tmp_path / CHECKPOINT_FILE
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o666)
    assert refusal(tmp_path).endswith("others may write it; expected a file of yours, with mode 600")


@pytest.mark.parametrize("content", [b"", b"st", b"stampede checkpoint 2\n00\n{}\n", b"other\n"])
def test_the_one_before_counts_if_the_newest_is_torn(tmp_path: Path, content: bytes) -> None:
    for commit in ("1", "2"):
        checkpoint.write(tmp_path, written_by(commit))
    assert checkpoint.read(tmp_path).commit == "2"
    (tmp_path / CHECKPOINT_FILE).write_bytes(content)
    assert checkpoint.read(tmp_path).commit == "1"
    (tmp_path / CHECKPOINT_BEFORE_FILE).unlink()
    assert "is damaged" in refusal(tmp_path) or "is no checkpoint" in refusal(tmp_path)


def test_every_torn_length_is_refused(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, left_run())
    file = tmp_path / CHECKPOINT_FILE
    whole = file.read_bytes()
    for length in [*range(200), *range(200, len(whole), 97), len(whole) - 1]:
        file.write_bytes(whole[:length])
        assert refusal(tmp_path).startswith(f"{file}: is ")


def test_without_one_the_way_to_have_one_is_told(tmp_path: Path) -> None:
    assert refusal(tmp_path).endswith("has no checkpoint; expected a run that was started with --attachable")


def test_another_version_is_refused_whatever_else_it_has(tmp_path: Path) -> None:
    """The one before, which is older still, is not taken in its place."""
    checkpoint.write(tmp_path, left_run())
    (tmp_path / CHECKPOINT_FILE).rename(tmp_path / CHECKPOINT_BEFORE_FILE)
    write_body(tmp_path, json.dumps({"mood": "good", "version": VERSION + 1, "commit": "fedcba987654"}).encode())
    assert refusal(tmp_path) == (
        f"{tmp_path / CHECKPOINT_FILE}: is of version {VERSION + 1}, written by commit fedcba987654; expected version"
        f" {VERSION}: {ADVICE}"
    )


def test_the_format_of_before_is_refused(tmp_path: Path) -> None:
    """Its rest was a pickle, which is not looked at."""
    write_body(tmp_path, b'{"version":2}\n\x80\x05.', 1)
    assert refusal(tmp_path) == f"{tmp_path / CHECKPOINT_FILE}: is of format 1; expected format 2: {ADVICE}"


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (["commit"], 7, "Expected `str`, got `int` - at `$.commit`"),
        (["mood"], "good", "Object contains unknown field `mood`"),
        (["phase"], "asleep", "Invalid enum value 'asleep' - at `$.phase`"),
        (["scenario", "validators"], "many", "validators: "),
        (["record", "problems"], [1], "Expected `str`, got `int` - at `$.record.problems[0]`"),
        (["hosts", 0, "mood"], 1, "Object contains unknown field `mood` - at `$.hosts[0]`"),
        (["stage", "traps"], {"0": [1, {}]}, "Expected `array`, got `object` - at `$.stage.traps[...][1]`"),
        (["record", "seed"], -1, "record.seed: -1 is not between 0 and 18446744073709551615"),
        (["clock", "reading"], "this-machine 1x", "could not convert string to float: '1x' - at `$.clock`"),
        (["mo\nod"], "good", "Object contains unknown field `mo\\nod`"),
    ],
)
def test_a_field_that_does_not_fit_is_refused_by_its_name(
    tmp_path: Path, path: list[Any], value: object, problem: str
) -> None:
    def change(content: Any) -> None:
        for name in path[:-1]:
            content = content[name]
        content[path[-1]] = value

    changed(tmp_path, change)
    said = refusal(tmp_path)
    assert said.startswith(f"{tmp_path / CHECKPOINT_FILE}: does not fit version {VERSION}: {problem}"), said
    assert said.endswith(f"; expected a run as this code writes it: {ADVICE}")


def test_what_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    write_body(tmp_path, b'{"version":3,"commit":"","mood":' + b"[" * 100_000)
    assert "maximum recursion depth" in refusal(tmp_path)


def test_a_text_that_is_no_unicode_is_written_as_far_as_it_is(tmp_path: Path) -> None:
    """Of the name of a folder, or of what a validator served."""
    left = left_run()
    left.record.problems.append("see runs/\udcff")
    checkpoint.write(tmp_path, left)
    found = checkpoint.read(tmp_path)
    assert found.record.problems == ["see runs/?"]
    found.record.problems[:] = left.record.problems
    assert found == left


@pytest.mark.parametrize("part", ["journal", "record", "chain", "stage", "hosts", "audit"])
def test_a_part_that_is_missing_is_refused(tmp_path: Path, part: str) -> None:
    def drop(content: Any) -> None:
        del content[part]

    changed(tmp_path, drop)
    assert f"Object missing required field `{part}`" in refusal(tmp_path)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"version":3}', b'{"version":"3","commit":""}'])
def test_what_is_no_run_is_refused(tmp_path: Path, body: bytes) -> None:
    write_body(tmp_path, body)
    assert f"does not fit version {VERSION}: " in refusal(tmp_path)


def test_an_object_of_the_driver_cannot_be_written() -> None:
    class Host:
        pass

    with pytest.raises(NotImplementedError, match="a record has no place for a Host"):
        encode(replace(left_run(), stage=Host()))


def test_nothing_is_left_of_it_with_the_verdict(tmp_path: Path) -> None:
    """A driver was killed while it wrote one, too."""
    for _ in range(2):
        checkpoint.write(tmp_path, left_run())
    (tmp_path / f".{CHECKPOINT_FILE}.4711").touch()
    checkpoint.remove(tmp_path)
    assert list(tmp_path.iterdir()) == []
