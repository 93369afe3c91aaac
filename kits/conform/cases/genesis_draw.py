"""Draws of genesis documents whose parameters are small, so that a few blocks reach many limits."""

from __future__ import annotations

from typing import Any

from kits.conform.cases.dice import Dice, near
from kits.conform.cases.names import ACTORS, DEPLOYER, USERS


class GenesisDraw:
    """Draws a genesis."""

    def __init__(self, dice: Dice) -> None:
        self.rng, self.other, self.third, self.fourth = dice.rng, dice.other, dice.third, dice.fourth
        self.watches = 0.0
        """Share of the scripts that watch keys, or let them be watched."""

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
