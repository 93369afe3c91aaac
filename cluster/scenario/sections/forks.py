"""Forks of a simulated run: changed settings from the moment when a height is first final.

A fork cannot change the past: the genesis, the validators, settings that validators started with, faults that have
begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from pydantic import Field

from cluster.scenario.sections.base import Height, Section
from cluster.scenario.sections.faults import BaseFault

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
"""Settings that are replaced as a whole, since their fields have free names."""
BOUND_TO_THE_PAST: Final = {
    "name": "the chain's id follows from it, and signatures cover that",
    "seed": "the validators' and users' keys follow from it; the fork has its own seed (--seed)",
    "chain": "the genesis holds the chain's policy and parameters",
    "validators": "the validators are those that the chain began with",
    "limits": "validators keep those that they started with",
    "storage": "disks hold what they were told to keep from the start on",
    "load": "the genesis holds the users' accounts and actors",
    "consensus": "validators agree on it from the genesis on",
    "forks": "a fork changes settings, not other forks",
}


class ForkSection(Section):
    """Changed settings from the moment when a height is first final."""

    at_height: Height
    """The fork begins when this height is first final."""
    seed: Annotated[int, Field(ge=0, lt=2**64)] | None = None
    """Seed of the random sources from then on; by default they continue."""
    origin: str = ""
    """Description of the run from which it was forked."""
    changes: dict[str, Any] = {}
    """New values by path, such as ``links.loss``; ``faults`` can only be replaced as a whole list."""


def check_change(path: str) -> None:
    """Raise :class:`ValueError` if a fork cannot change the setting at ``path``, since that would change the past."""
    if not any(path == known or path.startswith((f"{known}.", f"{known}[")) for known in MAY_CHANGE):
        section = path.replace("[", ".").partition(".")[0]
        why = BOUND_TO_THE_PAST.get(section, "no such setting of a run")
        raise ValueError(f"a fork cannot change {path}: {why}")


def check_may_change(path: str) -> None:
    """Raise :class:`ValueError` if a fork can change no setting of the section that contains ``path``."""
    section = path.replace("[", ".").partition(".")[0]
    if section in BOUND_TO_THE_PAST and not any(known.startswith(section) for known in MAY_CHANGE):
        check_change(path)


def check_faults_of_the_past(
    before: Sequence[BaseFault], after: Sequence[BaseFault], height: int, now_ms: float | None = None
) -> None:
    """Raise :class:`ValueError` if ``after`` lacks a fault that has begun, or adds one that would have.

    Without a time, only faults that begin at heights are compared.
    """
    left = list(before)
    for number, fault in enumerate(after):
        if fault in left:
            left.remove(fault)
        elif _has_begun(fault, height, now_ms):
            raise ValueError(f"faults[{number}]: {_text(fault)} would have begun before the fork at height {height}")
    for fault in left:
        if _has_begun(fault, height, now_ms):
            raise ValueError(f"faults: {_text(fault)} has begun when height {height} is final: it cannot change")


def _has_begun(fault: BaseFault, height: int, now_ms: float | None) -> bool:
    if fault.at_height is not None:
        return fault.at_height <= height
    return now_ms is not None and fault.at_ms is not None and fault.at_ms <= now_ms


def _text(fault: BaseFault) -> str:
    when = f"height {fault.at_height}" if fault.at_height is not None else f"{fault.at_ms:,} ms"
    return f"{fault.kind_name} {fault.whom} at {when}"
