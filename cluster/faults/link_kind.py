"""Faults of links: what they do to messages between validators."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from cluster.common.wording import first_few
from cluster.faults.events import InForce, NoteEnd, ObserveLinks
from cluster.faults.kind import MAX_NAMED, Course, Lasting, with_fields_named
from cluster.faults.link_effects import LinkEffect
from cluster.record.run import FaultRecord
from cluster.scenario.sections.faults import BaseFault, Facts, Names, Stop
from cluster.scenario.sections.validators import ValidatorsSection


class OnLinks(Course):
    """Links under one fault."""

    plan: LinkFault

    @property
    def effect(self) -> LinkEffect:
        return self.plan.effect(self.validators.names)

    def begin(self) -> None:
        self.plan.note(self.record, self.validators.names)
        self.stage.set_links(self.key, self.effect, InForce(self.key))

    def undo(self) -> None:
        self.stage.set_links(self.key, None, NoteEnd(self.key))

    def observe(self) -> None:
        self.stage.order(ObserveLinks(self.key, self.effect))


class LinkFault(Lasting):
    """A fault of links."""

    COURSE = OnLinks
    FACTS = Facts(drops_messages=True)
    of_links = True

    def effect(self, names: Sequence[str]) -> LinkEffect:
        """What it does. ``names`` are the validators, by index."""
        return self.hitting([])

    def impaired(self, names: Sequence[str]) -> tuple[str, ...]:
        """The validators on whose votes no certificate can rely while the fault is in force."""
        raise NotImplementedError

    def note(self, record: FaultRecord, names: Sequence[str]) -> None:
        """Note in the record what it is, before it begins."""
        record.impaired = self.impaired(names)

    def hitting(
        self,
        hits: Sequence[tuple[Collection[int], Collection[int]]],
        changes: Mapping[str, float] = {},
        leader_delay_ms: int = 0,
    ) -> LinkEffect:
        """Its effect; see :class:`LinkEffect`."""
        found = tuple((frozenset(senders), frozenset(receivers)) for senders, receivers in hits)
        what = f"{self.kind_name} of {self.whom}"
        return LinkEffect(what, found, dict(changes), leader_delay_ms, self.for_ms, self.prefers_chaos_mesh)


class OfLinks(LinkFault):
    """A fault of links that are given by validators' names."""

    how: Literal["transport", "chaos-mesh"] = "transport"
    """On the live testnet: by the validators' transport, or by Chaos Mesh between pods, where that is possible."""


class Directed(OfLinks):
    """A fault of the links from some validators to others."""

    senders: Names | None = Field(default=None, alias="from")
    """Senders; by default all validators except those of ``to``."""
    receivers: Names | None = Field(default=None, alias="to")
    """Receivers; by default all validators except those of ``from``."""

    @property
    def whom(self) -> str:
        return f"{', '.join(self.senders or ['all'])} > {', '.join(self.receivers or ['all'])}"

    @property
    def named(self) -> Sequence[tuple[str, Sequence[str]]]:
        return [("from", self.senders or []), ("to", self.receivers or [])]

    def with_regions_named(self, regions: Mapping[str, Sequence[str]]) -> Self:
        return with_fields_named(self, regions, senders="from", receivers="to")

    def ends(self, names: Sequence[str]) -> tuple[set[str], set[str]]:
        """Senders and receivers. A missing side is all other validators; if both are missing, both are all."""
        everybody = set(names)
        senders, receivers = set(self.senders or ()), set(self.receivers or ())
        if not senders and not receivers:
            return everybody, everybody
        return senders or everybody - receivers, receivers or everybody - senders

    def places(self, names: Sequence[str]) -> tuple[set[int], set[int]]:
        """Senders and receivers, by index."""
        senders, receivers = ({index for index, name in enumerate(names) if name in end} for end in self.ends(names))
        return senders, receivers

    def effect(self, names: Sequence[str]) -> LinkEffect:
        return self.hitting([self.places(names)])

    def impaired(self, names: Sequence[str]) -> tuple[str, ...]:
        fewer = min(self.ends(names), key=len)
        return tuple(name for name in names if name in fewer)

    def check_fits(self, validators: ValidatorsSection, stop: Stop) -> None:
        super().check_fits(validators, stop)
        senders, receivers = self.ends(validators.names)
        where = ".from" if self.senders is not None else ".to" if self.receivers is not None else ""
        if not senders or not receivers:
            raise ValueError(f"{where}: all validators are on one side")
        if len(senders | receivers) == 1:
            raise ValueError(f"{where}: {next(iter(senders))} has no link to itself, so the fault has no link")

    def aim(self, validators: ValidatorsSection, given: BaseFault) -> str:
        return "all links" if self.senders is None and self.receivers is None else " to ".join(self._sides_in_words)

    @property
    def _sides_in_words(self) -> list[str]:
        return [first_few(side, MAX_NAMED) if side else "the others" for side in (self.senders, self.receivers)]


class Cutting(Directed):
    """A fault whose links carry no messages."""

    @model_validator(mode="after")
    def _someone_is_named(self) -> Self:
        if self.senders is None and self.receivers is None:
            raise ValueError("from: give from or to, or both")
        return self


class BothWays(Cutting):
    """A fault of the links between two sides, in both directions."""

    @property
    def whom(self) -> str:
        return f"{', '.join(self.senders or ['all'])} <> {', '.join(self.receivers or ['all'])}"

    def effect(self, names: Sequence[str]) -> LinkEffect:
        one, other = self.places(names)
        return self.hitting([(one, other), (other, one)])

    def aim(self, validators: ValidatorsSection, given: BaseFault) -> str:
        return " and ".join(self._sides_in_words)
