"""The Ray nodes of a run: which of them carry hosts, which are lost, and where the hosts of a lost node go.

A node is lost once Ray says so, or once the run itself has ended it; it never comes back. Each of its hosts is placed
on the living node with the fewest validators. If every node would carry more than ``f`` then, a new node is waited for
first. No host is placed again before its last process surely ended: the node may only be partitioned from the cluster.
So hosts hold leases (:mod:`cluster.live.host.lease`), which are renewed here as long as their node counts as alive.

A host with a dedicated Ray node (:mod:`cluster.live.nodes.placement`) waits for the replacement node, as long as the
run lasts: its disk comes with that node. At the start the nodes of all hosts are waited for.

A Ray on a single node has nothing to watch: if that is lost, so is the run.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cluster.common.errors import BadInput, TestnetError
from cluster.common.wording import counted, listed
from cluster.faults.kind import plans_of
from cluster.live.driver.ray_session import ADDRESS_VARIABLE, RaySession, one_line
from cluster.live.driver.supervised_host import Host
from cluster.live.nodes.placement import hosts_to_place, place
from cluster.live.nodes.ray_nodes import Place, RayNode, host_resource, hosts_with_nodes
from cluster.live.processes.history import Phase
from cluster.scenario import Scenario

LOOK_EVERY_S: Final = 1.0
LEASE_S: Final = 20.0
"""Length of a host's lease: longer than the usual transient failure of a link between nodes."""
LEASE_SLACK_S: Final = 2.0
"""A host ends at most this long after its lease."""
RENEW_EVERY_S: Final = 2.0
NEW_NODE_PATIENCE_S: Final = 60.0
"""How long a joining node is waited for, if all others would carry too many validators."""
OWN_NODES_PATIENCE_S: Final = 300.0
"""How long the start waits for the nodes of hosts: a volume has to be made, and an image may have to be pulled."""
ORDER_AGAIN_S: Final = 15.0
"""Seconds for which a node that did not carry out the order to end is not told again: a fault asks once for each of its
validators, and would wait for a silent node each time.
"""
MAX_LOG_BYTES: Final = 4 * 2**20
COMPARED_LOG_BYTES: Final = 4_096
LOGS_TIMEOUT_S: Final = 10.0

OnLost = Callable[[Sequence[Host], str, str], None]


@dataclass(slots=True)
class _Homeless:
    """A host of a lost node that waits for its next node."""

    host: Host
    may_start_s: float
    """Monotonic time after which its last process is surely gone."""
    waits_until_s: float
    """Monotonic time until which it waits for a node with room."""
    is_awaiting_own_node: bool = False
    """Whether it was reported that the host waits for its dedicated node."""


