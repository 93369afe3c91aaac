"""Stampede on a real Kubernetes: ``make test-k8s``, with KubeRay's operator in the cluster and the image at hand.

``KUBECONFIG`` names the cluster; without it the lab's is started, if it is there (:mod:`tests.k8s.cluster`). Without
either, one line says why nothing was run. A case gets ``cluster``, creates what it needs in its own namespace, and
deletes it.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.common.errors import ExitCode
from k8s.image import sbom
from tests.k8s import cluster as clusters
from tests.k8s.cluster import Cluster
from tests.k8s.generated import JOBS

ROOT = Path(__file__).resolve().parents[2]
K8S = ROOT / "k8s"
NAMESPACE, JOB = "stampede", "stampede-smoke"
MAX_IMAGE_BYTES = 700_000_000
CLIENT_ROLE = (K8S / "client-role.yaml").read_text(encoding="utf-8")
WAITING_S = 300
COMPLETE = "--for=jsonpath={.status.jobDeploymentStatus}=Complete"
KEPT_FOR_A_LOOK = {
    "apiVersion": "ray.io/v1",
    "kind": "RayJob",
    "metadata": {"name": JOB},
    "spec": {"ttlSecondsAfterFinished": WAITING_S},
}
"""The pods stay for this long after the job's end."""

pytestmark = [pytest.mark.soak, pytest.mark.live]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if why := clusters.missing():
        pytest.skip(f"nothing was run: {why}")
    with clusters.cluster() as found:
        yield found


# --- scenarios by the client ----------------------------------------------------------------------------------------

SMALL = ("kubernetes.validators={cpu: 500m, memory: 1Gi, disk: 1Gi}", "kubernetes.driver.cpu=1")
QUIET = ("faults=[]", "stop.height=100", "stop.timeout_s=400", "success.heights_compared=60")
"""Nothing happens but what a case does, and there is time for it."""
TOGETHER = ("stop.timeout_s=400",)
"""Two testnets share the processors of one."""
HEIGHT = re.compile(r"height (\d+)/")


def options(cluster: Cluster, *settings: str) -> list[str]:
    """The options for small pods of the cluster's image, and other settings."""
    image = () if cluster.image is None else (f"kubernetes.image={cluster.image}",)
    return [word for each in (*SMALL, *image, *settings) for word in ("--set", each)]


def read_until(process: subprocess.Popen[str], lines: list[str], is_it: Callable[[str], bool]) -> None:
    """Add what a process prints to the lines, up to the one that is wanted."""
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if is_it(line):
            return
    raise AssertionError("".join(lines))


class ClientRun:
    """``stampede k8s run smoke`` in a namespace, by a user; ``more`` are further options."""

    def __init__(
        self,
        cluster: Cluster,
        user: Cluster,
        namespace: str,
        folder: Path,
        settings: tuple[str, ...],
        more: Sequence[str],
    ) -> None:
        self.user, self.namespace, self.folder = user, namespace, folder
        self.place = ("--namespace", namespace)
        self._cluster = cluster
        self.process = user.stampede(
            "run", "smoke", *self.place, "--out", str(folder), *options(cluster, *settings), *more
        )
        self.lines: list[str] = []

    def until_height(self, height: int) -> None:
        """Read what it prints until it is there."""
        read_until(self.process, self.lines, lambda line: any(int(found) >= height for found in HEIGHT.findall(line)))

    def end(self) -> int:
        """Its exit code."""
        rest, _ = self.process.communicate(timeout=clusters.JOB_TIMEOUT_S)
        self.lines.append(rest)
        return self.process.returncode

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def result(self) -> dict[str, Any]:
        return result_in(self.folder)

    def lose(self, *selector: str, grace_s: int) -> None:
        """Delete a pod."""
        grace = (f"--grace-period={grace_s}", *(("--force",) if grace_s == 0 else ()))
        self._cluster.kubectl("delete", "pod", *self.place, "--selector", ",".join(selector), "--wait=false", *grace)


