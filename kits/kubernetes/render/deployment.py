"""The settings of a deployment: name, namespace, the driver's ``stampede`` command, and others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from blake3 import blake3

from cluster.common.errors import BadInput

MAX_NAME: Final = 40
"""Maximum length of a deployment's name. KubeRay appends to it, and a label has at most 63 characters."""
HASH_DIGITS: Final = 6
"""Hex digits of the hash at the end of a name that was changed."""
MAX_NAMESPACE: Final = 63
_NAME: Final = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_NAMESPACE: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
WORKS: Final = ("drill", "sweep", "dos", "soak")
"""What a deployment does other than a run: the beginning of its name."""
LIVE_COMMANDS: Final = ("run", "drill", "up")
SWEEP_COMMANDS: Final = ("sweep", "dos")
ENDLESS_COMMAND: Final = "up"
START_TIMEOUT_S: Final = 900


@dataclass(frozen=True, slots=True)
class Monitoring:
    """The settings of the objects for Prometheus and Grafana."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of these objects, by which an operator finds them, in addition to those that all objects have."""
    runbooks: str | None = None
    """Address of the page about alerts (:data:`~cluster.report.alerts.RUNBOOKS`) if it is published."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """The settings of a deployment that are not in its scenario.

    Raises :class:`BadInput` for a name that Kubernetes refuses.
    """

    name: str
    """Name of the RayJob; the names of all other objects begin with it."""
    namespace: str | None = None
    """Namespace of the objects; ``None`` leaves it to the command that applies the manifests."""
    command: tuple[str, ...] = ()
    """Arguments of ``stampede`` in the driver's pod; empty if there is no Ray cluster."""
    scenario_text: str | None = None
    """Text of the scenario file, which the driver finds at ``/etc/stampede/scenario.yaml``; ``None`` if this only
    names a deployment that is in a cluster."""
    monitoring: Monitoring | None = None
    """Settings of the objects for Prometheus and Grafana; ``None`` if the deployment includes none."""
    start_timeout_s: int = START_TIMEOUT_S
    """Time that the job may take in addition to the run: to come up (images, volumes, Ray), and from the run's end to
    its verdict."""

    def __post_init__(self) -> None:
        if len(self.name) > MAX_NAME or not _NAME.fullmatch(self.name):
            raise BadInput(
                f"name {self.name!r}: expected lower-case letters, digits and '-', at most {MAX_NAME}, the first a"
                f" letter, the last a letter or a digit"
            )
        if self.namespace is not None and not is_namespace(self.namespace):
            raise BadInput(
                f"namespace {self.namespace!r}: expected lower-case letters, digits and '-', at most {MAX_NAMESPACE},"
                f" the first and last a letter or a digit"
            )

    @property
    def is_live(self) -> bool:
        """Whether validators run in separate pods."""
        return self.command[:1] != () and self.command[0] in LIVE_COMMANDS

    @property
    def is_sweep(self) -> bool:
        """Whether the driver simulates many runs, with pods for their seeds."""
        return self.command[:1] != () and self.command[0] in SWEEP_COMMANDS

    @property
    def is_endless(self) -> bool:
        """Whether the deployment runs until it is stopped."""
        return self.command[:1] == (ENDLESS_COMMAND,)


def is_namespace(name: str) -> bool:
    """Whether Kubernetes accepts this name for a namespace."""
    return len(name) <= MAX_NAMESPACE and _NAMESPACE.fullmatch(name) is not None


def name_for(scenario_name: str, work: str = "") -> str:
    """A valid name for a deployment: a scenario's name, after the ``work`` of :data:`WORKS` if it is no run.

    If that is not valid, or if a run's name begins as that of other work does, the name is similar and ends with digits
    of a hash, so that two deployments do not get one name.
    """
    whole = f"{work}-{scenario_name}" if work else scenario_name
    is_clear = bool(work) or not whole.startswith(tuple(f"{other}-" for other in WORKS))
    if is_clear and len(whole) <= MAX_NAME and _NAME.fullmatch(whole):
        return whole
    name = re.sub(r"-{2,}", "-", whole.replace("_", "-")).strip("-")
    name = name if name[:1].isalpha() else f"run-{name}"
    digits = blake3(f"{work}/{scenario_name}".encode()).hexdigest()[:HASH_DIGITS]
    return f"{name[: MAX_NAME - HASH_DIGITS - 1].rstrip('-')}-{digits}"
