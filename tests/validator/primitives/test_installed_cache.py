"""A process that cannot write to its installation compiles nothing that the installation has compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("consensus", "spec", "validator", "cluster", "kits", "loadgen")
COUNTED = """
import sys
import numpy as np
from numba.core import event
from validator.primitives import installed_cache
from validator.scheduler.order import _is_less

if "ignored" in sys.argv:
    installed_cache._is_kept_for_the_user = lambda kept: False
with event.install_recorder("numba:compile") as compiled:
    assert _is_less(*(np.uint64(word) for word in (1, 2, 1, 3)))
print(sum(recorded.is_start for _, recorded in compiled.buffer))
"""
"""Calls one kernel, the smallest, and prints how many functions were compiled for it."""
WHOLE = """
import os, sys
from numba.core import event
from validator.primitives import installed_cache

class Ending(event.Listener):
    def on_start(self, event):
        print("compiled", event.data["dispatcher"], flush=True)
        os._exit(0)

    def on_end(self, event):
        pass

if "ignored" in sys.argv:
    installed_cache._is_kept_for_the_user = lambda kept: False
if "read-only" in sys.argv:
    event.register("numba:compile", Ending())
from cluster.commands.cli.warm_up import warm_up

warm_up()
print("nothing compiled")
"""
"""Calls all kernels; ends at the first that is compiled."""
ANOTHER_PROCESSOR = {"NUMBA_CPU_NAME": "generic"}


class Installation(NamedTuple):
    """A copy of the packages, and a home folder with a cache of its own."""

    folder: Path
    home: Path

    def run(self, program: str, *arguments: str, **variables: str) -> str:
        """What a program prints that imports the packages of this installation. Root minds permissions, too."""
        drop = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-all"] if os.geteuid() == 0 else []
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))}
        environment = {**inherited, "HOME": str(self.home), "PYTHONPATH": str(self.folder), **variables}
        command = [*drop, sys.executable, "-P", "-c", program, *arguments]
        done = subprocess.run(command, cwd=self.home, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    def permit(self, mode: int) -> None:
        """Set the permissions of all folders."""
        for folder in [self.folder, *self.folder.rglob("*")]:
            if folder.is_dir():
                folder.chmod(mode)

    def kept_for_the_user(self) -> list[str]:
        """Names of the compiled functions in the user's cache."""
        return [path.name for path in self.home.rglob("*.nbc")]


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Callable[[bool], Installation]]:
    made = []

    def install(with_caches: bool) -> Installation:
        made.append(Installation(tmp_path / "installed", tmp_path / "home"))
        made[-1].home.mkdir()
        ignored = shutil.ignore_patterns() if with_caches else shutil.ignore_patterns("__pycache__")
        for package in PACKAGES:
            shutil.copytree(ROOT / package, made[-1].folder / package, ignore=ignored)
        return made[-1]

    yield install
    for each in made:
        each.permit(0o755)


@pytest.mark.slow
def test_a_read_only_installation_is_used(installed: Callable[[bool], Installation]) -> None:
    installation = installed(False)
    assert installation.run(COUNTED) == "1"
    installation.permit(0o555)
    assert installation.run(COUNTED) == "0"
    assert installation.kept_for_the_user() == []
    # Planted: a process that ignores them.
    assert installation.run(COUNTED, "ignored") == "1"
    assert len(installation.kept_for_the_user()) == 1


@pytest.mark.slow
def test_what_is_missing_is_compiled_once_for_the_user(installed: Callable[[bool], Installation]) -> None:
    installation = installed(False)
    assert installation.run(COUNTED) == "1"
    installation.permit(0o555)
    assert installation.run(COUNTED, **ANOTHER_PROCESSOR) == "1"
    assert len(installation.kept_for_the_user()) == 1
    assert installation.run(COUNTED, **ANOTHER_PROCESSOR) == "0"


@pytest.mark.slow
def test_a_changed_source_is_compiled_anew(installed: Callable[[bool], Installation]) -> None:
    installation = installed(False)
    assert installation.run(COUNTED) == "1"
    with (installation.folder / "validator" / "scheduler" / "order.py").open("a") as source:
        source.write("\n# another source\n")
    installation.permit(0o555)
    assert installation.run(COUNTED) == "1"


@pytest.mark.soak
def test_a_whole_run_compiles_nothing(installed: Callable[[bool], Installation]) -> None:
    installation = installed(True)
    assert installation.run(WHOLE) == "nothing compiled"
    installation.permit(0o555)
    assert installation.run(WHOLE, "read-only", "ignored").startswith("compiled")
    assert installation.run(WHOLE, "read-only") == "nothing compiled"
