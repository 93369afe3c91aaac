"""How faults are done by Kubernetes, step by step, against a server that speaks its API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cluster.common.errors import BadInput
from cluster.faults.events import FaultCall, InForce
from cluster.faults.impairment import Stress
from cluster.faults.kinds.kill import KillFault
from cluster.faults.link_effects import LinkCounts, LinkEffect, Seen
from cluster.faults.link_kind import LinkFault
from cluster.live.means import Agenda
from cluster.live.processes import cleanup_watchdog
from cluster.scenario import Scenario
from kits.kubernetes.faults import leftovers as leftovers_module
from kits.kubernetes.faults import means as means_module
from kits.kubernetes.faults.leftovers import Leftovers
from kits.kubernetes.faults.means import Evict, KubernetesMeans
from kits.kubernetes.faults.pods import Pod, Pods
from kits.kubernetes.faults.stress import IN_FORCE_WITHIN_MS, TRY_EVERY_MS, ProcessorStress
from tests.kits.kubernetes.api_server import ApiServer, pod_of_host

DOWN_MS = 1_000
PARTITION = {"kind": "partition", "groups": [["validator-0"]], "for_ms": 5_000}
HALF = {"kind": "cut", "from": ["validator-0"], "to": ["validator-1"], "for_ms": 5_000}
HOST_1 = "smoke-host-1-x7k2p"


class Run:
    """A testnet with a clock; hosts are lost as they are told to be."""

    def __init__(self, cluster: ApiServer | None, *faults: dict[str, Any], validators: Any = 4) -> None:
        timed = [{"how": "chaos-mesh", "at_height": 5, **fault} for fault in faults]
        self.scenario = Scenario.model_validate({"name": "means", "validators": validators, "faults": timed})
        self.now = 0.0
        self.agenda = Agenda(lambda: self.now)
        self.lost: list[tuple[int, str]] = []
        self.notices: list[str] = []
        self.in_force: list[str] = []
        self.told: list[Mapping[str, Any]] = []
        self.awaited: list[str] = []
        """What is to be in force, by key."""
        self.means = self.make_means()
        self.means.leftovers.api = None if cluster is None else cluster.api()

    def make_means(self) -> KubernetesMeans:
        means = KubernetesMeans(self.scenario, self.notices.append, self.told.append)
        means.port = self
        return means

    def make(self, what: FaultCall) -> None:
        assert isinstance(what, InForce)
        self.in_force.append(self.awaited[what.key])

    def then(self, what: str) -> FaultCall:
        """A call that says that something is in force."""
        self.awaited.append(what)
        return InForce(len(self.awaited) - 1)

    def lose_node(self, host: int, reason: str) -> None:
        self.lost.append((host, reason))

    def link_counts(self, key: int) -> LinkCounts:
        return LinkCounts(sent=9, dropped=9)

    def pass_ms(self, ms: int) -> None:
        until = self.now + ms
        while (at_ms := self.agenda.next_ms) is not None and at_ms <= until:
            self.now = at_ms
            self.agenda.perform()
        self.now = until

    def kill(self, how: str, host: int = 1) -> None:
        plan = KillFault(kind="kill", target=[f"validator-{host}"], at_height=5, down_ms=DOWN_MS, how=how)  # type: ignore[arg-type]
        assert plan.way.is_of_pods
        self.means.take(host, plan.way)

    @property
    def link_faults(self) -> dict[int, LinkEffect]:
        plans, names = enumerate(self.scenario.planned_faults), self.scenario.validators.names
        return {key: plan.effect(names) for key, plan in plans if isinstance(plan, LinkFault)}

    def set_links(self, what: str, *keys: int) -> list[int]:
        """Have some of the faults in force. Returns those that are the transport's."""
        wanted = {key: self.link_faults[key] for key in keys}
        others, then = self.means.set_links(wanted, self.then(what))
        then()  # the transport has its own
        return list(others)

    def seen(self, key: int) -> Seen:
        return self.means.seen_on_links(key, self.link_faults[key])


# --- pods -------------------------------------------------------------------------------------------------------------


def test_a_pod_is_deleted_and_its_node_is_lost_at_once(cluster: ApiServer) -> None:
    run = Run(cluster)
    run.kill("pod")
    words = f"pod {HOST_1} was deleted"
    assert run.lost == [(1, words)] and HOST_1 not in cluster.pods and len(cluster.pods) == 4
    assert run.means.describe([0, 1]) == [words]
    assert run.means.describe([1]) == [], "it is said of one fault"
    assert run.notices == []


