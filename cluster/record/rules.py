"""The names of the rules whose evaluations are counted: a rule that was never evaluated shows nothing."""

from __future__ import annotations

from typing import Final

# The auditor's ledger (:mod:`cluster.audit.ledger`).
CHAIN_LINKS: Final = "chain links"
TRANSACTION_FEES: Final = "transaction fees"
VALUES: Final = "values moved"
FIRE_TIMES: Final = "fire times"
FIRE_FEES: Final = "fire fees"
LANE_LIMITS: Final = "lane limits"
PASSED_OVER: Final = "no timer passed over"
EXPIRED_GONE: Final = "expired timers gone"
TIMER_IDS: Final = "timer ids"
QUERY_ORDER: Final = "order of queries"
LEDGER_RULES: Final = (
    CHAIN_LINKS,
    TRANSACTION_FEES,
    VALUES,
    FIRE_TIMES,
    FIRE_FEES,
    LANE_LIMITS,
    PASSED_OVER,
    EXPIRED_GONE,
    TIMER_IDS,
    QUERY_ORDER,
)

# The checks that compare what validators served (:mod:`cluster.checks`).
SAME_BLOCK: Final = "same block"
COMPUTED_ROOTS: Final = "computed roots"
TIMER_ANSWERS: Final = "answers about timers"
SERVED_BALANCES: Final = "served balances"
SUPPLIES: Final = "supplies"

# The simulator's safety monitor (:mod:`cluster.simulation.watches.safety_monitor`).
CERTIFICATES: Final = "certificates"
ONE_BLOCK: Final = "one_block_a_view"
NOTARIZED_FIRST: Final = "notarized_first"
SKIPS: Final = "skips"
AGREEMENT: Final = "agreement"
ROOTS: Final = "roots"
ANCESTRY: Final = "ancestry"
CERTIFIED: Final = "certified"
PROVED_FINAL: Final = "proved_final"
LEADERS: Final = "leaders"
SILENCE: Final = "silence"
LEDGER: Final = "ledger"
PROOFS: Final = "proofs"
DURABLE_VOTES: Final = "durable_votes"
OWN_VOTES: Final = "own_votes"
LOCK: Final = "lock"
ABSTENTION: Final = "abstention"
BOUNDED: Final = "bounded"
ANSWERS: Final = "answers"
PATIENCE: Final = "patience"
SAFETY_RULES: Final = (
    CERTIFICATES,
    ONE_BLOCK,
    NOTARIZED_FIRST,
    SKIPS,
    AGREEMENT,
    ROOTS,
    CERTIFIED,
    PROVED_FINAL,
    ANCESTRY,
    LEADERS,
    SILENCE,
    LEDGER,
    PROOFS,
    DURABLE_VOTES,
    OWN_VOTES,
    LOCK,
    ABSTENTION,
    BOUNDED,
    ANSWERS,
    PATIENCE,
)

# Transactions taken from clients (:mod:`cluster.simulation.watches.promise_watch`).
PASSED_ON: Final = "passed_on"
KEPT: Final = "kept"
DROPPED: Final = "dropped"
PROMISE_RULES: Final = (PASSED_ON, KEPT, DROPPED)
