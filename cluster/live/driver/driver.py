"""Runs a scenario on the live testnet: Ray, hosts, load, faults, and what was seen of it all in one record.

The driver decides nothing about right or wrong; it starts, watches, kills, stops, asks, and cleans up. Whatever ends
a run early (a signal, a failure of its own), what is known until then is collected, and nothing that was started is
left behind.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from cluster.common.errors import BadInput, HarnessError, TestnetError
from cluster.common.files import write_atomically
from cluster.common.interrupts import Interrupts
from cluster.common.outcome import Outcome
from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.faults.engine import FaultEngine
from cluster.live.driver.chain_watch import ChainWatch
from cluster.live.driver.collect import collect, keep_blocks
from cluster.live.driver.control_server import AddFault, ControlServer, StopRun
from cluster.live.driver.faucet import Faucet
from cluster.live.driver.hosts import Host, Hosts, Phase, nothing
from cluster.live.driver.load_process import EXTRA_RUN_TIME_S, LOG_FILE, MAX_RUN_TIME_S, LoadProcess
from cluster.live.driver.ray_session import RaySession, one_line
from cluster.live.driver.stage import LiveStage, located
from cluster.live.driver.status_view import look_over
from cluster.live.host.host import LOGS_FOLDER, ValidatorView
from cluster.live.host.lag import LagMeter
from cluster.live.host.observations import VoteSent
from cluster.live.injection import LastWords
from cluster.live.processes.cleanup_watchdog import CleanupWatchdog
from cluster.live.web.addresses import ON_THE_LOOPBACK, Served
from cluster.record.folder import ENDPOINTS_FILE, FAUCET_TOKEN_FILE, TOKEN_FILE
from cluster.record.host_info import Busyness
from cluster.record.run import JoinRecord, RunRecord, Sample
from cluster.scenario import Scenario, fault_to_add
from cluster.scenario.genesis import build_genesis, validator_set
from cluster.scenario.sections.faults import UpgradeFault
from consensus.keys import Ed25519Scheme

TICK_S: Final = 0.25
SAMPLE_EVERY_MS: Final = 500.0
START_TIMEOUT_S: Final = 90.0
FREEZE_TIMEOUT_S: Final = 20.0
STOP_TIMEOUT_S: Final = 5.0
LOOKS_AT_THE_END: Final = 2
"""A question may be open from before the hosts came to rest; the next one is answered with what is there then."""


@contextmanager
def live_testnet(
    scenario: Scenario,
    seed: int,
    commit: str,
    folder: Path,
    on_sample: Callable[[Sample], None] | None = None,
    on_notice: Callable[[str], None] | None = None,
    interrupts: Interrupts | None = None,
    run_until_stopped: threading.Event | None = None,
    served: Served = ON_THE_LOOPBACK,
) -> Iterator[RunRecord]:
    """Run a scenario on the live testnet, with its data, logs and endpoints in ``folder``; yields its record.

    Inside the block the validators are at rest and still serve their pages. Afterwards nothing that was started runs,
    however the block ended. ``on_sample`` and ``on_notice`` (one line each) are called while the scenario runs. Ctrl-C,
    SIGTERM or SIGHUP ends the run early; the record notes it and holds what is known.

    With ``run_until_stopped`` the run has no stop height. The event, the first signal or a request to the testnet's
    endpoint stops it: the load ends, the validators drain, and the height reached becomes the scenario's stop height.
    ``interrupts`` are the caller's, if it guards its own work on the record with them. ``served`` is the address of the
    testnet's endpoint.

    Raises :class:`BadInput` for a fault that the live testnet cannot perform, :class:`TestnetError` if the testnet
    cannot be started, :class:`OSError` if the folder cannot be written.
    """
    if problem := scenario.live_problem:
        raise BadInput(f"{scenario.name}: {problem}")
    with Interrupts() if interrupts is None else nullcontext(interrupts) as active:
        run = _LiveRun(scenario, seed, commit, folder, active, run_until_stopped, served)
        run.on_sample = on_sample or run.on_sample
        run.on_notice = on_notice or run.on_notice
        try:
            run.perform()
            yield run.record
        finally:
            run.close()


def run_live(
    scenario: Scenario,
    seed: int,
    commit: str,
    folder: Path,
    on_sample: Callable[[Sample], None] | None = None,
    on_notice: Callable[[str], None] | None = None,
    interrupts: Interrupts | None = None,
    served: Served = ON_THE_LOOPBACK,
) -> RunRecord:
    """:func:`live_testnet`, ended once the scenario is over; returns the record."""
    with live_testnet(scenario, seed, commit, folder, on_sample, on_notice, interrupts, served=served) as record:
        return record


class _LiveRun:
    """One run."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        commit: str,
        folder: Path,
        interrupts: Interrupts,
        run_until_stopped: threading.Event | None,
        served: Served,
    ) -> None:
        self.on_sample: Callable[[Sample], None] = lambda sample: None
        self.on_notice: Callable[[str], None] = lambda notice: None
        self._scenario = scenario
        self._folder = folder
        self._interrupts = interrupts
        self._run_until_stopped = run_until_stopped
        self._end: int | None = scenario.stop.height if run_until_stopped is None else None
        """The height at which the load stops, once that is known."""
        self._began = time.monotonic()
        self._deadline = self._began + scenario.stop.timeout_s if run_until_stopped is None else math.inf
        began_epoch_ms = time.time() * MILLISECONDS_PER_SECOND
        validators = validator_set(Ed25519Scheme(), scenario, seed)
        genesis = build_genesis(scenario, seed, validators)
        self.record = RunRecord(scenario, "live", seed, commit, genesis)
        self._watch = ChainWatch(self.record, began_epoch_ms)
        late = scenario.validators.late
        self._joins = {index: JoinRecord(scenario.validators.names[index], late[index]) for index in late}
        self.record.joins = list(self._joins.values())
        self._count_at_first = scenario.validators.count - len(late)
        """Validators that are there from the genesis on."""
        self._session: RaySession | None = None
        self._hosts: Hosts | None = None
        self._stage: LiveStage | None = None
        self._told_height = 0
        """The height that faults know of."""
        self._load: LoadProcess | None = None
        self._watchdog: CleanupWatchdog | None = None
        self._control: ControlServer | None = None
        self._served = served
        self._load_failed = False
        self._sampled_ms = float("-inf")
        self._lag, self._busyness = LagMeter(), Busyness()

    # --- the run as a whole -------------------------------------------------------------------------------------------

    def perform(self) -> None:
        """Start, follow, collect. Raises :class:`TestnetError` where it cannot be started."""
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start()
            self._follow()
        except KeyboardInterrupt:
            self.record.interrupted = True
            self.on_notice("interrupted: collecting what is known; once more ends it without")
        except (HarnessError, OSError) as error:
            if self._watch.height == 0:
                raise
            self._note_failure(error)
        try:
            self._conclude()
        except KeyboardInterrupt:
            self.record.interrupted = True
            self.record.problems.append("interrupted again: not everything was collected")
            self.on_notice("interrupted again: ending without the rest")
        except (HarnessError, OSError) as error:
            self._note_failure(error)

    def close(self) -> None:
        """End everything that was started: each of it, whatever becomes of the rest. Nothing interrupts this."""
        with ExitStack() as last_to_first:
            if self._watchdog is not None:
                last_to_first.callback(self._watchdog.dismiss)
            if self._control is not None:
                last_to_first.callback(self._control.close)
            if self._session is not None:
                last_to_first.callback(self._close_session, self._session)
            if self._hosts is not None:
                last_to_first.callback(self._hosts.ask_each, "stop", STOP_TIMEOUT_S, lambda: None)
                last_to_first.callback(self._hosts.resume_all)
            if self._load is not None:
                last_to_first.callback(self._finish_load, self._load, lambda: None)

    def _close_session(self, session: RaySession) -> None:
        for notice in session.close([] if self._hosts is None else self._hosts.processes):
            self.on_notice(notice)

    def _finish_load(self, load: LoadProcess, checkpoint: Callable[[], None]) -> None:
        self.record.load = load.finish(checkpoint)

    def _note_failure(self, error: Exception) -> None:
        self.record.interrupted = True
        self.record.problems.append(f"the driver failed: {one_line(error)}")
        self.on_notice(self.record.problems[-1])

    @property
    def _now_ms(self) -> float:
        return (time.monotonic() - self._began) * MILLISECONDS_PER_SECOND

    # --- start --------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._watchdog = watchdog = CleanupWatchdog.start(self._folder, _result_of_a_killed_driver(self.record))
        self._start_control()
        self.on_notice("starting Ray and the validator hosts")
        self._start_load(watchdog)
        try:
            self._session = RaySession.start(on_folder=watchdog.watch_ray)
        except SystemExit:
            raise KeyboardInterrupt from None  # Ray's own answer to a SIGTERM, until the next line takes it back
        self._interrupts.install()
        self._interrupts.checkpoint()
        self._hosts = hosts = Hosts(
            self._session, self._take_view, self._host_is_up, self._host_was_lost, self.record.problems.append
        )
        hosts.create(self._scenario, self.record.seed, self._folder, self._served.bind)
        self._compile_what_comes(hosts)
        deadline = time.monotonic() + START_TIMEOUT_S
        is_told = False
        while not all(host.phase is Phase.UP for host in hosts.all):
            self._look_before_it_is_up(hosts, starts=self._load is None or self._load.is_ready)
            failed = [host for host in hosts.all if host.phase is Phase.DEAD]
            if failed or time.monotonic() > deadline:
                self._give_up_start(failed)
            if not is_told and len(hosts.addresses) >= self._count_at_first:
                is_told = True
                self._write_endpoints(hosts)
                if self._load is not None:
                    self._load.go([address.url for address in hosts.addresses])
        self._prepare_faults(hosts)
        self.on_notice(f"{len(hosts.all)} hosts are up after {self._now_ms / MILLISECONDS_PER_SECOND:.1f} s")

    def _compile_what_comes(self, hosts: Hosts) -> None:
        """Code of other folders that upgrades are going to bring, before there is a block."""
        for plan in self._scenario.planned_faults:
            if isinstance(plan, UpgradeFault):
                hosts.prepare(hosts.all, located(plan.release), nothing, self.on_notice)
        while hosts.is_compiling:
            self._look_before_it_is_up(hosts, starts=False)
            self._interrupts.wait(TICK_S)

    def _look_before_it_is_up(self, hosts: Hosts, starts: bool) -> None:
        assert self._session is not None
        self._session.check()
        if self._load is not None and self._load.ended_early:
            told = f"the load generator ended with exit code {self._load.exit_code} before there was a block"
            raise TestnetError(f"{told} (see {self._folder / LOG_FILE})")
        hosts.look(self._watch.height, starts)
        self._interrupts.checkpoint()
        if self._is_stop_requested:
            raise TestnetError("the testnet was told to end before it was up")

    def _start_control(self) -> None:
        try:
            faucet = Faucet.of(self._scenario, self.record.seed, self.record.genesis.chain_id)
            self._control = ControlServer(self._folder / TOKEN_FILE, self._served, faucet)
        except OSError as error:
            told = f"the testnet's endpoint cannot be served on {self._served}: {one_line(error)}"
            raise (TestnetError if self._served == ON_THE_LOOPBACK else BadInput)(told) from None
        self.on_notice(f"the testnet's own endpoint is {self._control.url}")

    def _give_up_start(self, failed: list[Host]) -> None:
        assert self._session is not None
        self._session.keep_logs(self._folder / LOGS_FOLDER / "ray")
        logs = self._folder / LOGS_FOLDER
        if failed:
            raise TestnetError(f"host {failed[0].number} cannot be started: {failed[0].why_dead} (see {logs})")
        is_load_ready = self._load is None or self._load.is_ready
        late = "the hosts were not up" if is_load_ready else "the load generator was not ready"
        raise TestnetError(f"{late} after {START_TIMEOUT_S:g} s (see {logs})")

    def _start_load(self, watchdog: CleanupWatchdog) -> None:
        """Have the load generator make itself ready: no validator starts before it is, or a short chain might be over
        before a slow machine has a user's first transaction."""
        if self._scenario.load.user_count:
            longest_s = START_TIMEOUT_S + self._scenario.stop.timeout_s + EXTRA_RUN_TIME_S
            run_time_s = int(longest_s) if self._run_until_stopped is None else MAX_RUN_TIME_S
            chain_id = self.record.genesis.chain_id
            self._load = LoadProcess(self._scenario, self.record.seed, chain_id, self._folder, run_time_s)
            if (process := self._load.process) is not None:
                watchdog.watch_process(process)

    def _write_endpoints(self, hosts: Hosts) -> None:
        """Where everybody can be reached, for whoever wants to look on."""
        page: list[dict[str, Any]] = [
            {
                "name": address.name,
                "index": address.index,
                "url": address.url,
                "peers": f"{address.peers.host}:{address.peers.port}",
                "host": hosts.host_of(address.index).number,
                "pid": hosts.host_of(address.index).pid,
            }
            for address in hosts.addresses
        ]
        assert self._control is not None
        testnet = {"url": self._control.url, "token_file": TOKEN_FILE}
        if self._scenario.chain.faucet is not None:
            testnet["faucet_token_file"] = FAUCET_TOKEN_FILE
        write_atomically(
            self._folder / ENDPOINTS_FILE, json.dumps({"testnet": testnet, "validators": page}, indent=2) + "\n"
        )

    # --- following ----------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Watch, injure, and stop the load, until the scenario is over or its time is up."""
        assert self._hosts is not None
        assert self._session is not None
        while not self._is_over(self._hosts):
            if time.monotonic() > self._deadline:
                after_s = self._now_ms / MILLISECONDS_PER_SECOND
                self.record.time_up = f"the time was up after {after_s:.0f} s: {self._standings(self._hosts)}"
                return
            self._wait()
            self._session.check()
            self._hosts.look(self._watch.height)
            self._note_lags(self._hosts)
            self._obey()
            self._note_joins(self._hosts)
            self._show(self._hosts)
            self._sample(self._hosts)
            self._perform_faults()
            self._watch_load()

    def _wait(self) -> None:
        """Until the next look. The first signal ends a run that has no other end."""
        planned_s = self._tick_s()
        self._lag.begin()
        try:
            self._interrupts.wait(planned_s)
        except KeyboardInterrupt:
            if self._end is not None:
                raise
            self._interrupts.accept()
            self._end_here()
        else:
            self._lag.end(planned_s)

    def _note_lags(self, hosts: Hosts) -> None:
        """How long the machine kept hosts and driver from running since the last look."""
        for number, span in hosts.take_lags():
            self._watch.take_lag(number, span)
        for span in self._lag.drain():
            self._watch.take_lag(None, span)

    def _tick_s(self) -> float:
        """Less where a fault begins or ends sooner."""
        next_ms = None if self._stage is None else self._stage.next_ms
        if next_ms is None:
            return TICK_S
        return max(0.0, min(TICK_S, (next_ms - self._now_ms) / MILLISECONDS_PER_SECOND))

    def _obey(self) -> None:
        """Do what it was told since the last look."""
        assert self._control is not None
        if self._is_stop_requested and self._end is None:
            self._end_here()
        while not self._control.orders.empty():
            match self._control.orders.get_nowait():
                case StopRun() if self._end is None or self._end > self._watch.height:
                    self._end_here()
                case AddFault(fields, answer) if answer.set_running_or_notify_cancel():
                    try:
                        answer.set_result(self._add_fault(fields))
                    except BadInput as error:
                        answer.set_exception(error)

    @property
    def _is_stop_requested(self) -> bool:
        return self._run_until_stopped is not None and self._run_until_stopped.is_set()

    def _end_here(self) -> None:
        """The height that is reached becomes the run's last one."""
        self._end = self._watch.height
        self._deadline = time.monotonic() + self._scenario.stop.timeout_s
        self._note_end(self._end)
        self.on_notice(f"height {self._end}: told to end")

    def _note_end(self, height: int) -> None:
        self.record.stop_requested_at_height, self.record.scenario = height, self._scenario.ended_at(height)

    def _show(self, hosts: Hosts) -> None:
        """What the testnet's endpoint shows from now on."""
        assert self._control is not None
        self._control.view = look_over(self.record, hosts, self._watch.height, self._now_ms)

    def _is_over(self, hosts: Hosts) -> bool:
        """Whether every validator that still takes part has drained."""
        alive = [host for host in hosts.all if host.phase is not Phase.DEAD]
        if self._end is None:
            return not alive
        goal = self._end + self._scenario.stop.drain_blocks
        node = self._scenario.validators.node
        awaited = [state for host in alive for index, state in host.states.items() if not node(index).byzantine]
        return (
            self._watch.height >= goal
            and (self._stage is None or self._stage.engine.are_over)
            and all(host.phase is Phase.UP and host.is_started(goal) for host in alive)
            and all(state.height >= goal or state.diverged for state in awaited)
            and self._watch.height > (healed := self.record.height_when_healed)
            and all(state.height > healed or state.diverged for state in awaited)
        ) or not alive

    def _standings(self, hosts: Hosts) -> str:
        names = self._scenario.validators.names
        return ", ".join(
            f"{name} {'does not answer' if height is None else f'is at height {height}'}"
            for name, height in zip(names, hosts.heights(), strict=True)
        )

    def _sample(self, hosts: Hosts) -> None:
        now_ms, trace = self._now_ms, self._watch.trace
        trace.windows.look(now_ms, self._watch.height)
        hosts.wants_stamps = trace.wants(now_ms)
        if now_ms - self._sampled_ms >= SAMPLE_EVERY_MS:
            self._sampled_ms = now_ms
            self._busyness.look()
            self.on_sample(self._watch.sample(now_ms, hosts.heights(), hosts.views(), hosts.state_words()))

    def _watch_load(self) -> None:
        if self._load is None:
            return
        if self._load.ended_early and not self._load_failed:
            self._load_failed = True
            code, log = self._load.exit_code, self._folder / LOG_FILE
            self.record.problems.append(f"the load generator ended early with exit code {code} (see {log})")
        if self._end is not None and self._watch.height >= self._end and not self._load.was_told_to_stop:
            self.on_notice(f"height {self._watch.height}: the load stops, draining")
            self._load.stop()

    # --- faults -------------------------------------------------------------------------------------------------------

    def _prepare_faults(self, hosts: Hosts) -> None:
        """From now on, with every host up, faults may begin."""
        now_ms, height = (lambda: self._now_ms), (lambda: self._watch.height)
        stage = LiveStage(self._scenario, self.record.seed, hosts, now_ms, height, self.on_notice, self._keep_blocks)
        stage.engine = FaultEngine(self._scenario, stage)
        stage.engine.schedule()
        self._stage, self.record.faults = stage, stage.engine.records

    def _perform_faults(self) -> None:
        assert self._stage is not None
        if self._watch.height > self._told_height:
            self._told_height = self._watch.height
            self._stage.engine.on_new_height(self._told_height)
        self._stage.perform()

    def _keep_blocks(self, index: int, url: str) -> None:
        kept = keep_blocks(self.record, index, url, self._interrupts.checkpoint)
        if kept is None:
            name = self._scenario.validators.names[index]
            self.on_notice(f"height {self._watch.height}: {name} does not serve what its disk had")

    def _add_fault(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Have a fault that the scenario did not foresee, from now on or later, and return what it became.

        Raises :class:`BadInput`.
        """
        assert self._stage is not None
        height, at_ms = self._watch.height, math.ceil(self._stage.run_ms)
        if self._end is not None and height >= self._end:
            raise BadInput(f"the run is about to end: height {self._end} is reached")
        begins = {} if fields.keys() & {"at_height", "at_ms"} else {"at_ms": at_ms}
        fault = fault_to_add(self._scenario, {**fields, **begins}, has_end=self._end is not None)
        if (fault.at_height or height + 1) <= height:
            raise BadInput(f"at_height: {fault.at_height} is not above {height}, the final height")
        if (at_ms if fault.at_ms is None else fault.at_ms) < at_ms:
            raise BadInput(f"at_ms: {fault.at_ms} is over: it is {at_ms} ms since the testnet was up")
        self._scenario = self._scenario.model_copy(update={"faults": [*self._scenario.faults, fault]})
        self.record.scenario = self._scenario
        self._stage.engine.adopt(self._scenario)
        self.on_notice(f"height {height}: told of a fault: {fault.kind} of {fault.whom}")
        return fault.model_dump(mode="json", exclude_none=True)

    def _note_joins(self, hosts: Hosts) -> None:
        """See which of those that join later have begun, and which have their snapshot."""
        for index, join in self._joins.items():
            state = hosts.host_of(index).states.get(index)
            if state is None or join.ended_ms is not None:
                continue
            if join.begun_ms is None:
                join.begun_ms, join.height_when_begun = self._now_ms, self._watch.height
                self.on_notice(f"height {self._watch.height}: {join.target} joins by a snapshot")
            if state.ready:
                join.ended_ms, join.height_when_ended = self._now_ms, self._watch.height
                join.chunks = state.snapshot_chunks
                self.on_notice(
                    f"height {self._watch.height}: {join.target} has the snapshot of height {state.snapshot_height}"
                )

    def _host_is_up(self, host: Host) -> None:
        assert self._hosts is not None
        if self._stage is not None:
            self._stage.engine.on_up()
        if len(self._hosts.addresses) >= self._count_at_first:
            self._write_endpoints(self._hosts)

    def _host_was_lost(self, host: Host, reason: str, words: LastWords | None) -> None:
        if self._stage is not None and self._stage.on_lost(host, words):
            return
        names = ", ".join(self._names_on(host))
        log = self._folder / LOGS_FOLDER / f"host-{host.number}.log"
        said = "" if words is None else f", {self._scenario.validators.names[words.validator]} said: {words.reason}"
        problem = f"host {host.number} ({names}) was lost: {reason}{said} (see {log})"
        self.record.problems.append(problem)
        self.on_notice(problem)

    def _names_on(self, host: Host) -> list[str]:
        return [self._scenario.validators.names[index] for index in host.validators]

    def _take_view(self, view: ValidatorView) -> None:
        self._watch.take(view.index, view.observations)
        self._watch.trace.take(view.index, view.stamps)
        self._watch.take_use(self._now_ms, view)
        if self._stage is not None and self._stage.engine.is_listening:
            for seen in view.observations:
                if isinstance(seen, VoteSent):
                    self._stage.engine.on_vote(view.index, seen.view, seen.kind)

    # --- end ----------------------------------------------------------------------------------------------------------

    def _conclude(self) -> None:
        """Stop the load, bring the validators to rest, and ask them for everything."""
        self.record.duration_ms = self._now_ms
        if self._end is None:
            self._note_end(self._watch.height)
        if self._load is not None:
            self._finish_load(self._load, self._interrupts.checkpoint)
        if self._hosts is not None:
            self._freeze_and_collect(self._hosts)

    def _freeze_and_collect(self, hosts: Hosts) -> None:
        checkpoint = self._interrupts.checkpoint
        hosts.resume_all()
        failed = hosts.ask_each("freeze", FREEZE_TIMEOUT_S, checkpoint)
        for host, reason in failed:
            self.record.problems.append(f"host {host.number} did not come to rest: {reason}")
        for _ in range(LOOKS_AT_THE_END):
            hosts.look(self._watch.height, starts=False)
        self.record.duration_ms = self._now_ms
        self._watch.trace.close(self.record.duration_ms)
        self._note_lags(hosts)
        self._note_totals(hosts)
        at_rest = [host for host in hosts.all if host not in [host for host, _ in failed]]
        for host in hosts.all:
            if host.phase is not Phase.UP and host.not_ready and self._watch.height:
                names = ", ".join(self._scenario.validators.names[index] for index in host.not_ready)
                self.record.problems.append(
                    f"{names} did not answer at the end: host {host.number} is {host.phase.value}"
                )
        addresses = [(host, address) for host in at_rest for address in host.addresses]
        urls = {address.index: address.url for host, address in addresses if address.index not in host.not_ready}
        self.on_notice(f"height {self._watch.height}: asking {len(urls)} validators for their blocks and accounts")
        collect(self.record, urls, checkpoint)

    def _note_totals(self, hosts: Hosts) -> None:
        totals = hosts.totals()
        self.record.metrics["messages_sent"] = totals.messages
        self.record.metrics["messages_dropped"] = totals.lost
        self.record.metrics["bytes_sent"] = totals.size
        self.record.metrics["core_seconds"] = totals.core_seconds
        self.record.metrics.update(self._busyness.metrics())
        if self.record.finalizations:
            first_ms = min(seen.at_ms for seen in self.record.finalizations)
            self.record.metrics["startup_seconds"] = first_ms / MILLISECONDS_PER_SECOND


def _result_of_a_killed_driver(record: RunRecord) -> dict[str, Any]:
    """What ``result.json`` says where the driver could not write it."""
    return {
        "scenario": record.scenario.name,
        "backend": record.backend,
        "seed": record.seed,
        "commit": record.commit,
        "verdict": Outcome.INCONCLUSIVE.value,
        "checks": [
            {
                "name": "no_problems",
                "verdict": Outcome.INCONCLUSIVE.value,
                "detail": "the driver was killed",
                "applies": True,
            },
        ],
        "metrics": {},
        "validators": [],
    }
