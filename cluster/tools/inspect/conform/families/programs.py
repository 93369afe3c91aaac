"""Families about Python actors and jobs (docs/protocol.md, "Python actors" and "Jobs")."""

from __future__ import annotations

import random
from typing import Any, Final

from cluster.tools.inspect.conform.cases.family import FamilyTable
from cluster.tools.inspect.conform.cases.names import DEPLOYER, USERS
from cluster.tools.inspect.conform.cases.scene import ACTORS, RUNNERS, Actor, Scene
from validator.execution.jobs import job_id_of
from validator.primitives.codec import encode
from validator.primitives.types import Address
from validator.pvm.runtime.values import encode_value

PROGRAMS: Final = FamilyTable()
family = PROGRAMS.add
CONTRACT: Final = "0x" + "00" * 19 + "0a"
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
JOBS: Final = """\
class Jobs(Actor):
    def ask(self, payload):
        self.request_job(payload[0], payload[1], payload[2])

    def answered(self, payload):
        self.set("results", self.consume_result(payload["job"]))

    def ignored(self, payload):
        self.emit("ignored", len(payload["results"]))

    def broken(self, payload):
        self.consume_result(payload["job"])
        assert False, "broken"

    def consume(self, payload):
        self.consume_result(payload)
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
    scene.block()
    scene.empty()
    program_call(scene, "hire", None)
    program_call(scene, "plan", 2)
    scene.block()
    scene.empty()
    return scene


# --- jobs -------------------------------------------------------------------------------------------------------------


def _job_scene(rng: random.Random, runners: int = 2) -> Scene:
    params = {"MESSAGE_CYCLES": 300_000, "LANE_DEFERRED_CYCLES": 2_000_000, "LANE_USER_CYCLES": 20_000_000}
    return Scene(rng, params, {ACTORS[0]: Actor(code=JOBS), ACTORS[1]: Actor(code=JOBS)}, runners=runners)


def _ask(scene: Scene, task: Any, needed: int, handler: str, to: str = ACTORS[0]) -> None:
    program_call(scene, "ask", [task, needed, handler], to, gas_limit=scene.base + 1_200_000, cells_limit=200_000)


def _job(number: int, task: Any, actor: str = ACTORS[0]) -> bytes:
    return bytes(job_id_of(Address(bytes.fromhex(actor[2:])), number, encode_value(task)))


def _contract(scene: Scene, handler: str, payload: bytes, sender: str) -> None:
    scene.call({"hex": payload.hex()}, CONTRACT, sender, handler=handler, gas_limit=scene.base + 2_000)


def _submit(scene: Scene, job: bytes, result: bytes, runner: str = RUNNERS[0]) -> None:
    _contract(scene, "submit_result", encode((job, result)), runner)


@family("jobs", "J-01", "J-12", "J-13", "J-14")
def jobs(rng: random.Random) -> Scene:
    """Runners submit the results of a job, and its callback consumes them in a later block."""
    scene = _job_scene(rng)
    task, needed = rng.choice(["task", 7, b"x"]), rng.choice([1, 2])
    _ask(scene, task, needed, "answered")
    scene.block()
    for runner in RUNNERS[:needed]:
        _submit(scene, _job(0, task), rng.choice([b"", b"ok", b"r" * 30]), runner)
    scene.block()
    scene.empty(2)
    return scene


@family("job-requests", "J-02", "J-03", "J-04")
def job_requests(rng: random.Random) -> Scene:
    """A job's payload, handler and number of results are bounded."""
    scene = _job_scene(rng)
    scene.call(
        {"hex": encode_value(["x" * 65_536, 1, "answered"]).hex()},
        handler="ask", gas_limit=scene.base + 2_000_000, cells_limit=400_000,
    )  # fmt: skip
    _ask(scene, "t", 1, rng.choice(["", "h" * 257]))
    _ask(scene, "t", rng.choice([0, 17, -1]), "answered")
    _ask(scene, "t", rng.choice([1, 16]), "answered")
    scene.block()
    return scene


@family("job-limit", "J-05")
def job_limit(rng: random.Random) -> Scene:
    """An actor has 64 jobs that are neither consumed nor gone."""
    params = {"MESSAGE_CYCLES": 2_000, "MESSAGE_CELLS": 1, "LANE_USER_CYCLES": 10**8}
    scene = Scene(
        rng,
        params,
        {
            ACTORS[0]: Actor(
                code=JOBS.replace(
                    "self.request_job(payload[0], payload[1], payload[2])",
                    "for number in range(payload[0]):\n            self.request_job(number, payload[1], payload[2])",
                )
            )
        },
    )
    program_call(scene, "ask", [64, 1, "answered"], gas_limit=scene.base + 3_000_000)
    program_call(scene, "ask", [1, 1, "answered"], gas_limit=scene.base + 3_000_000)
    scene.block()
    return scene


@family("job-results", "J-06", "J-07", "J-08", "J-09", "J-10", "J-11")
def job_results(rng: random.Random) -> Scene:
    """A result is refused for the first of the reasons that applies."""
    scene = _job_scene(rng)
    _ask(scene, "task", 2, "answered")
    scene.block()
    job = _job(0, "task")
    _submit(scene, job, b"ok", USERS[1])
    _contract(scene, "submit_result", rng.choice([b"", b"\xc0", encode((job,)), encode((job, "text"))]), RUNNERS[0])
    _submit(scene, job, b"r" * 8_193)
    _submit(scene, rng.choice([bytes(32), _job(1, "task")]), b"ok")
    _submit(scene, job, b"first")
    _submit(scene, job, b"again")
    _submit(scene, job, b"second", RUNNERS[1])
    _submit(scene, job, b"late", rng.choice(RUNNERS[:2]))
    scene.block()
    scene.empty()
    _submit(scene, job, b"later")
    scene.block()
    return scene


@family("job-settlement", "J-15", "J-16", "J-17", "T-25")
def job_settlement(rng: random.Random) -> Scene:
    """A job is settled in its callback or never."""
    scene = _job_scene(rng)
    handlers = ["answered", rng.choice(["ignored", "broken", "missing"])]
    for handler in handlers:
        _ask(scene, handler, 1, handler)
    scene.block()
    ids = [_job(number, handler) for number, handler in enumerate(handlers)]
    program_call(scene, "consume", ids[0])
    for job in ids:
        _submit(scene, job, b"ok")
    scene.block()
    scene.empty()
    for job in ids:
        program_call(scene, "consume", job)
    program_call(scene, "consume", ids[0], ACTORS[1])
    scene.block()
    return scene


@family("runners", "J-18", "J-19", "J-20", "J-21")
def runners(rng: random.Random) -> Scene:
    """System deployers register runners and remove them; the runner contract has no other handlers."""
    scene = _job_scene(rng, 1)
    address = bytes.fromhex(USERS[2][2:])
    _contract(scene, "register_runner", encode((address,)), USERS[0])
    _contract(scene, "register_runner", encode((rng.choice([bytes(20), b"short", address]),)), DEPLOYER)
    _contract(scene, "register_runner", encode((address,)), DEPLOYER)
    _contract(scene, rng.choice(["run", "submit"]), b"", DEPLOYER)
    _ask(scene, "task", 1, "answered")
    scene.block()
    _submit(scene, _job(0, "task"), b"ok", USERS[2])
    _contract(scene, "unregister_runner", encode((address,)), DEPLOYER)
    scene.block()
    _submit(scene, _job(0, "task"), b"ok", USERS[2])
    scene.block()
    return scene
