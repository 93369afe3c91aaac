"""Experiments, agents, measures and policies from files and from packages."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Final

import pytest

from cluster.commands.cli.main import main
from cluster.common.errors import BadInput, ExitCode
from cluster.common.plugins import EXPERIMENTS as EXPERIMENTS_GROUP
from kits.market.lab import files
from kits.market.lab.experiment import class_of
from kits.market.lab.experiments.registry import EXPERIMENTS
from kits.market.lab.files import experiment_of, of_packages, policies_of
from kits.market.lab.running import read_lab
from tests.kits.market.lab.planted import TINY, Tiny

EXAMPLES: Final = Path(__file__).resolve().parents[4] / "docs/lab"
RUN: Final = ("--quick", "--jobs", "1", "--seeds", "5:7", "--blocks", "20")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the examples of the page."""
    for path in EXAMPLES.glob("*.py"):
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def test_a_file_with_agents_measure_and_a_policy_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["lab", "run", "./deadlines.py", "--policy", "./patience.py", *RUN, "--out", "out"]
    assert main(command) == ExitCode.PASS
    said = capsys.readouterr()
    assert "stampede: executes deadlines.py (experiment), " in said.err
    assert "stampede: executes patience.py (chain.policy), " in said.err
    page = json.loads((folder / "out/lab.json").read_text())["experiments"]["deadlines"]
    assert page["factors"] == {"policy": ["cip1", "fifo", "gba_auction", "patience"]}
    assert (page["seeds"], page["blocks"], page["comparisons"]) == ([5, 6], 20, 3)
    expected = {"words": "jobs of late bidders that missed their deadline", "unit": "share of jobs", "better": "less"}
    assert page["metrics"]["missed_share"] == expected
    text = (folder / "out/deadlines.html").read_text()
    again = "stampede lab run ./deadlines.py --policy ./patience.py --quick --seeds 5:7 --blocks 20"
    assert f">{again}</pre>" in text and "<dt>Code</dt><dd>patience.py, SHA-256 <span" in text


def test_a_lab_keeps_the_text_and_its_report_asks_for_permission(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "run", "./deadlines.py", "--policy", "./patience.py", *RUN, "--out", "out"]) == ExitCode.PASS
    pages = (folder / "out/deadlines.html").read_text()
    for path in (*folder.glob("*.py"), folder / "out/deadlines.html"):
        path.unlink()
    capsys.readouterr()
    assert main(["lab", "report", "out"]) == ExitCode.BAD_INPUT
    assert "out/lab.json: has code inside, deadlines.py (experiment), " in capsys.readouterr().err
    assert main(["lab", "report", "out", "--allow-code"]) == ExitCode.PASS
    assert (folder / "out/deadlines.html").read_text() == pages


def test_an_experiment_of_a_file_is_the_same_in_another_process(folder: Path) -> None:
    found = experiment_of("./deadlines.py", EXPERIMENTS).changed(30, range(4), policies_of(["./patience.py"]))
    class_of.cache_clear()
    again = pickle.loads(pickle.dumps(found))
    assert type(again) is not type(found), "its text was executed again"
    assert (again.given, again.factors, again.name) == (found.given, found.factors, "deadlines")
    runs = [each.run(("patience",), 1, each.effort(True)) for each in (found, again)]
    assert runs[0] == runs[1]
    assert runs[0] != found.run(("cip1",), 1, found.effort(True)), "the policy makes a difference"


def test_a_policy_is_a_further_level_of_the_rivals(folder: Path) -> None:
    rivals = EXPERIMENTS["rivals"]
    found = rivals.changed(60, None, policies_of(["./patience.py"]))
    assert found.factors["policy"] == (*rivals.factors["policy"], "patience")
    assert len(found.cells()) == len(rivals.cells()) + 6
    assert rivals.policies == {}, "the experiment that ships is as it was"
    cell = ("learning", "overload", "patience")
    assert found.run(cell, 0, found.effort(True))["welfare_of_best"] > 0


DEADLINES: Final = (EXAMPLES / "deadlines.py").read_text(encoding="utf-8")


