"""Where cases come from: families and seeds, or a corpus in a folder.

A source can be sent to another process. It lists references to its cases, and loads each of them with the answer that
is expected: the specification's, with the roots of the validator's tree. Where the two disagree there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from cluster.common.errors import HarnessError
from kits.conform.case import AnsweredCase, Case, Page, Reference
from kits.conform.decode import decoded_by_spec
from kits.conform.difference import first_difference
from kits.conform.families.table import TABLE
from kits.conform.t8n_by_spec import answer_and_rules
from kits.conform.t8n_input import blocks_of, genesis_of


class Source(Protocol):
    """What cases come from."""

    def references(self) -> Iterator[Reference]:
        """The cases, family by family."""

    def count(self) -> int:
        """Number of the cases."""

    def load(self, reference: Reference) -> AnsweredCase:
        """A case with its answer and its rules, by one execution of the specification.

        Raises :class:`~cluster.common.errors.BadInput` if it cannot be read, and
        :class:`~cluster.common.errors.HarnessError` if validator and specification disagree on a generated case.
        """


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
        answer = chain.answer()
        specified, rules = execute_by_spec(case)
        difference = first_difference(specified, answer, has_roots=False)
        if difference is not None:
            raise HarnessError(f"{case.reference.name}: the validator is not as the specification: {difference.text}")
        return AnsweredCase(case, answer, rules)


def execute_by_spec(case: Case) -> tuple[Page, frozenset[str]]:
    """The specification's answer to a case, and ids of the rules that it reaches.

    Raises :class:`~cluster.common.strict_json.Wrong` if the input is malformed.
    """
    if case.decode:
        return decoded_by_spec(case.decode), frozenset()
    genesis = genesis_of(case.genesis)
    return answer_and_rules(genesis, blocks_of(case.blocks, genesis))
