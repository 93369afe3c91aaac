"""What an installation compiles is all that there is to compile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEFT = """
from numba.core.registry import CPUDispatcher
from cluster.warm_up import warm_up
from validator.scheduler import kernels as scheduler_kernels, overflow
from validator.state import kernels as state_kernels

warm_up()
for module in (scheduler_kernels, overflow, state_kernels):
    for name, found in sorted(vars(module).items()):
        if isinstance(found, CPUDispatcher) and not found.signatures:
            print(f"{module.__name__}.{name}")
"""


@pytest.mark.soak
def test_everything_is_compiled(tmp_path: Path) -> None:
    """From nothing: what is loaded from a cache does not tell what it was made of."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", LEFT]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ""