class NodeWatch:
    """Watches the Ray nodes of one run, places its hosts, and moves the hosts of lost nodes."""

    def __init__(
        self,
        session: RaySession,
        on_lost: OnLost,
        notice: Callable[[str], None],
        wait: Callable[[float], None],
        are_all_pinned: bool = False,
    ) -> None:
        """``on_lost(hosts, node, reason)`` is called before hosts are taken off a lost node. ``wait(seconds)``
        may raise to give up. With ``are_all_pinned`` each host has a dedicated node, or gets one.
        """
        self.hosts: list[Host] = []
        self._session = session
        self._on_lost = on_lost
        self._notice = notice
        self._wait = wait
        self._are_all_pinned = are_all_pinned
        self._start: Callable[[Host], None]
        self._scenario: Scenario
        self._bind = ""
        self._homeless: list[_Homeless] = []
        self.lost: set[str] = set()
        """Ids of the lost nodes that carried hosts."""
        self._next_orders_s: dict[str, float] = {}
        """The earliest time to repeat the order to end (monotonic), keyed by the id of a node that did not end."""
        self.are_watched = False
        """Whether nodes are watched: there are several, so that the run goes on if one is lost."""
        self._looked = float("-inf")
        self._leases: Leases | None = None

    def place_all(self, scenario: Scenario, bind: str, start: Callable[[Host], None]) -> list[Place]:
        """Choose a place for each host of a scenario. Returns the places by host number.

        ``bind`` is the address to listen on in a Ray of our own, and on a single node. ``start`` creates the actor of a
        host that moved. Raises :class:`BadInput`, and :class:`TestnetError` if a host that needs a dedicated node gets
        none.
        """
        wanted = hosts_to_place(scenario)
        nodes = self._nodes_for({host.number for host in wanted})
        self._begin(scenario, bind, start)
        self.are_watched = len(nodes) > 1
        for position, fault in enumerate(plans_of(scenario)):
            if fault.ends_nodes and not self.are_watched:
                raise BadInput(
                    f"faults[{position}].kind: {fault.kind_name}: there is one Ray node, and the run would be lost with"
                    f" it; expected validators.ray_nodes above 1, or the {ADDRESS_VARIABLE} of a cluster with more"
                )
        found = place(wanted, nodes, scenario.validators.withstood)
        for warning in found.warnings if self.are_watched else ():
            self._notice(warning)
        return [self._place_on(found.nodes[host.number]) for host in wanted]

    def _nodes_for(self, hosts: Set[int]) -> list[RayNode]:
        """The nodes of the cluster. If some hosts have dedicated nodes, waits until all have."""
        deadline, is_said = time.monotonic() + OWN_NODES_PATIENCE_S, False
        while True:
            nodes = self._session.nodes()
            found = hosts_with_nodes(nodes) & hosts
            if found == hosts or not (found or self._are_all_pinned):
                return nodes
            missing = sorted(hosts - found)
            wanted = ", ".join(map(host_resource, missing))
            if time.monotonic() >= deadline:
                raise TestnetError(
                    f"{listed('host', missing)} cannot be placed: no Ray node with {wanted} joined within"
                    f" {OWN_NODES_PATIENCE_S:g} s; expected a node with such a resource for each host, or for none"
                )
            if not is_said:
                self._notice(f"{listed('host', missing)}: waiting for Ray nodes with the resources {wanted}")
                is_said = True
            self._wait(LOOK_EVERY_S)

    def _begin(self, scenario: Scenario, bind: str, start: Callable[[Host], None]) -> None:
        self._scenario, self._bind, self._start = scenario, bind, start

    def watch(self, hosts: list[Host]) -> None:
        """Watch the nodes of these hosts from now on, and renew their leases."""
        self.hosts = hosts
        if self.lease_s is not None:
            self._leases = Leases(
                self._session.ray, lambda: [(host.number, host.actor) for host in hosts], self.lease_s
            )

    def take_over(
        self, hosts: list[Host], scenario: Scenario, bind: str, start: Callable[[Host], None], lost: Set[str]
    ) -> None:
        """Watch the hosts of another driver. ``lost`` are the nodes that were lost before its checkpoint.

        Nodes that failed since then are counted as lost now. A host without a place gets one once every lease that the
        other driver may have given is over. It gets one at once if its last process had surely ended: a later actor
        that the other driver may have created carries no validator.
        """
        self._begin(scenario, bind, start)
        self.lost = set(lost)
        self.are_watched = len(self._session.nodes()) > 1
        for host in hosts:
            if not host.is_placed and host.phase is not Phase.DEAD:
                self._await_node(host)
        self.watch(hosts)
        if self.are_watched:
            self._look_at(self._session.nodes())

    @property
    def lease_s(self) -> float | None:
        """Length of the lease that each host has from the start of its process; ``None`` if hosts have no leases."""
        return self._lease_s if self.are_watched or self._session.kept is not None else None

    @property
    def _lease_s(self) -> float:
        kept = self._session.kept
        return LEASE_S if kept is None else kept.lease_s

    def close(self) -> None:
        """Stop renewing leases."""
        if self._leases is not None:
            self._leases.close()

    # --- what is known ------------------------------------------------------------------------------------------------

    def is_lost(self, host: Host) -> bool:
        """Whether a host is on a lost node; always asks Ray again."""
        if self.are_watched and host.is_placed:
            self._look_at(self._session.nodes())
        return not host.is_placed

    # --- what is done -------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Take hosts off lost nodes, and place those that may start elsewhere."""
        if not self.are_watched or time.monotonic() < self._looked + LOOK_EVERY_S:
            return
        nodes = self._session.nodes()
        self._looked = time.monotonic()
        self._look_at(nodes)
        self._place_homeless([node for node in nodes if node.node_id not in self.lost])

    def end(self, where: Place, kills: bool) -> None:
        """End a node for good: with ``kills`` its processes are killed at once, otherwise Ray ends it.

        The head and the driver's own node are never ended: the cluster and the run would be lost with them. If no
        process on the node confirms the order, the node counts as lost only once Ray says so.
        """
        node = self._living(where)
        if node is None or time.monotonic() < self._next_orders_s.get(node.node_id, 0.0):
            return
        if node.is_head or node.node_id == self._session.own_node_id:
            self._notice(f"node {node.name} is not ended: the run would be lost with it")
            return
        is_certain = self._session.node_signals(where).end_node(kills)
        if is_certain is None:
            self._next_orders_s[node.node_id] = time.monotonic() + ORDER_AGAIN_S
            self._notice(f"node {node.name} did not carry out the order to end: it is lost once Ray says so")
            return
        self._lose(node, "all its processes were killed" if kills else "Ray ended it", is_certain)

    def lose(self, where: Place, reason: str) -> None:
        """Count a node as lost, since it is about to end with its pod. Its hosts move once their leases are over."""
        node = self._living(where)
        if node is not None:
            self._lose(node, reason, False)

    def _living(self, where: Place) -> RayNode | None:
        """The node of a place, unless it is lost already."""
        if where.node_id in self.lost:
            return None
        return next((node for node in self._session.nodes() if node.node_id == where.node_id), None)

    def fetch_logs(self, folder: Path) -> None:
        """Copy the ends of the logs of hosts on other nodes to a folder, unless the nodes share it.

        A log that is there already, of an earlier process of the host, is kept under another name.
        """
        if not self.are_watched or self._session.is_ours:
            return
        away = [host for host in self.hosts if host.is_placed and host.place.node_id != self._session.own_node_id]
        asked = {host.actor.read_log.remote(MAX_LOG_BYTES): host for host in away}
        answered = (
            self._session.ray.wait(list(asked), num_returns=len(asked), timeout=LOGS_TIMEOUT_S)[0] if asked else []
        )
        for answer in answered:
            target = folder / f"host-{asked[answer].number}.log"
            try:
                log = self._session.ray.get(answer)
                if target.exists():
                    if log[-COMPARED_LOG_BYTES:] in target.read_bytes():
                        continue  # it is the same file, which may have grown meanwhile
                    target.rename(target.with_suffix(f".{asked[answer].moves}.log"))
                target.write_bytes(log)
            except (self._session.ray.exceptions.RayError, OSError) as error:
                self._notice(f"the log of host {asked[answer].number} could not be fetched: {one_line(error)}")

    def _look_at(self, nodes: Sequence[RayNode]) -> None:
        known = {node.node_id: node for node in nodes}
        for node_id in {host.place.node_id for host in self.hosts if host.is_on_a_node}:
            node = known.get(node_id) or RayNode(node_id, "", {}, {}, False, "Ray does not know it any more")
            if not node.is_alive:
                self._lose(node, node.why_lost or "Ray does not say why", False)

    def _lose(self, node: RayNode, reason: str, is_certain: bool) -> None:
        hosts = self._on(node.node_id)
        self.lost.add(node.node_id)
        carried = listed("host", [host.number for host in hosts])
        self._notice(f"node {node.name} is lost with {carried}: {reason}")
        self._on_lost(hosts, node.name, reason)
        is_certain = is_certain or self._session.have_ended([each for host in hosts for each in host.processes.known])
        for host in hosts:
            if host.is_placed:
                self._session.forget(host.actor)
            host.lose_place(is_certain)
            self._await_node(host)
        self._session.replace_node()

    def _await_node(self, host: Host) -> None:
        """Have a host without a place wait until its last process has surely ended, and for a node."""
        lease_s = 0.0 if host.processes.have_surely_ended else self._lease_s + LEASE_SLACK_S
        may_start_s = time.monotonic() + lease_s
        self._homeless.append(_Homeless(host, may_start_s, may_start_s + NEW_NODE_PATIENCE_S))

    def _place_homeless(self, nodes: Sequence[RayNode]) -> None:
        now_s = time.monotonic()
        ready = [each for each in self._homeless if each.may_start_s <= now_s and not each.host.is_held_down]
        if not ready:
            return
        carried = Counter[str]()
        for host in self.hosts:
            if host.is_placed:
                carried[host.place.node_id] += len(host.validators)
        pinned = {host.number for host in self.hosts if host.place.is_own}
        numbers, withstood = {each.host.number for each in ready}, self._scenario.validators.withstood
        wanted = [host for host in hosts_to_place(self._scenario) if host.number in numbers]
        found = place(wanted, nodes, withstood, carried, pinned)
        for each in ready:
            node = found.nodes.get(each.host.number)
            if node is None and each.host.place.is_own and not each.is_awaiting_own_node:
                each.is_awaiting_own_node = True
                number = each.host.number
                self._notice(f"host {number} waits for a Ray node with {host_resource(number)}: its disk comes with it")
            has_room = each.host.place.is_own or (node is not None and found.counts[node.node_id] <= withstood)
            if node is None or not (has_room or now_s >= each.waits_until_s):
                continue
            if not has_room:
                count = counted(found.counts[node.node_id], "validator")
                self._notice(f"no node joined: node {node.name} carries {count}, more than the {withstood} withstood")
            self._homeless.remove(each)
            self._notice(f"host {each.host.number} goes to node {node.name}")
            each.host.move(self._place_on(node))
            self._start(each.host)

    def _on(self, node_id: str) -> list[Host]:
        return [host for host in self.hosts if host.is_on_a_node and host.place.node_id == node_id]

    def _place_on(self, node: RayNode) -> Place:
        is_alone = self._session.is_ours or not self.are_watched
        return Place(node.node_id, self._bind if is_alone else node.address, bool(node.own_hosts))


