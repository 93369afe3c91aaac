"""Measures this machine: testnets of 4 and of 16 validators run idle for some seconds, on real sockets and files.

They use the hosts of a live run, without Ray: :data:`HOSTS` processes, each with a share of the validators. All costs
of a block are measured for both testnets. They run in turns, :data:`ROUNDS` times; rounds that differ reveal a machine
that changes its speed. Costs of the load come from the simulator, which runs the beginning of the scenario with and
without its users.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import reduce
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
from cluster.scenario.code.gate import code_of
from cluster.watches.watched_simulation import simulate
from consensus.keys import Ed25519Scheme
from validator.primitives.compiled import load_compiler

HOSTS: Final = 4
"""Number of host processes of a calibration: the smallest one that 4 and 16 validators may have."""
SMALL: Final = 4
LARGE: Final = 16
"""Number of validators of the larger testnet; :data:`SMALL` is that of the other."""
ROUNDS: Final = 3
MEASURE_S: Final = 1.5
"""Seconds of measurement per testnet and round."""
WARM_HEIGHT: Final = 5
"""Number of blocks before the measurement, in which connections are made, first views pass, and caches fill."""
ANSWER_TIMEOUT_S: Final = 180.0
"""Seconds to wait for an answer of a host process. Starting one takes long on a busy machine, which is not measured."""
LOOK_EVERY_S: Final = 0.05
VERIFICATIONS: Final = 500
SIMULATED_HEIGHTS: Final = 30
"""Heights of the scenario that are simulated for the cost of its load."""
SEED: Final = 1


@dataclass(frozen=True, slots=True)
class IdleTestnet:
    """The resources that an idle testnet of ``validators`` on :data:`HOSTS` hosts took."""

    validators: int
    blocks: int
    seconds: float
    core_seconds: float
    """Processor time of all hosts."""
    others_core_seconds: float
    """Processor time of all other processes of the machine meanwhile."""
    bytes_sent: int
    """Bytes that all validators sent to each other."""
    disk_bytes: int
    """Growth of all disks together."""
    host_memory_bytes: int
    """Resident memory of the largest host."""

    def plus(self, other: IdleTestnet) -> IdleTestnet:
        """The sum of two measurements of one testnet. The memory is that of the first: a host keeps its memory."""
        return IdleTestnet(
            self.validators,
            self.blocks + other.blocks,
            self.seconds + other.seconds,
            self.core_seconds + other.core_seconds,
            self.others_core_seconds + other.others_core_seconds,
            self.bytes_sent + other.bytes_sent,
            self.disk_bytes + other.disk_bytes,
            self.host_memory_bytes,
        )


@dataclass(frozen=True, slots=True)
class Round:
    """Measurements of both testnets, one after the other."""

    small: IdleTestnet
    large: IdleTestnet


@dataclass(frozen=True, slots=True)
class Load:
    """Costs of the scenario's users per second of virtual time, from a simulation of its beginning."""

    core_seconds: float
    """Processor time per validator."""
    transactions: float
    fires: float
    disk_bytes: float
    """Disk growth per validator."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured of a machine and a scenario's load, as input of
    :func:`kits.measure.size.estimate.estimate`."""

    cores: int
    memory_bytes: int
    disk_free_bytes: int
    verification_s: float
    """Processor time of one signature check."""
    empty_host_bytes: int
    """Resident memory of a host process without validators."""
    small: IdleTestnet
    large: IdleTestnet
    """The larger testnet; like :attr:`small`, summed over all rounds."""
    load: Load
    rounds: tuple[Round, ...] = ()
    """The measurements of each round. They differ as much as the machine's speed."""


def calibrate(scenario: Scenario, tell: Callable[[str], None]) -> Calibration:
    """Measure this machine with a scenario's protocol and load; ``tell`` gets a line for each step.

    Raises :class:`~cluster.common.errors.HarnessError` if a testnet does not run.
    """
    for code in code_of(scenario):
        tell(f"{code.name} ({code.place}) is not executed: what ships is measured instead")
    tell("measuring the load in the simulator")
    load = _measure_load(scenario)
    verification_s = _measure_verification()
    with tempfile.TemporaryDirectory(prefix="stampede-size-") as folder, ExitStack() as stack:
        hosts = [_HostProcess(number) for number in range(HOSTS)]
        for host in hosts:
            stack.callback(host.close)
        empty_bytes = max(host.ask("memory") for host in hosts)
        rounds: list[Round] = []
        for number in range(1, ROUNDS + 1):
            tell(f"measuring {SMALL} and {LARGE} validators for {MEASURE_S:g} s each, round {number} of {ROUNDS}")
            here = Path(folder) / str(number)
            rounds.append(Round(*(_measure_testnet(hosts, _idle(scenario, n), here / str(n)) for n in (SMALL, LARGE))))
    return Calibration(
        cores=_cores(),
        memory_bytes=psutil.virtual_memory().available,
        disk_free_bytes=psutil.disk_usage(str(Path.cwd())).free,
        verification_s=verification_s,
        empty_host_bytes=empty_bytes,
        small=reduce(IdleTestnet.plus, (each.small for each in rounds)),
        large=reduce(IdleTestnet.plus, (each.large for each in rounds)),
        load=load,
        rounds=tuple(rounds),
    )


