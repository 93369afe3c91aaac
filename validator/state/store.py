"""The state store: views over one final state, which lies in a log on disk and in an index in memory.

The rules, beside those of :mod:`validator.state.interface`:

- an update deactivates the key's entry and appends a new one that names the old position; a delete only deactivates;
- writing the value that a key already has changes nothing, and so does deleting an absent key: a root follows from the
  net change of each block, not from how often the transition happened to write;
- a view is an overlay: what its block changed, over its parent. Deriving leaves the parent as it is, costs
  O(changes * log(entries)), and keeps memory in proportion to the changes;
- a commit flattens a branch into the base. The committed view becomes the final one and reads straight from the base;
  views that descend from it stay as they are, every other one raises :class:`StaleViewError` from then on.

One process and one thread use a store; the disk sees to it that no second process does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from validator.disk import Disk
from validator.state.interface import Batch, View
from validator.state.log import (
    NO_POSITION,
    Recovery,
    StateLog,
    decode_entry,
    encode_entry,
    encode_section,
)
from validator.state.merkle import Tree, TreeOverlay, derive, entry_hash
from validator.types import HEIGHT_LIMIT, Hash, Height, ValidatorError

KEY_BYTES_LIMIT: Final = 512
VALUE_BYTES_LIMIT: Final = 2**24

NEVER_CHECKED: Final = -1
"""Epoch of a view that must look again whether it may still be read."""

REPLAY_ENTRIES: Final = 65_536
"""Entries that recovery hashes at once."""

_Slot = tuple[int, bytes]
"""Position and value of a key's active entry."""

_Changes = dict[bytes, _Slot | None]
"""A block's net change of each key; ``None`` is deleted."""


class StaleViewError(ValidatorError):
    """A view was used after it was dropped, or after another branch became final."""


class LogStateStore:
    """The final state and the views over it. Made by :meth:`open`."""

    def __init__(self, log: StateLog) -> None:
        self._log = log
        self._index = _Index()
        self._tree = Tree()
        self._epoch = 0
        self._replay()
        log.confirm(self._tree.root, self._tree.next_position)
        settled = derive(self._tree, [], [])
        self._final = _StateView(self, None, log.recovery.meta.height, settled, {}, b"")

    @classmethod
    def open(cls, disk: Disk, folder: str = "state") -> LogStateStore:
        """The store in a folder of a disk, as its last durable commit left it; an empty one where there is none.

        Reads the whole log. Raises :class:`~validator.disk.DiskError`, with file and offset, where it is damaged below
        the newest valid meta record, or where the root that it gives is not the one recorded.
        """
        return cls(StateLog.open(disk, f"{folder}/log"))

    @property
    def final(self) -> View:
        """The last committed view."""
        return self._final

    @property
    def recovery(self) -> Recovery:
        """What opening found, and what it had to cut off."""
        return self._log.recovery

    def commit(self, view: View) -> None:
        """Make ``view`` final and durable with one sync, with every view between it and the last final one.

        Raises :class:`StaleViewError` where it does not descend from the final view, :class:`ValueError` where it is
        of another store, and :class:`~validator.disk.DiskError` where the disk failed: what is durable is unknown then,
        every view stays as it was, and further commits are refused until the store is opened again.
        """
        if not isinstance(view, _StateView) or view.store is not self:
            raise ValueError("a store commits only its own views")
        view.require_readable()
        branch = [layer for layer in view.layers() if layer is not self._final]
        if not branch:
            return
        branch.reverse()
        self._log.commit(view.height, view.root, view.tree.next_position, [layer.section for layer in branch])
        previous = self._final
        for layer in branch:
            self._tree.absorb(layer.tree)
            self._index.apply(layer.changes)
        self._final = view
        self._epoch += 1
        for layer in (previous, *branch[:-1]):
            layer.retire(f"height {view.height} became final")
        view.settle()

    def drop(self, view: View) -> None:
        """Give up a view that is not final, and with it those that descend from it: using them raises from now on.

        Only for who wants misuse to be caught; simply forgetting a view is as good.
        """
        if not isinstance(view, _StateView) or view.store is not self or view is self._final:
            raise ValueError("a store drops only its own views, and never the final one")
        self._epoch += 1
        view.retire("it was dropped")

    def close(self) -> None:
        """Make every view unusable. What was committed stays; the disk is its owner's to close."""
        self._epoch += 1
        self._final.retire("the store was closed")
        self._index = _Index()
        self._tree = Tree()

    @property
    def epoch(self) -> int:
        """Counts the events that may make a view stale."""
        return self._epoch

    @property
    def index(self) -> _Index:
        """The keys of the final state."""
        return self._index

    def _replay(self) -> None:
        """Rebuild index and tree from the log."""
        leaves: list[bytes] = []
        deactivated: list[int] = []
        position = 0
        for section in self._log.sections():
            changes: _Changes = {}
            for encoded in section.entries:
                key, value, previous = decode_entry(encoded)
                changes[key] = (position, value)
                if previous != NO_POSITION:
                    deactivated.append(previous)
                leaves.append(entry_hash(encoded))
                position += 1
            for key in section.deleted:
                slot = self._index.get(key)
                if slot is not None:
                    deactivated.append(slot[0])
                changes[key] = None
            self._index.apply(changes)
            if len(leaves) >= REPLAY_ENTRIES:
                self._tree.absorb(derive(self._tree, leaves, deactivated))
                leaves, deactivated = [], []
        self._tree.absorb(derive(self._tree, leaves, deactivated))


