"""The loop of a search: its folder, interruption, continuation, limits. What attacks do is made up here."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.common.errors import BadInput
from cluster.common.interrupts import Interrupts
from cluster.live.driver import ray_session
from kits.market.dos.search import searching
from kits.market.dos.search.evaluation import Problem
from kits.market.dos.search.objectives import NOTHING
from kits.market.dos.search.search_run import different
from kits.market.dos.search.searching import LOG_FILE, RANDOM, Candidate, Limits, Line, Searched, evaluated, search
from kits.market.dos.search.space import Attack
from tests.kits.market.dos.search.planted import WEAKNESSES
from tests.kits.market.dos.search.test_evolution import fitness_of

CANDIDATES = RANDOM + 40


class Stop:
    """Interrupts a search before a candidate."""

    def __init__(self) -> None:
        self.at: int | None = None
        self.evaluated = 0


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Stop:
    stop = Stop()

    def counted(problem: Problem, candidate: Candidate) -> Line:
        number, attack = candidate
        if stop.at == number:
            raise KeyboardInterrupt
        stop.evaluated += 1
        fitness = fitness_of(attack)
        return Line(number, fitness, fitness.figure, 1.0, attack)

    monkeypatch.setattr(searching, "evaluated", counted)
    return stop


def run(folder: Path, candidates: int = CANDIDATES, seed: int = 1, name: str = "ground-ties") -> Searched:
    problem = WEAKNESSES[name].problem(is_planted=True, seed=seed)
    return search(problem, folder, Limits(None, candidates), 1, Interrupts())


def test_equal_searches_leave_equal_bytes(tmp_path: Path, stop: Stop) -> None:
    searched = run(tmp_path / "one")
    run(tmp_path / "two")
    one, two = ((tmp_path / name / LOG_FILE).read_bytes() for name in ("one", "two"))
    assert one == two
    assert len(one.splitlines()) == 1 + CANDIDATES == 1 + searched.evaluated
    assert searched.best[0].fitness == max(line.fitness for line in searched.log.entries)
    assert run(tmp_path / "three", seed=2).log.entries != searched.log.entries


@pytest.mark.parametrize("at", [0, 5, RANDOM, RANDOM + 21])
def test_an_interrupted_search_goes_on_where_it_was(tmp_path: Path, stop: Stop, at: int) -> None:
    run(tmp_path / "whole")
    stop.at = at
    broken = run(tmp_path / "broken")
    assert broken.interrupted and len(broken.log.entries) == at
    stop.at, stop.evaluated = None, 0
    searched = run(tmp_path / "broken")
    assert stop.evaluated == CANDIDATES - at and not searched.interrupted
    assert (tmp_path / "broken" / LOG_FILE).read_bytes() == (tmp_path / "whole" / LOG_FILE).read_bytes()


def test_a_torn_line_is_evaluated_again(tmp_path: Path, stop: Stop) -> None:
    run(tmp_path / "whole")
    run(tmp_path / "torn", candidates=20)
    path = tmp_path / "torn" / LOG_FILE
    path.write_bytes(path.read_bytes()[:-7])
    run(tmp_path / "torn")
    assert path.read_bytes() == (tmp_path / "whole" / LOG_FILE).read_bytes()


def test_a_finished_search_evaluates_nothing(tmp_path: Path, stop: Stop) -> None:
    before = run(tmp_path / "one")
    stop.evaluated = 0
    again = run(tmp_path / "one")
    assert stop.evaluated == 0 == again.evaluated
    assert [line.number for line in again.best] == [line.number for line in before.best]


def test_a_folder_of_another_search_is_refused(tmp_path: Path, stop: Stop) -> None:
    run(tmp_path / "one", candidates=3)
    with pytest.raises(BadInput, match="belongs to another search: its seed is 1, expected 2"):
        run(tmp_path / "one", seed=2)
    with pytest.raises(BadInput, match="belongs to another search: its scenario is"):
        run(tmp_path / "one", name="free-queries")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(BadInput, match="holds no search to continue"):
        run(tmp_path / "other")


def test_a_log_that_lacks_a_candidate_is_refused(tmp_path: Path, stop: Stop) -> None:
    run(tmp_path / "one", candidates=6)
    path = tmp_path / "one" / LOG_FILE
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3] + lines[4:]))
    with pytest.raises(BadInput, match="line 4: has candidate 3, expected 2"):
        run(tmp_path / "one")


def test_time_ends_a_search(tmp_path: Path, stop: Stop) -> None:
    problem = WEAKNESSES["ground-ties"].problem(is_planted=True)
    searched = search(problem, tmp_path / "one", Limits(seconds=0.0), 1, Interrupts())
    assert searched.evaluated == 0 and not searched.interrupted


def test_a_candidate_that_crashes_is_harmless_and_shown() -> None:
    class Broken(Problem):
        def evaluate(self, attack: Attack) -> None:  # type: ignore[override]
            raise ZeroDivisionError("no\nblock")

    sound = WEAKNESSES["ground-ties"].problem(is_planted=True)
    problem = Broken(sound.scenario_json, sound.objective_name, sound.budget, sound.seed, sound.blocks)
    line = evaluated(problem, (7, [{}]))
    assert (line.number, line.fitness, line.problem) == (7, NOTHING, "ZeroDivisionError: no block")


def test_of_equal_candidates_one_is_confirmed(tmp_path: Path, stop: Stop) -> None:
    lines = run(tmp_path / "one").best
    chosen = different([lines[0], lines[0], *lines[1:]], 3)
    assert len({line.fitness for line in chosen}) == len(chosen) == 3
    assert chosen[0] == lines[0]


@pytest.mark.live
@pytest.mark.slow
def test_the_number_of_processes_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two generations and a part of a third, here and over Ray."""
    problem = replace(WEAKNESSES["free-queries"].problem(is_planted=True), blocks=12)
    short = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    monkeypatch.setattr(ray_session, "SHORT_TEMPORARY_FOLDER", short)
    try:
        for processes in (1, 2):
            with Interrupts() as interrupts:
                search(problem, tmp_path / str(processes), Limits(None, RANDOM + 20), processes, interrupts)
    finally:
        shutil.rmtree(short)
    one, two = ((tmp_path / str(processes) / LOG_FILE).read_bytes() for processes in (1, 2))
    assert one == two
    assert len(one.splitlines()) == 1 + RANDOM + 20
