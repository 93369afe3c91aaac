"""The ``links`` section of a scenario: what lies between validators."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from cluster.faults import BandwidthKbps, LinkMilliseconds, Share
from cluster.sections import Name, Section


class LinksSection(Section):
    """Links between validators, in the simulator."""

    latency_ms: LinkMilliseconds = 20.0
    jitter_ms: LinkMilliseconds = 5.0
    loss: Share = 0.0
    duplication: Share = 0.0
    reordering: Share = 0.0
    bandwidth_kbps: BandwidthKbps | None = None
    """Kilobits a second that each directed link carries; ``None`` is without bound."""
    regions: dict[Name, Annotated[list[Name], Field(min_length=1)]] = {}
    """Validators by region; those in none have links of ``latency_ms``."""
    latency_matrix_ms: dict[Name, dict[Name, LinkMilliseconds]] = {}
    """Latency from one region to another; the way back takes as long unless it is given too."""

    @model_validator(mode="after")
    def _regions_fit(self) -> LinksSection:
        placed = [name for names in self.regions.values() for name in names]
        if len(set(placed)) < len(placed):
            raise ValueError("regions: a validator is in two regions")
        for source, row in self.latency_matrix_ms.items():
            for region in (source, *row):
                if region not in self.regions:
                    raise ValueError(f"latency_matrix_ms: no region is named {region!r}")
        return self

    def region_latency_ms(self, sender: str | None, receiver: str | None) -> float:
        """Latency from a validator of one region to one of another; ``None`` is no region."""
        there = self.latency_matrix_ms.get(sender or "", {}).get(receiver or "")
        back = self.latency_matrix_ms.get(receiver or "", {}).get(sender or "")
        return next((value for value in (there, back) if value is not None), self.latency_ms)
