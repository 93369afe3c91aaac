"""Claims of folders: one process writes a folder at a time, whatever becomes of the others."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from cluster.commands.cli import main as cli
from cluster.common.checkout import version
from cluster.common.errors import BadInput, ExitCode
from cluster.record import folder as folders
from cluster.record.folder import claimed, run_folder
from cluster.report.results import finish_run
from kits.conform.results.failure_page import CASE_FILES, GOT_FILE, PAGE_FILE
from kits.mutation.generated.search import LOG_FILE
from tests.cluster.commands.compare.folders import write_run, write_sweep
from tests.cluster.records import make_record

ROOT = Path(__file__).parents[2]
CLAIM = """
import sys
from pathlib import Path
from cluster.common.errors import BadInput
from cluster.record.folder import run_folder
sys.stdin.readline()
try:
    with run_folder(Path(sys.argv[1]), "unused") as folder:
        (folder / "mine").write_text(sys.argv[2])
        print("claimed", flush=True)
        sys.stdin.read()
except BadInput as error:
    print(error, flush=True)
"""
CLAIMANTS = 8
REFUSED = "another process writes it: choose another folder, or wait"

CLAIMED = {
    "run --out": "run smoke --backend sim --out FOLDER",
    "up --out": "up smoke --out FOLDER",
    "drill … --out": "drill restart-all --backend sim --out FOLDER",
    "sweep --out": "sweep smoke --seeds 1:2 --out FOLDER",
    "fuzz --out": "fuzz --seeds 1:2 --out FOLDER",
    "lab run --out": "lab run tiers --quick --out FOLDER",
    "lab run-all --out": "lab run-all --quick --out FOLDER",
    "lab tune --out": "lab tune rivals --policy docs/lab/premium.py --measure welfare --out FOLDER",
    "lab report DIR": "lab report FOLDER",
    "dos --out": "dos --quick --out FOLDER",
    "dos search --out": "dos search --budget 1000 --out FOLDER",
    "mutants --out": "mutants --machine 1 --out FOLDER",
    "calibrate --out": "calibrate smoke --out FOLDER",
    "conform --out": "conform --tool false --out FOLDER",
    "conform export DIR": "conform export FOLDER",
    "k8s run --out": "k8s run smoke --out FOLDER",
    "k8s render --out": "k8s render smoke --out FOLDER",
    "peer --data": "peer smoke run --key key --data FOLDER",
}
"""A command for each option and argument that names a folder to be written."""
CLAIMED_LATER = {"export --to", "fork --out", "k8s report --out"}
"""Those that need a run, or a cluster, before their folder; they claim it, too."""
READ = {"runs DIR", "conform --corpus", "prove DIR", "state … DIR"}
"""Those whose folder is read."""

GROUPS = re.compile(r"(?<=^drill ).*|(?<=^state ).*")
"""The second words of commands that are alike."""


def words_of(command: str, folder: Path) -> list[str]:
    return [str(folder) if word == "FOLDER" else word for word in command.split()]


@pytest.fixture(params=CLAIMED)
def command(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("key").write_text("01" * 32)
    return CLAIMED[request.param]


def test_each_command_refuses_a_folder_that_another_process_writes(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = tmp_path / "theirs"
    with claimed(theirs):
        assert cli.main(words_of(command, theirs)) == ExitCode.BAD_INPUT
        assert list(theirs.iterdir()) == []
    assert capsys.readouterr().err == f"stampede: {theirs}: {REFUSED}\n"
    assert {path.name for path in tmp_path.iterdir()} <= {"key"}, "a folder that was created and stays empty goes"


FORCED = {
    **dict.fromkeys(["run --out", "up --out", "drill … --out"], "result.json"),
    **dict.fromkeys(["sweep --out", "fuzz --out"], "seeds.jsonl"),
    **dict.fromkeys(["lab run --out", "lab run-all --out"], "runs.jsonl"),
    "lab tune --out": "tuning.jsonl",
    "dos --out": "scorecard.json",
    "dos search --out": "candidates.jsonl",
    "calibrate --out": "calibration.json",
    "mutants --out": "machine.jsonl",
    "conform --out": "message-3/expected.json",
    "k8s run --out": "result.json",
}
"""The commands with ``--force``, each with a file that tells its folders."""


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", FORCED)
@pytest.mark.parametrize("foreign", ["notes.txt", "seed-1/notes.txt", "data", "link"])
def test_a_forced_command_removes_nothing_of_others(
    name: str, foreign: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "used"
    (folder / foreign).parent.mkdir(parents=True)
    (folder / foreign).symlink_to(tmp_path) if foreign == "link" else (folder / foreign).write_text("mine")
    words = [*words_of(CLAIMED[name], folder), "--force"]
    assert cli.main(words) == ExitCode.BAD_INPUT
    refused = re.search(r"used: --force: is no folder of [\w ]+: it has no (\S+)", capsys.readouterr().err)
    assert refused is not None and fnmatchcase(FORCED[name], refused[1])
    (folder / FORCED[name]).parent.mkdir(exist_ok=True)
    (folder / FORCED[name]).write_text("theirs")
    before = contents(folder)
    assert cli.main(words) == ExitCode.BAD_INPUT
    assert f"used: --force: {foreign} is not of " in (said := capsys.readouterr().err) and said.count("\n") == 1
    assert contents(folder) == before and os.path.lexists(folder / foreign)


@pytest.mark.parametrize("name", FORCED)
def test_a_forced_command_needs_a_folder(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = words_of(CLAIMED[name], Path("unused"))
    place = words.index("--out")
    assert cli.main([*words[:place], *words[place + 2 :], "--force"]) == ExitCode.BAD_INPUT
    assert "--force needs --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        (folders.RUN, ["result.json", "report.html", "blocks.bin", "data/validator-0/state/log", "logs/host-0.log"]),
        (folders.SWEEP, ["seeds.jsonl", "summary.json", "seed-3/result.json", "seed-3/data/a/b"]),
        (folders.SWEEP, ["grid.json", "cell-1-n-4/seeds.jsonl", "cell-1-n-4/seed-3/traceback.txt"]),
        (folders.SEARCH, ["candidates.jsonl", "found.yaml"]),
        (folders.SCORECARD, ["scorecard.json", "scorecard.html", "1-none/result.json"]),
        (folders.LAB, ["runs.jsonl", "lab.npz", "index.html"]),
        (folders.CALIBRATION, ["calibration.json", "smoke-1/result.json", "smoke-2/logs/host-0.log"]),
        (folders.MACHINE, [LOG_FILE, "traceback.txt"]),
        (folders.FAILING_CASES, [f"message-3/{name}" for name in (*CASE_FILES, GOT_FILE, PAGE_FILE)]),
    ],
)  # fmt: skip
def test_a_folder_of_the_same_kind_is_emptied_once(kind: folders.Kind, files: list[str], tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("old")
    with pytest.raises(BadInput, match="is not empty"), claimed(tmp_path, must_be_empty=True):
        pass
    folders.replace_at_claim(tmp_path, kind)
    with claimed(tmp_path, must_be_empty=True):
        assert list(tmp_path.iterdir()) == []
        (tmp_path / files[0]).parent.mkdir(exist_ok=True)
        (tmp_path / files[0]).write_text("new")
    with claimed(tmp_path):
        assert contents(tmp_path) == {files[0]: "new"}, "the next claim replaces nothing"


def test_a_forced_run_in_a_cluster_replaces_what_its_driver_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").touch()
    for words, kind in (("run", "a run"), ("drill outage", "a run"), ("sweep 1:2", "a sweep"), ("dos", "a scorecard")):
        command = f"k8s run smoke --out {tmp_path} --force --command {words}"
        assert cli.main(command.split()) == ExitCode.BAD_INPUT
        assert f"--force: is no folder of {kind}: " in capsys.readouterr().err


def test_all_files_of_a_run_are_known(tmp_path: Path) -> None:
    record = make_record(backend="live")
    finish_run(record, tmp_path)
    assert all(any(fnmatchcase(name, known) for known in folders.RUN.names) for name in folders._files(tmp_path))


def parsers(parser: argparse.ArgumentParser, words: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """All parsers with arguments below one, each with the words that select it."""
    fill = getattr(parser, "fill", None)
    if fill is not None:
        fill(parser)
    below = {**getattr(parser, "words", {})}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below |= action.choices
    yield words, parser
    for word, each in below.items():
        yield from parsers(each, f"{words} {word}".strip())


def test_each_folder_that_a_user_names_is_claimed_or_only_read() -> None:
    named = {
        f"{GROUPS.sub('…', words)} {action.option_strings[-1] if action.option_strings else action.metavar}"
        for words, parser in parsers(cli._parser(), "")
        for action in parser._actions
        if action.metavar == "DIR"
    }
    assert named == {*CLAIMED, *CLAIMED_LATER, *READ}


def test_of_many_claims_at_the_same_moment_one_is_granted(tmp_path: Path) -> None:
    target = tmp_path / "a" / "same"
    command = [sys.executable, "-c", CLAIM, str(target)]
    processes = [
        subprocess.Popen([*command, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for n in range(CLAIMANTS)
    ]
    said = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        assert process.stdout is not None
        said.append(process.stdout.readline().strip())
    assert sorted(said) == [*[f"{target}: {REFUSED}"] * (CLAIMANTS - 1), "claimed"]
    assert (target / "mine").read_text() == str(said.index("claimed"))
    for process in processes:
        process.communicate()


def test_a_claim_ends_with_its_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CLAIM, str(tmp_path / "same"), "x"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    assert process.stdout.readline() == "claimed\n"
    with pytest.raises(BadInput, match=REFUSED), claimed(tmp_path / "same"):
        pytest.fail("two claims")
    process.kill()
    process.communicate()
    with run_folder(tmp_path / "same", "unused", goes_on=True) as folder:
        assert (folder / "mine").read_text() == "x"
    with pytest.raises(BadInput, match="is not empty"), run_folder(tmp_path / "same", "unused"):
        pytest.fail("it is the other's")


def test_an_empty_folder_is_claimed_and_stays(tmp_path: Path) -> None:
    for _ in range(2):
        with run_folder(tmp_path, "unused") as folder:
            assert list(folder.iterdir()) == []
    assert tmp_path.is_dir()


def test_a_folder_that_was_created_goes_if_it_stays_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with run_folder(tmp_path / "new", "unused") as named, run_folder(None, "smoke") as unnamed:
        assert named.is_dir() and unnamed.parent == Path("runs")
        with pytest.raises(BadInput, match=REFUSED), claimed(unnamed):
            pytest.fail("two claims")
    assert not named.exists() and not unnamed.exists()


def test_a_folder_that_its_owner_removes_meanwhile_is_claimed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, takes_lock = tmp_path / "same", folders.takes_lock

    def after_its_end(file: int) -> bool:
        monkeypatch.setattr(folders, "takes_lock", takes_lock)
        target.rmdir()
        return takes_lock(file)

    monkeypatch.setattr(folders, "takes_lock", after_its_end)
    with claimed(target):
        assert target.is_dir()
        with pytest.raises(BadInput, match=REFUSED), claimed(target):
            pytest.fail("two claims")


# --- versions -------------------------------------------------------------------------------------------------------


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_TOLD_VERSIONS", set())


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("command", ["compare", "replay", "verify-run", "bisect", "shrink"])
def test_a_command_says_which_version_wrote_what_it_reads(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (write_run(tmp_path / name, version="0.0.1", backend="live") for name in "ab")
    cli.main([command, str(first), *([str(second)] if command == "compare" else [])])
    lines = capsys.readouterr().err.splitlines()
    said = [line for line in lines if "version 0.0.1" in line]
    assert said == [f"stampede: {first}: written by version 0.0.1, read by {version()}"]


@pytest.mark.usefixtures("told")
def test_of_a_sweep_the_version_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (write_sweep(tmp_path / name, range(9), version=f"0.0.{name}") for name in "12")
    assert cli.main(["compare", str(first), str(second)]) == ExitCode.PASS
    err = capsys.readouterr().err
    assert all(f"{folder}: written by version 0.0.{folder.name}, read by" in err for folder in (first, second))


@pytest.mark.usefixtures("told")
def test_the_list_of_runs_says_which_versions_wrote_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [write_run(tmp_path / "old", version="0.0.1"), write_sweep(tmp_path / "swept", range(9), version="0.0.2")]
    write_run(tmp_path / "new", version=version())
    write_run(tmp_path / "unknown", version=None)
    assert cli.main(["runs", str(tmp_path), "--json", str(tmp_path / "page.json")]) == ExitCode.PASS
    said = sorted(capsys.readouterr().err.splitlines())
    reader = f"read by {version()}"
    assert said == [f"stampede: {run}: written by version 0.0.{n}, {reader}" for n, run in enumerate(runs, 1)]
    versions = {entry["name"]: entry["version"] for entry in json.loads((tmp_path / "page.json").read_text())}
    assert versions == {"old": "0.0.1", "swept": "0.0.2", "new": version(), "unknown": ""}


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("writer", [version(), None])
def test_of_the_same_version_and_of_an_unknown_one_nothing_is_said(
    writer: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders.read_result(write_run(tmp_path / "a", version=writer))
    assert capsys.readouterr().err == ""


# --- folders that are none ------------------------------------------------------------------------------------------


def test_what_is_no_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for name, why in (("file", "is no folder"), ("file/below", "is no folder"), ("link", "does not stay there")):
        with pytest.raises(BadInput, match=f"{name}: .*{why}"), claimed(tmp_path / name):
            pytest.fail("no folder")
