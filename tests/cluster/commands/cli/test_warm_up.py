"""What an installation compiles is all that there is to compile."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from cluster.commands.cli import warm_up
from cluster.common import checkout

ROOT = Path(__file__).resolve().parents[4]
LEFT = """
from numba.core.registry import CPUDispatcher
from cluster.commands.cli.warm_up import warm_up
from validator.primitives.compiled import Kernel
from validator.scheduler import order, overflow
from validator.state.engines import kernels as state_kernels

warm_up()
for module in (order, overflow, state_kernels):
    for name, found in sorted(vars(module).items()):
        if isinstance(found, Kernel):
            found = found.dispatcher
        if isinstance(found, CPUDispatcher) and not found.signatures:
            print(f"{module.__name__}.{name}")
"""


def test_modules_are_compiled_where_processes_write_no_bytecode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "validator" / "state" / "store.py"
    module.parent.mkdir(parents=True)
    module.write_text("ROOT = 1\n", encoding="utf-8")
    monkeypatch.setattr(warm_up, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    warm_up.compile_sources()
    assert Path(cache_from_source(str(module))).is_file()


@pytest.mark.kits
@pytest.mark.parametrize("package", warm_up.PACKAGES)
def test_they_are_those_of_the_project(package: str) -> None:
    assert (checkout.ROOT / package / "__init__.py").is_file()


@pytest.mark.soak
def test_everything_is_compiled(tmp_path: Path) -> None:
    """From nothing: what is loaded from a cache does not tell what it was made of."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", LEFT]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ""
