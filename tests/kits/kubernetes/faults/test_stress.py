"""``slow_execution`` by Chaos Mesh, step by step, against a server that speaks its API."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from cluster.faults.impairment import Impairment
from cluster.faults.kinds.slow_execution import SlowExecutionFault
from cluster.faults.link_effects import Seen
from kits.kubernetes.faults.stress import IN_FORCE_WITHIN_MS, TRY_EVERY_MS
from tests.kits.kubernetes.api_server import ApiServer
from tests.kits.kubernetes.faults.test_means import Run

BY_EXECUTOR = Seen(True, "9 slow jobs of validator-1")


def slow(job_ms: int, **fields: Any) -> SlowExecutionFault:
    given = {
        "kind": "slow_execution",
        "target": ["validator-1"],
        "at_height": 5,
        "for_ms": 900,
        "how": "chaos-mesh",
        **fields,
    }
    return SlowExecutionFault.model_validate({**given, "job_ms": job_ms})


class Stressed(Run):
    """A testnet whose validators are impaired."""

    def impair(self, what: str, *plans: SlowExecutionFault, indices: tuple[int, ...] = (1,)) -> dict[int, int | None]:
        """Have faults in force on validators. Returns the time of a job that is left to each executor."""
        given = {index: Impairment.together([plan.impairment for plan in plans]) for index in indices}
        left, then = self.means.set_stress(given, self.then(what))
        then()  # the executors have their own
        assert {each.stress for each in left.values()} == {None}, "hosts know nothing of it"
        return {index: each.job_ms for index, each in left.items()}


def test_a_host_is_stressed_until_the_fault_is_over(cluster: ApiServer) -> None:
    cluster.looks_until_injected = 3
    run = Stressed(cluster)
    assert run.impair("begun", slow(500, threads=8)) == {1: None}, "nothing is the executor's"
    ((name, made),) = cluster.chaos.items()
    assert made["kind"] == "StressChaos" and made["spec"]["stressors"]["cpu"]["workers"] == 8
    assert made["spec"]["selector"]["expressionSelectors"][0]["values"] == ["1"]
    assert run.in_force == []
    run.pass_ms(5 * TRY_EVERY_MS)
    assert run.in_force == ["begun"]
    assert run.impair("over") == {1: None}
    assert cluster.chaos == {} and run.in_force == ["begun", "over"]
    told = Seen(True, f"host 1 was stressed by Chaos Mesh (stresschaos {name})")
    assert run.means.stress.seen([1], BY_EXECUTOR) == told
    assert run.means.stress.seen([1], BY_EXECUTOR) == BY_EXECUTOR, "the next fault is another one"


def test_stress_that_is_never_in_force_had_no_effect(cluster: ApiServer) -> None:
    cluster.looks_until_injected = -1
    run = Stressed(cluster)
    run.impair("begun", slow(500))
    run.pass_ms(IN_FORCE_WITHIN_MS)
    assert run.in_force == ["begun"], "the run goes on"
    seen = run.means.stress.seen([1], BY_EXECUTOR)
    assert not seen.took_effect and seen.evidence.startswith("Chaos Mesh did not put stresschaos smoke-")


def test_other_faults_stay_the_executors(cluster: ApiServer) -> None:
    run = Stressed(cluster)
    assert run.impair("begun", slow(500), slow(70, how="executor")) == {1: 70}
    assert run.impair("one", slow(70, how="executor")) == {1: 70}
    assert cluster.chaos == {}


def test_without_chaos_mesh_the_executor_does_it(cluster: ApiServer) -> None:
    cluster.has_chaos_mesh = False
    run = Stressed(cluster)
    assert run.impair("begun", slow(500)) == {1: 500} and run.in_force == ["begun"]
    said = "slow_execution of host 1: by the validators' executor, not Chaos Mesh: the cluster does not have it"
    assert run.notices == [said]
    assert run.impair("again", slow(500)) == {1: 500} and run.notices == [said], "said once"
    run.impair("over")
    told = Seen(True, "9 slow jobs of validator-1 by the validators' executor, not Chaos Mesh")
    assert run.means.stress.seen([1], BY_EXECUTOR) == told
    outside = Stressed(None)
    assert outside.impair("begun", slow(500)) == {1: 500}
    assert "this is not a pod of Kubernetes" in outside.notices[0]


def test_a_host_whose_other_validators_are_not_hit_is_left_alone(cluster: ApiServer) -> None:
    run = Stressed(cluster, validators={"count": 8, "hosts": 4})
    assert run.impair("half", slow(500), indices=(1,)) == {1: 500} and cluster.chaos == {}
    assert run.notices[0].endswith("not Chaos Mesh: host 1 carries validators that the fault does not hit")
    run.impair("over", indices=(1,))
    run.means.stress.seen([1], BY_EXECUTOR)
    assert run.impair("whole", slow(500), indices=(1, 5)) == {1: None, 5: None} and len(cluster.chaos) == 1


def test_what_may_not_be_made_is_the_executors(cluster: ApiServer) -> None:
    cluster.refused["POST"] = 403
    run = Stressed(cluster)
    assert run.impair("begun", slow(500)) == {1: 500}
    assert run.notices[0].endswith("status 403: is forbidden")


def test_the_end_of_the_run_takes_stress_back(cluster: ApiServer) -> None:
    run = Stressed(cluster)
    run.impair("begun", slow(500))
    run.means.leftovers.close()
    assert cluster.chaos == {}


@pytest.mark.parametrize(
    ("plans", "job_ms", "stress"),
    [
        ([], None, None),
        ([slow(5, how="executor")], 5, None),
        ([slow(5, threads=2), slow(9, threads=3)], 9, (3, None)),
        ([slow(5, threads=2), slow(9, how="executor")], 9, (2, 9)),
        ([slow(9, threads=2), slow(5, how="executor")], 9, (2, 5)),
    ],
)
def test_without_chaos_mesh_every_fault_counts(
    plans: list[SlowExecutionFault], job_ms: int | None, stress: tuple[int, int | None] | None
) -> None:
    found = Impairment.together([plan.impairment for plan in plans])
    assert found.job_ms == job_ms
    assert (None if found.stress is None else (found.stress.threads, found.stress.job_ms)) == stress
    assert pickle.loads(pickle.dumps(found)) == found
