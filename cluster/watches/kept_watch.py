"""The watches of what validators keep: no more in memory than the bounds of ``docs/consensus.md`` and
``docs/protocol.md``, and each block that the disk must keep or that a peer needs."""

from __future__ import annotations

from collections.abc import Sequence
from operator import le
from typing import Final

from cluster.audit.safety.rule_log import Look
from cluster.record.rules import SafetyRule
from cluster.scenario.model import LimitsSection
from cluster.simulation.machine import Machine
from cluster.watches.watch import Watch
from consensus.voting import Sizes
from validator.node.events import BlockFinal
from validator.node.mempool import PoolSizes

VOTES_PER_SIGNER: Final = 3
"""Votes of one signer in one view: one of each kind in its protocol."""


def bounds(view: int, final_view: int, signers: int, limits: LimitsSection) -> Sizes:
    """The upper bounds of what a consensus engine keeps in ``view``, with the newest final view and ``signers``
    validators."""
    open_views = view - final_view
    behind = min(open_views + limits.evidence_views, limits.retained_views + 1)
    return Sizes(
        rounds=behind + max(limits.view_window, limits.proposal_window),
        votes=VOTES_PER_SIGNER * signers,
        proposals=1 + limits.proposal_window,
        own=open_views,
        certificates=open_views + limits.retained_views,
    )


def pool_bounds(limits: LimitsSection) -> PoolSizes:
    """The upper bounds of what a mempool keeps (``docs/protocol.md``)."""
    return PoolSizes(limits.max_transactions, limits.max_bytes, limits.max_idle_senders)


def excesses(kept: Sizes | PoolSizes, most: Sizes | PoolSizes) -> list[str]:
    """The amounts beyond their bounds, in words; both arguments are of the same kind."""
    if all(map(le, kept, most)):
        return []
    named = zip(kept._fields, kept, most, strict=True)
    return [f"{name} {count:,} of {bound:,}" for name, count, bound in named if count > bound]


class MemoryWatch(Watch):
    """Checks in one run, at each view, what honest validators keep in memory."""

    def __init__(self, names: Sequence[str], look: Look, limits: LimitsSection) -> None:
        super().__init__(names, look)
        self._limits, self._pool_bounds = limits, pool_bounds(limits)

    def enters(self, machine: Machine, view: int) -> None:
        if machine.validator is None:
            return  # a fault stopped it just now
        node = machine.validator.node
        excess = [
            *excesses(node.consensus_sizes, bounds(view, node.final_view, len(self._names), self._limits)),
            *excesses(node.mempool.sizes, self._pool_bounds),
        ]
        what = f"{machine.name} keeps too much in view {view}: {', '.join(excess)}" if excess else ""
        self._look(SafetyRule.BOUNDED, not excess, what)


class PruningWatch(Watch):
    """Checks in one run that honest validators prune no block that they must keep."""

    effects = frozenset({BlockFinal})

    def __init__(self, names: Sequence[str], look: Look, keep_blocks: int | None) -> None:
        """``keep_blocks`` is from the section ``storage``."""
        super().__init__(names, look)
        self._keep_blocks = keep_blocks
        self._allowed = [0] * len(names)
        """For each validator, the height up to which it may have pruned its blocks."""
        self._told = [0] * len(names)
        """For each validator, the height up to which it was told in its present life that others have its blocks."""

    def opens(self, machine: Machine) -> None:
        """The last commit before the start, which may have pruned, may not have been reported."""
        assert machine.validator is not None, "it has opened its disk"
        self._allow(machine.index, machine.validator.executor.recovered_height)
        self._told[machine.index] = 0

    def performs(self, machine: Machine, effect: BlockFinal) -> None:
        """Check which blocks a validator still has. It is told just before which of them others have by now."""
        assert machine.validator is not None, "it has made a block final"
        index, executor = machine.index, machine.validator.executor
        archive = executor.archive
        self._allow(index, executor.final_header.height)
        self._told[index] = executor.prunable_height
        least = max(archive.joined_height, self._allowed[index])
        first = archive.first_height
        holds = first <= least
        what = f"{machine.name} has blocks from height {first + 1} on, and must from {least + 1} on"
        self._look(SafetyRule.PRUNING, holds, what)

    def _allow(self, index: int, height: int) -> None:
        if self._keep_blocks is not None:
            self._allowed[index] = max(self._allowed[index], min(height - self._keep_blocks, self._told[index]))
