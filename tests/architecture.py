"""The drawings of ``docs/architecture.md``, made from the imports: ``python -m tests.architecture`` writes them anew.

A drawing shows which package, or which folder of a package, imports which. An import that follows from others is left
out (the transitive reduction): where A imports B, and B imports C, no arrow shows that A imports C too.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

import networkx as nx

from tests.repository.sources import LAYERS, OURS, ROOT, is_python, module_graph, sources_of, text_files

PAGE: Final = "docs/architecture.md"
PACKAGES: Final = "packages"
DRAWINGS: Final = (PACKAGES, *LAYERS)
FENCE: Final = re.compile(r"```mermaid\nflowchart TD\n    %% (?P<name>\w+)\n.*?```", re.DOTALL)


def folder_graph(sources: dict[str, str], depth: int) -> nx.DiGraph[str]:
    """Which folders import which, at a depth of the tree: 0 for packages, 1 for folders of a package."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    for module, origins in module_graph(sources).items():
        parts = module.split(".")
        if len(parts) <= depth:
            continue
        graph.add_node(parts[depth])
        for origin in origins:
            target = origin.split(".")
            if len(target) > depth and target[depth] != parts[depth]:
                graph.add_edge(parts[depth], target[depth])
    return graph


def graph_of(name: str) -> nx.DiGraph[str]:
    """The graph of a drawing, by the drawing's name."""
    if name != PACKAGES:
        return folder_graph(sources_of(name), 1)
    packages = set(OURS) - {"tests"}
    first = {path: PurePosixPath(path).parts[0].removesuffix(".py") for path in text_files()}
    return folder_graph({p: text_files()[p] for p in first if is_python(p) and first[p] in packages}, 0)


def drawing(name: str, graph: nx.DiGraph[str]) -> str:
    """A graph without cycles as a Mermaid block. Folders without imports stand alone."""
    arrows = [f"    {one} --> {other}" for one, other in sorted(nx.transitive_reduction(graph).edges)]
    alone = [f"    {node}" for node in sorted(nx.isolates(graph))]
    return "\n".join(["```mermaid", "flowchart TD", f"    %% {name}", *arrows, *alone, "```"])


def with_drawings(page: str) -> str:
    """The page with every drawing as the imports have it now. Raises :class:`KeyError` for an unknown drawing."""
    drawings = {name: drawing(name, graph_of(name)) for name in DRAWINGS}
    return FENCE.sub(lambda found: drawings[found["name"]], page)


if __name__ == "__main__":
    path = ROOT / PAGE
    path.write_text(with_drawings(path.read_text(encoding="utf-8")), encoding="utf-8")
