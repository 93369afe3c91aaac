"""The genotype of a random scenario: a seed, and the draws that differ from those of the seed.

A random scenario is drawn in parts, each from a random source. A genotype may take the source of a part from another
seed, and may change single draws of a part. The drawing code keeps to its rules whatever it draws, so the scenario of
any genotype is as valid as that of a seed. This is parametric fuzzing (Padhye et al., "Semantic Fuzzing with Zest",
2019): the draws are mutated, not the fields of the scenario.

The text of a genotype is short and needs no quotes in a shell: ``17,faults=912,load.3=88,run=4`` is the scenario of
seed 17 with the faults of seed 912, another fourth draw of the load, and the run's own randomness of seed 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from blake3 import blake3

from cluster.common.errors import BadInput
from cluster.common.limits import MAX_SEED
from validator.primitives.types import parse_decimal

MAIN_PARTS: Final = ("world", "chain", "validators", "consensus", "links", "load", "faults")
"""The parts that are drawn from the main random source, in this order."""
OWN_PARTS: Final = (
    "attack",
    "blocks",
    "candidates",
    "corner",
    "cuts",
    "epochs",
    "forgeries",
    "governance",
    "greed",
    "hasty",
    "lies",
    "limits",
    "nodes",
    "old-nullifications",
    "pace",
    "policy",
    "small-world",
    "strain",
    "upgrade",
    "uplinks",
    "views",
    "watches",
)
"""The parts that each have a separate random source."""
RUN: Final = "run"
"""The part that is not drawn: the seed of the simulation, from which users, links and targets of faults follow."""
PARTS: Final = (*MAIN_PARTS, *OWN_PARTS, RUN)
MAX_CHANGES: Final = 48
MAX_DRAW: Final = 999
"""The greatest number of a draw that a genotype can change, counted from 0 in each part."""
EXPECTED: Final = "expected SEED, then changes such as faults=SEED or load.3=SEED, separated by commas"

States = dict[str, Any]
"""States of a random source, keyed by the part that begins there."""


@dataclass(frozen=True, slots=True, order=True)
class Genotype:
    """A seed, and the parts and draws that come from other seeds. Two genotypes with the same text are equal."""

    seed: int
    changes: tuple[tuple[str, int], ...] = ()
    """Pairs of a part (``faults``) or a draw of a part (``load.3``), and the seed that it comes from; sorted."""

    @staticmethod
    def of(seed: int, changes: Mapping[str, int]) -> Genotype:
        """The genotype with these changes. A part that comes from the seed itself is no change."""
        kept = {place: other for place, other in changes.items() if "." in place or other != seed}
        return Genotype(seed, tuple(sorted(kept.items())))

    @staticmethod
    def parse(text: str) -> Genotype:
        """Read the text of a genotype. Raises :class:`BadInput`."""
        first, *others = text.split(",")
        changes: dict[str, int] = {}
        for other in others:
            place, _, seed = other.partition("=")
            if place in changes or not _is_place(place) or not _is_seed(seed):
                raise BadInput(f"{text!r} is no genotype: {other!r}: {EXPECTED}")
            changes[place] = int(seed)
        if not _is_seed(first):
            raise BadInput(f"{text!r} is no genotype: {EXPECTED}")
        if len(changes) > MAX_CHANGES:
            raise BadInput(f"{text!r} is no genotype: {len(changes)} changes, expected at most {MAX_CHANGES}")
        return Genotype.of(int(first), changes)

    def __str__(self) -> str:
        return ",".join([str(self.seed), *(f"{place}={seed}" for place, seed in self.changes)])

    @property
    def changed(self) -> dict[str, int]:
        return dict(self.changes)

    @property
    def run_seed(self) -> int:
        """The seed of the simulation."""
        return self.seed_of(RUN)

    def seed_of(self, part: str) -> int:
        """The seed whose random source a part is drawn from."""
        return self.changed.get(part, self.seed)

    def draws_of(self, part: str) -> dict[int, int]:
        """The changed draws of a part: seeds keyed by the number of the draw."""
        begins = f"{part}."
        return {int(place[len(begins) :]): seed for place, seed in self.changes if place.startswith(begins)}


def _is_seed(text: str) -> bool:
    return parse_decimal(text, MAX_SEED) is not None


def _is_place(text: str) -> bool:
    part, dot, number = text.partition(".")
    if not dot:
        return part in PARTS
    return part in PARTS[:-1] and parse_decimal(number, MAX_DRAW) is not None


class ChangedRandom(Random):
    """A random source in which some draws are replaced, each by the first draw of another seed.

    A draw is a call of one of the two methods from which :class:`random.Random` makes all others.
    """

    def replace(self, state: Any, changes: Mapping[int, int]) -> ChangedRandom:
        """Begin at a state of a random source, with draw 0. ``changes`` are seeds keyed by the number of the draw."""
        self._changes = changes
        self._drawn = 0
        self.setstate(state)
        return self

    def random(self) -> float:
        drawn, other = super().random(), self._other()
        return drawn if other is None else other.random()

    def getrandbits(self, k: int, /) -> int:
        drawn, other = super().getrandbits(k), self._other()
        return drawn if other is None else other.getrandbits(k)

    def _other(self) -> Random | None:
        seed = self._changes.get(self._drawn)
        self._drawn += 1
        return None if seed is None else Random(seed)


class Draws:
    """The random sources of one drawing, by part.

    Without changes the main source goes on from part to part, as it always did. With any, each part of it begins where
    it begins in the drawing of the seed that it comes from, so that a change in one part leaves the others as they are.
    """

    def __init__(self, genotype: Genotype, protocol: str, states_of: Callable[[int], States] = lambda seed: {}) -> None:
        """``states_of`` gives the :attr:`states` of a drawing of a seed; it is needed if the genotype has changes."""
        self.genotype = genotype
        self.states: States = {}
        """The states of the main source at the beginning of its parts so far, if the genotype has no changes."""
        self._protocol = protocol
        self._states_of = states_of
        self._main = Random(main_seed(genotype.seed, protocol))

    def begin(self, part: str) -> Random:
        """The main random source at the beginning of one of :data:`MAIN_PARTS`."""
        if not self.genotype.changes:
            self.states[part] = self._main.getstate()
            return self._main
        state = self._states_of(self.genotype.seed_of(part))[part]
        return ChangedRandom().replace(state, self.genotype.draws_of(part))

    def part(self, part: str) -> Random:
        """The random source of one of :data:`OWN_PARTS`."""
        source = Random(f"{self.genotype.seed_of(part)}/{self._protocol}/{part.replace('-', ' ')}")
        changes = self.genotype.draws_of(part)
        return ChangedRandom().replace(source.getstate(), changes) if changes else source


def main_seed(seed: int, protocol: str) -> int:
    """The seed of the main random source."""
    drawn = blake3(f"{seed} {protocol}".encode(), derive_key_context="stampede fuzz 2").digest()
    return int.from_bytes(drawn, "big")
