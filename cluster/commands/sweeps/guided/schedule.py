"""The schedule of a guided fuzz: which genotypes run next.

Genotypes are chosen in generations of a fixed size. A generation depends on the first seed, on the entries with which
the fuzz began, and on what all generations before it reached. So it does not depend on the number of workers, nor on
which run ends first.

An entry with rare features is changed more often, and less often each time it was chosen (the power schedules of
AFLFast and FairFuzz).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from cluster.commands.sweeps.drawing.genotype import MAX_CHANGES, PARTS, RUN, Genotype
from cluster.commands.sweeps.guided.corpus import Entry

GENERATION: Final = 16
FRESH: Final = 0.25
"""Share of a generation that are unchanged seeds, as in a plain fuzz."""
REPLAYED: Final = 0.25
"""Share of a generation that runs entries again with which the fuzz began, until all of them ran; the first generation
runs nothing else. What an entry reaches now counts, not what its file says."""
MAX_STEPS: Final = 6
"""Maximum number of changes that make a mutant from an entry."""
MORE: Final = 0.6
"""Probability of a further change."""
DRAWS: Final = 24
"""The draws of a part that are changed have numbers below this one. Most parts have fewer."""
SEED_BITS: Final = 32


@dataclass(slots=True)
class Parent:
    """An entry of the corpus, as the schedule sees it."""

    genotype: Genotype
    features: Sequence[str]
    chosen: int = 0
    """How often a mutant was made from it."""


@dataclass(slots=True)
class Schedule:
    """Chooses genotypes, and learns what their runs reached."""

    first_seed: int
    protocol: str
    start: Sequence[Entry] = ()
    """The entries with which the fuzz begins, in the order in which they are run again."""
    seen: Counter[str] = field(default_factory=Counter)
    """The number of runs that reached each feature."""
    origins: Counter[str] = field(default_factory=Counter)
    """The number of genotypes by where they came from: ``fresh``, ``replayed`` or ``mutants``."""
    _parents: list[Parent] = field(default_factory=list)
    _replayed: int = 0

    @property
    def entries(self) -> int:
        """The number of entries from which mutants are made."""
        return len(self._parents)

    def generation(self, number: int, seeds: Sequence[int]) -> list[Genotype]:
        """The genotypes of a generation: one for each of ``seeds``, the numbers of its runs."""
        random = Random(f"{self.first_seed}/{self.protocol}/guided/{number}")
        replays = len(seeds) if number == 0 else round(REPLAYED * len(seeds))
        replayed = self.start[self._replayed : self._replayed + replays]
        self._replayed += len(replayed)
        chosen = [Genotype.parse(entry.genotype) for entry in replayed]
        weights = self._weights() if self._parents else []
        for seed in seeds[len(chosen) :]:
            if not weights or random.random() < FRESH:
                self.origins["fresh"] += 1
                chosen.append(Genotype(seed))
            else:
                self.origins["mutants"] += 1
                chosen.append(self._mutant(random, weights))
        self.origins["replayed"] += len(replayed)
        return chosen

    def learn(self, genotype: Genotype, features: Sequence[str]) -> bool:
        """Note what a run reached; returns whether it is an entry now, since it reached what no run had."""
        is_new = any(feature not in self.seen for feature in features)
        self.seen.update(features)
        if is_new:
            self._parents.append(Parent(genotype, features))
        return is_new

    def _weights(self) -> list[float]:
        return [
            sum(1 / self.seen[feature] for feature in parent.features) / (1 + parent.chosen) for parent in self._parents
        ]

    def _mutant(self, random: Random, weights: Sequence[float]) -> Genotype:
        parent, other = random.choices(self._parents, weights, k=2)
        parent.chosen += 1
        return mutant(random, parent.genotype, other.genotype)


def mutant(random: Random, parent: Genotype, other: Genotype) -> Genotype:
    """A genotype made from ``parent`` by a few changes; some parts may come from ``other``."""
    changes = parent.changed
    for _ in range(MAX_STEPS):
        random.choice(STEPS)(random, changes, other)
        if random.random() >= MORE:
            break
    if Genotype.of(parent.seed, changes) == parent:
        changes[RUN] = random.getrandbits(SEED_BITS)
    while len(changes) > MAX_CHANGES:
        del changes[random.choice(sorted(changes))]
    return Genotype.of(parent.seed, changes)


def _take(random: Random, changes: dict[str, int], other: Genotype) -> None:
    """Take a part from the other genotype, with its changed draws."""
    part = random.choice(PARTS)
    _forget(changes, part)
    changes[part] = other.seed_of(part)
    changes.update({f"{part}.{number}": seed for number, seed in other.draws_of(part).items()})


def _renew(random: Random, changes: dict[str, int], other: Genotype) -> None:
    """Take a part from a random seed."""
    part = random.choice(PARTS)
    _forget(changes, part)
    changes[part] = random.getrandbits(SEED_BITS)


def _change_draw(random: Random, changes: dict[str, int], other: Genotype) -> None:
    """Change a draw of a part."""
    place = f"{random.choice(PARTS[:-1])}.{random.randrange(DRAWS)}"
    changes[place] = random.getrandbits(SEED_BITS)


def _rerun(random: Random, changes: dict[str, int], other: Genotype) -> None:
    """Change the run's own randomness."""
    changes[RUN] = random.getrandbits(SEED_BITS)


def _undo(random: Random, changes: dict[str, int], other: Genotype) -> None:
    """Undo a change."""
    if changes:
        del changes[random.choice(sorted(changes))]


def _forget(changes: dict[str, int], part: str) -> None:
    for place in [place for place in changes if place.partition(".")[0] == part]:
        del changes[place]


Step = Callable[[Random, dict[str, int], Genotype], None]
STEPS: Final[tuple[Step, ...]] = (_take, _take, _take, _renew, _change_draw, _change_draw, _rerun, _undo)
"""The changes from which one is drawn at a time."""


def curve(runs: Sequence[Sequence[str]]) -> Iterator[int]:
    """The number of features that were seen after each run. ``runs`` are the features of each."""
    seen: set[str] = set()
    for features in runs:
        seen.update(features)
        yield len(seen)


def rarest(seen: Mapping[str, int], count: int) -> list[tuple[str, int]]:
    """The features that the fewest runs reached, each with the number of these runs."""
    return sorted(seen.items(), key=lambda item: (item[1], item[0]))[:count]