def lines(source: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return source


WRONG: Final[dict[str, str]] = {
    "": "experiment: own.py: expected a program in Python, got an empty file",
    "x = 1\n": "own.py: file own.py: ValueError: expected one class of a experiment, got none",
    "class": "own.py: file own.py, line 1: invalid syntax",
    lines(DEADLINES, ('"missed_share": Metric', '"other": Metric')): (
        "own.py: file own.py: ValueError: Deadlines: the measure missed_share has no definition; expected one in"
    ),
    lines(DEADLINES, ('rule = "', 'other = "')): "own.py: file own.py: ValueError: Deadlines: it has no rule",
    lines(DEADLINES, ('"Missed deadlines", "policy"', '"Missed deadlines", "load"')): (
        "own.py: file own.py: ValueError: Deadlines: plots: load is no factor; expected policy"
    ),
    lines(DEADLINES, ("    def decide", "    def decides")): "own.py: file own.py: TypeError: Can't instantiate abs",
    lines(DEADLINES, ("return seen.height >= due - 1", "return seen.heights")): (
        "file own.py, line 25: AttributeError: 'Seen' object has no attribute 'heights'"
    ),
    lines(DEADLINES, ("    jobs = market.of", "    job = market.of")): "file own.py, line ",
    lines(DEADLINES, ("return int(cycles * 400_000 * 2**normal) + 1", "return 0")): "group late: value(",
    lines(DEADLINES, ("agents=10", "agents=1")): "group late: 1 agents are too few for a load of 0.3",
    lines(DEADLINES, ("load=1.0", "load=1 / 0")): "file own.py, line ",
    lines(DEADLINES, ('"One load, one deadline.",', "1 / 0,")): "file own.py, line ",
}


@pytest.mark.parametrize("source", WRONG)
def test_what_is_wrong_in_a_file_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str], source: str) -> None:
    (folder / "own.py").write_text(source)
    assert main(["lab", "run", "own.py", *RUN, "--out", "out"]) == ExitCode.BAD_INPUT
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"stampede: {WRONG[source]}"), line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "./none.py"], "experiment: none.py: no such file"),
        (["run", "./deadlines.py", "--no-code"], "./deadlines.py: has code, deadlines.py (experiment), "),
        (
            ["run", "tiers", "--policy", "./patience.py"],
            "tiers has no factor policy; its factors: pattern, multi",
        ),
        (["run", "rivals", "--policy", "./fifo.py"], "rivals: a policy is named fifo, too; expected another name of"),
        (["run", "rivals", "--policy", "patience"], "--policy patience: expected the path of a Python file, such as "),
        (["run", "rivals", "--policy", "./none.py"], "--policy ./none.py: chain.policy: none.py: no such file"),
        (["run", "rivals", "--policy", "./patience.py", "--policy", "sub/patience.py"], "--policy sub/patience.py: an"),
        (["run", "rivals", "--seeds", "3:3"], "argument --seeds: '3:3' is no range of seeds"),
        (["run", "rivals", "--blocks", "9"], "argument --blocks: '9' is not a valid number of blocks"),
        (["list", "./none.py"], "experiment: none.py: no such file"),
    ],
)
def test_bad_input_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (folder / "sub").mkdir()
    for name in ("fifo.py", "sub/patience.py"):
        shutil.copy(folder / "patience.py", folder / name)
    assert main(["lab", *arguments]) == ExitCode.BAD_INPUT
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"stampede: {message}"), line


def test_list_shows_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "list", "./deadlines.py", "--json"]) == ExitCode.PASS
    (page,) = json.loads(capsys.readouterr().out)
    assert page["name"] == "deadlines" and page["factors"] == {"policy": ["cip1", "fifo", "gba_auction"]}
    assert page["metrics"]["late.utility"]["unit"] == "share of the value of all jobs"


class Named(Tiny):
    name = "named"


class Unfinished(Tiny):
    name = "unfinished"
    rule = ""


def offering(monkeypatch: pytest.MonkeyPatch, *names: str, places: Callable[[str], str]) -> None:
    found = [EntryPoint(name, places(name), EXPERIMENTS_GROUP) for name in names]
    monkeypatch.setattr(files, "points", lambda group: found)


def test_a_package_has_experiments(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    offering(monkeypatch, "named", places=lambda name: f"{Named.__module__}:Named")
    assert of_packages(EXPERIMENTS).keys() == {"named"}
    assert experiment_of("named", EXPERIMENTS).title == "Tiny"
    assert main(["lab", "list"]) == ExitCode.PASS
    assert "named " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "offered", "problem"),
    [
        ("other", Named, "expected a class whose name is 'other', got "),
        ("named", print, "expected a subclass of Experiment, got "),
        ("rivals", Named, "the name is taken; expected another one"),
        ("unfinished", Unfinished, "Unfinished: it has no rule"),
    ],
)
def test_what_a_package_offers_wrongly_is_told_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, offered: Any, problem: str
) -> None:
    offering(monkeypatch, name, places=lambda name: "package:Kind")
    monkeypatch.setattr(EntryPoint, "load", lambda point: offered)
    assert of_packages(EXPERIMENTS) == {}
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line and line.startswith("stampede: a package: package:Kind, its stampede.experiments ")


def test_a_lab_of_a_missing_package_is_refused(tmp_path: Path) -> None:
    given: dict[str, Any] = {"given": {"blocks": None, "seeds": None, "file": None, "policies": []}}
    page = {"format": "stampede-lab/2", "commit": "c", "effort": "quick", "digest": "", "experiments": {"gone": given}}
    (tmp_path / "lab.json").write_text(json.dumps(page))
    with pytest.raises(BadInput, match="this version has no experiment 'gone'"):
        read_lab(tmp_path, {"tiny": TINY})
