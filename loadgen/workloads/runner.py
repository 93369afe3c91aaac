"""Runner: answers the jobs of another user's actor, like an off-chain service (SPEC §14).

A runner user's account is a registered runner from the genesis on. It reads the actor that it serves, and gives each
open job one result: a number between ``least`` and ``most``, which every runner draws independently, as eight bytes.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field, model_validator

from loadgen.workloads.base import Intent, Member, Observation, Options, Workload
from validator.chain.transactions import Call
from validator.primitives.types import RUNNER_CONTRACT_ADDRESS, Address
from validator.pvm.runtime.values import decode_value, encode_value

SUBMIT_RESULT: Final = "submit_result"
GAS_LIMIT: Final = 50_000
CELLS_LIMIT: Final = 1_000
MAX_REMEMBERED: Final = 1_024
"""Maximum number of answered jobs that are remembered, newest first; those that are still open are among them."""


class RunnerOptions(Options):
    """Options of :class:`Runner`."""

    serves: Annotated[int, Field(ge=0, lt=100_000)]
    """The user whose actor's jobs are answered, by number."""
    least: Annotated[int, Field(ge=0, lt=2**63)] = 900
    """The least number that it answers with."""
    most: Annotated[int, Field(ge=0, lt=2**63)] = 1_100
    """The greatest number that it answers with."""

    @model_validator(mode="after")
    def _least_is_least(self) -> RunnerOptions:
        if self.least > self.most:
            raise ValueError(f"least: {self.least} is above most ({self.most})")
        return self

    def users_named(self) -> set[int]:
        return {self.serves}


class Runner(Workload[RunnerOptions]):
    """Answers each open job of the actor that it serves once, and again if the answer was refused or not sent."""

    name: ClassVar[str] = "runner"
    options_type: ClassVar[type[Options]] = RunnerOptions
    is_runner: ClassVar[bool] = True

    def __init__(self, options: RunnerOptions, member: Member) -> None:
        super().__init__(options, member)
        self._answered: dict[bytes, None] = {}

    @property
    def watched(self) -> Address:
        return self.member.actors[self.options.serves]

    def intents(self, observation: Observation) -> list[Intent]:
        waiting = [job_id for job_id in observation.open_jobs if job_id not in self._answered]
        for job_id in waiting:
            self._answered[job_id] = None
            if len(self._answered) > MAX_REMEMBERED:
                del self._answered[next(iter(self._answered))]
        return [self._answer(job_id) for job_id in waiting]

    def dropped(self, intent: Intent) -> None:
        assert isinstance(intent.action, Call), "a runner makes calls alone"
        job_id, _result = decode_value(intent.action.payload)
        self._answered.pop(job_id, None)

    def _answer(self, job_id: bytes) -> Intent:
        result = self.member.random.randint(self.options.least, self.options.most).to_bytes(8, "big")
        action = Call(RUNNER_CONTRACT_ADDRESS, SUBMIT_RESULT, encode_value([job_id, result]))
        return Intent(action, GAS_LIMIT, CELLS_LIMIT)
