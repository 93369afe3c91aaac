"""``cut``: links between two sides carry no messages."""

from __future__ import annotations

from typing import Any, Literal

from cluster.faults.kind import Drawing
from cluster.faults.link_kind import BothWays


class CutFault(BothWays):
    """The links between two sides carry no messages in either direction. All other links work."""

    kind: Literal["cut"]

    @classmethod
    def draw(cls, drawing: Drawing) -> dict[str, Any]:
        """One validator is cut off from some others, or all are split into two halves that share one validator."""
        random, for_ms = drawing.random, drawing.lasting_ms()
        drawn = random.sample(drawing.targets, len(drawing.targets))
        middle = len(drawn) // 2
        shape = {"from": drawn[:1], "to": drawn[1 : 1 + random.randint(1, middle)]}
        if random.random() < 0.5:
            shape = {"kind": "partition", "groups": [drawn[: middle + 1], drawn[middle:]]}
        return {"for_ms": for_ms, **shape}
