"""``cluster.common.plugins``: what installed packages add, and what is said of one that is broken or not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from cluster.common.errors import BadInput
from cluster.common.plugins import COMMANDS, DEPLOYMENTS, DRILLS, TRACERS, load, load_named, plugins, what_to_install
from tests.packages import install

ROOT: Final = Path(__file__).resolve().parents[3]
COMMAND: Final = """
from dataclasses import dataclass
from cluster.tools.console.command import Command

@dataclass(frozen=True, kw_only=True)
class Greet(Command):
    HELP = "greet"
    RUNS_CODE = False
    def run(self):
        print("hello")
        return 0

COMMANDS = {"greet": Greet}
"""


def package(folder: Path, module: str) -> None:
    """An installed package with one command."""
    install(folder, "greeting", f"[{COMMANDS}]\ngreet = {module}\n", COMMAND)


def stampede(installed: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{installed}"}
    code = "import sys; from stampede_command import main; sys.exit(main())"
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_package_adds_a_command(tmp_path: Path) -> None:
    package(tmp_path, "greeting")
    found = stampede(tmp_path, "greet")
    assert (found.returncode, found.stdout, found.stderr) == (0, "hello\n", "")


def test_a_broken_package_is_named_and_takes_no_other_command_away(tmp_path: Path) -> None:
    package(tmp_path, "greeting.nothing")
    found = stampede(tmp_path, "scenarios")
    assert found.returncode == 0 and "smoke" in found.stdout
    (line,) = found.stderr.splitlines()
    assert line.startswith("stampede: greeting: greeting.nothing, its stampede.commands greet, cannot be loaded: ")


@pytest.mark.parametrize(
    ("commands", "problem"),
    [
        ('{"run": Greet}', "ValueError: there is a command run already"),
        ("[Greet]", "TypeError: "),
        ('{"greet": object}', "AttributeError: "),
    ],
)
def test_commands_that_cannot_be_added_are_named(tmp_path: Path, commands: str, problem: str) -> None:
    package(tmp_path, "greeting")
    (tmp_path / "greeting.py").write_text(f"{COMMAND}\nCOMMANDS = {commands}\n", encoding="utf-8")
    found = stampede(tmp_path, "scenarios")
    assert found.returncode == 0 and "smoke" in found.stdout
    (line,) = found.stderr.splitlines()
    assert f"greeting: greeting, its stampede.commands greet, cannot be loaded: {problem}" in line


@pytest.mark.kits
def test_a_broken_drill_takes_no_other_away(tmp_path: Path) -> None:
    package(tmp_path, "greeting")
    entries = f"[{DRILLS}]\nreorg = greeting.nothing\n"
    (tmp_path / "greeting-1.0.dist-info" / "entry_points.txt").write_text(entries, encoding="utf-8")
    found = stampede(tmp_path, "drill", "--list")
    assert found.returncode == 0 and "reorg" in found.stdout and "siege" in found.stdout
    assert found.stderr.startswith(
        "stampede: greeting: greeting.nothing, its stampede.drills reorg, cannot be loaded: "
    )


@pytest.mark.kits
@pytest.mark.parametrize("group", [COMMANDS, DEPLOYMENTS, DRILLS, TRACERS])
def test_what_the_kits_add_can_be_loaded(group: str) -> None:
    found = plugins(group)
    assert found and all(load(point) is not None for point in found.values())


def test_what_no_package_has_is_refused_with_the_kit_that_has_it() -> None:
    with pytest.raises(BadInput, match=r"^--otlp: no installed package has it; expected the kit tracing: pip install"):
        load_named(TRACERS, "nothing", "--otlp", "tracing")


@pytest.mark.parametrize(
    ("module", "kit"), [("opentelemetry.sdk.trace", "tracing"), ("kubernetes", "kubernetes"), ("highspy", "market")]
)
def test_a_library_that_only_a_kit_needs_is_named_with_what_installs_it(module: str, kit: str) -> None:
    said = what_to_install(module)
    assert said is not None and said.endswith(f"is not installed, which this needs: pip install 'stampede[{kit}]'")


@pytest.mark.parametrize("module", ["", "numpy", "ray", "no_such_module", "kits.tracing"])
def test_another_missing_module_is_no_question_of_kits(module: str) -> None:
    assert what_to_install(module) is None


@pytest.mark.kits
def test_a_run_says_what_its_option_needs(tmp_path: Path) -> None:
    (tmp_path / "opentelemetry").mkdir()
    (tmp_path / "opentelemetry" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'opentelemetry'\", name='opentelemetry')\n", encoding="utf-8"
    )
    words = ("run", "smoke", "--backend", "sim", "--otlp", "http://127.0.0.1:1", "--out", str(tmp_path / "out"))
    found = stampede(tmp_path, *words)
    assert found.returncode == 2
    (line,) = found.stderr.splitlines()
    assert line.startswith("stampede: opentelemetry-") and line.endswith("pip install 'stampede[tracing]'")
