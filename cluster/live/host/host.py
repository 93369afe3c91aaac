"""One host of the live testnet: a Ray actor that carries validators, each with its own data folder and HTTP endpoint.

The validators run on an event loop in a separate thread; the actor's methods are short calls into it, so none of them
waits for the chain. Ray gives a restarted actor only its old constructor arguments: a validator's state is in its data
folder (``<run>/data/<name>``), next to the notes of the host itself (:class:`HostNotes`). A start takes new ports for
peers, which the driver distributes; the HTTP port stays the same for clients, if it is still free.

A bug in a validator ends the whole process: the log has the reason, and the driver notices the new process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import uvloop

from cluster import set_heap_apart
from cluster.common.checkout import ROOT
from cluster.common.files import write_atomically
from cluster.disks.bit_rot import Rot
from cluster.disks.directory import DirectoryDisk
from cluster.disks.faulty import FaultyDisk, flip_bit
from cluster.faults.impairment import Impairment
from cluster.faults.kind import plans_of
from cluster.faults.link_effects import LinkCounts
from cluster.live.host.http import build_app
from cluster.live.host.lag import LagMeter, LagSpan
from cluster.live.host.lease import Lease
from cluster.live.host.observations import CertificateTap, Observation, Taken
from cluster.live.host.validator_loop import LoopState, ValidatorLoop, ValidatorSetup
from cluster.live.injection import DelayCounts, Injection
from cluster.live.network.links import OutgoingLinks
from cluster.live.network.transport import PeerAddress
from cluster.live.processes import last_words, processes, resumption
from cluster.live.processes.last_words import LastWords
from cluster.live.web.addresses import LOOPBACK, ports_from
from cluster.live.web.server import HttpServer, serve
from cluster.record.message_trace import Stamp
from cluster.record.run import Work
from cluster.record.status import Tally
from cluster.scenario import Scenario
from cluster.scenario.genesis import build_genesis, chain_id, validator_set, validator_signer
from cluster.scenario.node_setup import Pace, byzantine_of, node_config, pace_of, parts_of, score_of
from cluster.scenario.sections.faults import (
    FIRST_VERSION,
    Release,
)
from consensus.keys import Ed25519Scheme
from validator.node.events import Diverged
from validator.node.shared_work import RememberingScheme, SharedReader
from validator.primitives.compiled import load_compiler
from validator.primitives.types import ValidatorError
from validator.primitives.user_file import UserFileError

if TYPE_CHECKING:
    from cluster.live.host.external import ExternalWatch

log = logging.getLogger(__name__)

DATA_FOLDER: Final = "data"
LOGS_FOLDER: Final = "logs"
CALL_TIMEOUT_S: Final = 30.0
"""Timeout of a call into the event loop, which only a bug exceeds. Then the call raises."""
CRASH_EXIT_CODE: Final = 70
MEASURE_EVERY_S: Final = 0.5
REMEMBERED_BYTES: Final = 4 << 20
"""Payload bytes whose decoded messages a host caches: a broadcast reaches its validators within milliseconds."""
SCHEME: Final = RememberingScheme(Ed25519Scheme())
READER: Final = SharedReader(REMEMBERED_BYTES)
"""Decodes messages for all validators of this process."""
TAP: Final = CertificateTap()
NOTES_SUFFIX: Final = ".notes"
DIVERGENCE_SUFFIX: Final = ".divergence"
"""Suffix of the file that traces how a validator's execution diverged; it outlives the process and the disk."""
NOTHING_INJECTED: Final = Injection()
LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
HASH_SEED_WARNING: Final = (
    "PYTHONHASHSEED is fixed and shown on the status pages, so whoever deploys a program can find dict keys that "
    "collide: right where hosts must not agree by their hashes, wrong where strangers deploy"
)

