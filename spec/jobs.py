"""Jobs: work of runners outside of the chain, and callbacks with its results (``docs/protocol.md``, *Jobs*)."""

from __future__ import annotations

from typing import Any

from spec.encoding import (
    Address,
    Event,
    Hash,
    Unreadable,
    address_text,
    decode,
    encode,
    is_name,
    is_reserved,
    keccak256,
    number8,
)
from spec.runs import Run
from spec.world import ActorJobs, Job, Refusal, World

LIFETIME_BLOCKS = 3_600
UNSETTLED_PER_ACTOR = 64
MAX_RESULTS_NEEDED = 16
MAX_PAYLOAD_BYTES = 65_536
MAX_RESULT_BYTES = 8_192
CALLBACKS_PER_BLOCK = 256
ENDED_PER_BLOCK = 128
HANDLER_CYCLES = {"submit_result": 1_000, "register_runner": 500, "unregister_runner": 500}
"""The handlers of the runner contract, and what a call of them costs."""


def request(world: World, actor: Address, payload: bytes, results_needed: int, handler: str) -> Hash:
    """Open a job. Raises the first error that applies, in this order."""
    mine = world.actor_jobs.get(actor, ActorJobs())
    world.refuse("J-02", "JobPayloadTooLarge", len(payload) > MAX_PAYLOAD_BYTES)
    world.refuse("J-03", "JobHandlerInvalid", not is_name(handler))
    world.refuse("J-04", "JobResultsInvalid", not 1 <= results_needed <= MAX_RESULTS_NEEDED)
    world.refuse("J-05", "JobLimitReached", mine.unsettled >= UNSETTLED_PER_ACTOR)
    world.reached("J-01")
    job_id = keccak256(actor + number8(mine.requested) + payload)
    ends_at = world.height + LIFETIME_BLOCKS
    world.put(world.actor_jobs, actor, ActorJobs(mine.requested + 1, mine.unsettled + 1))
    world.put(world.jobs, job_id, Job(actor, handler, results_needed, ends_at))
    world.put(world.job_payloads, job_id, payload)
    world.put(world.job_ends, world.count("next end"), (job_id, ends_at))
    return job_id


def find(world: World, job_id: bytes) -> Job | None:
    """A job; ``None`` if there is none, or if it is incomplete and past its end."""
    job = world.jobs.get(job_id)
    return None if job is None or (world.height > job.ends_at and not job.is_complete) else job


def call_contract(run: Run, handler: str, payload: bytes) -> None:
    """A call of ``0x00…0a``."""
    world, sender = run.world, run.sender
    world.refuse("J-21", "UnknownHandler", handler not in HANDLER_CYCLES)
    run.meter.charge(HANDLER_CYCLES[handler])
    if handler == "submit_result":
        submit(run, payload)
        return
    world.refuse("J-20", "NotSystemDeployer", sender not in world.genesis.system_deployers)
    (runner,) = _fields(world, payload, 1)
    world.refuse("J-07", "BadSubmission", len(runner) != 20 or is_reserved(runner))
    if handler == "register_runner" and runner not in world.runners:
        world.reached("J-18")
        world.put(world.runners, runner, True)
        run.report("RunnerRegistered", runner=address_text(runner))
    if handler == "unregister_runner" and runner in world.runners:
        world.reached("J-19")
        world.drop(world.runners, runner)
        run.report("RunnerUnregistered", runner=address_text(runner))


