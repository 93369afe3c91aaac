"""The environments of our own programs and of the user's, and of git."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import pytest

from cluster.common.checkout import (
    KEPT_OUT,
    KEPT_VARIABLE,
    OBEYED,
    ROOT,
    SAFE_PATH,
    SAFE_PATH_IS_OURS,
    WITHOUT_PROXY,
    checkout_commit,
    keep_out,
    own_environment,
    users_environment,
)
from tests.git import git

THEIRS = {
    "GEVENT_LOOP": "none.Such",
    "NO_PROXY": "10.0.0.1",
    "LOCUST_TAGS": "nightly",
    "NETWORKX_BACKEND_PRIORITY": "none",
    "NUMBA_CACHE_DIR": "/cache",
    "NUMBA_DISABLE_JIT": "1",
    "PYTHONHASHSEED": "7",
    "PYTHONINSPECT": "1",
    "PYTHONPATH": f"relative{os.pathsep}{os.pathsep}/absolute",
    "PYTHONUNBUFFERED": "1",
    "PYTHONWARNINGS": "error",
}
OBEYED_OF_THEM = {"NUMBA_CACHE_DIR": "/cache", "PYTHONHASHSEED": "7", "PYTHONUNBUFFERED": "1"}
OF_THE_SYSTEM = {
    "LD_LIBRARY_PATH": "/none/such",
    "LD_PRELOAD": "/none/such.so",
    "MKL_NUM_THREADS": "3",
    "OMP_NUM_THREADS": "3",
    "OPENBLAS_NUM_THREADS": "3",
    "TMPDIR": "/none/such",
}
SHOW = "import json, os; print(json.dumps(dict(os.environ)))"
USERS_CHILD = f"""
import subprocess, sys
from cluster.common.checkout import users_environment
subprocess.run([sys.executable, "-c", {SHOW!r}], env=users_environment(), check=True)
"""


def shown(program: str, environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    command = [sys.executable, "-I", "-c", program] if program is SHOW else [sys.executable, "-c", program]
    done = subprocess.run(
        command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("is_command", [True, False])
@patch.dict(os.environ)
def test_libraries_settings_reach_the_users_programs_and_not_ours(
    is_command: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of the user's has them even if a process of ours starts it that never had them."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("RAY_", "no_proxy", KEPT_VARIABLE, *KEPT_OUT))]:
        del os.environ[name]
    os.environ.update(THEIRS | OF_THE_SYSTEM | {"RAY_ADDRESS": "somewhere"})
    if is_command:
        keep_out()
        keep_out()
    ours = shown(SHOW, own_environment(), tmp_path)
    assert ours["no_proxy"] == ours["NO_PROXY"] == f"10.0.0.1,{WITHOUT_PROXY}"
    libraries = {name: value for name, value in ours.items() if name.startswith(("RAY_", *KEPT_OUT))}
    places = os.pathsep.join([str(ROOT), str(tmp_path / "relative"), "/absolute"])
    wanted = OBEYED_OF_THEM | {"PYTHONPATH": places, SAFE_PATH: SAFE_PATH_IS_OURS, "NUMBA_DISABLE_JIT": "0"}
    assert libraries == wanted
    assert THEIRS.keys() & OBEYED == wanted.keys() - {SAFE_PATH, "NUMBA_DISABLE_JIT"}
    assert {name: ours.get(name) for name in OF_THE_SYSTEM} == OF_THE_SYSTEM
    theirs = shown(USERS_CHILD, own_environment() | {"PYTHONINSPECT": ""}, tmp_path)
    assert {name: theirs.get(name) for name in THEIRS} == THEIRS | {"PYTHONPATH": places}
    assert not {KEPT_VARIABLE, SAFE_PATH, "RAY_ADDRESS", "no_proxy"} & theirs.keys()
    assert {name: value for name, value in users_environment().items() if name in THEIRS} == THEIRS


SPAWNED = f"""
import multiprocessing, sys
from cluster.common.checkout import keep_out

if __name__ == "__main__":
    keep_out()
    child = multiprocessing.get_context(sys.argv[1]).Process(target=exec, args=[{SHOW!r}])
    child.start()
    child.join()
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_children_of_a_command_that_python_starts_get_none_of_them(method: str, tmp_path: Path) -> None:
    (tmp_path / "command.py").write_text(SPAWNED)
    planted = {name: value for name, value in THEIRS.items() if name not in OBEYED and name != "NO_PROXY"}
    environment = os.environ | planted | {"PYTHONINSPECT": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "command.py", method],
        cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not planted.keys() & json.loads(done.stdout).keys() - {"NUMBA_DISABLE_JIT"}
    assert json.loads(done.stdout)["NUMBA_DISABLE_JIT"] == "0"


SETTINGS = "[color]\nui = always\n[diff]\nnoprefix = true\ncontext = 1\nexternal = false\n"


def test_the_commit_is_that_of_the_checkout_whatever_git_is_told_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook has the repository that it runs for in its environment; how git prints is up to the user."""
    commits = []
    for name in ("ours", "another"):
        (folder := tmp_path / name).mkdir()
        git(folder, "init")
        (folder / "file").write_text(f"{name}\n" * 9)
        git(folder, "add", "file")
        git(folder, "commit", "--no-verify", "-m", name)
        (folder / "file").write_text(f"{name}\n" * 8)
        commits.append(checkout_commit(folder))
    assert commits[0] != commits[1]
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "another" / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "another"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "no-index"))
    monkeypatch.setenv("GIT_DIFF_OPTS", "--unified=0")
    (tmp_path / "settings").write_text(SETTINGS)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "settings"))
    assert checkout_commit(tmp_path / "ours") == commits[0]
