"""The simulator's disk: memory that loses unsynced data at a crash.

A file has three parts: the visible content, the durable content, and the pending operations between the two. At a
crash (:meth:`MemoryDisk.crash`) some pending operations survive, and one or all of these may be torn, drawn from the
random source that the caller gives; nothing else here is random. A failed sync is as bad as a kernel may make it:
readers still see the writes, but these never become durable unless they are written again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from cluster.disks import PLANNED_FAILURE
from validator.storage.disk import DiskError


class SimulatedCrash(Exception):
    """Raised when the simulated machine stops in the middle of a disk operation.

    It is no :class:`DiskError`, so that only the test catches it.
    """


@dataclass(frozen=True)
class FaultPlan:
    """A planned fault: the disk fails or crashes at its ``operation``-th change (from 1; reads do not count).

    With ``verbs`` (``append``, ``write``, ``sync`` …) this happens at the first change of such a kind from there on.

    A failing append or write leaves the first half of its bytes, as a full disk does. After a crash, an append or
    write is pending, and any other operation is undone; :meth:`MemoryDisk.crash` must be called next.
    """

    operation: int
    crash: bool = False
    verbs: frozenset[str] = frozenset()
    files: str = ""
    """Prefix of the names of the files that count, with ``verbs``."""

    def is_due(self, operation: int, verb: str, name: str) -> bool:
        if not self.verbs:
            return operation == self.operation
        return operation >= self.operation and verb in self.verbs and name.startswith(self.files)


class _Write(NamedTuple):
    offset: int
    data: bytes


@dataclass
class _File:
    visible: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[_Write] = field(default_factory=list)
    settled: int = 0
    """The number of writes to the file that are no longer pending."""
    is_durable: bool = False
    """Whether the file itself survives a crash, even if empty."""
    replaced_at: int = 0
    """The number of the disk's last change that replaced the whole file; 0 if none did."""
    whole_bytes: int = 0
    """The file's length right after it was last replaced as a whole."""

    def settle(self, written: int | None = None) -> list[_Write]:
        """Remove and return pending writes: those among the file's first ``written`` writes, or all."""
        count = len(self.pending) if written is None else max(0, written - self.settled)
        taken, self.pending = self.pending[:count], self.pending[count:]
        self.settled += len(taken)
        return taken


