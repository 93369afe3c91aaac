"""A live run as its driver has it: the run's loop with its port, and all parts with which another driver can go on."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Final

import msgspec

from cluster.common.checkout import INSTANCE_VARIABLE
from cluster.common.errors import BadInput
from cluster.common.interrupts import Interrupts
from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.common.wording import printable
from cluster.faults.events import Tell, Voted
from cluster.live.driver.audit import Audit, MakeAudit
from cluster.live.driver.chain_watch import ChainWatch, steps_of
from cluster.live.driver.hosts import Hosts
from cluster.live.driver.live_stage import LiveStage
from cluster.live.driver.load_process import EXTRA_RUN_TIME_S
from cluster.live.driver.node_watch import NodeWatch
from cluster.live.driver.ray_session import RaySession
from cluster.live.driver.supervised_host import Host
from cluster.live.driver.testnet import Testnet, start_timeout_s
from cluster.live.handover.checkpoint import ADVICE
from cluster.live.handover.handover import FOLLOWING, RunClock, RunFiles
from cluster.live.handover.left import VERSION, LeftRun, LeftStage, RunPhase
from cluster.live.handover.rows import Row
from cluster.live.host.host import LOGS_FOLDER, ValidatorView
from cluster.live.host.observations import VoteSent
from cluster.live.means import means_class
from cluster.live.processes.history import Phase
from cluster.live.processes.last_words import LastWords
from cluster.live.web.addresses import Served
from cluster.record.run import RunRecord, RunRequest, Step, Timings
from cluster.record.saved import BESIDES, save
from cluster.run.events import (
    Begun,
    End,
    JoinBegun,
    JoinEnded,
    NewHeight,
    Order,
    Seen,
    Standing,
    Standings,
    StopLoad,
    TakeFork,
    Violation,
)
from cluster.run.loop import Feed, RunLoop, Told
from cluster.scenario import Scenario
from cluster.scenario.genesis import build_genesis, validator_set
from consensus.keys import Ed25519Scheme
from loadgen.runplan import MAX_RUN_TIME_S
from validator.primitives.user_file import UserFileError

NOTICES_KEPT: Final = 64


class Notices:
    """Passes on what the driver says in words, and keeps the newest lines for the dashboard."""

    def __init__(self, to: Callable[[str], None]) -> None:
        self._to = to
        self.newest: deque[str] = deque(maxlen=NOTICES_KEPT)

    def __call__(self, line: str) -> None:
        self.newest.append(line)
        self._to(line)


class LiveRun:
    """One live run: its loop and record, its testnet, and what watches it.

    :meth:`begin` or :meth:`restore` opens its files. :meth:`close` ends everything that was started or taken over.
    """

    files: RunFiles
    watch: ChainWatch
    audit: Audit

    def __init__(
        self,
        request: RunRequest,
        notice: Callable[[str], None],
        interrupts: Interrupts,
        served: Served,
        make_audit: MakeAudit,
        is_open: bool = False,
    ) -> None:
        scenario, seed = request.scenario, request.seed
        self.folder, self.is_attachable = request.folder, request.lease_s is not None
        self.notice = Notices(notice)
        self.clock = RunClock()
        genesis = build_genesis(scenario, seed, validator_set(Ed25519Scheme(), scenario, seed))
        self.record = RunRecord(scenario, "live", seed, request.commit, genesis)
        self.record.timings = Timings() if request.takes_timings else None
        self.record.began_epoch_ms = self.clock.began_epoch_ms
        self.loop = RunLoop(self.record, is_open, request.stop_on_fail)
        self.feed = Feed(self.loop, self._look, self._perform, self._note)
        self.testnet = Testnet(self.record, self.folder, interrupts, served, self.notice, request.lease_s)
        self.stage: LiveStage | None = None
        """Performs the run's faults, once the testnet is up."""
        self.means = means_class()(request.scenario, self.notice, self.testnet.note_leftovers)
        self._make_audit, self._began_open, self._interrupts = make_audit, is_open, interrupts
        self._at_end = ExitStack()

    def begin(self) -> None:
        """Begin the run's files. Raises :class:`OSError`."""
        files = RunFiles.new(self.folder, self.notice, self.is_attachable)
        files.journal.note(Begun(self.loop.given, self.record.seed, self._began_open, self.loop.stops_on_fail), ())
        files.keep()
        self._open(files)

    def close(self) -> None:
        """End everything that was started, or taken over. Nothing interrupts this."""
        with ExitStack() as last_to_first:
            if self.testnet.is_ours:
                last_to_first.callback(self.testnet.close)
                last_to_first.callback(self.means.close)
            last_to_first.push(self._at_end)

    def _open(self, files: RunFiles, left: LeftRun | None = None, rows: Iterable[tuple[int, Row]] = ()) -> None:
        """Watch the run with these files, and what another driver has left."""
        self.files, self.record.store = files, files.store
        self.watch = ChainWatch(self.record, self.clock.began_epoch_ms, files.sightings, left)
        self.audit = self._make_audit(self.record, self.folder, self.clock.now_ms, files.told)
        if left is not None:
            self.audit.take_over(left.audit, rows)
        for close in (self._discard_empty, files.close, self.audit.end, self.audit.close):
            self._at_end.callback(close)

    def _discard_empty(self) -> None:
        """Remove the file of a store without blocks."""
        if self.testnet.is_ours and not self.files.store:
            self.files.store.discard()

    # --- from driver to driver ----------------------------------------------------------------------------------------

    def write_checkpoint(self, phase: RunPhase = FOLLOWING) -> None:
        """Write all that another driver needs, if one may take over."""
        hosts, stage = self.testnet.hosts, self.stage
        if self.is_attachable and hosts is not None and stage is not None:
            self.files.phase = phase
            with self.audit.lock:  # otherwise blocks arrive while they are written
                self.files.write(self._left(phase, hosts, stage))

    def keep(self, hosts: Hosts) -> None:
        """Persist what a look found."""
        self.files.look((hosts.actors_so_far, self.testnet.load_stage, self.means.state), self.write_checkpoint)

    def _left(self, phase: RunPhase, hosts: Hosts, stage: LiveStage) -> LeftRun:
        """The state that another driver needs to go on. It shares the run's collections: do not change it."""
        return LeftRun(
            version=VERSION,
            commit=self.record.commit,
            phase=phase,
            clock=self.clock.state(),
            scenario=self.loop.given,
            is_open=self._began_open,
            stop_on_fail=self.loop.stops_on_fail,
            journal=self.files.journal.mark,
            record=save(self.record, besides=BESIDES),
            hosts=[host.left for host in hosts.all],
            lost_nodes=set(hosts.nodes.lost),
            stage=stage.state,
            trace=self.watch.trace.state,
            resources=self.watch.resources.state,
            chain=self.watch.chain,
            audit=self.audit.state(),
            **self.testnet.state,
        )

    def restore(self, left: LeftRun, hosts: Hosts | None) -> None:
        """Rebuild the state that another driver left, and open its files.

        Raises :class:`~cluster.common.errors.BadInput` and :class:`OSError`.
        """
        self.clock.take_over(left.record.began_epoch_ms, left.clock.reading)
        files, rows = RunFiles.reopen(self.folder, self.notice, left, self.loop)
        self._open(files, left, rows)
        try:
            self.means.take_over(left.stage.means)
        except msgspec.ValidationError as error:
            raise BadInput(f"{self.folder}: stage.means: {printable(str(error))}: {ADVICE}") from None
        if hosts is not None:
            self.make_stage(hosts, left.stage)

    # --- what hosts report --------------------------------------------------------------------------------------------

    def supervise(self, session: RaySession, on_step: Callable[[Step], None] | None) -> Hosts:
        """The hosts of the run, to be created or adopted. ``on_step`` gets each step of a validator."""
        self._on_step, is_deployed = on_step, INSTANCE_VARIABLE in os.environ
        nodes = NodeWatch(session, self._node_was_lost, self.notice, self._interrupts.wait, is_deployed)
        problem, is_up = self.record.problems.append, lambda host: self.testnet.write_endpoints()
        hosts = Hosts(session, self.take_view, is_up, self.host_was_lost, problem, nodes)
        hosts.wants_taken = on_step is not None
        return hosts

    def take_view(self, view: ValidatorView) -> None:
        """Take all that a host reports of a validator."""
        if self._on_step is not None:
            for step in steps_of(view, self.clock.began_epoch_ms):
                self._on_step(step)
        self.watch.take_view(self.clock.now_ms(), view)
        self.audit.take(view.index, view.observations)
        if self.loop.faults.is_listening:
            votes = (
                Voted(view.index, seen.view, seen.kind) for seen in view.observations if isinstance(seen, VoteSent)
            )
            for vote in filter(self.loop.faults.awaits, votes):
                self.see(vote)

    def host_was_lost(self, host: Host, reason: str, words: LastWords | None) -> None:
        """Tell the faults, or the user, of a host that went down by itself.

        Raises :class:`UserFileError` if a user's file is why: each process in its place would end in the same way.
        """
        names = self.loop.scenario.validators.names
        if words is not None and words.is_users:
            raise UserFileError(words.reason)
        if self.stage is not None and self.stage.on_lost(host, words):
            return
        carried = ", ".join(names[index] for index in host.validators)
        last = "" if words is None else f", {names[words.validator]} said: {words.reason}"
        log = self.folder / LOGS_FOLDER / f"host-{host.number}.log"
        problem = f"host {host.number} ({carried}) was lost: {reason}{last} (see {log})"
        self.record.problems.append(problem)
        self.notice(problem)

    def _node_was_lost(self, hosts: Sequence[Host], node: str, reason: str) -> None:
        if self.stage is not None:
            self.stage.note_lost_node(hosts, node, reason, self.watch.height)

    # --- the port of the loop -----------------------------------------------------------------------------------------

    def see(self, *seen: Seen) -> bool:
        """Tell the run's loop what was seen, at the newest height. Returns whether the run is to end."""
        self.feed.see(NewHeight(self.watch.height))
        self.feed.see(*seen)
        return self.loop.has_ended

    def make_stage(self, hosts: Hosts, left: LeftStage | None = None) -> LiveStage:
        """Make the stage on which the run's faults act; ``left`` is what another driver has left of it."""
        self.stage = LiveStage(
            self.loop.scenario,
            self.record.seed,
            hosts,
            self.loop.faults,
            self.clock.now_ms,
            self.feed.see_fault,
            self.notice,
            self._keep_blocks,
            self.means,
            left,
        )
        return self.stage

    def _note(self, told: Sequence[Told]) -> None:
        """Note what the run's loop was told. Violations are persisted before they are reported, with what follows."""
        for seen, orders in told:
            self.files.journal.note(seen, orders)
        violations = [seen.text for seen, _ in told if isinstance(seen, Violation)]
        if violations:
            self.testnet.note_violations()
            self.write_checkpoint()
        for text in violations:
            self.notice(f"height {self.watch.height}: violation: {text}")

    def _look(self) -> Iterator[Seen]:
        """The network as it is now."""
        assert self.stage is not None, "faults begin once the testnet is up"
        yield NewHeight(self.watch.height)
        yield self.stage.look(self.watch.height)

    def _perform(self, order: Order) -> Iterable[Seen]:
        """Perform an order of the run's loop, and return its answers."""
        match order:
            case StopLoad(height):
                self.testnet.stop_load(height)
            case End(is_time_up):
                if is_time_up and self.testnet.hosts is not None:
                    after_s = self.clock.now_ms() / MILLISECONDS_PER_SECOND
                    found = self.testnet.hosts.heights_in_words(self.loop.scenario.validators.names)
                    self.record.time_up = f"the time was up after {after_s:.0f} s: {found}"
            case TakeFork():
                raise AssertionError("the live testnet takes no forks")
            case Tell(text):
                self.notice(text)
            case _ if self.stage is not None:  # else the testnet is gone
                return self.stage.perform(order)
        return ()

    def _keep_blocks(self, index: int, url: str) -> None:
        """Record the chain that a validator served in ``record.lost``, since its disk is about to be lost."""
        found, serves = self.audit.lose(index, url)
        if serves or found.blocks:
            self.record.lost.append(found)
        if not serves:
            name = self.loop.scenario.validators.names[index]
            self.notice(f"height {self.watch.height}: {name} does not serve what its disk had")

    def permit_pruning(self, hosts: Hosts) -> None:
        """Let validators prune the blocks that the audit and their peers have, if the scenario bounds their archives.

        Byzantine validators keep all blocks, which are collected at the end. Call it repeatedly, because a restarted
        validator has forgotten the permission.
        """
        if self.loop.scenario.storage.keep_blocks is not None:
            given_up = {index for host in hosts.all if host.phase is Phase.DEAD for index in host.validators}
            judged = [found.index for found in self.audit.known.values() if not found.byzantine]
            hosts.allow_pruning(dict.fromkeys(judged, self.audit.prunable_height(given_up)))

    @property
    def load_time_s(self) -> int:
        """The time in seconds after which the load ends by itself, unless the run is open."""
        scenario = self.loop.scenario
        longest_s = start_timeout_s(scenario) + scenario.stop.longest_s + EXTRA_RUN_TIME_S
        return MAX_RUN_TIME_S if self.loop.is_open else int(longest_s)


