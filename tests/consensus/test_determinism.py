"""The engine's effects are the same whatever seed Python gives to its string hashes, and it imports nothing impure."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import consensus
from tests.hangs import HANGS_AFTER_S

PROGRAM = """
from consensus.hotstuff import HotStuff
from consensus.simplex import Simplex
from tests.consensus.network import Network
from tests.consensus.test_network import faults_for
for engine in (Simplex, HotStuff):
    network = Network(7, 4008, faults_for(4008), twins=(2,), make_engine=engine)
    network.tracing = True
    network.run(until_ms=5_000)
    assert network.finalizations and network.messages > 500
    print(network.trace.hexdigest())
"""

IMPURE = {"time", "random", "asyncio", "socket", "threading", "datetime", "os", "secrets", "uuid", "ray"}


def test_effects_do_not_depend_on_the_hash_seed() -> None:
    root = Path(__file__).parents[2]
    runs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=True,
            timeout=HANGS_AFTER_S,
        ).stdout
        for seed in ("0", "1", "4242")
    ]
    assert [len(digest) for digest in runs[0].split()] == [64, 64]
    assert len(set(runs)) == 1


def test_the_package_imports_nothing_impure_and_nothing_of_ours() -> None:
    for path in sorted(Path(consensus.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                package = name.split(".")[0]
                assert package not in IMPURE, f"{path.name} imports {name}"
                assert package not in {"validator", "cluster", "loadgen", "stampede", "tests"}, path.name
