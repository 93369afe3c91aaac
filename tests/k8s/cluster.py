"""A Kubernetes for tests: the one of ``KUBECONFIG``, or else the lab's in ``../shared``, built, started and ended here.

The lab binds each of its volumes once and enforces no network policies: it gets more volumes, and
:mod:`tests.k8s.enforcement` stands in for what enforces them.

Nothing here waits by the clock: ``kubectl`` watches, with a bound.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from tests.k8s import enforcement

ROOT: Final = Path(__file__).resolve().parents[2]
STAMPEDE: Final = str(Path(sys.executable).with_name("stampede"))
LAB: Final = ROOT.parent / "shared" / "k8s-lab"
LAB_IMAGE: Final = "stampede:0.1.0"
"""What the lab calls the image that it builds of a checkout."""
BUILD_TIMEOUT_S: Final = 3_600
COMMAND_TIMEOUT_S: Final = 300
JOB_TIMEOUT_S: Final = 900
LAB_VOLUMES: Final = 80
"""Volumes for all tests of a session."""
USER: Final = "user"
"""The ServiceAccount that stands in for a user."""
ENDED: Final = ("SUCCEEDED", "FAILED", "STOPPED")
"""States of a RayJob's job that are its last."""


class Cluster:
    """A cluster with the KubeRay operator in it, as its administrator sees it."""

    def __init__(self, kubeconfig: str, image: str | None, reached_by: tuple[str, ...] = ()) -> None:
        """``image`` replaces the one of the manifests; ``reached_by`` is put before each command.

        A cluster that is reached otherwise than by ``KUBECONFIG`` alone is the lab's.
        """
        self.kubeconfig = kubeconfig
        self.image = image
        self._reached_by = reached_by

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a command that reaches the cluster. Its output, with its errors, is a pipe."""
        pipe, joined = subprocess.PIPE, subprocess.STDOUT
        whole = [*self._reached_by, *command]
        return subprocess.Popen(whole, env=self._environment(), stdout=pipe, stderr=joined, text=True, bufsize=1)

    def stampede(self, *arguments: str) -> subprocess.Popen[str]:
        """Start ``stampede k8s`` with some arguments."""
        return self.start(STAMPEDE, "k8s", *arguments)

    def ask(self, *arguments: str) -> str:
        """What ``stampede k8s`` prints. Fails if it does."""
        return self.run(STAMPEDE, "k8s", *arguments, timeout_s=JOB_TIMEOUT_S)

    def follow(self, *arguments: str) -> subprocess.Popen[str]:
        """Start ``stampede k8s logs --follow``, which ends after a time in any case."""
        return self.start("timeout", str(JOB_TIMEOUT_S), STAMPEDE, "k8s", "logs", "--follow", *arguments)

    @property
    def needs_enforcement(self) -> bool:
        """Whether its network policies hold only while they are :meth:`enforcing`."""
        return bool(self._reached_by)

    @contextmanager
    def enforcing(self, namespace: str) -> Iterator[None]:
        """Meanwhile the network policies of a namespace hold, for the pods that it has now. A cluster that is not the
        lab's has to enforce them itself.
        """
        if not self._reached_by:
            yield
            return
        policies, pods = self.get("networkpolicies", namespace), self.get("pods", "", "--all-namespaces")
        spaces = self.get("namespaces", "")
        self.run("nft", "--file", "-", stdin=enforcement.rules(namespace, policies, pods, spaces))
        try:
            yield
        finally:
            self.run("nft", "delete", "table", *enforcement.TABLE.split())

    def run(self, *command: str, stdin: str | None = None, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """What a command prints that reaches the cluster: ``kubectl``, ``stampede``, any. Fails if the command does."""
        done = subprocess.run(
            [*self._reached_by, *command],
            env=self._environment(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What ``kubectl`` prints."""
        return self.run("kubectl", *arguments, stdin=stdin)

    def get(self, kind: str, namespace: str, *arguments: str) -> list[dict[str, Any]]:
        """The objects of a kind in a namespace; further arguments select some."""
        place = ("--namespace", namespace) if namespace else ()
        found = json.loads(self.kubectl("get", kind, *place, "--output", "json", *arguments))
        items: list[dict[str, Any]] = found["items"]
        return items

    def apply(self, kustomization: Path, folder: Path, *patches: dict[str, Any], namespace: str = "") -> None:
        """``kubectl apply --kustomize`` with the cluster's image and some patches of objects, which name their kind.

        ``folder`` takes the overlay that says so, and can be deleted with ``kubectl delete --kustomize``.
        """
        resource = os.path.relpath(kustomization, folder.resolve())
        targets = [{"target": {"kind": patch["kind"]}, "patch": json.dumps(patch)} for patch in patches]
        overlay: dict[str, Any] = {"kind": "Kustomization", "resources": [resource], "patches": targets}
        if self.image is not None:
            name, _, tag = self.image.rpartition(":")
            overlay["images"] = [{"name": "stampede", "newName": name, "newTag": tag}]
        (folder / "kustomization.yaml").write_text(json.dumps(overlay), encoding="utf-8")
        place = ("--namespace", namespace) if namespace else ()
        self.kubectl("apply", "--kustomize", str(folder), *place)

    def end_of_job(self, name: str, namespace: str, timeout_s: int = JOB_TIMEOUT_S) -> str:
        """The last state of a RayJob's job: ``SUCCEEDED``, ``FAILED`` or ``STOPPED``."""
        template = '{.status.jobStatus}/{.status.jobDeploymentStatus}{"\\n"}'
        watch = ["kubectl", "get", "rayjob", name, "--namespace", namespace, "--watch", f"--output=jsonpath={template}"]
        command = [*self._reached_by, "timeout", str(timeout_s), *watch]
        seen = []
        with subprocess.Popen(command, env=self._environment(), stdout=subprocess.PIPE, text=True) as watching:
            try:
                assert watching.stdout is not None
                for line in watching.stdout:
                    seen.append(line.strip())
                    job, _, deployment = seen[-1].partition("/")
                    if job in ENDED or deployment == "Failed":
                        return job or deployment
            finally:
                watching.terminate()
        raise AssertionError(f"rayjob {name} has not ended after {timeout_s} s: {seen}")

    def log_of_job(self, name: str, namespace: str) -> str:
        """What the submitter of a job that succeeded has shown. It is behind the job, and ends after it."""
        ended = ("--for=condition=complete", f"job/{name}", f"--timeout={COMMAND_TIMEOUT_S}s")
        self.kubectl("wait", "--namespace", namespace, *ended)
        return self.kubectl("logs", "--namespace", namespace, f"job/{name}")

    @contextmanager
    def user(self, namespace: str, role: str, folder: Path) -> Iterator[Cluster]:
        """A new namespace, and the cluster as a user sees it who has a role there, as YAML, and no other right.

        ``folder`` takes the user's configuration. Fails if something is left in the namespace, which is deleted.
        """
        place, roles = ("--namespace", namespace), list(yaml.safe_load_all(role))
        self.kubectl("create", "namespace", namespace)
        try:
            self.kubectl("create", "serviceaccount", USER, *place)
            self.kubectl("apply", *place, "--filename", "-", stdin=role)
            for kind, name in ((each["kind"].lower(), each["metadata"]["name"]) for each in roles):
                bound = (f"--{kind}={name}", f"--serviceaccount={namespace}:{USER}")
                self.kubectl("create", f"{kind}binding", name, *place, *bound)
            made = ("serviceaccount/default", "configmap/kube-root-ca.crt")
            self.kubectl("wait", *place, "--for=create", f"--timeout={COMMAND_TIMEOUT_S}s", *made)
            before = self._contents(namespace)
            yield Cluster(self._user_config(namespace, folder), self.image, self._reached_by)
            if left := self._contents(namespace) - before:
                self.kubectl("wait", *place, "--for=delete", f"--timeout={COMMAND_TIMEOUT_S}s", *left)
        finally:
            self.kubectl("delete", "namespace", namespace, f"--timeout={COMMAND_TIMEOUT_S}s")
            for each in roles:
                if each["kind"] == "ClusterRole":
                    both = "clusterrolebinding,clusterrole"
                    self.kubectl("delete", both, each["metadata"]["name"], "--ignore-not-found")

    def _user_config(self, namespace: str, folder: Path) -> str:
        page = json.loads(self.kubectl("config", "view", "--raw", "--minify", "--output", "json"))
        token = self.kubectl("create", "token", USER, "--namespace", namespace, "--duration=2h").strip()
        page["users"] = [{"name": page["contexts"][0]["context"]["user"], "user": {"token": token}}]
        file = folder / f"{namespace}.json"
        file.write_text(json.dumps(page), encoding="utf-8")
        return str(file)

    def _contents(self, namespace: str) -> set[str]:
        """All objects in a namespace but events."""
        listed = self.kubectl("api-resources", "--namespaced", "--verbs=list", "--output=name").split()
        kinds = ",".join(kind for kind in listed if not kind.startswith("events"))
        return set(self.kubectl("get", kinds, "--namespace", namespace, "--output=name").split())

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": self.kubeconfig}


