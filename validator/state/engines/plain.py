"""The engine in plain Python: dictionaries, a sorted list of key hashes, and the tree of :mod:`validator.state.merkle`.

It is the reference for the packed engine, and faster for small states: nothing has to be compiled, a read is one lookup
in a dictionary, and a block of few changes needs no calls of compiled code. A state that outgrows it is copied to
another engine (:meth:`PlainEngine.copy_to`).
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from validator.primitives.types import Hash, Height
from validator.state.engine import POSITION, SECTION_HEAD, Engine, SectionHead, Step, encode_section
from validator.state.hashing import (
    ABSENT,
    COMPACTION_SLACK,
    COMPACTION_STEPS,
    GROUP_ENTRIES,
    NO_POSITION,
    NODE_BYTES,
    TWIG_ENTRIES,
    TWIG_LEVELS,
    Entry,
    Twig,
    check_bounds,
    decode_entry,
    encode_entry,
    entry_bytes,
    entry_hash,
    entry_hashes,
    key_hash,
    twigs_for,
    window_limit,
)
from validator.state.interface import Batch
from validator.state.merkle import Tree, TreeRecord, TreeUndo, pruned_peaks, tree_nodes
from validator.state.snapshot import SnapshotTwig

FEW: Final = 64
"""Maximum number of changes of the ring that are made one by one. For more, the whole list of hashes is sorted."""

REPLAY_ENTRIES: Final = 65_536
"""Number of replayed entries that recovery collects before it adds their hashes to the tree."""

_Slot = tuple[int, bytes]
"""Position and value of a key's active entry."""


@dataclass(slots=True)
class _Undo:
    slots: dict[bytes, _Slot | None]
    """The touched keys' slots before the block."""
    oldest: int
    tree: TreeUndo


@dataclass(frozen=True, slots=True)
class StepRecord:
    """An applied step as another plain engine can repeat it (:meth:`PlainEngine.repeat`). Nothing in it is mutable."""

    section: bytes
    keys: tuple[bytes, ...]
    """The touched keys. The next two fields have their slots, in the same order."""
    before: tuple[_Slot | None, ...]
    after: tuple[_Slot | None, ...]
    oldest: int
    tree: TreeRecord


class _Appender:
    """Collects the entries that one block appends."""

    def __init__(self, engine: PlainEngine, height: Height) -> None:
        self.engine = engine
        self.height = height
        self.next_position = engine.next_position
        self.entries: list[bytes] = []
        self.deactivated: list[int] = []
        self.before: dict[bytes, _Slot | None] = {}

    def append(self, place: bytes, key: bytes, value: bytes) -> None:
        """Append an entry of the key whose hash is ``place``. It replaces the key's current entry, if there is one."""
        engine, position = self.engine, self.next_position
        old = self.before[key] = engine.slots.get(key)
        if old is None:
            previous = NO_POSITION
        else:
            previous = old[0]
            self.deactivated.append(previous)
            del engine.key_at[previous]
        self.entries.append(encode_entry(self.height, previous, self._place_after(place), key, value))
        engine.slots[key] = (position, value)
        engine.key_at[position] = key
        self.next_position = position + 1

    def delete(self, key: bytes) -> int:
        """Forget a key; returns the position of its entry."""
        engine = self.engine
        old = engine.slots.pop(key)
        self.before[key] = old
        del engine.key_at[old[0]]
        self.deactivated.append(old[0])
        return old[0]

    def compact(self) -> None:
        """Re-append the oldest active entries while the window is too large."""
        engine = self.engine
        limit = window_limit(engine.live, engine.slack)
        steps = COMPACTION_STEPS * len(self.entries)
        while True:
            oldest = engine.raise_oldest(self.next_position)
            if not steps or self.next_position - oldest <= limit:
                return
            key = engine.key_at[oldest]
            self.append(key_hash(key), key, engine.slots[key][1])
            steps -= 1

    def _place_after(self, place: bytes) -> bytes:
        """The hash of the next key in the ring after the key whose hash is ``place``."""
        ring = self.engine.ring
        return ring[(bisect_left(ring, place) + 1) % len(ring)]


