"""Which cluster the tests on Kubernetes take (:mod:`tests.k8s.cluster`), with scripts that stand in for the lab's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hangs import HANGS_AFTER_S
from tests.k8s import cluster as clusters
from tests.k8s.cluster import ROOT, Cluster

SCRIPT = """#!/bin/sh
echo "$(basename "$0") $*" >> "$LAB_STATE/calls"
"""
BUILD = 'mkdir -p "$LAB_STATE/images"; : > "$LAB_STATE/images/stampede.tar"\n'
UP = 'mkdir -p "$LAB_STATE/run"; echo 1 > "$LAB_STATE/run/pid"\n'
DOWN = 'rm -rf "$LAB_STATE/run"\n'


class Lab:
    """A lab whose scripts write down how they were called."""

    def __init__(self, folder: Path, state: Path) -> None:
        self.folder, self.state = folder, state
        folder.mkdir(parents=True)
        for name, rest in (("build.sh", BUILD), ("up.sh", UP), ("down.sh", DOWN)):
            self.write(name, rest)

    def write(self, name: str, rest: str) -> None:
        (self.folder / name).write_text(SCRIPT + rest)
        (self.folder / name).chmod(0o755)

    def calls(self) -> list[str]:
        """The calls since the last look."""
        log = self.state / "calls"
        found = [line.strip() for line in log.read_text().splitlines()] if log.exists() else []
        log.unlink(missing_ok=True)
        return found


@contextmanager
def _no_volumes(lab: Cluster) -> Iterator[None]:
    yield


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(clusters, "LAB", tmp_path / "lab")
    monkeypatch.setattr(clusters, "_volumes", _no_volumes)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return Lab(tmp_path / "lab", tmp_path / "state")


def test_a_lab_is_built_once_and_gets_a_new_image_each_time(lab: Lab) -> None:
    assert clusters.missing() is None, "it need not be built beforehand"
    with clusters.cluster() as found:
        assert found.needs_enforcement
        assert lab.calls() == [f"build.sh {ROOT}", "up.sh"]
    assert lab.calls() == ["down.sh"]
    with clusters.cluster():
        assert lab.calls() == [f"build.sh {ROOT} image", "up.sh"]
    assert lab.calls() == ["down.sh"]


def test_a_lab_that_is_up_stays_as_it_is(lab: Lab) -> None:
    (lab.state / "run").mkdir(parents=True)
    (lab.state / "run" / "pid").write_text("1\n")
    with clusters.cluster():
        pass
    assert lab.calls() == []


def test_a_lab_that_cannot_be_built_is_a_failure(lab: Lab) -> None:
    lab.write("build.sh", "echo no compiler; exit 3\n")
    with pytest.raises(AssertionError, match=r"build\.sh: exit code 3\nno compiler"), clusters.cluster():
        raise RuntimeError("there is no cluster")
    assert lab.calls() == [f"build.sh {ROOT}", "down.sh"]


def test_a_cluster_that_is_named_is_taken(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "some/config")
    assert clusters.missing() is None
    with clusters.cluster() as found:
        assert (found.kubeconfig, found.needs_enforcement) == ("some/config", False)
    assert lab.calls() == []


def test_without_a_cluster_there_is_a_reason(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert clusters.missing() == "no KUBECONFIG, and the lab needs root"
    monkeypatch.setattr(clusters, "LAB", lab.folder / "none")
    assert clusters.missing() == "no KUBECONFIG, and no lab at ../shared/k8s-lab"


# --- what is printed if nothing is run -------------------------------------------------------------------------------

WITHOUT_A_LAB = """
import pathlib, sys
import pytest
from tests.k8s import cluster
cluster.LAB = pathlib.Path("/nowhere")
sys.exit(pytest.main(sys.argv[1:]))
"""


def arguments_of_the_target() -> list[str]:
    """What ``make test-k8s`` calls pytest with."""
    found = re.search(r"^test-k8s:.*\n\t.* -m pytest (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    return found[1].split()


def printed(arguments: list[str]) -> list[str]:
    """The lines of a test run without any cluster, as on a machine of a user."""
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "KUBECONFIG")}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_A_LAB, "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_run_of_nothing_says_so_in_one_line() -> None:
    lines = printed(arguments_of_the_target())
    (line,) = (each for each in lines if "KUBECONFIG" in each)
    said = re.fullmatch(
        r"tests/k8s/test_cluster\.py: (\d+) skipped: nothing was run: no KUBECONFIG, and no lab at \S+", line
    )
    assert said is not None and int(said[1]) > 10
    assert re.fullmatch(rf"{said[1]} skipped in .*", lines[-1]), "nothing passed"


def test_a_run_of_nothing_that_is_silent_would_be_noticed() -> None:
    """Planted: without the summary of this folder the reason is nowhere."""
    lines = printed([*arguments_of_the_target(), "--noconftest"])
    assert "KUBECONFIG" not in "\n".join(lines) and "skipped" in lines[-1]
