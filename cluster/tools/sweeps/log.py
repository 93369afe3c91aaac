"""The log of a sweep, ``seeds.jsonl`` in its folder: the task, then a line per seed that ended.

A line that a crash left incomplete is cut off; its seed runs again.
"""

from __future__ import annotations

import os
from io import BufferedRandom
from pathlib import Path
from typing import TypeVar

import msgspec

from cluster.common.errors import BadInput
from cluster.record.folder import SWEEP_LOG_FILE
from cluster.tools.sweeps.outcome import SeedOutcome

T = TypeVar("T")


class SweepLog:
    """The outcomes of a sweep, on disk. ``task`` and ``commit`` identify the sweep that may continue it."""

    def __init__(self, folder: Path, task: str, commit: str = "") -> None:
        """Open or begin the folder's log. Raises :class:`BadInput` if it is of another task or commit, or cannot be
        read.
        """
        self._commit = commit
        self.outcomes: dict[int, SeedOutcome] = {}
        self._path = folder / SWEEP_LOG_FILE
        try:
            if not self._path.exists() and folder.is_dir() and any(folder.iterdir()):
                raise BadInput(f"{folder}: is not empty and holds no sweep to continue: choose another --out")
            folder.mkdir(parents=True, exist_ok=True)
            self._path.touch()
            self._file: BufferedRandom = self._path.open("r+b")
        except OSError as error:
            raise BadInput(f"{self._path}: cannot be opened: {error.strerror}") from None
        try:
            self._recover(task)
        except BadInput:
            self._file.close()
            raise

    def add(self, outcome: SeedOutcome) -> None:
        """Append the outcome of a seed."""
        self.outcomes[outcome.seed] = outcome
        self._write(msgspec.json.encode(outcome))

    def close(self) -> None:
        self._file.close()

    def _recover(self, task: str) -> None:
        data = self._file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._file.truncate(len(whole))
        self._file.seek(len(whole))
        lines = whole.splitlines()
        if not lines:
            self._write(msgspec.json.encode({"task": task, "commit": self._commit}))
            return
        if differs := self._what_differs(self._decoded(1, lines[0], dict[str, str]), task):
            raise BadInput(f"{self._path}: {differs}")
        for number, line in enumerate(lines[1:], start=2):
            outcome = self._decoded(number, line, SeedOutcome)
            self.outcomes[outcome.seed] = outcome

    def _decoded(self, number: int, line: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(line, type=kind)
        except msgspec.MsgspecError as error:
            raise BadInput(f"{self._path}: line {number}: {error}") from None

    def _what_differs(self, begun: dict[str, str], task: str) -> str:
        other, commit = begun.get("task"), begun.get("commit", "")
        if other != task:
            return f"belongs to another sweep ({other}), not to this one ({task})"
        if commit != self._commit:
            return f"was begun at commit {commit}, this is {self._commit}: choose another --out"
        return ""

    def _write(self, line: bytes) -> None:
        self._file.write(line + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
