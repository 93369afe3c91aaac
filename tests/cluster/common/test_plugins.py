"""``cluster.common.plugins``: what installed packages add, and what is said of one that is broken or not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from cluster.common.errors import BadInput
from cluster.common.plugins import (
    COMMANDS,
    DEPLOYMENTS,
    DRILLS,
    MEANS,
    PLANTED,
    TRACERS,
    expect_function,
    load,
    load_all,
    load_named,
    points,
    what_to_install,
)
from cluster.live.means import Means
from cluster.misbehaviour.planted import planted_bugs
from tests.packages import install
from validator.primitives.offered import expect_class

ROOT: Final = Path(__file__).resolve().parents[3]
COMMAND: Final = """
from dataclasses import dataclass
from cluster.commands.console.command import Command

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
    assert line.startswith("stampede: greeting: greeting.nothing, its stampede.commands greet, cannot be used: ")


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
    assert f"greeting: greeting, its stampede.commands greet, cannot be used: {problem}" in line


@pytest.mark.kits
def test_a_broken_drill_takes_no_other_away(tmp_path: Path) -> None:
    package(tmp_path, "greeting")
    entries = f"[{DRILLS}]\nreorg = greeting.nothing\n"
    (tmp_path / "greeting-1.0.dist-info" / "entry_points.txt").write_text(entries, encoding="utf-8")
    found = stampede(tmp_path, "drill", "--list")
    assert found.returncode == 0 and "reorg" in found.stdout and "siege" in found.stdout
    assert found.stderr.startswith("stampede: greeting: greeting.nothing, its stampede.drills reorg, cannot be used: ")


BUGS = """
from cluster.misbehaviour.planted import EnginePatch, Planted

BUG = Planted("theirs", EnginePatch(lambda engine, counter: engine), "chain")
"""


@pytest.mark.kits
@pytest.mark.parametrize(
    ("bugs", "problem"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("{'no-fee-gate': BUG, 'theirs': BUG}", "ValueError: there is a bug no-fee-gate already"),
        ("{'mine': BUG}", "ValueError: mine: expected a Planted of that name with a patch, got "),
        ("{'theirs': 7}", "ValueError: theirs: expected a Planted of that name with a patch, got 7"),
        ("[BUG]", "AttributeError: "),
        ("{'theirs': BUG}", ""),
    ],
)
def test_broken_bugs_take_no_other_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bugs: str, problem: str
) -> None:
    before = planted_bugs()
    install(tmp_path, "a_package", f"[{PLANTED}]\na_package = a_package:BUGS\n", f"{BUGS}\nBUGS = {bugs}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "a_package", raising=False)
    found = planted_bugs.__wrapped__()
    assert {name: found[name] for name in before} == before
    assert set(found) - set(before) == (set() if problem else {"theirs"})
    said = capsys.readouterr().err.splitlines()
    if problem:
        (line,) = said
        assert line.startswith(
            f"stampede: a_package: a_package:BUGS, its stampede.planted a_package, cannot be used: {problem}"
        )
    else:
        assert not said


DRILL = """
from cluster.commands.drills.kinds.reorg import Reorg

class Mine(Reorg):
    name = "{name}"
    summary = "mine"

class Nameless:
    pass
"""


@pytest.mark.kits
@pytest.mark.parametrize(
    ("drill", "name", "problem"),
    [
        ("Mine", "reorg", "ValueError: there is a drill reorg already"),
        ("Mine", "siege", "ValueError: there is a drill siege already"),
        ("Nameless", "", "ValueError: expected a subclass of Drill, got "),
    ],
)
def test_a_drill_that_does_not_fit_is_refused(tmp_path: Path, drill: str, name: str, problem: str) -> None:
    install(tmp_path, "a_package", f"[{DRILLS}]\nsiege = a_package:{drill}\n", DRILL.format(name=name))
    found = stampede(tmp_path, "drill", "--list")
    assert found.returncode == 0 and "reorg" in found.stdout and "siege" in found.stdout and "mine" not in found.stdout
    (line,) = found.stderr.splitlines()
    assert line.startswith(
        f"stampede: a_package: a_package:{drill}, its stampede.drills siege, cannot be used: {problem}"
    )


def test_a_name_that_two_packages_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one_package", "other_package"):
        install(tmp_path / name, name, f"[{MEANS}]\nelsewhere = {name}:Means\n", "from cluster.live.means import *\n")
        monkeypatch.syspath_prepend(tmp_path / name)
    with pytest.raises(BadInput, match=r"^other_package: .* elsewhere, cannot be used: ValueError: the name is taken"):
        load_named(MEANS, "elsewhere", lambda found: expect_class(found, Means))


def test_what_is_no_class_or_function_as_expected_is_refused() -> None:
    for found in (7, int, Means(None, print, print)):  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"^expected a subclass of Means, got "):
            expect_class(found, Means)
    assert expect_class(Means, Means) is Means
    with pytest.raises(ValueError, match=r"^expected a function, got 7$"):
        expect_function(7)


def test_what_ends_the_process_when_it_is_loaded_is_told_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "ending", "[stampede.nothing]\nending = ending\n", "raise SystemExit('over')\n")
    monkeypatch.syspath_prepend(tmp_path)
    load_all("stampede.nothing", print)
    assert capsys.readouterr().err == (
        "stampede: ending: ending, its stampede.nothing ending, cannot be used: SystemExit: over\n"
    )


@pytest.mark.kits
@pytest.mark.parametrize("group", [COMMANDS, DEPLOYMENTS, DRILLS, TRACERS])
def test_what_the_kits_add_can_be_loaded(group: str) -> None:
    found = points(group)
    assert found and all(load(point, lambda each: each) is not None for point in found)


def test_what_no_package_has_is_refused_with_the_kit_that_has_it() -> None:
    with pytest.raises(BadInput, match=r"^--otlp: no installed package has it; expected the kit tracing: pip install"):
        load_named(TRACERS, "nothing", expect_function, purpose="--otlp", kit="tracing")


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
