"""A live run in a folder, a home and an environment with settings of the libraries that the project uses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cluster.common.checkout import checkout_commit
from tests.cluster.live.scenarios import PAIR
from tests.hangs import HANGS_AFTER_S

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
NOWHERE: Final = "http://127.0.0.1:9"
FILES: Final = {
    ".numba_config.yaml": "disable_jit: 1\n",
    "conftest.py": "raise SystemExit('conftest.py')\n",
    "home/.locust.conf": "tags = nightly\n",
    "home/.ray/auth_token": "another cluster's",
    "locust.conf": "worker = true\n",
    "networkx.py": "raise SystemExit('networkx.py')\n",
    "run": '"$@"\nexit $?\n',
    "pyproject.toml": '[tool.locust]\nusers = 0\n[tool.pytest.ini_options]\naddopts = "--none"\n',
}
VARIABLES: Final = {
    "COLUMNS": "20",
    "FORCE_COLOR": "1",
    "FORWARDED_ALLOW_IPS": "*",
    "GEVENT_LOOP": "none.Such",
    "GIT_DIR": "/none/such",
    "GIT_INDEX_FILE": "/none/such",
    "HTTP_PROXY": NOWHERE,
    "LOCUST_TAGS": "nightly",
    "NETWORKX_BACKEND_PRIORITY": "none",
    "NUMBA_DISABLE_JIT": "1",
    "OMP_NUM_THREADS": "many",
    "OPENBLAS_NUM_THREADS": "many",
    "PYTEST_ADDOPTS": "--none",
    "PYTHONINSPECT": "1",
    "PYTHONPROFILEIMPORTTIME": "1",
    "PYTHONWARNINGS": "error",
    "RAY_AUTH_TOKEN_PATH": "/none/such",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "1",
    "RAY_NAMESPACE": "another",
    "RAY_OVERRIDE_RESOURCES": '{"CPU": 0}',
    "RAY_RUNTIME_ENV_HOOK": "none.such",
    "RAY_USE_TLS": "1",
    "WEB_CONCURRENCY": "many",
    "grpc_proxy": NOWHERE,
    "http_proxy": NOWHERE,
}
"""Settings of which each alone breaks or changes some process that obeys it."""
COMMAND: Final = (
    "import os, sys; os.environ.update({planted!r}); import stampede_command; sys.exit(stampede_command.main())"
)
"""The command, with variables that its own interpreter has not read: what Python does with this process is up to the
user."""


def stampede(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command below ``uv run``, or what a library takes for it: the command line of a parent process."""
    environment = os.environ | {"HOME": str(folder / "home"), "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        ["uv", "run", sys.executable, "-c", COMMAND.format(planted=VARIABLES), *arguments],
        executable="/bin/sh",
        cwd=folder,
        env={name: value for name, value in environment.items() if not name.startswith("RAY_")},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )


def test_settings_of_libraries_change_nothing(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    links = {"topology": {"kind": "random-regular", "degree": 1}}
    plan: dict[str, Any] = {**PAIR, "links": links}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan), encoding="utf-8")
    run = stampede(tmp_path, "run", "plan.yaml", "--out", "once", "--quiet")
    assert run.returncode == 0, run.stdout + run.stderr
    result = json.loads((tmp_path / "once" / "result.json").read_text(encoding="utf-8"))
    assert result["commit"] == checkout_commit()
    again = stampede(tmp_path, "verify-run", "once")
    assert again.returncode == 0, again.stdout + again.stderr
    twice = stampede(tmp_path, "run", "plan.yaml", "--backend", "sim", "--check-determinism", "--out", "twice")
    assert twice.returncode == 0, twice.stdout + twice.stderr
