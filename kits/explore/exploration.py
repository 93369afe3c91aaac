"""One search as its command shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from cluster.common.wording import counted
from kits.explore.schedule import SchedulePage, realise
from kits.explore.scope import Scope
from kits.explore.search import Search


@dataclass(frozen=True)
class Explored:
    """The end of a search."""

    title: str
    scope: dict[str, Any]
    states: int
    left: int
    moves: int
    depth: int
    local_states: tuple[int, ...]
    seconds: float
    schedule: SchedulePage | None
    """The schedule of a violation."""

    @property
    def is_exhausted(self) -> bool:
        return self.left == 0 and self.schedule is None

    @property
    def line(self) -> str:
        """The end in one line."""
        found = (
            f"{counted(self.states, 'state')}, {counted(self.moves, 'move')}, depth {self.depth}, {self.seconds:.1f} s"
        )
        return f"{self.title}: {self._end}; {found}"

    @property
    def _end(self) -> str:
        if self.schedule is not None:
            return f"violation: {self.schedule.problem}"
        return "exhausted" if self.is_exhausted else f"bounded: {counted(self.left, 'state')} left"

    def page(self) -> dict[str, Any]:
        """The end as JSON."""
        schedule = self.schedule
        return {
            "scope": self.scope,
            "end": "violation" if schedule else "exhausted" if self.is_exhausted else "bounded",
            "states": self.states,
            "left": self.left,
            "moves": self.moves,
            "depth": self.depth,
            "local_states": list(self.local_states),
            "seconds": round(self.seconds, 3),
            "schedule": None if schedule is None else msgspec.to_builtins(schedule),
        }


def explore(scope: Scope, max_states: int, seconds: float, now_s: Callable[[], float]) -> Explored:
    """Search until all states are visited, a rule is broken, ``max_states`` are known or ``seconds`` are over."""
    began = now_s()
    result = Search(scope).run(max_states, lambda: now_s() - began >= seconds)
    schedule = None if result.found is None else realise(scope, result.found)
    size = f"{counted(scope.validators, 'validator')}, {counted(scope.views, 'view')}"
    title = f"{scope.protocol}, {size}, {scope.name}"
    return Explored(
        title, scope.page(), result.states, result.left, result.moves, result.depth, result.local_states,
        now_s() - began, schedule,
    )  # fmt: skip
