"""``one_way_partition``: messages of some validators do not reach others."""

from __future__ import annotations

from typing import Literal

from cluster.faults.link_kind import Cutting


class OneWayPartitionFault(Cutting):
    """Messages of some validators do not reach others; the other direction works."""

    DRAWN = {"from": lambda drawing: drawing.some(), "for_ms": lambda drawing: drawing.lasting_ms()}

    kind: Literal["one_way_partition"]
