"""Seeds until a planted bug is caught: guided fuzz against plain fuzz.

Each bug of the kill table that a validator can have is planted in random scenarios, until the check that is named for
it fails, the mutated line ran, and the same scenario passes that check without the bug. Three ways to choose scenarios:

- ``plain``: one seed after the other.
- ``empty``: guided, from an empty corpus. Its first generation are plain seeds, so it can only differ after those.
- ``corpus``: guided, from the corpus of ``--corpus``, which a guided fuzz made without any bug.

Runs of another first seed are other samples. A bug that is not caught within ``--cap`` seeds counts as ``--cap`` + 1.
Results are appended to ``--out``, where an interrupted comparison continues.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import reporting  # noqa: F401 (it lets the packages be found before the benchmarks of the same names)

from cluster.checks.run import Judged, judge_run
from cluster.common.outcome import Outcome
from cluster.misbehaviour.mutants.base import ALL, Mutant
from cluster.misbehaviour.mutants.registry import MUTANTS
from cluster.scenario import Scenario
from cluster.simulation.driver import simulate
from cluster.simulation.watches.safety_monitor import broken
from cluster.tools.sweeps.drawing.genotype import Genotype
from cluster.tools.sweeps.drawing.guided.corpus import Corpus, Entry
from cluster.tools.sweeps.drawing.guided.features import features_of
from cluster.tools.sweeps.drawing.guided.schedule import GENERATION, Schedule
from cluster.tools.sweeps.drawing.random_scenario import random_scenario
from cluster.tools.sweeps.mutation.detection import CRASHES, mutant_runs
from consensus.protocols import PROTOCOLS

PLAIN, EMPTY, CORPUS = "plain", "empty", "corpus"
WAYS = (PLAIN, EMPTY, CORPUS)
APART = 1_000
"""Distance of the first seeds of two samples."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bugs", nargs="*", default=sorted(MUTANTS), help="names of planted bugs (default: all)")
    parser.add_argument("--every", type=int, default=1, help="take each N-th of the bugs only")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=WAYS)
    parser.add_argument("--samples", type=int, default=2, help="number of first seeds")
    parser.add_argument("--cap", type=int, default=48, help="maximum number of seeds of a sample")
    parser.add_argument("--corpus", type=Path, help="a corpus that was made without a bug")
    parser.add_argument("--out", type=Path, required=True, help="results, a line of JSON each")
    parser.add_argument("--table", action="store_true", help="print the table of the results so far, and run nothing")
    given = parser.parse_args()
    if not given.table:
        start = [] if given.corpus is None else [e for each in PROTOCOLS for e in Corpus(given.corpus, each).entries]
        for sample in range(given.samples):
            for name in given.bugs[:: given.every]:
                for way in given.ways:
                    if way != CORPUS or start:
                        _add_result(given.out, MUTANTS[name], way, sample, given.cap, start)
    print_table(list(_results(given.out)), given.cap)


