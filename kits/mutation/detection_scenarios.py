"""Detection scenarios: small scenarios, each made to provoke one kind of bug.

Each passes without a mutant. Rings and epochs are tiny, lanes are narrow and outages short, so that a few seconds show
what a long run would show on a large chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cluster.commands.sweeps.drawing.extremes import Fields, call, program
from cluster.scenario import Scenario
from kits.mutation.bugs.table import ALL, VALIDATORS, Detection

MAX_SEEDS: Final = 12
"""Maximum number of seeds that are tried for one mutant."""

_LOAD: Final[Fields] = {
    "users": [
        {"workload": "heartbeat", "count": 4},
        {"workload": "flood", "count": 2, "options": {"timers": 12, "burn": 4_000}},
        {"workload": "churn", "count": 2},
        {"workload": "transfer", "count": 2},
    ]
}
_LITTLE_LOAD: Final[Fields] = {
    "users": [{"workload": "heartbeat", "count": 2}, {"workload": "transfer", "interval_ms": 500}]
}
_TINY_CALENDAR: Final[Fields] = {"RING_BUFFER_SIZE": 8, "EPOCH_LENGTH": 8, "EPOCH_HORIZON": 2}
_QUICK: Final[Fields] = {
    "block_interval_ms": 100,
    "leader_timeout_ms": 500,
    "advance_timeout_ms": 800,
    "rebroadcast_ms": 400,
    "signatures": "keyed-hash",
}
_ENOUGH: Final[Fields] = {"heights_compared": 16, "transactions": 10, "fires": 10, "stall_ms": 60_000}


def _scenario(description: str, **sections: Any) -> Fields:
    scene: Fields = {
        "description": description,
        "chain": {"params": _TINY_CALENDAR},
        "consensus": _QUICK,
        "load": _LOAD,
        "stop": {"height": 30, "drain_blocks": 3, "timeout_s": 120},
        "success": _ENOUGH,
    }
    return scene | sections


def _kill(target: Any, height: int, down_ms: int, **more: Any) -> Fields:
    return {"kind": "kill", "target": target, "at_height": height, "down_ms": down_ms, **more}


def _bad_links(height: int, until: int) -> Fields:
    """A fault that delays, loses and reorders messages. Views fail, and their messages arrive after that."""
    fields = {"latency_ms": 120.0, "jitter_ms": 300.0, "loss": 0.2, "reordering": 0.3}
    return {"kind": "degrade", "at_height": height, "until_height": until, **fields}


def _slow_disks(height: int, until: int) -> Fields:
    targets = [f"validator-{index}" for index in ALL]
    return {"kind": "slow_disk", "target": targets, "at_height": height, "until_height": until, "sync_ms": 60}


_NARROW: Final[Fields] = _TINY_CALENDAR | {
    "LANE_TIMER_CYCLES": 300_000,
    "MAX_CYCLES_PER_FIRE": 50_000,
    "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 50_000,
}
_CROWD: Final[Fields] = {
    "users": [
        {"workload": "heartbeat", "count": 5, "interval_ms": 500},
        {"workload": "flood", "count": 5, "interval_ms": 400, "options": {"timers": 25, "burn": 20_000}},
        {"workload": "transfer", "count": 1},
    ]
}

_COMMITTEE: Final = ["validator-0", "validator-1", "validator-2"]

_LIES: Final[Mapping[str, str]] = {
    "short-certificate": "A validator says certificates that are one signature short.",
    "double-signer": "A validator says certificates with its signature in another's place.",
    "kind-replayer": "A validator says votes that notarized a block again, as votes that finalize it.",
    "sister-chain": "A validator says certificates of another chain.",
    "timeout-forger": "A validator forges certificates that views were given up.",
    "false-high-certificate": "A validator says timeouts with a forged certificate inside.",
    "invalid-block-any-field": "A validator proposes blocks whose header is false in one field.",
    "false-proposer": "A validator proposes blocks in the name of another.",
    "greedy-asker": "A validator asks for many certificates in each view.",
}
"""Descriptions of scenarios in which one validator lies in one way and nothing else is wrong, keyed by behaviour."""

_FEW_QUERIES: Final[Fields] = {
    "LANE_TIMER_CYCLES": 300_000,
    "MAX_CYCLES_PER_FIRE": 250_000,
    "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 250_000,
    "GBA_MAX_CYCLES": 10_000,
    "GBA_BUDGET_CYCLES": 10_000,
}
_BEAT: Final[Fields] = call("start", {"every": 1, "times": None, "agent": {"actor": 1}})
_WIPED: Final[Fields] = {"kind": "wipe", "target": "validator-2", "at_height": 14, "down_ms": 1_500}

DETECTION_SCENARIOS: Final[Mapping[str, Fields]] = {
    "calm": _scenario("Nothing breaks."),
    "long-payloads": _scenario(
        "Timers have payloads that are too long for their own records.",
        load={
            "users": [
                {"workload": "flood", "count": 2, "interval_ms": 400, "options": {"timers": 4, "payload_bytes": 2_000}},
                {"workload": "heartbeat", "count": 2, "interval_ms": 500},
            ]
        },
    ),
    "crowd": _scenario(
        "More timers fall due than the lane has room for.", chain={"params": _NARROW, "preset": "hardened"}, load=_CROWD
    ),
    "crowd-by-id": _scenario("The same, with ties going by id.", chain={"params": _NARROW}, load=_CROWD),
    "full-lanes": _scenario(
        "Transactions and messages wait for room in lanes that are narrow; timers wait, too.",
        chain={"params": _NARROW | {"LANE_USER_CYCLES": 400_000, "LANE_DEFERRED_CYCLES": 100_000}},
        load={
            "users": [
                *_CROWD["users"],
                {"workload": "message-fan-out", "count": 3, "interval_ms": 200, "options": {"messages": 2}},
            ]
        },
    ),
    "deadlines": _scenario(
        "Timers live for a few blocks only, and more expire than may be removed.",
        chain={
            "params": _NARROW
            | {"MAX_TTL": 14, "SCAN_LIMIT": 10, "GC_CYCLES_PER_REMOVAL": 200, "TIMER_GC_CYCLES": 2 * 10 * 200}
        },
        load=_CROWD,
    ),
    "insolvent": _scenario(
        "Timers wait and expire, and accounts cannot pay for the fires of others.",
        chain={"params": _NARROW | {"MAX_TTL": 14}},
        load={
            "users": [
                *_CROWD["users"],
                {"workload": "storm", "interval_ms": 400, "options": {"timers": 15, "insolvent_percent": 50}},
            ]
        },
    ),
    "full-cells": _scenario(
        "Fires use up the cells of the lane, and some run out of cycles.",
        chain={"params": _TINY_CALENDAR | {"MAX_CELLS_PER_FIRE": 20_000, "LANE_TIMER_CELLS": 30_000}},
        load={
            "users": [
                {"workload": "heartbeat", "count": 2},
                {"workload": "lane-cells", "interval_ms": 400, "options": {"timers": 8, "cells": 10_000}},
                {
                    "workload": "gas-exhaustion",
                    "interval_ms": 400,
                    "options": {"timers": 4, "every_blocks": 4, "gas_limit": 10_000},
                },
            ]
        },
    ),
    "crowded-restarts": _scenario(
        "More timers fall due than the lane has room for, and validators are killed near the ends of epochs.",
        chain={"params": _NARROW},
        load=_CROWD,
        faults=[_kill(f"validator-{at % 4}", at, 1_200) for at in (6, 7, 14, 15, 22, 23)],
    ),
    "restarts": _scenario(
        "Validators are killed one after another, each with what its disk had not made durable.",
        faults=[_kill(f"validator-{(2 + i) % 4}", 6 + 5 * i, 1_200, reorders=True) for i in range(4)],
    ),
    "leader-restarts": _scenario(
        "Links and disks are slow; the leader is killed again and again and comes back at once.",
        consensus=_QUICK | {"block_interval_ms": 40, "leader_timeout_ms": 800, "advance_timeout_ms": 1_200},
        links={"latency_ms": 150.0},
        load={
            "users": [
                {"workload": "heartbeat", "count": 2, "interval_ms": 200},
                {"workload": "transfer", "count": 6, "interval_ms": 100},
            ]
        },
        faults=[
            _slow_disks(3, 29),
            *({"kind": "kill", "target": "leader", "at_ms": at, "down_ms": 10} for at in range(2_500, 12_000, 310)),
        ],
    ),
    "outage": _scenario(
        "Messages are late and views fail; then all but one validator are killed at once, and come back.",
        faults=[
            _bad_links(4, 29),
            *(_kill([f"validator-{i}" for i in (0, 2, 3)], height, 30) for height in (7, 11, 15, 19, 23)),
        ],
    ),
    "agents": _scenario(
        "A contract bids for others by what an oracle publishes; some of the oracle's calls run out after that.",
        load={
            "users": [
                program(
                    "price_oracle",
                    500,
                    [call("start", {"every": 20, "pair": "x"}), call("subscribe", {"actor": 2})],
                    [
                        call("push", {"random": [900, 1_100]}),
                        call("push", {"random": [2_000, 9_000]}, gas_limit=30_000),
                    ],
                ),
                program("bidding_agent", 1_000, [call("init", {"actor": 0})]),
                program("liquidation_bot", 1_000, [call("init", {"deposit": 1, "oracle": {"actor": 0}})]),
                program(
                    "heartbeat", 1_000, [call("start", {"every": 1, "times": None, "agent": {"actor": 1}})], count=3
                ),
            ]
        },
    ),
    "forks": _scenario(
        "Leaders are cut off from the rest in turn, so that what they build is overtaken by another branch.",
        chain={"params": _NARROW, "preset": "hardened"},
        load={"users": [_CROWD["users"][0], {**_CROWD["users"][1], "count": 2}]},
        faults=[_bad_links(4, 28)],
    ),
    "deep-forks": _scenario(
        "One validator is not heard, and another is slow: the first alone sees certificates, and builds on its own.",
        chain={"params": _TINY_CALENDAR | {"FAIRNESS_WINDOW_BLOCKS": 4}},
        stop={"height": 40, "drain_blocks": 3, "timeout_s": 120},
        faults=[
            fault
            for height in (8, 18, 28)
            for fault in (
                {"kind": "one_way_partition", "from": ["validator-1"], "at_height": height, "for_ms": 4_500},
                {
                    "kind": "slow_execution",
                    "target": ["validator-2"],
                    "job_ms": 1_600,
                    "at_height": height,
                    "for_ms": 4_500,
                },
            )
        ],
    ),
    "forks-of-bidders": _scenario(
        "Branches are given up; what an agent bids changes with each, and few agents are asked about in a block.",
        chain={"params": _TINY_CALENDAR | _FEW_QUERIES},
        load={
            "users": [
                program(
                    "price_oracle",
                    200,
                    [call("start", {"every": 20, "pair": "x"})],
                    [call("push", {"random": [900, 9_000]})],
                ),
                program("bidding_agent", 1_000, [call("init", {"actor": 0})]),
                program("heartbeat", 500, [_BEAT], [_BEAT], count=10),
            ]
        },
        faults=[_bad_links(4, 28)],
    ),
    "bad-links": _scenario("Messages are late, lost and out of order.", faults=[_bad_links(4, 28)]),
    "slow-uplinks": _scenario(
        "What a validator sends leaves so slowly that a block takes longer than a tick.",
        consensus=_QUICK | {"leader_timeout_ms": 1_500, "advance_timeout_ms": 2_500, "rebroadcast_ms": 250},
        links={"uplink_kbps": 150},
        load={"users": [{"workload": "heartbeat", "count": 3}, {"workload": "transfer", "count": 2}]},
        stop={"height": 30, "drain_blocks": 3, "timeout_s": 240},
    ),
    "slow-network": _scenario(
        "Messages take longer than every timeout.",
        links={"latency_ms": 900.0, "jitter_ms": 200.0},
        stop={"height": 30, "drain_blocks": 3, "timeout_s": 300},
    ),
    "long-slow-network": _scenario(
        "Messages take longer than every timeout, for long enough to shorten timeouts twice too early.",
        load=_LITTLE_LOAD,
        links={"latency_ms": 900.0, "jitter_ms": 200.0},
        stop={"height": 60, "drain_blocks": 3, "timeout_s": 600},
    ),
    "small-pools": _scenario(
        "Mempools are small and soon full; some transactions wait for one that never comes.",
        chain={"params": _NARROW | {"LANE_USER_CYCLES": 400_000}},
        limits={
            "max_transactions": 12,
            "near_nonces": 1,
            "max_evictions": 4,
            "max_idle_senders": 2,
            "max_blocks_waiting": 3,
        },
        links={"latency_ms": 20.0, "jitter_ms": 80.0},
        load={
            "users": [
                {"workload": "heartbeat", "count": 2},
                {"workload": "flood", "count": 2, "interval_ms": 300, "options": {"timers": 12, "burn": 4_000}},
                {"workload": "transfer", "count": 6, "interval_ms": 100, "arrival": "open"},
                {"workload": "nonce-gaps", "interval_ms": 500, "options": {"per_turn": 2, "gap": 4}},
            ]
        },
    ),
    "quick-ticks": _scenario(
        "The rebroadcast timer expires several times while a block is made.",
        load=_LITTLE_LOAD,
        consensus=_QUICK | {"rebroadcast_ms": 50},
        links={"latency_ms": 100.0, "jitter_ms": 20.0},
    ),
    "one-tick": _scenario(
        "The rebroadcast timer expires once while a block is made.",
        load=_LITTLE_LOAD,
        consensus=_QUICK | {"rebroadcast_ms": 250},
        links={"latency_ms": 120.0, "jitter_ms": 20.0},
    ),
    "slow-restart": _scenario(
        "A validator is restarted where messages take longer than every timeout.",
        load=_LITTLE_LOAD,
        links={"latency_ms": 900.0, "jitter_ms": 200.0},
        stop={"height": 24, "drain_blocks": 3, "timeout_s": 300},
        faults=[_kill("validator-1", 6, 8_000)],
    ),
    "old-nullifications": _scenario(
        "A validator that is cut off from all others but one gets that one's old nullifications.",
        load=_LITTLE_LOAD,
        stop={"height": 40, "drain_blocks": 3, "timeout_s": 60},
        faults=[
            {
                "kind": "partition",
                "groups": [["validator-0", "validator-1", "validator-3"], ["validator-2", "validator-3"]],
                "at_height": 6,
                "for_ms": 7_000,
            }
        ],
        byzantine={3: ["old-nullifications"]},
    ),
    "idle-fault": _scenario(
        "A fault that cannot take effect: links that lose nothing lose nothing for a while.",
        faults=[{"kind": "degrade", "loss": 0.0, "from": ["validator-0"], "at_height": 8, "for_ms": 1_000}],
    ),
    "forger": _scenario("A validator forges certificates.", byzantine={3: ["signature-forger"]}),
    **{behaviour: _scenario(description, byzantine={3: [behaviour]}) for behaviour, description in _LIES.items()},
    "outsider": _scenario(
        "Messages are late and lost; a validator that has left the committee votes all the same.",
        validators={"epochs": [{"from_view": 4, "members": _COMMITTEE}]},
        faults=[_bad_links(4, 28)],
        byzantine={3: ["outsider"]},
    ),
    "left-out": _scenario(
        "A validator that has left the committee is cut off for long, and asks again and again.",
        consensus=_QUICK
        | {"block_interval_ms": 800, "leader_timeout_ms": 2_000, "advance_timeout_ms": 3_000, "rebroadcast_ms": 100},
        validators={"epochs": [{"from_view": 4, "members": _COMMITTEE}]},
        faults=[
            {"kind": "partition", "groups": [["validator-3"], _COMMITTEE], "at_height": 8, "for_ms": 10_000},
        ],
    ),
    "understated-timeouts": _scenario(
        "Messages are late and lost; a validator hides in timeout certificates which block is the highest certified.",
        faults=[_bad_links(4, 28)],
        byzantine={3: ["understated-timeouts"]},
    ),
    "lock-breaker": _scenario(
        "A leader, at times twice in a row, builds below the certified block that HotStuff's timeouts name.",
        consensus=_QUICK | {"leader_election": "random", "rebroadcast_ms": 1_000},
        byzantine={3: ["lock-breaker"]},
    ),
    "pruning": _scenario(
        "Much is written, little is kept, and commits of the state fail.",
        load={
            "users": [
                {"workload": "flood", "interval_ms": 300, "options": {"timers": 30, "burn": 1_000, "spread_blocks": 4}},
                {"workload": "churn", "count": 2, "interval_ms": 100, "options": {"timers": 20}},
            ]
        },
        storage={"segment_kib": 8, "retained_heights": 8},
        stop={"height": 46, "drain_blocks": 2, "timeout_s": 120},
        faults=[
            {"kind": "failed_sync", "of": "state", "target": f"validator-{at % 4}", "at_height": at, "down_ms": 400}
            for at in range(24, 46)
        ],
    ),
    "kept-blocks": _scenario(
        "A validator is down for longer than its peers keep blocks, but for those that it lacks.",
        storage={"segment_kib": 8, "retained_heights": 8, "keep_blocks": 8},
        stop={"height": 60, "drain_blocks": 2, "timeout_s": 40},
        faults=[_kill("validator-2", 10, 6_000)],
    ),
    "false-snapshot": _scenario(
        "A validator loses its disk, and one of those that help it gives wrong chunks.",
        faults=[_WIPED],
        byzantine={0: ["false-snapshots"]},
    ),
    "unproved-snapshot": _scenario(
        "A validator loses its disk, and the first that it asks offers a block that is not final.",
        faults=[_WIPED],
        byzantine={3: ["unproved-snapshot"]},
    ),
    "unproved-view": _scenario(
        "One of seven loses its disk, and another one says that it is in a view far ahead.",
        validators={"count": 7},
        faults=[_WIPED],
        byzantine={3: ["unproved-view"]},
    ),
    "false-manifest": _scenario(
        "A validator loses its disk, and the first that it asks offers another state.",
        faults=[_WIPED],
        byzantine={3: ["false-manifest"]},
    ),
    "unproved-blocks": _scenario(
        "A validator is down for a while, and the first that it asks gives it a block that is not final.",
        faults=[_kill("validator-2", 10, 2_500)],
        byzantine={3: ["unproved-blocks"]},
    ),
    "lost-disk": _scenario(
        "Messages are late and lost, and views fail, when a validator loses its disk.",
        faults=[_bad_links(12, 26), {"kind": "wipe", "target": "validator-2", "at_height": 14, "down_ms": 500}],
    ),
    "one-peer": _scenario(
        "A validator loses its disk, and for a while only one of its peers is reachable.",
        faults=[
            {
                "kind": "cut",
                "from": ["validator-2"],
                "to": ["validator-0", "validator-1"],
                "at_height": 12,
                "for_ms": 6_000,
            },
            _WIPED,
        ],
    ),
    "upgrades": _scenario(
        "Disks are slow; again and again all validators get other code, one after the other.",
        faults=[_slow_disks(3, 29), *({"kind": "upgrade", "at_height": at, "down_ms": 20} for at in (5, 13, 21))],
    ),
    "short-journals": _scenario(
        "Messages are late and lost, so that branches are given up; journals are replaced every few blocks.",
        limits={"journal_blocks": 3},
        faults=[_bad_links(4, 28)],
    ),
    "failing-views": _scenario(
        "Messages take longer than views, until more views have failed than validators hold blocks.",
        consensus=_QUICK | {"block_interval_ms": 40, "leader_timeout_ms": 60, "advance_timeout_ms": 80},
        limits={"max_held_blocks": 11},
        load={"users": [{"workload": "heartbeat", "count": 2}, {"workload": "transfer", "count": 4}]},
        faults=[{"kind": "degrade", "at_height": 5, "for_ms": 120_000, "latency_ms": 1_000.0}],
        stop={"height": 30, "drain_blocks": 3, "timeout_s": 180},
        success=_ENOUGH | {"stall_ms": 140_000},
    ),
    "long": _scenario(
        "Long enough for journals to be replaced; validators are killed now and then.",
        stop={"height": 150, "drain_blocks": 3, "timeout_s": 120},
        faults=[_bad_links(60, 75), _bad_links(124, 140)]
        + [_kill("leader", height, 30) for height in (*range(64, 74, 3), *range(128, 139, 3))],
    ),
}
"""The detection scenarios, keyed by name. Each has the sections of a scenario, and may have the key ``byzantine``:
behaviours keyed by validator index."""


def scenario_of(detection: Detection, mutant: str | None) -> Scenario:
    """The scenario of a detection, with ``mutant`` planted in its validators (``None``: without a bug)."""
    sections = dict(DETECTION_SCENARIOS[detection.scenario])
    byzantine: Mapping[int, list[str]] = sections.pop("byzantine", {})
    nodes: list[Fields] = [{"byzantine": byzantine[i]} if i in byzantine else {} for i in range(VALIDATORS)]
    for index in detection.mutated:
        if mutant is not None and index not in byzantine:
            nodes[index]["mutant"] = mutant
    # Part of the chain's name, which determines ids: with another name, a seed provokes something else.
    sections["name"] = f"hunt-{detection.scenario}"
    section: Fields = sections.get("validators", {})
    sections["validators"] = {"count": VALIDATORS} | section | {"nodes": nodes, "allow_more_faults": True}
    sections["consensus"] = sections["consensus"] | {"protocol": detection.protocol}
    return Scenario.model_validate(sections)
