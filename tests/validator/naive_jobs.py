"""SPEC §14's jobs once more, as plainly as can be: lists and whole copies, written from the rules.

A block is a list of operations; the model says how each ends, which callbacks and messages run, and what state holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from validator.chain.records import (
    COMPLETION,
    JOB_COUNTERS,
    JOB_END,
    ActorJobs,
    Completion,
    Job,
    JobCounters,
    JobEnd,
    actor_jobs_key,
    job_key,
    job_payload_key,
    job_result_key,
)
from validator.primitives.codec import encode, keccak256
from validator.primitives.types import Address, Hash

BASE, CONSUME, EMIT, SEND, LEAST = 1_000, 200, 50, 80, 2_000


@dataclass(frozen=True)
class Limits:
    """What the chain's parameters and constants are."""

    message_cycles: int
    lane: int
    lifetime: int
    jobs_per_actor: int
    ended_per_block: int
    callbacks_per_block: int
    most_results: int
    most_result_bytes: int


@dataclass
class NaiveJob:
    """A job that state knows of."""

    id: Hash
    actor: Address
    payload: bytes
    needed: int
    handler: str
    ends: int
    results: list[tuple[Address, bytes]] = field(default_factory=list)
    completed: int = 0
    """The height, 0 before."""
    consumed: bool = False


