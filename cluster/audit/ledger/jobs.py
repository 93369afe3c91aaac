"""Jobs, followed by an observer from the request to the callback (SPEC §14).

Everything follows from the chain: requests and consumption from protocol events, which no actor can imitate (an
``emit`` has one field, ``data``), results from the calls of the runner contract themselves. The rules:

- A callback is paid for once, when it is requested.
- Each result comes from a runner, once per job, and none after the last one needed.
- Callbacks run in a later block than the one that completed their jobs, in the order of completion, once, and before
  all messages.
- A job is consumed at most once, by its own actor's callback. A run that does not consume its job reports so.

Payloads are not in the receipts, so ids are not recomputed; their uniqueness is checked. A job is forgotten when its
lifetime is over and its callback ran; :class:`~cluster.audit.ended_ids.EndedIds` keeps how it ended.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from cluster.audit.chain_codec import (
    Appointment,
    Call,
    CallbackReceipt,
    Effects,
    Event,
    Submission,
    TransactionReceipt,
    Unreadable,
    read_payload,
)
from cluster.audit.ended_ids import EndedIds
from cluster.audit.ledger.context import hex_bytes, short
from cluster.audit.scripts import limits
from validator.chain.genesis import Genesis
from validator.execution.runner_contract import REGISTER_RUNNER, SUBMIT_RESULT, UNREGISTER_RUNNER
from validator.primitives.types import ADDRESS_BYTES, address_text, is_reserved

T = TypeVar("T")
Answer = tuple[tuple[str, ...], list[tuple[str, dict[str, str]]]]
"""The expected answer of the runner contract to a call: the errors it may give, or if there are none, its events."""

JOB_LIFETIME_BLOCKS: Final = 3_600
JOBS_PER_ACTOR: Final = 64
"""Unsettled jobs per actor."""
MAX_RESULTS_NEEDED: Final = 16
MAX_RESULT_BYTES: Final = 8_192
CALLBACKS_PER_BLOCK: Final = 256

NO_CONTRACT_ERRORS: Final = frozenset({"OutOfCycles", "OutOfCells", "InsufficientBalance"})
"""Reasons for which a call of the runner contract may fail before the contract runs."""
RESULTS_NEEDED: Final = frozenset(map(str, range(1, MAX_RESULTS_NEEDED + 1)))
"""The valid numbers of results that a job may need, as texts in events."""
_FIELDS: Final = {
    "JobRequested": ("job_id", "handler", "results_needed"),
    "JobConsumed": ("job_id",),
    "JobResultSubmitted": ("job_id", "runner"),
    "JobCompleted": ("job_id",),
    "RunnerRegistered": ("runner",),
    "RunnerUnregistered": ("runner",),
}


class Run(msgspec.Struct, frozen=True):
    """A handler's run as an observer knows it, without its effects."""

    actor: bytes | None
    """The actor that ran; ``None`` if it is unknown. It may then be the runner contract."""
    cycles: int
    cells: int
    base_cycles: int
    most_jobs: int
    callback_of: bytes = b""


@dataclass(slots=True, eq=False)
class JobLife:
    """The life of one job, from its request on. Times are heights."""

    job_id: bytes
    actor: bytes
    handler: str
    results_needed: int
    requested_at: int
    runners: tuple[str, ...] = ()
    completed_at: int | None = None
    called_back_at: int | None = None
    consumed_at: int | None = None

    @property
    def ends_at(self) -> int:
        return self.requested_at + JOB_LIFETIME_BLOCKS

    def is_gone(self, height: int) -> bool:
        """Whether the job ended unconsumed: it expired without all results, or its callback did not consume it."""
        if self.completed_at is None:
            return height > self.ends_at
        return self.called_back_at is not None and self.consumed_at is None


