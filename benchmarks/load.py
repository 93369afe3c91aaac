"""The load: what an endpoint takes, what Locust sends, where a testnet's knee is, and how fast attacks are searched.

``submit_ratio`` is what one validator's endpoint takes of single transactions a second while no block is made, against
the same server with a handler that reads nothing; both are asked by the same client. ``submit_executing_ratio`` is the
same while the validator makes a block a second of them. Locust sends to an endpoint that takes everything
(``sink_endpoint.py``). The time of its process is split into signing, encoding and waiting: the first two from what a
transaction costs alone in this process, the last from the processor time that Locust did not use. The knee is that of
four live validators.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import apart
import asking
import psutil
from reporting import Lane, Metric, Size, Unavailable, folder, run_benchmark
from sink_endpoint import endpoint

import stampede
from cluster.common.errors import ExitCode
from cluster.common.interrupts import Interrupts
from cluster.common.units import SECONDS_PER_MINUTE
from kits.market.dos.search.search_run import load_problem
from kits.market.dos.search.searching import Limits, search
from loadgen.client import ValidatorClient
from loadgen.runplan import RunPlan, Statistics
from loadgen.workloads import LoadPlan, Observation
from validator.chain.transactions import signed_message

SEARCHED, BUDGET = Path("narrow-lanes"), 5 * 10**13
SEED = 1
ROOT = Path(__file__).resolve().parents[1]
CHAIN_ID = "benchmark"
QUIET_INTERVAL_MS, BLOCK_INTERVAL_MS = 30_000, 1_000
"""From block to block while an endpoint takes transactions."""
SENDERS = 250
NONCES = 16
"""Transactions of each sender: as many as users have under way."""
START = Observation(1, 0, 1_000_000, 1_000_000, 1_000_000, balance=10**24, actor_balance=10**24)
BUSY_USERS, BUSY_INTERVAL_MS = 2_000, 50
"""More than one process can send."""
ALONE_USERS = 200
"""No more than a server has connections."""
MANY_USERS, MANY_INTERVAL_MS, MANY_CLIENT = 100_000, 30_000, 1_000
TOGETHER = {"users_per_client": 1_000}
WARM_S, MANY_WARM_S = 2.0, 40.0
"""Until all users have begun."""
LOOK_S = 0.05
MOST_FAILURES = 0.01
"""Share of the requests: a server closes a connection that is quiet for five seconds, and a request may cross that."""
KNEE_USERS: list[dict[str, Any]] = [{"workload": "heartbeat", "count": 40, "interval_ms": 1_000}]
KNEE_P99_MS = 2_000
MAX_REASON = 500
"""Characters of what a search that failed said last."""
CANDIDATES, CANDIDATE_BLOCKS = 12, 200
PROCESSORS = os.cpu_count() or 1


def main() -> None:
    full = "100,000 users, and the knee of four live validators, too; about 10 min"
    run_benchmark(__doc__, lanes, minutes=5, full=full)


def lanes(size: Size) -> list[Lane]:
    blocks = size.of(20, CANDIDATE_BLOCKS)
    unit = f"of {blocks} blocks, {PROCESSORS} processors"
    return [
        Lane(
            partial(_submitting, size),
            [
                Metric("empty_per_second", "requests/s, the validators' server, a handler that reads nothing"),
                Metric("submitted_per_second", "transactions/s, one validator's endpoint, one a request"),
                Metric("submit_ratio", "of the empty handler", 0.7),
                Metric("submit_executing_ratio", "the same with a block a second of what was submitted"),
            ],
        ),
        *(_locust_lane(*load, size) for load in LOADS),
        Lane(
            _many,
            [
                Metric("many_users_per_second", f"transactions/s, {MANY_USERS:,} users"),
                Metric("many_users_late", "of the transactions, over 100 ms late", 0.01, at_least=False),
                Metric("many_users_cpu", "processors, one Locust process"),
                Metric("many_users_mb", "MB, one Locust process"),
            ],
            least=Size.FULL,
        ),
        Lane(
            _knee,
            [
                Metric("knee_per_second", f"final transactions/s, p99 under {KNEE_P99_MS:,} ms"),
                Metric("knee_p99_ms", "ms from intended send to finality, at the knee"),
            ],
            least=Size.FULL,
        ),
        Lane(
            partial(_searching, *size.of((1, 1), (CANDIDATES, PROCESSORS)), blocks),
            [Metric("search_candidates_per_minute", unit, 60)],
        ),
    ]


def _searching(candidates: int, processors: int, blocks: int) -> float:
    """The rate of a search, with the start of Ray. Raises :class:`KeyboardInterrupt` if a signal ended it."""
    problem = load_problem(SEARCHED, (), "lateness", BUDGET, None, blocks)
    with folder() as path, Interrupts() as interrupts:
        searched = search(problem, path / "search", Limits(None, candidates), processors, interrupts)
    if searched.interrupted:
        raise KeyboardInterrupt
    return searched.evaluated / searched.seconds * SECONDS_PER_MINUTE


# --- one endpoint -----------------------------------------------------------------------------------------------------


def _submitting(size: Size) -> Iterator[float]:
    """A client in a separate process asks: here runs the driver of the testnet. A quick run has one testnet."""
    nonces = size.of(1, NONCES)
    with endpoint(is_empty=True) as url:
        empty = apart.result_of(asking.per_second, url, _requests(CHAIN_ID, nonces))
    yield empty
    executing = _submitted(BLOCK_INTERVAL_MS, nonces)
    admitted = executing if size is Size.QUICK else _submitted(QUIET_INTERVAL_MS, nonces)
    yield admitted
    yield admitted / empty
    yield executing / empty


def _submitted(block_interval_ms: int, nonces: int) -> float:
    """Transactions a second that the endpoint of one validator takes, between two of its blocks if these are rare."""
    scenario = {
        "name": "submit",
        "validators": {"count": 1},
        "consensus": {
            "block_interval_ms": block_interval_ms,
            "leader_timeout_ms": 2 * block_interval_ms,
            "advance_timeout_ms": 3 * block_interval_ms,
        },
        "load": {"users": [{"workload": "transfer", "count": SENDERS}], "external": True},
        "stop": {"height": 1_000_000},
    }
    with folder() as path, stampede.up(scenario, SEED, path) as testnet:
        (url,) = testnet.validators.values()
        with ValidatorClient(url) as client:
            before = client.status()
            taken = apart.result_of(asking.per_second, url, _requests(before["chain_id"], nonces))
            if block_interval_ms == QUIET_INTERVAL_MS and client.status()["height"] != before["height"]:
                raise Unavailable(
                    "a block was made while transactions were submitted; the machine is too slow for this"
                )
    return taken


def _requests(chain_id: str, nonces: int) -> list[bytes]:
    """A request for each transaction, in an order in which no nonce comes before its turn."""
    plan = LoadPlan.model_validate({"users": [{"workload": "transfer", "count": SENDERS}]})
    users = plan.build_users(SEED, chain_id)
    wires = [wire for _ in range(nonces) for user in users for wire in user.next_transactions(START)]
    head = b"POST /transactions HTTP/1.1\r\nHost: a\r\nContent-Type: application/msgpack\r\nContent-Length: %d\r\n\r\n"
    bodies = [b"\xc5" + len(wire).to_bytes(2, "big") + wire for wire in wires]
    return [head % len(body) + body for body in bodies]


# --- Locust -----------------------------------------------------------------------------------------------------------


LOADS: list[tuple[str, str, int, dict[str, int]]] = [
    ("locust_alone", "one Locust process, a request for each", ALONE_USERS, {}),
    ("locust_together", "one Locust process, 1,000 users a client", BUSY_USERS, TOGETHER),
    ("locust_signed", "the same, another process signs", BUSY_USERS, TOGETHER | {"signers": 1}),
    ("locust_two", "two Locust processes, 1,000 users a client", BUSY_USERS, TOGETHER | {"processes": 2}),
]


def _locust_lane(name: str, text: str, count: int, changes: dict[str, int], size: Size) -> Lane:
    metrics = [Metric(f"{name}_per_second", f"transactions/s, {text}")]
    if changes.get("processes", 1) == 1:
        metrics += [
            Metric(f"{name}_signing", "of its process's time: signing"),
            Metric(f"{name}_encoding", "encoding"),
            Metric(f"{name}_waiting", "waiting"),
        ]
    least = Size.USUAL if changes else Size.QUICK
    return Lane(lambda: _sending(count, changes, size)[: len(metrics)], metrics, least)


def _sending(count: int, changes: dict[str, int], size: Size) -> list[float]:
    """Transactions a second of a load, and the shares of its process's time."""
    signing_s, encoding_s = _costs()
    users = [{"workload": "transfer", "count": count, "interval_ms": BUSY_INTERVAL_MS}]
    warm_s, seconds = size.of((0.1, 1), (WARM_S, 6))
    with endpoint() as url:
        sent = _load(url, {"users": users, **changes}, warm_s, seconds)
    rate = sent.transactions / sent.seconds
    own_signing_s = 0.0 if "signers" in changes else signing_s
    return [rate, rate * own_signing_s, rate * encoding_s, max(0.0, 1 - sent.cpu_share)]


