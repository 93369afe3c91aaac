"""``stampede prove``, ``verify`` and ``state``: read a validator's data folder, without writing to it.

The folder of a running validator is locked; the commands refuse it. Keys and values are in hex.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from cluster.commands.console.command import FILE, OPTIONAL, Command, Group, Topic, argument, option
from cluster.common.errors import BadInput, ExitCode
from cluster.common.files import write_for_user
from cluster.disks.directory import LOCK_NAME, DirectoryDisk
from validator.primitives.types import HASH_BYTES, Hash, Height
from validator.state import HistoryError, LogStateStore
from validator.state.hashing import KEY_BYTES_LIMIT, TWIG_ENTRIES, decode_entry, twigs_for, upper_depth
from validator.state.proof import ProofError, verify
from validator.storage.disk import Disk, DiskError

STATE_FOLDER: Final = "state"
DIFFERENCES_SHOWN: Final = 20
SHOWN_LIMIT: Final = 100
VALUE_BYTES_SHOWN: Final = 64


class ReadOnlyDisk:
    """A read-only view of a data folder: writes are discarded or refused. Implements ``Disk``."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._sizes: dict[str, int] = {}

    def names(self) -> list[str]:
        """The names of the existing files, sorted."""
        return self._disk.names()

    def size(self, name: str) -> int:
        """The size of a file in bytes, after truncations through this view."""
        return min(self._disk.size(name), self._sizes.get(name, self._disk.size(name)))

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read up to ``length`` bytes of a file from ``offset`` on; ``None`` means up to its end."""
        end = self.size(name) if length is None else min(offset + length, self.size(name))
        return self._disk.read(name, offset, max(end - offset, 0))

    def append(self, name: str, data: bytes) -> int:
        """Refuse to append. Always raises :class:`DiskError`."""
        raise DiskError(f"{name}: offset {self.size(name)}: opened for reading alone")

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Do nothing. Only recovery writes here, and it writes bytes that are in the file already."""

    def truncate(self, name: str, size: int) -> None:
        """Make the file appear shorter in this view."""
        self._sizes[name] = size

    def sync(self, name: str) -> None:
        """Do nothing."""

    def replace(self, name: str, data: bytes) -> None:
        """Refuse to replace the file. Always raises :class:`DiskError`."""
        raise DiskError(f"{name}: offset 0: opened for reading alone")

    def remove(self, name: str) -> None:
        """Do nothing. Only recovery removes files, and it does not read them afterwards."""

    def release(self, name: str) -> None:
        """Free the resources that are held for reading the file. They are acquired again when it is read."""
        self._disk.release(name)


@contextmanager
def opened(folder: Path) -> Iterator[LogStateStore]:
    """Open the state in a validator's data folder, read-only.

    Raises :class:`BadInput`, which names file and offset if the data is damaged.
    """
    if not (folder / STATE_FOLDER).is_dir():
        raise BadInput(f"{folder} is not a validator's data folder: it has no folder {STATE_FOLDER}")
    had_lock = (folder / LOCK_NAME).exists()
    try:
        disk = DirectoryDisk(folder)
    except DiskError as error:
        raise BadInput(str(error)) from None
    with closing(disk):
        try:
            store = LogStateStore.open(ReadOnlyDisk(disk), STATE_FOLDER)
        except DiskError as error:
            raise BadInput(str(error)) from None
        finally:
            if not had_lock:
                (folder / LOCK_NAME).unlink(missing_ok=True)
        with closing(store):
            yield store


# --- differences ----------------------------------------------------------------------------------------------------


