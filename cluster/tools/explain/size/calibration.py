"""Measures this machine: testnets of 4 and of 16 validators run idle for some seconds, on real sockets and files.

They are the hosts of a live run without Ray: :data:`HOSTS` processes that carry a share of the validators each. Of both
testnets everything that a block costs is measured. What depends on the load comes from the simulator, which runs the
beginning of the scenario with and without its users.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import psutil

from cluster.checks.metrics.metrics import BYTES_PER_MB
from cluster.checks.run import judge_run
from cluster.common.errors import HarnessError
from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.live.host.host import DATA_FOLDER
from cluster.scenario import Scenario
from cluster.simulation.driver import simulate
from consensus.keys import Ed25519Scheme

HOSTS: Final = 4
"""Host processes of a calibration: the fewest that 4 and 16 validators may have."""
SMALL: Final = 4
LARGE: Final = 16
"""Validators of the two testnets."""
MEASURE_S: Final = 3.0
WARM_HEIGHT: Final = 5
"""Blocks before the measurement: connections, first views, caches."""
ANSWER_TIMEOUT_S: Final = 60.0
LOOK_EVERY_S: Final = 0.05
VERIFICATIONS: Final = 500
SIMULATED_HEIGHTS: Final = 30
"""Of the scenario, for the cost of its load."""
SEED: Final = 1


@dataclass(frozen=True, slots=True)
class IdleTestnet:
    """What an idle testnet of ``validators`` on :data:`HOSTS` hosts took."""

    validators: int
    blocks: int
    seconds: float
    core_seconds: float
    """Processor time of all hosts."""
    bytes_sent: int
    """By all validators to each other."""
    disk_bytes: int
    """By which all disks grew."""
    host_memory_bytes: int
    """Resident memory of the largest host."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the scenario's users cost, per second of the scenario's time, from a simulation of its beginning."""

    core_seconds: float
    """For each validator."""
    transactions: float
    fires: float
    disk_bytes: float
    """For each validator."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Everything that :func:`cluster.tools.explain.size.estimate.estimate` needs to know of a machine."""

    cores: int
    memory_bytes: int
    disk_free_bytes: int
    others_cores: float
    """Cores that other processes used before the calibration."""
    verification_s: float
    """Processor time of one signature check."""
    empty_host_bytes: int
    """Resident memory of a host process without validators."""
    small: IdleTestnet
    large: IdleTestnet
    load: Load


def calibrate(scenario: Scenario, tell: Callable[[str], None]) -> Calibration:
    """Measure for a scenario's protocol and load; ``tell`` gets a line for each step.

    Raises :class:`~cluster.common.errors.HarnessError` if a testnet does not run.
    """
    psutil.cpu_percent()
    tell("measuring the load in the simulator")
    load = _measure_load(scenario)
    others = max(0.0, psutil.cpu_percent() / 100 * _cores() - 1.0)  # but for this process
    verification_s = _measure_verification()
    with tempfile.TemporaryDirectory(prefix="stampede-size-") as folder, ExitStack() as stack:
        hosts = [_HostProcess(number) for number in range(HOSTS)]
        for host in hosts:
            stack.callback(host.close)
        empty_bytes = max(host.ask("memory") for host in hosts)
        found: list[IdleTestnet] = []
        for count in (SMALL, LARGE):
            tell(f"measuring {count} validators for {MEASURE_S:g} s")
            found.append(_measure_testnet(hosts, _idle(scenario, count), Path(folder) / str(count)))
    return Calibration(
        cores=_cores(),
        memory_bytes=psutil.virtual_memory().available,
        disk_free_bytes=psutil.disk_usage(str(Path.cwd())).free,
        others_cores=others,
        verification_s=verification_s,
        empty_host_bytes=empty_bytes,
        small=found[0],
        large=found[1],
        load=load,
    )


def _cores() -> int:
    """Those that this process may use."""
    return len(psutil.Process().cpu_affinity())


def _idle(scenario: Scenario, count: int) -> Scenario:
    """A testnet with the scenario's protocol that does nothing but make blocks, as fast as it can."""
    return Scenario.model_validate(
        {
            "name": "calibration",
            "validators": {"count": count, "hosts": HOSTS},
            "consensus": {"protocol": scenario.consensus.protocol, "block_interval_ms": 0},
            "links": {"latency_ms": 0, "jitter_ms": 0},
        }
    )


# --- testnets ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reading:
    """The sum over all hosts, at a moment."""

    at_s: float
    height: int
    """The lowest of all validators."""
    core_seconds: float
    bytes_sent: int
    disk_bytes: int
    memory_bytes: int
    """Of the largest host."""


def _measure_testnet(hosts: Sequence[_HostProcess], scenario: Scenario, folder: Path) -> IdleTestnet:
    text = scenario.model_dump_json(exclude_unset=True)
    addresses: dict[int, Any] = {}
    for answer in _ask_all(hosts, "start", str(folder), text):
        addresses |= answer
    _ask_all(hosts, "introduce", addresses)
    deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
    while (first := _read(hosts, folder)).height < WARM_HEIGHT:
        if time.monotonic() > deadline_s:
            raise HarnessError(
                f"calibration: {scenario.validators.count} validators made {first.height} blocks in"
                f" {ANSWER_TIMEOUT_S:g} s, expected {WARM_HEIGHT}; the machine is too busy to be measured"
            )
        time.sleep(LOOK_EVERY_S)
    time.sleep(MEASURE_S)
    last = _read(hosts, folder)
    _ask_all(hosts, "stop")
    return IdleTestnet(
        validators=scenario.validators.count,
        blocks=max(1, last.height - first.height),
        seconds=last.at_s - first.at_s,
        core_seconds=last.core_seconds - first.core_seconds,
        bytes_sent=last.bytes_sent - first.bytes_sent,
        disk_bytes=last.disk_bytes - first.disk_bytes,
        host_memory_bytes=last.memory_bytes,
    )


