"""The workloads of scenarios, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from loadgen.workloads.attacks.registry import ATTACKS
from loadgen.workloads.base import Workload
from loadgen.workloads.churn import Churn
from loadgen.workloads.flood import Flood
from loadgen.workloads.governance import Governance
from loadgen.workloads.heartbeat import Heartbeat
from loadgen.workloads.limits import Limits
from loadgen.workloads.program import Program
from loadgen.workloads.runner import Runner
from loadgen.workloads.transfer import Transfer
from loadgen.workloads.watch import Watch

USUAL: Final[tuple[type[Workload[Any]], ...]] = (
    Heartbeat,
    Flood,
    Churn,
    Transfer,
    Limits,
    Program,
    Runner,
    Governance,
    Watch,
)

WORKLOADS: Final[Mapping[str, type[Workload[Any]]]] = {workload.name: workload for workload in (*USUAL, *ATTACKS)}
"""Workloads by name. A new workload is one file and one entry here, or in :mod:`loadgen.workloads.attacks.registry`."""