def differing_keys(first: LogStateStore, second: LogStateStore) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Keys with different values in two final states, with both values.

    Only twigs with different roots are read: the active entry of such a key is in one of them, in each store that has
    it.
    """
    seen: set[bytes] = set()
    for twig in _differing_twigs(first, second):
        for store in (first, second):
            for key in _active_keys(store, twig):
                if key in seen:
                    continue
                seen.add(key)
                values = (first.final.get(key), second.final.get(key))
                if values[0] != values[1]:
                    yield key, *values


def _differing_twigs(first: LogStateStore, second: LogStateStore) -> Iterator[int]:
    """Numbers of the twigs whose roots differ between two stores, ascending. Subtrees of equal nodes are skipped."""
    mine, other = first.stand_at_final(), second.stand_at_final()
    pruned = min(first.log.base.first_twig, second.log.base.first_twig)
    waiting = [(upper_depth(max(twigs_for(mine.next_position), twigs_for(other.next_position))), 0)]
    while waiting:
        level, index = waiting.pop()
        if (index + 1) << level <= pruned or mine.tree.upper_node(level, index) == other.tree.upper_node(level, index):
            continue
        if level:
            waiting += [(level - 1, 2 * index + 1), (level - 1, 2 * index)]
        else:
            yield index


def _active_keys(store: LogStateStore, twig: int) -> Iterator[bytes]:
    engine = store.stand_at_final()
    first, after = twig * TWIG_ENTRIES, min((twig + 1) * TWIG_ENTRIES, engine.next_position)
    if twig < store.log.base.first_twig or first >= after:
        return
    bits = engine.tree.twig(twig).active_bits
    data = store.log.entries(first, after, engine.entry_ends)
    ends = engine.entry_ends(data, after - first)
    for offset, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if bits[offset >> 3] >> (offset & 7) & 1:
            yield decode_entry(data[start:end]).key


# --- arguments ------------------------------------------------------------------------------------------------------


def _hex(text: str) -> bytes:
    digits = text.removeprefix("0x")
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not hex") from None


def _key(text: str) -> bytes:
    """Parse a key of the state from hex. The empty key is refused, since it is always absent."""
    key = _hex(text)
    if not 1 <= len(key) <= KEY_BYTES_LIMIT:
        raise argparse.ArgumentTypeError(f"{text[:64]!r} is no key: expected 1 to {KEY_BYTES_LIMIT} bytes in hex")
    return key


def _root(text: str) -> Hash:
    root = _hex(text)
    if len(root) != HASH_BYTES:
        raise argparse.ArgumentTypeError(f"{text!r} is no state root: expected {2 * HASH_BYTES} hex digits")
    return Hash(root)


def _shortened(value: bytes | None) -> str:
    if value is None:
        return "absent"
    shown = value[:VALUE_BYTES_SHOWN].hex() or "(empty)"
    return shown if len(value) <= VALUE_BYTES_SHOWN else f"{shown}… ({len(value)} bytes)"


# --- commands -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DataFolder(Command):
    """What all that read a data folder have in common."""

    RUNS_CODE = False

    folder: Path = argument("DIR", "a validator's data folder", Path)


@dataclass(frozen=True, kw_only=True)
class Prove(DataFolder):
    TOPIC = Topic.LOOK
    HELP = "write a proof of the value of a state key"

    key: bytes = argument("KEY", "the key in hex", _key)
    height: int | None = option("a height that is still held (default: the final one)", "H", int)
    out: Path | None = option("write the proof to FILE instead of printing it in hex", writes=FILE)

    def run(self) -> int:
        with opened(self.folder) as store:
            height = store.final.height if self.height is None else Height(self.height)
            try:
                proof, root = store.prove(self.key, height), store.root_at(height)
            except HistoryError as error:
                raise BadInput(str(error)) from None
        if self.out is None:
            print(proof.hex())
        else:
            write_for_user(self.out, proof)
            print(f"height {height}, state root {root.hex()}: {len(proof)} bytes written to {self.out}")
        return ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class Verify(Command):
    TOPIC = Topic.LOOK
    HELP = "check a proof against the state root of a header"
    RUNS_CODE = False

    root: Hash = argument("ROOT", "the header's state_root in hex", _root)
    key: bytes = argument("KEY", "the key in hex", _key)
    proof: str = argument("PROOF", "the proof: a file, or hex")

    def run(self) -> int:
        try:
            value = verify(self.root, self.key, _read_proof(self.proof))
        except ProofError as error:
            print(f"fail: {error}")
            return ExitCode.FAIL
        print("pass: the key is absent" if value is None else f"pass: the key has the value {value.hex() or '(empty)'}")
        return ExitCode.PASS


def _read_proof(text: str) -> bytes:
    """Read a proof, given in hex or as the path of a file. Raises :class:`BadInput`.

    An empty text is refused: it is probably from an unset shell variable.
    """
    try:
        proof = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        try:
            proof = Path(text).read_bytes()
        except OSError:
            raise BadInput(f"{text!r} is neither a file nor hex") from None
    if not proof:
        raise BadInput(f"the proof {text!r} is empty: expected a file, or hex")
    return proof


@dataclass(frozen=True, kw_only=True)
class Stats(DataFolder):
    HELP = "print sizes and heights"

    def run(self) -> int:
        with opened(self.folder) as store:
            engine = store.stand_at_final()
            rows = {
                "height": store.final.height,
                "state root": store.final.root.hex(),
                "live keys": engine.live,
                "entries ever appended": engine.next_position,
                "oldest active entry": engine.oldest,
                "twigs": twigs_for(engine.next_position),
                "pruned twigs": store.log.base.first_twig,
                "heights that can be proved": f"{store.first_height} to {store.final.height}",
                "log": f"{store.log.size:,} bytes in {store.log.segments} files",
                "recovery": store.recovery.reason or "nothing was cut off",
            }
        for name, value in rows.items():
            print(f"{name:27}{value}")
        return ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class Get(DataFolder):
    HELP = "print the value of a key"

    key: bytes = argument("KEY", "the key in hex", _key)

    def run(self) -> int:
        with opened(self.folder) as store:
            value = store.final.get(self.key)
        print("absent" if value is None else value.hex())
        return ExitCode.FAIL if value is None else ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class Scan(DataFolder):
    HELP = "print keys with a prefix, and their values"

    prefix: bytes = argument("PREFIX", "in hex (default: all)", _hex, nargs=OPTIONAL, default=b"")
    limit: int = option("keys (default %(default)s)", "N", int, default=SHOWN_LIMIT)

    def run(self) -> int:
        with opened(self.folder) as store:
            found = list(store.final.scan(self.prefix))
        for key, value in found[: self.limit]:
            print(f"{key.hex()}  {_shortened(value)}")
        if len(found) > self.limit:
            print(f"… and {len(found) - self.limit} more")
        return ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class CheckState(DataFolder):
    HELP = "compute the state root from the log and compare it with the recorded one"

    def run(self) -> int:
        try:
            with opened(self.folder) as store:
                height, root, recovery = store.final.height, store.final.root, store.recovery
        except BadInput as error:
            print(f"fail: {error}")
            return ExitCode.FAIL
        print(f"pass: the log gives height {height} and state root {root.hex()}, as recorded")
        if recovery.reason:
            print(f"cut off {recovery.dropped_bytes} bytes: {recovery.reason}")
        return ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class Diff(DataFolder):
    HELP = "print the first keys at which two states differ"

    other: Path = argument("OTHER", "another validator's data folder", Path)

    def run(self) -> int:
        if self.folder.resolve() == self.other.resolve():
            raise BadInput("both folders are the same")
        with opened(self.folder) as first, opened(self.other) as second:
            heights = (first.final.height, second.final.height)
            found = list(islice(differing_keys(first, second), DIFFERENCES_SHOWN + 1))
        if heights[0] != heights[1]:
            print(f"heights {heights[0]} and {heights[1]}")
        for key, mine, other in found[:DIFFERENCES_SHOWN]:
            print(f"{key.hex()}  {_shortened(mine)}  {_shortened(other)}")
        if not found:
            print("no key differs")
        elif len(found) > DIFFERENCES_SHOWN:
            print("… and more")
        return ExitCode.FAIL if found else ExitCode.PASS


TOOLS: Final = {"stats": Stats, "get": Get, "scan": Scan, "diff": Diff, "check": CheckState}
COMMANDS: Final = {
    "prove": Prove,
    "verify": Verify,
    "state": Group("read a validator's state: stats, get, scan, diff, check", TOOLS, "TOOL", Topic.LOOK),
}