def _read(hosts: Sequence[_HostProcess], folder: Path) -> _Reading:
    heights, cores, sent, memory = zip(*_ask_all(hosts, "read"), strict=True)
    disk_bytes = sum(file.stat().st_size for file in (folder / DATA_FOLDER).rglob("*") if file.is_file())
    return _Reading(time.monotonic(), min(heights), sum(cores), sum(sent), disk_bytes, max(memory))


def _ask_all(hosts: Sequence[_HostProcess], *question: Any) -> list[Any]:
    for host in hosts:
        host.send(*question)
    return [host.answer() for host in hosts]


class _HostProcess:
    """A process with one host, which ends with this one."""

    def __init__(self, number: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process: BaseProcess = context.Process(target=_serve, args=(there, number), daemon=True)
        self._process.start()
        there.close()

    def ask(self, *question: Any) -> Any:
        self.send(*question)
        return self.answer()

    def send(self, *question: Any) -> None:
        self._here.send(question)

    def answer(self) -> Any:
        try:
            if self._here.poll(ANSWER_TIMEOUT_S):
                return self._here.recv()
        except EOFError:
            raise HarnessError("calibration: a host process ended by itself") from None
        raise HarnessError(f"calibration: a host process did not answer within {ANSWER_TIMEOUT_S:g} s")

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._here.close()


def _serve(connection: Connection, number: int) -> None:
    """The host process: answers questions until the other end is gone."""
    from cluster.live.host.host import ValidatorHost
    from cluster.live.processes import processes
    from cluster.live.web.addresses import LOOPBACK

    host: ValidatorHost | None = None

    def start(folder: str, text: str) -> Mapping[int, Any]:
        nonlocal host
        host = ValidatorHost(folder, text, SEED, number, LOOPBACK)
        return {address.index: address.peers for address in host.start()}

    def read() -> tuple[int, float, int, int]:
        assert host is not None
        states = [each.state for each in host.observe().validators]
        use, sent = processes.own_use(), sum(state.bytes_sent for state in states)
        return min(state.height for state in states), use.cpu_seconds, sent, use.memory_bytes

    def introduce(addresses: Mapping[int, Any]) -> None:
        assert host is not None
        host.set_peers(addresses)

    def stop() -> None:
        assert host is not None
        host.stop()

    answers: dict[str, Callable[..., Any]] = {
        "memory": lambda: processes.own_use().memory_bytes,
        "start": start,
        "introduce": introduce,
        "read": read,
        "stop": stop,
    }
    try:
        while True:
            name, *arguments = connection.recv()
            connection.send(answers[name](*arguments))
    except (EOFError, BrokenPipeError):
        return


# --- parts ------------------------------------------------------------------------------------------------------------


def _measure_verification() -> float:
    scheme = Ed25519Scheme()
    signer = scheme.signer(bytes(32))
    message = b"a vote"
    signature = signer.sign(message)
    began_s = time.process_time()
    for _ in range(VERIFICATIONS):
        scheme.verify(signer.public_key, message, signature)
    return (time.process_time() - began_s) / VERIFICATIONS


def _measure_load(scenario: Scenario) -> Load:
    if not scenario.load.users:
        return Load(0.0, 0.0, 0.0, 0.0)
    _simulate(scenario, has_users=True, height=WARM_HEIGHT)
    with_load, without = (_simulate(scenario, has_users, SIMULATED_HEIGHTS) for has_users in (True, False))
    # blocks of both runs cost the same but for what is in them
    shares = with_load.blocks / max(1, without.blocks)
    seconds, validators = with_load.seconds, SMALL
    return Load(
        core_seconds=max(0.0, with_load.core_seconds - without.core_seconds * shares) / seconds / validators,
        transactions=with_load.transactions / seconds,
        fires=with_load.fires / seconds,
        disk_bytes=max(0.0, with_load.disk_bytes - without.disk_bytes * shares) / seconds,
    )


@dataclass(frozen=True, slots=True)
class _Simulated:
    blocks: int
    seconds: float
    """Virtual."""
    core_seconds: float
    transactions: int
    fires: int
    disk_bytes: float
    """Of the validator with most."""


def _simulate(scenario: Scenario, has_users: bool, height: int) -> _Simulated:
    given = scenario.model_dump(mode="json", exclude_unset=True)
    for section in ("faults", "success", "links", "extends"):
        given.pop(section, None)
    given |= {"validators": {"count": SMALL}, "stop": {"height": height}, "consensus": scenario.consensus.model_dump()}
    if not has_users:
        given.pop("load", None)
    began_s = time.process_time()
    record = simulate(Scenario.model_validate(given), SEED, "calibration")
    core_seconds = time.process_time() - began_s
    metrics = judge_run(record).metrics
    return _Simulated(
        blocks=int(metrics["heights"]),
        seconds=record.duration_ms / MILLISECONDS_PER_SECOND,
        core_seconds=core_seconds,
        transactions=int(metrics["transactions"]),
        fires=int(metrics["fires"]),
        disk_bytes=metrics["disk_max_mb"] * BYTES_PER_MB,
    )
