"""The state store: one final state, in a log on disk and in an engine in memory, and the views over it.

The rules, in addition to those of :mod:`validator.state.interface` and :mod:`validator.state.engine`:

- one engine is *at* one view, final or not. Deriving from a view first moves the engine there, back and forth along the
  tree of views, then applies the batch; a chain of blocks needs no movement;
- a view holds its block's batch and the undo data. Reads look at the batches from it back to the final view, then at
  the final state. The undo data is used only while the engine is at the view or above it: a view that the engine has
  left is applied again, by the engine of that time;
- a commit writes the branch from the final view to the new one to the log. The descendants of the new view are
  unaffected; all other views raise :class:`StaleViewError` from then on;
- a commit that finds ``packed_keys`` live keys moves the final state from the plain engine into the packed one, where
  it stays. No result changes by that, and no view becomes stale.

One process and one thread use a store; the disk ensures that no second process does.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from validator.primitives.types import HEIGHT_LIMIT, Hash, Height, ValidatorError
from validator.state.engine import Engine, SectionHead, Step
from validator.state.engines.plain import PlainEngine, StepRecord
from validator.state.hashing import COMPACTION_SLACK, TWIG_LEVELS
from validator.state.interface import Batch, View
from validator.state.log import MANIFEST_NAME, NO_SNAPSHOT, Recovery, StateLog, chunk_name, log_bytes, snapshot_meta
from validator.state.merkle import pruned_peaks
from validator.state.prover import PastState, Prover
from validator.state.snapshot import Manifest, SnapshotError, decode_chunk
from validator.storage.disk import Disk, DiskError

NEVER_CHECKED: Final = -1
"""The value of a view's checked epoch that makes its next use check whether the view is readable."""

RETAINED_HEIGHTS: Final = 256
"""Number of heights below the final one for which the store can make proofs, and to which it can be rewound."""

REMEMBERED_HEIGHTS: Final = 4
"""Number of past states whose differences from the final state are cached. Clients can request this many heights in
turn without a new computation."""

UNASKED_HEIGHTS: Final = 64
"""Number of blocks without a request for a proof or snapshot after which the cached data for them is dropped. It is up
to a third of a megabyte for each of up to 64 twigs, and can be read from the log again."""

PACKED_KEYS: Final = 8_192
"""Number of live keys from which on the store uses the packed engine. At this size it takes a quarter of the plain
engine's memory, and is faster for blocks of 50 changes. Below, the plain engine's reads are five times as fast, and
nothing has to be compiled."""

PACKED_LOG_BYTES: Final = 16 * 1024 * 1024
"""Size of the log from which on the packed engine replays it: the plain one would take more than a second."""

EMPTY_STEP: Final = Step(b"", Hash(b""), 0, 0, 0, None)


class ViewRecord(NamedTuple):
    """A view of one store as another store repeats it, at a parent with the same root. Nothing in it is mutable."""

    height: Height
    changes: tuple[tuple[bytes, bytes | None], ...]
    """The items of the view's batch."""
    step: StepRecord


class StaleViewError(ValidatorError):
    """A view was used after it was dropped, or after another branch became final."""


class HistoryError(ValidatorError):
    """The requested height is above the final one, or below the retained ones."""


def choose_engine(size: int) -> Engine:
    """The empty engine for the replay of a log of this many bytes."""
    return PlainEngine() if size < PACKED_LOG_BYTES else _packed_engine(COMPACTION_SLACK)


def _packed_engine(slack: int) -> Engine:
    """Make an empty packed engine. The import is here, so that a process with only small states loads no compiler."""
    from validator.state.engines.packed import PackedEngine

    return PackedEngine(slack)