def _costs() -> tuple[float, float]:
    """Seconds of signing and of encoding a transfer."""
    plan = LoadPlan.model_validate({"users": [{"workload": "transfer", "count": 200}]})
    users = plan.build_users(SEED, CHAIN_ID)
    made = [(user, each) for user in users for each in user.next_outgoing(START)]
    transactions = [sent.transaction for user in users for sent in user._sent.values()]
    began = time.perf_counter()
    for user, outgoing in made:
        user.sign(outgoing)
    signing = time.perf_counter() - began
    began = time.perf_counter()
    for transaction in transactions:
        signed_message(CHAIN_ID, transaction)
    return signing / len(made), (time.perf_counter() - began) / len(transactions)


@dataclass(frozen=True, slots=True)
class Sent:
    """What a load did in some seconds."""

    transactions: int
    seconds: float
    cpu_share: float
    """Processor time of one Locust process, as a share of the seconds."""
    memory_bytes: int
    """Of the same process."""
    late: float
    """Share of the load's transactions that were sent late."""


def _load(url: str, load: dict[str, Any], warm_s: float, seconds: float) -> Sent:
    """A load for some seconds, which begin ``warm_s`` after its first transaction was taken."""
    with folder() as path:
        return _load_from(path, url, load, warm_s, seconds)


