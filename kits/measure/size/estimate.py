"""The resources that a scenario needs, estimated from a calibration. Pure.

With n validators on H hosts, a block costs ``a·n + b·n² + s·v·n·H`` of processor time: the work of each validator per
block, its work per message, and the signatures that each host checks once for all its validators (s per validator and
block, v seconds each). The two measured testnets give a and b. Bytes per block are ``a·n + b·n²`` as well. Memory per
host and disk per validator grow with the number of peers.

Three limits bound the block rate: the cores, a host (whose validators share one thread), and the protocol, which waits
for the block interval and two messages. The model leaves out faults, stalls, and blocks that a heavy load makes slow to
execute; they make the estimate less accurate, not meaningless.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.common.wording import counted
from cluster.scenario import Scenario
from kits.measure.size.measuring import HOSTS, LARGE, SMALL, Calibration, IdleTestnet

SIGNATURES: Final = {"simplex": 2, "hotstuff": 1}
"""Votes per validator and block, keyed by protocol."""
MESSAGES_PER_BLOCK: Final = 2
"""Sequential messages per block: a proposal and a vote."""
DRIVER_CORES: Final = 0.2
"""Cores that driver and Ray use, measured with 16 validators."""
MODEL_ERROR: Final = 0.25
"""Share by which the range of block rates is wider than that of the calibration's rounds, for effects that the model
leaves out."""
STEADY: Final = 1.3
"""Ratio of the rounds' block rates above which a machine counts as changing its speed."""
REQUEST_S: Final = 0.003
"""Processor time per request of the load, in Locust and in the validator; measured."""
RAY_WORKER_BYTES: Final = 45_000_000
"""Extra memory of a host as a Ray actor, compared with a plain process; measured."""
RAY_BYTES: Final = 180_000_000
"""Memory of Ray's own processes on its head node; measured."""
DRIVER_BYTES: Final = 480_000_000
"""Memory of the driver, the process that executes its blocks again, and Locust; measured."""
STREAM_FILES: Final = 2
"""File descriptors per peer of a validator: each of the two dials the other."""
HOST_FILES: Final = 60
MEASURED_PAIRS: Final = 32
"""Maximum number of validators among which the median latency is taken."""
TIGHT: Final = 0.9
"""Share of the available memory and disk that a run may take."""
MIN_USABLE_CORES: Final = 0.05
"""Minimum number of cores that count as left to the validators, however busy the machine is."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The resources of a scenario's run, and the limits of the machine."""

    validators: int
    hosts: int
    cores: float
    """Cores that the scenario needs to reach :attr:`wanted_rate`."""
    cores_here: float
    wanted_rate: float
    """Blocks per second if there were enough cores."""
    rate: float
    """Expected blocks per second."""
    rate_low: float
    rate_high: float
    """Upper bound of the rate; the range is meant to contain nine runs of ten."""
    limit: str
    """The limit that determines :attr:`rate`, in words."""
    block_core_ms: float
    """Processor time per block, of all validators together."""
    block_bytes: float
    """Bytes that validators send each other per block."""
    bandwidth_bytes: float
    """Bytes per second at :attr:`rate`, of all validators together."""
    memory_bytes: float
    memory_here: float
    disk_bytes: float
    """Disk use at the end of the run, of all validators and the run's folder."""
    disk_here: float
    files: int
    """File descriptors that a host opens."""
    files_here: int
    seconds: float
    """Length of the run from the first block on."""
    problems: tuple[str, ...]
    """Why the scenario does not fit here, in words; empty if it does."""
    warnings: tuple[str, ...]
    """What makes the run slower than estimated, or the estimate uncertain, in words."""


