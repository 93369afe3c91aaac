"""What Ray's own autoscaler makes of the groups: as many pods for seeds as are asked for, and no other pod moves."""

from __future__ import annotations

import json
import shlex
from typing import Any

from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr as config_of
from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
from ray.autoscaler.v2.utils import ResourceRequestUtil
from ray.core.generated.autoscaler_pb2 import ClusterResourceConstraint  # type: ignore[attr-defined]

from cluster.commands.sweeps.seed_pods import SEED_PODS_VARIABLE
from cluster.live.nodes.ray_nodes import RESOURCE_PREFIX, SEEDS
from cluster.scenario import Scenario
from kits.kubernetes.render import Deployment, manifests

SCENARIO = Scenario.model_validate({"name": "a", "kubernetes": {"seeds": {"pods": 3, "cpu": 2, "memory": "4Gi"}}})


def ray_cluster(*command: str) -> dict[str, Any]:
    (job,) = (each for each in manifests(SCENARIO, Deployment("a", "b", command)) if each["kind"] == "RayJob")
    return {"metadata": {"name": "a", "namespace": "b"}, "spec": job["spec"]["rayClusterSpec"]}


def test_ray_reads_the_resources_of_groups_as_its_shell_does() -> None:
    types = config_of(ray_cluster("run", "x"))["available_node_types"]
    for number in range(4):
        found = types[f"host-{number}"]
        assert found["resources"] == {
            "CPU": 1,
            "memory": 2 * 2**30,
            "stampede_validators": 1,
            f"stampede_host_{number}": 1,
        }
        assert (found["min_workers"], found["max_workers"]) == (1, 1)
    for group in ray_cluster("run", "x")["spec"]["workerGroupSpecs"]:
        (word,) = shlex.split(group["rayStartParams"]["resources"])
        assert json.loads(word).keys() <= types[group["groupName"]]["resources"].keys()


def test_pods_for_seeds_are_launched_when_they_are_asked_for() -> None:
    config = AutoscalingConfig(config_of(ray_cluster("sweep", "x")), skip_content_hash=True)

    def launched(pods: int) -> dict[str, int]:
        bundles = [ResourceRequestUtil.make({RESOURCE_PREFIX + SEEDS: 1}) for _ in range(pods)]
        asked = ClusterResourceConstraint(resource_requests=ResourceRequestUtil.group_by_count(bundles))
        request = SchedulingRequest(
            disable_launch_config_check=True,
            node_type_configs=config.get_node_type_configs(),
            max_num_nodes=config.get_max_num_nodes(),
            cluster_resource_constraints=[asked] if pods else [],
        )
        reply = ResourceDemandScheduler().schedule(request)
        return {each.instance_type: each.count for each in reply.to_launch}

    assert launched(0) == {}
    assert launched(2) == {"seeds": 2}
    assert launched(3) == {"seeds": 3}
    assert launched(4) == {}, "all or none: the driver may not ask for more than there may be"
    spec = ray_cluster("sweep", "x")["spec"]
    (head,) = spec["headGroupSpec"]["template"]["spec"]["containers"]
    assert {"name": SEED_PODS_VARIABLE, "value": str(spec["workerGroupSpecs"][0]["maxReplicas"])} in head["env"]
