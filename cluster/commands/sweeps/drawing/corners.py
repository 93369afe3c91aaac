"""Additions to a random scenario that aim at corner cases, which independent draws reach in one of a hundred seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from cluster.commands.sweeps.drawing.extremes import SMALLEST, Fields, crowd, losing_in, nodes_of, run_programs, storm
from cluster.record.rules import Mechanism
from consensus.types import fault_bound
from validator.primitives.params import DEFAULTS

CORNERED: Final = 0.5
"""Share of the seeds with one of :data:`CORNERS`."""
BASEFEE: Final = 1_000
"""Initial and minimum basefee in a scenario of :func:`_agents`, whose bidding agents can no longer be paid."""
FORGER: Final = "signature-forger"
AT_ACTIVATION: Final = 0.5
"""Share of the seeds with lost votes (:func:`_lost_votes`) in which the first such block is near the activation height.
"""
AFTER_THE_OTHERS: Final = 32
"""A height at which the other faults have ended, or have nearly always taken effect. Faults from this height on may
block views for a long time."""


def corner(random: Random, fields: Fields) -> None:
    """Add a random one of :data:`CORNERS` to half of the scenarios (:data:`CORNERED`)."""
    if random.random() < CORNERED:
        random.choice(list(CORNERS))(random, fields)


# --- the chain --------------------------------------------------------------------------------------------------------


def _agents(random: Random, fields: Fields) -> None:
    """Add bidding agents that fail, and others that can no longer be paid. Their budget per block is soon used up."""
    fields["chain"]["policy"] = "cip1"
    fields["chain"]["params"] |= {
        "ACTIVATION_HEIGHT": random.randint(1, 8),
        "GBA_BUDGET_CYCLES": random.randint(1, 3) * DEFAULTS.gba_max_cycles,
        "GBA_UNPAID_PAUSE": random.randint(1, 8),
        "INITIAL_BASEFEE": BASEFEE,
        "MIN_BASEFEE": BASEFEE,
        "MAX_BASEFEE": DEFAULTS.max_basefee,
    }
    queries = random.randint(12, 16)
    budget = 2 * queries * DEFAULTS.gba_max_cycles * BASEFEE  # half of it is the account's
    options = {"timers": 4, "spread_blocks": 2}
    _attack(fields, "failing-agents", {**options, "wait_blocks": 2})
    _attack(fields, "greedy-agents", {**options, "wait_blocks": 20}, budget=budget)


def _deferred(random: Random, fields: Fields) -> None:
    """Add more actor messages than the deferred lane has room for, and jobs that get an answer."""
    run_programs(random, fields)
    fields["chain"]["params"]["LANE_DEFERRED_CYCLES"] = round(DEFAULTS.message_cycles * random.uniform(1, 2))
    _attack(fields, "message-fan-out", {"messages": random.randint(3, 8)})


def _removals(random: Random, fields: Fields) -> None:
    """Make more timers removable than a block may remove: expired, cancelled and insolvent ones."""
    scanned = random.randint(2, 4)
    least = 2 * scanned * DEFAULTS.gc_cycles_per_removal
    fields["chain"]["params"] |= {"SCAN_LIMIT": scanned, "TIMER_GC_CYCLES": least, "MAX_TTL": 14}
    _attack(fields, "cancel-storm", {"timers": 8, "cancel_percent": 50})
    _attack(fields, "expiry-storm", {"timers": 20, "every_blocks": 6, "wait_blocks": random.randint(0, 2)})
    storm(random, fields)


def _cells(random: Random, fields: Fields) -> None:
    """Add fires that use up the cells of the timer lane, and fires that run out of cycles."""
    fields["chain"]["params"] |= {"MAX_CELLS_PER_FIRE": 20_000, "LANE_TIMER_CELLS": random.randint(20_000, 40_000)}
    _attack(fields, "lane-cells", {"timers": random.randint(6, 12), "cells": random.choice([10_000, 100_000])})
    _attack(fields, "gas-exhaustion", {"timers": random.randint(1, 4), "every_blocks": 6, "gas_limit": 10_000})


def _attack(fields: Fields, workload: str, options: Fields, **more: Any) -> None:
    group = {"workload": workload, "interval_ms": 400, "options": options, **more}
    fields["load"]["users"].append(group)  # last, so that the numbers of the other users stay the same


# --- nodes ------------------------------------------------------------------------------------------------------------


def _replacements(random: Random, fields: Fields) -> None:
    """Add users whose transactions replace others in the mempool, or offer too little to replace them."""
    _attack(fields, "replacement-churn", {"per_turn": random.randint(2, 6), "gap": 1})


def _replays(random: Random, fields: Fields) -> None:
    """Let validators crash after the sync of blocks and before the sync of the resulting state; they restart."""
    for height in random.sample(range(6, AFTER_THE_OTHERS), 3):
        _fault(fields, height, "failed_sync", of="state", target="random", down_ms=1_000)


def _crashes(random: Random, fields: Fields) -> None:
    """Crash one validator repeatedly while it replaces its journal or archives blocks; later kill all validators."""
    fields.setdefault("limits", {})["journal_blocks"] = 1
    able, first = _able(fields), random.randrange(6, 26)
    target = random.choice(able)
    for height in range(first, first + 3):
        _fault(fields, height, "failed_sync", of=random.choice(["journal", "blocks"]), target=target, down_ms=1)
    _fault(fields, AFTER_THE_OTHERS, "kill", target=able, down_ms=1_000, reorders=True)


def _lost_votes(random: Random, fields: Fields) -> None:
    """Twice, lose all messages for a while once a quorum has voted for a block.

    The next votes are lost, and the blocks and votes of some later views. The first such block may be near the one that
    begins the auction.
    """
    timing, names = fields["consensus"], _present(fields)
    heights = random.sample(range(6, AFTER_THE_OTHERS), 2)
    if random.random() < AT_ACTIVATION:
        fields["chain"]["policy"] = "cip1"
        fields["chain"]["params"]["ACTIVATION_HEIGHT"] = heights[0] + random.randint(0, 2)
        crowd(random, fields)
    for height in heights:
        for_ms = round(timing["advance_timeout_ms"] * random.choice([0.5, 1.5, 4.0]))
        groups = [[name] for name in names]
        _fault(fields, height, "partition", groups=groups, for_ms=for_ms, after_votes="notarize")


def _lost_answers(random: Random, fields: Fields) -> None:
    """Cut one validator off from the others' messages repeatedly, so that some answers to its requests are lost."""
    timing, target = fields["consensus"], random.choice(_able(fields))
    others = [name for name in _present(fields) if name != target]
    first, most_ms = random.randrange(6, 20), timing["rebroadcast_ms"] + timing["block_interval_ms"]
    for height in range(first, first + 8):
        kind = {"from": others, "to": [target], "for_ms": random.randint(most_ms // 4, most_ms)}
        _fault(fields, height, "one_way_partition", **kind)


def _forgers(random: Random, fields: Fields) -> None:
    """Turn on real signatures, and let a validator forge some if the committee can spare one."""
    fields["consensus"]["signatures"] = "ed25519"
    nodes = nodes_of(fields["validators"])
    liars = [node for node in nodes if node.get("byzantine")]
    if not liars and (losing_in(fields) or any(nodes)):
        return
    liar = random.choice(liars or nodes)
    liar["byzantine"] = list(dict.fromkeys([*liar.get("byzantine", ()), FORGER]))
    fields["validators"]["nodes"] = nodes


def _borders(random: Random, fields: Fields) -> None:
    """Change the committee while messages take as long as timeouts: members of both committees vote at the border.

    Do nothing if a validator may lose its disk: a committee of the minimum size cannot spare one.
    """
    names, timing = _able(fields), fields["consensus"]
    if losing_in(fields) or len(names) == SMALLEST or len(names) < fields["validators"]["count"]:
        return
    view = random.randrange(8, 20)
    members = [random.sample(names, SMALLEST) for _ in range(3)]
    views = [view, view + 1, view + random.randint(2, 8)]
    fields["validators"]["epochs"] = [
        {"from_view": from_view, "members": some} for from_view, some in zip(views, members, strict=True)
    ]
    latency_ms, for_ms = timing["leader_timeout_ms"] * random.uniform(0.2, 0.8), 10 * timing["advance_timeout_ms"]
    _fault(fields, view - 3, "degrade", latency_ms=latency_ms, jitter_ms=latency_ms / 2, for_ms=for_ms)


def _failing_views(random: Random, fields: Fields) -> None:
    """Make messages slower than the longest timeouts until validators have no room for the blocks of failed views."""
    fields.setdefault("limits", {})["max_held_blocks"] = 8
    timeout_ms = fields["consensus"]["advance_timeout_ms"]
    fields["consensus"]["rebroadcast_ms"] = timeout_ms  # views are long, and a tick for each message makes a seed dear
    latency_ms = timeout_ms * random.uniform(8, 10)  # timeouts grow to 16 times, and a block takes two latencies
    _fault(fields, AFTER_THE_OTHERS, "degrade", latency_ms=latency_ms, for_ms=100 * timeout_ms)


def _forks(random: Random, fields: Fields) -> None:
    """Let one validator receive all messages while none of its messages arrive, and slow down ``f`` other validators.

    Only the mute validator sees a quorum for a block. As leader it builds on that block, and must give up both later.
    """
    count, timing = fields["validators"]["count"], fields["consensus"]
    mute, *slow = random.sample(_able(fields), 1 + fault_bound(count))
    for_ms = (count + 1) * (timing["advance_timeout_ms"] + timing["block_interval_ms"])
    _fault(fields, AFTER_THE_OTHERS, "one_way_partition", **{"from": [mute]}, for_ms=for_ms)
    job_ms = 2 * timing["advance_timeout_ms"]
    _fault(fields, AFTER_THE_OTHERS, "slow_execution", target=slow, job_ms=job_ms, for_ms=for_ms)


def _able(fields: Fields) -> list[str]:
    """The names of the validators that are honest and present from the start."""
    return [f"validator-{index}" for index, node in enumerate(nodes_of(fields["validators"])) if not node]


def _present(fields: Fields) -> list[str]:
    """The names of the validators that are present from the start."""
    return [
        f"validator-{index}"
        for index, node in enumerate(nodes_of(fields["validators"]))
        if "joins_at_height" not in node
    ]


def _fault(fields: Fields, height: int, kind: str, **more: Any) -> None:
    fields["faults"].append({"kind": kind, "at_height": height, **more})


CORNERS: Final[Mapping[Callable[[Random, Fields], None], tuple[Mechanism, ...]]] = {
    _agents: (Mechanism.QUERIES_FAILED, Mechanism.QUERIES_UNPAID, Mechanism.QUERY_BUDGET_USED_UP),
    _deferred: (Mechanism.DEFERRED_LANE_FULL, Mechanism.CALLBACKS),
    _removals: (Mechanism.GC_BUDGET_USED_UP, Mechanism.EXPIRED_CARRIED_OVER),
    _cells: (Mechanism.LANE_CELLS_FULL, Mechanism.FIRES_REVERTED),
    _replacements: (Mechanism.POOL_REPLACED, Mechanism.POOL_UNDERPRICED),
    _replays: (Mechanism.BLOCKS_REPLAYED,),
    _crashes: (Mechanism.JOURNAL_REPLACED,),
    _lost_votes: (Mechanism.BRANCH_GIVEN_UP,),
    _lost_answers: (Mechanism.STUCK_PEER_ANSWERED, Mechanism.BLOCKS_ASKED_FOR),
    _forgers: (),
    _borders: (Mechanism.BORDER_VIEW_FAILED,),
    _failing_views: (Mechanism.PROPOSED_WITHOUT_ROOM,),
    _forks: (Mechanism.DEEP_BRANCH_GIVEN_UP,),
}
"""The additions, each with the mechanisms that it aims to reach. Faults and byzantine behaviours are not listed."""
