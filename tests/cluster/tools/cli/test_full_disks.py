"""Outputs that find no room: each is told in one line, the others are written, and what ended before is kept."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from cluster.common.errors import BadInput, ExitCode
from cluster.common.files import all_tried
from cluster.tools.cli.main import main
from cluster.tools.console.outputs import OutputOptions
from tests.cluster.tools.compare.calibrate.test_commands import FIELDS, Live
from tests.cluster.tools.console.test_output_options import FILES, PARSER
from tests.cluster.tools.sweeps.mutation.machine.test_search import PATH, Fakes

NO_ROOM: Final = os.strerror(errno.ENOSPC)
TOO_LARGE: Final = os.strerror(errno.EFBIG)
SMALL: Final[dict[str, Any]] = FIELDS | {"name": "small"}
T8N: Final = f"{sys.executable} -m cluster.tools.cli.main t8n"


def dears(table: Iterable[str]) -> pytest.MarkDecorator:
    """The rows of a table, of which the dear ones are slow tests."""
    names = [pytest.param(name, marks=pytest.mark.slow) if name in DEAR else name for name in table]
    return pytest.mark.parametrize("name", names)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a scenario and a folder on a full disk."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(SMALL), encoding="utf-8")
    (tmp_path / "full").mkdir()
    sync = os.fsync

    def no_room(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").resolve().is_relative_to(tmp_path / "full"):
            raise OSError(errno.ENOSPC, NO_ROOM)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", no_room)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of the command's failures."""
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("stampede:")]


class Several(NamedTuple):
    """A command line of a command that writes several files. The last of them finds room."""

    words: list[str]
    outputs: list[str]
    """The options with the files."""
    prepare: Callable[[pytest.MonkeyPatch], object] = id


def live(monkeypatch: pytest.MonkeyPatch) -> None:
    from cluster.tools.compare.calibrate import calibration

    found = Live()
    monkeypatch.setattr(calibration, "live_testnet", found.testnet)
    monkeypatch.setattr(calibration, "observed_in", found.observed)


def recorded(_monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in "12":
        assert main(["run", "small.yaml", "--backend", "sim", "--seed", seed, "--out", seed]) == ExitCode.PASS


DEAR: Final = ("sweep", "grid", "mutants", "conform", "dos search")
"""Those that start processes, or run much."""
RESULTS: Final = ["--json", "--junit", "--summary"]
SEVERAL: Final = {
    "run": Several(["run", "small.yaml", "--backend", "sim"], RESULTS),
    "sweep": Several(["sweep", "small.yaml", "--seeds", "1:2", "--workers", "1"], RESULTS),
    "grid": Several(["sweep", "small.yaml", "--seeds", "1:2", "--workers", "1", "--grid", "stop.height=9"], RESULTS),
    "compare": Several(["compare", "1", "2"], ["--json", "--html"], recorded),
    "calibrate": Several(["calibrate", "small.yaml", "--runs", "1"], ["--save", "--json"], live),
    "mutants": Several(["mutants", "--only", "wrong-balance", "--seeds", "1", "--workers", "1"], ["--json", "--junit"]),
    "mutants --machine": Several(
        ["mutants", "--machine", "2", "--seeds", "1", "--only", PATH, "--workers", "1"], ["--json", "--junit"], Fakes
    ),
    "conform": Several(
        ["conform", "--tool", T8N, "--family", "tips", "--seeds", "0:1", "--workers", "1"], ["--json", "--junit"]
    ),
    "explore": Several(
        [
            *("explore", "--protocol", "hotstuff", "--views", "1", "--mutant", "finalizes-after-timeout"),
            *("--faults", "none"),
        ],
        ["--schedule", "--json"],
    ),
}


@dears(SEVERAL)
def test_a_file_without_room_keeps_no_later_one_from_being_written(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    words, outputs, prepare = SEVERAL[name]
    prepare(monkeypatch)
    capsys.readouterr()
    *failed, written = [f"full/{option.strip('-')}" for option in outputs[:-1]] + [outputs[-1].strip("-")]
    assert main([*words, *(word for pair in zip(outputs, [*failed, written], strict=True) for word in pair)]) == 2
    assert told(capsys) == [f"stampede: {file}: cannot be written: {NO_ROOM}" for file in failed]
    assert (here / written).read_text(encoding="utf-8") and not list((here / "full").iterdir())


def test_the_table_has_each_command_with_several_files() -> None:
    counts: dict[tuple[str, ...], int] = {}
    for each in FILES:
        counts[each.words] = counts.get(each.words, 0) + 1
    for words in (words for words, count in counts.items() if count > 1 and words != ("load",)):
        (output, *_) = [each for each in FILES if each.words == words]
        options = PARSER.parse_args(output.given("file"))
        assert " ".join(words) in SEVERAL or isinstance(options.make(options), OutputOptions), words


def test_all_lines_of_nested_tries_are_told() -> None:
    def write() -> None:
        with all_tried() as trying:
            with trying(), all_tried() as inner:
                for name in "ab":
                    with inner():
                        raise BadInput(name)
            with trying():
                raise BadInput("c")

    with pytest.raises(BadInput) as failed:
        write()
    assert failed.value.args == ("a", "b", "c") and str(failed.value) == "a; b; c"
