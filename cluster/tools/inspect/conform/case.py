"""A conformance case: a genesis and blocks in the tool's input form, and why the case is there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Page = dict[str, Any]


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

    @property
    def name(self) -> str:
        """The family and the number."""
        return f"{self.family} {self.number}"


@dataclass(frozen=True, slots=True)
class AnsweredCase:
    """A case with this implementation's answer."""

    case: Case
    answer: Page
    """The output ``O`` that is expected."""
    rules: frozenset[str] = field(default_factory=frozenset)
    """Ids of the rules that the execution reached."""
