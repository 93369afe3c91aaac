"""The border between the store and the engine that holds one state in memory.

An :class:`Engine` stands at one state: it answers reads, moves to a child state in place (:meth:`Engine.apply`), and
back (:meth:`Engine.undo`). The store moves it along the tree of views. Two engines exist, which give the same bytes for
the same calls: :class:`validator.state.engines.plain.PlainEngine`, dictionaries in plain Python, where every state
begins; and :class:`validator.state.engines.packed.PackedEngine`, arrays and compiled kernels, into which the store
moves a state that has grown.

Effects of a block on the state (:meth:`Engine.apply`), in this order:

1. of each key that gets another value than it has, or is absent and deleted not, one net change remains;
2. for every live key that got a value, or whose next key in the ring is another one than before, an entry is appended,
   in ascending order of the keys' hashes, and its old entry becomes inactive; so do the entries of deleted keys;
3. while more than :func:`~validator.state.hashing.window_limit` entries stand between the oldest active one and the end
   of the log, the oldest active one is appended again, at most ``COMPACTION_STEPS`` times as many as step 2 appended.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from validator.primitives.types import Hash, Height
from validator.state.hashing import Twig
from validator.state.interface import Batch
from validator.state.snapshot import SnapshotTwig

POSITION: Final = struct.Struct(">Q")
SECTION_HEAD: Final = struct.Struct(">QQQQ32sQII")


@dataclass(frozen=True, slots=True)
class SectionHead:
    """The head of one block's part of the log."""

    height: Height
    next_position: int
    """Entries ever appended, after the block."""
    live: int
    oldest: int
    """Position of the oldest active entry after the block; the number of entries if there is none."""
    root: Hash
    entries_bytes: int
    """Length of the encoded entries that follow."""
    entries: int
    deleted: int
    """Keys that the block removed; the positions of their entries end the section."""

    @property
    def bytes_after(self) -> int:
        """Length of what follows the head."""
        return self.entries_bytes + self.deleted * POSITION.size

    def encode(self) -> bytes:
        """The head as it stands in the log."""
        return SECTION_HEAD.pack(
            self.height,
            self.next_position,
            self.live,
            self.oldest,
            self.root,
            self.entries_bytes,
            self.entries,
            self.deleted,
        )

    @staticmethod
    def decode(data: bytes | memoryview, offset: int) -> SectionHead:
        """The head at an offset. Raises :class:`struct.error` if the data ends before."""
        height, next_position, live, oldest, root, *sizes = SECTION_HEAD.unpack_from(data, offset)
        return SectionHead(Height(height), next_position, live, oldest, Hash(root), *sizes)


def encode_section(head: SectionHead, entries: bytes, deleted: Sequence[int]) -> bytes:
    """One block's part of the log: head, encoded entries, then the positions of the entries that it deleted."""
    return b"".join((head.encode(), entries, *map(POSITION.pack, deleted)))


@dataclass(frozen=True, slots=True)
class Step:
    """One block's change of the state, applied to an engine."""

    section: bytes
    """The bytes for the log."""
    root: Hash
    next_position: int
    live: int
    undo: Any
    """The engine's own data for going back."""


class StateTree(Protocol):
    """The tree over an engine's state."""

    def twig(self, index: int) -> Twig:
        """Parts of twig ``index``, which must not be pruned."""

    def group_roots(self, index: int) -> bytes:
        """Of the 64 groups of 32 entries in twig ``index``, which must not be pruned nor come from a snapshot, the
        roots in the entry tree, one behind the other. Those of groups that are not full are none that count."""

    def upper_node(self, level: int, index: int) -> bytes:
        """Node of the upper tree, which must not be pruned; level 0 is the twig roots."""


class Engine(Protocol):
    """One state in memory."""

    @property
    def tree(self) -> StateTree: ...

    @property
    def root(self) -> Hash: ...

    @property
    def next_position(self) -> int:
        """Entries ever appended."""

    @property
    def live(self) -> int:
        """Keys that have a value."""

    @property
    def oldest(self) -> int:
        """Position of the oldest active entry; :attr:`next_position` if there is none."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or ``None``."""

    def apply(self, height: Height, batch: Batch) -> Step:
        """Move to the child state after a batch. Raises :class:`ValueError`, and changes nothing, if it is wrong."""

    def undo(self, step: Step) -> None:
        """Move back to the state before ``step``, the latest one that was applied and not undone."""

    def before(self, step: Step) -> dict[bytes, bytes | None]:
        """The values that an applied step's keys had before it; keys whose entry only moved may be among them."""

    def items(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """The keys that begin with ``prefix`` and their values, keys ascending."""

    def position(self, key: bytes) -> int | None:
        """Position of a key's active entry."""

    def predecessor(self, place: bytes) -> tuple[bytes, int] | None:
        """The live key whose hash is the last below ``place``, or the last of all, and its entry's position."""

    def entry_ends(self, data: bytes | memoryview, count: int) -> Sequence[int]:
        """The end of each of so many encoded entries; they begin with ``data`` and stand one behind the other."""

    def group_nodes(self, data: bytes, count: int) -> tuple[Sequence[int], bytes]:
        """The end of each of up to 32 encoded entries, which are ``data``; and the nodes of the subtree of the entry
        tree that begins with them, each level's one behind the other, the 32 leaves first. Raises
        :class:`ValueError` if the bytes are not just so many entries."""

    def twig_nodes(self, roots: bytes) -> bytes:
        """The nodes of the entry tree from its 64 groups' roots on, each level's one behind the other."""

    def forget(self, first_twig: int) -> None:
        """Drop what belongs to pruned twigs alone."""

    # --- opening ------------------------------------------------------------------------------------------------------

    def seed(self, first_twig: int, peaks: Sequence[bytes]) -> None:
        """Begin, empty, behind pruned twigs."""

    def replay(self, section: memoryview, head: SectionHead, first_position: int) -> None:
        """Take over one block's part of the log, whose entries begin at ``first_position``; roots come at the end."""

    def load_twig(self, twig: SnapshotTwig) -> None:
        """Take over a twig of a snapshot, before anything is replayed; twigs come in order."""

    def end_load(self, next_position: int) -> None:
        """All twigs of the snapshot were loaded, which had so many entries."""

    def finish(self) -> None:
        """Everything was replayed: make the root."""
