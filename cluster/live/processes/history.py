"""The phases of a host, and its processes, one after the other."""

from __future__ import annotations

from enum import Enum

import msgspec

from cluster.live.processes.processes import Process


class Phase(Enum):
    DOWN = "down"
    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"
    """The host shuts down cleanly, and other code takes its place."""
    DOUBTED = "doubted"
    """Ray has given up the actor. The node is asked whether it is alive, since it may have ended, too."""
    DEAD = "dead"
    """Ray does not start the host again."""


class ProcessHistory(msgspec.Struct, forbid_unknown_fields=True):
    """The processes of one host, one after the other. It is part of a checkpoint."""

    current: Process | None = None
    """The process that carries validators, or is about to."""
    last: Process | None = None
    """The process before the current one."""
    successor: Process | None = None
    """The process that answers while the host is down, and becomes the current one."""
    version: str = ""
    """The version of the newest process's code."""
    code: str = ""
    """The folder of that code."""
    actors: int = 0
    """Number of actors that the host had so far."""
    planned_kills: int = 0
    """How many more processes of the newest actor the scenario may kill."""
    deaths: int = 0
    """Number of processes that are known to be gone."""
    have_surely_ended: bool = False
    """Whether the processes of a lost node are known to be gone, so that the host may start elsewhere at once."""
    is_death_noted: bool = True
    """Whether the last process is known to be gone, and counted."""

    @property
    def known(self) -> list[Process]:
        """The processes that may still run on the host's current node. One that was lost with its node is left out."""
        return [process for process in (self.current, self.dying, self.successor) if process is not None]

    @property
    def dying(self) -> Process | None:
        """The last process while it may still run; ``None`` once it is known to be gone."""
        return None if self.is_death_noted else self.last

    def end(self) -> None:
        """Make the current process the last one: it is gone, or about to be."""
        if self.current is not None:
            self.last, self.is_death_noted = self.current, False
        self.current = self.successor = None

    def note_death(self) -> None:
        """Count the death of the last process, which is certain."""
        if not self.is_death_noted:
            self.is_death_noted = True
            self.deaths += 1

    def revive(self) -> None:
        """Make the last process the current one again: it had not died, it only did not answer."""
        self.current, self.last, self.is_death_noted = self.last, None, True
