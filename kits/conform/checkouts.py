"""Other commits of this project, each in a separate checkout below this one, with an environment in which it runs."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cluster.common.checkout import ROOT, gits_environment
from cluster.common.errors import BadInput
from cluster.common.files import write_atomically
from cluster.common.wording import printable

FOLDER: Final = ".against"
LAUNCHER: Final = ".stampede"
ENVIRONMENT: Final = ".venv"
LOCK: Final = "requirements.lock"
COMMIT_DIGITS: Final = 12
GIT_TIMEOUT_S: Final = 300
INSTALL_TIMEOUT_S: Final = 1_800
HELP_TIMEOUT_S: Final = 120
MAKES_OWN: Final = ("MAKEFLAGS", "MAKELEVEL")
"""Variables of a ``make`` that runs this process; another one would take them for its own."""
_LAUNCHER_TEXT: Final = """\
#!{python}
import sys
sys.path.insert(0, {folder!r})
sys.argv[0] = "stampede"
from {module} import {function}
sys.exit({function}())
"""


def commit_of(name: str, root: Path | None = None) -> str:
    """The full id of a commit that a name such as ``main~3`` means. Raises :class:`BadInput`.

    ``root`` is another checkout than this one.
    """
    root = root or ROOT
    if not (root / ".git").exists():
        raise BadInput(f"{root}: is no git checkout, so it has no other commits")
    try:
        return _run(["git", "-C", root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"], GIT_TIMEOUT_S)
    except _Failed:
        raise BadInput(f"{name!r} is no commit of {root}") from None


def checkout_of(commit: str, root: Path | None = None) -> Path:
    """The program ``stampede`` of a commit: a path that can be executed.

    The first call makes the checkout ``.against/COMMIT``, later calls find it. A commit with this checkout's lock file
    runs with this process's packages. For another one, ``make install`` builds an environment, which takes a minute
    or two and needs a package index. Raises :class:`BadInput` with what failed; nothing is left then.
    """
    root = root or ROOT
    place = root / FOLDER / commit[:COMMIT_DIGITS]
    try:
        place.parent.mkdir(exist_ok=True)
        with place.with_suffix(".lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process may make it, too
            if not (place / LAUNCHER).exists():
                _make(commit, place, root)
    except OSError as error:
        raise BadInput(f"{error.filename or place}: cannot be written: {error.strerror}") from None
    return place / LAUNCHER


def accepts(program: Path, command: str, option: str) -> bool:
    """Whether a command of another commit has an option. Raises :class:`BadInput` if it has no such command."""
    try:
        return option in _run([program, command, "--help"], HELP_TIMEOUT_S)
    except _Failed as error:
        raise BadInput(f"the commit in {program.parent} has no command {command!r}: {error}") from None


def _make(commit: str, place: Path, root: Path) -> None:
    """Make a checkout. Its launcher comes last: without one, what an interrupted process left does not count."""
    shutil.rmtree(place, ignore_errors=True)
    try:
        _run(["git", "clone", "--quiet", "--shared", "--no-checkout", root, place], GIT_TIMEOUT_S)
        _run(["git", "-C", place, "checkout", "--quiet", "--detach", commit], GIT_TIMEOUT_S)
        module, function = _entry(place)
        python = sys.executable
        if _lock(place) != _lock(root):
            if (place / ENVIRONMENT).is_symlink():  # some commits of this project have one
                (place / ENVIRONMENT).unlink()
            _run(["make", "-C", place, f"PYTHON={_base_python()}", "install"], INSTALL_TIMEOUT_S)
            python = str(place / ENVIRONMENT / "bin" / "python")
        launcher = _LAUNCHER_TEXT.format(python=python, folder=str(place), module=module, function=function)
        write_atomically(place / f"{LAUNCHER}.part", launcher)
        (place / f"{LAUNCHER}.part").chmod(0o755)
        (place / f"{LAUNCHER}.part").rename(place / LAUNCHER)
    except BaseException as error:
        shutil.rmtree(place, ignore_errors=True)
        if isinstance(error, _Failed):
            raise BadInput(f"a checkout of commit {place.name} cannot be made: {error}") from None
        raise


def _entry(folder: Path) -> tuple[str, str]:
    """Module and function of the command line, as the commit's ``pyproject.toml`` names them."""
    try:
        page = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        module, _, function = page["project"]["scripts"]["stampede"].partition(":")
    except (OSError, ValueError, KeyError):
        raise _Failed("its pyproject.toml names no command stampede") from None
    return module, function


def _lock(folder: Path) -> bytes | None:
    path = folder / LOCK
    return path.read_bytes() if path.is_file() else None


def _base_python() -> str:
    """The interpreter that this process's environment was made from."""
    return getattr(sys, "_base_executable", None) or sys.executable


class _Failed(Exception):
    """A command failed. The message is the last line that it printed."""


def _run(words: Sequence[str | Path], timeout_s: float) -> str:
    """Run a command; returns what it printed. Raises :class:`_Failed`."""
    environment = {name: value for name, value in gits_environment().items() if name not in MAKES_OWN}
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            words, stdout=pipe, stderr=pipe, text=True, errors="replace", env=environment, start_new_session=True
        )
    except OSError as error:
        raise _Failed(f"{words[0]}: {error.strerror}") from None
    with process:
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # with all that it started, such as pip
            if isinstance(error, subprocess.TimeoutExpired):
                raise _Failed(f"{words[0]}: did not end within {timeout_s:g} s") from None
            raise
    if process.returncode != 0:
        lines = (errors.strip() or output.strip()).splitlines()
        raise _Failed(printable(lines[-1]) if lines else f"{words[0]} ended with exit code {process.returncode}")
    return output.strip()
