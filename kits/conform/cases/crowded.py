"""Seeded cases that crowd many rules of the protocol into a few blocks.

The generator runs the chain along with what it generates, so that nonces fit, fees lie right at the basefees in force,
and scripts name timers that are alive.
"""

from __future__ import annotations

from typing import Any

from kits.conform.cases.dice import Dice, near, payload_bytes
from kits.conform.cases.genesis_draw import GenesisDraw
from kits.conform.cases.names import ACTORS, DEPLOYER, PROPOSERS, STRANGER, USERS
from kits.conform.cases.running_chain import RunningChain
from kits.conform.cases.script_draw import ScriptDraw, WatchDraw
from validator.chain.transactions import SCRIPT_CODE
from validator.primitives.types import address_text


class CrowdedCase:
    """One case in the making."""

    def __init__(self, seed: int) -> None:
        dice = Dice(seed)
        genesis = GenesisDraw(dice)
        self.rng, self.fourth, self.fifth = dice.rng, dice.fourth, dice.fifth
        self.genesis = genesis.make_genesis()
        self.watches = genesis.watches
        self.chain = RunningChain(self.genesis)
        self.scripts = ScriptDraw(dice, self.chain)
        self.watch_scripts = WatchDraw(dice, self.chain)
        self.deployments = self.fifth.choice([0.0] * (1 if "WEIGHT_PARTY" in self.genesis["params"] else 7) + [0.15])
        """Share of the transactions of users that deploy an actor."""
        self.blocks: list[dict[str, Any]] = []
        self.sentence = ""
        self.nonces: dict[str, int] = {}
        self.kinds = ["call"] * 12 + ["transfer"] + ["system"] * self.rng.choice([1, 1, 6])
        self.proposers = [*PROPOSERS, USERS[1], *ACTORS[:3]]

    def param(self, name: str) -> Any:
        """A parameter of the next block."""
        return self.chain.params[name]

    # --- transactions -----------------------------------------------------------------------------------------------

    def transaction(self) -> dict[str, Any]:
        rng, chain = self.rng, self.chain
        kind = rng.choice(self.kinds)
        sender = rng.choice([*USERS[:1] * 9, *USERS[:2] * 3, *USERS, STRANGER]) if kind != "system" else DEPLOYER
        if kind == "system" and rng.random() < 0.08:
            sender = USERS[0]
        if kind != "system" and self.deployments and self.fifth.random() < self.deployments:
            kind = "deploy"
        nonce = self.nonces.get(sender, chain.nonce(sender))
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
        elif kind == "deploy":
            size = len(SCRIPT_CODE)
            value = self.fifth.choice([0, *[chain.balance(sender) // 3] * 3])
            tx |= {"code": SCRIPT_CODE, "value": value, "cells_limit": self.fifth.choice([size, size, size, size - 1])}
        elif kind == "transfer":
            tx |= {"to": self.scripts.address(), "value": rng.choice([0, 1, rng.randint(0, 10**6), 10**9])}
        else:
            tx |= self.call()
        self.spoil(tx)
        self.nonces[sender] = nonce + (tx["nonce"] == nonce)
        return tx

    def call(self) -> dict[str, Any]:
        """A call's own fields, and limits that mostly suffice for its script."""
        rng = self.rng
        to = self.scripts.actor() if rng.random() < 0.97 else rng.choice([*USERS, STRANGER])
        kind = rng.random()
        if kind < 0.4:
            payload = self.scripts.crowd()
        elif kind < 0.5:
            payload = self.scripts.chatter(rng.randint(1, 4), 4 * self.param("MESSAGE_CYCLES"))
        elif kind < 0.6 and self.chain.timers():
            to, payload = self.meddling()
        elif kind < 0.85:
            payload = self.scripts.script(3)
        else:
            payload = self.scripts.heartbeat() if kind < 0.93 else self.scripts.payload(3)
        if self.watches and self.fourth.random() < self.watches:
            payload = self.watch_scripts.watch_script()
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
        rng, chain = self.rng, self.chain
        waiting = sorted(chain.timers(), key=lambda timer: (timer.expires_at, timer.sequence))
        chosen = rng.choice([*waiting[:3], rng.choice(waiting)])
        script: list[Any] = [
            ["extend", {"id": chosen.timer_id.hex(), "expires_at": self.chain.height + 1 + rng.choice([0, 1, 2, 9])}]
        ]
        if rng.random() < 0.2:
            script = [["cancel", {"id": chosen.timer_id.hex()}]]
        if rng.random() < 0.4:
            least = self.param("GBA_MAX_CYCLES") * chain.basefee_cycle
            amount = max(0, chain.balance(address_text(chosen.actor)) - rng.choice([0, least // 2, least - 1, least]))
            script.append(["transfer", {"to": USERS[0], "amount": amount}])
        return address_text(chosen.actor), script

    def spoil(self, tx: dict[str, Any]) -> None:
        rng, chain = self.rng, self.chain
        if rng.random() > 0.08:
            return
        faults: dict[str, Any] = {
            "nonce": tx["nonce"] + rng.choice([1, -1]),
            "gas_limit": self.param("TX_BASE_CYCLES") - rng.choice([0, 1]),
            "cells_limit": near(rng, self.param("LANE_USER_CELLS")),
            "max_fee_per_cycle": max(0, chain.basefee_cycle - 1),
            "max_fee_per_cell": max(0, chain.basefee_cell - 1),
            "value": max(0, chain.balance(tx["sender"]) - rng.randint(0, 10_000) * chain.basefee_cycle),
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
        timer_id = self.scripts.timer_id()
        if len(timer_id) != 64:
            timer_id = "ab" * 32
        arguments: dict[str, Any] = {"timer_id": timer_id}
        if opcode == 50:
            arguments["new_expires_at"] = self.chain.height + 1 + rng.choice([0, 1, 5, 30, self.param("MAX_TTL") + 1])
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

    def make(self, most_blocks: int) -> None:
        """Make blocks, each with what it finds on the chain."""
        goal = self.rng.randint(3, most_blocks)
        while self.chain.height < goal:
            block = self.make_block()
            self.blocks.append(block)
            self.chain.block(block)
