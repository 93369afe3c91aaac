"""The reports of one host's validators, dead processes included. They are part of a checkpoint."""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import msgspec

from cluster.faults.link_effects import LinkCounts
from cluster.live.host.host import HostView, ValidatorAddress
from cluster.live.host.lag import LagSpan
from cluster.live.host.validator_loop import LoopState
from cluster.live.injection import DelayCounts
from cluster.live.processes.processes import Process


class Totals(NamedTuple):
    """Work of validators since the run began."""

    messages: int = 0
    """Messages sent to each other."""
    size: int = 0
    """Size of the sent messages, in bytes."""
    lost: int = 0
    """Messages lost before they left their sender."""
    core_seconds: float = 0.0
    """Processor time of the validators themselves, without transport, pages and the rest of a host."""

    def plus(self, state: LoopState) -> Totals:
        """These totals plus the figures of one validator's process."""
        return Totals(
            self.messages + state.messages_sent,
            self.size + state.bytes_sent,
            self.lost + state.messages_lost,
            self.core_seconds + state.core_seconds,
        )


class FaultCounts(msgspec.Struct, forbid_unknown_fields=True):
    """The effects of faults on a validator, as one of its host's processes counted them."""

    process: Process
    index: int
    """Index of the validator."""
    delays: DelayCounts
    links: dict[int, LinkCounts]
    """Effects on messages, keyed by link fault."""


class HostReports(msgspec.Struct, forbid_unknown_fields=True):
    """The reports of a host's validators, by index."""

    addresses: list[ValidatorAddress] = []
    states: dict[int, LoopState] = {}
    """The last reported state of each validator in the current process; empty while the host is down."""
    old_file_sizes: dict[int, dict[str, int]] = {}
    counts: list[FaultCounts] = []
    lags: list[LagSpan] = []
    """Lags since the last call of :meth:`take_lags`."""
    totals_before: Totals = Totals()
    """Totals of processes that are gone, as far as they reported."""

    @property
    def totals(self) -> Totals:
        return reduce(Totals.plus, self.states.values(), self.totals_before)

    def started(self, addresses: list[ValidatorAddress]) -> None:
        self.addresses = addresses
        self.states = {address.index: self.states.get(address.index, LoopState()) for address in addresses}

    def take(self, process: Process, view: HostView) -> None:
        """Take the parts of a report that count in every phase."""
        self.lags += view.lags
        told = {validator.index for validator in view.validators}
        self.counts = [each for each in self.counts if each.process != process or each.index not in told]
        for validator in view.validators:
            self.counts.append(FaultCounts(process, validator.index, validator.delay_counts, validator.link_counts))
            self.old_file_sizes[validator.index] = validator.old_file_sizes

    def take_states(self, view: HostView) -> None:
        self.states = {validator.index: validator.state for validator in view.validators}

    def end(self) -> None:
        self.totals_before = self.totals
        self.states = {}

    def take_lags(self) -> list[LagSpan]:
        """Reported lags since the last call."""
        lags, self.lags = self.lags, []
        return lags

    def delays(self, index: int, kind: str) -> int:
        """The number of a validator's operations that a kind of impairment slowed down."""
        return sum(getattr(each.delays, kind) for each in self.counts if each.index == index)

    def link_counts(self, key: int) -> LinkCounts:
        """Effects of a fault of links on the messages of this host."""
        return sum((each.links[key] for each in self.counts if key in each.links), LinkCounts())