class PlainEngine:
    """One state in dictionaries; implements :class:`validator.state.engine.Engine`, whose docstrings apply."""

    def __init__(self, slack: int = COMPACTION_SLACK) -> None:
        self.slots: dict[bytes, _Slot] = {}
        self.key_at: dict[int, bytes] = {}
        """Keys by the positions of their active entries."""
        self.slack = slack
        """Number of entries that the window may hold in addition to 2.5 per live key, before compaction begins."""
        self.ring: list[bytes] = []
        """Hashes of the live keys, ascending."""
        self._by_hash: dict[bytes, bytes] = {}
        self._oldest = 0
        self.tree = Tree()
        self._leaves: list[bytes] = []
        self._gone: list[int] = []
        self._first_position = 0
        """First position of the first retained twig."""

    @property
    def root(self) -> Hash:
        return self.tree.root

    @property
    def next_position(self) -> int:
        return self.tree.next_position

    @property
    def live(self) -> int:
        return len(self.slots)

    @property
    def oldest(self) -> int:
        return self._oldest

    def get(self, key: bytes) -> bytes | None:
        slot = self.slots.get(key)
        return None if slot is None else slot[1]

    def apply(self, height: Height, batch: Batch) -> Step:
        changed = self._net_changes(batch)
        appender = _Appender(self, height)
        oldest = self._oldest
        order, gone = self._relink(changed)
        deleted = [appender.delete(changed[place][0]) for place in gone]
        for place in order:
            key, value = changed.get(place) or (self._by_hash[place], None)
            appender.append(place, key, self.slots[key][1] if value is None else value)
        appender.compact()
        leaves = entry_hashes(appender.entries)
        undo = _Undo(appender.before, oldest, self.tree.extend(leaves, appender.deactivated, self.live))
        entries = b"".join(appender.entries)
        head = SectionHead(
            height,
            self.next_position,
            self.live,
            self._oldest,
            self.root,
            len(entries),
            len(appender.entries),
            len(deleted),
        )
        section = encode_section(head, entries, deleted)
        return Step(section, self.root, self.next_position, self.live, self._oldest, undo)

    def undo(self, step: Step) -> None:
        undo: _Undo = step.undo
        added, removed = [], []
        for key, old in undo.slots.items():
            new = self.slots.pop(key, None)
            if new is not None:
                del self.key_at[new[0]]
            if old is None:
                removed.append(key_hash(key))
            elif new is None:
                added.append(key_hash(key))
                self._by_hash[added[-1]] = key
            if old is not None:
                self.slots[key] = old
                self.key_at[old[0]] = key
        self._change_ring(added, removed)
        self._oldest = undo.oldest
        self.tree.revert(undo.tree)

    def record(self, step: Step) -> StepRecord:
        """The record of the last step that was applied and not undone."""
        undo: _Undo = step.undo
        after = tuple(self.slots.get(key) for key in undo.slots)
        tree = self.tree.record(undo.tree)
        return StepRecord(step.section, tuple(undo.slots), tuple(undo.slots.values()), after, self._oldest, tree)

    def repeat(self, record: StepRecord) -> Step | None:
        """Move to the state to which another engine moved from a state with the same root.

        Returns ``None``, and changes nothing, if the touched keys had other slots there.
        """
        before = tuple(map(self.slots.get, record.keys))
        if before != record.before:
            return None
        added, removed = [], []
        for old in before:
            if old is not None:
                del self.key_at[old[0]]
        for key, old, new in zip(record.keys, before, record.after, strict=True):
            if new is None:
                removed.append(key_hash(key))
                del self.slots[key]
                continue
            if old is None:
                added.append(key_hash(key))
                self._by_hash[added[-1]] = key
            self.slots[key] = new
            self.key_at[new[0]] = key
        self._change_ring(added, removed)
        undo = _Undo(dict(zip(record.keys, before, strict=True)), self._oldest, self.tree.repeat(record.tree))
        self._oldest = record.oldest
        return Step(record.section, self.root, self.next_position, self.live, self._oldest, undo)

    def before(self, step: Step) -> dict[bytes, bytes | None]:
        """The values that the keys of an applied step had before it, including keys whose entry only moved."""
        undo: _Undo = step.undo
        return {key: None if slot is None else slot[1] for key, slot in undo.slots.items()}

    def items(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """The keys that begin with ``prefix`` and their values, keys ascending. Costs O(all keys)."""
        return sorted((key, slot[1]) for key, slot in self.slots.items() if key.startswith(prefix))

    def position(self, key: bytes) -> int | None:
        slot = self.slots.get(key)
        return None if slot is None else slot[0]

    def predecessor(self, place: bytes) -> tuple[bytes, int] | None:
        if not self.ring:
            return None
        key = self._by_hash[self.ring[bisect_left(self.ring, place) - 1]]
        return key, self.slots[key][0]

    def entry_ends(self, data: bytes | memoryview, count: int) -> Sequence[int]:
        ends, cursor = [], 0
        for _ in range(count):
            cursor += entry_bytes(data, cursor)
            ends.append(cursor)
        return ends

    def group_nodes(self, data: bytes, count: int) -> tuple[Sequence[int], bytes]:
        try:
            ends = self.entry_ends(data, count)
        except struct.error:
            ends = []
        if not ends or ends[-1] != len(data):
            raise ValueError(f"{len(data)} bytes are not {count} entries")
        view = memoryview(data)
        leaves = [entry_hash(view[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
        return ends, tree_nodes(leaves + [ABSENT] * (GROUP_ENTRIES - count))

    def twig_nodes(self, roots: bytes) -> bytes:
        return tree_nodes([roots[at : at + NODE_BYTES] for at in range(0, len(roots), NODE_BYTES)])

    def forget(self, first_twig: int) -> None:
        self._first_position = first_twig * TWIG_ENTRIES
        self.tree.forget(first_twig)

    def copy_to(self, engine: Engine) -> None:
        """Copy the state to an empty engine, which loads it like a snapshot. Costs O(all keys)."""
        first_twig, end = self._first_position >> TWIG_LEVELS, twigs_for(self.next_position)
        engine.seed(first_twig, [self.tree.upper_node(*place) for place in pruned_peaks(first_twig)])
        entries: dict[int, dict[int, bytes]] = {index: {} for index in range(first_twig, end)}
        for position, key in sorted(self.key_at.items()):
            # an engine uses only position, key and value of an entry
            encoded = Entry(Height(0), NO_POSITION, ABSENT, key, self.slots[key][1]).encode()
            entries[position >> TWIG_LEVELS][position] = encoded
        for index, found in entries.items():
            twig = self.tree.twig(index)
            groups = self.tree.group_roots(index)
            engine.load_twig(SnapshotTwig(index, *twig, found, self.tree.frontier, groups))
        engine.end_load(self.next_position)
        engine.finish()

    # --- one block ----------------------------------------------------------------------------------------------------

    def _net_changes(self, batch: Batch) -> dict[bytes, tuple[bytes, bytes | None]]:
        """The key and the new value of every key whose value a batch changes, by the key's hash."""
        changed: dict[bytes, tuple[bytes, bytes | None]] = {}
        for key, value in batch.items():
            check_bounds(key, value)
            slot = self.slots.get(key)
            if value != (None if slot is None else slot[1]):
                changed[key_hash(key)] = (key, value)
        return changed

    def _relink(self, changed: dict[bytes, tuple[bytes, bytes | None]]) -> tuple[list[bytes], list[bytes]]:
        """Change the ring.

        Returns the hashes of the keys that get an entry, and those of the removed keys, both ascending.
        """
        added = [place for place, (key, _) in changed.items() if key not in self.slots]
        gone = [place for place, (_, value) in changed.items() if value is None]
        for place in added:
            self._by_hash[place] = changed[place][0]
        self._change_ring(added, gone)
        touched = changed.keys() - set(gone)
        if self.ring:
            touched.update(self.ring[bisect_left(self.ring, place) - 1] for place in (*added, *gone))
        return sorted(touched), sorted(gone)

    def _change_ring(self, added: list[bytes], removed: list[bytes]) -> None:
        """Add key hashes to the ring, and remove others. The added keys are in ``_by_hash`` already."""
        for place in removed:
            del self._by_hash[place]
        if len(added) + len(removed) > FEW:
            gone = set(removed)
            self.ring = [place for place in self.ring if place not in gone]
            self.ring.extend(sorted(added))
            self.ring.sort()  # merges two ascending runs
            return
        for place in removed:
            del self.ring[bisect_left(self.ring, place)]
        for place in added:
            insort(self.ring, place)

    def raise_oldest(self, end: int) -> int:
        """Move the oldest active position up past inactive ones, as far as ``end``. Returns it."""
        while self._oldest < end and self._oldest not in self.key_at:
            self._oldest += 1
        return self._oldest

    # --- opening ------------------------------------------------------------------------------------------------------

    def seed(self, first_twig: int, peaks: Sequence[bytes]) -> None:
        self.tree.seed(first_twig, peaks)
        self._oldest = self._first_position = self.tree.next_position

    def replay(self, section: memoryview, head: SectionHead, first_position: int) -> None:
        cursor = SECTION_HEAD.size
        for position in range(first_position, first_position + head.entries):
            end = cursor + entry_bytes(section, cursor)
            encoded = bytes(section[cursor:end])
            entry = decode_entry(encoded)
            self._replace(entry.key, (position, entry.value))
            if entry.previous != NO_POSITION:
                self._gone.append(entry.previous)
            if position >= self._first_position:
                self._leaves.append(entry_hash(encoded))
            cursor = end
        for at in range(cursor, len(section), POSITION.size):
            (position,) = POSITION.unpack_from(section, at)
            self._gone.append(position)
            key = self.key_at.get(position)
            if key is not None:
                self._replace(key, None)
        if len(self._leaves) >= REPLAY_ENTRIES:
            self._absorb()

    def load_twig(self, twig: SnapshotTwig) -> None:
        """Load a twig of a snapshot; twigs come in order."""
        for position, encoded in twig.entries.items():
            entry = decode_entry(encoded)
            self._replace(entry.key, (position, entry.value))
        self.tree.load(twig.index, Twig(twig.entries_root, twig.active_bits), twig.frontier)

    def end_load(self, next_position: int) -> None:
        self.tree.end_load(next_position)

    def finish(self) -> None:
        self._absorb()
        self._by_hash = {key_hash(key): key for key in self.slots}
        self.ring = sorted(self._by_hash)
        self.raise_oldest(self.next_position)

    def _replace(self, key: bytes, slot: _Slot | None) -> None:
        old = self.slots.pop(key, None)
        if old is not None:
            del self.key_at[old[0]]
        if slot is not None:
            self.slots[key] = slot
            self.key_at[slot[0]] = key

    def _absorb(self) -> None:
        gone = [position for position in self._gone if position >= self._first_position]
        self.tree.extend(self._leaves, gone, self.live)
        self._leaves, self._gone = [], []
