"""The rules that hold for the whole repository: who imports whom, what pure code may not do, what files may not say.

A rule is a function that takes a file's path and text and yields what is wrong, as ``(line, reason)``. Each rule is run
over every file that it is about, and over planted faults, which it must find.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache, lru_cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import metadata, packages_distributions
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
IGNORED_FOLDERS = ("runs", "build", "__pycache__", "*.egg-info", ".?*")
KEPT_FOLDERS = (".ci", ".github")

Finding = tuple[int, str]
Check = Callable[[str, str], Iterator[Finding]]


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


# --- imports --------------------------------------------------------------------------------------------------------

OURS = (
    "actors",
    "benchmarks",
    "cluster",
    "consensus",
    "k8s",
    "loadgen",
    "stampede",
    "stampede_command",
    "tests",
    "validator",
)

ENCODING = (
    "validator.primitives.codec",
    "validator.primitives.errors",
    "validator.chain.genesis",
    "validator.primitives.params",
    "validator.pvm.runtime.values",
    "validator.chain.transactions",
    "validator.primitives.types",
)
"""What of the validator a client may know: how to write a transaction and its payload, and what a genesis holds."""

MAY_IMPORT = {
    "consensus": ("consensus",),
    "validator": ("consensus", "validator"),
    "loadgen/workloads": ("loadgen.workloads", *ENCODING),
    "loadgen": ("loadgen", *ENCODING),
    "cluster": ("cluster", "consensus", "validator", "loadgen.workloads", "loadgen.client", "loadgen.runplan"),
    "k8s": ("k8s",),
    "actors": ("actors",),
}
"""For each folder what it may import of ours; the first folder that holds a file decides."""

AUDITOR = (
    "cluster/audit/books.py",
    "cluster/audit/chain_codec.py",
    "cluster/audit/ended_ids.py",
    "cluster/audit/fee_market.py",
    "cluster/audit/served/chains.py",
    "cluster/audit/ledger/accounts.py",
    "cluster/audit/ledger/agent_queries.py",
    "cluster/audit/block_metrics.py",
    "cluster/audit/ledger/chain_rules.py",
    "cluster/audit/ledger/context.py",
    "cluster/audit/ledger/jobs.py",
    "cluster/audit/ledger/ledger.py",
    "cluster/audit/ledger/messages.py",
    "cluster/audit/ledger/phase_rules.py",
    "cluster/audit/ledger/script_runs.py",
    "cluster/audit/ledger/timer_phase.py",
    "cluster/audit/ledger/timer_register.py",
    "cluster/audit/scripts/limits.py",
    "cluster/audit/scripts/reading.py",
    "cluster/audit/scripts/running.py",
)
"""The books, which are kept a second time."""

SHARED_WITH_THE_AUDITOR = (
    # what a chain is: its genesis, parameters, kinds of quantities
    "validator.chain.genesis.Genesis",
    "validator.primitives.params",
    "validator.primitives.types",
    # costs of queries
    "validator.execution.bidding.MIN_QUERY_CYCLES",
    "validator.execution.bidding.UNPAID_QUERY_CYCLES",
    # names
    "validator.execution.runner_contract.REGISTER_RUNNER",
    "validator.execution.runner_contract.SUBMIT_RESULT",
    "validator.execution.runner_contract.UNREGISTER_RUNNER",
    "validator.chain.transactions.SCRIPT_CODE",
    # what a text of a governance instruction says, and whether a program bids
    "validator.primitives.errors.BadScript",
    "validator.pvm.compiler.programs.compiled",
    "validator.pvm.language.subset.ProgramError",
    "validator.primitives.script_json",
)
"""All that the books have in common with the transition that they judge. A bug in any of it is on both sides."""

LAYERS = {
    "cluster": (
        ("common",),
        ("misbehaviour",),
        ("scenario",),
        ("record", "disks"),
        ("faults", "audit"),
        ("checks",),
        ("simulation", "live"),
        ("report",),
        ("tools",),
    ),
    "validator": (
        ("primitives",),
        ("chain",),
        ("storage",),
        ("state",),
        ("pvm",),
        ("scheduler",),
        ("execution",),
        ("transition",),
        ("node",),
    ),
}
"""The folders of a package, lowest first: each imports from those of the layers before it alone."""

STRANGERS = {"simulation": ("checks",), "live": ("checks",)}
"""Folders of lower layers that a folder does not import either: a driver does not judge."""

MAX_ENTRIES = 12
"""Modules and folders in one folder, besides ``__init__.py``."""

FOREIGN = {
    "ray": ("cluster/live", "tests", "benchmarks"),
    "locust": ("loadgen", "tests"),
    "gevent": ("loadgen", "tests"),
    "geventhttpclient": ("loadgen", "tests"),
}
"""Libraries that only some folders may import."""

OF_LOAD_BUT_PLAIN = ("loadgen/workloads", "loadgen/client.py", "loadgen/runplan.py")
"""What the cluster imports of the load generator: free of Locust and of gevent, which patch the process."""

IMPURE = frozenset(
    {
        "asyncio",
        "concurrent",
        "ctypes",
        "datetime",
        "http",
        "multiprocessing",
        "os",
        "platform",
        "queue",
        "random",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "ssl",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "urllib",
        "uuid",
    }
)
"""Modules through which a clock, a network, a thread, a file or chance could reach pure code."""


def is_in(path: str, *folders: str) -> bool:
    """Whether a path is one of the folders, or lies in one."""
    return any(PurePosixPath(path).is_relative_to(folder) for folder in folders)


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
    return isinstance(function, ast.Name | ast.Attribute) and _name_of(function) in ("import_module", "__import__")


def _name_of(function: ast.expr) -> str:
    """The last part of a dotted name, empty where it is none."""
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def belongs_to(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def imports_point_one_way(path: str, source: str) -> Iterator[Finding]:
    """``consensus`` ← ``validator`` ← ``cluster``; ``loadgen`` knows the encoding only; nothing imports tests."""
    allowed = next((MAY_IMPORT[folder] for folder in MAY_IMPORT if is_in(path, folder)), None)
    for line, module in imports(path, source):
        if not belongs_to(module, *OURS):
            continue
        if allowed is not None and not belongs_to(module, *allowed):
            yield line, f"imports {module}; may import {', '.join(allowed)}"
        elif belongs_to(module, "tests") and not is_in(path, "tests"):
            yield line, f"imports {module}, a test"


def is_layered(path: str) -> bool:
    package, *folders = PurePosixPath(path).parent.parts or ("",)
    return is_python(path) and package in LAYERS and bool(folders)


def folders_import_from_lower_layers(path: str, source: str) -> Iterator[Finding]:
    """Folders of a package stand in layers, and imports point down."""
    package, folder = PurePosixPath(path).parts[:2]
    layers = {name: number for number, names in enumerate(LAYERS[package]) for name in names}
    if folder not in layers:
        yield 1, f"{package}/{folder} has no place among the layers"
        return
    for line, module in imports(path, source):
        origin, target = [*module.split("."), ""][:2]
        if origin != package or target not in layers or target == folder:
            continue
        if layers[target] >= layers[folder] or target in STRANGERS.get(folder, ()):
            yield line, f"imports {module}, from no layer below {package}/{folder}"


def packages_have_no_modules_in_their_root(path: str, source: str) -> Iterator[Finding]:
    """A module of a layered package stands in one of its folders."""
    folder, name = PurePosixPath(path).parent, PurePosixPath(path).name
    if folder.as_posix() in LAYERS and name != "__init__.py":
        yield 1, f"stands in the root of {folder}/"


def the_auditor_shares_a_stated_list(path: str, source: str) -> Iterator[Finding]:
    """The books use nothing of the validators but what stands in one list."""
    for line, module in imports(path, source):
        if belongs_to(module, "consensus", "validator") and not belongs_to(module, *SHARED_WITH_THE_AUDITOR):
            yield line, f"imports {module}, which the auditor must not share with what it audits"


def libraries_stay_in_their_place(path: str, source: str) -> Iterator[Finding]:
    """Ray under ``cluster/live``, Locust and gevent in what of ``loadgen`` nobody else imports."""
    for line, module in imports(path, source):
        for library, folders in FOREIGN.items():
            if belongs_to(module, library) and (not is_in(path, *folders) or is_in(path, *OF_LOAD_BUT_PLAIN)):
                yield line, f"imports {module}, which belongs under {' or '.join(folders)}"


WITH_ANOTHER = {
    "gevent": "locust",
    "geventhttpclient": "locust",
    "markupsafe": "jinja2",
    "pydantic_core": "pydantic",
    "websocket": "kubernetes",
}
"""Packages that come with another, of which they are a part in all but name."""


@cache
def distributions() -> dict[str, frozenset[str]]:
    """Which installed packages hold a top-level module."""
    return {name: frozenset(map(canonicalize_name, held)) for name, held in packages_distributions().items()}


@cache
def declared_names(is_for_development: bool) -> frozenset[str]:
    wanted = [*declared(), *(declared("dev") if is_for_development else [])]
    return frozenset(canonicalize_name(each.name) for each in wanted)


def imports_are_declared(path: str, source: str) -> Iterator[Finding]:
    """What is imported is a dependency by name, not something that another package happens to need."""
    for line, module in imports(path, source):
        name = module.partition(".")[0]
        beside = PurePosixPath(path).with_name(f"{name}.py").as_posix()
        if name in sys.stdlib_module_names or name in OURS or (is_in(path, "benchmarks") and beside in text_files()):
            continue
        held = distributions().get(WITH_ANOTHER.get(name, name), frozenset())
        if not held & declared_names(is_in(path, "tests", "benchmarks")):
            yield line, f"imports {name}, which pyproject.toml does not name"


def pure_code_imports_nothing_impure(path: str, source: str) -> Iterator[Finding]:
    """No clock, network, thread, file or chance in ``consensus`` and ``validator``."""
    for line, module in imports(path, source):
        if module.partition(".")[0] in IMPURE or belongs_to(module, "numpy.random"):
            yield line, f"imports {module}"


# --- pure code ------------------------------------------------------------------------------------------------------

IMPURE_CALLS = frozenset({"breakpoint", "eval", "exec", "id", "input", "open", "print"})


def pure_code_has_no_floats(path: str, source: str) -> Iterator[Finding]:
    """No float takes part in consensus: no literal, no true division, no conversion."""
    for node in parsed(source)[1]:
        match node:
            case ast.Constant(value=float() | complex()):
                yield node.lineno, f"float literal {node.value!r}"
            case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
                yield node.lineno, "true division"
            case ast.Call(func=ast.Name(id="float" | "complex" as name)):
                yield node.lineno, f"call of {name}()"


def pure_code_calls_nothing_impure(path: str, source: str) -> Iterator[Finding]:
    """No ``open``, ``print``, ``id`` …; and no ``hash``, which differs from process to process, but in ``__hash__``."""
    nodes = parsed(source)[1]
    inside = {
        id(node)
        for function in nodes
        if isinstance(function, ast.FunctionDef) and function.name == "__hash__"
        for node in ast.walk(function)
    }
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            if name in IMPURE_CALLS or (name == "hash" and id(node) not in inside):
                yield node.lineno, f"call of {name}()"


# --- all code -------------------------------------------------------------------------------------------------------


def failures_are_named(path: str, source: str) -> Iterator[Finding]:
    """No bare ``except``."""
    for node in parsed(source)[1]:
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield node.lineno, "bare except"


def is_program(path: str) -> bool:
    """Whether a file is the program of an actor: in another language, which looks like this one."""
    return path.startswith("actors/")


def modules_say_what_they_are(path: str, source: str) -> Iterator[Finding]:
    """Every module that holds anything has a docstring; an actor's program says it in its class."""
    tree: ast.Module | ast.ClassDef = parsed(source)[0]
    if tree.body and is_program(path) and isinstance(tree.body[0], ast.ClassDef):
        tree = tree.body[0]
    if tree.body and ast.get_docstring(tree) is None:
        yield 1, "no module docstring"


