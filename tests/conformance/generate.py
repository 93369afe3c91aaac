"""Seeded cases for the conformance tool that crowd many rules of the specification into a few blocks.

`case(seed)` gives a genesis and a list of blocks in the tool's own input form. The generator runs the reference along
with what it generates, so that nonces fit, fees lie right at the basefees in force, and scripts name timers that are
alive.
"""

import base64
import json
import random
from itertools import count
from typing import Any

from tests.conformance.reference import Chain, number, payload_bytes

DEPLOYER = "0x" + "d0" * 20
PROPOSERS = ["0x" + "e1" * 20, "0x" + "E2" * 20, "0x" + "00" * 20]
STRANGER = "0x" + "77" * 20
USERS = ["0x" + f"{0xA0 + index:02x}" * 20 for index in range(4)]
ACTORS = ["0x" + f"{0x10 + index:02x}" * 20 for index in range(7)]
KEYS = ["a", "b", "schlüssel", ""]
TIERS = ["economy", "standard", "fast", "urgent"]

BAD_SCRIPTS: list[Any] = [
    "",
    "null",
    "{}",
    "[[]]",
    "[[1]]",
    "[1]",
    "[] []",
    "\ufeff[]",
    "[NaN]",
    '[["unknown"]]',
    '[["burn"]]',
    '[["burn",-1]]',
    '[["burn",-0]]',
    '[["burn",1.0]]',
    '[["burn",1e2]]',
    '[["burn","5"]]',
    '[["burn",true]]',
    '[["burn",null]]',
    '[["burn",1,2]]',
    '[["burn",01]]',
    '[["get",1]]',
    '[["get"]]',
    '[["set","k"]]',
    '[["set","k",null]]',
    '[["set","k","v","w"]]',
    '[["emit","n"]]',
    '[["emit","n",{"hex":"00"}]]',
    '[["fail"]]',
    '[["fail",1]]',
    '[["try"]]',
    '[["try",["burn",-1]]]',
    '[["try",["try",["nothing"]]]]',
    '[["try",["burn",1],["burn",1]]]',
    '[["burn",100],["burn",-1]]',
    '[["set","k","v"],["emit","\\ud800","x"]]',
    '[["transfer",{"to":"0x12","amount":1}]]',
    '[["transfer",{"to":"USER","amount":-1}]]'.replace("USER", USERS[0]),
    '[["transfer",{"to":"USER"}]]'.replace("USER", USERS[0]),
    '[["transfer",{"to":"USER","amount":null}]]'.replace("USER", USERS[0]),
    '[["transfer",{"to":"USER","amount":1,"x":1,"x":2}]]'.replace("USER", USERS[0]),
    '[["transfer",{"to":"USER","amount":1,"x":0.5}]]'.replace("USER", USERS[0]),
    '[["transfer",{"to":"USER","amount":1,"x":"\\udfff"}]]'.replace("USER", USERS[0]),
    '[["transfer","USER",1]]'.replace("USER", USERS[0]),
    '[["send",{"to":"ACTOR","payload":""}]]'.replace("ACTOR", ACTORS[0]),
    '[["send",{"to":"ACTOR","handler":"h"}]]'.replace("ACTOR", ACTORS[0]),
    '[["send",{"to":"ACTOR","handler":1,"payload":""}]]'.replace("ACTOR", ACTORS[0]),
    '[["send",{"to":"ACTOR","handler":"h","payload":1}]]'.replace("ACTOR", ACTORS[0]),
    '[["send",{"to":"ACTOR","handler":"h","payload":"","cycles":"9"}]]'.replace("ACTOR", ACTORS[0]),
    '[["send",{"to":"ACTOR","handler":"h","payload":""}]]'.replace("ACTOR", ACTORS[0][:-2] + "zz"),
    '[["schedule",{"in":1}]]',
    '[["schedule",{"payload":""}]]',
    '[["schedule",{"in":1,"height":9,"payload":""}]]',
    '[["schedule",{"in":null,"payload":""}]]',
    '[["schedule",{"in":1,"payload":null}]]',
    '[["schedule",{"in":1,"payload":{"hex":"0"}}]]',
    '[["schedule",{"in":1,"payload":{"hex":"0g"}}]]',
    '[["schedule",{"in":1,"payload":{}}]]',
    '[["schedule",{"in":1,"payload":"","tier":"slow"}]]',
    '[["schedule",{"in":1,"payload":"","tier":1}]]',
    '[["schedule",{"in":1,"payload":"","fee_payer":"me"}]]',
    '[["schedule",{"in":1,"payload":"","gas_limit":"1"}]]',
    '[["schedule",{"in":1,"payload":"","save_as":1}]]',
    '[["schedule",{"in":1,"payload":"","bid":"1"}]]',
    '[["schedule",{"in":1,"payload":[0.5]}]]',
    '[["schedule",{"in":1,"payload":[{"a":1,"a":1}]}]]',
    '[["schedule",{"in":1,"payload":[[-0]]}]]',
    '[["cancel",{}]]',
    '[["cancel",{"id":"00","saved":"a"}]]',
    '[["cancel",{"id":7}]]',
    '[["cancel","00"]]',
    '[["extend",{"id":"00"}]]',
    '[["extend",{"id":"00","expires_at":"9"}]]',
    '[["extend",{"expires_at":9}]]',
    "[" * 65 + "]" * 65,
    '[["emit","n","x"],' + "[" * 64 + "]" * 64 + "]",
    '[["schedule",{"in":1,"payload":' + "[" * 62 + "]" * 62 + "}]]",
    {"hex": "ff"},
    {"hex": "5b22c3285d"},
    {"hex": "5b5d00"},
]
GOOD_ODDITIES: list[Any] = [
    "[]",
    " [ ] ",
    '[["burn",0]]',
    '[["schedule",{"in":1,"height":null,"payload":"","gas_limit":null,"tier":null,"bid":null,"x":{"y":[1]}}]]',
    '[["schedule",{"in":1,"payload":' + "[" * 61 + "]" * 61 + "}]]",
    '[["cancel",{"id":null,"saved":"a"}]]',
    '[["cancel",{"id":""}]]',
    '[["emit","\\u00e9","\\ud83d\\ude00"]]',
    '[["set","\\u0000","\\u0000"]]',
    '[["schedule",{"in":1,"payload":[["emit","é","😀"]],"save_as":"a"}],["emit","x","é"]]',
    {"hex": "5b5d"},
    [],
]

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
"""About watched keys: bad scripts, then good ones. Only the corpus has them: cases draw from the lists above."""


