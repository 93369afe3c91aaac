"""The code's folder and version, the check for names in the working directory that would hide its packages, and the
environments of other programs: of our own ones, which find these packages, and of the user's, which do not."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cluster.common.errors import BadInput

ROOT: Final = Path(__file__).resolve().parents[2]
"""The folder that holds the packages: a checkout or an installation."""
GIT_TIMEOUT_S: Final = 10
UNKNOWN_COMMIT: Final = "unknown"
DIRTY: Final = "-dirty"
DIGEST_DIGITS: Final = 8
OWN_PACKAGES: Final = ("cluster", "consensus", "kits", "loadgen", "spec", "validator")

SAFE_PATH: Final = "PYTHONSAFEPATH"
"""The variable that keeps the working directory off the path of a Python."""
SAFE_PATH_IS_OURS: Final = "stampede"
"""Its value if the command line set it for our own processes, and not the user."""
RAYS: Final = "RAY_"
"""The beginning of Ray's variables, one of which has its token."""
RAYS_OTHERS: Final = {"PYTHONBREAKPOINT": "ray.util.rpdb.set_trace", "SPT_NOENV": "1"}
"""Other variables that Ray sets in its workers, and the values that it gives them."""
KEPT_OUT: Final = ("GEVENT", "LOCUST_", "NETWORKX_", "NUMBA_", "PYTHON")
"""The beginnings of variables of libraries that do not reach our own processes."""
OBEYED: Final = {
    "NUMBA_CACHE_DIR",
    "NUMBA_CPU_FEATURES",
    "NUMBA_CPU_NAME",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONFAULTHANDLER",
    "PYTHONHASHSEED",
    "PYTHONHOME",
    "PYTHONNOUSERSITE",
    "PYTHONPATH",
    "PYTHONPYCACHEPREFIX",
    "PYTHONSAFEPATH",
    "PYTHONUNBUFFERED",
    "PYTHONUSERBASE",
}
"""Those among them that do: where code and compiled code are, and what changes no result."""
OURS: Final = {"NUMBA_DISABLE_JIT": "0"}
"""Variables of libraries that our own processes get: a file ``.numba_config.yaml`` of the working directory does not
turn compilation off, without which the state store does not work."""
NO_PROXY: Final = "no_proxy"
"""The variable with the hosts that are asked without a proxy. Most libraries also read it in capitals."""
WITHOUT_PROXY: Final = "localhost,127.0.0.1,::1"
"""What our own processes ask there is on this machine, where no proxy of the user's finds it."""
KEPT_VARIABLE: Final = "STAMPEDE_KEPT_OUT"
"""The variable with what was kept out, as JSON: a program of the user's has it back."""
CLOCK_VARIABLE: Final = "STAMPEDE_CLOCK"
"""The variable with the reading of another process's clock; a live host gets it together with its hash seed."""
NAMESPACE_VARIABLE: Final = "STAMPEDE_NAMESPACE"
"""Environment variable with the namespace of the pod."""
INSTANCE_VARIABLE: Final = "STAMPEDE_INSTANCE"
"""Environment variable with the name of the deployment that the pod belongs to."""
HASH_SEED_VARIABLE: Final = "PYTHONHASHSEED"
HASH_SEED: Final = 4242
"""The hash seed of a process that is to have another one than this process. If this one has it, the next number is."""
GITS: Final = "GIT_"
"""The beginning of git's variables: a hook has the folder and the index of its repository in them."""
GITS_SETTINGS: Final = "GIT_CONFIG"
"""The beginning of those of them that are settings."""


def without_kept_out() -> dict[str, str]:
    """This process's environment without the variables of libraries that do not reach our own processes."""
    direct = os.environ.get(NO_PROXY) or os.environ.get(NO_PROXY.upper()) or ""
    if direct != "*" and not direct.endswith(WITHOUT_PROXY):
        direct = f"{direct},{WITHOUT_PROXY}".removeprefix(",")
    ours = OURS | {NO_PROXY: direct, NO_PROXY.upper(): direct}
    kept = {name: os.environ.get(name) for name in ours if os.environ.get(name) != ours[name]}
    known = OBEYED | ours.keys()
    kept |= {name: os.environ[name] for name in os.environ if name.startswith(KEPT_OUT) and name not in known}
    earlier = json.loads(os.environ.get(KEPT_VARIABLE, "{}"))
    environment = {name: value for name, value in os.environ.items() if name not in kept}
    return environment | ours | {KEPT_VARIABLE: json.dumps(kept | earlier)}


def keep_out() -> None:
    """Keep the variables of libraries out of this process, and of those that it starts: it is our own."""
    environment = without_kept_out()
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    if not os.environ.get(SAFE_PATH):
        os.environ[SAFE_PATH] = SAFE_PATH_IS_OURS  # no modules of the working directory


def own_environment() -> dict[str, str]:
    """The environment of a program of ours that another process starts by its module's name."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    places = [str(ROOT), *(os.path.abspath(place) for place in given if place)]  # it may run in another folder
    return _without_ray(without_kept_out()) | {"PYTHONPATH": os.pathsep.join(places), SAFE_PATH: SAFE_PATH_IS_OURS}


def other_hash_seed() -> int:
    """A hash seed other than that of this process."""
    return HASH_SEED + (os.environ.get(HASH_SEED_VARIABLE) == str(HASH_SEED))


def users_environment() -> dict[str, str]:
    """The environment of a program of the user's: as the user set it, without what was set for our own processes, and
    without Ray's variables."""
    environment = dict(os.environ)
    kept = json.loads(environment.pop(KEPT_VARIABLE, "{}"))
    environment = _without_ray({name: value for name, value in (environment | kept).items() if value is not None})
    if environment.get(SAFE_PATH) == SAFE_PATH_IS_OURS:
        del environment[SAFE_PATH]
    if CLOCK_VARIABLE in environment:
        environment = {
            name: value for name, value in environment.items() if name not in (CLOCK_VARIABLE, HASH_SEED_VARIABLE)
        }
    return environment


def gits_environment() -> dict[str, str]:
    """The environment of git in the repository that its arguments name, whatever repository's hook runs this."""
    return {
        name: value
        for name, value in users_environment().items()
        if not name.startswith(GITS) or name.startswith(GITS_SETTINGS)
    }


def _without_ray(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
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
    changes = _git(checkout, "diff-index", "--patch", "--no-ext-diff", "--no-textconv", "--binary", "HEAD")
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
            env=gits_environment(),
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

    The workers of a Ray that is joined import from the working directory first.
    """
    if folder.resolve() == ROOT:
        return
    for name in OWN_PACKAGES:
        for path in (folder / f"{name}.py", folder / name / "__init__.py"):
            if path.exists() and not path.resolve().is_relative_to(ROOT / name):
                raise BadInput(
                    f"{path}: would be taken for Stampede's own {name} by the workers of the Ray that is joined:"
                    " run from another folder"
                )
