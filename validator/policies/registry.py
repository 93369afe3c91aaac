"""The timer phases of all policies, by policy."""

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
    """The timer phase of each policy, with the class ``part`` mixed in.

    If ``part`` is derived from a policy's phase, it is mixed into that phase alone, else into all phases.
    """
    own = {policy for policy, phase in PHASES.items() if issubclass(part, phase)}
    return {
        policy: type(part.__name__, (part, phase), {}) if policy in own or not own else phase
        for policy, phase in phases.items()
    }
