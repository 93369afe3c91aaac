"""Forks of a simulated run: from the moment at which a height is first final, other settings apply.

What came before stays as it was, so that a fork can only change what has no past: not what the genesis holds, nor what
validators are or were started with, nor a fault that has begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from pydantic import Field

from cluster.scenario.sections.base import Height, Section
from cluster.scenario.sections.faults import AnyFault

MAY_CHANGE: Final = (
    "description",
    "links",
    "faults",
    "stop",
    "success",
    "consensus.block_interval_ms",
    "consensus.leader_timeout_ms",
    "consensus.advance_timeout_ms",
    "consensus.rebroadcast_ms",
)
WHOLE: Final = ("links.regions", "links.latency_matrix_ms", "links.topology", "success.metrics", "success.samples")
"""What is replaced at once, because its fields are not known beforehand."""
BOUND_TO_THE_PAST: Final = {
    "name": "the chain's id, which everything is signed for, follows from it",
    "seed": "the validators' and users' keys follow from it; the fork has a seed of its own for what follows (--seed)",
    "chain": "the genesis holds the chain's policy and parameters",
    "validators": "the validators are those that the chain began with",
    "load": "the genesis holds the users' accounts and actors",
    "consensus": "validators agree on it from the genesis on",
    "forks": "a fork changes settings, not other forks",
}


class ForkSection(Section):
    """From the moment at which a height is first final, the run goes another way than without it."""

    at_height: Height
    """When this height is first final."""
    seed: Annotated[int, Field(ge=0, lt=2**64)] | None = None
    """Of the random sources from then on; without one they go on as they were."""
    origin: str = ""
    """The run that it was forked from, in words."""
    changes: dict[str, Any] = {}
    """New values by path, such as ``links.loss``; of ``faults`` the whole list."""


def check_change(path: str) -> None:
    """Raise :class:`ValueError` where a setting would change the past."""
    if not any(path == known or path.startswith((f"{known}.", f"{known}[")) for known in MAY_CHANGE):
        section = path.replace("[", ".").partition(".")[0]
        why = BOUND_TO_THE_PAST.get(section, "no such setting")
        raise ValueError(f"a fork cannot change {path}: {why}")


def check_may_change(path: str) -> None:
    """Raise :class:`ValueError` where nothing of a setting's section can be changed, whatever its new value is."""
    section = path.replace("[", ".").partition(".")[0]
    if section in BOUND_TO_THE_PAST and not any(known.startswith(section) for known in MAY_CHANGE):
        check_change(path)


def check_faults_of_the_past(
    before: Sequence[AnyFault], after: Sequence[AnyFault], height: int, now_ms: float | None = None
) -> None:
    """Raise :class:`ValueError` where a fault that has begun by then is missing, or a new one would have.

    Without a time only those that begin at heights are looked at.
    """
    left = list(before)
    for number, fault in enumerate(after):
        if fault in left:
            left.remove(fault)
        elif _has_begun(fault, height, now_ms):
            raise ValueError(f"faults[{number}]: {_words(fault)} would have begun before the fork at height {height}")
    for fault in left:
        if _has_begun(fault, height, now_ms):
            raise ValueError(f"faults: {_words(fault)} has begun when height {height} is final: it stays as it is")


def _has_begun(fault: AnyFault, height: int, now_ms: float | None) -> bool:
    if fault.at_height is not None:
        return fault.at_height <= height
    return now_ms is not None and fault.at_ms is not None and fault.at_ms <= now_ms


def _words(fault: AnyFault) -> str:
    when = f"height {fault.at_height}" if fault.at_height is not None else f"{fault.at_ms:,} ms"
    return f"{fault.kind} {fault.whom} at {when}"