@contextmanager
def running(
    cluster: Cluster,
    namespace: str,
    folder: Path,
    *settings: str,
    more: Sequence[str] = (),
    role: str | None = CLIENT_ROLE,
) -> Iterator[ClientRun]:
    """A run by a user who has this role alone, or else by the administrator, so that ``run`` makes the namespace.

    Fails if anything of it is left.
    """
    place = nullcontext(cluster) if role is None else cluster.user(namespace, role, folder.parent)
    with place as user:
        run = ClientRun(cluster, user, namespace, folder, settings, more)
        try:
            yield run
        finally:
            if run.process.poll() is None:
                run.process.terminate()
                run.process.communicate(timeout=WAITING_S)
    cluster.kubectl("wait", "--for=delete", f"namespace/{namespace}", f"--timeout={WAITING_S}s")


def role_of(cluster: Cluster, namespace: str, setting: str) -> str:
    """The role for the smoke scenario with a setting."""
    return cluster.ask("role", "smoke", "--namespace", namespace, "--set", setting)


def result_in(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


@pytest.mark.parametrize("role", [CLIENT_ROLE, None], ids=["user", "administrator"])
def test_a_run_by_the_client_fetches_its_report_and_leaves_nothing(
    cluster: Cluster, tmp_path: Path, role: str | None
) -> None:
    with running(cluster, "stampede-client", tmp_path / "run", role=role) as run:
        assert run.end() == ExitCode.PASS, run.output
    assert run.result()["verdict"] == "pass"
    assert "verdict  pass" in run.output
    assert "<html" in (run.folder / "report.html").read_text()[:500]


def test_kept_volumes_are_listed_reported_and_deleted(cluster: Cluster, tmp_path: Path) -> None:
    drill = ("--keep", "--command", "drill", "reorg")
    with running(cluster, "stampede-keep", tmp_path / "run", more=drill) as run:
        assert run.end() == ExitCode.PASS, run.output
        command = "stampede k8s report drill-reorg --namespace stampede-keep"
        assert f"the volumes are kept: {command} fetches the run again" in run.output
        listed = run.user.ask("list", *run.place)
        assert re.search(r"^drill-reorg +- +volumes kept +- +- +5 +\d+[sm]$", listed, re.MULTILINE)
        run.user.ask("report", "drill-reorg", "--out", str(tmp_path / "again"), *run.place)
        assert result_in(tmp_path / "again") == run.result()
        run.user.ask("delete", "drill-reorg", *run.place)


def test_a_start_that_fails_once_the_head_is_up_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    too_much, soon = "kubernetes.validators={cpu: 512, memory: 1Gi, disk: 1Gi}", ("--start-timeout", "60s")
    with running(cluster, "stampede-large", tmp_path / "run", too_much, more=soon) as run:
        assert run.end() == ExitCode.INCONCLUSIVE, run.output
    assert "driver is ready" in run.output and "Insufficient cpu" in run.output, run.output
    assert not run.folder.exists()


def test_an_image_that_nobody_has_is_told_once_and_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    missing = ("kubernetes.image=stampede:missing", "kubernetes.pull_policy=Never")
    with running(cluster, "stampede-image", tmp_path / "run", *missing, more=("--start-timeout", "60s")) as run:
        assert run.end() == ExitCode.INCONCLUSIVE, run.output
    assert run.output.count("image stampede:missing cannot be pulled") == 2, "when it is seen, and at the end"


def test_a_run_that_is_interrupted_is_fetched_and_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    with running(cluster, "stampede-interrupt", tmp_path / "run", *QUIET) as run:
        run.until_height(10)
        run.process.send_signal(signal.SIGINT)
        assert run.end() == ExitCode.INCONCLUSIVE, run.output
    assert "interrupted: the run is stopped and its folder fetched" in run.output
    assert "the driver cannot be interrupted" not in run.output
    assert run.result()["verdict"] == "inconclusive"
    assert "<html" in (run.folder / "report.html").read_text()[:500], "the driver was stopped in time to write it"


def test_the_run_of_a_killed_client_goes_on_and_is_reported_and_deleted(cluster: Cluster, tmp_path: Path) -> None:
    with running(cluster, "stampede-killed", tmp_path / "run", *QUIET) as run:
        run.until_height(10)
        run.process.kill()
        assert run.end() == -signal.SIGKILL
        listed = run.user.ask("list", *run.place)
        assert re.search(r"^smoke +run +running +\d+/100 +- +5 ", listed, re.MULTILINE), listed
        assert "pod      host 0 is ready" in run.user.ask("status", "smoke", *run.place)
        output = run.user.ask("logs", "smoke", "--follow", *run.place)
        assert HEIGHT.search(output) and "verdict  pass" in output, output
        run.user.kubectl("wait", *run.place, COMPLETE, "rayjob/smoke", f"--timeout={WAITING_S}s")
        run.user.ask("report", "smoke", "--out", str(tmp_path / "again"), *run.place)
        assert result_in(tmp_path / "again")["verdict"] == "pass"
        run.user.ask("delete", "smoke", *run.place)


def test_a_lost_worker_is_replaced_and_catches_up(cluster: Cluster, tmp_path: Path) -> None:
    with running(cluster, "stampede-worker", tmp_path / "run", *QUIET) as run:
        run.until_height(15)
        run.lose("stampede.io/host=2", grace_s=1)
        assert run.end() == ExitCode.PASS, run.output
    (lost,) = run.result()["faults"]
    assert (lost["kind"], lost["targets"]) == ("lose_node", ["validator-2"])
    assert (lost["took_effect"], lost["problem"]) == (True, "")
    assert "recovered height" in lost["evidence"]


def test_the_loss_of_the_head_fails_the_run_and_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    with running(cluster, "stampede-head", tmp_path / "run", *QUIET) as run:
        run.until_height(10)
        run.lose("ray.io/node-type=head", grace_s=0)
        assert run.end() not in (ExitCode.PASS, ExitCode.BAD_INPUT), run.output
    assert run.result()["verdict"] != "pass"
    assert "lost" in json.dumps(run.result()["checks"]), run.result()["checks"]


def test_a_host_that_is_evicted_comes_back_and_its_node_is_open_again(cluster: Cluster, tmp_path: Path) -> None:
    fault = "faults=[{kind: kill, how: node, target: validator-2, at_height: 20, down_ms: 8000}]"
    namespace = "stampede-node"
    role = role_of(cluster, namespace, fault)
    with running(cluster, namespace, tmp_path / "run", *QUIET, fault, role=role) as run:
        assert run.end() == ExitCode.PASS, run.output
    (lost,) = run.result()["faults"]
    assert (lost["kind"], lost["took_effect"], lost["problem"]) == ("kill", True, "")
    assert re.search(r"pod \S+ was evicted from \S+", lost["evidence"]) and "recovered height" in lost["evidence"]
    nodes = json.loads(cluster.kubectl("get", "nodes", "--output", "json"))["items"]
    assert not any(node["spec"].get("unschedulable") for node in nodes)


def test_a_pod_is_deleted_where_the_cluster_lacks_chaos_mesh(cluster: Cluster, tmp_path: Path) -> None:
    if "podchaos" in cluster.kubectl("api-resources", "--output=name"):
        pytest.skip("the cluster has Chaos Mesh")
    fault = "faults=[{kind: kill, how: chaos-mesh, target: validator-2, at_height: 20, down_ms: 5000}]"
    namespace = "stampede-chaos"
    role = role_of(cluster, namespace, fault)
    with running(cluster, namespace, tmp_path / "run", *QUIET, fault, role=role) as run:
        assert run.end() == ExitCode.PASS, run.output
    (lost,) = run.result()["faults"]
    assert (lost["took_effect"], lost["problem"]) == (True, "")
    assert "was deleted, not killed by Chaos Mesh: the cluster does not have it" in lost["evidence"]
    assert "not killed by Chaos Mesh" in (run.folder / "report.html").read_text()


def test_locust_workers_have_pods_and_others_take_over_from_a_lost_one(cluster: Cluster, tmp_path: Path) -> None:
    pods = "kubernetes.load={pods: 2, cpu: 200m, memory: 512Mi}"
    namespace = "stampede-load"
    role = role_of(cluster, namespace, pods)
    with running(cluster, namespace, tmp_path / "run", *QUIET, pods, role=role) as run:
        run.until_height(8)
        workers = [each["metadata"]["name"] for each in cluster.get("pods", run.namespace, "--selector", LOAD_PODS)]
        assert len(workers) == 2
        cluster.kubectl("delete", "pod", "--namespace", run.namespace, workers[0], "--wait=false", "--grace-period=1")
        assert run.end() == ExitCode.PASS, run.output
    (load,) = (each for each in run.result()["checks"] if each["name"] == "load")
    assert workers[0] in load["detail"], "the verdict's table says which worker was lost"
    assert run.result()["metrics"]["transactions"] > 20


def test_two_runs_side_by_side(cluster: Cluster, tmp_path: Path) -> None:
    with (
        running(cluster, "stampede-left", tmp_path / "left", *TOGETHER) as left,
        running(cluster, "stampede-right", tmp_path / "right", *TOGETHER) as right,
    ):
        assert [left.end(), right.end()] == [ExitCode.PASS] * 2, left.output + right.output


def test_a_verb_that_the_role_lacks_is_told_before_anything_is_made(cluster: Cluster, tmp_path: Path) -> None:
    lacking = yaml.safe_load(CLIENT_ROLE)
    (jobs,) = (rule for rule in lacking["rules"] if rule["resources"] == ["rayjobs"])
    jobs["verbs"].remove("watch")
    with running(cluster, "stampede-role", tmp_path / "run", role=json.dumps(lacking)) as run:
        assert run.end() == ExitCode.INCONCLUSIVE
    assert "no right in namespace stampede-role to watch rayjobs.ray.io: " in run.output


# --- a testnet that stays -------------------------------------------------------------------------------------------

BY_POD = "{kind: kill, how: pod, target: validator-2, down_ms: 5000}"


def test_a_testnet_takes_faults_until_it_is_stopped_reported_and_deleted(cluster: Cluster, tmp_path: Path) -> None:
    namespace, folder = "stampede-up", tmp_path / "run"
    place = ("--namespace", namespace)
    try:
        up = cluster.ask("up", "smoke", *place, *options(cluster, "faults=[]", "kubernetes.inject=[pod]"))
        (driver,) = re.findall(r"port-forward pod/(\S+) ", up)
        assert [role["metadata"]["name"] for role in cluster.get("roles", namespace)] == ["smoke-driver"]
        assert "added: kill" in cluster.ask("inject", "smoke", BY_POD, *place)
        lines: list[str] = []
        with cluster.follow("smoke", *place) as logs:
            try:
                read_until(logs, lines, lambda line: "kill of validator-2 is over: " in line)
            finally:
                logs.terminate()
        assert re.search(r"is over: .*pod \S+ was deleted", lines[-1]), lines[-1]
        assert cluster.ask("logs", "smoke", "--validator", "validator-1", *place) != ""
        assert re.search(r"^smoke +up +running +\d+ +- +5 ", cluster.ask("list", *place), re.MULTILINE)
        assert "pod      host 0 is ready" in cluster.ask("status", "smoke", *place)
        cluster.kubectl("exec", *place, driver, "--", "stampede", "stop", "/opt/stampede/runs/smoke")
        state = cluster.end_of_job("smoke", namespace)
        assert state == "SUCCEEDED", cluster.ask("logs", "smoke", *place)
        cluster.kubectl("wait", *place, COMPLETE, "rayjob/smoke", f"--timeout={WAITING_S}s")
        cluster.ask("report", "smoke", "--out", str(folder), *place)
        cluster.ask("delete", "smoke", *place)
        cluster.kubectl("wait", "--for=delete", f"namespace/{namespace}", f"--timeout={WAITING_S}s")
    finally:
        cluster.kubectl("delete", "namespace", namespace, "--ignore-not-found", f"--timeout={WAITING_S}s")
    result = result_in(folder)
    (lost,) = result["faults"]
    assert (result["verdict"], lost["kind"], lost["took_effect"]) == ("pass", "kill", True), result["checks"]
    assert "was deleted" in lost["evidence"] and "recovered height" in lost["evidence"]


# --- the network ----------------------------------------------------------------------------------------------------

REACHES = """
import json, socket, sys
def reaches(address, port):
    try:
        socket.create_connection((address, port), timeout=3).close()
    except OSError:
        return False
    return True
print(json.dumps([reaches(address, int(port)) for address, port in zip(sys.argv[1::2], sys.argv[2::2])]))
"""
JOB_SERVER, FIRST_HTTP, STRANGERS_PORT = 8265, 26601, 8000
LOAD_PODS = "app.kubernetes.io/component=load"


def stranger(image: str) -> dict[str, Any]:
    """A pod that belongs to no deployment, and that listens."""
    confined = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    listens = ["python", "-m", "http.server", str(STRANGERS_PORT), "--directory", "/tmp"]
    container = {"name": "it", "image": image, "command": listens, "securityContext": confined}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stranger"}, "spec": {"containers": [container]}}


def test_a_run_goes_on_under_its_network_policies_and_strangers_are_kept_out(cluster: Cluster, tmp_path: Path) -> None:
    namespace = "stampede-policies"
    with running(cluster, namespace, tmp_path / "run", *QUIET) as run:
        run.until_height(5)
        (head,) = cluster.get("pods", namespace, "--selector", "ray.io/node-type=head")
        image = head["spec"]["containers"][0]["image"]
        cluster.kubectl("apply", "--namespace", namespace, "--filename", "-", stdin=json.dumps(stranger(image)))
        cluster.kubectl("wait", "--namespace", namespace, "--for=condition=Ready", "pod/stranger", "--timeout=120s")
        (host,) = cluster.get("pods", namespace, "--selector", "stampede.io/host=0")
        asked = [host["status"]["podIP"], str(FIRST_HTTP), head["status"]["podIP"], str(JOB_SERVER)]

        (outside,) = cluster.get("pods", namespace, "--field-selector", "metadata.name=stranger")
        listener = [outside["status"]["podIP"], str(STRANGERS_PORT)]

        def reached(pod: str, *addresses: str) -> list[bool]:
            command = ("exec", "--namespace", namespace, pod, "--", "python", "-c", REACHES, *addresses)
            found: list[bool] = json.loads(cluster.kubectl(*command))
            return found

        driver = head["metadata"]["name"]
        if cluster.needs_enforcement:
            assert reached("stranger", *asked) == [True, True], "its own network does not keep it out"
            assert reached(driver, *listener) == [True], "the run's network does not keep it in"
        with cluster.enforcing(namespace):
            assert reached("stranger", *asked) == [False, False]
            assert reached(driver, *asked, *listener) == [True, True, False]
            assert run.end() == ExitCode.PASS, run.output
        cluster.kubectl("delete", "--namespace", namespace, "pod/stranger", "--grace-period=1")


# --- ready jobs -----------------------------------------------------------------------------------------------------


def log_of_success(cluster: Cluster, job: str, namespace: str) -> str:
    """The log of a RayJob, which must succeed."""
    state = cluster.end_of_job(job, namespace)
    assert state == "SUCCEEDED", cluster.kubectl("logs", "--namespace", namespace, f"job/{job}")
    return cluster.log_of_job(job, namespace)


@contextmanager
def rendered(cluster: Cluster, folder: Path, namespace: str, name: str, *words: str) -> Iterator[None]:
    """The objects of ``stampede k8s render smoke --command WORDS``, applied by ``kubectl``, in their own namespace."""
    place = ("--namespace", namespace, "--name", name, "--out", str(folder))
    cluster.ask("render", "smoke", *place, *options(cluster), "--command", *words)
    cluster.kubectl("apply", "--kustomize", str(folder))
    try:
        yield
    finally:
        cluster.kubectl("delete", "namespace", namespace, f"--timeout={WAITING_S}s")


@pytest.mark.parametrize(
    ("drill", "shown"),
    [
        ("outage", ("pass +drill_recovery", "was deleted")),
        ("reorg", ("pass +drill_replay",)),
        ("join", ("pass +drill_snapshot",)),
    ],
)
def test_a_drill_that_kubectl_applied_passes_and_is_reported_and_deleted(
    cluster: Cluster, tmp_path: Path, drill: str, shown: tuple[str, ...]
) -> None:
    """What it shows are patterns; the evidence of the outage's faults names pods."""
    namespace, job = "stampede-drill", f"drill-{drill}"
    role = cluster.ask("role", "smoke", "--command", *JOBS[job])
    with cluster.user(namespace, role, tmp_path) as user:
        cluster.apply(K8S / "jobs" / job, tmp_path, namespace=namespace)
        log = log_of_success(cluster, job, namespace)
        for pattern in shown:
            assert re.search(pattern, log), log
        user.ask("report", job, "--namespace", namespace, "--out", str(tmp_path / "run"))
        assert result_in(tmp_path / "run")["verdict"] == "pass"
        user.ask("delete", job, "--namespace", namespace)


def test_a_sweep_gets_pods_for_its_seeds(cluster: Cluster, tmp_path: Path) -> None:
    """They come by the autoscaler: the group begins with none."""
    with running(cluster, "stampede-sweep", tmp_path / "run", more=("--command", "sweep", "0:24")) as run:
        read_until(run.process, run.lines, lambda line: line.startswith("seeds ") and "is ready" in line)
        assert run.end() == ExitCode.PASS, run.output
    assert "24 seeds, 24 passed, 0 failed" in run.output
    assert (run.folder / "summary.json").exists()


def test_the_nightly_soak_runs_when_it_is_asked_for(cluster: Cluster, tmp_path: Path) -> None:
    namespace, all_of_them = "stampede-soak", "$(( first + 1000 ))"
    with rendered(cluster, tmp_path, namespace, "soak", "soak"):
        file = tmp_path / "cronjob-soak.yaml"
        assert all_of_them in file.read_text()
        few = file.read_text().replace(all_of_them, "$(( first + 8 ))")
        cluster.kubectl("apply", "--namespace", namespace, "--filename", "-", stdin=few)
        cluster.kubectl("create", "job", "--namespace", namespace, "now", "--from=cronjob/soak")
        assert "8 seeds, 8 passed, 0 failed" in cluster.log_of_job("now", namespace)


@pytest.mark.parametrize("folder", ["base", *(f"jobs/{job}" for job in JOBS), "monitoring"])
def test_an_empty_cluster_takes_the_manifests_in_a_dry_run(cluster: Cluster, folder: str) -> None:
    if folder == "monitoring" and "podmonitors" not in cluster.kubectl("api-resources", "--output=name"):
        pytest.skip("the cluster has no Prometheus operator")
    cluster.kubectl("apply", "--dry-run=server", "--kustomize", str(K8S / folder))


# --- the smoke scenario by kubectl alone; last, since its pods stay -------------------------------------------------


class SmokeRun:
    """A job that has ended; its pods are still there."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.log = log_of_success(cluster, JOB, NAMESPACE)
        pods = cluster.get("pods", NAMESPACE, "--selector", "ray.io/node-type")
        self.pods = [pod["metadata"]["name"] for pod in pods]

    def python(self, program: str, pod: str) -> Any:
        """What a program prints in a pod, as JSON."""
        shown = self._cluster.kubectl("exec", "--namespace", NAMESPACE, pod, "--", "python", "-c", program)
        return json.loads(shown)


@pytest.fixture(scope="module")
def smoke(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmokeRun]:
    assert not [each for each in cluster.get("namespaces", NAMESPACE) if each["metadata"]["name"] == NAMESPACE], (
        f"the cluster has a namespace {NAMESPACE} already"
    )
    folder = tmp_path_factory.mktemp("overlay")
    cluster.apply(K8S / "overlays" / "ci", folder, KEPT_FOR_A_LOOK)
    try:
        yield SmokeRun(cluster)
    finally:
        cluster.kubectl("delete", "--kustomize", str(folder), "--wait", f"--timeout={WAITING_S}s")


def test_the_smoke_scenario_passes(smoke: SmokeRun) -> None:
    assert re.search(r"\bpass\b", smoke.log)
    assert len(smoke.pods) == 5  # driver and four hosts


KEPT = """
import json, pathlib
from validator.state.engines import kernels
installed = pathlib.Path(kernels.__file__).parent / "__pycache__"
kept = [path.name for path in pathlib.Path.home().joinpath(".cache/numba").rglob("*.nbc")]
print(json.dumps({"kept": kept, "installed": len(list(installed.glob("*.nbc")))}))
"""


def test_no_pod_compiles_a_kernel(smoke: SmokeRun) -> None:
    """What a process compiles it keeps in the user's cache, since it cannot write to the installation."""
    for pod in smoke.pods:
        found = smoke.python(KEPT, pod)
        assert found["kept"] == [], pod
        assert found["installed"] > 0, pod


PLANTED = """
import json, pathlib
import numpy
from validator.primitives import installed_cache
from validator.scheduler.order import _is_less
installed_cache._is_kept_for_the_user = lambda kept: False
_is_less(*map(numpy.uint64, (1, 2, 1, 3)))
print(json.dumps([path.name for path in pathlib.Path.home().joinpath(".cache/numba").rglob("*.nbc")]))
"""


def test_a_compiled_kernel_would_be_seen(smoke: SmokeRun) -> None:
    """Planted, after the check above: a process that ignores the installation's kernels."""
    assert smoke.python(PLANTED, smoke.pods[0]) != []


IMAGE = """
import json, os, pathlib, shutil
from importlib.metadata import distributions
size = {(found.st_dev, found.st_ino): found.st_size for folder, _, names in os.walk("/") for name in names
        if not folder.startswith(("/proc", "/sys", "/dev", "/tmp", "/opt/stampede/runs", "/run", "/var/run"))
        for found in [os.lstat(os.path.join(folder, name))]}
bill = json.loads(pathlib.Path("/opt/stampede/sbom.json").read_text())
writable = [folder for folder in ("/", "/usr/local", "/opt/stampede") if os.access(folder, os.W_OK)]
programs = ("pip", "cc", "gcc", "ld", "make", "apt", "apt-get", "dpkg", "perl")
print(json.dumps({
    "bytes": sum(size.values()), "user": os.getuid(), "writable": writable,
    "programs": [program for program in programs if shutil.which(program)],
    "installed": {each.metadata["Name"]: each.version for each in distributions()},
    "bill": {each["purl"]: each["version"] for each in bill["components"]},
}))
"""


def test_the_image_is_small_and_holds_what_its_bill_says(smoke: SmokeRun) -> None:
    found = smoke.python(IMAGE, smoke.pods[0])
    assert found["bytes"] <= MAX_IMAGE_BYTES
    assert (found["user"], found["writable"], found["programs"]) == (10001, [], [])
    of_python = {
        url.removeprefix("pkg:pypi/").partition("@")[0]: found["bill"][url]
        for url in found["bill"]
        if url.startswith("pkg:pypi/")
    }
    installed = {sbom.canonical(name): version for name, version in found["installed"].items()}
    assert of_python == {name: version for name, version in installed.items() if name != "stampede"}
    assert list(sbom.differences(of_python, sbom.locked((K8S / "requirements.lock").read_text()))) == []
