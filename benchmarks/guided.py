"""Seeds until a planted bug is caught: guided fuzz against plain fuzz.

Each bug of the kill table that a validator can have is planted in random scenarios, until the check that is named for
it fails, the mutated line ran, and the same scenario passes that check without the bug. Two ways to choose scenarios:

- ``plain``: one seed after the other.
- ``corpus``: guided, from a corpus that a guided fuzz makes first, without any bug. From an empty corpus the first
  generation are plain seeds.

A bug that is not caught within the maximum number of seeds counts as one more. ``median_ratio`` is the median of
``corpus``, of that of ``plain``. Runs with neither ``--quick`` nor ``--full`` take three bugs and few seeds:
their figures say how long a seed takes, and the goal is that of ``--full``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import fmean, median

from reporting import Lane, Metric, Size, run_benchmark
from runs import simulated

from cluster.checks.kind import Judged
from cluster.checks.run import judge_run
from cluster.commands.sweeps.drawing.genotype import Genotype
from cluster.commands.sweeps.drawing.random_scenario import random_scenario
from cluster.commands.sweeps.guided.corpus import Entry
from cluster.commands.sweeps.guided.features import features_of
from cluster.commands.sweeps.guided.schedule import GENERATION, Schedule
from cluster.common.outcome import Outcome
from cluster.misbehaviour.planted import Planted, planted_bugs
from cluster.scenario import Scenario
from cluster.watches.safety_monitor import broken
from consensus.protocols import PROTOCOLS
from kits.mutation.bugs.table import ALL
from kits.mutation.detection import CRASHES, mutant_runs

PLAIN, CORPUS = "plain", "corpus"
WAYS = (PLAIN, CORPUS)
FIRST_SEED = 0


def main() -> None:
    run_benchmark(__doc__, lanes, minutes=5, full="all bugs, 32 seeds each; about two hours")


def lanes(size: Size) -> list[Lane]:
    every, most, corpus_seeds = size.of((1_000, 1, 1), (50, 4, 8), (1, 32, 128))
    bugs = [bug for _, bug in sorted(planted_bugs().items())[::every]]
    goal = 0.5 if size is Size.FULL else None
    ratio = Metric("median_ratio", f"× ({len(bugs)} bugs, at most {most} seeds)", goal, at_least=False)
    units = {"median": "seeds", "mean": "seeds", "missed": "bugs not caught", "cpu_s": "s of processor time"}
    figures = [Metric(f"{way}_{name}", unit) for way in WAYS for name, unit in units.items()]
    return [Lane(partial(compared, bugs, most, corpus_seeds), [ratio, *figures])]


def compared(bugs: Sequence[Planted], most: int, corpus_seeds: int) -> list[float]:
    """Catch each bug both ways. Prints how many seeds it took."""
    corpus = [entry for protocol in PROTOCOLS for entry in made_corpus(protocol, corpus_seeds)]
    seeds: dict[str, list[int]] = {way: [] for way in WAYS}
    cpu_s = dict.fromkeys(WAYS, 0.0)
    for bug in bugs:
        for way in WAYS:
            began = time.process_time()
            seeds[way].append(seeds_to_catch(bug, way, FIRST_SEED, most, corpus if way == CORPUS else ()))
            cpu_s[way] += time.process_time() - began
        print(f"{bug.name:36}" + "".join(f"  {way} {seeds[way][-1] or '-':>3}" for way in WAYS), flush=True)
    figures = [[*figures_of(seeds[way], most), cpu_s[way]] for way in WAYS]
    return [figures[1][0] / figures[0][0], *figures[0], *figures[1]]


def figures_of(seeds: Sequence[int], most: int) -> list[float]:
    """Median and mean of the seeds until bugs were caught, and how many were not, which is 0 seeds."""
    counted = [each or most + 1 for each in seeds]
    return [median(counted), fmean(counted), sum(each == 0 for each in seeds)]


def made_corpus(protocol: str, seeds: int) -> Iterator[Entry]:
    """The entries that a guided fuzz of this many seeds makes from nothing."""
    schedule = Schedule(FIRST_SEED, protocol)
    for number, at in enumerate(range(0, seeds, GENERATION)):
        for genotype in schedule.generation(number, range(at, min(at + GENERATION, seeds))):
            judged = run(genotype, protocol, None)
            features = [] if judged is None else features_of(judged)
            if schedule.learn(genotype, features):
                yield Entry(protocol, str(genotype), [], "", 0.0)


def seeds_to_catch(mutant: Planted, way: str, first: int, cap: int, start: Sequence[Entry]) -> int:
    """The number of seeds until the bug is caught; 0 if it is not."""
    protocol = mutant.must_fail.protocol
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


def run(genotype: Genotype, protocol: str, mutant: Planted | None) -> Judged | None:
    """A judged run; ``None`` if it crashed, which does not count as caught."""
    scenario = random_scenario(genotype, protocol)
    planted = scenario if mutant is None else with_mutant(scenario, mutant)
    try:
        return judge_run(simulated(planted, genotype.run_seed, shortcuts=mutant is None))
    except CRASHES:
        return None


def with_mutant(scenario: Scenario, mutant: Planted) -> Scenario:
    """The scenario with the bug in all its honest validators, or in one, as in the kill table."""
    fields = scenario.model_dump(mode="json", by_alias=True)
    section = fields["validators"]
    nodes = section.get("nodes") or [{} for _ in range(section["count"])]
    honest = [node for node in nodes if not node.get("byzantine")]
    for node in honest if mutant.must_fail.mutated == ALL else honest[1:2]:
        node["mutant"] = mutant.name
    section |= {"nodes": nodes, "allow_more_faults": True}
    return Scenario.model_validate(fields)


def is_caught(judged: Judged, mutant: Planted) -> bool:
    record = judged.books.record
    if not mutant_runs(record) or judged.verdict.check(mutant.must_fail.check).verdict is not Outcome.FAIL:
        return False
    assert record.monitor is not None, "the simulator has one"
    return not mutant.must_fail.rule or bool(broken(record.monitor, mutant.must_fail.rule))


def fails_without(genotype: Genotype, protocol: str, mutant: Planted) -> bool:
    sound = run(genotype, protocol, None)
    return sound is None or sound.verdict.check(mutant.must_fail.check).verdict is Outcome.FAIL


if __name__ == "__main__":
    main()
