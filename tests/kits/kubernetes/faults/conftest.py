"""A cluster of four hosts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kits.kubernetes.api_server import ApiServer, pod_of_host


@pytest.fixture
def cluster() -> Iterator[ApiServer]:
    with ApiServer() as found:
        found.add(*(pod_of_host(number, f"machine-{number % 2}") for number in range(4)))
        found.add(pod_of_host(1, instance="another"))
        yield found
