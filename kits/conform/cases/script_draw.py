"""Draws of scripts, payloads and timers around what is alive on a running chain."""

from __future__ import annotations

import base64
import json
from typing import Any

from kits.conform.cases.dice import Dice, near, payload_bytes
from kits.conform.cases.names import KEYS, STRANGER, TIERS, USERS
from kits.conform.cases.odd_scripts import BAD_SCRIPTS, GOOD_ODDITIES
from kits.conform.cases.running_chain import RunningChain


class ScriptDraw:
    """Draws scripts for a chain that runs along."""

    def __init__(self, dice: Dice, chain: RunningChain) -> None:
        self.rng, self.other, self.chain = dice.rng, dice.other, chain

    @property
    def height(self) -> int:
        return self.chain.height + 1

    def param(self, name: str) -> Any:
        return self.chain.params[name]

    def lane_price(self) -> int:
        """The lane price of the block in the making, near enough."""
        return self.chain.basefee_cycle if self.chain.policy == "gba_auction" else self.chain.lane_price

    def actor(self) -> str:
        return self.rng.choice(self.chain.actors)

    def address(self) -> str:
        rng = self.rng
        return rng.choice(
            [self.actor(), self.actor(), self.actor(), rng.choice(USERS), STRANGER, "0x" + "00" * 19 + "09"]
        )

    def timer_id(self) -> str:
        alive = self.chain.timer_ids()
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
            purse = self.chain.balance(self.actor())
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
            room = self.param("MAILBOX_BYTES") - self.chain.mailbox_bytes(to)
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
            return ScriptDraw.reserved_cells(operation[1])
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
            envelope["_payload"] = "W11="  # `[]`, but for bits that mean nothing
        text = json.dumps(envelope)
        return text.replace("{", '{"_handler":"x",', 1) if fault == "twice" else text


class WatchDraw:
    """Draws scripts that watch keys for a chain that runs along (docs/policies.md, "Watching keys")."""

    def __init__(self, dice: Dice, chain: RunningChain) -> None:
        self.fourth, self.chain = dice.fourth, chain

    def watch_script(self) -> list[Any]:
        """Operations about watched keys, some of them in a message."""
        fourth = self.fourth
        script = [self.about_watches(fourth.choice([0, 1, 1, 2])) for _ in range(fourth.choice([1, 2, 3, 5]))]
        script = [["try", operation] if fourth.random() < 0.9 else operation for operation in script]
        if fourth.random() < 0.3:
            options = {"to": fourth.choice(self.chain.actors), "handler": "h", "payload": script, "cells": 0}
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
            return ["extend", {"saved": pick(KEYS), "expires_at": self.chain.height + 1 + pick([1, 3, 8])}]
        return ["schedule", self.watching(key, depth)]

    def watching(self, key: str, depth: int) -> dict[str, Any]:
        """A timer that watches a key, mostly one that may be watched."""
        pick = self.fourth.choice
        known = self.chain.watchable()
        actor = pick(self.chain.actors)
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
            options["gas_limit"] = self.chain.params["MIN_GAS_LIMIT_PER_TIMER"] + pick([0, 1_500, 4_000])
        if self.fourth.random() < 0.4:
            options["expires_at"] = self.chain.height + 1 + pick([0, 1, 1, 2, 3, 6])
        if self.fourth.random() < 0.4:
            options["save_as"] = pick(KEYS)
        return options
