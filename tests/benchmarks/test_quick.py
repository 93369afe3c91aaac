"""Each benchmark works: a quick run ends with 0, and its JSON has every metric that the documents name.

A page names a benchmark in a heading, ``benchmarks/NAME.py``. In that section, a word in backticks that is written as
metrics are is a metric of that benchmark; an ``N`` in it is any number. Each row of a table of metrics names one, and a
goal of such a row is the metric's.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.hangs import HANGS_AFTER_S
from validator.chain.genesis import Policy

ROOT: Final = Path(__file__).resolve().parents[2]
BENCHMARKS: Final = {
    path.stem: path
    for path in sorted((ROOT / "benchmarks").glob("*.py"))
    if '__name__ == "__main__"' in path.read_text("utf-8")
}
PAGES: Final = [path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md"))]
NAME: Final = re.compile(r"`([a-z]+\d*(?:_[a-zN\d]+)+)`")
GOAL: Final = re.compile(r"at (?:least|most) ([\d,.]+)")


class Named(NamedTuple):
    """What the documents say of a benchmark's metrics."""

    names: set[str]
    goals: list[tuple[list[str], float]]
    """Of rows: their metrics, of which one has this goal."""
    nameless: list[str]
    """Rows of tables of metrics that name none."""


def sections_of(page: str, benchmark: str) -> Iterator[str]:
    for section in re.split(r"^(?=#{2,3} )", page, flags=re.MULTILINE):
        if f"benchmarks/{benchmark}.py" in section.partition("\n")[0]:
            yield section


def named(benchmark: str, pages: list[str]) -> Named:
    found = Named(set(), [], [])
    for section in (section for page in pages for section in sections_of(page, benchmark)):
        found.names.update(set(NAME.findall(section)) - set(Policy))
        is_of_metrics = False
        for line in section.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
            is_of_metrics = bool(cells) and (is_of_metrics or cells[0] == "metric")
            if not is_of_metrics or cells[0] in ("metric", "---"):
                continue
            names = NAME.findall(cells[0])
            if not names:
                found.nameless.append(line)
            if goal := GOAL.search(cells[-1]):
                found.goals.append((names, float(goal[1].replace(",", ""))))
    return found


def missing(said: Named, figures: dict[str, Any]) -> list[str]:
    """What the documents name, and the JSON has not."""
    patterns = {name: re.compile(name.replace("N", r"\d+")) for name in said.names}
    absent = [name for name, each in patterns.items() if not any(map(each.fullmatch, figures))]
    wrong = [
        f"{', '.join(names)}: {goal}"
        for names, goal in said.goals
        if goal not in [figures[name]["goal"] for name in names if name in figures]
    ]
    return sorted(absent) + wrong + said.nameless


