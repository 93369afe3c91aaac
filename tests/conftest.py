"""How tests are spread over processes.

Those of a module stay together, for the sake of what they share. Modules with live testnets are one group: side by side
they would take each other's processors, and time is what they are about. They come first, since they wait more than
they work, then the modules with the most tests.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# How fast inputs are drawn, and how long one takes, says how busy the machine is, and nothing of what is tested.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

ROOT: Final = Path(__file__).resolve().parents[1]
LIVE: Final = "pytest.mark.live"


def module_of(test: str) -> str:
    """The file that a test's id begins with."""
    return test.partition("::")[0]


@cache
def is_live(module: str) -> bool:
    """Whether tests of a file are marked so; processes that only hand tests out see nothing of them but their ids."""
    return LIVE in (ROOT / module).read_text(encoding="utf-8")


class ModulesScheduling(LoadScopeScheduling):
    """Hands modules out whole, and those with live testnets to one process."""

    def _split_scope(self, nodeid: str) -> str:
        module = module_of(nodeid)
        return LIVE if is_live(module) else module


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ModulesScheduling:
    return ModulesScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    sizes = Counter(module_of(item.nodeid) for item in items)

    def order(item: pytest.Item) -> tuple[bool, int, str]:
        module = module_of(item.nodeid)
        return not is_live(module), -sizes[module], module

    items.sort(key=order)
