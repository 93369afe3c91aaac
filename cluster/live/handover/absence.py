"""What a driver that takes a run over finds: the faults that came late, since nobody performed them."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.record.run import FaultRecord


def late_faults(faults: Sequence[FaultRecord], height: int, fault_ms: float) -> tuple[str, ...]:
    """A line for each fault that was due while nobody was there, or that nobody could end.

    ``height`` is the one that is final by now, ``fault_ms`` the time that faults count in.
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
