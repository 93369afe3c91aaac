"""The faults that are late when a driver takes a run over, since no driver performed them on time."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.record.run import Absence, FaultRecord


def absence_of(
    faults: Sequence[FaultRecord], from_ms: float, until_ms: float, heights: tuple[int, int], fault_ms: float
) -> Absence:
    """The record of the time without a driver, between two moments and two final heights, with the late faults.

    ``fault_ms`` is the time now on the clock of faults.
    """
    before, after = heights
    return Absence(from_ms, until_ms, before, max(heights), late_faults(faults, after, fault_ms))


def late_faults(faults: Sequence[FaultRecord], height: int, fault_ms: float) -> tuple[str, ...]:
    """A line for each fault that was due, or under way, while there was no driver.

    ``height`` is the final height now, ``fault_ms`` the time on the clock of faults.
    """
    lines = []
    for fault in faults:
        if fault.begun_ms is not None and fault.ended_ms is None:
            lines.append(f"{fault.name} was under way without a driver: it may end late")
        elif fault.begun_ms is None and _was_due(fault, height, fault_ms):
            lines.append(f"{fault.name} was due while there was no driver: it begins late")
    return tuple(lines)


def _was_due(fault: FaultRecord, height: int, fault_ms: float) -> bool:
    if fault.at_height is not None:
        return fault.at_height <= height
    return fault.at_ms is not None and fault.at_ms <= fault_ms