def near(rng: random.Random, value: int) -> int:
    """A figure at, next to or around `value`."""
    return max(0, rng.choice([value, value, value - 1, value + 1, value * rng.randint(1, 30) // 10]))


class Maker:
    """One case in the making."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.other = random.Random(f"policies of {seed}")
        self.third = random.Random(f"candidates of {seed}")
        self.fourth = random.Random(f"watches of {seed}")
        self.watches = 0.0
        """Share of the scripts that watch keys, or let them be watched."""
        self.genesis = self.make_genesis()
        self.chain = Chain(self.genesis)
        self.blocks: list[dict[str, Any]] = []
        self.nonces: dict[str, int] = {}
        self.kinds = ["call"] * 12 + ["transfer"] + ["system"] * self.rng.choice([1, 1, 6])
        self.proposers = [*PROPOSERS, USERS[1], *ACTORS[:3]]

    # --- genesis ----------------------------------------------------------------------------------------------------

    def make_genesis(self) -> dict[str, Any]:
        rng = self.rng
        params = self.make_params()
        basefee = params["INITIAL_BASEFEE"]
        policy = rng.choice(["cip1"] * 8 + ["fifo"])
        if policy == "cip1" and rng.random() < 0.2:
            params["ACTIVATION_HEIGHT"] = rng.randint(0, 12)
        if policy == "cip1" and self.other.random() < 0.35:
            policy = "gba_auction"
            params |= self.weight_params()
        elif policy == "cip1" and self.other.random() < 0.35:
            policy = "bias_auction"
            params |= self.bias_params()
        elif policy == "cip1" and self.third.random() < 0.5:
            params |= self.candidate_params()
        params |= self.watch_params(policy)
        rich = 10 ** rng.choice([9, 10, 12, 18]) * basefee

        def purse() -> int:
            return rng.choice([rich, rich, rich, rich // 100, rng.randint(0, 30) * 10_000 * basefee, 0])

        accounts = {address: {"balance": purse()} for address in USERS}
        accounts[DEPLOYER] = {"balance": rich}
        accounts[USERS[0]] = {"balance": rich}
        actors = {}
        for index, address in enumerate(ACTORS[: rng.randint(2, len(ACTORS))]):
            balance: Any = purse() if index else rich
            gba = None
            if rng.random() < 0.4:
                gba = {
                    "code": "builtin:fixed",
                    "max_fee_per_cycle": rng.choice([near(rng, basefee), 3 * basefee, 10 * basefee, 0, 2**96 - 1]),
                    "max_priority_fee_per_cycle": rng.choice([0, 1, near(rng, basefee), 5 * basefee]),
                }
            deployer = DEPLOYER
            if "WEIGHT_PARTY" in params:
                deployer = self.third.choice(
                    [DEPLOYER, DEPLOYER, USERS[0], ACTORS[0], USERS[0].upper().replace("X", "x")]
                )
            actors[address] = {"balance": balance, "code": "builtin:script", "deployer": deployer, "gba": gba}
        if rng.random() < 0.2:
            actors = {address.upper().replace("0X", "0x"): actor for address, actor in actors.items()}
        genesis = {
            "policy": policy,
            "preset": rng.choice([None, None, "hardened"]),
            "params": params,
            "system_deployers": [DEPLOYER],
            "accounts": accounts,
            "actors": actors,
        }
        if rng.random() < 0.1:
            genesis["params"] = {k: str(v) if isinstance(v, int) else v for k, v in params.items()}
        return genesis

    def candidate_params(self) -> dict[str, Any]:
        """What the design of ``cip1`` names as candidates, and a floor, with which weights matter without tips."""
        pick = self.third.choice
        least, most = pick([(1_000, 2_000)] * 4 + [(1_000, 1_000), (0, 2_000), (0, 700), (500, 1_333), (2_000, 2_000)])
        return {
            "WEIGHT_PARTY": pick(["actor", "deployer"]),
            "MEDIAN_SMOOTHING_MILLI": pick([1, 30, 100, 300, 999, 1_000]),
            "WEIGHT_CLIP_MIN_MILLI": least,
            "WEIGHT_CLIP_MAX_MILLI": most,
            "FAIRNESS_WINDOW_BLOCKS": pick([1, 2, 4, 6, 20]),
            "PRIORITY_FLOOR": pick([0, 1, 10**18, 10**18, 10**18, 10**18]),
        }

    def watch_params(self, policy: str) -> dict[str, Any]:
        """Parameters of watched keys, which a few cases of policies without them try to use, too."""
        if policy == "bias_auction" and self.fourth.random() < 0.6:
            self.watches = 0.7
            return {"MAX_WATCHERS_PER_KEY": self.fourth.choice([1, 2, 3, 64])}
        if self.fourth.random() < 0.05:
            self.watches = 0.1
        return {}

    def weight_params(self) -> dict[str, Any]:
        """Parameters of ``gba_auction``."""
        pick = self.other.choice
        least = pick([1, 1, 100, 400])
        floor = pick([least, least, 500, 900])
        return {
            "WEIGHT_LAMBDA_MILLI": pick([10, 200, 700, 1_000, 1_000, 1_000]),
            "WEIGHT_MIN_MILLI": least,
            "WEIGHT_MAX_MILLI": pick([floor, 1_000, 1_000]),
            "STARVATION_BLOCKS": pick([1, 2, 4, 64]),
            "STARVATION_FLOOR_MILLI": floor,
            "BUDGET_SLICES": pick([1, 1, 2, 4, 30]),
        }

    def bias_params(self) -> dict[str, Any]:
        """Parameters of ``bias_auction``. Rates are high, so that a few blocks of waiting outbid small bids."""
        pick = self.other.choice
        least, rate = pick([10_000, 300_000]), pick([300_000, 1_000_000, 3_000_000])
        return {
            "MAX_FIRES_PER_BLOCK": pick([1, 3, 10**9, 10**9]),
            "MAX_FIRES_PER_ACTOR": pick([1, 2, 10**9, 10**9]),
            "PAYMENT_RULE": pick(["vcg", "vcg", "critical", "first_price"]),
            "RESERVE_PRICE": pick([0, 0, 3, 1_000]),
            "BIAS_LAMBDA_MICRO": rate,
            "BIAS_LAMBDA_MIN_MICRO": least,
            "BIAS_LAMBDA_MAX_MICRO": pick([rate, 10_000_000]),
            "BIAS_LAMBDA_STEP_MILLI": pick([0, 125, 1_000]),
            "BIAS_INTERVAL_BLOCKS": pick([1, 2, 5]),
            "VALUE_LIFE_BLOCKS": pick([1, 3, 100]),
        }

    def make_params(self) -> dict[str, Any]:
        """Small figures. Each parameter is kind to the case most of the time; how often it is harsh differs by case."""
        rng = self.rng
        harshness = rng.choice([0.05, 0.15, 0.15, 0.35, 0.8])

        def pick(kind: list[int], harsh: list[int]) -> int:
            return rng.choice(harsh if rng.random() < harshness else kind)

        minimum_gas = pick([500, 1_000, 2_000], [2])
        cap, fifo_cap = (minimum_gas + pick([5_000, 10_000, 30_000], [0, 500]) for _ in range(2))
        scan, removal = pick([5, 20, 200], [1, 2, 3]), rng.choice([1, 7, 200])
        epoch = rng.choice([1, 2, 3, 5, 10])
        message_cycles = rng.choice([2_000, 3_000, 8_000, 20_000])
        basefee = rng.choice([1, 2, 10, 100, 1_000, 1_000_000])
        gba = rng.choice([100, 101, 150, 1_000])
        params: dict[str, Any] = {
            "LANE_TIMER_CYCLES": max(2, max(cap, fifo_cap) * rng.choice([1, 1, 2, 3, 8]) + rng.choice([0, 1, 777])),
            "TIMER_GC_CYCLES": removal * (2 * scan + (0 if scan < 5 else 50)) + rng.randint(0, removal),
            "GC_CYCLES_PER_REMOVAL": removal,
            "MAX_CYCLES_PER_FIRE": fifo_cap,
            "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": cap,
            "MAX_CELLS_PER_FIRE": pick([2_000, 10_000], [1, 50, 400]),
            "MIN_GAS_LIMIT_PER_TIMER": minimum_gas,
            "FIRE_BASE_CYCLES": pick([1, 100, 1_000], [2_500]),
            "TX_BASE_CYCLES": rng.choice([1, 1_000, 1_000, 3_000]),
            "LANE_USER_CYCLES": pick([5_000_000, 600_000], [200_000, 60_000]),
            "LANE_USER_CELLS": pick([1_000_000], [100_000, 30_000, 10_000]),
            "LANE_DEFERRED_CYCLES": message_cycles * rng.choice([1, 1, 2, 3, 20]) + rng.choice([0, 1, 1_500]),
            "LANE_SYSTEM_CYCLES": pick([500_000], [9_000]),
            "BLOCK_CYCLES_TARGET": pick([30_000, 100_000, 300_000], [2, 5_000]),
            "BLOCK_CELLS_TARGET": pick([1_000, 10_000], [2, 100]),
            "MESSAGE_CYCLES": message_cycles,
            "MESSAGE_CELLS": pick([300, 1_000, 5_000], [1, 50]),
            "MESSAGE_BASE_CYCLES": rng.choice([1, 1_000, 2_000]),
            "MAILBOX_BYTES": pick([2_000, 100_000], [1, 60, 500]),
            "LANE_TIMER_CELLS": pick([5_000, 1_000_000], [1, 60, 500]),
            "GBA_QUERIES_PER_ACTOR": rng.choice([1, 2, 3, 16]),
            "GBA_UNPAID_PAUSE": rng.choice([1, 2, 5]),
            "RING_BUFFER_SIZE": epoch + rng.choice([0, 0, 1, 4]),
            "EPOCH_LENGTH": epoch,
            "EPOCH_HORIZON": rng.choice([1, 2, 4]),
            "MAX_TIMER_PAYLOAD": pick([5_000, 1_048_576], [60, 400]),
            "MAX_TIMERS_PER_ACTOR": pick([30, 1_024], [1, 3, 8]),
            "MAX_TTL": pick([25, 1_000], [2, 6]),
            "FAIRNESS_WINDOW_BLOCKS": rng.choice([1, 2, 4, 20]),
            "LANE_BASEFEE_SLOPE": rng.randint(1, 8),
            "LANE_FEE_MULTIPLIER_MILLI": rng.choice([0, 1, 500, 999, 1_000, 1_000, 1_000, 1_001, 3_000]),
            "INITIAL_BASEFEE": basefee,
            "MIN_BASEFEE": rng.choice([1, basefee, max(1, basefee // 2)]),
            "MAX_BASEFEE": rng.choice([2 * basefee, 10**24, 10**24, basefee, basefee + 1]),
            "GBA_MAX_CYCLES": gba,
            "GBA_BUDGET_CYCLES": gba + pick([101, 250, 5_000], [-1, 0, 100]),
            "PRIORITY_TIERS": rng.choice([[8, 10, 15, 25], [0, 1, 1_000, 7]]),
            "SCAN_LIMIT": scan,
        }
        for name, choices in (
            ("PRIORITY_FLOOR", [0, 1, 5, 10**18]),
            ("TIE_BREAK", ["id", "aged"]),
            ("P50_WEIGHT", ["fires", "cycles"]),
            ("DEFAULT_TIP_CAP", [0, 1, 8]),
        ):
            if rng.random() < 0.5:
                params[name] = rng.choice(choices)
        # Some parameters at their defaults, as in a real genesis; never one side alone of a pair with a mutual bound.
        bound = {"RING_BUFFER_SIZE", "EPOCH_LENGTH", "SCAN_LIMIT", "TIMER_GC_CYCLES", "GC_CYCLES_PER_REMOVAL"}
        bound |= {"MESSAGE_CYCLES", "LANE_DEFERRED_CYCLES", "INITIAL_BASEFEE", "MIN_BASEFEE", "MAX_BASEFEE"}
        bound |= {"LANE_TIMER_CYCLES", "MAX_CYCLES_PER_FIRE", "MAX_CYCLES_PER_FIRE_AUCTION_PHASE"}
        bound |= {"MIN_GAS_LIMIT_PER_TIMER"}
        return {name: value for name, value in params.items() if name in bound or rng.random() > 0.07}

    # --- scripts ----------------------------------------------------------------------------------------------------

    @property
    def height(self) -> int:
        return self.chain.height + 1

    def param(self, name: str) -> Any:
        return self.chain.params[name]

    def lane_price(self) -> int:
        """The lane price of the block in the making, near enough."""
        if self.chain.policy == "gba_auction":
            return self.chain.basefee_cycle
        return int(self.chain.basefee_lane * self.param("LANE_FEE_MULTIPLIER_MILLI") // 1000)

    def actor(self) -> str:
        return self.rng.choice(sorted(self.chain.actors))

    def address(self) -> str:
        rng = self.rng
        return rng.choice(
            [self.actor(), self.actor(), self.actor(), rng.choice(USERS), STRANGER, "0x" + "00" * 19 + "09"]
        )

    def timer_id(self) -> str:
        alive = sorted(self.chain.state.timers)
        if alive and self.rng.random() < 0.85:
            found = self.rng.choice(alive)
            return found.upper() if self.rng.random() < 0.03 else found
        return self.rng.choice(["00" * 32, "", "zz", "0x" + "11" * 32])

    def any_fee(self) -> int:
        price = self.lane_price()
        choices = [near(self.rng, price), near(self.rng, price), 2 * price, 3 * price, 10 * price + 5, 2**96 - 1]
        return self.rng.choice([*choices, *choices, 0, 1, 2**96, -1])

    def tip(self) -> int:
        return self.rng.choice([0, 0, 1, 2, 3, near(self.rng, self.lane_price()), self.lane_price() // 3, 2**96 - 1])

    def operation(self, depth: int) -> list[Any]:
        rng = self.rng
        kind = rng.choice(
            ["burn", "get", "set", "del", "emit", "transfer", "send", "send", "cancel", "extend", "try", "try"]
            + ["schedule"] * 7
            + ["fail"] * (rng.random() < 0.15)
        )
        if kind == "schedule":
            return ["schedule", self.schedule(depth)]
        if kind == "send":
            return ["send", self.send(depth)]
        if kind == "try":
            return ["try", self.operation(depth)]
        if kind == "transfer":
            purse = self.chain.state.balance[self.actor()]
            amount = rng.choice([0, 1, 1_000, 10**30, rng.randint(0, 10**7), purse, purse * 9 // 10])
            return ["transfer", {"to": self.address(), "amount": amount}]
        if kind in ("cancel", "extend"):
            return [kind, self.target(kind)]
        arguments: dict[str, list[Any]] = {
            "burn": [rng.choice([0, 1, 100, rng.randint(0, 5_000), 50_000])],
            "get": [rng.choice(KEYS)],
            "set": [rng.choice(KEYS), rng.choice(["", "x", "ü" * rng.randint(1, 30), "v" * rng.randint(0, 200)])],
            "del": [rng.choice(KEYS)],
            "emit": [rng.choice(["ping", "é", ""]), rng.choice(["", "data", "😀"])],
            "fail": ["why"],
        }
        return [kind, *arguments[kind]]

    def target(self, kind: str) -> dict[str, Any]:
        rng = self.rng
        options: dict[str, Any] = {"saved": rng.choice(KEYS)} if rng.random() < 0.6 else {"id": self.timer_id()}
        if kind == "extend":
            options["expires_at"] = rng.choice(
                [
                    self.height + rng.randint(-2, 30),
                    self.height + self.param("MAX_TTL") + rng.randint(-1, 1),
                    10**30,
                    -1,
                ]
            )
        return options

    def send(self, depth: int) -> dict[str, Any]:
        rng = self.rng
        options: dict[str, Any] = {"to": self.address(), "handler": rng.choice(["h", "", "ü" * 128])}
        options["payload"] = self.payload(depth - 1)
        if rng.random() < 0.7:
            most = self.param("MESSAGE_CYCLES")
            options["cycles"] = rng.choice(
                [2_000, rng.randint(2_000, most), most, *([1_999, most + 1, -1, None] * (rng.random() < 0.2))]
            )
        if rng.random() < 0.6:
            most = self.param("MESSAGE_CELLS")
            options["cells"] = rng.choice(
                [0, rng.randint(0, most), most, *([-1, most + 1, None] * (rng.random() < 0.2))]
            )
        return options

    def schedule(self, depth: int) -> dict[str, Any]:
        rng = self.rng
        options: dict[str, Any] = {}
        if rng.random() < 0.7:
            options["in"] = rng.choice([1, 1, 1, 2, 2, 3, rng.randint(1, 12), rng.randint(1, 40)])
        else:
            options["height"] = self.height + rng.choice([1, 1, 2, 3, rng.randint(1, 40)])
        if rng.random() < 0.06:
            key = next(iter(options))
            options[key] = rng.choice([0, -5, self.height, 2**63, 2**63 - 1, 2**200])
        options["payload"] = self.payload(depth - 1)
        if rng.random() < 0.4:
            options["max_fee_per_cycle"] = self.any_fee()
        if rng.random() < 0.4:
            options["max_priority_fee_per_cycle"] = self.tip()
        elif rng.random() < 0.25:
            options["tier"] = rng.choice(TIERS)
        if rng.random() < 0.6:
            options["gas_limit"] = self.gas_limit()
        if rng.random() < 0.35:
            options["expires_at"] = self.height + rng.choice([0, 1, 2, 3, 3, 5, rng.randint(1, 60)])
        if rng.random() < 0.4:
            options["save_as"] = rng.choice(KEYS)
        self.add_rarities(options)
        items = list(options.items())
        rng.shuffle(items)
        return dict(items)

    def gas_limit(self) -> int:
        low, cap = self.param("MIN_GAS_LIMIT_PER_TIMER"), self.param("MAX_CYCLES_PER_FIRE_AUCTION_PHASE")
        if self.rng.random() < 0.1:
            return self.rng.choice([low - 1, cap + 1, self.param("MAX_CYCLES_PER_FIRE"), 0, -1, 10**12])
        return self.rng.choice([low, cap, self.rng.randint(low, max(low, cap))])

    def add_rarities(self, options: dict[str, Any]) -> None:
        rng = self.rng
        if rng.random() < 0.15:
            options["fee_payer"] = rng.choice(["self", "sender", "sender", self.address(), rng.choice(USERS)])
        if rng.random() < 0.1:
            options["payer_cap"] = rng.choice([0, 1, -1, 2**96, rng.randint(1, 10**9), 10**12])
        if rng.random() < 0.04:
            options["bid"] = rng.choice([0, 5, None])
        if self.chain.policy == "bias_auction" and self.other.random() < 0.7:
            low = 1_000 * self.chain.basefee_cycle
            options["bid"] = self.other.choice([0, 1, 20, 20, 400, 400, 9_000, low, -1, 2**96 - 1, 2**96])
        if rng.random() < 0.08:
            options["handler"] = rng.choice(["", "h" * 256, "h" * 257, "ü" * 129, "on_time"])
        if rng.random() < 0.03:
            options["tier"] = rng.choice(TIERS)
        if rng.random() < 0.05:
            options["unknown"] = [{"x": None}]

    def script(self, depth: int) -> list[Any]:
        rng = self.rng
        longest = 5 if depth > 1 else 3
        script = [self.operation(depth) for _ in range(rng.randint(0, longest))]
        # An error of most operations ends the handler; caught, the rest of the script gets its turn too.
        return [["try", operation] if rng.random() < 0.8 else operation for operation in script]

    def watch_script(self) -> list[Any]:
        """Operations about watched keys, some of them in a message."""
        fourth = self.fourth
        script = [self.about_watches(fourth.choice([0, 1, 1, 2])) for _ in range(fourth.choice([1, 2, 3, 5]))]
        script = [["try", operation] if fourth.random() < 0.9 else operation for operation in script]
        if fourth.random() < 0.3:
            options = {"to": fourth.choice(sorted(self.chain.actors)), "handler": "h", "payload": script, "cells": 0}
            return [["try", ["send", options]], ["try", self.about_watches(1)]]
        return script

    def about_watches(self, depth: int) -> list[Any]:
        """An operation that lets a key be watched or no more, watches one, writes one or extends a timer."""
        pick, key = self.fourth.choice, self.fourth.choice([*KEYS[:2], *KEYS[:2], *KEYS])
        kind = pick(["allow", "allow", "forbid", "watch", "watch", "watch", "watch", "write", "write", "extend"])
        if kind in ("allow", "forbid"):
            long = pick([key] * 9 + ["k" * 256, "ü" * 128 + "k"])
            return ["allow_watching", long, kind == "allow"]
        if kind == "write":
            return pick([["set", key, pick(["x", "x", "y", "z"])], ["del", key]])
        if kind == "extend":
            return ["extend", {"saved": pick(KEYS), "expires_at": self.height + pick([1, 3, 8])}]
        return ["schedule", self.watching(key, depth)]

    def watching(self, key: str, depth: int) -> dict[str, Any]:
        """A timer that watches a key, mostly one that may be watched."""
        pick = self.fourth.choice
        known = sorted(self.chain.state.watchable)
        actor = pick(sorted(self.chain.actors))
        if known and self.fourth.random() < 0.7:
            actor, key = pick(known)
        if self.fourth.random() < 0.03:
            key = pick(["k" * 256, "k" * 257])
        options: dict[str, Any] = {"watch": {"actor": pick([actor, actor.upper().replace("X", "x")]), "key": key}}
        options["payload"] = [
            ["try", self.about_watches(depth - 1)] if depth > 0 else pick([["set", key, "w"], ["burn", 50]])
            for _ in range(pick([0, 1, 1, 2]))
        ]
        if self.fourth.random() < 0.5:
            options["bid"] = pick([0, 1, 20, 400, 9_000])
        if self.fourth.random() < 0.4:
            options["gas_limit"] = self.param("MIN_GAS_LIMIT_PER_TIMER") + pick([0, 1_500, 4_000])
        if self.fourth.random() < 0.4:
            options["expires_at"] = self.height + pick([0, 1, 1, 2, 3, 6])
        if self.fourth.random() < 0.4:
            options["save_as"] = pick(KEYS)
        return options

    def heartbeat(self) -> list[Any]:
        """A timer that schedules the next, several links deep."""
        rng = self.rng
        script: list[Any] = [["emit", "beat", ""]]
        for _ in range(rng.randint(1, 8)):
            options = {"in": rng.choice([1, 1, 2, 5]), "payload": script}
            if rng.random() < 0.5:
                options["gas_limit"] = self.gas_limit()
            script = [["schedule", options], self.operation(0)]
        return script

    def chatter(self, links: int, most: int) -> list[Any]:
        """Messages that send messages; `most` cycles are there for all that the script sends."""
        rng = self.rng
        script: list[Any] = [["emit", "said", str(links)]]
        count = rng.choice([1, 1, 2, 3]) if links else 0
        for _ in range(count):
            share = min(self.param("MESSAGE_CYCLES"), most // count - 80)
            cycles = max(2_000, rng.choice([share, share, share, 2_000, share + 100]))
            left = cycles - self.param("MESSAGE_BASE_CYCLES") - 50
            payload = self.chatter(links - 1, left) if left >= 2_080 else self.payload(1)
            cells = 10 + sum(self.reserved_cells(operation) for operation in payload)
            to = self.actor()
            room = self.param("MAILBOX_BYTES") - self.chain.state.mailbox_bytes(to)
            if room < 3_000 and rng.random() < 0.2:
                payload = "[]".ljust(room)
            options = {"to": to, "handler": "hear", "payload": payload, "cycles": cycles}
            options["cells"] = min(self.param("MESSAGE_CELLS"), cells if rng.random() < 0.9 else 0)
            script.append(["send", options] if rng.random() < 0.6 else ["try", ["send", options]])
        return [*script, ["fail", "too much said"]] if rng.random() < 0.1 else script

    @staticmethod
    def reserved_cells(operation: Any) -> int:
        """The cells that a `send`, also within a `try`, asks for."""
        if not isinstance(operation, list) or operation[0] not in ("send", "try"):
            return 0
        if operation[0] == "try":
            return Maker.reserved_cells(operation[1])
        return int(operation[1].get("cells") or 0) + len(payload_bytes(operation[1]["payload"]))

    def crowd(self) -> list[Any]:
        """Sound timers, most of them due in one block, of different tips and sizes, that meddle with one another."""
        rng = self.rng
        script = []
        due = rng.choice([1, 1, 2, 3])
        for _ in range(rng.randint(2, 12)):
            options: dict[str, Any] = {"in": due if rng.random() < 0.8 else rng.randint(1, 12)}
            options["payload"] = rng.choice(
                [
                    self.script(1),
                    self.script(1),
                    self.chatter(1, 2_080),
                    [["burn", rng.randint(0, 3_000)]],
                    [["try", ["cancel", {"saved": key}]] for key in KEYS[: rng.randint(1, 2)]],
                ]
            )
            if rng.random() < 0.4:
                options["max_priority_fee_per_cycle"] = self.tip()
            if rng.random() < 0.3:
                options["max_fee_per_cycle"] = max(self.lane_price() * rng.randint(10, 30) // 10, 1)
            if rng.random() < 0.5:
                options["gas_limit"] = rng.randint(
                    self.param("MIN_GAS_LIMIT_PER_TIMER"), self.param("MAX_CYCLES_PER_FIRE_AUCTION_PHASE")
                )
            if rng.random() < 0.2:
                options["expires_at"] = self.height + due + rng.choice([0, 0, 1, 2])
            if rng.random() < 0.4:
                options["save_as"] = rng.choice(KEYS)
            if rng.random() < 0.2:
                options["fee_payer"] = "sender"
                options["payer_cap"] = rng.choice([10**5, 10**6, 10**9, None])
            script.append(["try", ["schedule", options]])
        return script

    def payload(self, depth: int) -> Any:
        rng = self.rng
        if depth <= 0 or rng.random() < 0.15:
            return rng.choice(
                ["[]", "[]", "", [["burn", rng.randint(0, 3_000)]], [["emit", "x", "y"]], [["set", "a", "b"]]]
            )
        if rng.random() < 0.06:
            return rng.choice(BAD_SCRIPTS if rng.random() < 0.6 else GOOD_ODDITIES)
        script = self.heartbeat() if rng.random() < 0.1 else self.script(depth)
        form = rng.random()
        if form < 0.7:
            return script
        text = json.dumps(script, ensure_ascii=rng.random() < 0.5)
        if form < 0.8:
            return text
        if form < 0.85:
            return {"hex": text.encode().hex()}
        return self.wrapped(text.encode())

    def wrapped(self, script: bytes) -> str:
        """The `_handler` form, often slightly wrong."""
        rng = self.rng
        inner = base64.b64encode(script).decode()
        envelope: dict[str, Any] = {"_handler": "on_time", "_payload": inner}
        faults = ["extra", "missing", "empty", "long", "padding", "number", "twice", "space", "bits", "equals", "tail"]
        fault = rng.choice(["", "", "", "", *faults])
        if fault == "extra":
            envelope["x"] = 1
        elif fault == "missing":
            del envelope["_handler"]
        elif fault in ("empty", "long", "number"):
            envelope["_handler"] = {"empty": "", "long": "ü" * 129, "number": 7}[fault]
        elif fault == "padding":
            envelope["_payload"] = inner.rstrip("=")
        elif fault in ("equals", "tail"):
            envelope["_payload"] = {"equals": "==", "tail": "W10=W10="}[fault]
        elif fault == "space":
            envelope["_payload"] = inner[:4] + "\n" + inner[4:]
        elif fault == "bits":
            envelope["_payload"] = "W11="  # `[]`, but for bits that stand for nothing
        text = json.dumps(envelope)
        return text.replace("{", '{"_handler":"x",', 1) if fault == "twice" else text

    # --- transactions -----------------------------------------------------------------------------------------------

    def transaction(self) -> dict[str, Any]:
        rng, chain = self.rng, self.chain
        kind = rng.choice(self.kinds)
        sender = rng.choice([*USERS[:1] * 9, *USERS[:2] * 3, *USERS, STRANGER]) if kind != "system" else DEPLOYER
        if kind == "system" and rng.random() < 0.08:
            sender = USERS[0]
        nonce = self.nonces.get(sender, chain.state.nonce.get(sender, 0))
        tx: dict[str, Any] = {
            "kind": kind,
            "sender": sender,
            "nonce": nonce,
            "gas_limit": self.param("TX_BASE_CYCLES") + rng.choice([0, 0, 100]),
            "cells_limit": 0,
            "max_fee_per_cycle": chain.basefee_cycle * rng.choice([1, 2, 2, 5]),
            "max_priority_fee_per_cycle": rng.choice([0, 1, chain.basefee_cycle // 2, 2**96 - 1]),
            "max_fee_per_cell": chain.basefee_cell * rng.choice([1, 2]),
        }
        if kind == "system":
            tx |= self.system()
        elif kind == "transfer":
            tx |= {"to": self.address(), "value": rng.choice([0, 1, rng.randint(0, 10**6), 10**9])}
        else:
            tx |= self.call()
        self.spoil(tx)
        self.nonces[sender] = nonce + (tx["nonce"] == nonce)
        return tx

    def call(self) -> dict[str, Any]:
        """A call's own fields, and limits that mostly suffice for its script."""
        rng = self.rng
        to = self.actor() if rng.random() < 0.97 else rng.choice([*USERS, STRANGER])
        kind = rng.random()
        if kind < 0.4:
            payload = self.crowd()
        elif kind < 0.5:
            payload = self.chatter(rng.randint(1, 4), 4 * self.param("MESSAGE_CYCLES"))
        elif kind < 0.6 and self.chain.state.timers:
            to, payload = self.meddling()
        elif kind < 0.85:
            payload = self.script(3)
        else:
            payload = self.heartbeat() if kind < 0.93 else self.payload(3)
        if self.watches and self.fourth.random() < self.watches:
            payload = self.watch_script()
        size = len(payload_bytes(payload))
        enough = self.param("TX_BASE_CYCLES") + 30_000 + 4 * self.param("MESSAGE_CYCLES")
        fields: dict[str, Any] = {
            "to": to,
            "handler": rng.choice(["run", "x"]),
            "payload": payload,
            "gas_limit": rng.choice([enough, enough, enough, self.param("TX_BASE_CYCLES") + rng.randint(0, 30_000)]),
            "cells_limit": 3 * size + 2 * self.param("MESSAGE_CELLS"),
        }
        if rng.random() < 0.15:
            fields["cells_limit"] = near(rng, size)
        if rng.random() < 0.3:
            fields["value"] = rng.choice([0, 1, rng.randint(0, 10**6), 10**9])
        if rng.random() < 0.5:
            fields["timer_allowance"] = rng.choice([0, 1, 10**6, 10**9, 10**14, rng.randint(1, 10**7)])
        return fields

    def meddling(self) -> tuple[str, list[Any]]:
        """An actor, and a script that reaches for its timers, the carried and the expired first, or for its purse."""
        rng, state = self.rng, self.chain.state
        waiting = sorted(state.timers.values(), key=lambda timer: (timer.expires_at, timer.seq))
        chosen = rng.choice([*waiting[:3], rng.choice(waiting)])
        script: list[Any] = [["extend", {"id": chosen.timer_id, "expires_at": self.height + rng.choice([0, 1, 2, 9])}]]
        if rng.random() < 0.2:
            script = [["cancel", {"id": chosen.timer_id}]]
        if rng.random() < 0.4:
            least = self.param("GBA_MAX_CYCLES") * self.chain.basefee_cycle
            amount = max(0, state.balance[chosen.actor] - rng.choice([0, least // 2, least - 1, least]))
            script.append(["transfer", {"to": USERS[0], "amount": amount}])
        return chosen.actor, script

    def spoil(self, tx: dict[str, Any]) -> None:
        rng, chain = self.rng, self.chain
        if rng.random() > 0.08:
            return
        faults: dict[str, Any] = {
            "nonce": number(tx["nonce"]) + rng.choice([1, -1]),
            "gas_limit": self.param("TX_BASE_CYCLES") - rng.choice([0, 1]),
            "cells_limit": near(rng, self.param("LANE_USER_CELLS")),
            "max_fee_per_cycle": max(0, chain.basefee_cycle - 1),
            "max_fee_per_cell": max(0, chain.basefee_cell - 1),
            "value": max(0, chain.state.balance.get(tx["sender"], 0) - rng.randint(0, 10_000) * chain.basefee_cycle),
        }
        if tx["kind"] == "system":
            del faults["value"]
            faults["gas_limit"] = near(rng, self.param("LANE_SYSTEM_CYCLES"))
        elif rng.random() < 0.3:
            faults["gas_limit"] = near(rng, self.param("LANE_USER_CYCLES"))
        for field in rng.sample(sorted(faults), rng.choice([1, 1, 2])):
            tx[field] = max(0, faults[field])

    def system(self) -> dict[str, Any]:
        rng = self.rng
        opcode = rng.choice([48, 49, 49, 49, 50])
        if opcode == 49:
            return {"opcode": 49, "args": {"config": self.config()}}
        timer_id = self.timer_id()
        if len(timer_id) != 64:
            timer_id = "ab" * 32
        arguments: dict[str, Any] = {"timer_id": timer_id}
        if opcode == 50:
            arguments["new_expires_at"] = self.height + rng.choice([0, 1, 5, 30, self.param("MAX_TTL") + 1])
        return {"opcode": opcode, "args": arguments}

    def config(self) -> dict[str, Any]:
        rng = self.rng
        lane, low = self.param("LANE_TIMER_CYCLES"), self.param("MIN_GAS_LIMIT_PER_TIMER")
        dead = 2 * self.param("SCAN_LIMIT") * self.param("GC_CYCLES_PER_REMOVAL")
        choices: dict[str, list[Any]] = {
            "LANE_TIMER_CYCLES": [lane, lane - 1, lane // 2, lane * 2, 10**9],
            "TIMER_GC_CYCLES": [dead, dead - 1, dead + 1_000],
            "MAX_CYCLES_PER_FIRE": [low, low - 1, lane, lane + 1, (low + lane) // 2],
            "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": [low, low - 1, lane, lane + 1, (low + lane) // 2],
            "MAX_CELLS_PER_FIRE": [0, 1, 300, 10**9, 10**9 + 1],
            "MAX_TTL": [0, 1, 5, 40],
            "FAIRNESS_WINDOW_BLOCKS": [0, 1, 3, 10**5, 10**5 + 1],
            "LANE_BASEFEE_SLOPE": [0, 1, 4, 8, 9],
            "LANE_FEE_MULTIPLIER_MILLI": [0, 1, 800, 1_000, 10_000, 10_001],
            "PRIORITY_FLOOR": [-1, 0, 1, 10**18, 10**18 + 1],
            "PRIORITY_TIERS": [[8, 10, 15, 25], [1, 2, 3], [0, 0, 0, 1_001], [1_000, 0, 5, 5]],
            "SCAN_LIMIT": [5],
            "NO_SUCH": [1],
        }
        names = rng.sample(sorted(choices), rng.choice([0, 1, 1, 1, 2, 3]))
        if rng.random() < 0.3:
            names = [rng.choice(["LANE_TIMER_CYCLES", "MAX_CYCLES_PER_FIRE_AUCTION_PHASE", "MAX_CYCLES_PER_FIRE"])]
        return {name: rng.choice(choices[name]) for name in names}

    # --- blocks -----------------------------------------------------------------------------------------------------

    def make_block(self) -> dict[str, Any]:
        rng = self.rng
        proposer = rng.choice(self.proposers)
        if rng.random() < 0.2:
            return {"empty": rng.choice([0, 1, 1, 2, 4]), "proposer": proposer}
        self.nonces = {}
        txs = [self.transaction() for _ in range(rng.choice([0, 1, 2, 3, 4, 6, 8]))]
        return {"proposer": proposer, "txs": txs}

    def make(self, most_blocks: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        goal = self.rng.randint(3, most_blocks)
        while self.chain.height < goal:
            block = self.make_block()
            self.blocks.append(block)
            if "empty" in block:
                for _ in range(block["empty"]):
                    self.chain.block(block["proposer"].lower(), [])
            else:
                self.chain.block(block["proposer"].lower(), block["txs"])
        return self.genesis, self.blocks


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


def corpus_case() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Every script of the corpus, called by a transaction and again by a timer."""
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


def case(seed: int, most_blocks: int = 24) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The genesis and the blocks of `seed`."""
    return Maker(seed).make(most_blocks)
