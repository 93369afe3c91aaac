"""Families of cases: each is about one part of the protocol, and makes a case of any seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol, TypeVar

from cluster.common.errors import BadInput
from cluster.common.suggestions import meant_or_known
from kits.conform.case import Case, Page
from kits.conform.cases.requests import Requests
from kits.conform.cases.running_chain import RunningChain


class Made(Protocol):
    """A case that a family made, with the chain that ran along."""

    genesis: Page
    blocks: list[Page]
    chain: RunningChain
    sentence: str


Maker = TypeVar("Maker", bound=Callable[[random.Random], "Made | Requests"])


@dataclass(frozen=True, slots=True)
class Family:
    """A named generator of cases."""

    name: str
    rules: tuple[str, ...]
    """Ids of the rules that the family is about (docs/protocol.md, docs/policies.md)."""
    about: str
    """What the family is about, in one sentence."""
    make: Callable[[random.Random], Made | Requests]
    every: int = 1
    """Number of seeds in a row of which one has a case: more than 1 for a family whose cases are long."""

    def of_seeds(self, seeds: range) -> range:
        """Those of the seeds that have a case: the first, and so on."""
        return seeds[:: self.every]

    def case(self, number: int) -> tuple[Case, RunningChain | Requests]:
        """The case of a seed, and the chain that has executed it."""
        made = self.make(random.Random(f"{self.name} {number}"))
        sentence = f"{self.about} {made.sentence}".strip()
        if isinstance(made, Requests):
            return Case(self.name, number, sentence, {}, [], made.decode), made
        return Case(self.name, number, sentence, made.genesis, made.blocks), made.chain


class FamilyTable:
    """Families by name, in the order in which an implementer makes them pass."""

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}

    def __call__(self, name: str, *rules: str, every: int = 1) -> Callable[[Maker], Maker]:
        """Register a function as a family. The first line of its docstring says what the family is about."""

        def register(make: Maker) -> Maker:
            assert name not in self.families, name
            assert make.__doc__, name
            self.families[name] = Family(name, rules, make.__doc__.strip().splitlines()[0], make, every)
            return make

        return register

    def chosen(self, patterns: Iterable[str]) -> list[Family]:
        """The families whose names match one of the patterns (``*`` and ``?``); all without patterns.

        Raises :class:`BadInput` for a pattern that no name matches.
        """
        patterns = list(patterns)
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in self.families):
                raise BadInput(f"--family {pattern}: no such family; {meant_or_known(pattern, self.families)}")
        return [
            family
            for name, family in self.families.items()
            if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
        ]
