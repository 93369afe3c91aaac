"""A process that loads the harness collects cyclic garbage less often."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cluster import COLLECTOR_THRESHOLDS


@pytest.mark.parametrize("module", ["cluster", "cluster.live.host.host", "cluster.simulation.driver"])
def test_the_thresholds_are_set_by_the_first_import(module: str) -> None:
    code = f"import gc; import {module}; print(gc.get_threshold(), gc.isenabled())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == f"{COLLECTOR_THRESHOLDS} True"
