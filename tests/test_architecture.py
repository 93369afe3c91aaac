"""``docs/architecture.md`` and ``CONTRIBUTING.md``: drawings equal the imports, names are where they are said to be."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Final

import networkx as nx
import pytest

from tests.architecture import DRAWINGS, PAGE, drawing, folder_graph, graph_of, with_drawings
from tests.repository.sources import LAYERS, text_files

PAGES: Final = (PAGE, "CONTRIBUTING.md")
CODE: Final = re.compile(r"`([^`]+)`")
FILE: Final = re.compile(r"[\w/]+\.py")
FUNCTION: Final = re.compile(r"(?:(\w+)\.)?(\w+)\(\)")
NAME: Final = re.compile(r"[A-Z]\w+")


# --- drawings -------------------------------------------------------------------------------------------------------


def test_the_drawings_are_those_of_the_imports() -> None:
    page = text_files()[PAGE]
    assert with_drawings(page) == page, "python -m tests.architecture"
    assert all(drawing(name, graph_of(name)) in page for name in DRAWINGS)


@pytest.mark.parametrize("package", LAYERS)
def test_a_drawing_has_every_folder(package: str) -> None:
    assert set(graph_of(package)) == {folder for layer in LAYERS[package] for folder in layer}


def test_a_drawing_that_is_out_of_date_is_mended() -> None:
    page = text_files()[PAGE]
    stale = page.replace("    commands --> report\n", "    report --> commands\n")
    assert stale != page
    assert with_drawings(stale) == page


def test_what_follows_from_other_arrows_is_not_drawn() -> None:
    sources = {
        "p/a/x.py": "from p.b.y import f\nimport p.c.z",
        "p/b/y.py": "import p.c.z",
        "p/c/z.py": "import p.c.w",
        "p/c/w.py": "",
        "p/d/v.py": "",
    }
    graph = folder_graph(sources, 1)
    assert set(graph.edges) == {("a", "b"), ("a", "c"), ("b", "c")}
    assert drawing("p", graph).splitlines()[3:-1] == ["    a --> b", "    b --> c", "    d"]
    with pytest.raises(nx.NetworkXError):
        drawing("p", folder_graph(sources | {"p/d/v.py": "import p.a.x", "p/c/w.py": "import p.d.v"}, 1))


# --- names ----------------------------------------------------------------------------------------------------------


@cache
def definitions(path: str) -> frozenset[tuple[str, str]]:
    """Functions and methods of a file, each with its class (empty for a function)."""
    found: set[tuple[str, str]] = set()
    for node in ast.parse(text_files()[path]).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        owner = node.name if isinstance(node, ast.ClassDef) else ""
        found.update((owner, each.name) for each in inside if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(found)


def is_there(text: str, path: str) -> bool:
    """Whether what a page names is in a file: a function or method is defined in it, a name stands in it."""
    if found := FUNCTION.fullmatch(text):
        return (found[1] or "", found[2]) in definitions(path)
    return re.search(rf"\b{re.escape(text.rpartition('.')[2])}\b", text_files()[path]) is not None


def missing_names(page: str) -> Iterator[str]:
    """Names on a line with Python files that are in none of the line's files; functions on a line without any."""
    for number, line in enumerate(page.splitlines(), start=1):
        quoted = CODE.findall(line)
        paths = [each for each in quoted if FILE.fullmatch(each) and each in text_files()]
        for text in quoted:
            is_name = NAME.fullmatch(text) is not None and bool(paths)
            if (is_name or FUNCTION.fullmatch(text)) and not any(is_there(text, path) for path in paths):
                yield f"{number}: {text} is not in {', '.join(paths) or 'a file of this line'}"


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_where_it_says(page: str) -> None:
    assert list(missing_names(text_files()[page])) == []


@pytest.mark.parametrize(
    "line",
    [
        "| a step | `consensus/voting.py` | `VotingEngine._no_such()` |",
        "| a step | `consensus/voting.py` | `Simplex._finalize()` |",
        "| a step | `consensus/voting.py` | `handle()` |",
        "`NoSuchClass` of `consensus/voting.py`",
        "`KillFault` in `consensus/voting.py`",
        "`handle()` of nothing",
        "`handle()` of `consensus/no_such.py`",
    ],
)
def test_a_name_that_is_elsewhere_is_found(line: str) -> None:
    assert len(list(missing_names(line))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "`VotingEngine.handle()` and `Sizes` of `consensus/voting.py`",
        "`is_well_formed()` is in `consensus/messages.py`, `Simplex._finalize()` in `consensus/simplex.py`",
        "`make test` and `Message` stand alone",
    ],
)
def test_a_name_that_is_there_passes(line: str) -> None:
    assert list(missing_names(line)) == []
