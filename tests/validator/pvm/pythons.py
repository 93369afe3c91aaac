"""The Pythons of this machine that programs must not be able to tell apart."""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


@cache
def python(version: str) -> str | None:
    """A Python of this version that starts; ``None`` where there is none."""
    versions = os.environ.get("PYENV_ROOT") or str(Path.home() / ".pyenv")
    found = sorted(glob.glob(f"{versions}/versions/{version}.*/bin/python"))
    for name in [*found, shutil.which(f"python{version}")]:
        if name is not None and says(name, "import sys; print(sys.version_info[:2])") == str(
            tuple(map(int, version.split(".")))
        ):
            return name
    return None


def says(executable: str, code: str) -> str | None:
    done = subprocess.run([executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def answers(
    executable: str,
    script: str,
    given: Any,
    hash_seed: str = "random",
    flags: Sequence[str] = ("-W", "error"),
) -> Any:
    """What a script of this folder answers under a Python, in JSON both ways; warnings are errors there by default."""
    done = subprocess.run(
        [executable, *flags, "-s", str(Path(__file__).parent / script)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT), "PATH": os.environ.get("PATH", "")},
    )
    assert done.returncode == 0, f"{Path(script).name} ended with {done.returncode}: {done.stderr[-2000:]}"
    return json.loads(done.stdout)


def here() -> str:
    return sys.executable


def is_here(executable: str) -> bool:
    """Whether it is the one that runs this, of whose file an environment has a link."""
    return Path(executable).resolve() == Path(here()).resolve()