def missing() -> str | None:
    """Why there is no cluster to test on, in one line; ``None`` if there is one."""
    if os.environ.get("KUBECONFIG"):
        return None
    if not (LAB / "up.sh").is_file():
        return "no KUBECONFIG, and no lab at ../shared/k8s-lab"
    if os.geteuid() != 0:
        return "no KUBECONFIG, and the lab needs root"
    return None


def is_built() -> bool:
    """Whether the lab has everything that it starts. The project's image is the last that it builds."""
    return (lab_state() / "images" / "stampede.tar").is_file()


def lab_state() -> Path:
    """The folder where the lab keeps what it has built."""
    return Path(os.environ.get("LAB_STATE") or Path(os.environ.get("TMPDIR") or "/tmp") / "k8s-lab")


@contextmanager
def cluster() -> Iterator[Cluster]:
    """The cluster. The lab is built if it is not, gets the image of the last commit, and is ended afterwards. A lab
    that is up already is used with the image that it has, and left up."""
    if kubeconfig := os.environ.get("KUBECONFIG"):
        yield Cluster(kubeconfig, os.environ.get("STAMPEDE_IMAGE"))
        return
    was_up = (lab_state() / "run" / "pid").exists()
    try:
        if not was_up:
            _lab("build.sh", str(ROOT), *(["image"] if is_built() else []))
            _lab("up.sh")
        found = _lab_cluster()
        with _volumes(found):
            yield found
    finally:
        if not was_up:
            _lab("down.sh")