ORPHANS_LEASE_S: Final = 20.0
"""The longest first lease of a process whose predecessor ended because it had not heard from its driver."""
END_PATIENCE_S: Final = 10.0
"""An actor that Ray does not end within this time ends itself."""
NO_WORD: Final = "this host heard nothing of the driver"
"""Part of the last words of a host whose lease ended."""

T = TypeVar("T")


class LeaseEnded(ValidatorError):
    """The lease of this host has ended: the driver may count its node as lost (:mod:`cluster.live.host.lease`)."""


@dataclass(frozen=True, slots=True)
class ValidatorAddress:
    """The addresses of a started validator."""

    index: int
    name: str
    peers: PeerAddress
    url: str
    """URL of its HTTP endpoint, ``http://host:port``."""


@dataclass(frozen=True, slots=True)
class ValidatorView:
    """A host's report of one validator, with the observations since the last call."""

    index: int
    state: LoopState
    observations: list[Observation]
    stamps: list[Stamp] = field(default_factory=list)
    """The validator's last messages, if requested."""
    disk_bytes: int = 0
    use: processes.Use | None = None
    """The resources of the host's process, if measured since the last report."""
    delay_counts: DelayCounts = field(default_factory=DelayCounts)
    link_counts: dict[int, LinkCounts] = field(default_factory=dict)
    """Effects of link faults on messages, keyed by the fault."""
    old_file_sizes: dict[str, int] = field(default_factory=dict)
    taken: list[Taken] = field(default_factory=list)
    """Transactions that the validator took from clients since the last such report, if requested."""
    work: list[Work] = field(default_factory=list)
    """The work that the validator did last, if messages are requested."""


@dataclass(frozen=True, slots=True)
class HostView:
    """A host's report of itself."""

    pid: int
    validators: list[ValidatorView]
    """Empty until the host is started."""
    started: int = 0
    """Start time of the process (:class:`cluster.live.processes.processes.Process`)."""
    namespace: str = processes.NAMESPACE
    """Namespace of the process id (:class:`cluster.live.processes.processes.Process`)."""
    last_words: LastWords | None = None
    """Last words of the previous process, if it ended itself."""
    version: str = ""
    """The version of the host's code."""
    code: str = ""
    """The folder that the host's code was taken from."""
    lags: list[LagSpan] = field(default_factory=list)
    """Time for which the machine kept the host from running, since the last call."""


class HostNotes(msgspec.Struct):
    """A host's notes on a validator, kept from start to start next to its data folder."""

    starts: int = 0
    http_port: int = 0
    joins: bool = False
    """Whether the disk was lost: if it is empty, the validator joins by a snapshot."""
    moves: int = 0
    """How often the validator moved to another node, up to the last start from this disk."""


