"""Bugs in what reaches the disk, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cluster.misbehaviour.mutants.base import ALL, Area, Detection, MutantTable, RunCounter
from consensus.messages import Vote
from validator.chain.block import BlockReceipts
from validator.chain.messages import read_message
from validator.node.assembly import Parts
from validator.node.blocks.finality import Finality
from validator.node.events import ReplaceJournal
from validator.node.executor.executor import Executor
from validator.node.joining.past_views import PastViews
from validator.node.joining.snapshot_join import SnapshotJoin
from validator.node.node import Node
from validator.primitives.codec import CodecError, encode
from validator.state.engine import SectionHead
from validator.state.hashing import TWIG_LEVELS
from validator.state.intake import SnapshotIntake
from validator.state.interface import View
from validator.state.log import StateLog, begin_with_snapshot, chunk_name, snapshot_meta
from validator.state.merkle import pruned_peaks
from validator.state.snapshot import SnapshotError
from validator.state.store import LogStateStore
from validator.storage.archive import ARCHIVE_FILE, ArchivedBlock, BlockArchive
from validator.storage.disk import Disk
from validator.storage.frames import frame
from validator.storage.journal import JournalContent, encode_journal, open_journal

MUTANTS = MutantTable(Area.STORAGE)


class _Around:
    """A disk, but for what a derived class does in its place."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


def _with_store(store: type[LogStateStore]) -> Parts:
    class Mutated(Executor):
        store_class = store

    return Parts(executor=Mutated)


@MUTANTS.parts(
    "unsynced-meta",
    "a commit of the state does not sync its frame and meta record",
    Detection("restarts", ALL, seeds=8),
    "no_problems",
)
def _unsynced_meta(counter: RunCounter) -> Parts:
    class NeverSynced(_Around):
        """A log's disk whose syncs do nothing."""

        def sync(self, name: str) -> None:
            counter.ran()

    class Unsynced(LogStateStore):
        def __init__(self, log: StateLog, *rest: Any) -> None:
            super().__init__(log, *rest)
            log.disk = NeverSynced(log.disk)

    return _with_store(Unsynced)


@MUTANTS.parts(
    "archive-not-synced",
    "a final block is not durable before its state is",
    Detection("restarts", ALL, seeds=8),
    "no_problems",
)
def _archive_not_synced(counter: RunCounter) -> Parts:
    class NotSynced(BlockArchive):
        def append(self, archived: ArchivedBlock, receipts: BlockReceipts) -> None:
            counter.ran()
            self._index(self._disk.append(ARCHIVE_FILE, frame(encode(archived))), receipts)

    class Mutated(Executor):
        archive_class = NotSynced

    return Parts(executor=Mutated)


@MUTANTS.parts(
    "prune-before-commit",
    "what the new state does not need is removed before the new state is durable",
    Detection("pruning", ALL, seeds=8),
    "no_problems",
)
def _prune_before_commit(counter: RunCounter) -> Parts:
    class PrunesFirst(LogStateStore):
        def commit(self, view: View) -> None:
            """Removes what the new state does not need, before the new state is durable."""
            count, branch = 0, view.branch()  # type: ignore[attr-defined]
            if branch:
                first_twig = SectionHead.decode(branch[-1].step.section, 0).oldest >> TWIG_LEVELS
                self._stand_at(branch[-1])
                count = self._log.prunable_segments(first_twig << TWIG_LEVELS, view.height)
                if count:
                    counter.ran()
                    peaks = [self._engine.tree.upper_node(*place) for place in pruned_peaks(first_twig)]
                    self._log.prune(count, first_twig, peaks)
                    self._engine.forget(first_twig)
            super().commit(view)
            while count and len(self._floors) > 1:
                self._floors.popleft()

        def _prune(self) -> None:
            """That was done."""

    return _with_store(PrunesFirst)


@MUTANTS.parts(
    "snapshot-chunk-unchecked",
    "a joining validator takes the chunks of a snapshot as they come",
    Detection("false-snapshot", (2,)),
    "no_problems",
)
def _unchecked_chunks(counter: RunCounter) -> Parts:
    class TakesAnyChunk(SnapshotIntake):
        def take_chunk(self, chunk: int, data: bytes) -> None:
            try:
                super().take_chunk(chunk, data)
            except SnapshotError:
                counter.ran()
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

    class JoinsBlindly(SnapshotJoin):
        intake_class = TakesAnyChunk

    return Parts(join=JoinsBlindly)


@MUTANTS.parts(
    "journal-dropped-on-replace",
    "replacing the journal drops the votes above the final block",
    Detection("long", ALL, seeds=12),
    "evidence",
)
def _journal_dropped(counter: RunCounter) -> Parts:
    class DropsJournal(Finality):
        def _replace_journal(self) -> None:
            """Begins an empty journal: what is archived needs none."""
            kept: Sequence[bytes] = self.engine.journal_snapshot()
            counter.runs += bool(kept)
            self.effects.append(ReplaceJournal(encode_journal((), ())))

    class MakesFinalWithoutJournal(Node):
        finality_class = DropsJournal

    return Parts(node=MakesFinalWithoutJournal)


@MUTANTS.parts(
    "journal-read-unsynced",
    "what a restart reads of the journal is not made durable before it is repeated",
    Detection("upgrades", ALL, seeds=8),
    "safety",
    "durable_votes",
)
def _journal_as_it_is(counter: RunCounter) -> Parts:
    class NeverReplaced(_Around):
        """A disk whose journal stays as it was found."""

        def replace(self, name: str, data: bytes) -> None:
            if name in self._disk.names():
                counter.ran()
            else:
                self._disk.replace(name, data)

    def read(disk: Disk) -> JournalContent:
        found: Any = NeverReplaced(disk)
        return open_journal(found)

    return Parts(journal=read)


@MUTANTS.parts(
    "joins-on-one-word",
    "one peer's view ends the abstention of who lost its journal",
    Detection("lost-disk", ALL),
    "safety",
    "abstention",
)
def _joins_on_one_word(counter: RunCounter) -> Parts:
    class TakesOneWord(PastViews):
        @property
        def are_known(self) -> bool:
            counter.runs += bool(self.reported) and not super().are_known
            return bool(self.reported)

    class JoinsOnOneWord(SnapshotJoin):
        views_class = TakesOneWord

    return Parts(join=JoinsOnOneWord)


@MUTANTS.parts(
    "joins-on-votes",
    "a vote counts as proof of the view that its sender is in, for who lost its journal",
    Detection("lost-disk", ALL, seeds=12),
    "safety",
    "abstention",
)
def _joins_on_votes(counter: RunCounter) -> Parts:
    class TakesVotes(SnapshotJoin):
        def _on_message(self, sender: int, payload: bytes) -> None:
            """Takes a peer to be in the view that it votes in."""
            try:
                message = read_message(payload)
            except CodecError:
                message = None
            if isinstance(message, Vote) and sender not in self._views.reported:
                counter.ran()
                self._views.reported[sender] = message.view
            super()._on_message(sender, payload)

    return Parts(join=TakesVotes)
