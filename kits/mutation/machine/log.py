"""The log of a search, ``machine.jsonl`` in its folder: the search, then a line for each piece of work."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cluster.commands.sweeps.log import LineLog
from kits.mutation.machine.hunting import Bug, Sound
from kits.mutation.machine.operators import Candidate

LOG_FILE: Final = "machine.jsonl"


class MachineLog(LineLog[Sound | Bug]):
    """The results of a search, on disk. Only a search with the same ``search`` and ``commit`` may continue it."""

    def __init__(self, folder: Path, search: str, commit: str) -> None:
        """Open or create the log. Raises :class:`BadInput` if it is of another search or commit, or unreadable."""
        self.sound: dict[int, Sound] = {}
        """Results of the runs of the unchanged code, keyed by the number of the group of runs."""
        self.bugs: dict[Candidate, Bug] = {}
        identity = {"search": search, "commit": commit}
        super().__init__(folder / LOG_FILE, Sound | Bug, "search for machine-made bugs", identity)

    def _take(self, ended: Sound | Bug) -> None:
        if isinstance(ended, Sound):
            self.sound[ended.number] = ended
        else:
            self.bugs[ended.candidate] = ended