class ValidatorHost:
    """The Ray actor of one host. Its constructor arguments are plain data, the same for every start of its process."""

    def __init__(
        self,
        folder: str,
        scenario_json: str,
        seed: int,
        host: int,
        bind: str,
        version: str = FIRST_VERSION,
        mutant: str | None = None,
        lease_s: float | None = None,
        drivers_lease_s: float | None = None,
    ) -> None:
        """``folder`` is the run's, ``host`` this host's number, ``bind`` the address to listen on.

        ``version`` is the name of this code, ``mutant`` a bug that is planted in all validators here. With ``lease_s``
        the host outlives its driver for this long, and has a lease from now on. With ``drivers_lease_s`` it has a lease
        from now on that only its own driver renews.
        """
        load_compiler()  # now, and not while the chain runs: that would take its processor for seconds
        self._folder = Path(folder)
        self._seed = seed
        self._host = host
        self._bind = bind
        self._scenario = Scenario.model_validate_json(scenario_json)
        self._release = Release(version, None, mutant)
        self._validators: list[_Running] = []
        self._starting = asyncio.Lock()
        self._peers: Mapping[int, PeerAddress] = {}
        self._measured = float("-inf")
        """Time of the last measurement of the process (monotonic seconds)."""
        self._injection = Injection()
        self._last_words = last_words.read(self._last_words_file)
        _log_to(self._log_file)
        self._loop = uvloop.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="validators", daemon=True).start()
        self._lag = LagMeter()
        resumed = resumption.note_file(self._folder / DATA_FOLDER, host)
        with suppress(FileNotFoundError, NotADirectoryError):  # no usable folder: the start of the host reports that
            resumed.unlink()
        self._lease = Lease(self._end_without_driver, resumed)
        self._lease.is_for_any_driver = lease_s is not None
        first_lease_s = drivers_lease_s if lease_s is None else lease_s
        if first_lease_s is not None:
            has_no_driver = self._last_words is not None and self._last_words.reason.startswith(NO_WORD)
            self._lease.renew(min(first_lease_s, ORPHANS_LEASE_S) if has_no_driver else first_lease_s)
        asyncio.run_coroutine_threadsafe(self._lag.run(), self._loop)
        hash_seed = os.environ.get("PYTHONHASHSEED")
        log.info("host %d, pid %d, version %s, hash seed %s, code %s", host, os.getpid(), version, hash_seed, ROOT)
        if gives_hash_seed_away(hash_seed, bind):
            log.warning(HASH_SEED_WARNING)

    # --- called by the driver ----------------------------------------------------------------------------------------

    def start(self, height: int = 0, injection: Injection = NOTHING_INJECTED) -> list[ValidatorAddress]:
        """Start the validators of this host that take part at a height; they may still recover when this returns.

        The faults of ``injection`` are in force from the start. Another call starts only new validators.
        Returns the addresses of all that were started. Raises
        :class:`~validator.storage.disk.DiskError` and :class:`OSError`.
        """
        last_words.reserve(self._last_words_file)
        return self._call(self._start(height, injection))

    def set_peers(self, addresses: Mapping[int, PeerAddress]) -> None:
        """Set the addresses of all validators, by index."""
        self._call(self._set_peers(addresses))

    def inject(self, injection: Injection) -> HostView:
        """Put exactly the faults of ``injection`` in force. Returns the host's report, as :meth:`observe` does."""
        return self._call(self._inject(injection))

    def keep(self, lease_s: float, heard_s: float | None = None) -> float:
        """Renew the lease: the host ends itself if it is not renewed within ``lease_s``.

        ``heard_s`` is the last answer to this call that the driver got (:class:`~cluster.live.host.lease.Lease`).
        """
        return self._lease.renew(lease_s, heard_s)

    def arrive(self, index: int, move: int, starts: int) -> None:
        """Prepare for a validator that comes from a lost node, before its start here.

        ``move`` is how often it was moved, this time included; ``starts`` is how often it was started before. If the
        nodes share a volume, its disk is found there and kept. A disk that the validator did not run on last is
        outdated: it lacks the validator's last votes, so it is emptied.
        """
        name = self._name_of(index)
        data, notes_file = self._data_of(name)
        notes = _read_notes(notes_file)
        is_there = notes_file.exists() and (data / name).exists() and notes.moves >= move - 1
        if not is_there:
            shutil.rmtree(data / name, ignore_errors=True)
            notes = HostNotes(starts, joins=True)
        _write_notes(notes_file, msgspec.structs.replace(notes, moves=move))
        log.info("%s: came from a lost node, %s its disk", name, "with" if is_there else "without")

    def wipe(self, index: int) -> str | None:
        """Delete the disk of a validator that was not started. Returns what went wrong, or ``None``."""
        name = self._name_of(index)
        data, notes_file = self._data_of(name)
        try:
            shutil.rmtree(data / name)
        except FileNotFoundError:
            pass  # it moved here without its disk
        except OSError as error:
            return f"the disk of {name} could not be wiped: {error}"
        _write_notes(notes_file, msgspec.structs.replace(_read_notes(notes_file), joins=True))
        log.info("%s: the disk is lost", name)
        return None

    def flip(self, index: int, rot: Rot) -> str | None:
        """Flip a bit on the disk of a validator that was not started. Returns what went wrong, or ``None``."""
        name = self._name_of(index)
        try:
            flip_bit(self._folder / DATA_FOLDER / name / rot.file, rot.offset, rot.bit)
        except (OSError, IndexError) as error:
            return f"no bit of {rot} of {name} could be flipped: {error}"
        log.info("%s: a bit of %s flipped", name, rot)
        return None

    def observe(self, with_stamps: bool = False, with_taken: bool = False) -> HostView:
        """The host's report. Each observation is reported once.

        Messages are reported only ``with_stamps``, and transactions from clients only ``with_taken``, from its first
        use on.
        """
        is_late = threading.Event()
        try:
            return self._call(self._observe(with_stamps, is_late, with_taken))
        except TimeoutError:
            is_late.set()
            raise

    def allow_pruning(self, heights: Mapping[int, int]) -> None:
        """Let validators, by index, prune their blocks up to these heights, down to ``storage.keep_blocks``.

        The auditor has these blocks, and so has every validator that must catch up from its own disk.
        A restarted validator prunes nothing until this is called again.
        """
        self._call(self._allow_pruning(heights))

    def freeze(self) -> None:
        """Bring every validator to rest; pages are still served. It waits for a recovery, and gives a join up."""
        if not self._lease.is_for_any_driver:
            self._lease.give_up()
        self._call(self._each(lambda running: running.freeze()))

    def read_log(self, limit: int) -> bytes:
        """The end of this host's log, at most ``limit`` bytes. Raises :class:`OSError`."""
        with self._log_file.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            return file.read(limit)

    def stop(self) -> None:
        """Stop every validator: its HTTP endpoint ends, and its files are closed."""
        self._call(self._each(lambda running: running.close()))
        self._lag.close()  # a process may start another host after this one
        log.info("stopped")
        logging.shutdown()

    @property
    def _last_words_file(self) -> Path:
        return self._folder / DATA_FOLDER / f"host-{self._host}.last-words"

    @property
    def _log_file(self) -> Path:
        return self._folder / LOGS_FOLDER / f"host-{self._host}.log"

    # --- on the loop --------------------------------------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the loop and wait for it. An unexpected failure there is raised here.

        Raises :class:`TimeoutError` if the loop is busy for long; the work is still done later.
        """
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(CALL_TIMEOUT_S)

    def _name_of(self, index: int) -> str:
        """The name of a validator that is not started."""
        assert all(running.address.index != index for running in self._validators), "it runs"
        return self._scenario.validators.names[index]

    def _data_of(self, name: str) -> tuple[Path, Path]:
        """The folder of the validators' data, which is made if need be, and the file of a validator's notes there."""
        data = self._folder / DATA_FOLDER
        data.mkdir(parents=True, exist_ok=True)
        return data, data / f"{name}{NOTES_SUFFIX}"

    async def _start(self, height: int, injection: Injection) -> list[ValidatorAddress]:
        self._take(injection)
        section = self._scenario.validators
        async with self._starting:  # the previous call may still run, though its caller timed out
            started = {running.address.index for running in self._validators}
            for index in section.on_host(self._host, height):
                if index not in started:
                    running = await self._start_validator(index, section.names[index])
                    running.set_peers(self._peers)
                    running.inject(self._injection)
                    self._validators.append(running)
            return [running.address for running in self._validators]

    async def _start_validator(self, index: int, name: str) -> _Running:
        external = self._scenario.validators.external.get(index)
        if external is not None:
            from cluster.live.host.external import ExternalWatch  # a client of HTTP, which few hosts need

            watch = ExternalWatch(external.url, index, chain_id(self._scenario, self._seed))
            watch.start()
            log.info("%s: external, peers at %s, HTTP at %s", name, external.address, external.url)
            return _ExternalValidator(watch, ValidatorAddress(index, name, PeerAddress(*external.peers), external.url))
        data, notes_file = self._data_of(name)
        notes = _read_notes(notes_file)
        divergence_file = data / f"{name}{DIVERGENCE_SUFFIX}"
        is_diverged = divergence_file.exists()
        tally = Tally(
            notes.starts + 1,
            self._release.version,
            byzantine=score_of(self._scenario, index),
            diverged=msgspec.msgpack.decode(divergence_file.read_bytes(), type=Diverged) if is_diverged else None,
            keep_divergence=lambda diverged: write_atomically(divergence_file, msgspec.msgpack.encode(diverged)),
        )
        setup = self._setup(index, name, tally, notes.joins)
        disk = self._disk(data / name, setup.pace)
        validator = ValidatorLoop(setup, disk, partial(self._end_for, index), tally)
        peers = await _at_free_port(partial(validator.transport.listen, self._bind), ports_from(os.environ))
        server = await _serve_near(validator, self._bind, notes.http_port)
        _write_notes(notes_file, msgspec.structs.replace(notes, starts=tally.starts, http_port=server.port))
        recovery = asyncio.get_running_loop().create_task(_recover(validator, partial(self._end_for, index)))
        log.info("%s: start %d, peers at port %d, HTTP at %s", name, tally.starts, peers.port, server.url)
        address = ValidatorAddress(index, name, peers, server.url)
        return _RunningValidator(validator, disk, server, address, recovery)

    def _disk(self, path: Path, pace: Pace) -> DirectoryDisk:
        """The disk of a validator: a plain one if nothing in the scenario can impair it, else a :class:`FaultyDisk`."""
        if not (pace.sync_ms or any(plan.spoils_disks for plan in plans_of(self._scenario))):
            return DirectoryDisk(path)
        return FaultyDisk(path, pace.sync_ms)

    def _end_for(self, index: int, error: BaseException) -> None:
        """End the process, since a validator cannot continue; the next process reports the reason.

        No further failure keeps the process from ending: a full disk fails here, too.
        """
        is_users = isinstance(error, UserFileError)
        reason = str(error) if is_users or isinstance(error, ValidatorError) else f"{type(error).__name__}: {error}"
        words = LastWords(os.getpid(), index, reason, processes.own().started, is_users)
        try:
            last_words.write(self._last_words_file, words)
        except OSError as failure:
            log.critical("the last words cannot be written: %s", failure)
        finally:
            crash(error)

    def _end_without_driver(self, lease_s: float) -> None:
        """End the process: the driver may have given its validators to another node."""
        error = LeaseEnded(f"{NO_WORD} for {lease_s:g} s")
        if self._validators:
            self._end_for(self._validators[0].address.index, error)
        if self._lease.is_for_any_driver:
            _end_for_good()
        crash(error)

    def _setup(self, index: int, name: str, tally: Tally, has_lost_disk: bool) -> ValidatorSetup:
        scenario, seed, scheme = self._scenario, self._seed, SCHEME
        validators = validator_set(scheme, scenario, seed)
        return ValidatorSetup(
            name=name,
            index=index,
            genesis=build_genesis(scenario, seed, validators),
            signer=validator_signer(scheme, seed, index),
            validators=validators,
            config=node_config(scenario, index, tally.mutant_runs, self._release.mutant),
            parts=parts_of(scenario, index, tally.mutant_runs, self._release.mutant),
            joins=has_lost_disk or index in scenario.validators.late,
            byzantine=byzantine_of(scenario, seed, index, validators, tally.byzantine),
            reader=READER,
            links=OutgoingLinks(scenario.network, index, seed),
            links_from={each: OutgoingLinks(scenario.network, each, seed) for each in scenario.validators.external},
            pace=pace_of(scenario, index),
            tap=None if scenario.validators.node(index).byzantine else TAP,
            watches_files=any(plan.rots for plan in plans_of(scenario)),
            check_lease=self._lease.check,
        )

    async def _set_peers(self, addresses: Mapping[int, PeerAddress]) -> None:
        self._peers = addresses
        for running in self._validators:
            running.set_peers(addresses)

    async def _allow_pruning(self, heights: Mapping[int, int]) -> None:
        for running in self._validators:
            running.allow_pruning(heights.get(running.address.index, 0))

    def _take(self, injection: Injection) -> None:
        """Store the faults in force, unless a newer injection came first: calls may overtake each other."""
        if injection.number > self._injection.number:
            self._injection = injection

    async def _inject(self, injection: Injection) -> HostView:
        self._take(injection)
        for running in self._validators:
            running.inject(self._injection)
        return await self._observe()

    async def _observe(
        self, with_stamps: bool = False, is_late: threading.Event | None = None, with_taken: bool = False
    ) -> HostView:
        if is_late is not None and is_late.is_set():
            raise TimeoutError  # no caller gets this report: the next one has the observations
        myself, use = processes.own(), self._measure()
        return HostView(
            pid=myself.pid,
            validators=[running.view(use, with_stamps, with_taken) for running in self._validators],
            started=myself.started,
            namespace=myself.namespace,
            last_words=self._last_words,
            version=self._release.version,
            code=str(ROOT),
            lags=self._lag.drain(),
        )

    def _measure(self) -> processes.Use | None:
        """The resources that the process uses; ``None`` if it was measured less than :data:`MEASURE_EVERY_S` ago."""
        if time.monotonic() < self._measured + MEASURE_EVERY_S:
            return None
        self._measured = time.monotonic()
        return processes.own_use()

    async def _each(self, work: Callable[[_Running], Coroutine[Any, Any, None]]) -> None:
        await asyncio.gather(*(work(running) for running in self._validators))


@dataclass(frozen=True, slots=True)
class _RunningValidator:
    """A running validator with its disk, HTTP server and recovery task, which end together with it."""

    validator: ValidatorLoop
    disk: DirectoryDisk
    server: HttpServer
    address: ValidatorAddress
    recovery: asyncio.Task[None]
    traps_laid: set[int] = field(default_factory=set)
    """Numbers of the disk traps that were set."""

    def set_peers(self, addresses: Mapping[int, PeerAddress]) -> None:
        self.validator.transport.set_addresses(addresses)

    def allow_pruning(self, height: int) -> None:
        self.validator.allow_pruning(height)

    def inject(self, injection: Injection) -> None:
        """Apply the faults in force from now on to this validator."""
        index, loop, disk = self.address.index, self.validator, self.disk
        impairment = injection.impairments.get(index) or Impairment()
        loop.impair(impairment.job_ms, impairment.clock_speed)
        for links in loop.setup.all_links:
            links.set_faults(injection.links)
        if isinstance(disk, FaultyDisk):
            disk.sync_ms = max(impairment.sync_ms or 0, disk.usual_sync_ms)
            number, trap = injection.traps.get(index, (None, None))
            if trap is not None and number is not None and number not in self.traps_laid:
                self.traps_laid.add(number)
                disk.lay_trap(trap)

    def view(self, use: processes.Use | None, with_stamps: bool, with_taken: bool) -> ValidatorView:
        loop, disk = self.validator, self.disk
        return ValidatorView(
            index=self.address.index,
            state=loop.state(),
            observations=loop.observations.drain(),
            stamps=loop.observations.drain_stamps() if with_stamps else [],
            work=loop.observations.drain_work() if with_stamps else [],
            disk_bytes=0 if use is None else disk.used_bytes,
            use=use,
            delay_counts=DelayCounts(
                disk.slow_syncs if isinstance(disk, FaultyDisk) else 0, loop.executor.slow_jobs, loop.timers.skewed
            ),
            link_counts=_together(links.faults.counts() for links in loop.setup.all_links),
            old_file_sizes=loop.executor.old_file_sizes(),
            taken=loop.observations.drain_taken() if with_taken else [],
        )

    async def freeze(self) -> None:
        self.validator.join.give_up()
        await self.recovery
        await self.validator.freeze()

    async def close(self) -> None:
        self.validator.join.give_up()
        await self.recovery
        await self.server.close()
        await self.validator.close()
        self.disk.close()


@dataclass(frozen=True, slots=True)
class _ExternalValidator:
    """A validator that another party runs: it is watched, and nothing is done to it."""

    watch: ExternalWatch
    address: ValidatorAddress

    def set_peers(self, addresses: Mapping[int, PeerAddress]) -> None:
        """Do nothing: the other party reads the addresses."""

    def allow_pruning(self, height: int) -> None:
        """Do nothing: the other party decides what it keeps."""

    def inject(self, injection: Injection) -> None:
        """Do nothing: the others apply faults of links to what they send and receive."""

    def view(self, use: processes.Use | None, with_stamps: bool, with_taken: bool) -> ValidatorView:
        return ValidatorView(self.address.index, self.watch.state, self.watch.drain())

    async def freeze(self) -> None:
        """Do nothing: without the others no block becomes final, and pages are still read until :meth:`close`."""

    async def close(self) -> None:
        await self.watch.close()


_Running = _RunningValidator | _ExternalValidator


def _together(counts: Iterable[Mapping[int, LinkCounts]]) -> dict[int, LinkCounts]:
    """The effects of faults of links on several sets of links, by fault."""
    found: dict[int, LinkCounts] = {}
    for each in counts:
        for key, count in each.items():
            found[key] = found.get(key, LinkCounts()) + count
    return found


async def _recover(validator: ValidatorLoop, on_crash: Callable[[BaseException], None]) -> None:
    try:
        await validator.recover()
    except Exception as error:
        on_crash(error)
        raise
    state, name = validator.state(), validator.setup.name
    if not state.ready:
        log.info("%s: gave its join up", name)
        return
    log.info("%s: recovered at height %d; %d objects are set apart", name, state.height, set_heap_apart())


async def _serve_near(validator: ValidatorLoop, bind: str, port: int) -> HttpServer:
    """Serve on the port of the last start if it is free, else on any permitted port."""
    application = build_app(validator.pages)
    last = [port] if port else []
    return await _at_free_port(partial(serve, application, bind), [*last, *ports_from(os.environ)])


async def _at_free_port(listen: Callable[[int], Awaitable[T]], ports: Sequence[int]) -> T:
    """Listen at the first of some ports that is free. Raises :class:`OSError` if none is."""
    *others, last = ports
    for port in others:
        with suppress(OSError):
            return await listen(port)
    return await listen(last)


def _read_notes(path: Path) -> HostNotes:
    return msgspec.json.decode(path.read_bytes(), type=HostNotes) if path.exists() else HostNotes()


def _write_notes(path: Path, notes: HostNotes) -> None:
    write_atomically(path, msgspec.json.encode(notes))


def crash(error: BaseException) -> None:
    """Log the error, and end the process at once."""
    try:
        log.critical("ends, because of %s: %s", type(error).__name__, error, exc_info=error)
        logging.shutdown()
    finally:
        os._exit(CRASH_EXIT_CODE)


def _end_for_good() -> None:
    """Have Ray end this actor, since no driver is left to do it: otherwise Ray would restart its process."""
    import ray

    threading.Timer(END_PATIENCE_S, os._exit, [CRASH_EXIT_CODE]).start()
    ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


def gives_hash_seed_away(hash_seed: str | None, bind: str) -> bool:
    """Whether other machines can predict the hashes of texts: a fixed ``PYTHONHASHSEED`` determines them, and status
    pages show it to every client.
    """
    return hash_seed not in (None, "", "random") and bind != LOOPBACK


def _log_to(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
