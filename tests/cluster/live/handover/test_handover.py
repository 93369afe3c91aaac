"""The files of a run in time, on disks that are full or damaged, and hosts whose driver was another one."""

from __future__ import annotations

import errno
import os
import time
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from cluster.common.errors import BadInput
from cluster.live.driver.supervised_host import Host, actor_name
from cluster.live.handover import checkpoint
from cluster.live.handover.handover import MAX_BYTES_PER_S, JournalFile, RunFiles
from cluster.live.handover.rows import SIGHTINGS_FILE, Sightings
from cluster.live.host.validator_loop import LoopState
from cluster.live.nodes.ray_nodes import Place
from cluster.live.processes.history import Phase
from cluster.record.finalizations import Finalization
from cluster.record.folder import CHECKPOINT_FILE, JOURNAL_FILE
from cluster.run.events import Up, Violation
from cluster.run.journal import read_journal
from tests.cluster.live.handover.parts import left_run


def test_a_checkpoint_is_written_at_once_when_something_is_new(tmp_path: Path) -> None:
    files, written = RunFiles.new(tmp_path, print, is_attachable=True), list[int]()
    for number, mark in enumerate("aabb"):
        files.look(mark, partial(written.append, number))
    files.journal.note(Up(1.5), [])
    files.look("b", lambda: written.append(4))
    files.close()
    assert written == [0, 2, 4]


def test_a_large_checkpoint_is_followed_by_a_longer_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a long run's do not take the disk from its validators."""
    files, now_s, written = RunFiles.new(tmp_path, print, is_attachable=True), 0.0, list[float]()
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    left = left_run()
    left.record.problems.append("x" * 7 * MAX_BYTES_PER_S)

    def write() -> None:
        written.append(now_s)
        files.write(left)

    for second in range(10):
        now_s = float(second)
        files.look("a", write)
        if not second:
            left.record.problems.clear()  # the next one is small
    assert written == [0.0, 8.0]
    now_s = 10.0
    files.look("a", write)
    assert written == [0.0, 8.0, 10.0]


def test_a_checkpoint_that_cannot_be_written_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full for a moment, twice."""
    said = list[str]()
    files = RunFiles.new(tmp_path, said.append, is_attachable=True)

    def is_full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for times in (1, 2):
        files.write(replace(left_run(), commit="before"))
        with monkeypatch.context() as full:
            full.setattr(os, "fsync", is_full)
            files.write(replace(left_run(), commit="lost"))
            files.write(replace(left_run(), commit="lost, too"))
        line = f"{tmp_path}: the checkpoint cannot be written: No space left on device; it will be tried again"
        assert said == [line] * times, "said once in a row"
        assert checkpoint.read(tmp_path).commit == "before"
        files.write(replace(left_run(), commit="after"))
        assert checkpoint.read(tmp_path).commit == "after"
    files.close()
    assert not list(tmp_path.glob(f".{CHECKPOINT_FILE}*")), "nothing half-done is left"


@pytest.mark.parametrize("damage", ["another byte", "shorter", "none"])
def test_a_journal_that_the_checkpoint_does_not_name_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / JOURNAL_FILE
    journal = JournalFile(path)
    journal.note(Up(1.5), [])
    left = journal.mark
    journal.note(Violation("after it"), [])
    journal.sync()
    journal.close()
    content = path.read_bytes()
    if damage == "none":
        again, told = JournalFile.reopen(path, left)
        again.note(Violation("of another driver"), [])
        again.sync()
        again.close()
        assert told == [Up(1.5)]
        assert read_journal(path.read_bytes())[0] == [Up(1.5), Violation("of another driver")]
        return
    path.write_bytes(content[: left[0] - 1] if damage == "shorter" else b"\0" + content[1:])
    with pytest.raises(BadInput, match="bytes are not those that the checkpoint names"):
        JournalFile.reopen(path, left)


def test_a_disk_that_is_full_while_a_look_is_kept_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, rows = RunFiles.new(tmp_path, print, is_attachable=True), [Finalization(1.5, 0, 1), Finalization(2.5, 1, 1)]
    assert files.sightings is not None
    for number, row in enumerate(rows):
        with monkeypatch.context() as full:
            if number:
                full.setattr(os, "write", lambda *_: os.close(9_999))
            files.sightings.finalized(row)
            files.look("a", lambda: None)
    files.look("a", lambda: None)
    files.close()
    _, seen, _ = Sightings.reopen(tmp_path / SIGHTINGS_FILE)
    assert list(seen) == rows


def test_what_another_driver_heard_of_a_host_is_not_its_height() -> None:
    host = Host(number=0, place=Place("node", "127.0.0.1"), validators=[0])
    host.actor, host.phase, host.reports.states = object(), Phase.UP, {0: LoopState(height=7, view=9, ready=True)}
    host.note_answer()
    assert (host.height(0), host.view(0)) == (7, 9)
    host.find({"host-0.0": object()}.get, forget_nothing)
    assert (host.height(0), host.view(0), host.describe(0)) == (None, None, "silent")
    host.note_answer()
    assert host.height(0) == 7


def forget_nothing(actor: object) -> None:
    raise AssertionError


def placed_host() -> Host:
    host = Host(number=3, place=Place("node", "127.0.0.1"), validators=[3])
    host.actor, host.phase, host.processes.actors = "of the other driver", Phase.UP, 1
    return host


def test_an_actor_that_the_other_driver_created_last_takes_the_place_of_the_one_that_it_replaced() -> None:
    host = placed_host()
    host.find({"host-3.2": "with other code"}.get, forget_nothing)
    assert (host.actor, host.phase, host.why_lost) == ("with other code", Phase.DOWN, None)
    assert host.actor_name == "host-3.2"


def test_an_actor_that_the_other_driver_created_last_on_another_node_ends_and_its_name_is_not_used_again() -> None:
    host, ended = placed_host(), list[object]()
    host.lose_place(is_certain=False)
    host.find({"host-3.2": "elsewhere"}.get, ended.append)
    assert (host.is_placed, host.phase, ended) == (False, Phase.DOWN, ["elsewhere"])
    assert actor_name(3, host.processes.actors + 1) == "host-3.3"


def test_a_host_without_an_actor_has_ended() -> None:
    host = placed_host()
    host.find(lambda name: None, forget_nothing)
    assert (host.actor, host.phase, host.actor_name) == (None, Phase.DEAD, "host-3.1")
