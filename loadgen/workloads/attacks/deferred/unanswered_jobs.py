"""Unanswered jobs: requests for jobs that no runner ever answers."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from loadgen.workloads.attacks.base import CALL_CELLS_LIMIT, CALL_GAS_LIMIT, Programmed, invoke
from loadgen.workloads.base import Intent, Observation, Options

PROGRAM: Final = '''
class UnansweredJobs(Actor):
    """Asks for results that nobody gives."""

    def ask(self, payload):
        assert self.sender == self.deployer, "only the owner"
        for number in range(payload["jobs"]):
            self.request_job("x" * payload["bytes"], 1, "answered")

    def answered(self, payload):
        self.consume_result(payload["job"])
'''
JOBS_PER_ACTOR: Final = 64
"""Maximum number of an actor's open jobs (SPEC §14)."""
REQUEST_CYCLES: Final = 2_000
"""Cycles for requesting one job, without the reservation for its callback and without its payload."""
BYTES_PER_CYCLE: Final = 2
"""Minimum bytes of a payload that an actor makes, packs and hashes per cycle."""
FORM_CELLS: Final = 16
"""Cells of a payload's encoding, at most."""


class UnansweredJobsOptions(Options):
    """Options of :class:`UnansweredJobs`."""

    jobs: Annotated[int, Field(ge=1, le=40)] = 8
    """Jobs per turn."""
    payload_bytes: Annotated[int, Field(ge=0, le=14_000)] = 1_000
    """Bytes of a job's payload."""


class UnansweredJobs(Programmed[UnansweredJobsOptions]):
    """An attack whose actor requests jobs until it has the maximum number of open ones."""

    name: ClassVar[str] = "unanswered-jobs"
    options_type: ClassVar[type[Options]] = UnansweredJobsOptions
    program: ClassVar[str] = PROGRAM
    goal: ClassVar[str] = "unanswered jobs stay in state, and their callbacks threaten to come all at once"
    defence: ClassVar[str] = (
        "a request pays for its callback; an actor has 64 open jobs at most, and each is gone after 3,600 blocks"
    )
    actor_percent: ClassVar[int] = 0

    def intents(self, observation: Observation) -> list[Intent]:
        options, parameters = self.options, self.member.parameters
        jobs = min(options.jobs, JOBS_PER_ACTOR - len(observation.open_jobs))
        if jobs <= 0:
            return []
        cycles = parameters.message_cycles + REQUEST_CYCLES + options.payload_bytes // BYTES_PER_CYCLE
        cells = parameters.message_cells + options.payload_bytes + FORM_CELLS
        payload = {"jobs": jobs, "bytes": options.payload_bytes}
        return [invoke(self.member, "ask", payload, CALL_GAS_LIMIT + jobs * cycles, CALL_CELLS_LIMIT + jobs * cells)]
