"""Modules stay whole, and live ones are few at a time."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.tiers import spreading
from tests.tiers.spreading import LANES, ModulesScheduling, may_be_chosen, order, require_named_tiers

LIVE = [f"live_{name}.py::{test}" for name in "abcde" for test in range(4)]
QUICK = [f"quick_{name}.py::{test}" for name in "abc" for test in range(5)]


class FakeProcess:
    """Runs what it is given in order."""

    gateway = SimpleNamespace(id="fake")

    def __init__(self, tests: list[str]) -> None:
        self.tests = tests
        self.queue: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.shutting_down
        self.queue += indices

    def shutdown(self) -> None:
        self.shutting_down = True


class FakeConfig:
    """What a command line asks for."""

    option = SimpleNamespace(loadscopereorder=False)

    def __init__(self, count: int) -> None:
        self._count = count

    def getvalue(self, _: str) -> list[str]:
        return self._count * ["popen"]


def ran(tests: list[str], count: int) -> list[list[str]]:
    """The tests that each of some processes ran, which take turns."""
    tests = sorted(tests, key=order(tests))
    scheduler = ModulesScheduling(cast("Any", FakeConfig(count)))
    fakes = [FakeProcess(tests) for _ in range(count)]
    nodes = [cast("Any", fake) for fake in fakes]
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, tests)
    scheduler.schedule()
    done: defaultdict[int, list[str]] = defaultdict(list)
    while scheduler.has_pending:
        for number, fake in enumerate(fakes):
            if fake.queue:
                index = fake.queue.pop(0)
                done[number].append(tests[index])
                scheduler.mark_test_complete(nodes[number], index)
    assert all(fake.shutting_down for fake in fakes)
    return [done[number] for number in range(count)]


@pytest.fixture(autouse=True)
def _fake_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreading, "is_live", lambda module: module.startswith("live_"))


@pytest.mark.parametrize("count", [1, 2, 3, 6])
@pytest.mark.parametrize("tests", [LIVE + QUICK, LIVE, QUICK], ids=["both", "live", "quick"])
def test_all_run_once_in_whole_modules(tests: list[str], count: int) -> None:
    spread = ran(tests, count)
    assert sorted(test for each in spread for test in each) == sorted(tests)
    places = {(number, spreading.module_of(test)) for number, each in enumerate(spread) for test in each}
    assert len(places) == len({module for _, module in places})


@pytest.mark.parametrize("tests", [LIVE + QUICK, LIVE], ids=["both", "live"])
def test_live_modules_come_first_and_to_few_processes(tests: list[str]) -> None:
    spread = ran(tests, 4)
    for each in spread[:LANES]:
        is_live = [test.startswith("live_") for test in each]
        assert any(is_live) and is_live == sorted(is_live, reverse=True)
    assert not [test for each in spread[LANES:] for test in each if test.startswith("live_")]


# --- which files are loaded -------------------------------------------------------------------------------------------

DEFAULT_TIER, SLOW_TIER = "not slow and not soak", "slow and not soak"


@pytest.mark.parametrize(
    ("text", "in_default", "in_slow"),
    [
        ("def test_it(): ...", True, False),
        ("@pytest.mark.slow\ndef test_it(): ...", True, True),
        ("pytest.mark.soak", True, False),
        ("pytest.param(1, marks=by_turns(0, 'simplex'))", True, True),
    ],
)
def test_a_file_is_loaded_if_its_text_may_have_chosen_tests(
    text: str, in_default: bool, in_slow: bool, tmp_path: Path
) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(text, encoding="utf-8")
    assert may_be_chosen(file, DEFAULT_TIER) == in_default
    assert may_be_chosen(file, SLOW_TIER) == in_slow
    assert may_be_chosen(file, "") and may_be_chosen(file, "slow and other")
    assert may_be_chosen(file, "slow or live") == ("slow" in text or "by_turns" in text)


def test_a_mark_that_its_file_does_not_name_is_refused(tmp_path: Path) -> None:
    """Another file may give it; then the tests would be left out unseen."""
    file = tmp_path / "test_some.py"
    file.write_text("from elsewhere import marked", encoding="utf-8")
    marked = SimpleNamespace(nodeid="test_some.py::test_it", path=file, iter_markers=lambda: [pytest.mark.slow.mark])
    with pytest.raises(
        pytest.UsageError, match=r"^test_some\.py::test_it is marked slow, which its file does not name$"
    ):
        require_named_tiers([cast("Any", marked)])
    plain = SimpleNamespace(
        nodeid="test_some.py::test_it", path=file, iter_markers=lambda: [pytest.mark.usefixtures.mark]
    )
    require_named_tiers([cast("Any", plain)])
