"""Consensus in message delays, messages and bytes: Simplex and HotStuff in the simulator.

Every link takes the same time, all validators are honest, and nothing else takes any time: executing, syncing and
deciding are instant, and no block waits for an interval. So what is measured is what the protocols promise.

- ``<protocol>_block_hops``: delays from one proposal to the next.
- ``<protocol>_finality_hops``: delays from a proposal to the moment at which all validators have it final. In HotStuff
  the leader two views on, who collects the finalize votes, has it one delay before all others.
- ``<protocol>_messages_<n>``, ``<protocol>_bytes_<n>``: what all of ``n`` validators send a block, a broadcast counted
  once for each recipient. Certificates are lists of signatures, and in Simplex whoever assembles one broadcasts it.

The figures in delays must be met exactly, by every block that is measured. Signatures are the keyed hash that stands in
for Ed25519 in simulations: it is as long, and no message depends on it otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from reporting import Lane, Metric, Size, run_benchmark
from runs import uninterrupted

from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.scenario.node_setup import FULL_SPEED
from cluster.simulation.driver import Simulation
from cluster.simulation.machine import Machine
from cluster.simulation.observer import Observer
from validator.chain.messages import Reading

SEED = 1
DELAY_MS = 100
BLOCK_HOPS = {"simplex": 2.0, "hotstuff": 2.0}
FINALITY_HOPS = {"simplex": 3.0, "hotstuff": 5.0}
WARM_UP = 3
"""Heights before the first that is measured."""
HEIGHTS = 12
VALIDATORS = (4, 16, 64, 128)
QUICK_VALIDATORS = (4, 16)


class NotAsPromised(Exception):
    """Blocks of one run took different times, or the run did not get far."""


@dataclass(frozen=True)
class Figures:
    """What one protocol took with so many validators."""

    block_hops: float
    finality_hops: float
    messages: float
    """A block."""
    bytes: float
    """A block."""


def main() -> None:
    run_benchmark(__doc__, lanes, minutes=1.5)


def lanes(size: Size) -> list[Lane]:
    return [
        Lane(
            partial(_figures_of, protocol, count),
            _metrics(protocol, count),
            Size.QUICK if count in QUICK_VALIDATORS else Size.USUAL,
        )
        for protocol in BLOCK_HOPS
        for count in VALIDATORS
    ]


def _metrics(protocol: str, count: int) -> list[Metric]:
    hops = [
        Metric(f"{protocol}_block_hops", "delays a block", BLOCK_HOPS[protocol], at_least=False),
        Metric(f"{protocol}_finality_hops", "delays until all", FINALITY_HOPS[protocol], at_least=False),
    ]
    traffic = [Metric(f"{protocol}_{name}_{count}", f"{name}/block") for name in ("messages", "bytes")]
    return [*hops, *traffic] if count == VALIDATORS[0] else traffic


def _figures_of(protocol: str, count: int) -> list[float]:
    """The delays depend on no number of validators. Raises :class:`NotAsPromised`."""
    found = figures(protocol, count)
    hops = [found.block_hops, found.finality_hops]
    if count == VALIDATORS[0]:
        return [*hops, found.messages, found.bytes]
    if hops != [BLOCK_HOPS[protocol], FINALITY_HOPS[protocol]]:
        raise NotAsPromised(f"{count} validators take {hops} delays")
    return [found.messages, found.bytes]


def figures(protocol: str, validators: int) -> Figures:
    """Run a network and measure it. Raises :class:`NotAsPromised`."""
    simulation = Simulation(_scenario(protocol, validators), SEED, "benchmark", pace=FULL_SPEED)
    traffic = _Traffic(simulation)
    simulation.observe(traffic)
    record = uninterrupted(simulation.run())
    return Figures(_block_hops(record), _finality_hops(record), *traffic.a_block())


class _Traffic(Observer):
    """Counts what is sent while the measured heights are proposed."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._messages = 0
        self._bytes = 0

    def a_block(self) -> tuple[float, float]:
        """Messages and bytes."""
        return self._messages / HEIGHTS, self._bytes / HEIGHTS

    def sends(self, machine: Machine, recipient: int | None, payload: bytes, content: Reading | None) -> None:
        if WARM_UP < len(self._simulation.record.proposals) <= WARM_UP + HEIGHTS:
            copies = len(self._simulation.machines) - 1 if recipient is None else 1
            self._messages += copies
            self._bytes += copies * len(payload)


def _block_hops(record: RunRecord) -> float:
    """Delays between two proposals, the same between all that are measured."""
    proposals = [record.proposals[height] for height in range(WARM_UP, WARM_UP + HEIGHTS + 1)]
    return _the_one({(later - earlier) / DELAY_MS for earlier, later in pairwise(proposals)}, "blocks")


def _finality_hops(record: RunRecord) -> float:
    """Delays from a proposal until the last validator has the block final, the same for all that are measured."""
    latest: dict[int, float] = {}
    for seen in record.finalizations:
        latest[seen.height] = max(seen.at_ms, latest.get(seen.height, 0.0))
    heights = range(WARM_UP, WARM_UP + HEIGHTS)
    return _the_one({(latest[height] - record.proposals[height]) / DELAY_MS for height in heights}, "finalities")


def _the_one(values: set[float], what: str) -> float:
    if len(values) != 1:
        raise NotAsPromised(f"{what} took {', '.join(map(str, sorted(values)))} delays")
    return values.pop()


def _scenario(protocol: str, validators: int) -> Scenario:
    return Scenario.model_validate(
        {
            "name": "hops",
            "validators": validators,
            "consensus": {"protocol": protocol, "signatures": "keyed-hash", "block_interval_ms": 0},
            "links": {"latency_ms": DELAY_MS, "jitter_ms": 0},
            "load": {"users": []},
            "stop": {"height": WARM_UP + HEIGHTS + 1, "drain_blocks": 0, "timeout_s": 600},
            "success": {"heights_compared": WARM_UP, "transactions": 0, "fires": 0},
        }
    )


if __name__ == "__main__":
    main()
