"""Families about calls, timers and bids of Python actors (docs/protocol.md, "Python actors")."""

from __future__ import annotations

import random
from typing import Any, Final

from kits.conform.cases.family import FamilyTable
from kits.conform.cases.names import USERS
from kits.conform.cases.scene import ACTORS, Actor, Scene
from validator.pvm.runtime.values import encode_value

family: Final = FamilyTable()
COUNTER: Final = """\
class Counter(Actor):
    def add(self, payload):
        self.set("count", self.get("count", 0) + payload)
        self.emit("count", self.get("count"))

    def divide(self, payload):
        self.set("count", 1 // payload)

    def check(self, payload):
        assert payload == 1, "not one"

    def beat(self, payload):
        self.set("timer", self.schedule(self.height + 1, payload=payload, handler="add"))

    def look(self, payload):
        self.emit("pending", self.pending(self.get("timer", bytes(32))))
"""
BOARD: Final = """\
class Board(Actor):
    def write(self, payload):
        self.publish("price", payload)

    def read(self, payload):
        self.emit("read", self.published(payload, "price"))

    def origin(self, payload):
        self.emit("origin", self.origin_hash)
        self.send(payload, "origin_of", None)

    def origin_of(self, payload):
        self.emit("origin", self.origin_hash)
"""
BIDDER: Final = """\
class Bidder(Actor):
    def set_bid(self, payload):
        self.set("bid", payload)

    def get_gas_bid(self, context):
        return self.get("bid", {})

    def plan(self, payload):
        self.schedule(self.height + 1, payload=payload, handler="done")

    def done(self, payload):
        self.emit("done", payload)

    def hire(self, payload):
        self.set_bidding_agent(payload)
"""


def program_call(scene: Scene, handler: str, payload: Any, to: str = ACTORS[0], **more: Any) -> None:
    """Add a call of a program's handler."""
    given = {"hex": encode_value(payload).hex()}
    scene.call(given, to, **{"handler": handler, "gas_limit": scene.base + 600_000, "cells_limit": 100_000, **more})


@family("programs", "P-01", "P-02", "P-05")
def programs(rng: random.Random) -> Scene:
    """A program's handlers run with the value of their payload; loading is paid once a block."""
    scene = Scene(rng, actors={ACTORS[0]: Actor(code=COUNTER)})
    number = rng.choice([1, 7, 2**70])
    for _ in range(2):
        program_call(scene, "add", number)
    program_call(scene, "divide", rng.choice([0, 1]))
    program_call(scene, "check", rng.choice([0, 1]))
    program_call(scene, "divide", 0)
    scene.block()
    return scene


@family("program-errors", "P-03", "P-04")
def program_errors(rng: random.Random) -> Scene:
    """A handler that is not there and a payload that encodes no value are errors."""
    scene = Scene(rng, actors={ACTORS[0]: Actor(code=COUNTER)})
    program_call(scene, rng.choice(["nothing", "get", "__init__"]), None)
    scene.call(
        {"hex": rng.choice(["c1", "ff00", "cd0001", "ca00000000"])}, handler="add", gas_limit=scene.base + 600_000
    )
    program_call(scene, "add", rng.choice([1, "text"]))
    scene.block()
    return scene


@family("program-timers", "P-08", "P-01")
def program_timers(rng: random.Random) -> Scene:
    """A program schedules timers, and asks whether one is pending."""
    scene = Scene(rng, actors={ACTORS[0]: Actor(code=COUNTER)})
    program_call(scene, "beat", rng.choice([1, 5, "x"]))
    program_call(scene, "look", None)
    scene.block()
    program_call(scene, "look", None)
    scene.block()
    program_call(scene, "look", None)
    scene.block()
    return scene


@family("published-values", "P-06", "P-07")
def published_values(rng: random.Random) -> Scene:
    """What an actor publishes others read; origin_hash is that of the transaction."""
    scene = Scene(rng, actors={ACTORS[0]: Actor(code=BOARD), ACTORS[1]: Actor(code=BOARD)})
    program_call(scene, "write", rng.choice([None, 5, "text", b"x", [1, 2]]))
    program_call(scene, "read", bytes.fromhex(ACTORS[0][2:]), ACTORS[1])
    program_call(scene, "read", bytes.fromhex(ACTORS[1][2:]))
    program_call(scene, "origin", bytes.fromhex(ACTORS[1][2:]))
    scene.block()
    return scene


@family("program-bids", "P-09", "G-02", "G-10")
def program_bids(rng: random.Random) -> Scene:
    """A program's get_gas_bid bids for its timers; an answer that is none leaves them to the default agent."""
    scene = Scene(rng, {"GBA_MAX_CYCLES": 100_000}, {ACTORS[0]: Actor(code=BIDDER)}, basefee=rng.choice([7, 1_000]))
    price = 3 * scene.lane_price
    bids: list[Any] = [
        {"max_fee_per_cycle": price, "max_priority_fee_per_cycle": 1},
        {"max_priority_fee_per_cycle": 2},
        rng.choice([{"max_fee_per_cycle": -1}, {"unknown": 1}, 7, {"max_fee_per_cycle": 2**96}]),
    ]
    rng.shuffle(bids)
    for bid in bids:
        program_call(scene, "set_bid", bid)
        program_call(scene, "plan", 1)
        scene.block()
    scene.empty()
    return scene


@family("named-contracts", "P-10", "G-08", "T-20")
def named_contracts(rng: random.Random) -> Scene:
    """An actor names a contract that bids for its timers; another account is refused."""
    scene = Scene(
        rng,
        {"GBA_MAX_CYCLES": 100_000},
        {ACTORS[0]: Actor(code=BIDDER), ACTORS[1]: Actor(code=BIDDER), ACTORS[2]: Actor()},
    )
    price = 4 * scene.lane_price
    program_call(
        scene, "set_bid", {"max_fee_per_cycle": price, "max_priority_fee_per_cycle": rng.choice([0, 3])}, ACTORS[1]
    )
    program_call(scene, "hire", bytes.fromhex(rng.choice([USERS[1], ACTORS[2]])[2:]))
    program_call(scene, "hire", bytes.fromhex(ACTORS[1][2:]))
    program_call(scene, "plan", 1)
    scene.empty()
    program_call(scene, "hire", None)
    program_call(scene, "plan", 2)
    scene.empty()
    return scene
