"""The list of attacks."""

from __future__ import annotations

from typing import Any, Final

from loadgen.workloads.attacks.agents.failing_agents import FailingAgents
from loadgen.workloads.attacks.agents.greedy_agents import GreedyAgents
from loadgen.workloads.attacks.agents.lying_agents import LyingAgents
from loadgen.workloads.attacks.agents.slow_agents import SlowAgents
from loadgen.workloads.attacks.composed.composed import Composed
from loadgen.workloads.attacks.deferred.mailbox_flood import MailboxFlood
from loadgen.workloads.attacks.deferred.message_fan_out import MessageFanOut
from loadgen.workloads.attacks.deferred.unanswered_jobs import UnansweredJobs
from loadgen.workloads.attacks.fees.basefee_oscillation import BasefeeOscillation
from loadgen.workloads.attacks.fees.tip_outbidding import TipOutbidding
from loadgen.workloads.attacks.fees.tip_sniping import TipSniping
from loadgen.workloads.attacks.lane.chain_reaction import ChainReaction
from loadgen.workloads.attacks.lane.gas_exhaustion import GasExhaustion
from loadgen.workloads.attacks.lane.lane_cells import LaneCells
from loadgen.workloads.attacks.lane.lane_cycles import LaneCycles
from loadgen.workloads.attacks.lane.same_block import SameBlock
from loadgen.workloads.attacks.lane.sybil_fragmentation import SybilFragmentation
from loadgen.workloads.attacks.pool.nonce_gaps import NonceGaps
from loadgen.workloads.attacks.pool.replacement_churn import ReplacementChurn
from loadgen.workloads.attacks.pool.transfer_spam import TransferSpam
from loadgen.workloads.attacks.timers.cancel_storm import CancelStorm
from loadgen.workloads.attacks.timers.expiry_storm import ExpiryStorm
from loadgen.workloads.attacks.timers.extend_storm import ExtendStorm
from loadgen.workloads.attacks.timers.far_future import FarFuture
from loadgen.workloads.attacks.timers.insolvency_storm import InsolvencyStorm
from loadgen.workloads.attacks.timers.payload_abuse import PayloadAbuse
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