class _StateView:
    """One block's overlay. ``parent`` is ``None`` in the final view, which has no changes of its own."""

    __slots__ = ("_checked_epoch", "_height", "_root", "_stale", "changes", "parent", "section", "store", "tree")

    def __init__(
        self,
        store: LogStateStore,
        parent: _StateView | None,
        height: Height,
        tree: TreeOverlay,
        changes: _Changes,
        section: bytes,
    ) -> None:
        self.store = store
        self.parent = parent
        self.tree = tree
        self.changes = changes
        self.section = section
        self._height = height
        self._root = tree.root
        self._stale = ""
        self._checked_epoch = store.epoch

    @property
    def height(self) -> Height:
        """Height of the block that led here; readable even of a stale view."""
        return self._height

    @property
    def root(self) -> Hash:
        """The Merkle root over everything that the view holds; readable even of a stale view."""
        return self._root

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or ``None``. Raises :class:`StaleViewError`."""
        self.require_readable()
        slot = self._slot(key)
        return None if slot is None else slot[1]

    def derive(self, height: Height, batch: Batch) -> _StateView:
        """The child view after ``batch``; its height may be this view's, but not below it.

        Raises :class:`StaleViewError`, and :class:`ValueError` where a height, key or value is out of its bounds.
        """
        self.require_readable()
        if not self._height <= height < HEIGHT_LIMIT:
            raise ValueError(f"height {height} cannot follow height {self._height}")
        changes: _Changes = {}
        entries: list[bytes] = []
        deleted: list[bytes] = []
        deactivated: list[int] = []
        for key in sorted(batch):
            value = batch[key]
            _check_bounds(key, value)
            slot = self._slot(key)
            if value == (None if slot is None else slot[1]):
                continue
            if slot is not None:
                deactivated.append(slot[0])
            if value is None:
                changes[key] = None
                deleted.append(key)
            else:
                changes[key] = (self.tree.next_position + len(entries), value)
                entries.append(encode_entry(key, value, NO_POSITION if slot is None else slot[0]))
        tree = derive(self.tree, [entry_hash(entry) for entry in entries], deactivated)
        return _StateView(self.store, self, height, tree, changes, encode_section(height, entries, deleted))

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The keys that begin with ``prefix`` and their values, keys ascending, as they are at this call.

        Costs O(keys found + changes in the overlays), after a commit that added or removed keys O(all keys) once.
        Raises :class:`StaleViewError`.
        """
        self.require_readable()
        changes: _Changes = {}
        for layer in reversed(list(self.layers())):
            changes.update(item for item in layer.changes.items() if item[0].startswith(prefix))
        found = {key: slot for key, slot in self.store.index.items(prefix) if key not in changes}
        found.update((key, slot) for key, slot in changes.items() if slot is not None)
        return iter([(key, found[key][1]) for key in sorted(found)])

    def layers(self) -> Iterator[_StateView]:
        """This view and those below it, down to the final one (or to one that went stale)."""
        layer: _StateView | None = self
        while layer is not None:
            yield layer
            layer = layer.parent

    def require_readable(self) -> None:
        """Raise :class:`StaleViewError` unless this view is the final one or descends from it."""
        if self._checked_epoch == self.store.epoch:
            return
        for layer in self.layers():
            if layer._stale:
                raise StaleViewError(f"the view of height {self._height} can no longer be used: {layer._stale}")
        self._checked_epoch = self.store.epoch

    def retire(self, reason: str) -> None:
        """Become stale, and with this view every one that descends from it."""
        self._stale = self._stale or reason
        self._checked_epoch = NEVER_CHECKED
        self.settle()

    def settle(self) -> None:
        """Let go of what the base has taken over."""
        self.parent = None
        self.changes = {}
        self.section = b""

    def _slot(self, key: bytes) -> _Slot | None:
        """Position and value of a key's active entry."""
        layer: _StateView | None = self
        while layer is not None:
            if key in layer.changes:
                return layer.changes[key]
            layer = layer.parent
        return self.store.index.get(key)


class _Index:
    """The final state's keys, in memory: position and value of each."""

    def __init__(self) -> None:
        self._slots: dict[bytes, _Slot] = {}
        self._ordered: list[bytes] = []
        self._is_ordered = True

    def get(self, key: bytes) -> _Slot | None:
        """Position and value of a key's active entry."""
        return self._slots.get(key)

    def apply(self, changes: _Changes) -> None:
        """Take over one block's net changes."""
        for key, slot in changes.items():
            if slot is None:
                self._is_ordered = self._slots.pop(key, None) is None and self._is_ordered
            else:
                self._is_ordered = self._is_ordered and key in self._slots
                self._slots[key] = slot

    def items(self, prefix: bytes) -> Iterator[tuple[bytes, _Slot]]:
        """The keys that begin with ``prefix``, ascending, and their slots."""
        if not self._is_ordered:
            self._ordered = sorted(self._slots)
            self._is_ordered = True
        for place in range(bisect_left(self._ordered, prefix), len(self._ordered)):
            key = self._ordered[place]
            if not key.startswith(prefix):
                return
            yield key, self._slots[key]


def _check_bounds(key: bytes, value: bytes | None) -> None:
    """Raise :class:`ValueError` where a key or value is longer or shorter than the interface allows."""
    if not 1 <= len(key) <= KEY_BYTES_LIMIT:
        raise ValueError(f"a key of {len(key)} bytes: expected 1 to {KEY_BYTES_LIMIT}")
    if value is not None and len(value) > VALUE_BYTES_LIMIT:
        raise ValueError(f"a value of {len(value)} bytes: expected at most {VALUE_BYTES_LIMIT}")