class Leases:
    """Renews the leases of the hosts that have a place, from a separate thread: the driver may be busy for long."""

    def __init__(self, ray: Any, actors: Callable[[], Iterable[tuple[int, Any]]], lease_s: float) -> None:
        """``actors`` returns the numbers and actors of the hosts; the actor of one without a place is ``None``."""
        self._ray = ray
        self._actors = actors
        self._lease_s = lease_s
        self._open: dict[int, tuple[Any, Any]] = {}
        """The actor that was asked and its pending answer, keyed by host number: one question per host at a time."""
        self._heard: dict[int, tuple[Any, float]] = {}
        """The actor that answered last and its clock, keyed by host number: a renewal counts from that time."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(RENEW_EVERY_S):
            for number, actor in self._actors():
                if actor is not None:
                    self._renew(number, actor)

    def _renew(self, number: int, actor: Any) -> None:
        if number in self._open:
            asked, answer = self._open[number]
            if not self._ray.wait([answer], timeout=0)[0]:
                return
            with suppress(self._ray.exceptions.RayError):  # it is down
                self._heard[number] = asked, self._ray.get(answer)
        known, heard_s = self._heard.get(number, (None, None))
        self._open[number] = actor, actor.keep.remote(self._lease_s, heard_s if known is actor else None)
