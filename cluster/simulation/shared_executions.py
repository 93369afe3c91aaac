"""Executions that the validators of one simulated run share: a block that one executed, the others take over.

Executing a block is a pure function of the parent's state and the block's bytes, and each validator of a network
computes it again: half of what a simulated run costs. Here the first validator that executes a block, at its own state
and with its own index, does it for all. Another one takes the outcome over if it runs the same code, the production's
(:attr:`SharedExecutions.executor` is put nowhere else), if its parent's state has the same root, and if the block is
the same. It still moves its own index by the changes, applies them to its own state tree, and computes the root of that
itself: with another root than the first validator's it executes the block. Who proposed a block has built it, which is
never taken over.

What is not seen any more is a transition that depends on something else: a clock, the order of a set, an index that a
reorganization left wrong. So runs that look for nondeterminism share nothing, and neither does every hundredth seed of
a sweep (:mod:`cluster.tools.sweeps.tasks`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from validator.node.assembly import Parts
from validator.node.executor.executor import Executor
from validator.primitives.types import Hash
from validator.state.working_set import batch_of
from validator.transition.transition import Outcome, PreparedTransaction, Transition

REMEMBERED_BLOCKS: Final = 64
"""Blocks whose outcomes are remembered, the oldest forgotten first. Who comes later executes by itself."""


class SharedExecutions:
    """One run's. ``executor`` is the class of executors that share."""

    def __init__(self) -> None:
        self.executor = type("SharingExecutor", (_SharingExecutor,), {"shared": self})
        self.taken_over = 0
        """Executions that were not computed again."""
        self._outcomes: OrderedDict[tuple[Hash, Hash], Outcome] = OrderedDict()

    def for_parts(self, parts: Parts) -> Parts:
        """A validator's parts; those of the production's code share."""
        is_production = parts.executor is Executor and parts.transition is Transition
        return replace(parts, executor=self.executor) if is_production else parts

    def find(self, parent_root: Hash, digest: Hash) -> Outcome | None:
        """The outcome of a block on a parent with this state root."""
        return self._outcomes.get((parent_root, digest))

    def note(self, parent_root: Hash, digest: Hash, outcome: Outcome) -> None:
        """A validator executed a block."""
        self._outcomes[parent_root, digest] = outcome
        if len(self._outcomes) > REMEMBERED_BLOCKS:
            self._outcomes.popitem(last=False)


class _SharingExecutor(Executor):
    """An executor that takes outcomes over."""

    shared: SharedExecutions

    def _apply(self, digest: Hash, transition: Transition, prepared: Sequence[PreparedTransaction]) -> Outcome:
        parent, height = transition.parent, transition.context.height
        known = self.shared.find(parent.root, digest)
        if known is not None:
            view = parent.derive(height, batch_of(known.changes))
            if view.root == known.state_root:
                self.index.begin_again(height, known.changes)
                self.shared.taken_over += 1
                return replace(known, view=view)
        outcome = super()._apply(digest, transition, prepared)
        self.shared.note(parent.root, digest, outcome)
        return outcome
