"""What a host says of itself when it starts, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.live.host import host as host_module
from cluster.live.host.host import CRASH_EXIT_CODE, ValidatorHost, gives_hash_seed_away
from cluster.live.host.lease import Lease
from cluster.live.processes import last_words
from cluster.live.processes.last_words import LastWords
from cluster.live.processes.resumption import boot_seconds
from cluster.scenario.files import scenario_from
from tests.hangs import HANGS_AFTER_S
from validator.primitives.user_file import UserFileError

ROOT = Path(__file__).resolve().parents[4]
ALONE = """
import resource, sys, threading
from cluster.live.host.host import ValidatorHost
from cluster.scenario.files import scenario_from
scenario = scenario_from({"name": "alone", "validators": 1, "load": {"users": []}})
host = ValidatorHost(sys.argv[1], scenario.model_dump_json(), 1, 0, "127.0.0.1")
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
host.start()
threading.Event().wait(float(sys.argv[3]))
"""
"""A host whose every file, its log among them, can grow to so many bytes only."""


@pytest.mark.parametrize(
    ("hash_seed", "bind", "is_given_away"),
    [
        (None, "10.0.0.7", False),
        ("", "10.0.0.7", False),
        ("random", "10.0.0.7", False),
        ("0", "10.0.0.7", True),
        ("4294967295", "10.0.0.7", True),
        ("1", "127.0.0.1", False),
    ],
)
def test_a_fixed_hash_seed_is_warned_of_where_others_can_read_it(
    hash_seed: str | None, bind: str, is_given_away: bool
) -> None:
    assert gives_hash_seed_away(hash_seed, bind) is is_given_away


def test_a_validator_whose_disk_is_full_ends_with_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(tmp_path), str(last_words.FILE_BYTES), str(HANGS_AFTER_S / 2)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    assert done.returncode == CRASH_EXIT_CODE, done.stderr
    words = last_words.read(tmp_path / "data" / "host-0.last-words")
    assert words is not None and words.validator == 0
    assert "failed: File too large" in words.reason and "\n" not in words.reason


class Ended(BaseException):
    """In the place of the process's end."""


def test_words_that_cannot_be_written_keep_no_process_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def end(code: int) -> None:
        raise Ended(code)

    scenario = scenario_from({"name": "alone", "validators": 1})
    host = ValidatorHost(str(tmp_path), scenario.model_dump_json(), 1, 0, "127.0.0.1")
    monkeypatch.setattr(last_words, "write", no_room)
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(logging, "shutdown", no_room)
    with pytest.raises(Ended):
        host._end_for(0, ValueError("anything"))


@pytest.mark.parametrize("error", [UserFileError("file mine.py: no"), ValueError("no")])
def test_last_words_tell_what_a_users_file_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    written: list[LastWords] = []
    scenario = scenario_from({"name": "alone", "validators": 1})
    host = ValidatorHost(str(tmp_path), scenario.model_dump_json(), 1, 0, "127.0.0.1")
    monkeypatch.setattr(last_words, "write", lambda _path, words: written.append(words))
    monkeypatch.setattr("cluster.live.host.host.crash", lambda _error: None)
    host._end_for(0, error)
    (words,) = written
    is_users = isinstance(error, UserFileError)
    assert (words.is_users, words.reason) == (is_users, "file mine.py: no" if is_users else "ValueError: no")


@pytest.mark.parametrize("given", [(), (None, 7.0), (9.0,)], ids=["none", "its driver's", "any driver's"])
def test_a_process_has_its_lease_from_its_beginning_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[float | None, ...]
) -> None:
    """Its node may be cut off before the driver renews it: validators of lost nodes are started elsewhere."""
    monkeypatch.setattr(Lease, "_watch", lambda lease: None)
    scenario = scenario_from({"name": "alone", "validators": 1})
    host = ValidatorHost(str(tmp_path), scenario.model_dump_json(), 1, 0, "127.0.0.1", "1", None, *given)
    until_s = host._lease._until_s
    assert (until_s is not None) == bool(given)
    assert until_s is None or 0 < until_s - boot_seconds() <= (given[-1] or 0)
    assert host._lease.is_for_any_driver == (given == (9.0,)), "nobody ends the others, if they do not end themselves"


def test_last_words_need_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data" / "host-3.last-words"
    assert last_words.read(path) is None
    last_words.reserve(path)
    assert last_words.read(path) is None
    size = path.stat().st_size
    said = LastWords(7, 2, "journal: append failed: No space left on device")
    last_words.write(path, said)
    assert last_words.read(path) == said
    last_words.write(path, LastWords(8, 2, "\x1b" * 10_000))
    last_words.reserve(path)
    found = last_words.read(path)
    assert found is not None and found.reason == "\x1b" * last_words.MAX_CHARACTERS
    assert path.stat().st_size == size
    path.write_bytes(path.read_bytes()[:20])
    assert last_words.read(path) is None, "killed as it spoke"


def test_the_first_free_port_is_taken() -> None:
    taken = {7001, 7002}

    async def listen(port: int) -> int:
        if port in taken:
            raise OSError(f"port {port} is in use")
        return port

    assert asyncio.run(host_module._at_free_port(listen, range(7001, 7005))) == 7003
    with pytest.raises(OSError, match="port 7002 is in use"):
        asyncio.run(host_module._at_free_port(listen, range(7001, 7003)))
