"""A lab's runs: the plan, the log that survives interruption, the results that are read again, whole labs over Ray."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from cluster.common.errors import BadInput, HarnessError
from kits.market import trials
from kits.market.estimates import Cell
from kits.market.lab import running
from kits.market.lab.experiment import Effort, Experiment
from kits.market.lab.running import LOG_FILE, SUMMARY_FILE, Lab, plan, read_lab, run_lab
from kits.market.lab.table import TABLE_FILE, read_table, write_table
from tests.kits.market.lab.planted import ENDLESS, OTHER, PLACED, SLOPE, TINY, Slope

ROOT = Path(__file__).resolve().parents[4]
BOTH = (SLOPE, OTHER)
KNOWN = {each.name: each for each in BOTH}


@pytest.fixture(autouse=True)
def _same_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "checkout_commit", lambda: "c0ffee")


def ran(folder: Path, experiments: Sequence[Experiment] = BOTH, quick: bool = True, workers: int = 1) -> Lab:
    return run_lab(experiments, quick, folder, workers, Console(file=io.StringIO()))


def said(folder: Path, experiments: Sequence[Experiment] = BOTH) -> list[str]:
    output = Console(file=io.StringIO(), width=200)
    run_lab(experiments, True, folder, 1, output)
    assert isinstance(output.file, io.StringIO)
    return output.file.getvalue().splitlines()


class Interrupted(Slope):
    """A run is interrupted once the log has some lines."""

    after = 5

    def run(self, cell: Cell, seed: int, effort: Effort) -> dict[str, float]:
        if not type(self).after:
            raise KeyboardInterrupt
        type(self).after -= 1
        return super().run(cell, seed, effort)


# --- plan and results -------------------------------------------------------------------------------------------------


def test_the_plan_has_each_cell_and_seed_of_the_effort() -> None:
    found = plan(BOTH, is_quick=True)
    assert len(found) == len({trial.key for trial in found}) == 2 * 6 * 2
    assert found[0].key == ("slope", "plain -1", 0)
    assert len(plan([SLOPE], is_quick=False)) == 6 * 4


def test_a_lab_has_its_rows_and_decisions(tmp_path: Path) -> None:
    lab = ran(tmp_path / "out")
    assert [row.key for row in lab.rows] == [trial.key for trial in plan(BOTH, True)]
    results = lab.results(SLOPE)
    assert results.values(("steep", 4), "y") == [12, pytest.approx(12 + 1 / 7)]
    page = json.loads((tmp_path / "out" / SUMMARY_FILE).read_text())
    assert page == lab.page()
    assert page["experiments"]["slope"]["answer"] == "y changes by 5.00."
    assert page["experiments"]["slope"]["recommendation"] == "Grow."
    again = read_lab(tmp_path / "out", KNOWN)
    assert (again.rows, again.digest, again.page()) == (lab.rows, lab.digest, page)


def test_an_experiments_digest_is_that_of_its_run_alone(tmp_path: Path) -> None:
    both, alone = ran(tmp_path / "both"), ran(tmp_path / "alone", [OTHER])
    assert both.digest_of(OTHER) == alone.digest == alone.digest_of(OTHER)
    assert both.digest_of(SLOPE) != both.digest_of(OTHER)
    assert ran(tmp_path / "full", [OTHER], quick=False).digest != alone.digest


def test_a_measure_that_is_no_number_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"^endless plain -1, seed 0: y is nan$"):
        ran(tmp_path / "out", [ENDLESS])


# --- interruption -----------------------------------------------------------------------------------------------------


def test_an_interrupted_lab_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Interrupted, "after", 5)
    with pytest.raises(KeyboardInterrupt):
        ran(tmp_path / "out", [Interrupted()])
    assert len((tmp_path / "out" / LOG_FILE).read_text().splitlines()) == 1 + 5
    with pytest.raises(BadInput, match=r"out: the lab has not ended: the same command with the same --out goes on$"):
        read_lab(tmp_path / "out", {"slope": Interrupted()})
    monkeypatch.setattr(Interrupted, "after", 7)
    assert ran(tmp_path / "out", [Interrupted()]).digest == ran(tmp_path / "whole", [SLOPE]).digest


def test_a_line_that_was_cut_is_made_again(tmp_path: Path) -> None:
    whole = ran(tmp_path / "out")
    log = tmp_path / "out" / LOG_FILE
    log.write_bytes(log.read_bytes()[:-30])
    assert said(tmp_path / "out") == ["24 runs, 23 of them done before", "24 of 24 runs"]
    assert read_lab(tmp_path / "out", KNOWN).digest == whole.digest
    assert said(tmp_path / "out") == ["24 runs, 24 of them done before"]


def test_progress_without_a_terminal_is_a_line_a_tenth(tmp_path: Path) -> None:
    lines = said(tmp_path / "out")
    assert lines[0] == "24 runs"
    assert lines[-1] == "24 of 24 runs"
    assert len(lines) == 1 + 10


def test_runs_are_logged_whatever_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ran(tmp_path / "out")
    monkeypatch.setattr(
        trials, "run_each", lambda work, items, *_: ((n, work(items[n])) for n in reversed(range(len(items))))
    )
    assert ran(tmp_path / "reversed").digest == whole.digest


OTHERS = {
    "list of experiments": lambda folder: ran(folder, [SLOPE]),
    "effort": lambda folder: ran(folder, quick=False),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_folder_with_another_lab_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    ran(tmp_path / "out")
    with pytest.raises(
        BadInput, match=rf"^{tmp_path}/out/runs.jsonl: belongs to another lab: its {name} is .*: choose another --out$"
    ):
        OTHERS[name](tmp_path / "out")


def test_a_lab_with_other_blocks_or_of_another_commit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(tmp_path / "out")
    with monkeypatch.context() as patched:
        patched.setattr(Slope, "quick", Effort(11, 2))
        with pytest.raises(BadInput, match="belongs to another lab: its plan is "):
            ran(tmp_path / "out")
    monkeypatch.setattr(running, "checkout_commit", lambda: "decaf")
    with pytest.raises(BadInput, match="belongs to another lab: its commit is c0ffee, expected decaf: choose"):
        ran(tmp_path / "out")


def test_a_folder_that_is_no_labs_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match=r"is not empty and holds no lab to continue: choose another --out$"):
        ran(tmp_path)
    with pytest.raises(BadInput, match=r"notes\.txt/runs\.jsonl: cannot be opened"):
        ran(tmp_path / "notes.txt")


@pytest.mark.parametrize("line", ["{", "[]", '{"experiment": "slope"}'])
def test_a_broken_line_of_the_log_is_one_line(tmp_path: Path, line: str) -> None:
    ran(tmp_path / "out")
    log = tmp_path / "out" / LOG_FILE
    first, *others = log.read_text().splitlines()
    log.write_text("\n".join([first, line, *others]) + "\n")
    with pytest.raises(BadInput, match=r"runs\.jsonl: line 2: "):
        ran(tmp_path / "out")


# --- reading ----------------------------------------------------------------------------------------------------------


def _other_number(folder: Path) -> None:
    first, *others = read_table(folder / TABLE_FILE, dict.fromkeys(KNOWN, ("kind", "x")))
    write_table(folder / TABLE_FILE, [replace(first, measures={"y": 2.0}), *others])


def _other_summary(folder: Path, **changes: object) -> None:
    page = json.loads((folder / SUMMARY_FILE).read_text())
    (folder / SUMMARY_FILE).write_text(json.dumps({**page, **changes}))


BROKEN: dict[str, Callable[[Path], object]] = {
    r"lab\.npz: its digest is [0-9a-f]{64}, lab\.json says [0-9a-f]{64}$": _other_number,
    r"lab\.npz: cannot be read: No such file or directory$": lambda folder: (folder / TABLE_FILE).unlink(),
    r"lab\.npz: is no table of a lab: ": lambda folder: (folder / TABLE_FILE).write_bytes(b"PK"),
    r"lab\.json: is no summary of a lab: ": lambda folder: (folder / SUMMARY_FILE).write_text("{}"),
    r"lab\.json: is no summary of a lab of this version: expected the format stampede-lab/2, got x; run": partial(
        _other_summary, format="x"
    ),
    r"lab\.json: this version has no experiment 'gone'$": lambda folder: _other_summary(
        folder, experiments={"gone": {"given": {"blocks": None, "seeds": None, "file": None, "policies": []}}}
    ),
    r"lab\.npz: its experiments had other factors or seeds at commit c0ffee$": lambda folder: _other_summary(
        folder, effort="full"
    ),
    r"out: the lab has not ended": lambda folder: (folder / SUMMARY_FILE).unlink(),
    r"out: holds no results of a lab$": lambda folder: [path.unlink() for path in folder.iterdir()],
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_results_are_one_line(tmp_path: Path, message: str) -> None:
    ran(tmp_path / "out")
    BROKEN[message](tmp_path / "out")
    with pytest.raises(BadInput, match=message) as caught:
        read_lab(tmp_path / "out", KNOWN)
    assert "\n" not in str(caught.value)


# --- over Ray ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.live
def test_the_digest_is_the_same_for_any_number_of_workers(tmp_path: Path) -> None:
    one, two = (ran(tmp_path / f"{workers}", [TINY], workers=workers) for workers in (1, 2))
    assert len(one.rows) == 6
    assert one.digest == two.digest
    assert 0.3 < one.results(TINY).mean(("cip1",), "welfare_of_best").mean <= 1.05
    placed = [ran(tmp_path / f"placed {workers}", [PLACED], workers=workers) for workers in (1, 2)]
    assert placed[0].digest != placed[1].digest, "the planted fault was not noticed"


@pytest.mark.slow
def test_the_digest_is_the_same_under_any_hash_seed(tmp_path: Path) -> None:
    def digest_under(hash_seed: str, experiment: str) -> str:
        program = (
            "import io, sys; from pathlib import Path; from rich.console import Console;"
            "from kits.market.lab.running import run_lab; from tests.kits.market.lab import planted;"
            f"folder = Path({str(tmp_path)!r}) / ({hash_seed!r} + {experiment!r});"
            f"print(run_lab([planted.{experiment}()], True, folder, 1, Console(file=io.StringIO())).digest)"
        )
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert len({digest_under(seed, "Tiny") for seed in ("0", "1", "77")}) == 1
    assert len({digest_under(seed, "Placed") for seed in ("0", "1")}) == 2, "the planted fault was not noticed"
