"""Draws of scripts about watched keys (docs/policies.md, "Watching keys")."""

from __future__ import annotations

from typing import Any

from kits.conform.cases.dice import Dice
from kits.conform.cases.names import KEYS
from kits.conform.cases.running_chain import RunningChain


class WatchDraw:
    """Draws scripts that watch keys for a chain that runs along."""

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
