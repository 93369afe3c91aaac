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
from itertools import pairwise

from reporting import Metric, Size, run_benchmark

from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.scenario.node_setup import FULL_SPEED
from cluster.simulation.driver import Simulation

SEED = 1
DELAY_MS = 100
BLOCK_HOPS = {"simplex": 2.0, "hotstuff": 2.0}
FINALITY_HOPS = {"simplex": 3.0, "hotstuff": 5.0}
WARM_UP = 3
"""Heights before the first that is measured."""
HEIGHTS = 12
HOPS_VALIDATORS = 4
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
    run_benchmark(__doc__, measure)


def measure(size: Size) -> list[Metric]:
    """All metrics of this benchmark."""
    metrics: list[Metric] = []
    for protocol in BLOCK_HOPS:
        found = {count: figures(protocol, count) for count in (QUICK_VALIDATORS if size.quick else VALIDATORS)}
        hops = found[HOPS_VALIDATORS]
        for count, other in found.items():
            if (other.block_hops, other.finality_hops) != (hops.block_hops, hops.finality_hops):
                raise SystemExit(f"{protocol} takes other delays with {count} validators than with {HOPS_VALIDATORS}")
        block, finality = BLOCK_HOPS[protocol], FINALITY_HOPS[protocol]
        metrics += [
            Metric(f"{protocol}_block_hops", hops.block_hops, "delays a block", block, at_least=False),
            Metric(f"{protocol}_finality_hops", hops.finality_hops, "delays until all", finality, at_least=False),
        ]
        metrics += [Metric(f"{protocol}_messages_{n}", each.messages, "messages/block") for n, each in found.items()]
        metrics += [Metric(f"{protocol}_bytes_{n}", each.bytes, "bytes/block") for n, each in found.items()]
    return metrics


def figures(protocol: str, validators: int) -> Figures:
    """Run a network and measure it. Raises :class:`NotAsPromised`."""
    run = _Run(_scenario(protocol, validators))
    record = run.run()
    return Figures(_block_hops(record), _finality_hops(record), *run.traffic_a_block())


class _Run(Simulation):
    """Counts what is sent while the measured heights are proposed."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario, SEED, "benchmark", pace=FULL_SPEED)
        self._messages = 0
        self._bytes = 0

    def traffic_a_block(self) -> tuple[float, float]:
        """Messages and bytes."""
        return self._messages / HEIGHTS, self._bytes / HEIGHTS

    def _send(self, sender: int, recipient: int | None, payload: bytes) -> None:
        if WARM_UP < len(self.record.proposals) <= WARM_UP + HEIGHTS:
            copies = len(self.machines) - 1 if recipient is None else 1
            self._messages += copies
            self._bytes += copies * len(payload)
        super()._send(sender, recipient, payload)


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
