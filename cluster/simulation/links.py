"""The link model: what happens to a message between two validators."""

from __future__ import annotations

from random import Random

from cluster.scenario import LinksSection
from cluster.simulation.clock import MICROSECONDS_A_MILLISECOND


class Links:
    """Draws the fate of every message from the run's one random source."""

    def __init__(self, section: LinksSection, random: Random) -> None:
        self._latency_us = round(section.latency_ms * MICROSECONDS_A_MILLISECOND)
        self._jitter_us = round(section.jitter_ms * MICROSECONDS_A_MILLISECOND)
        self._loss, self._duplication = section.loss, section.duplication
        self._random = random
        self.sent = self.dropped = self.duplicated = 0

    def delays_us(self) -> list[int]:
        """When each copy of a message arrives, in microseconds from now; empty where it is lost."""
        self.sent += 1
        if self._loss and self._random.random() < self._loss:
            self.dropped += 1
            return []
        copies = 1
        if self._duplication and self._random.random() < self._duplication:
            self.duplicated += 1
            copies = 2
        return [self._delay_us() for _ in range(copies)]

    def _delay_us(self) -> int:
        if not self._jitter_us:
            return self._latency_us
        return max(0, self._latency_us + self._random.randint(-self._jitter_us, self._jitter_us))
