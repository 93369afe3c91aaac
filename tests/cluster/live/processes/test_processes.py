"""Real processes: found by id, argument and open files; known by id and start time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from cluster.live.processes import processes
from cluster.live.processes.processes import Process
from tests.hangs import HANGS_AFTER_S

WAITS = "import sys; sys.stdout.write('up\\n'); sys.stdout.flush(); sys.stdin.read()"
USES = """
import json, sys
from cluster.live.processes import processes
before = processes.own_use()
with open(sys.argv[1], "rb"):
    during = processes.own_use()
print(json.dumps([use._asdict() for use in (before, during)]))
"""
STAYS = "import signal; print('up', flush=True); signal.pause()"
STARTS_ANOTHER_LATER = f"""
import subprocess, sys
print("up", flush=True)
sys.stdin.read()
subprocess.Popen([sys.executable, "-c", {STAYS!r}, sys.argv[1]], start_new_session=True)
"""
STARTS_ANOTHER = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WAITS!r}, sys.argv[1]])"


def start(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A process that said that it is up, and ends with its standard input."""
    command = [sys.executable, "-c", code, *arguments]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert started.stdout is not None
    assert started.stdout.readline() == b"up\n"
    return started


def test_a_process_is_found_until_it_ends() -> None:
    with start(WAITS) as child:
        found = processes.find(child.pid)
        assert found is not None and found.pid == child.pid
        assert found.is_running
        assert not Process(child.pid, found.started + 1).is_running
        child.communicate(timeout=HANGS_AFTER_S)
    assert not found.is_running
    assert processes.find(child.pid) is None


def test_a_start_time_is_the_same_in_every_process() -> None:
    asks = "from cluster.live.processes import processes; import sys; print(processes.find(int(sys.argv[1])).started)"
    myself = processes.own()
    assert processes.find(os.getpid()) == myself
    answer = subprocess.check_output([sys.executable, "-c", asks, str(myself.pid)], timeout=HANGS_AFTER_S)
    assert int(answer) == myself.started


def test_the_id_of_a_thread_is_not_a_process() -> None:
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait)
    thread.start()
    try:
        number = thread.native_id
        assert number is not None and number != os.getpid()
        os.kill(number, 0)  # the kernel would deliver a signal
        assert processes.find(number) is None
        forged = Process(number, processes.own().started)
        assert not forged.is_running and not forged.is_stopped
        assert not forged.send(signal.SIGKILL)
        assert processes.end([forged], patience_s=0.0) == []
    finally:
        is_over.set()
        thread.join()


def test_another_process_with_the_same_id_gets_no_signal() -> None:
    with start(WAITS) as child:
        found = processes.find(child.pid)
        assert found is not None
        before = Process(found.pid, found.started - 1)
        assert not before.send(signal.SIGKILL)
        assert processes.end([before], patience_s=0.0) == []
        child.communicate(timeout=HANGS_AFTER_S)
    assert child.returncode == 0


def test_own_use() -> None:
    """In a process of its own: files that other tests left to the garbage collector may be closed at any moment."""
    seen = subprocess.run(
        [sys.executable, "-c", USES, __file__], check=True, capture_output=True, timeout=HANGS_AFTER_S
    ).stdout
    before, during = json.loads(seen)
    assert during["open_files"] == before["open_files"] + 1
    assert during["cpu_seconds"] >= before["cpu_seconds"] > 0
    assert during["memory_bytes"] > 1_000_000


def test_processes_are_found_by_argument_with_all_that_they_started() -> None:
    mark = f"mark-{os.getpid()}"
    with start(STARTS_ANOTHER, mark) as child:
        marked = processes.with_argument(mark)
        assert child.pid in {process.pid for process in marked}
        assert len(marked) == 2
        root = processes.find(child.pid)
        assert root is not None
        assert processes.with_descendants([root]) == marked
        assert processes.command(root).startswith("python")
        child.communicate(timeout=HANGS_AFTER_S)
    assert processes.with_argument(mark) == set()


def test_processes_are_found_by_the_files_that_they_have_open(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    with (tmp_path / "log").open("ab") as log:
        command = [sys.executable, "-c", WAITS]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log.fileno())
    with child:
        found = processes.find(child.pid)
        assert processes.using(tmp_path) == {found}
        assert processes.using(tmp_path / "elsewhere") == set()
        child.communicate(timeout=HANGS_AFTER_S)


def test_what_starts_while_others_are_ended_is_found_too() -> None:
    """It was not there at the first look, and its parent had ended at the second."""
    mark = f"mark-{os.getpid()}"
    with start(STARTS_ANOTHER_LATER, mark) as child:
        assert child.stdin is not None and child.stdout is not None
        stdin, stdout = child.stdin, child.stdout

        def find() -> set[processes.Process]:
            found = processes.with_argument(mark)
            if child.poll() is None:
                stdin.close()
                stdout.readline()
                child.wait(HANGS_AFTER_S)
            return found

        assert len(processes.end_all(find, patience_s=0.0)) == 2
    assert processes.with_argument(mark) == set()


def test_what_does_not_end_is_killed() -> None:
    with start(WAITS) as child:
        found = processes.find(child.pid)
        assert found is not None
        assert processes.end([found], patience_s=0.01) == [found]
        child.wait(HANGS_AFTER_S)
    assert processes.end([found], patience_s=0.01) == []
    assert child.returncode == -9
