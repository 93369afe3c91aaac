"""No module and no folder imports another in a circle."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.repository.sources import WITHOUT_CIRCLES, Graph, module_graph, sources_of


def folder_graphs(graph: Graph) -> Iterator[Graph]:
    """For each folder which of its modules and folders import which others of them."""
    levels: dict[tuple[str, ...], Graph] = {}
    for module, origins in graph.items():
        for origin in origins:
            one, other = module.split("."), origin.split(".")
            depth = next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
            if depth is not None:
                level = levels.setdefault(tuple(one[:depth]), {})
                level.setdefault(".".join(one[: depth + 1]), set()).add(".".join(other[: depth + 1]))
    yield from levels.values()


def circle_in(graph: Graph) -> str:
    """A circle, if there is one."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " ← ".join(error.args[1])
    return ""


@pytest.mark.parametrize("package", WITHOUT_CIRCLES)
def test_no_modules_import_each_other_in_a_circle(package: str) -> None:
    graph = module_graph(sources_of(package))
    assert any(graph.values())
    assert circle_in(graph) == ""


@pytest.mark.parametrize("package", WITHOUT_CIRCLES)
def test_no_folders_import_each_other_in_a_circle(package: str) -> None:
    levels = list(folder_graphs(module_graph(sources_of(package))))
    assert levels
    assert [circle for level in levels if (circle := circle_in(level))] == []


@pytest.mark.parametrize(
    "texts",
    [
        {"a/b.py": "import a.c", "a/c.py": "from a import b"},
        {"a/b.py": "import a.c", "a/c.py": "from a.d import f", "a/d.py": "def f():\n    from a.b import g"},
        {"a/b.py": "if TYPE_CHECKING:\n    from a.c import C", "a/c.py": "import a.b"},
        {"a/__init__.py": "from a.b import B", "a/b.py": "from a import C"},
        {"a/b/__init__.py": "from .c import C", "a/b/c.py": "import a.d", "a/d.py": "from a.b import C"},
    ],
)
def test_a_circle_of_modules_is_found(texts: dict[str, str]) -> None:
    assert " ← " in circle_in(module_graph(texts))


@pytest.mark.parametrize(
    "texts",
    [
        {"a/b/c.py": "import a.d.e", "a/d/f.py": "import a.b.g", "a/d/e.py": "", "a/b/g.py": ""},
        {"a/b/c.py": "import a.d", "a/d.py": "import a.b.e", "a/b/e.py": ""},
        {"a/x/b/c.py": "import a.x.d.e", "a/x/d/f.py": "import a.x.b.g", "a/x/d/e.py": "", "a/x/b/g.py": ""},
    ],
)
def test_a_circle_of_folders_is_found(texts: dict[str, str]) -> None:
    graph = module_graph(texts)
    assert circle_in(graph) == ""
    assert any(map(circle_in, folder_graphs(graph)))


def test_what_is_no_circle_passes() -> None:
    texts = {
        "a/__init__.py": "import b",
        "a/c.py": "from a import d\nimport a.e.f",
        "a/d.py": "",
        "a/e/f.py": "import a.d",
    }
    graph = module_graph(texts)
    assert graph == {"a": set(), "a.c": {"a.d", "a.e.f"}, "a.d": set(), "a.e.f": {"a.d"}}
    assert not circle_in(graph) and not any(map(circle_in, folder_graphs(graph)))
