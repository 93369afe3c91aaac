"""The interface of the state store.

State is versioned per block: a :class:`View` is the state after one block, and blocks form a tree over the last final
state. The transition of a block reads the parent's view, collects the changes in a batch, and derives the child view by
applying the batch. Finality makes one branch part of the final state and drops the others. A block is rolled back by no
longer using its view, so a rollback is always exact.

Keys are 1 to 512 bytes, values 0 to 2**24 bytes; ``None`` in a batch deletes. A batch is applied in ascending order of
its keys, so positions in the log, which are part of the root, do not depend on the order in which it was filled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from validator.primitives.types import Hash, Height

Batch = Mapping[bytes, bytes | None]
"""Changes of one block; ``None`` deletes, and deleting an absent key changes nothing."""


class View(Protocol):
    """The state after one block, readable until it is dropped or made obsolete by finality."""

    @property
    def height(self) -> Height:
        """Height of the view's block."""

    @property
    def root(self) -> Hash:
        """The Merkle root over the view's content."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or ``None``."""

    def derive(self, height: Height, batch: Batch) -> View:
        """The child view after ``batch``. Many children per view are allowed; none of them changes this one."""

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The keys that begin with ``prefix`` and their values, keys ascending."""


class StateStore(Protocol):
    """The final state, on disk, and the views over it."""

    @property
    def final(self) -> View:
        """The last committed view."""

    def commit(self, view: View) -> None:
        """Make ``view`` final and durable (one fsync), with every view between it and the last final one.

        ``view`` must descend from the final view. Views that do not descend from ``view`` become unreadable.
        """

    def close(self) -> None:
        """Release the files. Commits stay."""
