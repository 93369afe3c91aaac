"""The list of attacks."""

from __future__ import annotations

from typing import Final

ATTACKS: Final = {
    "same-block": "attacks.lane.SameBlock",
    "chain-reaction": "attacks.lane.ChainReaction",
    "sybil-fragmentation": "attacks.lane.SybilFragmentation",
    "lane-cycles": "attacks.lane.LaneCycles",
    "lane-cells": "attacks.lane.LaneCells",
    "gas-exhaustion": "attacks.lane.GasExhaustion",
    "basefee-oscillation": "attacks.fees.BasefeeOscillation",
    "tip-outbidding": "attacks.fees.TipOutbidding",
    "tip-sniping": "attacks.fees.TipSniping",
    "slow-agents": "attacks.agents.SlowAgents",
    "failing-agents": "attacks.agents.FailingAgents",
    "lying-agents": "attacks.agents.LyingAgents",
    "greedy-agents": "attacks.agents.GreedyAgents",
    "far-future": "attacks.timers.FarFuture",
    "cancel-storm": "attacks.timers.CancelStorm",
    "extend-storm": "attacks.timers.ExtendStorm",
    "expiry-storm": "attacks.timers.ExpiryStorm",
    "insolvency-storm": "attacks.timers.InsolvencyStorm",
    "storm": "storm.Storm",
    "payload-abuse": "attacks.timers.PayloadAbuse",
    "mailbox-flood": "attacks.deferred.MailboxFlood",
    "message-fan-out": "attacks.deferred.MessageFanOut",
    "unanswered-jobs": "attacks.deferred.UnansweredJobs",
    "nonce-gaps": "attacks.pool.NonceGaps",
    "replacement-churn": "attacks.pool.ReplacementChurn",
    "transfer-spam": "attacks.pool.TransferSpam",
    "composed": "attacks.composed.Composed",
}
"""The class of each attack, below :mod:`loadgen.workloads`, by name, in the order of ``docs/attacks.md``."""
