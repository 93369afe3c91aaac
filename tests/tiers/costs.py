"""A pytest plugin that measures tests: processor time, reach of planted bugs, and which of them a test catches.

    python -m pytest -p tests.tiers.costs --costs=costs.json --reach
    python -m pytest -p tests.tiers.costs --plant=wrong-balance -n 0 -x tests/validator

The first writes a page of ``tests`` (by id: ``seconds``, ``outcome``, ``slow`` and ``reach``, names of planted bugs)
and ``shared`` (by file: seconds of fixtures that several tests share). Seconds are processor seconds of the test's
process and of its children that have ended. What a file computes once for all its tests, outside of a fixture, is
counted for the first test that asks.
"""

from __future__ import annotations

import json
import resource
import signal
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from tests.tiers.plants import plant, watch_reach

HANGS_AFTER_S: Final = 60
"""With a planted bug a test may never end; then it counts as failed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers")
    group.addoption("--costs", metavar="FILE", help="write each test's processor seconds")
    group.addoption("--reach", action="store_true", help="with --costs: write which planted bugs each test could meet")
    group.addoption("--plant", metavar="NAME", help="plant a bug for the whole session")
    group.addoption("--pick", metavar="FILE", help="run the tests whose ids a JSON list has, in its order")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs(config), "costs")
    if name := config.getoption("plant"):
        config.pluginmanager.register(Planted(name), "planted")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if file := config.getoption("pick"):
        places = {test: place for place, test in enumerate(json.loads(Path(file).read_text(encoding="utf-8")))}
        items[:] = sorted((item for item in items if item.nodeid in places), key=lambda item: places[item.nodeid])


def processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


class Planted:
    """A bug for the whole session; a test that hangs with it fails."""

    def __init__(self, name: str) -> None:
        _, self._kept = plant(name)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        def give_up(_number: int, _frame: FrameType | None) -> None:
            pytest.fail(f"still runs after {HANGS_AFTER_S} s of processor time")

        before = signal.signal(signal.SIGPROF, give_up)
        signal.setitimer(signal.ITIMER_PROF, HANGS_AFTER_S)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)


class Costs:
    """Measures where tests run, and collects where reports arrive: the same process, or the one that starts workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._file: str | None = config.getoption("costs")
        self._is_worker = hasattr(config, "workerinput")
        self._mark = 0.0
        self._shared = 0.0
        self._depth = 0
        self._is_last = False
        self._seen: set[str] = set()
        self._of_module: tuple[str, set[str]] = ("", set())
        self._tests: defaultdict[str, dict[str, Any]] = defaultdict(
            lambda: {"seconds": 0.0, "outcome": "passed", "slow": False, "reach": []}
        )
        self._modules: defaultdict[str, float] = defaultdict(float)
        if config.getoption("reach"):
            watch_reach(self._seen)

    # Where tests run.

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        self._mark, self._shared = processor_seconds(), 0.0
        self._seen.clear()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        if fixturedef.scope == "function":
            return (yield)
        before, self._depth = processor_seconds(), self._depth + 1
        outside = set(self._seen)
        self._seen.clear()
        try:
            return (yield)
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._shared += processor_seconds() - before
            self._note_shared_reach(request.node.nodeid)
            self._seen |= outside

    def _note_shared_reach(self, test: str) -> None:
        """The tests of a module reach what its fixtures reached."""
        module = test.partition("::")[0]
        if self._of_module[0] != module:
            self._of_module = (module, set())
        self._of_module[1].update(self._seen)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
        self._is_last = nextitem is None or nextitem.path != item.path
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report: Any = yield
        used, self._mark = processor_seconds() - self._mark, processor_seconds()
        if call.when == "teardown" and self._is_last:
            self._shared = used
        module, of_module = self._of_module
        reach = self._seen | (of_module if module == item.nodeid.partition("::")[0] else set())
        is_slow = item.get_closest_marker("slow") is not None
        report.costs = {
            "seconds": used - self._shared,
            "shared": self._shared,
            "slow": is_slow,
            "reach": sorted(reach),
        }
        self._shared = 0.0
        return report

    # Where reports arrive.

    def pytest_runtest_logreport(self, report: Any) -> None:
        if self._is_worker or not hasattr(report, "costs"):
            return
        test = self._tests[report.nodeid]
        test["seconds"] = round(test["seconds"] + report.costs["seconds"], 4)
        test["slow"] = report.costs["slow"]
        test["reach"] = sorted({*test["reach"], *report.costs["reach"]})
        if report.outcome != "passed":
            test["outcome"] = report.outcome
        self._modules[report.nodeid.partition("::")[0]] += report.costs["shared"]

    def pytest_sessionfinish(self) -> None:
        if self._file and not self._is_worker:
            page = {"tests": self._tests, "shared": {module: round(s, 4) for module, s in self._modules.items() if s}}
            Path(self._file).write_text(json.dumps(page, indent=1), encoding="utf-8")
