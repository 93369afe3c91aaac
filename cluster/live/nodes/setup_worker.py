"""Sets the environment of a Ray worker and becomes the worker, like Ray's script of this name, but without Ray.

Ray starts each worker that has an environment through a script. Its own imports all of Ray, which the worker then does
again: a third of a processor second a host. An environment of variables alone needs none of that. Ray's own script
continues with any other environment, which has folders of code or packages.

The raylet knows the script by its file name.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

SIMPLE: Final = {"env_vars", "py_executable"}
"""The fields of a context that this script handles."""
RAY_WORKER: Final = str(Path(__file__).with_name("ray_worker.py"))
"""Runs the script of Ray's workers, which comes next."""
UNKNOWN_VARIABLE: Final = re.compile(r"\$\{[A-Z0-9_]+\}")


def environment(variables: Mapping[str, str]) -> None:
    """Set environment variables. As in Ray, ``${NAME}`` in a value is the variable's value so far, or nothing."""
    for name, value in variables.items():
        os.environ[name] = UNKNOWN_VARIABLE.sub("", os.path.expandvars(value))


def command_of(arguments: list[str]) -> list[str]:
    """The command that the process becomes. Sets its environment variables, unless Ray's own script does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--serialized-runtime-env-context", default="{}")
    parser.add_argument("--language")
    given, others = parser.parse_known_args(arguments)
    context: dict[str, Any] = json.loads(given.serialized_runtime_env_context)
    if given.language == "PYTHON" and not {name for name, value in context.items() if value} - SIMPLE:
        environment(context.get("env_vars") or {})
        return [context.get("py_executable") or sys.executable, RAY_WORKER, *others]
    spec = find_spec("ray")  # finds it without importing it
    assert spec is not None and spec.origin is not None
    return [sys.executable, str(Path(spec.origin).parent / "_private" / "workers" / "setup_worker.py"), *arguments]


def main() -> None:
    """Entry of the process."""
    command = command_of(sys.argv[1:])
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
