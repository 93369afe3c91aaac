"""Jobs (SPEC §14): off-chain work of runners, and callbacks that deliver its results to the requesting actor.

- *Request.* A handler's ``request_job`` opens a job and pays for its callback in full. The id is
  ``keccak256(actor ‖ job nonce[8] ‖ payload)``; the nonce counts the actor's jobs.
- *Results.* Registered runners submit results to the runner contract (:mod:`validator.execution.runner_contract`), each
  once per job. The ``results_needed``-th result completes the job; later ones are refused. The genesis lists the first
  runners, and system deployers change the list with ``register_runner`` and ``unregister_runner``. A result still
  counts after its runner is removed.
- *Callback.* In a later block than the one that completed the job, in the order of completion, the handler that the
  request named is called with the results. Only the callback can consume the job; if it does not, the job is removed
  when the callback ends.
- *End.* A job lives :data:`JOB_LIFETIME_BLOCKS` blocks. Then an incomplete job is removed; one whose callback waits
  stays for it. The record that a consumed job existed is removed then too.

State is bounded: the unsettled jobs of one actor by :data:`JOBS_PER_ACTOR`, one job by the limits of its parts, and the
records of settled jobs by their lifetime and the cost of requests. Only the actor itself can use up its limit. A runner
can add only one bounded result, which it pays for, to a job that asks for results.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from validator.chain.records import (
    JOB_COUNTERS,
    ActorJobs,
    Completion,
    Job,
    JobCounters,
    JobEnd,
    actor_jobs_key,
    completion_key,
    job_end_key,
    job_key,
    job_payload_key,
    job_result_key,
)
from validator.primitives.codec import encode, keccak256
from validator.primitives.errors import Rejection
from validator.primitives.types import HASH_BYTES, Address, Hash, is_name
from validator.state.working_set import World

JOB_LIFETIME_BLOCKS: Final = 3_600
JOBS_PER_ACTOR: Final = 64
"""Maximum number of an actor's jobs that are neither consumed nor removed."""
MAX_RESULTS_NEEDED: Final = 16
MAX_JOB_PAYLOAD_BYTES: Final = 65_536
MAX_RESULT_BYTES: Final = 8_192
CALLBACKS_PER_BLOCK: Final = 256
"""Maximum number of callbacks in a block. Results can be withheld for long and all completed at once: without the
limit, a lane of cheap callbacks would then read gigabytes."""
JOBS_ENDED_PER_BLOCK: Final = 128
"""Maximum number of jobs removed in a block; the rest follows in the next one. A job past its end accepts no results,
even while its records remain."""


class Waiting(NamedTuple):
    """The job whose callback runs next."""

    job_id: Hash
    job: Job


# --- requests -------------------------------------------------------------------------------------------------------


def job_id_of(actor: Address, nonce: int, payload: bytes) -> Hash:
    return keccak256(actor + nonce.to_bytes(8, "big") + payload)


def request(world: World, actor: Address, payload: bytes, results_needed: int, handler: str, height: int) -> Hash:
    """Open a job. Raises ``JobPayloadTooLarge``, ``JobHandlerInvalid``, ``JobResultsInvalid`` or ``JobLimitReached``,
    checked in this order."""
    if len(payload) > MAX_JOB_PAYLOAD_BYTES:
        raise Rejection("JobPayloadTooLarge")
    if not is_name(handler):
        raise Rejection("JobHandlerInvalid")
    if not 1 <= results_needed <= MAX_RESULTS_NEEDED:
        raise Rejection("JobResultsInvalid")
    mine = actor_jobs(world, actor)
    if mine.unsettled >= JOBS_PER_ACTOR:
        raise Rejection("JobLimitReached")
    job_id, ends_at = job_id_of(actor, mine.nonce, payload), height + JOB_LIFETIME_BLOCKS
    world.put(actor_jobs_key(actor), ActorJobs(mine.nonce + 1, mine.unsettled + 1))
    world.put(job_key(job_id), Job(actor, handler, results_needed, ends_at))
    world.put(job_payload_key(job_id), payload)
    counters = counters_of(world)
    world.put(job_end_key(counters.next_end), JobEnd(job_id, ends_at))
    world.put(JOB_COUNTERS, counters._replace(next_end=counters.next_end + 1))
    return job_id


def find(world: World, job_id: bytes, height: int) -> Job | None:
    """A job, or ``None`` if it does not exist or is incomplete and past its end."""
    job: Job | None = world.get(job_key(job_id)) if len(job_id) == HASH_BYTES else None
    return None if job is None or (height > job.ends_at and not job.is_complete) else job


