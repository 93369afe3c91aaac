"""``stampede nodes``: what a cluster has, and where a scenario's validators would go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from cluster.live.driver.ray_session import RaySession
from cluster.live.nodes.ray_nodes import HEAD_RESOURCE

GIB = 2.0**30


def page(address: str, number: int, **fields: Any) -> dict[str, Any]:
    return {
        "NodeID": f"{number}" * 8,
        "NodeManagerAddress": address,
        "Alive": True,
        "Labels": {"ray.io/node-id": f"{number}" * 8},
        "Resources": {"CPU": 4.0, "memory": 8 * GIB, f"node:{address}": 1.0},
    } | fields


PAGES = [
    page("10.0.0.1", 1, Resources={"CPU": 2.0, "memory": 2 * GIB, HEAD_RESOURCE: 1.0}),
    page("10.0.0.2", 2, Labels={"stampede.io/region": "eu", "disk": "fast"}),
    page("10.0.0.3", 3, Alive=False, DeathReasonMessage="health check failed"),
    page("10.0.0.4", 4, Resources={"CPU": 4.0, "memory": 8 * GIB, "custom": 1.0}),
]


class FakeRay:
    def __init__(self) -> None:
        self.is_joined = False

    def nodes(self) -> list[dict[str, Any]]:
        assert self.is_joined
        return PAGES

    def shutdown(self) -> None:
        self.is_joined = False


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """A joined one."""
    joined = FakeRay()
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")

    def start() -> RaySession:
        joined.is_joined = True
        return RaySession(joined, None)

    monkeypatch.setattr(RaySession, "start", staticmethod(start))
    return joined


def written(tmp_path: Path, **fields: Any) -> str:
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump({"name": "nodes"} | fields), encoding="utf-8")
    return str(path)


def rows(said: str) -> list[str]:
    return [" ".join(line.split()) for line in said.splitlines()]


def test_nodes_are_listed_with_what_they_carry(cluster: FakeRay, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nodes"]) == ExitCode.PASS
    heading, head, second, lost, fourth = rows(capsys.readouterr().out)
    assert heading == "node state carries region CPUs memory labels resources"
    assert head == "10.0.0.1 (111111), head alive – – 2 2.0 GiB – –"
    assert second == "10.0.0.2 (222222) alive – eu 4 8.0 GiB disk=fast, stampede.io/region=eu –"
    assert lost == "10.0.0.3 (333333) lost: health check failed – – – – – –"
    assert fourth == "10.0.0.4 (444444) alive – – 4 8.0 GiB – custom=1"
    assert not cluster.is_joined


def test_a_scenario_is_placed(cluster: FakeRay, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, validators=4)
    assert main(["nodes", file]) == ExitCode.PASS
    _, head, second, lost, fourth, summary, warning = rows(capsys.readouterr().out)
    assert head.endswith("– –"), "its help would not make the others carry less than two"
    assert second.endswith("2: validator-0, validator-2")
    assert fourth.endswith("2: validator-1, validator-3") and lost.endswith("–")
    assert summary == "4 validators: the loss of a node takes at most 2 validators, 1 are withstood"
    assert warning.startswith("warning: the loss of node 10.0.0.2 (222222) would take 2 validators")
    assert main(["nodes", file, "--json", "--set", "validators.count=2"]) == ExitCode.PASS
    found = json.loads(capsys.readouterr().out)
    assert [node["validators"] for node in found["nodes"]] == [[], ["validator-0"], [], ["validator-1"]]
    assert found["nodes"][2]["why_lost"] == "health check failed"
    assert len(found["warnings"]) == 1


def test_nodes_that_are_for_validators_say_so(
    cluster: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = page("10.0.0.5", 5, Resources={"CPU": 4.0, "stampede_validators": 1.0})
    monkeypatch.setattr(cluster, "nodes", lambda: [*PAGES, chosen])
    assert main(["nodes", written(tmp_path, validators=1)]) == ExitCode.PASS
    *others, row, _ = rows(capsys.readouterr().out)
    assert row == "10.0.0.5 (555555) alive validators – 4 0.0 GiB – stampede_validators=1 1: validator-0"
    assert all(other.endswith("–") for other in others[1:])


def test_without_a_cluster_it_says_what_a_run_would_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert main(["nodes"]) == ExitCode.BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("stampede: RAY_ADDRESS names no cluster; expected the address of its head.")
    assert main(["nodes", "--set", "validators.count=2"]) == ExitCode.BAD_INPUT
    assert "expected its FILE" in capsys.readouterr().err
