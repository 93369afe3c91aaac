"""The watch of pruning: it checks that validators prune no block that the disk must keep, or that a peer needs."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.audit.safety.rule_log import Look
from cluster.record.rules import SafetyRule
from validator.node.executor.executor import Executor


class PruningWatch:
    """Checks in one run that honest validators prune no block that they must keep."""

    def __init__(self, names: Sequence[str], keep_blocks: int | None, look: Look) -> None:
        """``keep_blocks`` is from the section ``storage``."""
        self._names = names
        self._keep_blocks = keep_blocks
        self._look = look
        self._allowed = [0] * len(names)
        """For each validator, the height up to which it may have pruned its blocks."""
        self._told = [0] * len(names)
        """For each validator, the height up to which it was told in its present life that others have its blocks."""

    def recovers(self, index: int, height: int) -> None:
        """Note that a validator opens its disk at this final height. The last commit before, which may have pruned, may
        not have been reported."""
        self._allow(index, height, self._told[index])
        self._told[index] = 0

    def finalizes(self, index: int, executor: Executor) -> None:
        """Check which blocks a validator still has, after it made a block final."""
        archive = executor.archive
        self._allow(index, executor.final_header.height, self._told[index])
        self._told[index] = executor.prunable_height
        least = max(archive.joined_height, self._allowed[index])
        first = archive.first_height
        holds = first <= least
        what = (
            "" if holds else f"{self._names[index]} has blocks from height {first + 1} on, and must from {least + 1} on"
        )
        self._look(SafetyRule.PRUNING, holds, what)

    def _allow(self, index: int, height: int, most: int) -> None:
        if self._keep_blocks is not None:
            self._allowed[index] = max(self._allowed[index], min(height - self._keep_blocks, most))
