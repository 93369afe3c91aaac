"""The network of a scenario as a self-contained SVG drawing, light and dark.

Validators of a region are drawn together, those of a star around its hub, all others in a circle. Links are drawn if
there are few; between fully linked regions one line represents all links. No meaning depends on colour alone: a
validator with special settings has a dashed rim and a description.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import combinations
from math import cos, pi, sin
from typing import Final

from cluster.commands.explain.outline import Table, distances, own_settings
from cluster.report.svg import CHARACTER_PIXELS, Point, circle, line, rectangle, text
from cluster.scenario import Scenario
from cluster.scenario.network import Network
from cluster.scenario.sections.links import AnyTopology, StarTopology

MAX_LINES: Final = 700
"""Maximum number of links that are drawn one by one. With more, none are."""
MAX_LABELLED_LINES: Final = 24
MAX_NAMED_NODES: Final = 24
"""Maximum number of validators that are drawn with numbers and names. With more, they are drawn small, without both."""
MAX_FULL_MESH: Final = 16
EDGE_PIXELS: Final = 4.0


@dataclass(frozen=True, slots=True)
class Frame:
    """The dimensions of a drawing, in pixels. Phones get a separate drawing, since scaled text is not legible."""

    width: float
    height: float
    ring: Point
    """Half-axes of the ellipse on which validators are placed if there are no regions."""
    region_ring: Point
    """Half-axes of the ellipse on which regions are placed."""
    largest_region: float
    node: float = 13.0
    small_node: float = 7.0
    names_in_regions: bool = True
    """Whether validators in regions have names, or numbers only."""
    outwards: float = 0.0
    """Outward shift of regions' names, away from lines, as a share of their distance from the middle."""

    @property
    def middle(self) -> Point:
        return self.width / 2, self.height / 2

    def fitted(self, name: str, across: float) -> tuple[str, float]:
        """Fit a name with its middle at x = ``across`` into the frame. Returns the name, cut if it is too long, and the
        x of its middle, moved if necessary."""
        most = int((self.width - 2 * EDGE_PIXELS) / CHARACTER_PIXELS)
        short = name if len(name) <= most else f"{name[: most - 1]}…"
        half = len(short) * CHARACTER_PIXELS / 2 + EDGE_PIXELS
        return short, max(half, min(self.width - half, across))


WIDE: Final = Frame(760, 560, ring=(248, 208), region_ring=(260, 188), largest_region=74)
NARROW: Final = Frame(
    340,
    440,
    ring=(130, 170),
    region_ring=(112, 150),
    largest_region=42,
    node=11,
    small_node=5,
    names_in_regions=False,
    outwards=0.25,
)
"""Frame for phones."""

LIGHT: Final = (
    "--ink:#15140f;--quiet:#55534c;--line:#a9a69b;--node:#2a6fcf;--rim:#b3261e;--ground:#ffffff;--area:#2a6fcf14"
)
DARK: Final = (
    "--ink:#f3f2ec;--quiet:#bdbab0;--line:#6d6a62;--node:#5a9cf0;--rim:#ff8a80;--ground:#1b1b19;--area:#5a9cf01f"
)
THEMES: Final = f"""
svg.network{{{LIGHT};font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif}}
@media (prefers-color-scheme:dark){{:root:not([data-theme="light"]) svg.network,svg.network:root{{{DARK}}}}}
[data-theme="dark"] svg.network{{{DARK}}}
"""
SHAPES: Final = """
svg.network .ground{fill:var(--ground)}
svg.network .area{opacity:1;fill:var(--area);stroke:var(--line);stroke-dasharray:2 4}
svg.network .link{stroke:var(--line);stroke-width:1.3;fill:none} svg.network .many{stroke-width:3}
svg.network .node{fill:var(--node)} svg.network .special{stroke:var(--rim);stroke-width:3;stroke-dasharray:4 3}
svg.network text{fill:var(--ink)} svg.network text.within{fill:var(--quiet);font-size:11px}
svg.network text.number{fill:var(--ground);font-weight:600;font-size:11px} svg.network text.region{font-weight:600}
svg.network text.label,svg.network text.region{paint-order:stroke;stroke:var(--ground);stroke-width:4px}
svg.network text.label{font-size:11px}
"""


@dataclass(frozen=True, slots=True)
class _Area:
    """A region: its place, size and validators."""

    name: str
    centre: Point
    radius: float
    members: Sequence[int]


def picture(scenario: Scenario, frame: Frame = WIDE) -> str:
    """The network as one SVG element."""
    network = scenario.network
    areas = _areas(network, frame)
    places = _places(network, scenario.links.topology, areas, frame)
    parts = [
        rectangle("ground", 0, 0, frame.width, frame.height, corner=10),
        *_draw_areas(areas),
        *_draw_links(network, areas, places),
        *_name_areas(areas, frame),
        *_draw_nodes(scenario, places, frame),
    ]
    title = escape(f"The network of {scenario.name}")
    description = escape(caption(scenario))
    return (
        f'<svg class="network" xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}"'
        f' viewBox="0 0 {frame.width:g} {frame.height:g}"><title>{title}</title>'
        f"<desc>{description}</desc><style>{THEMES}{SHAPES}</style>"
        f"{''.join(parts)}</svg>"
    )


def caption(scenario: Scenario) -> str:
    """The description below the drawing."""
    network = scenario.network
    count = len(network.names)
    words = f"{count} validators, topology {scenario.links.topology.kind}: {len(network.links):,} links"
    if _lines_stand_for_many(network):
        words += "; a thick line represents all links between two regions, with its milliseconds"
    elif not _draws_single_links(network):
        words += ", too many to draw"
    elif len(network.links) <= MAX_LABELLED_LINES:
        words += ", with the milliseconds that a message takes"
    if any(any(own_settings(scenario.validators.node(index))) for index in range(count)):
        words += "; a dashed rim marks a validator with its own settings"
    return f"{words}."


