"""Which tests are loaded, how they are spread over processes (tests/tiers/spreading.py), and how inputs are drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from cluster import set_heap_apart
from tests.tiers.skips import pytest_runtest_makereport
from tests.tiers.spreading import ModulesScheduling, may_be_chosen, order, require_named_tiers

__all__ = ["pytest_runtest_makereport"]

# How fast inputs are drawn, and how long one takes, says how busy the machine is, and nothing of what is tested.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ModulesScheduling:
    return ModulesScheduling(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without tests of the chosen tiers."""
    is_test_file = collection_path.match("test_*.py")
    return True if is_test_file and not may_be_chosen(collection_path, config.option.markexpr) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    require_named_tiers(items)
    place = order([item.nodeid for item in items])
    items.sort(key=lambda item: place(item.nodeid))


def pytest_collection_finish() -> None:
    """Set apart what lives: the modules, the tests and their sources, which no test needs to have looked through."""
    set_heap_apart()
