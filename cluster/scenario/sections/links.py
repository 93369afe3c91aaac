"""The ``links`` section of a scenario: what lies between validators.

Validators speak to everybody. A topology is the network underneath: its edges are links, and what one validator sends
to another travels over them by the path of the least latency (:mod:`cluster.scenario.network`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, model_validator

from cluster.common.suggestions import unknown
from cluster.scenario.sections.base import BandwidthKbps, LinkChanges, LinkMilliseconds, Name, Section, Share
from cluster.scenario.sections.latencies import MATRICES, MatrixName

Seed = Annotated[int, Field(ge=0, lt=2**64)]


class EdgeSection(LinkChanges):
    """A link of an edge list. ``[a, b]`` stands for ``{between: [a, b]}``."""

    between: Annotated[list[Name], Field(min_length=2, max_length=2)]
    """The two validators."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, given: Any) -> Any:
        return {"between": given} if isinstance(given, list) else given


class FullTopology(Section):
    """Everybody has a link to everybody, and messages take it, even where a detour would be faster."""

    kind: Literal["full"] = "full"


class RingTopology(Section):
    """Each validator is linked to the one before and the one behind it."""

    kind: Literal["ring"]


class StarTopology(Section):
    """All are linked to one."""

    kind: Literal["star"]
    hub: Name | None = None
    """Which validator is in the middle; by default the first one."""


class _Drawn(Section):
    seed: Seed | None = None
    """What the links are drawn from; by default the scenario's seed."""
    allow_disconnected: bool = False
    """Whether there may be validators without a path between them; otherwise it is drawn again until there are none."""


class RandomRegularTopology(_Drawn):
    """Each validator is linked to as many others, drawn at random."""

    kind: Literal["random-regular"]
    degree: Annotated[int, Field(ge=1, le=511)] = 4
    """To how many others; below the number of validators, and one of the two even."""


class SmallWorldTopology(_Drawn):
    """A ring in which each is linked to its nearest, and some links lead elsewhere (Watts and Strogatz, 1998)."""

    kind: Literal["small-world"]
    k: Annotated[int, Field(ge=2, le=510, multiple_of=2)] = 4
    """To how many of the nearest each is linked at first; even, and below the number of validators."""
    p: Annotated[float, Field(ge=0, le=1)] = 0.2
    """The share of the links of which one end is drawn anew."""


class RegionsTopology(Section):
    """Everybody of a region is linked to everybody of it; regions are linked by their gateways alone."""

    kind: Literal["regions"]
    gateways: Annotated[int, Field(ge=1, le=512)] = 1
    """How many of a region's validators are gateways, the first ones of it; all of them where it has fewer."""


class EdgesTopology(Section):
    """The links are listed. A list stands for ``{kind: edges, edges: …}``."""

    kind: Literal["edges"]
    edges: Annotated[list[EdgeSection], Field(min_length=1, max_length=4_096)]
    """The links, each in both directions."""
    allow_disconnected: bool = False
    """Whether there may be validators without a path between them."""


AnyTopology = (
    FullTopology
    | RingTopology
    | StarTopology
    | RandomRegularTopology
    | SmallWorldTopology
    | RegionsTopology
    | EdgesTopology
)
TOPOLOGIES: Final[tuple[type[AnyTopology], ...]] = (
    FullTopology,
    RingTopology,
    StarTopology,
    RandomRegularTopology,
    SmallWorldTopology,
    RegionsTopology,
    EdgesTopology,
)
TOPOLOGY_NAMES: Final = tuple(
    str(model.model_fields["kind"].annotation.__args__[0])  # type: ignore[union-attr]
    for model in TOPOLOGIES
)


def write_out_topology(given: Any) -> Any:
    """A topology's short forms as what they stand for: a kind's name, and a list of edges."""
    if isinstance(given, str):
        return {"kind": given}
    return {"kind": "edges", "edges": given} if isinstance(given, list) else given


def _is_known(given: Any) -> Any:
    """One clear line for an unknown kind, in place of one that lists all models."""
    given = write_out_topology(given)
    if isinstance(given, dict):
        if "kind" not in given:
            raise ValueError(f"kind: is missing; known: {', '.join(TOPOLOGY_NAMES)}")
        if given["kind"] not in TOPOLOGY_NAMES:
            raise ValueError(f"kind: {unknown('topology', given['kind'], TOPOLOGY_NAMES)}")
    return given


Topology = Annotated[Annotated[AnyTopology, Field(discriminator="kind")], BeforeValidator(_is_known)]


class LinksSection(Section):
    """Links between validators."""

    latency_ms: LinkMilliseconds = 20.0
    """How long a message takes over a link."""
    jitter_ms: LinkMilliseconds = 5.0
    """Drawn for each message between minus and plus this, and added to the latency."""
    loss: Share = 0.0
    """Share of messages that are lost."""
    duplication: Share = 0.0
    """Share of messages that arrive twice."""
    reordering: Share = 0.0
    """Share of messages that are held back, so that later ones overtake them."""
    bandwidth_kbps: BandwidthKbps | None = None
    """Kilobits a second that each directed link carries; ``None`` is without bound."""
    regions: dict[Name, Annotated[list[Name], Field(min_length=1)]] = {}
    """Validators by region; those in none have links of ``latency_ms``."""
    latency_matrix_ms: dict[Name, dict[Name, LinkMilliseconds]] = {}
    """Latency from one region to another; the way back takes as long unless it is given too."""
    latencies: MatrixName | None = None
    """Real latencies between regions by the name of who measured them, where the matrix says nothing."""
    topology: Topology = FullTopology()
    """Which validators have links; the others are reached over them. A name stands for ``{kind: name}``."""

    @model_validator(mode="after")
    def _nobody_is_in_two_regions(self) -> LinksSection:
        placed: dict[str, str] = {}
        for region, names in self.regions.items():
            for name in names:
                if name in placed:
                    where = f"is in {placed[name]} and in {region}" if placed[name] != region else "is named twice"
                    raise ValueError(f"regions.{region}: {name} {where}; expected each validator once, in one region")
                placed[name] = region
        return self

    def check_regions(self, regions: Sequence[str]) -> None:
        """Raise :class:`ValueError`, with the path of the field, where a matrix does not fit the regions there are."""
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
