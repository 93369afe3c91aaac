"""Finds the knee of a testnet: the highest load at which finality keeps its bound and the backlog does not grow.

The load's rate is doubled until a bound is broken, then bisected. Each rate is a load of its own, after the testnet has
come to rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from cluster.checks.metrics.load_latency import latency_metrics
from cluster.common.errors import ExitCode
from cluster.common.interrupts import Interrupts
from cluster.tools.console.output import console, print_line
from cluster.tools.load.following import ChainFollower
from cluster.tools.load.loading import Layout, Outcome, run_load, write_page
from cluster.tools.load.target import PlannedLoad, Target

CLOSE: Final = 1.1
"""The knee is known when a rate that keeps the bounds and one that breaks them are no further apart than this."""
MAX_STEPS: Final = 16
GROWTH: Final = 0.1
"""A backlog grows if it ends higher than it began by more than this share of the load's transactions."""
LOST: Final = 0.01
"""Share of the transactions that may stay without finality."""
LATE: Final = 0.1
"""Share of the turns that may be late or left out: some are while the load's processes start."""
REST_S: Final = 30.0
LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Step:
    """One load."""

    factor: float
    """Of the plan's rate."""
    outcome: Outcome
    broken: str | None
    """The bound that it broke, in words."""

    @property
    def p99_ms(self) -> float | None:
        return latency_metrics(self.outcome.latencies).get("load_latency_p99_ms")

    @property
    def page(self) -> dict[str, Any]:
        figures = {"factor": self.factor, "final_per_s": round(self.outcome.rate, 3), "p99_ms": self.p99_ms}
        return figures | {"broken": self.broken}


def find_knee(
    target: Target, planned: PlannedLoad, layout: Layout, step_s: int, p99_ms: int, file: Path | None
) -> ExitCode:
    """Search, print each step, and write the steps where asked."""
    out = console()
    with Interrupts() as interrupts:

        def try_factor(factor: float) -> Step:
            _come_to_rest(target, interrupts)
            outcome = run_load(target, planned.scaled(factor), layout, step_s, interrupts, partial(print_line, out))
            interrupts.checkpoint()
            step = Step(factor, outcome, broken_bound(outcome, p99_ms))
            p99 = "–" if step.p99_ms is None else f"{step.p99_ms:,.0f} ms"
            print_line(
                out, f"{factor:8.2f} × · {outcome.rate:8.1f} a second final · p99 {p99} · {step.broken or 'holds'}"
            )
            return step

        steps = search(try_factor)
    best = max((step for step in steps if step.broken is None), key=lambda step: step.factor, default=None)
    worst = min((step for step in steps if step.broken is not None), key=lambda step: step.factor, default=None)
    if best is None:
        print_line(out, "knee      below all loads that were tried")
    else:
        beyond = "no load that was tried broke a bound" if worst is None else f"{worst.factor:.2f} ×: {worst.broken}"
        print_line(out, f"knee      {best.factor:.2f} ×, {best.outcome.rate:,.1f} a second final; {beyond}")
    knee = None if best is None else best.page
    write_page(file, {"p99_bound_ms": p99_ms, "knee": knee, "steps": [step.page for step in steps]})
    return ExitCode.PASS if best is not None else ExitCode.FAIL


def search(try_factor: Callable[[float], Step]) -> list[Step]:
    """The loads that were tried, in order."""
    steps: list[Step] = []
    holds, breaks, factor = 0.0, float("inf"), 1.0
    while len(steps) < MAX_STEPS and (holds == 0.0 or breaks > holds * CLOSE):
        step = try_factor(factor)
        steps.append(step)
        if step.broken is None:
            holds = factor
        else:
            breaks = factor
        if breaks == float("inf"):
            factor *= 2
        elif holds == 0.0:
            factor /= 2
        else:
            factor = (holds * breaks) ** 0.5
    return steps


def broken_bound(outcome: Outcome, p99_ms: int) -> str | None:
    """The bound that a load broke, in words; ``None`` if it broke none."""
    if outcome.exit_code != 0 or not outcome.looks:
        return "the load or the testnet failed"
    sent = sum(each.sent for each in outcome.latencies)
    measured = sum(each.measured for each in outcome.latencies)
    found = latency_metrics(outcome.latencies).get("load_latency_p99_ms")
    if not sent or found is None:
        return "nothing became final"
    if (late := sum(each.late + each.skipped for each in outcome.latencies)) > LATE * sent:
        return f"{late:,} of {sent:,} turns were late or left out: the load's own processes are at their limit"
    if found > p99_ms:
        return f"p99 of finality {found:,.0f} ms, above {p99_ms:,}"
    if (lost := sum(each.never_final for each in outcome.latencies)) > LOST * measured:
        return f"{lost:,} of {measured:,} transactions did not become final"
    growth = outcome.looks[-1].backlog - outcome.looks[0].backlog
    if growth > GROWTH * sent:
        return f"the backlog grew by {growth:,}"
    return None


def _come_to_rest(target: Target, interrupts: Interrupts) -> None:
    """Wait until nothing is pending and no timer waits, but not for ever."""
    follower, deadline = ChainFollower(target.validators), time.monotonic() + REST_S
    while time.monotonic() < deadline:
        look = follower.look()
        if look is not None and look.pending == 0 and look.backlog == 0:
            return
        interrupts.wait(LOOK_S)
