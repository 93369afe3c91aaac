"""``partition``: groups of validators that do not hear each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from cluster.common.wording import first_few
from cluster.faults.kind import MAX_NAMED, Drawing
from cluster.faults.link_effects import LinkEffect
from cluster.faults.link_kind import OfLinks
from cluster.record.run import FaultRecord
from cluster.scenario.sections.base import refuse_repeated
from cluster.scenario.sections.faults import BaseFault, Names, Stop, named_in
from cluster.scenario.sections.validators import ValidatorsSection
from consensus.types import quorum

NAMED_OF_THE_REST = 3
"""Maximum number of validators that a description lists of a partition's unnamed group."""


class PartitionFault(OfLinks):
    """Validators without a common group cannot reach each other; those in no group form one more group.

    A validator in several groups is a bridge between them.
    """

    stops = True

    kind: Literal["partition"]
    groups: Annotated[list[Names], Field(min_length=1)]
    """The groups: validators' names and ``region:NAME``."""

    @model_validator(mode="after")
    def _groups_have_no_repetition(self) -> Self:
        for number, group in enumerate(self.groups):
            refuse_repeated(f"groups[{number}]", group)
        return self

    @property
    def whom(self) -> str:
        return " | ".join(", ".join(group) for group in self.groups)

    @property
    def named(self) -> Sequence[tuple[str, Sequence[str]]]:
        return [(f"groups[{number}]", group) for number, group in enumerate(self.groups)]

    def with_regions_named(self, regions: Mapping[str, Sequence[str]]) -> Self:
        groups = [named_in(group, regions, f"groups[{number}]") for number, group in enumerate(self.groups)]
        return self if groups == self.groups else self.model_copy(update={"groups": groups})

    def check_fits(self, validators: ValidatorsSection, stop: Stop) -> None:
        super().check_fits(validators, stop)
        if not self.effect(validators.names).hits:
            raise ValueError(".groups: every two validators share a group")

    def sides(self, names: Sequence[str]) -> list[set[str]]:
        """The groups of the partition, including that of the validators in no named group, if there are such."""
        groups = [set(group) for group in self.groups]
        rest = set(names).difference(*groups)
        return [*groups, rest] if rest else groups

    def overlap(self) -> bool:
        """Whether a validator is in more than one group."""
        return len({name for group in self.groups for name in group}) < sum(map(len, self.groups))

    def effect(self, names: Sequence[str]) -> LinkEffect:
        sides, alike = self.sides(names), dict[frozenset[int], list[int]]()
        for index, name in enumerate(names):
            alike.setdefault(frozenset(place for place, side in enumerate(sides) if name in side), []).append(index)
        hits = [
            (members, [index for others, them in alike.items() if others.isdisjoint(groups) for index in them])
            for groups, members in alike.items()
        ]
        return self.hitting([(members, others) for members, others in hits if others])

    def impaired(self, names: Sequence[str]) -> tuple[str, ...]:
        largest = max(self.sides(names), key=len)
        whole = largest if len(largest) >= quorum(len(names)) else set()
        return tuple(name for name in names if name not in whole)

    def note(self, record: FaultRecord, names: Sequence[str]) -> None:
        super().note(record, names)
        record.is_hard = not self.overlap()
        if record.is_hard:
            record.sides = tuple(tuple(sorted(side)) for side in self.sides(names))

    def words(self, names: Sequence[str], given: BaseFault) -> str:
        rest = set(names).difference(*self.groups)
        named = first_few([name for name in names if name in rest], NAMED_OF_THE_REST)
        return f"{given.whom} | the rest ({named})" if rest else given.whom

    def aim(self, validators: ValidatorsSection, given: BaseFault) -> str:
        names = validators.names
        sides = (sorted(side, key=names.index) for side in self.sides(names))
        return " | ".join(first_few(side, MAX_NAMED) for side in sides)

    def gone(self, validators: ValidatorsSection) -> set[str]:
        return set(validators.names) - max(self.sides(validators.names), key=len)

    @classmethod
    def draw(cls, drawing: Drawing) -> dict[str, Any]:
        names = drawing.random.sample(drawing.targets, len(drawing.targets))
        cut = drawing.random.randint(1, len(names) - 1)
        return {"groups": [names[:cut], names[cut:]], "for_ms": drawing.lasting_ms()}
