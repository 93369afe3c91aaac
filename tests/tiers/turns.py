"""Slow tests take turns, from one place to the next and from one commit to the next.

    python -m pytest -p tests.tiers.turns --turn=$(git rev-parse HEAD) -m 'slow and not soak'

Continuous integration runs slow tests this way: those of every second file, and one of ``N`` that are marked
``turns(N)``. The commit's id, which is even or odd, says which: a commit has the same tests each time, and over some
commits every test has its turn. Without ``--turn`` all run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import count

import pytest

from consensus.protocols import PROTOCOLS
from tests.tiers.spreading import module_of


def by_turns(place: int, protocol: str) -> pytest.MarkDecorator:
    """``slow`` for one protocol and ``soak`` for the others. Which one is slow changes from place to place.

    Random scenarios have the same faults with both protocols, and the same byzantine behaviours.
    """
    return pytest.mark.slow if protocol == tuple(PROTOCOLS)[place % len(PROTOCOLS)] else pytest.mark.soak


def pytest_addoption(parser: pytest.Parser) -> None:
    help_ = "run only the slow tests whose turn it is at a commit, given by its id"
    parser.getgroup("tiers").addoption("--turn", metavar="COMMIT", help=help_)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if commit := config.getoption("turn"):
        kept = set(chosen(items, commit))
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def chosen(items: Iterable[pytest.Item], commit: str) -> Iterator[pytest.Item]:
    """The tests that run at a commit: those that are not slow, and the slow ones whose turn it is."""
    turn = int(commit, 16)
    slow: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    places: defaultdict[str, Iterator[int]] = defaultdict(count)
    for item in items:
        module = module_of(item.nodeid)
        if mark := item.get_closest_marker("turns"):
            if (next(places[module]) + turn // 2) % mark.args[0] == 0:
                yield item
        elif item.get_closest_marker("slow"):
            slow[module].append(item)
        else:
            yield item
    live = {module for module, each in slow.items() if any(item.get_closest_marker("live") for item in each)}
    for module in sorted(slow, key=lambda module: (module in live, module))[turn % 2 :: 2]:
        yield from slow[module]
