"""An outline as a page: one HTML file that needs nothing else, in the reports' style."""

from __future__ import annotations

from markupsafe import Markup

from cluster.report.page import render_page
from cluster.scenario import Scenario
from cluster.tools.explain.distances import Distances
from cluster.tools.explain.outline import Outline
from cluster.tools.explain.picture import NARROW, caption, picture
from cluster.tools.explain.terminal import latency_table


def render_outline(scenario: Scenario, found: Outline, apart: Distances, source: str) -> str:
    """The page as HTML; ``source`` is the scenario's file."""
    return render_page(
        "explain.html.j2",
        outline=found,
        tables=list(found.tables),
        latencies=latency_table(apart),
        picture=Markup(picture(scenario)),
        narrow_picture=Markup(picture(scenario, NARROW)),
        caption=caption(scenario),
        source=source,
    )
