"""Runs a scenario on the live testnet (Ray, hosts, load, faults), and collects all observations in one record.

The driver gives no verdict; it starts, watches, kills, stops, queries and cleans up. If a run ends early (by a signal,
or a failure of the driver), what is known by then is collected, and nothing that was started is left behind.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

from cluster.common.errors import BadInput, HarnessError, TestnetError
from cluster.common.interrupts import Interrupts
from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.faults.events import Tell, Voted
from cluster.live.audit.collect import collect
from cluster.live.audit.live_audit import LiveAudit
from cluster.live.audit.reexecution_process import ReexecutionProcess
from cluster.live.driver.chain_watch import ChainWatch
from cluster.live.driver.control.control_server import AddFault, SetLoad, StopRun, look_over
from cluster.live.driver.control.live_view import LiveView, RunStage
from cluster.live.driver.hosts import Hosts, allow_pruning
from cluster.live.driver.live_stage import UNKNOWN_ORDERS, LiveStage
from cluster.live.driver.load_process import EXTRA_RUN_TIME_S
from cluster.live.driver.node_watch import NodeWatch
from cluster.live.driver.ray_session import RaySession, one_line, why_gone
from cluster.live.driver.steps import steps_of
from cluster.live.driver.supervised_host import Host, Phase
from cluster.live.driver.testnet import LOOK_EVERY_S, Testnet, start_timeout_s
from cluster.live.handover.calls import LiveCall, Together
from cluster.live.handover.handover import COLLECTED, ENDING, FOLLOWING, Handover, JournalFile, RunClock, restore
from cluster.live.handover.left_run import VERSION, LeftJournal, LeftRun, RunPhase
from cluster.live.host.host import LOGS_FOLDER, ValidatorView
from cluster.live.host.observations import VoteSent
from cluster.live.injection import LastWords
from cluster.live.kubernetes.leftovers import Leftovers
from cluster.live.kubernetes.means import api_for
from cluster.live.kubernetes.names import INSTANCE_VARIABLE
from cluster.live.web.addresses import ON_THE_LOOPBACK, Served
from cluster.record.chain_store import BlockStore, FileBlocks
from cluster.record.folder import JOURNAL_FILE, STORE_FILE
from cluster.record.host_info import Busyness
from cluster.record.run import UNOBSERVED, RunObserver, RunRecord, RunRequest, Timings, note_crash
from cluster.record.saved import BESIDES, save
from cluster.run.events import (
    Absent,
    End,
    JoinBegun,
    JoinEnded,
    Left,
    NewHeight,
    Order,
    ScenarioChanged,
    Seen,
    Standing,
    Standings,
    StopLoad,
    StopRequested,
    TakeFork,
    Time,
    Up,
    Violation,
)
from cluster.run.feed import Feed, Told
from cluster.run.loop import RunLoop
from cluster.scenario import Scenario, fault_to_add
from cluster.scenario.genesis import build_genesis, validator_set
from consensus.keys import Ed25519Scheme
from loadgen.runplan import MAX_RUN_TIME_S
from validator.primitives.user_file import UserFileError

SAMPLE_EVERY_MS: Final = 500.0
FREEZE_TIMEOUT_S: Final = 20.0
NOTICES_KEPT: Final = 64
LOOKS_AT_THE_END: Final = 2
"""Looks at the hosts once they are at rest. The first may still take an answer from before that."""


@contextmanager
def live_testnet(
    request: RunRequest,
    observer: RunObserver = UNOBSERVED,
    interrupts: Interrupts | None = None,
    run_until_stopped: threading.Event | None = None,
    served: Served = ON_THE_LOOPBACK,
) -> Iterator[RunRecord]:
    """Run a scenario on the live testnet, with its data, logs and endpoints in the request's folder; yields its record.

    Inside the block the validators are at rest and still serve their pages. Afterwards nothing that was started runs,
    however the block ended. Ctrl-C, SIGTERM or SIGHUP ends the run early; the record notes it and holds what is known.

    With ``run_until_stopped`` the run has no stop height. The event, the first signal or a request to the testnet's
    endpoint stops it: the load ends, the validators drain, and the height reached becomes the scenario's stop height.
    ``interrupts`` are the caller's, if it guards its own work on the record with them. ``served`` is the address of the
    testnet's endpoint. :func:`attached_testnet` takes over a testnet that outlived its driver.

    Raises :class:`BadInput` for a fault that the live testnet cannot perform, :class:`TestnetError` if the testnet
    cannot be started, :class:`OSError` if the folder cannot be written.
    """
    scenario = request.scenario
    if problem := scenario.live_problem:
        raise BadInput(f"{scenario.name}: {problem}")
    api_for(scenario.planned_faults)
    with Interrupts() if interrupts is None else nullcontext(interrupts) as active:
        run = _LiveRun(request, observer, active, served, run_until_stopped)
        observer.on_begin(run.record)
        try:
            run.perform()
            yield run.record
        finally:
            run.close()


@contextmanager
def attached_testnet(
    left: LeftRun, folder: Path, interrupts: Interrupts, observer: RunObserver = UNOBSERVED
) -> Iterator[RunRecord]:
    """Take over the testnet of a driver that died, from its checkpoint (``left``), and run it to its planned end.

    Yields the record, as :func:`live_testnet` does. If the testnet is gone, the record has what is known, and counts as
    interrupted. Raises :class:`BadInput` if the testnet cannot be reached and is not known to be gone: then the testnet
    goes on, and the takeover can be tried again. Raises :class:`OSError` if the folder cannot be written.
    """
    lease_s = None if left.testnet.ray is None else left.testnet.ray.lease_s
    request = RunRequest(left.scenario, left.record.seed, left.commit, folder, left.stop_on_fail, lease_s)
    run = _LiveRun(request, observer, interrupts, Served(*left.testnet.served), is_open=left.is_open)
    observer.on_begin(run.record)
    try:
        run.take_over(left)
        yield run.record
    finally:
        run.close()


def run_live(
    request: RunRequest,
    observer: RunObserver = UNOBSERVED,
    interrupts: Interrupts | None = None,
    served: Served = ON_THE_LOOPBACK,
) -> RunRecord:
    """Run a scenario on the live testnet to its end, then clean up (:func:`live_testnet`). Returns the record."""
    with live_testnet(request, observer, interrupts, served=served) as record:
        return record


class Notices:
    """Passes on what the driver says in words, and keeps the newest lines for the dashboard."""

    def __init__(self, to: Callable[[str], None]) -> None:
        self._to = to
        self.newest: deque[str] = deque(maxlen=NOTICES_KEPT)

    def __call__(self, line: str) -> None:
        self.newest.append(line)
        self._to(line)


class _LiveRun:
    """One live run: starts the testnet or takes it over, watches it, and collects the run's record."""

    def __init__(
        self,
        request: RunRequest,
        observer: RunObserver,
        interrupts: Interrupts,
        served: Served,
        run_until_stopped: threading.Event | None = None,
        is_open: bool = False,
    ) -> None:
        scenario, seed, folder, lease_s = request.scenario, request.seed, request.folder, request.lease_s
        self._observer, self.on_notice = observer, Notices(observer.on_notice)
        self._folder = folder
        self._interrupts = interrupts
        self._clock = RunClock()
        self._run_until_stopped = run_until_stopped
        genesis = build_genesis(scenario, seed, validator_set(Ed25519Scheme(), scenario, seed))
        self.record = RunRecord(scenario, "live", seed, request.commit, genesis)
        self.record.timings = Timings() if request.takes_timings else None
        self.record.began_epoch_ms = self._clock.began_epoch_ms
        self._watch = ChainWatch(self.record, self._clock.began_epoch_ms)
        self._began_open = is_open or run_until_stopped is not None
        self.loop = RunLoop(self.record, self._began_open, request.stop_on_fail)
        self._journal: JournalFile | None = None
        """The loop's journal; ``None`` before the run's folder exists."""
        self._feed = Feed(self.loop, self._look, self._perform, self._note)
        self._sampled_ms = float("-inf")
        self._testnet = Testnet(self.record, folder, interrupts, served, self.on_notice, lease_s)
        self._handover = None if lease_s is None else Handover(folder, self.on_notice)
        self._stage: LiveStage | None = None
        self._leftovers = Leftovers(None, self.on_notice, self._testnet.note_leftovers)
        """What faults have changed in a Kubernetes cluster."""
        self._audit = self._new_audit()
        """The run's audit; replaced once the run's folder exists."""

    # --- the run as a whole -------------------------------------------------------------------------------------------

    def perform(self) -> None:
        """Start the testnet, watch the run to its end, and collect its record.

        Raises :class:`TestnetError` if the testnet cannot be started.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self.record.store = FileBlocks(self._folder / STORE_FILE)
        self._journal = JournalFile(self._folder / JOURNAL_FILE)
        self._audit = self._new_audit()
        if self._handover is not None:
            self._handover.begin()
            self._watch.sightings, self._audit.safety.backlog.told = self._handover.sightings, self._handover.told
        self._go(self._start)

    def take_over(self, left: LeftRun) -> None:
        """Continue another driver's run from its checkpoint to its end, and collect its record.

        Raises :class:`BadInput` and :class:`OSError` if the run cannot be taken over; then it can be tried again.
        """
        try:
            hosts, gone = self._reach(left)
            self._read(left, hosts)
            self._testnet.take_over(left.testnet)
        except BaseException:
            self._testnet.leave()
            raise
        self._leftovers.say()
        self._testnet.replace_others()
        self._go(partial(self._adopt, left, hosts, gone), has_begun=True)

    def _go(self, start: Callable[[], tuple[Hosts, LiveStage] | None], has_begun: bool = False) -> None:
        """Call ``start``, watch the hosts that it returns, if any, to the end of the run, and collect the record.

        A failure before the first final block is raised, unless ``has_begun`` is set. Any other is noted in the record.
        An exception that was not expected is raised once the record has what can be collected.
        """
        first, later = self._follow_from(start, has_begun), self._conclude()
        self._audit.enter_unasked()
        if crash := first or later:
            raise crash
        self._write_checkpoint(COLLECTED)

    def _follow_from(self, start: Callable[[], tuple[Hosts, LiveStage] | None], has_begun: bool) -> Exception | None:
        """Returns an exception that was not expected."""
        try:
            found = start()
            if found is not None:
                self._follow(*found)
        except KeyboardInterrupt:
            note_interruption(self.record, self.on_notice)
        except UserFileError:
            raise
        except Exception as error:
            if not (self._watch.height or has_begun):
                raise
            return self._note_failure(error)
        return None

    def close(self) -> None:
        """End everything that was started, or taken over. Nothing interrupts this."""
        with ExitStack() as last_to_first:
            if self._testnet.is_ours:
                last_to_first.callback(self._testnet.close)
                last_to_first.callback(self._leftovers.close)
                last_to_first.callback(discard_empty, self.record.store)
            if self._journal is not None:
                last_to_first.callback(self._journal.close)
            if self._handover is not None:
                last_to_first.callback(self._handover.close)
            if self._audit.reexecution is not None:
                last_to_first.callback(self._audit.reexecution.close)
            last_to_first.callback(self._audit.close)

    def _new_audit(self) -> LiveAudit:
        reexecution = ReexecutionProcess(self.record, self._folder)
        return LiveAudit(self.record, self._clock.now_ms, reexecution)

    # --- from driver to driver ----------------------------------------------------------------------------------------

    def _write_checkpoint(self, phase: RunPhase) -> None:
        """Write all that another driver needs, if one may take over."""
        handover, hosts, store = self._handover, self._testnet.hosts, self.record.store
        journal = self._journal
        if handover is None or hosts is None or not isinstance(store, FileBlocks) or not self._stage or journal is None:
            return
        handover.phase = phase
        with self._audit.lock:  # otherwise blocks arrive while they are written
            handover.write(self._left_run(phase, hosts, self._stage, journal.mark), store, journal)

    def _reach(self, left: LeftRun) -> tuple[Hosts | None, str]:
        """Find the testnet of a driver that died. Returns its hosts, or why it is gone.

        Raises :class:`BadInput` if it cannot be reached, and is not known to be gone.
        """
        why, ray = "", left.testnet.ray
        if left.phase != COLLECTED and ray is not None:
            why = why_gone(ray, time.time() - left.clock.written_epoch_s, left.clock.machine == socket.gethostname())
            if not why:
                return self._make_hosts(self._testnet.reach(left.testnet)), ""
        return None, why

    def _read(self, left: LeftRun, hosts: Hosts | None) -> None:
        """Rebuild the state that another driver left, and open its files. Raises :class:`OSError`."""
        handover, record = self._handover, self.record
        assert handover is not None
        self._clock.take_over(left.record.began_epoch_ms, left.clock.reading)
        self._journal, told_before = JournalFile.reopen(self._folder / JOURNAL_FILE, left.journal)
        for seen in told_before:
            self.loop.handle(seen)  # what followed was done
        sightings, told, rows = restore(left, record, self._folder)
        record.faults = self.loop.faults.records
        handover.take_over(sightings, told, left.phase)
        self._watch = ChainWatch(record, self._clock.began_epoch_ms, left.watch)
        self._watch.sightings = sightings
        self._leftovers.take_over(left.stage.means.leftovers)
        if hosts is not None:
            self._stage = self._make_stage(hosts)
            self._stage.take_over(left.stage)
        self._audit = self._new_audit()
        self._audit.take_over(left.audit, told, rows)

    def _adopt(self, left: LeftRun, hosts: Hosts | None, gone: str) -> tuple[Hosts, LiveStage] | None:
        """Take over another driver's testnet. Returns its hosts and stage, or ``None`` if the run is past its end.

        Raises :class:`TestnetError` if the testnet is gone (``gone`` is the reason).
        """
        testnet = self._testnet
        if hosts is not None:
            testnet.adopt(hosts, self.record.seed, self.loop.scenario, left.hosts)
            if all(host.phase is Phase.DEAD for host in hosts.all):
                gone = "every host has ended"
        if gone or hosts is None:
            testnet.end_what_is_left(left.testnet)
        if gone:
            self._clock.stop(left.clock.at_ms)
            testnet.hosts = None
            raise TestnetError(f"it died at height {left.height}, and its testnet is gone: {gone}")
        if hosts is None or self._stage is None:
            return None
        testnet.take_load_over(left.testnet.load, load_time_s(self.loop.scenario, self.loop.is_open))
        self._stage.inject(Together(left.hosts.calls), UNKNOWN_ORDERS)
        hear_from_all(hosts, self._watch, self._interrupts.checkpoint)
        self._audit.safety.heard.doubt(max((view or 0 for view in hosts.by_validator(Host.view)), default=0))
        self._see(Absent(left.clock.at_ms, self._clock.now_ms(), left.height))
        testnet.write_endpoints()
        return None if left.phase == ENDING else (hosts, self._stage)

    def _left_run(self, phase: RunPhase, hosts: Hosts, stage: LiveStage, journal: LeftJournal) -> LeftRun:
        """The state that another driver needs to go on. It shares the run's collections: do not change it."""
        return LeftRun(
            version=VERSION,
            commit=self.record.commit,
            phase=phase,
            clock=self._clock.state(),
            scenario=self.loop.given,
            is_open=self._began_open,
            journal=journal,
            height=self._watch.height,
            stop_on_fail=self.loop.stops_on_fail,
            testnet=self._testnet.state,
            record=save(self.record, besides=BESIDES),
            watch=self._watch.state,
            stage=stage.state,
            hosts=hosts.state,
            audit=self._audit.state(),
        )

    # --- start --------------------------------------------------------------------------------------------------------

    def _start(self) -> tuple[Hosts, LiveStage]:
        hosts = self._testnet.start(
            load_time_s(self.loop.scenario, self.loop.is_open), self._make_hosts, self._look_at_start
        )
        self._leftovers.api = api_for(self.loop.scenario.planned_faults)
        # from now on, with every host up, faults may begin
        self._stage = stage = self._make_stage(hosts)
        self._see(Up(self._clock.now_ms()))
        self.on_notice(f"{len(hosts.all)} hosts are up after {self._clock.now_ms() / MILLISECONDS_PER_SECOND:.1f} s")
        return hosts, stage

    def _make_stage(self, hosts: Hosts) -> LiveStage:
        """Make the stage on which the run's faults act."""
        return LiveStage(
            self.loop.scenario,
            self.record.seed,
            hosts,
            self.loop.faults,
            self._clock.now_ms,
            self._feed.see_fault,
            self.on_notice,
            self._keep_blocks,
            self._leftovers,
        )

    def _make_hosts(self, session: RaySession) -> Hosts:
        problem = self.record.problems.append
        is_deployed = INSTANCE_VARIABLE in os.environ
        nodes = NodeWatch(session, self._node_was_lost, self.on_notice, self._interrupts.wait, is_deployed)
        hosts = Hosts(session, self._take_view, self._host_is_up, self._host_was_lost, problem, self._make_call, nodes)
        hosts.wants_taken = self._observer.on_step is not None
        return hosts

    def _look_at_start(self, hosts: Hosts, starts: bool) -> None:
        self._testnet.check()
        hosts.look(self._watch.height, starts)
        self._show(hosts, "starting")
        self._interrupts.checkpoint()
        if self._is_stop_requested:
            raise TestnetError("the testnet was stopped before it was up")

    # --- following ----------------------------------------------------------------------------------------------------

    def _follow(self, hosts: Hosts, stage: LiveStage) -> None:
        """Watch the testnet, perform faults, and stop the load, until the scenario is over or its time is up."""
        self._audit.start()
        while not self._see_whether_it_ends(hosts):
            self._wait(stage)
            self._testnet.check()
            hosts.look(self._watch.height)
            self._watch.take_lags(hosts)
            self._obey(hosts)
            self._look_at_joins(hosts)
            self._sample(hosts)
            self._feed.look()
            stage.look_after()
            self._testnet.watch_load()
            self._keep(hosts, stage)

    def _keep(self, hosts: Hosts, stage: LiveStage) -> None:
        """Persist what this look found. A checkpoint follows at once if the loop was told something new."""
        if self._journal is not None:
            self._journal.keep()
            if self._handover is not None:
                mark = (self._journal.mark, stage.agenda.mark, hosts.actors_so_far, self._testnet.load_stage)
                self._handover.look(mark, partial(self._write_checkpoint, FOLLOWING))

    def _see_whether_it_ends(self, hosts: Hosts) -> bool:
        """Tell the run's loop how far the run is. Returns whether the run is over, must stop, or takes too long."""
        return (
            self._see(Standings(tuple(self._standings(hosts))))
            or self._look_for_violations(hosts)
            or self._see(Time(self._clock.now_ms()))
        )

    def _see(self, *seen: Seen) -> bool:
        """Tell the run's loop what was seen, at the newest height. Returns whether the run is to end."""
        self._feed.see(NewHeight(self._watch.height))
        self._feed.see(*seen)
        return self.loop.has_ended

    def _note(self, told: Sequence[Told]) -> None:
        """Note what the run's loop was told. Violations are persisted before they are reported, with what follows."""
        if self._journal is not None:
            for seen, orders in told:
                self._journal.note(seen, orders)
        violations = [seen.text for seen, _ in told if isinstance(seen, Violation)]
        if violations:
            self._testnet.note_violations()
            self._write_checkpoint(FOLLOWING)
        for text in violations:
            self.on_notice(f"height {self._watch.height}: violation: {text}")

    def _look(self) -> Iterator[Seen]:
        """The network as it is now."""
        assert self._stage is not None, "faults begin once the testnet is up"
        yield NewHeight(self._watch.height)
        yield self._stage.look(self._watch.height)

    def _perform(self, order: Order) -> Iterable[Seen]:
        """Perform an order of the run's loop, and return its answers."""
        match order:
            case StopLoad(height):
                self._testnet.stop_load(height)
            case End(is_time_up):
                if is_time_up and self._testnet.hosts is not None:
                    after_s = self._clock.now_ms() / MILLISECONDS_PER_SECOND
                    found = standings(self.loop.scenario, self._testnet.hosts)
                    self.record.time_up = f"the time was up after {after_s:.0f} s: {found}"
            case TakeFork():
                raise AssertionError("the live testnet takes no forks")
            case Tell(text):
                self.on_notice(text)
            case _ if self._stage is not None:  # else the testnet is gone
                return self._stage.perform(order)
        return ()

    def _standings(self, hosts: Hosts) -> Iterator[Standing]:
        """How far the validators are whose hosts are not given up. No height of a byzantine one is awaited."""
        node = self.loop.scenario.validators.node
        for host in hosts.all:
            if host.phase is Phase.DEAD:
                continue
            is_end_known = self.loop.end_height is not None
            for index in {*host.carried_at(self.loop.goal), *host.reports.states} if is_end_known else host.validators:
                state = host.reports.states.get(index)
                if state is None:
                    yield Standing(0, is_up=False)
                else:
                    is_excused = bool(state.diverged or node(index).byzantine)
                    yield Standing(state.height, host.phase is Phase.UP, is_excused=is_excused)

    def _look_for_violations(self, hosts: Hosts) -> bool:
        """Tell the run's loop of new violations. Returns whether the run is to end."""
        running = [host for host in hosts.all if host.phase is Phase.UP and not host.is_paused]
        addresses = [(host, address) for host in running for address in host.reports.addresses]
        urls = {address.index: address.url for host, address in addresses if address.index not in host.not_ready}
        states = [item for host in running for item in host.reports.states.items()]
        byzantine = self.loop.scenario.validators.node
        diverged = {index for index, state in states if state.diverged and not byzantine(index).byzantine}
        answered_s = min((host.reports.answered_s for host in running), default=0.0)
        self._audit.safety.heard.note_hosts({(host.number, host.pid) for host in running}, answered_s)
        return self._see(*map(Violation, self._audit.look(urls, diverged)))

    def _wait(self, stage: LiveStage) -> None:
        """Wait until the next look, at most until a fault begins or ends. The first signal ends an open-ended run."""
        planned_s, next_ms = LOOK_EVERY_S, stage.agenda.next_ms
        if next_ms is not None:
            planned_s = max(0.0, min(planned_s, (next_ms - self._clock.now_ms()) / MILLISECONDS_PER_SECOND))
        self._watch.lag.begin()
        try:
            self._interrupts.wait(planned_s)
        except KeyboardInterrupt:
            if not self.loop.is_open:
                raise
            self._interrupts.accept()
            self._see(StopRequested(self._clock.now_ms()))
        else:
            self._watch.lag.end(planned_s)

    def _obey(self, hosts: Hosts) -> None:
        """Perform the requests of clients since the last look, and update the state that the testnet's endpoint has."""
        control = self._testnet.control
        assert control is not None
        if self._is_stop_requested and self.loop.is_open:
            self._see(StopRequested(self._clock.now_ms()))
        while not control.orders.empty():
            match control.orders.get_nowait():
                case StopRun():
                    self._see(StopRequested(self._clock.now_ms()))
                case AddFault() | SetLoad() as order if order.answer.set_running_or_notify_cancel():
                    try:
                        if isinstance(order, AddFault):
                            order.answer.set_result(self._add_fault(order.fields))
                        elif order.is_on and self.loop.is_draining:
                            raise BadInput(f"the run is about to end: height {self.loop.end_height} is reached")
                        else:
                            run_time_s = load_time_s(self.loop.scenario, self.loop.is_open)
                            order.answer.set_result(self._testnet.set_load(order.is_on, run_time_s))
                    except BadInput as error:
                        order.answer.set_exception(error)
        self._show(hosts, "running")
        control.view = look_over(self.record, hosts, self._watch.height, self._clock.now_ms(), self._audit.page)

    @property
    def _is_stop_requested(self) -> bool:
        """Whether the caller has requested the end of the run, by its event."""
        return self._run_until_stopped is not None and self._run_until_stopped.is_set()

    def _look_at_joins(self, hosts: Hosts) -> None:
        for index in self.loop.joining:
            state, now_ms = hosts.host_of(index).state(index), self._clock.now_ms()
            if state is not None:
                self._see(JoinBegun(now_ms, index))
                if state.ready:
                    self._see(JoinEnded(now_ms, index, state.snapshot_height, state.snapshot_chunks))

    def _sample(self, hosts: Hosts) -> None:
        now_ms, trace = self._clock.now_ms(), self._watch.trace
        trace.windows.look(now_ms, self._watch.height)
        hosts.wants_stamps = trace.wants(now_ms)
        if now_ms - self._sampled_ms >= SAMPLE_EVERY_MS:
            self._sampled_ms = now_ms
            permit_pruning(self.loop.scenario, hosts, self._audit)
            self._watch.busyness.look()
            heights, views = hosts.by_validator(Host.height), hosts.by_validator(Host.view)
            self._observer.on_sample(self._watch.sample(now_ms, heights, views, hosts.by_validator(Host.describe)))
            self._observer.on_look(self.record)

    def _show(self, hosts: Hosts | None, stage: RunStage) -> None:
        """Publish the run's state for the dashboard, if a reader waits for it, or if the run ends."""
        control = self._testnet.control
        self._audit.wants_tiers = control is not None and control.dashboard.is_wanted
        if control is None or hosts is None or not hosts.all or not (control.dashboard.is_wanted or stage == "ending"):
            return
        view = LiveView(
            self.record,
            hosts,
            self._watch,
            self._clock.now_ms(),
            stage,
            self._testnet.load_stage,
            self._audit.page,
            self._audit.tiers,
            self.on_notice.newest,
            self.loop.end_height,
        )
        is_whole = control.dashboard.is_snapshot_wanted or stage == "ending"
        control.dashboard.publish(view.update(), view.snapshot() if is_whole else None)

    # --- faults -------------------------------------------------------------------------------------------------------

    def _keep_blocks(self, index: int, url: str) -> None:
        """Record the chain that a validator served in ``record.lost``, since its disk is about to be lost."""
        found, serves = self._audit.lose(index, url)
        if serves or found.blocks:
            self.record.lost.append(found)
        if not serves:
            name = self.loop.scenario.validators.names[index]
            self.on_notice(f"height {self._watch.height}: {name} does not serve what its disk had")

    def _add_fault(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Add a fault to the scenario, from now on or later. Returns its fields. Raises :class:`BadInput`."""
        height, at_ms = self._watch.height, math.ceil(self.loop.faults.planned_ms(self._clock.now_ms()))
        end = self.loop.end_height
        if end is not None and height >= end:
            raise BadInput(f"the run is about to end: height {end} is reached")
        begins = {} if fields.keys() & {"at_height", "at_ms"} else {"at_ms": at_ms}
        fault = fault_to_add(self.loop.scenario, {**fields, **begins}, has_end=end is not None)
        self._leftovers.api = api_for([fault]) or self._leftovers.api
        if (fault.at_height or height + 1) <= height:
            raise BadInput(f"at_height: {fault.at_height} is not above {height}, the final height")
        if (at_ms if fault.at_ms is None else fault.at_ms) < at_ms:
            raise BadInput(f"at_ms: {fault.at_ms} is over: it is {at_ms} ms since the testnet was up")
        scenario = self.loop.scenario
        self._see(ScenarioChanged(scenario.model_copy(update={"faults": [*scenario.faults, fault]})))
        self.on_notice(f"height {height}: fault added: {fault.kind} of {fault.whom}")
        return fault.model_dump(mode="json", exclude_none=True)

    def _make_call(self, call: LiveCall) -> None:
        assert self._stage is not None, "orders are given once the testnet is up"
        self._stage.make_call(call)

    def _host_is_up(self, host: Host) -> None:
        self._testnet.write_endpoints()

    def _host_was_lost(self, host: Host, reason: str, words: LastWords | None) -> None:
        if words is not None and words.is_users:
            raise UserFileError(words.reason)
        if self._stage is not None and self._stage.on_lost(host, words):
            return
        names = ", ".join(self.loop.scenario.validators.names[index] for index in host.validators)
        log = self._folder / LOGS_FOLDER / f"host-{host.number}.log"
        last = "" if words is None else f", {self.loop.scenario.validators.names[words.validator]} said: {words.reason}"
        problem = f"host {host.number} ({names}) was lost: {reason}{last} (see {log})"
        self.record.problems.append(problem)
        self.on_notice(problem)

    def _node_was_lost(self, hosts: Sequence[Host], node: str, reason: str) -> None:
        if self._stage is not None:
            self._stage.note_lost_node(hosts, node, reason, self._watch.height)

    def _take_view(self, view: ValidatorView) -> None:
        if self._observer.on_step is not None:
            for step in steps_of(view, self._clock.began_epoch_ms):
                self._observer.on_step(step)
        self._watch.take(view.index, view.observations)
        self._audit.safety.take(view.index, view.observations)
        self._watch.trace.take(view.index, view.stamps)
        if self.record.timings is not None:
            self.record.timings.work += view.work
        self._watch.take_use(self._clock.now_ms(), view)
        if self.loop.faults.is_listening:
            votes = (
                Voted(view.index, seen.view, seen.kind) for seen in view.observations if isinstance(seen, VoteSent)
            )
            for vote in filter(self.loop.faults.awaits, votes):
                self._see(vote)

    # --- end ----------------------------------------------------------------------------------------------------------

    def _conclude(self) -> Exception | None:
        """Collect the record unless another driver has. Returns an exception that was not expected."""
        try:
            if self._handover is None or self._handover.phase != COLLECTED:
                self._collect()
        except KeyboardInterrupt:
            self.record.interrupted = True
            self.record.problems.append("interrupted again: not everything was collected")
            self.on_notice("interrupted again: ending without the rest")
        except Exception as error:  # noqa: BLE001 (one that was not expected is raised later)
            return self._note_failure(error)
        return None

    def _note_failure(self, error: Exception) -> Exception | None:
        """Note in the record that the driver failed. Returns the exception if it was not expected."""
        is_expected = isinstance(error, HarnessError | OSError)
        if is_expected:
            self.record.interrupted = True
            self.record.problems.append(f"the driver failed: {one_line(error)}")
        else:
            note_crash(self.record, error)
        self.on_notice(self.record.problems[-1])
        return None if is_expected else error

    def _collect(self) -> None:
        """Stop the load, bring the validators to rest, and collect their state."""
        self._audit.close()
        self.record.duration_ms = self._clock.now_ms()
        self._see(Left())
        self._write_checkpoint(ENDING)
        self._show(self._testnet.hosts, "ending")
        checkpoint = partial(check_twice, self._interrupts, self.record, self.on_notice)
        self._testnet.finish_load(checkpoint)
        if self._testnet.hosts is not None:
            self._freeze_and_collect(self._testnet.hosts, checkpoint)

    def _freeze_and_collect(self, hosts: Hosts, checkpoint: Callable[[], None]) -> None:
        hosts.resume_all()
        failed = hosts.ask_each("freeze", FREEZE_TIMEOUT_S, checkpoint)
        for host, reason in failed:
            self.record.problems.append(f"host {host.number} did not come to rest: {reason}")
        for _ in range(LOOKS_AT_THE_END):
            hosts.look(self._watch.height, starts=False)
        if self._handover is not None:
            self._handover.keep()
        self.record.duration_ms = self._clock.now_ms()
        self._watch.trace.close(self.record.duration_ms)
        self._watch.take_lags(hosts)
        note_totals(self.record, hosts, self._watch.busyness)
        assert self._audit.reexecution is not None
        self.record.metrics["judge_core_seconds"] = self._audit.reexecution.judge_core_seconds
        at_rest = [host for host in hosts.all if host not in [host for host, _ in failed]]
        for host in hosts.all:
            if host.phase is not Phase.UP and host.not_ready and self._watch.height:
                names = ", ".join(self.loop.scenario.validators.names[index] for index in host.not_ready)
                self.record.problems.append(
                    f"{names} did not answer at the end: host {host.number} is {host.phase.value}"
                )
        addresses = [(host, address) for host in at_rest for address in host.reports.addresses]
        urls = {address.index: address.url for host, address in addresses if address.index not in host.not_ready}
        self.on_notice(f"height {self._watch.height}: asking {len(urls)} validators for their blocks and accounts")
        collect(self.record, urls, checkpoint, self._audit)
        self._audit.reexecution.finish(checkpoint)


def note_interruption(record: RunRecord, notice: Callable[[str], None]) -> None:
    record.interrupted = True
    notice("interrupted: collecting what is known; interrupt again to end without it")


def check_twice(interrupts: Interrupts, record: RunRecord, notice: Callable[[str], None]) -> None:
    """Check for signals while the record is collected. The first marks the run as interrupted; the next one raises."""
    try:
        interrupts.checkpoint()
    except KeyboardInterrupt:
        if record.interrupted:
            raise
        note_interruption(record, notice)


def load_time_s(scenario: Scenario, is_open: bool) -> int:
    """The time in seconds after which the load ends by itself. With ``is_open`` the run goes on until it is stopped."""
    longest_s = start_timeout_s(scenario) + scenario.stop.longest_s + EXTRA_RUN_TIME_S
    return MAX_RUN_TIME_S if is_open else int(longest_s)


def discard_empty(store: BlockStore) -> None:
    """Remove the file of a store without blocks."""
    if isinstance(store, FileBlocks) and not store:
        store.discard()


def permit_pruning(scenario: Scenario, hosts: Hosts, audit: LiveAudit) -> None:
    """Let validators prune the blocks that the audit and their peers have, if the scenario bounds their archives.

    Byzantine validators keep all blocks, which are collected at the end. Call it repeatedly, because a restarted
    validator has forgotten the permission.
    """
    if scenario.storage.keep_blocks is not None:
        given_up = {index for host in hosts.all if host.phase is Phase.DEAD for index in host.validators}
        height = audit.prunable_height(given_up)
        judged = (found.index for found in audit.known.values() if not found.byzantine)
        allow_pruning(hosts.all, dict.fromkeys(judged, height))


def hear_from_all(hosts: Hosts, watch: ChainWatch, checkpoint: Callable[[], None]) -> None:
    """Query the hosts that another driver left until each has answered or is known to be gone, or takes too long."""
    deadline = time.monotonic() + FREEZE_TIMEOUT_S
    while any(host.reports.are_stale and host.is_running for host in hosts.all) and time.monotonic() < deadline:
        hosts.look(watch.height)
        checkpoint()


def standings(scenario: Scenario, hosts: Hosts) -> str:
    """The height of every validator, in words."""
    return ", ".join(
        f"{name} {'does not answer' if height is None else f'is at height {height}'}"
        for name, height in zip(scenario.validators.names, hosts.by_validator(Host.height), strict=True)
    )


def note_totals(record: RunRecord, hosts: Hosts, busyness: Busyness) -> None:
    """Record the run's metrics that only the driver knows."""
    totals = hosts.totals()
    record.metrics["messages_sent"] = totals.messages
    record.metrics["messages_dropped"] = totals.lost
    record.metrics["bytes_sent"] = totals.size
    record.metrics["core_seconds"] = totals.core_seconds
    record.metrics.update(busyness.metrics())
    first_ms = record.finalizations.first_ms
    if first_ms is not None:
        record.metrics["startup_seconds"] = first_ms / MILLISECONDS_PER_SECOND
