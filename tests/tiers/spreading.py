"""Which files of tests are loaded, and how their tests are spread over processes.

Each process loads all files to find the tests that it is to run, unless the marks that are named in a file show that a
choice such as ``-m 'slow and not soak'`` has none of its tests.

Those of a module stay together, for the sake of what they share. Modules with live testnets come first, since they wait
as much as they work. At most ``LANES`` processes run them: more would take each other's processors, and time is what
they are about. Then come the modules with the most tests.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import cache
from itertools import compress, product
from pathlib import Path
from typing import Final

import pytest
from _pytest.mark.expression import Expression
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

ROOT: Final = Path(__file__).resolve().parents[2]
LIVE: Final = "pytest.mark.live"
LANES: Final = 2
TIERS: Final = frozenset({"live", "slow", "soak"})
NAMED_BY: Final = {"slow": ("slow", "by_turns"), "soak": ("soak", "by_turns")}
"""Names of a tier's mark in the text of a file: its own, and the function that gives it."""


def module_of(test: str) -> str:
    """The file that a test's id begins with."""
    return test.partition("::")[0]


@cache
def tiers_named(file: Path) -> frozenset[str]:
    """The marks of tiers that tests of a file may have."""
    text = file.read_text(encoding="utf-8")
    return frozenset(tier for tier in TIERS if any(name in text for name in NAMED_BY.get(tier, (tier,))))


def may_be_chosen(file: Path, choice: str) -> bool:
    """Whether a choice by marks (pytest's ``-m``) may have tests of a file. Marks other than tiers may be anywhere."""
    if not set(re.findall(r"\w+", choice)) - {"and", "not", "or"} <= TIERS:
        return True
    named = sorted(tiers_named(file))
    chosen = Expression.compile(choice or "slow or not slow")
    return any(is_chosen(chosen, set(compress(named, has))) for has in product((False, True), repeat=len(named)))


def is_chosen(choice: Expression, marks: Collection[str]) -> bool:
    """Whether a choice has tests with just these marks."""
    return choice.evaluate(lambda name, /, **_: name in marks)


def require_named_tiers(items: Iterable[pytest.Item]) -> None:
    """Require that each file names the marks of its tests. Raises :class:`pytest.UsageError`."""
    for item in items:
        if unnamed := {mark.name for mark in item.iter_markers()} & TIERS - tiers_named(item.path):
            raise pytest.UsageError(
                f"{item.nodeid} is marked {', '.join(sorted(unnamed))}, which its file does not name"
            )


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
