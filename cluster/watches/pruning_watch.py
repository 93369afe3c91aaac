"""The watch of pruning: it checks that validators prune no block that the disk must keep, or that a peer needs."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.audit.safety.rule_log import Look
from cluster.record.rules import SafetyRule
from cluster.simulation.machine import Machine
from cluster.watches.watch import Watch
from validator.node.events import BlockFinal


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
