"""The watch of execution: it checks that validators work only on the tree of blocks above their final block.

A block is *live* if it is the newest final one, or was executed or built on a live block. The watch knows this from the
jobs that a validator gives its executor and from their results. The rules:

- A block is executed, or built, on a live block: no work is done for a branch that the finality of another one ended.
- A block becomes final on the newest final one. A violation is reported when the block is archived, if the block was
  not live when it became final.
- Final blocks are archived in their order.
- The journal is replaced with the first block archived after a start, and then after every ``journal_blocks``. It keeps
  the bodies of all final blocks that are not archived, and of all live ones that the validator executed. It keeps no
  body of a block that is neither final nor live.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cluster.audit.safety.rule_log import Look
from cluster.record.rules import Mechanism, SafetyRule
from cluster.simulation.machine import Machine
from cluster.watches.watch import Watch
from validator.chain.block import Header, decode_block, header_hash
from validator.node.events import Completed, Diverged, Effect, Event, ReplaceJournal, Run
from validator.node.executor.jobs import Build, Built, Execute, Executed, Finalize, Finalized, Job
from validator.primitives.types import Hash
from validator.storage.frames import split
from validator.storage.journal import decode_batch


@dataclass(slots=True)
class _Tree:
    """The blocks of one validator that are final or live, since its start."""

    final: Hash
    """The newest block that the validator made final, archived or not."""
    height: int
    live: dict[Hash, Hash] = field(default_factory=dict)
    """The live blocks above ``final``, each with its parent; a parent comes before its children."""
    executed: set[Hash] = field(default_factory=set)
    running: dict[Hash, Hash] = field(default_factory=dict)
    """Blocks that are being executed, each with its parent."""
    unarchived: list[Hash] = field(default_factory=list)
    """Final blocks whose archiving is under way, the oldest first."""
    journal_height: int | None = None
    """The height at which the journal was last replaced."""

    def is_live(self, digest: Hash) -> bool:
        return digest == self.final or digest in self.live

    def finalize(self, digest: Hash) -> None:
        """Make a block the newest final one, and drop all branches that do not contain it."""
        self.final, self.height = digest, self.height + 1
        self.unarchived.append(digest)
        live: dict[Hash, Hash] = {}
        for block, parent in self.live.items():
            if parent == digest or parent in live:
                live[block] = parent
        self.live = live
        self.executed &= live.keys()
        self.running = {block: parent for block, parent in self.running.items() if self.is_live(parent)}


class ExecutionWatch(Watch):
    """Checks in one run which blocks honest validators execute, finalize and keep in their journals."""

    SUBJECTS = frozenset({Completed})
    JUDGED = frozenset({Build, Diverged, Execute, Finalize, ReplaceJournal})

    def __init__(self, names: Sequence[str], look: Look, journal_blocks: int) -> None:
        """``journal_blocks`` is from the section ``limits``."""
        super().__init__(names, look)
        self._journal_blocks = journal_blocks
        self._trees: list[_Tree | None] = [None] * len(names)

    def begins(self, machine: Machine) -> None:
        assert machine.validator is not None, "it has started"
        executor = machine.validator.executor
        self._trees[machine.index] = _Tree(executor.final_digest, executor.final_header.height)

    def judge(self, machine: Machine, event: Event, effects: Sequence[Effect]) -> None:
        """Check the jobs that a validator gives its executor, and its journal."""
        index = machine.index
        tree = self._trees[index]
        if tree is None:
            return
        is_due = type(event) is Completed and self._completed(index, tree, event)
        for effect in effects:
            if type(effect) is Run:
                self._runs(index, tree, effect.job)
            elif type(effect) is ReplaceJournal:
                self._tell(index, is_due, f"replaces its journal at height {tree.height}, not when it is due")
                is_due = False
                self._replaces(index, tree, effect.data)
            elif type(effect) is Diverged:
                self._trees[index] = None
                return
        if type(event) is Completed:
            self._tell(index, not is_due, f"does not replace its journal at height {tree.height}")

    def _runs(self, index: int, tree: _Tree, job: Job) -> None:
        """Check a job that a validator gives its executor."""
        if type(job) is Execute:
            parent, height = Hash(job.block.header.parent_hash), job.block.header.height
            self._tell(index, tree.is_live(parent), f"executes a block of height {height} on a dead one")
            tree.running[job.digest] = parent
        elif type(job) is Build:
            self._tell(index, tree.is_live(job.parent), f"builds its block of view {job.view} on a dead one")
        elif type(job) is Finalize:
            self._finalizes(index, tree, job.digest)

    def _completed(self, index: int, tree: _Tree, event: Completed) -> bool:
        """Handle a job's result. Returns whether the journal must be replaced."""
        match event.result:
            case Executed(digest, error):
                parent = tree.running.pop(digest, None)
                if error is None and parent is not None and tree.is_live(parent):
                    tree.live[digest] = parent
                    tree.executed.add(digest)
            case Built(parent=parent, digest=digest):
                if tree.is_live(parent):
                    tree.live[digest] = parent
            case Finalized(digest=digest, header=header):
                self._tell(
                    index, tree.unarchived[:1] == [digest], f"archives the block of height {header.height} too soon"
                )
                if digest in tree.unarchived:
                    tree.unarchived.remove(digest)
                last = tree.journal_height
                if last is not None and header.height < last + self._journal_blocks:
                    return False
                if last is not None:
                    self.reached.add(Mechanism.JOURNAL_REPLACED)
                tree.journal_height = header.height
                return True
        return False

    def _finalizes(self, index: int, tree: _Tree, digest: Hash) -> None:
        parent = tree.live.get(digest)
        if parent is None:
            return  # it did not execute: the answer will be that the validator diverged
        self._tell(
            index, parent == tree.final, f"makes a block final above height {tree.height} that is not on its final one"
        )
        tree.finalize(digest)

    def _replaces(self, index: int, tree: _Tree, data: bytes) -> None:
        kept = {header_hash(header): header for header in _headers(data)}
        missing = (set(tree.unarchived) | tree.executed) - kept.keys()
        self._tell(index, not missing, f"writes a journal without {len(missing)} blocks that it needs")
        dead: set[bytes] = set()
        for digest, header in sorted(kept.items(), key=lambda item: item[1].height):
            if digest in tree.unarchived or digest in tree.live:
                continue
            is_past = header.height <= tree.height
            is_beside = header.height == tree.height + 1 and header.parent_hash != tree.final
            if is_past or is_beside or header.parent_hash in dead:
                dead.add(digest)
        self._tell(index, not dead, f"writes a journal with {len(dead)} blocks of dead branches")

    def _tell(self, index: int, holds: bool, what: str) -> None:
        self._look(SafetyRule.EXECUTION, holds, "" if holds else f"{self._names[index]} {what}")


def _headers(journal: bytes) -> Iterator[Header]:
    """The headers of the block bodies in a journal."""
    for each in split(journal)[0]:
        for body in decode_batch(each.payload).bodies:
            block = decode_block(body)
            if block is not None:
                yield block.header
