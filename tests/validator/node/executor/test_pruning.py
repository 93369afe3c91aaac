"""An executor that removes old blocks: never those that it keeps for itself and for peers, nor any that the auditor
lacks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from cluster.disks.memory import FaultPlan, MemoryDisk, SimulatedCrash
from tests.validator.chains import make_genesis
from tests.validator.executors import chain_of
from validator.node.executor.executor import Executor, StorageConfig, execution_error
from validator.node.executor.jobs import BlocksRead, Finalize, Job, JobResult, ReadBlocks
from validator.node.executor.queries import BlockGone, Cursor, EventFilter
from validator.storage.disk import DiskError

COUNT, KEPT = 30, 10
LINE = chain_of(COUNT)
SMALL = StorageConfig(segment_bytes=1, retained_heights=8, keep_blocks=KEPT)
"""A file a block."""

Told = Callable[[Executor], None]


def tell_everything(executor: Executor) -> None:
    executor.allow_pruning(executor.final_header.height)


def tell_nothing(_: Executor) -> None:
    pass


def grown(disk: MemoryDisk, told: Told, storage: StorageConfig = SMALL, kind: type[Executor] = Executor) -> Executor:
    """Open and go on to the end of the line; the auditor is told of after each block."""
    executor = kind(disk, make_genesis(), storage=storage)
    for built in LINE[executor.final_header.height :]:
        told(executor)
        assert execution_error(executor, built.block) is None
        executor.run(Finalize(built.digest, b"certificate"))
    return executor


def read(executor: Executor, first: int) -> BlocksRead:
    result = executor.run(ReadBlocks(0, first, 64))
    assert isinstance(result, BlocksRead)
    return result


def test_as_many_blocks_are_kept_as_the_scenario_says() -> None:
    disk = MemoryDisk()
    executor = grown(disk, tell_everything)
    assert executor.archive.first_height == COUNT - KEPT
    again = Executor(disk, make_genesis(), storage=SMALL)
    for each in (executor, again):
        assert each.archive.first_height == COUNT - KEPT
        assert each.archive.height == COUNT
        assert [each.archive.block(height) is not None for height in range(COUNT - KEPT, COUNT + 1)] == [False] + [
            True
        ] * KEPT
    assert (again.recovered_height, again.replayed_blocks) == (COUNT, 0)
    assert again.prunable_height == 0, "the driver says it again"


def test_nothing_goes_that_the_auditor_lacks() -> None:
    assert grown(MemoryDisk(), tell_nothing).archive.first_height == 0
    assert grown(MemoryDisk(), lambda executor: executor.allow_pruning(5)).archive.first_height == 5
    assert grown(MemoryDisk(), lambda executor: executor.allow_pruning(10**9)).archive.first_height == COUNT - KEPT
    disk = MemoryDisk()
    grown(disk, lambda executor: executor.allow_pruning(3)).close()
    again = Executor(disk, make_genesis(), storage=SMALL)
    again.allow_pruning(7)
    again.allow_pruning(5)
    assert (again.prunable_height, again.archive.first_height) == (5, 3), "it prunes when it makes a block final"


def test_nothing_goes_by_default() -> None:
    storage = StorageConfig(segment_bytes=1)
    executor = grown(MemoryDisk(), tell_everything, storage)
    assert executor.archive.first_height == 0
    assert read(executor, 1).bodies


def test_pages_say_that_a_block_is_gone() -> None:
    executor = grown(MemoryDisk(), tell_everything)
    pages, first = executor.pages, COUNT - KEPT + 1
    asked: list[Callable[[int], object]] = [pages.block, pages.finality, lambda height: pages.blocks(height, 5)]
    for ask in asked:
        for height in (1, first - 1):
            with pytest.raises(
                BlockGone, match=rf"block {height} is not here: the blocks of .* begin at height {first}"
            ):
                ask(height)
        assert ask(first)
        assert not ask(COUNT + 1)
    assert pages.events(Cursor(first - 1), EventFilter()) is None
    assert pages.events(None, EventFilter()) is not None
    assert pages.first_block == first


def test_a_peer_is_told_where_the_blocks_begin() -> None:
    executor = grown(MemoryDisk(), tell_everything)
    first = COUNT - KEPT + 1
    assert read(executor, first - 1) == BlocksRead(0, (), (), b"", first)
    assert len(read(executor, first).bodies) == KEPT
    assert read(executor, COUNT + 1) == BlocksRead(0, (), (), b"")


class PrunesUnaudited(Executor):
    """The planted fault: pruned as soon as there are blocks enough, whatever the auditor has."""

    def run(self, job: Job) -> JobResult:
        self.prunable_height = 10**9
        return super().run(job)


def test_an_executor_that_prunes_too_early_is_caught() -> None:
    executor = grown(MemoryDisk(), tell_nothing, kind=PrunesUnaudited)
    with pytest.raises(BlockGone):
        executor.pages.blocks(1, 256)


@pytest.mark.slow
def test_a_fault_at_every_operation_loses_no_block_that_is_kept() -> None:
    """Of the last blocks, while files begin and go; the state follows from the archive again."""
    whole = MemoryDisk()
    grown(whole, tell_everything).close()
    for operation in range(whole.operations - 40, whole.operations + 1):
        for crash in (True, False):
            disk = MemoryDisk(FaultPlan(operation, crash))
            with suppress(SimulatedCrash, DiskError):
                grown(disk, tell_everything).close()
            disk.plan = None
            disk.crash(Random(operation))
            executor = Executor(disk, make_genesis(), storage=SMALL)
            final = executor.final_header.height
            assert executor.archive.height == final >= COUNT - 12
            assert executor.archive.first_height <= final - KEPT
            executor.close()
            assert grown(disk, tell_everything).archive.height == COUNT
