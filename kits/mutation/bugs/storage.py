"""Bugs in what reaches the disk, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cluster.misbehaviour.planted import RunCounter
from consensus.messages import Vote
from kits.mutation.bugs.table import ALL, Area, Detection, MutantTable, Mutated, parts_with
from validator.chain.messages import read_message
from validator.node.assembly import Parts
from validator.node.blocks.finality import Finality
from validator.node.events import ReplaceJournal
from validator.node.executor.executor import Executor
from validator.node.executor.jobs import Finalize, Finalized, FinalizedInvalid
from validator.node.snapshot_join import PastViews, SnapshotJoin
from validator.primitives.codec import CodecError
from validator.primitives.types import HEIGHT_LIMIT
from validator.state.engine import SectionHead
from validator.state.hashing import TWIG_LEVELS
from validator.state.intake import SnapshotIntake
from validator.state.interface import View
from validator.state.log import StateLog, begin_with_snapshot, chunk_name, snapshot_meta
from validator.state.merkle import pruned_peaks
from validator.state.snapshot import SnapshotError
from validator.state.store import LogStateStore
from validator.storage.archive import BlockArchive
from validator.storage.disk import Disk
from validator.storage.journal import JournalContent, encode_journal, open_journal

MUTANTS = MutantTable(Area.STORAGE)


class _Around:
    """A disk that forwards all operations; derived classes override some."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


@MUTANTS.parts("unsynced-meta", Detection("restarts", ALL, seeds=8), "no_problems")
def _unsynced_meta(counter: RunCounter) -> Parts:
    """a commit of the state does not sync its frame and meta record"""

    class NeverSynced(_Around):
        """A log's disk whose syncs do nothing."""

        def sync(self, name: str) -> None:
            counter.ran()

    class Unsynced(LogStateStore):
        def __init__(self, log: StateLog, *rest: Any) -> None:
            super().__init__(log, *rest)
            log.disk = NeverSynced(log.disk)

    return parts_with(Unsynced)


@MUTANTS.part("archive-not-synced", Detection("restarts", ALL, seeds=8), "no_problems")
class NotSynced(Mutated, BlockArchive):
    """a final block is archived without a sync"""

    def _write(self, name: str, record: bytes) -> None:
        self.counter.ran()
        self._disk.append(name, record)


@MUTANTS.part("prune-before-commit", Detection("pruning", ALL, seeds=8), "no_problems")
class PrunesFirst(Mutated, LogStateStore):
    """what the new state does not need is removed before the new state is durable"""

    def commit(self, view: View) -> None:
        count, branch = 0, view.branch()  # type: ignore[attr-defined]
        if branch:
            first_twig = SectionHead.decode(branch[-1].step.section, 0).oldest >> TWIG_LEVELS
            self._stand_at(branch[-1])
            count = self._log.prunable_segments(first_twig << TWIG_LEVELS, view.height)
            if count:
                self.counter.ran()
                peaks = [self._engine.tree.upper_node(*place) for place in pruned_peaks(first_twig)]
                self._log.prune(count, first_twig, peaks)
                self._engine.forget(first_twig)
        super().commit(view)
        while count and len(self._floors) > 1:
            self._floors.popleft()

    def _prune(self) -> None:
        """Does nothing: the pruning is done."""


@MUTANTS.part("prunes-what-peers-need", Detection("kept-blocks", ALL), "no_problems")
class PrunesUnreleased(Mutated, Executor):
    """final blocks are removed though a peer that is down lacks them"""

    def _finalize(self, job: Finalize) -> Finalized | FinalizedInvalid:
        released, self.prunable_height = self.prunable_height, HEIGHT_LIMIT
        result = super()._finalize(job)
        self.prunable_height = released
        self.counter.runs += self._archive.first_height > released
        return result


@MUTANTS.part("prunes-one-too-many", Detection("kept-blocks", ALL), "safety", "pruning")
class PrunesOneMore(Mutated, BlockArchive):
    """pruning takes one final block more than it may"""

    def prune(self, height: int) -> None:
        super().prune(height + 1)
        self.counter.runs += self.first_height == height + 1


@MUTANTS.part("snapshot-chunk-unchecked", Detection("false-snapshot", (2,)), "no_problems")
class TakesAnyChunk(Mutated, SnapshotIntake):
    """a joining validator takes the chunks of a snapshot as they come"""

    def take_chunk(self, chunk: int, data: bytes) -> None:
        try:
            super().take_chunk(chunk, data)
        except SnapshotError:
            self.counter.ran()
            self._disk.replace(chunk_name(self._folder, chunk), data)
            self._missing.discard(chunk)

    def install(self) -> None:
        try:
            super().install()
        except SnapshotError:
            manifest = self.manifest
            assert manifest is not None, "a snapshot is installed whole"
            meta = snapshot_meta(manifest.height, self.root, manifest.next_position)
            begin_with_snapshot(self._disk, self._folder, meta, manifest.first_twig, manifest.peaks)


@MUTANTS.part("journal-dropped-on-replace", Detection("long", ALL, seeds=12), "evidence")
class DropsJournal(Mutated, Finality):
    """replacing the journal drops the votes above the final block"""

    def _replace_journal(self) -> None:
        """Begins an empty journal, as if it needed nothing beyond the archived blocks."""
        kept: Sequence[bytes] = self.engine.journal_snapshot()
        self.counter.runs += bool(kept)
        self.effects.append(ReplaceJournal(encode_journal((), ())))


@MUTANTS.parts("journal-read-unsynced", Detection("upgrades", ALL, seeds=8), "safety", "durable_votes")
def _journal_as_it_is(counter: RunCounter) -> Parts:
    """what a restart reads of the journal is not made durable before it is repeated"""

    class NeverReplaced(_Around):
        """A disk whose journal is never replaced at the start."""

        def replace(self, name: str, data: bytes) -> None:
            if name in self._disk.names():
                counter.ran()
            else:
                self._disk.replace(name, data)

    def read(disk: Disk) -> JournalContent:
        found: Any = NeverReplaced(disk)
        return open_journal(found)

    return Parts(journal=read)


@MUTANTS.part("joins-on-one-word", Detection("one-peer", ALL), "safety", "abstention")
class TakesOneWord(Mutated, PastViews):
    """one peer's view ends the abstention of who lost its journal"""

    @property
    def are_known(self) -> bool:
        self.counter.runs += bool(self.reported) and not super().are_known
        return bool(self.reported)


@MUTANTS.part("joins-on-votes", Detection("lost-disk", ALL, seeds=12), "safety", "abstention")
class TakesVotes(Mutated, SnapshotJoin):
    """a vote counts as proof of the view that its sender is in, for who lost its journal"""

    def _on_message(self, sender: int, payload: bytes) -> None:
        try:
            message = read_message(payload)
        except CodecError:
            message = None
        if isinstance(message, Vote) and sender not in self._views.reported:
            self.counter.ran()
            self._views.reported[sender] = message.view
        super()._on_message(sender, payload)
