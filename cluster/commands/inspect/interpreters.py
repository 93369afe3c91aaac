"""Other Python interpreters: checks whether one can execute blocks."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path
from typing import Final

from cluster.audit.reexecution.again import environment
from cluster.common.checkout import ROOT
from cluster.common.errors import BadInput

PACKAGES: Final = {
    "blake3": "blake3",
    "Crypto": "pycryptodome",
    "msgspec": "msgspec",
    "nacl": "pynacl",
    "numba": "numba",
    "numpy": "numpy",
}
"""The third-party modules that executing a block imports, each with the name of its distribution."""

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
"""A program for any Python version: prints its version and the modules that it cannot import."""


def checked_version(python: str) -> str:
    """The version of a Python that can execute blocks. Raises :class:`BadInput` with the reason and a remedy."""
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
    return version


def _probe(python: str) -> tuple[str, list[str]]:
    try:
        done = subprocess.run(
            [python, "-c", PROBE.format(names=sorted(PACKAGES))],
            env=environment(),
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
