"""How tests are spread over processes (tests/tiers/spreading.py), and how inputs are drawn."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from cluster import set_heap_apart
from tests.tiers.spreading import ModulesScheduling, order

# How fast inputs are drawn, and how long one takes, says how busy the machine is, and nothing of what is tested.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ModulesScheduling:
    return ModulesScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = order([item.nodeid for item in items])
    items.sort(key=lambda item: place(item.nodeid))


def pytest_collection_finish() -> None:
    """Set apart what lives: the modules, the tests and their sources, which no test needs to have looked through."""
    set_heap_apart()
