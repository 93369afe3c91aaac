"""The log of a search, ``machine.jsonl`` in its folder: the search, then a line for each piece of work."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from cluster.common.wording import json_bytes
from cluster.tools.sweeps.log import LineLog
from cluster.tools.sweeps.mutation.machine.hunting import Bug, Sound
from cluster.tools.sweeps.mutation.machine.operators import Candidate

LOG_FILE: Final = "machine.jsonl"


class _Head(msgspec.Struct, frozen=True):
    search: str
    commit: str


class MachineLog(LineLog):
    """The results of a search, on disk. Only a search with the same ``search`` and ``commit`` may continue it."""

    def __init__(self, folder: Path, search: str, commit: str) -> None:
        """Open or create the log. Raises :class:`BadInput` if it is of another search or commit, or unreadable."""
        self.sound: dict[int, Sound] = {}
        """Results of the runs of the unchanged code, keyed by the number of the group of runs."""
        self.bugs: dict[Candidate, Bug] = {}
        self._folder = folder
        super().__init__(folder / LOG_FILE, "search for machine-made bugs")
        head = _Head(search, commit)
        self._resume(head, _Head, partial(self._why_other, head), self._restore)

    def add(self, ended: Sound | Bug) -> None:
        """Append a result, durably."""
        self._take(ended)
        self._write(json_bytes(ended))

    def _take(self, ended: Sound | Bug) -> None:
        if isinstance(ended, Sound):
            self.sound[ended.number] = ended
        else:
            self.bugs[ended.candidate] = ended

    def _why_other(self, head: _Head, begun: _Head) -> str:
        for what, before, now in (("search", begun.search, head.search), ("commit", begun.commit, head.commit)):
            if before != now:
                return f"{self._path}: belongs to {what} {before}, this is {now}: choose another --out"
        return ""

    def _restore(self, number: int, line: bytes) -> None:
        self._take(self._decoded(number, line, Sound | Bug))  # type: ignore[arg-type]
