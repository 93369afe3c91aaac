"""A run's record says of a fault whom it hit."""

from __future__ import annotations

import pytest

from cluster.record.run import FaultRecord

NAMES = tuple(f"validator-{index}" for index in range(6))


@pytest.mark.parametrize(
    ("target", "targets", "whom"),
    [
        ("leader", (), "leader"),
        ("leader", NAMES[1:2], "leader (validator-1)"),
        ("f", NAMES, "f (validator-0, validator-1, validator-2, validator-3 and 2 more)"),
        ("validator-1", NAMES[1:2], "validator-1"),
        ("validator-1, validator-0", NAMES[:2], "validator-1, validator-0"),
        ("validator-1", NAMES[:2], "validator-1 (validator-0, validator-1)"),
        ("all", NAMES, "all"),
        ("validator-0 | validator-1", (), "validator-0 | validator-1"),
    ],
)
def test_whom_it_hit_is_named_where_the_scenario_does_not(target: str, targets: tuple[str, ...], whom: str) -> None:
    fault = FaultRecord("kill", target, 4, targets=targets)
    assert (fault.whom, fault.title) == (whom, f"kill {whom}")
    assert fault.name == f"kill of {whom} at height 4"