def suites_never_sleep(path: str, source: str) -> Iterator[Finding]:
    """Tests advance a clock, or wait for an event."""
    for node in parsed(source)[1]:
        if isinstance(node, ast.Call) and _name_of(node.func) == "sleep":
            yield node.lineno, "sleeps"


def suites_can_fail(path: str, source: str) -> Iterator[Finding]:
    """No assertion of a constant, no test that is skipped for good."""
    for node in parsed(source)[1]:
        match node:
            case ast.Assert(test=ast.Constant(value=value)) if value:
                yield node.lineno, f"asserts {value!r}"
            case ast.Assert(test=ast.Tuple(elts=[_, *_])):
                yield node.lineno, "asserts a tuple"
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                decorators = [ast.unparse(each) for each in node.decorator_list]
                if any(re.match(r"pytest\.mark\.skip\b(?!if)", each) for each in decorators):
                    yield node.lineno, "is skipped for good"


# --- all texts ------------------------------------------------------------------------------------------------------

INDEX_ADDRESS = re.compile(
    r"--(?:extra-)?index[-]url\b|--find[-]links\b|\b(?:PIP|UV)_\w*INDEX\w*\s*=|resolved\s\"?https?:|\bregistry\s*=\s*\"?https?:"
)
HOME_PATH = re.compile(r"(?<![\w.~}-])/(?:home|root|Users|work)/[\w.]")