@dataclass
class NaiveJobs:
    """The chain after a block."""

    limits: Limits
    runners: set[Address]
    deployers: set[Address]
    height: int = 0
    jobs: list[NaiveJob] = field(default_factory=list)
    requests: list[tuple[Hash, int]] = field(default_factory=list)
    """Every job ever requested, with its end."""
    ended: int = 0
    """How many of the requests were looked at for the last time."""
    completions: list[tuple[Hash, int]] = field(default_factory=list)
    """Every job ever completed, with the height."""
    called: int = 0
    counts: dict[Address, int] = field(default_factory=dict)
    """How many jobs an actor ever requested."""
    messages: list[tuple[int, int]] = field(default_factory=list)
    """Those that wait: cycles reserved, and those that the run uses."""

    # --- operations -------------------------------------------------------------------------------------------------

    def job(self, job_id: bytes) -> NaiveJob | None:
        """A job that is there: past its end, an incomplete one is not."""
        found = [job for job in self.jobs if job.id == job_id]
        return found[0] if found and (found[0].completed or self.height <= found[0].ends) else None

    def unsettled(self, actor: Address) -> int:
        return sum(job.actor == actor and not job.consumed for job in self.jobs)

    def request(self, actor: Address, wanted: list[tuple[bytes, int, str]]) -> str:
        """One handler's run: all of the jobs, or none."""
        for place, (_, needed, _) in enumerate(wanted):
            if not 1 <= needed <= self.limits.most_results:
                return "JobResultsInvalid"
            if self.unsettled(actor) + place >= self.limits.jobs_per_actor:
                return "JobLimitReached"
        for payload, needed, handler in wanted:
            nonce = self.counts.get(actor, 0)
            job_id = keccak256(actor + nonce.to_bytes(8, "big") + payload)
            self.counts[actor] = nonce + 1
            self.jobs.append(NaiveJob(job_id, actor, payload, needed, handler, self.height + self.limits.lifetime))
            self.requests.append((job_id, self.height + self.limits.lifetime))
        return ""

    def submit(self, runner: Address, job_id: bytes, result: bytes) -> str:
        if runner not in self.runners:
            return "NotRunner"
        if len(result) > self.limits.most_result_bytes:
            return "ResultTooLarge"
        job = self.job(job_id)
        if job is None:
            return "UnknownJob"
        if job.completed:
            return "JobComplete"
        if runner in [who for who, _ in job.results]:
            return "AlreadySubmitted"
        job.results.append((runner, result))
        if len(job.results) == job.needed:
            job.completed = self.height
            self.completions.append((job.id, self.height))
        return ""

    def appoint(self, sender: Address, runner: Address, registers: bool) -> str:
        if sender not in self.deployers:
            return "NotSystemDeployer"
        (self.runners.add if registers else self.runners.discard)(runner)
        return ""

    def take(self, actor: Address, job_id: bytes) -> str:
        """Consuming a job in a transaction never succeeds."""
        job = self.job(job_id)
        if job is None:
            return "NotFound"
        if job.actor != actor:
            return "NotOwner"
        return "AlreadyConsumed" if job.consumed else "JobNotReady"

    def send(self, cycles: int, burned: int) -> str:
        self.messages.append((cycles, min(cycles, BASE + burned)))
        return ""

    # --- the end of a block -----------------------------------------------------------------------------------------

    def finish(self) -> tuple[list[tuple[Any, ...]], int]:
        """Callbacks, as id, error, whether consumed, cycles and events; and how many messages run."""
        used, full = 0, False
        ran: list[tuple[Any, ...]] = []
        while self.called < len(self.completions) and self.completions[self.called][1] < self.height:
            if len(ran) == self.limits.callbacks_per_block or used + self.limits.message_cycles > self.limits.lane:
                full = True
                break
            job_id, _ = self.completions[self.called]
            self.called += 1
            seen, net = self.call_back(next(job for job in self.jobs if job.id == job_id))
            ran.append(seen)
            used += net
        waiting, count = len(self.messages), 0
        while not full and count < waiting and used + self.messages[0][0] <= self.limits.lane:
            used += self.messages.pop(0)[1]
            count += 1
        self.end_jobs()
        return ran, count

    def call_back(self, job: NaiveJob) -> tuple[tuple[Any, ...], int]:
        most = self.limits.message_cycles
        text = b",".join(result for _, result in job.results).hex()
        sends = 2 * (SEND + LEAST)
        error, cycles, net, events = {
            "consume": ("", BASE + CONSUME + EMIT, 0, ["JobConsumed", text]),
            "consume twice": ("", BASE + 2 * CONSUME + EMIT, 0, ["JobConsumed", "AlreadyConsumed"]),
            "send two": ("", BASE + CONSUME + sends, 2 * LEAST, ["JobConsumed"]),
            "ignore": ("", BASE, 0, []),
            "fail": ("Stop", BASE + CONSUME, 0, []),
            "burn": ("OutOfCycles", most, 0, []),
        }[job.handler]
        job.consumed = "JobConsumed" in events
        if job.handler == "send two":
            self.messages += [(LEAST, BASE), (LEAST, BASE)]
        if not job.consumed or job.ends < self.height:
            self.jobs.remove(job)
        return (job.id, error, job.consumed, cycles, events), cycles - net

    def end_jobs(self) -> None:
        due = [job_id for job_id, end in self.requests[self.ended :] if end <= self.height]
        due = due[: self.limits.ended_per_block]
        self.ended += len(due)
        self.jobs = [job for job in self.jobs if job.id not in due or (job.completed and not job.consumed)]

    # --- what state holds -------------------------------------------------------------------------------------------

    def records(self) -> dict[bytes, Any]:
        """Everything about jobs, by key."""
        found: dict[bytes, Any] = {}
        for job in self.jobs:
            runners = tuple(runner for runner, _ in job.results)
            found[job_key(job.id)] = Job(job.actor, job.handler, job.needed, job.ends, runners, job.consumed)
            if not job.completed:
                found[job_payload_key(job.id)] = job.payload
            if not job.consumed:
                found.update({job_result_key(job.id, runner): result for runner, result in job.results})
        for number, (job_id, height) in enumerate(self.completions):
            if number >= self.called:
                found[COMPLETION + number.to_bytes(8, "big")] = Completion(job_id, height)
        for number, (job_id, end) in enumerate(self.requests):
            if number >= self.ended:
                found[JOB_END + number.to_bytes(8, "big")] = JobEnd(job_id, end)
        for actor, count in self.counts.items():
            found[actor_jobs_key(actor)] = ActorJobs(count, self.unsettled(actor))
        if self.requests:
            totals = (self.called, len(self.completions), self.ended, len(self.requests))
            found[JOB_COUNTERS] = JobCounters(*totals)
        return found

    def encoded(self) -> dict[bytes, bytes]:
        return {key: record if isinstance(record, bytes) else encode(record) for key, record in self.records().items()}
