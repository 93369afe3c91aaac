"""The commands that look into a data folder, on folders with known states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.commands.cli.main import main
from cluster.commands.inspect.disk_commands import differing_keys
from cluster.disks.directory import DirectoryDisk
from validator.primitives.types import Height
from validator.state import LogStateStore

Batch = dict[bytes, bytes | None]


def make(folder: Path, batches: list[Batch]) -> tuple[DirectoryDisk, LogStateStore]:
    disk = DirectoryDisk(folder)
    store = LogStateStore.open(disk)
    for height, batch in enumerate(batches, start=1):
        store.commit(store.final.derive(Height(height), batch))
    return disk, store


HISTORY: list[Batch] = [
    {b"%d" % i: b"v" for i in range(5000)},
    {b"7": b"seven", b"8": None, b"empty": b""},
    {b"9": b"nine"},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    disk, store = make(tmp_path / "one", HISTORY)
    store.close()
    disk.close()
    return tmp_path / "one"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_prove_and_verify(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(folder)
    file = tmp_path / "proof"
    code, text = run(capsys, "prove", folder, b"7".hex(), "--height", 2, "--out", file)
    root = text.split("state root ")[1].split(":")[0]
    assert code == 0
    assert run(capsys, "verify", root, b"7".hex(), file) == (0, f"pass: the key has the value {b'seven'.hex()}\n")
    assert run(capsys, "verify", root, b"8".hex(), file)[0] == 1
    code, proof = run(capsys, "prove", folder, b"8".hex(), "--height", 2)
    assert run(capsys, "verify", root, b"8".hex(), proof.strip()) == (0, "pass: the key is absent\n")
    assert run(capsys, "verify", "00" * 32, b"8".hex(), proof.strip())[0] == 1
    assert contents(folder) == before


def test_get_scan_stats_and_check(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "state", "get", folder, b"7".hex()) == (0, b"seven".hex() + "\n")
    assert run(capsys, "state", "get", folder, b"8".hex()) == (1, "absent\n")
    code, text = run(capsys, "state", "scan", folder, b"499".hex(), "--limit", 3)
    assert code == 0
    assert [line.split()[0] for line in text.splitlines()[:3]] == [key.hex() for key in (b"499", b"4990", b"4991")]
    assert text.splitlines()[3] == "… and 8 more"
    code, text = run(capsys, "state", "stats", folder)
    assert code == 0
    assert "live keys                  5000" in text
    code, text = run(capsys, "state", "check", folder)
    assert (code, text.startswith("pass: the log gives height 3 ")) == (0, True)


def test_check_names_file_and_offset(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = folder / "state" / "log-000001"
    content = bytearray(log.read_bytes())
    content[9000] ^= 1
    log.write_bytes(content)
    code, text = run(capsys, "state", "check", folder)
    assert (code, text) == (1, "fail: state/log-000001: offset 8192: a frame does not fit its checksum\n")
    assert log.read_bytes() == content


def test_diff_finds_what_differs(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = [*HISTORY[:2], {b"9": b"neun", b"12": None}]
    disk, store = make(tmp_path / "two", other)
    store.close()
    disk.close()
    code, text = run(capsys, "state", "diff", folder, tmp_path / "two")
    assert code == 1
    assert sorted(text.splitlines()) == [
        f"{b'12'.hex()}  {b'v'.hex()}  absent",
        f"{b'9'.hex()}  {b'nine'.hex()}  {b'neun'.hex()}",
    ]
    code, text = run(capsys, "state", "diff", folder, folder)
    assert (code, text) == (2, "stampede: both folders are the same\n")


def test_diff_reads_only_twigs_that_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, first = make(tmp_path / "a", HISTORY)
    _, second = make(tmp_path / "b", [*HISTORY[:2], {b"9": b"neun"}])
    read = []
    entries = type(first.log).entries

    def counted(log: object, low: int, high: int, ends_of: Any) -> object:
        read.append(low)
        return entries(first.log if log is first.log else second.log, low, high, ends_of)

    monkeypatch.setattr(type(first.log), "entries", counted)
    assert list(differing_keys(first, second)) == [(b"9", b"nine", b"neun")]
    assert set(read) == {4096}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("state", "get", "{}", "xyz"), "'xyz' is not hex"),
        (("state", "stats", "nowhere"), "not a validator's data folder"),
        (("prove", "{}", "00", "--height", "77"), "height 77 is not retained: 1 to 3 are"),
        (("verify", "00", "00", "00"), "'00' is no state root"),
        (("verify", "00" * 32, "00", "no such file"), "neither a file nor hex"),
        (("verify", "", "00", "00"), "'' is no state root"),
        (("verify", "00" * 32, "", "00"), "argument KEY: '' is no key: expected 1 to 512 bytes in hex"),
        (("verify", "00" * 32, "0x", "00"), "'0x' is no key"),
        (("verify", "00" * 32, "00" * 513, "00"), "is no key"),
        (("verify", "00" * 32, "00", ""), "the proof '' is empty: expected a file, or hex"),
        (("verify", "00" * 32, "00", "/dev/null"), "the proof '/dev/null' is empty"),
        (("prove", "nowhere", ""), "'' is no key"),
        (("state", "get", "nowhere", ""), "'' is no key"),
    ],
)
def test_wrong_use_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, text = run(capsys, *(argument.format(folder) for argument in arguments))
    assert (code, text.count("\n")) == (2, 1)
    assert message in text


def test_a_folder_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disk, _ = make(tmp_path, HISTORY[:1])
    code, text = run(capsys, "state", "stats", tmp_path)
    assert code == 2
    assert "in use by another validator" in text
    disk.close()
