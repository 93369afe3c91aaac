"""Workloads: the behaviour of a load's users, pure and without Locust, for both the live testnet and the simulator.

A :class:`LoadPlan` (the ``load`` section of a scenario) has the number of users of each workload. The plan and the
run's seed determine the genesis accounts and actors and the :class:`LoadUser` objects, which turn an
:class:`Observation` of the chain into signed transactions. No sockets, no clock; randomness is seeded.
"""

from loadgen.workloads.base import Intent, Member, Observation, Options, Workload
from loadgen.workloads.own import OwnWorkload
from loadgen.workloads.plan import FUNDING, LoadPlan, Population, UserGroup
from loadgen.workloads.registry import WORKLOADS, WorkloadError
from loadgen.workloads.user import LoadUser

__all__ = [
    "FUNDING",
    "WORKLOADS",
    "Intent",
    "LoadPlan",
    "LoadUser",
    "Member",
    "Observation",
    "Options",
    "OwnWorkload",
    "Population",
    "UserGroup",
    "Workload",
    "WorkloadError",
]
