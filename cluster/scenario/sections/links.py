"""The ``links`` section of a scenario: latencies, losses and topology.

Every validator sends to every other one. The edges of the topology are links; a message takes the path of the least
latency over them (:mod:`cluster.scenario.network`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from cluster.scenario.sections.base import (
    BandwidthKbps,
    LinkChanges,
    LinkMilliseconds,
    Name,
    Section,
    Share,
    check_kind,
    kind_of,
)
from cluster.scenario.sections.measurements.latencies import MATRICES, MatrixName

Seed = Annotated[int, Field(ge=0, lt=2**64)]


class EdgeSection(LinkChanges):
    """A link of an edge list. ``[a, b]`` is short for ``{between: [a, b]}``."""

    between: Annotated[list[Name], Field(min_length=2, max_length=2)]
    """The two validators."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, given: Any) -> Any:
        return {"between": given} if isinstance(given, list) else given


class FullTopology(Section):
    """Every two validators have a link, which messages take even if a detour is faster."""

    kind: Literal["full"] = "full"


class RingTopology(Section):
    """Each validator is linked to the previous and the next one."""

    kind: Literal["ring"]


class StarTopology(Section):
    """All validators are linked to one."""

    kind: Literal["star"]
    hub: Name | None = None
    """The validator in the middle; by default the first one."""


class _Drawn(Section):
    seed: Seed | None = None
    """Seed of the random links; by default the scenario's."""
    allow_disconnected: bool = False
    """Whether validators without a path between them are allowed; otherwise links are drawn until there are none."""


class RandomRegularTopology(_Drawn):
    """Each validator is linked to ``degree`` random others."""

    kind: Literal["random-regular"]
    degree: Annotated[int, Field(ge=1, le=511)] = 4
    """Number of links of each; below the number of validators, and one of the two numbers even."""


class SmallWorldTopology(_Drawn):
    """A ring with links to the ``k`` nearest, some of them rewired at random (Watts and Strogatz, 1998)."""

    kind: Literal["small-world"]
    k: Annotated[int, Field(ge=2, le=510, multiple_of=2)] = 4
    """Number of nearest validators to which each is linked at first; even, and below the number of validators."""
    p: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Share of the links that are rewired."""


class RegionsTopology(Section):
    """Every two validators of a region are linked; regions are linked only by their gateways."""

    kind: Literal["regions"]
    gateways: Annotated[int, Field(ge=1, le=512)] = 1
    """Number of gateways of a region, which are its first validators; all of them if it has fewer."""


class EdgesTopology(Section):
    """A list of links. A list is short for ``{kind: edges, edges: …}``."""

    kind: Literal["edges"]
    edges: Annotated[list[EdgeSection], Field(min_length=1, max_length=4_096)]
    """The links, each in both directions."""
    allow_disconnected: bool = False
    """Whether validators without a path between them are allowed."""


AnyTopology = (
    FullTopology
    | RingTopology
    | StarTopology
    | RandomRegularTopology
    | SmallWorldTopology
    | RegionsTopology
    | EdgesTopology
)
TOPOLOGY_NAMES: Final = tuple(kind_of(model) for model in get_args(AnyTopology))


def write_out_topology(given: Any) -> Any:
    """Expand the short forms of a topology: a kind's name, and a list of edges."""
    if isinstance(given, str):
        return {"kind": given}
    return {"kind": "edges", "edges": given} if isinstance(given, list) else given


Topology = Annotated[
    Annotated[AnyTopology, Field(discriminator="kind")],
    BeforeValidator(lambda given: check_kind(write_out_topology(given), "topology", TOPOLOGY_NAMES)),
]


class LinksSection(Section):
    """Links between validators."""

    latency_ms: LinkMilliseconds = 20.0
    """Time of a message over a link."""
    jitter_ms: LinkMilliseconds = 5.0
    """Random addition to the latency of each message, between minus and plus this."""
    loss: Share = 0.0
    """Share of messages that are lost."""
    duplication: Share = 0.0
    """Share of messages that arrive twice."""
    reordering: Share = 0.0
    """Share of messages that are held back, so that later ones overtake them."""
    bandwidth_kbps: BandwidthKbps | None = None
    """Kilobits per second of each directed link; ``None`` is unlimited."""
    uplink_kbps: BandwidthKbps | None = None
    """Kilobits per second of each validator's uplink, shared by all its messages; ``None`` is unlimited."""
    regions: dict[Name, Annotated[list[Name], Field(min_length=1)]] = {}
    """Validators by region; links of validators in no region have ``latency_ms``."""
    latency_matrix_ms: dict[Name, dict[Name, LinkMilliseconds]] = {}
    """Latency from one region to another; it also applies to the opposite direction, unless that is given."""
    latencies: MatrixName | None = None
    """Measured latencies between regions of a cloud provider, for pairs that are missing in the matrix."""
    topology: Topology = FullTopology()
    """Which validators are linked; others are reached over several links. A name is short for ``{kind: name}``."""

    @model_validator(mode="after")
    def _regions_are_disjoint(self) -> LinksSection:
        placed: dict[str, str] = {}
        for region, names in self.regions.items():
            for name in names:
                if name in placed:
                    where = f"is in {placed[name]} and in {region}" if placed[name] != region else "is named twice"
                    raise ValueError(f"regions.{region}: {name} {where}; expected each validator once, in one region")
                placed[name] = region
        return self

    def check_regions(self, regions: Sequence[str]) -> None:
        """Raise :class:`ValueError`, with the field's path, if a matrix does not fit the ``regions``."""
        for source, row in self.latency_matrix_ms.items():
            for region in (source, *row):
                if region not in regions:
                    raise ValueError(f"latency_matrix_ms: no region is named {region!r}")
        if self.latencies is not None:
            known = MATRICES[self.latencies].places
            for region in regions:
                if region not in known:
                    raise ValueError(
                        f"latencies: {self.latencies} knows no region {region!r}; it knows {', '.join(known)}"
                    )

    def region_latency_ms(self, sender: str | None, receiver: str | None) -> float:
        """Latency of a link from a validator of one region to one of another; ``None`` is no region."""
        if sender is None or receiver is None:
            return self.latency_ms
        there = self.latency_matrix_ms.get(sender, {}).get(receiver)
        if there is None:
            there = self.latency_matrix_ms.get(receiver, {}).get(sender)
        if there is None and self.latencies is not None:
            there = MATRICES[self.latencies].latency_ms(sender, receiver)
        return self.latency_ms if there is None else there
