"""The list of attacks."""

from __future__ import annotations

from typing import Any, Final

from loadgen.workloads.attacks.agents import FailingAgents, GreedyAgents, LyingAgents, SlowAgents
from loadgen.workloads.attacks.composed import Composed
from loadgen.workloads.attacks.deferred import MailboxFlood, MessageFanOut, UnansweredJobs
from loadgen.workloads.attacks.fees import BasefeeOscillation, TipOutbidding, TipSniping
from loadgen.workloads.attacks.lane import (
    ChainReaction,
    GasExhaustion,
    LaneCells,
    LaneCycles,
    SameBlock,
    SybilFragmentation,
)
from loadgen.workloads.attacks.pool import NonceGaps, ReplacementChurn, TransferSpam
from loadgen.workloads.attacks.timers import (
    CancelStorm,
    ExpiryStorm,
    ExtendStorm,
    FarFuture,
    InsolvencyStorm,
    PayloadAbuse,
)
from loadgen.workloads.base import Workload
from loadgen.workloads.storm import Storm

ATTACKS: Final[tuple[type[Workload[Any]], ...]] = (
    SameBlock,
    ChainReaction,
    SybilFragmentation,
    LaneCycles,
    LaneCells,
    GasExhaustion,
    BasefeeOscillation,
    TipOutbidding,
    TipSniping,
    SlowAgents,
    FailingAgents,
    LyingAgents,
    GreedyAgents,
    FarFuture,
    CancelStorm,
    ExtendStorm,
    ExpiryStorm,
    InsolvencyStorm,
    Storm,
    PayloadAbuse,
    MailboxFlood,
    MessageFanOut,
    UnansweredJobs,
    NonceGaps,
    ReplacementChurn,
    TransferSpam,
    Composed,
)
"""Attacks in the order of ``docs/attacks.md``."""
