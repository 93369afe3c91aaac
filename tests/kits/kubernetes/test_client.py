"""``stampede k8s run``, ``logs``, ``report``, ``delete``, ``up`` and ``inject``, as a user calls them.

They talk to a small API server on the loopback (:mod:`tests.kits.kubernetes.api_server`).
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from cluster.commands.cli.main import main
from cluster.common.checkout import keep_out
from cluster.common.interrupts import Interrupts
from kits.kubernetes.client import cluster as cluster_module
from kits.kubernetes.client import execution, fetching, inspecting, job, objects, watching
from kits.kubernetes.names import (
    CORDONED_BY,
    MANAGED_BY_LABEL,
    RUNS_PATH,
    STAMPEDE,
    SUBMITTER,
    component_labels,
    instance_labels,
)
from tests.hangs import HANGS_AFTER_S
from tests.kits.kubernetes.api_server import LATE_S, ApiServer, Log, archive_of

ROOT = Path(__file__).resolve().parents[3]
SCENARIO = "name: tiny\nvalidators: 4\nstop: {height: 5}\n"
VERDICT = "verdict  pass"
PAGE = json.dumps({"testnet": {"url": "http://127.0.0.1:9464", "token_file": "token"}, "validators": []}).encode()
"""Where a testnet that is up has its endpoints."""
SUBMITTER_LABELS = component_labels("tiny", SUBMITTER) | {MANAGED_BY_LABEL: STAMPEDE}
NO_RIGHT = 'pods is forbidden: User "me" cannot get resource "pods" in API group "" in the namespace "stampede"'
MAX_REQUESTS = 1_000
"""More than any run needs."""


def files(name: str, verdict: str = "pass") -> dict[str, bytes]:
    """A run's folder on its volume."""
    result = {"scenario": "tiny", "backend": "live", "seed": 1, "verdict": verdict, "checks": []}
    return {
        f"{name}/result.json": json.dumps(result).encode(),
        f"{name}/report.html": b"<p>report</p>",
        f"{name}/logs/driver.log": b"x" * 100_000,
    }


def passing(server: ApiServer, name: str) -> None:
    """The course of a job that passes."""
    ending(server, name, files(name))


def failing(server: ApiServer, name: str) -> None:
    ending(server, name, files(name, "fail"), "FAILED", message="Job entrypoint command failed with exit code 1")


def starting(server: ApiServer, name: str) -> None:
    """All pods run."""
    server.job_status(name, jobDeploymentStatus="Initializing")
    server.make_pods(name)
    server.pods_run(name)


def beginning(server: ApiServer, name: str) -> None:
    """The course of a job that is not at its end."""
    starting(server, name)
    server.job_status(name, jobDeploymentStatus="Running", jobStatus="RUNNING")
    server.say(name, "   1.0 s · height 1/5", "pass  finality  since height 26, 3 of them")


