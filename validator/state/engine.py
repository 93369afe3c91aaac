"""The interface between the store and the engine that holds one state in memory.

An :class:`Engine` is positioned at one state: it answers reads, moves to a child state in place (:meth:`Engine.apply`),
and back (:meth:`Engine.undo`). The store moves it along the tree of views. Two engines exist, with the same results for
the same calls: :class:`validator.state.engines.plain.PlainEngine`, dictionaries in plain Python, which every state
begins in; and :class:`validator.state.engines.packed.PackedEngine`, arrays and compiled kernels, into which the store
moves a state that has grown.

Effects of a block on the state (:meth:`Engine.apply`), in this order:

1. each key whose value changes has one net change; deleting an absent key is none;
2. for every live key that got a value, or whose next key in the ring changed, an entry is appended, in ascending order
   of the keys' hashes, and its old entry becomes inactive; so do the entries of deleted keys;
3. while there are more than :func:`~validator.state.hashing.window_limit` entries from the oldest active one to the end
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
    """The head of a section, which is one block's part of the log: the state after the block, and the sizes of the
    data that follow."""

    height: Height
    next_position: int
    """Number of entries appended since the genesis, up to and including the block."""
    live: int
    oldest: int
    """Position of the oldest active entry after the block; ``next_position`` if none is active."""
    root: Hash
    entries_bytes: int
    """Size of the encoded entries that follow."""
    entries: int
    deleted: int
    """Number of keys that the block removed. The positions of their entries are at the end of the section."""

    @property
    def bytes_after(self) -> int:
        """Size of the section's data after the head."""
        return self.entries_bytes + self.deleted * POSITION.size

    def encode(self) -> bytes:
        """The head's encoding in the log."""
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
        """The head at an offset. Raises :class:`struct.error` if the data is too short."""
        height, next_position, live, oldest, root, *sizes = SECTION_HEAD.unpack_from(data, offset)
        return SectionHead(Height(height), next_position, live, oldest, Hash(root), *sizes)


def encode_section(head: SectionHead, entries: bytes, deleted: Sequence[int]) -> bytes:
    """One block's part of the log: head, encoded entries, then the positions of the entries that it deleted."""
    return b"".join((head.encode(), entries, *map(POSITION.pack, deleted)))


@dataclass(frozen=True, slots=True)
class Step:
    """The result of applying one block's batch to an engine: the section for the log, and the data for undoing it."""

    section: bytes
    """The encoded section that the store writes to the log."""
    root: Hash
    next_position: int
    live: int
    oldest: int
    """Position of the oldest active entry after the step."""
    undo: Any
    """The data with which the same engine undoes the step."""


class StateTree(Protocol):
    """The Merkle tree over an engine's state."""

    def twig(self, index: int) -> Twig:
        """The entry root and the active bits of twig ``index``, which must not be pruned."""

    def group_roots(self, index: int) -> bytes:
        """The concatenated roots of the 64 groups of 32 entries in twig ``index``: nodes of the twig's entry tree.

        The twig must not be pruned nor come from a snapshot. Roots of incomplete groups are undefined.
        """

    def upper_node(self, level: int, index: int) -> bytes:
        """Node of the upper tree, which must not be pruned; the twig roots are level 0."""


class Engine(Protocol):
    """Holds one state in memory. It answers reads, and moves to the state of a child block and back."""

    @property
    def tree(self) -> StateTree: ...

    @property
    def root(self) -> Hash: ...

    @property
    def next_position(self) -> int:
        """Number of entries ever appended."""

    @property
    def live(self) -> int:
        """Number of keys that have a value."""

    @property
    def oldest(self) -> int:
        """Position of the oldest active entry; :attr:`next_position` if none is active."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or ``None``."""

    def apply(self, height: Height, batch: Batch) -> Step:
        """Apply a batch: move to the child state. Raises :class:`ValueError` for an invalid batch, without a change."""

    def undo(self, step: Step) -> None:
        """Move back to the state before ``step``, the last step that was applied and not undone."""

    def before(self, step: Step) -> dict[bytes, bytes | None]:
        """The values that the keys of an applied step had before it.

        Keys whose entry only moved may be included.
        """

    def items(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """The keys that begin with ``prefix`` and their values, keys ascending."""

    def position(self, key: bytes) -> int | None:
        """Position of a key's active entry; ``None`` if the key has no value."""

    def predecessor(self, place: bytes) -> tuple[bytes, int] | None:
        """The key before ``place`` in the ring, and its entry's position; ``None`` if no key is live.

        It is the live key with the greatest hash below ``place``, or, if there is none, with the greatest hash of all.
        """

    def entry_ends(self, data: bytes | memoryview, count: int) -> Sequence[int]:
        """The end of each of ``count`` encoded entries, which are concatenated at the beginning of ``data``."""

    def group_nodes(self, data: bytes, count: int) -> tuple[Sequence[int], bytes]:
        """Parse and hash a group of up to 32 encoded entries, which are concatenated in ``data``.

        Returns the end offset of each entry, and all nodes of the group's subtree of the entry tree, level by level,
        the 32 leaves first. Raises :class:`ValueError` if the bytes are not exactly ``count`` entries.
        """

    def twig_nodes(self, roots: bytes) -> bytes:
        """The nodes of a twig's entry tree from the roots of its 64 groups up, level by level, these roots first."""

    def forget(self, first_twig: int) -> None:
        """Drop the data that only the twigs below ``first_twig`` need, which are pruned."""

    # --- opening ------------------------------------------------------------------------------------------------------

    def seed(self, first_twig: int, peaks: Sequence[bytes]) -> None:
        """Begin an empty state after the pruned twigs below ``first_twig``. ``peaks`` are the upper nodes over them."""

    def replay(self, section: memoryview, head: SectionHead, first_position: int) -> None:
        """Apply a section of the log, whose entries begin at ``first_position``. :meth:`finish` computes the root."""

    def load_twig(self, twig: SnapshotTwig) -> None:
        """Load a twig of a snapshot, in ascending order of the twigs and before any replay."""

    def end_load(self, next_position: int) -> None:
        """End the loading of a snapshot's twigs, which have entries below ``next_position``."""

    def finish(self) -> None:
        """End the replay: compute the root."""
