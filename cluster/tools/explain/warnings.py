"""What is probably not meant so: what a scenario asks for and its run is not likely to give. Pure.

What can never be is refused where scenarios are read. Here are the rest, by the course that a run is likely to take and
what the backends can tell of it; none of it keeps anything from running.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.common.wording import first_few
from cluster.record.run import Backend
from cluster.scenario import Scenario
from cluster.scenario.sections.faults import (
    LEADER,
    AnyFault,
    DegradeFault,
    DownFault,
    PartitionFault,
    PauseFault,
    UpgradeFault,
)
from cluster.scenario.sections.metric_names import METRICS_OF_LIVE_RUNS, METRICS_OF_SIMULATIONS
from cluster.tools.explain.estimate import Course, Span, seconds

SHARES: Final = {"loss", "duplication", "reordering"}
"""Fields of a degradation that say which share of the messages it is about."""

Doubt = tuple[str, str]
"""A field's path, and what to know about it."""


def doubts(scenario: Scenario, ahead: Course, backend: Backend | None) -> Iterator[Doubt]:
    """All of them, by the sections of a scenario; ``backend`` is where it is to run, ``None`` is not known yet."""
    for number, span in enumerate(ahead.spans):
        yield from ((f"faults[{number}]{field}", what) for field, what in _of_fault(scenario, span, ahead))
    yield from _of_regions(scenario)
    yield from _of_length(scenario, ahead)
    yield from _of_success(scenario, backend)


def _of_fault(scenario: Scenario, span: Span, ahead: Course) -> Iterator[Doubt]:
    fault, stop = span.fault, scenario.stop
    if isinstance(fault, DegradeFault) and fault.changes.keys() <= SHARES and not any(fault.changes.values()):
        yield "", "takes losses and the like away, which cannot be seen to bite: inconclusive"
    if not span.begins:
        if fault.at_ms is not None and not math.isinf(ahead.length_ms):
            over = f"the run is probably over after {seconds(ahead.length_ms)}, so that it never begins"
            yield ".at_ms", f"{seconds(fault.at_ms)}; {over}: inconclusive"
        return
    until_height = getattr(fault, "until_height", None)
    if math.isinf(span.ends_ms) and not span.halts:
        return  # another fault keeps it waiting for its height
    if math.isinf(span.ends_ms):
        what = "no quorum is left while it lasts, so that this height is not reached"
        yield ".until_height", f"{what}: the run is cut off after {stop.timeout_s:,} s (stop.timeout_s) and fails"
        return
    lasts_ms = span.ends_ms - span.begins_ms
    if span.halts and lasts_ms > scenario.success.stall_ms:
        what = f"no quorum is left for about {seconds(lasts_ms)}"
        yield _length_field(fault), f"{what}; success.stall_ms allows {seconds(scenario.success.stall_ms)}: a fail"
    if not span.halts and (too_short := _too_short(scenario, fault, ahead)):
        yield _length_field(fault), f"{too_short}: inconclusive"
    if until_height is not None and getattr(fault, "for_ms", None) is None:
        end = stop.height + stop.drain_blocks
        if until_height > end:
            yield ".until_height", f"{until_height:,}; the load is over by height {end:,}, the run goes on until then"
    if span.ends_ms > stop.timeout_s * MILLISECONDS_PER_SECOND:
        what = f"over after about {seconds(span.ends_ms)}; the run is cut off after {stop.timeout_s:,} s"
        yield _length_field(fault), f"{what} (stop.timeout_s)"


def _too_short(scenario: Scenario, fault: AnyFault, ahead: Course) -> str | None:
    """Why nothing may become final while a fault lasts that leaves a quorum, so that it shows nothing.

    One that lasts until a height is final has seen that one.
    """
    if not isinstance(fault, DownFault | PauseFault | PartitionFault):
        return None
    lasts_ms = fault.down_ms if isinstance(fault, DownFault) else fault.for_ms
    if lasts_ms is None or getattr(fault, "until_height", None) is not None:
        return None
    if lasts_ms < ahead.each_ms:
        return f"{lasts_ms:,} ms, less than a block takes"
    view_ms = scenario.consensus.view_change_ms
    if lasts_ms < view_ms and LEADER in getattr(fault, "target", ()):
        return f"{lasts_ms:,} ms; without its leader a view takes up to {view_ms:,} ms, and may be all that is seen"
    return None


def _length_field(fault: AnyFault) -> str:
    if isinstance(fault, UpgradeFault):
        return ""
    return next(f".{name}" for name in ("for_ms", "until_height", "down_ms") if getattr(fault, name, None) is not None)


def _of_regions(scenario: Scenario) -> Iterator[Doubt]:
    regions, links = scenario.regions, scenario.links
    placed = {name for names in regions.values() for name in names}
    left_out = [name for name in scenario.validators.names if name not in placed]
    if regions and left_out:
        verb = "is" if len(left_out) == 1 else "are"
        yield "links.regions", f"{first_few(left_out, 1)} {verb} in none: links of latency_ms, {links.latency_ms:g} ms"


def _of_length(scenario: Scenario, ahead: Course) -> Iterator[Doubt]:
    stop = scenario.stop
    if math.isinf(ahead.length_ms):
        return
    if ahead.length_ms > stop.timeout_s * MILLISECONDS_PER_SECOND:
        yield "stop.timeout_s", f"{stop.timeout_s:,} s; the run takes about {seconds(ahead.length_ms)}: it is cut off"
    for number, epoch in enumerate(scenario.validators.epochs):
        if epoch.from_view > ahead.height:
            what = f"view {epoch.from_view:,}; the run is probably over by about view {ahead.height:,.0f}"
            yield f"validators.epochs[{number}].from_view", what
    if scenario.success.heights_compared > ahead.height:
        what = f"{scenario.success.heights_compared:,}; the run is probably over at about height {ahead.height:,.0f}"
        yield "success.heights_compared", f"{what}: inconclusive"


def _of_success(scenario: Scenario, backend: Backend | None) -> Iterator[Doubt]:
    success = scenario.success
    if not scenario.load.users:
        for name in ("transactions", "fires"):
            if (least := getattr(success, name)) > 0:
                yield f"success.{name}", f"{least:,}; without load.users there are none: inconclusive"
    for name in success.metrics:
        if name == "recovery_ms" and not scenario.faults:
            yield f"success.metrics.{name}", "no run without faults has this figure: inconclusive"
        if backend != "live" and name in METRICS_OF_LIVE_RUNS:
            yield f"success.metrics.{name}", "the simulator has no such figure: inconclusive there"
        if backend != "sim" and name in METRICS_OF_SIMULATIONS:
            yield f"success.metrics.{name}", "the live testnet has no such figure: inconclusive there"
