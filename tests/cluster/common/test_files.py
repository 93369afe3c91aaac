"""Tests of files that are there whole or not at all, and of what else a user may name."""

import json
import os
import select
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from cluster.common.errors import BadInput
from cluster.common.files import check_folder, check_target, write_atomically, write_for_user, write_json_for_user
from tests.hangs import HANGS_AFTER_S

OTHER_USER: Final = 65_534
NULL, FULL = os.makedev(1, 3), os.makedev(1, 7)


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


def test_a_byte_of_a_path_that_is_not_utf_8_is_spelled_in_a_text(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", "é " + os.fsdecode(b"caf\xe9"))
    assert (tmp_path / "file").read_bytes() == "é caf\\xe9".encode()


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


def device(path: Path, number: int) -> Path:
    """A character device in a test's folder: a test names no device of the machine."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, number)
        path.open("wb").close()
    except PermissionError:
        pytest.skip("only root makes devices")
    return path


def read_all(path: Path) -> Callable[[], bytes]:
    """Begin to read a file in a thread; the returned function waits for its end, and returns what came."""
    read: list[bytes] = []
    thread = threading.Thread(target=lambda: read.append(path.read_bytes()), daemon=True)
    thread.start()

    def result() -> bytes:
        thread.join(HANGS_AFTER_S)
        return read[0]

    return result


def test_the_reader_of_a_fifo_gets_the_text(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    came = read_all(fifo)
    write_for_user(fifo, "text")
    assert fifo.is_fifo() and list(tmp_path.iterdir()) == [fifo] and came() == b"text"


def test_the_check_does_not_open_a_fifo(tmp_path: Path) -> None:
    """A reader that waits would get the end of the file then, and miss the text."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    poll = select.poll()
    poll.register(reader)
    check_target(fifo)
    assert poll.poll(0) == []
    os.close(os.open(fifo, os.O_WRONLY))
    assert poll.poll(0) == [(reader, select.POLLHUP)], "this is how an opening shows"
    os.close(reader)


def test_a_device_is_written_and_stays(tmp_path: Path) -> None:
    null, full = device(tmp_path / "null", NULL), device(tmp_path / "full", FULL)
    for each in (null, full):
        check_target(each)
    write_for_user(null, "text")
    with pytest.raises(BadInput, match=r"full: cannot be written: No space left on device"):
        write_for_user(full, "text")
    assert [os.stat(each).st_rdev for each in (null, full)] == [NULL, FULL]
    assert sorted(tmp_path.iterdir()) == [full, null]


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link, chain = tmp_path / "elsewhere" / "target", tmp_path / "link", tmp_path / "chain"
    link.symlink_to("elsewhere/target")
    chain.symlink_to(link)
    for text in ("the link was dangling", "the target is replaced"):
        check_target(chain)
        write_for_user(chain, text)
        assert link.is_symlink() and chain.is_symlink() and target.read_text() == text
    assert list((tmp_path / "elsewhere").iterdir()) == [target]


def test_a_symbolic_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    loop, lost = tmp_path / "loop", tmp_path / "lost"
    loop.symlink_to("loop")
    lost.symlink_to(tmp_path / "nowhere" / "file")
    for link, why in (
        (loop, "Too many levels of symbolic links"),
        (lost, f"{tmp_path / 'nowhere'}: No such file or directory"),
    ):
        with pytest.raises(BadInput) as caught:
            check_target(link)
        assert str(caught.value) == f"{link}: cannot be written: {why}"
        with pytest.raises(BadInput):
            write_for_user(link, "text")
        assert link.is_symlink()


def test_a_file_keeps_its_permissions_and_its_owner(tmp_path: Path) -> None:
    path, new, plain = tmp_path / "file", tmp_path / "new", tmp_path / "plain"
    path.write_text("old")
    path.chmod(0o640)
    owner = (os.getuid(), os.getgid())
    if os.getuid() == 0:
        owner = (4_711, 4_712)
        os.chown(path, *owner)
    write_for_user(path, "new")
    seen = path.stat()
    assert (path.read_text(), stat.S_IMODE(seen.st_mode), (seen.st_uid, seen.st_gid)) == ("new", 0o640, owner)
    write_for_user(new, "new")
    plain.touch()
    assert new.stat().st_mode == plain.stat().st_mode, "that of any new file, by the umask"


def test_a_name_may_be_as_long_as_any(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    check_target(path)
    write_for_user(path, "text")
    assert path.read_text() == "text"
    with pytest.raises(BadInput, match="cannot be written: File name too long"):
        check_target(tmp_path / ("n" * 256))


def test_an_open_file_of_the_process_is_written_where_it_is(tmp_path: Path) -> None:
    """Such as ``/dev/stdout``, and the pipe of ``>(cat)``: a regular file behind it keeps what came before."""
    path = tmp_path / "output"
    with path.open("w+b", buffering=0) as file:
        file.write(b"before\n")
        (tmp_path / "link").symlink_to(f"/dev/fd/{file.fileno()}")
        for name in (tmp_path / "link", Path(f"/proc/self/fd/{file.fileno()}")):
            check_target(name)
            write_for_user(name, "text\n")
        file.write(b"after\n")
    assert path.read_text() == "before\ntext\ntext\nafter\n" and (tmp_path / "link").is_symlink()
    reading, writing = os.pipe()
    check_target(Path(f"/dev/fd/{writing}"))
    write_for_user(Path(f"/dev/fd/{writing}"), "text")
    assert os.read(reading, 100) == b"text"
    for wrong, why in ((reading, "is open for reading only"), (writing, "Bad file descriptor")):
        os.close(writing) if wrong == writing else None
        with pytest.raises(BadInput, match=f"/dev/fd/{wrong}: cannot be written: {why}"):
            check_target(Path(f"/dev/fd/{wrong}"))
    os.close(reading)


IN_A_NAMESPACE: Final = """
import json, os, subprocess, sys
from pathlib import Path
from cluster.common.errors import BadInput
from cluster.common.files import check_folder, check_target, write_for_user
room = Path(sys.argv[1])
def tried(act, *given):
    try:
        act(*given)
    except BadInput as error:
        return str(error).removeprefix(f"{given[0]}: cannot be ").removeprefix("written: ")
    return "done"
def mount(*words):
    subprocess.run(["mount", *words], check=True)
small, shared = room / "small", room / "shared"
small.mkdir()
mount("-t", "tmpfs", "-o", "size=64k", "small", str(small))
(small / "old").write_text("old")
found = {"full": tried(write_for_user, small / "old", "x" * 100_000), "kept": (small / "old").read_text()}
found["left"] = [each.name for each in small.iterdir()]
mount("-o", "remount,ro", str(small))
found["read-only file"] = tried(check_target, small / "old")
found["read-only folder"] = tried(check_target, small / "new").replace(str(small), "small")
found["in a read-only folder"] = tried(check_folder, small / "new").replace(str(small), "small")
(room / "outside").write_text("outside")
shared.touch()
mount("--bind", str(room / "outside"), str(shared))
found["mount point"] = tried(check_target, shared), tried(write_for_user, shared, "text"), shared.read_text()
mount("--rbind", str(room), str(room))
mount("-o", "remount,bind,ro", str(room))
found["mount point in a read-only folder"] = (
    tried(check_target, shared), tried(write_for_user, shared, "again"), shared.read_text())
print(json.dumps(found))
"""


def test_full_and_read_only_disks_and_mount_points(tmp_path: Path) -> None:
    """In a private mount namespace, since permission bits mean nothing to root."""
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", IN_A_NAMESPACE, str(tmp_path)]
    if os.getuid() != 0 or subprocess.run([*command[:4], "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root mounts, and not in each container")
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "full": "No space left on device",
        "kept": "old",
        "left": ["old"],
        "read-only file": "is read-only",
        "read-only folder": "small: Read-only file system",
        "in a read-only folder": "used as a folder: small is read-only",
        "mount point": ["done", "done", "text"],
        "mount point in a read-only folder": ["done", "done", "again"],
    }


def test_a_file_of_another_user_in_a_shared_folder() -> None:
    """In a folder such as ``/tmp`` only its owner may replace a file, but whoever may write it writes it."""
    if os.getuid() != 0:
        pytest.skip("only root has files of two users")
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # which that user can enter
        path = Path(name) / "file"
        path.write_text("root's")
        path.chmod(0o666)
        path.parent.chmod(0o1777)
        os.seteuid(OTHER_USER)
        try:
            check_target(path)
            write_for_user(path, "text")
        finally:
            os.seteuid(0)
        assert (path.read_text(), path.stat().st_uid, list(path.parent.iterdir())) == ("text", 0, [path])


def test_a_folder_is_looked_at_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "link").symlink_to(tmp_path)
    for right in (
        tmp_path,
        tmp_path / "new" / "newer",
        tmp_path / "link",
        Path("new"),
        tmp_path / os.fsdecode(b"\xff"),
    ):
        check_folder(right)
    for name in ("file", "fifo", "dangling"):
        for wrong in (tmp_path / name, tmp_path / name / "below"):
            with pytest.raises(BadInput) as caught:
                check_folder(wrong)
            assert str(caught.value) == f"{wrong}: is no folder, expected one"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["dangling", "fifo", "file", "link"]


def test_a_target_is_looked_at_before_the_work(tmp_path: Path) -> None:
    check_target(tmp_path / "new")
    (tmp_path / "old").write_text("kept")
    check_target(tmp_path / "old")
    assert [path.name for path in tmp_path.iterdir()] == ["old"] and (tmp_path / "old").read_text() == "kept"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    for wrong, why in (
        (tmp_path, "is a folder, expected a file's name"),
        (tmp_path / "nowhere" / "file", f"{tmp_path / 'nowhere'}: No such file or directory"),
        (tmp_path / "old" / "file", "Not a directory"),
        (tmp_path / "socket", "is a socket, expected a file's name"),
    ):
        with pytest.raises(BadInput) as caught:
            check_target(wrong)
        assert str(caught.value) == f"{wrong}: cannot be written: {why}"
