"""Runs a scenario on the live testnet: Ray, hosts, load, faults, and what was seen of it all in one record.

The driver decides nothing about right or wrong; it starts, watches, kills, stops, asks, and cleans up. Whatever ends
a run early (a signal, a failure of its own), what is known until then is collected, and nothing that was started is
left behind.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from cluster.common.errors import BadInput, HarnessError, TestnetError
from cluster.common.interrupts import Interrupts
from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.live.audit.collect import collect
from cluster.live.audit.live_audit import LiveAudit
from cluster.live.driver.chain_watch import ChainWatch, JoinWatch
from cluster.live.driver.control_server import AddFault, StopRun, look_over
from cluster.live.driver.hosts import Hosts
from cluster.live.driver.load_process import EXTRA_RUN_TIME_S, LOG_FILE
from cluster.live.driver.node_watch import NodeWatch
from cluster.live.driver.ray_session import RaySession, one_line
from cluster.live.driver.stage import LiveStage
from cluster.live.driver.supervised_host import Host, Phase
from cluster.live.driver.testnet import LOOK_EVERY_S, Testnet, start_timeout_s
from cluster.live.host.host import LOGS_FOLDER, ValidatorView
from cluster.live.host.observations import VoteSent
from cluster.live.injection import LastWords
from cluster.live.web.addresses import ON_THE_LOOPBACK, Served
from cluster.record.chain_store import FileBlocks
from cluster.record.folder import STORE_FILE
from cluster.record.run import RunRecord, Sample
from cluster.scenario import Scenario, fault_to_add
from cluster.scenario.genesis import build_genesis, validator_set
from consensus.keys import Ed25519Scheme
from loadgen.runplan import MAX_RUN_TIME_S

SAMPLE_EVERY_MS: Final = 500.0
FREEZE_TIMEOUT_S: Final = 20.0
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
    stop_on_fail: bool = False,
) -> Iterator[RunRecord]:
    """Run a scenario on the live testnet, with its data, logs and endpoints in ``folder``; yields its record.

    Inside the block the validators are at rest and still serve their pages. Afterwards nothing that was started runs,
    however the block ended. ``on_sample`` and ``on_notice`` (one line each) are called while the scenario runs. Ctrl-C,
    SIGTERM or SIGHUP ends the run early; the record notes it and holds what is known.

    With ``run_until_stopped`` the run has no stop height. The event, the first signal or a request to the testnet's
    endpoint stops it: the load ends, the validators drain, and the height reached becomes the scenario's stop height.
    ``interrupts`` are the caller's, if it guards its own work on the record with them. ``served`` is the address of the
    testnet's endpoint. With ``stop_on_fail`` the first violation of a rule that is seen while it runs ends the run.

    Raises :class:`BadInput` for a fault that the live testnet cannot perform, :class:`TestnetError` if the testnet
    cannot be started, :class:`OSError` if the folder cannot be written.
    """
    if problem := scenario.live_problem:
        raise BadInput(f"{scenario.name}: {problem}")
    with Interrupts() if interrupts is None else nullcontext(interrupts) as active:
        run = _LiveRun(
            scenario, seed, commit, folder, active, run_until_stopped, served, on_sample, on_notice, stop_on_fail
        )
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


class _End:
    """The end of a run: the height at which the load stops, and the time at which the run is given up."""

    def __init__(self, scenario: Scenario, run_until_stopped: threading.Event | None, on_fail: bool) -> None:
        self._event = run_until_stopped
        self.on_fail = on_fail
        """Whether the first violation of a rule ends it."""
        self._timeout_s = scenario.stop.timeout_s
        self.duration_s = scenario.stop.duration_s if run_until_stopped is None else None
        has_height = run_until_stopped is None and self.duration_s is None
        self.height: int | None = scenario.stop.height if has_height else None
        """``None`` until the run is stopped, or its duration is over, if it has no stop height."""
        self._deadline = time.monotonic() + self._timeout_s if has_height else math.inf
        self._over_s = math.inf
        """Monotonic: when its duration is over."""

    def begin(self) -> None:
        """The testnet is up."""
        if self.duration_s is not None:
            self._over_s = time.monotonic() + self.duration_s

    @property
    def is_open(self) -> bool:
        """Whether it goes on until it is stopped."""
        return self._event is not None and self.height is None

    @property
    def is_duration_over(self) -> bool:
        return self.height is None and time.monotonic() >= self._over_s

    @property
    def is_requested(self) -> bool:
        """Whether the caller has set its event."""
        return self._event is not None and self._event.is_set()

    @property
    def is_time_up(self) -> bool:
        return time.monotonic() > self._deadline

    def set(self, height: int) -> None:
        """Stop at a height. The time limit starts anew, for draining."""
        self.height, self._deadline = height, time.monotonic() + self._timeout_s


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
        on_sample: Callable[[Sample], None] | None = None,
        on_notice: Callable[[str], None] | None = None,
        stop_on_fail: bool = False,
    ) -> None:
        self.on_sample = on_sample or (lambda sample: None)
        self.on_notice = on_notice or (lambda notice: None)
        self._scenario = scenario
        """Without the end that a request may have set."""
        self._folder = folder
        self._interrupts = interrupts
        self._end = _End(scenario, run_until_stopped, stop_on_fail)
        self._began = time.monotonic()
        began_epoch_ms = time.time() * MILLISECONDS_PER_SECOND
        genesis = build_genesis(scenario, seed, validator_set(Ed25519Scheme(), scenario, seed))
        self.record = RunRecord(scenario, "live", seed, commit, genesis)
        self._watch = ChainWatch(self.record, began_epoch_ms)
        self._joins = JoinWatch(self.record, self.on_notice)
        self._sampled_ms = float("-inf")
        self._testnet = Testnet(self.record, folder, interrupts, served, self.on_notice)
        self._stage: LiveStage | None = None
        self._audit = LiveAudit(self.record)
        """A new one once there is a folder."""

    # --- the run as a whole -------------------------------------------------------------------------------------------

    def perform(self) -> None:
        """Start, follow, collect. Raises :class:`TestnetError` if the testnet cannot be started."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self.record.store = FileBlocks(self._folder / STORE_FILE)
        self._audit = LiveAudit(self.record)
        try:
            self._follow(*self._start())
        except KeyboardInterrupt:
            self.record.interrupted = True
            self.on_notice("interrupted: collecting what is known; interrupt again to end without it")
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
        if not self.record.validators:
            self.record.validators = list(self._audit.known.values())

    def close(self) -> None:
        """End everything that was started. Nothing interrupts this."""
        try:
            self._audit.close()
            if isinstance(self.record.store, FileBlocks) and not self.record.store:
                self.record.store.discard()
        finally:
            self._testnet.close()

    def _note_failure(self, error: Exception) -> None:
        self.record.interrupted = True
        self.record.problems.append(f"the driver failed: {one_line(error)}")
        self.on_notice(self.record.problems[-1])

    @property
    def _now_ms(self) -> float:
        return (time.monotonic() - self._began) * MILLISECONDS_PER_SECOND

    # --- start --------------------------------------------------------------------------------------------------------

    def _start(self) -> tuple[Hosts, LiveStage]:
        longest_s = start_timeout_s(self._scenario) + self._scenario.stop.longest_s + EXTRA_RUN_TIME_S
        run_time_s = MAX_RUN_TIME_S if self._end.is_open else int(longest_s)
        hosts = self._testnet.start(run_time_s, self._make_hosts, self._look_at_start)
        now_ms, height = (lambda: self._now_ms), (lambda: self._watch.height)
        # from now on, with every host up, faults may begin
        stage = LiveStage(self._scenario, self.record.seed, hosts, now_ms, height, self.on_notice, self._keep_blocks)
        self._stage, self.record.faults = stage, stage.engine.records
        self._end.begin()
        self.on_notice(f"{len(hosts.all)} hosts are up after {self._now_ms / MILLISECONDS_PER_SECOND:.1f} s")
        return hosts, stage

    def _make_hosts(self, session: RaySession) -> Hosts:
        problem = self.record.problems.append
        nodes = NodeWatch(session, self._node_was_lost, self.on_notice)
        return Hosts(session, self._take_view, self._host_is_up, self._host_was_lost, problem, nodes)

    def _look_at_start(self, hosts: Hosts, starts: bool) -> None:
        self._testnet.check()
        hosts.look(self._watch.height, starts)
        self._interrupts.checkpoint()
        if self._end.is_requested:
            raise TestnetError("the testnet was stopped before it was up")

    # --- following ----------------------------------------------------------------------------------------------------

    def _follow(self, hosts: Hosts, stage: LiveStage) -> None:
        """Watch, perform faults, and stop the load, until the scenario is over or its time is up."""
        self._audit.start()
        while not self._is_over(hosts) and not self._must_stop(hosts):
            if self._end.is_time_up:
                after_s = self._now_ms / MILLISECONDS_PER_SECOND
                self.record.time_up = f"the time was up after {after_s:.0f} s: {self._standings(hosts)}"
                return
            self._wait(stage)
            self._testnet.check()
            hosts.look(self._watch.height)
            self._watch.take_lags(hosts)
            self._obey(hosts, stage)
            self._joins.look(hosts, self._now_ms, self._watch.height)
            self._sample(hosts)
            stage.perform()
            self._watch_load()

    def _must_stop(self, hosts: Hosts) -> bool:
        """Tell what breaks a rule by now; whether that ends the run."""
        running = [host for host in hosts.all if host.phase is Phase.UP and not host.is_paused]
        addresses = [(host, address) for host in running for address in host.reports.addresses]
        urls = {address.index: address.url for host, address in addresses if address.index not in host.not_ready}
        states = [item for host in running for item in host.reports.states.items()]
        byzantine = self._scenario.validators.node
        diverged = {index for index, state in states if state.diverged and not byzantine(index).byzantine}
        told = self._audit.look(urls, diverged)
        for violation in told:
            self.on_notice(f"height {self._watch.height}: violation: {violation}")
        if told and self._end.on_fail:
            self.record.interrupted = True
            self.record.problems.append(f"stopped at height {self._watch.height} by --stop-on-fail: {told[0]}")
            self.on_notice(self.record.problems[-1])
            return True
        return False

    def _wait(self, stage: LiveStage) -> None:
        """Wait until the next look, at most until a fault begins or ends. The first signal ends a run without end."""
        planned_s, next_ms = LOOK_EVERY_S, stage.agenda.next_ms
        if next_ms is not None:
            planned_s = max(0.0, min(planned_s, (next_ms - self._now_ms) / MILLISECONDS_PER_SECOND))
        self._watch.lag.begin()
        try:
            self._interrupts.wait(planned_s)
        except KeyboardInterrupt:
            if not self._end.is_open:
                raise
            self._interrupts.accept()
            self._end_here()
        else:
            self._watch.lag.end(planned_s)

    def _obey(self, hosts: Hosts, stage: LiveStage) -> None:
        """Perform the requests since the last look, and show the testnet's endpoint the state after them."""
        control = self._testnet.control
        assert control is not None
        if self._end.is_requested and self._end.height is None:
            self._end_here()
        if self._end.is_duration_over:
            self._end_here(as_planned=True)
        while not control.orders.empty():
            match control.orders.get_nowait():
                case StopRun() if self._end.height is None or self._end.height > self._watch.height:
                    self._end_here()
                case AddFault(fields, answer) if answer.set_running_or_notify_cancel():
                    try:
                        answer.set_result(self._add_fault(stage, fields))
                    except BadInput as error:
                        answer.set_exception(error)
        control.view = look_over(self.record, hosts, self._watch.height, self._now_ms, self._audit.page)

    def _end_here(self, as_planned: bool = False) -> None:
        """The height that is reached becomes the run's last one; ``as_planned`` since its time is over."""
        self._end.set(self._watch.height)
        self._note_end(self._watch.height, as_planned)
        why = f"{self._end.duration_s:,} s are over" if as_planned else "stop requested"
        self.on_notice(f"height {self._watch.height}: {why}")

    def _note_end(self, height: int, as_planned: bool = False) -> None:
        self.record.stop_requested_at_height = height
        if not as_planned:
            self.record.scenario = self._scenario.ended_at(height)

    def _is_over(self, hosts: Hosts) -> bool:
        """Whether every validator that still takes part has drained."""
        alive = [host for host in hosts.all if host.phase is not Phase.DEAD]
        if self._end.height is None:
            return not alive
        goal = self._end.height + self._scenario.stop.drain_blocks
        node = self._scenario.validators.node
        awaited = [state for host in alive for index, state in host.reports.states.items() if not node(index).byzantine]
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
            for name, height in zip(names, hosts.by_validator(Host.height), strict=True)
        )

    def _sample(self, hosts: Hosts) -> None:
        now_ms, trace = self._now_ms, self._watch.trace
        trace.windows.look(now_ms, self._watch.height)
        hosts.wants_stamps = trace.wants(now_ms)
        if now_ms - self._sampled_ms >= SAMPLE_EVERY_MS:
            self._sampled_ms = now_ms
            self._watch.busyness.look()
            heights, views = hosts.by_validator(Host.height), hosts.by_validator(Host.view)
            self.on_sample(self._watch.sample(now_ms, heights, views, hosts.by_validator(Host.describe)))

    def _watch_load(self) -> None:
        load = self._testnet.load
        if load is None:
            return
        log = self._folder / LOG_FILE
        problem = f"the load generator ended early with exit code {load.exit_code} (see {log})"
        if load.ended_early and problem not in self.record.problems:
            self.record.problems.append(problem)
        if self._end.height is not None and self._watch.height >= self._end.height and not load.was_told_to_stop:
            self.on_notice(self.record.drain_notice(self._watch.height))
            load.stop()

    # --- faults -------------------------------------------------------------------------------------------------------

    def _keep_blocks(self, index: int, url: str) -> None:
        """Enter what a validator served of the chain into ``record.lost``, since its disk is about to be lost."""
        found, serves = self._audit.lose(index, url)
        if serves or found.blocks:
            self.record.lost.append(found)
        if not serves:
            name = self._scenario.validators.names[index]
            self.on_notice(f"height {self._watch.height}: {name} does not serve what its disk had")

    def _add_fault(self, stage: LiveStage, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Add a fault to the scenario, from now on or later. Returns its fields. Raises :class:`BadInput`."""
        height, at_ms = self._watch.height, math.ceil(stage.agenda.fault_ms)
        end = self._end.height
        if end is not None and height >= end:
            raise BadInput(f"the run is about to end: height {end} is reached")
        begins = {} if fields.keys() & {"at_height", "at_ms"} else {"at_ms": at_ms}
        fault = fault_to_add(self._scenario, {**fields, **begins}, has_end=end is not None)
        if (fault.at_height or height + 1) <= height:
            raise BadInput(f"at_height: {fault.at_height} is not above {height}, the final height")
        if (at_ms if fault.at_ms is None else fault.at_ms) < at_ms:
            raise BadInput(f"at_ms: {fault.at_ms} is over: it is {at_ms} ms since the testnet was up")
        self._scenario = self._scenario.model_copy(update={"faults": [*self._scenario.faults, fault]})
        self.record.scenario = self._scenario
        stage.engine.adopt(self._scenario)
        self.on_notice(f"height {height}: fault added: {fault.kind} of {fault.whom}")
        return fault.model_dump(mode="json", exclude_none=True)

    def _host_is_up(self, host: Host) -> None:
        if self._stage is not None:
            self._stage.engine.on_up()
        self._testnet.write_endpoints()

    def _host_was_lost(self, host: Host, reason: str, words: LastWords | None) -> None:
        if self._stage is not None and self._stage.on_lost(host, words):
            return
        names = ", ".join(self._scenario.validators.names[index] for index in host.validators)
        log = self._folder / LOGS_FOLDER / f"host-{host.number}.log"
        last = "" if words is None else f", {self._scenario.validators.names[words.validator]} said: {words.reason}"
        problem = f"host {host.number} ({names}) was lost: {reason}{last} (see {log})"
        self.record.problems.append(problem)
        self.on_notice(problem)

    def _node_was_lost(self, hosts: Sequence[Host], node: str, reason: str) -> None:
        indices = [index for host in hosts for index in host.carried_at(self._watch.height)]
        if self._stage is not None and indices:
            self._stage.engine.on_loss(indices, f"node {node}", reason)

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
        """Stop the load, bring the validators to rest, and collect their state."""
        self._audit.close()
        self.record.duration_ms = self._now_ms
        if self._end.height is None:
            self._note_end(self._watch.height)
        self._testnet.finish_load(self._interrupts.checkpoint)
        if self._testnet.hosts is not None:
            self._freeze_and_collect(self._testnet.hosts)

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
        self._watch.take_lags(hosts)
        self._note_totals(hosts)
        at_rest = [host for host in hosts.all if host not in [host for host, _ in failed]]
        for host in hosts.all:
            if host.phase is not Phase.UP and host.not_ready and self._watch.height:
                names = ", ".join(self._scenario.validators.names[index] for index in host.not_ready)
                self.record.problems.append(
                    f"{names} did not answer at the end: host {host.number} is {host.phase.value}"
                )
        addresses = [(host, address) for host in at_rest for address in host.reports.addresses]
        urls = {address.index: address.url for host, address in addresses if address.index not in host.not_ready}
        self.on_notice(f"height {self._watch.height}: asking {len(urls)} validators for their blocks and accounts")
        collect(self.record, urls, checkpoint, self._audit)

    def _note_totals(self, hosts: Hosts) -> None:
        totals = hosts.totals()
        self.record.metrics["messages_sent"] = totals.messages
        self.record.metrics["messages_dropped"] = totals.lost
        self.record.metrics["bytes_sent"] = totals.size
        self.record.metrics["core_seconds"] = totals.core_seconds
        self.record.metrics.update(self._watch.busyness.metrics())
        first_ms = self.record.finalizations.first_ms
        if first_ms is not None:
            self.record.metrics["startup_seconds"] = first_ms / MILLISECONDS_PER_SECOND
