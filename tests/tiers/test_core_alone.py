"""Where the core is alone, a test that needs a kit fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core_alone import ROOT

TESTS = """
def test_of_the_core():
    from cluster.common.plugins import COMMANDS, points

    assert points(COMMANDS) == []

def test_of_a_kit():
    import kits.market
"""


@pytest.mark.slow
def test_a_test_that_needs_a_kit_fails(tmp_path: Path) -> None:
    file = tmp_path / "test_planted.py"
    file.write_text(TESTS, encoding="utf-8")
    command = [sys.executable, "-m", "tests.core_alone", "-n", "0", "-p", "no:cacheprovider", str(file)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "ModuleNotFoundError: No module named 'kits'" in done.stdout
    assert "1 failed, 1 passed" in done.stdout
