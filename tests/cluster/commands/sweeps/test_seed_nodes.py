"""The code on the nodes of a cluster: what counts as a difference, and what is sent."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from ray import cloudpickle

from cluster.commands.sweeps import seed_nodes
from cluster.commands.sweeps.seed_nodes import Survey, code_files, compare, surveyor, write_archive
from cluster.common.checkout import ROOT
from tests.packages import install

HERE: Survey = ({"Python": "3.12.1", "numpy": "2.2.0", "numba": "0.61.0"}, "d1")


def test_a_node_with_the_same_of_everything_does_not_differ() -> None:
    assert compare(HERE, HERE) == ("", True)


def test_versions_that_differ_are_one_line() -> None:
    there = ({"Python": "3.12.4", "numpy": None, "numba": "0.61.0"}, "d1")
    assert (
        compare(HERE, there).versions == "Python is 3.12.4 there and 3.12.1 here, numpy is missing there and 2.2.0 here"
    )


def test_a_node_without_the_package_of_a_check_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "strict", "[stampede.checks]\nstrict = strict:Strict\n", "")
    install(tmp_path, "other", "[stampede.tracers]\nother = other:Other\n", "")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        survey = surveyor()
        here = survey()
    assert "other" not in here[0], "seeds are not traced"
    assert compare(here, survey()) == ("strict is missing there and 1.0 here", True)


@pytest.mark.parametrize("digest", [None, "d2"])
def test_a_node_without_the_code_lacks_it(digest: str | None) -> None:
    assert compare(HERE, (HERE[0], digest)) == ("", False)


def test_every_file_of_the_packages_is_compared_and_sent() -> None:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", *seed_nodes.FOLDERS, ":!*.md"], check=True, capture_output=True, text=True
    )
    assert set(listed.stdout.split()) == {path.relative_to(ROOT).as_posix() for path in code_files()}


def test_an_archive_holds_the_code_and_nothing_that_was_compiled(tmp_path: Path) -> None:
    for name in ("one.zip", "other.zip"):
        write_archive(tmp_path / name)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "other.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        names = archive.namelist()
    assert "cluster/report/templates/report.html.j2" in names and "actors/heartbeat.py" in names
    assert not [name for name in names if "__pycache__" in name or name.startswith(("runs/", "tests/", "."))]


@pytest.mark.slow
def test_the_survey_goes_by_value_and_sees_a_changed_file(tmp_path: Path) -> None:
    pickled = cloudpickle.dumps(surveyor())
    versions, here = surveyor()()
    assert versions["numpy"] and here is not None
    copied = tmp_path / "copy"
    for folder in seed_nodes.FOLDERS:
        shutil.copytree(ROOT / folder, copied / folder, ignore=shutil.ignore_patterns("__pycache__"))

    def survey_of_the_copy() -> Survey:
        command = ["import pickle, sys", "survey = pickle.load(sys.stdin.buffer)", "sys.path.insert(0, sys.argv[1])"]
        command += ["assert 'cluster' not in sys.modules", "print(survey()[1])"]
        done = subprocess.run(
            [sys.executable, "-c", "; ".join(command), str(copied)],
            input=pickled,
            capture_output=True,
            check=True,
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin"},
        )
        return versions, done.stdout.decode().strip()

    assert compare((versions, here), survey_of_the_copy()).has_code, "what was compiled does not count"
    changed = copied / "validator" / "primitives" / "params.py"
    changed.write_bytes(changed.read_bytes() + b"\n")
    assert not compare((versions, here), survey_of_the_copy()).has_code