def _cores() -> int:
    """Number of processors that this process may use."""
    return len(psutil.Process().cpu_affinity())


def _idle(scenario: Scenario, count: int) -> Scenario:
    """The scenario of an idle testnet: it has the given scenario's protocol and no load, and makes blocks as fast as it
    can."""
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
    """What was measured of a testnet at one moment: sums over all hosts, unless another meaning is given."""

    at_s: float
    height: int
    """The lowest height of all validators."""
    core_seconds: float
    all_core_seconds: float
    """Processor time of all processes of the machine."""
    bytes_sent: int
    disk_bytes: int
    memory_bytes: int
    """Resident memory of the largest host."""


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
    core_seconds = last.core_seconds - first.core_seconds
    return IdleTestnet(
        validators=scenario.validators.count,
        blocks=max(1, last.height - first.height),
        seconds=last.at_s - first.at_s,
        core_seconds=core_seconds,
        others_core_seconds=max(0.0, last.all_core_seconds - first.all_core_seconds - core_seconds),
        bytes_sent=last.bytes_sent - first.bytes_sent,
        disk_bytes=last.disk_bytes - first.disk_bytes,
        host_memory_bytes=last.memory_bytes,
    )


def _read(hosts: Sequence[_HostProcess], folder: Path) -> _Reading:
    heights, cores, sent, memory = zip(*_ask_all(hosts, "read"), strict=True)
    size = folder_bytes(folder / DATA_FOLDER)
    return _Reading(time.monotonic(), min(heights), sum(cores), _busy_seconds(), sum(sent), size, max(memory))


def folder_bytes(folder: Path) -> int:
    """The total size of all files below a folder, except those that are replaced or removed meanwhile."""
    size = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            size += path.stat().st_size if path.is_file() else 0
    return size


def _busy_seconds() -> float:
    """Total busy time of the processors that this process may use, including time stolen by other virtual machines."""
    times = psutil.cpu_times(percpu=True)
    mine = [times[number] for number in psutil.Process().cpu_affinity() if number < len(times)]
    return sum(each.user + each.system + each.nice + each.irq + each.softirq + each.steal for each in mine)


def _ask_all(hosts: Sequence[_HostProcess], *question: Any) -> list[Any]:
    for host in hosts:
        host.send(*question)
    return [host.answer() for host in hosts]


class _HostProcess:
    """A child process with one host, which ends with this process."""

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
    """Run the host process: answer questions until the other end of the pipe closes."""
    from cluster.live.host.host import ValidatorHost
    from cluster.live.processes import processes
    from cluster.live.web.addresses import LOOPBACK

    load_compiler()  # as each host does: it is no validator's memory
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
    # blocks of both runs cost the same except for their content
    shares = with_load.blocks / max(1, without.blocks)
    seconds, validators = with_load.seconds, SMALL
    return Load(
        core_seconds=max(0.0, with_load.core_seconds - without.core_seconds * shares) / seconds / validators,
        transactions=with_load.transactions / seconds,
        fires=with_load.fires / seconds,
        disk_bytes=max(0.0, with_load.disk_bytes - without.disk_bytes * shares) / seconds,
    )


def _without_code(given: dict[str, Any], scenario: Scenario) -> dict[str, Any]:
    """A scenario's fields without its code: with the policy from which its own is derived, and with heartbeats in place
    of custom workloads. Locustfiles and executors take no part in a simulation without them."""
    policy, own = scenario.chain.policies()
    chain = given.get("chain", {})
    load = given.get("load", {})
    users = [
        each if isinstance(each["workload"], str) else each | {"workload": "heartbeat", "options": {}}
        for each in load.get("users", [])
    ]
    load = {name: value for name, value in load.items() if name != "locust"} | {"users": users}
    return given | {"chain": chain if own is None else chain | {"policy": policy.value}, "load": load}


@dataclass(frozen=True, slots=True)
class _Simulated:
    blocks: int
    seconds: float
    """Length of the simulated run in virtual seconds."""
    core_seconds: float
    transactions: int
    fires: int
    disk_bytes: float
    """Disk use of the validator that uses most."""


def _simulate(scenario: Scenario, has_users: bool, height: int) -> _Simulated:
    given = scenario.model_dump(mode="json", exclude_unset=True)
    for section in ("faults", "success", "links", "extends"):
        given.pop(section, None)
    given |= {"validators": {"count": SMALL}, "stop": {"height": height}, "consensus": scenario.consensus.model_dump()}
    if not has_users:
        given.pop("load", None)
    given = _without_code(given, scenario)
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