def estimate(scenario: Scenario, measured: Calibration, cores: int | None, files_here: int) -> Estimate:
    """The estimate for a scenario, on this machine or on ``cores`` that are as fast as this machine's."""
    section, small, large = scenario.validators, measured.small, measured.large
    n, hosts = section.count, section.host_count
    here = float(cores if cores is not None else measured.cores)
    block_s, extra = _block_seconds(scenario, measured), _extra_cores(n, measured)
    limits = _limits(scenario, measured, here)
    limit = min(limits, key=lambda name: limits[name])
    rate, wanted = limits[limit], min(list(limits.values())[1:])
    low, high = _range(scenario, measured, here)
    heights = scenario.stop.height + scenario.stop.drain_blocks
    seconds = heights / rate
    memory = RAY_BYTES + DRIVER_BYTES + hosts * _host_bytes(n, n / hosts, measured)
    disk = _disk_bytes(scenario, measured, heights, seconds)
    files = HOST_FILES + -(-n // hosts) * (n - 1) * STREAM_FILES
    block_bytes = _by_square(n, small.bytes_sent / small.blocks, large.bytes_sent / large.blocks)
    problems = []
    if memory > TIGHT * measured.memory_bytes:
        problems.append(f"memory: it wants {_gb(memory)}, {_gb(measured.memory_bytes)} are available")
    if disk > TIGHT * measured.disk_free_bytes:
        problems.append(f"disk: it wants {_gb(disk)}, {_gb(measured.disk_free_bytes)} are free")
    if files > files_here:
        problems.append(f"open files: a host opens {files:,}, the limit is {files_here:,} (ulimit -n)")
    if seconds > scenario.stop.timeout_s:
        problems.append(
            f"time: {heights:,} heights take {seconds:,.0f} s at {rate:.3g} blocks/s, stop.timeout_s is"
            f" {scenario.stop.timeout_s:,}"
        )
    return Estimate(
        validators=n,
        hosts=hosts,
        cores=wanted * block_s + extra,
        cores_here=here,
        wanted_rate=wanted,
        rate=rate,
        rate_low=low,
        rate_high=high,
        limit=limit,
        block_core_ms=block_s * MILLISECONDS_PER_SECOND,
        block_bytes=block_bytes,
        bandwidth_bytes=block_bytes * rate,
        memory_bytes=memory,
        memory_here=measured.memory_bytes,
        disk_bytes=disk,
        disk_here=measured.disk_free_bytes,
        files=files,
        files_here=files_here,
        seconds=seconds,
        problems=tuple(problems),
        warnings=tuple(_warnings(scenario, measured, rate)),
    )


def _limits(scenario: Scenario, measured: Calibration, here: float) -> dict[str, float]:
    """Blocks per second that each of three limits allows, keyed by the limit in words. The first limit is the available
    cores."""
    n, hosts, block_s = scenario.validators.count, scenario.validators.host_count, _block_seconds(scenario, measured)
    return {
        f"the {counted(int(here), 'core')}": _usable_cores(n, here, _extra_cores(n, measured), measured) / block_s,
        "the busiest host, whose validators share a thread": hosts / block_s,
        "the protocol: the block interval, and two messages": 1 / _least_interval_s(scenario, block_s / hosts),
    }


def _range(scenario: Scenario, measured: Calibration, here: float) -> tuple[float, float]:
    """The lowest and the highest block rate by any round of the calibration, wider by :data:`MODEL_ERROR`."""
    machines = [measured, *(replace(measured, small=each.small, large=each.large) for each in measured.rounds)]
    rates = [min(_limits(scenario, machine, here).values()) for machine in machines]
    return min(rates) / (1 + MODEL_ERROR), max(rates) * (1 + MODEL_ERROR)


def _extra_cores(n: int, measured: Calibration) -> float:
    """Cores that a run takes in addition to an idle testnet: for the driver, requests and execution of the load."""
    return DRIVER_CORES + measured.load.transactions * REQUEST_S + n * measured.load.core_seconds


def _warnings(scenario: Scenario, measured: Calibration, rate: float) -> Iterator[str]:
    """Warnings about a leader timeout below the block time, and about a machine that changes its speed."""
    section, block_ms = scenario.consensus, MILLISECONDS_PER_SECOND / rate
    rates = [each.large.blocks / each.large.seconds for each in measured.rounds] or [rate]
    if max(rates) > STEADY * min(rates):
        yield (
            f"this machine changes its speed: {LARGE} validators made {min(rates):.3g} to {max(rates):.3g} blocks/s in"
            f" {len(rates)} rounds"
        )
    if section.leader_timeout_ms < block_ms:
        yield (
            f"consensus.leader_timeout_ms: {section.leader_timeout_ms:,} is below a block time ({block_ms:,.0f} ms):"
            " the first views fail, until timeouts have adapted"
        )


def _block_seconds(scenario: Scenario, measured: Calibration) -> float:
    """Processor time per block, of all hosts together."""
    checks = SIGNATURES[scenario.consensus.protocol] * measured.verification_s

    def without_checks(testnet: IdleTestnet) -> float:
        return max(0.0, testnet.core_seconds / testnet.blocks - checks * testnet.validators * HOSTS)

    n, hosts = scenario.validators.count, scenario.validators.host_count
    return _by_square(n, without_checks(measured.small), without_checks(measured.large)) + checks * n * hosts


def _by_square(n: int, small: float, large: float) -> float:
    """The value of ``a·n + b·n²`` for n validators. It is fitted to ``small`` and ``large``, the values of the two
    testnets; neither a nor b is below zero."""
    b = max(0.0, (large / LARGE - small / SMALL) / (LARGE - SMALL))
    a = max(0.0, large / LARGE - b * LARGE)
    return a * n + b * n * n


def _usable_cores(n: int, here: float, extra: float, measured: Calibration) -> float:
    """The cores that n validators can use in addition to the ``extra`` ones, which a run takes and the calibration did
    not.

    An idle testnet's validators wait for each other, and other processes run at the same time. The extra cores come
    from the idle ones first. All running processes give up the rest in proportion.
    """
    small, large = measured.small, measured.large
    at = min(1.0, max(0.0, (n - small.validators) / (large.validators - small.validators)))

    def share(of_small: float, of_large: float) -> float:
        shares = of_small / small.seconds / measured.cores, of_large / large.seconds / measured.cores
        return min(1.0, shares[0] + at * (shares[1] - shares[0]))

    used = here * share(small.core_seconds, large.core_seconds)
    others = measured.cores * share(small.others_core_seconds, large.others_core_seconds)
    lacking = max(0.0, extra - max(0.0, here - used - others))
    return max(MIN_USABLE_CORES, used - lacking * used / max(MIN_USABLE_CORES, used + others))


def _least_interval_s(scenario: Scenario, work_s: float) -> float:
    """The shortest time between two blocks that the protocol allows. ``work_s``: a host's processor time per block."""
    network = scenario.network
    indices = range(min(scenario.validators.count, MEASURED_PAIRS))
    found = [network.quality(one, other) for one in indices for other in indices if one != other]
    latency_ms = median([quality.latency_ms for quality in found if quality is not None] or [0.0])
    protocol_ms = scenario.consensus.block_interval_ms + MESSAGES_PER_BLOCK * latency_ms
    return protocol_ms / MILLISECONDS_PER_SECOND + work_s


def _host_bytes(n: int, carried: float, measured: Calibration) -> float:
    """Resident memory of a host with ``carried`` of the n validators."""
    empty, small, large = measured.empty_host_bytes, measured.small, measured.large
    one = max(0.0, small.host_memory_bytes - empty) * HOSTS / small.validators
    four = max(0.0, large.host_memory_bytes - empty) * HOSTS / large.validators
    a_peer = max(0.0, (four - one) / (large.validators - small.validators))
    own = max(0.0, four - a_peer * large.validators)
    return empty + RAY_WORKER_BYTES + carried * (own + a_peer * n)


def _disk_bytes(scenario: Scenario, measured: Calibration, heights: int, seconds: float) -> float:
    """Disk use of all validators and of the run's folder, which has each block once."""
    small, large = (each.disk_bytes / each.blocks / each.validators for each in (measured.small, measured.large))
    n = scenario.validators.count
    a_peer = max(0.0, (large - small) / (measured.large.validators - measured.small.validators))
    block = max(0.0, small - a_peer * measured.small.validators) + a_peer * n
    block += measured.load.disk_bytes * seconds / heights
    kept = heights
    if scenario.storage.keep_blocks is not None:
        kept = min(heights, scenario.storage.keep_blocks + int(scenario.storage.segment_kib * 1_024 / max(1.0, block)))
    return n * kept * block + heights * block


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB"
