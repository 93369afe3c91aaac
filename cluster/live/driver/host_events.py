"""What happens to the hosts of a live run, and what they report of its validators."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from cluster.common.checkout import INSTANCE_VARIABLE
from cluster.common.interrupts import Interrupts
from cluster.faults.events import Voted
from cluster.live.driver.chain_watch import steps_of
from cluster.live.driver.hosts import Hosts
from cluster.live.driver.live_run import LiveRun
from cluster.live.driver.node_watch import NodeWatch
from cluster.live.driver.ray_session import RaySession
from cluster.live.driver.supervised_host import Host
from cluster.live.host.host import LOGS_FOLDER, ValidatorView
from cluster.live.host.observations import VoteSent
from cluster.live.processes.last_words import LastWords
from cluster.record.run import Step
from validator.primitives.user_file import UserFileError


class HostEvents:
    """Passes on what the hosts of a run report to those parts of the run that watch it."""

    def __init__(self, run: LiveRun, interrupts: Interrupts, on_step: Callable[[Step], None] | None) -> None:
        self._run = run
        self._interrupts = interrupts
        self._on_step = on_step

    def supervise(self, session: RaySession) -> Hosts:
        """The hosts of the run, to be created or adopted."""
        run, is_deployed = self._run, INSTANCE_VARIABLE in os.environ
        nodes = NodeWatch(session, self._node_was_lost, run.notice, self._interrupts.wait, is_deployed)
        problem = run.record.problems.append
        hosts = Hosts(session, self.take_view, self._host_is_up, self.host_was_lost, problem, nodes)
        hosts.wants_taken = self._on_step is not None
        return hosts

    def take_view(self, view: ValidatorView) -> None:
        """Take all that a host reports of a validator."""
        run = self._run
        if self._on_step is not None:
            for step in steps_of(view, run.clock.began_epoch_ms):
                self._on_step(step)
        run.watch.take_view(run.clock.now_ms(), view)
        run.audit.take(view.index, view.observations)
        if run.loop.faults.is_listening:
            votes = (
                Voted(view.index, seen.view, seen.kind) for seen in view.observations if isinstance(seen, VoteSent)
            )
            for vote in filter(run.loop.faults.awaits, votes):
                run.see(vote)

    def host_was_lost(self, host: Host, reason: str, words: LastWords | None) -> None:
        """Tell the faults, or the user, of a host that went down by itself.

        Raises :class:`UserFileError` if a user's file is why: each process in its place would end in the same way.
        """
        run, names = self._run, self._run.loop.scenario.validators.names
        if words is not None and words.is_users:
            raise UserFileError(words.reason)
        if run.stage is not None and run.stage.on_lost(host, words):
            return
        carried = ", ".join(names[index] for index in host.validators)
        last = "" if words is None else f", {names[words.validator]} said: {words.reason}"
        log = run.folder / LOGS_FOLDER / f"host-{host.number}.log"
        problem = f"host {host.number} ({carried}) was lost: {reason}{last} (see {log})"
        run.record.problems.append(problem)
        run.notice(problem)

    def _host_is_up(self, host: Host) -> None:
        self._run.testnet.write_endpoints()

    def _node_was_lost(self, hosts: Sequence[Host], node: str, reason: str) -> None:
        if self._run.stage is not None:
            self._run.stage.note_lost_node(hosts, node, reason, self._run.watch.height)