def texts_name_no_package_index(path: str, source: str) -> Iterator[Finding]:
    """Which index packages come from is the user's configuration."""
    yield from _lines_with(INDEX_ADDRESS, source, "names a package index")


def texts_name_no_home(path: str, source: str) -> Iterator[Finding]:
    """No path that exists on one machine only."""
    yield from _lines_with(HOME_PATH, source, "absolute path of a machine")


def _lines_with(pattern: re.Pattern[str], source: str, reason: str) -> Iterator[Finding]:
    for number, line in enumerate(source.splitlines(), start=1):
        if found := pattern.search(line):
            yield number, f"{reason}: {found[0]}"


# --- rules and their planted faults ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """A check, the files that it is about, and what it must and must not find, as (path, text)."""

    check: Check
    about: Callable[[str], bool]
    faults: tuple[tuple[str, str], ...]
    fine: tuple[tuple[str, str], ...] = ()


def is_python(path: str) -> bool:
    return path.endswith(".py")


def is_pure(path: str) -> bool:
    return is_python(path) and is_in(path, "consensus", "validator")


def is_test(path: str) -> bool:
    return is_python(path) and is_in(path, "tests")


SLEEP = "sleep"
INDEX = "--index" + "-url"
HOME = "/" + "home"

RULES = (
    Rule(
        imports_point_one_way,
        is_python,
        faults=(
            ("consensus/a.py", "import validator"),
            ("consensus/a.py", "from validator.primitives.types import Height"),
            ("consensus/a.py", "def f():\n    from cluster import scenario"),
            ("validator/a.py", "from cluster.scenario import Scenario"),
            ("validator/state/a.py", "from ...loadgen import client"),
            ("validator/a.py", "import importlib\nimportlib.import_module('cluster.common.errors')"),
            ("loadgen/a.py", "from validator.node.node import Node"),
            ("loadgen/a.py", "from validator import node"),
            ("loadgen/a.py", "import cluster.common.errors"),
            ("loadgen/a.py", "from consensus.types import View"),
            ("loadgen/workloads/a.py", "from loadgen.client import Client"),
            ("cluster/a.py", "from loadgen.locustfile import User"),
            ("cluster/a.py", "from tests.consensus.network import Network"),
            ("stampede.py", "import tests.consensus"),
        ),
        fine=(
            ("consensus/a.py", "from consensus.types import View\nfrom .types import View\nimport msgspec"),
            ("validator/a.py", "from consensus.types import View\nfrom validator import types"),
            ("validator/state/a.py", "from ..types import Height"),
            ("loadgen/a.py", "from validator.chain import transactions\nfrom loadgen.workloads import LoadPlan"),
            (
                "cluster/live/a.py",
                "from loadgen.client import Client\nfrom loadgen.runplan import RunPlan\nimport loadgen.workloads",
            ),
            ("tests/a.py", "import cluster, consensus, loadgen, validator, tests.consensus"),
        ),
    ),
    Rule(
        folders_import_from_lower_layers,
        is_layered,
        faults=(
            ("validator/state/a.py", "import validator.scheduler.index"),
            ("validator/pvm/runtime/a.py", "from validator import execution"),
            ("validator/state/a.py", "if TYPE_CHECKING:\n    from validator.pvm.runtime.machine import Vm"),
            ("validator/state/engines/a.py", "def f():\n    from ...pvm import api"),
            ("validator/attic/a.py", ""),
            ("validator/storage/a.py", "import validator.state"),
            ("cluster/common/a.py", "from cluster.scenario import Scenario"),
            ("cluster/simulation/a.py", "from cluster.live.driver import driver"),
            ("cluster/live/a.py", "from cluster.checks.run import check_run"),
            ("cluster/record/a.py", "def f():\n    from cluster.disks import memory"),
            ("cluster/checks/a.py", "if TYPE_CHECKING:\n    from cluster.tools.drills.base import Drill"),
        ),
        fine=(
            ("validator/pvm/a.py", "from validator.state import View\nfrom validator.pvm import api\nimport validator"),
            ("validator/scheduler/a.py", "from validator.pvm.language.api import GAS_BID\nfrom consensus import state"),
        ),
    ),
    Rule(
        packages_have_no_modules_in_their_root,
        is_python,
        faults=(("cluster/a.py", ""), ("validator/a.py", "")),
        fine=(("cluster/__init__.py", ""), ("cluster/common/a.py", ""), ("consensus/a.py", "")),
    ),
    Rule(
        libraries_stay_in_their_place,
        is_python,
        faults=(
            ("cluster/a.py", "import ray"),
            ("cluster/simulation/a.py", "from ray.util import placement_group"),
            ("validator/a.py", "import ray"),
            ("stampede.py", "def f():\n    import ray"),
            ("cluster/live/a.py", "import locust"),
            ("loadgen/workloads/a.py", "from locust import FastHttpUser"),
            ("loadgen/workloads/a.py", "import gevent.pool"),
            ("loadgen/client.py", "from geventhttpclient import HTTPClient"),
            ("loadgen/runplan.py", "import locust"),
        ),
        fine=(
            ("cluster/live/a.py", "import ray\nfrom ray.util import state"),
            ("loadgen/a.py", "import gevent\nfrom locust.contrib.fasthttp import FastHttpUser"),
            ("cluster/a.py", "import rayleigh"),
        ),
    ),
    Rule(
        the_auditor_shares_a_stated_list,
        lambda path: path in AUDITOR,
        faults=(
            ("cluster/audit/ledger/ledger.py", "from validator.primitives.codec import decode"),
            ("cluster/audit/ledger/timer_phase.py", "from validator.chain.block import FireReceipt"),
            ("cluster/audit/ledger/timer_phase.py", "import validator.execution.timer_phase"),
            ("cluster/audit/ledger/jobs.py", "from validator import jobs"),
            ("cluster/audit/books.py", "from consensus.certificates import verify_signed"),
        ),
        fine=(
            (
                "cluster/audit/ledger/ledger.py",
                "from validator.primitives.params import Parameters\nfrom validator.primitives import script_json",
            ),
            (
                "cluster/audit/ledger/agent_queries.py",
                "from validator.pvm.compiler.programs import compiled\nimport msgpack",
            ),
        ),
    ),
    Rule(
        imports_are_declared,
        is_python,
        faults=(
            ("cluster/a.py", "import attr"),
            ("cluster/a.py", "from flask import Flask"),
            ("cluster/a.py", "import pytest"),
            ("validator/a.py", "import no_such_package"),
        ),
        fine=(
            (
                "cluster/a.py",
                "import os.path, yaml, nacl.signing\nfrom Crypto.Hash import keccak\nfrom cluster import errors",
            ),
            ("tests/a.py", "import hypothesis, pytest, ray"),
            ("loadgen/a.py", "from gevent.pool import Pool"),
        ),
    ),
    Rule(
        pure_code_imports_nothing_impure,
        is_pure,
        faults=(
            *(("validator/a.py", f"import {module}") for module in sorted(IMPURE)),
            ("consensus/a.py", "from os.path import join"),
            ("consensus/a.py", "import numpy.random"),
            ("consensus/a.py", "from numpy import random"),
            ("consensus/a.py", "if True:\n    from time import monotonic"),
        ),
        fine=(
            ("consensus/a.py", "import hashlib, heapq, numpy\nfrom collections import deque\nfrom typing import Final"),
        ),
    ),
    Rule(
        pure_code_has_no_floats,
        is_pure,
        faults=(
            ("validator/a.py", "share = 0.5"),
            ("validator/a.py", "def f(a=1e3): ..."),
            ("validator/a.py", "x = a / b"),
            ("validator/a.py", "x /= 2"),
            ("validator/a.py", "x = float(y)"),
            ("validator/a.py", "x = 1j"),
        ),
        fine=(("validator/a.py", '"""0.5 / 2"""\nx = a // b\nx //= 2\ny = 10**24\nz: float'),),
    ),
    Rule(
        pure_code_calls_nothing_impure,
        is_pure,
        faults=(
            ("validator/a.py", "open('state')"),
            ("validator/a.py", "print(1)"),
            ("validator/a.py", "order = sorted(timers, key=lambda timer: hash(timer))"),
            ("validator/a.py", "order = id(timer)"),
        ),
        fine=(
            ("validator/a.py", "disk.open('state')\nclass A:\n    def __hash__(self):\n        return hash(self.key)"),
        ),
    ),
    Rule(
        failures_are_named,
        is_python,
        faults=(("a.py", "try:\n    f()\nexcept:\n    raise"),),
        fine=(("a.py", "try:\n    f()\nexcept ValueError:\n    pass"),),
    ),
    Rule(
        modules_say_what_they_are,
        is_python,
        faults=(("a.py", "x = 1"), ("actors/a.py", "class A(Actor):\n    x = 1")),
        fine=(
            ("actors/a.py", 'class A(Actor):\n    """What it is."""'),
            ("a.py", ""),
            ("a.py", '"""What it is."""\nx = 1'),
        ),
    ),
    Rule(
        suites_never_sleep,
        is_test,
        faults=(
            ("tests/a.py", f"import time\ntime.{SLEEP}(1)"),
            ("tests/a.py", f"from time import {SLEEP}\n{SLEEP}(0.1)"),
            ("tests/a.py", f"async def test_a():\n    await asyncio.{SLEEP}(0)"),
            ("tests/a.py", f"gevent.{SLEEP}()"),
        ),
        fine=(("tests/a.py", "clock.advance(1)\nprocess.wait(timeout=5)"),),
    ),
    Rule(
        suites_can_fail,
        is_test,
        faults=(
            ("tests/a.py", "def test_a():\n    assert " + "True"),
            ("tests/a.py", "assert 1"),
            ("tests/a.py", "assert (x == 1, 'x is wrong')"),
            ("tests/a.py", "@pytest.mark." + "skip\ndef test_a(): ..."),
            ("tests/a.py", "@pytest.mark." + "skip(reason='later')\nclass TestA: ..."),
        ),
        fine=(
            (
                "tests/a.py",
                "@pytest.mark.skipif(x, reason='no Chromium')\ndef test_a():\n    assert x\n    assert False",
            ),
        ),
    ),
    Rule(
        texts_name_no_package_index,
        lambda path: True,
        faults=(
            ("requirements.lock", f"{INDEX} https://example.org/simple"),
            ("Makefile", "pip install --find" + "-links wheels -r requirements.lock"),
            ("k8s/Dockerfile", "ENV PIP_INDEX" + "_URL=https://example.org/simple"),
            ("package-lock.json", "resolved" + ' "https://example.org/a.tgz"'),
        ),
        fine=(("Makefile", "uv pip compile --no-emit-index-url pyproject.toml"),),
    ),
    Rule(
        texts_name_no_home,
        lambda path: True,
        faults=(
            ("README.md", f"cd {HOME}/somebody/stampede"),
            ("a.py", f"'{HOME}/a'"),
            ("a.py", "'/" + "root/.cache'"),
        ),
        fine=(("README.md", f"https://example.org{HOME}/page, ~{HOME}/a and /tmp/x"),),
    ),
)