def actor_jobs(world: World, actor: Address) -> ActorJobs:
    found: ActorJobs | None = world.get(actor_jobs_key(actor))
    return ActorJobs() if found is None else found


def counters_of(world: World) -> JobCounters:
    found: JobCounters | None = world.get(JOB_COUNTERS)
    return JobCounters() if found is None else found


# --- callbacks --------------------------------------------------------------------------------------------------------


def queue_callback(world: World, job_id: Hash, height: int) -> None:
    """Handle a complete job: drop its payload, which is no longer needed, and queue its callback for a later block."""
    world.put(job_payload_key(job_id), None)
    counters = counters_of(world)
    world.put(completion_key(counters.next_completion), Completion(job_id, height))
    world.put(JOB_COUNTERS, counters._replace(next_completion=counters.next_completion + 1))


def first_waiting(world: World, height: int) -> Waiting | None:
    """The job whose callback runs next: the first one completed before this block. ``None`` if there is none."""
    counters = counters_of(world)
    if counters.first_completion == counters.next_completion:
        return None
    completion: Completion | None = world.get(completion_key(counters.first_completion))
    assert completion is not None, "completions are numbered without gaps"
    if completion.height >= height:
        return None
    job: Job | None = world.get(job_key(completion.job_id))
    assert job is not None, "a job stays until its callback has run"
    return Waiting(completion.job_id, job)


def dequeue(world: World) -> None:
    """Remove the first callback from the queue; it is used up even if it fails."""
    counters = counters_of(world)
    world.put(completion_key(counters.first_completion), None)
    world.put(JOB_COUNTERS, counters._replace(first_completion=counters.first_completion + 1))


def callback_payload(world: World, waiting: Waiting) -> bytes:
    """The payload of a callback: the id and the results, in the order of submission."""
    results = [world.get(job_result_key(waiting.job_id, runner)) for runner in waiting.job.runners]
    return encode({"job": waiting.job_id, "results": results})


def consume(world: World, actor: Address, job_id: bytes, callback_of: bytes, height: int) -> None:
    """Settle a job and mark it as consumed. This is allowed only in the job's callback.

    Raises ``NotFound``, ``NotOwner``, ``AlreadyConsumed`` or ``JobNotReady``.
    """
    job = find(world, job_id, height)
    if job is None:
        raise Rejection("NotFound")
    if job.actor != actor:
        raise Rejection("NotOwner")
    if job.consumed:
        raise Rejection("AlreadyConsumed")
    if job_id != callback_of:
        raise Rejection("JobNotReady")
    _settle(world, job_id, job)
    world.put(job_key(job_id), job._replace(consumed=True))


def end_callback(world: World, job_id: Hash, height: int) -> bool:
    """After a callback, remove a job that it did not consume. Returns whether it was consumed."""
    job: Job | None = world.get(job_key(job_id))
    assert job is not None, "nothing else takes a job away while its callback runs"
    if not job.consumed:
        _settle(world, job_id, job)
    if not job.consumed or job.ends_at < height:
        world.put(job_key(job_id), None)
    return job.consumed


def _settle(world: World, job_id: bytes, job: Job) -> None:
    """Remove a job's results, and no longer count the job as unsettled. The job's record remains."""
    for runner in job.runners:
        world.put(job_result_key(job_id, runner), None)
    mine = actor_jobs(world, job.actor)
    world.put(actor_jobs_key(job.actor), mine._replace(unsettled=mine.unsettled - 1))


# --- the end ----------------------------------------------------------------------------------------------------------


def end_jobs(world: World, height: int) -> None:
    """Remove the jobs that end with this block, oldest first, and the records of consumed jobs."""
    counters = counters_of(world)
    first, most = counters.first_end, min(counters.next_end, counters.first_end + JOBS_ENDED_PER_BLOCK)
    while first < most:
        end: JobEnd | None = world.get(job_end_key(first))
        assert end is not None, "jobs are numbered without gaps"
        if end.height > height:
            break
        _end_job(world, end.job_id)
        world.put(job_end_key(first), None)
        first += 1
    if first != counters.first_end:
        world.put(JOB_COUNTERS, counters._replace(first_end=first))


def _end_job(world: World, job_id: Hash) -> None:
    job: Job | None = world.get(job_key(job_id))
    if job is None or job.awaits_callback:
        return  # it was removed after its callback, or will be by it
    if not job.consumed:
        _settle(world, job_id, job)
        world.put(job_payload_key(job_id), None)
    world.put(job_key(job_id), None)
