"""The course of a guided fuzz: its generations, its corpus, and a summary of what it reached."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cluster.commands.sweeps.drawing.genotype import Genotype
from cluster.commands.sweeps.guided.corpus import Corpus, Entry, read_start, write_start
from cluster.commands.sweeps.guided.features import never_reached
from cluster.commands.sweeps.guided.schedule import GENERATION, Schedule, curve, rarest
from cluster.commands.sweeps.outcome import SeedOutcome
from cluster.common.errors import BadInput

CORPUS_FOLDER: Final = "corpus"
"""The corpus of a fuzz that names no other, in the sweep's folder."""
START_FILE: Final = "start.json"
SCHEDULE: Final = "schedule"
POINTS: Final = 20
"""Maximum number of points of the curve of features over seeds."""
SHOWN: Final = 10
"""Maximum number of things that a line of the summary names."""


class Guide:
    """Chooses the genotypes of a guided fuzz, and keeps its corpus."""

    def __init__(
        self, protocol: str, genotypes: dict[int, str], seeds: Sequence[int], folder: Path, corpus: Corpus, commit: str
    ) -> None:
        """``genotypes`` is filled in as they are chosen. ``folder`` is the sweep's.

        Raises :class:`BadInput`.
        """
        self._protocol = protocol
        self._genotypes = genotypes
        self._seeds = seeds
        self._commit = commit
        self._corpus = corpus
        start = read_start(folder / START_FILE)
        if start is None:
            start = list(self._corpus.entries)
            write_start(folder / START_FILE, start)
            self._corpus.remove_superfluous()
        self._names = {entry.name for entry in start}
        self._added = 0
        self._began_with = len(start)
        self._schedule = Schedule(seeds[0], protocol, start)
        self._outcomes: dict[int, SeedOutcome] = {}
        self._schedule_s = 0.0

    def generations(self, done: Mapping[int, SeedOutcome]) -> Iterator[list[int]]:
        """The numbers of each generation that are still to run, if any are; ``done`` are outcomes of an earlier sweep.

        All outcomes of a generation must be :meth:`added <add>` before the next is asked for.
        """
        for number, at in enumerate(range(0, len(self._seeds), GENERATION)):
            numbers = self._seeds[at : at + GENERATION]
            started = time.monotonic()
            for seed, genotype in zip(numbers, self._schedule.generation(number, numbers), strict=True):
                self._genotypes[seed] = str(genotype)
            self._schedule_s += time.monotonic() - started
            for seed in numbers:
                if seed in done:
                    self._check_same(done[seed])
                    self._outcomes[seed] = done[seed]
            if left := [seed for seed in numbers if seed not in done]:
                yield left
            started = time.monotonic()
            for seed in numbers:
                self._learn(self._outcomes[seed])
            self._schedule_s += time.monotonic() - started

    def add(self, outcome: SeedOutcome) -> None:
        """Note the outcome of a number of the last generation."""
        self._outcomes[outcome.seed] = outcome

    def _check_same(self, outcome: SeedOutcome) -> None:
        chosen = self._genotypes[outcome.seed]
        if outcome.genotype != chosen:
            raise BadInput(
                f"the fuzz to continue ran {outcome.genotype or 'a plain seed'} as seed {outcome.seed}, this one would"
                f" run {chosen}: give the same --seeds, or choose another --out"
            )

    def _learn(self, outcome: SeedOutcome) -> None:
        if not self._schedule.learn(Genotype.parse(self._genotypes[outcome.seed]), outcome.features):
            return
        if outcome.failed or outcome.crashed:
            return  # a bug that is known should not be found again by each fuzz that begins with this corpus
        entry = Entry(self._protocol, outcome.genotype, outcome.features, self._commit, round(outcome.seconds, 2))
        if entry.name not in self._names:
            self._names.add(entry.name)
            self._added += 1
            self._corpus.add(entry)

    # --- the summary --------------------------------------------------------------------------------------------------

    def page(self) -> dict[str, Any]:
        """The part of ``summary.json`` about guidance: entries, features over seeds, time, and what was not reached."""
        ran = [self._outcomes[seed] for seed in self._seeds if seed in self._outcomes]
        reached = list(curve([outcome.features for outcome in ran]))
        every = max(1, -(-len(reached) // POINTS))
        points = sorted({*range(every, len(reached) + 1, every), len(reached)} - {0})
        parts = {name: sum(outcome.parts_s.get(name, 0.0) for outcome in ran) for name in ("draw", "run", "judge")}
        seen = Counter(feature for outcome in ran for feature in outcome.features)
        return {
            "entries": {"at the start": self._began_with, "added": self._added},
            "superfluous": self._corpus.superfluous,
            "genotypes": dict(sorted(self._schedule.origins.items())),
            "features": reached[-1] if reached else 0,
            "features over seeds": [[point, reached[point - 1]] for point in points],
            "rarest": [list(each) for each in rarest(seen, SHOWN)],
            "seconds": {name: round(value, 3) for name, value in {**parts, SCHEDULE: self._schedule_s}.items()},
            "never reached": never_reached(seen),
        }


def lines_of(page: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a summary about guidance. ``page`` is that of :meth:`Guide.page`."""
    origins = ", ".join(f"{count:,} {name}" for name, count in page["genotypes"].items() if count)
    entries = page["entries"]
    yield f"genotypes                {origins or 'none'}"
    yield (
        f"corpus                   {entries['at the start']:,} entries at the start, {entries['added']:,} added,"
        f" {page['superfluous']:,} left out since they add nothing"
    )
    points = page["features over seeds"]
    shown = points[:: max(1, len(points) // 5)]
    growth = ", ".join(f"{features:,} after {seeds:,}" for seeds, features in shown)
    yield f"features                 {page['features']:,}{f' ({growth})' if len(points) > 1 else ''}"
    total = sum(page["seconds"].values())
    spent = ", ".join(f"{name} {100 * value / total:.1f}%" for name, value in page["seconds"].items() if total)
    yield f"time                     {spent or 'none'}"
    for kind, names in page["never reached"].items():
        more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
        yield f"never reached            {kind}: {', '.join(names[:SHOWN]) or 'none'}{more}"
