"""Other Pythons: whether one can execute blocks, and what it makes of them."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cluster.common.checkout import ROOT
from cluster.common.errors import BadInput, HarnessError

PACKAGES: Final = {
    "blake3": "blake3",
    "Crypto": "pycryptodome",
    "msgspec": "msgspec",
    "nacl": "pynacl",
    "numba": "numba",
    "numpy": "numpy",
}
"""The imports of executing a block, and the distribution of each."""

OLDEST: Final = (3, 11)
PROBE_TIMEOUT_S: Final = 60
PROBE: Final = """
import sys
lacking = []
for name in {names!r}:
    try:
        __import__(name)
    except ImportError:
        lacking.append(name)
sys.stdout.write("%d.%d.%d %s" % (tuple(sys.version_info[:3]) + (",".join(lacking),)))
"""
"""For any Python, however old: its version, and which of the modules it cannot import."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A shadow process's result of a run's blocks."""

    python: str
    """Its version."""
    hash_seed: str
    heights: int
    """Blocks that gave what was recorded."""
    root: str
    mismatch: Mismatched | None


@dataclass(frozen=True, slots=True)
class Mismatched:
    """The first block that gave something else; receipts and trace encoded, empty if there are none."""

    height: int
    reason: str
    receipts: bytes
    trace: bytes


def check_interpreter(python: str) -> None:
    """Raise :class:`BadInput` if a Python cannot execute blocks: why, and what to do about it."""
    version, lacking = _probe(python)
    numbers = tuple(map(int, version.split(".")[:2]))
    if numbers < OLDEST:
        raise BadInput(f"{python}: is Python {version}; expected {OLDEST[0]}.{OLDEST[1]} or newer")
    if lacking:
        wanted = " ".join(f"{PACKAGES[name]}=={importlib.metadata.version(PACKAGES[name])}" for name in lacking)
        raise BadInput(
            f"{python}: Python {version} lacks {', '.join(PACKAGES[name] for name in lacking)}; install with:"
            f" {python} -m pip install {wanted}   (or let `make shadow SHADOW={python}` make an environment)"
        )
    if not (ROOT / "pyproject.toml").exists() and Path(python) != Path(sys.executable):
        raise BadInput(f"{python}: other Pythons execute a checkout's code, and this Stampede runs from {ROOT}")


def _probe(python: str) -> tuple[str, list[str]]:
    try:
        done = subprocess.run(
            [python, "-c", PROBE.format(names=sorted(PACKAGES))],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(f"{python}: cannot be run: {getattr(error, 'strerror', None) or error}") from None
    version, space, lacking = done.stdout.strip("\n").partition(" ")
    if done.returncode or not space or not version.replace(".", "").isdecimal():
        said = next(iter(done.stderr.splitlines()), "it does not say its version")
        oldest = ".".join(map(str, OLDEST))
        raise BadInput(f"{python}: does not run as a Python: {said}; expected the path of a Python {oldest} or newer")
    return version, [name for name in lacking.split(",") if name]


def execute(python: str, hash_seed: int, folder: Path) -> Answer:
    """Let a Python execute a run's blocks in a fresh process. Raises :class:`HarnessError` if it does not answer."""
    done = subprocess.run(
        [python, "-m", "cluster.audit.reexecution.worker", str(folder.resolve())],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return _read(json.loads(done.stdout))
    except (ValueError, KeyError, TypeError):
        raise HarnessError(
            f"{python}, hash seed {hash_seed}: the process ended with {done.returncode}{_last_line(done.stderr)}"
        ) from None


def _read(page: dict[str, Any]) -> Answer:
    told = page["mismatch"]
    mismatch = None
    if told is not None:
        content = (bytes.fromhex(told["receipts"]), bytes.fromhex(told["trace"]))
        mismatch = Mismatched(told["height"], told["reason"], *content)
    return Answer(page["python"], page["hash_seed"], page["heights"], page["root"], mismatch)


def _last_line(text: str) -> str:
    said = text.strip().splitlines()
    return f": {said[-1]}" if said else ""
