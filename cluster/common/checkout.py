"""The code's folder and version, the check for names in the working directory that would hide its packages, and the
environments of other programs: of our own ones, which find these packages, and of the user's, which do not."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Final

from cluster.common.errors import BadInput

ROOT: Final = Path(__file__).resolve().parents[2]
"""The folder that holds the packages: a checkout or an installation."""
GIT_TIMEOUT_S: Final = 10
UNKNOWN_COMMIT: Final = "unknown"
DIRTY: Final = "-dirty"
DIGEST_DIGITS: Final = 8
OWN_PACKAGES: Final = ("cluster", "consensus", "loadgen", "validator")

SAFE_PATH: Final = "PYTHONSAFEPATH"
"""The variable that keeps the working directory off the path of a Python."""
SAFE_PATH_IS_OURS: Final = "stampede"
"""Its value if the command line set it for our own processes, and not the user."""
RAYS: Final = "RAY_"
"""The beginning of Ray's variables, one of which has its token."""
RAYS_OTHERS: Final = {"PYTHONBREAKPOINT": "ray.util.rpdb.set_trace", "SPT_NOENV": "1"}
"""Other variables that Ray sets in its workers, and the values that it gives them."""
CLOCK_VARIABLE: Final = "STAMPEDE_CLOCK"
"""The variable with the reading of another process's clock; a live host gets it together with its hash seed."""
HASH_SEED_VARIABLE: Final = "PYTHONHASHSEED"


def own_environment() -> dict[str, str]:
    """The environment of a program of ours that another process starts by its module's name."""
    places = (str(ROOT), os.environ.get("PYTHONPATH"))
    return _without_ray() | {"PYTHONPATH": os.pathsep.join(filter(None, places)), SAFE_PATH: SAFE_PATH_IS_OURS}


def users_environment() -> dict[str, str]:
    """The environment of a program of the user's: without what was set for our own processes, and without Ray's
    variables."""
    environment = _without_ray()
    if environment.get(SAFE_PATH) == SAFE_PATH_IS_OURS:
        del environment[SAFE_PATH]
    if CLOCK_VARIABLE in environment:
        environment = {
            name: value for name, value in environment.items() if name not in (CLOCK_VARIABLE, HASH_SEED_VARIABLE)
        }
    return environment


def _without_ray() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(RAYS) and RAYS_OTHERS.get(name) != value
    }


def checkout_commit(folder: Path | None = None) -> str:
    """The git commit of the code; ``unknown`` if it is not known.

    If tracked files changed, ``-dirty-`` and a digest of the changes follow. So a run can require that it continues
    with the same code that began it.

    ``folder`` is another checkout. Outside of a checkout, as in a container's image, the environment variable
    ``STAMPEDE_COMMIT`` gives the commit.
    """
    checkout = ROOT if folder is None else folder
    if not (checkout / ".git").exists():
        return os.environ.get("STAMPEDE_COMMIT") or UNKNOWN_COMMIT
    commit = _git(checkout, "rev-parse", "--short=12", "HEAD")
    changes = _git(checkout, "diff", "--no-ext-diff", "--binary", "HEAD")
    if not commit or changes is None:
        return UNKNOWN_COMMIT
    if not changes:
        return commit
    digest = hashlib.sha256(changes.encode(errors="surrogateescape")).hexdigest()
    return f"{commit}{DIRTY}-{digest[:DIGEST_DIGITS]}"


def version() -> str:
    """The version of the installed code."""
    from importlib import metadata

    return metadata.version("stampede")


def _git(checkout: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def check_working_directory(folder: Path) -> None:
    """Raise :class:`BadInput` if the working directory hides a package of Stampede.

    Ray's workers and Locust import from the working directory first.
    """
    if folder.resolve() == ROOT:
        return
    for name in OWN_PACKAGES:
        for path in (folder / f"{name}.py", folder / name / "__init__.py"):
            if path.exists() and not path.resolve().is_relative_to(ROOT / name):
                raise BadInput(
                    f"{path}: would be taken for Stampede's own {name} by the processes of a live testnet:"
                    " run from another folder"
                )
