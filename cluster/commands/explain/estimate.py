"""An estimate of a run: when its faults begin and end, when they leave no quorum, and when the run ends. Pure.

Blocks are assumed to take as long as without faults, except while faults leave no quorum. Faults with the targets
``leader``, ``random`` and ``f`` are assumed to leave a quorum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.faults.kind import FaultKind, known_plans
from cluster.scenario import Scenario
from consensus.types import quorum


@dataclass(frozen=True, slots=True)
class Span:
    """The estimated begin and end of one fault, and its effect on the run."""

    fault: FaultKind
    begins_ms: float
    ends_ms: float
    """When the fault ends. Infinite if it ends at a height that cannot become final while the fault lasts."""
    begins: bool
    """Whether the fault begins before the run is over."""
    halts: bool
    """Whether no quorum is left under this fault and those under way when it begins."""


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """The estimated length of a run, its last height, and the times of its faults."""

    each_ms: float
    """Time per block without faults."""
    spans: tuple[Span, ...]
    """The estimated time of each fault, in the scenario's order."""
    length_ms: float
    """Length of the run if it had no time limit (section ``stop``)."""
    height: float
    """Highest final height at the end of the run, within the limits of the section ``stop``."""


def estimate_run(scenario: Scenario, each_ms: float) -> RunEstimate:
    """The estimate of a run whose blocks take ``each_ms`` without faults."""
    faults = known_plans(scenario)
    goal = stop_height(scenario, each_ms) + scenario.stop.drain_blocks
    spans: dict[int, Span] = {}
    halts = _Halts(each_ms)
    for number in sorted(range(len(faults)), key=lambda each: _nominal_ms(faults[each], each_ms)):
        fault = faults[number]
        begins_ms = float(fault.at_ms) if fault.at_ms is not None else halts.reached_ms(fault.at_height or 0)
        before = [span for span in spans.values() if span.begins and span.begins_ms <= begins_ms < span.ends_ms]
        is_halted = _leave_no_quorum(scenario, [*(span.fault for span in before), fault], begins_ms / each_ms)
        ends_ms = _end_ms(scenario, fault, begins_ms, halts, is_halted)
        over_ms = max([halts.reached_ms(goal), *(span.ends_ms for span in spans.values() if span.begins)])
        spans[number] = Span(fault, begins_ms, ends_ms, begins_ms < over_ms, is_halted)
        if spans[number].begins and is_halted:
            halts.add(begins_ms, min([ends_ms, *(span.ends_ms for span in before if not span.halts)]))
    found = [  # later halts may delay the height at which a fault ends
        replace(span, ends_ms=_end_ms(scenario, span.fault, span.begins_ms, halts, span.halts))
        for _, span in sorted(spans.items())
    ]
    length_ms = max([halts.reached_ms(goal), *(span.ends_ms for span in found if span.begins)])
    within_ms = min(length_ms - halts.in_all_ms, scenario.stop.longest_s * MILLISECONDS_PER_SECOND)
    return RunEstimate(each_ms, tuple(found), length_ms, goal if math.isinf(length_ms) else within_ms / each_ms)


def stop_height(scenario: Scenario, each_ms: float) -> int:
    """The height at which the load stops; an estimate if the scenario gives a duration."""
    duration_s = scenario.stop.duration_s
    return scenario.stop.height if duration_s is None else round(duration_s * MILLISECONDS_PER_SECOND / each_ms)


def seconds(milliseconds: float) -> str:
    """Format a duration in milliseconds as a text in seconds."""
    return f"{milliseconds / MILLISECONDS_PER_SECOND:,.1f} s"


# --- parts ----------------------------------------------------------------------------------------------------------


def _nominal_ms(fault: FaultKind, each_ms: float) -> float:
    """When the fault begins if nothing halts the network."""
    return float(fault.at_ms) if fault.at_ms is not None else (fault.at_height or 0) * each_ms


class _Halts:
    """The halts of a run: periods without a quorum, in which no height becomes final."""

    def __init__(self, each_ms: float) -> None:
        self.each_ms = each_ms
        self._times: list[tuple[float, float]] = []
        """Begin and end of each halt; disjoint and ascending."""

    @property
    def in_all_ms(self) -> float:
        return sum(ends_ms - begins_ms for begins_ms, ends_ms in self._times)

    def add(self, begins_ms: float, ends_ms: float) -> None:
        """Add a halt that begins no earlier than those added before."""
        begins_ms = max([begins_ms, *(ends for _, ends in self._times)])
        if begins_ms < ends_ms:
            self._times.append((begins_ms, ends_ms))

    def reached_ms(self, height: int) -> float:
        """The time at which a height becomes final, delayed by the halts before it."""
        at_ms = height * self.each_ms
        for begins_ms, ends_ms in self._times:
            if begins_ms < at_ms:
                at_ms += ends_ms - begins_ms
        return at_ms


def _end_ms(scenario: Scenario, fault: FaultKind, begins_ms: float, halts: _Halts, is_halted: bool) -> float:
    until_height = getattr(fault, "until_height", None)
    height_ms = math.inf if until_height is None or is_halted else halts.reached_ms(until_height)
    return fault.end_ms(begins_ms, halts.each_ms, scenario.validators, height_ms)


def _leave_no_quorum(scenario: Scenario, faults: Sequence[FaultKind], view: float) -> bool:
    """Whether the committee of the view has no quorum under these faults. The view is an estimate."""
    committees = scenario.validators.committees
    members = committees[max(first for first in committees if first <= max(view, 1))]
    names = scenario.validators.names
    gone = {name for fault in faults for name in fault.gone(scenario.validators)}
    return sum(names[member] not in gone for member in members) < quorum(len(members))
