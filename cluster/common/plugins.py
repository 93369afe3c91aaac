"""What installed packages add to Stampede: entry points, as for plug-ins of pytest. A kit of ours is one of them.

All that a package offers passes one gate (:mod:`validator.primitives.offered`): what does not fit is refused, and so is
a name that is taken.

``stampede.checks``
    a check: a subclass of :class:`cluster.checks.kind.CheckKind` whose ``name`` is the entry point's name.
``stampede.commands``
    a module with ``COMMANDS``, or that mapping (:mod:`cluster.commands.console.command`).
``stampede.drills``
    a subclass of :class:`cluster.commands.drills.base.Drill`, under the drill's name.
``stampede.experiments``
    an experiment of the lab: a subclass of ``kits.market.lab.experiment.Experiment`` under its ``name``.
``stampede.faults``
    a kind of fault: a subclass of :class:`cluster.faults.kind.FaultKind` whose ``kind`` is the entry point's name.
``stampede.planted``
    a mapping of names to planted bugs of validators (:class:`cluster.misbehaviour.planted.Planted`).
``stampede.tracers``
    ``otlp``: a function of (collector, folder, scenario, backend) that returns a tracer of the run, or ``None``.
``stampede.deployments``
    under the first word of ``k8s run --command``: a function of (scenario, further words) that returns the arguments.
``stampede.means``
    ``kubernetes``: a subclass of :class:`cluster.live.means.Means`, which performs faults of live runs.
``stampede.sections``
    a section of scenarios: a subclass of :class:`cluster.scenario.sections.packaged.PackagedSection`, under its name.
``stampede.tables``
    the tables of a kind of folder, for ``stampede export``: a :class:`cluster.tables.columns.Source`.
``stampede.workloads``
    a workload: a subclass of :class:`loadgen.workloads.base.Workload` whose ``name`` is the entry point's name. The
    package :mod:`loadgen.workloads.registry` reads it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, requires
from typing import Any, Final, TypeVar, cast

from cluster.common.errors import BadInput
from cluster.common.wording import printable
from validator.primitives.offered import Unusable, offered, package_of

T = TypeVar("T")
PROJECT: Final = "stampede"

CHECKS: Final = "stampede.checks"
COMMANDS: Final = "stampede.commands"
DRILLS: Final = "stampede.drills"
EXPERIMENTS: Final = "stampede.experiments"
FAULTS: Final = "stampede.faults"
PLANTED: Final = "stampede.planted"
TRACERS: Final = "stampede.tracers"
DEPLOYMENTS: Final = "stampede.deployments"
MEANS: Final = "stampede.means"
SECTIONS: Final = "stampede.sections"
TABLES: Final = "stampede.tables"
KITS_WITH_SECTIONS: Final = {"dos": "market", "kubernetes": "kubernetes"}
"""The kits that have sections of scenarios, by the sections' names."""
OF_A_KIT: Final = re.compile(r"""(?P<library>[\w.-]+).*;\s*extra == ['"](?P<kit>\w+)['"]""")
"""A requirement of the project that only a kit has."""


def points(group: str, name: str = "") -> list[EntryPoint]:
    """The entry points of a group, or those of one name: those of the project first. Nothing is loaded."""
    found = entry_points(group=group, name=name) if name else entry_points(group=group)
    return sorted(found, key=lambda point: (package_of(point) != PROJECT, point.name, package_of(point)))


def load(point: EntryPoint, take: Callable[[Any], T], is_taken: bool = False) -> T:
    """What an entry point offers, as ``take`` returns it, which raises an exception for what does not fit.

    Raises :class:`BadInput`, one line with the package, if it cannot be loaded or does not fit, or its name is taken.
    """
    try:
        return offered(point, take, is_taken)
    except Unusable as error:
        raise BadInput(lacking_library(error.__cause__) or printable(str(error))) from error.__cause__


def load_all(group: str, add: Callable[[Any], None]) -> None:
    """Have ``add`` take all that packages offer in a group (:func:`load`). What cannot be used is told in one line, and
    takes nothing else away."""
    for point in points(group):
        try:
            load(point, add)
        except BadInput as error:
            print(f"stampede: {error}", file=sys.stderr)


def load_named(group: str, name: str, take: Callable[[Any], T], purpose: str = "", kit: str = "") -> T:
    """What a package offers under a name (:func:`load`). Raises :class:`BadInput` if none does, or several do.

    ``purpose`` is what needs it, ``kit`` the kit that has it.
    """
    found = points(group, name)
    if not found:
        place, wanted = purpose or f"{group} {name}", f"the kit {kit}: pip install 'stampede[{kit}]'"
        raise BadInput(f"{place}: no installed package has it" + (f"; expected {wanted}" if kit else ""))
    return load(found[-1], take, is_taken=len(found) > 1)


def expect_function(found: Any) -> Callable[..., Any]:
    """``found``, if it can be called. Raises :class:`ValueError`."""
    if not callable(found):
        raise ValueError(f"expected a function, got {found!r}")
    return cast("Callable[..., Any]", found)


def what_to_install(missing: str) -> str | None:
    """The error for a library that a kit needs and that is not installed, by its module; ``None`` for other modules."""
    lines: list[str] = []
    with suppress(PackageNotFoundError):  # a checkout on PYTHONPATH alone
        lines = requires(PROJECT) or []
    for line in lines if missing else ():
        found = OF_A_KIT.match(line)
        if found is not None and found["library"].startswith(missing.partition(".")[0]):
            return f"{found['library']} is not installed, which this needs: pip install 'stampede[{found['kit']}]'"
    return None


def lacking_library(error: BaseException | None) -> str | None:
    """As :func:`what_to_install`, for an exception; ``None`` for one that is about no missing module."""
    return what_to_install(error.name or "") if isinstance(error, ModuleNotFoundError) else None
