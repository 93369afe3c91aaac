"""The timer phases of all shipped policies, by policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from validator.chain.genesis import Policy
from validator.execution.timer_phase import TimerPhase
from validator.policies.bias_auction import BiasAuctionPhase
from validator.policies.cip1 import Cip1Phase
from validator.policies.fifo import FifoPhase
from validator.policies.gba_auction import GbaAuctionPhase

Phases = Mapping[Policy, type[TimerPhase]]

PHASES: Final[Phases] = {
    Policy.CIP1: Cip1Phase,
    Policy.FIFO: FifoPhase,
    Policy.GBA_AUCTION: GbaAuctionPhase,
    Policy.BIAS_AUCTION: BiasAuctionPhase,
}


def phases_with(part: type[Any], phases: Phases = PHASES) -> Phases:
    """The timer phase of each policy, with the class ``part`` mixed in.

    It is mixed into the phases that share its base: all, those of auctions, or one policy's.
    """
    bases = {base for phase in PHASES.values() for base in phase.__mro__}
    shared = next(base for base in part.__mro__ if base in bases)
    return {
        policy: type(part.__name__, (part, phase), {}) if issubclass(phase, shared) else phase
        for policy, phase in phases.items()
    }