class MemoryDisk:
    """One validator's data folder in memory: a :class:`~validator.storage.disk.Disk`, which describes the methods."""

    def __init__(self, plan: FaultPlan | None = None) -> None:
        self.plan = plan
        self.operations = 0
        """Number of changes so far, including failed ones."""
        self.syncs = 0
        self._files: dict[str, _File] = {}

    def names(self) -> list[str]:
        return sorted(self._files)

    def size(self, name: str) -> int:
        return len(self._files[name].visible) if name in self._files else 0

    @property
    def used_bytes(self) -> int:
        return sum(len(file.visible) for file in self._files.values())

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        if name not in self._files:
            return b""
        return bytes(self._files[name].visible[offset : None if length is None else offset + length])

    def append(self, name: str, data: bytes) -> int:
        offset = self.size(name)
        self._write(name, offset, data, "append")
        return offset

    def write(self, name: str, offset: int, data: bytes) -> None:
        self._write(name, offset, data, "write")

    def truncate(self, name: str, size: int) -> None:
        """Cut the file to ``size`` bytes, durably. Raises :class:`DiskError` if the file has fewer bytes."""
        if size > self.size(name):
            raise DiskError(f"{name}: offset {size}: truncate failed: the file ends at {self.size(name)}")
        self._begin(name, size, "truncate")
        if name in self._files:
            file = self._files[name]
            del file.visible[size:]
            del file.durable[size:]
            kept = [_Write(at, data[: size - at]) for at, data in file.pending if at < size]
            file.settled += len(file.pending) - len(kept)
            file.pending = kept

    def written(self, name: str) -> int:
        """The number of writes to the file so far: a sync that begins now makes them durable."""
        file = self._files.get(name)
        return 0 if file is None else file.settled + len(file.pending)

    def sync(self, name: str, written: int | None = None) -> None:
        """Make the file's first ``written`` writes durable, or all of them.

        Later writes stay pending, though a real sync might make them durable too.
        """
        self.syncs += 1
        try:
            self._begin(name, self.size(name), "sync")
        except DiskError:
            if name in self._files:
                self._files[name].settle()
            raise
        if name in self._files:
            file = self._files[name]
            _apply(file.durable, file.settle(written))
            file.is_durable = True

    def replace(self, name: str, data: bytes) -> None:
        self._begin(name, 0, "replace")
        self._files[name] = _File(
            bytearray(data), bytearray(data), [], self.written(name), True, self.operations, len(data)
        )

    def remove(self, name: str) -> None:
        self._begin(name, 0, "remove")
        self._files.pop(name, None)

    def release(self, name: str) -> None:
        """Does nothing: no handle is held."""

    def durable_size(self, name: str) -> int:
        """The number of bytes of the file that survive a crash; 0 if there is none."""
        return len(self._files[name].durable) if name in self._files else 0

    def durable(self, name: str, offset: int = 0) -> bytes:
        """The part of the file that survives a crash, from ``offset`` to the end."""
        return bytes(self._files[name].durable[offset:]) if name in self._files else b""

    def replaced(self, name: str) -> tuple[int, int]:
        """The disk's last change that replaced the whole file, and the file's length after it; zeros if none did."""
        file = self._files.get(name)
        return (0, 0) if file is None else (file.replaced_at, file.whole_bytes)

    def flip_bit(self, name: str, offset: int, bit: int) -> None:
        """Flip one bit (0 to 7) of the durable byte at an offset of a file."""
        file = self._files[name]
        file.durable[offset] ^= 1 << bit
        file.visible[offset] ^= 1 << bit

    def crash(self, rng: Random, scattered: bool = False) -> None:
        """Lose unsynced data and restart: the durable content becomes the visible one.

        Of each file's pending operations a prefix survives, and its last one may be torn. With ``scattered``, each may
        survive independently and each may be torn, as on a disk that reorders writes.
        """
        for name in self.names():
            file = self._files[name]
            survivors = _scattered(file.pending, rng) if scattered else _prefix(file.pending, rng)
            if not (file.is_durable or survivors):
                del self._files[name]
                continue
            _apply(file.durable, survivors)
            file.visible = bytearray(file.durable)
            file.settle()
            file.is_durable = True

    def _write(self, name: str, offset: int, data: bytes, verb: str) -> None:
        try:
            self._begin(name, offset, verb)
        except DiskError:
            self._put(name, _Write(offset, data[: len(data) // 2]))
            raise
        except SimulatedCrash:
            self._put(name, _Write(offset, data))
            raise
        self._put(name, _Write(offset, data))

    def _put(self, name: str, write: _Write) -> None:
        file = self._files.setdefault(name, _File())
        _apply(file.visible, [write])
        file.pending.append(write)

    def _begin(self, name: str, offset: int, verb: str) -> None:
        """Count an operation, and trigger the planned fault."""
        self.operations += 1
        plan = self.plan
        if plan is not None and plan.is_due(self.operations, verb, name):
            self.plan = None
            if plan.crash:
                raise SimulatedCrash(f"{name}: offset {offset}: crash at {verb}")
            raise DiskError(f"{name}: offset {offset}: {verb} failed: {PLANNED_FAILURE}")


def _apply(content: bytearray, writes: list[_Write]) -> None:
    for offset, data in writes:
        if offset > len(content):
            content.extend(bytes(offset - len(content)))
        content[offset : offset + len(data)] = data


def _torn(write: _Write, rng: Random) -> _Write:
    """The part of a write that survives a crash: all of it or, in half of the cases, only its beginning."""
    return write if rng.random() < 0.5 else _Write(write.offset, write.data[: rng.randint(0, len(write.data))])


def _prefix(pending: list[_Write], rng: Random) -> list[_Write]:
    survivors = pending[: rng.randint(0, len(pending))]
    return survivors[:-1] + [_torn(write, rng) for write in survivors[-1:]]


def _scattered(pending: list[_Write], rng: Random) -> list[_Write]:
    return [_torn(write, rng) for write in pending if rng.random() < 0.5]