def ending(server: ApiServer, name: str, left: dict[str, bytes], status: str = "SUCCEEDED", **end: str) -> None:
    """The course of a job that leaves files, and ends so."""
    starting(server, name)
    # the submitter's pod is the last, and its log is asked for once it was seen to run
    assert server.wait(lambda: server.count("get", "pods/log") > 0)
    server.say(name, "   1.0 s · height 1/5", "   2.0 s · height 5/5", VERDICT)
    server.volume |= left
    server.end(name, status, **end)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pauses of milliseconds."""
    monkeypatch.setattr(cluster_module, "OF_A_COMMAND", replace(cluster_module.OF_A_COMMAND, first_pause_s=0.001))
    monkeypatch.setattr(watching, "PAUSE_S", 0.001)
    monkeypatch.setattr(fetching, "POLL_S", 0.001)
    monkeypatch.setattr(objects, "GONE_POLL_S", 0.001)
    monkeypatch.setattr(job, "LOOK_S", 0.001)
    with patch.dict(os.environ):
        for variable in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            os.environ[variable] = "http://127.0.0.1:9"  # where nothing listens: no proxy is asked for this machine
        keep_out()
        yield


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """A server that the configuration names; the working directory has a scenario, ``tiny.yaml``."""
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(SCENARIO)
    with ApiServer(passing) as served:
        monkeypatch.setenv("KUBECONFIG", str(served.write_config(tmp_path / "config")))
        yield served


def run(*arguments: str) -> int:
    return main(["k8s", "run", "tiny.yaml", *arguments])


# --- run ------------------------------------------------------------------------------------------------------------


def test_a_run_passes_and_leaves_nothing_but_its_folder_here(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run("--out", "mine")
    printed = capsys.readouterr()
    assert (code, printed.err) == (0, "")
    lines = printed.out.splitlines()
    assert [line for line in lines if "·" in line or "verdict" in line] == [
        "   1.0 s · height 1/5",
        "   2.0 s · height 5/5",
        VERDICT,
    ]
    assert "driver is starting" in lines and "host 3 is ready" in lines
    assert lines[-1] == "report   mine/report.html"
    assert sorted(path.name for path in Path("mine").iterdir()) == ["logs", "report.html", "result.json"]
    assert Path("mine/logs/driver.log").read_bytes() == b"x" * 100_000
    assert server.objects == {}


def test_a_run_that_fails_ends_with_its_exit_code(server: ApiServer) -> None:
    server.course = failing
    assert run("--out", "mine") == 1
    assert json.loads(Path("mine/result.json").read_text())["verdict"] == "fail"
    assert server.objects == {}


def test_kept_volumes_are_reported_and_deleted_later(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--out", "mine", "--keep") == 0
    kept = "the volumes are kept: stampede k8s report tiny --namespace stampede fetches the run again\n"
    assert kept in capsys.readouterr().out
    hosts = [f"tiny-host-{number}" for number in range(4)]
    assert server.names("persistentvolumeclaims") == [*hosts, "tiny-runs"]
    assert server.names("configmaps") == ["tiny-scenario"]
    assert server.names("rayjobs") == server.names("pods") == []
    assert run() == 2
    assert "the volumes of an earlier run of this name" in capsys.readouterr().err
    assert main(["k8s", "report", "tiny", "--out", "again"]) == 0
    assert capsys.readouterr().out == "report   again/report.html\n"
    assert Path("again/result.json").read_bytes() == Path("mine/result.json").read_bytes()
    assert server.names("pods") == []
    assert server.names("namespaces") == ["stampede"]
    assert main(["k8s", "delete", "tiny"]) == 0
    assert server.names("persistentvolumeclaims") == server.names("configmaps") == server.names("namespaces") == []
    assert main(["k8s", "delete", "tiny"]) == 2
    assert "has nothing of a deployment" in capsys.readouterr().err


@pytest.mark.parametrize("left", [{}, {"tiny/uploaded.txt": b"s3://results/tiny/20260101-120000"}])
def test_volumes_are_kept_until_the_bucket_has_the_run(
    server: ApiServer, capsys: pytest.CaptureFixture[str], left: dict[str, bytes]
) -> None:
    server.course = lambda server, name: ending(server, name, files(name) | left)
    assert run("--out", "mine", "--set", "kubernetes.results=s3://results") == 0
    printed = capsys.readouterr().out
    told = "s3://results: has not got the whole run\n" in printed
    kept = "the volumes are kept: stampede k8s report tiny --namespace stampede fetches the run again\n" in printed
    assert (told, kept, bool(server.names("persistentvolumeclaims"))) == (not left,) * 3
    if kept:
        assert main(["k8s", "report", "tiny", "--out", "again"]) == 0


def test_a_bucket_keeps_nothing_of_a_scenario_that_the_driver_refuses(server: ApiServer) -> None:
    server.course = lambda server, name: ending(server, name, {}, "FAILED", message="failed with exit code 2")
    assert run("--set", "kubernetes.results=s3://results") == 2
    assert server.objects == {}


def test_what_a_schedule_runs_is_a_run(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    monitoring = ["--monitoring", "--label", "release=mine"]
    assert main(["k8s", "render", "tiny.yaml", "--schedule", "0 2 * * *", *monitoring]) == 0
    (*_, job) = yaml.safe_load_all(capsys.readouterr().out)
    (client,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    line = client["command"][-1].splitlines()[-1].replace("/etc/stampede/scenario.yaml", "tiny.yaml")
    words = shlex.split(line.removeprefix("exec stampede ").replace("$STAMPEDE_NAMESPACE", "stampede"))
    assert "--label=release=mine" in words and main(words) == 0
    assert server.objects == {} and Path("runs/latest/report.html").exists()
    assert server.count("create", "podmonitors") == 1


def test_the_newest_run_of_a_schedule_is_reported(server: ApiServer) -> None:
    labels = instance_labels("tiny") | {MANAGED_BY_LABEL: STAMPEDE}
    named = {"cronjobs": "tiny", "persistentvolumeclaims": "tiny-runs", "configmaps": "tiny-scenario"}
    for plural, name in named.items():
        thing = {"metadata": {"name": name, "labels": labels}, "data": {"scenario.yaml": SCENARIO}}
        server.put(plural, thing)
    server.volume |= files("latest")
    assert main(["k8s", "report", "tiny", "--out", "mine"]) == 0
    assert json.loads(Path("mine/result.json").read_text())["verdict"] == "pass"


def test_overrides_reach_the_driver(server: ApiServer) -> None:
    seen: list[str] = []

    def course(server: ApiServer, name: str) -> None:
        seen.append(server.objects["configmaps", f"{name}-scenario"]["data"]["scenario.yaml"])
        seen.append(server.objects["rayjobs", name]["spec"]["entrypoint"])
        passing(server, name)

    server.course = course
    assert run("--name", "other", "--set", "stop.height=7", "--seed", "9", "--stop-on-fail") == 0
    assert "height: 7" in seen[0]
    assert "--seed 9" in seen[1] and "--stop-on-fail" in seen[1] and "/opt/stampede/runs/other" in seen[1]


def test_monitoring_is_created_and_deleted(server: ApiServer) -> None:
    seen: list[str] = []

    def course(server: ApiServer, name: str) -> None:
        seen.extend(name for kind in ("podmonitors", "prometheusrules", "configmaps") for name in server.names(kind))
        passing(server, name)

    server.course = course
    assert run("--monitoring", "--keep") == 0
    assert seen == ["tiny", "tiny", "tiny-dashboard", "tiny-scenario"]
    assert server.names("podmonitors") == server.names("prometheusrules") == []
    assert server.names("configmaps") == ["tiny-scenario"]


@pytest.mark.parametrize(("verdict", "code"), [("pass", 0), ("fail", 1)])
def test_a_drill_takes_the_same_path_to_its_verdict(
    server: ApiServer, capsys: pytest.CaptureFixture[str], verdict: str, code: int
) -> None:
    entrypoints: list[str] = []

    def course(server: ApiServer, name: str) -> None:
        entrypoints.append(server.objects["rayjobs", name]["spec"]["entrypoint"])
        ending(server, name, files(name, verdict), "SUCCEEDED" if verdict == "pass" else "FAILED")

    server.course = course
    assert run("--command", "drill", "outage", "down-s=30", "--seed", "3", "--keep", "--out", "mine") == code
    folder = f"{RUNS_PATH}/drill-outage"
    assert entrypoints == [f"stampede drill outage --down-s 30 --out {folder} --seed 3"]
    assert "report   mine/report.html" in capsys.readouterr().out.splitlines()
    assert main(["k8s", "report", "drill-outage", "--out", "again"]) == 0, "it finds the image without the job"
    assert Path("again/result.json").read_text() == Path("mine/result.json").read_text()


@pytest.mark.parametrize(("words", "left"), [(["sweep", "0:9"], "summary.json"), (["dos", "storm"], "scorecard.html")])
@pytest.mark.parametrize(
    ("end", "code"),
    [
        ({"status": "SUCCEEDED"}, 0),
        ({"status": "FAILED", "message": "Job entrypoint command failed with exit code 1"}, 1),
        ({"status": "FAILED", "message": "Job entrypoint command failed with exit code 4"}, 4),
        ({"status": "FAILED", "message": "the head was lost"}, 3),
    ],
)
def test_many_runs_end_with_the_exit_code_of_their_driver(
    server: ApiServer, capsys: pytest.CaptureFixture[str], words: list[str], left: str, end: dict[str, str], code: int
) -> None:
    name = f"{words[0]}-tiny"
    server.course = lambda server, name: ending(server, name, {f"{name}/{left}": b"{}"}, **end)
    assert run("--command", *words, "--out", "mine") == code
    printed = capsys.readouterr().out
    assert f"report   mine/{left}" in printed and ("verdict  inconclusive" in printed) == (code == 3)
    assert server.objects == {} and not Path("mine/result.json").exists(), name


# --- bad input, and no right ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nothing.yaml"], "nothing.yaml: cannot be read"),
        (["tiny.yaml", "--set", "validators.count=0"], "validators.count"),
        (["tiny.yaml", "--for", "9s", "--set", "stop.height=3"], "--for"),
        (["tiny.yaml", "--name", "Tiny_1"], "expected lower-case letters"),
        (["tiny.yaml", "--name", ""], "name '': expected lower-case letters"),
        (["tiny.yaml", "--name", "a" * 41], "expected lower-case letters"),
        (["tiny.yaml", "--out", "full"], "full: is not empty"),
        (["tiny.yaml", "--context", "unknown"], "names no cluster"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_asked(
    server: ApiServer, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    Path("full").mkdir()
    Path("full/a").touch()
    assert main(["k8s", "run", *arguments]) == 2
    error = capsys.readouterr().err
    assert complaint in error and error.count("\n") == 1
    assert server.requests == []
    assert not Path("runs").exists() or list(Path("runs").iterdir()) == []


def test_without_a_reachable_cluster_there_is_one_line(
    server: ApiServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("--context", "other") == 3
    error = capsys.readouterr().err
    assert (
        error.startswith("stampede: no cluster answers at http://127.0.0.1:1: get namespaces")
        and error.count("\n") == 1
    )
    monkeypatch.setenv("HOME", str(Path.cwd()))
    for variable, complaint in (("nowhere", "nowhere: names no cluster"), (None, "the pod's own account: names no")):
        monkeypatch.setenv("KUBECONFIG", variable) if variable else monkeypatch.delenv("KUBECONFIG")
        assert run() == 2
        error = capsys.readouterr().err
        assert complaint in error and error.count("\n") == 1
    monkeypatch.setenv("KUBECONFIG", "broken")
    config = Path("config").read_text()
    for text in ("a: [", config.replace(server.url, "5")):
        Path("broken").write_text(text)
        assert run() == 2
        error = capsys.readouterr().err
        assert "broken: cannot be read as kubectl's configuration: " in error and error.count("\n") == 1


@pytest.mark.parametrize(("excepted", "code"), [("", 3), ("0.0.0.0", 0)])
def test_a_cluster_elsewhere_is_asked_through_the_users_proxy(
    excepted: str, code: int, server: ApiServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing listens where the proxy is. The server has an address that is not known to be this machine's."""
    monkeypatch.setenv("no_proxy", excepted)
    keep_out()
    Path("config").write_text(Path("config").read_text().replace("127.0.0.1", "0.0.0.0"))
    assert run("--out", "mine") == code
    assert ("proxy" in capsys.readouterr().err, bool(server.requests)) == (bool(code), not code)


