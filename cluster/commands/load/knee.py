"""Finding the knee of a testnet: the highest load at which finality keeps its bound and the backlog does not grow.

The load's rate is doubled until a bound is broken, then bisected. Each rate is a separate load, which starts when the
testnet has come to rest.

A knee belongs to the testnet only if the testnet caused the broken bound. The load may be the cause instead: its
processes had no time left, or its users had their maximum number of transactions in flight. The testnet is judged by
the time since transactions were really sent, the load by what its late transactions waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

from cluster.checks.metrics.load_latency import (
    from_send_p99_ms,
    json_number,
    latency_metrics,
    latency_text,
    response_times,
)
from cluster.commands.console.output import console, print_line
from cluster.commands.load.following import ChainFollower
from cluster.commands.load.loading import TELL_S, Layout, Outcome, run_load
from cluster.commands.load.target import PlannedLoad, Target
from cluster.common.errors import ExitCode, HarnessError, TestnetError
from cluster.common.files import write_json_for_user
from cluster.common.interrupts import Interrupts
from loadgen.runplan import LateCause
from loadgen.workloads.user import MAX_UNCONFIRMED

CLOSE: Final = 1.1
"""The search ends when the lowest rate that breaks a bound is at most this factor above the highest that keeps all."""
MAX_STEPS: Final = 16
GROWTH: Final = 0.1
"""The backlog counts as growing if its increase exceeds this share of the load's transactions."""
LOST: Final = 0.01
"""Share of the transactions that may fail to become final."""
LATE: Final = 0.1
"""Share of the users' turns that may be late or skipped. Some are, while the load's processes start."""
REST_S: Final = 120.0
"""Time limit for the testnet to come to rest before a step."""
LOOK_S: Final = 0.2


class Limit(StrEnum):
    """The part that was at its limit when a bound was broken."""

    TESTNET = "testnet"
    PROCESSES = "load processes"
    USERS = "load users"


@dataclass(frozen=True, slots=True)
class Broken:
    """A bound that a load broke."""

    limit: Limit
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Step:
    """One load that the search tried, with its outcome and the bound that it broke."""

    factor: float
    """The load's rate divided by the plan's rate. Intervals are whole milliseconds, so not every factor is possible."""
    outcome: Outcome
    broken: Broken | None

    @property
    def p99_ms(self) -> float | None:
        """p99 of the time to finality in milliseconds. It is infinite if more than 1% of the transactions did not
        become final, and ``None`` if none was sent."""
        return latency_metrics(self.outcome.latencies).get("load_latency_p99_ms")

    @property
    def page(self) -> dict[str, Any]:
        return {
            "factor": self.factor,
            "final_per_s": round(self.outcome.rate, 3),
            "p99_ms": json_number(self.p99_ms),
            "broken": None if self.broken is None else self.broken.text,
            "limit": None if self.broken is None else self.broken.limit,
        }


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search for the knee."""

    best: Step | None
    """The highest load that kept its bounds."""
    worst: Step | None
    """The lowest load that broke a bound."""
    fastest: float
    """The highest factor that is possible with the plan's users, each with the minimum interval between turns."""
    ended: str | None
    """Why the search ended before the knee was found, as text; ``None`` if it did not."""

    @property
    def broken(self) -> Broken | None:
        """The bound that limits the highest load; ``None`` if no limit was found."""
        if self.worst is not None:
            return self.worst.broken
        if self.best is not None and self.best.factor >= self.fastest:
            return Broken(Limit.USERS, "its users take a turn each millisecond already, so more users are needed")
        return None

    @property
    def text(self) -> str:
        """The result in one line."""
        if self.best is None:
            text = "below all loads that were tried" if self.worst is not None else "no load was tried"
        else:
            text = f"{self.best.factor:.2f} ×, {self.best.outcome.rate:,.1f} a second final; "
            if self.broken is None:
                text += "no load that was tried broke a bound"
            else:
                text += f"{'beyond' if self.worst is None else f'{self.worst.factor:.2f} ×'}: {self.broken}"
        return text if self.ended is None else f"{text}; not searched further: {self.ended}"

    @property
    def page(self) -> dict[str, Any]:
        """The result as JSON."""
        broken = self.broken
        return {
            "knee": None if self.best is None else self.best.page,
            "limit": None if broken is None else broken.limit,
            "ended": self.ended,
        }


def find_knee(
    target: Target, planned: PlannedLoad, layout: Layout, step_s: int, p99_ms: int, file: Path | None
) -> ExitCode:
    """Search for the knee, print each step, and write the steps to ``file`` if given, even if the search breaks off.

    Raises :class:`KeyboardInterrupt` after a signal, :class:`~cluster.common.errors.TestnetError` if a load does not
    start or the testnet does not come to rest, and :class:`~cluster.common.errors.HarnessError` if every load ended
    early or sent nothing that became final.
    """
    out, steps = console(), list[Step]()
    notice = partial(print_line, out)

    def reach(factor: float) -> float:
        return planned.scaled(factor).turns_per_s / planned.turns_per_s

    def finish(ended: str | None) -> Found:
        best = max((step for step in steps if step.broken is None), key=lambda step: step.factor, default=None)
        worst = min((step for step in steps if step.broken is not None), key=lambda step: step.factor, default=None)
        found = Found(best, worst, reach(float("inf")), ended)
        notice(f"knee      {found.text}")
        write_json_for_user(file, {"p99_bound_ms": p99_ms, **found.page, "steps": [step.page for step in steps]})
        return found

    with Interrupts() as interrupts:

        def try_factor(factor: float) -> Step:
            _come_to_rest(ChainFollower(target.validators), interrupts, notice)
            outcome = run_load(target, planned.scaled(factor), layout, step_s, interrupts, notice)
            if outcome.why_ended:
                notice(f"the load did not do its work: {outcome.why_ended}")
            interrupts.checkpoint()
            return Step(reach(factor), outcome, broken_bound(outcome, p99_ms))

        try:
            for step in search(try_factor, reach):
                steps.append(step)
                rate, p99, verdict = step.outcome.rate, _ms(step.p99_ms), step.broken or "holds"
                notice(f"{step.factor:8.2f} × · {rate:8.1f} a second final · p99 {p99} · {verdict}")
        except (KeyboardInterrupt, TestnetError) as error:
            finish(str(error) or "interrupted")
            raise
        found = finish(None)
    reasons = [step.outcome.why_ended or step.outcome.why_nothing for step in steps]
    if all(reasons):
        raise HarnessError(f"no load shows anything: {reasons[0]}")
    return ExitCode.PASS if found.best is not None else ExitCode.FAIL