def _load_from(path: Path, url: str, load: dict[str, Any], warm_s: float, seconds: float) -> Sent:
    stats_file = path / "stats.json"
    plan = RunPlan(
        chain_id=CHAIN_ID, seed=SEED, endpoints=[url], load=LoadPlan.model_validate(load), stats_file=str(stats_file)
    )
    file = path / "plan.json"
    file.write_text(plan.model_dump_json(exclude_none=True), encoding="utf-8")
    command = [sys.executable, "-m", "loadgen.run", "--plan", str(file)]
    with _started(command) as process, ValidatorClient(url) as client:

        def taken() -> int:
            return int(client.status()["executed_transactions"])

        before = taken()
        while taken() == before:
            if process.poll() is not None:
                raise Unavailable("the load ended before it had begun")
            time.sleep(LOOK_S)
        time.sleep(warm_s)
        locusts = [
            each for each in psutil.Process(process.pid).children() if "loadgen.locust_process" in each.cmdline()
        ]
        began, first, cpu = time.perf_counter(), taken(), locusts[0].cpu_times()
        time.sleep(seconds)
        took, count, after = time.perf_counter() - began, taken() - first, locusts[0].cpu_times()
        memory = locusts[0].memory_info().rss
        process.terminate()
        if process.wait() != 0:
            raise Unavailable("the load failed")
    statistics = Statistics.model_validate_json(stats_file.read_bytes())
    if statistics.failures > MOST_FAILURES * statistics.requests or statistics.transactions_rejected:
        raise Unavailable(f"the load had failures: {statistics.errors or statistics.rejections}")
    share = (after.user + after.system - cpu.user - cpu.system) / took
    sends = statistics.sends.workloads.values()
    late = sum(each.late for each in sends) / max(1, sum(each.sent for each in sends))
    return Sent(count, took, share, memory, late)


@contextmanager
def _started(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=ROOT, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _many() -> list[float]:
    users = [{"workload": "transfer", "count": MANY_USERS, "interval_ms": MANY_INTERVAL_MS}]
    with endpoint() as url:
        sent = _load(url, {"users": users, "users_per_client": MANY_CLIENT}, MANY_WARM_S, 60)
    return [sent.transactions / sent.seconds, sent.late, sent.cpu_share, sent.memory_bytes / 1e6]


# --- the knee ---------------------------------------------------------------------------------------------------------


def _knee() -> list[float]:
    with folder() as path:
        return knee_figures(_knee_found(path))


def _knee_found(path: Path) -> dict[str, Any]:
    """What ``stampede load --find-knee`` found."""
    scenario = {
        "name": "knee",
        "validators": {"count": 4},
        "consensus": {"block_interval_ms": 200},
        "load": {"users": KNEE_USERS, "external": True},
        "stop": {"height": 1_000_000},
    }
    file, page_file = path / "knee.yaml", path / "knee.json"
    file.write_text(json.dumps(scenario | {"stop": {"height": 1}}), encoding="utf-8")
    with stampede.up(scenario, SEED, path / "knee") as testnet:
        targets = [word for url in testnet.validators.values() for word in ("--target", url)]
        command = [str(Path(sys.executable).with_name("stampede")), "load", str(file), *targets, "--find-knee"]
        return knee_page([*command, "--p99-ms", str(KNEE_P99_MS), "--step", "10s", "--json", str(page_file)], page_file)


def knee_page(command: Sequence[str], file: Path) -> dict[str, Any]:
    """The page that a search writes. Raises :class:`Unavailable` if it did not come to its end."""
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (ExitCode.PASS, ExitCode.FAIL):
        raise Unavailable(f"the search for the knee ended with {done.returncode}: {done.stderr.strip()[-MAX_REASON:]}")
    page: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return page


def knee_figures(found: dict[str, Any]) -> list[float]:
    """Transactions a second and p99 at the knee.

    A load that was at its own limit has found no knee of the testnet, only how much this takes at least. Then it raises
    :class:`Unavailable`.
    """
    knee, broken = found["knee"], next((each["broken"] for each in reversed(found["steps"]) if each["broken"]), None)
    if knee is None:
        raise Unavailable(f"no load kept its bounds: {broken}")
    if found["limit"] != "testnet" or found["ended"]:
        least = f"{knee['final_per_s']:,.0f} transactions/s and more"
        raise Unavailable(f"{least}; the testnet was not at its limit: {found['ended'] or broken}")
    return [knee["final_per_s"], knee["p99_ms"]]


if __name__ == "__main__":
    main()
