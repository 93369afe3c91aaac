"""Where cases come from: families and seeds, or a corpus in a folder.

A source can be sent to another process. It lists references to its cases, and loads each of them with this
implementation's answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from cluster.tools.inspect.conform.case import AnsweredCase, Reference
from cluster.tools.inspect.conform.families.table import TABLE
from cluster.tools.inspect.conform.rules.table import reached_by


class Source(Protocol):
    """What cases come from."""

    def references(self) -> Iterator[Reference]:
        """The cases, family by family."""

    def count(self) -> int:
        """Number of the cases."""

    def load(self, reference: Reference) -> AnsweredCase:
        """A case with its answer. Raises :class:`~cluster.common.errors.BadInput` if it cannot be read."""


@dataclass(frozen=True, slots=True)
class GeneratedCases:
    """The cases of families with each seed of a range."""

    families: tuple[str, ...]
    seeds: range

    def references(self) -> Iterator[Reference]:
        return (Reference(family, seed) for family in self.families for seed in self.seeds_of(family))

    def count(self) -> int:
        return sum(len(self.seeds_of(family)) for family in self.families)

    def seeds_of(self, family: str) -> range:
        """The seeds of a family's cases."""
        return TABLE.families[family].of_seeds(self.seeds)

    def load(self, reference: Reference) -> AnsweredCase:
        case, chain = TABLE.families[reference.family].case(reference.number)
        return AnsweredCase(case, chain.answer(), reached_by(chain))
