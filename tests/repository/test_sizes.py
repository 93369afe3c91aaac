"""No folder holds too many entries, and no class has too many methods or attributes without a reason."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import PurePosixPath

from tests.repository.sources import LAYERS, WITHOUT_CIRCLES, is_python, text_files

MAX_ENTRIES = 12
"""Modules and folders in one folder, besides ``__init__.py``."""

MAX_METHODS, MAX_ATTRIBUTES = 30, 15

MAX_METHODS_OF_RECORD = 10
"""A class with so few methods whose attributes are all declared fields is a record: it may have any number of them."""

WIDE = {
    "Simulation": "puts one run together: an attribute for each part (clock, links, machines, stage, watches)",
    "Machine": "a machine's parts, and the calls by which the simulation hears of them, as fields",
    "HandlerContext": "an actor's view of the chain: one field for each thing that a handler may read or change",
    "Scenario": "a field for each section of a file, and the rules between sections",
    "Ledger": "the books of a chain, one attribute for each of its parts",
    "LiveStage": "all that a fault may do to a testnet, one method for each, and what another driver goes on with",
    "FaultEngine": "the life of a fault from its plan to its end, and what another process goes on with",
    "Hosts": "all that the driver asks of hosts: processes, signals, questions, and what another driver goes on with",
    "BiddingRound": "the rules and inputs of a block's queries, one field each",
}
"""Classes with more methods or attributes than others may have, each with its reason."""


def crowded(paths: Iterable[str]) -> dict[str, int]:
    """Folders of layered packages that have too many entries, and how many."""
    entries: dict[str, set[str]] = {}
    for path in paths:
        parts = PurePosixPath(path).parts
        for depth in range(1, len(parts)):
            if parts[0] in LAYERS and parts[depth] != "__init__.py" and is_python(path):
                entries.setdefault("/".join(parts[:depth]), set()).add(parts[depth])
    return {folder: len(names) for folder, names in entries.items() if len(names) > MAX_ENTRIES}


def test_no_folder_is_crowded() -> None:
    assert crowded(text_files()) == {}
    full = [f"cluster/common/{number}.py" for number in range(MAX_ENTRIES + 1)]
    assert crowded([*full, "cluster/common/__init__.py"]) == {"cluster/common": MAX_ENTRIES + 1}
    assert crowded(full[1:]) == {}


def wide_classes(source: str) -> dict[str, tuple[int, int]]:
    """Methods and attributes of each class that has too many of either."""
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            fields = {
                each.target.id
                for each in node.body
                if isinstance(each, ast.AnnAssign)
                and isinstance(each.target, ast.Name)
                and not ast.unparse(each.annotation).startswith("ClassVar")
            }
            own = {
                each.attr
                for method in methods
                for each in ast.walk(method)
                if isinstance(each, ast.Attribute)
                and isinstance(each.ctx, ast.Store)
                and ast.unparse(each.value) == "self"
            }
            is_record = own <= fields and len(methods) <= MAX_METHODS_OF_RECORD
            widths = len(methods), 0 if is_record else len(fields | own)
            if widths[0] > MAX_METHODS or widths[1] > MAX_ATTRIBUTES:
                found[node.name] = widths
    return found


def test_no_class_is_wide_without_a_reason() -> None:
    wide = {}
    for path, text in text_files().items():
        if is_python(path) and path.split("/")[0] in WITHOUT_CIRCLES:
            wide.update(wide_classes(text))
    assert wide.keys() == WIDE.keys()


def test_a_wide_class_is_found() -> None:
    methods = [f"    def m{number}(self): pass" for number in range(MAX_METHODS + 1)]
    assert wide_classes("\n".join(["class A:", *methods])) == {"A": (MAX_METHODS + 1, 0)}
    assert wide_classes("\n".join(["class A:", *methods[1:]])) == {}
    sets = "; ".join(f"self.a{number} = 0" for number in range(MAX_ATTRIBUTES + 1))
    assert wide_classes(f"class A:\n    def __init__(self): {sets}\n") == {"A": (1, MAX_ATTRIBUTES + 1)}
    fields = "".join(f"    a{number}: int\n" for number in range(MAX_ATTRIBUTES + 1))
    assert wide_classes(f"class A:\n{fields}") == {}, "a record"
