"""Runs a scenario on the live testnet (Ray, hosts, load, faults), and collects all observations in one record.

The driver gives no verdict; it starts, watches, kills, stops, queries and cleans up. If a run ends early (by a signal,
or a failure of the driver), what is known by then is collected, and nothing that was started is left behind.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from cluster.common.errors import HarnessError, TestnetError
from cluster.common.interrupts import Interrupts
from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.live.driver.clients import Clients
from cluster.live.driver.hosts import Hosts
from cluster.live.driver.live_run import LiveRun, joins_of, standings_of, violations_of
from cluster.live.driver.live_stage import LiveStage
from cluster.live.driver.ray_session import RaySession, one_line, why_gone
from cluster.live.driver.supervised_host import Host
from cluster.live.driver.testnet import LOOK_EVERY_S
from cluster.live.handover.handover import COLLECTED, ENDING
from cluster.live.handover.left import LeftRun
from cluster.live.processes.history import Phase
from cluster.record.run import RunObserver, RunRecord, note_crash
from cluster.run.events import Absent, Left, StopRequested, Time, Up
from validator.primitives.user_file import UserFileError

SAMPLE_EVERY_MS: Final = 500.0
FREEZE_TIMEOUT_S: Final = 20.0
LOOKS_AT_THE_END: Final = 2
"""Looks at the hosts once they are at rest. The first may still take an answer from before that."""


class Driver:
    """Drives one live run: starts its testnet or takes it over, watches it to its end, and collects its record."""

    def __init__(
        self,
        run: LiveRun,
        observer: RunObserver,
        interrupts: Interrupts,
        run_until_stopped: threading.Event | None = None,
    ) -> None:
        self._run = run
        self._observer = observer
        self._interrupts = interrupts
        self._clients = Clients(run, run_until_stopped)
        self._sampled_ms = float("-inf")

    # --- the run as a whole -------------------------------------------------------------------------------------------

    def perform(self) -> None:
        """Start the testnet, watch the run to its end, and collect its record.

        Raises :class:`TestnetError` if the testnet cannot be started, and :class:`OSError`.
        """
        self._run.begin()
        self._go(self._start)

    def take_over(self, left: LeftRun) -> None:
        """Continue another driver's run from its checkpoint to its end, and collect its record.

        Raises :class:`BadInput` and :class:`OSError` if the run cannot be taken over; then it can be tried again.
        """
        testnet = self._run.testnet
        try:
            hosts, gone = self._reach(left)
            self._run.restore(left, hosts)
            testnet.take_over(left)
        except BaseException:
            testnet.leave()
            raise
        self._run.means.note()
        testnet.replace_others()
        self._go(partial(self._adopt, left, hosts, gone), has_begun=True)

    def _go(self, start: Callable[[], tuple[Hosts, LiveStage] | None], has_begun: bool = False) -> None:
        """Call ``start``, watch the hosts that it returns, if any, to the end of the run, and collect the record.

        A failure before the first final block is raised, unless ``has_begun`` is set. Any other is noted in the record.
        An exception that was not expected is raised once the record has what can be collected.
        """
        first, later = self._follow_from(start, has_begun), self._conclude()
        self._run.audit.enter_unasked()
        if crash := first or later:
            raise crash
        self._run.write_checkpoint(COLLECTED)

    def _follow_from(self, start: Callable[[], tuple[Hosts, LiveStage] | None], has_begun: bool) -> Exception | None:
        """Returns an exception that was not expected."""
        try:
            found = start()
            if found is not None:
                self._follow(*found)
        except KeyboardInterrupt:
            note_interruption(self._run.record, self._run.notice)
        except UserFileError:
            raise
        except Exception as error:
            if not (self._run.watch.height or has_begun):
                raise
            return self._note_failure(error)
        return None

    def _note_failure(self, error: Exception) -> Exception | None:
        """Note in the record that the driver failed. Returns the exception if it was not expected."""
        record, is_expected = self._run.record, isinstance(error, HarnessError | OSError)
        if is_expected:
            record.interrupted = True
            record.problems.append(f"the driver failed: {one_line(error)}")
        else:
            note_crash(record, error)
        self._run.notice(record.problems[-1])
        return None if is_expected else error

    # --- start, and another driver's testnet --------------------------------------------------------------------------

    def _start(self) -> tuple[Hosts, LiveStage]:
        run = self._run
        hosts = run.testnet.start(run.load_time_s, self._supervise, self._look_at_start)
        stage = run.make_stage(hosts)  # from now on, with every host up, faults may begin
        run.see(Up(run.clock.now_ms()))
        run.notice(f"{len(hosts.all)} hosts are up after {run.clock.now_ms() / MILLISECONDS_PER_SECOND:.1f} s")
        return hosts, stage

    def _supervise(self, session: RaySession) -> Hosts:
        return self._run.supervise(session, self._observer.on_step)

    def _look_at_start(self, hosts: Hosts, starts: bool) -> None:
        self._run.testnet.check()
        hosts.look(self._run.watch.height, starts)
        self._clients.show(hosts, "starting")
        self._interrupts.checkpoint()
        if self._clients.want_end:
            raise TestnetError("the testnet was stopped before it was up")

    def _reach(self, left: LeftRun) -> tuple[Hosts | None, str]:
        """Find the testnet of a driver that died. Returns its hosts, or why it is gone.

        Raises :class:`BadInput` if it cannot be reached, and is not known to be gone.
        """
        why, ray = "", left.ray
        if left.phase != COLLECTED and ray is not None:
            why = why_gone(ray, time.time() - left.clock.written_epoch_s, left.clock.machine == socket.gethostname())
            if not why:
                return self._supervise(self._run.testnet.reach(left)), ""
        return None, why

    def _adopt(self, left: LeftRun, hosts: Hosts | None, gone: str) -> tuple[Hosts, LiveStage] | None:
        """Take over another driver's testnet. Returns its hosts and stage, or ``None`` if the run is past its end.

        Raises :class:`TestnetError` if the testnet is gone (``gone`` is the reason).
        """
        run, testnet, due = self._run, self._run.testnet, self._run.loop.due
        if hosts is not None:
            testnet.adopt(hosts, run.loop.scenario, left)
            if all(host.phase is Phase.DEAD for host in hosts.all):
                gone = "every host has ended"
        if gone or hosts is None:
            testnet.end_what_is_left(left)
        if gone:
            run.clock.stop(left.clock.at_ms)
            testnet.hosts = None
            raise TestnetError(f"it died at height {left.chain.height}, and its testnet is gone: {gone}")
        if hosts is None or run.stage is None:
            return None
        testnet.take_load_over(left.load, run.load_time_s)
        run.stage.go_on()
        run.feed.go_on(due)
        hosts.hear_from_all(run.watch.height, FREEZE_TIMEOUT_S, self._interrupts.checkpoint)
        run.audit.doubt(max((view or 0 for view in hosts.by_validator(Host.view)), default=0))
        run.see(Absent(left.clock.at_ms, run.clock.now_ms(), left.chain.height))
        run.feed.look()  # faults that should have begun meanwhile are awaited
        testnet.write_endpoints()
        return None if left.phase == ENDING else (hosts, run.stage)

    # --- following ----------------------------------------------------------------------------------------------------

    def _follow(self, hosts: Hosts, stage: LiveStage) -> None:
        """Watch the testnet, perform faults, and stop the load, until the scenario is over or its time is up."""
        run = self._run
        run.audit.start()
        while not self._see_whether_it_ends(hosts):
            self._wait(stage)
            run.testnet.check()
            hosts.look(run.watch.height)
            run.watch.take_lags(hosts)
            self._clients.obey(hosts)
            for seen in joins_of(hosts, run.loop, run.clock.now_ms()):
                run.see(seen)
            self._sample(hosts)
            run.feed.look()
            stage.look_after()
            run.testnet.watch_load()
            run.keep(hosts)

    def _see_whether_it_ends(self, hosts: Hosts) -> bool:
        """Tell the run's loop how far the run is. Returns whether the run is over, must stop, or takes too long."""
        run = self._run
        return (
            run.see(standings_of(hosts, run.loop))
            or run.see(*violations_of(hosts, run.audit, run.loop.scenario))
            or run.see(Time(run.clock.now_ms()))
        )

    def _wait(self, stage: LiveStage) -> None:
        """Wait until the next look, at most until a fault begins or ends. The first signal ends an open-ended run."""
        run, planned_s, next_ms = self._run, LOOK_EVERY_S, stage.agenda.next_ms
        if next_ms is not None:
            planned_s = max(0.0, min(planned_s, (next_ms - run.clock.now_ms()) / MILLISECONDS_PER_SECOND))
        run.watch.lag.begin()
        try:
            self._interrupts.wait(planned_s)
        except KeyboardInterrupt:
            if not run.loop.is_open:
                raise
            self._interrupts.accept()
            run.see(StopRequested(run.clock.now_ms()))
        else:
            run.watch.lag.end(planned_s)

    def _sample(self, hosts: Hosts) -> None:
        run, now_ms, watch = self._run, self._run.clock.now_ms(), self._run.watch
        watch.trace.windows.look(now_ms, watch.height)
        hosts.wants_stamps = watch.trace.wants(now_ms)
        if now_ms - self._sampled_ms >= SAMPLE_EVERY_MS:
            self._sampled_ms = now_ms
            run.permit_pruning(hosts)
            watch.busyness.look()
            heights, views = hosts.by_validator(Host.height), hosts.by_validator(Host.view)
            self._observer.on_sample(watch.sample(now_ms, heights, views, hosts.by_validator(Host.describe)))
            self._observer.on_look(run.record)

    # --- end ----------------------------------------------------------------------------------------------------------

    def _conclude(self) -> Exception | None:
        """Collect the record unless another driver has. Returns an exception that was not expected."""
        run = self._run
        try:
            if run.files.phase != COLLECTED:
                self._collect()
        except KeyboardInterrupt:
            run.record.interrupted = True
            run.record.problems.append("interrupted again: not everything was collected")
            run.notice("interrupted again: ending without the rest")
        except Exception as error:  # noqa: BLE001 (one that was not expected is raised later)
            return self._note_failure(error)
        return None

    def _collect(self) -> None:
        """Stop the load, bring the validators to rest, and collect their state."""
        run = self._run
        run.audit.close()
        run.record.duration_ms = run.clock.now_ms()
        run.see(Left())
        run.write_checkpoint(ENDING)
        self._clients.show(run.testnet.hosts, "ending")
        checkpoint = partial(check_twice, self._interrupts, run.record, run.notice)
        run.testnet.finish_load(checkpoint)
        if run.testnet.hosts is not None:
            freeze_and_collect(run, run.testnet.hosts, checkpoint)


