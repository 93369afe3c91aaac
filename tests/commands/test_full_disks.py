"""Outputs that find no room: each is told in one line, the others are written, and what ended before is kept."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml
from msgspec.structs import replace

from cluster.commands.cli.main import main
from cluster.commands.console.outputs import OutputOptions
from cluster.commands.sweeps.log import SweepLog
from cluster.common.errors import BadInput, ExitCode
from cluster.common.files import all_tried
from cluster.record.folder import SWEEP_LOG_FILE
from kits.market.lab.experiments import registry
from tests.cluster.commands.console.test_output_options import FILES, PARSER
from tests.cluster.commands.sweeps.test_sweeps import GOOD
from tests.kits.market.lab.planted import SLOPE
from tests.kits.measure.calibrate.test_commands import FIELDS, Live
from tests.kits.mutation.generated.test_search import PATH, Fakes

NO_ROOM: Final = os.strerror(errno.ENOSPC)
TOO_LARGE: Final = os.strerror(errno.EFBIG)
SMALL: Final[dict[str, Any]] = FIELDS | {"name": "small"}
T8N: Final = f"{sys.executable} -m cluster.commands.cli.main t8n"


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
    from kits.measure.calibrate import calibration

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


# --- folders --------------------------------------------------------------------------------------------------------


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """The kernel refuses to make a file larger than ``size`` bytes inside the block, wherever a write begins."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "EXPERIMENTS", {"slope": SLOPE})


class Logged(NamedTuple):
    """A command line of a command that logs what ended in its folder, and goes on there."""

    words: list[str]
    log: str
    prepare: Callable[[pytest.MonkeyPatch], object] = id
    code: ExitCode = ExitCode.PASS


LOGGED: Final = {
    "lab": Logged(["lab", "run", "slope", "--quick", "--jobs", "1"], "runs.jsonl", lab),
    "mutants --machine": Logged(
        ["mutants", "--machine", "4", "--seeds", "1", "--only", PATH, "--workers", "1"], "machine.jsonl", Fakes
    ),
    "dos search": Logged(
        [
            *("dos", "search", "small.yaml", "--budget", "5e13", "--blocks", "20"),
            *("--candidates", "6", "--confirm", "1", "--processes", "1"),
        ],
        "candidates.jsonl",
        code=ExitCode.INCONCLUSIVE,
    ),
}


@dears(LOGGED)
def test_a_log_without_room_ends_the_command_and_keeps_whole_lines(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    words, log, prepare, code = LOGGED[name]
    prepare(monkeypatch)
    assert main([*words, "--out", "whole"]) == code
    whole = (here / "whole" / log).read_bytes().splitlines(keepends=True)
    capsys.readouterr()
    with room_for(sum(map(len, whole[:3])) + 20):
        assert main([*words, "--out", "short"]) == ExitCode.BAD_INPUT
    assert told(capsys) == [f"stampede: short/{log}: cannot be written: {TOO_LARGE}"]
    kept = (here / "short" / log).read_bytes().splitlines(keepends=True)
    assert kept[:3] == whole[:3]
    assert main([*words, "--out", "short"]) == code
    assert (here / "short" / log).read_bytes() == b"".join(whole)


def test_the_log_of_a_sweep_without_room_is_closed_with_its_whole_lines(tmp_path: Path) -> None:
    """Its processes are Ray's, which needs room."""
    log = SweepLog(tmp_path, "one")
    log.add(GOOD)
    size = (tmp_path / SWEEP_LOG_FILE).stat().st_size
    with room_for(size + 20), pytest.raises(BadInput, match=f"{SWEEP_LOG_FILE}: cannot be written: {TOO_LARGE}"):
        log.add(replace(GOOD, seed=GOOD.seed + 1))
    log.close()
    assert (tmp_path / SWEEP_LOG_FILE).stat().st_size == size


RESULT: Final = {"lab": "lab.npz", "dos search": "summary.json"}


@dears(RESULT)
def test_a_folder_without_room_for_the_result_keeps_the_log(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    words, log, prepare, code = LOGGED[name]
    prepare(monkeypatch)
    assert main([*words, "--out", "whole"]) == code
    shutil.copy(here / "whole" / log, here / "full" / log)
    capsys.readouterr()
    assert main([*words, "--out", "full"]) == ExitCode.BAD_INPUT
    assert told(capsys) == [f"stampede: full/{RESULT[name]}: cannot be written: {NO_ROOM}"]
    assert (here / "full" / log).read_bytes() == (here / "whole" / log).read_bytes()


def test_a_scorecard_without_room_in_its_folder_is_printed_and_written_elsewhere(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["dos", "small.yaml", "--attack", "lane-cells", "--seeds", "1:2", "--workers", "1"]
    assert main([*words, "--json", "card", "--out", "full"]) == ExitCode.BAD_INPUT
    files = ("scorecard.json", "scorecard.html")
    said = capsys.readouterr()
    assert said.err.splitlines() == [f"stampede: full/{file}: cannot be written: {NO_ROOM}" for file in files]
    assert "lane-cells" in said.out and json.loads((here / "card").read_text(encoding="utf-8"))