@pytest.mark.parametrize(("status", "reason"), [(401, "the credentials are refused"), (403, f"403): {NO_RIGHT}")])
@pytest.mark.parametrize(
    ("verb", "resource", "right"),
    [
        ("get", "rayjobs", "get rayjobs.ray.io in namespace stampede"),
        ("create", "rayjobs", "create rayjobs.ray.io in namespace stampede"),
        ("watch", "pods", "watch pods in namespace stampede"),
        ("get", "pods/log", "get pods/log in namespace stampede"),
    ],
)
def test_a_missing_right_is_one_line_that_names_it(
    server: ApiServer,
    capsys: pytest.CaptureFixture[str],
    status: int,
    reason: str,
    verb: str,
    resource: str,
    right: str,
) -> None:
    server.plant(verb, resource, status, body=NO_RIGHT)
    code = run()
    printed = capsys.readouterr()
    said = [line for line in (printed.out + printed.err).splitlines() if "no right to" in line]
    assert len(said) == 1 and f"no right to {right}" in said[0] and reason in said[0]
    assert code == (0 if resource == "pods/log" else 3)  # its folder was fetched in spite of that
    assert server.objects == {}


def test_another_refusal_is_the_clusters_sentence(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    quota = 'pods "tiny" is forbidden: exceeded quota: small'
    server.plant("create", "rayjobs", 403, body=quota)
    assert run() == 3
    assert capsys.readouterr().err.endswith(f"create rayjobs.ray.io in namespace stampede: status 403: {quota}\n")


def test_a_cluster_without_the_operator_is_one_line(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.plant("create", "rayjobs", 404, body="404 page not found")
    assert run() == 3
    assert capsys.readouterr().err == (
        "stampede: the cluster has no rayjobs.ray.io: expected a cluster with the KubeRay operator\n"
    )
    assert server.objects == {}


# --- names that are taken -------------------------------------------------------------------------------------------


def earlier(server: ApiServer, status: str, **labels: str) -> None:
    """A job of an earlier run, with its volume."""
    meta = {"app.kubernetes.io/instance": "tiny", "app.kubernetes.io/managed-by": "stampede"} | labels
    for plural, name in (("rayjobs", "tiny"), ("persistentvolumeclaims", "tiny-runs"), ("configmaps", "tiny-scenario")):
        server.put(plural, {"metadata": {"name": name, "labels": meta}, "status": {"jobDeploymentStatus": status}})


def test_a_name_that_is_taken_is_refused_and_nothing_is_touched(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier(server, "Running")
    assert run() == 2
    error = capsys.readouterr().err
    assert "first stampede k8s delete tiny --namespace stampede" in error and error.count("\n") == 1
    assert len(server.objects) == 3 and server.count("create", "configmaps") == 0


def test_the_job_of_somebody_else_is_refused(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    earlier(server, "Complete", **{"app.kubernetes.io/managed-by": "helm"})
    assert run() == 2
    assert "another RayJob of this name" in capsys.readouterr().err
    assert len(server.objects) == 3


def test_an_own_run_that_has_ended_is_replaced(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    earlier(server, "Complete")
    assert run() == 0
    assert "an earlier run tiny has ended: it is deleted" in capsys.readouterr().out
    assert server.objects == {}


def test_a_conflict_in_the_middle_takes_back_what_was_created(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.put("namespaces", {"metadata": {"name": "stampede"}})
    server.put("persistentvolumeclaims", {"metadata": {"name": "tiny-runs"}})
    server.plant("get", "persistentvolumeclaims", 404)  # it came after the look
    assert run() == 2
    error = capsys.readouterr().err
    assert "PersistentVolumeClaim tiny-runs exists in namespace stampede" in error and error.count("\n") == 1
    assert set(server.objects) == {("namespaces", "stampede"), ("persistentvolumeclaims", "tiny-runs")}


def test_a_namespace_that_was_there_stays(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.put("namespaces", {"metadata": {"name": "stampede"}})
    assert run() == 0
    assert set(server.objects) == {("namespaces", "stampede")}


def test_a_new_namespace_stays_if_others_use_it(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    def course(server: ApiServer, name: str) -> None:
        server.put("pods", {"metadata": {"name": "other"}, "spec": {}})
        passing(server, name)

    server.course = course
    assert run() == 0
    assert set(server.objects) == {("namespaces", "stampede"), ("pods", "other")}
    assert "namespace stampede stays" in capsys.readouterr().out


def test_a_namespace_needs_no_right_if_it_is_there(server: ApiServer) -> None:
    server.put("namespaces", {"metadata": {"name": "stampede"}})
    server.plant("get", "namespaces", 403)
    assert run() == 0


# --- an API server that is busy, slow or away -----------------------------------------------------------------------


def test_a_server_without_a_scheme_is_refused(
    server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config"
    file.write_text(file.read_text().replace(server.url, server.url.removeprefix("http://")))
    assert run() == 2
    error = capsys.readouterr().err
    assert f"server: '{server.url.removeprefix('http://')}': expected http://… or https://…" in error
    assert error.count("\n") == 1


def test_a_token_that_no_header_can_hold_is_told(
    server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.write_config(tmp_path / "config", "a\nb")
    assert run() == 3
    error = capsys.readouterr().err
    assert "cannot be asked: " in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("verb", "resource"), [("get", "rayjobs"), ("create", "rayjobs"), ("list", "pods"), ("watch", "pods")]
)
@pytest.mark.parametrize("answer", [429, 500, 503, "drop", "hang"])
def test_a_request_is_repeated(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, verb: str, resource: str, answer: int | str
) -> None:
    monkeypatch.setattr(cluster_module, "OF_A_COMMAND", replace(cluster_module.OF_A_COMMAND, read_timeout_s=0.3))
    monkeypatch.setattr(watching, "SILENCE_S", 0.3)
    if (verb, resource, answer) in [("get", "rayjobs", "drop"), ("get", "rayjobs", "hang")]:
        server.plant("get", "persistentvolumeclaims", answer)  # the first request of all has no second try
    else:
        server.plant(verb, resource, answer, times=2)
    assert run() == 0
    assert server.objects == {}


@pytest.mark.parametrize(
    ("verb", "resource", "count"),
    [
        ("get", "persistentvolumeclaims", 1),
        ("create", "rayjobs", 1),
        ("list", "pods", 4),
        ("watch", "pods", 1),
        ("get", "pods/log", None),
        ("get", "pods/exec", 1),
    ],
)
def test_a_late_answer_is_waited_for(
    server: ApiServer, capsys: pytest.CaptureFixture[str], verb: str, resource: str, count: int | None
) -> None:
    """The end of a log is asked for until its pod is seen to have ended, which may be at once."""
    server.plant(verb, resource, "late")
    assert run("--out", "mine") == 0
    assert count in (None, server.count(verb, resource)), "it is asked for as often as without the fault"
    assert VERDICT in capsys.readouterr().out and Path("mine/report.html").exists()
    assert server.objects == {}


@pytest.mark.parametrize(("verb", "resource"), [("get", "persistentvolumeclaims"), ("create", "rayjobs")])
def test_an_answer_that_is_too_late_is_asked_for_again(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, verb: str, resource: str
) -> None:
    """Planted: a client without patience."""
    monkeypatch.setattr(cluster_module, "OF_A_COMMAND", replace(cluster_module.OF_A_COMMAND, read_timeout_s=LATE_S / 5))
    server.plant(verb, resource, "late")
    assert run() == 0
    assert server.count(verb, resource) > 1


@pytest.mark.parametrize(
    ("verb", "resource", "piece"), [("list", "pods", 7), ("watch", "pods", 100), ("get", "pods/log", 1)]
)
def test_an_answer_that_trickles_is_put_together(
    server: ApiServer, capsys: pytest.CaptureFixture[str], verb: str, resource: str, piece: int
) -> None:
    """A letter of several bytes comes in several pieces, too."""
    server.plant(verb, resource, "trickle", times=MAX_REQUESTS, piece=piece)
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "·" in line] == ["   1.0 s · height 1/5", "   2.0 s · height 5/5"]
    assert [lines.count(f"host 3 is {state}") for state in ("starting", "ready")] == [1, 1]
    assert lines.count(VERDICT) == 1


@pytest.fixture
def _counted_looks(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server sees how often the client waits for a command in vain, which is for a moment at a time."""
    look = Interrupts.checkpoint

    def counted(interrupts: Interrupts) -> None:
        with server.changed:
            server.looks += 1
            server.changed.notify_all()
        look(interrupts)

    monkeypatch.setattr(Interrupts, "checkpoint", counted)
    monkeypatch.setattr(execution, "SLICE_S", 0.005)


@pytest.mark.usefixtures("_counted_looks")
def test_the_output_of_a_command_that_trickles_is_put_together(server: ApiServer) -> None:
    """Pieces end in the head of a frame, behind the number of its channel, and in its data."""
    server.course = staying
    server.plant("get", "pods/exec", "trickle", times=MAX_REQUESTS)
    assert main(["k8s", "up", "tiny.yaml", "--start-timeout", "60s"]) == 0
    assert server.names("rayjobs") == ["tiny"]


@pytest.mark.usefixtures("_counted_looks")
def test_a_folder_that_trickles_is_put_together(server: ApiServer) -> None:
    server.plant("get", "pods/exec", "trickle", piece=30_000)
    assert run("--out", "mine") == 0
    assert server.count("get", "pods/exec") == 1
    assert Path("mine/logs/driver.log").read_bytes() == b"x" * 100_000


def test_the_pause_that_is_asked_for_is_kept(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("cluster.common.interrupts.Interrupts.wait", lambda self, seconds: pauses.append(seconds))
    server.plant("create", "rayjobs", 429, headers={"Retry-After": "7"})
    server.plant("create", "rayjobs", 429, headers={"Retry-After": "7000"})
    assert run() == 0
    assert pauses[:2] == [7.0, 30.0]


def test_tries_are_bounded(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.plant("create", "rayjobs", 503, times=1_000)
    assert run() == 3
    error = capsys.readouterr().err
    assert "create rayjobs.ray.io in namespace stampede: status 503 after 10 tries" in error and error.count("\n") == 1
    assert server.count("create", "rayjobs") == cluster_module.OF_A_COMMAND.tries
    assert server.objects == {}


def test_an_object_whose_creation_got_no_answer_is_ours(server: ApiServer) -> None:
    server.plant("create", "rayjobs", "lost")
    assert run() == 0
    assert server.count("create", "rayjobs") == 2


@pytest.mark.parametrize("after", range(8))
def test_a_watch_that_breaks_goes_on_where_it_was(
    server: ApiServer, capsys: pytest.CaptureFixture[str], after: int
) -> None:
    server.plant("watch", "pods", "cut", after=after)
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [lines.count(f"host 3 is {state}") for state in ("starting", "ready")] == [1, 1]
    assert server.count("list", "pods") == 4, "not listed again: one for the watch, three at the end"


@pytest.mark.parametrize("answer", ["gone", 410])
def test_a_watch_whose_version_is_gone_lists_anew(server: ApiServer, answer: int | str) -> None:
    server.plant("watch", "pods", answer)
    assert run() == 0
    assert server.count("list", "pods") == 5


@pytest.mark.parametrize("after", range(6))
def test_a_log_that_breaks_loses_and_doubles_no_line(
    server: ApiServer, capsys: pytest.CaptureFixture[str], after: int
) -> None:
    """Lines of one time, and equal lines, are told apart by their number."""
    lines = [[" a", " a", " b"], [" a"], [" c", " c"]]

    def course(server: ApiServer, name: str) -> None:
        server.make_pods(name)
        for second, each in enumerate(lines):
            server.say(name, *each, second=second)
        server.pods_run(name)
        assert server.wait(lambda: server.count("get", "pods/log") > 3)
        server.volume |= files(name)
        server.end(name)

    server.course = course
    server.plant("get", "pods/log", 400)  # the container has not started
    server.plant("get", "pods/log", "cut", after=after)
    server.plant("get", "pods/log", "cut", after=min(after, 1))
    assert run() == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if line.startswith(" ")] == [line for each in lines for line in each]


# --- pods that do not come up ---------------------------------------------------------------------------------------


def waiting(reason: str, message: str) -> list[dict]:
    return [{"name": "ray-head", "image": "stampede:1", "state": {"waiting": {"reason": reason, "message": message}}}]


def test_an_image_that_cannot_be_pulled_is_said_once_and_given_up(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def course(server: ApiServer, name: str) -> None:
        server.make_pods(name)
        for reason in ("ErrImagePull", "ImagePullBackOff", "ErrImagePull"):
            server.pods_are(name, "head", phase="Pending", containerStatuses=waiting(reason, "not found"))

    server.course = course
    assert run("--start-timeout", "1s") == 3
    printed = capsys.readouterr()
    assert printed.out.count("driver cannot start: the image stampede:1 cannot be pulled: not found\n") == 1
    assert printed.err == (
        "stampede: tiny: not up after 1 s: driver cannot start: the image stampede:1 cannot be pulled: not found\n"
    )
    assert server.objects == {} and not any(Path("runs").iterdir())


def test_pods_without_a_node_and_a_quota_are_said(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    no_node = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: insufficient cpu"}
    event = {"type": "Warning", "reason": "FailedToCreatePod", "message": 'pods "x" is forbidden: exceeded quota: q'}

    def course(server: ApiServer, name: str) -> None:
        server.make_pods(name, conditions=[no_node])
        for number, (owner, at) in enumerate([(f"{name}-x", "2026"), (f"{name}-old", "2025"), ("other", "2026")]):
            about = {"kind": "RayCluster", "name": owner}
            meta = {"name": f"e{number}"}
            server.put(
                "events", {"metadata": meta, "involvedObject": about, "lastTimestamp": f"{at}-01-02T00:00:00Z", **event}
            )
        server.wait(lambda: server.count("watch", "events") > 0)
        passing(server, name)

    server.course = course
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert "host 1 finds no node: 0/3 nodes are available: insufficient cpu" in lines
    quota = [line for line in lines if "exceeded quota" in line]
    assert quota == [
        'RayCluster tiny-x: FailedToCreatePod: the quota does not allow it: pods "x" is forbidden: exceeded quota: q'
    ]


def test_a_job_that_nobody_takes_is_given_up(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.course = lambda server, name: None
    assert run("--start-timeout", "1s") == 3
    assert capsys.readouterr().err == "stampede: tiny: not up after 1 s: the KubeRay operator has not taken the job\n"
    assert server.objects == {}


def test_a_start_that_fails_once_the_head_is_up_leaves_nothing(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def course(server: ApiServer, name: str) -> None:
        server.job_status(name, jobDeploymentStatus="Initializing")
        server.make_pods(name)
        server.pods_run(name, "head")

    server.course = course
    assert run("--start-timeout", "1s") == 3
    assert capsys.readouterr().err == "stampede: tiny: not up after 1 s: the job is Initializing\n"
    assert server.objects == {} and not any(Path("runs").iterdir())


def crashing(server: ApiServer, name: str) -> None:
    """The course of a host whose container ends once, and is started again."""
    server.job_status(name, jobDeploymentStatus="Initializing")
    server.make_pods(name)
    ended = {"exitCode": 1, "reason": "Error"}
    again = {"name": "ray", "image": "stampede:1", "state": {"running": {}}, "lastState": {"terminated": ended}}
    server.logs[f"{name}-host-1"] = Log([("2026-01-01T00:00:00Z", "\x1b[31mnode timed out\tduring startup\x1b[0m")])
    server.pods_are(name, "host-1", phase="Running", containerStatuses=[{**again, "restartCount": 1}])


def test_what_a_container_said_before_it_was_started_again_is_shown(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def course(server: ApiServer, name: str) -> None:
        crashing(server, name)
        assert server.wait(lambda: ("get", "pods/log") in [each[:2] for each in server.requests])
        passing(server, name)

    server.course = course
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    first = lines.index("host 1 starts again after Error, exit code 1")
    assert lines[first + 1] == "host 1 said: node timed out during startup"
    query = next(query for verb, what, query in server.requests if (verb, what) == ("get", "pods/log"))
    assert (query["previous"], query["tailLines"]) == ("true", "5")


# --- runs without a result ------------------------------------------------------------------------------------------


def test_a_lost_head_is_inconclusive_and_its_folder_says_so(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def course(server: ApiServer, name: str) -> None:
        left = {path: data for path, data in files(name).items() if "/logs/" in path}
        ending(server, name, left, "FAILED", reason="AppFailed", message="the head is gone")

    server.course = course
    assert run("--out", "mine") == 3
    result = json.loads(Path("mine/result.json").read_text())
    assert (result["verdict"], result["scenario"]) == ("inconclusive", "tiny")
    assert result["scenario_hash"] and result["date"] and result["version"] is None
    assert "the driver's pod was lost" in result["checks"][0]["detail"]
    assert "the head is gone" in result["checks"][0]["detail"]
    assert "verdict  inconclusive: the driver's pod was lost" in capsys.readouterr().out
    assert Path("mine/logs/driver.log").exists() and server.objects == {}


def test_a_scenario_that_the_driver_refuses_is_bad_input(server: ApiServer) -> None:
    said = "Job entrypoint command failed with exit code 2, last"
    server.course = lambda server, name: ending(server, name, {}, "FAILED", message=said)
    assert run() == 2
    assert server.objects == {} and server.executed == []


def test_a_driver_that_crashed_has_given_no_verdict(server: ApiServer) -> None:
    said = "Job entrypoint command failed with exit code 4, last"
    server.course = lambda server, name: ending(server, name, files(name, "inconclusive"), "FAILED", message=said)
    assert run("--out", "mine") == 4
    assert Path("mine/result.json").exists() and server.objects == {}


# --- the archive ----------------------------------------------------------------------------------------------------


def archive_with(member: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO(archive_of(files("tiny")))
    with tarfile.open(fileobj=buffer, mode="a") as tar:
        tar.addfile(member)
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


@pytest.mark.parametrize(
    "archive",
    [
        archive_with(member("../outside")),
        archive_with(member("tiny/../../outside")),
        archive_with(member("/tmp/stampede-outside")),
        archive_with(member("other/file")),
        archive_with(member("tiny/link", tarfile.SYMTYPE, "../../outside")),
        archive_with(member("tiny/link", tarfile.LNKTYPE, "tiny/result.json")),
        archive_with(member("tiny/pipe", tarfile.FIFOTYPE)),
        archive_of(files("tiny"))[:60_000],
        b"no archive at all" * 100,
    ],
)
def test_a_bad_archive_writes_nothing_and_keeps_the_volumes(
    server: ApiServer, capsys: pytest.CaptureFixture[str], archive: bytes
) -> None:
    server.archive = archive
    assert run("--out", "deep/mine") == 3
    assert sorted(each.name for each in Path("deep").rglob("*")) == ["mine", "result.json"]
    assert not Path("outside").exists() and not Path("/tmp/stampede-outside").exists()
    result = json.loads(Path("deep/mine/result.json").read_text())
    assert "the run's folder was not fetched: the archive" in result["checks"][0]["detail"]
    assert "tiny-runs" in server.names("persistentvolumeclaims") and server.names("rayjobs") == []
    assert "stampede k8s report tiny --namespace stampede tries again" in capsys.readouterr().out
    server.archive = None
    assert main(["k8s", "report", "tiny", "--out", "again"]) == 0
    assert Path("again/report.html").exists()


def test_a_transfer_that_breaks_is_repeated(server: ApiServer) -> None:
    server.plant("get", "pods/exec", "cut")
    server.plant("get", "pods/exec", "drop")
    assert run("--out", "mine") == 0
    assert Path("mine/logs/driver.log").read_bytes() == b"x" * 100_000


def test_a_transfer_that_always_breaks_keeps_the_volumes(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.plant("get", "pods/exec", "cut", times=1_000)
    assert run("--out", "mine") == 3
    assert server.count("get", "pods/exec") == fetching.TRIES
    assert "tiny-runs" in server.names("persistentvolumeclaims")
    assert "the volumes are kept" in capsys.readouterr().out


# --- signals --------------------------------------------------------------------------------------------------------


def endless(server: ApiServer, name: str) -> None:
    """The course of a job that runs until its driver is interrupted."""
    server.make_pods(name)
    server.pods_run(name)
    server.say(name, "   1.0 s · height 1/5")
    server.on_interrupt = lambda: interrupted(server, name)


def interrupted(server: ApiServer, name: str) -> None:
    server.volume |= files(name, "inconclusive")
    server.say(name, "interrupted by a signal", second=1)
    server.end(name, "FAILED")


def started(tmp_path: Path, line_of_progress: str = "height 1/5") -> subprocess.Popen[str]:
    """The command as a separate process that has printed a line of progress."""
    code = "import sys; import stampede_command; sys.exit(stampede_command.main())"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "k8s", "run", "tiny.yaml", "--out", "mine"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line_of_progress in line:
            return process
    raise AssertionError(process.communicate()[1])


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_stops_the_run_fetches_its_folder_and_deletes_everything(
    server: ApiServer, tmp_path: Path, number: signal.Signals
) -> None:
    server.course = endless
    process = started(tmp_path)
    process.send_signal(number)
    out, err = process.communicate(timeout=HANGS_AFTER_S)
    assert (process.returncode, err) == (3, "")
    assert "interrupted: the run is stopped and its folder fetched" in out and "interrupted by a signal" in out
    assert out.endswith("report   mine/report.html\n") and Path("mine/logs/driver.log").exists()
    assert server.objects == {}


def test_a_signal_before_the_driver_has_begun_deletes_everything_at_once(server: ApiServer, tmp_path: Path) -> None:
    """Its pod runs already, since Ray's head has to be there before the job is submitted."""

    def course(server: ApiServer, name: str) -> None:
        server.make_pods(name)
        server.pods_run(name, "head")

    server.course, server.has_driver = course, False
    process = started(tmp_path, "is ready")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=job.STOP_TIMEOUT_S / 2)
    assert (process.returncode, err) == (3, "stampede: interrupted\n")
    assert [command[0] for command in server.executed] == ["python"], "no folder is fetched"
    assert "the volumes are kept" not in out
    assert server.objects == {}
    assert not Path("mine").exists()


@pytest.mark.slow
def test_a_second_signal_skips_the_fetching(server: ApiServer, tmp_path: Path) -> None:
    server.course = endless
    process = started(tmp_path)
    server.on_interrupt = lambda: process.send_signal(signal.SIGINT)  # and the driver goes on
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=HANGS_AFTER_S)
    assert process.returncode == 3
    assert "interrupted: everything is deleted" in out
    assert ["tar"] not in [command[:1] for command in server.executed]
    assert json.loads(Path("mine/result.json").read_text())["verdict"] == "inconclusive"
    assert server.objects == {}


@pytest.mark.slow
def test_a_folder_that_cannot_be_fetched_after_a_signal_is_kept(server: ApiServer, tmp_path: Path) -> None:
    server.course = endless
    server.plant("get", "pods/exec", "cut", times=1_000)
    process = started(tmp_path)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=HANGS_AFTER_S)
    assert process.returncode == 3
    assert "the volumes are kept: stampede k8s report tiny --namespace stampede tries again" in out
    assert "tiny-runs" in server.names("persistentvolumeclaims") and server.names("rayjobs") == []


STAND_IN = f"""#!{sys.executable}
import signal
heard = {{signal.SIGINT, signal.SIGUSR1}}
signal.pthread_sigmask(signal.SIG_BLOCK, heard)
print("up", flush=True)
print(signal.sigtimedwait(heard, {HANGS_AFTER_S}).si_signo)
"""
"""Says which signal ends it."""


@pytest.fixture
def in_a_pod(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts command lines of ``stampede`` by a shell, as Ray's job server does, and waits until they are up."""
    stand_in = tmp_path / "bin" / "stampede"
    stand_in.parent.mkdir()
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    environment = {**os.environ, "PATH": f"{stand_in.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    processes: list[subprocess.Popen[str]] = []

    def start(line: str) -> subprocess.Popen[str]:
        shell = ["/bin/sh", "-c", f"{line} & echo $!; wait $!; echo the shell goes on"]
        process = subprocess.Popen(
            shell, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True, bufsize=1
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=HANGS_AFTER_S)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("bucket", [(), ("--set", "kubernetes.results=s3://results")])
def test_the_program_that_interrupts_a_driver_reaches_it_and_no_other_process(
    server: ApiServer, tmp_path: Path, in_a_pod: Callable[[str], subprocess.Popen[str]], bucket: tuple[str, ...]
) -> None:
    """The command line is the one of the job, but for the folder of runs: nothing on this machine has a part of it."""
    entrypoints: list[str] = []

    def course(server: ApiServer, name: str) -> None:
        entrypoints.append(server.objects["rayjobs", name]["spec"]["entrypoint"])
        passing(server, name)

    server.course = course
    assert run("--seed", "9", "--stop-on-fail", *bucket) == 0
    runs = tmp_path / "runs-of-the-pod"
    line = entrypoints[0].replace(RUNS_PATH, str(runs)).replace("python -m", f"{sys.executable} -m")
    assert line != entrypoints[0]
    other = line[line.index("stampede run") :].replace("/tiny ", "/tiny-2 ")
    others = [other, f"stampede inspect {runs}/tiny/logs", f"stampede inspect {runs}"]
    processes = [in_a_pod(each) for each in (line, *others)]
    numbers = [int(line_of(each)) for each in processes]
    assert [line_of(each) for each in processes] == ["up"] * 4
    done = subprocess.run([sys.executable, "-c", job.INTERRUPT, f"{runs}/tiny"], timeout=HANGS_AFTER_S, check=False)
    assert done.returncode == 0
    done = subprocess.run([sys.executable, "-c", job.INTERRUPT, f"{runs}/none"], timeout=HANGS_AFTER_S, check=False)
    assert done.returncode == 1, "there is no such driver"
    for number in numbers[1:]:
        with suppress(ProcessLookupError):  # of a process that was reached, which the next line shows
            os.kill(number, signal.SIGUSR1)
    assert [line_of(each) for each in processes] == [f"{signal.SIGINT:d}", *[f"{signal.SIGUSR1:d}"] * 3]
    assert [line_of(each) for each in processes] == ["the shell goes on"] * 4


@pytest.fixture
def _own_handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_job_that_the_operator_refuses_has_ended(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    message = "The RayJob spec is invalid: planted"
    refused = {"jobDeploymentStatus": "ValidationFailed", "reason": "ValidationFailed", "message": message}
    server.course = lambda server, name: server.job_status(name, **refused)
    assert run("--start-timeout", "60s") == 3
    assert f"tiny: ended before its driver ran: ValidationFailed, {message}" in capsys.readouterr().err
    assert server.objects == {}


@pytest.mark.usefixtures("_own_handlers")
def test_a_job_that_is_lost_while_it_is_stopped_loses_no_folder(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def course(server: ApiServer, name: str) -> None:
        starting(server, name)
        server.volume |= files(name)
        assert server.wait(lambda: server.count("get", "pods/log") > 0)
        os.kill(os.getpid(), signal.SIGINT)

    server.course = course
    server.on_interrupt = lambda: server.remove("rayjobs", "tiny")
    assert run("--out", "mine") == 3
    assert "tiny: the job was deleted by another client" in capsys.readouterr().out
    assert Path("mine/logs/driver.log").exists()
    assert server.objects == {}


@pytest.mark.usefixtures("_own_handlers")
def test_the_loss_of_a_job_is_seen_after_the_end_of_its_log(
    server: ApiServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def course(server: ApiServer, name: str) -> None:
        starting(server, name)
        server.volume |= files(name)
        assert server.wait(lambda: server.count("get", "pods/log") > 0)
        os.kill(os.getpid(), signal.SIGINT)

    def take(self: job.Job, seen: watching.Seen) -> None:
        taken(self, seen)
        if isinstance(seen, watching.LogEnd):
            server.remove("rayjobs", "tiny")

    taken = job.Job._take
    monkeypatch.setattr(job.Job, "_take", take)
    server.course, server.on_interrupt = course, lambda: server.end_log("tiny")
    assert run("--out", "mine") == 3
    assert "tiny: the job was deleted by another client" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("_own_handlers")
@pytest.mark.parametrize("part", range(4))
def test_a_signal_at_any_request_leaves_nothing(server: ApiServer, part: int) -> None:
    """The signal comes with the first, the fifth … request of a run, until a run ends before it. One that comes once
    everything is being deleted changes nothing."""

    def course(server: ApiServer, name: str) -> None:
        server.on_interrupt = lambda: interrupted(server, name)
        passing(server, name)

    def interrupt_at(moment: int) -> Callable[[int], None]:
        return lambda number: os.kill(os.getpid(), signal.SIGINT) if number == moment else None

    server.course = course
    server.plant("create", "selfsubjectaccessreviews", 404, times=MAX_REQUESTS)  # one is enough
    for moment in range(1 + part, MAX_REQUESTS, 4):
        server.requests.clear()
        server.executed.clear()
        server.on_request = interrupt_at(moment)
        code = run()
        assert server.objects == {}, moment
        if len(server.requests) < moment:
            assert code == 0
            return
        assert code == 3 or "tar" in [command[0] for command in server.executed], moment
    raise AssertionError("a run has no end")


# --- the other commands ---------------------------------------------------------------------------------------------


def staying(server: ApiServer, name: str) -> None:
    """The course of a testnet that comes up."""
    endless(server, name)
    server.volume[f"{name}/endpoints.json"] = PAGE


@pytest.fixture
def up(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> str:
    """A testnet that is up; what the command printed."""
    server.course = staying
    assert main(["k8s", "up", "tiny.yaml"]) == 0
    return capsys.readouterr().out


def test_a_testnet_stays_until_it_is_deleted(server: ApiServer, up: str) -> None:
    assert "kubectl --namespace stampede port-forward pod/tiny-head 9464" in up
    assert "it stays until: stampede k8s delete tiny --namespace stampede" in up
    assert "up /etc/stampede/scenario.yaml --port 9464" in server.objects["rayjobs", "tiny"]["spec"]["entrypoint"]
    assert main(["k8s", "delete", "tiny"]) == 0
    assert server.names("rayjobs") == server.names("pods") == server.names("persistentvolumeclaims") == []


SLOW = ("ray", "numba", "pydantic", "cluster.scenario", "kubernetes.client.api", "kubernetes.client.models.v1_pod")
"""Modules that take a command seconds to load, and that a deletion does without."""


def test_a_deletion_loads_what_it_needs(server: ApiServer) -> None:
    load = "import sys; from cluster.commands.cli.main import main; assert main(['k8s', 'delete', 'tiny']) == 2; "
    shows = f"print([each for each in {SLOW} if each in sys.modules])"
    asks_for_the_rest = "; from kubernetes import client; assert client.CoreV1Api and client.models.V1Pod"
    command = [sys.executable, "-c", load + shows + asks_for_the_rest]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout == "[]\n"


def test_a_testnet_gets_the_rights_that_later_faults_need_and_they_go_with_it(server: ApiServer, up: str) -> None:
    assert server.names("roles") == [] and server.names("serviceaccounts") == ["tiny"]
    assert main(["k8s", "delete", "tiny"]) == 0
    assert main(["k8s", "up", "tiny.yaml", "--set", "kubernetes.inject=[pod, node]"]) == 0
    assert server.names("roles") == server.names("rolebindings") == ["tiny-driver"]
    assert server.names("clusterroles") == server.names("clusterrolebindings") == ["stampede-tiny-driver"]
    assert server.objects["pods", "tiny-head"]["spec"]["serviceAccountName"] == "tiny-driver"
    assert main(["k8s", "delete", "tiny"]) == 0
    assert server.objects == {}


@pytest.mark.parametrize("answer", [503, "drop"])
def test_a_testnet_is_not_given_up_for_one_answer(server: ApiServer, answer: int | str) -> None:
    server.course = staying
    server.plant("get", "pods/exec", answer)
    assert main(["k8s", "up", "tiny.yaml"]) == 0
    assert server.names("rayjobs") == ["tiny"]


@pytest.mark.parametrize("right", [True, False])
def test_a_node_that_a_killed_driver_left_cordoned_carries_pods_again(server: ApiServer, up: str, right: bool) -> None:
    """The driver is killed with its pod, and its watchdog with it."""
    for node, owner in (("machine-1", "stampede/tiny"), ("machine-2", "elsewhere/tiny")):
        meta = {"name": node, "annotations": {CORDONED_BY: owner, "of": "somebody"}}
        server.put("nodes", {"metadata": meta, "spec": {"unschedulable": True}})
    role = {"name": "stampede-tiny-driver", "labels": {**instance_labels("tiny"), MANAGED_BY_LABEL: STAMPEDE}}
    server.put("clusterroles", {"metadata": role})
    if not right:
        server.plant("patch", "nodes", 403)
    assert main(["k8s", "delete", "tiny"]) == 0
    nodes = [server.objects["nodes", f"machine-{number}"] for number in (1, 2)]
    assert [bool(node["spec"].get("unschedulable")) for node in nodes] == [not right, True]
    assert [sorted(node["metadata"]["annotations"]) for node in nodes] == [
        ["of"] if right else ["of", CORDONED_BY],
        ["of", CORDONED_BY],
    ]
    assert {kind for kind, _ in server.objects} == {"nodes"}


def test_a_node_stays_cordoned_if_no_role_says_that_the_deployment_had_such_faults(server: ApiServer, up: str) -> None:
    meta = {"name": "machine-1", "annotations": {CORDONED_BY: "stampede/tiny"}}
    server.put("nodes", {"metadata": meta, "spec": {"unschedulable": True}})
    assert main(["k8s", "delete", "tiny"]) == 0
    assert server.objects["nodes", "machine-1"]["spec"]["unschedulable"] is True
    assert server.count("list", "nodes") == 0, "most users may not even look at nodes"


def test_a_connection_that_hangs_is_given_up_and_can_be_interrupted(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, up: str
) -> None:
    monkeypatch.setattr(execution, "CONNECT_TIMEOUT_S", 0.3)
    server.plant("get", "pods/exec", "hang")
    assert main(["k8s", "inject", "tiny", "{kind: kill, target: leader}"]) == 3


def test_a_deadline_leaves_the_time_for_the_start_that_was_asked_for(server: ApiServer) -> None:
    found: list[int] = []

    def course(server: ApiServer, name: str) -> None:
        found.append(server.objects["rayjobs", name]["spec"]["activeDeadlineSeconds"])
        passing(server, name)

    server.course = course
    assert [run("--start-timeout", asked) for asked in ("1m", "15m", "1h")] == [0, 0, 0]
    assert [each - found[0] for each in found] == [0, 0, 2_700]


def test_a_name_that_another_run_takes_meanwhile_is_left_alone(server: ApiServer) -> None:
    """Another run makes its objects between the look for them and the first creation."""
    others = {"metadata": {"name": "theirs", "labels": {**instance_labels("tiny"), MANAGED_BY_LABEL: STAMPEDE}}}

    def come(number: int) -> None:
        if server.count("create", "serviceaccounts") == 1:
            server.objects.setdefault(("configmaps", "theirs"), others)

    server.on_request = come
    server.plant("create", "serviceaccounts", 403)
    assert run() == 3
    assert list(server.objects) == [("configmaps", "theirs")]


def test_an_object_of_another_run_is_not_ours_after_a_refusal_for_load(server: ApiServer) -> None:
    server.plant("create", "serviceaccounts", 429)

    def come(number: int) -> None:
        if server.count("create", "serviceaccounts") == 2:
            theirs = {"name": "tiny", "labels": {**instance_labels("tiny"), MANAGED_BY_LABEL: STAMPEDE}}
            server.objects.setdefault(("serviceaccounts", "tiny"), {"metadata": theirs})

    server.on_request = come
    assert run() == 2
    assert list(server.objects) == [("serviceaccounts", "tiny")]


def test_a_testnet_that_nobody_may_look_into_is_deleted(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.course = staying
    server.plant("get", "pods/exec", 403, times=MAX_REQUESTS, body=NO_RIGHT)
    assert main(["k8s", "up", "tiny.yaml", "--start-timeout", "60s"]) == 3
    assert f"no right to get pods/exec in namespace stampede (403): {NO_RIGHT}\n" in capsys.readouterr().err
    assert server.objects == {}


def test_a_testnet_that_does_not_come_up_is_deleted(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.course = passing
    assert main(["k8s", "up", "tiny.yaml"]) == 3
    assert "the testnet has ended before it was up" in capsys.readouterr().err
    assert server.objects == {}


def test_deployments_are_listed_with_how_far_they_are(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["k8s", "list"]) == 0
    assert capsys.readouterr().out == "namespace stampede has no deployment of stampede\n"
    server.course = failing
    assert run("--name", "kept", "--keep", "--out", "kept") == 1
    server.put("persistentvolumeclaims", {"metadata": {"name": "of-somebody-else", "labels": {}}})
    for name, course in (("ended", failing), ("running", beginning)):
        server.course = course
        assert main(["k8s", "render", "tiny.yaml", "--name", name, "--out", name]) == 0
        for path in Path(name).glob("[!k]*.yaml"):
            made = yaml.safe_load(path.read_text())
            server.put(f"{made['kind'].lower()}s", made)
        server.begin("pods")
    assert server.wait(lambda: server.objects["rayjobs", "ended"]["status"].get("jobStatus") == "FAILED")
    assert server.wait(lambda: bool(server.logs.get("running-submitter", Log()).lines))
    capsys.readouterr()
    assert main(["k8s", "list"]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["name", "work", "state", "height", "verdict", "volumes", "age"]
    rows = [re.split(r"  +", line) for line in lines]
    assert [row[:6] for row in rows] == [
        ["ended", "run", "ended", "5/5", "fail", "5"],
        ["kept", "-", "volumes kept", "-", "-", "5"],
        ["running", "run", "running", "1/5", "-", "5"],
    ]
    assert main(["k8s", "status", "running"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert {"state    running", "height   1/5", "volume   running-runs 5Gi", "pod      host 3 is ready"} <= set(told)
    assert "driver      1.0 s · height 1/5" in told
    assert main(["k8s", "status", "nobody"]) == 2
    assert "nobody: namespace stampede has nothing of a deployment" in capsys.readouterr().err


def test_a_kept_run_is_reported_without_the_right_to_cron_jobs(server: ApiServer) -> None:
    assert run("--keep", "--out", "mine") == 0
    server.plant("list", "cronjobs", 403, body=NO_RIGHT)
    assert main(["k8s", "report", "tiny", "--out", "again"]) == 0
    assert server.fault_for("list", "cronjobs") is None, "it was asked for"


def test_a_list_without_the_right_to_cron_jobs_is_one_of_the_rest(
    server: ApiServer, up: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.plant("list", "cronjobs", 403)
    assert main(["k8s", "list"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:2] == ["tiny", "up"]
    server.plant("list", "persistentvolumeclaims", 403, body=NO_RIGHT)
    assert main(["k8s", "list"]) == 3
    assert "no right to list persistentvolumeclaims in namespace stampede" in capsys.readouterr().err


def test_a_fault_is_added_in_the_drivers_pod(server: ApiServer, up: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["k8s", "inject", "tiny", "{kind: kill, target: leader}"]) == 0
    assert capsys.readouterr().out == "added: kill at height 5\n"
    assert server.executed[-1] == ["stampede", "inject", "/opt/stampede/runs/tiny", "{kind: kill, target: leader}"]
    server.inject_answer = 2, "", "stampede: unknown kind"
    assert main(["k8s", "inject", "tiny", "{kind: kil}"]) == 2
    assert capsys.readouterr().err == "stampede: unknown kind\n"
    asked = len(server.requests)
    assert main(["k8s", "inject", "tiny", "kill"]) == 2
    assert len(server.requests) == asked
    assert main(["k8s", "inject", "other", "{kind: kill}"]) == 2
    assert "no pod of its driver" in capsys.readouterr().err


def test_logs_are_those_of_the_pod_that_is_asked_for(
    server: ApiServer, up: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.logs["tiny-host-2"] = Log([("2026-01-01T00:00:00Z", "of host 2")])
    assert main(["k8s", "logs", "tiny"]) == 0
    assert capsys.readouterr().out == "   1.0 s · height 1/5\n"
    for options in (["--validator", "validator-2"], ["--host", "2"]):
        assert main(["k8s", "logs", "tiny", *options]) == 0
        assert capsys.readouterr().out == "of host 2\n"
    server.end("tiny")
    assert main(["k8s", "logs", "tiny", "--follow"]) == 0
    assert capsys.readouterr().out == "   1.0 s · height 1/5\n"
    for options, complaint in (
        (["--validator", "validator-9"], "unknown validator"),
        (["--host", "9"], "no pod of its host 9"),
    ):
        assert main(["k8s", "logs", "tiny", *options]) == 2
        assert complaint in capsys.readouterr().err
    server.pods_are("tiny", "host-2", phase="Pending")
    assert main(["k8s", "logs", "tiny", "--host", "2"]) == 2
    assert "has not started" in capsys.readouterr().err


def test_logs_of_a_container_that_crashed_are_there(
    server: ApiServer, up: str, capsys: pytest.CaptureFixture[str]
) -> None:
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    crashed = {"name": "ray", "image": "a:1", "state": state, "lastState": {"terminated": {"exitCode": 1}}}
    server.pods_are("tiny", "host-2", phase="Running", containerStatuses=[{**crashed, "restartCount": 2}])
    server.logs["tiny-host-2"] = Log([("2026-01-01T00:00:00Z", "node timed out")])
    assert main(["k8s", "logs", "tiny", "--host", "2", "--previous"]) == 0
    assert capsys.readouterr().out == "node timed out\n"
    assert server.requests[-1][2]["previous"] == "true"
    assert main(["k8s", "logs", "tiny", "--host", "2", "--previous", "--follow"]) == 2
    assert "--follow: not together with --previous" in capsys.readouterr().err


def test_a_log_that_is_followed_may_begin_later(
    server: ApiServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspecting, "POLL_S", 0.001)
    job = {"metadata": {"name": "tiny"}, "status": {"jobDeploymentStatus": "Initializing"}, "spec": {}}
    server.put("rayjobs", job)
    submitter = {
        "metadata": {"name": "tiny-submitter", "labels": SUBMITTER_LABELS},
        "spec": {"containers": [{"name": "s"}]},
    }

    def appear(number: int) -> None:
        """The pod appears after some looks, and has ended when its log is read."""
        if number == 5:
            server.put("pods", {**submitter, "status": {"phase": "Pending"}})
        if number == 9:
            server.logs["tiny-submitter"] = Log([("2026-01-01T00:00:00Z", "height 1/5")], has_ended=True)
            ended = {
                "phase": "Succeeded",
                "containerStatuses": [{"name": "s", "state": {"terminated": {"exitCode": 0}}}],
            }
            server.put("pods", {**submitter, "status": ended})

    server.on_request = appear
    assert main(["k8s", "logs", "tiny", "--follow"]) == 0
    assert capsys.readouterr().out == "height 1/5\n"
    server.remove("rayjobs", "tiny")
    server.remove("pods", "tiny-submitter")
    assert main(["k8s", "logs", "tiny", "--follow"]) == 2
    assert "no pod of its driver" in capsys.readouterr().err


def test_what_kubectl_applied_is_reported_by_its_job(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    """A drill has no ConfigMap, its image may be renamed, and its folder is the latest of the volume."""
    container = {"name": "ray-head", "image": "registry/renamed:2", "imagePullPolicy": "Always"}
    head = {"template": {"spec": {"containers": [container], "imagePullSecrets": [{"name": "key"}]}}}
    spec = {"entrypoint": "stampede drill join", "rayClusterSpec": {"headGroupSpec": head}}
    status = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
    server.put("rayjobs", {"metadata": {"name": "drill-join"}, "spec": spec, "status": status})
    server.put("persistentvolumeclaims", {"metadata": {"name": "drill-join-runs"}})
    server.volume |= files("latest")
    asked: list[dict] = []
    put = server.put
    server.put = lambda plural, thing, *more: (asked.append(thing), put(plural, thing, *more))[1]  # type: ignore[method-assign]
    assert main(["k8s", "report", "drill-join", "--out", "mine"]) == 0
    assert json.loads(Path("mine/result.json").read_text())["verdict"] == "pass"
    (pod,) = [each for each in asked if each["metadata"]["name"] == "drill-join-results"]
    (made,) = pod["spec"]["containers"]
    assert (made["image"], made["imagePullPolicy"]) == ("registry/renamed:2", "Always")
    assert pod["spec"]["imagePullSecrets"] == [{"name": "key"}]


def test_a_run_that_goes_on_is_not_reported(server: ApiServer, up: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["k8s", "report", "tiny"]) == 2
    assert "that run goes on" in capsys.readouterr().err
    assert main(["k8s", "report", "other"]) == 2
    assert "no volumes" in capsys.readouterr().err
