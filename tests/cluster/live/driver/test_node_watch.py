"""Lost nodes: their hosts are taken off them, and go elsewhere once their last processes are surely gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.common.errors import BadInput, TestnetError
from cluster.live.driver import node_watch
from cluster.live.driver.node_watch import (
    LEASE_S,
    LEASE_SLACK_S,
    LOOK_EVERY_S,
    NEW_NODE_PATIENCE_S,
    ORDER_AGAIN_S,
    NodeWatch,
)
from cluster.live.driver.supervised_host import Host
from cluster.live.host.host import ValidatorAddress
from cluster.live.network.transport import PeerAddress
from cluster.live.nodes.ray_nodes import HEAD_RESOURCE, Place, RayNode
from cluster.live.processes.history import Phase
from cluster.live.processes.processes import Process
from cluster.scenario import Scenario
from tests.cluster.live.handover.parts import again

LEASES_ARE_OVER_S = LEASE_S + LEASE_SLACK_S


class FakeSession:
    """A cluster with a head and some nodes."""

    is_ours = False
    own_node_id = "head"
    kept = None

    def __init__(self, count: int = 4) -> None:
        self.listed = [RayNode("head", "10.0.0.1", {}, {HEAD_RESOURCE: 1.0})]
        self.listed += [RayNode(f"n{number}", f"10.0.0.{number + 2}", {}, {}) for number in range(count)]
        self.ray: Any = None
        self.forgotten: list[Any] = []
        self.replaced = 0
        self.ended: list[tuple[str, bool]] = []
        self.is_certain: bool | None = True

    def nodes(self) -> list[RayNode]:
        return self.listed

    def forget(self, actor: Any) -> None:
        self.forgotten.append(actor)

    def have_ended(self, ended: Iterable[Process]) -> bool:
        return False  # those of other machines

    def replace_node(self) -> None:
        self.replaced += 1

    def node_signals(self, place: Place) -> Any:
        def end_node(kills: bool) -> bool | None:
            self.ended.append((place.node_id, kills))
            return self.is_certain

        return SimpleNamespace(end_node=end_node)

    def lose(self, node_id: str, forgets: bool = False) -> None:
        self.listed = [
            node._replace(is_alive=False, why_lost="health check failed") if node.node_id == node_id else node
            for node in self.listed
            if not (forgets and node.node_id == node_id)
        ]

    def join(self, node_id: str, **resources: float) -> None:
        self.listed.append(RayNode(node_id, f"address of {node_id}", {}, resources))

    def pass_time(self) -> None:
        """Somebody waits for a node."""


def cluster_of(nodes: int) -> Any:
    return FakeSession(nodes)


class Cluster:
    """A watch over the hosts of a scenario, and a clock."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        validators: Any,
        nodes: int = 4,
        session: Any = None,
        are_all_pinned: bool = False,
        **fields: Any,
    ) -> None:
        patch.setattr(node_watch, "Leases", lambda ray, hosts, lease_s: SimpleNamespace(close=lambda: None))
        self.now_s = 1_000.0
        patch.setattr(time, "monotonic", lambda: self.now_s)
        self.session: Any = session or cluster_of(nodes)
        self.notices: list[str] = []
        self.lost: list[tuple[list[int], str, str, list[bool]]] = []
        self.on_lost: Callable[[], None] = lambda: None
        self.watch = NodeWatch(self.session, self._lost, self.notices.append, self.wait, are_all_pinned)
        scenario = Scenario.model_validate({"name": "nodes", "validators": validators} | fields)
        places = self.watch.place_all(scenario, "127.0.0.1", self.start)
        section = scenario.validators
        self.hosts = []
        for number, place in enumerate(places):
            carried = [index for index in range(section.count) if section.host_of(index) == number]
            host = Host(number=number, place=place, validators=carried)
            host.actor, host.phase, host.processes.current = f"actor-{number}", Phase.UP, Process(100 + number, 1)
            host.reports.addresses = [ValidatorAddress(index, "", PeerAddress("", 0), "") for index in carried]
            self.hosts.append(host)
        self.watch.watch(self.hosts)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.session.pass_time()

    def start(self, host: Host) -> None:
        host.actor = f"another actor-{host.number}"

    def is_taken_over(self, lost: AbstractSet[str], hosts: list[Host] | None = None) -> None:
        """Another driver watches, which has heard of these lost nodes."""
        self.hosts = hosts or [again(host) for host in self.hosts]
        self.watch = NodeWatch(self.session, self._lost, self.notices.append, self.wait)
        scenario = Scenario.model_validate({"name": "nodes", "validators": len(self.hosts)})
        self.watch.take_over(self.hosts, scenario, "127.0.0.1", self.start, lost)

    def _lost(self, hosts: Any, node: str, reason: str) -> None:
        self.lost.append(([host.number for host in hosts], node, reason, [host.is_running for host in hosts]))

    def look(self, after_s: float = LOOK_EVERY_S) -> None:
        self.now_s += after_s
        self.watch.look()

    @property
    def places(self) -> list[str | None]:
        return [host.place.node_id if host.is_placed else None for host in self.hosts]


