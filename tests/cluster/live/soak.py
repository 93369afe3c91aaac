"""A live testnet under load and rolling faults for an hour (``make soak-live``), and what must be so at its end.

Every kind of fault comes round, on one validator after the other; but none takes the last validator down, whose process
is the same at the end as at the beginning. At the end the run is judged like any other: the state roots agree at every
height, every timer ended once. Besides, no validator's memory and open files grew from the run's second quarter to its
last, and no process and no port of the run is left.

    python -m tests.cluster.live.soak --minutes 60 --out runs/soak-live
"""

from __future__ import annotations

import argparse
import socket
import sys
import threading
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from statistics import median
from typing import Any, Final
from urllib.parse import urlsplit

from cluster.live.processes import processes
from cluster.record.run import Resources, RunRecord
from stampede import Scenario, up
from tests.cluster.faults.examples import others_than

VALIDATORS: Final = 4
STAYS: Final = VALIDATORS - 1
"""The validator that nothing takes down: what grows slowly shows in a process that lives long."""
FAULT_EVERY_MS: Final = 40_000
FIRST_FAULT_MS: Final = 20_000
LASTS_MS: Final = 6_000
MILLISECONDS_PER_MINUTE: Final = 60_000
MAX_GROWTH: Final = 1.2
"""Of a validator's memory, from the second quarter of the run to the last one."""
ALLOWED_BYTES: Final = 32 * 1024 * 1024
"""So much more is no growth, whatever the share."""
USERS: Final = {"heartbeat": 8, "flood": 2}
ALLOWED_FILES: Final = 8 + sum(USERS.values())
"""A user whose validator goes down stays with another one, and each keeps a connection."""
CONNECT_TIMEOUT_S: Final = 2.0

