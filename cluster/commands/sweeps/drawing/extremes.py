"""Additions to a random scenario that bring chain, disks or load to their limits, or change the chain's rules.

Each addition is a function of a random source and a scenario's fields, which it changes in place.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

Fields = dict[str, Any]

CONFIGS: Final[list[dict[str, Any]]] = [
    {"LANE_TIMER_CYCLES": 600_000},
    {"LANE_TIMER_CYCLES": 2_000_000},
    {"LANE_BASEFEE_SLOPE": 4, "LANE_FEE_MULTIPLIER_MILLI": 1_500},
    {"LANE_BASEFEE_SLOPE": 1, "LANE_FEE_MULTIPLIER_MILLI": 500},
    {"PRIORITY_TIERS": [1, 10, 30, 90], "PRIORITY_FLOOR": 5},
    {"FAIRNESS_WINDOW_BLOCKS": 1},
    {"FAIRNESS_WINDOW_BLOCKS": 20},
    {"MAX_TTL": 20},
    {"MAX_TTL": 1_000},
    {"MAX_CELLS_PER_FIRE": 20_000},
    {"MAX_CYCLES_PER_FIRE": 200_000, "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 100_000},
]
"""Parameter changes on governed chains; the chain refuses one that is inconsistent with the other parameters."""
DEPLOYED: Final = ("heartbeat", "keeper", "token", "builtin:script")
PROGRAMS: Final = ("bidding_agent", "liquidation_bot", "price_oracle", "subscription", *DEPLOYED[:-1])
"""Names of the shipped actor programs that random scenarios use."""
SMALLEST: Final = 4
"""Minimum size of a committee."""
AT_LIMITS: Final = 0.3
"""Share of the seeds with users of the workload ``limits`` (:func:`call_at_limits`)."""
WATCHES: Final = 0.5
"""Share of the chains with ``bias_auction`` that have users whose timers watch keys (:func:`watch_keys`)."""
LOSING: Final = ("wipe", "bit_rot", "lose_node")
"""Kinds of faults by which validators can lose their disks."""


def nodes_of(validators: Fields) -> list[Fields]:
    """The settings of each validator: an empty dict for each if the section ``validators`` has no ``nodes``."""
    return validators.get("nodes") or [{} for _ in range(validators["count"])]


def losing_in(fields: Fields) -> int:
    """The number of faults that can lose disks."""
    return sum(fault["kind"] in LOSING for fault in fields["faults"])


def govern(random: Random, fields: Fields) -> None:
    """Add parameter changes, timers by system instruction, and programs that are deployed later."""
    options = {
        "timers": random.randint(1, 4),
        "ahead_blocks": random.choice([4, 6, 10]),
        "cancel_percent": random.choice([20, 50, 80]),
        "configs": random.sample(CONFIGS, random.randint(1, 4)),
        "refused_percent": random.choice([0, 30]),
        "deploys": random.sample(DEPLOYED, random.randint(0, 2)),
    }
    group = {"workload": "governance", "interval_ms": random.choice([500, 900]), "options": options}
    fields["load"]["users"].append(group)  # last, so that the numbers of the other users stay the same


def call_at_limits(random: Random, fields: Fields) -> None:
    """Add script actors whose calls are at the limits of what is allowed, in a share :data:`AT_LIMITS` of the seeds."""
    if random.random() >= AT_LIMITS:
        return
    group = {
        "workload": "limits",
        "interval_ms": random.choice([300, 600]),
        "options": {"calls": random.choice([3, 8])},
    }
    fields["load"]["users"].append(group)  # last, so that the numbers of the other users stay the same


def watch_keys(random: Random, fields: Fields) -> None:
    """Add users whose timers watch keys, in a share :data:`WATCHES` of the chains that have such timers."""
    if fields["chain"]["policy"] != "bias_auction" or random.random() >= WATCHES:
        return
    fields["chain"]["params"]["MAX_WATCHERS_PER_KEY"] = random.choice([1, 4, 64])
    options = {"timers": random.choice([2, 8]), "life_blocks": random.choice([4, 20])}
    group = {"workload": "watch", "count": 2, "interval_ms": random.choice([300, 600]), "options": options}
    fields["load"]["users"].append(group)  # last, so that the numbers of the other users stay the same


def keep_little(random: Random, fields: Fields) -> None:
    """Give validators small disk segments, and let them prune all but the last few heights."""
    fields["storage"] = {"segment_kib": random.choice([1, 4]), "retained_heights": random.choice([8, 16])}


def crowd(random: Random, fields: Fields) -> None:
    """Add more timers than the timer lane has room for."""
    most = {"MAX_CYCLES_PER_FIRE": 50_000, "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 50_000}
    fields["chain"]["params"] |= {"LANE_TIMER_CYCLES": random.choice([100_000, 300_000]), **most}
    flood = {"timers": 15, "burn": 20_000, "payload_bytes": random.choice([0, 500])}
    fields["load"]["users"].append({"workload": "flood", "interval_ms": 400, "options": flood})


def hurry(random: Random, fields: Fields) -> None:
    """Let timers expire soon, and let a block remove only a few of them."""
    most = random.choice([4, 10])
    few = {"SCAN_LIMIT": most, "GC_CYCLES_PER_REMOVAL": 200, "TIMER_GC_CYCLES": 2 * most * 200}
    fields["chain"]["params"] |= {"MAX_TTL": random.choice([14, 16]), **few}


def storm(random: Random, fields: Fields) -> None:
    """Add timers whose fire cannot be paid for, and timers that wait for a price that never comes."""
    options = {"timers": 15, "in_all": 90, "insolvent_percent": random.choice([20, 80])}
    fields["load"]["users"].append({"workload": "storm", "interval_ms": 500, "options": options})


def run_programs(_: Random, fields: Fields) -> None:
    """Add users of the Python actors. They use jobs, runners, messages, published values and bids; some calls fail."""
    users = fields["load"]["users"]
    oracle = sum(group.get("count", 1) for group in users)
    bot, agent = oracle + 1, oracle + 3
    feeds = [call("start", {"every": 4, "pair": "CBY/USD"}), call("subscribe", {"actor": bot})]
    debt = call("open_position", {"collateral": 1_000, "debt": 900_000}, value=1_000)
    bidder = [call("init", {"deposit": 1_000, "oracle": {"actor": oracle}}), debt]
    calls = [call("collect", None), call("top_up", None, value=10)]
    members = [call("init", {"fee": 1_000, "period": 3}), call("join", None, value=3_000)]
    users += [
        program("price_oracle", 400, feeds),
        program("liquidation_bot", 200, bidder),
        program("subscription", 600, members, calls),
        program("bidding_agent", 1_000, [call("init", {"actor": oracle})]),
        program("heartbeat", 1_000, [call("start", {"every": 2, "times": None, "agent": {"actor": agent}})]),
        {"workload": "runner", "count": 3, "interval_ms": 200, "options": {"serves": oracle}},
    ]


def aim(random: Random, fields: Fields) -> None:
    """Aim the faults: kill validators right after votes, and let syncs fail for one kind of file only."""
    for fault in fields["faults"]:
        if fault["kind"] == "kill":
            fault["after_votes"] = random.choice(["notarize", "notarize", "finalize", "finalize", "nullify"])
        elif fault["kind"] == "failed_sync":
            fault["of"] = random.choice(["journal", "blocks", "state"])


def call(handler: str, payload: Any, **more: Any) -> Fields:
    """The scenario fields of one call by a program's users; ``more`` are further fields."""
    return {"handler": handler, "payload": payload, **more}


def program(name: str, interval_ms: int, setup: list[Fields], calls: list[Fields] | None = None, **more: Any) -> Fields:
    """The scenario fields of a group of users of a shipped program; ``more`` are further fields."""
    options = {"program": name, "setup": setup, "calls": calls or []}
    return {"workload": "program", "interval_ms": interval_ms, "options": options, **more}