def freeze_and_collect(run: LiveRun, hosts: Hosts, checkpoint: Callable[[], None]) -> None:
    """Bring the validators to rest, and collect their state. ``checkpoint`` is called often, and may raise."""
    record, watch, audit = run.record, run.watch, run.audit
    hosts.resume_all()
    failed = hosts.ask_each("freeze", FREEZE_TIMEOUT_S, checkpoint)
    for host, reason in failed:
        record.problems.append(f"host {host.number} did not come to rest: {reason}")
    for _ in range(LOOKS_AT_THE_END):
        hosts.look(watch.height, starts=False)
    run.files.keep()
    record.duration_ms = run.clock.now_ms()
    watch.trace.close(record.duration_ms)
    watch.take_lags(hosts)
    _note_totals(run, hosts)
    for host in hosts.all:
        if host.phase is not Phase.UP and host.not_ready and watch.height:
            names = ", ".join(record.scenario.validators.names[index] for index in host.not_ready)
            record.problems.append(f"{names} did not answer at the end: host {host.number} is {host.phase.value}")
    restless = [host for host, _ in failed]
    urls = hosts.urls([host for host in hosts.all if host not in restless])
    run.notice(f"height {watch.height}: asking {len(urls)} validators for their blocks and accounts")
    audit.collect(urls, checkpoint)


def _note_totals(run: LiveRun, hosts: Hosts) -> None:
    """Record the run's metrics that only the driver knows."""
    totals, metrics = hosts.totals(), run.record.metrics
    metrics["messages_sent"] = totals.messages
    metrics["messages_dropped"] = totals.lost
    metrics["bytes_sent"] = totals.size
    metrics["core_seconds"] = totals.core_seconds
    metrics.update(run.watch.busyness.metrics())
    first_ms = run.record.finalizations.first_ms
    if first_ms is not None:
        metrics["startup_seconds"] = first_ms / MILLISECONDS_PER_SECOND
    metrics["judge_core_seconds"] = run.audit.judge_core_seconds


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