def rule_name(rule: Rule) -> str:
    return rule.check.__name__


@cache
def findings() -> dict[str, list[str]]:
    """What each rule finds in the tree, if it is about any file. File by file, so that each is parsed once."""
    found: dict[str, list[str]] = {}
    for path, text in text_files().items():
        for rule in RULES:
            if rule.about(path):
                lines = found.setdefault(rule_name(rule), [])
                lines += [f"{path}:{line}: {why}" for line, why in rule.check(path, text)]
    return found


@pytest.mark.parametrize("rule", RULES, ids=rule_name)
def test_rule_holds(rule: Rule) -> None:
    found = findings()
    assert rule_name(rule) in found, "it is about no file"
    assert not found[rule_name(rule)], "\n".join(found[rule_name(rule)])


@pytest.mark.parametrize("rule", RULES, ids=rule_name)
def test_rule_finds_planted_faults(rule: Rule) -> None:
    for path, text in rule.faults:
        assert rule.about(path) or path == "a.py", path
        assert list(rule.check(path, text)), f"not found in {path}: {text}"


@pytest.mark.parametrize("rule", RULES, ids=rule_name)
def test_rule_lets_fine_code_pass(rule: Rule) -> None:
    for path, text in rule.fine:
        assert list(rule.check(path, text)) == [], f"{path}: {text}"


