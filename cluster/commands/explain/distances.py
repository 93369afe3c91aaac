"""The table of latencies, per validator or per region. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from cluster.scenario.topology.network import Network

MAX_MEMBERS: Final = 10
"""Maximum number of validators with a row each if there are no regions. With more, the table has a single row."""
MAX_MEASURED: Final = 8
"""Maximum number of validators per group whose latencies are determined. This bounds the time for large networks."""
NO_REGION: Final = "(no region)"


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a title."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def distances(network: Network) -> Table:
    """The latencies between groups of validators, a row per sender, in milliseconds.

    A cell is ``cut`` if there is no path, and empty if there is no other validator.
    """
    groups = _groups(network)
    rows = tuple((name, *(_cell(network, one, other) for other in groups.values())) for name, one in groups.items())
    return Table("Latencies", ("from \\ to", *groups), rows, _note(network))


def _groups(network: Network) -> dict[str, list[int]]:
    indexes = range(len(network.names))
    if not any(network.regions):
        if len(network.names) <= MAX_MEMBERS:
            return {network.names[index]: [index] for index in indexes}
        return {"all": list(indexes)}
    groups: dict[str, list[int]] = {}
    for index in indexes:
        groups.setdefault(network.regions[index] or NO_REGION, []).append(index)
    return groups


def _cell(network: Network, senders: Sequence[int], receivers: Sequence[int]) -> str:
    pairs = [(a, b) for a in senders[:MAX_MEASURED] for b in receivers[:MAX_MEASURED] if a != b]
    found = [network.quality(*pair) for pair in pairs]
    latencies = sorted(quality.latency_ms for quality in found if quality is not None)
    if not latencies:
        return "cut" if found else ""
    least, most = (f"{latency:.4g}" for latency in (latencies[0], latencies[-1]))
    text = least if least == most else f"{least}–{most}"
    return text if len(latencies) == len(found) else f"{text}, some cut"


def _note(network: Network) -> str:
    measured = range(min(len(network.names), MAX_MEASURED * MAX_MEASURED))
    routes = [route for a in measured for b in measured if a != b and (route := network.route(a, b)) is not None]
    if network.graph is None or not routes:
        return "milliseconds of one message; every pair has its own link"
    hops = [len(route) - 1 for route in routes]
    return (
        f"milliseconds of one message; {len(network.links):,} links; the median path leads over {median(hops):g},"
        f" the longest over {max(hops)}"
    )