def submit(run: Run, payload: bytes) -> None:
    """Take a runner's result. Raises the first error that applies."""
    world, runner = run.world, run.sender
    world.refuse("J-06", "NotRunner", runner not in world.runners)
    job_id, result = _fields(world, payload, 2)
    job = find(world, job_id)
    world.refuse("J-08", "ResultTooLarge", len(result) > MAX_RESULT_BYTES)
    if job is None:
        raise world.refusal("J-09", "UnknownJob")
    world.refuse("J-10", "JobComplete", job.is_complete)
    world.refuse("J-11", "AlreadySubmitted", runner in job.runners)
    world.reached("J-12")
    world.reached("J-22", world.height == job.ends_at)
    job = job._replace(runners=(*job.runners, runner))
    world.put(world.jobs, job_id, job)
    world.put(world.results, (job_id, runner), result)
    named = ("job_id", job_id.hex())
    run.events.append(Event("JobResultSubmitted", job.actor, [named, ("runner", address_text(runner))]))
    if job.is_complete:
        world.reached("J-13")
        world.drop(world.job_payloads, job_id)
        world.put(world.callbacks, world.count("next callback"), (job_id, world.height))
        run.events.append(Event("JobCompleted", job.actor, [named]))


def _fields(world: World, payload: bytes, count: int) -> list[bytes]:
    """The fields of a call's payload, all of them bytes. Raises ``BadSubmission``."""
    try:
        value: Any = decode(payload)
    except Unreadable:
        value = None
    if type(value) is not list or len(value) != count or any(type(field) is not bytes for field in value):
        raise world.refusal("J-07", "BadSubmission")
    return value


def first_waiting(world: World) -> Hash | None:
    """The job whose callback runs next: the first that an earlier block completed."""
    number = world.counters.get("first callback", 0)
    job_id, completed_at = world.callbacks.get(number, (None, 0))
    return job_id if completed_at < world.height else None


def take_callback(world: World) -> tuple[Job, bytes]:
    """Take the first callback from the queue; returns its job and its payload."""
    number = world.count("first callback")
    job_id, _ = world.callbacks[number]
    world.drop(world.callbacks, number)
    job = world.jobs[job_id]
    return job, encode({"job": job_id, "results": [world.results[job_id, runner] for runner in job.runners]})


def consume(world: World, actor: Address, job_id: bytes, callback_of: bytes) -> None:
    """Settle a job in its own callback. Raises the first error that applies."""
    job = find(world, job_id)
    if job is None:
        raise Refusal("NotFound")
    world.refuse("T-25", "NotOwner", job.actor != actor)
    world.refuse("J-17", "AlreadyConsumed", job.is_consumed)
    world.refuse("J-16", "JobNotReady", job_id != callback_of)
    world.reached("J-14")
    _settle(world, job_id, job)
    world.put(world.jobs, job_id, job._replace(is_consumed=True))


def end_callback(world: World, job_id: Hash) -> Event | None:
    """Remove a job that its callback did not consume; returns the event that reports it."""
    job = world.jobs[job_id]
    if job.is_consumed:
        if job.ends_at < world.height:
            world.drop(world.jobs, job_id)
        return None
    world.reached("J-15")
    _settle(world, job_id, job)
    world.drop(world.jobs, job_id)
    return world.event("JobNotConsumed", job.actor, job_id=job_id.hex())


def _settle(world: World, job_id: Hash, job: Job) -> None:
    for runner in job.runners:
        world.drop(world.results, (job_id, runner))
    mine = world.actor_jobs[job.actor]
    world.put(world.actor_jobs, job.actor, mine._replace(unsettled=mine.unsettled - 1))


def end_jobs(world: World) -> None:
    """Remove the records of jobs that end with this block, oldest first, within the limit."""
    for ended in range(ENDED_PER_BLOCK + 1):
        number = world.counters.get("first end", 0)
        job_id, ends_at = world.job_ends.get(number, (b"", world.height + 1))
        if ends_at > world.height:
            return
        if ended == ENDED_PER_BLOCK:
            world.reached("J-26")
            return
        world.drop(world.job_ends, number)
        world.count("first end")
        job = world.jobs.get(job_id)
        if job is None:
            continue
        if job.is_complete and not job.is_consumed:
            world.reached("J-24")
            continue  # it waits for its callback
        world.reached("J-25" if job.is_consumed else "J-23")
        if not job.is_consumed:
            _settle(world, job_id, job)
            world.drop(world.job_payloads, job_id)
        world.drop(world.jobs, job_id)
