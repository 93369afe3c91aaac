"""How tests are spread over processes.

Those of a module stay together, for the sake of what they share. Modules with live testnets come first, since they wait
as much as they work. At most ``LANES`` processes run them: more would take each other's processors, and time is what
they are about. Then come the modules with the most tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Final

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

ROOT: Final = Path(__file__).resolve().parents[2]
LIVE: Final = "pytest.mark.live"
LANES: Final = 2


def module_of(test: str) -> str:
    """The file that a test's id begins with."""
    return test.partition("::")[0]


@cache
def is_live(module: str) -> bool:
    """Whether tests of a file are marked so; processes that only hand tests out see nothing of them but their ids."""
    return LIVE in (ROOT / module).read_text(encoding="utf-8")


def order(tests: Iterable[str]) -> Callable[[str], tuple[bool, int, str]]:
    """A key that sorts the ids of tests by module: live modules first, then those with the most tests."""
    sizes = Counter(map(module_of, tests))

    def place(test: str) -> tuple[bool, int, str]:
        module = module_of(test)
        return not is_live(module), -sizes[module], module

    return place


class ModulesScheduling(LoadScopeScheduling):
    """Hands modules out whole, and those with live testnets to the first processes alone."""

    def _split_scope(self, nodeid: str) -> str:
        return module_of(nodeid)

    def _next_for(self, node: WorkerController) -> str | None:
        """The first module that waits, and that a process may run."""
        runs_live = node in self.nodes[:LANES]
        return next((module for module in self.workqueue if runs_live or not is_live(module)), None)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if module := self._next_for(node):
            self.workqueue.move_to_end(module, last=False)
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if self._next_for(node) or node.shutting_down:
            super()._reschedule(node)
        else:
            node.shutdown()
