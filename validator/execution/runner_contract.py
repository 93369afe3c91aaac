"""The runner contract (SPEC §14): runners submit the results of jobs, and system deployers register runners."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeVar

import msgspec

from validator.chain.block import Event
from validator.chain.records import job_key, job_result_key, runner_key
from validator.execution import jobs
from validator.execution.handler_context import HandlerContext
from validator.primitives import costs
from validator.primitives.codec import CodecError, decode
from validator.primitives.errors import Rejection
from validator.primitives.types import ADDRESS_BYTES, Address, Hash, address_text, is_reserved
from validator.state.working_set import World

SUBMIT_RESULT: Final = "submit_result"
REGISTER_RUNNER: Final = "register_runner"
UNREGISTER_RUNNER: Final = "unregister_runner"
HANDLER_CYCLES: Final = {
    SUBMIT_RESULT: costs.SUBMIT_RESULT_CYCLES,
    REGISTER_RUNNER: costs.REGISTER_RUNNER_CYCLES,
    UNREGISTER_RUNNER: costs.UNREGISTER_RUNNER_CYCLES,
}
"""The contract's handlers, and the cost of each in cycles."""

T = TypeVar("T")


class Submission(msgspec.Struct, frozen=True, array_like=True):
    """The payload of ``submit_result``."""

    job_id: bytes
    result: bytes


class Appointment(msgspec.Struct, frozen=True, array_like=True):
    """The payload of ``register_runner`` and ``unregister_runner``."""

    runner: bytes


def run(context: HandlerContext, handler: str, payload: bytes, deployers: Collection[Address]) -> None:
    """Perform a call of the contract; it is charged before it is read. ``deployers`` may appoint runners.

    Raises ``UnknownHandler``, and the rejections of each handler.
    """
    if handler not in HANDLER_CYCLES:
        raise Rejection("UnknownHandler")
    context.meter.charge(HANDLER_CYCLES[handler])
    if handler == SUBMIT_RESULT:
        _submit_result(context, payload)
        return
    if context.sender not in deployers:
        raise Rejection("NotSystemDeployer")
    runner = Address(_read(payload, Appointment).runner)
    if len(runner) != ADDRESS_BYTES or is_reserved(runner):
        raise Rejection("BadSubmission")
    registers = handler == REGISTER_RUNNER
    if is_runner(context.world, runner) != registers:
        context.world.put(runner_key(runner), b"" if registers else None)
        context.report("RunnerRegistered" if registers else "RunnerUnregistered", ("runner", address_text(runner)))


def is_runner(world: World, address: Address) -> bool:
    return world.get(runner_key(address)) is not None


def _submit_result(context: HandlerContext, payload: bytes) -> None:
    """Accept a runner's result. Raises ``NotRunner``, ``BadSubmission``, ``ResultTooLarge``, ``UnknownJob``,
    ``JobComplete`` or ``AlreadySubmitted``, checked in this order."""
    world, runner = context.world, context.sender
    if not is_runner(world, runner):
        raise Rejection("NotRunner")
    given = _read(payload, Submission)
    if len(given.result) > jobs.MAX_RESULT_BYTES:
        raise Rejection("ResultTooLarge")
    job_id = Hash(given.job_id)
    job = jobs.find(world, job_id, context.height)
    if job is None:
        raise Rejection("UnknownJob")
    if job.is_complete:
        raise Rejection("JobComplete")
    if runner in job.runners:
        raise Rejection("AlreadySubmitted")
    job = job._replace(runners=(*job.runners, runner))
    world.put(job_key(job_id), job)
    world.put(job_result_key(job_id, runner), given.result)
    named = ("job_id", job_id.hex())
    context.events.append(Event("JobResultSubmitted", job.actor, (named, ("runner", address_text(runner)))))
    if job.is_complete:
        jobs.queue_callback(world, job_id, context.height)
        context.events.append(Event("JobCompleted", job.actor, (named,)))


def _read(payload: bytes, kind: type[T]) -> T:
    try:
        return decode(payload, kind)
    except CodecError:
        raise Rejection("BadSubmission") from None
