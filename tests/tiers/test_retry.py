"""A failed live test gets one more try, by itself; no other test does. `make ci` leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.live.processes import processes
from tests.git import git
from tests.hangs import HANGS_AFTER_S

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PROJECT = """
from pathlib import Path
import pytest

def fails_once(name):
    seen = Path(__file__).with_name(name)
    was_seen = seen.exists()
    seen.touch()
    assert was_seen, f"{name} fails the first time"

@pytest.mark.live
def test_live_once():
    fails_once("live")

@pytest.fixture
def begun():
    fails_once("fixture")

@pytest.mark.live
def test_live_fixture_once(begun):
    pass

@pytest.mark.live
def test_live_always():
    assert False, "never"

def test_once():
    fails_once("other")

@pytest.mark.live
def test_crashes():
    import os
    os._exit(7)

def test_passes():
    pass
"""


def write_project(folder: Path) -> None:
    (folder / "test_project.py").write_text(PROJECT, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    live: real time\n", encoding="utf-8")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )


def first_and_again(folder: Path, *tests: str) -> tuple[int, list[str]]:
    """Exit code and last lines of the retry, after a first session with these tests in two processes."""
    write_project(folder)
    ids = [f"test_project.py::{test}" for test in tests]
    page = f"--failures={folder / 'test.json'}"
    first = run(folder, "pytest", "-n", "2", "-p", "tests.tiers.retry", page, *ids)
    assert first.returncode != 0, first.stdout
    again = run(folder, "tests.tiers.retry", str(folder), "test")
    return again.returncode, again.stdout.split("=== Tests that failed\n")[1].splitlines()


@pytest.mark.parametrize("test", ["test_live_once", "test_live_fixture_once"])
def test_a_live_test_may_fail_once(tmp_path: Path, test: str) -> None:
    code, lines = first_and_again(tmp_path, test, "test_passes")
    assert (code, lines) == (0, [f"test_project.py::{test}: failed, then passed"])


def test_a_live_test_may_not_fail_twice(tmp_path: Path) -> None:
    code, lines = first_and_again(tmp_path, "test_live_once", "test_live_always")
    assert (code, lines) == (
        1,
        ["test_project.py::test_live_always: failed twice", "test_project.py::test_live_once: failed, then passed"],
    )


def test_another_test_may_not_fail_once(tmp_path: Path) -> None:
    code, lines = first_and_again(tmp_path, "test_once", "test_live_once")
    assert (code, lines) == (
        1,
        ["test_project.py::test_once: failed, is not live", "test_project.py::test_live_once: failed, then passed"],
    )


def test_a_crash_of_the_process_is_no_failure_of_a_live_test(tmp_path: Path) -> None:
    code, lines = first_and_again(tmp_path, "test_crashes")
    assert (code, lines) == (1, ["test_project.py::test_crashes: failed, is not live"])


def test_a_target_that_fails_by_something_else_is_lost(tmp_path: Path) -> None:
    done = run(tmp_path, "tests.tiers.retry", str(tmp_path), "lint")
    assert done.returncode == 1 and done.stdout.endswith("make lint: failed, and not by tests\n")


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ("true", ""),
        ("sleep 0.25h >/dev/null 2>&1 &", "make ci: still runs: sleep 0.25h \n"),
        ("mkdir {testnets}left", "make ci: still there: {testnets}left\n"),
    ],
    ids=["nothing", "process", "folder"],
)
def test_make_ci_fails_if_something_is_left_and_ends_it(tmp_path: Path, left: str, said: str) -> None:
    testnets = tmp_path / "st-"
    script = (ROOT / ".ci" / "clone").read_text(encoding="utf-8")
    assert "/tmp/st-*" in script  # where those of live tests that run meanwhile come and go
    project = tmp_path / "project"
    (project / ".ci").mkdir(parents=True)
    (project / ".ci" / "clone").write_text(script.replace("/tmp/st-", str(testnets)), encoding="utf-8")
    run_text = f'cd "$(dirname "$0")"\npwd\n{left.format(testnets=testnets)}\n'
    (project / ".ci" / "run").write_text(run_text, encoding="utf-8")
    for command in (["init"], ["add", "."], ["commit", "--message", "All"]):
        git(project, *command)
    done = subprocess.run(
        ["bash", ".ci/clone"], cwd=project, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False
    )
    place = Path(done.stdout.strip())
    assert done.returncode == int(bool(said)), done.stderr
    assert done.stderr == said.format(testnets=testnets)
    assert place.name == ".ci" and not place.parents[1].exists()
    assert not processes.with_argument("0.25h")
