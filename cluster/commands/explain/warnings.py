"""Warnings about a scenario: expectations that its run is unlikely to meet. Pure.

They follow from the estimate of the run and from the metrics of the backends. A scenario with warnings can be run; one
that cannot work is refused when it is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from cluster.commands.explain.estimate import RunEstimate, Span, seconds, stop_height
from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.common.wording import first_few
from cluster.faults.kind import FaultKind
from cluster.record.run import Backend
from cluster.scenario import Scenario
from cluster.scenario.code.policy_source import warnings_in
from cluster.scenario.metric_names import METRICS_OF_LIVE_RUNS, METRICS_OF_SIMULATIONS
from cluster.scenario.sections.base import LEADER
from validator.primitives.user_file import place_of

FieldWarning = tuple[str, str]
"""A field's path, and the warning."""


def find_warnings(scenario: Scenario, estimate: RunEstimate, backend: Backend | None) -> Iterator[FieldWarning]:
    """All warnings, section by section; ``backend`` is the intended one, ``None`` if that is open."""
    for number, span in enumerate(estimate.spans):
        yield from ((f"faults[{number}]{field}", what) for field, what in _of_fault(scenario, span, estimate))
    yield from _of_regions(scenario)
    yield from _of_length(scenario, estimate)
    yield from _of_success(scenario, backend)
    yield from warnings_of_policy(scenario)


def warnings_of_policy(scenario: Scenario) -> Iterator[FieldWarning]:
    """What the text of a user's policy has that may give other results in another process."""
    _, policy = scenario.chain.policies()
    if policy is None:
        return
    for line, what in warnings_in(policy.source):
        yield "chain.policy", f"{place_of(policy.file, line)}: {what}"


def _of_fault(scenario: Scenario, span: Span, estimate: RunEstimate) -> Iterator[FieldWarning]:
    fault, stop = span.fault, scenario.stop
    if fault.warning is not None:
        yield "", f"{fault.warning}: inconclusive"
    if not span.begins:
        if fault.at_ms is not None and not math.isinf(estimate.length_ms):
            over = f"the run probably ends after {seconds(estimate.length_ms)}, before the fault begins"
            yield ".at_ms", f"{seconds(fault.at_ms)}; {over}: inconclusive"
        return
    until_height = getattr(fault, "until_height", None)
    if math.isinf(span.ends_ms) and not span.halts:
        return  # another fault delays its height
    if math.isinf(span.ends_ms):
        what = "no quorum is left until the fault ends, so this height is never reached"
        yield ".until_height", f"{what}: the run is ended after {stop.longest_s:,} s (stop.timeout_s) and fails"
        return
    lasts_ms = span.ends_ms - span.begins_ms
    if span.halts and lasts_ms > scenario.success.stall_ms:
        what = f"no quorum is left for about {seconds(lasts_ms)}"
        yield fault.length_field, f"{what}; success.stall_ms allows {seconds(scenario.success.stall_ms)}: fail"
    if not span.halts and (too_short := _too_short(scenario, fault, estimate)):
        yield fault.length_field, f"{too_short}: inconclusive"
    if until_height is not None and getattr(fault, "for_ms", None) is None:
        end = stop_height(scenario, estimate.each_ms) + stop.drain_blocks
        if until_height > end:
            yield (
                ".until_height",
                f"{until_height:,}; the load ends by height {end:,}, the run with the fault",
            )
    if span.ends_ms > stop.longest_s * MILLISECONDS_PER_SECOND:
        what = f"ends after about {seconds(span.ends_ms)}; the run is ended after {stop.longest_s:,} s"
        yield fault.length_field, f"{what} (stop.timeout_s)"


def _too_short(scenario: Scenario, fault: FaultKind, estimate: RunEstimate) -> str | None:
    """The reason why a fault that leaves a quorum may be too short for a final block; ``None`` if it is long enough.

    A fault that lasts until a height is final includes a final block, so it is never too short.
    """
    lasts_ms = fault.stops_for_ms
    if lasts_ms is None:
        return None
    if lasts_ms < estimate.each_ms:
        return f"{lasts_ms:,} ms, shorter than the time of a block"
    view_ms = scenario.consensus.view_change_ms
    if lasts_ms < view_ms and LEADER in getattr(fault, "target", ()):
        return f"{lasts_ms:,} ms; a view without its leader takes up to {view_ms:,} ms, so no block may become final"
    return None


def _of_regions(scenario: Scenario) -> Iterator[FieldWarning]:
    regions, links = scenario.regions, scenario.links
    placed = {name for names in regions.values() for name in names}
    left_out = [name for name in scenario.validators.names if name not in placed]
    if regions and left_out:
        verb = "is" if len(left_out) == 1 else "are"
        what = f"{first_few(left_out, 1)} {verb} in no region: latency_ms, {links.latency_ms:g} ms, applies"
        yield "links.regions", what


def _of_length(scenario: Scenario, estimate: RunEstimate) -> Iterator[FieldWarning]:
    stop = scenario.stop
    if math.isinf(estimate.length_ms):
        return
    if estimate.length_ms > stop.longest_s * MILLISECONDS_PER_SECOND:
        yield "stop.timeout_s", f"{stop.longest_s:,} s; the run needs about {seconds(estimate.length_ms)}"
    for number, epoch in enumerate(scenario.validators.epochs):
        if epoch.from_view > estimate.height:
            what = f"view {epoch.from_view:,}; the run probably ends by view {estimate.height:,.0f}"
            yield f"validators.epochs[{number}].from_view", what
    if scenario.success.heights_compared > estimate.height:
        what = f"{scenario.success.heights_compared:,}; the run probably ends by height {estimate.height:,.0f}"
        yield "success.heights_compared", f"{what}: inconclusive"


def _of_success(scenario: Scenario, backend: Backend | None) -> Iterator[FieldWarning]:
    success = scenario.success
    if not scenario.load.users:
        for name in ("transactions", "fires"):
            if (least := getattr(success, name)) > 0:
                yield f"success.{name}", f"{least:,}; without load.users there are none: inconclusive"
    for name in success.metrics:
        if name == "recovery_ms" and not scenario.faults:
            yield f"success.metrics.{name}", "a run without faults does not have this metric: inconclusive"
        if backend != "live" and name in METRICS_OF_LIVE_RUNS:
            yield f"success.metrics.{name}", "the simulator does not have this metric: inconclusive there"
        if backend != "sim" and name in METRICS_OF_SIMULATIONS:
            yield f"success.metrics.{name}", "the live testnet does not have this metric: inconclusive there"
