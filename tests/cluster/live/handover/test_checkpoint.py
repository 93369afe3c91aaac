"""The checkpoint of a run: whole or refused, with what is outside of it by name."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cluster.common.errors import BadInput
from cluster.live.handover import checkpoint
from cluster.live.handover.handover import RunClock
from cluster.record.folder import CHECKPOINT_BEFORE_FILE, CHECKPOINT_FILE


def test_the_state_comes_back_with_other_objects_outside(tmp_path: Path) -> None:
    old, new = RunClock(), RunClock()
    shared = [1]
    state = {"one": shared, "other": shared, "call": partial(old.stop, 5.0)}
    checkpoint.write(tmp_path, {"height": 7}, state, {"clock": old})
    found = checkpoint.read(tmp_path)
    assert found.header == {"height": 7}
    again = found.state({"clock": new})
    assert again["one"] is again["other"] and again["one"] == [1]
    again["call"]()
    assert new.now_ms() == 5.0 and old.now_ms() != 5.0


def test_it_is_its_owners_alone(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, {}, None, {})
    file = tmp_path / CHECKPOINT_FILE
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o666)
    with pytest.raises(BadInput, match="others may write it; expected a file of yours, with mode 600"):
        checkpoint.read(tmp_path)


@pytest.mark.parametrize("content", [b"", b"st", checkpoint.MAGIC + b"00\n{}\n", b"other\n"])
def test_the_one_before_counts_if_the_newest_is_torn(tmp_path: Path, content: bytes) -> None:
    for height in (1, 2):
        checkpoint.write(tmp_path, {"height": height}, [height], {})
    assert checkpoint.read(tmp_path).header == {"height": 2}
    (tmp_path / CHECKPOINT_FILE).write_bytes(content)
    assert checkpoint.read(tmp_path).state({}) == [1]
    (tmp_path / CHECKPOINT_BEFORE_FILE).unlink()
    with pytest.raises(BadInput, match=r"is damaged|is no checkpoint"):
        checkpoint.read(tmp_path)


def test_every_torn_length_is_refused(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, {"height": 1}, list(range(9)), {})
    file = tmp_path / CHECKPOINT_FILE
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(BadInput):
            checkpoint.read(tmp_path)


def test_without_one_the_way_to_have_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no checkpoint; expected a run that was started with --attachable"):
        checkpoint.read(tmp_path)


def test_another_versions_state_is_refused_in_one_line(tmp_path: Path) -> None:
    state: Any = RunClock()
    checkpoint.write(tmp_path, {}, state, {"gone": state})
    with pytest.raises(BadInput, match="cannot be read by this version"):
        checkpoint.read(tmp_path).state({})


def test_nothing_is_left_of_it_with_the_verdict(tmp_path: Path) -> None:
    """A driver was killed while it wrote one, too."""
    for height in (1, 2):
        checkpoint.write(tmp_path, {"height": height}, [height], {})
    (tmp_path / f".{CHECKPOINT_FILE}.4711").touch()
    checkpoint.remove(tmp_path)
    assert list(tmp_path.iterdir()) == []
