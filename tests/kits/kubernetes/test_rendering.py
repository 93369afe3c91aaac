"""``stampede k8s render``: a stream, a folder, and what is refused in one line."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.commands.cli.main import main
from cluster.commands.sweeps.commands import seed_range
from cluster.common import files
from cluster.common.errors import ExitCode
from cluster.scenario.files import load_scenario
from kits.kubernetes.render import Deployment, manifests
from kits.kubernetes.render.deployment import name_for
from kits.kubernetes.text import KUSTOMIZATION_FILE, stream, yaml_text
from tests.hangs import HANGS_AFTER_S


def render(capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, Any]]:
    assert main(["k8s", "render", *options]) == ExitCode.PASS
    return list(yaml.safe_load_all(capsys.readouterr().out))


def entrypoint(found: list[dict[str, Any]]) -> str:
    (job,) = (each for each in found if each["kind"] == "RayJob")
    return str(job["spec"]["entrypoint"])


def test_a_scenario_becomes_a_stream(capsys: pytest.CaptureFixture[str]) -> None:
    found = render(capsys, "smoke", "--namespace", "tests")
    text = (load_file := Path(__file__).resolve().parents[3] / "scenarios" / "smoke.yaml").read_text()
    deployment = Deployment("smoke", "tests", ("run", "/etc/stampede/scenario.yaml"), text)
    assert found == manifests(load_scenario(load_file), deployment), "with the file's comments"


@pytest.mark.parametrize(
    ("words", "changes"),
    [(["run"], ""), (["drill", "outage", "how=pod"], " --set stop.height=77"), (["sweep", "0:100"], "")],
)
def test_a_schedule_runs_the_client_which_makes_the_objects(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], changes: str
) -> None:
    options = ["--namespace", "tests", "--name", "mine", "--set", "stop.height=77", "--set", "kubernetes.image=a:1"]
    found = render(capsys, "smoke", "--schedule", "0 2 * * 1-5", *options, "--command", *words)
    kinds = {each["kind"]: each for each in found}
    assert kinds["CronJob"]["spec"]["schedule"] == "0 2 * * 1-5" and "RayJob" not in kinds
    claims = [each["metadata"]["name"] for each in found if each["kind"] == "PersistentVolumeClaim"]
    assert claims == ["mine-runs"], "a night's others come and go with it"
    spec = kinds["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == kinds["RoleBinding"]["subjects"][0]["name"] == "mine"
    assert {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]} in kinds["Role"]["rules"]
    script = spec["containers"][0]["command"][-1]
    assert script.splitlines()[-1] == (
        f"exec stampede k8s run /etc/stampede/scenario.yaml --name mine-run{changes}"
        f' --namespace "$STAMPEDE_NAMESPACE" --command {" ".join(words)}'
    )
    assert "image: a:1\n" in kinds["ConfigMap"]["data"]["scenario.yaml"] and spec["containers"][0]["image"] == "a:1"
    assert ("height: 77" in kinds["ConfigMap"]["data"]["scenario.yaml"]) == (not changes)
    for number in range(20):
        (tmp_path / "runs" / f"20260101-0000{number:02}-smoke").mkdir(parents=True)
    (tmp_path / "runs" / "latest").symlink_to("20260101-000019-smoke")
    subprocess.run(["sh", "-ec", script.splitlines()[0]], cwd=tmp_path, check=True, timeout=HANGS_AFTER_S)
    left = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert left == [*(f"20260101-0000{number:02}-smoke" for number in range(7, 20)), "latest"]


def test_a_soak_has_other_times_on_a_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    (*_, nightly), (*_, hourly) = (
        render(capsys, "smoke", *options, "--command", "soak") for options in ([], ["--schedule", "5 * * * *"])
    )
    assert (nightly["spec"].pop("schedule"), hourly["spec"].pop("schedule")) == ("17 2 * * *", "5 * * * *")
    assert nightly == hourly


@pytest.mark.parametrize(
    ("schedule", "complaint"),
    [
        ("0 2 * *", "expected five fields (minute, hour, day, month, weekday), such as 0 2 * * *"),
        ("@daily", "expected five fields"),
        ("60 * * * *", "minute '60': expected *, numbers from 0 to 59"),
        ("0 2 0 * *", "day '0': expected *, numbers from 1 to 31"),
        ("0 5-3 * * *", "hour '5-3': expected"),
        ("*/0 * * * *", "minute '*/0': expected"),
        ("0 2 * * 1,,2", "weekday '1,,2': expected"),
    ],
)
def test_a_wrong_schedule_is_one_line(capsys: pytest.CaptureFixture[str], schedule: str, complaint: str) -> None:
    assert main(["k8s", "render", "smoke", "--schedule", schedule]) == ExitCode.BAD_INPUT
    printed = capsys.readouterr()
    assert printed.err.startswith(f"stampede: --schedule {schedule!r}: ") and complaint in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)


def test_a_schedule_gets_no_rights_over_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--namespace", "a", "--schedule", "0 2 * * *", "--set", "kubernetes.inject=[node]"]
    assert main(["k8s", "render", "smoke", *options]) == ExitCode.BAD_INPUT
    assert "--schedule: not with faults of how: node" in capsys.readouterr().err


def test_a_folder_has_a_file_for_each_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "manifests"
    assert main(["k8s", "render", "smoke", "--out", str(folder), "--monitoring", "--name", "mine"]) == ExitCode.PASS
    assert f"kubectl apply --kustomize {folder}" in capsys.readouterr().out
    page = yaml.safe_load((folder / KUSTOMIZATION_FILE).read_text())
    assert sorted([*page["resources"], KUSTOMIZATION_FILE]) == sorted(path.name for path in folder.iterdir())
    found = [yaml.safe_load((folder / name).read_text()) for name in page["resources"]]
    assert found == render(capsys, "smoke", "--monitoring", "--name", "mine")


def test_a_folder_has_nothing_of_an_earlier_rendering(tmp_path: Path) -> None:
    for count in (7, 4):
        options = ["--set", f"validators={count}", "--name", "mine", "--out", str(tmp_path)]
        assert main(["k8s", "render", "smoke", "--set", "faults=[]", *options]) == ExitCode.PASS
        assert len(list(tmp_path.glob("persistentvolumeclaim-mine-host-*.yaml"))) == count
        (tmp_path / "values.yaml").write_text("mine: true\n")
    assert (tmp_path / "values.yaml").exists(), "the user's own file"


def test_a_file_that_is_not_rendered_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / KUSTOMIZATION_FILE).write_text("resources: [mine.yaml]\n")
    assert main(["k8s", "render", "smoke", "--out", str(tmp_path)]) == ExitCode.BAD_INPUT
    assert "kustomization.yaml: is no file of stampede k8s render" in capsys.readouterr().err
    assert [path.read_text() for path in tmp_path.iterdir()] == ["resources: [mine.yaml]\n"]


def test_a_manifest_that_fails_keeps_no_other_from_being_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = files.write_atomically

    def no_room(path: Path, content: str | bytes) -> None:
        if path.name.startswith(("rayjob-", "service-")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, content)

    monkeypatch.setattr(files, "write_atomically", no_room)
    assert main(["k8s", "render", "smoke", "--out", str(tmp_path)]) == ExitCode.BAD_INPUT
    lines = capsys.readouterr().err.splitlines()
    listed = yaml.safe_load((tmp_path / KUSTOMIZATION_FILE).read_text())["resources"]
    missing = [name for name in listed if not (tmp_path / name).exists()]
    assert 1 <= len(missing) == len(lines) < len(listed)
    assert all("cannot be written: No space left on device" in line for line in lines)


def test_a_changed_scenario_travels_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("extends: base.yaml\nname: own_one\n")
    (tmp_path / "base.yaml").write_text("name: base\nstop: {height: 9}\n")
    found = render(capsys, str(own), "--set", "kubernetes.load.pods=2", "--set", "stop.timeout_s=60")
    (config,) = (each for each in found if each["kind"] == "ConfigMap")
    assert config["metadata"]["name"] == f"{name_for('own_one')}-scenario"
    assert yaml.safe_load(config["data"]["scenario.yaml"]) == {
        "name": "own_one",
        "stop": {"height": 9, "timeout_s": 60},
        "kubernetes": {"load": {"pods": 2}},
    }


def test_commands_of_the_driver(capsys: pytest.CaptureFixture[str]) -> None:
    drill = render(capsys, "smoke", "--command", "drill", "outage", "--set", "kubernetes.image=mine:1")
    assert entrypoint(drill) == "stampede drill outage"
    assert {"image": "mine:1"}.items() <= drill[-1]["spec"]["submitterPodTemplate"]["spec"]["containers"][0].items()
    (config,) = (each for each in drill if each["kind"] == "ConfigMap")
    assert "name: drill-outage\n" in config["data"]["scenario.yaml"], "for the client: the drill makes its scenario"
    by_pods = render(capsys, "smoke", "--command", "drill", "outage", "how=pod", "down-s=30")
    assert entrypoint(by_pods) == "stampede drill outage --down-s 30 --how pod"
    assert "Role" in {each["kind"] for each in by_pods} - {each["kind"] for each in drill}
    larger = render(capsys, "smoke", "--command", "drill", "outage", "--set", "validators.count=7")
    assert entrypoint(larger) == "stampede drill outage --set validators.count=7"
    assert "host-6" in {group["groupName"] for group in larger[-1]["spec"]["rayClusterSpec"]["workerGroupSpecs"]}
    sweep = render(capsys, "smoke", "--command", "sweep", "5:1000")
    assert entrypoint(sweep) == "stampede sweep /etc/stampede/scenario.yaml --seeds 5:1000 --memory 1536"
    dos = render(capsys, "siege", "--command", "dos", "storm", "sybil-fragmentation")
    assert entrypoint(dos) == "stampede dos /etc/stampede/scenario.yaml --attack storm sybil-fragmentation"
    assert entrypoint(render(capsys, "siege", "--command", "dos")) == "stampede dos /etc/stampede/scenario.yaml"
    soak = render(capsys, "smoke", "--command", "soak")
    assert soak[-1]["kind"] == "CronJob"
    names = {found[-1]["metadata"]["name"] for found in (drill, sweep, dos, soak)}
    assert names == {"drill-outage", "sweep-smoke", "dos-siege", "soak-smoke"}


def test_a_pod_runs_as_many_seeds_as_it_has_processors(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = render(capsys, "smoke", "--command", "sweep", "0:9", "--set", "kubernetes.seeds={cpu: 4, memory: 4Gi}")
    assert entrypoint(sweep).endswith("--memory 896"), "4 GiB without those of Ray, for each of four"
    (job,) = (each for each in sweep if each["kind"] == "RayJob")
    resources = job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["rayStartParams"]
    assert int(resources["num-cpus"]) * 896 <= 4 * 1024 - 512
    for cpu, workers in (("500m", 1), ("3500m", 3)):
        night = render(capsys, "smoke", "--command", "soak", "--set", f"kubernetes.driver.cpu={cpu}")[-1]
        (container,) = night["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        assert f"--workers {workers} --memory {2_048 // workers} " in container["command"][-1], "3 GiB, one for others"


def test_a_night_has_seeds_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The script of the pod, with commands in the places of ``stampede`` and ``date``."""
    night = render(capsys, "smoke", "--command", "soak")[-1]
    (container,) = night["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    for name, line in {"stampede": 'echo "$@"', "date": "echo $NOW"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    ranges = []
    for now in (20_000 * 86_400 - 1, 20_000 * 86_400, 20_000 * 86_400 + 86_399):
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "NOW": str(now)}
        done = subprocess.run(
            container["command"], env=environment, capture_output=True, text=True, check=True, timeout=HANGS_AFTER_S
        )
        words = done.stdout.split()
        assert words[:2] == ["sweep", "/etc/stampede/scenario.yaml"]
        seeds = seed_range(words[words.index("--seeds") + 1])
        assert words[-2:] == ["--out", f"runs/soak-smoke-{seeds[0]}"]
        ranges.append(seeds)
    assert [len(each) for each in ranges] == [1_000] * 3
    assert ranges[0][-1] + 1 == ranges[1][0] and ranges[1] == ranges[2]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["smokes"], "smokes: no such file, and no scenario of that name ships; did you mean smoke?"),
        (["smoke", "--name", "My"], "name 'My': expected lower-case letters"),
        (["smoke", "--name", ""], "name '': expected lower-case letters"),
        (["smoke", "--namespace", "a b"], "namespace 'a b': expected lower-case letters"),
        (
            ["smoke", "--command", "walk"],
            "--command walk: expected run, drill NAME [OPTION=VALUE …], sweep A:B, dos [ATTACK …] or soak",
        ),
        (["smoke", "--command", "drill"], "--command drill: expected run, drill NAME"),
        (["smoke", "--command", "drill", "outag"], "--command drill: unknown drill 'outag'; did you mean outage?"),
        (
            ["smoke", "--command", "drill", "outage", "hw=pod"],
            "--command drill: drill outage: unknown option 'hw'; did you mean how?",
        ),
        (
            ["smoke", "--command", "drill", "outage", "how=bomb"],
            "--command drill: how: got 'bomb', expected one of actor, process, pod",
        ),
        (
            ["smoke", "--command", "drill", "outage", "down-s"],
            "--command drill: '' is not a valid value of down-s: expected an integer from 2 to 600",
        ),
        (
            ["smoke", "--command", "drill", "divergence", "where=external"],
            "drill divergence: validators.nodes[1].external: the testnet's pods are not reachable",
        ),
        (["smoke", "--command", "dos", "storms"], "--command dos: unknown attack 'storms'; did you mean storm?"),
        (["smoke", "--command", "dos", "own.py"], "--command dos: unknown attack 'own.py'; known: same-block"),
        (["smoke", "--command", "sweep", "9:1"], "--command sweep: '9:1' is no range of seeds"),
        (
            ["smoke", "--set", "kubernetes.driver.cpu=none"],
            "smoke with --set: kubernetes.driver.cpu: expected a quant",
        ),
        (["smoke", "--set", "consensus.signatures=keyed-hash"], "smoke: consensus.signatures: the live testnet"),
    ],
)
def test_bad_input_is_one_line(options: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["k8s", "render", *options]) == ExitCode.BAD_INPUT
    line = capsys.readouterr().err
    assert line.startswith(f"stampede: {expected}") and line.count("\n") == 1


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    target = tmp_path / "file" / "manifests"
    assert main(["k8s", "render", "smoke", "--out", str(target)]) == ExitCode.BAD_INPUT
    assert f"{target}: is no folder, expected one" in capsys.readouterr().err


def test_texts_are_written_as_they_are() -> None:
    shared = {"key": "a: b\n# c\n", "number": "0", "yes": "on"}
    document = {"one": shared, "other": shared}
    assert "&" not in yaml_text(document), "no aliases"
    assert yaml.safe_load(yaml_text(document)) == document
    assert list(yaml.safe_load_all(stream([document, document]))) == [document, document]
