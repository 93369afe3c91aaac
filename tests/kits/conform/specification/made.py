"""The default cases: crowded ones by seed, and two that are made by hand: all odd scripts, and each rule of watched
keys in turn."""

from __future__ import annotations

from itertools import count
from typing import Any

from kits.conform.cases.crowded import CrowdedCase
from kits.conform.cases.names import ACTORS, DEPLOYER, STRANGER, USERS
from kits.conform.cases.odd_scripts import BAD_SCRIPTS, GOOD_ODDITIES

WATCH_SCRIPTS: list[Any] = [
    text.replace("USER", USERS[0])
    for text in (
        '[["schedule",{"in":1,"watch":{"actor":"USER","key":"a"},"payload":""}]]',
        '[["schedule",{"height":9,"watch":{"actor":"USER","key":"a"},"payload":""}]]',
        '[["schedule",{"watch":{"actor":"USER","key":1},"payload":""}]]',
        '[["schedule",{"watch":{"actor":"USER"},"payload":""}]]',
        '[["schedule",{"watch":{"actor":"0x12","key":"a"},"payload":""}]]',
        '[["schedule",{"watch":["USER","a"],"payload":""}]]',
        '[["allow_watching","a"]]',
        '[["allow_watching","a",1]]',
        '[["allow_watching","a",null]]',
        '[["allow_watching",1,true]]',
        '[["try",["schedule",{"in":null,"watch":{"actor":"USER","key":"a","x":1},"payload":""}]]]',
        '[["try",["allow_watching","a",true]],["try",["allow_watching","a",false]]]',
    )
]
"""About watched keys: bad scripts, then good ones."""


def crowded_case(seed: int, most_blocks: int = 24) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The genesis and the blocks of `seed`."""
    made = CrowdedCase(seed)
    made.make(most_blocks)
    return made.genesis, made.blocks


def script_call(nonce: int, to: str, payload: Any, gas_limit: int, cells_limit: int) -> dict[str, Any]:
    """A transaction of the first user that runs a script at basefees of 1."""
    return {
        "kind": "call",
        "sender": USERS[0],
        "nonce": nonce,
        "to": to,
        "handler": "run",
        "payload": payload,
        "gas_limit": gas_limit,
        "cells_limit": cells_limit,
        "max_fee_per_cycle": 1,
        "max_priority_fee_per_cycle": 0,
        "max_fee_per_cell": 1,
    }


def odd_scripts_case() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Every odd script, called by a transaction and again by a timer."""
    genesis = {
        "params": {"INITIAL_BASEFEE": 1, "MIN_BASEFEE": 1, "MAX_BASEFEE": 1, "LANE_USER_CYCLES": 10**9},
        "accounts": {USERS[0]: {"balance": 10**15}},
        "actors": {ACTORS[0]: {"balance": 10**15, "code": "builtin:script", "deployer": DEPLOYER}},
    }
    scripts = [*BAD_SCRIPTS, *GOOD_ODDITIES, *WATCH_SCRIPTS]
    calls = [*scripts, *([["schedule", {"in": 1, "payload": script}]] for script in scripts)]
    txs = [script_call(nonce, ACTORS[0], payload, 20_000, 1_000) for nonce, payload in enumerate(calls)]
    return genesis, [{"proposer": STRANGER, "txs": txs}, {"proposer": STRANGER, "empty": 2}]


def watch_case() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Each rule of watched keys in turn, with one fire a block at most."""
    watched, watcher = ACTORS[:2]
    params = {"INITIAL_BASEFEE": 1, "MIN_BASEFEE": 1, "MAX_BASEFEE": 1, "MAX_FIRES_PER_BLOCK": 1}
    params |= {"SCAN_LIMIT": 5, "TIMER_GC_CYCLES": 2_000}
    genesis = {
        "policy": "bias_auction",
        "params": params,
        "accounts": {USERS[0]: {"balance": 10**15}},
        "actors": {
            address: {"balance": 10**15, "code": "builtin:script", "deployer": DEPLOYER}
            for address in (watched, watcher)
        },
    }

    def watch(**fields: Any) -> list[Any]:
        return ["schedule", {"watch": {"actor": watched, "key": "k"}, "payload": [], **fields}]

    def put(value: str) -> tuple[str, list[Any]]:
        return watched, [["set", "k", value]]

    def put_later(value: str) -> tuple[str, list[Any]]:
        """Change the key in a message, after the block's fires."""
        return watched, [["send", {"to": watched, "handler": "h", "payload": [["set", "k", value]]}]]

    allow: list[Any] = ["allow_watching", "k", True]
    forbid: list[Any] = ["allow_watching", "k", False]
    extend = [["try", ["extend", {"saved": key, "expires_at": 60}]] for key in ("one", "two")]
    late = [watch(expires_at=31) for _ in range(13)]
    calls: list[list[tuple[str, list[Any]]]] = [
        [(watched, [["set", "k", "a"], allow]), (watcher, [watch()])],
        [(watched, [allow])],
        [put("b")],
        [(watcher, [watch()]), put_later("c")],
        [put("b")],
        [(watcher, [watch()]), put("d")],
        [],
        [(watcher, [watch(expires_at=9)])],
        [put("e")],
        [(watcher, [watch(expires_at=11)])],
        [put_later("f")],
        [(watcher, [watch(save_as=key, expires_at=40) for key in ("one", "two")])],
        [put("g")],
        [(watcher, extend)],
        [(watcher, [watch(save_as="one", expires_at=17), watch()])],
        [(watcher, extend[:1])],
        [],
        [],
        [(watched, [forbid, allow]), (watcher, [["cancel", {"saved": "one"}]])],
        [put("h")],
        [(watcher, [watch()])],
        [put("i"), put("h")],
        [(watched, [["del", "k"]])],
        [(watched, [["set", "k", ""]]), (watcher, [watch(), watch()])],
        [],
        [],
        [(watcher, late)],
        [],
        [],
        [],
        [],
        [],
        [put("j")],
    ]
    nonces = count()
    blocks = [
        {
            "proposer": STRANGER,
            "txs": [script_call(next(nonces), to, script, 200_000, 12_000) for to, script in block],
        }
        for block in calls
    ]
    return genesis, blocks
