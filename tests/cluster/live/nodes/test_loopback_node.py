"""Scripts that a Ray node of a testnet has in place of Ray's own."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ray._private.runtime_env.context import RuntimeEnvContext
from ray._private.utils import update_envs

from cluster.live.nodes import idle_agent, loopback_node, ray_worker, setup_worker
from tests.hangs import HANGS_AFTER_S

VARIABLES = {"STAMPEDE_A": "1", "STAMPEDE_B": "${STAMPEDE_A}2", "STAMPEDE_C": "a${STAMPEDE_NONE}b", "STAMPEDE_D": ""}


def command_of(context: dict[str, Any] | None, language: str = "PYTHON") -> list[str]:
    given = [] if context is None else [f"--serialized-runtime-env-context={json.dumps(context)}"]
    return setup_worker.command_of(["worker.py", "--port=1", *given, f"--language={language}", "--last"])


def test_a_worker_has_the_environment_that_ray_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for set_all in (setup_worker.environment, update_envs):
        with monkeypatch.context() as patch:
            for name in VARIABLES:
                patch.setenv(name, "before")
            set_all(VARIABLES)
            found.append({name: os.environ[name] for name in VARIABLES})
    assert found[0] == found[1] == {"STAMPEDE_A": "1", "STAMPEDE_B": "12", "STAMPEDE_C": "ab", "STAMPEDE_D": ""}


def test_a_worker_with_variables_alone_is_started_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAMPEDE_A", "before")
    context = json.loads(RuntimeEnvContext(env_vars={"STAMPEDE_A": "1"}, py_executable="/python").serialize())
    assert command_of(context) == ["/python", setup_worker.RAY_WORKER, "worker.py", "--port=1", "--last"]
    assert os.environ["STAMPEDE_A"] == "1"
    assert command_of(None) == [sys.executable, setup_worker.RAY_WORKER, "worker.py", "--port=1", "--last"]


@pytest.mark.parametrize(
    ("fields", "language"),
    [
        ({"command_prefix": ["cd", "folder", "&&"]}, "PYTHON"),
        ({"override_worker_entrypoint": "/other.py"}, "PYTHON"),
        ({"java_jars": ["a.jar"]}, "JAVA"),
        ({}, "JAVA"),
    ],
)
def test_any_other_environment_is_left_to_rays_own_script(
    fields: dict[str, Any], language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAMPEDE_A", "before")
    context = json.loads(RuntimeEnvContext(env_vars={"STAMPEDE_A": "1"}, **fields).serialize())
    python, script, *arguments = command_of(context, language)
    assert (python, Path(script).name, Path(script).is_file()) == (sys.executable, "setup_worker.py", True)
    assert "ray" in Path(script).parts
    assert arguments[0] == "worker.py" and arguments[-1] == "--last"
    assert f"--serialized-runtime-env-context={json.dumps(context)}" in arguments
    assert os.environ["STAMPEDE_A"] == "before", "it sets them itself"


def test_rays_fields_of_a_context_are_known() -> None:
    known = {*setup_worker.SIMPLE, "command_prefix", "override_worker_entrypoint", "java_jars"}
    assert set(vars(RuntimeEnvContext())) == known


def test_the_idle_agent_says_that_it_has_no_ports_and_ends_with_its_raylet(tmp_path: Path) -> None:
    option = loopback_node.with_idle_agent(
        f"{loopback_node.AGENT_OPTION}/python -u /ray/dashboard/agent.py --node-id=7 --session-dir={tmp_path} --head"
    )
    assert "/ray/dashboard" not in option and option.endswith(f" --node-id=7 --session-dir={tmp_path} --head")
    agent = shlex.split(option.removeprefix(loopback_node.AGENT_OPTION))
    raylet = f"import subprocess, sys\nsubprocess.Popen({agent!r})\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", raylet],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "RAY_NODE_ID": "7"},
    ) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        while len(list(tmp_path.glob("*_7"))) < len(idle_agent.PORTS):
            assert parent.poll() is None
        parent.kill()
        assert parent.stdout.read() == b"", "the agent has ended, too: it shares the pipe"
        parent.wait(HANGS_AFTER_S)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        f"{name}_7": "-1" for name in idle_agent.PORTS
    }
    assert loopback_node.with_idle_agent("--head") == "--head"


def test_rays_agent_without_the_dashboards_packages_writes_the_same_files() -> None:
    from ray import _raylet
    from ray.dashboard.agent import DashboardAgent

    source = inspect.getsource(DashboardAgent)
    used = set(re.findall(r"persist_port\(\s*self\.session_dir,\s*self\.node_id,\s*(\w+),", source))
    assert {getattr(_raylet, name) for name in used} == set(idle_agent.PORTS)


WORKER = """
import importlib.util
import sys
import ray
loaded = [name for name in {unused!r} if "__path__" in vars(sys.modules[name])]
print(__name__, sys.argv[1:], __file__ == sys.argv[0], loaded)
assert importlib.util.find_spec("jsonschema") is not None
import jsonschema
print(jsonschema.validate.__module__, sys.modules["jsonschema"].__name__)
"""


def test_a_worker_loads_libraries_that_ray_does_not_use_when_they_are_used(tmp_path: Path) -> None:
    script = tmp_path / "default_worker.py"
    script.write_text(WORKER.format(unused=ray_worker.UNUSED))
    command = [sys.executable, setup_worker.RAY_WORKER, str(script), "--port=1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "__main__ ['--port=1'] True []\njsonschema.validators jsonschema\n"
