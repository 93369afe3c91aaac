"""Which genotypes run next: rare features first, and the same ones from the same past everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from cluster.commands.sweeps.drawing.genotype import Genotype
from cluster.commands.sweeps.guided.corpus import Entry
from cluster.commands.sweeps.guided.schedule import GENERATION, Schedule, curve, rarest

ROOT = Path(__file__).resolve().parents[6]
SEEDS = range(100, 100 + GENERATION)
PAST = """
from cluster.commands.sweeps.drawing.genotype import Genotype
from cluster.commands.sweeps.guided.schedule import Schedule
schedule = Schedule(5, "simplex")
for number in range(6):
    seeds = range(5 + 16 * number, 21 + 16 * number)
    for genotype in schedule.generation(number, seeds):
        text = str(genotype)
        schedule.learn(genotype, sorted({f"f{len(text)}", f"g{genotype.seed % 7}", f"h{len(genotype.changes)}"}))
        print(text)
"""


def entry(genotype: str, *features: str) -> Entry:
    return Entry("simplex", genotype, list(features), "", 1.0)


def test_without_a_corpus_the_first_generation_is_plain_seeds() -> None:
    schedule = Schedule(100, "simplex")
    assert schedule.generation(0, SEEDS) == [Genotype(seed) for seed in SEEDS]
    assert schedule.origins == {"fresh": GENERATION, "replayed": 0}


def test_what_reached_nothing_new_is_no_entry() -> None:
    schedule = Schedule(0, "simplex")
    assert schedule.learn(Genotype(1), ["a", "b"])
    assert not schedule.learn(Genotype(2), ["a"])
    assert not schedule.learn(Genotype(3), [])
    assert schedule.learn(Genotype(4), ["c"])
    assert (schedule.entries, schedule.seen) == (2, {"a": 2, "b": 1, "c": 1})


def test_entries_of_the_start_run_again_first_then_few_at_a_time() -> None:
    start = [entry(str(seed), "a") for seed in range(GENERATION + 6)]
    schedule = Schedule(100, "simplex", start)
    assert [str(each) for each in schedule.generation(0, SEEDS)] == [each.genotype for each in start[:GENERATION]]
    schedule.learn(Genotype(0), ["a"])
    again = [str(each) for each in schedule.generation(1, SEEDS)]
    assert again[:4] == [each.genotype for each in start[GENERATION : GENERATION + 4]]
    assert not set(again[4:]) & {each.genotype for each in start}
    assert [str(each) for each in schedule.generation(2, SEEDS)][:2] == ["20", "21"]
    assert schedule.origins["replayed"] == len(start)


def test_who_has_rare_features_is_changed_most_and_less_each_time() -> None:
    schedule = Schedule(100, "simplex")
    for seed in range(2, 12):
        schedule.learn(Genotype(seed), ["common", f"own{seed}"])
    for _ in range(40):
        schedule.learn(Genotype(99), ["common", *(f"own{seed}" for seed in range(2, 12))])
    schedule.learn(Genotype(1), ["rare one", "rare two"])
    parents = Counter(
        genotype.seed for number in range(4) for genotype in schedule.generation(number, SEEDS) if genotype.changes
    )
    assert parents.most_common(1)[0][0] == 1
    assert set(parents) - {1}, "it is not the only one"
    assert schedule.origins["mutants"] == parents.total() > schedule.origins["fresh"] > 0


def test_the_same_past_gives_the_same_schedule_in_every_process() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-c", PAST],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("0", "1", "4242")
    }
    (same,) = told
    lines = same.splitlines()
    assert len(lines) == 96
    assert sum("," in line for line in lines) > 40


def test_what_was_reached_over_time_and_what_is_rare() -> None:
    assert list(curve([["a"], ["a", "b"], [], ["c"]])) == [1, 2, 2, 3]
    assert rarest({"a": 3, "c": 1, "b": 1}, 2) == [("b", 1), ("c", 1)]
