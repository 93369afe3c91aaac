"""The tests of the core where no kit is: ``python -m tests.core_alone [OPTION …]``, for the commit that is checked out.

A clone without ``kits/``, the scenario that has a section of a kit, and the entry points that lead there, is installed
into an environment of its own, which has the libraries of this one. The options are pytest's, and may name tests. The
exit code is pytest's, too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
OF_THE_CORE: Final = ("actors", "cluster", "consensus", "loadgen", "spec", "validator")
"""Folders of tests."""
OF_KITS: Final = ("kits", "tests/kits", "scenarios/load/siege.yaml")
LIVE: Final = ("tests/cluster/live/test_*.py", "tests/cluster/report/test_in_a_browser.py")
"""Slow tests that have kits already where they are read."""
CHOSEN: Final = "not slow and not soak and not kits"
POINTS: Final = re.compile(r'(?m)^[\w-]+ = "kits\..*"\n')


def clone(place: Path) -> None:
    """Clone the core into a folder, and commit it there."""
    subprocess.run(["git", "clone", "--quiet", ROOT, place], check=True)
    subprocess.run(["git", "rm", "-r", "--quiet", *OF_KITS], cwd=place, check=True)
    project = place / "pyproject.toml"
    project.write_text(POINTS.sub("", project.read_text(encoding="utf-8")), encoding="utf-8")
    who = ("-c", "user.name=tests", "-c", "user.email=tests@localhost")
    subprocess.run(["git", *who, "commit", "--quiet", "--all", "--message=The core"], cwd=place, check=True)


def install(place: Path, environment: Path) -> Path:
    """Install the clone into a new environment. Returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--no-deps", "--no-build-isolation", "--ignore-installed", "--editable", str(place)]
    subprocess.run(pip, check=True)
    return python


def is_test(option: str) -> bool:
    """Whether an option of pytest names tests."""
    return Path(option.partition("::")[0]).exists()


def main(options: list[str]) -> int:
    """Run the tests; returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="stampede-core-") as folder:
        place = Path(folder) / "core"
        clone(place)
        python = install(place, Path(folder) / "environment")
        tests = [f"tests/{name}" for name in OF_THE_CORE]
        left_out = [f"--ignore-glob={place / each}" for each in LIVE]
        command = [
            str(python),
            "-m",
            "pytest",
            "-m",
            CHOSEN,
            *left_out,
            *options,
            *([] if any(map(is_test, options)) else tests),
        ]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(command, cwd=place, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
