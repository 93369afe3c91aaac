"""Shared executions of a simulated run: a block is executed by one validator, and the others take over the outcome.

Executing a block is a pure function of the parent's state and the block's bytes, which each validator of a network
repeats: half of the cost of a simulated run. Here the validator that builds a block, or the first one that executes
it, does so for all, at its own state and with its own index. Another validator takes over the outcome if it runs the
production's code (:attr:`SharedExecutions.executor` is used nowhere else), if its parent's state has the same root, and
if the block is the same. One block in :data:`COMPARED_BLOCKS`, chosen by its hash, is executed by a second validator
all the same: its header tells whether building and executing differ.

The other validator still updates its own index and moves its own state tree. The new entries, nodes and root are a
function of the parent's root and the block's changes: it takes them over too (:func:`validator.state.store.repeat`),
unless its tree had other values or positions for the changed keys. In that case, and with a state that has outgrown the
plain engine, it applies the changes and computes the root: if the root differs from the first validator's, it executes
the block.

This hides a transition that depends on something else: a clock, the order of a set, an index that a reorganization left
wrong. So runs that look for nondeterminism share nothing, and neither does every hundredth seed of a sweep
(:mod:`cluster.commands.sweeps.tasks`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from validator.node.assembly import Parts
from validator.node.executor import jobs
from validator.node.executor.executor import BlockExecution, Executor
from validator.primitives.types import Hash
from validator.state.store import ViewRecord, record_of, repeat
from validator.state.working_set import batch_of
from validator.transition.transition import BlockResult, PreparedTransaction, Transition

REMEMBERED_BLOCKS: Final = 64
"""Maximum number of blocks whose outcomes are kept; the oldest are dropped first. A validator executes a block whose
outcome was dropped."""
COMPARED_BLOCKS: Final = 8
"""A validator that did not build a block executes it if the first byte of its hash is a multiple of this."""


class SharedExecution(NamedTuple):
    """The execution of a block that other validators take over."""

    outcome: BlockResult
    record: ViewRecord | None
    """The record of the state after the block; ``None`` if the validator's store makes none."""


class SharedExecutions:
    """The outcomes of blocks that the validators of one run share. ``executor`` is the executor that uses them."""

    def __init__(self) -> None:
        self.executor = type("SharingExecutor", (_SharingExecutor,), {"shared": self})
        self.taken_over = 0
        """Number of executions that were taken over."""
        self._executions: OrderedDict[tuple[Hash, Hash], SharedExecution] = OrderedDict()

    def for_parts(self, parts: Parts) -> Parts:
        """A validator's parts, with an executor that shares executions if they are the production's."""
        is_production = parts.executor is Executor and parts.transition is Transition
        return replace(parts, executor=self.executor) if is_production else parts

    def find(self, parent_root: Hash, digest: Hash) -> SharedExecution | None:
        """The execution of a block on a parent with this state root, if it is known."""
        return self._executions.get((parent_root, digest))

    def note(self, parent_root: Hash, digest: Hash, outcome: BlockResult) -> None:
        """Note the outcome of a block that a validator built or executed just now."""
        self._executions[parent_root, digest] = SharedExecution(outcome, record_of(outcome.view))
        if len(self._executions) > REMEMBERED_BLOCKS:
            self._executions.popitem(last=False)


class _SharingExecutor(Executor):
    """An executor that takes over the outcome of a block that another validator executed."""

    shared: SharedExecutions

    def _build(self, job: jobs.Build) -> jobs.Built:
        built = super()._build(job)
        if built.digest[0] % COMPARED_BLOCKS:
            executed = self._branches.executed(built.digest)
            assert executed is not None, "a validator keeps what it built"
            root = Hash(self._branches.header_of(job.parent).state_root)
            self.shared.note(root, built.digest, executed.outcome)
        return built

    def _apply(self, digest: Hash, transition: BlockExecution, prepared: Sequence[PreparedTransaction]) -> BlockResult:
        parent, height = transition.parent, transition.context.height
        known = self.shared.find(parent.root, digest)
        if known is not None:
            changes = known.outcome.changes
            view = None if known.record is None else repeat(parent, known.record)
            if view is None:
                view = parent.derive(height, batch_of(changes))
            if view.root == known.outcome.state_root:
                self.index.begin_again(height, changes)
                self.shared.taken_over += 1
                return replace(known.outcome, view=view)
        outcome = super()._apply(digest, transition, prepared)
        self.shared.note(parent.root, digest, outcome)
        return outcome
