"""The parts of a live run that are started for it, and ended with it: watchdog, endpoint, load, Ray and hosts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from cluster.common.errors import BadInput, TestnetError
from cluster.common.files import write_atomically
from cluster.common.interrupts import Interrupts
from cluster.common.wording import counted, json_text
from cluster.faults.kind import plans_of
from cluster.live.driver.control_server import ControlServer
from cluster.live.driver.faucet import Faucet
from cluster.live.driver.hosts import Hosts
from cluster.live.driver.live_stage import located
from cluster.live.driver.load_nodes import LoadNodes
from cluster.live.driver.load_process import (
    LOG_FILE,
    STATS_FILE,
    LoadProcess,
    LoadStage,
    plan_load,
    read_statistics,
    record_of,
)
from cluster.live.driver.node_watch import Leases
from cluster.live.driver.ray_session import RaySession, is_joining, one_line
from cluster.live.driver.supervised_host import actor_name
from cluster.live.handover.left import LeftLoad, LeftRun
from cluster.live.host.host import LOGS_FOLDER
from cluster.live.nodes.ray_nodes import LOAD, with_role
from cluster.live.processes.cleanup_watchdog import CleanupWatchdog, end_run
from cluster.live.processes.history import Phase
from cluster.live.web.addresses import LOAD_LISTEN_VARIABLE, LOAD_WORKERS_VARIABLE, ON_THE_LOOPBACK, Served
from cluster.record.folder import ENDPOINTS_FILE, FAUCET_TOKEN_FILE, TOKEN_FILE, unjudged_result
from cluster.record.run import LoadRecord, RunRecord, about_run, note_own_problem
from cluster.scenario import Scenario
from loadgen.runplan import Statistics

LOOK_EVERY_S: Final = 0.25
START_TIMEOUT_S: Final = 90.0
START_TIMEOUT_OF_EACH_S: Final = 2.0
"""Added to the timeout of the start for each validator. 100 validators on ten hosts and two processors took 97 s."""
STOP_TIMEOUT_S: Final = 5.0


class Testnet:
    """One testnet; :meth:`close` ends every part that was started, even if :meth:`start` failed."""

    def __init__(
        self,
        record: RunRecord,
        folder: Path,
        interrupts: Interrupts,
        served: Served,
        notice: Callable[[str], None],
        lease_s: float | None = None,
    ) -> None:
        """With ``lease_s`` the testnet outlives this process for this long, so that another driver can take over."""
        self.lease_s = lease_s
        self.hosts: Hosts | None = None
        self.load: LoadProcess | LoadNodes | None = None
        self.control: ControlServer | None = None
        self._record = record
        self._folder = folder
        self._interrupts = interrupts
        self._served = served
        self._notice = notice
        self._watchdog: CleanupWatchdog | None = None
        self._session: RaySession | None = None
        self._leases: Leases | None = None
        """Leases of another driver's hosts, until they are supervised."""

    # --- start --------------------------------------------------------------------------------------------------------

    def start(
        self, run_time_s: int, make_hosts: Callable[[RaySession], Hosts], look: Callable[[Hosts, bool], None]
    ) -> Hosts:
        """Start everything, and return when all hosts are up. The load ends by itself after ``run_time_s``.

        ``look(hosts, starts)`` looks at the hosts once, starts validators only if it may, and may raise to give up.
        Raises :class:`TestnetError` if something cannot be started.
        """
        self._watchdog = watchdog = CleanupWatchdog(self._folder, _result_of_a_killed_driver(self._record))
        if self.lease_s is not None:
            watchdog.wait_for_another(self.lease_s)
        self.control = self._start_control()
        self._notice(f"the testnet's own endpoint is {self.control.url}")
        if self._served.tells_dashboard:
            token = self._folder / TOKEN_FILE
            self._notice(f"dashboard  {self.control.url}/  (its buttons need the token in {token})")
        begun_s, validators = time.monotonic(), self._record.scenario.validators.count
        self._notice(f"the genesis of chain {self._record.genesis.chain_id} has {counted(validators, 'validator')}")
        self._notice("joining the Ray cluster" if is_joining() else "starting Ray and the load generator")
        if not is_joining():  # Ray starts meanwhile
            self._start_load(run_time_s)
        try:
            nodes = self._record.scenario.validators.ray_nodes or 1
            self._session = session = RaySession.start(on_folder=watchdog.watch_ray, nodes=nodes, lease_s=self.lease_s)
        except SystemExit:
            raise KeyboardInterrupt from None  # Ray's own answer to a SIGTERM, until the next line takes it back
        self._interrupts.install()
        self._interrupts.checkpoint()
        self._notice(f"Ray is up after {time.monotonic() - begun_s:.1f} s")
        if self.load is None:
            self._start_load(run_time_s)
        self.hosts = hosts = make_hosts(session)
        hosts.create(self._record.scenario, self._record.seed, self._folder, self._served.bind)
        self._notice(f"{counted(len(hosts.all), 'host')} of validators asked for")
        self._compile_releases(hosts, look)
        deadline, is_load_running = time.monotonic() + start_timeout_s(self._record.scenario), False
        while not all(host.phase is Phase.UP for host in hosts.all):
            self._check_load()
            look(hosts, self.load is None or self.load.is_ready)
            if time.monotonic() > deadline or any(host.phase is Phase.DEAD for host in hosts.all):
                self._give_up_start(hosts)
            if not is_load_running and self.write_endpoints():
                is_load_running = True
                seconds = time.monotonic() - begun_s
                self._notice(f"the validators were started after {seconds:.1f} s, and the load begins")
        return hosts

    @property
    def is_ours(self) -> bool:
        """Whether the testnet ends with this driver; false for another driver's that was not taken over."""
        return self._watchdog is not None

    # --- from driver to driver ----------------------------------------------------------------------------------------

    @property
    def state(self) -> dict[str, Any]:
        """What another driver needs to find the testnet: fields of a :class:`LeftRun`."""
        load = self.load
        return {
            "served": (self._served.bind, self._served.port),
            "ray": None if self._session is None else self._session.kept,
            "load": LeftLoad()
            if load is None
            else LeftLoad(load.process, load.before, load.began_epoch_ms, load.was_told_to_stop),
        }

    def reach(self, left: LeftRun) -> RaySession:
        """Connect to the testnet of a driver that died, and renew the leases of its hosts from now on.

        Raises :class:`BadInput` if that fails; then the testnet is unchanged.
        """
        assert left.ray is not None
        try:
            self.control = self._start_control()
            self._session = session = RaySession.take_over(left.ray)
        except TestnetError as error:
            raise BadInput(str(error)) from None
        finally:
            self._interrupts.install()  # Ray replaces the handlers
        names = {
            number: actor_name(number, host.processes.actors)
            for number, host in enumerate(left.hosts)
            if host.has_actor
        }
        found = [(number, session.find_host(name)) for number, name in names.items()]
        self._leases = Leases(session.ray, lambda: found, left.ray.lease_s)
        return session

    def leave(self) -> None:
        """Disconnect from another driver's testnet without ending any of it."""
        if self._leases is not None:
            self._leases.close()
        if self.control is not None:
            self.control.close()
        if self._session is not None:
            self._session.leave()
        self.control = self._session = None

    def take_over(self, left: LeftRun) -> None:
        """Take over another driver's testnet: from now on it ends with this driver. Raises :class:`OSError`."""
        assert left.ray is not None
        self._watchdog = watchdog = CleanupWatchdog(self._folder, _result_of_a_killed_driver(self._record))
        watchdog.wait_for_another(left.ray.lease_s)
        if left.ray.folder is not None:
            watchdog.watch_ray(Path(left.ray.folder))
        if self.control is not None:
            self._notice(f"the testnet's own endpoint is {self.control.url}")

    def replace_others(self) -> None:
        """Release the other driver's cleanup watchdog: this driver's watchdog has the same information."""
        if self._watchdog is not None:
            self._watchdog.replace_others()

    def adopt(self, hosts: Hosts, scenario: Scenario, left: LeftRun) -> None:
        """Supervise the hosts of another driver."""
        self.hosts = hosts
        hosts.adopt(scenario, self._record.seed, self._folder, self._served.bind, left.hosts, left.lost_nodes)
        if self._leases is not None:
            self._leases.close()  # the hosts' own are renewed instead

    def take_load_over(self, left: LeftLoad, run_time_s: int) -> None:
        """Go on with the load of another driver, or start it again if it has died."""
        if (adopted := self._adopt_load(left)) is not None:
            adopted.go(self._urls_for_load(with_late=False))
            return
        before = self._counts_of(left)
        if left.is_over:
            self._record.load = record_of(before, 0)
            return
        self._start_load(run_time_s, before, left.began_epoch_ms)
        if self.load is not None:
            self._notice("the load had ended with its driver: it is started again")

    def end_what_is_left(self, left: LeftRun) -> None:
        """End what is left on this machine of another driver's testnet that is gone or finished.

        Its load is entered into the record.
        """
        if self._adopt_load(left.load) is None and self._record.load == LoadRecord():
            self._record.load = record_of(self._counts_of(left.load), None)
        if left.ray is not None and left.ray.folder is not None and self._session is None:
            end_run(Path(left.ray.folder))

    def _adopt_load(self, left: LeftLoad) -> LoadProcess | None:
        """The load of another driver, if it runs."""
        self.load = adopted = LoadProcess.adopt(self._folder, left)
        return adopted

    def _counts_of(self, left: LeftLoad) -> Statistics:
        """The counts of a load that has ended."""
        return left.before.plus(read_statistics(self._folder / STATS_FILE))

    def _start_control(self) -> ControlServer:
        try:
            faucet = Faucet.of(self._record.scenario, self._record.seed, self._record.genesis.chain_id)
            return ControlServer(self._folder, self._served, faucet)
        except OSError as error:
            problem = f"the testnet's endpoint cannot be served on {self._served}: {one_line(error)}"
            raise (TestnetError if self._served == ON_THE_LOOPBACK else BadInput)(problem) from None

    def _start_load(self, run_time_s: int, before: Statistics | None = None, began_epoch_ms: int | None = None) -> None:
        """Start the load generator, which prepares itself: on the cluster's nodes for load, or here if there are none.

        No validator starts before the load is ready: on a slow machine a short chain might be over before the first
        transaction of a user. ``before`` are the counts of a load that ended with its driver, and ``began_epoch_ms`` is
        when that load began.
        """
        record = self._record
        if record.scenario.load.is_empty or record.scenario.load.external:
            return
        chain_id = record.genesis.chain_id
        plan = plan_load(record.scenario, record.seed, chain_id, self._folder, run_time_s, began_epoch_ms)
        layout, session = _load_layout(), self._session
        nodes = [] if session is None or session.is_ours or layout else with_role(session.nodes(), LOAD)
        if session is not None and nodes:
            self.load = LoadNodes(session, nodes, plan, self._folder, self._notice, before)
            return
        processes = [0] if layout else None
        self.load = LoadProcess(plan, self._folder, processes, self.lease_s is not None, before, layout)

    def _compile_releases(self, hosts: Hosts, look: Callable[[Hosts, bool], None]) -> None:
        """Compile the code of other folders that upgrades will bring, before there is a block."""
        for plan in plans_of(self._record.scenario):
            if plan.release is not None:
                hosts.prepare(hosts.all, located(plan.release), None, self._notice)
        while hosts.is_compiling:
            self._check_load()
            look(hosts, False)
            self._interrupts.wait(LOOK_EVERY_S)

    def _check_load(self) -> None:
        if self.load is not None and self.load.ended_early:
            problem = f"the load generator ended with exit code {self.load.exit_code} before there was a block"
            raise TestnetError(f"{problem}{self.load.reason} (see {self._folder / LOG_FILE})")

    def _give_up_start(self, hosts: Hosts) -> None:
        assert self._session is not None
        logs = self._folder / LOGS_FOLDER
        self._session.keep_logs(logs / "ray")
        for host in hosts.all:
            if host.phase is Phase.DEAD:
                raise TestnetError(f"host {host.number} cannot be started: {host.why_lost} (see {logs})")
        is_load_ready = self.load is None or self.load.is_ready
        states = {index: host.state(index) for host in hosts.all for index in host.validators}
        for index in self._record.scenario.validators.external:
            state, name = states[index], self._record.scenario.validators.names[index]
            if state is not None and not state.ready:
                raise TestnetError(f"the external validator {name} is not ready: {state.why_not_ready}")
        late = "the hosts were not up" if is_load_ready else "the load generator was not ready"
        raise TestnetError(f"{late} after {start_timeout_s(self._record.scenario):g} s (see {logs})")

    # --- meanwhile ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise :class:`TestnetError` if a Ray of our own broke down."""
        assert self._session is not None
        self._session.check()

    def watch_load(self) -> None:
        """Note a problem if the load ended early."""
        if self.load is None:
            return
        if self.load.ended_early:
            code, log = self.load.exit_code, self._folder / LOG_FILE
            note_own_problem(
                self._record, f"the load generator ended early with exit code {code}{self.load.reason} (see {log})"
            )

    def stop_load(self, height: int) -> None:
        """Stop the load, since the run's last height is reached."""
        self.watch_load()
        if self.load is not None and not self.load.was_told_to_stop:
            self._notice(self._record.drain_notice(height))
            self.load.stop()

    @property
    def load_stage(self) -> LoadStage:
        load = self.load
        if load is None:
            return "none"
        if load.ended_early:
            return "ended"
        if load.was_told_to_stop or load.exit_code is not None:
            return "stopped"
        return "running" if load.is_ready else "starting"

    def set_load(self, is_on: bool, run_time_s: int) -> dict[str, Any]:
        """Start or stop the load, by request of a client. Returns its stage, as a page. Raises :class:`BadInput`.

        A load that is started again goes on counting where it stopped, and ends by itself after ``run_time_s``.
        """
        load = self.load
        if load is None:
            raise BadInput("the testnet has no load")
        if is_on and self.load_stage in ("stopped", "ended"):
            if not isinstance(load, LoadProcess):
                raise BadInput("a load on several nodes cannot be started again")
            if load.exit_code is None:
                raise BadInput("the load has not ended yet: try again in a moment")
            self._start_load(run_time_s, load.finished(lambda: None), load.began_epoch_ms)
            assert self.load is not None
            self.load.go(self._urls_for_load(with_late=False))
            self._notice("the load is started again, as requested")
        elif not is_on and not load.was_told_to_stop:
            load.stop()
            self._notice("the load stops, as requested")
        return {"load": self.load_stage}

    def write_endpoints(self) -> bool:
        """Write the addresses of all validators to the endpoints file, and give them to the load.

        Returns ``False``, and does nothing, until all validators of the genesis were started. Call it again after a
        validator moved.
        """
        assert self.hosts is not None and self.control is not None
        section, addresses = self._record.scenario.validators, self.hosts.addresses
        if len(addresses) < section.count - len(section.late):
            return False
        page: list[dict[str, Any]] = [
            {
                "name": address.name,
                "index": address.index,
                "url": address.url,
                "peers": address.peers.text,
                "host": self.hosts.host_of(address.index).number,
                "pid": None if address.index in section.external else self.hosts.host_of(address.index).pid,
            }
            for address in addresses
        ]
        testnet = {"url": self.control.url, "token_file": TOKEN_FILE}
        if self._record.scenario.chain.faucet is not None:
            testnet["faucet_token_file"] = FAUCET_TOKEN_FILE
        text = json_text({"testnet": testnet, "validators": page}, indent=2) + "\n"
        write_atomically(self._folder / ENDPOINTS_FILE, text)
        if self.load is not None:
            self.load.go(self._urls_for_load())
        return True

    def _urls_for_load(self, with_late: bool = True) -> dict[int, str]:
        """The validators to which the load may send: an external one need not take transactions.

        A load that begins later gets none of those that joined late: it would not have sent to them.
        """
        assert self.hosts is not None
        section = self._record.scenario.validators
        left_out = section.external.keys() | (set() if with_late else section.late.keys())
        return {each.index: each.url for each in self.hosts.addresses if each.index not in left_out}

    def note_leftovers(self, facts: Mapping[str, Any]) -> None:
        """Tell the cleanup watchdog what faults have changed outside of the run, so that it can undo that."""
        if self._watchdog is not None:
            self._watchdog.watch_leftovers(facts)

    def note_violations(self) -> None:
        """Give the cleanup watchdog the record's violations, so that the run fails even if its driver is killed."""
        if self._watchdog is not None:
            self._watchdog.replace_result(_result_of_a_killed_driver(self._record))

    # --- end ----------------------------------------------------------------------------------------------------------

    def finish_load(self, checkpoint: Callable[[], None]) -> None:
        """Wait for the end of the load, and record its result."""
        if self.load is not None:
            self._record.load = self.load.finish(checkpoint)

    def close(self) -> None:
        """End each part that was started, even if the end of another fails."""
        with ExitStack() as last_to_first:
            if self._watchdog is not None:
                last_to_first.callback(self._watchdog.dismiss)
            if self.control is not None:
                last_to_first.callback(self.control.close)
            if self._session is not None:
                last_to_first.callback(self._close_session, self._session)
            if self.hosts is not None:
                last_to_first.callback(self.hosts.nodes.close)
                last_to_first.callback(self.hosts.ask_each, "stop", STOP_TIMEOUT_S, lambda: None)
                last_to_first.callback(self.hosts.nodes.fetch_logs, self._folder / LOGS_FOLDER)
                last_to_first.callback(self.hosts.resume_all)
            last_to_first.callback(self.finish_load, lambda: None)

    def _close_session(self, session: RaySession) -> None:
        for notice in session.close([] if self.hosts is None else self.hosts.processes):
            self._notice(notice)


def start_timeout_s(scenario: Scenario) -> float:
    """How long the start of a testnet may take."""
    return START_TIMEOUT_S + START_TIMEOUT_OF_EACH_S * scenario.validators.count


def _load_layout() -> list[str]:
    """Options of :mod:`loadgen.run` for a master whose workers are in other pods; none without them."""
    listen, workers = os.environ.get(LOAD_LISTEN_VARIABLE), os.environ.get(LOAD_WORKERS_VARIABLE)
    return [] if listen is None or workers is None else ["--listen", listen, "--expected", workers]


def _result_of_a_killed_driver(record: RunRecord) -> dict[str, Any]:
    """The content of ``result.json`` if the driver could not write it."""
    return unjudged_result(about_run(record), "the driver was killed", record.seen_violations)
