"""Small attacks in random scenarios: they bring lanes, mailboxes, agents and mempools to their limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from cluster.commands.sweeps.drawing.extremes import Fields
from validator.primitives.params import DEFAULTS

ATTACKED: Final = 0.4
"""Share of the seeds with attacks."""
NUMBERS: Final = (1, 2, 2, 3)
"""Possible numbers of attacks in a seed that has attacks; one is drawn."""
BUDGETS: Final = (None, 10**11, 10**12, 10**14)
"""Possible total balances of an attack's users (``None``: the default); one is drawn. With a small balance their
transactions are soon refused, and their timers destroyed."""
DEFERRED: Final = ("mailbox-flood", "message-fan-out", "unanswered-jobs")
"""Attacks on the deferred lane. In half of the seeds with such an attack that lane has little capacity."""


def attack(random: Random, fields: Fields) -> None:
    """Add attackers in a share :data:`ATTACKED` of the seeds. They come last, so other users keep their numbers."""
    if random.random() >= ATTACKED:
        return
    for workload in random.sample(list(ATTACKS), random.choice(NUMBERS)):
        group: Fields = {"workload": workload, "interval_ms": random.choice([400, 800])}
        group |= {"options": ATTACKS[workload](random), "from_height": random.randint(1, 12)}
        budget, narrow = random.choice(BUDGETS), random.choice([None, round(DEFAULTS.message_cycles * 1.5)])
        fields["load"]["users"].append(group if budget is None else {**group, "budget": budget})
        if narrow is not None and workload in DEFERRED:
            fields["chain"]["params"].setdefault("LANE_DEFERRED_CYCLES", narrow)


def _burst(random: Random) -> Fields:
    return {"timers": random.randint(4, 20), "every_blocks": random.randint(4, 10)}


def _agents(random: Random) -> Fields:
    return {"timers": random.randint(4, 16), "spread_blocks": random.randint(1, 4), "wait_blocks": random.randint(2, 6)}


ATTACKS: Final[Mapping[str, Callable[[Random], Fields]]] = {
    "same-block": _burst,
    "chain-reaction": lambda random: {"starts": 1, "fan_out": random.choice([1, 2]), "every": random.randint(3, 6)},
    "sybil-fragmentation": lambda random: {"timers": random.randint(2, 6)},
    "lane-cycles": _burst,
    "lane-cells": lambda random: {"timers": random.randint(2, 10), "cells": random.choice([2_000, 10_000, 100_000])},
    "gas-exhaustion": lambda random: {**_burst(random), "gas_limit": random.choice([10_000, 40_000])},
    "basefee-oscillation": lambda random: {"period_blocks": random.choice([4, 8]), "ahead_blocks": 8},
    "tip-outbidding": lambda random: {"every_blocks": random.randint(1, 3)},
    "tip-sniping": lambda random: {"burn": random.choice([5_000, 50_000])},
    "slow-agents": _agents,
    "failing-agents": _agents,
    "lying-agents": _agents,
    "greedy-agents": _agents,
    "far-future": lambda random: {"timers": 10, "ahead_blocks": random.randint(10, 60), "spread_blocks": 20},
    "cancel-storm": lambda random: {"timers": random.randint(5, 20), "cancel_percent": random.choice([50, 100])},
    "extend-storm": lambda random: {"timers": random.randint(5, 20), "ahead_blocks": random.randint(5, 40)},
    "expiry-storm": lambda random: {**_burst(random), "wait_blocks": random.randint(0, 3)},
    "insolvency-storm": lambda random: {"timers": random.randint(5, 20), "every_blocks": 16},
    "payload-abuse": lambda random: {"payload_bytes": random.choice([1_000, 10_000]), "ahead_blocks": 5},
    "mailbox-flood": lambda random: {"messages": random.randint(2, 8)},
    "message-fan-out": lambda random: {"messages": random.randint(2, 8), "cycles": random.choice([20_000, 100_000])},
    "unanswered-jobs": lambda random: {"jobs": random.randint(2, 8), "payload_bytes": random.choice([0, 1_000])},
    "nonce-gaps": lambda random: {"per_turn": random.randint(2, 8), "gap": random.choice([1, 20])},
    "replacement-churn": lambda random: {"per_turn": random.randint(2, 6), "gap": random.choice([0, 1])},
    "transfer-spam": lambda random: {"per_turn": random.randint(2, 8)},
}
"""A function for each attack workload (``docs/attacks.md``). It draws options with which a run takes little time."""
