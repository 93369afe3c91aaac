"""Runs with either protocol, of which the slow tests make one: random scenarios have the same faults with both, and
the same byzantine behaviours."""

from __future__ import annotations

import pytest

from consensus.protocols import PROTOCOLS


def by_turns(place: int, protocol: str) -> pytest.MarkDecorator:
    """``slow`` for one protocol and ``soak`` for the others. Which one is slow changes from place to place."""
    return pytest.mark.slow if protocol == tuple(PROTOCOLS)[place % len(PROTOCOLS)] else pytest.mark.soak