# --- places ---------------------------------------------------------------------------------------------------------


def _areas(network: Network, frame: Frame) -> list[_Area]:
    """An area per region, placed around the middle. Validators without a region share one area. Empty if there are no
    regions."""
    if not any(network.regions):
        return []
    groups: dict[str, list[int]] = {}
    for index, region in enumerate(network.regions):
        groups.setdefault(region or "", []).append(index)
    centres = _circle(len(groups), frame.middle, *frame.region_ring)
    largest = min(frame.largest_region, 0.9 * pi * min(frame.region_ring) / max(len(groups), 2))
    return [
        _Area(name, centre, largest if len(members) > 1 else largest * 0.6, members)
        for (name, members), centre in zip(groups.items(), centres, strict=True)
    ]


def _places(network: Network, topology: AnyTopology, areas: Sequence[_Area], frame: Frame) -> list[Point]:
    """The position of each validator."""
    count = len(network.names)
    places: list[Point] = [frame.middle] * count
    if areas:
        for area in areas:
            inner = area.radius * 0.62 if len(area.members) > 1 else 0.0
            for index, place in zip(area.members, _circle(len(area.members), area.centre, inner, inner), strict=True):
                places[index] = place
        return places
    around = list(range(count))
    if isinstance(topology, StarTopology):
        around.remove(0 if topology.hub is None else network.names.index(topology.hub))
    for index, place in zip(around, _circle(len(around), frame.middle, *frame.ring), strict=True):
        places[index] = place
    return places


def _circle(count: int, centre: Point, width: float, height: float) -> list[Point]:
    """``count`` points around an ellipse, clockwise from the top. A single point is in its middle."""
    if count == 1:
        return [centre]
    angles = [2 * pi * position / count - pi / 2 for position in range(count)]
    return [(centre[0] + width * cos(angle), centre[1] + height * sin(angle)) for angle in angles]


# --- drawing --------------------------------------------------------------------------------------------------------


def _draw_areas(areas: Sequence[_Area]) -> Iterator[str]:
    for area in areas:
        yield circle("area", *area.centre, area.radius)


def _name_areas(areas: Sequence[_Area], frame: Frame) -> Iterator[str]:
    """Draw each region's name away from lines: above areas of the upper half, below those of the lower half."""
    for area in areas:
        (x, y), below = area.centre, area.centre[1] > frame.height / 2
        at = y + area.radius + 17 if below else y - area.radius - 7
        name, across = frame.fitted(area.name or "no region", x + frame.outwards * (x - frame.middle[0]))
        yield text(name, across, at, "region", "middle")


def _draws_single_links(network: Network) -> bool:
    most = MAX_FULL_MESH if network.graph is None else len(network.names)
    return len(network.links) <= MAX_LINES and len(network.names) <= most


def _lines_stand_for_many(network: Network) -> bool:
    return network.graph is None and any(network.regions)


def _draw_links(network: Network, areas: Sequence[_Area], places: Sequence[Point]) -> Iterator[str]:
    if _lines_stand_for_many(network):
        yield from _draw_region_links(distances(network), areas)
    elif _draws_single_links(network):
        is_labelled = len(network.links) <= MAX_LABELLED_LINES
        for one, other in network.links:
            label = f"{network.link(one, other).latency_ms:.4g}" if is_labelled else ""
            yield from _line("link", places[one], places[other], label)


def _draw_region_links(apart: Table, areas: Sequence[_Area]) -> Iterator[str]:
    """Draw one line per pair of regions, and write the latency within each region into its area."""
    for (one, here), (other, there) in combinations(enumerate(areas), 2):
        label = apart.rows[one][1 + other] if len(areas) <= 8 else ""
        yield from _line("link many", _rim(here, there.centre), _rim(there, here.centre), label)
    for number, area in enumerate(areas):
        if len(area.members) > 1:
            x, y = area.centre
            yield text(f"{apart.rows[number][1 + number]} ms", x, y + 4, "within", "middle")


def _rim(area: _Area, towards: Point) -> Point:
    (x, y), (to_x, to_y) = area.centre, towards
    length = max(((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5, 1.0)
    return x + (to_x - x) * area.radius / length, y + (to_y - y) * area.radius / length


def _line(kind: str, start: Point, end: Point, label: str) -> Iterator[str]:
    (x1, y1), (x2, y2) = start, end
    yield line(kind, x1, y1, x2, y2)
    if label:
        # not in the middle, where lines cross
        x, y = x1 + 0.42 * (x2 - x1), y1 + 0.42 * (y2 - y1)
        yield text(label, x, y + 4, "label", "middle")


def _draw_nodes(scenario: Scenario, places: Sequence[Point], frame: Frame) -> Iterator[str]:
    names = scenario.validators.names
    is_named = frame.names_in_regions or not any(scenario.network.regions)
    radius = frame.node if len(names) <= MAX_NAMED_NODES else frame.small_node
    for index, (name, (x, y)) in enumerate(zip(names, places, strict=True)):
        special = list(own_settings(scenario.validators.node(index)))
        words = escape("; ".join([name, *special]))
        kind = "node special" if special else "node"
        yield f"<g><title>{words}</title>{circle(kind, x, y, radius)}"
        if len(names) <= MAX_NAMED_NODES:
            yield text(str(index), x, y + 4, "number", "middle")
            if is_named and name != f"validator-{index}":
                short, across = frame.fitted(name, x)
                yield text(short, across, y + radius + 14, "label", "middle")
        yield "</g>"
