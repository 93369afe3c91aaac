"""Families about jobs and their runners (docs/protocol.md, "Jobs")."""

from __future__ import annotations

import random
from typing import Any, Final

from kits.conform.cases.family import FamilyTable
from kits.conform.cases.names import DEPLOYER, USERS
from kits.conform.cases.scene import ACTORS, RUNNERS, Actor, Scene
from kits.conform.families.programs.calls import program_call
from validator.execution.jobs import JOB_LIFETIME_BLOCKS, job_id_of
from validator.primitives.codec import encode
from validator.primitives.types import Address
from validator.pvm.runtime.values import encode_value

family: Final = FamilyTable()
CONTRACT: Final = "0x" + "00" * 19 + "0a"
PROGRAM: Final = """\
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


_ONE_REQUEST: Final = "self.request_job(payload[0], payload[1], payload[2])"
_MANY_REQUESTS: Final = "for number in range(payload[0]):\n            self.request_job(number, payload[1], payload[2])"


def _job_scene(rng: random.Random, runners: int = 2) -> Scene:
    params = {"MESSAGE_CYCLES": 300_000, "LANE_DEFERRED_CYCLES": 2_000_000, "LANE_USER_CYCLES": 20_000_000}
    return Scene(rng, params, {ACTORS[0]: Actor(code=PROGRAM), ACTORS[1]: Actor(code=PROGRAM)}, runners=runners)


def _ask(scene: Scene, task: Any, needed: int, handler: str, to: str = ACTORS[0], **more: Any) -> None:
    limits = {"gas_limit": scene.base + 1_200_000, "cells_limit": 200_000} | more
    program_call(scene, "ask", [task, needed, handler], to, **limits)


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
        {ACTORS[0]: Actor(code=PROGRAM.replace(_ONE_REQUEST, _MANY_REQUESTS))},
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
    scene.empty()
    for job in ids:
        program_call(scene, "consume", job)
    program_call(scene, "consume", ids[0], ACTORS[1])
    scene.block()
    return scene


@family("job-ends", "J-22", "J-23", "J-24", "J-25", "J-26", every=10)
def job_ends(rng: random.Random) -> Scene:
    """A job ends 3,600 blocks after its request, and its records are removed then, 128 of them in a block."""
    params = {"LANE_DEFERRED_CYCLES": 2_000_000, "LANE_USER_CYCLES": 10**8, "MESSAGE_CELLS": 1_000}
    code = PROGRAM.replace(_ONE_REQUEST, _MANY_REQUESTS)
    first, second, third = ACTORS[:3]
    scene = Scene(rng, params, dict.fromkeys((first, second, third), Actor(code=code)), runners=1)
    for actor in (first, second, third):
        _ask(scene, 64, 1, "answered", actor, gas_limit=scene.base + 10**7, cells_limit=100_000)
    scene.block()
    end = scene.chain.height + JOB_LIFETIME_BLOCKS
    consumed, late, gone, kept = _job(0, 0, first), _job(1, 1, first), _job(5, 5, second), _job(3, 3, third)
    _submit(scene, consumed, b"ok")
    scene.empty()
    _ask(scene, 1, 1, "answered", first)
    scene.block()
    scene.empty(end - scene.height)
    program_call(scene, "consume", consumed, first)
    _submit(scene, late, rng.choice([b"", b"late"]))
    scene.block()
    for job in (gone, kept):
        _submit(scene, job, b"too late")
    program_call(scene, "consume", consumed, first)
    for actor in rng.sample([second, third], 2):
        _ask(scene, 1, 1, "answered", actor)
    scene.block()
    program_call(scene, "consume", late, first)
    _ask(scene, 1, 1, "answered", third)
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
