"""One host of the live testnet: a Ray actor that carries validators, each with its own data folder and HTTP endpoint.

The validators run on an event loop in a thread of their own; the actor's methods are short calls into it, so none of
them waits for the chain. Ray gives a restarted actor its old constructor arguments and nothing else: everything a
validator was is in its data folder (``<run>/data/<name>``), and beside it is what the host itself remembers
(:class:`HostNotes`). A start takes new ports for peers, which the driver asks for and tells everybody; the HTTP port
stays where it is still free, for the sake of clients.

A bug in a validator ends the whole process, loudly: the log says why, and the driver sees that the process is another
one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from cluster.chain import (
    build_genesis,
    byzantine_of,
    node_config,
    parts_of,
    score_of,
    validator_set,
    validator_signer,
)
from cluster.live import processes
from cluster.live.collector import tame_collector
from cluster.live.disk import DirectoryDisk
from cluster.live.http import build_app
from cluster.live.transport import PeerAddress
from cluster.live.validator_loop import LoopState, Observation, ValidatorLoop, ValidatorSetup
from cluster.live.web import HttpServer, serve
from cluster.scenario import Scenario
from cluster.status import Tally
from cluster.trace import Stamp
from consensus.keys import Ed25519Scheme

log = logging.getLogger(__name__)

DATA_FOLDER: Final = "data"
LOGS_FOLDER: Final = "logs"
CALL_TIMEOUT_S: Final = 30.0
"""No call into the loop takes longer; one that does is a bug, and says so."""
CRASH_EXIT_CODE: Final = 70
MEASURE_EVERY_S: Final = 0.5
LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ValidatorAddress:
    """Where a started validator can be reached."""

    index: int
    name: str
    peers: PeerAddress
    url: str
    """Of its HTTP endpoint, ``http://host:port``."""


@dataclass(frozen=True, slots=True)
class ValidatorView:
    """What a host says of one validator, and what that one saw since the last call."""

    index: int
    state: LoopState
    starts: int
    observations: list[Observation]
    stamps: list[Stamp] = field(default_factory=list)
    """Its last messages, where they were asked for."""
    disk_bytes: int = 0
    use: processes.Use | None = None
    """What the host's process uses: told now and then."""


@dataclass(frozen=True, slots=True)
class HostView:
    """What a host says of itself."""

    pid: int
    validators: list[ValidatorView]
    """Empty until the host is started."""


class HostNotes(msgspec.Struct):
    """What a host remembers of a validator from start to start, beside its data folder."""

    starts: int = 0
    http_port: int = 0


