"""``slow_execution``: the executor's jobs take longer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cluster.faults.impairing_kind import ImpairingFault
from cluster.faults.impairment import SLOW_EXECUTION, Impairment, Stress
from cluster.scenario.sections.base import Duration


class SlowExecutionFault(ImpairingFault):
    """Each job of the executor takes longer."""

    COUNTED = SLOW_EXECUTION
    SHOWN = ("job_ms",)
    DRAWN = ImpairingFault.DRAWN | {"job_ms": lambda drawing: drawing.random.randint(2, drawing.leader_timeout_ms)}

    kind: Literal["slow_execution"]
    job_ms: Duration
    """Time of a job."""
    how: Literal["executor", "chaos-mesh"] = "executor"
    """On the live testnet: the executor waits, or Chaos Mesh loads the processors of the host's pod instead."""
    threads: Annotated[int, Field(ge=1, le=64)] = 4
    """The busy threads of Chaos Mesh in each pod."""

    @property
    def impairment(self) -> Impairment:
        return Impairment(job_ms=self.job_ms, stress=Stress(self.threads) if self.prefers_chaos_mesh else None)