def run(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(path), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False)


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.turns(2)
@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_a_quick_run_ends_with_0_and_has_every_metric_that_the_documents_name(benchmark: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    done = run(BENCHMARKS[benchmark], "--quick", "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert missing(named(benchmark, PAGES), json.loads(file.read_text("utf-8"))) == []


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_the_documents_name_a_metric_of_each_benchmark(benchmark: str) -> None:
    assert named(benchmark, PAGES).names


PAGE: Final = """
## Speed: `benchmarks/planted.py`

| metric | value | goal |
|---|---|---|
| `blocks_per_second` | 1 | at least 20 |
| transactions | 1 | – |

Of `size_N_error`, and of `bias_auction`.

## Other

`of_no_benchmark`
"""


def test_a_name_that_the_json_lacks_a_wrong_goal_and_a_nameless_row_are_found() -> None:
    said = named("planted", [PAGE])
    figures: dict[str, Any] = {"blocks_per_second": {"goal": 20}, "size_4_error": {"goal": None}}
    assert missing(said, figures) == ["| transactions | 1 | – |"]
    figures["blocks_per_second"]["goal"] = 10
    assert "blocks_per_second: 20.0" in missing(said, figures)
    assert missing(said, {})[:2] == ["blocks_per_second", "size_N_error"]


# --- planted benchmarks -----------------------------------------------------------------------------------------------

PLANTED: Final = """
import sys
sys.path.insert(0, {folder!r})
from reporting import Lane, Metric, Size, Unavailable, run_benchmark

def one_by_one():
    yield 1.0
    sys.stdin.readline()
    {body}

def lanes(size):
    return [
        Lane(one_by_one, [Metric("first"), Metric("second", "s", 5)]),
        Lane(lambda: 3, [Metric("third")]),
        Lane(lambda: 4, [Metric("fourth")], least=Size.FULL),
    ]

run_benchmark("Planted.", lanes, minutes={minutes})
"""


class Ended(NamedTuple):
    code: int
    output: str
    errors: str
    figures: dict[str, Any]

    @property
    def values(self) -> list[Any]:
        return [figure["value"] for figure in self.figures.values()]


def written(folder: Path, body: str, minutes: float = 1) -> list[str]:
    """The command of a planted benchmark."""
    path = folder / "planted.py"
    path.write_text(PLANTED.format(folder=str(ROOT / "benchmarks"), body=body, minutes=minutes), encoding="utf-8")
    return [sys.executable, str(path)]


def running(folder: Path, *options: str) -> subprocess.Popen[str]:
    """A planted benchmark that waits for a line after its first figure."""
    command = [*written(folder, "yield 9.0"), *options]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def planted(folder: Path, body: str, *options: str, minutes: float = 1) -> Ended:
    file = folder / "figures.json"
    command = [*written(folder, body, minutes), "--json", str(file), *options]
    done = subprocess.run(command, input="\n", capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False)
    return Ended(
        done.returncode, done.stdout, done.stderr, json.loads(file.read_text("utf-8")) if file.exists() else {}
    )


def test_a_benchmark_that_raises_writes_its_other_figures_and_why_it_has_no_more(tmp_path: Path) -> None:
    ended = planted(tmp_path, "raise IndexError('planted')", "--quick")
    assert ended.code == 4
    assert ended.values == [1.0, None, 3, None]
    assert ended.figures["second"] == {"value": None, "unit": "s", "goal": 5, "reason": "IndexError: planted"}
    assert "Traceback" in ended.errors
    assert "without a figure: second" in ended.output


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise Unavailable('the machine was too slow')", "the machine was too slow"),
        ("yield float('inf')", "it is inf"),
        ("return", "the lane gave too few figures"),
    ],
)
def test_a_figure_that_could_not_be_had_is_null_with_its_reason(tmp_path: Path, body: str, reason: str) -> None:
    ended = planted(tmp_path, body)
    assert (ended.code, ended.figures["second"]["value"], ended.errors) == (3, None, "")
    assert ended.figures["second"]["reason"] == reason


def test_a_missed_goal_fails_and_the_json_is_written(tmp_path: Path) -> None:
    ended = planted(tmp_path, "yield 4.0")
    assert (ended.code, ended.values) == (1, [1.0, 4.0, 3, None])
    assert "goals missed: second" in ended.output
    assert ended.figures["fourth"]["reason"] == "only with --full"


def test_goals_of_a_quick_run_are_not_judged(tmp_path: Path) -> None:
    assert planted(tmp_path, "yield 4.0", "--quick").code == 0
    assert planted(tmp_path, "yield 5.0").code == 0


def test_an_interrupted_run_writes_what_it_has(tmp_path: Path) -> None:
    ended = planted(tmp_path, "raise KeyboardInterrupt")
    assert ended.values == [1.0, None, None, None]
    assert ended.figures["third"]["reason"] == "the run ended before"


def test_a_run_that_is_told_to_end_writes_what_it_has(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    with running(tmp_path, "--json", str(file)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "about 1 min on two idle cores\n"
        assert process.stdout.readline().split() == ["first", "1.00"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANGS_AFTER_S) != 0
    figures = json.loads(file.read_text("utf-8"))
    assert [figure["value"] for figure in figures.values()] == [1.0, None, None, None]
    assert figures["second"]["reason"] == "the run ended before"


def test_a_run_says_first_how_long_it_takes_and_each_figure_as_soon_as_it_has_it(tmp_path: Path) -> None:
    planted(tmp_path, "yield 9.0")
    with subprocess.Popen(
        [sys.executable, tmp_path / "planted.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "about 1 min on two idle cores\n"
        assert process.stdout.readline().split() == ["first", "1.00"]
        process.stdin.write("\n")  # it has waited since
        process.stdin.close()
        assert process.stdout.readline().split() == ["second", "9.00", "s", "≥", "5", "✓"]
        assert process.wait(HANGS_AFTER_S) == 0


def test_a_benchmark_that_says_that_it_takes_longer_is_none(tmp_path: Path) -> None:
    ended = planted(tmp_path, "yield 9.0", minutes=6)
    assert ended.code == 1
    assert "at most 5 minutes" in ended.errors
