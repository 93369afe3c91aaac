"""The policies by name, and the one that is in force at a height."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from validator.chain.genesis import Policy
from validator.execution.timer_phase import TimerPhase
from validator.policies.cip1 import Cip1Phase
from validator.policies.fifo import FifoPhase

Phases = Mapping[Policy, type[TimerPhase]]

PHASES: Final[Phases] = {Policy.CIP1: Cip1Phase, Policy.FIFO: FifoPhase}


def phases_with(part: type[Any], phases: Phases = PHASES) -> Phases:
    """All policies' phases, changed as ``part`` changes the class of phases that it is derived from.

    A class that is derived from :class:`TimerPhase` changes all of them; one that is derived from a policy's phase
    changes that one alone.
    """
    own = {policy for policy, phase in PHASES.items() if issubclass(part, phase)}
    return {
        policy: type(part.__name__, (part, phase), {}) if policy in own or not own else phase
        for policy, phase in phases.items()
    }