def test_a_pod_that_may_not_be_deleted_is_one_line_and_no_effect(cluster: ApiServer) -> None:
    cluster.refused["DELETE"] = 403
    run = Run(cluster)
    run.kill("pod")
    problem = f"host 1 was not taken down: {cluster.url}: delete pods in namespace testnets: status 403: is forbidden"
    assert run.notices == [problem] == run.means.describe([1])
    assert run.lost == [] and HOST_1 in cluster.pods


def test_a_node_carries_no_other_pod_until_the_down_time_is_over(cluster: ApiServer) -> None:
    run = Run(cluster)
    run.kill("node")
    words = f"pod {HOST_1} was evicted from machine-1"
    assert run.lost == [(1, words)] and HOST_1 not in cluster.pods
    assert cluster.nodes["machine-1"]["spec"] == {"unschedulable": True}
    assert cluster.nodes["machine-0"]["spec"] == {}
    run.pass_ms(DOWN_MS - 1)
    assert cluster.nodes["machine-1"]["spec"] == {"unschedulable": True}
    run.pass_ms(1)
    assert cluster.nodes["machine-1"]["spec"] == {}
    asked = len(cluster.asked)
    run.means.leftovers.close()
    assert len(cluster.asked) == asked, "nothing is left to be done"


def test_an_eviction_that_a_budget_forbids_is_tried_until_the_down_time_is_over(cluster: ApiServer) -> None:
    cluster.refused_evictions = 2
    run = Run(cluster)
    run.kill("node")
    run.pass_ms(TRY_EVERY_MS)
    assert run.lost == []
    run.pass_ms(TRY_EVERY_MS)
    assert [host for host, _ in run.lost] == [1]

    cluster.refused_evictions = 100
    run.kill("node", host=3)
    run.pass_ms(DOWN_MS)
    assert [host for host, _ in run.lost] == [1], "the others needed it"
    assert run.notices == [
        "host 3 was not taken down: a disruption budget kept pod smoke-host-3-x7k2p on machine-1 for the whole down"
        " time"
    ]
    assert cluster.nodes["machine-1"]["spec"] == {}
    run.pass_ms(10 * DOWN_MS)
    assert "smoke-host-3-x7k2p" in cluster.pods


def test_a_pod_that_goes_by_itself_was_not_evicted(cluster: ApiServer) -> None:
    cluster.refused_evictions = 1
    run = Run(cluster)
    run.kill("node")
    cluster.add({**pod_of_host(1, "machine-1"), "metadata": pod_of_host(1)["metadata"] | {"uid": "of another one"}})
    run.pass_ms(TRY_EVERY_MS)
    assert run.lost == [], "the host's new pod stays"
    assert run.notices == [
        f"host 1 was not taken down: pod {HOST_1} went before it could be evicted; the host may be in another one"
    ]


