"""What installed packages add to Stampede: entry points, as for plug-ins of pytest. A kit of ours is one of them.

``stampede.checks``
    a check: a subclass of :class:`cluster.checks.kind.CheckKind` whose ``name`` is the entry point's name.
``stampede.commands``
    a module with ``COMMANDS``, or that mapping (:mod:`cluster.tools.console.command`).
``stampede.drills``
    a subclass of :class:`cluster.tools.drills.base.Drill`, under the drill's name.
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
``stampede.workloads``
    a workload: a subclass of :class:`loadgen.workloads.base.Workload` whose ``name`` is the entry point's name. The
    package :mod:`loadgen.workloads.registry` reads it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, requires
from typing import Any, Final

from cluster.common.errors import BadInput

CHECKS: Final = "stampede.checks"
COMMANDS: Final = "stampede.commands"
DRILLS: Final = "stampede.drills"
FAULTS: Final = "stampede.faults"
PLANTED: Final = "stampede.planted"
TRACERS: Final = "stampede.tracers"
DEPLOYMENTS: Final = "stampede.deployments"
MEANS: Final = "stampede.means"
OF_A_KIT: Final = re.compile(r"""(?P<library>[\w.-]+).*;\s*extra == ['"](?P<kit>\w+)['"]""")
"""A requirement of the project that only a kit has."""


def plugins(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group, by name, in the order of their names. Nothing is loaded."""
    return {point.name: point for point in sorted(entry_points(group=group), key=lambda point: point.name)}


def load(point: EntryPoint) -> Any:
    """The object of an entry point. Raises :class:`BadInput`, which names the package, if it cannot be loaded."""
    try:
        return point.load()
    except Exception as error:
        if (lacking := lacking_library(error)) is not None:
            raise BadInput(lacking) from error
        raise unfit(point, error) from error


def unfit(point: EntryPoint, error: Exception) -> BadInput:
    """The error of an entry point that cannot be used; it names the package."""
    package = "a package" if point.dist is None else point.dist.name
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return BadInput(f"{package}: {point.value}, its {point.group} {point.name}, cannot be loaded: {reason}")


def load_named(group: str, name: str, purpose: str, kit: str) -> Any:
    """The object of the entry point ``name``. Raises :class:`BadInput` if no installed package has it."""
    found = plugins(group).get(name)
    if found is None:
        raise BadInput(f"{purpose}: no installed package has it; expected the kit {kit}: pip install 'stampede[{kit}]'")
    return load(found)


def what_to_install(missing: str) -> str | None:
    """The error for a library that a kit needs and that is not installed, by its module; ``None`` for other modules."""
    lines: list[str] = []
    with suppress(PackageNotFoundError):  # a checkout on PYTHONPATH alone
        lines = requires("stampede") or []
    for line in lines if missing else ():
        found = OF_A_KIT.match(line)
        if found is not None and found["library"].startswith(missing.partition(".")[0]):
            return f"{found['library']} is not installed, which this needs: pip install 'stampede[{found['kit']}]'"
    return None


def lacking_library(error: Exception) -> str | None:
    """As :func:`what_to_install`, for an exception; ``None`` for one that is about no missing module."""
    return what_to_install(error.name or "") if isinstance(error, ModuleNotFoundError) else None
