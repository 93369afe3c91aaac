"""Selects what a live run measured that the simulator's times are fitted to.

Left out is what the simulator models otherwise or not at all: messages from before the chain's first block with
fires is final, while processes warm up; and messages of validators that a fault impairs, which wait for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.faults.kinds.kill import KillFault
from cluster.record.run import FaultRecord, RunRecord, TracedMessage, Work
from cluster.scenario.sections.faults import BaseFault

AFTER_FAULT_MS: Final = 1_000.0
"""Messages sent this long after a fault's end are left out, too: they are those that waited."""


class LinkDelay(NamedTuple):
    """The delay of one message, and the delay that the scenario's links give it: latency plus or minus jitter."""

    delay_us: int
    latency_us: int
    jitter_us: int


@dataclass(slots=True)
class Observed:
    """The measurements of live runs. Durations are in microseconds."""

    work: list[Work] = field(default_factory=list)
    delays: list[LinkDelay] = field(default_factory=list)
    starts_us: list[int] = field(default_factory=list)
    """How long killed validators took to be back, beyond the time for which the scenario held them down."""

    def add(self, other: Observed) -> None:
        """Add the measurements of another run."""
        self.work += other.work
        self.delays += other.delays
        self.starts_us += other.starts_us


def observed_in(record: RunRecord, first_firing_height: int | None) -> Observed:
    """The measurements of a live run with timings.

    ``first_firing_height`` is that of the first block in which timers fire; ``None`` if there is none.
    """
    assert record.timings is not None, "the run took timings"
    final = record.first_finalizations
    warm_ms = inf if first_firing_height is None else final.get(first_firing_height, inf)
    delays = list(_delays(record, record.timings.messages, warm_ms if warm_ms < inf else 0.0))
    return Observed(list(record.timings.work), delays, list(_starts(record.scenario.faults, record.faults)))


def _delays(record: RunRecord, messages: Iterable[TracedMessage], from_ms: float) -> Iterator[LinkDelay]:
    network, names = record.scenario.network, record.scenario.validators.names
    links_fail = any(fault.of_links for fault in record.scenario.faults)
    for message in messages:
        sent_ms, received_ms = message.sent_ms, message.received_ms
        if sent_ms is None or received_ms is None or sent_ms < from_ms:
            continue
        ends = (names[message.sender], names[message.receiver])
        if any(_spoils(fault, ends, sent_ms, received_ms, links_fail) for fault in record.faults):
            continue
        quality = network.quality(message.sender, message.receiver)
        if quality is not None and not quality.reordering:
            yield LinkDelay(
                round((received_ms - sent_ms) * MICROSECONDS_PER_MILLISECOND),
                round(quality.latency_ms * MICROSECONDS_PER_MILLISECOND),
                round((quality.jitter_ms or 0) * MICROSECONDS_PER_MILLISECOND),
            )


def _spoils(fault: FaultRecord, ends: Sequence[str], sent_ms: float, received_ms: float, links_fail: bool) -> bool:
    """Whether a fault may have delayed a message between two validators."""
    if fault.begun_ms is None or received_ms < fault.begun_ms:
        return False
    if sent_ms > (inf if fault.ended_ms is None else fault.ended_ms + AFTER_FAULT_MS):
        return False
    return links_fail or any(name in fault.impaired for name in ends)


def _starts(plans: Sequence[BaseFault], faults: Sequence[FaultRecord]) -> Iterator[int]:
    for plan, fault in zip(plans, faults, strict=False):
        if isinstance(plan, KillFault) and fault.begun_ms is not None and fault.ended_ms is not None:
            took_ms = fault.ended_ms - fault.begun_ms - plan.down_ms
            yield max(0, round(took_ms * MICROSECONDS_PER_MILLISECOND))
