"""The log of a sweep, ``seeds.jsonl`` in its folder: the task, then a line per seed that ended.

A line that a crash left incomplete is cut off; its seed runs again. Lines are appended in the order in which seeds end.
Closing the log sorts them by seed, so the same seeds give the same bytes, wherever they ran. Measurements are in a
separate file, ``work.jsonl``: where each seed ran, and for how long. No verdict depends on that file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from cluster.commands.sweeps.outcome import SeedOutcome
from cluster.common.checkout import version
from cluster.common.errors import BadInput
from cluster.common.files import write_for_user, writing_for_user
from cluster.common.wording import json_bytes
from cluster.record.folder import SWEEP_LOG_FILE

WORK_FILE: Final = "work.jsonl"

T = TypeVar("T")


class Work(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a seed ran, and for how long."""

    seed: int
    seconds: float
    node: str
    """The node's name; empty on this machine."""


class _Numbered(msgspec.Struct):
    """Decodes only the seed of a log line."""

    seed: int


class LineLog(Generic[T]):
    """A file with a line of JSON for each piece of work that ended. The first line identifies the work."""

    def __init__(
        self, path: Path, kind: Any, work: str, identity: Mapping[str, Any], notes: Mapping[str, Any] = {}
    ) -> None:
        """Open the log and restore its entries, or create it in an empty folder.

        ``kind`` is the type of its entries, and ``work`` the name of the work in errors. Only a log with an equal
        ``identity`` is continued; ``notes`` are further fields of a new log's first line. Raises :class:`BadInput`.
        """
        folder, self._path = path.parent, path
        self.entries: list[T] = []
        """All entries in the order of their lines, unless a subclass keeps them in another way."""
        try:
            if not path.exists() and folder.is_dir() and any(folder.iterdir()):
                raise BadInput(f"{folder}: is not empty and holds no {work} to continue: choose another --out")
            folder.mkdir(parents=True, exist_ok=True)
            path.touch()
            self._file: FileIO = path.open("r+b", buffering=0)  # a line without room is not tried again by close()
        except OSError as error:
            raise BadInput(f"{path}: cannot be opened: {error.strerror}") from None
        try:
            lines = self._whole_lines()
            if not lines:
                self._write(json_bytes({**identity, **notes}))
                return
            begun = self._decoded(1, lines[0], dict[str, Any])
            for name, value in identity.items():
                if (other := begun.get(name)) != value:
                    problem = f"its {name} is {other}, expected {value}: choose another --out"
                    raise BadInput(f"{path}: belongs to another {work}: {problem}")
            for number, line in enumerate(lines[1:], start=2):
                self._take(self._decoded(number, line, kind))
        except BadInput:
            self._file.close()
            raise

    def add(self, entry: T) -> None:
        """Append an entry, durably."""
        self._take(entry)
        self._write(json_bytes(entry))

    def _take(self, entry: T) -> None:
        """Note an entry that is new, or that an earlier process wrote."""
        self.entries.append(entry)

    def _whole_lines(self) -> list[bytes]:
        """Read the complete lines. A last line that a crash or a full disk left incomplete is cut off from the file."""
        self._file.seek(0)
        data = self._file.readall()
        whole = data[: data.rfind(b"\n") + 1]
        self._file.truncate(len(whole))
        self._file.seek(len(whole))
        return whole.splitlines()

    def _decoded(self, number: int, line: bytes, kind: Any) -> Any:
        try:
            return msgspec.json.decode(line, type=kind)
        except msgspec.MsgspecError as error:
            raise BadInput(f"{self._path}: line {number}: {error}") from None

    def _write(self, line: bytes) -> None:
        left = line + b"\n"
        with writing_for_user(self._path):
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class SweepLog(LineLog[SeedOutcome]):
    """The outcomes of a sweep, on disk. Only a sweep with the same ``task`` and ``commit`` may continue it."""

    def __init__(self, folder: Path, task: str, commit: str = "") -> None:
        """Open or create the log. Raises :class:`BadInput` if it is of another task or commit, or unreadable."""
        self.outcomes: dict[int, SeedOutcome] = {}
        self._work_path = folder / WORK_FILE
        identity, notes = {"task": task, "commit": commit}, {"version": version()}
        super().__init__(folder / SWEEP_LOG_FILE, SeedOutcome, "sweep", identity, notes)
        self._restore_work()

    def add(self, outcome: SeedOutcome, node: str = "") -> None:
        """Append the outcome of a seed; ``node`` is the name of the node where it ran."""
        with writing_for_user(self._work_path), self._work_path.open("ab") as file:
            file.write(json_bytes(Work(outcome.seed, round(outcome.seconds, 3), node)) + b"\n")
        super().add(msgspec.structs.replace(outcome, seconds=0.0))
        self._take(outcome)

    def _take(self, outcome: SeedOutcome) -> None:
        self.outcomes[outcome.seed] = outcome

    def close(self) -> None:
        """Close the log, and sort its lines by seed."""
        head, *lines = self._whole_lines()
        self._file.close()
        ordered = sorted(lines, key=lambda line: msgspec.json.decode(line, type=_Numbered).seed)
        if ordered != lines:
            write_for_user(self._path, b"".join(line + b"\n" for line in (head, *ordered)))

    def _restore_work(self) -> None:
        """Restore the seconds of seeds that ended before. A line that cannot be read is ignored."""
        if not self._work_path.exists():
            return
        for line in self._work_path.read_bytes().splitlines():
            with suppress(msgspec.MsgspecError):
                work = msgspec.json.decode(line, type=Work)
                if work.seed in self.outcomes:
                    outcome = self.outcomes[work.seed]
                    self.outcomes[work.seed] = msgspec.structs.replace(outcome, seconds=work.seconds)