@pytest.mark.parametrize(
    ("nodes", "kept_s", "lease_s"), [(4, None, LEASE_S), (0, None, None), (0, 9.0, 9.0), (4, 9.0, 9.0)]
)
def test_hosts_have_leases_if_their_node_or_their_driver_may_be_lost(
    patch: pytest.MonkeyPatch, nodes: int, kept_s: float | None, lease_s: float | None
) -> None:
    session = cluster_of(nodes)
    session.kept = None if kept_s is None else SimpleNamespace(lease_s=kept_s)
    cluster = Cluster(patch, {"count": 4}, session=session)
    assert cluster.watch.lease_s == lease_s and (cluster.watch._leases is None) == (lease_s is None)


def test_hosts_of_a_lost_node_go_to_the_emptiest_ones_once_their_leases_are_over(patch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(patch, {"count": 8})
    assert cluster.places == ["n0", "n1", "n2", "n3"] * 2
    cluster.look()
    assert cluster.lost == []
    cluster.session.lose("n1")
    cluster.look()
    assert cluster.lost == [([1, 5], "10.0.0.3 (n1)", "health check failed", [True, True])], "told before they go down"
    assert cluster.session.forgotten == ["actor-1", "actor-5"]
    assert [cluster.hosts[number].processes.deaths for number in (1, 5)] == [1, 1]
    assert {cluster.hosts[number].phase for number in (1, 5)} == {Phase.DOWN}
    cluster.look(LEASES_ARE_OVER_S - 0.1)
    assert cluster.places == ["n0", None, "n2", "n3", "n0", None, "n2", "n3"], "they may still run there"
    cluster.session.join("n9")
    cluster.look()
    assert cluster.places == ["n0", "n9", "n2", "n3", "n0", "n9", "n2", "n3"]
    assert cluster.hosts[1].place.bind == "address of n9"
    assert cluster.hosts[1].pending_disk_operations == [("arrive", (1, 1, 1))]
    cluster.look()
    assert len(cluster.lost) == 1 and cluster.session.replaced == 1


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    return monkeypatch


def test_a_node_that_ray_forgot_is_lost(patch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(patch, {"count": 4})
    cluster.session.lose("n1", forgets=True)
    cluster.look()
    assert [numbers for numbers, *_ in cluster.lost] == [[1]]


def test_a_new_node_is_waited_for_before_another_gets_more_than_f(patch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(patch, {"count": 4})
    cluster.session.lose("n1")
    cluster.look()
    cluster.session.lose("head")  # it cannot help
    cluster.look(LEASES_ARE_OVER_S)
    assert cluster.places[1] is None
    cluster.look(NEW_NODE_PATIENCE_S - 2)
    assert cluster.places[1] is None
    cluster.look(2)
    assert cluster.places[1] == "n0", "none joined"
    assert cluster.notices[-2:] == [
        "no node joined: node 10.0.0.2 (n0) carries 2 validators, more than the 1 withstood",
        "host 1 goes to node 10.0.0.2 (n0)",
    ]


def test_hosts_wait_for_as_long_as_there_is_no_node(patch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(patch, {"count": 1}, nodes=1)
    assert cluster.places == ["n0"]
    cluster.session.lose("n0")
    cluster.session.lose("head")
    cluster.look()
    cluster.look(10 * NEW_NODE_PATIENCE_S)
    assert cluster.places == [None]
    cluster.session.join("n9")
    cluster.look()
    assert cluster.places == ["n9"]


def test_a_host_that_a_fault_holds_down_is_placed_when_it_lets_go(patch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(patch, {"count": 4})
    cluster.watch.end(cluster.hosts[1].place, kills=True)
    assert cluster.session.ended == [("n1", True)]
    cluster.hosts[1].is_held_down = True
    cluster.look(NEW_NODE_PATIENCE_S)
    assert cluster.places[1] is None
    cluster.hosts[1].is_held_down = False
    cluster.look()
    assert cluster.places[1] == "head", "its processes were seen to be gone: no lease is waited for"


def test_a_node_that_ray_ends_may_carry_hosts_until_their_leases_are_over(patch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(patch, {"count": 4})
    cluster.session.is_certain = False
    cluster.watch.end(cluster.hosts[1].place, kills=False)
    cluster.watch.end(cluster.hosts[1].place, kills=False)
    assert cluster.session.ended == [("n1", False)], "once"
    cluster.look(LEASES_ARE_OVER_S - 0.1)
    assert cluster.places[1] is None
    cluster.look()
    assert cluster.places[1] == "head"


def test_a_node_that_nobody_is_known_to_have_ended_is_not_lost(patch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(patch, {"count": 8})
    cluster.session.is_certain = None
    where = cluster.hosts[1].place
    for _ in range(2):
        cluster.watch.end(where, kills=True)
    assert cluster.session.ended == [("n1", True)], "a fault asks for each validator of the node, and it is asked once"
    assert cluster.notices == ["node 10.0.0.3 (n1) did not carry out the order to end: it is lost once Ray says so"]
    cluster.look()
    assert (cluster.lost, cluster.session.forgotten, cluster.hosts[1].processes.deaths) == ([], [], 0)
    cluster.now_s += ORDER_AGAIN_S
    cluster.watch.end(where, kills=True)
    assert len(cluster.session.ended) == 2, "by another fault"
    cluster.session.lose("n1")
    cluster.look()
    assert [numbers for numbers, *_ in cluster.lost] == [[1, 5]]


def test_neither_the_head_nor_the_drivers_node_is_ended(patch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(patch, {"count": 4})
    cluster.session.own_node_id = "n1"
    for place in (cluster.hosts[1].place, Place("head", "")):
        cluster.watch.end(place, kills=True)
    assert cluster.session.ended == [] and cluster.lost == []
    assert cluster.notices == [
        f"node {name} is not ended: the run would be lost with it" for name in ("10.0.0.3 (n1)", "10.0.0.1 (head)")
    ]


def test_a_failed_question_is_explained_by_a_node_that_was_lost_since_the_last_look(patch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(patch, {"count": 4})
    cluster.look()
    assert not cluster.watch.is_lost(cluster.hosts[1])
    cluster.session.lose("n1")
    assert cluster.watch.is_lost(cluster.hosts[1])
    assert not cluster.watch.is_lost(cluster.hosts[2])


def test_a_second_move_is_told_apart_from_one_that_came_to_nothing(patch: pytest.MonkeyPatch) -> None:
    """A disk counts if its validator ran on it last: before the first start elsewhere, that is still the first one."""
    cluster = Cluster(patch, {"count": 4})
    host = cluster.hosts[1]
    for move, is_told in ((1, False), (1, True), (2, True)):
        cluster.session.lose(host.place.node_id)
        cluster.look()
        cluster.session.join(f"new-{cluster.now_s}")
        cluster.look(LEASES_ARE_OVER_S)
        assert [arguments[:2] for _, arguments in host.pending_disk_operations] == [(1, move)]
        if is_told:
            host.pending_disk_operations.clear()


def test_a_single_node_is_not_watched_and_cannot_be_lost_on_purpose(patch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(patch, {"count": 4}, nodes=0)
    assert cluster.places == ["head"] * 4 and cluster.notices == []
    assert {host.place.bind for host in cluster.hosts} == {"127.0.0.1"}
    cluster.session.lose("head")
    cluster.look()
    assert cluster.lost == []
    fault = {"kind": "lose_node", "target": "validator-1", "at_height": 5}
    with pytest.raises(BadInput, match=r"faults\[0\].kind: lose_node: there is one Ray node"):
        Cluster(patch, {"count": 4}, nodes=0, faults=[fault])


def test_what_a_node_takes_with_it_is_told_before_the_start(patch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(patch, {"count": 4}, nodes=1)
    (notice,) = cluster.notices
    assert notice.endswith("would take 2 validators, and the network survives the loss of 1")


class JoiningSession(FakeSession):
    """A cluster whose nodes, one for each host, join one after the other."""

    def __init__(self, *joining: int) -> None:
        super().__init__(0)
        self.joining = list(joining)

    @classmethod
    def of_all(cls) -> JoiningSession:
        """All have joined."""
        session = cls()
        for host in range(4):
            session.join_for(host)
        return session

    def pass_time(self) -> None:
        if self.joining:
            self.join_for(self.joining.pop(0))

    def join_for(self, host: int, name: str = "p") -> None:
        self.join(f"{name}{host}", stampede_validators=1.0, **{f"stampede_host_{host}": 1.0})


def test_the_nodes_of_all_hosts_are_waited_for_at_the_start(patch: pytest.MonkeyPatch) -> None:
    session = JoiningSession(3, 1, 2)
    session.join_for(0)
    session.join("n9")
    cluster = Cluster(patch, {"count": 4}, session=session)
    assert cluster.places == ["p0", "p1", "p2", "p3"]
    assert cluster.notices == [
        "hosts 1, 2, 3: waiting for Ray nodes with the resources stampede_host_1, stampede_host_2, stampede_host_3"
    ], "once"
    assert cluster.now_s == 1_000.0 + 3 * LOOK_EVERY_S


def test_hosts_of_a_deployment_wait_before_the_first_node_is_there(patch: pytest.MonkeyPatch) -> None:
    assert Cluster(patch, {"count": 1}, session=JoiningSession(0), are_all_pinned=True).places == ["p0"]
    assert Cluster(patch, {"count": 1}, session=JoiningSession(0)).places == ["head"], "they may not come"


def test_a_host_whose_node_does_not_come_is_named(patch: pytest.MonkeyPatch) -> None:
    session = JoiningSession(0, 3)
    session.join_for(1)
    with pytest.raises(TestnetError) as error:
        Cluster(patch, {"count": 4}, session=session)
    assert str(error.value) == (
        "host 2 cannot be placed: no Ray node with stampede_host_2 joined within 300 s; expected a node with such a"
        " resource for each host, or for none"
    )


def test_a_host_waits_for_the_node_that_brings_its_disk(patch: pytest.MonkeyPatch) -> None:
    session = JoiningSession.of_all()
    cluster = Cluster(patch, {"count": 4}, session=session)
    session.join("n9")
    for life in (1, 2):
        session.lose(cluster.hosts[2].place.node_id, forgets=True)
        cluster.look()
        assert cluster.places == ["p0", "p1", None, "p3"]
        for _ in range(3):
            cluster.look(10 * NEW_NODE_PATIENCE_S)
            assert cluster.places[2] is None, "neither the head nor another node has its disk"
        waits = "host 2 waits for a Ray node with stampede_host_2: its disk comes with it"
        assert cluster.notices[-1] == waits and cluster.notices.count(waits) == life, "said once a loss"
        session.join_for(2, name=f"life-{life}-")
        cluster.look()
        assert cluster.places == ["p0", "p1", f"life-{life}-2", "p3"]
        assert cluster.hosts[2].pending_disk_operations == [("arrive", (2, life, life))]
        cluster.hosts[2].pending_disk_operations.clear()
        cluster.hosts[2].processes.current = Process(7, life)
        cluster.hosts[2].phase = Phase.UP


def test_another_driver_knows_that_a_host_waits_for_its_node(patch: pytest.MonkeyPatch) -> None:
    session = JoiningSession.of_all()
    cluster = Cluster(patch, {"count": 4}, session=session)
    session.lose("p1", forgets=True)
    cluster.look()
    cluster.is_taken_over(cluster.watch.lost)
    cluster.look(10 * NEW_NODE_PATIENCE_S)
    assert cluster.places[1] is None
    session.join_for(1, name="q")
    cluster.look()
    assert cluster.places[1] == "q1"


@pytest.mark.parametrize("is_found", [True, False], ids=["its actor is listed", "its actor is gone"])
def test_a_node_that_is_lost_while_there_is_no_driver_is_a_loss(patch: pytest.MonkeyPatch, is_found: bool) -> None:
    """Not the end of its hosts, nor of the run if all were there."""
    cluster = Cluster(patch, {"count": 1}, nodes=1)
    hosts = [again(host) for host in cluster.hosts]
    cluster.session.lose("n0")
    for host in hosts:
        host.find(lambda name: "actor" if is_found and name.endswith(".0") else None, lambda actor: None)
    cluster.is_taken_over(set(), hosts)
    assert (hosts[0].phase, cluster.places) == (Phase.DOWN, [None])
    assert [numbers for numbers, *_ in cluster.lost] == [[0]] and cluster.session.replaced == 1
    cluster.session.join("n9")
    cluster.look(LEASES_ARE_OVER_S + NEW_NODE_PATIENCE_S)
    assert cluster.places == ["n9"]


@pytest.mark.parametrize("is_certain", [True, False])
def test_a_lost_host_waits_for_leases_of_a_dead_driver_only_if_it_may_be_alive(
    patch: pytest.MonkeyPatch, is_certain: bool
) -> None:
    cluster = Cluster(patch, {"count": 4})
    cluster.session.lose("n1")
    cluster.hosts[1].lose_place(is_certain)
    cluster.hosts[1].actor = None
    cluster.is_taken_over({"n1"})
    cluster.session.join("n9")
    cluster.look(0.0)
    assert cluster.places[1] == ("n9" if is_certain else None)
    cluster.look(LEASES_ARE_OVER_S)
    assert cluster.places[1] == "n9"
    assert not cluster.hosts[1].processes.have_surely_ended, "it starts there"


class FakeRay:
    """Hosts answer with their logs, or do not."""

    exceptions = SimpleNamespace(RayError=ConnectionError)

    def wait(self, asked: list[Any], **_: object) -> tuple[list[Any], list[Any]]:
        return [each for each in asked if each is not None], [each for each in asked if each is None]

    def get(self, answer: Any) -> bytes:
        if isinstance(answer, Exception):
            raise answer
        return bytes(answer)


def test_logs_of_other_nodes_come_to_the_runs_folder(patch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cluster = Cluster(patch, {"count": 4})
    cluster.session.ray = FakeRay()
    cluster.session.own_node_id = "n0"
    answers = [b"of the driver's node", b"shared", b"from there", ConnectionError("its node is silent")]
    for host, answer in zip(cluster.hosts, answers, strict=True):
        host.actor = SimpleNamespace(read_log=SimpleNamespace(remote=lambda limit, answer=answer: answer))
    (tmp_path / "host-1.log").write_bytes(b"shared, and longer by now")
    (tmp_path / "host-2.log").write_bytes(b"of its process here, before it moved")
    cluster.watch.fetch_logs(tmp_path)
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {
        "host-1.log": b"shared, and longer by now",
        "host-2.log": b"from there",
        "host-2.0.log": b"of its process here, before it moved",
    }
    assert cluster.notices == ["the log of host 3 could not be fetched: its node is silent"]