# --- sizes of folders -------------------------------------------------------------------------------------------------


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


MAX_METHODS, MAX_ATTRIBUTES = 30, 15
MAX_METHODS_OF_RECORD = 10
"""A class with so few methods whose attributes are all declared fields is a record: it may have any number of them."""

WIDE = {
    "Simulation": "puts one run together: an attribute for each part (clock, links, machines, stage, watches)",
    "Machine": "a machine's parts, and the calls by which the simulation hears of them, as fields",
    "HandlerContext": "an actor's view of the chain: one field for each thing that a handler may read or change",
    "Scenario": "a field for each section of a file, and the rules between sections",
    "Ledger": "the books of a chain, one attribute for each of its parts",
    "BiddingRound": "the rules and inputs of a block's queries, one field each",
}
"""Classes with more methods or attributes than others may have, each with its reason."""


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


# --- import circles -------------------------------------------------------------------------------------------------

WITHOUT_CIRCLES = ("cluster", "consensus", "loadgen", "validator")
"""Packages whose modules stand in one order, and what lies in one folder at every level, too. Imports for types
count."""

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


def sources_of(package: str) -> dict[str, str]:
    return {path: text for path, text in text_files().items() if is_in(path, package) and is_python(path)}


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


# --- dependencies ---------------------------------------------------------------------------------------------------