def _results(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from map(json.loads, path.read_text().splitlines())


def _add_result(path: Path, mutant: Mutant, way: str, sample: int, cap: int, start: Sequence[Entry]) -> None:
    done = {(each["bug"], each["sample"], each["way"]): each for each in _results(path)}
    if (mutant.name, sample, way) in done:
        return
    plain = done.get((mutant.name, sample, PLAIN))
    began = time.process_time()
    if way == EMPTY and plain is not None and 0 < (plain["seeds"] or cap) <= GENERATION:
        seeds, began = plain["seeds"], time.process_time() - plain["cpu_s"]  # the same runs
    else:
        seeds = seeds_to_catch(mutant, way, sample * APART, cap, start if way == CORPUS else ())
    result = {"bug": mutant.name, "sample": sample, "way": way, "seeds": seeds}
    with path.open("a") as file:
        file.write(json.dumps({**result, "cpu_s": round(time.process_time() - began, 2)}) + "\n")


def seeds_to_catch(mutant: Mutant, way: str, first: int, cap: int, start: Sequence[Entry]) -> int:
    """The number of seeds until the bug is caught; 0 if it is not."""
    protocol = mutant.detection.protocol
    schedule = Schedule(first, protocol, [entry for entry in start if entry.protocol == protocol])
    ran = 0
    for number, at in enumerate(range(first, first + cap, GENERATION)):
        seeds = range(at, min(at + GENERATION, first + cap))
        chosen = [Genotype(seed) for seed in seeds] if way == PLAIN else schedule.generation(number, seeds)
        reached = []
        for genotype in chosen:
            ran += 1
            judged = run(genotype, protocol, mutant)
            if judged is not None and is_caught(judged, mutant) and not fails_without(genotype, protocol, mutant):
                return ran
            reached.append((genotype, [] if judged is None or way == PLAIN else features_of(judged)))
        for genotype, features in reached:
            schedule.learn(genotype, features)
    return 0


def run(genotype: Genotype, protocol: str, mutant: Mutant | None) -> Judged | None:
    """A judged run; ``None`` if it crashed, which does not count as caught."""
    scenario = random_scenario(genotype, protocol)
    planted = scenario if mutant is None else with_mutant(scenario, mutant)
    try:
        return judge_run(simulate(planted, genotype.run_seed, shortcuts=mutant is None))
    except CRASHES:
        return None


def with_mutant(scenario: Scenario, mutant: Mutant) -> Scenario:
    """The scenario with the bug in all its honest validators, or in one, as in the kill table."""
    fields = scenario.model_dump(mode="json", by_alias=True)
    section = fields["validators"]
    nodes = section.get("nodes") or [{} for _ in range(section["count"])]
    honest = [node for node in nodes if not node.get("byzantine")]
    for node in honest if mutant.detection.mutated == ALL else honest[1:2]:
        node["mutant"] = mutant.name
    section |= {"nodes": nodes, "allow_more_faults": True}
    return Scenario.model_validate(fields)


def is_caught(judged: Judged, mutant: Mutant) -> bool:
    record = judged.books.record
    if not mutant_runs(record) or judged.verdict.check(mutant.caught_by).verdict is not Outcome.FAIL:
        return False
    assert record.monitor is not None, "the simulator has one"
    return not mutant.rule or bool(broken(record.monitor, mutant.rule))


def fails_without(genotype: Genotype, protocol: str, mutant: Mutant) -> bool:
    sound = run(genotype, protocol, None)
    return sound is None or sound.verdict.check(mutant.caught_by).verdict is Outcome.FAIL


def print_table(results: Sequence[dict[str, Any]], cap: int) -> None:
    """Print seeds to the first catch, a line for each bug, and the medians over all samples that each way has."""
    by_bug: dict[str, dict[str, dict[int, int]]] = {}
    for each in results:
        by_bug.setdefault(each["bug"], {}).setdefault(each["way"], {})[each["sample"]] = each["seeds"]
    print(f"{'bug':36}" + "".join(f"{way:>14}" for way in WAYS))
    for bug, ways in sorted(by_bug.items()):
        cells = [", ".join(str(seeds or "-") for _, seeds in sorted(ways.get(way, {}).items())) for way in WAYS]
        print(f"{bug:36}" + "".join(f"{cell:>14}" for cell in cells))
    for way in WAYS[1:]:
        both = [
            (seeds or cap + 1, ways[way][sample] or cap + 1)
            for ways in by_bug.values()
            for sample, seeds in ways.get(PLAIN, {}).items()
            if sample in ways.get(way, {})
        ]
        if both:
            for words, pairs in (("all", both), ("not caught by the first plain seed", [p for p in both if p[0] > 1])):
                if pairs:
                    print(summary_line(way, words, pairs, cap))
    for way in WAYS:
        spent = [each["cpu_s"] for each in results if each["way"] == way]
        print(f"{way}: {sum(spent):,.0f} s of processor time")


def summary_line(way: str, words: str, pairs: Sequence[tuple[int, int]], cap: int) -> str:
    plain, guided = (statistics.median(each) for each in zip(*pairs, strict=True))
    means = [statistics.fmean(each) for each in zip(*pairs, strict=True)]
    missed = [sum(seeds > cap for seeds in each) for each in zip(*pairs, strict=True)]
    return (
        f"{way} against plain, {words} ({len(pairs)} samples): median {guided:g} against {plain:g} seeds, mean"
        f" {means[1]:.1f} against {means[0]:.1f}, not caught {missed[1]} against {missed[0]}"
    )


if __name__ == "__main__":
    main()
