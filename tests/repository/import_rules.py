"""Rules of imports: who imports whom, and what pure code may not import."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import PurePosixPath

from packaging.utils import canonicalize_name

from tests.repository.dependencies import declared
from tests.repository.rule import Finding, Rule
from tests.repository.sources import LAYERS, OURS, belongs_to, imports, is_in, is_python, text_files, touches_nothing

ENCODING = (
    "validator.primitives.codec",
    "validator.primitives.errors",
    "validator.primitives.offered",
    "validator.chain.genesis",
    "validator.primitives.params",
    "validator.pvm.runtime.values",
    "validator.chain.transactions",
    "validator.primitives.types",
    "validator.primitives.user_file",
    "validator.primitives.user_file",
)
"""What of the validator a client may know: how to write a transaction and its payload, what a genesis holds, and how a
user's file is read."""

MAY_IMPORT = {
    "spec": ("spec",),
    "consensus": ("consensus",),
    "validator": ("consensus", "validator"),
    "loadgen/workloads": ("loadgen.workloads", *ENCODING),
    "loadgen": ("loadgen", *ENCODING),
    "cluster": ("cluster", "consensus", "spec", "validator", "loadgen.workloads", "loadgen.client", "loadgen.runplan"),
    "kits": (
        "kits",
        "cluster",
        "consensus",
        "spec",
        "validator",
        "loadgen.workloads",
        "loadgen.client",
        "loadgen.runplan",
    ),
    "k8s": ("k8s",),
    "actors": ("actors",),
}
"""For each folder what it may import of ours; the first folder that holds a file decides."""

AUDITOR = (
    "cluster/audit/books.py",
    "cluster/audit/figures.py",
    "cluster/audit/ledger.py",
    "cluster/audit/paid_waits.py",
    "cluster/audit/violation.py",
    "cluster/audit/chains.py",
    "cluster/audit/specified/chain.py",
    "cluster/audit/specified/differences.py",
    "cluster/audit/specified/judge.py",
)
"""The books, and the specification's judgement from which they are made. Programs and users' policies are run by what
of the validator runs them, which has modules of its own."""

SHARED_WITH_THE_AUDITOR = (
    # what a chain is: its genesis and parameters
    "validator.chain.genesis.Genesis",
    "validator.chain.genesis.Replaces",
    "validator.primitives.params",
    "validator.primitives.types",
    # the transactions of a chain that was not served but made here
    "validator.chain.transactions.Transaction",
    "validator.chain.transactions.unsigned_hash",
)
"""All that the books have in common with the transition that they judge. A bug in any of it is on both sides."""

OF_THE_SPECIFICATION = ("Crypto", "blake3", "msgpack")
"""The libraries that the specification may import, besides Python's own: hashes and MessagePack."""

STRANGERS = {"simulation": ("checks",), "live": ("checks",)}
"""Folders of lower layers that a folder does not import either: a driver does not judge."""