LOCKS = {"requirements.lock": "build", "requirements-dev.lock": "dev", "k8s/requirements.lock": "image"}
"""Each lock and the dependency group that it holds besides the project's own dependencies."""


def declared(group: str | None = None) -> list[Requirement]:
    """The requirements in ``pyproject.toml``: the project's dependencies, or a group's with those that it includes."""
    project = tomllib.loads(text_files()["pyproject.toml"])
    if group is None:
        return [Requirement(line) for line in project["project"]["dependencies"]]
    entries = project["dependency-groups"][group]
    included = [each for entry in entries if isinstance(entry, dict) for each in declared(entry["include-group"])]
    return [*included, *(Requirement(entry) for entry in entries if isinstance(entry, str))]


def lock_entries(lock: str) -> list[list[str]]:
    """A lock's entries: the requirement, then its options."""
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^\s*#.*\n", "", lock, flags=re.MULTILINE))
    return [re.split(r"\s+(?=--)", line.strip()) for line in joined.splitlines() if line.strip()]


def pinned(lock: str) -> dict[str, set[str]]:
    """The versions that a lock pins, by package; more than one where Python's version decides."""
    versions: dict[str, set[str]] = {}
    for entry, *_ in lock_entries(lock):
        requirement = Requirement(entry)
        versions.setdefault(canonicalize_name(requirement.name), set()).update(s.version for s in requirement.specifier)
    return versions