def test_a_node_of_two_faults_is_free_after_the_last(cluster: ApiServer) -> None:
    run = Run(cluster)
    run.kill("node", host=1)
    run.pass_ms(DOWN_MS // 2)
    run.kill("node", host=3)
    run.pass_ms(DOWN_MS // 2)
    assert cluster.nodes["machine-1"]["spec"] == {"unschedulable": True}
    run.pass_ms(DOWN_MS // 2)
    assert cluster.nodes["machine-1"]["spec"] == {}


def test_a_node_that_somebody_else_cordoned_stays_so(cluster: ApiServer) -> None:
    cluster.nodes["machine-1"]["spec"]["unschedulable"] = True
    run = Run(cluster)
    run.kill("node")
    run.pass_ms(2 * DOWN_MS)
    run.means.leftovers.close()
    assert cluster.nodes["machine-1"]["spec"] == {"unschedulable": True}


def test_a_node_is_freed_at_the_end_of_the_run(cluster: ApiServer) -> None:
    run = Run(cluster)
    run.kill("node")
    cluster.refused["PATCH"] = 403
    run.pass_ms(DOWN_MS)
    assert run.notices == [
        f"node machine-1 still carries no new pods: {cluster.url}: patch nodes: status 403: is forbidden"
    ]
    cluster.refused.clear()
    run.means.leftovers.close()
    assert cluster.nodes["machine-1"]["spec"] == {}
    run.kill("node", host=3)
    run.means.leftovers.close()
    assert cluster.nodes["machine-1"]["spec"] == {}, "before its down time was over"


def test_a_pod_is_killed_by_chaos_mesh(cluster: ApiServer) -> None:
    cluster.looks_until_injected = 3
    run = Run(cluster)
    run.kill("chaos-mesh")
    ((name, made),) = cluster.chaos.items()
    assert made["kind"] == "PodChaos" and run.lost == []
    run.pass_ms(2 * TRY_EVERY_MS)
    assert run.lost == [(1, f"Chaos Mesh killed pod {HOST_1} (podchaos {name})")]
    assert cluster.chaos == {}, "it is not to kill the next one"


def test_a_kill_that_chaos_mesh_does_not_do_is_no_effect(cluster: ApiServer) -> None:
    cluster.looks_until_injected = -1
    run = Run(cluster)
    run.kill("chaos-mesh")
    run.pass_ms(DOWN_MS)
    assert run.lost == [] and cluster.chaos == {}
    (notice,) = run.notices
    assert notice.startswith(f"host 1 was not taken down: Chaos Mesh did not kill pod {HOST_1} within the down time")


def test_without_chaos_mesh_the_pod_is_deleted_and_that_is_said(cluster: ApiServer) -> None:
    cluster.has_chaos_mesh = False
    run = Run(cluster)
    run.kill("chaos-mesh")
    words = f"pod {HOST_1} was deleted, not killed by Chaos Mesh: the cluster does not have it"
    assert run.lost == [(1, words)] and run.means.describe([1]) == [words]


def test_outside_of_kubernetes_a_signal_stands_in_for_chaos_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STAMPEDE_NAMESPACE", raising=False)
    run = Run(None)
    plan = KillFault(kind="kill", target=["validator-1"], at_height=5, how="chaos-mesh")
    assert not run.means.has_pods
    run.means.note_signal(1, plan.way)
    (words,) = run.means.describe([1])
    assert words.startswith(
        "killed by a signal, not by Chaos Mesh: this is not a pod of Kubernetes: STAMPEDE_NAMESPACE"
    )
    run.means.note_signal(1, plan.way._replace(how="process"))
    assert run.means.describe([1]) == [], "as it was asked for"


# --- links ------------------------------------------------------------------------------------------------------------


def test_a_partition_is_in_force_once_all_pods_have_it(cluster: ApiServer) -> None:
    cluster.looks_until_injected = 3
    run = Run(cluster, PARTITION)
    assert run.set_links("begun", 0) == [], "nothing is the transport's"
    names = list(cluster.chaos)
    assert len(names) == 2 and run.in_force == []
    run.pass_ms(TRY_EVERY_MS)
    assert run.in_force == []
    run.pass_ms(5 * TRY_EVERY_MS)
    assert run.in_force == ["begun"]
    assert run.set_links("over") == []
    assert cluster.chaos == {} and run.in_force == ["begun", "over"]
    assert run.seen(0) == Seen(True, f"in force on all pods by Chaos Mesh (networkchaos {', '.join(names)})")


def test_a_partition_that_is_never_in_force_had_no_effect(cluster: ApiServer) -> None:
    cluster.looks_until_injected = -1
    run = Run(cluster, PARTITION)
    run.set_links("begun", 0)
    run.pass_ms(IN_FORCE_WITHIN_MS)
    assert run.in_force == ["begun"], "the run goes on"
    seen = run.seen(0)
    assert not seen.took_effect and seen.evidence.startswith("Chaos Mesh did not put networkchaos smoke-")


def test_the_transport_does_what_pods_cannot_be_told_apart_for(cluster: ApiServer) -> None:
    run = Run(cluster, PARTITION, HALF, validators={"count": 8, "hosts": 4})
    assert run.set_links("begun", 0, 1) == [0, 1] and run.in_force == ["begun"]
    assert cluster.chaos == {}
    assert [notice.partition(": pods cannot tell")[0] for notice in run.notices] == [
        "partition of validator-0: by the validators' transport, not Chaos Mesh",
        "cut of validator-0 <> validator-1: by the validators' transport, not Chaos Mesh",
    ]
    assert run.seen(1) == Seen(True, "9 messages dropped by the validators' transport, not Chaos Mesh")
    run.set_links("again", 1)
    assert len(run.notices) == 2, "said once"


def test_each_fault_goes_its_own_way(cluster: ApiServer) -> None:
    run = Run(cluster, PARTITION, {**HALF, "how": "transport"})
    assert run.set_links("begun", 0, 1) == [1]
    assert run.notices == [] and len(cluster.chaos) == 2
    assert run.seen(1) == Seen(True, "9 messages dropped"), "as ever"


def test_without_chaos_mesh_the_transport_does_it(cluster: ApiServer) -> None:
    cluster.has_chaos_mesh = False
    run = Run(cluster, PARTITION)
    assert run.set_links("begun", 0) == [0]
    assert run.notices[0].endswith("not Chaos Mesh: the cluster does not have it")
    outside = Run(None, PARTITION)
    assert outside.set_links("begun", 0) == [0]
    assert "this is not a pod of Kubernetes" in outside.notices[0]


def test_a_fault_that_is_made_by_half_is_taken_back(cluster: ApiServer) -> None:
    run = Run(cluster, PARTITION)
    api = run.means.leftovers.api
    assert api is not None
    begin = api.begin_chaos

    def fails_later(plural: str, chaos: Any) -> None:
        cluster.refused |= {"POST": 403} if cluster.chaos else {}
        begin(plural, chaos)

    api.begin_chaos = fails_later  # type: ignore[method-assign]
    assert run.set_links("begun", 0) == [0]
    assert cluster.chaos == {}
    assert run.notices[0].endswith("status 403: is forbidden")


def test_the_end_of_the_run_takes_everything_back(cluster: ApiServer) -> None:
    run = Run(cluster, PARTITION)
    cluster.looks_until_injected = -1
    run.set_links("begun", 0)
    run.kill("chaos-mesh")
    assert len(cluster.chaos) == 3
    run.means.leftovers.close()
    assert cluster.chaos == {}
    run.means.leftovers.close()


def test_what_cannot_be_taken_back_is_named(cluster: ApiServer) -> None:
    run = Run(cluster, PARTITION)
    run.set_links("begun", 0)
    cluster.refused["DELETE"] = 403
    run.means.leftovers.close()
    assert [notice.partition(" is still there: ")[0] for notice in run.notices] == [
        f"networkchaos {name}" for name in cluster.chaos
    ]


def test_the_watchdog_of_a_driver_that_was_killed_takes_back_what_it_was_told_of(
    cluster: ApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = Run(cluster, PARTITION)
    run.set_links("begun", 0)
    run.kill("node")
    assert len(cluster.chaos) == 2 and cluster.nodes["machine-1"]["spec"] == {"unschedulable": True}
    made: list[tuple[str, str]] = []

    def api(namespace: str, instance: str) -> Pods:
        made.append((namespace, instance))
        return cluster.api()

    monkeypatch.setattr(leftovers_module, "Pods", api)
    facts = json.loads(json.dumps(run.told[-1]))  # it goes through a pipe
    cleanup_watchdog._clean_up(str(tmp_path), {}, leftovers=facts)
    assert made == [("testnets", "smoke")]
    assert cluster.chaos == {} and cluster.nodes["machine-1"]["spec"] == {}
    run.means.leftovers.close()
    assert (run.told[-1]["objects"], run.told[-1]["nodes"]) == ({}, []), "then it has nothing to do"


def test_what_is_about_to_be_made_is_told_before(cluster: ApiServer) -> None:
    cluster.refused |= {"POST": 403, "PATCH": 403}
    run = Run(cluster, PARTITION)
    run.set_links("begun", 0)
    run.kill("node")
    assert any(told["objects"] for told in run.told) and any(told["nodes"] for told in run.told)
    cluster.refused.clear()
    run.means.leftovers.close()
    assert cluster.nodes["machine-1"]["spec"] == {} and run.lost == []


# --- from driver to driver --------------------------------------------------------------------------------------------


def left_to_another(run: Run) -> tuple[dict[str, Any], Run]:
    """The state that a driver leaves, and the driver that takes it over."""
    means, other = run.means, Run(None)
    means._count, means._links, means._seen = 3, {0: ["a", "b"]}, {1: Seen(True, "in force")}
    means._otherwise, means._words = {2: "no Chaos Mesh"}, {1: "pod deleted"}
    means.stress._names, means.stress._seen = {1: "c"}, {1: Seen(False, "")}
    means.stress._wanted = {1: Stress(8, 5)}
    means.leftovers._objects, means.leftovers._cordoned["n1"] = {"a": "networkchaos"}, 2
    means._calls = [(7.5, Evict(2, Pod("p", "u", "n1"), 3))]
    left = means.state
    other.means.take_over(json.loads(json.dumps(left)))
    other.means.note()
    return left, other


def test_another_driver_knows_what_the_cluster_was_asked_for(cluster: ApiServer) -> None:
    left, other = left_to_another(Run(cluster))
    assert other.means.state == left
    assert other.told[-1]["objects"] == {"a": "networkchaos"}, "its watchdog knows what to take back"


@pytest.mark.parametrize(
    ("part", "attribute", "forgotten"),
    [(KubernetesMeans, "_count", -1), (ProcessorStress, "_names", {9: "none"}), (Leftovers, "_objects", {"none": ""})],
)
def test_a_part_that_forgets_something_is_found_out(
    cluster: ApiServer, monkeypatch: pytest.MonkeyPatch, part: Any, attribute: str, forgotten: object
) -> None:
    """The faults that the test above would find: each is planted here."""
    take_over = part.take_over

    def takes_over(self: Any, *arguments: Any) -> None:
        take_over(self, *arguments)
        setattr(self, attribute, forgotten)

    monkeypatch.setattr(part, "take_over", takes_over)
    left, other = left_to_another(Run(cluster))
    assert other.means.state != left


def test_a_call_to_come_is_the_same_for_another_driver(cluster: ApiServer) -> None:
    cluster.looks_until_injected = -1
    run, other = Run(cluster, PARTITION), Run(cluster, PARTITION)
    run.kill("chaos-mesh")
    run.set_links("begun", 0)
    other.means.take_over(json.loads(json.dumps(run.means.state)))
    other.means.go_on()
    made = len(cluster.chaos)
    assert other.set_links("begun", 0) == [] and len(cluster.chaos) == made, "it is awaited, and not made again"
    assert other.in_force == []
    other.pass_ms(IN_FORCE_WITHIN_MS)
    assert other.in_force == ["begun"] and other.lost == []
    assert [notice.partition(" within")[0] for notice in other.notices] == [
        f"host 1 was not taken down: Chaos Mesh did not kill pod {HOST_1}"
    ]


# --- before the start -------------------------------------------------------------------------------------------------


@pytest.fixture
def in_a_pod(cluster: ApiServer, monkeypatch: pytest.MonkeyPatch) -> ApiServer:
    monkeypatch.setattr(means_module, "why_not_in_a_pod", lambda environment: "")
    monkeypatch.setattr(Pods, "of_this_pod", staticmethod(cluster.api))
    return cluster


def faults_of(*hows: str) -> Any:
    faults = [{"kind": "kill", "target": "validator-1", "at_height": 5, "how": how} for how in hows]
    return Scenario.model_validate({"name": "refused", "faults": faults}).planned_faults


@pytest.mark.parametrize("how", ["pod", "node"])
def test_a_fault_of_kubernetes_is_refused_elsewhere(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STAMPEDE_NAMESPACE", raising=False)
    with pytest.raises(BadInput) as error:
        Run(None).means.prepare(faults_of("actor", how))
    assert str(error.value) == (
        f"faults[1].how: {how}: only a driver in a pod with access to the Kubernetes API can do this (stampede k8s"
        " run; for a fault that is added later with kubernetes.inject): STAMPEDE_NAMESPACE is not set; expected actor"
        " or process elsewhere"
    )
    run = Run(None)
    run.means.prepare(faults_of("actor", "process", "chaos-mesh"))
    assert not run.means.has_pods, "something stands in for Chaos Mesh"


def test_a_pod_without_rights_is_refused(in_a_pod: ApiServer) -> None:
    run = Run(None)
    run.means.prepare(faults_of("pod"))
    assert run.means.has_pods
    in_a_pod.refused["GET"] = 403
    with pytest.raises(BadInput, match=r"faults\[0\].how: pod: .*: status 403: is forbidden; expected"):
        Run(None).means.prepare(faults_of("pod"))


def test_a_run_without_such_faults_asks_nobody(in_a_pod: ApiServer) -> None:
    run = Run(None)
    run.means.prepare(faults_of("actor", "process"))
    assert not run.means.has_pods and in_a_pod.asked == []


def test_another_driver_goes_on_with_what_is_there(cluster: ApiServer) -> None:
    run = Run(cluster, PARTITION)
    run.set_links("begun", 0)
    found = run.make_means()
    found.take_over(json.loads(json.dumps(run.means.state)))
    api = found.leftovers.api
    assert api is not None and (api.namespace, api.instance) == ("testnets", "smoke")
    found.leftovers.api = cluster.api()
    assert len(cluster.chaos) == 2
    found.leftovers.close()
    assert cluster.chaos == {}
