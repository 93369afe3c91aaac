"""Bugs in the state tree and in the views over it."""

from __future__ import annotations

from typing import Any

from cluster.misbehaviour.planted import RunCounter
from kits.mutation.bugs.table import ALL, ONE, Area, Detection, MutantTable, Mutated, parts_with
from validator.node.assembly import Parts
from validator.state.engines.plain import PlainEngine
from validator.state.hashing import ABSENT_TWIG, twig_hash
from validator.state.merkle import Tree, TreeUndo
from validator.state.prover import PastState, Prover
from validator.state.store import LogStateStore, _StateView
from validator.storage.disk import Disk
from validator.transition.transition import PreparedTransaction, Transition

MUTANTS = MutantTable(Area.STATE, "state_roots")


@MUTANTS.parts("root-without-active-bits", Detection("calm", ALL), "safety", "proofs")
def _root_without_bits(counter: RunCounter) -> Parts:
    """twig roots leave the active bits out"""

    class TreeWithoutBits(Tree):
        def _put(self, level: int, indexes: list[int], row: list[bytes], undo: TreeUndo) -> None:
            if level == 0:
                counter.ran()
                row = [twig_hash(self._twigs[index].entries_root, ABSENT_TWIG.active_bits) for index in indexes]
            super()._put(level, indexes, row, undo)

    class EngineWithoutBits(PlainEngine):
        def __init__(self) -> None:
            super().__init__()
            self.tree = TreeWithoutBits()

    class ProverWithoutBits(Prover):
        def _bits(self, index: int, past: PastState) -> bytes:
            return ABSENT_TWIG.active_bits

    class StoreWithoutBits(LogStateStore):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self._prover = ProverWithoutBits(self._engine, self._log, self.origin)

        @classmethod
        def open(cls, disk: Disk, *_: Any, **given: Any) -> LogStateStore:
            return super().open(disk, engine=EngineWithoutBits(), **given)

    return parts_with(StoreWithoutBits)


@MUTANTS.part("reads-another-branch", Detection("forks", ONE, seeds=12))
class ReadsAnotherBranch(Mutated, LogStateStore):
    """a view reads the state of another branch, the one that the engine was last at"""

    def value(self, view: _StateView, key: bytes) -> bytes | None:
        right, wrong = super().value(view, key), self._engine.get(key)
        self.counter.runs += right != wrong
        return wrong


@MUTANTS.parts("links-not-kept", Detection("calm", ALL), "safety", "proofs")
def _deleted_key_stays_linked(counter: RunCounter) -> Parts:
    """a key's link is not written again when the next key comes or goes"""

    class KeepsLinks(PlainEngine):
        def _relink(self, changed: Any) -> Any:
            order, gone = super()._relink(changed)
            kept = [place for place in order if place in changed]
            counter.runs += len(order) - len(kept)
            return kept, gone

    class StoreThatKeepsLinks(LogStateStore):
        @classmethod
        def open(cls, disk: Disk, *_: Any, **given: Any) -> LogStateStore:
            return super().open(disk, engine=KeepsLinks(), **given)

    return parts_with(StoreThatKeepsLinks)


FIRST_HEIGHT = 6
"""The bug sleeps until this height, so that the height which the checks name is not simply the first."""


@MUTANTS.part("wrong-balance", Detection("calm", ONE))
class WrongBalance(Mutated, Transition):
    """from height 6 on, a transaction's sender is refunded one unit too much"""

    def execute(self, prepared: PreparedTransaction) -> None:
        Transition.execute(self, prepared)
        if self.context.height >= FIRST_HEIGHT:
            self.counter.ran()
            self.world.credit(prepared.transaction.sender, 1)