def lock_problems(lock: str, wanted: list[Requirement]) -> list[str]:
    """What a lock does not pin, does not hash, or does not hold."""
    problems = []
    for entry, *options in lock_entries(lock):
        if not re.match(r"[\w.-]+==[\w.!+]+(\s*;|$)", entry):
            problems.append(f"{entry}: not pinned to a version")
        if not options or not all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", option) for option in options):
            problems.append(f"{entry}: without hashes")
    if problems:
        return problems
    versions = pinned(lock)
    for requirement in wanted:
        held = versions.get(canonicalize_name(requirement.name), set())
        if not held or not all(requirement.specifier.contains(version) for version in held):
            problems.append(f"{requirement}: the lock holds {', '.join(sorted(held)) or 'none'}")
    return problems


@pytest.mark.parametrize(("lock", "group"), LOCKS.items())
def test_lock_pins_hashes_and_holds_everything(lock: str, group: str) -> None:
    assert lock_problems(text_files()[lock], [*declared(), *declared(group)]) == []


HASH = "--hash=sha256:" + "0" * 64


@pytest.mark.parametrize(
    "lock",
    [
        "",
        f"a>=1.0 \\\n    {HASH}\n",
        f"a==1.* \\\n    {HASH}\n",
        f"a @ https://example.org/a.whl \\\n    {HASH}\n",
        "a==1.5\n",
        "a==1.5 \\\n    --hash=md5:00\n",
        f"a==0.9 \\\n    {HASH}\n",
        f"b==1.5 \\\n    {HASH}\n    # via a\n",
        f"a==1.5 ; python_version < '3.12' \\\n    {HASH}\na==0.9 ; python_version >= '3.12' \\\n    {HASH}\n",
        f"--editable . \na==1.5 \\\n    {HASH}\n",
    ],
)
def test_a_fault_in_a_lock_is_found(lock: str) -> None:
    assert lock_problems(lock, [Requirement("a>=1.0")]) != []


