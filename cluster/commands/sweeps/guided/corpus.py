"""The corpus of a guided fuzz: a folder with a small JSON file for each genotype whose run reached something new.

A file's name follows from its protocol and genotype, so the files of several folders can be copied into one. A corpus
that is opened is made minimal: entries that add no feature to those before them are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from blake3 import blake3

from cluster.commands.sweeps.drawing.genotype import Genotype
from cluster.common.errors import BadInput
from cluster.common.files import write_for_user

MAX_ENTRIES: Final = 4_096
"""Maximum number of entries of a protocol in a corpus; those that add the fewest features are left out first."""
MAX_FILE_BYTES: Final = 2**20
HASH_DIGITS: Final = 16


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A genotype of the corpus, and what its run reached."""

    protocol: str
    genotype: str
    features: list[str]
    commit: str
    """Commit of the code that ran it."""
    seconds: float
    """How long the run took."""

    @property
    def name(self) -> str:
        """The name of the entry's file."""
        digest = blake3(f"{self.protocol} {self.genotype}".encode()).hexdigest()
        return f"{self.protocol}-{digest[:HASH_DIGITS]}.json"


class Corpus:
    """A folder of entries. Entries of the other protocol stay in it, and are not read."""

    def __init__(self, folder: Path, protocol: str) -> None:
        """Open the folder, or create it. Raises :class:`BadInput` if it holds anything but entries."""
        self._folder = folder
        self._protocol = protocol
        try:
            folder.mkdir(parents=True, exist_ok=True)
            paths = sorted(folder.iterdir())
        except OSError as error:
            raise BadInput(f"{folder}: cannot be opened: {error.strerror}") from None
        entries = [_read(path) for path in paths]
        self._found = [entry for entry in entries if entry.protocol == protocol]
        self.entries = minimal(self._found)
        """The entries of the protocol that add features; the one that adds most is first."""
        self.superfluous = len(self._found) - len(self.entries)
        """The number of entries that were found and add nothing."""

    def add(self, entry: Entry) -> None:
        """Add an entry, and write its file."""
        self.entries.append(entry)
        write_for_user(self._folder / entry.name, msgspec.json.format(msgspec.json.encode(entry)) + b"\n")

    def remove_superfluous(self) -> None:
        """Remove the files of entries that add nothing."""
        kept = {entry.name for entry in self.entries}
        for entry in self._found:
            if entry.name not in kept:
                (self._folder / entry.name).unlink(missing_ok=True)


def minimal(entries: Iterable[Entry]) -> list[Entry]:
    """The entries that cover all features: each adds as many features to those before it as any entry could.

    Among equals the cheaper entry comes first. The result does not depend on the order of ``entries``.
    """
    left = sorted(entries, key=lambda entry: (entry.seconds, entry.name))
    covered: set[str] = set()
    chosen: list[Entry] = []
    new = {entry.name: len(set(entry.features)) for entry in left}
    while left and len(chosen) < MAX_ENTRIES:
        best, most = None, 0
        for entry in left:
            if new[entry.name] <= most:
                continue  # the number can only have become smaller
            new[entry.name] = len(set(entry.features) - covered)
            if new[entry.name] > most:
                best, most = entry, new[entry.name]
        if best is None:
            break
        chosen.append(best)
        covered.update(best.features)
        left.remove(best)
    return chosen


def _read(path: Path) -> Entry:
    """Read an entry. Raises :class:`BadInput`."""
    try:
        data = path.read_bytes() if path.stat().st_size <= MAX_FILE_BYTES else b""
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}; a corpus holds its entries alone") from None
    try:
        entry = msgspec.json.decode(data, type=Entry)
    except msgspec.MsgspecError as error:
        raise BadInput(f"{path}: is no entry of a corpus: {error}") from None
    try:
        Genotype.parse(entry.genotype)
    except BadInput as error:
        raise BadInput(f"{path}: is no entry of a corpus: {error}") from None
    if entry.name != path.name:
        raise BadInput(f"{path}: is no entry of a corpus: expected its name to be {entry.name}")
    return entry


def write_start(path: Path, entries: Sequence[Entry]) -> None:
    """Write the entries with which a guided fuzz begins, so that it can be continued with the same ones."""
    write_for_user(path, msgspec.json.encode(list(entries)) + b"\n")


def read_start(path: Path) -> list[Entry] | None:
    """Read the entries with which a guided fuzz began; ``None`` if it is a new one. Raises :class:`BadInput`."""
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Entry])
    except (OSError, msgspec.MsgspecError) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from None
