"""A conformance case: a genesis and blocks in the tool's input form, or bytes to decode, and why the case is there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

Page = dict[str, Any]


class Reference(NamedTuple):
    """A case by its family and number."""

    family: str
    number: int

    @property
    def name(self) -> str:
        """The family and the number, for readers."""
        return f"{self.family} {self.number}"


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a family."""

    family: str
    number: int
    """Seed of a generated case; position in its family in a corpus."""
    sentence: str
    """What the case is about."""
    genesis: Page
    blocks: list[Page]
    decode: list[Page] = field(default_factory=list)
    """Requests about bytes (:mod:`kits.conform.decode`), in place of a genesis and blocks."""

    @property
    def request(self) -> Page:
        """The case as a program that stays up gets it."""
        return {"decode": self.decode} if self.decode else {"genesis": self.genesis, "blocks": self.blocks}

    @property
    def reference(self) -> Reference:
        """What tells the case from others."""
        return Reference(self.family, self.number)


@dataclass(frozen=True, slots=True)
class AnsweredCase:
    """A case with this implementation's answer."""

    case: Case
    answer: Page
    """The output ``O`` that is expected."""
    rules: frozenset[str] = field(default_factory=frozenset)
    """Ids of the rules that the execution reached."""