def _lab_cluster() -> Cluster:
    pid = (lab_state() / "run" / "pid").read_text().strip()
    return Cluster(str(lab_state() / "run" / "admin.conf"), LAB_IMAGE, ("nsenter", "--net", "--target", pid))


@contextmanager
def _volumes(lab: Cluster) -> Iterator[None]:
    """More volumes for the lab, as its own ones are."""
    token, folder = uuid.uuid4().hex[:6], lab_state() / "run" / "volumes"
    template = lab.get("persistentvolumes", "", "--field-selector=metadata.name=volume-1")[0]["spec"]
    for number in range(LAB_VOLUMES):
        (folder / f"{token}-{number}").mkdir(parents=True)
    names = [f"test-{token}-{number}" for number in range(LAB_VOLUMES)]
    volumes: Sequence[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                **{key: template[key] for key in ("capacity", "accessModes", "nodeAffinity")},
                "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": str(folder / name.removeprefix("test-"))},
            },
        }
        for name in names
    ]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": volumes})
    lab.kubectl("apply", "--server-side", "--filename", "-", stdin=listed)
    try:
        yield
    finally:
        lab.kubectl("delete", "persistentvolume", *names, "--wait=false")


def _lab(script: str, *arguments: str) -> None:
    """A script of the lab. Its output goes to a file: daemons that it starts keep it open."""
    log = lab_state() / f"{script}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as output:
        environment = {**os.environ, "LAB_STATE": str(lab_state())}
        command = [str(LAB / script), *arguments]
        done = subprocess.run(
            command, env=environment, stdout=output, stderr=output, timeout=BUILD_TIMEOUT_S, check=False
        )
    assert done.returncode == 0, f"{script}: exit code {done.returncode}\n{log.read_text(encoding='utf-8')[-2_000:]}"