class LogStateStore:
    """The final state and the views over it. Created by :meth:`open`."""

    def __init__(
        self,
        log: StateLog,
        engine: Engine | None = None,
        retained: int = RETAINED_HEIGHTS,
        packed_keys: int = PACKED_KEYS,
    ) -> None:
        self._log = log
        self._packed_keys = packed_keys
        self._engine: Engine = PlainEngine() if engine is None else engine
        self._retained = retained
        self.epoch = 0
        """Number of events so far that may have made a view stale. For views."""
        self.origin: Manifest | None = None
        """The snapshot with which the log begins."""
        self._prover: Prover | None = None
        self._past: OrderedDict[Height, tuple[PastState, Height]] = OrderedDict()
        """The last requested past states, each with the final height that it was compared with."""
        self._asked_at = 0
        """The final height at the last request."""
        self._floors: deque[tuple[Height, int]] = deque()
        self._replay()
        log.confirm(self._engine.root, self._engine.next_position)
        self._final = _StateView(self, None, log.meta.height, {}, EMPTY_STEP, self._engine.root)
        self.standing = self._final
        """The view that the engine is at. For views."""
        self._outgrow()

    @classmethod
    def open(
        cls,
        disk: Disk,
        folder: str = "state",
        engine: Engine | None = None,
        retained: int = RETAINED_HEIGHTS,
        packed_keys: int = PACKED_KEYS,
    ) -> LogStateStore:
        """Open the store in a folder of a disk, as its last durable commit left it; an empty one if there is none.

        Reads the whole log into ``engine``, which must be empty; by default :func:`choose_engine` makes it. A state of
        ``packed_keys`` live keys or more is moved into the packed engine, here or at the commit that makes it so large.
        Raises :class:`~validator.storage.disk.DiskError`, with file and offset, if the log is damaged below the
        newest valid meta record, or if the root that it gives is not the one recorded.
        """
        log = StateLog.open(disk, folder)
        chosen = choose_engine(log_bytes(disk, folder)) if engine is None else engine
        return cls(log, chosen, retained, packed_keys)

    @property
    def final(self) -> View:
        """The last committed view."""
        return self._final

    @property
    def recovery(self) -> Recovery:
        """What was found when the log was opened, such as the number of bytes that were cut off."""
        return self._log.recovery

    @property
    def log(self) -> StateLog:
        """The log, for reading."""
        return self._log

    @property
    def first_height(self) -> Height:
        """The oldest retained height: the store can make proofs of its state, and be rewound to it."""
        return self._floors[0][0] if self._floors else self._final.height

    def commit(self, view: View) -> None:
        """Make ``view`` final and durable with one sync, with every view between it and the last final one.

        Raises :class:`StaleViewError` if ``view`` does not descend from the final view, :class:`ValueError` if it
        belongs to another store, and :class:`~validator.storage.disk.DiskError` if the disk failed. After a disk
        failure further commits are refused until the store is opened again. If only the removal of old segments failed,
        ``view`` is final and durable, as :attr:`final` shows. Otherwise it is unknown what is durable, and every view
        stays as it was.
        """
        if not isinstance(view, _StateView) or view.store is not self:
            raise ValueError("a store commits only its own views")
        view.require_readable()
        branch = view.branch()
        if not branch:
            return
        self._log.commit(view.height, view.root, view.step.next_position, [layer.step.section for layer in branch])
        if view not in self.standing.branch():
            self._stand_at(view)
        self._note_floors(branch)
        previous, self._final = self._final, view
        if branch[0].height == previous.height:
            self._past.clear()  # this height has another state from now on
            if self._prover is not None:
                self._prover.forget_blocks()
        self.epoch += 1
        for layer in (previous, *branch[:-1]):
            layer.retire(f"height {view.height} became final")
        view.settle()
        self._prune()
        self._outgrow()
        if self._prover is not None and view.height - self._asked_at > UNASKED_HEIGHTS:
            self._forget_past()

    def drop(self, view: View) -> None:
        """Drop a view that is not final, and its descendants. Using them raises :class:`StaleViewError` from now on.

        Views need not be dropped; dropping one only helps to find its misuse.
        """
        if not isinstance(view, _StateView) or view.store is not self or view is self._final:
            raise ValueError("a store drops only its own views, and never the final one")
        view.require_readable()
        if view in self.standing.branch():
            assert view.parent is not None, "a view that is not final has a parent"
            self._stand_at(view.parent)
        self.epoch += 1
        view.retire("it was dropped")

    def rewind(self, height: Height) -> None:
        """Go back to the final state of an older height, durably.

        All views and the store become unusable: the store must be opened again, also after an error. Raises
        :class:`HistoryError` if the height is not retained, and :class:`~validator.storage.disk.DiskError` if the disk
        failed. After a disk failure the store opens at its former height, at the requested one, or between the two.
        """
        self._require_retained(height)
        is_there = height == self._final.height
        self.close()
        if is_there:
            return
        rest = self._log.rewind(height)
        if rest:
            log = StateLog.open(self._log.disk, self._log.folder)
            list(log.replay())
            head = SectionHead.decode(rest[-1], 0)
            log.commit(head.height, head.root, head.next_position, rest)

    def prove(self, key: bytes, height: Height | None = None) -> bytes:
        """The encoded proof of a key's value or absence in the final state, or in that of a retained height.

        :func:`validator.state.proof.verify` checks it against that height's state root. Raises
        :class:`HistoryError` if the height is not retained, and :class:`~validator.storage.disk.DiskError`.
        """
        prover, past = self._at(height)
        return prover.prove(key, past).encode()

    def manifest(self, height: Height | None = None) -> Manifest:
        """The manifest of the snapshot of a retained height, by default the final one. Raises :class:`HistoryError`."""
        prover, past = self._at(height)
        return prover.manifest(past)

    def chunk(self, number: int, height: Height | None = None) -> bytes:
        """A chunk of the snapshot of a retained height, by default the final one.

        Raises :class:`HistoryError`, and :class:`IndexError` if there is no such chunk.
        """
        prover, past = self._at(height)
        return prover.chunk(number, past)

    def _at(self, height: Height | None) -> tuple[Prover, PastState]:
        """The prover, and the state of a retained height, by default the final one. Raises :class:`HistoryError`."""
        self._require_retained(self._final.height if height is None else height)
        wanted = self._final.height if height is None else height
        engine = self.stand_at_final()
        self._asked_at = self._final.height
        self._prover = self._prover or Prover(engine, self._log, self.origin)
        past, known = self._past.pop(wanted, (None, wanted))
        if past is None:
            past = self._prover.past(wanted)
        elif known != self._final.height:
            self._prover.extend(past, known)
        self._past[wanted] = past, self._final.height
        if len(self._past) > REMEMBERED_HEIGHTS:
            self._past.popitem(last=False)
        return self._prover, past

    def root_at(self, height: Height) -> Hash:
        """The state root of a retained height. Raises :class:`HistoryError`."""
        self._require_retained(height)
        head = self._log.head_at(height)
        if head is not None:
            return head.root
        return self._final.root if self.origin is None else self.origin.root

    def close(self) -> None:
        """Make all views unusable. Commits stay; the disk is closed by its owner."""
        self.epoch += 1
        self._final.retire("the store was closed")
        self.standing = self._final
        self._engine = PlainEngine()

    # --- for views ----------------------------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The engine with the state in memory. It is at the view to which the store last moved it."""
        return self._engine

    def stand_at_final(self) -> Engine:
        """The engine, moved to the final state."""
        self._stand_at(self._final)
        return self._engine

    def value(self, view: _StateView, key: bytes) -> bytes | None:
        """The value of a key in a readable view."""
        if view is self.standing:
            return self._engine.get(key)
        layer = view
        while layer.parent is not None:
            if key in layer.changes:
                return layer.changes[key]
            layer = layer.parent
        for above in self.standing.branch():
            if key in above.changes:
                return above.before()[key]
        return self._engine.get(key)

    def derive(self, parent: _StateView, height: Height, batch: Batch) -> _StateView:
        """Derive the child of a readable view by applying a batch. The engine is at the child afterwards."""
        self._stand_at(parent)
        changes = dict(batch)
        step = self._engine.apply(height, changes)
        self.standing = _StateView(self, parent, height, changes, step, step.root)
        return self.standing

    def repeat(self, parent: _StateView, record: ViewRecord) -> _StateView | None:
        """Derive the child of a readable view from the record of another store; ``None`` if that is not possible."""
        self._stand_at(parent)
        step = self._engine.repeat(record.step) if isinstance(self._engine, PlainEngine) else None
        if step is None:
            return None
        self.standing = _StateView(self, parent, record.height, dict(record.changes), step, step.root)
        return self.standing

    def items(self, view: _StateView, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Keys with a prefix, and their values, in a readable view."""
        found = dict(self._engine.items(prefix))
        for above in reversed(self.standing.branch()):
            _overwrite(found, above.before(), prefix)
        for layer in view.branch():
            _overwrite(found, layer.changes, prefix)
        return sorted(found.items())

    def _stand_at(self, view: _StateView) -> None:
        """Move the engine to a readable view."""
        if view is self.standing:
            return
        here, there = self.standing.branch(), view.branch()
        shared = 0
        while shared < min(len(here), len(there)) and here[shared] is there[shared]:
            shared += 1
        for layer in reversed(here[shared:]):
            self._engine.undo(layer.step)
        for layer in there[shared:]:
            layer.step = self._engine.apply(layer.height, layer.changes)
            assert layer.step.root == layer.root, "applying a batch again gives the same root"
        self.standing = view

    def _outgrow(self) -> None:
        """Move the final state into the packed engine, if the plain one holds many keys."""
        plain = self._engine
        if not isinstance(plain, PlainEngine) or plain.live < self._packed_keys:
            return
        self._stand_at(self._final)
        packed = _packed_engine(plain.slack)
        plain.copy_to(packed)
        assert packed.root == self._final.root, "both engines give the same root"
        self._engine = packed
        self._forget_past()

    def _forget_past(self) -> None:
        """Drop the data that was read for proofs and snapshots."""
        self._prover = None
        self._past.clear()

    # --- history and pruning ------------------------------------------------------------------------------------------

    def _require_retained(self, height: Height) -> None:
        if not self.first_height <= height <= self._final.height:
            raise HistoryError(f"height {height} is not retained: {self.first_height} to {self._final.height} are")

    def _note_floors(self, branch: list[_StateView]) -> None:
        """Record, for each block that became final, its height and oldest active position. Pruning uses them."""
        for layer in branch:
            self._floors.append((layer.height, layer.step.oldest))
        self._drop_floors()

    def _drop_floors(self) -> None:
        while len(self._floors) > 1 and self._floors[1][0] <= self._floors[-1][0] - self._retained:
            self._floors.popleft()

    def _prune(self) -> None:
        """Remove the segments that no retained height needs."""
        first_height, oldest = self._floors[0]
        first_twig = oldest >> TWIG_LEVELS
        count = self._log.prunable_segments(first_twig << TWIG_LEVELS, first_height)
        if count:
            peaks = [self._engine.tree.upper_node(*place) for place in pruned_peaks(first_twig)]
            self._log.prune(count, first_twig, peaks)
            self._engine.forget(first_twig)

    def _replay(self) -> None:
        """Rebuild the engine's state from the log."""
        base = self._log.base
        if base.snapshot == NO_SNAPSHOT:
            self._engine.seed(base.first_twig, base.peaks)
        else:
            self._load_snapshot()
        for section in self._log.replay():
            head = section.head
            self._engine.replay(section.data, head, section.first_position)
            # twigs pruned for a later height stay pruned after a rewind to an earlier one
            if head.oldest >> TWIG_LEVELS >= base.first_twig and head.height >= self._log.first_height:
                self._floors.append((head.height, head.oldest))
                self._drop_floors()
        self._engine.finish()

    def _load_snapshot(self) -> None:
        """Load the snapshot with which the log begins."""
        log, disk, folder = self._log, self._log.disk, self._log.folder
        name = f"{folder}/{MANIFEST_NAME}"
        try:
            manifest = Manifest.decode(disk.read(name), log.base.snapshot_height, log.base.snapshot)
            self._engine.seed(manifest.first_twig, manifest.peaks)
            for chunk in range(manifest.chunks):
                name = chunk_name(folder, chunk)
                for twig in decode_chunk(manifest, chunk, disk.read(name)):
                    self._engine.load_twig(twig)
        except SnapshotError as error:
            raise DiskError(f"{name}: offset 0: {error}") from None
        self._engine.end_load(manifest.next_position)
        log.origin = snapshot_meta(manifest.height, manifest.root, manifest.next_position)
        self.origin = manifest
        self._floors.append((manifest.height, manifest.first_twig << TWIG_LEVELS))


class _StateView:
    """The view of one block: the block's changes over its parent view.

    In the final view, ``parent`` is ``None`` and there are no changes.
    """

    __slots__ = ("_before", "_checked_epoch", "_height", "_root", "_stale", "changes", "parent", "step", "store")

    def __init__(
        self, store: LogStateStore, parent: _StateView | None, height: Height, changes: Batch, step: Step, root: Hash
    ) -> None:
        self.store = store
        self.parent = parent
        self.changes = changes
        self.step = step
        self._height = height
        self._root = root
        self._before: dict[bytes, bytes | None] | None = None
        self._stale = ""
        self._checked_epoch = store.epoch

    @property
    def height(self) -> Height:
        """Height of the view's block; readable even for a stale view."""
        return self._height

    @property
    def root(self) -> Hash:
        """The Merkle root over the view's content; readable even for a stale view."""
        return self._root

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or ``None``. Raises :class:`StaleViewError`."""
        if self._checked_epoch != self.store.epoch:
            self.require_readable()
        return self.store.value(self, key)

    def derive(self, height: Height, batch: Batch) -> _StateView:
        """The child view after ``batch``; its height may equal this view's, but not be below it.

        Raises :class:`StaleViewError`, and :class:`ValueError` if a height, key or value is out of bounds.
        """
        self.require_readable()
        if not self._height <= height < HEIGHT_LIMIT:
            raise ValueError(f"height {height} cannot follow height {self._height}")
        return self.store.derive(self, height, batch)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The keys that begin with ``prefix`` and their values, keys ascending, as they are at this call.

        Costs O(all keys): keys are ordered by their hashes. Raises :class:`StaleViewError`.
        """
        self.require_readable()
        return iter(self.store.items(self, prefix))

    def branch(self) -> list[_StateView]:
        """The views from the final one (exclusive) to this one, ascending."""
        found: list[_StateView] = []
        layer = self
        while layer.parent is not None:
            found.append(layer)
            layer = layer.parent
        found.reverse()
        return found

    def before(self) -> dict[bytes, bytes | None]:
        """The values that the keys of this view's batch had in the parent view.

        They are available only while the engine is at this view or at a descendant.
        """
        if self._before is None:
            values = self.store.engine.before(self.step)
            self._before = {key: values.get(key, value) for key, value in self.changes.items()}
        return self._before

    def record(self) -> ViewRecord | None:
        """The record of the view, if it was derived just now; ``None`` otherwise, and with the packed engine."""
        engine = self.store.engine
        if self is not self.store.standing or self.parent is None or not isinstance(engine, PlainEngine):
            return None
        return ViewRecord(self._height, tuple(self.changes.items()), engine.record(self.step))

    def require_readable(self) -> None:
        """Raise :class:`StaleViewError` unless this view is the final one or descends from it."""
        if self._checked_epoch == self.store.epoch:
            return
        layer: _StateView | None = self
        while layer is not None:
            if layer._stale:
                raise StaleViewError(f"the view of height {self._height} can no longer be used: {layer._stale}")
            layer = layer.parent
        self._checked_epoch = self.store.epoch

    def retire(self, reason: str) -> None:
        """Make this view and all its descendants stale."""
        self._stale = self._stale or reason
        self._checked_epoch = NEVER_CHECKED
        self.settle()

    def settle(self) -> None:
        """Drop this view's parent, changes and undo data, once they are not needed or are part of the final state."""
        self.parent = None
        self.changes = {}
        self.step = EMPTY_STEP
        self._before = None


def section_of(view: View) -> bytes:
    """The section that a block appends to the log, from the block's view before the view is committed. It is empty
    afterwards, and for a view of a store without a log."""
    return view.step.section if isinstance(view, _StateView) else b""


def record_of(view: View) -> ViewRecord | None:
    """The record of a view that was derived just now, for other stores; ``None`` if its store has none for it."""
    return view.record() if isinstance(view, _StateView) else None


def repeat(parent: View, record: ViewRecord) -> View | None:
    """The child of a view that another store derived from a view with the same root. Nothing is hashed.

    ``None`` if this store cannot repeat it, or has other values or positions of the changed keys. Raises
    :class:`StaleViewError`.
    """
    if not isinstance(parent, _StateView):
        return None
    parent.require_readable()
    return parent.store.repeat(parent, record)


def _overwrite(found: dict[bytes, bytes], changes: Batch, prefix: bytes) -> None:
    """Apply to ``found`` those changes whose keys begin with a prefix."""
    for key, value in changes.items():
        if not key.startswith(prefix):
            continue
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