def search(try_factor: Callable[[float], Step], reach: Callable[[float], float]) -> Iterator[Step]:
    """Search for the highest load that keeps all bounds; yields each load tried.

    The factor is doubled or halved first, then bisected. ``reach`` maps a requested factor to the one that the load
    really has, so that no load is tried twice.
    """
    holds, breaks, factor = 0.0, float("inf"), 1.0
    for _ in range(MAX_STEPS):
        if (holds > 0.0 and breaks <= holds * CLOSE) or reach(factor) in (holds, breaks):
            return
        step = try_factor(factor)
        yield step
        if step.broken is None:
            holds = step.factor
        else:
            breaks = step.factor
        if breaks == float("inf"):
            factor *= 2
        elif holds == 0.0:
            factor /= 2
        else:
            factor = (holds * breaks) ** 0.5


def broken_bound(outcome: Outcome, p99_ms: int) -> Broken | None:
    """The bound that a load broke, and which part was at its limit: testnet, load processes or users. ``None`` if the
    load broke no bound."""
    latencies = outcome.latencies
    if outcome.exit_code != 0 or not outcome.looks:
        return Broken(Limit.TESTNET, "the load or the testnet failed")
    if not any(each.final for each in latencies):
        return Broken(Limit.TESTNET, "nothing became final")
    sent = sum(each.sent for each in latencies)
    late = sum(each.late + each.skipped + each.unsent for each in latencies)
    held_up = _held_up(outcome, f"{late:,} of {sent:,} turns were late or left out")
    if late > LATE * sent and held_up.limit is Limit.PROCESSES:
        return held_up
    measured, lost = sum(each.measured for each in latencies), sum(each.never_final for each in latencies)
    if lost > LOST * measured:
        return Broken(Limit.TESTNET, f"{lost:,} of {measured:,} transactions did not become final")
    if (found := from_send_p99_ms(latencies)) > p99_ms:
        return Broken(Limit.TESTNET, f"p99 of finality {_ms(found)}, above {p99_ms:,}")
    growth = outcome.looks[-1].backlog - outcome.looks[0].backlog
    if growth > GROWTH * sent:
        return Broken(Limit.TESTNET, f"the backlog grew by {growth:,}")
    if late > LATE * sent:
        return held_up
    if (found := latency_metrics(latencies)["load_latency_p99_ms"]) > p99_ms:
        return replace(held_up, text=f"p99 from the intended send {_ms(found)}, above {p99_ms:,}; {held_up.text}")
    return None


def _held_up(outcome: Outcome, late: str) -> Broken:
    """The broken bound on late turns, with the cause that delayed most of them; its text begins with ``late``."""
    causes = outcome.statistics.late_by_cause
    match max(causes, key=lambda cause: causes[cause], default=LateCause.ANSWERS):
        case LateCause.LOOP:
            text = f"{late}: the load's own processes are at their limit (--workers, or another machine)"
            return Broken(Limit.PROCESSES, text)
        case LateCause.UNCONFIRMED:
            text = f"{late}: users have {MAX_UNCONFIRMED} transactions under way at most, so more users are needed"
            return Broken(Limit.USERS, text)
        case LateCause.ANSWERS:
            p99 = _ms(response_times(outcome.statistics.timeline).get("p99"))
            return Broken(Limit.TESTNET, f"{late}: users waited for answers (p99 of response times {p99})")


def _ms(value: float | None) -> str:
    text = latency_text(value)
    return f"{text} ms" if text[0].isdecimal() else text


def _come_to_rest(follower: ChainFollower, interrupts: Interrupts, notice: Callable[[str], None]) -> None:
    """Wait until no transaction is pending and no due timer waits. Raises :class:`~cluster.common.errors.TestnetError`
    after :data:`REST_S`."""
    begun, is_told = time.monotonic(), False
    while True:
        look, waited_s = follower.look(), time.monotonic() - begun
        if look is not None and look.pending == 0 and look.backlog == 0:
            return
        state = "no validator answers" if look is None else f"{look.pending:,} pending · backlog {look.backlog:,}"
        if waited_s >= REST_S:
            raise TestnetError(f"the testnet did not come to rest within {REST_S:.0f} s: {state}")
        if waited_s >= TELL_S and not is_told:
            is_told = True
            notice(f"waiting for the testnet to come to rest: {state}")
        interrupts.wait(LOOK_S)
