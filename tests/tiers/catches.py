"""A pytest plugin that finds out which tests catch which planted bugs.

    python -m pytest -n 0 -p tests.tiers.catches --known=costs.json --catches=catches.json

``costs.json`` is a page of :mod:`tests.tiers.costs` with reach. Nothing is run but this: for each bug, a fork of the
session plants it, and runs the tests of ``make test`` that reach it, until one fails. If none fails, all slow tests
that reach it are run. Tests that hunt planted bugs are left out, and so are live ones, whose validators are other
processes. A test that fails with the control, too, does not count.

The answer has, by bug, ``tier`` (``test``, ``slow`` or ``none``), ``tests`` (the ids of those that failed) and
``tried`` (how many could be run of each tier). What a test module derived from a class when it was imported stays as
it is.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

import pytest
from _pytest.runner import runtestprotocol

from kits.mutation.detection import all_bugs
from tests.tiers.plants import CONTROL, plant

HUNTS: Final = ("tests/kits/mutation/", "tests/tiers/")
PROCESSES: Final = 2
HANGS_AFTER_S: Final = 60
"""With a planted bug a test may never end; then it counts as failed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers")
    group.addoption("--known", metavar="FILE", help="what tests cost and reach")
    group.addoption("--catches", metavar="FILE", help="write which tests catch which planted bugs; run nothing else")
    group.addoption("--bugs", metavar="NAME,…", help="with --catches: these bugs alone")
    group.addoption("--dear", metavar="SECONDS", type=float, help="with --catches: a test that costs more is slow")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    option = session.config.getoption
    if not option("catches"):
        return None
    suite = Suite(session.items, json.loads(Path(option("known")).read_text(encoding="utf-8")), option("dear"))
    names = option("bugs").split(",") if option("bugs") else list(all_bugs())
    for found in catch_all(suite, names):
        Path(option("catches")).write_text(json.dumps(found, indent=1), encoding="utf-8")
    return True


class Suite:
    """The tests that may catch something."""

    def __init__(self, items: list[pytest.Item], page: dict[str, Any], dear_s: float | None) -> None:
        self._page = page
        self._dear_s = dear_s
        self._items = [item for item in items if item.nodeid in page["tests"] and self._may_catch(item)]

    def _may_catch(self, item: pytest.Item) -> bool:
        passed = self._page["tests"][item.nodeid]["outcome"] == "passed"
        return passed and not item.nodeid.startswith(HUNTS) and item.get_closest_marker("live") is None

    def price(self, item: pytest.Item) -> float:
        """Seconds of a test by itself, with the fixtures that its file shares."""
        seconds: float = self._page["tests"][item.nodeid]["seconds"]
        return seconds + float(self._page["shared"].get(item.nodeid.partition("::")[0], 0.0))

    def _is_slow(self, item: pytest.Item) -> bool:
        is_dear = self._dear_s is not None and self.price(item) > self._dear_s
        return is_dear or item.get_closest_marker("slow") is not None

    def reaching(self, name: str, *, slow: bool) -> list[pytest.Item]:
        """The tests of a tier that reach a bug; first those that are likely to catch it.

        These are named for the detection scenario, or cost little and are about few bugs.
        """
        tests, scenario = self._page["tests"], all_bugs()[name].must_fail.scenario
        chosen = [item for item in self._items if name in tests[item.nodeid]["reach"] and self._is_slow(item) == slow]

        def order(item: pytest.Item) -> tuple[bool, float]:
            return scenario not in item.nodeid, (self.price(item) + 0.01) * len(tests[item.nodeid]["reach"])

        return sorted(chosen, key=order)

    def named(self, tests: list[str]) -> list[pytest.Item]:
        return [item for item in self._items if item.nodeid in tests]


def catch_all(suite: Suite, names: list[str]) -> Iterator[dict[str, Any]]:
    """Who catches each, as far as it is known after each bug.

    A bug that only tests caught that fail with the control, too, is tried anew without these.
    """
    found: dict[str, Any] = {}
    artefacts: set[str] = set()
    while names:
        with ThreadPoolExecutor(PROCESSES) as pool:
            for name, one in zip(names, pool.map(lambda name: catch(suite, name, artefacts), names), strict=True):
                found[name] = one
                yield found
        catching = {test for one in found.values() for test in one["tests"]}
        artefacts.update(failed_with(CONTROL, suite.named(sorted(catching)), stops=False))
        for one in found.values():
            one["tests"] = [test for test in one["tests"] if test not in artefacts]
        names = [name for name, one in found.items() if one["tier"] != "none" and not one["tests"]]
        yield found


def catch(suite: Suite, name: str, artefacts: set[str]) -> dict[str, Any]:
    tiers = {
        tier: [item for item in suite.reaching(name, slow=tier == "slow") if item.nodeid not in artefacts]
        for tier in ("test", "slow")
    }
    tried = {tier: len(items) for tier, items in tiers.items()}
    for tier, items in tiers.items():
        if failed := failed_with(name, items, stops=tier == "test"):
            return {"tier": tier, "tests": failed, "tried": tried}
    return {"tier": "none", "tests": [], "tried": tried}


def failed_with(name: str, items: list[pytest.Item], *, stops: bool) -> list[str]:
    """The ids of the tests that fail in a process with a bug; the first alone, if it stops there."""
    if not items:
        return []
    with tempfile.NamedTemporaryFile("r+", encoding="utf-8") as told:
        child = os.fork()
        if child == 0:
            try:
                _run_planted(name, items, told, stops)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        told.seek(0)
        return told.read().splitlines()


def _run_planted(name: str, items: list[pytest.Item], told: IO[str], stops: bool) -> None:
    def give_up(_number: int, _frame: FrameType | None) -> None:
        pytest.fail(f"still runs after {HANGS_AFTER_S} s of processor time")

    replaced, _kept = plant(name)
    signal.signal(signal.SIGPROF, give_up)
    for place, item in enumerate(items):
        given: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
        given.update({key: replaced[id(value)] for key, value in given.items() if id(value) in replaced})
        signal.setitimer(signal.ITIMER_PROF, HANGS_AFTER_S)
        reports = runtestprotocol(item, log=False, nextitem=items[place + 1] if place + 1 < len(items) else None)
        signal.setitimer(signal.ITIMER_PROF, 0)
        if any(report.failed for report in reports):
            print(item.nodeid, file=told, flush=True)
            if stops:
                return
