"""The names of the rules whose evaluations are counted: a rule that was never evaluated shows nothing."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class LedgerRule(StrEnum):
    """Rules of the auditor's ledger (:mod:`cluster.audit.ledger`)."""

    CHAIN_LINKS = "chain links"
    TRANSACTION_FEES = "transaction fees"
    VALUES = "values moved"
    FIRE_TIMES = "fire times"
    FIRE_FEES = "fire fees"
    LANE_LIMITS = "lane limits"
    PASSED_OVER = "no timer passed over"
    EXPIRED_GONE = "expired timers gone"
    TIMER_IDS = "timer ids"
    QUERY_ORDER = "order of queries"
    USER_LANE = "user lane limits"
    BLOCK_WORK = "work of a block"
    PAID_WAITS = "paid waits"


class AnswerRule(StrEnum):
    """Comparisons of what validators served (:mod:`cluster.checks`)."""

    SAME_BLOCK = "same block"
    COMPUTED_ROOTS = "computed roots"
    TIMER_ANSWERS = "answers about timers"
    SERVED_BALANCES = "served balances"
    SUPPLIES = "supplies"


class SafetyRule(StrEnum):
    """Rules of the simulator's safety monitor (:mod:`cluster.simulation.watches.safety_monitor`); live runs have some
    of them (:mod:`cluster.live.audit.safety_watch`)."""

    CERTIFICATES = "certificates"
    ONE_BLOCK = "one_block_a_view"
    NOTARIZED_FIRST = "notarized_first"
    SKIPS = "skips"
    AGREEMENT = "agreement"
    ROOTS = "roots"
    ANCESTRY = "ancestry"
    CERTIFIED = "certified"
    PROVED_FINAL = "proved_final"
    LEADERS = "leaders"
    SILENCE = "silence"
    LEDGER = "ledger"
    PROOFS = "proofs"
    DURABLE_VOTES = "durable_votes"
    OWN_VOTES = "own_votes"
    LOCK = "lock"
    ABSTENTION = "abstention"
    BOUNDED = "bounded"
    ANSWERS = "answers"
    PATIENCE = "patience"
    RESTRAINT = "restraint"
    TIMEOUTS = "timeouts"
    REPETITIONS = "repetitions"


WATCHED_LIVE: Final = (
    SafetyRule.CERTIFICATES,
    SafetyRule.ONE_BLOCK,
    SafetyRule.SKIPS,
    SafetyRule.CERTIFIED,
    SafetyRule.PROVED_FINAL,
    SafetyRule.ANCESTRY,
    SafetyRule.LEADERS,
    SafetyRule.OWN_VOTES,
)
"""The rules that live runs evaluate, too (:mod:`cluster.live.audit.safety_watch`)."""


class PromiseRule(StrEnum):
    """Promises to clients (:mod:`cluster.simulation.watches.promise_watch`)."""

    PASSED_ON = "passed_on"
    KEPT = "kept"
    DROPPED = "dropped"
