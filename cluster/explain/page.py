"""An outline as a page: one HTML file that needs nothing else, neither network nor scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from markupsafe import Markup

from cluster.explain.distances import Distances
from cluster.explain.outline import Outline
from cluster.explain.picture import caption, picture
from cluster.explain.terminal import latency_table
from cluster.html import template_environment
from cluster.scenario import Scenario

TEMPLATES: Final = Path(__file__).resolve().parent.parent / "templates"
TEMPLATE: Final = "explain.html.j2"


def render_page(scenario: Scenario, found: Outline, apart: Distances, source: str) -> str:
    """The page as HTML; ``source`` is the scenario's file."""
    return (
        template_environment(TEMPLATES)
        .get_template(TEMPLATE)
        .render(
            outline=found,
            tables=list(found.tables),
            latencies=latency_table(apart),
            picture=Markup(picture(scenario)),
            caption=caption(scenario),
            source=source,
        )
    )
