"""The names of the rules whose evaluations a run counts, and of the mechanisms that it may reach.

A rule that was never evaluated, or a mechanism that was never reached, was not tested.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto
from typing import Final


class Due(Enum):
    """How often a run must evaluate a rule for a pass to be meaningful."""

    SELDOM = auto()
    """Not at all: it is about a situation that may not occur, such as a validator that is stuck, behind or byzantine,
    or a view that is given up or long."""
    ONCE = auto()
    EACH_HEIGHT = auto()


class SafetyRule(StrEnum):
    """Rules of the simulator's safety monitor (:mod:`cluster.watches.safety_monitor`); live runs evaluate
    some of them (:mod:`cluster.watches.live.safety_watch`)."""

    due: Due
    is_watched_live: bool

    def __new__(cls, name: str, due: Due = Due.ONCE, is_watched_live: bool = False) -> SafetyRule:
        rule = str.__new__(cls, name)
        rule._value_, rule.due, rule.is_watched_live = name, due, is_watched_live
        return rule

    CERTIFICATES = "certificates", Due.ONCE, True
    ONE_BLOCK = "one_block_a_view", Due.ONCE, True
    NOTARIZED_FIRST = "notarized_first"
    SKIPS = "skips", Due.ONCE, True
    AGREEMENT = "agreement", Due.EACH_HEIGHT
    ROOTS = "roots", Due.EACH_HEIGHT
    ANCESTRY = "ancestry", Due.EACH_HEIGHT, True
    CERTIFIED = "certified", Due.ONCE, True
    PROVED_FINAL = "proved_final", Due.EACH_HEIGHT, True
    LEADERS = "leaders", Due.EACH_HEIGHT, True
    SILENCE = "silence"
    LEDGER = "ledger", Due.EACH_HEIGHT
    PROOFS = "proofs"
    DURABLE_VOTES = "durable_votes", Due.EACH_HEIGHT
    OWN_VOTES = "own_votes", Due.EACH_HEIGHT, True
    LOCK = "lock"
    ABSTENTION = "abstention"
    BOUNDED = "bounded"
    ANSWERS = "answers", Due.SELDOM
    PATIENCE = "patience", Due.SELDOM
    RESTRAINT = "restraint", Due.SELDOM
    TIMEOUTS = "timeouts", Due.EACH_HEIGHT
    REPETITIONS = "repetitions", Due.SELDOM
    MEMPOOL = "mempool"
    EXECUTION = "execution", Due.EACH_HEIGHT
    CATCH_UP = "catch_up", Due.SELDOM
    PRUNING = "pruning", Due.EACH_HEIGHT
    FIGURES = "figures", Due.EACH_HEIGHT
    BLAMES = "blames", Due.SELDOM
    STATE = "state"


WATCHED_LIVE: Final = tuple(rule for rule in SafetyRule if rule.is_watched_live)


class PromiseRule(StrEnum):
    """Rules about transactions taken from clients (:mod:`cluster.watches.promise_watch`)."""

    PASSED_ON = "passed_on"
    KEPT = "kept"
    DROPPED = "dropped"

    @property
    def is_of_each(self) -> bool:
        """Whether every transaction taken from a client evaluates it."""
        return self is not PromiseRule.DROPPED


class Mechanism(StrEnum):
    """Mechanisms of the chain and of validators that a run may or may not exercise, such as epochs and limits.

    A run says nothing about a mechanism that it never reached. Those of the chain are shown by the specification
    (:mod:`cluster.audit.ledger`), those of nodes in served data and the driver's observations
    (:mod:`cluster.checks.metrics.reached`). The names are stable: they are part of a sweep's summary.
    """

    # of the chain
    BACKLOG = "backlog"
    """A timer waits beyond its trigger height."""
    TIMERS_CANCELLED = "timers_cancelled"
    TIMERS_EXTENDED = "timers_extended"
    WATCHES_TRIGGERED = "watches_triggered"
    """A timer becomes due because the key that it watches has changed."""
    TIMERS_EXPIRED = "timers_expired"
    TIMERS_EXPIRED_WAITING = "timers_expired_waiting"
    """A timer expires that passed the gate in the block before, but had no room."""
    TIMERS_INSUFFICIENT_FUNDS = "timers_insufficient_funds"
    EXPIRED_CARRIED_OVER = "expired_carried_over"
    """Expired timers stay, because the block's budget for removals is used up."""
    GC_BUDGET_USED_UP = "gc_budget_used_up"
    SCAN_LIMIT_REACHED = "scan_limit_reached"
    LANE_CYCLES_FULL = "lane_cycles_full"
    """A timer waits because its cycles do not fit into the lane."""
    LANE_CELLS_FULL = "lane_cells_full"
    EPOCH_ENTERED = "epoch_entered"
    OVERFLOW_CUT = "overflow_cut"
    """An epoch comes within the horizon while timers wait for it in the overflow tree."""
    WINDOW_PRUNED = "window_pruned"
    """Fires leave the fairness window."""
    WINDOW_MEDIAN_ODD = "window_median_odd"
    """The median of the fairness window is over the fires of an odd number of actors, three or more."""
    WINDOW_MEDIAN_EVEN = "window_median_even"
    TIP_MEDIAN_ODD = "tip_median_odd"
    """The median tip is over the tips of an odd number of fires, three or more."""
    TIP_MEDIAN_EVEN = "tip_median_even"
    BASEFEE_AT_FLOOR = "basefee_at_floor"
    """A basefee is at ``MIN_BASEFEE`` after a block that used less than its target."""
    BASEFEE_AT_CAP = "basefee_at_cap"
    """A basefee is at ``MAX_BASEFEE`` after a block that used more than its target."""
    BASEFEE_LEAST_STEP = "basefee_least_step"
    """A basefee rises by 1, the least step, because the computed rise is 0 (SPEC §7)."""
    AUCTION_BEGAN = "auction_began"
    PARAMETERS_CHANGED = "parameters_changed"
    AGENT_QUERIES = "agent_queries"
    QUERIES_FAILED = "queries_failed"
    QUERIES_UNPAID = "queries_unpaid"
    QUERY_BUDGET_USED_UP = "query_budget_used_up"
    BID_REMEMBERED = "bid_remembered"
    """A timer is priced by its agent's answer in an earlier block."""
    TRANSACTIONS_REVERTED = "transactions_reverted"
    FIRES_REVERTED = "fires_reverted"
    MESSAGES = "messages"
    DEFERRED_LANE_FULL = "deferred_lane_full"
    """A message waits because its cycles do not fit into the deferred lane."""
    CALLBACKS = "callbacks"

    # of nodes
    BRANCH_GIVEN_UP = "branch_given_up"
    """A validator abandons an executed block of another branch."""
    DEEP_BRANCH_GIVEN_UP = "deep_branch_given_up"
    """A validator abandons two or more executed blocks at once."""
    EPOCH_ROLLED_BACK = "epoch_rolled_back"
    """A validator abandons a branch that had entered an epoch."""
    WINDOW_ROLLED_BACK = "window_rolled_back"
    """A validator abandons a branch in which fires had left the fairness window."""
    BORDER_VIEW_FAILED = "border_view_failed"
    """The last view of a committee, or the first one of the next, has no final block."""
    POOL_FULL = "pool_full"
    POOL_SENDER_LIMIT = "pool_sender_limit"
    POOL_NONCE_TOO_HIGH = "pool_nonce_too_high"
    POOL_UNAFFORDABLE = "pool_unaffordable"
    POOL_UNDERPRICED = "pool_underpriced"
    POOL_REPLACED = "pool_replaced"
    POOL_EVICTED = "pool_evicted"
    POOL_EXPIRED = "pool_expired"
    POOL_SENDER_REFUSED = "pool_sender_refused"
    """A builder can run none of a sender's transactions; the sender comes last from then on."""
    POOL_SENDER_FORGIVEN = "pool_sender_forgiven"
    """A sender that was refused long enough ago takes its turn with the others again."""
    TIMEOUTS_LENGTHENED = "timeouts_lengthened"
    TIMEOUTS_LEVEL_AGAIN = "timeouts_level_again"
    """A validator's timeouts had grown, and are the configured ones again."""
    STUCK_PEER_ANSWERED = "stuck_peer_answered"
    """A validator has to answer a peer in a view that it has left."""
    BLOCKS_ASKED_FOR = "blocks_asked_for"
    """A validator requests blocks that it lacks from a peer."""
    PROPOSED_WITHOUT_ROOM = "proposed_without_room"
    """After many failed views a leader proposes a block without transactions, though some wait."""
    JOURNAL_REPLACED = "journal_replaced"
    """A validator replaces its journal, not for the first time since its start."""
    BLOCKS_REPLAYED = "blocks_replayed"
    """A validator executes archived blocks again when it starts."""
    SNAPSHOT_JOINED = "snapshot_joined"
    SNAPSHOT_JOINED_ACROSS_EPOCH = "snapshot_joined_across_epoch"
    """After a validator joins by a snapshot of one epoch, the chain enters the next before the validator takes part."""
    ARCHIVE_PRUNED = "archive_pruned"
