"""The journal's writer: order, many appends to one sync, and what happens when the disk fails."""

from __future__ import annotations

import asyncio
import threading

from cluster.disks.memory import MemoryDisk
from cluster.live.threads.journal import JournalWriter
from tests.hangs import HANGS_AFTER_S, bounded
from validator.node.events import Append, ReplaceJournal
from validator.storage.disk import DiskError
from validator.storage.journal import JOURNAL_FILE


class GatedDisk(MemoryDisk):
    """A disk whose syncs wait until they are let."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.fails = False

    def sync(self, name: str, written: int | None = None) -> None:
        assert self.gate.wait(HANGS_AFTER_S)
        if self.fails:
            raise DiskError(f"{name}: sync failed")
        super().sync(name, written)


class Written:
    """A writer and what it said."""

    def __init__(self, disk: GatedDisk) -> None:
        self.tokens: asyncio.Queue[int | None] = asyncio.Queue()
        self.crashes: asyncio.Queue[BaseException] = asyncio.Queue()
        self.writer = JournalWriter(disk, "test", self.tokens.put_nowait, self.crashes.put_nowait)


@bounded
async def test_appends_share_a_sync() -> None:
    disk = GatedDisk()
    written = Written(disk)
    for token in range(1, 101):
        written.writer.write(Append(token, b"%d," % token))
    assert not written.writer.idle
    disk.gate.set()
    assert [await written.tokens.get(), await written.tokens.get()] == [1, 100]
    assert disk.syncs == 2
    assert disk.read(JOURNAL_FILE) == b"".join(b"%d," % token for token in range(1, 101))
    assert written.writer.idle
    await written.writer.close()


@bounded
async def test_replacements_keep_their_place() -> None:
    disk = GatedDisk()
    written = Written(disk)
    operations: list[Append | ReplaceJournal]
    operations = [Append(1, b"a"), Append(2, b"b"), ReplaceJournal(b"C"), Append(3, b"d"), Append(4, b"e")]
    for operation in operations:
        written.writer.write(operation)
    disk.gate.set()
    await written.writer.close()
    assert [written.tokens.get_nowait(), written.tokens.get_nowait()] == [1, 4]
    assert disk.read(JOURNAL_FILE) == b"Cde"


@bounded
async def test_a_replacement_alone_has_no_token() -> None:
    disk = GatedDisk()
    disk.gate.set()
    written = Written(disk)
    written.writer.write(ReplaceJournal(b"x"))
    assert await written.tokens.get() is None
    await written.writer.close()


@bounded
async def test_nothing_is_written_after_a_failure() -> None:
    disk = GatedDisk()
    disk.fails = True
    disk.gate.set()
    written = Written(disk)
    written.writer.write(Append(1, b"a"))
    assert "sync failed" in str(await written.crashes.get())
    disk.fails = False
    written.writer.write(Append(2, b"b"))
    await written.writer.close()
    assert written.tokens.empty()
    assert disk.read(JOURNAL_FILE) == b"a"
