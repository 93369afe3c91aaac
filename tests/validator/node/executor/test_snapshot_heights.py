"""What a validator gives to one that joins: chunks of heights that may have been offered, and of no others."""

from __future__ import annotations

import pytest

from cluster.disks.memory import MemoryDisk
from validator.chain.messages import ChunkRequest, ChunkResponse
from validator.node.executor.executor import DEFAULT_STORAGE
from validator.node.executor.snapshot_service import read_snapshot
from validator.primitives.types import Height
from validator.state import LogStateStore
from validator.storage.archive import BlockArchive

SNAPSHOT_INTERVAL = DEFAULT_STORAGE.snapshot_interval

HEIGHTS = 3 * SNAPSHOT_INTERVAL + 1
RETAINED = 2 * SNAPSHOT_INTERVAL


@pytest.mark.parametrize(
    ("height", "is_given"),
    [
        (0, False),
        (SNAPSHOT_INTERVAL, False),
        (2 * SNAPSHOT_INTERVAL, True),
        (2 * SNAPSHOT_INTERVAL + 1, False),
        (3 * SNAPSHOT_INTERVAL, True),
        (HEIGHTS, False),
        (4 * SNAPSHOT_INTERVAL, False),
    ],
)
def test_chunks_are_those_of_heights_that_may_have_been_offered(height: int, is_given: bool) -> None:
    disk = MemoryDisk()
    store = LogStateStore.open(disk, retained=RETAINED)
    for at in range(1, HEIGHTS + 1):
        store.commit(store.final.derive(Height(at), {b"%d" % at: b"v"}))
    answer = read_snapshot(store, BlockArchive(disk), ChunkRequest(height, 0), SNAPSHOT_INTERVAL)
    assert isinstance(answer, ChunkResponse) == is_given
