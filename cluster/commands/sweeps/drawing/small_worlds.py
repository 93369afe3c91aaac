"""Chain parameters, limits of validators and disk sizes for random scenarios, most so small that a run reaches them
several times.

By default a chain has windows of a thousand blocks and epochs of an hour. A mempool has room for thousands of
transactions, an engine has windows of 64 views, and a disk has files of 32 MiB. A random scenario has about forty
blocks and a few users, so it would never reach the end of a window.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from cluster.commands.sweeps.drawing.extremes import Fields
from validator.chain.block import MAX_BLOCK_BYTES
from validator.primitives.params import DEFAULTS

SMALL: Final = 0.75
"""Share of the seeds with drawn chain parameters; other seeds keep the defaults, unless another addition sets them.

The limits of mempools, those of engines and the sizes of disks are each drawn in the same share of the seeds. These
three decisions are independent.
"""
DRAWN: Final = 0.5
"""Probability that a parameter group, a limit or a size is drawn, in a seed in which its category is drawn."""


def shrink(random: Random, fields: Fields) -> None:
    """Set some chain parameters, limits and disk sizes of a scenario to random values, in place.

    A group of parameters is skipped if one of its parameters is already set.
    """
    params = fields["chain"]["params"]
    are_small = random.random() < SMALL
    for group in GROUPS:
        drawn, is_drawn = group(random), random.random() < DRAWN
        if are_small and is_drawn and not drawn.keys() & params.keys():
            params |= drawn
    for section, drawn in (("limits", _pool(random)), ("limits", _windows(random)), ("storage", _disk(random))):
        if random.random() < SMALL:
            some = {name: value for name, value in drawn.items() if random.random() < DRAWN}
            if "keep_blocks" in some:
                some["retained_heights"] = drawn["retained_heights"]  # must not exceed keep_blocks
            fields[section] = some | fields.get(section, {})


def _pool(random: Random) -> Fields:
    return {
        "max_transactions": random.choice([4, 10, 40]),
        "max_bytes": random.randint(5_000, 50_000),
        "max_nonces": random.randint(2, 20),
        "near_nonces": random.randint(1, 8),
        "max_sender_bytes": random.randint(3_000, 20_000),
        "max_evictions": random.randint(1, 4),
        "max_idle_senders": random.randint(0, 3),
        "max_blocks_refused": random.randint(0, 3),
        "max_blocks_waiting": random.randint(2, 15),
    }


def _windows(random: Random) -> Fields:
    """Random windows of a consensus engine, and random limits on the blocks that a node holds."""
    return {
        "view_window": random.randint(1, 8),
        "proposal_window": random.randint(0, 3),
        "retained_views": random.randint(2, 12),
        "evidence_views": random.randint(1, 4),
        "final_views": random.randint(1, 6),
        "distrusted_views": random.randint(0, 12),
        "max_held_blocks": random.randint(8, 32),
        "max_held_bytes": random.randint(MAX_BLOCK_BYTES, 2 * MAX_BLOCK_BYTES),
        "max_proven_ahead": random.randint(1, 8),
        "journal_blocks": random.randint(1, 8),
    }


def _disk(random: Random) -> Fields:
    return {
        "segment_kib": random.choice([1, 2, 8]),
        "retained_heights": random.randint(8, 16),
        "snapshot_interval": random.randint(1, 8),
        "keep_blocks": random.randint(16, 24),
    }


def _calendar(random: Random) -> Fields:
    epoch = random.randint(2, 10)
    ring = epoch + random.choice([0, 1, random.randint(2, 10)])
    return {"RING_BUFFER_SIZE": ring, "EPOCH_LENGTH": epoch, "EPOCH_HORIZON": random.randint(1, 5)}


def _window(random: Random) -> Fields:
    return {"FAIRNESS_WINDOW_BLOCKS": random.randint(1, 13)}


def _expiry(random: Random) -> Fields:
    return {"MAX_TTL": random.randint(14, 40)}


def _lane(random: Random) -> Fields:
    fire = random.choice([50_000, 100_000, 300_000])
    lane = {"LANE_TIMER_CYCLES": round(fire * random.uniform(1, 8))}
    return lane | {"MAX_CYCLES_PER_FIRE": fire, "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": random.choice([50_000, fire])}


def _cells(random: Random) -> Fields:
    return {"MAX_CELLS_PER_FIRE": random.choice([5_000, 20_000]), "LANE_TIMER_CELLS": random.randint(20_000, 60_000)}


def _removals(random: Random) -> Fields:
    scanned = random.randint(1, 30)
    least = 2 * scanned * DEFAULTS.gc_cycles_per_removal
    return {"SCAN_LIMIT": scanned, "TIMER_GC_CYCLES": round(least * random.choice([1, 1, random.uniform(1, 3)]))}


def _agents(random: Random) -> Fields:
    budget = random.choice([DEFAULTS.gba_max_cycles, 3 * DEFAULTS.gba_max_cycles, DEFAULTS.gba_budget_cycles])
    queries = {"GBA_QUERIES_PER_ACTOR": random.randint(1, 4), "GBA_UNPAID_PAUSE": random.randint(1, 8)}
    return queries | {"GBA_BUDGET_CYCLES": budget}


def _lane_price(random: Random) -> Fields:
    multiplier = random.choice([0, 1, 500, 1_000, 3_000, 10_000])
    return {"LANE_BASEFEE_SLOPE": random.randint(1, 8), "LANE_FEE_MULTIPLIER_MILLI": multiplier}


def _prices(random: Random) -> Fields:
    """Random basefee parameters with which the basefee moves a lot and soon reaches its bounds."""
    initial = random.choice([8, 1_000, DEFAULTS.initial_basefee])
    bounds = {"MIN_BASEFEE": max(1, round(initial * random.choice([0.1, 0.8, 1.0])))}
    bounds["MAX_BASEFEE"] = round(initial * random.choice([1.0, 1.3, 20.0]))
    target = random.choice([20_000, 100_000, 500_000])
    return {"INITIAL_BASEFEE": initial, **bounds, "BLOCK_CYCLES_TARGET": target}


def _order(random: Random) -> Fields:
    tiers = [random.randint(0, 100) for _ in range(len(DEFAULTS.priority_tiers))]
    rules = {"TIE_BREAK": random.choice(["id", "aged"]), "P50_WEIGHT": random.choice(["fires", "cycles"])}
    return {"PRIORITY_TIERS": tiers, "PRIORITY_FLOOR": random.choice([0, 1, 10**6]), **rules}


def _deferred(random: Random) -> Fields:
    return {"LANE_DEFERRED_CYCLES": round(DEFAULTS.message_cycles * random.uniform(1, 3))}


def _many_timers(random: Random) -> Fields:
    return {"MAX_TIMERS_PER_ACTOR": random.randint(20, 100)}


GROUPS: Final[tuple[Callable[[Random], Fields], ...]] = (
    _calendar,
    _window,
    _expiry,
    _lane,
    _cells,
    _removals,
    _agents,
    _lane_price,
    _prices,
    _order,
    _deferred,
    _many_timers,
)
"""Functions that each draw one group of parameters. The parameters of a group are consistent with each other, whatever
the other parameters are."""
