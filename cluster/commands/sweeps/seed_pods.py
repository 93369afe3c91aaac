"""Pods for the seeds of a sweep, if Ray's autoscaler creates them (``STAMPEDE_SEED_PODS``): requested at the start, and
released once no seed is left to assign. The autoscaler creates all requested pods at once, or none: the number must not
exceed the maximum of their group.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from cluster.common.errors import BadInput, HarnessError
from cluster.common.interrupts import Interrupts
from cluster.common.wording import counted, printable
from cluster.live.nodes.ray_nodes import RESOURCE_PREFIX, SEEDS, RayNode, with_role
from validator.primitives.types import parse_decimal

SEED_PODS_VARIABLE: Final = "STAMPEDE_SEED_PODS"
"""Environment variable with the number of pods for seeds that a sweep requests from Ray's autoscaler."""
MAX_PODS: Final = 512
TIMEOUT_S: Final = 900.0
"""Time for the first pod to join: its Kubernetes node may have to be created, and its image to be pulled."""
LOOK_EVERY_S: Final = 1.0


class Session(Protocol):
    """The parts of a Ray session that :class:`SeedPods` needs."""

    @property
    def is_ours(self) -> bool: ...

    def nodes(self) -> Sequence[RayNode]: ...

    def request_nodes(self, resource: str, count: int) -> None: ...


class SeedPods:
    """The request for seed pods to Ray's autoscaler. Without ``STAMPEDE_SEED_PODS``, or in a Ray of our own, it does
    nothing.
    """

    def __init__(self, session: Session, environment: Mapping[str, str] = os.environ) -> None:
        """Raises :class:`BadInput` if ``STAMPEDE_SEED_PODS`` in ``environment`` is not a number of pods."""
        self._session = session
        self._count = 0 if session.is_ours else _count_from(environment)
        self._are_needed = False

    def wait_for_first(self, interrupts: Interrupts, notice: Callable[[str], None]) -> None:
        """Request the pods, and wait for the first one. Raises :class:`HarnessError` if none joins."""
        if not self._count:
            return
        self.keep(are_needed=True)
        notice(f"{counted(self._count, 'pod')} asked for")
        deadline = time.monotonic() + TIMEOUT_S
        while not with_role(self._session.nodes(), SEEDS):
            if time.monotonic() > deadline:
                raise HarnessError(f"no pod for seeds joined within {TIMEOUT_S:g} s")
            interrupts.wait(LOOK_EVERY_S)

    def keep(self, are_needed: bool) -> None:
        """Set whether any seed is left to assign; if not, idle pods may be removed."""
        if self._count and are_needed != self._are_needed:
            self._are_needed = are_needed
            self._session.request_nodes(RESOURCE_PREFIX + SEEDS, self._count if are_needed else 0)


def _count_from(environment: Mapping[str, str]) -> int:
    given = environment.get(SEED_PODS_VARIABLE, "0")
    number = parse_decimal(given, MAX_PODS)
    if number is None:
        raise BadInput(f"{SEED_PODS_VARIABLE}={printable(given)[:40]}: expected a number of pods up to {MAX_PODS}")
    return number
