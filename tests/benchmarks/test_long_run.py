"""A long synthetic run: judging and reporting it is work that grows as heights and faults do, and files are bounded."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

from cluster.checks.kind import Judged
from cluster.checks.kinds.faults import ProgressDuringFaults
from cluster.checks.run import judge_run
from cluster.checks.verdict import Result
from cluster.common.outcome import Outcome
from cluster.report import page
from cluster.report.fault_labels import marked
from cluster.report.results import finish_run
from tests.cluster.records import WRITTEN

pytestmark = pytest.mark.slow
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
VALIDATORS = 4
SIZES = ((600, 105), (1_200, 210), (2_400, 420))
"""Heights and faults of runs of which each is twice as long as the one before."""
HEIGHTS, FAULTS = SIZES[-1]
MOST_GROWTH = 2.5
"""Twice as long a run makes twice as much more work; four times as much, if each fault walked all heights."""


@pytest.fixture(scope="module")
def long_run() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        found = importlib.util.spec_from_file_location("benchmarks_long_run", BENCHMARKS / "long_run.py")
        assert found is not None and found.loader is not None
        module = importlib.util.module_from_spec(found)
        patch.setitem(sys.modules, found.name, module)
        found.loader.exec_module(module)
        yield module


def made(module: ModuleType, folder: Path, heights: int, faults: int) -> Any:
    folder.mkdir()
    run = module.LongRun(folder, heights, VALIDATORS, 1, faults)
    for _ in run.enter():
        pass
    run.end()
    return run.record


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called, and generators resumed, by some work."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.fixture(scope="module")
def records(long_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("runs")
    return [made(long_run, folder / str(heights), heights, faults) for heights, faults in SIZES]


def growth(records: list[Any]) -> float:
    """How many times more work twice the heights and faults add than half of them did."""
    calls = []
    for record in records:
        judged = judge_run(record)
        calls.append(
            calls_of(lambda record=record, judged=judged: (judge_run(record), page.render_report(judged, "", WRITTEN)))  # type: ignore[misc]
        )
    small, middle, large = calls
    return (large - middle) / (middle - small)


def test_work_grows_as_heights_and_faults_do(records: list[Any]) -> None:
    assert growth(records) < MOST_GROWTH


def test_a_walk_over_all_heights_for_each_fault_is_found(records: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    during = ProgressDuringFaults.during

    def walking(self: ProgressDuringFaults, number: int) -> Result:
        assert sum(at >= 0 for at in self._record.first_finalizations.values())
        return during(self, number)

    monkeypatch.setattr(ProgressDuringFaults, "during", walking)
    assert growth(records) > MOST_GROWTH


def test_what_is_marked_is_worked_out_once(records: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    judged, asked = judge_run(records[0]), []
    monkeypatch.setattr(page, "marked", lambda record: asked.append(record) or marked(record))
    page.render_report(judged, "", WRITTEN)
    assert len(asked) == 1


@pytest.fixture(scope="module")
def judged(records: list[Any]) -> Judged:
    return judge_run(records[-1])


def test_the_report_of_many_faults_is_small_and_the_result_has_all_of_them(judged: Judged, tmp_path: Path) -> None:
    assert judged.verdict.outcome is Outcome.PASS, judged.verdict.reason
    finish_run(judged.books.record, tmp_path / "run", judged=judged)
    report = (tmp_path / "run" / "report.html").read_text()
    assert len(report) < 3_000_000
    assert report.count("<") // 2 < 30_000, "elements"
    faults = json.loads((tmp_path / "run" / "result.json").read_text())["faults"]
    assert [(each["kind"], each["planned"]) for each in faults] == [
        (fault.kind, fault.planned) for fault in judged.books.record.faults
    ]
    assert all(each["ended_ms"] > each["begun_ms"] for each in faults)


def test_each_fault_of_many_is_in_the_folded_table_and_none_is_drawn_alone(judged: Judged) -> None:
    report = page.render_report(judged, "", WRITTEN)
    table = report[report.index('id="faults"') :]
    assert re.findall(r'<span class="number">(\d+)</span>', table) == [str(n) for n in range(1, FAULTS + 1)]
    assert 'class="band"' not in report
    assert "<summary>All 420 faults</summary>" in report
    assert "420 faults are marked; all of them are in the table of faults." in report
    kinds = re.findall(r"<tr><th scope=\"row\">(\w+)</th><td class=\"num\" data-label=\"Faults\">(\d+)<", report)
    assert kinds == [(kind, "105") for kind in ("degrade", "kill", "partition", "pause")]


def test_views_are_kept_to_the_end(judged: Judged) -> None:
    views = judged.books.record.trace.views
    newest = max(judged.books.views.values())
    assert {seen.validator for seen in views if seen.view == newest} == set(range(VALIDATORS))
