"""Chains with jobs: a small program whose handlers request and consume them, and calls of the runner contract.

Handlers are plain functions here, to say exactly what they do: :func:`job_program` takes the place of what dispatches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from spec.host import Host
from spec.scripts import run_script
from spec.world import Failure, Refusal
from tests.validator.chains import ACTOR, ALICE, BOB, OTHER, RICH, USERS, Chain, make_genesis
from validator.chain.block import CallbackReceipt, TransactionReceipt
from validator.chain.genesis import Genesis
from validator.chain.records import ACTOR_JOBS, COMPLETION, JOB, JOB_COUNTERS, JOB_END, JOB_PAYLOAD, JOB_RESULT, RUNNER
from validator.chain.transactions import Call, Transaction
from validator.execution.handler_context import HandlerContext
from validator.execution.runner_contract import REGISTER_RUNNER, SUBMIT_RESULT, UNREGISTER_RUNNER
from validator.primitives.codec import encode
from validator.primitives.errors import HandlerFailure, Rejection
from validator.primitives.types import RUNNER_CONTRACT_ADDRESS, Address, Hash
from validator.pvm import script
from validator.pvm.runtime.machine import Vm

RUNNERS = USERS[1:4]
JOB_PREFIXES = (JOB, JOB_PAYLOAD, JOB_RESULT, COMPLETION, JOB_END, ACTOR_JOBS, JOB_COUNTERS)
"""Everything in state that is about jobs, but for who is a runner."""

Handler = Callable[[HandlerContext, Any], None]


def _request(context: HandlerContext, given: Any) -> None:
    for payload, needed, handler in given:
        context.request_job(payload, needed, handler)


def _try_consume(context: HandlerContext, job_id: bytes) -> None:
    try:
        context.consume_result(job_id)
    except (Rejection, Refusal) as refused:
        context.emit("Caught", refused.name)


def _consume(context: HandlerContext, given: Any) -> None:
    context.consume_result(given["job"])
    context.emit("Results", b",".join(given["results"]).hex())


def _consume_twice(context: HandlerContext, given: Any) -> None:
    context.consume_result(given["job"])
    _try_consume(context, given["job"])


def _consume_and_fail(context: HandlerContext, given: Any) -> None:
    context.consume_result(given["job"])
    raise HandlerFailure("Stop")


def _consume_and_burn(context: HandlerContext, given: Any) -> None:
    context.consume_result(given["job"])
    context.burn(10**9)


def _send(count: int) -> Handler:
    def run(context: HandlerContext, given: Any) -> None:
        context.consume_result(given["job"])
        for _ in range(count):
            context.send(OTHER, "run", b"[]", 2_000, 0)

    return run


HANDLERS: dict[str, Handler] = {
    "request": _request,
    "take": _try_consume,
    "consume": _consume,
    "ignore": lambda context, given: None,
    "consume twice": _consume_twice,
    "fail": _consume_and_fail,
    "burn": _consume_and_burn,
    "send two": _send(2),
    "send three": _send(3),
    "waste": lambda context, given: context.burn(given),
}


def job_program(_vm: Vm, code: str, handler: str, payload: bytes) -> Callable[[HandlerContext], None]:
    """Handlers by name, with a payload in MessagePack; all others read it as a script."""
    if handler not in HANDLERS:
        return lambda context: script.run(context, payload)
    given = msgspec.msgpack.decode(payload)
    return lambda context: HANDLERS[handler](context, given)


def run_specified(run: Host, handler: str, payload: bytes) -> None:
    """:func:`job_program` for a run of the specification."""
    if handler not in HANDLERS:
        run_script(run, payload)
        return
    handlers: dict[str, Callable[[Any, Any], None]] = HANDLERS
    try:
        handlers[handler](run, msgspec.msgpack.decode(payload))
    except HandlerFailure as failure:
        raise Failure(failure.name) from None


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every actor be one of :func:`job_program`, in the specification, too."""
    monkeypatch.setattr("validator.transition.transition.program", job_program)
    monkeypatch.setattr("validator.execution.timer_phase.program", job_program)
    monkeypatch.setattr("spec.block.run_handler", run_specified)
    monkeypatch.setattr("spec.programs.run_handler", run_specified)


def job_genesis(runners: tuple[Address, ...] = RUNNERS, **params: Any) -> Genesis:
    """Four rich users, three of whom are runners; the first may appoint others."""
    genesis = make_genesis(params, accounts=dict.fromkeys(USERS, RICH), system_deployers=(ALICE,))
    return replace(genesis, runners=runners)


def request_call(*jobs: tuple[bytes, int, str], actor: Address = ACTOR) -> Call:
    return Call(actor, "request", encode(jobs))


def submission(job_id: bytes, result: bytes = b"ok") -> Call:
    return Call(RUNNER_CONTRACT_ADDRESS, SUBMIT_RESULT, encode((job_id, result)))


def appointment(runner: bytes, registers: bool = True) -> Call:
    return Call(RUNNER_CONTRACT_ADDRESS, REGISTER_RUNNER if registers else UNREGISTER_RUNNER, encode((runner,)))


class JobChain(Chain):
    """A chain whose blocks are given as calls with their senders."""

    def calls(self, *given: tuple[Address, Call]) -> list[TransactionReceipt]:
        """Apply a block; its transactions' receipts."""
        transactions: list[Transaction] = []
        for sender, call in given:
            nonce = self.nonces.get(sender, 0) + sum(item.sender == sender for item in transactions)
            fields = {"nonce": nonce, "gas_limit": 1_000_000, "cells_limit": 200_000}
            transactions.append(self.transaction(call, sender, **fields))
        return list(self.block(*transactions).receipts.transactions)

    def one(self, sender: Address, call: Call) -> TransactionReceipt:
        """Apply a block with one call."""
        return self.calls((sender, call))[0]

    def request(self, handler: str = "consume", needed: int = 1, payload: bytes = b"task") -> Hash:
        """Apply a block in which the actor requests a job; the job's id."""
        receipt = self.one(ALICE, request_call((payload, needed, handler)))
        assert receipt.ok, receipt.error
        return Hash(bytes.fromhex(dict(receipt.effects.events[0].fields)["job_id"]))

    def answer(self, job_id: bytes, *runners: Address) -> list[str]:
        """Apply a block in which runners give a result; their errors."""
        given = [(runner, submission(job_id, b"result %d" % n)) for n, runner in enumerate(runners or (BOB,))]
        return [receipt.error for receipt in self.calls(*given)]

    def callbacks(self) -> list[CallbackReceipt]:
        """Those of the last block."""
        return list(self.blocks[-1].receipts.callbacks)

    def job_state(self) -> dict[bytes, bytes]:
        return {key: value for prefix in JOB_PREFIXES for key, value in self.view.scan(prefix)}

    def runners(self) -> list[bytes]:
        return [key[1:] for key, _ in self.view.scan(RUNNER)]
