"""The wheel: it holds all that the command needs, and what lies around the user is not taken for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cluster.commands.cli import warm_up
from cluster.commands.sweeps import seed_nodes
from cluster.commands.sweeps.drawing import random_scenario as generator
from cluster.commands.sweeps.drawing.extremes import PROGRAMS
from cluster.common.checkout import OWN_PACKAGES, check_working_directory
from cluster.common.errors import BadInput
from cluster.scenario.files import find_scenario, load_scenario
from stampede_command import OWN_PACKAGES as CHECKED_FIRST
from stampede_command import hidden
from tests.repository.import_rules import MAY_IMPORT

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns(".*", "runs", "build", "tests", "benchmarks", "docs", "__pycache__", "*.egg-info")
COMMAND = "import sys; import stampede_command; sys.exit(stampede_command.main())"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's content, built of a copy of the tree without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "tree", ignore=LEFT_OUT)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
    built = subprocess.run(
        [*command, "--wheel-dir", str(folder), str(folder / "tree")], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def stampede(place: Path, folder: Path, *arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """The command of an installation, as somebody in a folder runs it; ``before`` comes before it on the path."""
    path = os.pathsep.join(filter(None, (before, str(place))))
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-P", "-c", COMMAND, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def files_in(folder: Path, pattern: str) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.glob(pattern)}


@pytest.mark.slow
def test_it_ships_programs_scenarios_and_their_schema(installed: Path) -> None:
    assert files_in(installed / "actors", "*") == files_in(ROOT / "actors", "*.py*") != set()
    assert files_in(installed / "scenarios", "**/*.yaml") == files_in(ROOT / "scenarios", "**/*.yaml") != set()
    for folder in ("cluster/common/style", "cluster/live/web/dashboard", "cluster/report/templates"):
        for kind in ("css", "js", "html*"):
            assert files_in(installed / folder, f"*.{kind}") == files_in(ROOT / folder, f"*.{kind}"), folder
    assert (installed / "scenarios" / "schema.json").read_bytes() == (ROOT / "scenarios" / "schema.json").read_bytes()


@pytest.mark.slow
def test_its_command_knows_what_ships_by_name_and_ignores_what_lies_around(installed: Path, tmp_path: Path) -> None:
    for name in OWN_PACKAGES:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not ours')\n", encoding="utf-8")
    (tmp_path / "own.yaml").write_text("name: own\nstop: {height: 3}\n", encoding="utf-8")
    found = stampede(installed, tmp_path, "validate", "python-actors")
    assert (found.returncode, found.stderr) == (0, "")
    run = stampede(installed, tmp_path, "run", "own.yaml", "--backend", "sim", "--check-determinism", "--out", "out")
    assert (run.returncode, run.stderr) == (3, ""), "inconclusive: it is too short"
    assert stampede(installed, tmp_path, "verify-run", "out").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN_PACKAGES)
def test_a_module_that_hides_ours_is_named_at_once(installed: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("raise SystemExit('not ours')\n", encoding="utf-8")
    found = stampede(installed, tmp_path, "validate", "smoke", before=str(tmp_path))
    assert (found.returncode, found.stdout) == (2, "")
    (line,) = found.stderr.splitlines()
    assert line.startswith(f"stampede: {tmp_path / name}.py hides Stampede's own {name}, which is in {installed}")


@pytest.mark.slow
def test_a_missing_program_is_no_failed_seed(installed: Path, tmp_path: Path) -> None:
    place = tmp_path / "site"
    shutil.copytree(installed, place, ignore=shutil.ignore_patterns("token.py"))
    found = stampede(place, tmp_path, "fuzz", "--seeds", "1:2")
    assert found.returncode == 2
    assert found.stderr == f"stampede: programs of actors are missing: token; expected them in {place}/actors\n"


def test_ours_are_found_here() -> None:
    assert hidden() is None
    assert CHECKED_FIRST == OWN_PACKAGES == warm_up.PACKAGES
    assert {*OWN_PACKAGES} <= {*seed_nodes.FOLDERS}
    imported = {name for name in MAY_IMPORT["kits"] if "." not in name} | {"loadgen"}
    assert imported == {*OWN_PACKAGES}


def test_live_processes_look_into_the_working_directory_so_that_is_looked_at_first(tmp_path: Path) -> None:
    check_working_directory(ROOT)
    check_working_directory(tmp_path)
    (tmp_path / "validator.py").touch()
    with pytest.raises(BadInput, match=r"validator\.py: would be taken for Stampede's own validator"):
        check_working_directory(tmp_path)
    package = tmp_path / "below" / "consensus"
    package.mkdir(parents=True)
    check_working_directory(package.parent)
    (package / "__init__.py").touch()
    with pytest.raises(BadInput, match=r"consensus/__init__\.py: would be taken"):
        check_working_directory(package.parent)


def test_scenarios_that_ship_have_short_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_scenario("smoke").name == "smoke"
    assert find_scenario(Path("scenarios/smoke.yaml")) == Path("scenarios/smoke.yaml"), "a path is a path"
    with pytest.raises(
        BadInput, match=r"^smok: no such file, and no scenario of that name ships; did you mean smoke\?"
    ):
        load_scenario("smok")
    (tmp_path / "smoke").write_text("name: mine", encoding="utf-8")
    assert load_scenario("smoke").name == "mine", "what is there comes first"


def test_what_fuzz_draws_is_what_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = set()
    for seed in range(400):
        for group in generator.random_scenario(seed, "simplex").load.users:
            options = group.options
            drawn |= {options.get("program"), *options.get("deploys", [])}
    assert drawn - {None, "builtin:script"} == set(PROGRAMS)
    generator.check_installed()
