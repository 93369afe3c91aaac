"""The programs that tests need and no Python package brings: where each is, and how ``make test-tools`` installs it.

    python -m tests.tools

installs those that are missing, from Debian's packages, as root or by sudo. It says what it cannot install, and exits
with 1 then. It runs before anything else is installed, so this module needs no package.

Where a tool is missing, its tests are skipped, except in continuous integration (:mod:`tests.tiers.skips`). The
environment names another program by the tool's name in capitals: ``CHROMIUM=/opt/chrome/chrome``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pytest

UNPACKED: Final = Path(__file__).resolve().parents[1] / ".tools"
"""Where packages are unpacked that would start a server if they were installed."""


@dataclass(frozen=True)
class Tool:
    """A program, and the package of Debian that has it."""

    name: str
    package: str
    other_names: tuple[str, ...] = ()
    """Its names on other systems."""
    is_unpacked: bool = False
    """Whether its package is unpacked to :data:`UNPACKED` instead of installed, which needs no root."""

    @cached_property
    def path(self) -> str | None:
        """The program; ``None`` if there is none. Raises :class:`FileNotFoundError` if the environment names none."""
        if named := os.environ.get(self.name.upper()):
            if (found := shutil.which(named)) is None:
                raise FileNotFoundError(f"{self.name.upper()}={named} names no program")
            return found
        names = (self.name, *self.other_names)
        places = f"{os.environ.get('PATH', os.defpath)}{os.pathsep}{UNPACKED / 'usr' / 'bin'}"
        return next(filter(None, (shutil.which(name, path=places) for name in names)), None)

    def __str__(self) -> str:
        """The program. Only tests that :func:`needs` lets run ask for it."""
        assert self.path is not None, f"there is no {self.name} here"
        return self.path


BASH: Final = Tool("bash", "bash")
CHROMIUM: Final = Tool("chromium", "chromium", ("chromium-browser", "google-chrome"))
FISH: Final = Tool("fish", "fish")
GO: Final = Tool("go", "golang-go")
IP: Final = Tool("ip", "iproute2")
KUBECTL: Final = Tool("kubectl", "kubernetes-client")
PROMETHEUS: Final = Tool("prometheus", "prometheus", is_unpacked=True)
PROMTOOL: Final = Tool("promtool", "prometheus", is_unpacked=True)
ZSH: Final = Tool("zsh", "zsh")
TOOLS: Final = (BASH, CHROMIUM, FISH, GO, IP, KUBECTL, PROMETHEUS, PROMTOOL, ZSH)


def needs(*tools: Tool) -> pytest.MarkDecorator:
    """The mark of tests that are skipped without these tools."""
    import pytest

    missing = [tool.name for tool in tools if tool.path is None]
    return pytest.mark.skipif(bool(missing), reason=f"missing: {' and '.join(missing)} (make test-tools)")


# --- make test-tools ------------------------------------------------------------------------------------------------


def main() -> int:
    """Install the packages of the tools that are missing. Returns the exit code."""
    missing = [tool for tool in TOOLS if tool.path is None]
    if not missing:
        return 0
    unpacked = sorted({tool.package for tool in missing if tool.is_unpacked})
    installed = sorted({tool.package for tool in missing if not tool.is_unpacked})
    print(f"make test-tools: Debian's packages {' '.join([*installed, *unpacked])}", flush=True)
    try:
        _install(installed, unpacked)
    except (OSError, subprocess.CalledProcessError) as error:
        said = error.stdout.strip() if isinstance(error, subprocess.CalledProcessError) else ""
        print(
            f"{said}\nmake test-tools: cannot install them: {error}. Install {', '.join(tool.name for tool in missing)}"
            " by hand, or the tests that need them are skipped.".lstrip(),
            file=sys.stderr,
        )
        return 1
    return 0


def _install(installed: Sequence[str], unpacked: Sequence[str]) -> None:
    """Install and unpack packages. Raises :class:`OSError` and :class:`subprocess.CalledProcessError`."""
    root = [] if os.geteuid() == 0 else ["sudo"]
    apt = [*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]
    _run([*apt, "update"])
    if installed:
        _run([*apt, "install", "--yes", "--no-install-recommends", *installed])
    for package in unpacked:
        with tempfile.TemporaryDirectory() as folder:
            _run(["apt-get", "download", package], folder)
            (file,) = Path(folder).iterdir()
            _run(["dpkg-deb", "--extract", str(file), str(UNPACKED)])


def _run(command: Sequence[str], folder: str | None = None) -> None:
    subprocess.run(command, check=True, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


if __name__ == "__main__":
    sys.exit(main())