FOREIGN = {
    "ray": ("cluster/live", "tests", "benchmarks"),
    "locust": ("loadgen", "tests"),
    "gevent": ("loadgen", "tests"),
    "geventhttpclient": ("loadgen", "tests"),
    "yaml": ("cluster/common/strict_yaml.py", "kits/kubernetes/client/cluster.py", "tests"),
    "opentelemetry": ("kits/tracing/otlp.py", "tests/kits/tracing"),
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

PERMITTED = tuple(("validator/primitives/codec.py", module) for module in ("sys", "threading"))
"""The module with the lock under which decoders are made, which validators of one process share. It also chooses how
Keccak's library is loaded."""

WITH_ANOTHER = {
    "gevent": "locust",
    "geventhttpclient": "locust",
    "markupsafe": "jinja2",
    "pydantic_core": "pydantic",
    "websocket": "kubernetes",
}
"""Packages that come with another, of which they are a part in all but name."""


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


def tests_of_the_core_need_no_kit(path: str, source: str) -> Iterator[Finding]:
    """The core can be tested where no kit is."""
    for line, module in imports(path, source):
        if belongs_to(module, "kits", "tests.kits", "tests.commands"):
            yield line, f"imports {module}, of a kit"


CORE_TESTS = tuple(f"tests/{package}" for package in ("cluster", "consensus", "loadgen", "spec", "validator"))
WITH_SPANS = "tests/cluster/live/test_live_run.py"
"""The one live run of which everything is asked, spans included: another one would take half a minute."""


def the_specification_stands_alone(path: str, source: str) -> Iterator[Finding]:
    """The specification imports Python's own library, hashes and MessagePack, and nothing else."""
    for line, module in imports(path, source):
        top = module.split(".")[0]
        if top not in sys.stdlib_module_names and top not in ("spec", *OF_THE_SPECIFICATION):
            yield line, f"imports {module}, which the specification must not need"


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
    """Ray under ``cluster/live``, OpenTelemetry in one module, Locust and gevent in what of ``loadgen`` nobody else
    imports."""
    for line, module in imports(path, source):
        for library, folders in FOREIGN.items():
            if belongs_to(module, library) and (not is_in(path, *folders) or is_in(path, *OF_LOAD_BUT_PLAIN)):
                yield line, f"imports {module}, which belongs under {' or '.join(folders)}"


@cache
def distributions() -> dict[str, frozenset[str]]:
    """Which installed packages hold a top-level module."""
    return {name: frozenset(map(canonicalize_name, held)) for name, held in packages_distributions().items()}


PYTEST_PLUGIN = "stampede_pytest.py"
"""Only pytest loads it, so whoever does has pytest."""


UPLOADER = "kits/kubernetes/uploading.py"
"""Only the image runs it, which has its group of packages."""


@cache
def declared_names(group: str | None) -> frozenset[str]:
    wanted = [*declared(), *(declared(group) if group else [])]
    return frozenset(canonicalize_name(each.name) for each in wanted)


def imports_are_declared(path: str, source: str) -> Iterator[Finding]:
    """What is imported is a dependency by name, not something that another package happens to need."""
    for line, module in imports(path, source):
        name = module.partition(".")[0]
        beside = PurePosixPath(path).with_name(f"{name}.py").as_posix()
        if name in sys.stdlib_module_names or name in OURS or (is_in(path, "benchmarks") and beside in text_files()):
            continue
        held = distributions().get(WITH_ANOTHER.get(name, name), frozenset())
        is_for_development = path == PYTEST_PLUGIN or is_in(path, "tests", "benchmarks", "docs")
        if not held & declared_names("dev" if is_for_development else "s3" if path == UPLOADER else None):
            yield line, f"imports {name}, which pyproject.toml does not name"


def pure_code_imports_nothing_impure(path: str, source: str) -> Iterator[Finding]:
    """No clock, network, thread, file or chance in code that is a function of what it is given, but for one module."""
    for line, module in imports(path, source):
        if (path, module) in PERMITTED:
            continue
        if module.partition(".")[0] in IMPURE or belongs_to(module, "numpy.random"):
            yield line, f"imports {module}"


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
            ("cluster/commands/a.py", "def f():\n    from kits.tracing.tracer import Tracer"),
            ("validator/a.py", "import kits.market"),
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
            ("cluster/simulation/a.py", "from cluster.watches.watched_simulation import Watches"),
            ("cluster/live/a.py", "from cluster.checks.run import check_run"),
            ("cluster/record/a.py", "def f():\n    from cluster.disks import memory"),
            ("kits/market/lab/a.py", "from kits.conform.t8n import run_t8n"),
            ("kits/mutation/a.py", "def f():\n    import kits.explore.search"),
            ("cluster/checks/a.py", "if TYPE_CHECKING:\n    from cluster.commands.drills.base import Drill"),
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
            ("validator/a.py", "from opentelemetry import trace"),
            ("kits/tracing/a.py", "import opentelemetry.sdk.trace"),
        ),
        fine=(
            ("cluster/live/a.py", "import ray\nfrom ray.util import state"),
            ("loadgen/a.py", "import gevent\nfrom locust.contrib.fasthttp import FastHttpUser"),
            ("cluster/a.py", "import rayleigh"),
            ("kits/tracing/otlp.py", "from opentelemetry.sdk.trace import ReadableSpan"),
        ),
    ),
    Rule(
        tests_of_the_core_need_no_kit,
        lambda path: is_python(path) and is_in(path, *CORE_TESTS) and path != WITH_SPANS,
        faults=(
            ("tests/cluster/audit/a.py", "from kits.mutation.detection_scenarios import scenario_of"),
            ("tests/validator/a.py", "def f():\n    from tests.kits.conform.planted import BUGS"),
        ),
        fine=(("tests/cluster/audit/a.py", "from cluster.audit.books import keep_books"),),
    ),
    Rule(
        the_specification_stands_alone,
        lambda path: is_python(path) and is_in(path, "spec"),
        faults=(
            ("spec/block.py", "import msgspec"),
            ("spec/timers.py", "from validator.primitives.codec import keccak256"),
            ("spec/scripts.py", "import numpy as np"),
        ),
        fine=(("spec/fees.py", "import json\nfrom blake3 import blake3\nfrom spec.world import World"),),
    ),
    Rule(
        the_auditor_shares_a_stated_list,
        lambda path: path in AUDITOR,
        faults=(
            ("cluster/audit/ledger.py", "from validator.primitives.codec import decode"),
            ("cluster/audit/figures.py", "from validator.chain.block import FireReceipt"),
            ("cluster/audit/ledger.py", "import validator.execution.timer_phase"),
            ("cluster/audit/specified/judge.py", "from validator import transition"),
            ("cluster/audit/books.py", "from consensus.certificates import verify_signed"),
        ),
        fine=(
            (
                "cluster/audit/ledger.py",
                "from spec.leaves import tier_of\nfrom validator.primitives.params import Parameters",
            ),
            ("cluster/audit/specified/chain.py", "from validator.chain.transactions import Transaction, unsigned_hash"),
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
        touches_nothing,
        faults=(
            ("cluster/run/a.py", "import time"),
            *(("validator/a.py", f"import {module}") for module in sorted(IMPURE)),
            ("consensus/a.py", "from os.path import join"),
            ("consensus/a.py", "import numpy.random"),
            ("consensus/a.py", "from numpy import random"),
            ("consensus/a.py", "if True:\n    from time import monotonic"),
        ),
        fine=(
            *((path, f"import {module}") for path, module in PERMITTED),
            ("consensus/a.py", "import hashlib, heapq, numpy\nfrom collections import deque\nfrom typing import Final"),
        ),
    ),
)