class JobBooks:
    """Tracks the jobs of a chain, block by block, and checks their rules. Texts that methods yield are violations."""

    def __init__(self, genesis: Genesis) -> None:
        self.jobs: dict[bytes, JobLife] = {}
        """Jobs within their lifetime, or with a waiting callback."""
        self.requested = 0
        self.consumed = 0
        self._ended = EndedIds()
        self._genesis = genesis
        self._runners = {address_text(runner) for runner in genesis.runners}
        self._height = 0
        self._unsettled: Counter[bytes] = Counter()
        self._waiting: dict[bytes, JobLife] = {}
        """Complete jobs whose callback did not run yet, in the order of completion."""
        self._ending: deque[JobLife] = deque()

    def begin_block(self, height: int) -> None:
        """Begin a block: forget the jobs whose lifetime is over, except those with a waiting callback."""
        self._height = height
        while self._ending and self._ending[0].ends_at < height:
            life = self._ending.popleft()
            if life.completed_at is None:
                self._unsettled[life.actor] -= 1
            if life.completed_at is None or life.called_back_at is not None:
                self._forget(life)

    def _forget(self, life: JobLife) -> None:
        """Remove a job from :attr:`jobs`, and keep only how it ended. Its callback must not be waiting."""
        del self.jobs[life.job_id]
        how = _INCOMPLETE if life.completed_at is None else _NOT_CONSUMED if life.consumed_at is None else _CONSUMED
        self._ended.add(life.job_id, how, life.called_back_at or self._height)

    # --- handlers -----------------------------------------------------------------------------------------------------

    def run_problems(self, run: Run, effects: Effects) -> Iterator[str]:
        """Enter the jobs that a handler's run requested and consumed; yields problems."""
        for event in effects.events:
            fields = _fields_of(event)
            if fields is None:
                continue
            if run.actor not in (None, event.actor):
                yield f"left an event {event.name} of {address_text(event.actor)}"
            if event.name == "JobRequested":
                yield from self._enter_request(event, fields)
            elif event.name == "JobConsumed":
                yield from self._enter_consumption(run, event, fields)
            elif run.actor is not None:
                yield f"left an event {event.name}, which only the runner contract does"

    def payment_problems(self, run: Run, effects: Effects) -> Iterator[str]:
        """Check that a run paid for the callbacks of the jobs that it requested; yields problems."""
        requested = jobs_requested(effects)
        if not requested:
            return
        p = self._genesis.parameters
        cycles = run.base_cycles + requested * (limits.REQUEST_JOB + p.message_cycles)
        if run.cycles < cycles or run.cells < requested * p.message_cells:
            yield f"requested {requested} jobs and paid {run.cycles} cycles and {run.cells} cells, too few for that"
        if requested > run.most_jobs:
            yield f"requested {requested} jobs of at most {run.most_jobs}"

    def _enter_request(self, event: Event, fields: dict[str, str]) -> Iterator[str]:
        key, needed = hex_bytes(fields["job_id"]), fields["results_needed"]
        if key in self.jobs or key in self._ended:
            yield f"requested job {short(key)} a second time"
            return
        if needed not in RESULTS_NEEDED:
            yield f"requested job {short(key)} with {needed[:20]} results"
            return
        life = JobLife(key, event.actor, fields["handler"], int(needed), self._height)
        self.jobs[key] = life
        self.requested += 1
        self._ending.append(life)
        self._unsettled[life.actor] += 1
        if self._unsettled[life.actor] > JOBS_PER_ACTOR:
            yield f"requested job {short(key)} beyond the {JOBS_PER_ACTOR} that an actor may have"

    def _why_not(self, key: bytes) -> str:
        """The reason why a job is not in :attr:`jobs`, in words: how it ended, or that it was never requested."""
        ended = self._ended.get(key)
        return "was never requested" if ended is None else f"{_ENDS[ended.outcome]} {ended.height}"

    def _enter_consumption(self, run: Run, event: Event, fields: dict[str, str]) -> Iterator[str]:
        key = hex_bytes(fields["job_id"])
        life = self.jobs.get(key)
        if life is None:
            yield f"consumed job {short(key)}, which {self._why_not(key)}"
            return
        if life.actor != event.actor:
            yield f"consumed job {short(key)} of {address_text(life.actor)}"
        if key != run.callback_of:
            yield f"consumed job {short(key)}, whose callback it is not"
        if life.consumed_at is not None:
            yield f"consumed job {short(key)}, which was consumed at height {life.consumed_at}"
        life.consumed_at = self._height
        self.consumed += 1

    # --- the runner contract ------------------------------------------------------------------------------------------

    def contract_problems(self, call: Call, receipt: TransactionReceipt) -> Iterator[str]:
        """Enter a call of the runner contract; yields problems of its result and of its effects."""
        ok, error, effects = receipt.ok, receipt.error, receipt.effects
        expected, due = self._expected(receipt.sender, call)
        if ok and expected:
            yield f"was taken by the runner contract, which should have said {expected[0]}"
        elif not ok and not expected and error not in NO_CONTRACT_ERRORS:
            yield f"was refused by the runner contract with {error[:40]}, which should have taken it"
        elif not ok and error not in (*NO_CONTRACT_ERRORS, *expected):
            yield f"was refused by the runner contract with {error[:40]}, which should have said {expected[0]}"
        events = [(event.name, dict(event.fields)) for event in effects.events]
        if ok and not expected and (events != due or effects.scheduled):
            yield "did something else than its call of the runner contract says"
        yield from self.enter_contract_events(effects)

    def enter_contract_events(self, effects: Effects) -> Iterator[str]:
        """Enter the results and the changes of runners that the runner contract's events report; yields problems."""
        for event in effects.events:
            fields = _fields_of(event) or {}
            if event.name == "JobResultSubmitted" and fields:
                yield from self._enter_result(hex_bytes(fields["job_id"]), fields["runner"])
            elif event.name == "RunnerRegistered" and fields:
                self._runners.add(fields["runner"])
            elif event.name == "RunnerUnregistered" and fields:
                self._runners.discard(fields["runner"])

    def _enter_result(self, key: bytes, runner: str) -> Iterator[str]:
        life = self.jobs.get(key)
        if life is None:
            yield f"gave a result for job {short(key)}, which {self._why_not(key)}"
            return
        if life.completed_at is not None:
            yield f"gave a result for job {short(key)}, which was complete at height {life.completed_at}"
            return
        life.runners = (*life.runners, runner)
        if len(life.runners) == life.results_needed:
            life.completed_at = self._height
            self._waiting[key] = life

    def _expected(self, sender: bytes, call: Call) -> Answer:
        """The errors with which the contract may refuse a call; if there are none, the events of the call."""
        if call.handler == SUBMIT_RESULT:
            return self._expected_of_result(sender, call.payload)
        if call.handler not in (REGISTER_RUNNER, UNREGISTER_RUNNER):
            return ("UnknownHandler",), []
        if sender not in self._genesis.system_deployers:
            return ("NotSystemDeployer",), []
        appointment = _read(call.payload, Appointment)
        if appointment is None or len(appointment.runner) != ADDRESS_BYTES or is_reserved(appointment.runner):
            return ("BadSubmission",), []
        runner, registers = address_text(appointment.runner), call.handler == REGISTER_RUNNER
        name = "RunnerRegistered" if registers else "RunnerUnregistered"
        return (), [] if (runner in self._runners) == registers else [(name, {"runner": runner})]

    def _expected_of_result(self, sender: bytes, payload: bytes) -> Answer:
        given, runner = _read(payload, Submission), address_text(sender)
        if runner not in self._runners:
            return ("NotRunner",), []
        if given is None:
            return ("BadSubmission",), []
        if len(given.result) > MAX_RESULT_BYTES:
            return ("ResultTooLarge",), []
        life, ended = self.jobs.get(given.job_id), self._ended.get(given.job_id)
        if ended is not None and ended.outcome == _CONSUMED:
            # A consumed job's record is removed when its lifetime ends, as far as a block's removals reach.
            return ("JobComplete", "UnknownJob"), []
        if life is None or life.is_gone(self._height):
            return ("UnknownJob",), []
        if life.completed_at is not None:
            return ("JobComplete", "UnknownJob") if self._height > life.ends_at else ("JobComplete",), []
        if runner in life.runners:
            return ("AlreadySubmitted",), []
        named = {"job_id": given.job_id.hex()}
        completed = [("JobCompleted", named)] if len(life.runners) + 1 == life.results_needed else []
        return (), [("JobResultSubmitted", {**named, "runner": runner}), *completed]

    # --- callbacks ----------------------------------------------------------------------------------------------------

    def callback_problems(self, callback: CallbackReceipt) -> Iterator[str]:
        """Enter a callback that ran, without its effects; yields problems."""
        life = self.jobs.get(callback.job_id)
        if life is None:
            ended = self._ended.get(callback.job_id)
            yield "belongs to no job" if ended is None else f"ran, though its job {self._why_not(callback.job_id)}"
            return
        if life.called_back_at is not None:
            yield f"ran a second time; the first was at height {life.called_back_at}"
        elif life.completed_at is None:
            yield f"ran with {len(life.runners)} of {life.results_needed} results"
        elif life.completed_at >= self._height:
            yield "ran in the block that completed its job"
        elif (first := next(iter(self._waiting))) != life.job_id:
            yield f"ran before that of job {short(first)}, which was complete earlier"
        if (callback.actor, callback.handler) != (life.actor, life.handler):
            yield "called another actor or handler than its job says"
        self._waiting.pop(life.job_id, None)
        if life.called_back_at is None:
            life.called_back_at = self._height
            self._unsettled[life.actor] -= 1
            if life.ends_at < self._height:
                self._ending.appendleft(life)

    def settlement_problems(self, callback: CallbackReceipt) -> Iterator[str]:
        """Check that a callback reports correctly whether it consumed its job; yields problems.

        The callback's effects must have been entered.
        """
        consumed = any(
            event.name == "JobConsumed" and (_fields_of(event) or {}).get("job_id") == callback.job_id.hex()
            for event in callback.effects.events
        )
        report = Event("JobNotConsumed", callback.actor, (("job_id", callback.job_id.hex()),))
        if callback.unsettled != (None if consumed else report):
            yield "did not consume its job and does not say so" if not consumed else "consumed its job and denies it"

    @property
    def holds_messages_up(self) -> bool:
        """Whether a callback waits that could have run in the current block."""
        first = next(iter(self._waiting.values()), None)
        return first is not None and first.completed_at != self._height

    def phase_problems(self, callbacks: tuple[CallbackReceipt, ...], messages: int) -> Iterator[str]:
        """Check the block's callbacks as a whole; yields problems.

        There may not be too many, none may be passed over, and no message may run while one waits.
        """
        if len(callbacks) > CALLBACKS_PER_BLOCK:
            yield f"{len(callbacks)} callbacks ran of at most {CALLBACKS_PER_BLOCK}"
        if not self.holds_messages_up:
            return
        p, first = self._genesis.parameters, next(iter(self._waiting.values()))
        key = short(first.job_id)
        fits = sum(callback.cycles for callback in callbacks) + p.message_cycles <= p.lane_deferred_cycles
        if fits and len(callbacks) < CALLBACKS_PER_BLOCK:
            yield f"the callback of job {key} was passed over, though it fitted in the lane"
        if messages:
            yield f"messages ran, though the callback of job {key} waits"


_INCOMPLETE, _NOT_CONSUMED, _CONSUMED = range(3)
_ENDS: Final = (
    "ended without all its results at height",
    "was called back and not consumed at height",
    "was consumed at height",
)


def jobs_requested(effects: Effects) -> int:
    """How many jobs a run requested."""
    return sum(event.name == "JobRequested" and _fields_of(event) is not None for event in effects.events)


def _fields_of(event: Event) -> dict[str, str] | None:
    """The fields of a protocol event about jobs or runners; ``None`` for any other event."""
    names = tuple(name for name, _ in event.fields)
    return dict(event.fields) if _FIELDS.get(event.name) == names else None


def _read(payload: bytes, kind: type[T]) -> T | None:
    try:
        return read_payload(kind, payload)
    except Unreadable:
        return None