# --- what the loop is told of its hosts -------------------------------------------------------------------------------


def standings_of(hosts: Hosts, loop: RunLoop) -> Standings:
    """How far the validators are whose hosts are not given up. No height of a byzantine one is awaited."""
    node, is_end_known, found = loop.scenario.validators.node, loop.end_height is not None, list[Standing]()
    for host in hosts.all:
        if host.phase is Phase.DEAD:
            continue
        for index in {*host.carried_at(loop.goal), *host.reports.states} if is_end_known else host.validators:
            state = host.reports.states.get(index)
            if state is None:
                found.append(Standing(0, is_up=False))
            else:
                is_excused = bool(state.diverged or node(index).byzantine)
                found.append(Standing(state.height, host.phase is Phase.UP, is_excused=is_excused))
    return Standings(tuple(found))


def joins_of(hosts: Hosts, loop: RunLoop, now_ms: float) -> Iterator[Seen]:
    """Which validators that join later were started, and which take part."""
    for index in loop.joining:
        state = hosts.host_of(index).state(index)
        if state is not None:
            yield JoinBegun(now_ms, index)
            if state.ready:
                yield JoinEnded(now_ms, index, state.snapshot_height, state.snapshot_chunks)


def violations_of(hosts: Hosts, audit: Audit, scenario: Scenario) -> Iterable[Violation]:
    """The violations that are new, by what the hosts and the audit say."""
    running = [host for host in hosts.all if host.phase is Phase.UP and not host.is_paused]
    answered_s = min((host.answered_s for host in running), default=0.0)
    audit.note_hosts({(host.number, host.pid) for host in running}, answered_s)
    states = [item for host in running for item in host.reports.states.items()]
    is_byzantine = [bool(scenario.validators.node(index).byzantine) for index in range(scenario.validators.count)]
    diverged = {index for index, state in states if state.diverged and not is_byzantine[index]}
    return map(Violation, audit.look(hosts.urls(running), diverged))
