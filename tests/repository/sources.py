"""The text files of the repository, what their imports name, and its layers."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from fnmatch import fnmatch
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]

IGNORED_FOLDERS = ("runs", "build", "__pycache__", "*.egg-info", ".?*")

KEPT_FOLDERS = (".ci", ".github")

OURS = (
    "actors",
    "benchmarks",
    "cluster",
    "consensus",
    "k8s",
    "kits",
    "loadgen",
    "spec",
    "stampede",
    "stampede_command",
    "stampede_pytest",
    "tests",
    "validator",
)

LAYERS = {
    "cluster": (
        ("common",),
        ("misbehaviour",),
        ("scenario",),
        ("record", "disks"),
        ("faults", "audit"),
        ("run",),
        ("checks",),
        ("local_chain", "simulation", "live"),
        ("watches",),
        ("report", "tables"),
        ("commands",),
    ),
    "kits": (("actors", "conform", "explore", "kubernetes", "market", "measure", "mutation", "tracing"),),
    "validator": (
        ("primitives",),
        ("chain",),
        ("storage",),
        ("state",),
        ("pvm",),
        ("scheduler",),
        ("execution",),
        ("policies",),
        ("transition",),
        ("node",),
    ),
}
"""The folders of a package, lowest first: each imports from those of the layers before it alone."""

WITHOUT_CIRCLES = ("cluster", "consensus", "kits", "loadgen", "spec", "validator")
"""Packages whose modules stand in one order, and what lies in one folder at every level, too. Imports for types
count."""


@cache
def text_files() -> dict[str, str]:
    """Every text file of the tree by its path from the root, whether Git knows it yet or not."""
    found = {}
    for path in sorted(_walk(ROOT)):
        content = path.read_bytes()
        if b"\0" not in content:
            found[path.relative_to(ROOT).as_posix()] = content.decode("utf-8")
    return found


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_file():
            if path.name != ".git":  # where a linked worktree has its repository
                yield path
        elif path.is_dir() and (path.name in KEPT_FOLDERS or not _is_ignored(path.name)):
            yield from _walk(path)


def _is_ignored(folder: str) -> bool:
    return any(fnmatch(folder, pattern) for pattern in IGNORED_FOLDERS)


def is_in(path: str, *folders: str) -> bool:
    """Whether a path is one of the folders, or lies in one."""
    return any(PurePosixPath(path).is_relative_to(folder) for folder in folders)


def is_python(path: str) -> bool:
    return path.endswith(".py")


def is_pure(path: str) -> bool:
    return is_python(path) and is_in(path, "consensus", "spec", "validator")


LINK_MODEL = "cluster/faults/link_model.py"
"""The links of the simulator and of live hosts, which draw what they lose."""


def touches_nothing(path: str) -> bool:
    """Whether a module is a function of what it is given: pure code; the loop of a run and its faults, whose times are
    floats."""
    is_of_a_run = is_in(path, "cluster/run") or (is_in(path, "cluster/faults") and path != LINK_MODEL)
    return is_pure(path) or (is_python(path) and is_of_a_run)


def is_test(path: str) -> bool:
    return is_python(path) and is_in(path, "tests")


@lru_cache(maxsize=1)
def parsed(source: str) -> tuple[ast.Module, tuple[ast.AST, ...]]:
    """A source's tree and all its nodes. Kept while one file is looked at: all rules read it then."""
    tree = ast.parse(source)
    return tree, tuple(ast.walk(tree))


@cache
def imports(path: str, source: str) -> tuple[tuple[int, str], ...]:
    """Every import of a source, by line, as a full dotted name; also those by name at run time."""
    return tuple(_imports(path, source))


def _imports(path: str, source: str) -> Iterator[tuple[int, str]]:
    package = PurePosixPath(path).parent.parts
    for node in parsed(source)[1]:
        match node:
            case ast.Import():
                yield from ((node.lineno, alias.name) for alias in node.names)
            case ast.ImportFrom(module=module, level=level):
                parents = package[: len(package) + 1 - level] if level else ()
                origin = ".".join([*parents, *([module] if module else [])])
                yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]) if _importer(function):
                yield node.lineno, name


def _importer(function: ast.expr) -> bool:
    return isinstance(function, ast.Name | ast.Attribute) and name_of(function) in ("import_module", "__import__")


def name_of(function: ast.expr) -> str:
    """The last part of a dotted name, empty where it is none."""
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def belongs_to(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def sources_of(package: str) -> dict[str, str]:
    return {path: text for path, text in text_files().items() if is_in(path, package) and is_python(path)}


# --- graphs ----------------------------------------------------------------------------------------------------------

Graph = dict[str, set[str]]


def module_graph(sources: dict[str, str]) -> Graph:
    """Which of these modules each of them imports."""
    paths = {PurePosixPath(path).with_suffix("").as_posix().removesuffix("/__init__"): path for path in sources}
    modules = {name.replace("/", "."): path for name, path in paths.items()}
    graph: Graph = {}
    for module, path in modules.items():
        origins = {_longest_of(modules, name) for _, name in imports(path, sources[path])}
        graph[module] = origins - {module, ""}
    return graph


def _longest_of(modules: Collection[str], name: str) -> str:
    """The module that a name stands in; empty where it is none of these."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name