LISTED: Final[tuple[dict[str, Any], ...]] = (
    {"kind": "kill", "down_ms": 2_000},
    {"kind": "pause", "for_ms": LASTS_MS},
    {"kind": "degrade", "latency_ms": 150.0, "loss": 0.1, "for_ms": LASTS_MS},
    {"kind": "slow_disk", "sync_ms": 80, "for_ms": LASTS_MS},
    {"kind": "one_way_partition", "for_ms": LASTS_MS},
    {"kind": "cut", "for_ms": LASTS_MS},
    {"kind": "disk_full", "down_ms": 2_000},
    {"kind": "partition", "for_ms": LASTS_MS},
    {"kind": "slow_execution", "job_ms": 40, "for_ms": LASTS_MS},
    {"kind": "wipe", "down_ms": 2_000},
    {"kind": "clock_skew", "clock_speed": 0.5, "for_ms": LASTS_MS},
    {"kind": "kill", "how": "process", "down_ms": 2_000},
    {"kind": "failed_sync", "of": "state", "down_ms": 2_000},
    {"kind": "leader_delay", "delay_ms": 100, "for_ms": LASTS_MS},
    {"kind": "bit_rot", "down_ms": 2_000},
    {"kind": "upgrade", "down_ms": 2_000},
    {"kind": "lose_node", "down_ms": 2_000},
)
KINDS: Final = (*LISTED, *(each | {"for_ms": LASTS_MS} for each in others_than(LISTED)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak; 0 where all is as it must be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=None, metavar="DIR")
    options = parser.parse_args(arguments)
    scenario = soak_scenario(options.minutes)
    # Who started this one may name the folder too.
    starters = set() if options.out is None else processes.with_argument(str(options.out))
    with up(scenario, out=options.out) as testnet:
        threading.Event().wait(options.minutes * 60)
        ports = [testnet.url, *testnet.validators.values()]
    assert testnet.outcome is not None
    wrong = [line for line in (testnet.outcome.explain(),) if line]
    wrong += grown(testnet.outcome.record)
    wrong += restarted(testnet.outcome.record)
    wrong += left_behind(testnet.folder, ports, starters)
    figures = testnet.outcome.metrics
    print(f"{figures['heights']:,.0f} heights, {figures['fires']:,.0f} fires, {len(scenario.faults)} faults")
    for line in (*used(testnet.outcome.record), *wrong):
        print(line)
    print("soak: " + ("failed" if wrong else f"passed, see {testnet.folder}"))
    return 1 if wrong else 0


def soak_scenario(minutes: float) -> Scenario:
    """Load that a small machine keeps up with, and faults until a minute before the end."""
    return Scenario.model_validate(
        {
            "name": "soak-live",
            "validators": {"count": VALIDATORS, "ray_nodes": VALIDATORS},
            "consensus": {"block_interval_ms": 500},
            "load": {
                "users": [
                    {"workload": "heartbeat", "count": USERS["heartbeat"], "interval_ms": 2_000},
                    {
                        "workload": "flood",
                        "count": USERS["flood"],
                        "interval_ms": 2_000,
                        "options": {"timers": 20},
                    },
                ]
            },
            "faults": list(rolling_faults(minutes)),
            "stop": {"height": 10_000, "timeout_s": int(minutes * 60) + 600},
            "success": {"stall_ms": 60_000},
        }
    )


def rolling_faults(minutes: float) -> Iterator[dict[str, Any]]:
    """One fault after the other, each kind on each validator in turn, or on each that it may take down."""
    number, at_ms = 0, FIRST_FAULT_MS
    while at_ms < (minutes - 1) * MILLISECONDS_PER_MINUTE:
        turn, kind = divmod(number, len(KINDS))
        fault = dict(KINDS[kind])
        name = f"validator-{(kind + turn) % (STAYS if 'down_ms' in fault else VALIDATORS)}"
        match fault["kind"]:
            case "partition":
                fault["groups"] = [[name]]
            case _ if "from" in fault or fault["kind"] in ("one_way_partition", "cut"):
                fault |= {"from": [name], "to": [f"validator-{index}" for index in range(VALIDATORS)]}
                fault["to"].remove(name)
            case "degrade" | "leader_delay":
                pass
            case "upgrade":
                fault |= {"target": name, "version": f"next-{turn}"}
            case _:
                fault["target"] = name
        yield {**fault, "at_ms": at_ms}
        number, at_ms = number + 1, at_ms + FAULT_EVERY_MS


def grown(record: RunRecord) -> list[str]:
    """Validators whose memory or open files grew from the run's second quarter to its last one."""
    found = []
    for name, use in _uses(record).items():
        if None in use:
            found.append(f"{name}: too few looks at what it uses")
            continue
        memory_before, memory_after, files_before, files_after = (each or 0.0 for each in use)
        if memory_after > max(memory_before * MAX_GROWTH, memory_before + ALLOWED_BYTES):
            found.append(f"{name}: its memory grew from {memory_before / 1e6:.0f} to {memory_after / 1e6:.0f} MB")
        if files_after > files_before + ALLOWED_FILES:
            found.append(f"{name}: its open files grew from {files_before:.0f} to {files_after:.0f}")
    return found


def used(record: RunRecord) -> list[str]:
    """What every validator used in the run's second quarter and in its last one, in words."""
    told = []
    for name, use in _uses(record).items():
        memory_before, memory_after, files_before, files_after = (each or 0.0 for each in use)
        memory = f"{memory_before / 1e6:.0f} MB, later {memory_after / 1e6:.0f} MB"
        told.append(f"{name}: {memory}; {files_before:.0f} open files, later {files_after:.0f}")
    return told


def restarted(record: RunRecord) -> list[str]:
    """The validator that nothing was to take down, where its process is not the first one."""
    validator = record.validators[STAYS]
    if validator.status is None:
        return [f"{validator.name}: does not say how often it started"]
    starts = validator.status["starts"]
    return [] if starts == 1 else [f"{validator.name}: started {starts} times, expected once"]


def _uses(record: RunRecord) -> dict[str, tuple[float | None, ...]]:
    """Of every validator medians of memory in the second and the last quarter, in bytes, and of open files."""
    found = {}
    for index, name in enumerate(record.scenario.validators.names):
        looks = [each for each in record.resources if each.validator == index]
        parts = [_quarter(looks, record.duration_ms, number) for number in (1, 3)]
        memory = [_median(each.memory_bytes for each in part) for part in parts]
        found[name] = (*memory, *(_median(each.open_files for each in part) for part in parts))
    return found


def left_behind(folder: Path, urls: Sequence[str], starters: Set[processes.Process] = frozenset()) -> list[str]:
    """Processes and ports of a run that should be gone; ``starters`` were there before it."""
    left = processes.using(folder) - starters
    found = [f"process {each.pid} is left: {processes.command(each)}" for each in left]
    for url in urls:
        parts = urlsplit(url)
        assert parts.hostname and parts.port
        try:
            socket.create_connection((parts.hostname, parts.port), CONNECT_TIMEOUT_S).close()
        except OSError:
            continue
        found.append(f"somebody still listens at {url}")
    return found


def _quarter(looks: Sequence[Resources], duration_ms: float, number: int) -> list[Resources]:
    return [each for each in looks if number <= each.at_ms * 4 / duration_ms < number + 1]


def _median(values: Iterator[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(median(known)) if known else None


if __name__ == "__main__":
    sys.exit(main())