class ValidatorHost:
    """The actor. Constructor arguments are plain and the same for every start."""

    def __init__(self, folder: str, scenario_json: str, seed: int, host: int, bind: str) -> None:
        """``folder`` is the run's, ``host`` this host's number, ``bind`` the address to listen on."""
        self._folder = Path(folder)
        self._seed = seed
        self._host = host
        self._bind = bind
        self._scenario = Scenario.model_validate_json(scenario_json)
        self._validators: list[_RunningValidator] = []
        self._peers: Mapping[int, PeerAddress] = {}
        self._measured = float("-inf")
        """When the process was measured last (monotonic seconds)."""
        _log_to(self._folder / LOGS_FOLDER / f"host-{host}.log")
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="validators", daemon=True).start()
        log.info("host %d, pid %d, hash seed %s", host, os.getpid(), os.environ.get("PYTHONHASHSEED"))

    # --- what the driver calls ----------------------------------------------------------------------------------------

    def start(self, height: int = 0) -> list[ValidatorAddress]:
        """Start those validators of this host that are there at a height; recovery goes on behind the answer.

        Calling it again starts only those that came to be there since. Returns where all can be reached that were
        started. Raises :class:`~validator.disk.DiskError` and :class:`OSError`.
        """
        return self._call(self._start(height))

    def set_peers(self, addresses: Mapping[int, PeerAddress]) -> None:
        """Where all validators listen, by index."""
        self._call(self._set_peers(addresses))

    def observe(self, with_stamps: bool = False) -> HostView:
        """How it stands. What the validators saw is handed over once; their last messages where they are asked for."""
        return self._call(self._observe(with_stamps))

    def freeze(self) -> None:
        """Bring every validator to rest; pages are still served. One that recovers does so first; one that joins by a
        snapshot gives that up."""
        self._call(self._each(_RunningValidator.freeze))

    def stop(self) -> None:
        """Stop every validator, its files closed, and its endpoint."""
        self._call(self._each(_RunningValidator.close))
        log.info("stopped")
        logging.shutdown()

    # --- on the loop --------------------------------------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the loop and wait for it. An unexpected failure there is this call's."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(CALL_TIMEOUT_S)

    async def _start(self, height: int) -> list[ValidatorAddress]:
        section = self._scenario.validators
        started = {running.address.index for running in self._validators}
        for index in section.on_host(self._host, height):
            if index not in started:
                running = await self._start_validator(index, section.names[index])
                running.validator.set_peers(self._peers)
                self._validators.append(running)
        return [running.address for running in self._validators]

    async def _start_validator(self, index: int, name: str) -> _RunningValidator:
        data = self._folder / DATA_FOLDER
        data.mkdir(parents=True, exist_ok=True)
        notes_file = data / f"{name}.notes"
        notes = _read_notes(notes_file)
        tally = Tally(starts=notes.starts + 1, byzantine=score_of(self._scenario, index))
        disk = DirectoryDisk(data / name)
        validator = ValidatorLoop(self._setup(index, name, tally), disk, _crash, tally)
        peers = await validator.listen(self._bind)
        server = await _serve_near(validator, self._bind, notes.http_port)
        _write_notes(notes_file, HostNotes(tally.starts, server.port))
        recovery = asyncio.get_running_loop().create_task(_recover(validator))
        log.info("%s: start %d, peers at port %d, HTTP at %s", name, tally.starts, peers.port, server.url)
        address = ValidatorAddress(index, name, peers, server.url)
        return _RunningValidator(validator, disk, server, address, recovery)

    def _setup(self, index: int, name: str, tally: Tally) -> ValidatorSetup:
        scenario, seed, scheme = self._scenario, self._seed, Ed25519Scheme()
        validators = validator_set(scheme, scenario, seed)
        return ValidatorSetup(
            name=name,
            index=index,
            genesis=build_genesis(scenario, seed, validators),
            signer=validator_signer(scheme, seed, index),
            validators=validators,
            config=node_config(scenario, index, tally.mutant_runs),
            parts=parts_of(scenario, index, tally.mutant_runs),
            joins=index in scenario.validators.late,
            byzantine=byzantine_of(scenario, seed, index, validators, tally.byzantine),
        )

    async def _set_peers(self, addresses: Mapping[int, PeerAddress]) -> None:
        self._peers = addresses
        for running in self._validators:
            running.validator.set_peers(addresses)

    async def _observe(self, with_stamps: bool) -> HostView:
        use = None
        if time.monotonic() >= self._measured + MEASURE_EVERY_S:
            self._measured = time.monotonic()
            use = processes.own_use()
        views = [
            ValidatorView(
                index=running.address.index,
                state=running.validator.state(),
                starts=running.validator.tally.starts,
                observations=running.validator.drain_observations(),
                stamps=running.validator.drain_stamps() if with_stamps else [],
                disk_bytes=0 if use is None else running.disk.used_bytes,
                use=use,
            )
            for running in self._validators
        ]
        return HostView(os.getpid(), views)

    async def _each(self, work: Callable[[_RunningValidator], Coroutine[Any, Any, None]]) -> None:
        await asyncio.gather(*(work(running) for running in self._validators))


@dataclass(frozen=True, slots=True)
class _RunningValidator:
    """A validator and everything that stops with it."""

    validator: ValidatorLoop
    disk: DirectoryDisk
    server: HttpServer
    address: ValidatorAddress
    recovery: asyncio.Task[None]

    async def freeze(self) -> None:
        self.validator.give_up_join()
        await self.recovery
        await self.validator.freeze()

    async def close(self) -> None:
        self.validator.give_up_join()
        await self.recovery
        await self.server.close()
        await self.validator.close()
        self.disk.close()


async def _recover(validator: ValidatorLoop) -> None:
    try:
        await validator.recover()
    except Exception as error:
        _crash(error)
        raise
    state, name = validator.state(), validator.setup.name
    if not state.ready:
        log.info("%s: gave its join up", name)
        return
    log.info("%s: recovered at height %d; %d objects are set apart", name, state.height, tame_collector())


async def _serve_near(validator: ValidatorLoop, bind: str, port: int) -> HttpServer:
    """Serve on the port of the last start where it is free, else on any."""
    application = build_app(validator)
    try:
        return await serve(application, bind, port)
    except OSError:
        return await serve(application, bind)


def _read_notes(path: Path) -> HostNotes:
    return msgspec.json.decode(path.read_bytes(), type=HostNotes) if path.exists() else HostNotes()


def _write_notes(path: Path, notes: HostNotes) -> None:
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(msgspec.json.encode(notes))
    temporary.replace(path)


def _crash(error: BaseException) -> None:
    """End the process at once: a bug, or a disk that failed."""
    log.critical("ends, because of %s: %s", type(error).__name__, error, exc_info=error)
    logging.shutdown()
    os._exit(CRASH_EXIT_CODE)


def _log_to(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