def test_a_right_lock_passes() -> None:
    lock = f"a==1.5 ; python_version < '3.12' \\\n    {HASH} \\\n    {HASH}\n    # via b\na==1.6 \\\n    {HASH}\n"
    assert lock_problems(lock, [Requirement("A>=1.0")]) == []


def test_all_locks_pin_the_same_versions() -> None:
    main, *others = (pinned(text_files()[lock]) for lock in LOCKS)
    for other in others:
        assert {name: (main[name], other.get(name)) for name in main if main[name] != other.get(name)} == {}


def development_only(lock: str) -> set[str]:
    """Packages of the group ``dev`` that a lock holds though no other package needs them, by its comments (``via``)."""
    alone = r"^([\w.-]+)==[^#]*# via stampede \(pyproject\.toml:dev\)$"
    return set(re.findall(alone, lock, flags=re.MULTILINE))


def test_a_run_installs_no_development_tools() -> None:
    assert development_only(text_files()["requirements.lock"]) == set()
    assert {"mypy", "ruff", "hypothesis"} <= development_only(text_files()["requirements-dev.lock"])


def documented(page: str) -> dict[str, list[str]]:
    """The rows of the dependency page's tables by package: version, licence, …"""
    rows = (line.strip().strip("|").split("|") for line in page.splitlines() if line.startswith("| `"))
    return {canonicalize_name(name.strip(" `")): [cell.strip() for cell in cells] for name, *cells in rows}


def dependency_page_problems(page: str, wanted: list[Requirement], versions: dict[str, set[str]]) -> list[str]:
    """Which dependency has no row on the page, or one with the wrong version, or without licence or reason."""
    rows = documented(page)
    problems = [f"{name}: is no dependency" for name in rows.keys() - {canonicalize_name(each.name) for each in wanted}]
    for name in (canonicalize_name(each.name) for each in wanted):
        cells = rows.get(name)
        if cells is None:
            problems.append(f"{name}: no row")
        elif set(re.split(r"[,\s]+", cells[0])) != versions[name]:
            problems.append(f"{name}: version {cells[0]}, the lock holds {', '.join(sorted(versions[name]))}")
        elif not all(cells):
            problems.append(f"{name}: a cell is empty")
    return problems


def all_declared() -> list[Requirement]:
    return [*declared(), *declared("dev"), *declared("image")]


def test_every_dependency_is_documented() -> None:
    versions = pinned(text_files()["requirements-dev.lock"])
    assert dependency_page_problems(text_files()["docs/dependencies.md"], all_declared(), versions) == []


@pytest.mark.parametrize(
    "page",
    ["", "| `a` | 1.4 | MIT | why |", "| `a` | 1.5 |  | why |", "| `a` | 1.5 | MIT | why |\n| `b` | 1 | MIT | why |"],
)
def test_a_gap_in_the_dependency_page_is_found(page: str) -> None:
    assert dependency_page_problems(page, [Requirement("a")], {"a": {"1.5"}}) != []


LICENCE_WORDS = {"Apache Software License": "Apache-2.0", "Apache 2.0": "Apache-2.0", "Apache": "Apache-2.0"}


def stated_licence(package: str) -> str:
    """What an installed package says of its licence."""
    about = metadata(package)
    stated = (about.get_all("License-Expression") or about.get_all("License") or [""])[0]
    if not stated:
        classifiers = about.get_all("Classifier") or []
        stated = next(each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License ::"))
    stated = stated.removesuffix(" License") if stated.startswith(("BSD", "MIT")) else stated
    return LICENCE_WORDS.get(stated, stated)


def test_documented_licences_are_those_that_the_packages_state() -> None:
    rows = documented(text_files()["docs/dependencies.md"])
    stated = {canonicalize_name(each.name): stated_licence(each.name) for each in all_declared()}
    wrong = {
        name: (rows[name][1], licence) for name, licence in stated.items() if not rows[name][1].startswith(licence)
    }
    assert wrong == {}
