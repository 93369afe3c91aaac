"""Continuous integration skips nothing in silence, and a missing tool has a line that says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hangs import HANGS_AFTER_S
from tests.tools import TOOLS, Tool

ROOT = Path(__file__).resolve().parents[2]
PROJECT = """
import pytest
from tests.tools import Tool, needs

@needs(Tool("no-such-tool", "none"))
def test_marked(): pass

@pytest.fixture
def absent():
    pytest.skip("there is no absent")

def test_in_a_fixture(absent): pass

def test_by_a_call():
    pytest.skip("there is no Python 3.99 here, nor elsewhere")

def test_listed():
    pytest.skip("there is no Python 3.99 here")

@pytest.mark.xfail(reason="known")
def test_known():
    assert False

def test_passes(): pass
"""


def outcomes(folder: Path, ci: str) -> dict[str, str]:
    """How each test of the project ends, and that of the whole."""
    (folder / "test_project.py").write_text(PROJECT, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "tests.tiers.skips", "-p", "no:cacheprovider", "-rA", "-n", "1"]
    done = subprocess.run(
        [*command, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CI": ci},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    words = [line.split(" - ")[0].split() for line in done.stdout.splitlines() if "::test_" in line]
    found = {words[1].partition("::test_")[2]: words[0] for words in words if words[0].isupper()}
    return {**found, "skipped": str(done.stdout.count("SKIPPED")), "code": str(done.returncode)}


def test_a_skipped_test_fails_where_it_may_not_be_skipped(tmp_path: Path) -> None:
    rest = {"known": "XFAIL", "passes": "PASSED"}
    failed = {"marked": "ERROR", "in_a_fixture": "ERROR", "by_a_call": "FAILED"}
    in_ci = outcomes(tmp_path, "true")
    assert in_ci == {**rest, **failed, "skipped": "1", "code": "1"}
    assert outcomes(tmp_path, "") == {**rest, "skipped": "4", "code": "0"}


def test_the_environment_names_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = Tool("planted", "none", other_names=("sh",))
    assert Path(str(tool)).name == "sh"
    monkeypatch.setenv("PLANTED", sys.executable)
    assert str(Tool("planted", "none", other_names=("sh",))) == sys.executable
    monkeypatch.setenv("PLANTED", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match=r"^PLANTED=/.*/none names no program$"):
        _ = Tool("planted", "none").path


def test_what_cannot_be_installed_has_a_line(tmp_path: Path) -> None:
    """Nothing is on the path of this process, so the packages' own tools are missing, too."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.tools"],
        env={"PATH": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    assert done.returncode == 1
    said = done.stderr.splitlines()
    assert len(said) == 1 and said[0].startswith("make test-tools: cannot install them: [Errno 2]")
    assert [tool.name for tool in TOOLS if tool.name not in said[0] and not tool.is_unpacked] == []
